"""Every instant at which a run can be killed and that matters: before, inside and after each write of the store.

Everything that a run leaves behind goes through ``Store.{create,commit,copy,write,delete}``. A child process that kills
itself at the n-th of these instants, for every n, visits them all; a random kill hits one by luck.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from pairmill import storage
from pairmill.storage.base import Store
from tests.support.processes.kill_points import EVERY

STRIDE = 11
"""For stages, whose rounds the engine's own test kills at every instant. A shard of a file has five instants, one of
two has eight: a stride that divides those would meet the same one of every shard. With 19 three of four tests saw no
round that was done in part."""
DONE = 0
FAILED = 1


class CrashPoints:
    """Makes stores kill this process at the ``last``-th instant; ``passed`` counts them."""

    def __init__(self, last: int) -> None:
        self.passed, self._last = 0, last

    def here(self) -> None:
        """One more instant."""
        self.passed += 1
        if self.passed == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self, kind: type[Store]) -> None:
        """Wrap the writing methods of a backend, in this process for good."""
        create: Callable[..., AbstractContextManager[Path]] = kind.create
        points = self

        def crashing_create(store: Store, *given: Any, **named: Any) -> AbstractContextManager[Path]:
            return _Creation(create(store, *given, **named), points)

        kind.create = crashing_create  # type: ignore[method-assign,assignment]
        for name in ("commit", "copy", "delete"):
            setattr(kind, name, self._around(getattr(kind, name)))

    def _around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def crashing(*given: Any, **named: Any) -> Any:
            self.here()
            result = method(*given, **named)
            self.here()
            return result

        return crashing


class _Creation:
    """A creation with an instant before it, when the file is filled but not visible yet, and when it is visible.

    ``Store.write`` goes through it too.
    """

    def __init__(self, inner: AbstractContextManager[Path], points: CrashPoints) -> None:
        self._inner, self._points = inner, points

    def __enter__(self) -> Path:
        self._points.here()
        return self._inner.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._points.here()
        result = self._inner.__exit__(kind, error, trace)
        self._points.here()
        return result


def crashes(work: Callable[[], object], root: Path, *, stride: int = 1) -> Iterator[int]:
    """Do ``work`` in a forked child that is killed at instant 1, then in one that is killed at 2, until one is not.

    With ``stride=3`` only every third instant; `make test-long` (``PAIRMILL_EVERY_KILL=1``) takes them all.

    Yields the number of the instant after each kill: the caller looks at what was left, and makes room for the next.
    ``work`` may not start processes of its own, which would not be killed.

    Raises:
        AssertionError: the child failed by itself.
    """
    kind = type(storage.store_for(str(root)))
    number = 1 - (stride := 1 if EVERY else stride)
    while True:
        number += stride
        child = os.fork()
        if not child:
            try:
                CrashPoints(number).install(kind)
                work()
                os._exit(DONE)
            except BaseException as error:
                print(f"instant {number}: {error!r}", file=sys.stderr)
            finally:
                os._exit(FAILED)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            assert os.waitstatus_to_exitcode(status) == DONE, f"the run failed before instant {number}"
            return
        assert os.WTERMSIG(status) == signal.SIGKILL
        yield number
