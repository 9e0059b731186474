"""LangChain's own client of OpenAI."""

import pytest
from langchain_core.messages import AIMessageChunk, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field

from conftest import TOOL


class Verdict(BaseModel):
    """Whether it rains."""

    rain: bool
    why: str = Field(max_length=30)


@pytest.fixture(scope="module")
def model(url: str) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=f"{url}/v1", api_key="unused", model="local", max_retries=0, temperature=0
    )


def test_invoke_and_stream_agree(model: ChatOpenAI) -> None:
    whole = model.invoke("Will it rain in Rome?")
    assert whole.content and whole.usage_metadata["output_tokens"] > 0
    total: AIMessageChunk | None = None
    for chunk in model.stream("Will it rain in Rome?"):
        total = chunk if total is None else total + chunk
    assert total is not None and total.content == whole.content


def test_a_round_of_tools(model: ChatOpenAI) -> None:
    bound = model.bind_tools([{"type": "function", "function": TOOL}], tool_choice="required")
    first = bound.invoke("Will it rain in Rome?")
    (call,) = first.tool_calls
    assert call["name"] == "get_forecast" and "city" in call["args"]
    result = ToolMessage("It will rain.", tool_call_id=call["id"])
    assert model.invoke([("user", "Will it rain in Rome?"), first, result]).content


def test_a_demanded_form(model: ChatOpenAI) -> None:
    for method in ("json_schema", "function_calling"):
        bound = model.with_structured_output(Verdict, method=method)
        assert isinstance(bound.invoke("Will it rain in Rome?"), Verdict), method
