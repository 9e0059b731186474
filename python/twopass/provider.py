"""The facade: one configured model behind a few methods, the same whatever its backend."""

import difflib
import json
import os
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from twopass import _native
from twopass._handle import Handle, Source, aitems, alast, items, last
from twopass.errors import BadRequestError

if TYPE_CHECKING:
    from twopass.langchain import ChatVllm

__all__ = ["LLMProvider", "parse_response"]

# `max_thinking_tokens` of a thought that nothing cuts.
NO_CAP = -1
# Arguments that a request does not have of itself; they travel beside it.
_EXTRA = ("thinking", "reasoning_effort", "json", "schema")
# What a call may set.
REQUEST_FIELDS = (
    "thinking",
    "reasoning_effort",
    "two_pass",
    "think_tag",
    "max_thinking_tokens",
    "max_response_tokens",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "repeat_penalty",
    "logprobs",
    "top_logprobs",
    "chat_template_kwargs",
)
# What tools need besides.
CALL_ARGUMENTS = ("tools", "tool_choice", "tool_parser", "parallel_tool_calls")
_OVERRIDES = (*REQUEST_FIELDS, *CALL_ARGUMENTS, "stop", "json", "schema")
# The answer tokens of `chat`, unless it is told otherwise.
_CHAT_TOKENS = 300


def parse_response(text: str) -> dict[str, str]:
    """Splits a message's content into `{"response", "thinking"}`.

    A thought whose end is missing gives an empty response; nothing of it leaks. Half characters
    (lone surrogates) become question marks.
    """
    try:
        response, thinking = _native.parse_response(text)
    except UnicodeEncodeError:
        whole = text.encode(errors="replace").decode()
        response, thinking = _native.parse_response(whole)
    return {"response": response, "thinking": thinking}


def unknown_argument(name: str, known: Collection[str]) -> str:
    """What is said of an argument that nobody knows."""
    near = difflib.get_close_matches(name, known, 1)
    hint = f", did you mean `{near[0]}`?" if near else ""
    return f"unknown argument `{name}`{hint}"


def _turn_request(messages: Any, thinking: bool, overrides: Mapping[str, Any]) -> tuple[str, str]:
    for name in overrides:
        if name not in _OVERRIDES:
            raise TypeError(unknown_argument(name, _OVERRIDES))
    return encode(messages, {**overrides, "thinking": thinking})


def encode(messages: Any, options: Mapping[str, Any]) -> tuple[str, str]:
    """A request of messages and call arguments, and what travels beside it.

    Raises `BadRequestError` for what no request can hold.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if options.get("max_thinking_tokens") == NO_CAP:
        # A thought without a cap is one that ends by itself, in the answer's own pass.
        del options["max_thinking_tokens"]
        options = {"thinking": True} | options | {"two_pass": False}
    request = {"messages": message_dicts(messages)}
    request |= {name: value for name, value in options.items() if name not in _EXTRA}
    extra = {name: value for name, value in options.items() if name in _EXTRA}
    return _json_object(request), _json_object(extra)


def _json_object(fields: Mapping[str, Any]) -> str:
    pairs = (f"{json.dumps(name)}:{_json(name, value)}" for name, value in fields.items())
    return "{" + ",".join(pairs) + "}"


def _json(name: str, value: Any) -> str:
    """JSON without the liberties that Python takes with it: half characters, NaN."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        reason = "half of a character (a lone surrogate)"
        reason = reason if isinstance(error, UnicodeEncodeError) else str(error)
        told = f"`{name}` cannot be sent: {reason}"
        raise BadRequestError(told, kind="bad_request", param=name) from error
    return text


