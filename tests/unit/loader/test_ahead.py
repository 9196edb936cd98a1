"""Batches that are drawn and filled together are those that are drawn and filled alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.loader import Batch, Phase, RowPlan
from pairmill.loader.plan import Draw, EpochEnd, Position, World
from tests.support.data import samples

FACTS = ("step", "phase", "source", "epoch", "start_row", "lr_scale", "global_rows", "global_tokens")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two folders of three epochs; every ninth row has a response of one token, and some rows are long."""
    random = np.random.default_rng(5)
    made = {}
    for number, name in enumerate("ab"):
        lengths = np.maximum(random.lognormal(1.8, 0.8, (3, 400, 2)).astype(int), 1)
        lengths[:, :, 1] += 1
        lengths[:, ::9, 1] = 1
        path = tmp_path_factory.mktemp("ahead") / name
        made[name] = samples.sampled(path, lengths.tolist(), seed=number, dtype=np.uint32)
    return made


def taken(plan: RowPlan, world: World, rank: int, count: int) -> Iterator[tuple[Position, Batch | None]]:
    """What comes after each draw, and its batch; `count` at once, 0 = one after another without any that are ahead."""
    position = plan.begin()
    while True:
        if count:
            draws = list(plan.draw_ahead(position, world, rank, count))
            assert len(draws) <= count
        else:
            draws = [plan.draw(position, world)]
        real = [drawn for drawn in draws if isinstance(drawn, Draw)]
        memories = [np.full(plan.size(world), 255, np.uint8) for _ in real]
        if count and real:
            batches = iter(plan.fill_ahead(real, rank, world, memories))
        else:
            batches = iter([plan.fill(drawn, rank, world, *memories) for drawn in real])
        for drawn in draws:
            if drawn is None:
                return
            yield drawn.after, None if isinstance(drawn, EpochEnd) else next(batches)
            position = drawn.after


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tail": "keep", "balance": "quadratic", "doc_ids": True, "target_only": False},
        {"tail": "carry", "balance": "quadratic_work"},
        {"tail": "carry", "long_rows": "skip", "one_token_rows": "skip"},
        {"packing": "whole", "tail": "keep"},
        {"phases": [Phase("a"), Phase("b", step=7), Phase("a", tokens=9_000, lr_scale=0.5), Phase("b", epoch=1)]},
    ],
)
@pytest.mark.parametrize("ranks", [1, 3])
def test_together_as_alone(folders: dict[str, Path], options: dict[str, Any], ranks: int) -> None:
    plan = RowPlan(folders if "phases" in options else folders["a"], **options)
    world = World(ranks, 600 if options.get("long_rows") != "skip" else 90)
    plan.check(world)
    rank = ranks - 1
    alone = list(taken(plan, world, rank, 0))
    for count in (1, 4):
        together = list(taken(plan, world, rank, count))
        assert [after for after, _ in together] == [after for after, _ in alone]
        for (_, one), (_, other) in zip(together, alone, strict=True):
            if one is None or other is None:
                assert one is other
                continue
            assert all(np.array_equal(one[name], other[name]) for name in other)
            assert (one.scalars, one.rows.tolist()) == (other.scalars, other.rows.tolist())
            assert [getattr(one, name) for name in FACTS] == [getattr(other, name) for name in FACTS]


def test_most_batches_are_drawn_together(folders: dict[str, Path]) -> None:
    plan, world = RowPlan(folders["a"]), World(3, 600)
    first = plan.draw(plan.begin(), world)
    assert isinstance(first, Draw)
    assert len(plan.draw_ahead(first.after, world, 0, 4)) == 4
