"""Trying again, with longer and longer pauses, for a bounded time."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from pairmill.errors import StorageError
from pairmill.log import event

T = TypeVar("T")

PATIENCE = 180.0
"""Seconds for which a request that fails is made again; ``PAIRMILL_STORAGE_PATIENCE`` overrides it."""
_FIRST, _LONGEST = (
    1 / 900,
    1 / 9,
)  # pauses as shares of that: 0.2 s, twice as long each time, up to 20 s; some 20 of them
_SAID = 3


class Again(Exception):
    """A try failed in a way that may pass; ``wait`` are the seconds that the server asks for."""

    def __init__(self, what: str, wait: float = 0.0) -> None:
        super().__init__(what)
        self.wait = wait


def patience() -> float:
    """Seconds for which a request that fails is made again."""
    return float(os.environ.get("PAIRMILL_STORAGE_PATIENCE", PATIENCE))


def timeouts() -> tuple[float, float]:
    """Seconds for a connection to be made, and for the next byte to come."""
    return min(10.0, patience()), min(60.0, patience())


def delays() -> tuple[float, float]:
    """Seconds of the first pause and of the longest; each is twice as long as the one before, so there are some 20."""
    return patience() / 900, patience() / 9


def retried(where: str, work: Callable[[], T], got: Callable[[], int] = lambda: 0, stop: Event | None = None) -> T:
    """What ``work`` returns, tried again while it raises Again.

    Args:
        where: the URI that it is about.
        work: one try.
        got: how much has come so far; where that has grown, time counts anew.
        stop: ends the pauses when it is set.

    Raises:
        StorageError: it failed for too long, or the server asks for a longer pause than is left, or ``stop`` was set.
    """
    stop = stop or Event()
    limit, (first, longest) = patience(), delays()
    begun, most, failed = time.monotonic(), got(), 0
    while True:
        try:
            return work()
        except Again as error:
            reason, asked = str(error), error.wait
        if got() > most:
            begun, most, failed = time.monotonic(), got(), 0
        failed += 1
        pause = max(asked, min(first * 2.0 ** (failed - 1), longest) * random.uniform(0.5, 1.0))  # noqa: S311
        if time.monotonic() - begun + pause > limit:
            raise StorageError(
                f"no answer in {failed} tries within {limit:.0f} s",
                where=where,
                got=reason,
                hint="see whether the storage service is up, then run the same command: what is done is kept",
            )
        if failed >= _SAID:
            event(f"{where}: {reason}; again in {pause:.1f} s")
        if stop.wait(pause):
            raise StorageError("was stopped", where=where, got=reason)
