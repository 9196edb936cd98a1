"""What a run reads: exactly one kind of data, whole and of one tokenizer; its planned steps; its rows' sources."""

import json
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.loader import Loader, MixturePlan, RowPlan, StreamPlan
from pairmill.loader.held_out import choose_rows
from pairmill.loader.sources import MOST, OTHERS, merged
from pairmill.stages.train.check import CheckConfig, check
from pairmill.stages.train.data.inputs import Inputs, open_inputs
from pairmill.stages.train.data.steps import scheduled_steps, total_steps
from pairmill.training.data_settings import DataPhase, DataSettings, HubSettings
from pairmill.training.settings import BatchSettings, TrainingSettings, TrainSettings
from tests.support import lazy
from tests.support.data import samples
from tests.support.data.tokens_and_mixtures import Bench

datasets = lazy.Module("datasets")

SIX = [(3, 4), (2, 5), (4, 2), (1, 6), (3, 3), (2, 2)]
"""Rows of 6, 6, 5, 6, 5 and 3 inputs."""


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


def settings(slots: int = 16, data: DataSettings | None = None, **training: Any) -> TrainSettings:
    return TrainSettings(
        batch=BatchSettings(tokens=slots), data=data or DataSettings(), training=TrainingSettings(**training)
    )


def rows(folder: Path, tokens: int = 16, **options: Any) -> Inputs:
    return open_inputs(Asked(sampled=[str(folder)], **options), settings(tokens))


