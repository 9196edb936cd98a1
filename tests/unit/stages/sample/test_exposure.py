"""What a model has seen: after=, passes_total, compose= and the ledger, each beside a count row by row."""

import json
import random
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from pairmill.errors import Changed, InputError, UsageError
from pairmill.formats.eligible_rows import rows_of
from pairmill.formats.tokens import INDEX
from pairmill.rules.book import Rules
from pairmill.rules.rule import Rule
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.exposure.command import PASSES, exposure
from pairmill.stages.sample.exposure.config import ExposureConfig
from pairmill.stages.sample.exposure.passes import SeenRows
from pairmill.stages.sample.exposure.reading import Reading
from pairmill.stages.sample.exposure.table import CLASSES
from pairmill.stages.sample.look_at import look_at
from pairmill.stages.sample.mapped.command import map_folder
from pairmill.stages.sample.mapped.config import MapConfig
from pairmill.stages.sample.node.plan import SamplePlan
from pairmill.stages.sample.node.verify import VerifyConfig, verify
from pairmill.stages.sample.preview.command import preview
from pairmill.stages.sample.preview.config import PreviewConfig
from tests.support.helpers import contents
from tests.support.processes.crash_points import crashes
from tests.unit.stages.sample.test_base import Growing, epochs

Row = tuple[str, int]
"""The key of a task, and where a response begins."""


class Trained(Growing):
    """A project whose plans are trained on one after another."""

    def rules(self, text: str) -> str:
        path = self.folder / f"rules{len(list(self.folder.glob('rules*')))}.yaml"
        path.write_text(text)
        return str(path)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._keys: dict[str, dict[str, str]] = {}

    def keys(self, plan: str) -> dict[str, str]:
        """Return the keys of the tasks of a plan, by name."""
        if plan not in self._keys:
            self._keys[plan] = {item["name"]: item["key"] for item in self.manifest(plan).data["sources"]}
        return self._keys[plan]

    def rows(self, plan: str) -> list[list[Row]]:
        """By epoch the rows, in their order."""
        keys = self.keys(plan)
        return [[(keys[row[0]], row[3]) for row in epoch] for epoch in epochs(self.loaded(plan))]

    def table(self, plan: str, **options: Any) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = json.loads(
            exposure(ExposureConfig(plan=str(self.home(plan)), format="json", **options))
        )
        return made


@pytest.fixture
def world(tmp_path: Path) -> Trained:
    return Trained(tmp_path)


def read(rows: list[list[Row]], whole: int, more: int) -> Counter[Row]:
    """Count the rows of the first epochs, and the first rows of the next one."""
    some = [*rows[:whole], rows[whole][:more] if more else []]
    return Counter(row for epoch in some for row in epoch)


