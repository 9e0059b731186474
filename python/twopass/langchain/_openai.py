"""LangChain's client of Chat Completions, with the reasoning that it drops."""

from collections.abc import Mapping
from typing import Any, cast

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import Field

from twopass.langchain._messages import PROVIDER, additional_kwargs

__all__ = ["ChatOpenAIThinking"]


class ChatOpenAIThinking(ChatOpenAI):
    """`ChatOpenAI` whose messages keep the reasoning of a compatible server.

    The thought comes in `additional_kwargs["thinking"]` and as a reasoning block in
    `content_blocks`, whether the server calls it `reasoning_content` or `reasoning`. Usage is
    asked for in streams too, and `max_tokens` is sent under this name, which every compatible
    server knows. Needs the extra `twopass[openai]`. Arguments that OpenAI does not have, such
    as `max_thinking_tokens`, go into `extra_body`.
    """

    stream_usage: bool | None = Field(default=True)
    """Whether streams end with the usage."""

    def _get_request_payload(
        self, input_: LanguageModelInput, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        parent = cast(Any, super())
        payload: dict[str, Any] = parent._get_request_payload(input_, stop=stop, **kwargs)
        if "max_completion_tokens" in payload:
            payload["max_tokens"] = payload.pop("max_completion_tokens")
        return payload

    def _create_chat_result(
        self, response: Any, generation_info: dict[str, Any] | None = None
    ) -> ChatResult:
        parent = cast(Any, super())
        result: ChatResult = parent._create_chat_result(response, generation_info)
        is_dict = isinstance(response, Mapping)
        body = cast(dict[str, Any], response if is_dict else response.model_dump())
        for generation, choice in zip(result.generations, body.get("choices") or [], strict=False):
            _keep(generation.message, choice.get("message"))
        return result

    def _convert_chunk_to_generation_chunk(
        self,
        chunk: dict[str, Any],
        default_chunk_class: type,
        base_generation_info: dict[str, Any] | None,
    ) -> ChatGenerationChunk | None:
        parent = cast(Any, super())
        converted: ChatGenerationChunk | None = parent._convert_chunk_to_generation_chunk(
            chunk, default_chunk_class, base_generation_info
        )
        if converted is not None:
            choices: list[dict[str, Any]] = chunk.get("choices") or [{}]
            _keep(converted.message, choices[0].get("delta"))
        return converted


def _keep(message: Any, source: Mapping[str, Any] | None) -> None:
    """Adds the reasoning of a message or delta."""
    if not isinstance(message, AIMessage):
        return
    message.response_metadata["model_provider"] = PROVIDER
    fields = source or {}
    reasoning = fields.get("reasoning_content") or fields.get("reasoning") or ""
    message.additional_kwargs.update(additional_kwargs(str(reasoning)))
