"""How programs end when they are told to.

Ctrl-C: a traceback never, one line while they work, nothing while they start or end. SIGTERM of the first process of a
container, from which the kernel keeps every signal without a handler: without one a pod that is to go would be killed
after its grace period, and leave what it was writing.
"""

from __future__ import annotations

# Not `signal`, which takes a tenth of a program's start for its enumerations: Ctrl-C would print a traceback of them.
import _signal  # type: ignore[import-not-found]
import os
import sys
from typing import Any

INTERRUPTED, TERMINATED = 130, 143

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
    if os.getpid() == 1:
        _signal.signal(_signal.SIGTERM, lambda *_: os._exit(TERMINATED))


def hear() -> None:
    """Ctrl-C raises KeyboardInterrupt again, and SIGTERM of the first process SystemExit."""
    if _program:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    if os.getpid() == 1:
        leave_when_told()


def leave_when_told() -> None:
    """SIGTERM raises SystemExit.

    Where it comes while Python calls back from within (an import that ends, an object that goes), the exception is
    reported and forgotten, and nobody sends the signal a second time: then it is raised again a little later.
    """

    def leave(*_: object) -> None:
        raise SystemExit(TERMINATED)

    def lost(what: Any) -> None:
        if what.exc_type is SystemExit:
            _signal.setitimer(_signal.ITIMER_REAL, 0.01)
        else:
            report(what)

    report, sys.unraisablehook = sys.unraisablehook, lost
    for number in (_signal.SIGTERM, _signal.SIGALRM):
        _signal.signal(number, leave)


def ended(code: int) -> None:
    """What Ctrl-C cuts short from here on is Python's own end, and the exit code is this one."""
    global _code
    _code = code
    if _program:
        _signal.signal(_signal.SIGINT, _end)


def _end(*_: object) -> None:
    os._exit(_code)