def test_what_three_plans_show_is_a_count_row_by_row(world: Trained) -> None:
    draw = random.Random("exposure")
    for name in ("a", "b", "c"):
        world.put(name, 30)
    asked = {}
    for number in range(3):
        seen, after, chain = Counter[Row](), "", []
        for generation in range(3):
            # Each plan has other tasks, and its own rules.
            folder = world.folder / f"given_{number}_{generation}"
            shutil.copytree(world.tokenized, folder)
            shutil.rmtree(folder / draw.choice(["a", "b", "c", "set0__x"]))
            (folder / "set1__x").rename(folder / f"set1__{generation}")
            totals = {name: draw.choice([None, None, 2, 4]) for name in ("a", "b", "set0")}
            caps = {name: draw.choice([None, 7, 13, 40]) for name in totals}
            repeats = {name: draw.choice([1, 1, 2]) for name in totals}
            lines = [
                {"prefix": name, "max_per_file": caps[name], "repeat": repeats[name], "passes_total": totals[name]}
                for name in totals
            ]
            asked = {name: (caps[name], repeats[name], totals[name]) for name in totals}
            count = draw.randint(1, 4)
            given = {"tokenized_path": str(folder), "prefix_config_path": world.rules(json.dumps(lines))}
            plan = world.plan(**given, epochs=count, seed=generation, after=after)
            before, rows = Counter(seen), world.rows(plan)
            every = Counter(seen) + read(rows, count, 0)
            manifest = world.manifest(plan)
            for task, key in world.keys(plan).items():
                cap, repeat, total = next(
                    (item for name, item in asked.items() if task.startswith(name)), (None, 1, None)
                )
                starts = np.load(folder / task / "resp_start.npy").tolist()
                here, now = ({start: counts[key, start] for start in starts} for counts in (before, every))
                drawn = [start for start in starts if now[start] > here[start]]
                # Who was seen less comes first, and nobody comes more often than he may.
                assert max((now[start] for start in drawn), default=0) <= min(now.values()) + 1
                assert total is None or all(now[start] <= total for start in drawn)
                room = sum(max(0, total - times) for times in here.values()) if total is not None else 10**9
                wanted = count * repeat * min(len(starts), cap if cap is not None else len(starts))
                assert sum(now.values()) - sum(here.values()) == min(wanted, room)
                enough = sum(total is not None and times >= total for times in here.values())
                assert manifest.shards[task].dropped.get("passes_total", 0) == enough
            if after:
                known = manifest.data["after"]
                assert known["seen"] == sum(before[row] > 0 for row in lengths_of(world, plan, folder))
                assert f"{known['seen']:,} rows of {known['tasks']} tasks were seen before" in look_at(manifest)[0]
            whole = draw.randint(0, count)
            more = draw.randint(0, len(rows[whole])) if whole < count else 0
            chain.append((plan, folder))
            for place in (f"{whole}:{more}", ""):
                compare(world, chain, before + (read(rows, whole, more) if place else read(rows, count, 0)), place)
            seen += read(rows, whole, more)
            after = f"{world.home(plan)}:{whole}:{more}"


def lengths_of(world: Trained, plan: str, folder: Path) -> dict[Row, int]:
    """Return the tokens of each row of the tokenized tasks of a plan, in their order."""
    result: dict[Row, int] = {}
    for name, key in world.keys(plan).items():
        starts, inst, resp = (
            np.load(folder / name / f"{column}.npy").tolist() for column in ("resp_start", "inst_len", "resp_len")
        )
        result |= {(key, start): a + b for start, a, b in zip(starts, inst, resp, strict=True)}
    return result


def compare(world: Trained, chain: list[tuple[str, Path]], seen: Counter[Row], upto: str) -> None:
    """Compare the ledger with a count of rows."""
    plan, folder = chain[-1]
    out = world.folder / "passes"
    lines = world.table(plan, group_by="task", upto=upto, out=str(out), tokenized_path=str(folder))
    every = {row: length for item in chain for row, length in lengths_of(world, *item).items()}
    edges = {name: (int(name.split("–")[0].strip("+")), name) for name in CLASSES}
    for what in ("rows", "tokens"):
        expected = Counter[str]()
        for row, length in every.items():
            expected[max(edge for edge in edges.values() if edge[0] <= seen[row])[1]] += (
                length if what == "tokens" else 1
            )
        assert Counter({name: sum(line[what][name] for line in lines) for name in CLASSES}) == expected
    assert sum(line["passes"] for line in lines) == seen.total()
    passes, first = np.load(out / PASSES), 0
    assert passes.tolist() == [seen[row] for row in lengths_of(world, plan, folder)]
    for line in (out / "tasks.csv").read_text().splitlines()[1:]:
        name, begin, count = line.split(",")
        assert int(begin) == first
        assert len(np.load(folder / name / "resp_start.npy")) == int(count)
        first += int(count)


# --- passes_total ---------------------------------------------------------------------------------------------------


def test_passes_total_holds_in_a_first_plan_too(world: Trained) -> None:
    rules = world.rules("defaults: {passes_total: 3}\nrules:\n- prefix: set0\n  repeat: 2\n")
    plan = world.plan(prefix_config_path=rules, epochs=4)
    assert [len(epoch) for epoch in world.rows(plan)] == [200, 150, 100, 0]
    assert {*read(world.rows(plan), 4, 0).values()} == {3}
    assert world.manifest(plan).shards["set0__x"].dropped == {}
    with pytest.raises(UsageError, match=r"passes_total is too large.*255.*at most 254"):
        world.plan(prefix_config_path=world.rules("- prefix: a\n  passes_total: 255\n"))
    with pytest.raises(UsageError, match="data_io's sampler does not know passes_total"):
        world.plan(prefix_config_path=world.rules("- prefix: a\n  passes_total: 2\n"), profile="data_io")
    assert Rule(passes_total=0).is_off()
    assert "passes_total" not in Rule().to_manifest()
    assert Rule.from_manifest(Rule(passes_total=3).to_manifest()) == Rule(passes_total=3)


