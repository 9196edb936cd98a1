"""extend= of plans whose epochs cannot be drawn once more: of mixtures, of parts, and where other rows are chosen."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.errors import InputError, UsageError
from pairmill.formats.removed_rows import RemovedRows
from pairmill.formats.sample_plan import ancestors
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.formats.tokens import Dataset
from pairmill.loader import Loader, RowPlan
from pairmill.mixture.plan import BUCKETS, NAME, Inputs, Mixture, PlannedPhase, PlannedSource, PlannedTask
from pairmill.mixture.realised import Realised
from pairmill.stages.sample import draft
from pairmill.stages.sample.exposure.command import exposure
from pairmill.stages.sample.exposure.config import ExposureConfig
from tests.support.helpers import contents
from tests.support.processes.crash_points import crashes
from tests.unit.stages.sample.test_extend import Training, _digest, digests

RULES_OF_ALL = """
- {{match: set2*, long_context: drop, {0}}}
- {{match: "*", {0}}}
"""
Wants = Mapping[str, Sequence[int] | Mapping[str, Sequence[int]]]
"""Rows of each epoch, by task; or by bucket of a task."""


class Mixing(Training):
    """A project with mixtures."""

    def mixture(self, name: str, wants: Wants, codes: Mapping[str, Sequence[int]] | None = None) -> str:
        """Write a mixture in which each task, or each bucket, is a source; ``codes`` are the buckets of rows."""
        folder, codes = self.folder / name, codes or {}
        (folder / BUCKETS).mkdir(parents=True)
        cells, buckets = [], list[str]()
        for task in sorted(path.name for path in self.tokenized.iterdir() if path.is_dir()):
            lengths = np.load(self.tokenized / task / "resp_len.npy").astype(np.int64)
            rows = wants.get(task, [0])
            parts = rows if isinstance(rows, Mapping) else {task: rows}
            for code, (bucket, each) in enumerate(parts.items()):
                mine = lengths
                if task in codes:
                    buckets = buckets if len(buckets) > len(parts) else [*parts]
                    np.save(folder / BUCKETS / f"{task}.npy", np.array(codes[task], np.uint16))
                    mine = lengths[np.array(codes[task]) == code]
                counts = len(mine), int(mine.sum()), int((mine**2).sum())
                cells.append((bucket, PlannedTask(task, *counts, tuple(each), code if task in codes else None)))
        count = max(len(task.rows_per_epoch) for _, task in cells if isinstance(task.rows_per_epoch, tuple))
        cells = [
            (bucket, PlannedTask(**{**vars(task), "rows_per_epoch": (*task.rows_per_epoch, *[0] * count)[:count]}))
            for bucket, task in cells
        ]
        tokens = [sum(task.rows_per_epoch) * task.response_tokens / task.rows for _, task in cells]
        sources = [
            PlannedSource(bucket, "all", "weights", None, each, each / sum(tokens), 1.0, (task,))
            for (bucket, task), each in zip(cells, tokens, strict=True)
        ]
        made = Mixture(
            seed=0,
            epochs=count,
            context=4097,
            min_resp_length=2,
            budget=sum(tokens),
            unfilled=0.0,
            phases=(PlannedPhase("all", (0, count), 1.0),),
            sources=tuple(sources),
            inputs=Inputs(open_tokenized(str(self.tokenized), "tokenized_path", tolerate_strays=True).fingerprint),
            buckets=tuple(buckets),
        )
        (folder / NAME).write_bytes(made.dump())
        return str(folder)


@pytest.fixture
def world(tmp_path: Path) -> Mixing:
    return Mixing(tmp_path)


def require_fair(world: Mixing, plan: str, first: int) -> None:
    """Assert that no row comes again from an epoch on before all rows of its task came as often."""
    rows = world.rows(plan)
    for task in {row[0] for epoch in rows for row in epoch}:
        starts = np.load(world.tokenized / task / "resp_start.npy").tolist()
        counts = [Counter(row[3] for row in epoch if row[0] == task) for epoch in rows]
        seen = [*accumulate(counts, lambda before, now: before + now)]
        for number in range(first, len(rows)):
            least = min(seen[number][start] for start in starts)
            assert all(seen[number][start] - 1 <= least for start in counts[number]), (task, number)


def require_counts(world: Mixing, plan: str) -> None:
    """Assert that a manifest counts what the plan has."""
    rows, manifest = [row for epoch in world.rows(plan) for row in epoch], world.manifest(plan)
    for task, stats in manifest.data["stats"].items():
        mine = [row for row in rows if row[0] == task]
        once = set(mine)
        assert stats["cov_rows"] == len(mine) == manifest.shards[task].rows_out
        assert stats["cov_itoks"] + stats["cov_rtoks"] == sum(row[2] + row[4] for row in mine)
        assert stats["unique_rows"] == len(once) == manifest.shards[task].rows_kept
        assert stats["unique_toks"] == sum(row[2] + row[4] for row in once)
    table = json.loads(exposure(ExposureConfig(plan=str(world.home(plan)), format="json")))
    after = manifest.data.get("after", {})
    before = world.rows(after["plan"])[: after["epochs"]] if after else []
    assert sum(line["passes"] for line in table) == len(rows) + sum(map(len, before))


def require_kept(world: Mixing, parent: str, child: str, first: int) -> None:
    """Assert that the first epochs are the parent's: their rows, their files, and all batches that a training reads."""
    assert world.rows(child)[:first] == world.rows(parent)[:first]
    for plan in (parent, child):
        world.carry_out(plan, keep=9)
    assert [*ancestors(world.manifest(child))][-1].plan == parent
    for options in ({"batch_tokens": 128}, {"batch_tokens": 99, "rank": 1, "ranks": 3}):
        ours, theirs = ([*digests(world.node / plan, **options)] for plan in (child, parent))
        assert ours[: len(theirs) - 1] == theirs[:-1]
        assert len(ours) > len(theirs) > 1
    require_counts(world, child)


