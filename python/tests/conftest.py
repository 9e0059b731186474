"""What the tests run on: a real model in this process, and real servers on loopback."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from served import Serve, embedded
from twopass import LLMProvider
from upstream import Upstream


@pytest.fixture(scope="session")
def config() -> Iterator[dict[str, Any]]:
    """The configuration of the test model, which stays loaded."""
    settings = embedded()
    kept = LLMProvider(settings)
    kept.invoke("Hi", max_response_tokens=1)
    yield settings
    del kept


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `twopass serve` over the test model."""
    with Serve(embedded(), tmp_path_factory.mktemp("serve")) as serve:
        yield serve.url


@pytest.fixture(autouse=True)
def interrupts() -> None:
    """Ctrl-C interrupts, also where a shell has started the tests in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A Chat Completions server that plays given turns."""
    with Upstream() as running:
        yield running