def test_a_preview_and_groups_know_what_was_seen(world: Trained) -> None:
    rules = world.rules("- prefix: set0\n  passes_total: 3\n- prefix: set1\n  group: g\n  max_rows: 20\n")
    before = world.plan(prefix_config_path=rules, epochs=2)
    given: dict[str, Any] = {"tokenized_path": str(world.tokenized), "prefix_config_path": rules, "epochs": 2}
    for after, rows in (("", 50), (f"{world.home(before)}:2", 25), (f"{world.home(before)}:1:12", None)):
        shown = json.loads(preview(PreviewConfig(**given, after=after, format="json")))
        plan = world.plan(prefix_config_path=rules, epochs=2, after=after)
        drawn = {name: item["cov_rows"] / 2 for name, item in world.manifest(plan).data["stats"].items()}
        assert {item["name"]: item["rows"] for item in shown["tasks"]} == pytest.approx(drawn)
        assert rows is None or drawn["set0__x"] == rows
        assert not [line for line in look_at(world.manifest(plan)) if "expected" in line]


# --- what is refused ------------------------------------------------------------------------------------------------


def test_what_is_no_place_in_a_plan_is_refused(world: Trained) -> None:
    plan = world.plan()
    home = world.home(plan)
    for given, kind, said in (
        ("nowhere", UsageError, r"not a place in a plan; got nowhere; expected <plan>:<epoch>"),
        (f"{home}:3", UsageError, r"no such epoch; got epoch 3; expected at most epoch 2, row 0"),
        (f"{home}:1:108", UsageError, r"no such row; got 108; expected at most 107, the rows of epoch 1"),
        (f"{home}:2:1", UsageError, r"no such row; got 1; expected epoch 2, row 0"),
        (f"{world.tokenized}:1", InputError, "not a plan of sample"),
    ):
        with pytest.raises(kind, match=said):
            world.plan(after=given)
    for options in ({"base": str(home)}, {"held_out": True}, {"plan": plan}):
        with pytest.raises(UsageError, match="after"):
            world.plan(after=f"{home}:1", **options)
    with pytest.raises(UsageError, match="the reference draws each plan anew"):
        world.plan(after=f"{home}:1", profile="data_io")
    theirs = world.plan(profile="data_io")
    with pytest.raises(InputError, match=r"does not say which rows are whose.*profile=data_io"):
        world.plan(after=f"{world.home(theirs)}:1")
    next_plan = world.plan(after=f"{plan}:1", seed=1)
    again = world.plan(again=f"{world.home(next_plan)}@5", tokenized_path=str(world.tokenized))
    assert world.manifest(again).data["after"] == world.manifest(next_plan).data["after"]
    with pytest.raises(UsageError, match="no tasks can be added"):
        world.add(next_plan, "new__a")
    victim = world.home(plan) / "plan" / "epoch_0.npy"
    victim.chmod(0o644)
    data = bytearray(victim.read_bytes())
    data[200] ^= 1
    victim.write_bytes(data)
    with pytest.raises(Changed, match=r"epoch_0\.npy"):
        world.table(next_plan)
    world.home(plan).rename(world.folder / "away")
    with pytest.raises(InputError, match=rf"plan that this one goes on after is missing.*{plan}"):
        world.table(next_plan)


def test_upto_is_a_saved_state_or_a_place(world: Trained) -> None:
    plan = world.plan()
    state = world.folder / "state.json"
    state.write_text(json.dumps({"format": 1, "epoch": 1, "start_row": 40, "sources": {}}))
    assert world.table(plan, upto=str(state)) == world.table(plan, upto="1:40")
    assert world.table(plan, upto="2") == world.table(plan)
    for text in ("{}", "no JSON", '{"format": 9}'):
        state.write_text(text)
        with pytest.raises(InputError, match="not a saved position of a loader"):
            world.table(plan, upto=str(state))
    text = exposure(ExposureConfig(plan=str(world.home(plan))))
    assert re.search(r"\| all \| [\d,]+ \|", text)
    lines = exposure(ExposureConfig(plan=str(world.home(plan)), format="csv")).splitlines()
    assert lines[0].startswith("Source,Rows 0,Rows 1,Rows 2,Rows 3–4")
    assert len(lines) == 4


