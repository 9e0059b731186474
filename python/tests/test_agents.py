"""Agents of LangGraph and LangChain finish a task with two tools."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent

from served import Serve
from test_contract import get_forecast, overwrite_memory
from twopass import ChatVllm
from upstream import Upstream, call

TASK = {"messages": [HumanMessage("Find Rome's weather and keep it.")]}


def script() -> list[dict[str, Any] | None]:
    """A thought before each of two calls, which both have the same id, and an answer."""
    first = call("get_forecast", {"city": "Rome"}, "call_1")
    second = call("overwrite_memory", {"text": "sun"}, "call_1")
    return [
        {"reasoning_content": "Weather first.", "content": "", "tool_calls": [first]},
        {"reasoning_content": "Now keep it.", "content": "", "tool_calls": [second]},
        {"reasoning_content": "Done.", "content": "It is kept.", "tool_calls": []},
    ]


def check(messages: list[Any], seen: list[dict[str, Any]]) -> None:
    """The whole run, as the agent and the model saw it."""
    assert [message.type for message in messages] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert [messages[2].content, messages[4].content] == ["sun in Rome", "kept: sun"]
    assert messages[2].tool_call_id != messages[4].tool_call_id
    assert messages[-1].text == "It is kept."
    roles = [message["role"] for message in seen[2]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]


@pytest.mark.parametrize("make", [create_react_agent, create_agent])
async def test_agents_finish_two_tools(make: Any, upstream: Upstream) -> None:
    model = ChatVllm(model="m", base_url=upstream.url, provider_backend="openai")
    agent = make(model, [get_forecast, overwrite_memory])
    for asynchronous in (False, True):
        upstream.turns, upstream.requests = script(), []
        run = await agent.ainvoke(TASK) if asynchronous else agent.invoke(TASK)
        check(run["messages"], upstream.requests)
        thoughts = [m.additional_kwargs["thinking"] for m in run["messages"][1::2]]
        assert thoughts == ["Weather first.", "Now keep it.", "Done."]


def test_agents_stream_messages(upstream: Upstream) -> None:
    model = ChatVllm(model="m", base_url=upstream.url, provider_backend="openai")
    upstream.turns = script()
    agent = create_agent(model, [get_forecast, overwrite_memory])
    chunks = [chunk for chunk, _ in agent.stream(TASK, stream_mode="messages")]
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, AIMessage))
    assert text == "It is kept."


def test_stock_chat_openai_sees_the_reasoning(upstream: Upstream, tmp_path: Path) -> None:
    api = {"base_url": upstream.url}
    entry = {"name": "up", "provider_backend": "openai", "model_name": "m", "api_config": api}
    with Serve({"providers": [entry]}, tmp_path) as serve:
        model = ChatOpenAI(
            model="up", base_url=f"{serve.url}/v1", api_key="none", use_responses_api=True
        )  # type: ignore[arg-type]
        upstream.turns = script()
        agent = create_react_agent(model, [get_forecast, overwrite_memory])
        messages = agent.invoke(TASK)["messages"]
    check(messages, upstream.requests)
    shown = json.dumps(messages[-1].content_blocks)
    assert '"type": "reasoning"' in shown and "Done." in shown
