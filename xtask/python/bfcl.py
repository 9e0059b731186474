#!/usr/bin/env python3
"""The Berkeley Function-Calling Leaderboard's tasks and checks, as the Python package bfcl-eval carries them.

    bfcl.py tasks CATEGORY COUNT   prints {id, category, messages, tools}, a JSON line per task
    bfcl.py score                  reads {id, category, calls: [{name, arguments: text}]} line by line and prints
                                   {id, correct, valid, error}

The checks are the package's own (`ast_checker`). It imports every client library that the leaderboard knows for one
flag per model; that flag is given here instead: names with a dot are sent, and compared, with an underscore, as the
leaderboard does for OpenAI's models. `valid` means: there is a call, each is to an offered function, and its
arguments fit that function's JSON Schema.
"""
import copy
import json
import pathlib
import sys
import types

SUFFIX = {"simple": "simple_python"}
MODEL = "checked"


class Flag:
    underscore_to_dot = True


models = types.ModuleType("bfcl_eval.constants.model_config")
models.MODEL_CONFIG_MAPPING = {MODEL: Flag}
sys.modules[models.__name__] = models

import bfcl_eval  # noqa: E402
from bfcl_eval.constants.enums import Language  # noqa: E402
from bfcl_eval.constants.type_mappings import GORILLA_TO_OPENAPI  # noqa: E402
from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # noqa: E402

DATA = pathlib.Path(bfcl_eval.__file__).parent / "data"


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def file_name(category):
    return f"BFCL_v4_{SUFFIX.get(category, category)}.json"


def tasks(category):
    return {task["id"]: task for task in lines(DATA / file_name(category))}


def schema(field):
    """A field's type in the words of JSON Schema; what else it says stays."""
    field = copy.deepcopy(field)
    name = field.get("type")
    if name is not None:
        field["type"] = GORILLA_TO_OPENAPI.get(name, "string")
    # Words of the data that mean nothing, or something else, in JSON Schema.
    field.pop("optional", None)
    if isinstance(field.get("required"), bool):
        del field["required"]
    if "properties" in field:
        field["properties"] = {name: schema(value) for name, value in field["properties"].items()}
    if "items" in field:
        field["items"] = schema(field["items"])
    return field


def tool(function):
    return {
        "type": "function",
        "function": {
            "name": function["name"].replace(".", "_"),
            "description": function["description"],
            "parameters": schema(function["parameters"]),
        },
    }


def spread(tasks, count):
    """So many of them, evenly over the whole file, which is sorted by kind."""
    tasks = list(tasks)
    count = min(count, len(tasks))
    return [tasks[index * len(tasks) // count] for index in range(count)]


def print_tasks(category, count):
    for task in spread(tasks(category).values(), count):
        line = {
            "id": task["id"],
            "category": category,
            "messages": task["question"][0],
            "tools": [tool(function) for function in task["function"]],
        }
        print(json.dumps(line))


def invalid(calls, functions):
    """Why the calls are not valid, or None."""
    from jsonschema import Draft202012Validator

    if not calls:
        return "no call"
    schemas = {made["name"]: made["parameters"] for made in (tool(function)["function"] for function in functions)}
    for call in calls:
        if call["name"] not in schemas:
            return f"unknown function {call['name']}"
        try:
            arguments = json.loads(call["arguments"])
        except ValueError:
            return "arguments are no JSON"
        if not isinstance(arguments, dict):
            return "arguments are no object"
        error = next(Draft202012Validator(schemas[call["name"]]).iter_errors(arguments), None)
        if error is not None:
            return f"schema: {error.message[:80]}"
    return None


def score(asked, answer, category):
    fault = invalid(asked["calls"], answer["function"])
    try:
        calls = [{call["name"]: json.loads(call["arguments"])} for call in asked["calls"]]
        result = ast_checker(
            answer["function"], calls, answer["ground_truth"], Language.PYTHON, SUFFIX.get(category, category), MODEL
        )
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        result = {"valid": False, "error_type": f"{type(error).__name__}"}
    return {
        "id": asked["id"],
        "correct": bool(result["valid"]),
        "valid": fault is None,
        "error": fault or (None if result["valid"] else str(result.get("error_type"))),
    }


def print_scores():
    known = {}
    for line in sys.stdin:
        asked = json.loads(line)
        category = asked["category"]
        if category not in known:
            known[category] = tasks(category)
            for truth in lines(DATA / "possible_answer" / file_name(category)):
                known[category][truth["id"]]["ground_truth"] = truth["ground_truth"]
        print(json.dumps(score(asked, known[category][asked["id"]], category)))


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "tasks":
        print_tasks(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:] == ["score"]:
        print_scores()
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