def test_pieces_of_a_row_are_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = SeenRows([])
    parts = [(np.array([2, 5, 9, 30]), np.array([1, 3, 2, 200], np.uint8))] * 2
    monkeypatch.setattr(SeenRows, "_of_task", lambda *_: iter(parts))
    # Rows begin at 30, 0, 2 and 8: the second piece of the row at 2 begins at 5.
    assert seen.of_whole_rows("k", np.array([30, 0, 2, 8])).tolist() == [255, 0, 6, 4]
    assert seen.of_rows("k", np.array([2, 3, 5, 9, 31])).tolist() == [2, 0, 6, 4, 0]


def test_rows_that_were_split_count_when_every_piece_was_seen(world: Trained) -> None:
    config = SampleConfig(tokenized_path="x", context_size=4)
    column = np.array([3, 3, 3], np.int64)
    rows = rows_of("t", Rule(), [dict.fromkeys(INDEX, column)], config)
    assert rows.rows_seen(1) == 0
    rows.passes = np.array([0, 1, 2], np.uint8)
    assert [rows.rows_seen(least) for least in (1, 2, 3)] == [2, 1, 0]
    rows.origins = np.array([4, 4, 7], np.uint32)
    assert [rows.rows_seen(least) for least in (0, 1, 2)] == [2, 1, 1]


# --- compose= -------------------------------------------------------------------------------------------------------


def compose(world: Trained, *parts: str, **options: Any) -> str:
    given: dict[str, Any] = {"tokenized_path": "", "prefix_config_path": "nowhere", "epochs": 10}
    return world.plan(compose=[*parts], **{**given, **options})


def test_an_epoch_of_parts_has_their_rows_in_a_new_order(world: Trained) -> None:
    root = {"tokenized_path": str(world.tokenized)}
    first = world.plan(epochs=3)
    world.put("new__a")
    world.put("new__b")
    rules = world.rules("- prefix: set1\n  max_per_file: 5\n  repeat: 30\n- prefix: set0\n  skip: true\n")
    second = world.plan(prefix_config_path=rules, seed=4)
    parts = [f"{world.home(first)}:2", f"{second}:0"]
    plan = compose(world, *parts, **root)
    (rows,) = world.rows(plan)
    old, new = world.rows(first)[2], world.rows(second)[0]
    assert Counter(rows) == Counter(old) + Counter(new)
    assert sum(rows.count(row) > 2 for row in set(rows)) > 2
    # Old and new rows are mixed, and each in another order.
    where = [number for number, row in enumerate(rows) if row in {*new} - {*old}]
    assert where != sorted(where)[:1]
    assert np.mean(where) == pytest.approx(len(rows) / 2, rel=0.3)
    assert [row for row in rows if row in {*old} - {*new}] != [row for row in old if row in {*old} - {*new}]
    other = compose(world, *parts, **root, seed=1)
    assert Counter(world.rows(other)[0]) == Counter(rows)
    assert world.rows(other)[0] != rows
    manifest = world.manifest(plan)
    assert manifest.ledger.rows_in == 190
    assert [item["rows"] for item in manifest.data["composed"]] == [len(old), len(new)]
    assert look_at(manifest) == [
        f"Put together of epoch 2 of {first} ({len(old)} rows) and epoch 0 of {second} ({len(new)} rows)."
    ]
    # The plan is whole: it is carried out, and read, without its parts; and a training may go on after it.
    for part in (first, second):
        shutil.rmtree(world.home(part))
    world.carry_out(plan)
    assert verify(VerifyConfig(path=str(world.node / plan)))
    assert sum(line["passes"] for line in world.table(plan)) == len(rows)
    with pytest.raises(UsageError, match="put together of others"):
        world.plan(again=f"{world.home(plan)}@3")
    after = world.plan(after=f"{plan}:1")
    assert world.manifest(after).data["after"]["seen"] == len(set(rows))


