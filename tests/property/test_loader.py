"""Random runs of the loader: each row is handed out once, and batches are what they would have been anyway."""

import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Phases
from hypothesis import strategies as st

from pairmill.errors import InputError
from pairmill.loader import Batch, Loader, Phase, RowPlan
from pairmill.loader.batch import PREFIXLM
from tests.support.data import samples
from tests.support.definitions import multipack

GATE = settings(
    derandomize=True,
    database=None,
    deadline=None,
    report_multiple_bugs=False,
    phases=(Phases.generate, Phases.shrink),
    suppress_health_check=list(HealthCheck),
)
SEQUENCES = int(os.environ.get("PAIRMILL_LOADER_SEQUENCES", "30"))

Row = tuple[int, int, int]


@dataclass
class Data:
    """Folders, and what they hold."""

    paths: dict[str, Path]
    longest: int
    shortest_epoch: int
    """Inputs of the epoch with the fewest."""
    lengths: dict[tuple[int, int], np.ndarray]
    one_token: bool


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> list[Data]:
    made = []
    for number in range(30):
        draw = random.Random(f"data {number}")
        one_token = number % 3 == 0
        paths, found = {}, {}
        for source in range(draw.choice((1, 1, 2, 3))):
            epochs = []
            for _ in range(draw.choice((1, 2, 3))):
                most = draw.choice((3, 12, 40))
                least = 1 if one_token and draw.random() < 0.2 else 2
                count = draw.choice((40, 90, 160))
                epochs.append([(draw.randint(1, most), max(least, draw.randint(1, most))) for _ in range(count)])
            name = f"folder{source}"
            folder = tmp_path_factory.mktemp(f"data{number}") / name
            paths[name] = samples.sampled(
                folder,
                epochs,
                dtype=draw.choice((np.uint8, np.uint16, np.int32, np.uint32)),
                index=draw.choice((np.int32, np.int64, np.uint64)),
                seed=number,
                ids=200,
            )
            found |= {(source, epoch): samples.lengths(folder, epoch) for epoch in range(len(epochs))}
        longest = max(int(rows.max()) for rows in found.values())
        shortest = min(int(rows.sum()) for rows in found.values())
        made.append(Data(paths, longest, shortest, found, one_token))
    return made


@dataclass(frozen=True)
class Stretch:
    """Some steps on one world, and whether they end in a crash."""

    world: int
    threads: int
    prefetch: int
    steps: int
    save_every: int
    killed: bool


THREADS = (1, 0, 3, 0)
STRETCHES = 7
WAY = st.lists(
    st.builds(
        Stretch,
        world=st.integers(0, 11),
        threads=st.integers(0, 3),
        prefetch=st.sampled_from((1, 2, 8)),
        steps=st.integers(1, 12),
        save_every=st.integers(2, 7),
        killed=st.booleans(),
    ),
    min_size=1,
    max_size=STRETCHES,
)
OPTIONS = {
    "tail": st.sampled_from(("drop", "keep", "carry")),
    "balance": st.sampled_from(("lpt", "lpt", "quadratic", "quadratic_work")),
    "long_rows": st.sampled_from(("refuse", "refuse", "refuse", "refuse", "skip")),
    "one_token_rows": st.sampled_from(("keep", "skip")),
    "doc_ids": st.booleans(),
}