def tokenizer(path: Path, ids: int, ends: str = "<end>") -> Path:
    """A tokenizer of words."""
    vocab = {ends: 0, **{f"w{number}": number for number in range(1, ids)}}
    model = {"type": "WordLevel", "vocab": vocab, "unk_token": ends}
    split = {"type": "WhitespaceSplit"}
    path.write_text(json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": split, "model": model}))
    return path


def signed(folder: Path, tokenizer: str, *inputs: InputRef) -> Path:
    """The folder with a manifest that names its tokenizer."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = [File(path.relative_to(folder).as_posix(), path.stat().st_size, "0" * 64) for path in paths]
    data = {"tokenizer": tokenizer}
    Manifest("sample", 3, "0" * 16, {}, list(inputs), Ledger(), files, data=data).finish(str(folder))
    return folder


def flat(folder: Path, ids: int = 300, **files: int) -> Path:
    """A folder of flat files of so many tokens."""
    folder.mkdir(parents=True)
    for number, (name, count) in enumerate(files.items()):
        np.save(folder / f"{name}.npy", np.random.default_rng(number).integers(1, ids, count).astype(np.uint32))
    return folder


class TestOneKind:
    @pytest.mark.parametrize(
        "given",
        [{}, {"sampled": ["a"], "windows": ["b"]}, {"windows": ["b"], "hub": "c"}, {"sampled": ["a"], "hub": "c"}],
    )
    def test_exactly_one_is_given(self, given: dict[str, Any]) -> None:
        with pytest.raises(UsageError, match="one of sampled=, windows= and hub="):
            open_inputs(Asked(**given), settings())

    @pytest.mark.parametrize(
        ("given", "data", "said"),
        [
            ({"sampled": ["a"]}, DataSettings(weights={"a": 1}), "data.weights"),
            ({"sampled": ["a"]}, DataSettings(held_out_share=0.1), "data.held_out_share"),
            ({"windows": ["a"]}, DataSettings(balance="quadratic"), "data.balance"),
            ({"windows": ["a"]}, DataSettings(hub=HubSettings(split="x")), "data.hub"),
        ],
    )
    def test_a_setting_that_nothing_reads_is_refused(
        self, given: dict[str, Any], data: DataSettings, said: str
    ) -> None:
        with pytest.raises(UsageError, match=f"{said}: does not belong to these data"):
            open_inputs(Asked(**given), settings(data=data))


class TestRows:
    def test_a_folder(self, tmp_path: Path) -> None:
        found = rows(samples.sampled(tmp_path / "mine", [SIX, SIX]))
        assert isinstance(found.plan, RowPlan)
        assert (found.kind, found.vocab_size, found.positions, found.longest) == ("rows", 512, 6, 6)
        # Another sampler's folder does not say tasks.
        assert found.sources == ("mine",)
        assert found.tokenizer is None
        assert found.held_out is None

    def test_the_digest_is_of_content_not_of_places(self, tmp_path: Path) -> None:
        one, other = (rows(samples.sampled(tmp_path / name, [SIX])) for name in ("a", "b"))
        third = rows(samples.sampled(tmp_path / "c", [SIX], seed=1))
        assert one.digest == other.digest != third.digest

    def test_a_node_says_which_sample_is_current(self, tmp_path: Path) -> None:
        name = "0123456789abcdef"
        samples.sampled(tmp_path / "node" / name, [SIX])
        (tmp_path / "node" / "PLAN").write_text(name)
        assert rows(tmp_path / "node").sources == ("node",)

    def test_several_folders_have_phases(self, tmp_path: Path) -> None:
        given = [f"{name}={samples.sampled(tmp_path / name, [SIX] * 3)}" for name in ("broad", "math")]
        phases = [DataPhase(source="broad"), DataPhase(source="math", step=4, lr_scale=0.5)]
        wanted = settings(data=DataSettings(phases=phases), steps=7)
        found = open_inputs(Asked(sampled=given), wanted)
        assert found.sources == ("broad", "math")
        assert total_steps(found, wanted, 1) == 7
        batches = list(Loader(found.plan, batch_tokens=16))[:7]
        assert [(one.source, one.lr_scale) for one in batches] == [("broad", 1.0)] * 4 + [("math", 0.5)] * 3

    def test_phases_may_leave_a_folder_before_its_end(self, tmp_path: Path) -> None:
        given = [f"{name}={samples.sampled(tmp_path / name, [SIX * 4] * 3)}" for name in ("broad", "math")]
        data = DataSettings(phases=[DataPhase(source="broad"), DataPhase(source="math", step=4)])
        found = open_inputs(Asked(sampled=given), settings(data=data))
        whole = total_steps(found, settings(data=data), 1)
        assert whole == len(list(Loader(found.plan, batch_tokens=16)))
        with pytest.raises(UsageError, match=r"training.epochs: more than there are; got 5; expected at most 3"):
            total_steps(found, settings(data=data, epochs=5), 1)

    def test_one_folder_may_have_phases_without_its_name(self, tmp_path: Path) -> None:
        phases = [DataPhase(), DataPhase(epoch=1, lr_scale=0.1)]
        asked = Asked(sampled=[str(samples.sampled(tmp_path / "a", [SIX] * 2))])
        found = open_inputs(asked, settings(data=DataSettings(phases=phases)))
        assert [phase.epoch for phase in found.plan.phases] == [0, 1]

    def test_held_out_rows_may_be_longer(self, tmp_path: Path) -> None:
        held = samples.sampled(tmp_path / "held", [[(5, 9), (2, 2)]], seed=3)
        found = rows(samples.sampled(tmp_path / "a", [SIX]), held_out=str(held))
        assert found.held_out is not None
        assert len(found.held_out) == 2
        assert (found.positions, found.longest) == (13, 6)
        assert found.digest != rows(tmp_path / "a").digest

    @pytest.mark.parametrize(
        ("epochs", "metadata", "said"),
        [
            ([[(2, 3)]], {"tokenizer_info": {"vocab_size": 400}}, "made with different tokenizers"),
            ([[(2, 3)], [(2, 3)]], {}, "a folder to train on, not one of held-out rows"),
        ],
    )
    def test_what_is_not_held_out(
        self, tmp_path: Path, epochs: list[samples.Pairs], metadata: dict[str, Any], said: str
    ) -> None:
        held = samples.sampled(tmp_path / "held", epochs, seed=2, **metadata)
        with pytest.raises(PairmillError, match=said):
            rows(samples.sampled(tmp_path / "a", [SIX]), held_out=str(held))

    def test_training_rows_are_not_held_out(self, tmp_path: Path) -> None:
        samples.sampled(tmp_path / "held", [SIX])
        with pytest.raises(InputError, match="the rows to evaluate on are those to train on"):
            rows(samples.sampled(tmp_path / "a", [SIX]), held_out=str(tmp_path / "held"))

    def test_windows_are_not_held_out_of_rows(self, tmp_path: Path) -> None:
        held = flat(tmp_path / "held", a=20)
        with pytest.raises(UsageError, match="held_out: another kind of data"):
            rows(samples.sampled(tmp_path / "a", [SIX]), held_out=str(held))


class TestTokenizer:
    def test_one_that_an_option_names_comes_along(self, tmp_path: Path) -> None:
        file = tokenizer(tmp_path / "t.json", 500)
        found = rows(samples.sampled(tmp_path / "a", [SIX]), tokenizer=str(file))
        assert found.tokenizer == file.read_bytes()
        assert found.digest != rows(tmp_path / "a").digest

    def test_one_with_more_ids_is_refused(self, tmp_path: Path) -> None:
        file = tokenizer(tmp_path / "t.json", 600)
        with pytest.raises(InputError, match=r"has more ids .* got 600 ids"):
            rows(samples.sampled(tmp_path / "a", [SIX]), tokenizer=str(file))

    def test_another_one_than_the_datas_is_refused(self, tmp_path: Path) -> None:
        folder, file = samples.sampled(tmp_path / "a", [SIX]), tokenizer(tmp_path / "t.json", 500)
        with pytest.raises(InputError, match="not the tokenizer of the data"):
            rows(signed(folder, "0" * 16), tokenizer=str(file))

    def test_that_of_the_project_is_found(self, tmp_path: Path) -> None:
        home = tmp_path / "project" / "tokenize" / ("a" * 16)
        home.mkdir(parents=True)
        file = tokenizer(home / "tokenizer.json", 500)
        folder = samples.sampled(tmp_path / "a", [SIX])
        signed(folder, sha256(file.read_bytes()).hexdigest()[:16], InputRef("tokenized", "a" * 16))
        assert rows(folder, root=str(tmp_path / "project")).tokenizer == file.read_bytes()
        assert rows(folder, root=str(tmp_path / "elsewhere")).tokenizer is None


class TestSources:
    def test_each_row_is_of_the_set_of_its_task(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        draw = np.random.default_rng(5)
        names = ["web__b.jsonl", "web__a.jsonl", "data__books__1.jsonl", "single.jsonl"]
        for name in names:
            bench.put(name, draw.integers(2, 9, 40))
        bench.run(mixture="", epochs=2)
        found = rows(bench.target)
        assert found.sources == ("books", "single", "web")
        assert found.rows is not None
        for epoch in range(2):
            drawn = bench.epoch(epoch)
            numbers = np.column_stack(
                [np.zeros_like(drawn.task), np.full_like(drawn.task, epoch), np.arange(len(drawn.task))]
            )
            got = found.rows.find(numbers)
            of_task = np.array([2, 2, 0, 1])  # in the order of `names`
            assert np.array_equal(got, of_task[drawn.task])
            assert set(got.tolist()) == {0, 1, 2}

    def test_of_a_mixture_its_sources_count(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        for name in ("a__1", "a__2", "b__1"):
            bench.put(name, [5] * 30)
        bench.plan({"odd": ["a__1", "b__1"], "even": ["a__2"]}, epochs=2)
        bench.run()
        found = rows(bench.target)
        assert found.sources == ("even", "odd")
        drawn = bench.epoch(1)
        numbers = np.column_stack([np.zeros_like(drawn.task), np.ones_like(drawn.task), np.arange(len(drawn.task))])
        assert found.rows is not None
        assert np.array_equal(found.rows.find(numbers), np.array([1, 0, 1])[drawn.task])

    def test_the_references_layout_says_it_too(self, tmp_path: Path) -> None:
        bench = Bench(tmp_path)
        for name in ("a__1", "b__1", "c__1"):
            bench.put(name, [5] * 9)
        bench.run(mixture="", epochs=1, layout="data_io")
        found = rows(bench.target)
        drawn = bench.epoch(0)
        numbers = np.column_stack([np.zeros((len(drawn.task), 2), np.int64), np.arange(len(drawn.task))])
        assert found.rows is not None
        assert np.array_equal(found.rows.find(numbers), drawn.task)

    def test_of_very_many_the_smallest_are_one(self) -> None:
        sizes = {f"s{number:03}": number for number in range(200)}
        found = merged(sizes)
        assert len(set(found.values())) == MOST
        assert found["s199"] == "s199"
        assert found["s000"] == OTHERS
        assert merged({"a": 1, "b": 0}) == {"a": "a", "b": "b"}


class TestSteps:
    @pytest.mark.parametrize("tail", ["drop", "keep", "carry"])
    @pytest.mark.parametrize("ranks", [1, 2])
    @pytest.mark.parametrize("accumulate", [1, 2])
    def test_they_are_the_loaders_batches(self, tmp_path: Path, tail: Any, ranks: int, accumulate: int) -> None:
        draw = np.random.default_rng(7)
        epochs = [draw.integers(2, 9, (50, 2)).tolist() for _ in range(3)]
        batch = BatchSettings(tokens=128, tail=tail, accumulate=accumulate)
        wanted = replace(settings(), batch=batch)
        found = open_inputs(Asked(sampled=[str(samples.sampled(tmp_path / "a", epochs))]), wanted)
        real = len(list(Loader(found.plan, batch_tokens=128, ranks=ranks * accumulate)))
        assert total_steps(found, wanted, ranks) == real > 5

    def test_fewer_epochs_steps_or_tokens_may_be_asked(self, tmp_path: Path) -> None:
        folder = samples.sampled(tmp_path / "a", [SIX * 10, SIX * 10, SIX * 10])
        found = rows(folder)
        every = total_steps(found, settings(), 1)
        one = total_steps(found, settings(epochs=1), 1)
        assert 3 * one == every
        assert total_steps(found, settings(steps=5), 1) == 5
        batches = list(Loader(found.plan, batch_tokens=16))
        until = next(
            number for number, batch in enumerate(batches, 1) if sum(b.global_tokens for b in batches[:number]) >= 100
        )
        assert total_steps(found, settings(tokens=100), 1) == until

    @pytest.mark.parametrize(
        ("asked", "said"),
        [
            ({"epochs": 4}, "training.epochs: more than there are; got 4; expected 1 to 3"),
            ({"steps": 70}, r"training.steps: more than there are; got 70; expected at most \d\d, which 3 epochs"),
            ({"tokens": 10**6}, r"training.tokens: more than there are; got 1,000,000; expected at most \d\d\d"),
        ],
    )
    def test_more_than_there_is_is_refused_with_both_figures(
        self, tmp_path: Path, asked: dict[str, Any], said: str
    ) -> None:
        found = rows(samples.sampled(tmp_path / "a", [SIX * 10] * 3))
        with pytest.raises(UsageError, match=said):
            total_steps(found, settings(**asked), 1)

    def test_a_schedule_of_hrm_text_is_made_for_an_estimate(self, tmp_path: Path) -> None:
        folder = samples.sampled(tmp_path / "a", [SIX * 10] * 3)
        ours, theirs = settings(), TrainSettings.parse("", ["profile=hrm_text", "batch.tokens=16", "training.epochs=3"])
        found = open_inputs(Asked(sampled=[str(folder)]), theirs)
        real = total_steps(found, theirs, 1)
        assert scheduled_steps(found, ours, 1) == real == total_steps(found, ours, 1)
        # HRM-Text counts the last token of a response too, neither padding nor rows that are left over.
        assert scheduled_steps(found, theirs, 1) == 3 * sum(map(sum, SIX)) * 10 // 16 != real

    def test_ranks_have_to_divide_the_batch(self, tmp_path: Path) -> None:
        found = rows(samples.sampled(tmp_path / "a", [SIX]))
        with pytest.raises(UsageError, match=r"batch.tokens: .* got 16 for 3 processes"):
            total_steps(found, settings(), 3)

    def test_a_batch_is_as_long_as_the_longest_row(self, tmp_path: Path) -> None:
        found = rows(samples.sampled(tmp_path / "a", [SIX]))
        with pytest.raises(InputError, match=r"batch\.tokens: .* 6 inputs, and 4 slots; expected 6 or more"):
            total_steps(found, settings(4), 1)
        halves = replace(settings(8), batch=BatchSettings(tokens=16, accumulate=2))
        # A part may have more than its equal number of slots.
        assert total_steps(found, halves, 2) == total_steps(
            found, replace(settings(8), batch=BatchSettings(tokens=16)), 1
        )
        apart = replace(halves, profile="hrm_text")
        found = open_inputs(Asked(sampled=[str(tmp_path / "a")]), apart)
        with pytest.raises(InputError, match=r"4 slots for each of 2 processes x 2 parts; expected 24 or more"):
            total_steps(found, apart, 2)


class TestWindows:
    def test_the_tasks_of_a_set_are_a_source(self, tmp_path: Path) -> None:
        folder = flat(tmp_path / "tokenized" / "windows", web__a=90, web__b=50, books=70)
        (folder / "windows.json").write_text(json.dumps({"eod": "<end>", "eod_id": 0}))
        (tmp_path / "tokenized" / "tokenizer_info.json").write_text(json.dumps({"vocab_size": 300}))
        file = tokenizer(tmp_path / "tokenized" / "tokenizer.json", 300)
        wanted = settings(64, DataSettings(seq_len=16, weights={"books": 3, "web": 1}))
        found = open_inputs(Asked(windows=[str(folder)]), wanted)
        assert isinstance(found.plan, MixturePlan)
        assert found.sources == ("books", "web")
        assert (found.kind, found.positions, found.vocab_size) == ("windows", 16, 512)
        assert found.tokenizer == file.read_bytes()
        assert [source.eos_id for source in found.plan.sources] == [0, 0]
        assert [len(source) for source in found.plan.sources] == [5, 10]

    def test_names_and_a_pattern(self, tmp_path: Path) -> None:
        one, other = flat(tmp_path / "one", a=40, b=40), flat(tmp_path / "two", c=40)
        data = DataSettings(seq_len=8, vocab_size=300, pattern="[ac].npy")
        found = open_inputs(Asked(windows=[f"x={one}", f"y={other}"]), settings(64, data))
        assert found.sources == ("x", "y")
        assert isinstance(found.plan, MixturePlan)
        assert [len(source) for source in found.plan.sources] == [5, 5]

    def test_the_size_of_the_vocabulary_has_to_be_known(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"data\.vocab_size"):
            open_inputs(Asked(windows=[str(flat(tmp_path / "a", a=40))]), settings(64, DataSettings(seq_len=8)))

    def test_a_share_is_set_apart(self, tmp_path: Path) -> None:
        folder = flat(tmp_path / "a", a=8 * 100 + 1)
        data = DataSettings(seq_len=8, vocab_size=300, held_out_share=0.1)
        wanted = settings(64, data)
        found = open_inputs(Asked(windows=[str(folder)]), wanted)
        assert isinstance(found.plan, MixturePlan)
        assert found.held_out is not None
        assert (len(found.plan.sources[0]), len(found.held_out)) == (90, 10)
        # The same ones for another seed of the training.
        again = open_inputs(Asked(windows=[str(folder)]), replace(wanted, training=TrainingSettings(seed=4)))
        assert again.held_out is not None
        assert again.held_out.digest == found.held_out.digest
        assert again.plan.digest != found.plan.digest

    def test_held_out_windows_are_others(self, tmp_path: Path) -> None:
        folder = flat(tmp_path / "a", a=100)
        data = DataSettings(seq_len=8, vocab_size=300)
        with pytest.raises(UsageError, match="the windows to evaluate on are those to train on"):
            open_inputs(Asked(windows=[str(folder)], held_out=str(folder)), settings(64, data))
        both = replace(data, held_out_share=0.1)
        with pytest.raises(UsageError, match="held out twice"):
            open_inputs(Asked(windows=[str(folder)], held_out=str(flat(tmp_path / "b", z=90))), settings(64, both))

    def test_steps(self, tmp_path: Path) -> None:
        folder = flat(tmp_path / "a", a=8 * 100 + 1)
        data = DataSettings(seq_len=8, vocab_size=300)
        found = open_inputs(Asked(windows=[str(folder)]), settings(64, data))
        cases: list[tuple[dict[str, Any], int]] = [
            ({}, 13),
            ({"epochs": 2}, 25),
            ({"steps": 40}, 40),
            ({"tokens": 640}, 10),
            ({"tokens": 641}, 11),
        ]
        for asked, expected in cases:
            assert total_steps(found, settings(64, data, **asked), 2) == expected
        loader = Loader(found.plan, batch_tokens=64)
        assert len(list(loader.epoch())) == 13
        assert len(list(loader.epoch())) == 12
        with pytest.raises(UsageError, match="not a whole number of windows"):
            total_steps(found, settings(64, data), 16)


class TestHub:
    @pytest.fixture(autouse=True)
    def _alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def asked(self, tmp_path: Path) -> Asked:
        folder = tmp_path / "texts"
        folder.mkdir()
        for split, count in (("train", 40), ("test", 6)):
            lines = [json.dumps({"text": f"w{number} w2 w3 w4"}) for number in range(1, count)]
            (folder / f"{split}.jsonl").write_text("\n".join(lines))
        return Asked(hub=str(folder), tokenizer=str(tokenizer(tmp_path / "t.json", 50)))

    def test_eager(self, tmp_path: Path) -> None:
        data = DataSettings(seq_len=8, hub=HubSettings(eos="<end>", held_out_split="test"))
        found = open_inputs(self.asked(tmp_path), settings(32, data))
        assert (found.kind, found.vocab_size) == ("windows", 256)
        assert isinstance(found.plan, MixturePlan)
        assert len(found.plan.sources[0]) == 25  # 39 documents of 5 tokens, less the first
        assert found.held_out is not None
        assert len(found.held_out) == 3

    def test_streamed(self, tmp_path: Path) -> None:
        data = DataSettings(seq_len=8, hub=HubSettings(eos="<end>", streaming=True))
        found = open_inputs(self.asked(tmp_path), settings(32, data, steps=3))
        assert isinstance(found.plan, StreamPlan)
        assert total_steps(found, settings(32, data, steps=3), 1) == 3
        with pytest.raises(UsageError, match="a stream has no end"):
            total_steps(found, settings(32, data, epochs=1), 1)

    def test_what_is_missing(self, tmp_path: Path) -> None:
        asked = self.asked(tmp_path)
        with pytest.raises(UsageError, match=r"data\.hub\.eos: no such token"):
            open_inputs(asked, settings(32, DataSettings(hub=HubSettings(eos="</s>"))))
        with pytest.raises(UsageError, match="tokenizer: required with hub="):
            open_inputs(replace(asked, tokenizer=""), settings(32))


def test_a_part_is_always_the_same_one() -> None:
    assert choose_rows(10, 10).tolist() == [*choose_rows(10, 3).tolist(), *choose_rows(10, 10)[3:].tolist()]
    assert sorted(choose_rows(10, 20).tolist()) == list(range(10))
    assert choose_rows(1000, 5).tolist() == choose_rows(1000, 5).tolist() != [0, 1, 2, 3, 4]


def test_what_a_run_costs_is_said_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pairmill.stages.train.check.find_spec", lambda _: None)
    folder = samples.sampled(tmp_path / "a", [SIX * 10])
    said = check(CheckConfig(sampled=[str(folder)], set=["batch.tokens=64"], processes=2, gpu="H100", mfu=0.4))
    assert "torch is not installed" in said
    assert "40% of the peak of 2 x H100" in said
    with pytest.raises(UsageError, match="mfu: out of range"):
        CheckConfig(mfu=40)
