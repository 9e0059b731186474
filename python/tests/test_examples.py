"""The examples run to their end on the model in this process: the agents and the README's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from served import embedded

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples" / "python"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_answers(name: str, tmp_path: Path) -> None:
    check(EXAMPLES / name, tmp_path)


def test_the_readme_answers(tmp_path: Path) -> None:
    section = (ROOT / "README.md").read_text().split("\n### Python\n")[1]
    program = tmp_path / "readme.py"
    program.write_text(section.split("```python\n")[1].split("```")[0])
    check(program, tmp_path)


def check(program: Path, folder: Path) -> None:
    """Runs it with short answers; it must say something."""
    file = folder / "twopass.yaml"
    file.write_text(json.dumps(embedded(max_response_tokens=24)))
    ran = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "TWOPASS_CONFIG": str(file)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip(), ran.stderr
