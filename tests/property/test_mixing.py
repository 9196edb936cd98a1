"""Any mixture over any tasks: epochs have the rows of the plan, no row repeats before its pass is complete, and what
is said of shares and caps follows from the rows that were drawn.
"""

import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill.engine import manifest as manifests
from pairmill.mixture.plan import Mixture, PlannedPhase, PlannedSource, PlannedTask
from pairmill.mixture.realised import Realised
from tests.support.data.tokens_and_mixtures import Bench

LENGTHS = st.lists(st.integers(0, 30), min_size=0, max_size=25)
CONTEXT = 20
"""Instructions are two tokens, so that longer responses are cut to 18."""


class Task(NamedTuple):
    lengths: list[int]
    codes: list[int] | None


@st.composite
def tasks(draw: st.DrawFn) -> list[Task]:
    found = []
    for _ in range(draw(st.integers(1, 5))):
        lengths = draw(LENGTHS)
        bucketed = draw(st.booleans())
        codes = st.lists(st.sampled_from([0, 1, 2, 65535]), min_size=len(lengths), max_size=len(lengths))
        found.append(Task(lengths, draw(codes) if bucketed else None))
    return found


@st.composite
def plans(draw: st.DrawFn, bench: Bench) -> Mixture:
    """A plan with any rows in any epoch, within what an epoch can hold; shares are of the tokens that rows have."""
    counted = sorted(bench.counted().values(), key=lambda task: (task.task, task.bucket or 0))
    names = {task.key: draw(st.sampled_from(["x", "y", "z"])) for task in counted if task.bucket is None}
    names |= {task.key: f"bucket {task.bucket}" for task in counted if task.bucket is not None}
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    phases, sources, first = [], [], 0
    for number, count in enumerate(counts):
        phase = PlannedPhase(f"phase {number}", (first, first + count), 1 / len(counts))
        phases.append(phase)
        of: dict[str, list[PlannedTask]] = {name: [] for name in sorted({*names.values()})}
        for task in counted:
            rows = st.integers(0, task.rows)
            wanted = draw(st.one_of(rows, st.lists(rows, min_size=count, max_size=count).map(tuple)))
            of[names[task.key]].append(PlannedTask(**{**vars(task), "rows_per_epoch": wanted}))
        tokens = {name: _expected(some, count) for name, some in of.items()}
        whole = math.fsum(tokens.values())
        for name, some in of.items():
            share = tokens[name] / whole if whole else 0.0
            cap = draw(st.one_of(st.none(), st.floats(0.1, 9)))
            sources.append(PlannedSource(name, phase.name, "weights", cap, tokens[name], share, 1.0, tuple(some)))
        first += count
    plan = bench.plan_of(phases, sources, ["bucket 0", "bucket 1", "bucket 2"])
    bench.write(plan)
    return plan


def _expected(some: list[PlannedTask], epochs: int) -> float:
    """Tokens of the rows that epochs have, on average."""
    rows = [sum(task.wanted(epoch) for epoch in range(epochs)) for task in some]
    return math.fsum(
        count * task.response_tokens / task.rows for count, task in zip(rows, some, strict=True) if task.rows
    )


@settings(max_examples=25, deadline=None)
@given(tasks(), st.data())
def test_what_is_drawn_is_what_is_planned(some: list[Task], data: Any) -> None:
    with tempfile.TemporaryDirectory() as top:
        bench = Bench(Path(top) / "bench", context=CONTEXT)
        for number, one in enumerate(some):
            bench.put(f"task{number}", one.lengths, one.codes)
        if not any(task.rows for task in bench.counted().values()):
            return
        plan = data.draw(plans(bench))
        wants = plan.wants()
        if not any(map(sum, wants.values())):
            return
        outcome = bench.run()
        drawn = [bench.epoch(epoch) for epoch in range(plan.epochs)]
        tokens: dict[tuple[str, int], int] = Counter()
        over = Counter[str]()
        for number, (name, one) in enumerate(zip(bench.lengths, some, strict=True)):
            kept = [row for row, length in enumerate(one.lengths) if length >= 2]
            for key in [key for key in plan.tasks if key[0] == name]:
                members = [row for row in kept if one.codes is None or one.codes[row] == key[1]]
                seen: Counter[int] = Counter()
                for epoch, found in enumerate(drawn):
                    here = [int(row) for row in found.row[found.task == number] if row in set(members)]
                    assert len(here) == wants[key][epoch]
                    seen.update(here)
                    # Row by row a pass is complete before the next begins.
                    counts = [seen[row] for row in members]
                    assert not counts or max(counts) - min(counts) <= 1
                    tokens[plan.source_of[key], epoch] += sum(min(one.lengths[row], CONTEXT - 2) for row in here)
                ends, before = 0, 0
                exceeds = False
                for phase in plan.phases:
                    ends = sum(wants[key][: phase.epochs[1]])
                    cap = next(source.cap for source in plan.by_phase[phase.name] if source.name == plan.source_of[key])
                    if cap is not None and ends > before and ends > cap * len(members) + phase.epochs[1]:
                        exceeds = True
                    before = ends
                over[plan.source_of[key]] += exceeds
        manifest = manifests.read(str(bench.target))
        assert manifest is not None
        said = Realised.load(manifest.data["mixture"])
        for epoch, shares in said.epochs():
            total = sum(share.tokens for share in shares)
            for share in shares:
                assert share.tokens == tokens[share.source, epoch]
                assert share.realised == (share.tokens / total if total else 0)
        assert {share.source: share.tokens for share in said.whole} == {
            name: sum(tokens[name, epoch] for epoch in range(plan.epochs)) for name in plan.names
        }
        assert {one.source: one.over for one in said.passes} == {name: over[name] for name in plan.names}
        assert outcome.metrics["mixture_over_cap"] == sum(over.values())
        # Without chance, a difference comes from nothing: all rows of a task have one length, or whole passes.
        for share in said.whole:
            if share.error == 0 and all(one.error == 0 for one in said.whole):
                assert abs(share.difference) < 1e-9


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**31), st.integers(3, 8))
def test_standard_errors_are_those_of_many_draws(seed: int, tasks_there: int) -> None:
    """Differences in standard errors: their mean square over sources and seeds is about 1."""
    with tempfile.TemporaryDirectory() as top:
        bench = Bench(Path(top) / "bench")
        rng = np.random.default_rng(seed)
        for number in range(tasks_there):
            bench.put(f"task{number}", rng.integers(2, 100, int(rng.integers(150, 400))))
        squares = []
        for run in range(8):
            bench.plan(epochs=3, seed=seed + run, budget=0.5 * sum(map(sum, bench.lengths.values())))
            bench.run()
            manifest = manifests.read(str(bench.target))
            assert manifest is not None
            whole = Realised.load(manifest.data["mixture"]).whole
            squares += [(share.difference / share.error) ** 2 for share in whole if share.error]
        assert len(squares) == 8 * tasks_there
        # Rounding to rows adds to it: a row of about 200 is some percent of a standard error.
        # Chance alone passes either bound once in 30,000 times.
        assert 0.15 < float(np.mean(squares)) < 3
