"""Random sequences over the whole line, each on a root of its own."""

import random
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.fuzz.play import Play, Step
from tests.fuzz.process import Wrong
from tests.fuzz.search import GoesOn, search, shrunk
from tests.fuzz.steps import Run, draw

TRIES = 3
"""How often a sequence with several processes at once is played until it passes for one that does not fail."""


def played(steps: Sequence[Step], taken: list[Step], goes_on: GoesOn = lambda: True) -> Wrong | None:
    """Play a sequence while it goes on; puts the steps that were taken into a list. Returns what failed."""
    # In memory: nothing waits for a disk.
    base = Path(tempfile.mkdtemp(prefix="pairmill-fuzz-", dir="/dev/shm"))
    try:
        play = Play(base)
        for step in steps:
            if not goes_on():
                break
            taken.append(step)
            taken[-1] = step.apply(play)
    except Wrong as wrong:
        return wrong
    finally:
        shutil.rmtree(base)
    return None


def failure_of(seed: str, goes_on: GoesOn) -> str:
    """The shortest sequence of a seed that fails, and how; empty if it does not."""
    taken: list[Step] = []
    last = first = played(draw(random.Random(seed)), taken, goes_on)
    if first is None:
        return ""

    def fails(some: Sequence[Step]) -> bool:
        nonlocal last
        racing = any(isinstance(step, Run) and step.processes > 1 for step in some)
        for _ in range(TRIES if racing else 1):
            found = played(some, [])
            if found is not None and found.promise == first.promise:
                last = found
                return True
        return False

    def simpler(step: Step) -> Iterable[Step]:
        return step.simpler() if isinstance(step, Run) else ()

    steps = shrunk(taken, fails, simpler)
    return "\n".join(
        ["a sequence fails:", *(f"  {number}. {step}" for number, step in enumerate(steps, 1)), f"  {last}"]
    )


def test_a_kept_root_gives_what_a_fresh_one_gives_or_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        search("line", 0.75, failure_of, lambda text: print(text, flush=True))
