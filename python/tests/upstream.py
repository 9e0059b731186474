"""A real local server of Chat Completions that plays given turns and keeps its requests."""

import json
import select
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def call(name: str, arguments: dict[str, Any], call_id: str) -> dict[str, Any]:
    """A call as this format has it."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": call_id, "type": "function", "function": function}


class Upstream:
    """Plays `turns` in order; a turn that is None never ends, until its client goes away."""

    def __init__(self) -> None:
        self.turns: list[dict[str, Any] | None] = []
        self.requests: list[dict[str, Any]] = []
        self.asked = threading.Event()
        self.left = threading.Event()
        self.left_at = 0.0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> "Upstream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, http: BaseHTTPRequestHandler) -> None:
        body = http.rfile.read(int(http.headers["content-length"]))
        request = json.loads(body)
        self.requests.append(request)
        turn = self.turns.pop(0)
        if turn is None:
            self.asked.set()
            # A closed connection is readable.
            select.select([http.connection], [], [], 30)
            self.left_at = time.monotonic()
            self.left.set()
            http.close_connection = True
            return
        stop = "tool_calls" if turn.get("tool_calls") else "stop"
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
        if request.get("stream"):
            calls = [dict(call, index=i) for i, call in enumerate(turn.get("tool_calls") or [])]
            deltas = [{name: text} for name, text in turn.items() if name != "tool_calls" and text]
            deltas += [{"tool_calls": calls}] if calls else []
            chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
            chunks.append({"index": 0, "delta": {}, "finish_reason": stop})
            head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m"}
            events = [head | {"choices": [chunk]} for chunk in chunks]
            events.append(head | {"choices": [], "usage": usage})
            text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
            self._send(http, "text/event-stream", text + "data: [DONE]\n\n")
        else:
            message = {"role": "assistant", "content": None, **turn}
            choice = {"index": 0, "message": message, "finish_reason": stop}
            reply = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m"}
            self._send(
                http, "application/json", json.dumps(reply | {"choices": [choice], "usage": usage})
            )

    @staticmethod
    def _send(http: BaseHTTPRequestHandler, kind: str, text: str) -> None:
        data = text.encode()
        http.send_response(200)
        http.send_header("content-type", kind)
        http.send_header("content-length", str(len(data)))
        http.end_headers()
        http.wfile.write(data)
