"""Event loops, cancelling, threads, processes and copies."""

import asyncio
import copy
import os
import pickle
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from twopass import ChatVllm, LLMProvider
from upstream import Upstream

# After this time a cancelled turn must have ended.
LIMIT_S = 0.25


def chat(config: dict[str, Any], **fields: Any) -> ChatVllm:
    """A small turn of the model in this process."""
    return ChatVllm(config=config, two_pass=False, max_response_tokens=4, **fields)


def test_event_loops_may_come_and_go(config: dict[str, Any]) -> None:
    model = chat(config)
    texts = [asyncio.run(model.ainvoke("Hi")).content for _ in range(2)]
    assert texts[0] and texts[0] == texts[1] == model.invoke("Hi").content


def rss_bytes() -> int:
    """Memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_64_parallel_calls_share_one_model(config: dict[str, Any]) -> None:
    model = chat(config)
    await model.ainvoke("Hi")
    one = rss_bytes()
    questions = [f"Count from {number}." for number in range(64)]
    replies = await asyncio.gather(*(model.ainvoke(question) for question in questions))
    assert all(reply.content for reply in replies)
    assert rss_bytes() < 1.3 * one, f"{one} bytes for one call, {rss_bytes()} for 64"


@pytest.mark.parametrize("way", ["ainvoke", "astream"])
async def test_cancelling_a_task_leaves_the_service(way: str, upstream: Upstream) -> None:
    model = ChatVllm(model="m", base_url=upstream.url, provider_backend="openai")
    upstream.turns = [None]

    async def run() -> None:
        if way == "ainvoke":
            await model.ainvoke("Hi")
        async for _ in model.astream("Hi"):
            pass

    task = asyncio.create_task(run())
    assert await asyncio.to_thread(upstream.asked.wait, 20)
    cancelled_at = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(upstream.left.wait, 20)
    assert upstream.left_at - cancelled_at < LIMIT_S


def test_leaving_a_stream_leaves_the_service(upstream: Upstream) -> None:
    provider = LLMProvider(
        {
            "providers": [
                {
                    "name": "up",
                    "provider_backend": "openai",
                    "model_name": "m",
                    "api_config": {"base_url": upstream.url},
                }
            ]
        }
    )
    upstream.turns = [None]
    operation = provider._handle.provider.turn('{"messages":[{"role":"user","content":"a"}]}', "{}")
    assert upstream.asked.wait(20)
    left_at = time.monotonic()
    del operation
    assert upstream.left.wait(20)
    assert upstream.left_at - left_at < LIMIT_S


def test_ctrl_c_ends_a_waiting_call(upstream: Upstream) -> None:
    model = ChatVllm(model="m", base_url=upstream.url, provider_backend="openai")
    upstream.turns = [None]

    def interrupt() -> None:
        upstream.asked.wait(20)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        model.invoke("Hi")
    thread.join()
    assert upstream.left.wait(20)


def test_the_lock_is_free_while_a_turn_runs(upstream: Upstream) -> None:
    # The server that must answer is Python in this very process.
    upstream.turns = [{"content": "Hello."}]
    model = ChatVllm(model="m", base_url=upstream.url, provider_backend="openai")
    assert model.invoke("Hi").content == "Hello."


def test_threads_share_a_model(config: dict[str, Any]) -> None:
    model = chat(config)
    expected = model.invoke("Hi").content
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: model.invoke("Hi").content, range(8)))
    assert replies == [expected] * 8


def test_models_are_copied_and_pickled(config: dict[str, Any]) -> None:
    model = chat(config)
    expected = model.invoke("Hi").content
    provider = LLMProvider(config)
    provider.client.invoke("Hi", max_tokens=2)
    for copied in (copy.deepcopy(model), copy.copy(model), pickle.loads(pickle.dumps(model))):
        assert copied.invoke("Hi").content == expected
    bound = pickle.loads(pickle.dumps(model.bind(stop=["zzz"])))
    assert bound.invoke("Hi").content == expected
    again: LLMProvider = pickle.loads(pickle.dumps(provider))
    assert again.invoke("Hi", max_response_tokens=2)["response"]
    assert copy.deepcopy(provider).name == "local"


def test_a_forked_child_asks_for_itself(config: dict[str, Any]) -> None:
    model = chat(config)
    expected = model.invoke("Hi").content
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(model.invoke("Hi").content).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read().decode() == expected
    os.waitpid(child, 0)
    assert model.invoke("Hi").content == expected


async def test_callbacks_see_tokens_before_the_end(config: dict[str, Any]) -> None:
    model = chat(config)
    names = [
        event["event"] async for event in model.astream_events([HumanMessage("Hi")], version="v2")
    ]
    assert names[0] == "on_chat_model_start" and names[-1] == "on_chat_model_end"
    assert names.count("on_chat_model_stream") > 2
