"""Ctrl-C of a program: a traceback never, one line while it works, nothing while it starts or ends."""

from __future__ import annotations

# Not `signal`, which takes a tenth of a program's start for its enumerations: Ctrl-C would print a traceback of them.
import _signal  # type: ignore[import-not-found]
import os

INTERRUPTED = 130

_program = False
_code = INTERRUPTED


def quiet() -> None:
    """From here on Ctrl-C ends this process at once, with exit code 130.

    Programs call it before they import anything else: imports take half a second, and Python prints where in them it
    was interrupted. Where Ctrl-C is ignored it stays so.
    """
    global _program
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _end)
        _program = True


def hear() -> None:
    """Ctrl-C raises KeyboardInterrupt again."""
    if _program:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def ended(code: int) -> None:
    """What Ctrl-C cuts short from here on is Python's own end, and the exit code is this one."""
    global _code
    _code = code
    if _program:
        _signal.signal(_signal.SIGINT, _end)


def _end(*_: object) -> None:
    os._exit(_code)
