"""The official client of OpenAI."""

import json

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel, Field

from conftest import QUESTION, TOOL

FUNCTION = {"type": "function", "function": TOOL}
#: The Responses API has its functions flat.
FLAT = {"type": "function", "strict": True, **TOOL}


class Verdict(BaseModel):
    rain: bool
    why: str = Field(max_length=30)


@pytest.fixture(scope="module")
def client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)


def test_chat(client: OpenAI) -> None:
    completion = client.chat.completions.create(
        model="local", messages=QUESTION, extra_body={"max_thinking_tokens": 8}
    )
    message = completion.choices[0].message
    assert message.content and "<think" not in message.content
    assert message.model_extra["reasoning_content"]
    details = completion.usage.completion_tokens_details
    assert 0 < details.reasoning_tokens <= 8


def test_a_stream_is_the_whole_answer_in_pieces(client: OpenAI) -> None:
    asked = {"model": "local", "messages": QUESTION, "extra_body": {"max_thinking_tokens": 8}}
    whole = client.chat.completions.create(**asked).choices[0].message
    text, reasoning, usage = "", "", None
    stream = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reasoning += (choice.delta.model_extra or {}).get("reasoning_content") or ""
    assert (text, reasoning) == (whole.content, whole.model_extra["reasoning_content"])
    assert usage is not None and usage.completion_tokens > 0


def test_logprobs_are_those_of_the_content(client: OpenAI) -> None:
    asked = {"model": "local", "messages": QUESTION, "extra_body": {"max_thinking_tokens": 8}}
    asked |= {"logprobs": True, "top_logprobs": 3}
    choice = client.chat.completions.create(**asked).choices[0]
    tokens = choice.logprobs.content
    assert bytes(b for t in tokens for b in t.bytes).decode().strip() == choice.message.content
    assert all(t.logprob <= 0 and len(t.top_logprobs) == 3 for t in tokens)
    streamed = []
    for chunk in client.chat.completions.create(**asked, stream=True):
        for piece in chunk.choices:
            streamed += piece.logprobs.content if piece.logprobs else []
    words = [token.token for token in streamed if token.token.strip()]
    assert words == [token.token for token in tokens if token.token.strip()]
    completion = client.completions.create(model="local", prompt="One, two,", logprobs=2)
    told = completion.choices[0].logprobs
    assert "".join(told.tokens) == completion.choices[0].text
    assert len(told.tokens) == len(told.token_logprobs) == len(told.top_logprobs)
    with pytest.raises(openai.BadRequestError, match="top_logprobs"):
        client.chat.completions.create(**(asked | {"top_logprobs": 21}))


def test_the_streaming_helper(client: OpenAI) -> None:
    asked = {"model": "local", "messages": QUESTION, "tools": [FUNCTION]}
    with client.chat.completions.stream(**asked, tool_choice="required") as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "tool_calls.function.arguments.delta"} <= kinds
    call = final.choices[0].message.tool_calls[0]
    assert call.function.name == "get_forecast"
    assert "city" in json.loads(call.function.arguments)
    assert final.choices[0].finish_reason == "tool_calls"


def test_a_round_of_tools(client: OpenAI) -> None:
    asked = {"model": "local", "tools": [FUNCTION]}
    named = {"type": "function", "function": {"name": "get_forecast"}}
    first = client.chat.completions.create(**asked, messages=QUESTION, tool_choice=named)
    message = first.choices[0].message
    (call,) = message.tool_calls
    history = [
        *QUESTION,
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "It will rain."},
    ]
    second = client.chat.completions.create(**asked, messages=history, tool_choice="none")
    assert second.choices[0].message.content
    assert second.choices[0].message.tool_calls is None


def test_a_parsed_answer(client: OpenAI) -> None:
    completion = client.chat.completions.parse(
        model="local", messages=QUESTION, response_format=Verdict, max_completion_tokens=200
    )
    assert isinstance(completion.choices[0].message.parsed, Verdict)


def test_responses_are_stored_and_gone_on_from(client: OpenAI) -> None:
    first = client.responses.create(model="local", input="Name a planet.")
    assert first.output_text
    second = client.responses.create(
        model="local", input="Name another.", previous_response_id=first.id
    )
    assert second.usage.input_tokens > first.usage.input_tokens
    assert client.responses.retrieve(first.id).output_text == first.output_text
    items = client.responses.input_items.list(first.id)
    assert [item.type for item in items] == ["message"]
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_a_stream_of_responses(client: OpenAI) -> None:
    with client.responses.stream(model="local", input="Name a planet.") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert final.output_text


def test_responses_with_tools_and_forms(client: OpenAI) -> None:
    asked = {"model": "local", "input": QUESTION}
    called = client.responses.create(**asked, tools=[FLAT], tool_choice="required")
    (call,) = [item for item in called.output if item.type == "function_call"]
    assert "city" in json.loads(call.arguments)
    parsed = client.responses.parse(**asked, text_format=Verdict, max_output_tokens=200)
    assert isinstance(parsed.output_parsed, Verdict)


def test_embeddings(client: OpenAI) -> None:
    texts = ["rain in Rome", "the weather of Rome", "a lathe"]
    made = client.embeddings.create(model="local", input=texts)
    a, b, c = (entry.embedding for entry in made.data)
    product = lambda x, y: sum(p * q for p, q in zip(x, y))
    assert product(a, b) > product(a, c)
    as_numbers = client.embeddings.create(model="local", input=texts[0], encoding_format="float")
    assert as_numbers.data[0].embedding == pytest.approx(a, abs=1e-6)


def test_models_and_raw_text(client: OpenAI) -> None:
    assert "local" in {model.id for model in client.models.list()}
    assert client.models.retrieve("local").id == "local"
    completion = client.completions.create(model="local", prompt="One, two,", max_tokens=4)
    assert completion.choices[0].text


def test_errors_have_their_class(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.chat.completions.create(model="nobody", messages=QUESTION)
    with pytest.raises(openai.BadRequestError, match="messages"):
        client.chat.completions.create(model="local", messages=[])
    with pytest.raises(openai.BadRequestError, match="prompt is too long"):
        long = [{"role": "user", "content": "word " * 9000}]
        client.chat.completions.create(model="local", messages=long)