@dataclass
class Run:
    """A run that is stopped and resumed: what has been handed out for good, and what since the last save."""

    plan: RowPlan
    kept: list[tuple[Row, ...]] = field(default_factory=list)
    since: list[tuple[Row, ...]] = field(default_factory=list)
    bytes: dict[int, list[bytes]] = field(default_factory=dict)
    state: str = ""
    left: dict[tuple[str, int], int] = field(default_factory=dict)
    left_since: dict[tuple[str, int], int] = field(default_factory=dict)
    batches: int = 0

    def loaders(self, stretch: Stretch, ranks: int, slots: int) -> list[Loader]:
        made = []
        for rank in range(ranks):
            loader = Loader(
                self.plan,
                batch_tokens=ranks * slots,
                rank=rank,
                ranks=ranks,
                threads=THREADS[(stretch.threads + rank) % len(THREADS)],
                prefetch=stretch.prefetch,
            )
            if self.state:
                loader.load_state_dict(json.loads(self.state))
            made.append(loader)
        return made

    def step(self, streams: list[Iterator[Batch]], loaders: list[Loader]) -> list[Batch] | None:
        """The next global batch from all ranks."""
        batches = [next(stream, None) for stream in streams]
        states = [loader.state_dict() for loader in loaders]
        assert all(state == states[0] for state in states)
        for loader in loaders:
            self.left_since |= loader.left
        if batches[0] is None:
            assert batches == [None] * len(batches)
            return None
        rows = [tuple(map(tuple, batch.rows.tolist())) for batch in batches]
        self.since.append(tuple(row for one in rows for row in one))
        self.bytes[batches[0].step] = [b"".join(array.tobytes() for array in batch.values()) for batch in batches]
        self.batches += 1
        assert all(batch.scalars["max_seqlen_causal"] > 0 for batch in batches)
        return batches

    def save(self, loaders: list[Loader]) -> None:
        self.state = json.dumps(loaders[0].state_dict())
        self.kept += self.since
        self.left |= self.left_since
        self.kill()

    def kill(self) -> None:
        # What an epoch left is undone too: another world, which reads its end again, may leave nothing.
        self.since, self.left_since = [], {}


def go(run: Run, way: list[Stretch], worlds: list[tuple[int, int]], look: Callable[..., None]) -> None:
    """Run in stretches, each on another world, some of them killed; then to the end of the plan."""
    for stretch in [*islice(cycle(way), STRETCHES), replace(way[-1], steps=sys.maxsize)]:
        ranks, slots = worlds[stretch.world % len(worlds)]
        loaders = run.loaders(stretch, ranks, slots)
        streams = [iter(loader) for loader in loaders]
        try:
            for step in range(1, stretch.steps + 1):
                batches = run.step(streams, loaders)
                if batches is None:
                    run.save(loaders)
                    return
                if step % 6 == 1:
                    look(batches, ranks, slots)
                if step % stretch.save_every == 0:
                    run.save(loaders)
        finally:
            for loader in loaders:
                loader.close()
        if stretch.killed:
            run.kill()
        else:
            run.save(loaders)


def oracle(data: Data, run: Run, batches: list[Batch], ranks: int, slots: int) -> None:
    """A global batch against the method in plain NumPy, where nothing but it decides."""
    first = batches[0]
    source = int(first.rows[0, 0])
    lengths = data.lengths[source, first.epoch]
    count, order, dealt = multipack.allocate(lengths, first.start_row, ranks, slots)
    folder = list(data.paths.values())[source]
    tokens, index = samples.arrays(folder, first.epoch)
    assert first.global_rows == count
    for rank, batch in enumerate(batches):
        assert (batch.rows[:, :2] == (source, first.epoch)).all()
        mine = order[dealt == rank]
        assert sorted(batch.rows[:, 2]) == sorted(mine) or run.plan.balance != "lpt"
        expected = multipack.batch(tokens, index, batch.rows[:, 2], slots)
        for name in PREFIXLM:
            assert np.array_equal(batch[name], expected[name]), name


