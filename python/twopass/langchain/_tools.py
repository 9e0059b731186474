"""Tools, choices and forms of answers as requests have them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.output_parsers.openai_tools import (
    JsonOutputKeyToolsParser,
    PydanticToolsParser,
)
from langchain_core.outputs import Generation
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.pydantic import is_basemodel_subclass

if TYPE_CHECKING:
    from twopass.langchain._chat import ChatVllm


@dataclass(frozen=True)
class Form:
    """How an answer is held to a form."""

    method: str
    include_raw: bool
    strict: bool | None


def wire_tools(tools: Sequence[Any]) -> list[dict[str, Any]]:
    """Functions, models, tools and schemas as tools of a request."""
    return [convert_to_openai_tool(tool)["function"] for tool in tools]


def wire_choice(choice: dict[str, Any] | str | bool) -> dict[str, Any] | str:
    """A choice in any client's spelling as a request has it."""
    if choice is True or choice in ("any", "required"):
        return "required"
    if choice in ("auto", "none"):
        return str(choice)
    if isinstance(choice, str):
        return {"type": "function", "function": {"name": choice}}
    if isinstance(choice, bool):
        return "auto"
    if "function" in choice:
        return choice
    # Anthropic's spelling.
    return wire_choice(str(choice["name"] if "name" in choice else choice.get("type")))


def form_of(response_format: Any) -> dict[str, Any]:
    """A `response_format` in OpenAI's spelling, or a schema, as extras of a request."""
    if response_format is None:
        return {}
    kind: Any = None
    if isinstance(response_format, Mapping):
        kind = cast(Mapping[str, Any], response_format).get("type")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"json": True}
    if kind == "json_schema" and "json_schema" in response_format:
        return {"schema": response_format["json_schema"]}
    return {"schema": _schema(response_format)}


def _schema(schema: Any, strict: bool | None = None) -> dict[str, Any]:
    function = convert_to_openai_tool(schema)["function"]
    form = {"name": function["name"], "schema": function["parameters"]}
    return form if strict is None else form | {"strict": strict}


def structured(model: "ChatVllm", schema: Any, form: Form) -> Runnable[Any, Any]:
    """The model and a parser of its answers."""
    _check(schema, form)
    kept = {"method": form.method} | ({} if form.strict is None else {"strict": form.strict})
    traced = {"kwargs": kept, "schema": schema}
    model_class: Any = schema if _is_model(schema) else None
    parser: Any
    if form.method == "function_calling":
        name = convert_to_openai_tool(schema)["function"]["name"]
        bound = model.bind_tools(
            [schema],
            tool_choice=name,
            parallel_tool_calls=False,
            ls_structured_output_format=traced,
        )
        parser = (
            _FitModel(tools=[model_class], first_tool_only=True)
            if model_class
            else _FitCall(key_name=name, first_tool_only=True)
        )
    else:
        wanted: dict[str, Any] = {"type": "json_object"}
        if form.method == "json_schema":
            wanted = {"type": "json_schema", "json_schema": _schema(schema, form.strict)}
        bound = model.bind(response_format=wanted, ls_structured_output_format=traced)
        parser = _WholeJson()
        if model_class:
            parser = _WholeModel(pydantic_object=model_class)
    if not form.include_raw:
        return bound | parser
    parsed = RunnablePassthrough.assign(
        parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
    )
    failed = RunnablePassthrough.assign(parsed=lambda _: None)
    return RunnableMap(raw=bound) | parsed.with_fallbacks([failed], exception_key="parsing_error")


class _WholeJson(JsonOutputParser):
    """Refuses an answer that was cut at its cap; core would close its JSON and pass it on."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        _refuse_cut(result, partial)
        return super().parse_result(result, partial=partial)


class _WholeModel(PydanticOutputParser[Any]):
    """The same for models."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        _refuse_cut(result, partial)
        return super().parse_result(result, partial=partial)


class _FitCall(JsonOutputKeyToolsParser):
    """Refuses a forced call that does not fit; core would pass on None."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        _refuse_invalid(result, partial)
        return super().parse_result(result, partial=partial)


class _FitModel(PydanticToolsParser):
    """The same for models."""

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        _refuse_invalid(result, partial)
        return super().parse_result(result, partial=partial)


def _refuse_invalid(result: list[Generation], partial: bool) -> None:
    message: Any = getattr(result[0], "message", None) if result else None
    if partial or not isinstance(message, AIMessage) or message.tool_calls:
        return
    for call in message.invalid_tool_calls:
        told = f"the call of `{call['name']}` was refused: {call['error']}"
        raise OutputParserException(told, llm_output=str(call["args"]))


def _refuse_cut(result: list[Generation], partial: bool) -> None:
    found: Any = result[0] if result else None
    message = getattr(found, "message", None)
    metadata: dict[str, Any] = getattr(message, "response_metadata", {})
    if not partial and metadata.get("finish_reason") == "length":
        raise OutputParserException(
            "the answer was cut at its cap; raise `max_response_tokens`", llm_output=found.text
        )


def _check(schema: Any, form: Form) -> None:
    allowed = ("json_schema", "function_calling", "json_mode")
    if form.method not in allowed:
        raise ValueError(f"unknown method `{form.method}`, allowed: {', '.join(allowed)}")
    if schema is None and form.method != "json_mode":
        raise ValueError(f"`{form.method}` needs a schema")


def _is_model(schema: Any) -> bool:
    return isinstance(schema, type) and is_basemodel_subclass(schema)


def estimate(messages: Sequence[BaseMessage]) -> int:
    """About how many tokens messages are, for backends that cannot count them."""
    return count_tokens_approximately(messages)
