"""A plan in its two layouts, and the arrays that are made of it: against slices of the tokens, row by row."""

import json
import os
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill import storage
from pairmill.digest import digest_bytes
from pairmill.errors import InputError
from pairmill.formats.eligible_rows import rows_of
from pairmill.formats.tokens import INDEX, Dataset, narrowest
from pairmill.rules.rule import Rule
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draw import DatasetToDraw, draw_plan
from pairmill.stages.sample.node import layout as layouts
from pairmill.stages.sample.node import materialize as module
from pairmill.stages.sample.node.config import OutputFormat
from pairmill.stages.sample.node.layout import ArrayLayout, token_dtype
from pairmill.stages.sample.node.materialize import materialize
from pairmill.stages.sample.node.owned import OpenFolder
from pairmill.stages.sample.node.plan import PlannedDataset, SamplePlan
from pairmill.stages.sample.node.plan_arrays import PlanArray
from pairmill.stages.sample.wants import Wants

CONFIG = SampleConfig(tokenized_path="unused", output_path="unused", epochs=3, context_size=40)


class Tokens:
    """Tasks whose rows are in any order, with gaps and overlaps, as a foreign folder's may be."""

    def __init__(self, folder: Path, kinds: list[Any], rows: int = 120, high: int = 900, ordered: bool = False) -> None:
        draw = np.random.default_rng(7)
        self.tasks, self.tokens, self.index = [], [], []
        for number, kind in enumerate(kinds):
            count = 0 if number == 1 else rows
            inst, resp = draw.integers(0, 30, count), draw.integers(1, 50, count)
            total = int((inst + resp).sum())
            order = np.arange(count) if ordered else draw.permutation(count)
            starts = np.empty(count, np.int64)
            starts[order] = (np.cumsum((inst + resp)[order]) - (inst + resp)[order]).astype(np.int64)
            tokens = draw.integers(0, high, total).astype(kind)
            index = dict(zip(INDEX, (starts, inst, starts + inst, resp), strict=True))
            if number == 2:  # responses before instructions: not as pairmill writes them
                index["resp_start"], index["inst_start"] = starts, starts + resp
            path = folder / f"task{number}"
            path.mkdir(parents=True)
            np.save(path / "tokens.npy", tokens)
            for name, values in index.items():
                np.save(path / f"{name}.npy", values.astype(np.uint64))
            self.tasks.append(Dataset(path.name, str(path)))
            self.tokens.append(tokens.astype(np.int64))
            self.index.append(index)

    def plan(self, config: SampleConfig = CONFIG, rule: Rule | None = None) -> SamplePlan:
        rule = rule or Rule(max_per_file=50, repeat=2)
        wants = [partial(Wants.by_rule, rule, config.seed, task.name) for task in self.tasks]
        given = [
            DatasetToDraw(task.name, rule, partial(rows_of, task.name, rule, task.index(), config), mine)
            for task, mine in zip(self.tasks, wants, strict=True)
        ]
        return draw_plan(given, config, 2).plan

    def texts(self, plan: SamplePlan) -> list[list[tuple[list[int], list[int]]]]:
        """Per epoch the instructions and responses in training order, cut out of the tasks' own tokens."""
        source = np.repeat(np.arange(len(self.tasks)), [one.rows for one in plan.datasets])
        rows = list(zip(source.tolist(), *(plan.rows[name].array().tolist() for name in INDEX), strict=True))
        return [
            [
                (self.tokens[task][a : a + b].tolist(), self.tokens[task][c : c + d].tolist())
                for task, a, b, c, d in (rows[place] for place in epoch.array())
            ]
            for epoch in plan.epochs
        ]


def made_folder(path: Path) -> OpenFolder:
    """An empty folder, open."""
    path.mkdir()
    return OpenFolder(path, os.open(path, os.O_RDONLY))


