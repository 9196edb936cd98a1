"""The rounds of near deduplication: equal decisions however the work is cut, and an index that continues a run."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine import shuffle
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import rows as row_files
from pairmill.formats.rows import Row
from pairmill.stages.curate.near import components, core, exchange, resolve, sign
from pairmill.stages.curate.near.core import NearInput, NearSlice
from pairmill.stages.curate.near.index import INDEX, Indexed
from pairmill.stages.curate.near.settings import NearSettings, native
from tests.support.data import near_duplicates
from tests.support.stages.near_rounds import Found, run, slices_of, table_bytes

ROWS = 900
NAMES = ("first.parquet", "second.parquet", "third.jsonl")
FIELDS = ("instruction", "response")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three files with copies, edits, templates, labels and documents; families of far more than 16 members."""
    folder = tmp_path_factory.mktemp("rows")
    made = list(near_duplicates.generated(ROWS, 7, near_duplicates.Shares(templates=40, edits=10), length=30))
    third = ROWS // 3
    # The template rows of one file resemble those of another.
    return [
        near_duplicates.write(folder / name, made[at * third : (at + 1) * third], group=100)
        for at, name in enumerate(NAMES)
    ]


@pytest.fixture(scope="module")
def once(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run(NearInput(NearSettings(), all_slices(files)), str(tmp_path_factory.mktemp("cache")))


def all_slices(files: list[Path], group_bytes: int = 0) -> list[NearSlice]:
    return [one for path in files for one in slices_of(path, group_bytes=group_bytes if "parquet" in path.name else 0)]


def bytes_of(found: Found) -> dict[str, bytes]:
    return {task: table_bytes(table) for task, table in found.tasks.items()}


@pytest.mark.parametrize(("few", "groups"), [(1 << 20, 1), (1 << 20, 300), (50, 6)])
def test_components_in_parts_make_the_same_decisions(
    files: list[Path], once: Found, few: int, groups: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one group, in more groups than there are components, and with levels of names."""
    monkeypatch.setattr(components, "_FEW_ENDS", 0)
    monkeypatch.setattr(exchange, "_FEW", few)
    monkeypatch.setattr(exchange, "_PAIRS", 5_000)
    monkeypatch.setattr(exchange, "_ROWS", 600)
    monkeypatch.setattr(core, "_MOST_GROUP", once.costs["sketch_bytes"] // groups)
    found = run(NearInput(NearSettings(), all_slices(files)), str(tmp_path), shares=2)
    assert bytes_of(found) == bytes_of(once)
    same = ("rows", "candidates", "removed", "compared_rows", "edges", "unverified")
    assert [found.costs[name] for name in same] == [once.costs[name] for name in same]
    names = {name.split()[1] for names in found.ran for name in names if name.startswith("near ")}
    assert names >= {"part", "groups", "members"}
    assert ("range" in names) == (few == 50)


def test_rows_are_found_in_every_file_and_families_are_refined(once: Found) -> None:
    assert all(len(once.tasks[name]) > 10 for name in NAMES)
    assert once.costs["family_entries"] > 100
    assert once.costs["verifications"] > 100
    assert once.costs["scratch_bytes"] > 100_000
    assert once.costs["rows"] == ROWS


def test_every_removed_row_is_a_duplicate_of_the_retained_row_that_it_names(files: list[Path], once: Found) -> None:
    texts = {path.name: pa.concat_tables(_tables(path)).to_pylist() for path in files}
    removed = once.removed()
    assert len(removed) > 50
    pairs = [((task, ordinal), other[2:]) for (task, ordinal), other in once.evidence().items() if other[0] == "drop"]
    place = {name: at for at, name in enumerate(NAMES)}
    for (task, ordinal), (other_task, other_ordinal) in pairs:
        assert (place[other_task], other_ordinal) < (place[task], ordinal)
        assert (other_task, other_ordinal) not in removed
    question, answer, other_question, other_answer = (
        pa.array([texts[task][ordinal][name] for task, ordinal in side])
        for side in zip(*pairs, strict=True)
        for name in ("instruction", "response")
    )
    settings = native(NearSettings())
    verdicts, *_ = _native.curate_verify(question, answer, other_question, other_answer, settings)
    assert verdicts.all()


def _tables(path: Path) -> Iterator[pa.Table]:
    for batch in row_files.read(str(path)):
        yield pa.table({"instruction": batch.instruction, "response": batch.response})


@pytest.mark.parametrize("shares", [2, 7])
def test_any_number_of_shares_gives_equal_bytes(files: list[Path], once: Found, shares: int, tmp_path: Path) -> None:
    found = run(NearInput(NearSettings(), all_slices(files)), str(tmp_path), shares=shares)
    assert bytes_of(found) == bytes_of(once)
    assert found.costs == once.costs


@pytest.mark.parametrize("group_bytes", [1, 20_000, 60_000])
def test_any_size_of_slices_gives_equal_bytes(files: list[Path], once: Found, group_bytes: int, tmp_path: Path) -> None:
    slices = all_slices(files, group_bytes)
    assert len(slices) > 3
    found = run(NearInput(NearSettings(), slices), str(tmp_path))
    assert bytes_of(found) == bytes_of(once)


@dataclass(frozen=True)
class Limits:
    """Small limits, so that small files have much of everything."""

    keys: int = 4_000
    held_keys: int = 3_000
    group: int = 4_000
    block: int = 3_000
    in_memory: int = 100

    def set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(core, "_KEYS", self.keys)
        monkeypatch.setattr(core, "_PARALLEL", 4)
        monkeypatch.setattr(core, "_READ", 25 * self.keys)
        monkeypatch.setattr(core, "_GROUP", self.group)
        monkeypatch.setattr(core, "_MOST_GROUP", self.group)
        monkeypatch.setattr(sign, "_HELD", self.held_keys)
        monkeypatch.setattr(resolve, "_BLOCK", self.block)
        monkeypatch.setattr("pairmill.engine.runs._PIECE", self.block)
        monkeypatch.setattr("pairmill.engine.runs._FILLED", 1_000)
        monkeypatch.setattr("pairmill.engine.runs._TABLE", 100)
        monkeypatch.setattr("pairmill.engine.runs._TABLES", 1_000)
        monkeypatch.setattr(resolve, "_CODES", 7)
        monkeypatch.setattr("pairmill.stages.curate.near.resolve.Resolve.held", self.in_memory)
        monkeypatch.setattr("pairmill.stages.curate.near.components._EDGES", 97)
        monkeypatch.setattr("pairmill.stages.curate.near.components._HELD", 0)
        monkeypatch.setattr("pairmill.stages.curate.near.records._ROWS", 33)
        monkeypatch.setattr(shuffle, "fans", lambda runs, *_: [2, 3] if runs > 2 else [])
        monkeypatch.setattr(shuffle, "_BLOCK", self.block)
        monkeypatch.setattr(shuffle, "gathered", lambda sizes, _: list(shuffle.cuts(sizes, 500)))
        monkeypatch.setattr(shuffle, "_FILE", 3 * self.block)


@pytest.mark.parametrize("field", [pytest.param("instruction", marks=pytest.mark.full), "response"])
def test_a_cap_removes_a_row_that_so_many_retained_rows_are_like(
    files: list[Path], field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = NearSettings(fields=field, max_similar=3)  # type: ignore[arg-type]
    found = run(NearInput(settings, all_slices(files)), str(tmp_path / "once"))
    uncapped = run(NearInput(replace(settings, max_similar=None), all_slices(files)), str(tmp_path / "once"))
    assert not any(uncapped.ran[:1])  # what is signed is the same
    removed = found.removed()
    assert 10 < len(removed) < len(uncapped.removed())
    tables = {path.name: pa.concat_tables(_tables(path)) for path in files}
    rows = [(name, ordinal) for name, table in tables.items() for ordinal in range(len(table))]
    joined = pa.concat_tables(tables.values(), promote_options="permissive").combine_chunks()
    questions, answers = (joined[name].chunk(0) for name in FIELDS)
    retained = np.array([row not in removed for row in rows])
    for at in np.flatnonzero(~retained).tolist():
        before = np.flatnonzero(retained[:at])
        own = (pa.repeat(column[at], len(before)) for column in (questions, answers))
        verdicts, *_ = _native.curate_verify(*own, questions.take(before), answers.take(before), native(settings))
        assert verdicts.sum() >= 3
        other = found.evidence()[rows[at]][2:]
        assert other in [rows[one] for one in before[np.asarray(verdicts, bool)].tolist()]
    Limits().set(monkeypatch)
    again = run(NearInput(settings, all_slices(files, 20_000)), str(tmp_path / "again"), shares=3)
    assert bytes_of(again) == bytes_of(found)


@pytest.mark.parametrize("group_bytes", [0, 20_000])
def test_many_partitions_groups_and_blocks_give_equal_bytes(
    files: list[Path], once: Found, group_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Limits().set(monkeypatch)
    found = run(NearInput(NearSettings(), all_slices(files, group_bytes)), str(tmp_path), shares=3)
    assert bytes_of(found) == bytes_of(once)
    assert [len(names) > 3 for names in found.ran] == [
        group_bytes > 0,
        *(True, True),
        True,
        False,
        group_bytes > 0,
        *(True, True),
        True,
        True,
        False,
        False,
    ]


@dataclass(frozen=True)
class Numbers:
    """Rows that an earlier operation drops."""

    key: str
    numbers: tuple[int, ...]

    def rows(self) -> NDArray[np.uint32]:
        return np.array(self.numbers, np.uint32)


def test_dropped_rows_are_not_looked_at_and_keep_their_ordinals(tmp_path: Path) -> None:
    text = " ".join(near_duplicates.words(40))
    made = [Row("", f"question {text}", text), Row("", f"question {text}", text), Row("", f"question {text}", text)]
    slices = slices_of(near_duplicates.write(tmp_path / "some.parquet", made))
    kept = run(NearInput(NearSettings(), slices), str(tmp_path / "all"))
    assert kept.evidence() == {
        ("some.parquet", 1): ("drop", "equal_instruction", "some.parquet", 0),
        ("some.parquet", 2): ("drop", "equal_instruction", "some.parquet", 0),
    }
    without = [replace(one, dropped=Numbers("first", (0,))) for one in slices]
    found = run(NearInput(NearSettings(), without), str(tmp_path / "all"))
    assert found.evidence() == {("some.parquet", 2): ("drop", "equal_instruction", "some.parquet", 1)}
    assert found.costs["rows"] == 2
    without = [replace(one, dropped=Numbers("all", (0, 1, 2))) for one in slices]
    assert run(NearInput(NearSettings(), without), str(tmp_path / "all")).evidence() == {}


def test_fixed_rows_stay_and_are_not_compared_with_each_other(files: list[Path], once: Found, tmp_path: Path) -> None:
    first, *others = files
    slices = [*slices_of(first, fixed=True), *all_slices(others)]
    found = run(NearInput(NearSettings(), slices), str(tmp_path))
    assert not len(found.tasks[first.name])
    assert len(once.tasks[first.name])
    assert {other[2] for other in found.evidence().values()} == set(NAMES)
    assert found.costs["rows"] == ROWS - ROWS // 3


def test_with_fixed_rows_alone_nothing_is_compared(files: list[Path], tmp_path: Path) -> None:
    found = run(NearInput(NearSettings(), slices_of(files[0], fixed=True)), str(tmp_path))
    assert [len(names) for names in found.ran] == [1, *[0] * 11]
    assert found.evidence() == {}


def test_the_longest_response_stays_if_that_is_preferred(tmp_path: Path) -> None:
    question, answer = " ".join(near_duplicates.words(40)), " ".join(near_duplicates.words(60, 5))
    made = [Row("", question, answer), Row("", question, f"{answer} and more of it"), Row("", question, answer)]
    path = near_duplicates.write(tmp_path / "some.parquet", made)
    found = run(NearInput(NearSettings(), slices_of(path), longest_response=True), str(tmp_path / "cache"))
    assert {ordinal: other[3] for (_, ordinal), other in found.evidence().items()} == {0: 1, 2: 1}


@pytest.mark.parametrize("group_bytes", [0, 20_000])
def test_the_longest_response_does_not_depend_on_the_cutting(
    files: list[Path], group_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = NearInput(NearSettings(), all_slices(files), longest_response=True)
    expected = run(given, str(tmp_path / "once"))
    Limits().set(monkeypatch)
    given = replace(given, slices=all_slices(files, group_bytes))
    assert bytes_of(run(given, str(tmp_path / "again"))) == bytes_of(expected)
    assert len(expected.removed()) > 50


def test_rows_of_other_conditions_are_no_duplicates_if_that_is_asked(tmp_path: Path) -> None:
    text = " ".join(near_duplicates.words(40))
    path = near_duplicates.write(tmp_path / "some.parquet", [Row("a", text, text), Row("b", text, text)])
    given = NearInput(NearSettings(), slices_of(path))
    assert len(run(given, str(tmp_path / "cache")).removed()) == 1
    given = replace(given, same_condition_only=True)
    assert not run(given, str(tmp_path / "cache")).removed()


def test_a_second_run_runs_nothing_and_a_changed_file_signs_that_file_alone(
    files: list[Path], once: Found, tmp_path: Path
) -> None:
    given = NearInput(NearSettings(), all_slices(files))
    first = run(given, str(tmp_path))
    assert len(first.ran[0]) == 3
    assert not any(run(given, str(tmp_path)).ran)
    changed = replace(given.slices[1], key="another")
    assert len(run(replace(given, slices=[given.slices[0], changed, given.slices[2]]), str(tmp_path)).ran[0]) == 1
    assert {task: one.key for task, one in first.found.tasks.items()} == {
        task: one.key for task, one in once.found.tasks.items()
    }


def test_another_mode_signs_nothing_and_without_refinement_only_later_rounds_run(
    files: list[Path], tmp_path: Path
) -> None:
    given = NearInput(NearSettings(), all_slices(files))
    run(given, str(tmp_path))
    assert not any(run(replace(given, settings=NearSettings(mode="report")), str(tmp_path)).ran)
    plain = run(replace(given, settings=NearSettings(refine=False)), str(tmp_path))
    assert [bool(names) for names in plain.ran[:5]] == [False, False, False, True, True]
    assert plain.costs["family_entries"] == 0


class Index:
    """Runs one file after another, each with the index of the one before."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0
        self.last: list[str] = []

    def add(self, slices: list[NearSlice], **options: bool) -> Found:
        given = NearInput(NearSettings(refine=False), slices, index=self.last, write_index=True, **options)
        found = run(given, str(self._folder / "cache"))
        self._number += 1
        home = self._folder / f"finished{self._number}"
        out = Writer(str(home))
        assert found.found.index is not None
        found.found.index.link(out, "index/near")
        out.flush()
        assert {file.path for file in out.files} == {
            f"index/near/{one.name}" for one in (home / "index/near").iterdir()
        }
        assert all(file.digest for file in out.files)
        self.last = [str(home / "index/near")]
        return found


@pytest.mark.parametrize("options", [{}, {"same_condition_only": True}])
@pytest.mark.parametrize("small", [False, True])
def test_files_one_after_another_with_an_index_give_the_decisions_of_one_run(
    files: list[Path], options: dict[str, bool], small: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = NearInput(NearSettings(refine=False), all_slices(files), **options)  # type: ignore[arg-type]
    together = run(given, str(tmp_path / "together"))
    if small:
        Limits().set(monkeypatch)
        monkeypatch.setattr("pairmill.stages.curate.near.index._BLOCK", 1_000)
    index = Index(tmp_path)
    tables: dict[str, bytes] = {}
    for path in files:
        found = index.add(all_slices([path], 20_000 if small else 0), **options)
        tables |= bytes_of(found)
    assert tables == bytes_of(together)
    assert len(together.removed()) > 50
    for one, two in pairwise(sorted(tmp_path.glob("finished*/index/near"))):
        assert {file.name for file in one.iterdir()} < {file.name for file in two.iterdir()}


def test_an_index_needs_no_earlier_folder(files: list[Path], tmp_path: Path) -> None:
    index = Index(tmp_path)
    index.add(all_slices(files[:1]))
    index.add(all_slices(files[1:2]))
    for one in (tmp_path / "finished1/index/near").iterdir():
        one.chmod(0o600)
        one.unlink()
    found = index.add(all_slices(files[2:]))
    assert {other[2] for other in found.evidence().values()} == set(NAMES)


def test_an_index_prefers_its_rows_to_longer_responses(tmp_path: Path) -> None:
    question, answer = " ".join(near_duplicates.words(40)), " ".join(near_duplicates.words(60, 5))
    old = near_duplicates.write(tmp_path / "old.parquet", [Row("", question, answer)])
    new = near_duplicates.write(tmp_path / "new.parquet", [Row("", question, f"{answer} and more of it")])
    index = Index(tmp_path)
    index.add(slices_of(old), longest_response=True)
    found = index.add(slices_of(new), longest_response=True)
    assert found.evidence() == {("new.parquet", 0): ("drop", "equal_instruction", "old.parquet", 0)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw.replace('"version":1', '"version":99'), "another format"),
        (lambda raw: raw.replace("pairmill near index", "other"), "another format"),
        (lambda raw: raw.replace('"bands":32', '"bands":31'), "other settings"),
        (lambda raw: raw[:-5], "not a near index"),
        (lambda raw: "[]", "not a near index"),
    ],
)
def test_an_index_of_another_format_or_of_other_settings_is_refused(
    files: list[Path], change: object, message: str, tmp_path: Path
) -> None:
    assert callable(change)
    index = Index(tmp_path)
    index.add(all_slices(files[:1]))
    path = Path(index.last[0]) / INDEX
    changed = change(path.read_text())
    assert changed != path.read_text()
    path.chmod(0o600)
    path.write_text(changed)
    with pytest.raises(InputError, match=message) as error:
        index.add(all_slices(files[1:2]))
    assert error.value.exit_code == 3


def test_an_index_that_is_absent_is_refused(files: list[Path], tmp_path: Path) -> None:
    given = NearInput(NearSettings(), all_slices(files[:1]), index=[str(tmp_path / "nowhere")])
    with pytest.raises(InputError, match="no near index"):
        run(given, str(tmp_path))


def test_a_slice_of_an_index_is_known_by_its_bytes() -> None:
    one = Indexed("task", 0, "path.bin", 10, "a" * 64, 1, 32, 5, 4, [17])
    assert one.source("here").key == replace(one, task="other", path="other").source("there").key
    assert one.source("here").key != replace(one, digest="b" * 64).source("here").key


def test_rounds_in_a_bucket_give_equal_bytes(files: list[Path], once: Found, s3: str, tmp_path: Path) -> None:
    slices = all_slices(files, 60_000)
    found = run(NearInput(NearSettings(), slices, write_index=True), f"{s3}/cache")
    assert bytes_of(found) == bytes_of(once)
    out = Writer(f"{s3}/finished")
    assert found.found.index is not None
    found.found.index.link(out, "near")
    out.flush()
    given = NearInput(NearSettings(), slices_of(files[0], "again.parquet"), index=[f"{s3}/finished/near"])
    again = run(given, str(tmp_path))
    assert again.removed() >= {("again.parquet", ordinal) for task, ordinal in once.removed() if task == files[0].name}
