"""A chat model of LangChain over any provider of Twopass."""

import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from hashlib import sha256
from typing import Any, Literal, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.model_profile import ModelProfile
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.utils.utils import from_env, secret_from_env
from pydantic import ConfigDict, Field, PrivateAttr, SecretStr, model_validator

from twopass._handle import Event, Handle, Source, aitems, alast, items, last
from twopass.errors import TwopassError
from twopass.langchain import _tools
from twopass.langchain._errors import typed
from twopass.langchain._messages import (
    PROVIDER,
    additional_kwargs,
    call_chunk,
    invalid_calls,
    message_of,
    rename_known,
    response_metadata,
    to_wire,
    usage,
)
from twopass.provider import CALL_ARGUMENTS, REQUEST_FIELDS, encode, unknown_argument

__all__ = ["ChatVllm"]

# Arguments of an address, which an entry of a configuration has of its own.
_OF_ADDRESS = ("base_url", "provider_backend", "api_key", "default_headers")
# Arguments that other models take and that change nothing here.
_IGNORED = {"strict", "stream_usage", "ls_structured_output_format"}


class ChatVllm(BaseChatModel):
    """A chat model whose thoughts keep a budget, over any backend of Twopass.

    With `base_url` (or `TWOPASS_BASE_URL`, `VLLM_BASE_URL`) it asks that server, a
    `/generate` server unless `provider_backend` names another format. With `config` or
    `provider` it is an entry of that configuration, and without anything the default one,
    which runs in this process.

    Messages hold the answer in `content`, checked calls in `tool_calls`, refused ones with a
    reason in `invalid_tool_calls`, the thought in `additional_kwargs["thinking"]` and as a
    reasoning block in `content_blocks`. Every field from `thinking` to
    `chat_template_kwargs` may also be an argument of a call.
    """

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    model: str | None = None
    """The model: the server's name for it, or a name or GGUF file of this machine."""
    config: dict[str, Any] | str | None = None
    """A configuration file, or the same settings as a mapping."""
    provider: str | None = None
    """The entry of that configuration; None is the default one."""
    provider_backend: str | None = None
    """What the server speaks, as `provider_backend` of a configuration."""
    base_url: str | None = Field(
        default_factory=from_env(["TWOPASS_BASE_URL", "VLLM_BASE_URL"], default=None)
    )
    """The server's address."""
    api_key: SecretStr | None = Field(
        default_factory=secret_from_env(["TWOPASS_API_KEY", "VLLM_API_KEY"], default=None)
    )
    """The server's key; none is needed on this machine."""
    timeout: float | None = None
    """Seconds that a request to a server may take in all."""
    max_retries: int | None = None
    """How often a request to a server is sent again."""
    default_headers: dict[str, str] | None = None
    """Headers of every request to a server."""

    thinking: bool | None = None
    """Whether to think; None follows the configuration."""
    reasoning_effort: str | None = None
    """How much to think, for services that know words only."""
    two_pass: bool | None = None
    """Whether thought and answer are two passes; None follows the configuration."""
    think_tag: Literal["think", "thinking"] | None = None
    """The tag of the generated thought."""
    max_thinking_tokens: int | None = None
    """Cap on the thought: 0 or more, or -1 for none (one pass, whose thought ends by itself)."""
    max_response_tokens: int | None = None
    """Cap on the answer, 1 or more."""
    max_tokens: int | None = None
    """Cap on thought and answer together, 1 or more."""
    temperature: float | None = None
    """How freely tokens are drawn."""
    top_p: float | None = None
    """Least probable tokens beyond this sum are left out."""
    top_k: int | None = None
    """Only so many of the most probable tokens are drawn from."""
    min_p: float | None = None
    """Tokens less probable than this part of the first are left out."""
    seed: int | None = None
    """Makes draws repeatable."""
    presence_penalty: float | None = None
    """Makes tokens that came already less probable."""
    frequency_penalty: float | None = None
    """The same, by how often they came."""
    repeat_penalty: float | None = None
    """The same, as a factor."""
    logprobs: bool | None = None
    """Whether `response_metadata` tells the probabilities of the answer's tokens."""
    top_logprobs: int | None = None
    """How many of the likeliest tokens are told at each place: 0 to 20, with `logprobs`."""
    chat_template_kwargs: dict[str, Any] | None = None
    """Variables of the model's chat template."""
    stop: list[str] | None = None
    """Texts that end the answer."""
    think_in_content: bool | None = False
    """True: `content` begins with the closed think block; None: by `content_mode`."""
    on_error: Literal["raise", "message"] | None = "raise"
    """Whether errors are exceptions or messages; None: by the configuration."""
    streaming: bool = False
    """Whether `invoke` streams for the sake of callbacks."""
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of every call."""

    _handle: Handle | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: Any) -> Any:
        names = sorted(cls.model_fields)
        for name in values:
            if name not in names:
                raise ValueError(unknown_argument(str(name), names))
        given = [name for name in _OF_ADDRESS if values.get(name) is not None]
        if given and (values.get("config") is not None or values.get("provider") is not None):
            raise ValueError(f"`{given[0]}` is the configuration's: leave it out, or `config`")
        return values

    @classmethod
    def from_config(
        cls,
        name: str | None = None,
        config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Self:
        """The model of an entry; None is the default entry, or the file that is found."""
        given: dict[str, Any] | str | None = None
        if isinstance(config, Mapping):
            given = dict(config)
        elif config is not None:
            given = os.fspath(config)
        return cls(provider=name, config=given, base_url=None, **fields)

    @classmethod
    def of_handle(cls, handle: Handle) -> Self:
        """The model of a provider, with its ways of content and errors."""
        model = cls(base_url=None, think_in_content=None, on_error=None)
        model._handle = handle
        return model

    # What LangChain asks about a model.

    @property
    def _llm_type(self) -> str:
        return "twopass-chat"

    @property
    def lc_secrets(self) -> dict[str, str]:
        """Fields that are secrets, and the variables that hold them."""
        return {"api_key": "TWOPASS_API_KEY"}

    @property
    def _identifying_params(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in REQUEST_FIELDS}
        return {
            "model": self.model,
            "provider": self.provider,
            "base_url": self.base_url,
            # Other settings are another model: a cache must not mix their answers.
            "settings": sha256(repr(self._settings()).encode()).hexdigest()[:16],
            **{name: value for name, value in fields.items() if value is not None},
        }

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = PROVIDER
        model = kwargs.get("model") or self.model or self.provider
        if model:
            params["ls_model_name"] = model
        temperature = kwargs.get("temperature", self.temperature)
        if temperature is not None:
            params["ls_temperature"] = temperature
        caps = (self.max_tokens, self.max_response_tokens)
        max_tokens = kwargs.get("max_tokens", next(filter(None, caps), None))
        if max_tokens is not None:
            params["ls_max_tokens"] = max_tokens
        if stops := stop or self.stop:
            params["ls_stop"] = stops
        return params

    def _resolve_model_profile(self) -> ModelProfile:
        """What every backend can do, and the context of a model in this process if it is set.

        Agents read it: an answer's form is bound natively, not by a forced call.
        """
        profile = ModelProfile(
            text_inputs=True,
            text_outputs=True,
            reasoning_output=True,
            tool_calling=True,
            tool_choice=True,
            tool_call_streaming=True,
            structured_output=True,
            temperature=True,
        )
        context = self._source().context_tokens()
        if context is not None:
            profile["max_input_tokens"] = context
        return profile

    # Requests.

    def _source(self) -> Source:
        if self.config is not None or self.provider is not None:
            return Source.of(self.config, self.provider, self.model)
        backend = self.provider_backend or ("vllm_native" if self.base_url else None)
        if backend is None:
            return Source(model=self.model)
        api: dict[str, Any] = {
            "base_url": self.base_url,
            "api_key": self.api_key.get_secret_value() if self.api_key else None,
            "timeout_s": self.timeout,
            "max_retries": self.max_retries,
            "headers": self.default_headers,
        }
        api = {name: value for name, value in api.items() if value is not None}
        entry: dict[str, Any] = {"name": "model", "provider_backend": backend}
        if self.model:
            entry["model_name"] = self.model
        if api and backend != "embedded":
            entry["api_config"] = api
        return Source(text=json.dumps({"providers": [entry]}))

    def _settings(self) -> Source:
        return self._handle.source if self._handle else self._source()

    def _opened(self, model: str | None) -> Handle:
        if self._handle is None:
            self._handle = Handle(self._source())
        if model is None or model == self.model:
            return self._handle
        return Handle(self._handle.source.of_model(model))

    def _request(
        self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]
    ) -> tuple[str, str]:
        options = {name: getattr(self, name) for name in REQUEST_FIELDS}
        given = {**self.model_kwargs, **kwargs}
        given.pop("model", None)
        options |= _tools.form_of(given.pop("response_format", None))
        known = (*REQUEST_FIELDS, *CALL_ARGUMENTS)
        for name in [*given]:
            if name in _IGNORED:
                given.pop(name)
            elif name not in known:
                raise TypeError(unknown_argument(name, known))
        options |= given
        options["stop"] = stop or self.stop or None
        return encode(to_wire(messages), options)

    def _clean(self, kwargs: dict[str, Any]) -> bool:
        """Whether the content must be the answer alone."""
        bound = {**self.model_kwargs, **kwargs}.get("response_format")
        return self.think_in_content is False or bound is not None or self.output_version == "v1"

    # Turns.

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        try:
            provider = self._opened(kwargs.get("model")).provider
            done = last(provider.turn(*self._request(messages, stop, kwargs)))
        except TwopassError as error:
            return _result(self._settle(error))
        return _result(self._message(done, messages, kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        try:
            provider = self._opened(kwargs.get("model")).provider
            done = await alast(provider.turn(*self._request(messages, stop, kwargs)))
        except TwopassError as error:
            return _result(self._settle(error))
        return _result(self._message(done, messages, kwargs))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        try:
            provider = self._opened(kwargs.get("model")).provider
            chunks = _Chunks(self._clean(kwargs), messages, self._name(kwargs))
            operation = provider.turn(*self._request(messages, stop, kwargs))
            with closing(items(operation)) as events:
                for event in events:
                    for chunk in chunks.of(event):
                        if run_manager:
                            run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                        yield chunk
        except TwopassError as error:
            yield _last_chunk(self._settle(error))

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        try:
            provider = self._opened(kwargs.get("model")).provider
            chunks = _Chunks(self._clean(kwargs), messages, self._name(kwargs))
            operation = provider.turn(*self._request(messages, stop, kwargs))
            async with aclosing(aitems(operation)) as events:
                async for event in events:
                    for chunk in chunks.of(event):
                        if run_manager:
                            await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                        yield chunk
        except TwopassError as error:
            yield _last_chunk(self._settle(error))

    def _name(self, kwargs: dict[str, Any]) -> str:
        return self._opened(kwargs.get("model")).provider.model_name

    def _message(
        self, done: str, messages: list[BaseMessage], kwargs: dict[str, Any]
    ) -> AIMessage:
        turn = json.loads(done)
        rename_known(turn["tool_calls"], messages)
        content = turn["response"] if self._clean(kwargs) else turn["content"]
        return message_of(turn, content, self._name(kwargs))

    def _settle(self, error: TwopassError) -> AIMessage:
        """The error as a message, if it is to be one; raises it otherwise."""
        raises = self.on_error == "raise"
        if self.on_error is None:
            raises = error.kind == "config" or self._opened(None).provider.raises
        if raises:
            raise typed(error) from error
        return AIMessage(
            content=f"Error: {error}",
            additional_kwargs=additional_kwargs(error.thinking),
            response_metadata={"model_provider": PROVIDER, "error": error.kind},
        )

    # Tools, forms, counts.

    def bind_tools(
        self,
        tools: Sequence[Any],
        *,
        tool_choice: dict[str, Any] | str | bool | None = None,
        parallel_tool_calls: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """This model with tools; `tool_choice` is auto, none, any, required or a tool's name."""
        bound: dict[str, Any] = {"tools": _tools.wire_tools(tools)}
        if tool_choice is not None and tool_choice is not False:
            bound["tool_choice"] = _tools.wire_choice(tool_choice)
        if parallel_tool_calls is not None:
            bound["parallel_tool_calls"] = parallel_tool_calls
        return self.bind(**bound, **kwargs)

    def with_structured_output(
        self,
        schema: dict[str, Any] | type | None = None,
        *,
        method: Literal["json_schema", "function_calling", "json_mode"] = "json_schema",
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """This model with answers of a form: as an instance of `schema`, or as a dict.

        `json_schema` binds the answer, after a free thought; `function_calling` forces a
        call; `json_mode` binds it to some object.
        """
        if kwargs:
            raise ValueError(f"unknown arguments {sorted(kwargs)}")
        return _tools.structured(
            self, schema, _tools.Form(method=method, include_raw=include_raw, strict=strict)
        )

    def get_num_tokens(self, text: str) -> int:
        """Tokens of a text, by the model's own tokens where the backend can count them."""
        empty = self.get_num_tokens_from_messages([HumanMessage("")])
        return self.get_num_tokens_from_messages([HumanMessage(text)]) - empty

    def get_num_tokens_from_messages(
        self, messages: Sequence[BaseMessage], tools: Sequence[Any] | None = None
    ) -> int:
        """Tokens of the prompt that these messages make, an estimate where nobody counts."""
        kwargs: dict[str, Any] = {"tools": _tools.wire_tools(tools)} if tools else {}
        request = self._request(list(messages), None, kwargs)
        count: int | None = last(self._opened(None).provider.count(*request))
        return _tools.estimate(messages) if count is None else count


class _Chunks:
    """A turn's events as chunks, in one pass."""

    def __init__(self, clean: bool, messages: list[BaseMessage], model: str) -> None:
        self._clean = clean
        self._messages = messages
        self._model = model
        self._calls: list[dict[str, Any]] = []
        self._thought = False
        self._in_block = False

    def of(self, event: Event) -> Iterator[ChatGenerationChunk]:
        name, data = event
        match name:
            case "thinking":
                yield self._thinking(data)
            case "text":
                yield _chunk(AIMessageChunk(content=self._close() + data))
            case "tool_call":
                call = json.loads(data)
                self._calls.append(call)
                rename_known(self._calls, self._messages)
                if closed := self._close():
                    yield _chunk(AIMessageChunk(content=closed))
                yield _chunk(call_chunk(call, len(self._calls) - 1))
            case "done":
                yield self._done(json.loads(data))
            case _:
                # `reclassified`: what was sent cannot be taken back; the end tells the thought.
                pass

    def _thinking(self, text: str) -> ChatGenerationChunk:
        content = ""
        if not self._clean:
            content = text if self._in_block else f"<think>{text}"
        self._in_block, self._thought = True, True
        return _chunk(AIMessageChunk(content=content, additional_kwargs=additional_kwargs(text)))

    def _close(self) -> str:
        closes = self._in_block and not self._clean
        self._in_block = False
        return "</think>\n" if closes else ""

    def _done(self, turn: dict[str, Any]) -> ChatGenerationChunk:
        # A thought that was taken for the answer is told at last (a `reclassified` turn).
        late = turn["thinking"] if not self._thought else ""
        message = AIMessageChunk(
            content=self._close(),
            additional_kwargs=additional_kwargs(late),
            response_metadata=response_metadata(turn, self._model),
            usage_metadata=usage(turn),
            chunk_position="last",
        )
        message.invalid_tool_calls = invalid_calls(turn)
        return _chunk(message)


def _chunk(message: AIMessageChunk) -> ChatGenerationChunk:
    message.response_metadata.setdefault("model_provider", PROVIDER)
    return ChatGenerationChunk(message=message)


def _last_chunk(message: AIMessage) -> ChatGenerationChunk:
    return _chunk(
        AIMessageChunk(
            content=message.content,
            additional_kwargs=message.additional_kwargs,
            response_metadata=message.response_metadata,
            chunk_position="last",
        )
    )


def _result(message: AIMessage) -> ChatResult:
    return ChatResult(generations=[ChatGeneration(message=message)])
