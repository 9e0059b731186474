"""LangChain's messages to requests, and turns to LangChain's messages."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages import content as blocks
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.block_translators import register_translator
from langchain_core.messages.block_translators.openai import convert_to_openai_data_block
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk

from twopass import _native
from twopass.errors import BadRequestError

# `model_provider` of our messages, under which the translator below is registered.
PROVIDER = "twopass"

Wire = dict[str, Any]

# Blocks of a past answer that stand elsewhere in the request, or nowhere.
_NOT_TEXT = {
    "function_call",
    "input_json_delta",
    "invalid_tool_call",
    "reasoning",
    "redacted_thinking",
    "thinking",
    "tool_call",
    "tool_call_chunk",
    "tool_use",
}


def to_wire(messages: Sequence[BaseMessage]) -> list[Wire]:
    """The conversation as a request has it."""
    return [wire for message in messages for wire in _message(message)]


def _message(message: BaseMessage) -> list[Wire]:
    match message:
        case SystemMessage():
            return [_named("system", message)]
        case HumanMessage():
            return _human(message)
        case AIMessage():
            return [_assistant(message)]
        case ToolMessage():
            wire = _named("tool", message) | {"tool_call_id": message.tool_call_id}
            return [wire | ({"is_error": True} if message.status == "error" else {})]
        case FunctionMessage():
            return [_named("tool", message)]
        case ChatMessage():
            return [_named(message.role, message)]
        case _:
            raise ValueError(f"messages of type `{message.type}` cannot be sent")


def _named(role: str, message: BaseMessage) -> Wire:
    wire: Wire = {"role": role, "content": _parts(message.content)}
    return wire | ({"name": message.name} if message.name else {})


def _human(message: HumanMessage) -> list[Wire]:
    """A person's message; results of tools within it become messages of their own."""
    if isinstance(message.content, str):
        return [_named("user", message)]
    results: list[Wire] = []
    rest: list[str | dict[Any, Any]] = []
    for block in message.content:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            result: Wire = {
                "role": "tool",
                "content": _parts(block.get("content") or ""),
                "tool_call_id": block["tool_use_id"],
            }
            results.append(result | ({"is_error": True} if block.get("is_error") else {}))
        else:
            rest.append(block)
    own: list[Wire] = [{"role": "user", "content": _parts(rest)}] if rest or not results else []
    return results + own


def _assistant(message: AIMessage) -> Wire:
    content = message.content
    thinking = _thinking(message)
    if isinstance(content, str):
        # The thought of an earlier turn is told apart from its answer.
        text, block = _native.parse_response(content) if thinking else (content, "")
        wire: Wire = {"role": "assistant", "content": text if block else content}
    else:
        wire = {"role": "assistant", "content": _parts(content)}
    if thinking:
        wire["thinking"] = thinking
    calls = message.tool_calls or _tool_uses(content)
    if calls:
        wire["tool_calls"] = [
            {"id": call["id"], "name": call["name"], "arguments": call["args"]} for call in calls
        ]
    return wire | ({"name": message.name} if message.name else {})


def _thinking(message: AIMessage) -> str:
    if thinking := message.additional_kwargs.get("thinking"):
        return str(thinking)
    if not isinstance(message.content, list):
        return ""
    parts = [block for block in message.content if isinstance(block, dict)]
    texts = [
        block.get("reasoning") or block.get("thinking")
        for block in parts
        if block.get("type") in ("reasoning", "thinking")
    ]
    return "\n".join(text for text in texts if text)


def _tool_uses(content: str | list[str | dict[Any, Any]]) -> list[Any]:
    if isinstance(content, str):
        return []
    return [
        {"id": block["id"], "name": block["name"], "args": block.get("input") or {}}
        for block in content
        if isinstance(block, dict) and block.get("type") == "tool_use"
    ]


def _parts(content: str | Iterable[str | dict[Any, Any]]) -> str | list[Wire]:
    """Text stays text; other blocks go on, so that what cannot be sent is refused by name."""
    if isinstance(content, str):
        return content
    parts: list[Wire] = []
    for block in content:
        if isinstance(block, str):
            parts.append({"type": "text", "text": block})
        elif "text" in block:
            parts.append({"type": "text", "text": block["text"]})
        elif block.get("type") not in _NOT_TEXT:
            parts.append(_media(block))
    return parts


