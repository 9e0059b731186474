"""What messages hold besides text: images, thoughts as blocks, usage; and forms of answers."""

import json
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import HumanMessage
from pydantic import BaseModel

from test_contract import get_forecast
from test_runtime import chat
from twopass import ChatVllm, LLMProvider
from twopass.errors import BadRequestError
from twopass.provider import encode
from upstream import Upstream, call

DATA = "iVBORw0KGgo="
URL = f"data:image/png;base64,{DATA}"
# One image in each spelling that LangChain and services have.
IMAGES: list[dict[str, Any]] = [
    {"type": "image", "base64": DATA, "mime_type": "image/png"},
    {"type": "image", "source_type": "base64", "data": DATA, "mime_type": "image/png"},
    {"type": "image", "url": URL},
    {"type": "image_url", "image_url": {"url": URL}},
    {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": DATA},
    },
]


def over(upstream: Upstream, **fields: Any) -> ChatVllm:
    """A model of the service that plays given turns."""
    return ChatVllm(model="m", base_url=upstream.url, provider_backend="openai", **fields)


@pytest.mark.parametrize("image", IMAGES)
def test_images_reach_the_service(image: dict[str, Any], upstream: Upstream) -> None:
    upstream.turns = [{"content": "A dot."}]
    over(upstream).invoke([HumanMessage([{"type": "text", "text": "What is it?"}, image])])
    text, sent = upstream.requests[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is it?"}
    assert sent == {"type": "image_url", "image_url": {"url": URL}}


@pytest.mark.parametrize("image", IMAGES)
def test_a_model_without_eyes_says_so(
    image: dict[str, Any], config: dict[str, Any], server: str
) -> None:
    asked = [HumanMessage(["What is it?", image])]
    for model in (chat(config), ChatVllm(base_url=server, model="local")):
        with pytest.raises(BadRequestError, match=r"messages\[0\].content\[1\].*text only"):
            model.invoke(asked)


def test_blocks_that_nobody_knows_are_refused(upstream: Upstream) -> None:
    for block, told in [
        ({"type": "hologram"}, "hologram"),
        ({"type": "audio", "url": "http://a/b.wav"}, "audio"),
    ]:
        with pytest.raises(BadRequestError, match=told):
            over(upstream).invoke([HumanMessage([block])])


THOUGHT = {"reasoning_content": "A walk.", "content": "Sun."}


@pytest.mark.parametrize("version", ["v0", "v1"])
async def test_thoughts_are_blocks_in_both_versions(version: str, upstream: Upstream) -> None:
    weather = call("get_forecast", {"city": "Rome"}, "call_1")
    upstream.turns = [THOUGHT | {"tool_calls": [weather]} for _ in range(4)]
    model = over(upstream, output_version=version).bind_tools([get_forecast])
    merged: Any = None
    for chunk in model.stream("Hi"):
        merged = chunk if merged is None else merged + chunk
    later: Any = None
    async for chunk in model.astream("Hi"):
        later = chunk if later is None else later + chunk
    for message in (model.invoke("Hi"), await model.ainvoke("Hi"), merged, later):
        blocks: Any = message.content_blocks
        assert [block["type"] for block in blocks] == ["reasoning", "text", "tool_call"]
        assert (blocks[0]["reasoning"], blocks[1]["text"]) == ("A walk.", "Sun.")
        assert blocks[2]["args"] == {"city": "Rome"} == message.tool_calls[0]["args"]
        assert isinstance(message.content, list if version == "v1" else str)
        assert message.text == "Sun."
        # Told once: metadata of chunks that repeat it would be glued together.
        assert message.response_metadata["finish_reason"] == "tool_calls"
        assert message.response_metadata["model_name"] == "m"


def test_a_turn_of_version_1_is_sent_back_whole(upstream: Upstream) -> None:
    upstream.turns = [dict(THOUGHT), {"content": "Yes."}]
    model = over(upstream, output_version="v1")
    first = model.invoke("Hi")
    model.invoke([HumanMessage("Hi"), first, HumanMessage("Sure?")])
    said = upstream.requests[1]["messages"][1]
    assert (said["role"], said["content"]) == ("assistant", "Sun.")


def test_usage_tells_thought_and_cache(config: dict[str, Any]) -> None:
    model = ChatVllm(config=config, thinking=True, two_pass=True, max_thinking_tokens=6)
    question = "Which planet is the largest of all planets, and which one is the smallest?"
    model.invoke(question)
    usage = model.invoke(question).usage_metadata
    assert usage is not None
    assert usage["output_token_details"]["reasoning"] == 6
    assert 0 < usage["input_token_details"]["cache_read"] <= usage["input_tokens"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_a_thought_without_a_cap_is_one_pass() -> None:
    request, extra = encode("Hi", {"max_thinking_tokens": -1, "seed": 1})
    assert '"two_pass":false' in request and "max_thinking_tokens" not in request
    assert extra == '{"thinking":true}'
    _, extra = encode("Hi", {"max_thinking_tokens": -1, "thinking": False})
    assert extra == '{"thinking":false}'


class City(BaseModel):
    """A city."""

    name: str
    people: int


class CityDict(TypedDict):
    """A city."""

    name: str
    people: int


ROME = '{"name": "Rome", "people": 3}'
SCHEMAS = [City, CityDict, City.model_json_schema()]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
def test_forms_by_every_method(method: Any, schema: Any, upstream: Upstream) -> None:
    rome = {"name": "Rome", "people": 3}
    turn: dict[str, Any] = {"content": json.dumps(rome)}
    if method == "function_calling":
        name = "CityDict" if schema is CityDict else "City"
        turn = {"content": "", "tool_calls": [call(name, rome, "c")]}
    upstream.turns = [dict(turn), dict(turn)]
    model = over(upstream)
    found: Any = model.with_structured_output(schema, method=method).invoke("Rome?")
    assert found == (City(**rome) if schema is City else rome)
    whole = model.with_structured_output(schema, method=method, include_raw=True)
    both: Any = whole.invoke("Rome?")
    assert both["parsed"] == found and both["parsing_error"] is None
    sent = upstream.requests[0]
    kinds = {"json_schema": "json_schema", "json_mode": "json_object"}
    if method in kinds:
        assert sent["response_format"]["type"] == kinds[method]
    else:
        assert sent["tools"] and sent["tool_choice"] != "auto"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_cut_answer_is_no_form(schema: Any, config: dict[str, Any]) -> None:
    model = ChatVllm(config=config, two_pass=False, max_response_tokens=6)
    with pytest.raises(OutputParserException, match="max_response_tokens"):
        model.with_structured_output(schema).invoke("Rome?")


def test_the_profile_is_known_without_a_request() -> None:
    profile = ChatVllm(model="m", base_url="http://127.0.0.1:1").profile
    assert profile is not None and profile["structured_output"] and profile["tool_choice"]
    entry = {"name": "a", "provider_backend": "embedded", "model_name": "m"}
    engine = {"engine_config": {"context_tokens": 4096}}
    sized = ChatVllm(config={"providers": [entry | engine]})
    assert sized.profile is not None and sized.profile["max_input_tokens"] == 4096


def test_an_agent_binds_its_form_natively(upstream: Upstream) -> None:
    weather = call("get_forecast", {"city": "Rome"}, "call_1")
    upstream.turns = [{"content": "", "tool_calls": [weather]}, {"content": ROME}]
    agent = create_agent(over(upstream), [get_forecast], response_format=City)
    run = agent.invoke({"messages": [HumanMessage("Rome?")]})
    assert run["structured_response"] == City(name="Rome", people=3)
    assert upstream.requests[0]["response_format"]["type"] == "json_schema"


def test_models_by_name(config: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "twopass.yaml"
    file.write_text(json.dumps(config))
    for given in (config, str(file), file):
        model = ChatVllm.from_config("local", given, max_response_tokens=2)
        assert model.invoke("Hi").content and model.provider == "local"
    assert LLMProvider(file, "local").names == ["local"]


def test_names_of_any_script(config: dict[str, Any]) -> None:
    """The embedded model is bound to the name, so that only its way there and back is tried."""
    name = "こんにちは株式会社 😀"
    parameters = {
        "type": "object",
        "properties": {"name": {"type": "string", "enum": [name]}},
        "required": ["name"],
    }
    tool = {"name": "add", "description": "Adds a customer.", "parameters": parameters}
    bound = ChatVllm(config=config).bind_tools([tool], tool_choice="any")
    (found,) = bound.invoke("Add them.").tool_calls
    assert found["args"] == {"name": name}


@pytest.mark.parametrize("streamed", [False, True])
def test_logprobs_are_those_of_the_answer(config: dict[str, Any], streamed: bool) -> None:
    model = ChatVllm(
        config=config, max_thinking_tokens=4, max_response_tokens=8, logprobs=True, top_logprobs=2
    )
    message: Any = model.invoke("Rome?")
    if streamed:
        pieces = list(model.stream("Rome?"))
        message = pieces[0]
        for piece in pieces[1:]:
            message += piece
    tokens = message.response_metadata["logprobs"]["content"]
    told = b"".join(bytes(token["bytes"]) for token in tokens)
    assert told.decode(errors="replace").strip() == message.content.strip()
    assert all(len(token["top_logprobs"]) == 2 for token in tokens)
    assert "logprobs" not in model.invoke("Rome?", logprobs=False, top_logprobs=0).response_metadata
