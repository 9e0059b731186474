"""Vectors as LangChain asks for them."""

import os
from collections.abc import Mapping
from typing import Any

from langchain_core.embeddings import Embeddings

from twopass._handle import Handle, Source, alast, last

__all__ = ["TwopassEmbeddings"]


class TwopassEmbeddings(Embeddings):
    """Vectors by the model of the configuration's `embeddings` section.

    Without such a section that is a small model of words in this process. `config` is a
    file's path or the same settings as a mapping; `name` the entry that is asked.
    """

    def __init__(
        self,
        config: str | os.PathLike[str] | Mapping[str, Any] | None = None,
        name: str | None = None,
    ) -> None:
        """Names the model; reads nothing yet."""
        self._handle = Handle(Source.of(config, name))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """One vector for each text, in their order."""
        return last(self._handle.provider.embed(texts)) if texts else []

    def embed_query(self, text: str) -> list[float]:
        """The vector of one text."""
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """`embed_documents` for an event loop."""
        return await alast(self._handle.provider.embed(texts)) if texts else []

    async def aembed_query(self, text: str) -> list[float]:
        """`embed_query` for an event loop."""
        return (await self.aembed_documents([text]))[0]