def made_texts(folder: Path, epochs: int) -> list[list[tuple[list[int], list[int]]]]:
    """The same of sampled arrays, as a trainer slices them."""
    tokens = np.load(folder / "tokens.npy", mmap_mode="r")
    found = []
    for epoch in range(epochs):
        columns = [np.load(folder / f"epoch_{epoch}" / f"{name}.npy").tolist() for name in INDEX]
        found.append(
            [(tokens[a : a + b].tolist(), tokens[c : c + d].tolist()) for a, b, c, d in zip(*columns, strict=True)]
        )
    return found


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces and many reads, of little data."""
    monkeypatch.setattr(layouts, "ROWS", 70)
    monkeypatch.setattr(module, "ROWS", 70)
    monkeypatch.setattr(module, "CHUNK_TOKENS", 300)
    monkeypatch.setattr(module, "STEP", 64)
    monkeypatch.setattr(module._Readers, "max_gap", lambda _: 8)


KINDS = ["<u4", "<u4", "<u4", "<u2", ">u4", "<i8", "u1"]


@pytest.mark.parametrize("layout", ["compact", "data_io", "reference"])
@pytest.mark.parametrize("tasks", [1, 4])
def test_rows_that_are_looked_up_part_by_part_are_the_same(
    tmp_path: Path, layout: OutputFormat, tasks: int, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Tokens(tmp_path / "in", ["<u4"] * tasks, ordered=tasks == 1)
    whole = world.plan()
    columns = {**whole.rows, **{f"epoch_{number}": order for number, order in enumerate(whole.epochs)}}
    for name, values in columns.items():
        values.save(tmp_path / f"{name}.npy")
    kept = {name: PlanArray(tmp_path / f"{name}.npy") for name in columns}
    plan = whole._replace(rows={name: kept[name] for name in INDEX}, epochs=[*kept.values()][len(INDEX) :])
    monkeypatch.setattr(layouts, "TABLE", 0)
    parts = ArrayLayout(plan, layout, 1000)
    assert parts.table is None
    assert [table.after for table in parts.tables()][-1] == parts.rows
    made = [
        materialize(None, ArrayLayout(each, layout, 1000), world.tasks, [], b"{}", 1000, 2) for each in (whole, plan)
    ]
    assert made[0].files == made[1].files
    assert {path.name for path in tmp_path.iterdir()} == {"in", *(f"{name}.npy" for name in columns)}


@pytest.mark.parametrize("layout", ["compact", "data_io"])
@pytest.mark.parametrize("pieces", ["small", "usual"])
@pytest.mark.parametrize("local", [True, False])
def test_arrays_of_either_layout_hold_the_rows_of_the_plan(
    tmp_path: Path,
    layout: OutputFormat,
    pieces: str,
    local: bool,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if pieces == "small":
        request.getfixturevalue("small_pieces")
    if not local:  # as of a store whose objects are no files
        monkeypatch.setattr(storage.LocalStore, "file", lambda *_: None)
    world = Tokens(tmp_path / "in", KINDS, high=200)
    plan = world.plan()
    laid_out = ArrayLayout(plan, layout, 1000)
    seen = set()
    for workers in (1, 2, 5):
        out = tmp_path / f"out{workers}"
        made = materialize(made_folder(out), laid_out, world.tasks, [], b"{}", 1000, workers)
        assert made_texts(out, 3) == world.texts(plan)
        for file in made.files:
            data = (out / file.path).read_bytes()
            assert (file.size, file.digest) == (len(data), digest_bytes(data)), file.path
        assert [file.path for file in made.files] == sorted(
            path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()
        )
        seen.add(json.dumps([[file.path, file.digest] for file in made.files]))
        # Without a folder the same is digested.
        assert materialize(None, laid_out, world.tasks, [], b"{}", 1000, workers) == made
    assert len(seen) == 1
    sizes = [file.size for file in made.files if file.path != "metadata.json"]
    assert sorted(sizes) == sorted(laid_out.sizes().values())


@pytest.mark.parametrize(("ordered", "most"), [(True, 1), (False, 6)])
def test_only_what_is_sampled_is_read_where_it_lies_apart(tmp_path: Path, ordered: bool, most: int) -> None:
    world = Tokens(tmp_path, ["<u4"], rows=30_000, ordered=ordered)
    plan = world.plan(rule=Rule(max_per_file=20))
    laid_out = ArrayLayout(plan, "compact", 1000)
    made = materialize(None, laid_out, world.tasks, [], b"{}", 1000, 2)
    whole = 4 * len(world.tokens[0])
    assert laid_out.length * 4 <= made.read < whole / 2
    # All of them: each is read once; where they are in no order, the whole extent of each chunk.
    plan = world.plan(rule=Rule())
    made = materialize(None, ArrayLayout(plan, "compact", 1000), world.tasks, [], b"{}", 1000, 2)
    assert made.read <= most * whole


@pytest.mark.parametrize("kind", ["<u4", "<i8", "<i4"])
@pytest.mark.parametrize("value", [1000, 70_000, -1])
def test_an_id_outside_the_vocabulary_is_refused_or_wraps(tmp_path: Path, kind: str, value: int) -> None:
    if value < 0 and kind == "<u4":
        value = 2**32 - 1
    world = Tokens(tmp_path / "in", [kind], rows=40)
    plan = world.plan(rule=Rule())
    tokens = np.load(tmp_path / "in" / "task0" / "tokens.npy")
    place = int(plan.rows["resp_start"].array()[3])
    tokens[place] = np.array(value).astype(kind)
    np.save(tmp_path / "in" / "task0" / "tokens.npy", tokens)
    with pytest.raises(InputError, match=r"a token is (outside the vocabulary|not a valid id)"):
        materialize(None, ArrayLayout(plan, "compact", 1000), world.tasks, [], b"{}", 1000, 2)
    out = tmp_path / "out"
    materialize(made_folder(out), ArrayLayout(plan, "compact", 1000), world.tasks, [], b"{}", None, 2)
    assert np.array_equal(np.unique(np.load(out / "tokens.npy")), np.unique(self_cut(world, plan, value)))


def self_cut(world: Tokens, plan: SamplePlan, value: int) -> np.ndarray[Any, Any]:
    """All tokens of the planned rows as uint16, with the changed one."""
    flat = [token for epoch in world.texts(plan) for inst, resp in epoch for token in (*inst, *resp)]
    return np.unique([*flat, value % 65_536]).astype(np.uint16)


def test_tokens_that_are_others_than_planned_are_refused(tmp_path: Path) -> None:
    world = Tokens(tmp_path, ["<u4"], rows=40)
    plan = world.plan()
    laid_out = ArrayLayout(plan, "compact", 1000)
    path = tmp_path / "task0" / "tokens.npy"
    tokens = np.load(path)
    np.save(path, tokens[:-1])
    with pytest.raises(InputError, match=r"tokens.npy: the number of tokens differs from the plan; got \d+; exp"):
        materialize(None, laid_out, world.tasks, [], b"{}", 1000, 2)
    path.unlink()
    with pytest.raises(InputError, match="does not exist"):
        materialize(None, laid_out, world.tasks, [], b"{}", 1000, 2)


def test_a_plan_without_a_row_has_empty_arrays(tmp_path: Path) -> None:
    world = Tokens(tmp_path / "in", ["<u4", "<u4"])
    plan = world.plan(replace(CONFIG, min_resp_length=99))
    for layout, length in (("compact", 0), ("data_io", len(world.tokens[0]))):
        out = tmp_path / layout
        materialize(made_folder(out), ArrayLayout(plan, layout, 1000), world.tasks, [], b"{}", 1000, 2)  # type: ignore[arg-type]
        assert len(np.load(out / "tokens.npy")) == length
        assert made_texts(out, 3) == [[], [], []]


@pytest.mark.parametrize(
    ("vocab", "compact", "data_io"),
    [
        (2, "|u1", "|u1"),
        (256, "|u1", "<u2"),
        (65_536, "<u2", "<i4"),
        (65_537, "<i4", "<i4"),
        (None, "<i4", "<i4"),
        (True, "<i4", "<i4"),
        ("9", "<i4", "<i4"),
    ],
)
def test_ids_take_the_smallest_type(vocab: object, compact: str, data_io: str) -> None:
    assert (token_dtype(vocab, "compact").str, token_dtype(vocab, "data_io").str) == (compact, data_io)


def test_starts_beyond_31_bits_take_eight_bytes(tmp_path: Path) -> None:
    # 2^31 tokens cannot be made in a test; a plan of them can.
    count = 2**31 // 4096
    rows = {
        "inst_start": np.arange(count, dtype=np.int64) * 4096,
        "inst_len": np.full(count, 96, np.int32),
        "resp_start": np.arange(count, dtype=np.int64) * 4096 + 96,
        "resp_len": np.full(count, 4000, np.int32),
    }
    for extra, kind in ((0, np.int64), (-1, np.int32)):
        shorter = {name: PlanArray(values[: count + extra]) for name, values in rows.items()}
        epoch = PlanArray(np.array([0, count - 1 + extra], np.uint32))
        plan = SamplePlan([PlannedDataset("t", count * 4096, count + extra)], shorter, [epoch])
        laid_out = ArrayLayout(plan, "compact", 65_536)
        assert laid_out.dtypes == {
            "inst_start": np.dtype(kind),
            "inst_len": np.dtype(np.int32),
            "resp_start": np.dtype(kind),
            "resp_len": np.dtype(np.int32),
        }
        out = made_folder(tmp_path / str(extra))
        module._epochs(out, laid_out, [0], 2)
        starts = np.load(out.path / "epoch_0" / "resp_start.npy")
        assert starts.dtype == kind
        assert starts.tolist() == [96, (count - 1 + extra) * 4096 + 96]
        assert laid_out.length == (count + extra) * 4096


def test_numbers_take_the_narrowest_type() -> None:
    assert (narrowest(2**31 - 1), narrowest(2**31)) == (np.dtype(np.int32), np.dtype(np.int64))


def test_the_sampler_imports_nothing_heavy() -> None:
    from tests.support.helpers import python

    done = python("-c", "import sys, pairmill.stages.sample.run; print(*sorted(sys.modules))")
    names = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"numpy", "pairmill"} <= names
    assert not names & {
        "pyarrow",
        "datasets",
        "kfp",
        "tokenizers",
        "huggingface_hub",
        "httpx",
        "pandas",
        "multiprocessing",
    }
    assert sys.version_info >= (3, 11)
