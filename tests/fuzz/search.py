"""Tries seeds for a time, makes what fails shorter, and says how to see it again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import TypeVar

import pytest

SECONDS = float(os.environ.get("PAIRMILL_FUZZ_SECONDS") or 60)
"""Of all searches together."""
SEED = os.environ.get("PAIRMILL_FUZZ_SEED", "")
"""The one seed that is tried: its first word is the name of the search."""
SHRINKING = 240.0
"""Seconds in which one failure is made shorter."""
FIRST = int(time.time()) % 10**6
S = TypeVar("S")


GoesOn = Callable[[], bool]


def search(name: str, share: float, failure_of: Callable[[str, GoesOn], str], show: Callable[[str], None]) -> None:
    """Try seeds one after another; fail with all failures.

    Args:
        name: of the search, the first word of its seeds.
        share: of the time.
        failure_of: what fails with a seed, for people; empty if nothing does, or nothing did until the time was over.
        show: prints at once.
    """
    failures, tried = [], 0
    end = time.monotonic() + SECONDS * share

    def goes_on() -> bool:
        return bool(SEED) or time.monotonic() < end

    for seed in _seeds(name, goes_on):
        tried += 1
        if failure := failure_of(seed, goes_on):
            failures.append(f"{failure}\nagain: make fuzz-line FUZZ_SEED={seed}")
            show(f"\n{failures[-1]}")
    if not tried:
        pytest.skip(f"FUZZ_SEED={SEED} is of another search")
    show(f"\n{name}: {tried} seeds from {SEED or f'{name}-{FIRST}-0'}, {len(failures)} fail")
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)


def _seeds(name: str, goes_on: GoesOn) -> Iterator[str]:
    if SEED:
        yield from [SEED] if SEED.startswith(f"{name}-") else []
        return
    for number in count():
        if goes_on():
            yield f"{name}-{FIRST}-{number}"
        else:
            return


def shrunk(
    parts: Sequence[S],
    fails: Callable[[Sequence[S]], bool],
    simpler: Callable[[S], Iterable[S]] = lambda part: (),
) -> list[S]:
    """The fewest and simplest parts that are found to fail.

    Half of the parts are left out, then fewer, then one by one, then simpler ones are taken, while the rest ``fails``.
    """
    end = time.monotonic() + SHRINKING
    left = list(parts)
    size = len(left)
    while size := size // 2:
        at = 0
        while at < len(left) and time.monotonic() < end:
            fewer = left[:at] + left[at + size :]
            if fails(fewer):
                left = fewer
            else:
                at += size
    for at, part in enumerate(left):
        for other in simpler(part):
            if time.monotonic() < end and fails(changed := [*left[:at], other, *left[at + 1 :]]):
                left = changed
                break
    return left
