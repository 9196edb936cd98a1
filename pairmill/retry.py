"""One policy for requests that fail now and then: exponential pauses, a bounded time, and ``Retry-After``."""

import os
import random
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from threading import Event
from typing import TypeVar

from pairmill.errors import StorageError
from pairmill.log import event

T = TypeVar("T")

PATIENCE = 180.0
"""Seconds without progress after which a request is given up; ``PAIRMILL_STORAGE_PATIENCE`` overrides it."""
MAX_ASKED = 600.0
"""Seconds of pauses without progress that a server may ask for; the Hub's limits are of five minutes."""
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""HTTP statuses after which a request is made again."""


class Again(Exception):
    """A try failed in a way that may pass; ``wait`` is the pause in seconds that the server asks for."""

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


def patience() -> float:
    """Seconds without progress after which a request is given up."""
    return float(os.environ.get("PAIRMILL_STORAGE_PATIENCE", PATIENCE))


def timeouts() -> tuple[float, float]:
    """Seconds to wait for a connection, and for the next byte."""
    return min(10.0, patience()), min(60.0, patience())


def delays() -> tuple[float, float]:
    """Return the first pause (0.2 s) and the longest (20 s); each is twice the one before, so there are about 20."""
    return patience() / 900, patience() / 9


def retried(where: str, work: Callable[[], T], got: Callable[[], int] = lambda: 0, stop: Event | None = None) -> T:
    """Call ``work`` until it does not raise Again, and return its result.

    Args:
        where: the URI, for messages.
        work: one try.
        got: how much has arrived; when it grows, patience starts anew.
        stop: ends a pause when it is set.

    Raises:
        StorageError: no progress for ``patience()`` seconds, the server asks for too long a pause, or ``stop`` was set.
    """
    stop = stop or Event()
    limit, (first, longest) = patience(), delays()
    begun, most, failed, asked = time.monotonic(), got(), 0, 0.0
    while True:
        try:
            return work()
        except Again as error:
            reason, wait = str(error), error.wait
        if got() > most:
            begun, most, failed, asked = time.monotonic(), got(), 0, 0.0
        failed += 1
        asked += wait
        pause = max(wait, min(first * 2.0 ** (failed - 1), longest) * random.uniform(0.5, 1.0))  # noqa: S311
        if asked > MAX_ASKED:
            raise StorageError(
                "the server asks for too long a pause",
                where=where,
                got=f"{reason}, {wait:.0f} s",
                expected=f"at most {MAX_ASKED:.0f} s in all",
                hint="run the same command later: finished work is kept",
            )
        # The pauses that a server asks for do not count: it is up.
        if time.monotonic() - begun + pause - asked > limit:
            raise StorageError(
                f"no complete answer in {failed} tries within {limit:.0f} s",
                where=where,
                got=reason,
                hint="check that the service is up and reachable, then run the same command: finished work is kept",
            )
        event(f"{where}: {reason}; trying again in {pause:.1f} s")
        if _paused(pause, stop):
            raise StorageError("stopped", where=where, got=reason)


def _paused(seconds: float, stop: Event) -> bool:
    return stop.wait(seconds)


def asked_pause(headers: Mapping[str, str]) -> float:
    """Return the pause in seconds that an answer's headers ask for; 0 if they do not."""
    value = headers.get("retry-after", "")
    if value.isdecimal():
        return float(value)
    with suppress(ValueError):  # the one form of a date that servers may send (RFC 9110, 5.6.7); "" is none
        date = datetime.strptime(value, "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=UTC)
        return max(0.0, date.timestamp() - time.time())
    # The Hub's header: "api";r=0;t=55 means that no request is left for 55 s.
    spent = re.search(r"\br=0\s*;\s*t=(\d+)", headers.get("ratelimit", ""))
    return float(spent.group(1)) if spent else 0.0


def raced(work: Callable[[], T], lost: type[Exception], tries: int) -> T:
    """Call ``work`` until it does not raise ``lost``: another writer came first, and the next try sees its result."""
    for _ in range(tries - 1):
        with suppress(lost):
            return work()
    return work()