@pytest.mark.parametrize("layout", ["compact", "data_io", "reference"])
def test_a_mixture_goes_on_as_another_mixture_and_as_rules(world: Mixing, layout: str) -> None:
    given: dict[str, Any] = {"layout": layout}
    two = world.plan(mixture=world.mixture("a", {"set0__x": [70, 30], "set1__x": [7, 7], "set2__x": [20, 20]}), **given)
    world.put("new__a")
    wants = {"set0__x": [60] * 5, "set1__x": [40] * 5, "new__a": [5] * 5}
    five = world.extend(two, 9, mixture=world.mixture("b", wants), **given)
    require_kept(world, two, five, 2)
    require_fair(world, five, 2)
    assert [Counter(row[0] for row in epoch)["set0__x"] for epoch in world.rows(five)] == [70, 30, 60, 60, 60]
    assert [Counter(row[0] for row in epoch)["new__a"] for epoch in world.rows(five)] == [0, 0, 5, 5, 5]
    realised = Realised.load(world.manifest(five).data["mixture"])
    assert not realised.outside
    assert realised.phases == [("all", 0, 5)]
    rows = [row for epoch in world.rows(five)[2:] for row in epoch]
    assert {item.source: (item.rows, item.tokens) for item in realised.whole} == {
        name: (sum(row[0] == name for row in rows), sum(row[4] for row in rows if row[0] == name))
        for name in ("set0__x", "set1__x", "set2__x", "new__a")
    }
    seven = world.extend(five, 7, **given)
    require_kept(world, five, seven, 5)
    require_fair(world, seven, 5)
    assert [Counter(row[0] for row in epoch)["set1__x"] for epoch in world.rows(seven)][5:] == [7, 7]
    rules = world.plan(epochs=2, **given)
    mixed = world.extend(rules, 9, mixture=world.mixture("c", {**wants, "new__a": [0, 0, 20]}), **given)
    require_kept(world, rules, mixed, 2)
    require_fair(world, mixed, 2)


