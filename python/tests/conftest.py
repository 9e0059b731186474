"""What the tests run on: a real model in this process, and real servers on loopback."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from twopass import LLMProvider
from upstream import Upstream


def embedded(**generation: Any) -> dict[str, Any]:
    """A configuration of the test model in this process."""
    return {
        "providers": [
            {
                "name": "local",
                "provider_backend": "embedded",
                "model_name": os.environ["TWOPASS_TEST_MODEL"],
                "generation_config": {
                    "temperature": 0,
                    "seed": 7,
                    "max_thinking_tokens": 16,
                    "max_response_tokens": 48,
                    **generation,
                },
            }
        ]
    }


@pytest.fixture(scope="session")
def config() -> Iterator[dict[str, Any]]:
    """The configuration of the test model, which stays loaded."""
    settings = embedded()
    kept = LLMProvider(settings)
    kept.invoke("Hi", max_response_tokens=1)
    yield settings
    del kept


class Serve:
    """`twopass serve` with a configuration; ends with its block."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        file = folder / "twopass.yaml"
        file.write_text(json.dumps(settings))
        command = [os.environ["TWOPASS_BIN"], "serve", "--port", "0", "--config", str(file)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.url = "http://" + line.split("http://")[1].split()[0].rstrip("/")

    def __enter__(self) -> "Serve":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `twopass serve` over the test model."""
    with Serve(embedded(), tmp_path_factory.mktemp("serve")) as serve:
        yield serve.url


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """A Chat Completions server that plays given turns."""
    with Upstream() as running:
        yield running
