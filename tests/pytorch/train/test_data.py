"""The trainer's batches: those of the loader, in parts, to the end that is asked for, resumed; of which source."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pairmill.engine import manifest as manifests
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.loader import Loader, RowPlan
from pairmill.loader.batch import IGNORED
from pairmill.nets.batch import GlobalBatch, Microbatch, read_held_out
from pairmill.stages.train.data.feed import Feed
from pairmill.stages.train.data.inputs import Inputs, open_inputs
from pairmill.stages.train.data.steps import total_steps
from pairmill.training.data_settings import DataPhase, DataSettings
from pairmill.training.settings import BatchSettings, TrainingSettings, TrainSettings
from tests.support.data import samples

CPU = torch.device("cpu")


@dataclass
class Asked:
    """The options of the command."""

    root: str = ""
    sampled: list[str] = field(default_factory=list)
    samples_path: str = ""
    windows: list[str] = field(default_factory=list)
    hub: str = ""
    tokenizer: str = ""
    held_out: str = ""


def settings(slots: int = 128, accumulate: int = 1, data: DataSettings | None = None, **more: Any) -> TrainSettings:
    training = {name: more.pop(name) for name in ("epochs", "steps", "tokens") if name in more}
    return TrainSettings(
        batch=BatchSettings(tokens=slots, accumulate=accumulate, **more),
        data=data or DataSettings(),
        training=TrainingSettings(**training),
    )


def feeds(inputs: Inputs, wanted: TrainSettings, ranks: int = 1) -> list[Feed]:
    return [Feed(inputs, wanted, rank, ranks, CPU) for rank in range(ranks)]


def together(feeds: list[Feed]) -> Iterator[list[GlobalBatch]]:
    """The steps of all ranks, as far as all have one; none may have more."""
    yield from (list(steps) for steps in zip(*(feed.batches() for feed in feeds), strict=True))


def rows_of(micro: Microbatch) -> list[tuple[int, ...]]:
    """The tokens of each row, its last label too."""
    packed = micro.packed
    found = []
    for start, end in zip(packed.starts, packed.starts[1:], strict=False):
        found.append((*packed.inputs[start:end].tolist(), int(packed.labels[end - 1])))
    return found


@pytest.fixture(scope="module")
def random(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two epochs of 90 rows, no two alike, of 3 to 16 inputs."""
    draw = np.random.default_rng(1)
    epochs = [draw.integers(2, 9, (90, 2)).tolist() for _ in range(2)]
    return samples.sampled(tmp_path_factory.mktemp("data") / "random", epochs)


def opened(folder: Path, wanted: TrainSettings, **more: Any) -> Inputs:
    return open_inputs(Asked(sampled=[str(folder)], **more), wanted)