def _media(block: dict[Any, Any]) -> Wire:
    """An image, audio or a file as a request has it.

    LangChain's blocks, old and new, are rewritten; those of services go on as they are.
    """
    if not blocks.is_data_content_block(block):
        return block
    if block["type"] in ("image", "file") and block.get("file_id"):
        return {"type": block["type"], "file_id": block["file_id"]}
    if block["type"] == "file" and "url" in block:
        return {"type": "file", "file": {"file_url": block["url"]}}
    try:
        return convert_to_openai_data_block(block)
    except (KeyError, ValueError) as error:
        told = f"`messages`: a block of type `{block['type']}` cannot be sent: {error}"
        raise BadRequestError(told, kind="bad_request", param="messages") from error


def usage(turn: Wire) -> UsageMetadata:
    """Tokens of a turn; the output's are those of thought and answer."""
    counts = turn["usage"]
    output = counts["thinking_tokens"] + counts["response_tokens"]
    return UsageMetadata(
        input_tokens=counts["prompt_tokens"],
        output_tokens=output,
        total_tokens=counts["prompt_tokens"] + output,
        input_token_details={"cache_read": counts["cached_tokens"]},
        output_token_details={"reasoning": counts["thinking_tokens"]},
    )


def response_metadata(turn: Wire, model: str) -> dict[str, Any]:
    """How a turn went."""
    truncated = turn["thinking_truncated"]
    ended = "budget" if truncated else "closed" if turn["thinking"] else "none"
    metadata: dict[str, Any] = {
        "model_name": model,
        "model_provider": PROVIDER,
        "finish_reason": turn["finish_reason"],
        "thinking_finish": ended,
        "thinking_tokens": turn["usage"]["thinking_tokens"],
        "passes": turn["passes"],
        "diagnostics": turn["diagnostics"],
    }
    if "logprobs" in turn:
        metadata["logprobs"] = turn["logprobs"]
    return metadata


def additional_kwargs(thinking: str) -> dict[str, Any]:
    """The private trace, under our name and under the one that user interfaces read."""
    if not thinking:
        return {"thinking": ""}
    return {"thinking": thinking, "reasoning_content": thinking}


def message_of(turn: Wire, content: str, model: str) -> AIMessage:
    """The message of a whole turn."""
    return AIMessage(
        content=content,
        tool_calls=[
            tool_call(name=call["name"], args=call["arguments"], id=call["id"])
            for call in turn["tool_calls"]
        ],
        invalid_tool_calls=invalid_calls(turn),
        additional_kwargs=additional_kwargs(turn["thinking"]),
        response_metadata=response_metadata(turn, model),
        usage_metadata=usage(turn),
    )


def invalid_calls(turn: Wire) -> list[Any]:
    """Calls that failed their checks, each with the reason."""
    return [
        invalid_tool_call(
            name=call.get("name"),
            args=_text(call.get("arguments")),
            id=call.get("id"),
            error=call.get("message"),
        )
        for call in turn["invalid_tool_calls"]
    ]


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def call_chunk(call: Wire, index: int) -> AIMessageChunk:
    """A finished call as a chunk of its own."""
    chunk = tool_call_chunk(
        name=call["name"], args=json.dumps(call["arguments"]), id=call["id"], index=index
    )
    return AIMessageChunk(content="", tool_call_chunks=[chunk])


def rename_known(calls: list[Wire], messages: Sequence[BaseMessage]) -> None:
    """Gives calls whose id an earlier turn has already used another one."""
    used = {
        call["id"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    for call in calls:
        known, turn = call["id"], len(messages)
        while call["id"] in used:
            call["id"] = f"{known}_{turn}"
            turn += 1
        used.add(call["id"])


def _translate(message: AIMessage) -> list[blocks.ContentBlock]:
    found: list[Any] = []
    is_chunk = isinstance(message, AIMessageChunk) and message.chunk_position != "last"
    thinking = message.additional_kwargs.get("thinking")
    if thinking:
        block = blocks.create_reasoning_block(reasoning=thinking)
        # Indexes of text: core merges blocks of equal index, and calls count from 0.
        found.append({**block, "index": "lc_thinking"} if is_chunk else block)
    text = message.content if isinstance(message.content, str) else ""
    if thinking and not is_chunk:
        split, within = _native.parse_response(text)
        text = split if within else text
    if text:
        answer: Any = {"type": "text", "text": text}
        found.append(answer | {"index": "lc_text"} if is_chunk else answer)
    if is_chunk:
        found.extend(cast(AIMessageChunk, message).tool_call_chunks)
    else:
        found.extend(message.tool_calls)
        found.extend(message.invalid_tool_calls)
    return found


register_translator(PROVIDER, _translate, _translate)
