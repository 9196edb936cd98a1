"""Which rows of a task are drawn: chosen ones, classes by length, and rows that stay together."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine.content import Content
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.formats.attributes import path_of
from pairmill.formats.tokens import DTYPES, Dataset
from pairmill.mixture.members import Eligible, RowChoice, Selection, open_choices
from pairmill.rules.book import Rules
from pairmill.rules.rule import Part


@dataclass(frozen=True)
class Options:
    context_size: int = 64
    min_resp_length: int = 2
    profile: Any = "pairmill"


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def task(folder: Path, lengths: list[int], name: str = "a", ordinals: list[int] | None = None) -> Dataset:
    """A task whose prompts have two tokens."""
    resp = np.array(lengths)
    starts = np.cumsum(resp + 2) - resp - 2
    columns = (np.zeros(int((resp + 2).sum())), starts, np.full(len(resp), 2), starts + 2, resp)
    (folder / name).mkdir(parents=True)
    for (array, dtype), values in zip(DTYPES.items(), columns, strict=True):
        np.save(folder / name / f"{array}.npy", values.astype(dtype))
    if ordinals is not None:
        np.save(folder / name / "rows.npy", np.array(ordinals, np.int64))
    paths = {path.stem: path for path in (folder / name).iterdir()}
    return Dataset(name, str(folder / name), {array: Content(sha256(path)) for array, path in paths.items()})


def choice(of: Dataset, beside: dict[str, InputFile] | None = None, chosen: Any = None, **keys: Any) -> RowChoice:
    """What a rule says of its rows."""
    (clause,) = Rules.from_items([{"prefix": "a", **keys}], "pairmill", "rules.yaml").clauses
    chosen = None if chosen is None else np.array(chosen, np.uint32)
    return RowChoice(of, clause, Options(), chosen, beside)


def attribute(path: Path, column: str, values: list[Any]) -> InputFile:
    """A file with one attribute."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({column: values}), path)
    return InputFile(str(path), "", path.stat().st_size, "")


def test_chosen_rows_are_those_that_may_be_sampled_too(tmp_path: Path) -> None:
    of = task(tmp_path, [5, 1, 7, 90, 9])
    rows = choice(of, chosen=[1, 2, 3], select_rows="x.npy").read()
    assert rows.numbers.tolist() == [2, 3]
    assert rows.resp_len.tolist() == [7, 62]
    assert rows.sums() == (2, 4, 69, 81 + 64**2, 49 + 62**2)
    assert choice(of).read().numbers.tolist() == [0, 2, 3, 4]


def test_a_chosen_row_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has not") as caught:
        choice(task(tmp_path, [5, 6]), chosen=[0, 2], select_rows="x.npy").read()
    assert "row 2" in caught.value.got


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([3, 1], "do not ascend"),
        ([1, 1], "do not ascend"),
        ([0.5], "not numbers of rows"),
        ([-1, 2], "not numbers of rows"),
        ([[1]], "not numbers of rows"),
        ([1 << 32], "not numbers of rows"),
    ],
)
def test_numbers_of_rows_ascend(tmp_path: Path, values: Any, message: str) -> None:
    of = task(tmp_path, [5, 6, 7, 8])
    np.save(tmp_path / "rows.npy", np.array(values))
    clause = choice(of, select_rows=str(tmp_path / "rows.npy")).clause
    with pytest.raises(InputError, match=message):
        Selection.open(clause, ["a"]).read(of, None)


def test_a_folder_has_rows_for_each_task_and_a_file_for_one(tmp_path: Path) -> None:
    tasks = [task(tmp_path, [5, 6, 7], "a"), task(tmp_path, [5, 6], "ab")]
    (tmp_path / "chosen").mkdir()
    np.save(tmp_path / "chosen" / "a.npy", np.array([0, 2]))
    rules = Rules.from_items([{"prefix": "a", "select_rows": str(tmp_path / "chosne")}], "pairmill", "rules.yaml")
    with pytest.raises(InputError, match="chosne: is missing or empty; expected <task>"):
        open_choices(rules, tasks, Options(), [])
    rules = Rules.from_items([{"prefix": "a", "select_rows": str(tmp_path / "chosen")}], "pairmill", "rules.yaml")
    with pytest.raises(InputError, match="no rows are chosen of a task") as caught:
        open_choices(rules, tasks, Options(), [])
    assert caught.value.got == "none of ab"
    np.save(tmp_path / "chosen" / "ab.npy", np.array([1]))
    found, digest = open_choices(rules, tasks, Options(), [])
    assert [found[place].read().numbers.tolist() for place in (0, 1)] == [[0, 2], [1]]
    np.save(tmp_path / "chosen" / "ab.npy", np.array([0]))
    assert open_choices(rules, tasks, Options(), [])[1] != digest
    rules = Rules.from_items([{"prefix": "a", "select_rows": str(tmp_path / "chosen/a.npy")}], "pairmill", "rules.yaml")
    with pytest.raises(UsageError, match="not one task"):
        open_choices(rules, tasks, Options(), [])


def test_rows_that_select_chose_are_known_by_their_ordinals(tmp_path: Path) -> None:
    """Rows 10 to 15 of a file went through curate; tokenize dropped the third of them; select took 11 and 15."""
    of = task(tmp_path, [5, 6, 7, 8, 9], ordinals=[0, 1, 3, 4, 5])
    path = path_of("a", "origin")
    file = attribute(tmp_path / "selected" / path, "ordinal", [11, 15])
    files = [File(path, file.size, sha256(Path(file.uri)))]
    Manifest("select", 1, "0" * 16, {}, [], Ledger(), files).finish(str(tmp_path / "selected"))
    selection = Selection.open(choice(of, select_rows=str(tmp_path / "selected")).clause, ["a"])
    with pytest.raises(UsageError, match="rows=<the rows that were tokenized>"):
        selection.read(of, None)
    origins = attribute(tmp_path / "curated.parquet", "ordinal", [10, 11, 12, 13, 14, 15])
    assert selection.read(of, {"origin": origins})[0].tolist() == [1, 4]
    short = attribute(tmp_path / "short.parquet", "ordinal", [10, 11, 12])
    with pytest.raises(InputError, match="do not fit the tokenized rows"):
        selection.read(of, {"origin": short})


