"""Batches of an epoch are kept once they are known, and are those that the planner finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.loader import Phase, RowPlan, kept_batches
from pairmill.loader.plan import Draw, Position, World
from pairmill.loader.segments import segments
from tests.support.data.samples import sampled

WORLD = World(3, 300)
EPOCHS = 3


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PAIRMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_batches, "LEAST", 100)
    return tmp_path / "cache" / "batches"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(5)
    epochs = [[(int(a), int(b)) for a, b in draw.integers(1, 30, (count, 2))] for count in (700, 700, 640)]
    return sampled(tmp_path_factory.mktemp("arrays") / "folder", epochs)


class Counted(RowPlan):
    """A plan that counts what is looked for; its folder has the fingerprint of a sample."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(folder, **options)
        self.folders[0].sample = "f" * 64
        self.walks = 0

    def batches_ahead(self, source: int, epoch: int, start: int, world: World) -> Any:
        ends = super().batches_ahead(source, epoch, start, world)
        self.walks += epoch < EPOCHS
        return ends


def drawn(plan: RowPlan, position: Position) -> list[tuple[int, int, int, Position]]:
    """Every batch by itself: epoch, first row, inputs, and the position after it, without that of an epoch's end."""
    result = []
    while (item := plan.draw(position, WORLD)) is not None:
        if isinstance(item, Draw):
            result.append((item.epoch, item.start_row, item.tokens, position))
        position = item.after
    return result


def walked(plan: RowPlan, position: Position) -> list[tuple[int, int, int, Position]]:
    result = []
    for segment in segments(plan, WORLD, position):
        assert len(segment.starts) == len(segment.inputs) > 0
        before = np.concatenate([[0], np.cumsum(segment.inputs)]) + segment.before.tokens
        for number, (start, inputs) in enumerate(zip(segment.starts.tolist(), segment.inputs.tolist(), strict=True)):
            at = segment.position(number)
            result.append((segment.epoch, start, inputs, Position(at.cursors, at.batches, int(before[number]))))
    return result


@pytest.mark.parametrize("packing", ["ranks", "whole"])
@pytest.mark.parametrize("tail", ["drop", "keep", "carry"])
def test_what_is_kept_is_what_the_planner_finds(folder: Path, cache: Path, packing: Any, tail: Any) -> None:
    def plan() -> Counted:
        return Counted(folder, packing=packing, tail=tail, phases=[Phase("data"), Phase("data", step=31)])

    first, second = plan(), plan()
    expected = drawn(first, first.begin())
    assert len(expected) > 150
    assert walked(first, first.begin()) == expected
    assert first.walks >= EPOCHS
    assert len([*cache.iterdir()]) == EPOCHS
    assert walked(second, second.begin()) == expected
    for batch in (1, 30, 77, len(expected) - 1):
        assert walked(second, expected[batch][3]) == expected[batch:]
    assert second.walks == 0


def test_a_segment_says_what_comes_after_it(folder: Path, cache: Path) -> None:
    del cache
    plan = Counted(folder)
    every = list(segments(plan, WORLD))
    assert [item.epoch for item in every if item.last] == [0, 1, 2]
    assert [item.after for item in every[:-1]] == [item.before for item in every[1:]]
    assert every[-1].after.cursors == ((3, 0),)


def test_a_walk_that_began_within_an_epoch_keeps_the_epochs_after_it(folder: Path, cache: Path) -> None:
    plan = Counted(folder)
    walked(plan, drawn(plan, plan.begin())[20][3])
    assert len([*cache.iterdir()]) == EPOCHS - 1


def test_what_is_damaged_or_of_another_shape_is_looked_for_again(folder: Path, cache: Path) -> None:
    expected = walked(Counted(folder), Counted(folder).begin())
    for file in cache.iterdir():
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    for options in ({}, {"balance": "quadratic"}, {"one_token_rows": "skip"}):
        plan = Counted(folder, **options)
        every = walked(plan, plan.begin())
        assert plan.walks
        assert every == drawn(plan, plan.begin())
        assert (every == expected) == (not options.get("one_token_rows"))
    again = Counted(folder)
    assert (walked(again, again.begin()), again.walks) == (expected, 0)


def test_nothing_is_kept_of_few_rows_or_of_a_folder_without_a_sample(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = RowPlan(folder)
    walked(plan, plan.begin())
    monkeypatch.setattr(kept_batches, "LEAST", 1000)
    walked(Counted(folder), plan.begin())
    assert not cache.exists()
