"""Thinking budgets, private reasoning and typed tool calls for any language model.

`LLMProvider` is one configured model. `ChatVllm`, `ChatOpenAIThinking` and `TwopassEmbeddings`
are LangChain's interfaces to it; they need the extra `twopass[langchain]` and are imported only
when they are used.
"""

from typing import TYPE_CHECKING, Any

from twopass._interpreter import require_main

# Before the native module: the interpreter would hand the main one's to the others.
require_main()

from twopass._native import __version__  # noqa: E402
from twopass.errors import TwopassError  # noqa: E402
from twopass.provider import LLMProvider, parse_response  # noqa: E402

if TYPE_CHECKING:
    from twopass.langchain import (
        ChatOpenAIThinking,
        ChatTwopass,
        ChatVllm,
        TwopassEmbeddings,
    )

__all__ = [
    "ChatOpenAIThinking",
    "ChatTwopass",
    "ChatVllm",
    "LLMProvider",
    "TwopassEmbeddings",
    "TwopassError",
    "__version__",
    "parse_response",
]

_LANGCHAIN = {"ChatOpenAIThinking", "ChatTwopass", "ChatVllm", "TwopassEmbeddings"}


def __getattr__(name: str) -> Any:
    if name in _LANGCHAIN:
        from twopass import langchain

        return getattr(langchain, name)
    raise AttributeError(f"module `twopass` has no attribute `{name}`")