def test_classes_by_length_have_their_shares(tmp_path: Path) -> None:
    lengths: list[dict[str, Any]] = [{"upto": 8, "share": "30%"}, {"upto": 16, "share": "50%"}, {"share": "20%"}]
    one = choice(task(tmp_path, [2] * 10 + [10] * 10 + [30] * 10), lengths=lengths)
    assert [len(part.numbers) for part in one.classes(one.read())] == [10, 10, 10]
    parts = one.parts((20, 20), "0")
    assert [part.rows for part in parts] == [(6, 6), (10, 10), (4, 4)]
    assert parts[2].members.tolist() == [*range(20, 30)]
    assert one.split([10, 10, 10], (30, 1)).tolist() == [[9, 0], [15, 1], [6, 0]]
    once = choice(one.task, lengths=[{**item, "no_repeat": True} for item in lengths])
    assert once.split([10, 10, 10], (30,)).tolist() == [[10], [10], [10]]
    assert once.split([10, 10, 10], (25,)).tolist() == [[9], [10], [6]]
    assert one.split([10, 0, 10], (10,)).tolist() == [[6], [0], [4]]
    rows = one.read()
    count, inst, resp, *_ = one.expected_sums(rows, one.clause.rule)
    assert (count, inst) == (30, 60)
    assert resp == pytest.approx(30 * (0.3 * 2 + 0.5 * 10 + 0.2 * 30))


def drawn(parts: list[Part], epoch: int) -> Counter[int]:
    """How often each row is drawn in an epoch, if every part draws all of its rows or none."""
    result = Counter[int]()
    for part in parts:
        times, rest = divmod(part.rows[epoch], len(part.members))
        assert not rest
        for _ in range(times):
            result.update(part.members.tolist())
    return result


@pytest.mark.parametrize("rows", [(7, 7, 7, 7), (10, 23, 46, 3), (20, 20), (40, 41), (4, 0, 4)])
def test_rows_of_a_conversation_stay_together(tmp_path: Path, rows: tuple[int, ...]) -> None:
    chats = ["x", "y", "x", "y", "z", "z", "z", None, None, *"abcdefghijk"]
    of = task(tmp_path, [5] * len(chats))
    beside = {"source": attribute(tmp_path / "source.parquet", "chat", chats)}
    one = choice(of, beside, keep_together="source.chat")
    parts = one.parts(rows, "7\0task\0k")
    units = [[n for n, chat in enumerate(chats) if chat == name] for name in "xyz"]
    seen = Counter[int]()
    for epoch, most in enumerate(rows):
        found = drawn(parts, epoch)
        for unit in units:
            assert len({found[row] for row in unit}) == 1
        total = sum(found.values())
        assert total <= most
        assert total > most - 3
        seen += found
    others = {tuple(sorted(drawn(one.parts(rows, f"{seed}\0task\0k"), 0).items())) for seed in range(9)}
    assert (len(others) > 1) == (rows[0] % len(chats) > 0)
    if sum(rows) >= len(chats):
        assert {*seen} == {*range(len(chats))}
        assert max(seen.values()) - min(seen.values()) <= 1


def test_a_unit_that_no_epoch_has_room_for_is_not_drawn(tmp_path: Path) -> None:
    of = task(tmp_path, [5] * 6)
    beside = {"source": attribute(tmp_path / "source.parquet", "chat", ["x"] * 4 + ["y", "z"])}
    parts = choice(of, beside, keep_together="source.chat").parts((3, 3), "0")
    assert sorted(drawn(parts, 0) + drawn(parts, 1)) == [4, 5]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"keep_together": "source.chat", "lengths": [{"share": "100%"}]}, "by their lengths and stay together"),
        ({"lengths": [{"share": "100%"}], "long_context": "split"}, "not one row any more"),
        ({"keep_together": "source.chat"}, "needs the rows with their attributes"),
        ({"select_rows": "/nowhere"}, "nowhere: is missing or empty"),
    ],
)
def test_words_that_cannot_hold_are_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    rules = Rules.from_items([{"prefix": "a", **keys}], "pairmill", "rules.yaml")
    with pytest.raises(PairmillError, match=message) as caught:
        open_choices(rules, [task(tmp_path, [5])], Options(), [])
    assert "rules.yaml rule 1" in caught.value.where


def test_an_attribute_that_is_not_there_is_told_by_those_that_are(tmp_path: Path) -> None:
    of = task(tmp_path, [5, 6])
    beside = {"source": attribute(tmp_path / "source.parquet", "chat", ["x", "y"])}
    for name in ("source.chats", "sorce.chat"):
        with pytest.raises(InputError, match="no such attribute"):
            choice(of, beside, keep_together=name).parts((1,), "0")


def test_eligible_rows_add_up() -> None:
    rows = Eligible(np.arange(3, dtype=np.uint32), np.array([1, 2, 3]), np.array([4, 5, 6]))
    assert rows.sums() == (3, 6, 15, 25 + 49 + 81, 16 + 25 + 36)
    assert [*itertools.accumulate(rows.take(np.array([0, 2])).numbers.tolist())] == [0, 2]
