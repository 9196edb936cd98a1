r"""Mathematics, judged by math-verify in a process of its own, since no limit inside it holds for every output.

sympy can compute ``9^{9^{9^9}}`` for hours inside one call that no signal handler interrupts. So the judge has a limit
of CPU time (its kernel timer ends it) and of memory, and a waiting time beside them. A pair that meets a limit is not
correct, and is counted: :data:`None` instead of a verdict. CPU time is the limit, so that a busy machine changes no
verdict.
"""

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from functools import lru_cache
from pathlib import Path
from typing import Final

from pairmill.errors import InternalError
from pairmill.extras import require
from pairmill.text import boxed

CPU_SECONDS: Final = 5.0
"""Of one pair."""
_WAITING: Final = 12.0
"""Times the CPU time; for what sleeps or swaps."""
_START_SECONDS: Final = 120.0
LONGEST: Final = 50_000
"""Characters; a longer answer is not judged."""


def delimited(text: str) -> str:
    """Return a formula between the delimiters that math-verify looks for."""
    return f"${text}$"


def answer_in(text: str) -> tuple[str, bool]:
    """Return what math-verify is given of an output, with delimiters, and whether it was in a box.

    Without a box it is the whole text: as it is if it has delimiters of its own.
    """
    inside = boxed(text)
    if inside is not None:
        return delimited(inside), True
    own = any(mark in text for mark in ("$", "\\(", "\\["))
    return (text if own else delimited(text)), False


def check() -> None:
    """Raise UsageError if math-verify is not installed."""
    require("evaluate", "math_verify", where="evaluate")


class Judge:
    """A process that says whether an answer equals a gold answer. It starts with the first pair; threads take turns.

    Args:
        seconds: of CPU time for one pair.
    """

    def __init__(self, seconds: float = CPU_SECONDS) -> None:
        self.seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def verdict(self, gold: str, answer: str, *, as_text: bool = False) -> bool | None:
        """Return whether they are equal; None if the answer is too long or a limit was met.

        ``as_text`` leaves the gold answer unparsed: then it must be the text that math-verify finds in the answer.

        Raises:
            UsageError: math-verify is not installed.
            InternalError: the process cannot start.
        """
        if len(gold) > LONGEST or len(answer) > LONGEST:
            return None
        with self._lock:
            process = self._started()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps([gold, answer, as_text]).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                line = b""
            else:
                line = self._line(process, self.seconds * _WAITING)
            if not line:
                self._end()
                return None
            result = json.loads(line)
            return None if result is None else bool(result)

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _started(self) -> subprocess.Popen[bytes]:
        # A fork has the pipes of its parent, which must not be shared.
        if self._process is not None and self._owner == os.getpid():
            return self._process
        check()
        worker = str(Path(__file__).with_name("math_worker.py"))
        # -P: the folder of the worker has modules named like ones of the standard library.
        self._process = subprocess.Popen(
            [sys.executable, "-P", worker, str(self.seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._owner = os.getpid()
        if not self._line(self._process, _START_SECONDS):
            self._end()
            raise InternalError("the judge of mathematics does not start", where=worker, hint="import math_verify")
        return self._process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        """Return the next line; empty if the process ended or the time is over."""
        assert process.stdout is not None
        until, result = time.monotonic() + seconds, b""
        while not result.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                return b""
            part = os.read(process.stdout.fileno(), 4096)
            if not part:
                return b""
            result += part
        return result

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or self._owner != os.getpid():
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()


_JUDGE: Final = Judge()
atexit.register(_JUDGE.close)


@lru_cache(maxsize=4096)
def equal(gold: str, answer: str, as_text: bool = False) -> bool | None:
    """Return the verdict of this process's judge on a pair; see :meth:`Judge.verdict`."""
    return _JUDGE.verdict(gold, answer, as_text=as_text)
