"""The types: the stub says what the native module has, and the sources pass the strict checks."""

import inspect
import subprocess
import sys
from pathlib import Path

import twopass
from twopass import errors, langchain

SOURCES = Path(__file__).parent.parent


def test_stub_is_the_native_module() -> None:
    command = [sys.executable, "-m", "mypy.stubtest", "twopass._native"]
    # There the stub and the module lie side by side.
    installed = Path(twopass.__file__).parent.parent
    found = subprocess.run(command, cwd=installed, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_sources_pass_strict_pyright() -> None:
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
    found = subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


def test_public_names_have_docs() -> None:
    for module in (twopass, errors, langchain):
        for name in module.__all__:
            value = getattr(module, name)
            if not inspect.isroutine(value) and not inspect.isclass(value):
                continue
            assert inspect.getdoc(value), name
            if inspect.isclass(value) and value.__module__.startswith("twopass"):
                for method, function in vars(value).items():
                    if not method.startswith("_") and inspect.isroutine(function):
                        assert inspect.getdoc(function), f"{name}.{method}"