def test_buckets_may_be_others(world: Mixing) -> None:
    codes = np.arange(50) % 2
    wants: Wants = {"set0__x": {"low": [20, 10], "high": [5, 5]}, "set1__x": [7, 7], "set2__x": [5, 5]}
    two = world.plan(mixture=world.mixture("a", wants, {"set0__x": codes.tolist()}))
    other = np.arange(50) // 25
    wants = {"set0__x": {"old": [10] * 4, "new": [20] * 4}, "set2__x": {"old": [3] * 4}}
    four = world.extend(two, 9, mixture=world.mixture("b", wants, {"set0__x": other.tolist(), "set2__x": [0] * 50}))
    require_kept(world, two, four, 2)
    rows = world.rows(four)
    starts = np.load(world.tokenized / "set0__x" / "resp_start.npy").tolist()
    for code, count in ((0, 10), (1, 20)):
        mine = {start for start, each in zip(starts, other.tolist(), strict=True) if each == code}
        seen = [Counter(row[3] for row in epoch if row[0] == "set0__x" and row[3] in mine) for epoch in rows]
        assert [epoch.total() for epoch in seen][2:] == [count, count]
        least = min((seen[0] + seen[1])[start] for start in mine)
        assert all((seen[0] + seen[1])[start] <= least + 1 for start in seen[2])
    assert not Realised.load(world.manifest(four).data["mixture"]).outside


@pytest.mark.parametrize("layout", ["compact", "reference"])
def test_an_epoch_of_parts_goes_on_under_rules_and_counts_what_was_read_before(world: Mixing, layout: str) -> None:
    given: dict[str, Any] = {"layout": layout}
    first = world.plan(epochs=2, **given)
    world.say("- {prefix: set1, max_per_file: 30, repeat: 3}\n- {prefix: set2, max_per_file: 0, long_context: drop}")
    second = world.plan(epochs=1, seed=4, **given)
    parts = f"{world.home(first)}:1,{world.home(second)}:0"
    composed = world.plan(compose=parts.split(","), after=f"{world.home(first)}:1", seed=3, **given)
    world.say(RULES_OF_ALL.format("max_per_file: 20, passes_total: 6"))
    child = world.extend(composed, 4, seed=3, **given)
    require_kept(world, composed, child, 1)
    before = world.rows(first)[0]
    rows = world.rows(child)
    for task in ("set0__x", "set1__x", "set2__x"):
        seen = Counter(row[3] for row in [*before, *rows[0]] if row[0] == task)
        for epoch in rows[1:]:
            mine = Counter(row[3] for row in epoch if row[0] == task)
            seen += mine
            starts = np.load(world.tokenized / task / "resp_start.npy").tolist()
            assert all(seen[start] - 1 <= min(seen[start] for start in starts) for start in mine)
            assert mine.total() == 20 or max(seen.values()) == 6
    assert world.manifest(child).data["after"]["epochs"] == 1
    grandchild = world.extend(child, 6, seed=3, **given)
    require_kept(world, child, grandchild, 4)


def test_a_training_goes_on_in_the_middle_of_an_epoch_of_parts(world: Mixing) -> None:
    first = world.plan(epochs=1)
    composed = world.plan(compose=[f"{world.home(first)}:0"], seed=3)
    world.carry_out(composed)
    loader = Loader(RowPlan(world.node / composed), batch_tokens=128, threads=0)
    batches = iter(loader)
    next(batches)
    child = world.extend(composed, 3, seed=3)
    world.carry_out(child, keep=9)
    other = Loader(RowPlan(world.node / child), batch_tokens=128, threads=0)
    other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    rest = [*map(_digest, batches)]
    assert len(rest) > 2
    assert [*map(_digest, other)][: len(rest) - 1] == rest[:-1]


