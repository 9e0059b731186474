"""What a stream costs through the package, beside the Rust client, over the same server.

`streams.py PROGRAM`, where PROGRAM is the example `streams` of `twopass-provider`. The server
sends a whole stream at once, so that what takes time is the client. Clients take turns, and
medians are printed.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from typing import Any

from twopass import ChatVllm, LLMProvider

N_EVENTS = 2000
N_ROUNDS = 15


def body() -> bytes:
    """A stream of Chat Completions with so many pieces of text."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def event(delta: dict[str, str], stop: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": stop}
        return f"data: {json.dumps(chunk | {'choices': [choice]})}\n\n"

    pieces = [event({"content": " word"}) for _ in range(N_EVENTS)]
    return ("".join(pieces) + event({}, "stop") + "data: [DONE]\n\n").encode()


def serve(port: Any) -> None:
    """Plays the stream to whoever asks."""
    stream = body()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(stream)))
            self.end_headers()
            self.wfile.write(stream)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.send(server.server_port)
    server.serve_forever()


class Clock:
    """Stamps pieces as they come."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._first = 0.0
        self._n = 0

    def tick(self) -> None:
        """A piece has come."""
        if not self._n:
            self._first = time.perf_counter()
        self._n += 1

    def figures(self) -> tuple[float, float]:
        """Microseconds until the first piece, and for each further one."""
        assert self._n >= N_EVENTS, f"{self._n} pieces of {N_EVENTS}"
        rest = time.perf_counter() - self._first
        return (self._first - self._started) * 1e6, rest / (self._n - 1) * 1e6


def clients(url: str, program: str) -> dict[str, Callable[[], tuple[float, float]]]:
    """Each way to read the stream."""
    entry = {
        "name": "up",
        "provider_backend": "openai",
        "model_name": "m",
        "api_config": {"base_url": url},
    }
    config = json.dumps({"providers": [entry]})
    provider = LLMProvider(json.loads(config))
    model = ChatVllm(config=json.loads(config))
    loop = asyncio.new_event_loop()

    def rust() -> tuple[float, float]:
        ran = subprocess.run([program, config], capture_output=True, text=True, check=True)
        first, each = json.loads(ran.stdout)
        return first, each

    def sync(source: Any) -> tuple[float, float]:
        clock = Clock()
        for _ in source.stream("Hi"):
            clock.tick()
        return clock.figures()

    async def read(source: Any) -> tuple[float, float]:
        clock = Clock()
        async for _ in source.astream("Hi"):
            clock.tick()
        return clock.figures()

    return {
        "Rust client": rust,
        "LLMProvider.stream": lambda: sync(provider),
        "LLMProvider.astream": lambda: loop.run_until_complete(read(provider)),
        "ChatVllm.stream": lambda: sync(model),
        "ChatVllm.astream": lambda: loop.run_until_complete(read(model)),
    }


def main(program: str) -> None:
    """Measures and prints the table."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    ways = clients(f"http://127.0.0.1:{ours.recv()}/v1", program)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(N_ROUNDS + 1):
        for name, ask in ways.items():
            found[name].append(ask())
    server.terminate()
    print(f"{N_ROUNDS} streams of {N_EVENTS} pieces each, medians, microseconds")
    print(f"{'':22}{'first piece':>14}{'each further':>14}")
    for name, figures in found.items():
        # The first stream of each opens its connection.
        first, each = (statistics.median(column) for column in zip(*figures[1:], strict=True))
        print(f"{name:22}{first:>14.0f}{each:>14.1f}")


if __name__ == "__main__":
    main(sys.argv[1])