def test_every_row_once_whatever_happens(data: list[Data]) -> None:
    seen: Counter[str] = Counter()

    @settings(GATE, max_examples=SEQUENCES)
    @given(
        number=st.integers(0, len(data) - 1),
        options=st.fixed_dictionaries(OPTIONS),
        batches=st.lists(st.integers(1, 3), min_size=2, max_size=6),
        room=st.lists(st.integers(0, 100), min_size=3, max_size=3),
        one_world=st.booleans(),
        way=WAY,
    )
    def sequence(
        number: int,
        options: dict[str, Any],
        batches: list[int],
        room: list[int],
        one_world: bool,
        way: list[Stretch],
    ) -> None:
        one = data[number]
        plan = RowPlan(one.paths, phases=phases_of(list(one.paths), batches), **options)
        run = Run(plan)
        # Slots are fixed where they decide which rows are skipped.
        slots = (
            [max(3, one.longest // 2)] if plan.skip_long else [one.longest + one.longest * each // 100 for each in room]
        )
        # An epoch must give batches that are not its last.
        worlds = [
            (ranks, each)
            for ranks in (1, 2, 3, 5)
            for each in slots
            if each > 1 and 2 * ranks * each < one.shortest_epoch
        ] or [(1, min(slots))]
        if one_world:
            worlds = [worlds[way[0].world % len(worlds)]]
        plain = plan.tail != "carry" and not (plan.skip_long or one.one_token)

        def look(batches: list[Batch], ranks: int, slots: int) -> None:
            if plain:
                oracle(one, run, batches, ranks, slots)
                seen["oracle"] += 1

        seen["sequences"] += 1
        try:
            go(run, way, worlds, look)
        except InputError as error:
            # Rare, and what the loader is to say then: too few rows with a response of two tokens, or a phase too long,
            # or an epoch that is one batch.
            said = str(error)
            assert any(
                part in said
                for part in ("cannot give each rank", "next phase has not started", "epoch is at most one batch")
            ), said
            seen[said.partition(": ")[2][:20]] += 1
            return
        finish(one, run, slots[0])
        seen["finished"] += 1
        seen["batches"] += run.batches
        if len(worlds) == 1:
            uninterrupted(run, *worlds[0])
            seen["compared with an uninterrupted run"] += 1

    sequence()
    print(dict(seen))
    assert seen["sequences"] >= SEQUENCES
    assert seen["finished"] > seen["sequences"] * 0.7
    assert seen["oracle"] >= seen["sequences"] // 10
    assert seen["compared with an uninterrupted run"] >= seen["sequences"] // 10


def phases_of(names: list[str], batches: list[int]) -> list[Phase] | None:
    """Phases of these numbers of batches, over the folders in turn."""
    if len(names) == 1:
        return None
    starts = accumulate(batches, initial=0)
    return [
        Phase(names[number % len(names)], step=start, lr_scale=(1.0, 0.5)[number % 2])
        for number, start in enumerate(starts)
    ]


def finish(data: Data, run: Run, slots: int) -> None:
    """Each row once, save those that were skipped, were left, or come after the end."""
    handed_out = Counter(row for rows in run.kept for row in rows)
    assert set(handed_out.values()) <= {1}, "a row twice"
    position = run.plan.position(json.loads(run.state))
    for source, name in enumerate(data.paths):
        end = position.cursors[source]
        for epoch in range(len([key for key in data.lengths if key[0] == source])):
            lengths = data.lengths[source, epoch]
            _, (_, _, _, resp_len) = samples.arrays(data.paths[name], epoch)
            skipped = np.zeros(len(lengths), bool)
            if run.plan.skip_long:
                skipped |= lengths > slots
            if run.plan.skip_one_token:
                skipped |= resp_len == 1
            due = {row for row in range(len(lengths)) if (epoch, row) < tuple(end) and not skipped[row]}
            got = {row for s, e, row in handed_out if (s, e) == (source, epoch)}
            missing = due - got
            assert not got - due
            left = run.left.get((name, epoch), 0)
            if run.plan.tail == "carry" and epoch + 1 < len([key for key in data.lengths if key[0] == source]):
                # Rows left over from several epochs are reported for the epoch where they begin.
                assert len(missing) <= sum(run.left.values())
            else:
                assert len(missing) == left or run.plan.tail == "carry", f"{len(missing)} of {left}"
            if missing and run.plan.tail != "carry":
                assert missing == set(sorted(due)[-len(missing) :]), "rows of the middle"


def uninterrupted(run: Run, ranks: int, slots: int) -> None:
    """The same bytes as a run that nothing disturbed."""
    for rank in range(ranks):
        with Loader(run.plan, batch_tokens=ranks * slots, rank=rank, ranks=ranks, threads=0) as loader:
            made = {batch.step: b"".join(array.tobytes() for array in batch.values()) for batch in loader}
        assert made == {step: batches[rank] for step, batches in run.bytes.items()}