def test_parts_of_two_folders_make_a_union_of_them(world: Trained) -> None:
    tokens = world.folder / "new"
    tokens.mkdir()
    first = world.plan()
    (world.tokenized / "set2__x").rename(tokens / "set9__x")
    shutil.copy(world.tokenized / "tokenizer_info.json", tokens)
    (world.tokenized / "set1__x").rename(world.folder / "set1__x")
    second = world.plan(tokenized_path=str(tokens))
    with pytest.raises(InputError, match=r"2 tasks of the plans are not in the tokenized folder.*set"):
        compose(world, f"{first}:0", f"{second}:1", tokenized_path=str(world.tokenized))
    (world.folder / "set1__x").rename(world.tokenized / "set1__x")
    both = f"{world.tokenized},{tokens}"
    plan = compose(world, f"{first}:0", f"{second}:1", tokenized_path=both, after=f"{first}:2")
    assert Counter(world.rows(plan)[0]) == Counter(world.rows(first)[0]) + Counter(world.rows(second)[1])
    assert world.manifest(plan).data["after"]["plan"] == first
    assert sum(line["passes"] for line in world.table(plan)) == len(world.rows(plan)[0]) + 2 * 107
    for given, kind, said in (
        ([f"{first}:2"], UsageError, r"not an epoch of the plan.*from 0 to 1"),
        ([f"{first}:1:5"], UsageError, "not an epoch of the plan"),
        (
            [f"{first}:0", f"{world.plan(context_size=12, tokenized_path=str(tokens))}:0"],
            UsageError,
            "differ in context_size",
        ),
    ):
        with pytest.raises(kind, match=said):
            compose(world, *given, tokenized_path=both)
    dropped = world.plan(
        tokenized_path=str(tokens), prefix_config_path=world.rules("- prefix: set\n  max_per_file: 3\n")
    )
    assert len(world.rows(compose(world, f"{dropped}:0", f"{dropped}:1", tokenized_path=str(tokens)))[0]) == 6


def test_parts_that_cut_rows_in_other_ways_are_refused(world: Trained) -> None:
    cut = world.plan(context_size=9)
    world.put("more")
    dropped = world.plan(context_size=9, prefix_config_path=world.rules("- prefix: set\n  long_context: drop\n"))
    assert len(world.rows(compose(world, f"{cut}:0", f"{cut}:1", tokenized_path=str(world.tokenized)))[0]) > 50
    with pytest.raises(InputError, match=r"do not cut the rows of a task in the same way.*long_context: drop"):
        compose(world, f"{dropped}:0", f"{cut}:0", tokenized_path=str(world.tokenized))


@pytest.mark.parametrize("what", ["after", "compose"])
def test_a_run_that_is_killed_leaves_what_it_reads(world: Trained, what: str) -> None:
    before = world.plan()
    kept = contents(world.home(before))
    options: dict[str, Any] = (
        {"after": f"{before}:1:7"} if what == "after" else {"compose": [f"{before}:0", f"{before}:1"]}
    )
    made = world.plan(**options)
    expected = contents(world.home(made))
    shutil.rmtree(world.home(made))
    instants = 0
    for _ in crashes(lambda: world.plan(**options), world.root, stride=7):
        instants += 1
        assert contents(world.home(before)) == kept
        assert not (world.home(made) / "_MANIFEST.json").exists() or contents(world.home(made)) == expected
        shutil.rmtree(world.home(made), ignore_errors=True)
    assert instants > 3
    assert world.plan(**options) == made
    assert contents(world.home(made)) == expected


# --- map ------------------------------------------------------------------------------------------------------------


