"""A provider that can be copied, pickled and forked: what opens it, and the opened one."""

import asyncio
import json
import os
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, cast
from weakref import WeakValueDictionary

from twopass._native import Operation, Provider

# What would go before arguments that say the same in code.
_OVERRIDES = (
    "TWOPASS_PROVIDER",
    "TWOPASS_BASE_URL",
    "TWOPASS_MODEL",
    "TWOPASS_CONFIG",
    "HERMITCLAW_PROVIDER",
    "HERMITCLAW_BASE_URL",
    "HERMITCLAW_MODEL",
)

Event = tuple[str, Any]

# Equal handles share one opened provider, so that a model is loaded once.
_opened: WeakValueDictionary[Any, Provider] = WeakValueDictionary()
_lock = threading.Lock()


def _forget_parent() -> None:
    global _opened, _lock
    # Whichever thread held the lock does not exist here.
    _lock = threading.Lock()
    _opened = WeakValueDictionary()


os.register_at_fork(after_in_child=_forget_parent)


@dataclass(frozen=True)
class Source:
    """Where a provider's settings come from; `text` goes before `path`."""

    path: str | None = None
    text: str | None = None
    name: str | None = None
    model: str | None = None

    @staticmethod
    def of(
        config: str | os.PathLike[str] | Mapping[str, Any] | None,
        name: str | None = None,
        model: str | None = None,
    ) -> "Source":
        """A source of a file's path, of settings as a mapping, or of the search order."""
        if isinstance(config, Mapping):
            source = Source(text=json.dumps(config), name=name)
        else:
            source = Source(path=None if config is None else os.fspath(config), name=name)
        return source.of_model(model) if model else source

    def of_model(self, model: str) -> "Source":
        """The same entry with another model."""
        if self.text is None:
            return replace(self, model=model)
        settings: dict[str, Any] = json.loads(self.text)
        entry = self._entry(settings)
        if entry is None:
            # The form with one provider and no list.
            settings["model"] = model
        else:
            entry["model_name"] = model
        return replace(self, text=json.dumps(settings))

    def context_tokens(self) -> int | None:
        """The context that settings in code give a model in this process; reads no file."""
        if self.text is None:
            return None
        entry = self._entry(json.loads(self.text))
        engine: Any = (entry or {}).get("engine_config")
        found = cast(dict[str, Any], engine).get("context_tokens") if engine else None
        return found if isinstance(found, int) else None

    def _entry(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        entries: list[dict[str, Any]] = settings.get("providers") or []
        name = self.name or settings.get("default_provider")
        named = (entry for entry in entries if name is None or entry.get("name") == name)
        return next(named, None)

    def open(self) -> Provider:
        """The provider of these settings and of the environment as it is now."""
        environment = dict(os.environ)
        if self.text is not None:
            for variable in _OVERRIDES:
                environment.pop(variable, None)
        changed = os.stat(self.path).st_mtime_ns if self.path and os.path.exists(self.path) else 0
        key = (os.getpid(), self, changed, frozenset(environment.items()), os.getcwd())
        with _lock:
            provider = _opened.get(key)
            if provider is None:
                provider = Provider(
                    environment=environment,
                    path=self.path,
                    text=self.text,
                    name=self.name,
                    model=self.model,
                )
                _opened[key] = provider
            return provider


class Handle:
    """Opens its provider at the first use, and again in a forked child."""

    def __init__(self, source: Source) -> None:
        """Opens nothing yet."""
        self.source = source
        self._provider: Provider | None = None
        self._process = 0

    def __copy__(self) -> "Handle":
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> "Handle":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (Handle, (self.source,))

    @property
    def provider(self) -> Provider:
        """The opened provider of this process."""
        if self._provider is None or self._process != os.getpid():
            self._provider, self._process = self.source.open(), os.getpid()
        return self._provider


def items(operation: Operation) -> Generator[Event, None, None]:
    """What an operation gives. Leaving the loop early cancels the operation."""
    try:
        while (item := operation.next()) is not None:
            yield item
    finally:
        operation.close()


async def aitems(operation: Operation) -> AsyncGenerator[Event, None]:
    """`items` for an event loop. Cancelling the task cancels the operation."""
    try:
        while (item := await _next(operation)) is not None:
            yield item
    finally:
        operation.close()


async def _next(operation: Operation) -> Event | None:
    ready, item = operation.poll()
    if ready:
        return item
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Event | None] = loop.create_future()

    def settle(item: Event | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(item)
        else:
            future.set_exception(error)

    def notify(item: Event | None, error: Exception | None) -> None:
        try:
            loop.call_soon_threadsafe(settle, item, error)
        except RuntimeError:
            # The loop was closed meanwhile; nobody waits, and nobody else will end the work.
            operation.close()

    operation.next_soon(notify)
    return await future


def last(operation: Operation) -> Any:
    """The value of an operation's last item."""
    value: Any = None
    for _, value in items(operation):
        pass
    return value


async def alast(operation: Operation) -> Any:
    """The value of an operation's last item."""
    value: Any = None
    async with aclosing(aitems(operation)) as events:
        async for _, value in events:
            pass
    return value