def test_rules_may_choose_other_single_rows_from_an_epoch_on(world: Mixing) -> None:
    np.save(world.folder / "chosen.npy", np.arange(0, 50, 3))
    chosen = f"- {{prefix: set1, select_rows: {world.folder}/chosen.npy, max_per_file: 5}}\n"
    chosen += "- {prefix: set2, long_context: drop}\n"
    plain = world.plan(epochs=2)
    world.say(chosen)
    child = world.extend(plain, 4)
    require_kept(world, plain, child, 2)
    np.save(world.folder / "chosen.npy", np.arange(0, 50, 2))
    other = world.extend(child, 6)
    require_kept(world, child, other, 4)
    starts = np.load(world.tokenized / "set1__x" / "resp_start.npy")
    rows = [{row[3] for row in epoch if row[0] == "set1__x"} for epoch in world.rows(other)]
    assert rows[2] <= {*starts[::3].tolist()}
    assert rows[4] <= {*starts[::2].tolist()}
    assert len(rows[4] | rows[5]) == 10
    world.say("- {prefix: set2, long_context: drop}")
    last = world.extend(other, 7)
    require_fair(world, last, 6)


def test_removed_rows_are_in_no_epoch_that_follows_a_mixture(world: Mixing, monkeypatch: pytest.MonkeyPatch) -> None:
    two = world.plan(mixture=world.mixture("a", {"set0__x": [40, 40], "set1__x": [7, 7], "set2__x": [20, 20]}))
    gone = {"set0__x": [1, 2, 30], "set2__x": [*range(25)]}

    def removed(tasks: Iterable[Dataset]) -> dict[str, RemovedRows]:
        return {task.name: RemovedRows(task, gone[task.name]) for task in tasks if task.name in gone}

    monkeypatch.setattr(draft, "removed_rows", removed)
    starts = {name: np.load(world.tokenized / name / "resp_start.npy").tolist() for name in gone}
    last = {(name, starts[name][number]) for name, numbers in gone.items() for number in numbers}
    five = world.extend(two, 5)
    rows = world.rows(five)
    assert rows[:2] == world.rows(two)
    assert last.intersection((row[0], row[3]) for epoch in rows[:2] for row in epoch)
    assert not last.intersection((row[0], row[3]) for epoch in rows[2:] for row in epoch)
    assert {row[0] for row in rows[4]} == {"set0__x", "set1__x", "set2__x"}


def test_a_run_that_is_killed_leaves_the_mixtures_plan_and_ends_with_the_same(world: Mixing) -> None:
    two = world.plan(mixture=world.mixture("a", {"set0__x": [40, 40], "set1__x": [7, 7]}))
    whole = world.rows(world.extend(two, 4))

    def others() -> list[Path]:
        return [path for path in (world.root / "sample").iterdir() if path.name != two and path.is_dir()]

    for path in others():
        shutil.rmtree(path)
    parent = contents(world.home(two))
    count = 0
    for _ in crashes(lambda: world.extend(two, 4), world.root, stride=13):
        count += 1
        assert contents(world.home(two)) == parent
        for path in others():
            shutil.rmtree(path)
    assert count > 3
    assert world.rows(world.extend(two, 4)) == whole


def test_what_cannot_be_counted_is_refused(world: Mixing) -> None:
    world.say("- {prefix: set1, repeat: 128}\n- {match: '*', max_per_file: 9}")
    two = world.plan(epochs=2)
    wants = {"set0__x": [20, 20], "set1__x": [7, 7]}
    with pytest.raises(InputError, match=r"set1__x.*255 times or more in 2 epochs.*after=.*:2 instead of extend="):
        world.extend(two, 9, mixture=world.mixture("a", {"set0__x": [9, 9, 9]}))
    with pytest.raises(UsageError, match=r"no epoch is drawn.*got 2; expected more than 2.*mix with epochs=3"):
        world.extend(two, 9, mixture=world.mixture("b", wants))
    other = world.mixture("c", {"set2__x": [1, 1, 1]})
    (Path(other) / NAME).write_text((Path(other) / NAME).read_text().replace('"seed":0', '"seed":5'))
    with pytest.raises(UsageError, match="seed"):
        world.extend(two, 9, mixture=other)