def message_dicts(messages: Any) -> list[dict[str, Any]]:
    """Messages as dicts: of a text, or of dicts, (role, text) pairs and LangChain messages."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence) or isinstance(messages, bytes | bytearray):
        told = f"`messages` must be a text or a list of messages, got {type(messages).__name__}"
        raise BadRequestError(told, kind="bad_request", param="messages")
    given = cast(Sequence[Any], messages)
    for index, message in enumerate(given):
        if message is None or isinstance(message, bytes | bytearray | int | float):
            param = f"messages[{index}]"
            told = f"`{param}` must be a message, got {type(message).__name__}"
            raise BadRequestError(told, kind="bad_request", param=param)
    if all(isinstance(message, Mapping) and "role" in message for message in given):
        return [dict(message) for message in given]
    # Messages of LangChain were made by it, so that it is here.
    from langchain_core.messages.utils import convert_to_messages

    from twopass.langchain._messages import to_wire

    try:
        return to_wire(convert_to_messages(given))
    except (NotImplementedError, ValueError, KeyError) as error:
        told = f"`messages` cannot be sent: {str(error).splitlines()[0]}"
        raise BadRequestError(told, kind="bad_request", param="messages") from error


class LLMProvider:
    """One entry of a configuration (`twopass.yaml`).

    Opens nothing until it is used; equal providers share models and connections. It can be
    pickled, copied and used from any thread, event loop or forked process.

    `config` is a file's path or the same settings as a mapping; None follows the search order
    of the command line. `name` is an entry; None the default one. Methods raise
    `twopass.errors.TwopassError`, but `invoke`, `ainvoke` and `client` give its text as the
    answer (`Error: ...`) unless the entry says `on_error: raise`; an unusable configuration
    always raises.
    """

    def __init__(
        self,
        config_path: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Names the entry; reads nothing yet."""
        self._handle = Handle(Source.of(config_path, name))

    @property
    def name(self) -> str:
        """The entry's name."""
        return self._handle.provider.name

    @property
    def names(self) -> list[str]:
        """The names of all entries of the configuration."""
        return self._handle.provider.names

    def invoke(self, messages: Any, thinking: bool = False, **overrides: Any) -> dict[str, str]:
        """One turn as `{"response", "thinking"}`, always exactly these two texts.

        Overrides are call arguments such as `max_thinking_tokens`, `max_response_tokens`,
        `think_tag`, `two_pass`, `temperature`, `seed`, `stop`. A `max_thinking_tokens` of -1 is
        no cap: one pass, whose thought ends by itself.
        """
        request = _turn_request(messages, thinking, overrides)
        return _texts(last(self._handle.provider.invoke(*request)))

    async def ainvoke(
        self, messages: Any, thinking: bool = False, **overrides: Any
    ) -> dict[str, str]:
        """`invoke` for an event loop. Cancelling the task cancels the turn."""
        request = _turn_request(messages, thinking, overrides)
        return _texts(await alast(self._handle.provider.invoke(*request)))

    def stream(
        self, messages: Any, thinking: bool = False, **overrides: Any
    ) -> Iterator[tuple[str, str]]:
        """A turn in pieces: `("thinking", text)`, then `("response", text)`.

        `("reclassified", "")` says that the response so far was thinking after all.
        """
        request = _turn_request(messages, thinking, overrides)
        for name, text in items(self._handle.provider.turn(*request)):
            if piece := _piece(name, text):
                yield piece

    async def astream(
        self, messages: Any, thinking: bool = False, **overrides: Any
    ) -> AsyncIterator[tuple[str, str]]:
        """`stream` for an event loop."""
        request = _turn_request(messages, thinking, overrides)
        async for name, text in aitems(self._handle.provider.turn(*request)):
            if piece := _piece(name, text):
                yield piece

    @staticmethod
    def parse_response(text: str) -> dict[str, str]:
        """Splits a message's content into `{"response", "thinking"}`."""
        return parse_response(text)

    @cached_property
    def client(self) -> "ChatVllm":
        """A LangChain chat model over this entry; needs the extra `twopass[langchain]`.

        Its messages hold the closed think block and the answer in `content`, to be split by
        `parse_response`, unless the entry says `content_mode: clean`.
        """
        from twopass.langchain import ChatVllm

        return ChatVllm.of_handle(self._handle)

    def chat(
        self,
        messages: Any,
        tools: Sequence[Mapping[str, Any]] = (),
        instructions: str | None = None,
        max_tokens: int = _CHAT_TOKENS,
    ) -> dict[str, Any]:
        """One turn as `{"text", "tool_calls", "output"}`.

        `output` is what to append to the conversation: the assistant's message if it holds
        calls, else nothing.
        """
        request = _chat_request(messages, tools, instructions, max_tokens)
        return _chat_result(last(self._handle.provider.turn(*request)))

    async def achat(
        self,
        messages: Any,
        tools: Sequence[Mapping[str, Any]] = (),
        instructions: str | None = None,
        max_tokens: int = _CHAT_TOKENS,
    ) -> dict[str, Any]:
        """`chat` for an event loop."""
        request = _chat_request(messages, tools, instructions, max_tokens)
        return _chat_result(await alast(self._handle.provider.turn(*request)))

    def chat_short(self, messages: Any, instructions: str | None = None) -> str:
        """The text of `chat` without tools."""
        return self.chat(messages, (), instructions)["text"] or ""

    async def achat_short(self, messages: Any, instructions: str | None = None) -> str:
        """`chat_short` for an event loop."""
        return (await self.achat(messages, (), instructions))["text"] or ""

    def embed(self, text: str) -> list[float]:
        """The vector of a text, by the model of the configuration's `embeddings`."""
        vectors: list[list[float]] = last(self._handle.provider.embed([text]))
        return vectors[0]

    async def aembed(self, text: str) -> list[float]:
        """`embed` for an event loop."""
        vectors: list[list[float]] = await alast(self._handle.provider.embed([text]))
        return vectors[0]


def _texts(pair: tuple[str, str]) -> dict[str, str]:
    response, thinking = pair
    return {"response": response, "thinking": thinking}


def _piece(name: str, text: str) -> tuple[str, str] | None:
    match name:
        case "text":
            return ("response", text)
        case "thinking" | "reclassified":
            return (name, text)
        case _:
            return None


def _chat_request(
    messages: Any,
    tools: Sequence[Mapping[str, Any]],
    instructions: str | None,
    max_tokens: int,
) -> tuple[str, str]:
    conversation = message_dicts(messages)
    if instructions:
        conversation.insert(0, {"role": "system", "content": instructions})
    options = {
        "max_response_tokens": max_tokens,
        # Tools of other types are the service's own and mean nothing here.
        "tools": [dict(tool) for tool in tools if tool.get("type", "function") == "function"],
    }
    return encode(conversation, options)


def _chat_result(done: str) -> dict[str, Any]:
    turn = json.loads(done)
    calls: list[dict[str, Any]] = turn["tool_calls"]
    text: str | None = turn["response"] or None
    message = {"role": "assistant", "content": text, "tool_calls": calls}
    return {"text": text, "tool_calls": calls, "output": [message] if calls else []}
