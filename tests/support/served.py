"""The test model's configuration, and `twopass serve` on it; for every suite in Python."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

# How long a server may take to end.
END_S = 30


def embedded(**generation: Any) -> dict[str, Any]:
    """A configuration of the test model in one process; `generation` goes before its settings.

    It computes on one thread, so that what else the machine does slows the tests less.
    """
    entry = {
        "name": "local",
        "provider_backend": "embedded",
        "model_name": os.environ["TWOPASS_TEST_MODEL"],
        "engine_config": {"threads": 1},
        "generation_config": {
            "temperature": 0,
            "seed": 7,
            "max_thinking_tokens": 16,
            "max_response_tokens": 48,
            **generation,
        },
    }
    return {"providers": [entry]}


class Serve:
    """`twopass serve` with a configuration; ends with its block."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        """Starts it and waits until it listens."""
        file = folder / "twopass.yaml"
        file.write_text(json.dumps(settings))
        command = [os.environ["TWOPASS_BIN"], "serve", "--port", "0", "--config", str(file)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.url = "http://" + line.split("http://")[1].split()[0].rstrip("/")

    def __enter__(self) -> "Serve":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._process.terminate()
        code = self._process.wait(END_S)
        assert kind is not None or code == 0, f"the server ended with {code}"
