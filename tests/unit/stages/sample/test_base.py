"""base=: a plan that adds tasks to another keeps what the base has, and its order is as random as one drawn at once."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill._native import added_places
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.formats.drawn_rows import DrawnRows
from pairmill.formats.eligible_rows import rows_of
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.formats.tokens import INDEX
from pairmill.loader import Loader, RowPlan
from pairmill.loader.folder import SampledFolder
from pairmill.rules.rule import Rule
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draw import DatasetToDraw, draw_plan
from pairmill.stages.sample.node.plan import SamplePlan
from pairmill.stages.sample.node.plan_arrays import JoinedArray, MergedArray, PlanArray, Values
from pairmill.stages.sample.node.verify import VerifyConfig, verify
from pairmill.stages.sample.wants import Wants
from tests.support.data.tokenized import put_folder
from tests.support.helpers import contents, draws, writable
from tests.unit.stages.sample.node.test_node import World


class Growing(World):
    """A project to which tasks are added."""

    def put(self, name: str, rows: int = 20) -> None:
        """Add a task whose content follows from its name."""
        path = self.tokenized / name
        path.mkdir()
        draw = np.random.default_rng([*name.encode()])
        inst, resp = draw.integers(2, 9, rows), draw.integers(2, 9, rows)
        ends = np.cumsum(inst + resp)
        for column, values in zip(INDEX, (ends - inst - resp, inst, ends - resp, resp), strict=True):
            np.save(path / f"{column}.npy", values.astype(np.uint64))
        np.save(path / "tokens.npy", draw.integers(0, 500, int(ends[-1]), dtype=np.uint32))

    def home(self, plan: str) -> Path:
        return self.root / "sample" / plan

    def add(self, base: str, *names: str, **options: Any) -> str:
        for name in names:
            self.put(name)
        return self.plan(base=str(self.home(base)), **options)

    def manifest(self, plan: str) -> manifests.Manifest:
        return manifests.Manifest.load((self.home(plan) / "_MANIFEST.json").read_bytes(), plan)

    def loaded(self, plan: str) -> SamplePlan:
        return SamplePlan.load(str(self.home(plan)), self.manifest(plan), 2)


@pytest.fixture
def world(tmp_path: Path) -> Growing:
    return Growing(tmp_path)


def epochs(plan: SamplePlan) -> list[list[tuple[Any, ...]]]:
    """By epoch the rows in their order: the name of the task, and the columns."""
    names = np.repeat([item.name for item in plan.datasets], [item.rows for item in plan.datasets]).tolist()
    columns = [np.concatenate([*plan.rows[name].pieces(7)]).tolist() for name in INDEX]
    rows = list(zip(names, *columns, strict=True))
    return [[rows[place] for piece in epoch.pieces(5) for place in piece.tolist()] for epoch in plan.epochs]


def texts(folder: Path) -> list[list[tuple[bytes, bytes]]]:
    """By epoch the tokens of the rows, in their order."""
    files = [folder / "tokens.npy"]
    if (folder / "token_files.json").exists():
        files = [folder / file["path"] for file in json.loads((folder / "token_files.json").read_bytes())["files"]]
    tokens = np.concatenate([np.load(file) for file in files]).astype(np.uint32)
    result = []
    for number in range(2):
        columns = [np.load(folder / f"epoch_{number}" / f"{name}.npy").tolist() for name in INDEX]
        rows = zip(*columns, strict=True)
        result.append([(tokens[a : a + b].tobytes(), tokens[c : c + d].tobytes()) for a, b, c, d in rows])
    return result


def test_tasks_of_the_base_keep_their_rows_and_added_ones_have_those_of_any_plan(world: Growing) -> None:
    base = world.plan()
    first = world.add(base, "new__a", "set1__more")
    second = world.add(first, "new__b")
    plans = [epochs(world.loaded(plan)) for plan in (base, first, second)]
    for before, after in pairwise(plans):
        for one, other in zip(before, after, strict=True):
            old = {row[0] for row in one}
            assert [row for row in other if row[0] in old] == one
    # Whole plans of the same folder, in another order.
    for plan, tasks in ((second, 6), (first, 5)):
        if plan == first:
            (world.tokenized / "new__b").rename(world.folder / "gone")
        whole = world.plan()
        ours, theirs = epochs(world.loaded(plan)), epochs(world.loaded(whole))
        assert [sorted(rows) for rows in ours] == [sorted(rows) for rows in theirs]
        assert len({row[0] for row in ours[0]}) == tasks
        mine, other = world.manifest(plan), world.manifest(whole)
        for name in ("stats", "lengths", "cuts", "rules", "prefixes"):
            assert mine.data[name] == other.data[name]
        # Headers of files of tokens, and their list.
        more = 128 * (len(world.loaded(plan).parts) - 1)
        more += next(file["size"] for file in mine.data["sample"] if file["path"] == "token_files.json")
        other.ledger.measures["bytes"] += more
        assert (vars(mine.ledger), mine.shards) == (vars(other.ledger), other.shards)
    assert sum(file.size for file in world.manifest(second).files if file.path.startswith("plan/")) < 4000


@pytest.mark.parametrize("depth", [1, 2])
def test_a_node_links_the_tokens_of_the_base(world: Growing, depth: int) -> None:
    base = world.plan()
    world.carry_out(base)
    plan = base
    for number in range(depth):
        plan = world.add(plan, f"new__{number}")
    made = world.carry_out(plan, keep=9)
    assert not made.reused
    assert world.carry_out(plan, keep=9).reused
    folder = world.node / plan
    assert (folder / "tokens.npy").samefile(world.node / base / "tokens.npy")
    assert {path.name for path in folder.glob("tokens*")} == {
        "tokens.npy",
        *(f"tokens_{number + 1}.npy" for number in range(depth)),
    }
    assert verify(VerifyConfig(path=str(folder))) == f"{folder}\n"
    whole = world.node / str(world.carry_out(plan, layout="data_io", keep=9).parameters["fingerprint"])
    assert not (whole / "token_files.json").exists()
    assert texts(folder) == texts(whole)
    opened = SampledFolder(folder)
    assert opened.token_count == sum(len(np.load(path)) for path in folder.glob("tokens*.npy"))
    batches = []
    for path in (folder, whole):
        loader = Loader(RowPlan(path), batch_tokens=256, threads=0)
        batches.append([{name: array.copy() for name, array in batch.arrays.items()} for batch in loader])
    assert len(batches[0]) > 3
    for one, other in zip(*batches, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    # Elsewhere nothing can be linked; the files are the same.
    alone = world.sample(plan=plan, epochs=10, prefix_config_path="nowhere", output_path=str(world.folder / "alone"))
    assert not alone.reused
    mine, other = contents(folder), contents(world.folder / "alone")
    mine.pop("_NODE.json")
    assert mine == other


def test_a_sample_in_one_go_is_the_plan_carried_out(world: Growing) -> None:
    base = world.plan()
    world.put("new__a")
    given = {"base": str(world.home(base)), "output_path": str(world.folder / "one")}
    one_go = world.sample(root="", **given)
    plan = world.plan(base=given["base"])
    assert one_go.parameters["fingerprint"] == plan
    world.carry_out(plan)
    mine, other = contents(world.node / plan), contents(world.folder / "one")
    assert mine.pop("_NODE.json")
    assert mine == other
    both = world.sample(base=given["base"], root=str(world.root), output_path=str(world.folder / "both"), verify=True)
    assert both.parameters["fingerprint"] == plan
    assert contents(world.folder / "both") == other


def test_a_plan_that_is_written_at_once_names_the_same_files(world: Growing) -> None:
    base = world.plan()
    plan = world.add(base, "new__a")
    expected = contents(world.home(plan))
    other = world.folder / "other"
    shutil.copytree(world.home(base), other / "sample" / base)
    again = {"base": str(other / "sample" / base), "root": str(other)}
    world.sample(**again, output_path=str(world.folder / "at once"))
    assert contents(other / "sample" / plan) == expected


@pytest.mark.parametrize("layout", ["reference", "compact"])
def test_nothing_of_the_base_is_read(tmp_path: Path, layout: str) -> None:
    world = Growing(tmp_path)
    old = put_folder(tmp_path / "old", {"a": 1, "b": 2}, rows=30, tokenizer="1" * 16)
    put_folder(tmp_path / "new", {"c": 3}, rows=30, tokenizer="1" * 16)
    given: dict[str, Any] = {"layout": layout}
    base = world.plan(tokenized_path=old, **given)
    (tmp_path / "old").rename(tmp_path / "away")
    (tmp_path / "old").mkdir()
    for path in (tmp_path / "away").glob("*.json"):
        (tmp_path / "old" / path.name).write_bytes(path.read_bytes())
    both = f"old={old},new={tmp_path}/new"
    plan = world.plan(tokenized_path=both, base=str(world.home(base)), **given)
    planned = {file["path"] for file in world.manifest(plan).data["sample"]}
    written = set() if layout == "reference" else {"tokens.npy", "tokens_1.npy"}
    assert planned == {"metadata.json", "token_files.json", *written}
    if layout == "compact":
        world.carry_out(base, tokenized_path=str(tmp_path / "away"))
        made = world.carry_out(plan, tokenized_path=both, keep=9)
        assert not made.reused
        return
    world.carry_out(plan, tokenized_path=both)
    with pytest.raises(InputError, match=r"are not there"):
        SampledFolder(world.node / plan)
    (tmp_path / "old").rename(tmp_path / "empty")
    (tmp_path / "away").rename(tmp_path / "old")
    assert SampledFolder(world.node / plan).token_count > 0


def test_merged_arrays_are_read_in_pieces_of_any_size() -> None:
    draw = np.random.default_rng(0)
    for rows, added in ((0, 3), (5, 0), (300, 7), (7, 300), (100, 100)):
        base, new = draw.permutation(rows).astype(np.uint32), draw.permutation(added).astype(np.uint32)
        places = np.sort(draw.permutation(rows + added)[:added]).astype(np.uint32)
        expected = np.zeros(rows + added, np.uint32)
        others = np.setdiff1d(np.arange(rows + added), places)
        expected[places], expected[others] = new + rows, base
        merged = MergedArray(PlanArray(base), PlanArray(new), PlanArray(places), rows)
        joined = JoinedArray(PlanArray(base.astype(np.int32)), PlanArray(new.astype(np.int64)))
        for size in (1, 3, 64, 1000):
            pieces = [*merged.pieces(size)]
            assert np.array_equal(np.concatenate([np.empty(0), *pieces]), expected)
            assert [len(piece) for piece in pieces[:-1]] == [size] * (len(pieces) - 1)
            both = [*joined.pieces(size)]
            assert {piece.dtype for piece in both} == {np.dtype(np.int64)}
            assert [len(piece) for piece in both] == [len(piece) for piece in pieces]
            assert np.array_equal(np.concatenate(both), np.concatenate([base, new]))


def test_all_orders_of_merged_epochs_are_equally_frequent(world: Growing) -> None:
    count = draws(9600)
    config = SampleConfig(tokenized_path=str(world.tokenized), epochs=count)
    for name in ("a", "b", "c"):
        world.put(name, 2 if name == "b" else 1)
    tasks = [task for task in open_tokenized(config.tokenized_path, "tokenized_path").tasks if len(task.name) == 1]
    plans = []
    for bases, task in enumerate(tasks):
        rows = partial(rows_of, task.name, Rule(), [*task.index()], config)
        wants = partial(Wants.by_rule, Rule(), config.seed, f"task\0{task.key}")
        plans.append(draw_plan([DatasetToDraw(task.name, Rule(), rows, wants)], config, 1, None, bases).plan)
    orders = Counter[tuple[int, ...]]()
    for number in range(count):
        merged: Values = plans[0].epochs[number]
        for bases, plan in enumerate(plans[1:], 1):
            added = plan.epochs[number]
            total = len(merged) + len(added)
            places = PlanArray(added_places("0", bases, number, len(added), total))
            merged = MergedArray(merged, added, places, len(merged))
        orders[tuple(merged.array().tolist())] += 1
    assert len(orders) == 24
    each = count / 24
    chi = sum((times - each) ** 2 / each for times in orders.values())
    assert chi < 52, chi  # of 23 degrees of freedom: 5e-4


def test_rows_of_base_and_of_what_is_added_are_told_apart(world: Growing) -> None:
    base = world.plan()
    plan = world.add(base, "new__a")
    drawn = DrawnRows.of_sample(str(world.home(plan)), "held_out", [])
    whole = DrawnRows.of_sample(str(world.home(world.plan())), "held_out", [])
    assert drawn is not None
    assert whole is not None
    for task in drawn.tasks:
        assert np.array_equal(drawn.rows(task), whole.rows(task))


# --- what is refused ------------------------------------------------------------------------------------------------


def test_a_renamed_task_is_the_same_and_twins_keep_their_rows(world: Growing) -> None:
    (world.folder / "rules.yaml").write_text("[]")
    world.put("set1__twin")
    base = world.plan()
    before = epochs(world.loaded(base))
    (world.tokenized / "set0__x").rename(world.tokenized / "other__x")
    shutil.copytree(world.tokenized / "set1__twin", world.tokenized / "a__twin")
    plan = world.plan(base=str(world.home(base)))
    after = epochs(world.loaded(plan))
    called = {"set0__x": "other__x"}
    for one, other in zip(before, after, strict=True):
        kept = [(called.get(name, name), *row) for name, *row in one]
        assert [row for row in other if row[0] != "a__twin"] == kept
        assert sum(row[0] == "a__twin" for row in other) == 20
    whole = world.manifest(world.plan())
    assert {item["name"] for item in whole.data["sources"]} == {
        item["name"] for item in world.manifest(plan).data["sources"]
    }


def test_what_changes_tasks_of_the_base_is_refused(world: Growing) -> None:
    base = world.plan()
    home = str(world.home(base))
    with pytest.raises(UsageError, match="no task to add"):
        world.plan(base=home)
    world.put("new__a")
    for options, said in (
        ({"seed": 1}, r"seed.*differs from the base.*write|seed=0"),
        ({"context_size": 9}, "context_size=4097"),
        ({"layout": "reference"}, "layout=compact"),
        ({"profile": "data_io"}, "differs from the base"),
        ({"held_out": True}, "cannot be given with base"),
        ({"root": str(world.folder / "elsewhere")}, f"root={world.root}"),
    ):
        with pytest.raises(UsageError, match=said):
            world.plan(base=home, **options)
    with pytest.raises(InputError, match="not a plan"):
        world.plan(base=str(world.folder))
    (world.folder / "rules.yaml").write_text("- prefix: set1\n  max_per_file: 8\n")
    with pytest.raises(InputError, match=r"the rules give 1 tasks of the base other rows.*set1__x") as caught:
        world.plan(base=home)
    assert '"max_per_file": 7' in str(caught.value)
    (world.folder / "rules.yaml").write_text("- prefix: new\n  max_per_file: 2\n- prefix: set1\n  max_per_file: 7\n")
    assert world.plan(base=home)
    changed = world.tokenized / "set2__x" / "tokens.npy"
    np.save(changed, np.load(changed)[::-1])
    (world.tokenized / "set0__x").rename(world.folder / "gone")
    with pytest.raises(InputError, match="2 tasks of the base are not in the tokenized folder") as caught:
        world.plan(base=home)
    assert "set0__x" in str(caught.value)
    assert "set2__x" in str(caught.value)


def test_a_plan_without_its_base_is_refused_with_what_is_missing(world: Growing) -> None:
    base = world.plan()
    plan = world.add(base, "new__a")
    world.home(base).rename(world.folder / "away")
    with pytest.raises(InputError, match=rf"{base}"):
        world.carry_out(plan)
    (world.folder / "away").rename(world.home(base))
    victim = writable(world.home(base) / "plan" / "epoch_1.npy")
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.raises(InputError, match="missing or changed"):
        world.carry_out(plan)


def test_such_a_plan_is_drawn_again_as_a_whole(world: Growing) -> None:
    plan = world.add(world.plan(), "new__a")
    again = world.plan(again=f"{world.home(plan)}@7", prefix_config_path="nowhere", epochs=10)
    assert again == world.plan(seed=7)
    assert not world.loaded(again).parts


KILLED = """
import os, signal, sys
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.node import materialize, plan_arrays
from pairmill.stages.sample.run import run
what, left, *options = sys.argv[1:]
place, name = {"plan": (plan_arrays.PlanArray, "save"), "node": (materialize, "list_parts")}[what]
real, left = getattr(place, name), [int(left)]
def killed(*args, **given):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **given)
setattr(place, name, killed)
options = dict(option.split("=", 1) for option in options)
run(SampleConfig(**{name: int(value) if value.isdecimal() else value for name, value in options.items()}))
"""


def test_a_run_that_is_killed_loses_nothing(world: Growing) -> None:
    base = world.plan()
    world.carry_out(base)
    world.put("new__a")
    given = {"tokenized_path": world.tokenized, "root": world.root, "epochs": 2}
    rules = {"prefix_config_path": world.folder / "rules.yaml", "base": world.home(base)}

    def kill(what: str, after: int, **options: object) -> None:
        words = [f"{name}={value}" for name, value in {**given, **options}.items()]
        done = subprocess.run([sys.executable, "-c", KILLED, what, str(after), *words], check=False)
        assert done.returncode == -signal.SIGKILL

    for after in (0, 5, 7):
        kill("plan", after, output_path="", **rules)
    plan = world.plan(base=str(world.home(base)))
    names = {path.name for path in (world.home(plan) / "plan").iterdir()}
    assert names == {f"{name}.npy" for name in (*INDEX, "epoch_0", "epoch_1", "places_0", "places_1")}
    given["epochs"] = 10  # as the plan says
    kill("node", 0, plan=world.home(plan), output_path=f"{world.node}/{{fingerprint}}", keep=9)
    assert verify(VerifyConfig(path=str(world.node / base)))
    made = world.carry_out(plan, keep=9)
    assert not made.reused
    assert (world.node / plan / "tokens.npy").samefile(world.node / base / "tokens.npy")
    assert world.here() == {base, plan, "PLAN"}


@pytest.mark.parametrize("layout", ["compact", "reference"])
def test_added_tasks_may_have_no_row(world: Growing, layout: str) -> None:
    base = world.plan(layout=layout)
    (world.folder / "rules.yaml").write_text("- prefix: new\n  max_per_file: 0\n- prefix: set1\n  max_per_file: 7\n")
    plan = world.add(base, "new__a", layout=layout)
    assert epochs(world.loaded(plan)) == epochs(world.loaded(base))
    world.carry_out(plan)
    world.carry_out(base, keep=9)
    lengths = [SampledFolder(world.node / name).surveys for name in (plan, base)]
    assert lengths[0] == lengths[1]
