"""LangChain's interfaces to Twopass; needs the extra `twopass[langchain]`."""

from typing import TYPE_CHECKING, Any

from twopass.langchain._chat import ChatVllm
from twopass.langchain._embeddings import TwopassEmbeddings

if TYPE_CHECKING:
    from twopass.langchain._openai import ChatOpenAIThinking

ChatTwopass = ChatVllm

__all__ = ["ChatOpenAIThinking", "ChatTwopass", "ChatVllm", "TwopassEmbeddings"]


def __getattr__(name: str) -> Any:
    if name == "ChatOpenAIThinking":
        try:
            from twopass.langchain._openai import ChatOpenAIThinking
        except ModuleNotFoundError as error:
            told = f"{name} needs `{error.name}`: install twopass[openai]"
            raise ModuleNotFoundError(told, name=error.name) from error
        return ChatOpenAIThinking
    raise AttributeError(f"module `twopass.langchain` has no attribute `{name}`")