class TestRows:
    @pytest.mark.parametrize("ranks", [1, 2])
    @pytest.mark.parametrize("accumulate", [1, 2])
    def test_batches_are_the_loaders(self, random: Path, ranks: int, accumulate: int) -> None:
        wanted = settings(accumulate=accumulate)
        inputs = opened(random, wanted)
        parts = ranks * accumulate
        plan = RowPlan(str(random), packing="whole")
        loaders = [Loader(plan, batch_tokens=128, rank=rank, ranks=parts) for rank in range(parts)]
        expected = list(zip(*loaders, strict=True))
        found = list(together(feeds(inputs, wanted, ranks)))
        assert (
            len(found)
            == len(expected)
            == total_steps(inputs, wanted, ranks)
            == feeds(inputs, wanted, ranks)[0].total_steps()
        )
        for steps, batches in zip(found, expected, strict=True):
            micros = [micro for step in steps for micro in step.micro]
            assert len(micros) == len(batches)
            for micro, batch in zip(micros, batches, strict=True):
                packed, rows = micro.packed, batch.scalars["numseqs"]
                for mine, name in (
                    (packed.inputs, "inputs"),
                    (packed.labels, "labels"),
                    (packed.positions, "position_ids"),
                ):
                    assert mine.dtype == torch.int64
                    assert np.array_equal(mine.numpy(), batch[name])
                assert packed.starts == tuple(batch["cu_seqlens"][: rows + 1].tolist())
                assert packed.prefixes == tuple(batch["prefix_lens"][:rows].tolist())
                assert micro.sources.tolist() == [0] * len(batch["inputs"])
            assert steps[0].tokens == batches[0].global_tokens == sum(micro.packed.tokens for micro in micros)
            assert steps[0].rows == sum(micro.packed.rows for micro in micros)
            assert (steps[0].slots, steps[0].lr_scale) == (128, 1.0)

    @pytest.mark.parametrize("length", [{"epochs": 1}, {"steps": 7}, {"tokens": 500}, {}])
    @pytest.mark.parametrize("tail", ["drop", "keep", "carry"])
    def test_a_run_ends_where_it_was_planned_to(self, random: Path, length: dict[str, Any], tail: str) -> None:
        wanted = settings(tail=tail, **length)
        inputs = opened(random, wanted)
        (feed,) = feeds(inputs, wanted)
        assert len(list(feed.batches())) == feed.total_steps()
        assert list(feed.batches()) == []

    @pytest.mark.parametrize("accumulate", [1, 2])
    def test_resumed_at_every_step_they_are_the_same(self, random: Path, accumulate: int) -> None:
        wanted = settings(accumulate=accumulate, epochs=2)
        inputs = opened(random, wanted)
        (feed,) = feeds(inputs, wanted)
        whole, states = [], [feed.state_dict()]
        for step in feed.batches():
            whole.append([rows_of(micro) for micro in step.micro])
            states.append(feed.state_dict())
        for at, state in enumerate(states):
            (other,) = feeds(inputs, wanted)
            other.load_state_dict(state)
            assert [[rows_of(micro) for micro in step.micro] for step in other.batches()] == whole[at:]

    @pytest.mark.parametrize(("profile", "same"), [("pairmill", True), ("kempner", True), ("hrm_text", False)])
    def test_the_rows_of_a_step_do_not_follow_from_processes_and_parts(
        self, random: Path, profile: Any, same: bool
    ) -> None:
        """But with the profile whose reference packs them so, and then the name of a run says how many there are."""
        found, keys = [], set()
        for ranks, accumulate in ((1, 1), (2, 1), (1, 2), (4, 2)):
            wanted = replace(settings(accumulate=accumulate, tail="keep"), profile=profile)
            inputs = opened(random, wanted)
            steps = [
                sorted(row for step in steps for micro in step.micro for row in rows_of(micro))
                for steps in together(feeds(inputs, wanted, ranks))
            ]
            assert len(steps) == total_steps(inputs, wanted, ranks)
            assert not same or sum(map(len, steps)) == 180
            found.append(steps)
            keys.add(tuple(wanted.processes(ranks).items()))
        assert all(steps == found[0] for steps in found) is same
        assert keys == ({()} if profile == "pairmill" else {(("processes", ranks),) for ranks in (1, 2, 4)})

    def test_a_batch_has_fewer_rows_than_processes(self, tmp_path: Path) -> None:
        wanted = settings(32, tail="keep")
        inputs = opened(samples.sampled(tmp_path / "a", [[(9, 8), (12, 12), (8, 9), (10, 2)]]), wanted)
        rows = []
        for steps in together(feeds(inputs, wanted, 4)):
            assert [micro.sources.shape == micro.packed.inputs.shape for step in steps for micro in step.micro]
            assert 0 in [micro.packed.rows for step in steps for micro in step.micro]
            assert sum(micro.packed.tokens for step in steps for micro in step.micro) == steps[0].tokens
            rows += [row for step in steps for micro in step.micro for row in rows_of(micro)]
        assert len(set(rows)) == len(rows) == 4

    def test_other_ranks_go_on_with_each_row_once(self, random: Path) -> None:
        wanted = settings(384, tail="keep", epochs=1)
        inputs = opened(random, wanted)
        rows: list[tuple[int, ...]] = []
        state: dict[str, Any] = {}
        for ranks, steps in ((2, 1), (3, 1), (1, 100)):
            here = feeds(inputs, wanted, ranks)
            for feed in here if state else ():
                feed.load_state_dict(state)
            for batch in islice(together(here), steps):
                rows += [row for step in batch for micro in step.micro for row in rows_of(micro)]
                state = here[0].state_dict()
                assert all(feed.state_dict() == state for feed in here)
        assert len(rows) == len(set(rows)) == 90

    def test_other_data_are_refused(self, random: Path, tmp_path: Path) -> None:
        wanted = settings()
        (feed,) = feeds(opened(random, wanted), wanted)
        (other,) = feeds(opened(samples.sampled(tmp_path / "b", [[(3, 4)] * 60]), wanted), wanted)
        with pytest.raises(InputError, match="saved with other data"):
            other.load_state_dict(feed.state_dict())

    def test_phases_scale_the_rate(self, random: Path) -> None:
        phases = [DataPhase(), DataPhase(epoch=1, lr_scale=0.25)]
        wanted = settings(data=DataSettings(phases=phases))
        (feed,) = feeds(opened(random, wanted), wanted)
        found = [(step.epoch, step.lr_scale, step.phase) for step in feed.batches()]
        assert set(found) == {(0, 1.0, "0"), (1, 0.25, "1")}

    def test_sources_are_said_slot_by_slot(self, sampled: Path) -> None:
        wanted = settings(24_576, epochs=1, tail="keep")
        inputs = opened(sampled, wanted)
        assert len(inputs.sources) > 1
        manifest = manifests.read(str(sampled))
        assert manifest is not None
        (feed,) = feeds(inputs, wanted)
        rows = np.zeros(len(inputs.sources), int)
        for step in feed.batches():
            for micro in step.micro:
                starts = torch.tensor(micro.packed.starts)
                firsts = micro.sources[starts[:-1]]
                assert torch.equal(firsts, micro.sources[starts[1:] - 1])
                rows += np.bincount(firsts.numpy(), minlength=len(rows))
        # One of three epochs has a third of the rows that were sampled of each task, to a row.
        of = [(source_of(task), ledger.rows_out / 3) for task, ledger in manifest.shards.items()]
        for name, count in zip(inputs.sources, rows.tolist(), strict=True):
            mine = [rows for source, rows in of if source == name]
            assert abs(count - sum(mine)) <= len(mine)


