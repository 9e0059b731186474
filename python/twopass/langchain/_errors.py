"""Errors that are LangChain's and ours, so that code that catches either still works."""

from langchain_core import exceptions as core

from twopass import errors


class ChatAuthError(errors.AuthError, core.ModelAuthenticationError):
    """The key is missing, wrong or not allowed."""


class ChatPermissionError(errors.AuthError, core.ModelPermissionDeniedError):
    """The key does not allow this request."""


class ChatBadRequestError(errors.BadRequestError, core.ModelInvalidRequestError):
    """The request is wrong."""


class ChatContextLengthError(errors.ContextLengthError, core.ContextOverflowError):
    """The prompt does not fit the model's context."""


class ChatNotFoundError(errors.NotFoundError, core.ModelNotFoundError):
    """The model does not exist."""


class ChatRateLimitError(errors.RateLimitError, core.ModelRateLimitError):
    """Too many requests."""


class ChatConnectError(errors.ConnectError, core.ModelConnectionError):
    """No connection."""


class ChatTimeoutError(errors.TimeoutError, core.ModelTimeoutError):
    """A deadline has passed."""


class ChatUpstreamError(errors.UpstreamError, core.ModelAPIError):
    """The backend failed."""


_CLASSES: dict[type[errors.TwopassError], type[errors.TwopassError]] = {
    errors.AuthError: ChatAuthError,
    errors.BadRequestError: ChatBadRequestError,
    errors.ContextLengthError: ChatContextLengthError,
    errors.NotFoundError: ChatNotFoundError,
    errors.RateLimitError: ChatRateLimitError,
    errors.ConnectError: ChatConnectError,
    errors.TimeoutError: ChatTimeoutError,
    errors.UpstreamError: ChatUpstreamError,
}


def typed(error: errors.TwopassError) -> errors.TwopassError:
    """The same error as a class of LangChain's too; other errors unchanged."""
    kind = _CLASSES.get(type(error))
    if kind is None:
        return error
    if kind is ChatAuthError and error.status == 403:
        kind = ChatPermissionError
    facts = dict(vars(error))
    return kind(str(error), **facts)
