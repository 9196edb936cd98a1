"""extend=: a plan that goes on keeps the rows of its parent's epochs, and is what one plan of all epochs would be."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.errors import InputError, UsageError
from pairmill.formats.drawn_rows import DrawnRows
from pairmill.formats.removed_rows import RemovedRows
from pairmill.formats.sample_plan import ancestors
from pairmill.formats.tokens import Dataset
from pairmill.loader import Batch, Loader, RowPlan
from pairmill.loader.folder import SampledFolder
from pairmill.loader.sources import RowSources
from pairmill.rules.rule import Rule
from pairmill.stages.sample import draft
from pairmill.stages.sample.extend import ParentPlan
from pairmill.stages.sample.node.verify import VerifyConfig, verify
from pairmill.stages.sample.preview.command import preview
from pairmill.stages.sample.preview.config import PreviewConfig
from tests.support.data.split_characters import Vocabulary, write
from tests.support.data.tokenized import put_folder
from tests.support.helpers import environment
from tests.support.processes import nursery
from tests.support.processes.crash_points import crashes
from tests.support.processes.kill_points import changes_of, instants, kills
from tests.unit.stages.sample.test_base import Growing, epochs
from tests.unit.stages.sample.test_trainer import Reader

RULES = """
- {prefix: set0, max_per_file: 30, repeat: 2}
- {prefix: set1, max_per_file: 7}
- {prefix: set2, max_response_tokens_per_file: 60, long_context: drop}
- {prefix: new, max_per_file: 4}
- {prefix: long, long_context: split, max_per_file: 9}
"""


class Training(Growing):
    """A project whose training goes on."""

    def __init__(self, folder: Path, rules: str = RULES) -> None:
        super().__init__(folder)
        self.say(rules)

    def say(self, rules: str) -> None:
        (self.folder / "rules.yaml").write_text(rules)

    def extend(self, parent: str, count: int, **options: Any) -> str:
        return self.plan(extend=str(self.home(parent)), epochs=count, **options)

    def add_long(self) -> None:
        """Put tasks of one tokenizer in place of those there are; one has rows that are split."""
        draw = np.random.default_rng(1)
        shutil.rmtree(self.tokenized)

        def row(most: int) -> tuple[list[int], list[int]]:
            return draw.integers(97, 122, 3).tolist(), [*draw.integers(97, 122, draw.integers(2, most)).tolist(), 258]

        tasks = {name: [row(most) for _ in range(40)] for name, most in (("long", 90), ("set1", 9), ("set2", 30))}
        write(self.tokenized, Vocabulary(), tasks)

    def rows(self, plan: str) -> list[list[tuple[Any, ...]]]:
        return epochs(self.loaded(plan))


@pytest.fixture
def world(tmp_path: Path) -> Training:
    return Training(tmp_path)


def digests(folder: Path, **options: Any) -> Iterator[str]:
    """Digest each batch."""
    return map(_digest, Loader(RowPlan(folder), threads=0, **options))


def _digest(batch: Batch) -> str:
    return hashlib.sha256(b"".join(batch.arrays[name].tobytes() for name in sorted(batch.arrays))).hexdigest()


# --- the same as in one go ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["compact", "data_io", "reference"])
@pytest.mark.parametrize("kind", ["short", "long"])
def test_three_epochs_that_become_five_are_five(world: Training, layout: str, kind: str) -> None:
    given: dict[str, Any] = {"layout": layout}
    if kind == "long":
        world.add_long()
        given["context_size"] = 21
    three, five = (world.plan(epochs=count, **given) for count in (3, 5))
    child = world.extend(three, 5, **given)
    assert child != five
    assert world.rows(child) == world.rows(five)
    assert world.rows(child)[:3] == world.rows(three)
    mine, whole = world.manifest(child), world.manifest(five)
    for name in ("stats", "lengths", "cuts", "rules", "analytics", "examples"):
        assert mine.data.get(name) == whole.data.get(name)
    assert mine.shards == whole.shards
    for plan in (five, child):
        world.carry_out(plan, keep=9)
    options: list[dict[str, Any]] = [{"batch_tokens": 256}, {"batch_tokens": 99, "rank": 1, "ranks": 3}]
    for option in options:
        ours = list(digests(world.node / child, **option))
        assert ours == list(digests(world.node / five, **option))
        assert len(ours) > 4


def test_rows_are_numbered_as_the_parent_numbers_them(world: Training) -> None:
    three = world.plan(epochs=3)
    child = world.extend(three, 5)
    before, after = world.loaded(three), world.loaded(child)
    for name, values in before.rows.items():
        assert np.array_equal(after.rows[name].array()[: len(values)], values.array())
    for number in range(3):
        name = f"plan/epoch_{number}.npy"
        assert (world.home(child) / name).read_bytes() == (world.home(three) / name).read_bytes()
    sources = world.manifest(child).data["sources"]
    assert len({source["name"] for source in sources}) == 3 < len(sources)
    assert sum(source["tokens"] for source in sources) == sum(
        int(after.rows[name].array().sum()) for name in ("inst_len", "resp_len")
    )


def test_a_source_that_is_added_comes_from_its_epoch_on_and_others_go_on(world: Training) -> None:
    two = world.plan(epochs=2)
    alone = world.rows(world.plan(epochs=9))
    world.put("new__a")
    world.put("set1__b")
    child = world.extend(two, 9)
    rows = world.rows(child)
    assert rows[:2] == world.rows(two)
    for mine, other in zip(rows, alone, strict=True):
        assert sorted(row for row in mine if row[0] not in ("new__a", "set1__b")) == sorted(other)
    counts = [Counter(row[0] for row in epoch)["new__a"] for epoch in rows]
    assert counts == [0, 0, 4, 4, 4, 4, 4, 4, 4]
    taken = [row for epoch in rows[2:7] for row in epoch if row[0] == "new__a"]
    assert len(set(taken)) == 20  # all of them, before any comes again
    again = world.extend(two, 9, layout="compact", workers=1)
    assert again == child


def test_three_generations_with_other_rules_walk_on(world: Training) -> None:
    two = world.plan(epochs=2)
    world.say(RULES.replace("max_per_file: 7", "max_per_file: 11"))
    world.put("new__a")
    four = world.extend(two, 4)
    world.say(RULES.replace("max_per_file: 7", "max_per_file: 3"))
    world.put("new__b")
    seven = world.extend(four, 7)
    rows = world.rows(seven)
    assert rows[:2] == world.rows(two)
    assert rows[:4] == world.rows(four)
    for name, counts in (("set1__x", [7, 7, 11, 11, 3, 3, 3]), ("new__b", [0, 0, 0, 0, 4, 4, 4])):
        assert [sum(row[0] == name for row in epoch) for epoch in rows] == counts
    walked = [row for epoch in rows for row in epoch if row[0] == "set1__x"]
    assert len(walked) == 45
    assert len(set(walked)) == 45  # of 50: no row came again
    assert [(item.plan, len(item.epochs), item.kept) for item in ancestors(world.manifest(seven))] == [
        (two, 2, 2),
        (four, 4, 4),
    ]
    # The plans before it are not needed.
    for plan in (two, four):
        shutil.rmtree(world.home(plan))
    world.carry_out(seven)
    assert [len(np.load(world.node / seven / f"epoch_{number}" / "inst_len.npy")) for number in range(7)] == [
        len(epoch) for epoch in rows
    ]


def test_unread_epochs_are_drawn_anew_and_old_rows_stay_where_they_are(
    world: Training, caplog: pytest.LogCaptureFixture
) -> None:
    five = world.plan(epochs=5)
    world.say(RULES.replace("max_per_file: 7", "max_per_file: 2"))
    child = world.extend(five, 4, from_epoch=2)
    assert "from 2 on are drawn anew" in caplog.text
    rows, before = world.rows(child), world.rows(five)
    assert rows[:2] == before[:2]
    assert [sum(row[0] == "set1__x" for row in epoch) for epoch in rows] == [7, 7, 2, 2]
    (ancestor,) = ancestors(world.manifest(child))
    assert (len(ancestor.epochs), ancestor.kept) == (5, 2)
    third = world.extend(child, 6)
    assert world.rows(third)[:4] == rows
    assert [item.kept for item in ancestors(world.manifest(third))] == [2, 4]
    for plan in (five, child):
        world.carry_out(plan, keep=9)
    assert (world.node / five / "tokens.npy").samefile(world.node / child / "tokens.npy")


def test_tasks_that_were_added_to_a_base_go_on(world: Training) -> None:
    first = world.plan()
    base = world.add(first, "new__a")
    child = world.extend(base, 4)
    rows = world.rows(child)
    assert rows[:2] == world.rows(base)
    whole = world.rows(world.plan(epochs=4))
    assert [sorted(epoch) for epoch in rows] == [sorted(epoch) for epoch in whole]
    world.carry_out(child)
    with pytest.raises(UsageError, match="leave base= out"):
        world.add(child, "new__b", epochs=4)


def test_rules_that_choose_rows_go_on_with_the_same_choice(world: Training) -> None:
    np.save(world.folder / "chosen.npy", np.arange(0, 50, 3))
    chosen = f"- {{prefix: set1, select_rows: {world.folder}/chosen.npy, max_per_file: 5}}\n"
    world.say(chosen)
    two, four = world.plan(epochs=2), world.plan(epochs=4)
    assert world.rows(world.extend(two, 4)) == world.rows(four)


def test_tasks_that_a_policy_leaves_out_go_on_without_new_rows(world: Training) -> None:
    two = world.plan(epochs=2)
    policy = world.folder / "policy.yaml"
    policy.write_text("clauses:\n- {match: set1*, decision: deny, reason: gdpr, why: asked, date: 2026-01-01}\n")
    child = world.extend(two, 4, policy=str(policy), policy_on="leave_out")
    counts = [sum(row[0] == "set1__x" for row in epoch) for epoch in world.rows(child)]
    assert counts == [7, 7, 0, 0]
    # Allowed again it goes on where it was.
    again = world.rows(world.extend(child, 6))
    walked = [row for epoch in again for row in epoch if row[0] == "set1__x"]
    assert len(walked) == len(set(walked)) == 28


def test_what_rules_expect_is_of_the_epochs_that_they_draw(world: Training) -> None:
    two = world.plan(epochs=2)
    world.put("new__a")
    world.say(RULES.replace("new, max_per_file: 4", "new, max_per_file: 4, expect: {rows: 4..4}"))
    three = world.extend(two, 3)
    world.extend(three, 5)
    world.say(RULES.replace("new, max_per_file: 4", "new, max_per_file: 5, expect: {rows: 4..4}"))
    with pytest.raises(InputError, match="expect"):
        world.extend(three, 5)


def test_removed_rows_stay_in_kept_epochs_and_are_in_no_other(world: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    gone: dict[str, list[int]] = {}

    def removed(tasks: Iterable[Dataset]) -> dict[str, RemovedRows]:
        return {task.name: RemovedRows(task, gone[task.name]) for task in tasks if task.name in gone}

    monkeypatch.setattr(draft, "removed_rows", removed)
    plain = world.rows(world.plan(epochs=6))
    two = world.plan(epochs=2)
    starts = {name: np.load(world.tokenized / name / "resp_start.npy").tolist() for name in ("set0__x", "set1__x")}
    gone["set0__x"] = [1, 2, 30]
    four = world.extend(two, 4)
    gone |= {"set0__x": [1, 2, 7, 30], "set1__x": [*range(20)]}
    six = world.extend(four, 6)
    last = {(name, starts[name][number]) for name, numbers in gone.items() for number in numbers}
    first = {("set0__x", starts["set0__x"][number]) for number in (1, 2, 30)}
    rows = world.rows(six)
    for number, (mine, without) in enumerate(zip(rows, [set(), set(), first, first, last, last], strict=True)):
        assert mine == [row for row in plain[number] if (row[0], row[3]) not in without]
        assert len(mine) < len(plain[number]) or number < 2
    counts = world.manifest(six)
    assert counts.data["stats"]["set1__x"]["cov_rows"] == sum(row[0] == "set1__x" for epoch in rows for row in epoch)
    world.carry_out(six)
    gone.clear()
    assert world.rows(world.extend(six, 7))[:6] == rows


def test_preview_says_what_new_epochs_have(world: Training) -> None:
    world.say(RULES.replace("max_per_file: 30, repeat: 2", "max_per_file: 20, passes_total: 3"))
    before = world.plan(epochs=1)
    three = world.plan(epochs=3, after=f"{world.home(before)}:1")
    world.put("new__a")
    world.say(RULES.replace("max_per_file: 30, repeat: 2", "max_per_file: 25, passes_total: 4"))
    for plan, first, given in ((three, 3, {}), (three, 2, {"from_epoch": 2}), (world.extend(three, 4), 4, {})):
        child = world.extend(plan, 6, **given)
        options = {"extend": str(world.home(plan)), "epochs": 6, "tokenized_path": str(world.tokenized), **given}
        options["prefix_config_path"] = str(world.folder / "rules.yaml")
        made = json.loads(preview(PreviewConfig(**options, format="json")))
        rows = world.rows(child)[first:]
        drawn = Counter(row[0] for epoch in rows for row in epoch)
        expected = {task["name"]: task["rows"] * (6 - first) for task in made["tasks"]}
        assert {name: expected[name] for name in expected if name != "set2__x"} == pytest.approx(
            {name: drawn[name] for name in expected if name != "set2__x"}
        )
        kept = sum(map(len, world.rows(plan)[:first]))
        new = int("new__a" not in {item["name"] for item in world.manifest(plan).data["sources"]})
        assert made["extends"] == {"plan": plan, "epochs": first, "rows": kept, "new_tasks": new}
        assert f"What follows is of epochs {first} to 5 alone; {new} of its tasks are new." in preview(
            PreviewConfig(**options)
        )
    with pytest.raises(UsageError, match="context_size=4097"):
        preview(PreviewConfig(**options, context_size=9))
    for wrong in ({**options, "after": f"{world.home(before)}:1"}, {"from_epoch": 3, "tokenized_path": "x"}, {}):
        with pytest.raises(UsageError, match="extend"):
            PreviewConfig(**wrong)
    (world.folder / "rules.yaml").write_text("- {prefix: set2, long_context: truncate}")
    with pytest.raises(InputError, match="would be cut in another way"):
        preview(PreviewConfig(**options))


# --- on a node ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["compact", "data_io"])
def test_a_folder_of_a_node_is_extended_while_a_training_reads_it(world: Training, layout: str) -> None:
    three = world.plan(epochs=3, layout=layout)
    live = str(world.folder / "live")
    world.sample(plan=three, epochs=10, prefix_config_path="nowhere", output_path=live)
    (digest,) = {SampledFolder(live).digest}
    loader = Loader(RowPlan(live), batch_tokens=128, threads=0)
    expected = list(digests(Path(live), batch_tokens=128))
    batches = iter(loader)
    next(batches)
    inodes = {path.name: path.stat().st_ino for path in Path(live).glob("tokens*.npy")}
    child = world.extend(three, 5, layout=layout)
    world.sample(plan=child, epochs=10, prefix_config_path="nowhere", output_path=live)
    assert sum(1 for _ in batches) == len(expected) - 1
    assert verify(VerifyConfig(path=live)) == f"{live}\n"
    assert list(digests(Path(live), batch_tokens=128))[: len(expected) - 2] == expected[:-2]
    assert inodes.items() <= {path.name: path.stat().st_ino for path in Path(live).glob("tokens*.npy")}.items()
    (ancestor,) = ancestors(world.manifest(child))
    assert ancestor.digest == digest
    assert ancestor.fingerprints[layout] == three
    # In one go it is the same.
    at_once = str(world.folder / "at once")
    world.sample(root="", extend=str(world.home(three)), epochs=5, layout=layout, output_path=at_once)
    assert SampledFolder(at_once).digest == SampledFolder(live).digest
    last = world.extend(child, 6, layout=layout)
    assert ancestors(world.manifest(last))[-1].digest == SampledFolder(live).digest


@pytest.mark.parametrize("layout", ["compact", "data_io"])
def test_a_training_goes_on_in_the_middle_of_an_epoch(world: Training, layout: str) -> None:
    three, five = (world.plan(epochs=count, layout=layout) for count in (3, 5))
    world.carry_out(three)
    loader = Loader(RowPlan(world.node / three), batch_tokens=128, threads=0)
    batches = iter(loader)
    while (state := loader.state_dict())["epoch"] < 1 or state["start_row"] < 20:
        next(batches)
    child = world.extend(three, 5, layout=layout)
    for plan in (child, five):
        world.carry_out(plan, keep=9)
    for options in ({"batch_tokens": 128}, {"batch_tokens": 90, "rank": 1, "ranks": 2}):
        read = [Loader(RowPlan(world.node / plan), threads=0, **options) for plan in (child, five)]
        for one, other in zip(read, (False, True), strict=True):
            one.load_state_dict(json.loads(json.dumps(state)), accept_other_data=other)
        mine, whole = ([_digest(batch) for batch in one] for one in read)
        assert mine == whole
        assert len(mine) > 10


def test_a_reader_after_the_description_of_hrm_texts_has_the_same_rows(world: Training) -> None:
    given: dict[str, Any] = {"layout": "data_io"}
    three, five = (world.plan(epochs=count, **given) for count in (3, 5))
    child = world.extend(three, 5, **given)
    read = {}
    for plan, count in ((three, 3), (five, 5), (child, 5)):
        world.carry_out(plan, keep=9)
        reader = Reader(world.node / plan)
        rows = [[(row["inputs"].tobytes(), row["labels"].tobytes()) for row in reader] for _ in range(count)]
        read[plan] = rows
        ours: list[Counter[bytes]] = [Counter() for _ in rows]
        for batch in Loader(RowPlan(world.node / plan, tail="keep", doc_ids=True), batch_tokens=512, threads=0):
            for number in range(batch.scalars["numseqs"]):
                ours[batch.epoch][batch["inputs"][batch["doc_ids"] == number].tobytes()] += 1
        assert ours == [Counter(inputs for inputs, _ in epoch) for epoch in rows]
    assert read[child] == read[five]
    assert read[child][:3] == read[three]


def test_rows_are_told_by_task_wherever_they_are(world: Training) -> None:
    child = world.extend(world.plan(epochs=2), 4)
    world.carry_out(child)
    rows = world.rows(child)
    folder = SampledFolder(world.node / child)
    sources = RowSources([folder], ["all"])
    places = np.array([(0, number, place) for number, epoch in enumerate(rows) for place in range(len(epoch))])
    found = [sources.names[number] for number in sources.find(places)]
    assert found == [row[0].split("__")[0] for epoch in rows for row in epoch]
    drawn = DrawnRows.of_sample(str(world.home(child)), "held_out", [])
    assert drawn is not None
    for name in ("set0__x", "set1__x", "set2__x"):
        mine = sorted({row[3] for epoch in rows for row in epoch if row[0] == name})
        assert sorted(drawn.rows(name).tolist()) == mine
    assert drawn.tasks == {name: len(drawn.rows(name)) for name in drawn.tasks}


def test_a_run_that_is_killed_leaves_the_parent_and_ends_with_the_same(world: Training) -> None:
    three = world.plan(epochs=3)
    parent = {path.name: path.read_bytes() for path in world.home(three).rglob("*") if path.is_file()}
    count = 0
    for _ in crashes(lambda: world.extend(three, 5), world.root, stride=11):
        count += 1
        assert {path.name: path.read_bytes() for path in world.home(three).rglob("*") if path.is_file()} == parent
        shutil.rmtree(world.root / "sample" / "_shards", ignore_errors=True)
        for path in (world.root / "sample").iterdir():
            if path.name != three and path.is_dir():
                shutil.rmtree(path)
    assert count > 3
    child = world.extend(three, 5)
    assert world.rows(child) == world.rows(world.plan(epochs=5))


def test_a_node_that_is_killed_has_a_whole_folder_at_any_instant(world: Training) -> None:
    three = world.plan(epochs=3)
    child = world.extend(three, 5)
    live = world.folder / "live"
    given = {"prefix_config_path": "nowhere", "epochs": 10, "output_path": str(live)}
    world.sample(plan=three, **given)
    old = SampledFolder(live).digest

    def again(number: int, log: str) -> Any:
        words = [f"tokenized_path={world.tokenized}", f"root={world.root}", f"plan={child}", f"output_path={live}"]
        return nursery.shared().run("pairmill", ["sample", *words], environment(), number, log)

    changes = changes_of(again, world.folder / "log")
    new = SampledFolder(live).digest
    assert new != old
    world.sample(plan=three, **given)
    for _ in kills(again, instants(changes)):
        assert SampledFolder(live).digest in {old, new}
        assert verify(VerifyConfig(path=str(live))) == f"{live}\n"
        world.sample(plan=three, **given)
    world.sample(plan=child, **given)
    assert SampledFolder(live).digest == new


# --- what is refused ------------------------------------------------------------------------------------------------


def test_what_cannot_go_on_is_refused_with_the_reason(world: Training) -> None:
    three = world.plan(epochs=3)
    with pytest.raises(InputError, match=r"extend=.*nowhere.*expected a finished plan of sample"):
        world.sample(tokenized_path="", output_path="", extend=str(world.folder / "nowhere"))
    home = str(world.home(three))
    for options, said in (
        ({"epochs": 3}, r"no epoch is drawn.*got 3; expected more than 3.*epochs=4.*from_epoch=2"),
        ({"epochs": 2}, "no epoch is drawn"),
        ({"epochs": 6, "from_epoch": 4}, r"no such epoch.*has 3 epochs"),
        ({"epochs": 5, "seed": 1}, "seed=0"),
        ({"epochs": 5, "context_size": 9}, "context_size=4097"),
        ({"epochs": 5, "layout": "data_io"}, "layout=compact"),
        ({"epochs": 5, "profile": "data_io"}, "differs from the plan that is extended"),
        ({"epochs": 5, "held_out": True}, "cannot be given with extend"),
        ({"epochs": 5, "base": home}, "cannot be given with extend"),
    ):
        with pytest.raises(UsageError, match=said):
            world.plan(**{"extend": home, **options})
    with pytest.raises(UsageError, match="from_epoch"):
        world.plan(from_epoch=2)
    with pytest.raises(InputError, match="not a plan"):
        world.plan(extend=str(world.folder), epochs=5)
    other = world.plan(epochs=2, profile="data_io", prefix_config_path=_plain(world))
    with pytest.raises(InputError, match="profile=data_io, whose tasks share one stream"):
        world.extend(other, 5, profile="data_io")
    world.say(RULES.replace("long_context: drop", "long_context: truncate"))
    with pytest.raises(InputError, match=r"'set2__x': long_context.*got truncate.*long_context: drop"):
        world.extend(three, 5)
    world.say(RULES)
    info = world.tokenized / "tokenizer_info.json"
    text = info.read_text()
    info.write_text(json.dumps({**json.loads(text), "vocab_size": 501}))
    with pytest.raises(InputError, match="another tokenizer"):
        world.extend(three, 5)
    info.write_text(text)
    (world.tokenized / "set0__x").rename(world.folder / "gone")
    with pytest.raises(
        InputError, match=r"1 tasks of the plan that is extended are not in the tokenized folder.*set0__x"
    ):
        world.extend(three, 5)


def _plain(world: Training) -> str:
    path = world.folder / "plain.yaml"
    path.write_text("[]")
    return str(path)


def test_a_walk_that_took_other_rows_is_refused(world: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    three = world.plan(epochs=3)
    monkeypatch.setattr(ParentPlan, "_rule_before", lambda *_: Rule(max_per_file=8, long_context="drop"))
    with pytest.raises(InputError, match="epoch 0: an epoch of the plan that is extended does not come out as it was"):
        world.extend(three, 5)


def test_a_plan_that_is_drawn_again_is_a_whole_one(world: Training) -> None:
    child = world.extend(world.plan(epochs=2), 4)
    again = world.plan(again=f"{world.home(child)}@7", prefix_config_path="nowhere", epochs=10)
    assert again == world.plan(seed=7, epochs=4)


def test_a_parent_is_enough_and_other_rules_are_told_of(world: Training, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = world.plan(epochs=2)
    with pytest.raises(InputError, match=r"folder of the plan is missing.*if it is elsewhere: tokenized_path="):
        world.extend(elsewhere, 3, tokenized_path="")
    made = put_folder(world.folder / "made", {"set0": 1, "set1": 2}, tokenizer="t")
    fingerprint = json.loads((Path(made) / "_MANIFEST.json").read_bytes())["fingerprint"]
    inside = world.root / "tokenize" / fingerprint
    inside.parent.mkdir(parents=True)
    shutil.copytree(made, inside)
    parent = world.plan(epochs=2, tokenized_path=str(inside))
    child = world.extend(parent, 3, tokenized_path="")
    assert child == world.extend(parent, 3, tokenized_path=str(inside))
    assert "the rules are those of" not in caplog.text
    world.extend(parent, 4, tokenized_path="", prefix_config_path=_plain(world))
    assert "from epoch 2 on the rules are those of" in caplog.text
