"""Random runs of the loader: each row is handed out once, and batches are what they would have been anyway."""

import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.errors import InputError
from pairmill.loader import Batch, Loader, Phase, RowPlan
from pairmill.loader.batch import PREFIXLM
from tests.support import multipack, samples

SEQUENCES = int(os.environ.get("PAIRMILL_LOADER_SEQUENCES", "200"))

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


def phases_of(draw: random.Random, names: list[str]) -> list[Phase] | None:
    if len(names) == 1:
        return None
    step, phases = 0, []
    for number in range(draw.randint(2, 6)):
        phases.append(Phase(names[number % len(names)], step=step, lr_scale=draw.choice((1.0, 0.5))))
        step += draw.randint(1, 3)
    return phases


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

    def loaders(self, draw: random.Random, ranks: int, slots: int) -> list[Loader]:
        made = []
        for rank in range(ranks):
            loader = Loader(
                self.plan,
                batch_tokens=ranks * slots,
                rank=rank,
                ranks=ranks,
                threads=draw.choice((0, 0, 1, 3)),
                prefetch=draw.choice((1, 2, 8)),
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
        return batches

    def save(self, loaders: list[Loader]) -> None:
        self.state = json.dumps(loaders[0].state_dict())
        self.kept += self.since
        self.left |= self.left_since
        self.kill()

    def kill(self) -> None:
        # What an epoch left is undone too: another world, which reads its end again, may leave nothing.
        self.since, self.left_since = [], {}


def go(run: Run, draw: random.Random, worlds: list[tuple[int, int]], look: Any) -> None:
    """To the end of the plan, in stretches: each on another world, some of them killed."""
    while True:
        ranks, slots = draw.choice(worlds)
        loaders = run.loaders(draw, ranks, slots)
        streams = [iter(loader) for loader in loaders]
        try:
            for _ in range(draw.randint(1, 12)):
                batches = run.step(streams, loaders)
                if batches is None:
                    run.save(loaders)
                    return
                look(batches, ranks, slots)
                if draw.random() < 0.3:
                    run.save(loaders)
        finally:
            for loader in loaders:
                loader.close()
        if draw.random() < 0.5:
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
    for number in range(SEQUENCES):
        draw = random.Random(f"sequence {number}")
        one = draw.choice(data)
        tail = draw.choice(("drop", "keep", "carry"))
        skip_long = draw.random() < 0.2
        skip_one = one.one_token and draw.random() < 0.5
        plan = RowPlan(
            one.paths,
            phases=phases_of(draw, list(one.paths)),
            tail=tail,
            balance=draw.choice(("lpt", "lpt", "quadratic", "quadratic_work")),
            long_rows="skip" if skip_long else "refuse",
            one_token_rows="skip" if skip_one else "keep",
            doc_ids=draw.random() < 0.3,
        )
        run = Run(plan)
        # Slots are fixed where they decide which rows are skipped.
        slots = (
            [max(3, one.longest // 2)] if skip_long else [one.longest + draw.randint(0, one.longest) for _ in range(3)]
        )
        # An epoch must give batches that are not its last.
        worlds = [
            (ranks, each)
            for ranks in (1, 2, 3, 5)
            for each in slots
            if each > 1 and 2 * ranks * each < one.shortest_epoch
        ] or [(1, min(slots))]
        if draw.random() < 0.4:
            worlds = [draw.choice(worlds)]
        plain = tail != "carry" and not (skip_long or skip_one or one.one_token)

        def look(batches: list[Batch], ranks: int, slots: int) -> None:
            assert all(batch.scalars["max_seqlen_causal"] > 0 for batch in batches)
            if plain and draw.random() < 0.2:  # noqa: B023
                oracle(one, run, batches, ranks, slots)  # noqa: B023
                seen["oracle"] += 1

        try:
            go(run, draw, worlds, look)
        except InputError as error:
            # Rare, and what the loader is to say then: too few rows with a response of two tokens, or a phase too long,
            # or an epoch that is one batch.
            said = str(error)
            assert any(
                part in said
                for part in ("cannot give each rank", "next phase has not begun", "the whole epoch is one batch")
            ), said
            seen[said.partition(": ")[2][:20]] += 1
            continue
        finish(one, run, number, slots[0] if skip_long else None, skip_one)
        seen["finished"] += 1
        seen["batches"] += run.batches
        if len(worlds) == 1:
            uninterrupted(run, *worlds[0])
            seen["compared with an uninterrupted run"] += 1
    print(dict(seen))
    assert seen["finished"] > SEQUENCES * 0.7
    assert seen["oracle"] >= SEQUENCES // 10
    assert seen["compared with an uninterrupted run"] >= SEQUENCES // 10


def finish(data: Data, run: Run, number: int, slots: int | None, skip_one: bool) -> None:
    """Each row once, save those that were skipped, were left, or come after the end."""
    handed_out = Counter(row for rows in run.kept for row in rows)
    assert set(handed_out.values()) <= {1}, f"sequence {number}: a row twice"
    position = run.plan.position(json.loads(run.state))
    for source, name in enumerate(data.paths):
        end = position.cursors[source]
        for epoch in range(len([key for key in data.lengths if key[0] == source])):
            lengths = data.lengths[source, epoch]
            _, (_, _, _, resp_len) = samples.arrays(data.paths[name], epoch)
            skipped = np.zeros(len(lengths), bool)
            if slots is not None:
                skipped |= lengths > slots
            if skip_one:
                skipped |= resp_len == 1
            due = {row for row in range(len(lengths)) if (epoch, row) < tuple(end) and not skipped[row]}
            got = {row for s, e, row in handed_out if (s, e) == (source, epoch)}
            missing = due - got
            assert not got - due, f"sequence {number}"
            left = run.left.get((name, epoch), 0)
            if run.plan.tail == "carry" and epoch + 1 < len([key for key in data.lengths if key[0] == source]):
                # What is left of all is said of the epoch where it begins.
                assert len(missing) <= sum(run.left.values()), f"sequence {number}"
            else:
                assert len(missing) == left or run.plan.tail == "carry", f"sequence {number}: {len(missing)} of {left}"
            if missing and run.plan.tail != "carry":
                assert missing == set(sorted(due)[-len(missing) :]), f"sequence {number}: rows of the middle"


def uninterrupted(run: Run, ranks: int, slots: int) -> None:
    """The same bytes as a run that nothing disturbed."""
    for rank in range(ranks):
        with Loader(run.plan, batch_tokens=ranks * slots, rank=rank, ranks=ranks, threads=0) as loader:
            made = {batch.step: b"".join(array.tobytes() for array in batch.values()) for batch in loader}
        assert made == {step: batches[rank] for step, batches in run.bytes.items()}
