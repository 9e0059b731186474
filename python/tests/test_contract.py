"""The contract of agents: rows B4-B8, the same for every backend, over real servers."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from twopass import ChatOpenAIThinking, ChatVllm, LLMProvider
from twopass.errors import RateLimitError, TwopassError
from upstream import Upstream, call


@tool
def overwrite_memory(text: str) -> str:
    """Replace the memory with a text."""
    return f"kept: {text}"


@tool
def get_forecast(city: str) -> str:
    """Get the forecast for a city."""
    return f"sun in {city}"


@pytest.fixture(params=["openai", "vllm_native", "embedded"])
def provider(request: pytest.FixtureRequest, server: str, config: dict[str, Any]) -> LLMProvider:
    """A provider of each backend over the same model."""
    if request.param == "embedded":
        return LLMProvider(config)
    path = "/v1" if request.param == "openai" else ""
    entry = {
        "name": "remote",
        "provider_backend": request.param,
        "model_name": "local",
        "parsing_format": "think_tags",
        "tool_parser": "openai" if request.param == "openai" else "hermes",
        "api_config": {"base_url": server + path},
        "generation_config": {"temperature": 0, "max_tokens": 96},
    }
    return LLMProvider({"providers": [entry]})


def test_b4_b5_bound_tools_give_the_same_message(provider: LLMProvider) -> None:
    client = provider.client.bind_tools([overwrite_memory], tool_choice="required")
    message = client.invoke([SystemMessage("Be brief."), HumanMessage("Remember: tea.")])
    assert isinstance(message, AIMessage) and isinstance(message.content, str)
    assert isinstance(message.additional_kwargs["thinking"], str)
    (found,) = message.tool_calls
    assert found["name"] == "overwrite_memory" and found["id"]
    assert set(found["args"]) == {"text"} and isinstance(found["args"]["text"], str)


def test_b6_b7_b8_content_is_raw_and_thinking_kept(provider: LLMProvider) -> None:
    message = provider.client.invoke([HumanMessage("Which planet is the largest?")], max_tokens=64)
    assert isinstance(message.content, str)
    split = LLMProvider.parse_response(message.content)
    assert split["thinking"].strip() == message.additional_kwargs["thinking"].strip()
    assert "think>" not in split["response"]
    if message.additional_kwargs["thinking"]:
        assert message.content.startswith("<think>")
        assert message.content_blocks[0]["type"] == "reasoning"


# A turn in each spelling of the reasoning.
TURNS: list[dict[str, Any]] = [
    {name: "A walk. Rain?", "content": "Sun.", "tool_calls": []}
    for name in ("reasoning_content", "reasoning")
]


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("kind", [ChatVllm, ChatOpenAIThinking])
def test_thinking_of_a_service_is_kept(kind: Any, turn: dict[str, Any], upstream: Upstream) -> None:
    backend = {"provider_backend": "openai"} if kind is ChatVllm else {}
    model = kind(model="m", base_url=upstream.url, api_key="k", max_tokens=9, **backend)
    upstream.turns = [dict(turn), dict(turn)]
    whole = model.invoke("Hi")
    merged = None
    for chunk in model.stream("Hi"):
        merged = chunk if merged is None else merged + chunk
    for message in (whole, merged):
        assert message is not None and message.content == "Sun."
        assert message.additional_kwargs["thinking"] == "A walk. Rain?"
        kinds = [block["type"] for block in message.content_blocks]
        assert kinds == ["reasoning", "text"]
        assert message.usage_metadata["input_tokens"] == 9
    assert upstream.requests[0]["max_tokens"] == 9


def test_ids_are_unique_over_the_conversation(upstream: Upstream) -> None:
    turn = {"content": "", "tool_calls": [call("get_forecast", {"city": "Rome"}, "call_1")]}
    upstream.turns = [dict(turn), dict(turn), dict(turn)]
    model = ChatVllm(model="m", base_url=upstream.url, provider_backend="openai")
    bound = model.bind_tools([get_forecast])
    first = bound.invoke("Rome?")
    history = [HumanMessage("Rome?"), first, ToolMessage("sun", tool_call_id="call_1")]
    second = bound.invoke(history)
    streamed = [c for chunk in bound.stream(history) for c in chunk.tool_call_chunks]
    assert first.tool_calls[0]["id"] == "call_1" != second.tool_calls[0]["id"]
    assert [c["id"] for c in streamed] == [second.tool_calls[0]["id"]]


def test_refused_calls_are_listed_with_their_reason(upstream: Upstream) -> None:
    wrong = {"content": "", "tool_calls": [call("get_forecast", {"town": 1}, "call_1")]}
    upstream.turns = [dict(wrong), dict(wrong)]
    model = ChatVllm(model="m", base_url=upstream.url, provider_backend="openai")
    bound = model.bind_tools([get_forecast])
    merged = None
    for chunk in bound.stream("Rome?"):
        merged = chunk if merged is None else merged + chunk
    for message in (bound.invoke("Rome?"), merged):
        assert message is not None and not message.tool_calls
        (refused,) = message.invalid_tool_calls
        assert refused["name"] == "get_forecast" and "city" in str(refused["error"])


def test_errors_are_ours_and_langchains() -> None:
    from langchain_core.exceptions import ModelConnectionError, ModelRateLimitError

    from twopass.errors import from_native
    from twopass.langchain._errors import typed

    model = ChatVllm(model="m", base_url="http://127.0.0.1:1", max_retries=0)
    with pytest.raises(ModelConnectionError) as caught:
        model.invoke("Hi")
    assert isinstance(caught.value, TwopassError)
    limited = typed(from_native("later", kind="rate_limited", retry_after_s=2.0))
    assert isinstance(limited, ModelRateLimitError) and isinstance(limited, RateLimitError)
    assert limited.retry_after_s == 2.0


def test_unknown_arguments_name_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean `max_thinking_tokens`"):
        ChatVllm(model="m", max_thinking_token=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="did you mean `temperature`"):
        ChatVllm(model="m", base_url="http://127.0.0.1:1").invoke("Hi", temprature=1)


def test_keys_are_shown_nowhere() -> None:
    model = ChatVllm(model="m", base_url="http://127.0.0.1:1", api_key="secret-1", max_retries=0)  # type: ignore[arg-type]
    with pytest.raises(TwopassError) as caught:
        model.invoke("Hi")
    assert "secret-1" not in f"{model!r}{model.asdict()}{caught.value!r}"