def test_a_folder_of_data_io_gets_its_map(world: Trained) -> None:
    theirs = world.folder / "theirs"
    given = {"profile": "data_io", "root": "", "output_path": str(theirs), "epochs": 3}
    result = world.sample(**given).manifest
    assert result is not None
    (theirs / "_MANIFEST.json").unlink()
    with pytest.raises(UsageError, match=r"does not say which tokens are whose.*tokenized_path="):
        map_folder(MapConfig(path=str(theirs)))
    rules = str(world.folder / "rules.yaml")
    text = map_folder(MapConfig(path=str(theirs), tokenized_path=str(world.tokenized), prefix_config_path=rules))
    assert "| set0 | 1 | 505 | 150 | 46.73 % |" in text
    lines = pq.read_table(theirs / "tasks.parquet").to_pylist()
    ends = np.cumsum([len(np.load(world.tokenized / f"set{number}__x" / "tokens.npy")) for number in range(3)])
    assert [line["last_offset"] + 1 for line in lines] == ends.tolist()
    assert [line["first_offset"] for line in lines] == [0, *ends[:-1].tolist()]
    assert [line["rule"] for line in lines] == ["", "set1", ""]
    assert [line["rows"] for line in lines] == [150, 21, 150]
    # Epochs need not begin at 0.
    shutil.rmtree(theirs / "epoch_0")
    assert "Rows of epochs 1, 2." in map_folder(MapConfig(path=str(theirs), tokenized_path=str(world.tokenized)))
    # Other names, or another folder.
    (world.tokenized / "set0__x").rename(world.tokenized / "set9__x")
    with pytest.raises(
        InputError, match=r"token 0: the folder was not sampled from these.*as set1__x has from token 0 on"
    ):
        map_folder(MapConfig(path=str(theirs), tokenized_path=str(world.tokenized)))
    shutil.rmtree(world.tokenized / "set9__x")
    with pytest.raises(
        InputError, match=r"was not sampled from these tasks.*expected 1,016, the tokens of the 2 tasks"
    ):
        map_folder(MapConfig(path=str(theirs), tokenized_path=str(world.tokenized)))


@pytest.mark.parametrize("layout", ["compact", "data_io", "reference"])
def test_a_folder_of_ours_has_its_map_in_its_manifest(world: Trained, layout: str) -> None:
    plan = world.plan(layout=layout)
    world.carry_out(plan)
    folder = world.node / plan
    out = world.folder / "map.parquet"
    map_folder(MapConfig(path=str(world.node), out=str(out)))
    rows = {name: item["cov_rows"] for name, item in world.manifest(plan).data["stats"].items()}
    lines = pq.read_table(out).to_pylist()
    assert {line["task"]: line["rows"] for line in lines} == rows
    assert [line["rule"] for line in lines if line["task"] == "set1__x"] == ["set1"]
    for number in range(2):
        starts = np.load(folder / f"epoch_{number}" / "resp_start.npy")
        ends = [line["last_offset"] for line in lines]
        drawn = Counter(lines[place]["task"] for place in np.searchsorted(ends, starts).tolist())
        assert drawn == {name: count / 2 for name, count in rows.items()}
    assert verify(VerifyConfig(path=str(folder)))


def test_a_stored_plan_is_read_in_pieces(world: Trained) -> None:
    base = world.plan()
    plan = world.add(world.add(base, "new__a"), "new__b")
    manifest = world.manifest(plan)
    held = SamplePlan.load(str(world.home(plan)), manifest, 1)
    stored = SamplePlan.load(Reading.open(str(world.home(plan)), None, 0, "plan").uri, manifest, 1, stored=True)
    for name in INDEX:
        whole = held.rows[name].array()
        for first, stop in ((0, 0), (0, len(whole)), (100, 120), (170, 190), (3, 171)):
            assert np.array_equal(stored.rows[name].part(first, stop), whole[first:stop])
    assert sum(line["passes"] for line in world.table(plan)) == sum(map(len, held.epochs))
    assert Rules.from_items([{"prefix": "a", "passes_total": 2}], "pairmill", "x").match("a")[0].passes_total == 2


def test_a_plan_after_another_is_extended(world: Trained) -> None:
    before = world.plan(epochs=2)
    rules = world.rules("- prefix: set0\n  passes_total: 5\n- prefix: set1\n  max_per_file: 7\n")
    given = {"prefix_config_path": rules, "seed": 5}
    plan = world.plan(after=f"{before}:1:60", epochs=2, **given)
    longer = world.plan(extend=str(world.home(plan)), epochs=5, **given)
    whole = world.plan(after=f"{before}:1:60", epochs=5, **given)
    assert world.rows(longer)[:2] == world.rows(plan)
    assert [Counter(epoch) for epoch in world.rows(longer)] == [Counter(epoch) for epoch in world.rows(whole)]
    assert world.manifest(longer).data["after"] == world.manifest(whole).data["after"]
    assert world.table(longer) == world.table(whole)
