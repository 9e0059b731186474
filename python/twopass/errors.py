"""What can go wrong, one exception class for each thing that callers do about it."""

from typing import Any

__all__ = [
    "AuthError",
    "BadRequestError",
    "ConfigError",
    "ConnectError",
    "ContextLengthError",
    "ModelFileError",
    "NotFoundError",
    "RateLimitError",
    "TimeoutError",
    "TwopassError",
    "UpstreamError",
    "from_native",
]


class TwopassError(Exception):
    """Any error of Twopass. Its text holds no key and no prompt.

    `kind` is the name that the server's wires use; every other attribute may be None.
    `thinking` is what was thought before the turn failed.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "internal",
        param: str | None = None,
        provider: str | None = None,
        status: int | None = None,
        retry_after_s: float | None = None,
        is_retryable: bool = False,
        thinking: str = "",
    ) -> None:
        """Keeps the facts of the failure as attributes."""
        super().__init__(message)
        self.kind = kind
        self.param = param
        self.provider = provider
        self.status = status
        self.retry_after_s = retry_after_s
        self.is_retryable = is_retryable
        self.thinking = thinking

    def __reduce__(self) -> tuple[Any, ...]:
        """Lets the error cross process borders with its attributes."""
        return (type(self), self.args, self.__dict__)


class ConfigError(TwopassError):
    """The configuration is wrong; its text names file, key, value and what is allowed."""


class BadRequestError(TwopassError):
    """The request is wrong; `param` names what."""


class ContextLengthError(BadRequestError):
    """The prompt does not fit the model's context."""


class AuthError(TwopassError):
    """The key is missing, wrong or not allowed."""


class NotFoundError(TwopassError):
    """The model, file or address does not exist."""


class ModelFileError(TwopassError):
    """The model's file cannot be used, or is not the one that was expected."""


class RateLimitError(TwopassError):
    """Too many requests, a full queue or a used-up quota; `retry_after_s` may say how long."""


class ConnectError(TwopassError):
    """No connection: refused, no such host, TLS."""


class TimeoutError(TwopassError):
    """No connection or no output within its deadline."""


class UpstreamError(TwopassError):
    """The backend failed, or its answer cannot be read."""


_CLASSES: dict[str, type[TwopassError]] = {
    "config": ConfigError,
    "not_built": ConfigError,
    "bad_request": BadRequestError,
    "prefill_unsupported": BadRequestError,
    "dimension_mismatch": BadRequestError,
    "context_length": ContextLengthError,
    "auth": AuthError,
    "not_found": NotFoundError,
    "model": ModelFileError,
    "checksum": ModelFileError,
    "quota_exhausted": RateLimitError,
    "rate_limited": RateLimitError,
    "queue_full": RateLimitError,
    "overloaded": RateLimitError,
    "connect": ConnectError,
    "timeout_connect": TimeoutError,
    "timeout_first_token": TimeoutError,
    "timeout_idle": TimeoutError,
    "timeout_total": TimeoutError,
    "upstream_error": UpstreamError,
    "invalid_response": UpstreamError,
    "stream_truncated": UpstreamError,
    "event_too_large": UpstreamError,
}


def from_native(message: str, **facts: Any) -> TwopassError:
    """The exception for an error of the native module, whose facts are its attributes."""
    return _CLASSES.get(facts["kind"], TwopassError)(message, **facts)
