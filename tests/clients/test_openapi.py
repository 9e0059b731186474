"""Requests made up from our own description: no 5xx, no status that it does not name."""

import subprocess
import sys
from pathlib import Path


def test_made_up_requests(url: str, tmp_path: Path) -> None:
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json",
        "--checks", "not_a_server_error,status_code_conformance,content_type_conformance",
        "--phases", "examples,coverage,fuzzing",
        "--max-examples", "15", "--seed", "7", "--request-timeout", "60", "--no-color",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
