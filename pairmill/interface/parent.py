"""Processes that end with the one that started them, however that ends: the end of their standard input tells them."""

import os
import subprocess
import sys
import threading
from typing import Any, Final

from pairmill.errors import InputError, InternalError, PairmillError, StorageError, UsageError

FOLLOWS: Final = "PAIRMILL_FOLLOWS_PARENT"
"""Variable of such a process; the one that starts it holds the other end of its standard input."""

_ERRORS: Final = {2: UsageError, 3: InputError, 4: StorageError}


def end_with_parent() -> None:
    """End this process with the one that started it, if that is ours."""
    if os.environ.pop(FOLLOWS, ""):
        threading.Thread(target=_wait_for_end, daemon=True).start()


def _wait_for_end() -> None:
    # Not sys.stdin: Python aborts at its end if a thread has its lock.
    os.read(0, 1)
    os._exit(1)


def start(*arguments: str) -> str:
    """Run ``pairmill`` with these arguments in a process that ends with this one; return what it printed.

    Raises:
        PairmillError: it failed; the exit code is its own.
    """
    command = [sys.executable, "-m", "pairmill", *arguments]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, FOLLOWS: "1"}, text=True, **pipes) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        code = process.wait()
    if code:
        kind: type[PairmillError] = _ERRORS.get(code, InternalError)
        hint = "see its message above; the same command goes on where this one ended"
        raise kind("the process failed", where=f"pairmill {arguments[0]}", got=f"exit code {code}", hint=hint)
    return str(printed).strip()
