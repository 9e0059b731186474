"""The example agents run to their end on the model in this process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from served import embedded

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "python"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_answers(name: str, tmp_path: Path) -> None:
    file = tmp_path / "twopass.yaml"
    file.write_text(json.dumps(embedded(max_response_tokens=24)))
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env={**os.environ, "TWOPASS_CONFIG": str(file)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip(), ran.stderr
