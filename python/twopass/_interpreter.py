"""Which interpreter of the process this is."""

from importlib import import_module
from typing import Any


def require_main() -> None:
    """Raises ImportError in a subinterpreter: the native module's classes belong to one."""
    # The module's name since Python 3.13, and before; a Python without it has one interpreter.
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters: Any = import_module(name)
        except ImportError:
            continue
        if interpreters.get_current() != interpreters.get_main():
            raise ImportError(
                "twopass cannot be used in a subinterpreter; use threads or processes"
            )
        return
