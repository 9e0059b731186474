"""Odd inputs end in one error that names them, and whoever leaves early leaves nothing behind."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import BaseModel

from served import embedded
from test_runtime import LIMIT_S, chat
from twopass import ChatVllm, LLMProvider, parse_response
from twopass.errors import BadRequestError, ContextLengthError
from upstream import Upstream, call

CYCLE: dict[str, Any] = {"type": "object", "properties": {}}
CYCLE["properties"]["self"] = CYCLE
HALF = "half \ud83d character"

# What is asked, and what the error says.
ODD: list[tuple[Callable[[LLMProvider], Any], str]] = [
    (lambda p: p.invoke(None), "must be a text or a list of messages, got NoneType"),
    (lambda p: p.invoke(b"hi"), "got bytes"),
    (lambda p: p.invoke(7), "got int"),
    (lambda p: p.invoke(["a", b"hi"]), r"`messages\[1\]` must be a message, got bytes"),
    (lambda p: p.invoke([None]), r"`messages\[0\]` must be a message, got NoneType"),
    (lambda p: p.invoke([{"role": "robot", "content": "Hi"}]), r"messages\[0\].role"),
    (lambda p: p.invoke([{"role": "user", "content": b"Hi"}]), "`messages` cannot be sent"),
    (lambda p: p.invoke([{"role": "user", "content": {1}}]), "`messages` cannot be sent"),
    (lambda p: p.invoke([]), "messages"),
    (lambda p: p.invoke(HALF), "half of a character"),
    (lambda p: p.invoke("Hi", temperature=float("nan")), "`temperature` cannot be sent"),
    (lambda p: p.invoke("Hi", max_thinking_tokens=-2), "max_thinking_tokens"),
    (lambda p: p.invoke("Hi", max_response_tokens=2**70), "max_response_tokens"),
    (lambda p: p.invoke("Hi", stop=[HALF]), "`stop` cannot be sent"),
    (lambda p: p.chat("Hi", [{"name": "f", "parameters": CYCLE}]), "`tools` cannot be sent"),
]


@pytest.mark.parametrize(("ask", "told"), ODD)
def test_odd_requests_are_refused_by_name(
    ask: Callable[[LLMProvider], Any], told: str, config: dict[str, Any]
) -> None:
    settings = {"providers": [config["providers"][0] | {"on_error": "raise"}]}
    with pytest.raises(BadRequestError, match=told):
        ask(LLMProvider(settings))


def test_half_characters_of_models_are_read() -> None:
    assert parse_response(f"<think>a</think>{HALF}")["response"] == "half ? character"


def test_empty_content_is_no_fault(config: dict[str, Any]) -> None:
    provider = LLMProvider(config)
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}]
    assert provider.invoke([*history, {"role": "user", "content": "Go on."}])["response"]


def test_a_prompt_that_is_too_long_says_so(config: dict[str, Any]) -> None:
    from langchain_core.exceptions import ContextOverflowError

    with pytest.raises(ContextOverflowError) as caught:
        chat(config).invoke("word " * 100_000)
    assert isinstance(caught.value, ContextLengthError) and "token" in str(caught.value)


class Node(BaseModel):
    """A tree."""

    name: str
    children: list["Node"] = []


def test_schemas_may_name_themselves(config: dict[str, Any], upstream: Upstream) -> None:
    tree = {"name": "a", "children": [{"name": "b", "children": []}]}
    upstream.turns = [{"content": "", "tool_calls": [call("Node", tree, "call_1")]}]
    model = ChatVllm(model="m", base_url=upstream.url, provider_backend="openai")
    (found,) = model.bind_tools([Node]).invoke("A tree?").tool_calls
    assert found["args"] == tree
    forced = chat(config).bind_tools([Node], tool_choice="any").invoke("A tree?", max_tokens=64)
    assert isinstance(forced, AIMessage)


def test_two_loops_share_a_model(config: dict[str, Any]) -> None:
    model = chat(config)
    expected = model.invoke("Hi").content
    texts: list[Any] = []

    def run() -> None:
        texts.extend(asyncio.run(model.abatch(["Hi", "Hi"])))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [message.content for message in texts] == [expected] * 4


def only_one() -> dict[str, Any]:
    """The test model with one place: a second turn waits until the first has left."""
    settings = embedded()
    settings["providers"][0]["engine_config"]["max_streams"] = 1
    return settings


def test_closing_a_loop_within_a_stream_frees_the_engine() -> None:
    provider = LLMProvider(only_one())
    loop = asyncio.new_event_loop()
    stream = provider.astream("Tell a long story.", max_response_tokens=4000)
    loop.run_until_complete(anext(stream))
    # As a program does that ends in a hurry: what waits for the next piece stays unfinished.
    step = loop.create_task(anext(stream))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert provider.invoke("Hi", max_response_tokens=1)["response"]
    assert not step.done()
    # The interpreter would complain of it at its end.
    step._log_destroy_pending = False  # type: ignore[attr-defined]


async def first_token_s(model: ChatVllm, question: str) -> float:
    """How long a turn takes to its first token."""
    asked_at = time.monotonic()
    async for _ in model.astream(question, max_response_tokens=1):
        break
    return time.monotonic() - asked_at


async def test_cancelling_a_task_frees_the_engine() -> None:
    model = ChatVllm(config=only_one(), two_pass=False, max_response_tokens=4000)
    await first_token_s(model, "Hi")  # Loads the model.
    alone = await first_token_s(model, "Name a city.")
    started = asyncio.Event()

    async def run() -> None:
        async for _ in model.astream("Tell a long story."):
            started.set()

    task = asyncio.create_task(run())
    await asyncio.wait_for(started.wait(), 60)
    cancelled_at = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # The place is free for the next turn, whose own first token is part of the time.
    await first_token_s(model, "Name a tree.")
    taken = time.monotonic() - cancelled_at
    alone = max(alone, await first_token_s(model, "Name a bird."))
    assert taken < LIMIT_S + alone, f"{taken} s, a turn alone {alone} s"


def test_leaving_a_stream_early_frees_the_engine() -> None:
    model = ChatVllm(config=only_one(), two_pass=False, max_response_tokens=4000)
    stream = model.stream("Tell a long story.")
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert model.invoke("Hi", max_response_tokens=1).content


def test_ctrl_c_frees_the_engine() -> None:
    model = ChatVllm(config=only_one(), two_pass=False, max_response_tokens=1)
    model.invoke("Hi")
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        model.invoke("Tell a long story.", max_response_tokens=8000)
    timer.join()
    assert model.invoke("Hi").content


def test_subinterpreters_are_refused() -> None:
    program = (
        "import _xxsubinterpreters as i, twopass; i.run_string(i.create(), 'import twopass')"
    )
    ran = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True)
    assert ran.returncode == 1, ran.stderr
    assert "ImportError" in ran.stderr and "subinterpreter" in ran.stderr, ran.stderr


def test_messages_may_be_of_any_kind(config: dict[str, Any]) -> None:
    asked = [("user", "Hi"), HumanMessage(["a", {"type": "text", "text": "b"}])]
    assert LLMProvider(config).invoke(asked)["response"]


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


def test_a_forced_call_that_does_not_fit_is_an_error() -> None:
    from langchain_core.exceptions import OutputParserException

    with Upstream() as upstream:
        upstream.turns = [{"tool_calls": [call("Person", {"nope": 1}, "c1")]}] * 4
        model = ChatVllm(base_url=upstream.url, provider_backend="openai", model="m")
        for schema in (Person, Person.model_json_schema()):
            form = model.with_structured_output(schema, method="function_calling")
            with pytest.raises(OutputParserException, match="`Person` was refused"):
                form.invoke("Who?")
            raw = model.with_structured_output(
                schema, method="function_calling", include_raw=True
            ).invoke("Who?")
            assert "was refused" in str(raw["parsing_error"])


def test_arguments_that_change_nothing_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="did you mean `max_response_tokens`"):
        LLMProvider(config).invoke("Hi", max_respons_tokens=3)
    with pytest.raises(ValueError, match="`base_url` is the configuration's"):
        ChatVllm(config=config, base_url="http://127.0.0.1:9")


def test_other_settings_are_another_model_to_a_cache(config: dict[str, Any]) -> None:
    other = {"providers": [config["providers"][0] | {"on_error": "raise"}]}
    models = [ChatVllm(config=config), ChatVllm(config=other), ChatVllm(config=config)]
    first, second, third = [model._identifying_params for model in models]
    assert first == third != second
