"""The end of a program by Ctrl-C or SIGTERM.

Ctrl-C never prints a traceback: one line while the program works, nothing while it starts or ends. The kernel does not
deliver SIGTERM to the first process of a container unless it has a handler: without one, a pod would be killed after
its grace period and leave partial files.
"""

# Not `signal`: building its enumerations takes a tenth of the start, in which Ctrl-C would print a traceback.
import _signal  # type: ignore[import-not-found]
import atexit
import os
import sys
from contextlib import suppress
from typing import Any

INTERRUPTED, TERMINATED = 130, 143
_SHARDS = "pairmill shards"
"""What threads are called that work on shards: by pairmill.engine.workers, whose import takes too long here."""

_program = False
_code = INTERRUPTED


def quiet() -> None:
    """Make Ctrl-C end this process at once, with exit code 130, unless Ctrl-C is ignored.

    Programs call this before they import anything else: imports take half a second, and Python would print a traceback.
    """
    global _program
    atexit.register(_leave_threads)  # registered first, so called last
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _end)
        # Registered first, so called last: the interpreter then resets handlers, and Ctrl-C would kill it instead.
        atexit.register(_signal.signal, _signal.SIGINT, _signal.SIG_IGN)
        _program = True
    if os.getpid() == 1:
        _signal.signal(_signal.SIGTERM, lambda *_: os._exit(TERMINATED))


def hear() -> None:
    """Make Ctrl-C raise KeyboardInterrupt; SIGTERM SystemExit in the first process of a container and in Slurm's jobs,
    where it says that the time is over.
    """
    if _program:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    if os.getpid() == 1 or "SLURM_JOB_ID" in os.environ:
        leave_when_told()


def leave_when_told() -> None:
    """Make SIGTERM raise SystemExit.

    Python reports and discards an exception that is raised in a callback (the end of an import, a finaliser). The
    signal comes only once, so the exception is raised again a little later.
    """

    def leave(*_: object) -> None:
        ended(TERMINATED)
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
    """Set the exit code of a Ctrl-C from now on, which only interrupts the end of the interpreter."""
    global _code
    _code = code
    # Where Ctrl-C came in a text that Python ran, as classes of imports do, Python kills itself unless it runs another.
    exec("")  # noqa: S102
    if _program:
        _signal.signal(_signal.SIGINT, _end)


def _leave_threads() -> None:
    """End the process at once if threads work on shards: they may be inside of what the interpreter takes away."""
    threading = sys.modules.get("threading")
    if threading is not None and any(thread.name == _SHARDS for thread in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(_code)


def _end(*_: object) -> None:
    os._exit(_code)
