"""`twopass serve` on the test model, for clients that know nothing of it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

TOOL = {
    "name": "get_forecast",
    "description": "Get the weather forecast for a city.",
    "parameters": {
        "type": "object",
        "required": ["city"],
        "properties": {"city": {"type": "string", "maxLength": 20}},
        "additionalProperties": False,
    },
}
QUESTION = [{"role": "user", "content": "Will it rain in Rome tomorrow?"}]


def settings(folder: Path) -> dict[str, Any]:
    """The test model with short answers, and stored responses in a file of this run."""
    entry = {
        "name": "local",
        "provider_backend": "embedded",
        "model_name": os.environ["TWOPASS_TEST_MODEL"],
        "generation_config": {
            "temperature": 0,
            "seed": 7,
            "max_thinking_tokens": 16,
            "max_response_tokens": 48,
        },
    }
    return {"providers": [entry], "server": {"store": str(folder / "responses.db")}}


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server."""
    folder = tmp_path_factory.mktemp("serve")
    config = folder / "twopass.yaml"
    config.write_text(json.dumps(settings(folder)))
    command = [os.environ["TWOPASS_BIN"], "serve", "--port", "0", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield "http://" + line.split("http://")[1].split()[0].rstrip("/")
        process.terminate()
        assert process.wait(timeout=30) == 0
