"""Hostile settings, options, templates, cards and answers of servers: each is taken or refused, within bounds."""

import random
from collections.abc import Iterator, Sequence

import pytest

from tests.fuzz.hostile import Case, World
from tests.fuzz.process import Wrong
from tests.fuzz.search import GoesOn, search, shrunk
from tests.support import tools


@pytest.fixture
def world() -> Iterator[World]:
    with tools.shm_folder() as path:
        yield World(path)


def test_what_is_hostile_is_taken_or_refused(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    def wrong_with(case: Case) -> Wrong | None:
        try:
            case.try_on(world)
        except Wrong as wrong:
            return wrong
        return None

    def failure_of(seed: str, _: GoesOn) -> str:
        case = Case.draw(random.Random(seed))
        first = wrong_with(case)
        if first is None:
            return ""

        def fails(some: Sequence[object]) -> bool:
            found = wrong_with(case.without(some)) if some else None
            return found is not None and found.promise == first.promise

        least = case.without(shrunk(case.parts, fails))
        return f"{least}\n  {wrong_with(least) or first}"

    with capsys.disabled():
        search("hostile", 0.25, failure_of, lambda text: print(text, flush=True))