class TestWindows:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        draw = np.random.default_rng(2)
        for name, count in (("a", 400), ("b", 200)):
            (tmp_path / name).mkdir()
            np.save(tmp_path / name / "tokens.npy", draw.integers(0, 90, count))
        return tmp_path

    def opened(self, folder: Path, wanted: TrainSettings) -> Inputs:
        return open_inputs(Asked(windows=[f"a={folder / 'a'}", f"b={folder / 'b'}"]), wanted)

    @pytest.mark.parametrize("accumulate", [1, 2])
    @pytest.mark.parametrize("ranks", [1, 2])
    def test_parts_share_the_windows(self, folder: Path, accumulate: int, ranks: int) -> None:
        wanted = settings(128, accumulate, DataSettings(seq_len=8, vocab_size=90, eos_id=0))
        inputs = self.opened(folder, wanted)
        expected = list(Loader(inputs.plan, batch_tokens=128).epoch())
        found = list(together(feeds(inputs, wanted, ranks)))
        assert len(found) == len(expected) == total_steps(inputs, wanted, ranks)
        for steps, batch in zip(found, expected, strict=True):
            micros = [micro for step in steps for micro in step.micro]
            assert [micro.packed.slots for micro in micros] == [128 // ranks // accumulate] * (ranks * accumulate)
            windows = sorted(
                (int(source[0]), *tokens)
                for micro in micros
                for tokens, source in zip(
                    micro.packed.inputs.view(-1, 8).tolist(), micro.sources.view(-1, 8).tolist(), strict=True
                )
            )
            assert windows == sorted(
                (source, *tokens)
                for source, tokens in zip(batch["dataset_idx"].tolist(), batch["input_ids"].tolist(), strict=True)
            )
            assert {len(set(one)) for micro in micros for one in micro.sources.view(-1, 8).tolist()} == {1}
            # Documents are rows without a prefix, and nothing is predicted from the end of one.
            for micro in micros:
                assert set(micro.packed.prefixes) == {0}
                assert (micro.packed.labels[micro.packed.inputs == 0] == IGNORED).all()

    def test_resumed(self, folder: Path) -> None:
        wanted = settings(64, 2, DataSettings(seq_len=8, vocab_size=90), epochs=2)
        inputs = self.opened(folder, wanted)
        (feed,) = feeds(inputs, wanted)
        whole, states = [], [feed.state_dict()]
        for step in feed.batches():
            whole.append([micro.packed.inputs.tolist() for micro in step.micro])
            states.append(feed.state_dict())
        assert len(whole) == feed.total_steps() > 10
        for at in range(0, len(states), 5):
            (other,) = feeds(inputs, wanted)
            other.load_state_dict(states[at])
            assert [[micro.packed.inputs.tolist() for micro in step.micro] for step in other.batches()] == whole[at:]


class TestHeldOut:
    @pytest.mark.parametrize("ranks", [1, 2, 3])
    def test_each_row_once_whatever_the_ranks(self, random: Path, tmp_path: Path, ranks: int) -> None:
        draw = np.random.default_rng(8)
        held = samples.sampled(tmp_path / "held", [draw.integers(1, 20, (41, 2)).tolist()], seed=9)
        wanted = settings(60)
        inputs = opened(random, wanted, held_out=str(held))
        assert inputs.held_out is not None
        parts = [list(read_held_out(inputs.held_out, 0, 60, CPU, rank, ranks)) for rank in range(ranks)]
        assert len({len(part) for part in parts}) == 1
        counted = [batch for part in parts for batch in part if (batch.packed.labels != IGNORED).any()]
        rows = [row for batch in counted for row in rows_of(batch)]
        assert len(rows) == 41
        tokens, (starts, inst, _, resp) = samples.arrays(held)
        wanted_rows = [
            tuple(tokens[at : at + one + two].tolist()) for at, one, two in zip(starts, inst, resp, strict=True)
        ]
        assert sorted(rows) == sorted(wanted_rows)

    def test_a_part_of_them_is_always_the_same(self, random: Path, tmp_path: Path) -> None:
        held = samples.sampled(tmp_path / "held", [[(3, 4), (2, 6), (4, 4)] * 10], seed=9)
        wanted = settings(60)
        inputs = opened(random, wanted, held_out=str(held))
        assert inputs.held_out is not None
        some = [
            sorted(
                row
                for rank in range(ranks)
                for batch in read_held_out(inputs.held_out, 7, slots, CPU, rank, ranks)
                if (batch.packed.labels != IGNORED).any()
                for row in rows_of(batch)
            )
            for ranks, slots in ((1, 60), (2, 30))
        ]
        assert some[0] == some[1]
        assert len(some[0]) == 7
        every = [row for batch in read_held_out(inputs.held_out, 0, 60, CPU) for row in rows_of(batch)]
        assert some[0] != sorted(every[:7])

    def test_windows_and_their_sources(self, tmp_path: Path) -> None:
        draw = np.random.default_rng(2)
        for name, count in (("a", 401), ("b", 201)):
            (tmp_path / name).mkdir()
            np.save(tmp_path / name / "tokens.npy", draw.integers(1, 90, count))
        data = DataSettings(seq_len=8, vocab_size=90, held_out_share=0.2)
        inputs = open_inputs(Asked(windows=[str(tmp_path / "a"), str(tmp_path / "b")]), settings(64, data=data))
        assert inputs.held_out is not None
        assert inputs.held_out.sources == ("a", "b")
        batches = [batch for rank in range(2) for batch in read_held_out(inputs.held_out, 0, 32, CPU, rank, 2)]
        counted = [batch for batch in batches if (batch.packed.labels != IGNORED).any()]
        apart = [tuple(row) for batch in counted for row in batch.packed.inputs.view(-1, 8).tolist()]
        assert len(apart) == len(set(apart)) == 15
        assert np.bincount(torch.cat([batch.sources for batch in counted]).numpy()).tolist() == [80, 40]
        (feed,) = feeds(inputs, settings(64, data=data))
        trained = {
            tuple(row)
            for step in feed.batches()
            for micro in step.micro
            for row in micro.packed.inputs.view(-1, 8).tolist()
        }
        assert len(trained) == 60
        assert not trained & set(apart)


def test_a_feed_that_is_closed_gives_nothing(random: Path) -> None:
    wanted = settings()
    (feed,) = feeds(opened(random, replace(wanted)), wanted)
    feed.close()
    with pytest.raises(Exception, match="closed"):
        next(feed.batches())
