"""The official client of Anthropic."""

import anthropic
import pytest
from anthropic import Anthropic

from conftest import QUESTION, TOOL

ASKED = {"model": "local", "max_tokens": 64}
SCHEMA = {
    "name": TOOL["name"],
    "description": TOOL["description"],
    "input_schema": TOOL["parameters"],
}
THINKING = {"type": "enabled", "budget_tokens": 8}


@pytest.fixture(scope="module")
def client(url: str) -> Anthropic:
    return Anthropic(base_url=url, api_key="unused", max_retries=0)


def test_messages(client: Anthropic) -> None:
    message = client.messages.create(**ASKED, messages=QUESTION)
    assert [block.type for block in message.content] == ["text"]
    assert "<think" not in message.content[0].text
    assert message.usage.input_tokens > 0 and message.stop_reason in ("end_turn", "max_tokens")


def test_thinking(client: Anthropic) -> None:
    message = client.messages.create(**ASKED, messages=QUESTION, thinking=THINKING)
    thought, answer = message.content
    assert thought.type == "thinking" and thought.thinking and thought.signature
    assert answer.type == "text" and answer.text


def test_the_streaming_helper(client: Anthropic) -> None:
    with client.messages.stream(**ASKED, messages=QUESTION, thinking=THINKING) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    assert {"thinking", "text", "message_stop"} <= kinds
    assert [block.type for block in final.content] == ["thinking", "text"]


def test_a_round_of_tools(client: Anthropic) -> None:
    asked = {**ASKED, "tools": [SCHEMA]}
    first = client.messages.create(
        **asked, messages=QUESTION, thinking=THINKING, tool_choice={"type": "any"}
    )
    assert first.stop_reason == "tool_use"
    (call,) = [block for block in first.content if block.type == "tool_use"]
    assert call.name == "get_forecast" and "city" in call.input
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "It will rain."}
    history = [
        *QUESTION,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [result]},
    ]
    second = client.messages.create(**asked, messages=history, tool_choice={"type": "none"})
    assert second.content[0].type == "text"


def test_tokens_are_counted(client: Anthropic) -> None:
    counted = client.messages.count_tokens(model="local", messages=QUESTION)
    message = client.messages.create(**ASKED, messages=QUESTION)
    usage = message.usage
    used = usage.input_tokens + usage.cache_read_input_tokens
    # The empty thought of a turn without thinking is read too.
    assert counted.input_tokens <= used <= counted.input_tokens + 8


def test_errors_have_their_class(client: Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="nobody"):
        client.messages.create(model="nobody", max_tokens=8, messages=QUESTION)
    with pytest.raises(anthropic.BadRequestError, match="messages"):
        client.messages.create(**ASKED, messages=[])
