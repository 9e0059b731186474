"""The facade: rows B1-B8 and J1."""

import pickle
from pathlib import Path
from typing import Any

import pytest

from twopass import LLMProvider, parse_response
from twopass.errors import BadRequestError, ConfigError, ConnectError


def test_b1_invoke_gives_two_texts(config: dict[str, Any]) -> None:
    provider = LLMProvider(config)
    plain = provider.invoke("Which planet is the largest?")
    assert set(plain) == {"response", "thinking"}
    assert plain["response"] and plain["thinking"] == ""
    thought = provider.invoke("Which planet is the largest?", thinking=True)
    assert set(thought) == {"response", "thinking"} and thought["thinking"]


async def test_b1_async_twin_gives_the_same(config: dict[str, Any]) -> None:
    provider = LLMProvider(config)
    question = [{"role": "user", "content": "Name a colour."}]
    assert await provider.ainvoke(question, True) == provider.invoke(question, True)


def test_b2_call_arguments_win(config: dict[str, Any]) -> None:
    provider = LLMProvider(config)
    long = provider.invoke("Tell a story.", max_response_tokens=24)["response"]
    short = provider.invoke("Tell a story.", max_response_tokens=4)["response"]
    assert 0 < len(short) < len(long) and long.startswith(short)


def test_streams_hold_what_invoke_gives(config: dict[str, Any]) -> None:
    provider = LLMProvider(config)
    pieces = list(provider.stream("Name a colour.", thinking=True))
    whole = provider.invoke("Name a colour.", thinking=True)
    for name in ("thinking", "response"):
        assert "".join(text for kind, text in pieces if kind == name).strip() == whole[name]


@pytest.mark.parametrize(
    ("text", "response", "thinking"),
    [
        ("<think>a</think>b", "b", "a"),
        ("<thinking>a</thinking>\nb", "b", "a"),
        ("<think>never closed", "", "never closed"),
        ("no tag", "no tag", ""),
    ],
)
def test_b7_parse_response(text: str, response: str, thinking: str) -> None:
    expected = {"response": response, "thinking": thinking}
    assert parse_response(text) == LLMProvider.parse_response(text) == expected


def test_b14_errors_are_texts_or_exceptions() -> None:
    # Nothing listens on port 1.
    api = {"base_url": "http://127.0.0.1:1", "max_retries": 0}
    entry = {"name": "gone", "provider_backend": "vllm_native", "model_name": "m"}
    told = LLMProvider({"providers": [entry | {"api_config": api}]})
    assert told.invoke("Hi")["response"].startswith("Error: ")
    raised = LLMProvider({"providers": [entry | {"api_config": api, "on_error": "raise"}]})
    with pytest.raises(ConnectError) as caught:
        raised.invoke("Hi")
    assert (caught.value.kind, caught.value.provider) == ("connect", "gone")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), vars(again)) == (str(caught.value), vars(caught.value))


def test_mistakes_are_named(config: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="local"):
        LLMProvider(config, "nobody").invoke("Hi")
    with pytest.raises(ConfigError, match="max_tokens"):
        entry = config["providers"][0] | {"generation_config": {"max_tokns": 1}}
        LLMProvider({"providers": [entry]}).invoke("Hi")
    with pytest.raises(ConfigError, match="missing.yaml"):
        LLMProvider(tmp_path / "missing.yaml").invoke("Hi")
    with pytest.raises(BadRequestError) as caught:
        LLMProvider(config).invoke("Hi", max_response_tokens=0)
    assert caught.value.param == "max_response_tokens"


def test_j1_chat_short_and_embed(config: dict[str, Any]) -> None:
    provider = LLMProvider(config)
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    tools = [{"type": "function", "name": "weather", "parameters": parameters}]
    turn = provider.chat("Will it rain in Rome?", tools, "Be brief.", 16)
    assert set(turn) == {"text", "tool_calls", "output"}
    assert bool(turn["output"]) == bool(turn["tool_calls"])
    assert isinstance(provider.chat_short("Say hello."), str)
    vector = provider.embed("hello")
    assert len(vector) == 256 and all(isinstance(value, float) for value in vector)
