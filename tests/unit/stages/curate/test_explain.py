"""``explain`` and ``show``: what became of a row, with the texts, and what they refuse."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pairmill.engine.manifest import Ledger, Manifest
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.interface import cli
from pairmill.stages.curate.explain import ExplainConfig, explain
from pairmill.stages.curate.finished import CuratedFolder
from pairmill.stages.curate.show import ShowConfig, show
from tests.support.data import curated_folder
from tests.support.data.curated_folder import GOLD, HELD_OUT, TASKS, WEB
from tests.support.helpers import REPOSITORY, environment


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The rows, and the finished folder."""
    rows, curated = curated_folder.write(tmp_path_factory.mktemp("curate"))
    return str(rows), str(curated)


def told(folders: tuple[str, str], row: str, *, with_rows: bool = True) -> str:
    rows, path = folders
    return explain(ExplainConfig(path=path, row=row, rows=[rows] if with_rows else []))


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_a_near_duplicate_is_beside_the_row_that_is_kept(folders: tuple[str, str]) -> None:
    found = lines(told(folders, f"{WEB}:0"))
    assert found[0] == (
        f"{WEB}:0: dropped by near, rule strong (in the ledger: dup_near); {GOLD}:0 is kept in its place"
    )
    assert found[2] == "exact drop nothing found"
    assert found[3].startswith("near drop dropped: strong (long responses and instructions that are nearly equal)")
    assert "instruction 0.910, response 0.875 (at least 0.750)" in " ".join(found[3:5])
    assert "decontaminate drop not asked: the row was removed before" in found
    assert "Attributes are written beside kept rows only." in found
    assert f"{WEB}:0 · instruction {GOLD}:0 · instruction" in found
    assert "What is the capital of France and why? What is the capital of France, and why?" in found


def test_a_leak_is_beside_the_item(folders: tuple[str, str]) -> None:
    found = lines(told(folders, f"{WEB}:3"))
    assert found[0].endswith(
        "dropped by decontaminate, rule question_answer (in the ledger: contaminated_question_answer), "
        "since it has sums item 7"
    )
    assert f"{WEB}:3 · response sums item 7 · answer" in found
    assert "near drop nothing found" in found


def test_a_held_out_row_wins_and_is_never_removed(folders: tuple[str, str]) -> None:
    found = lines(told(folders, f"{WEB}:4"))
    assert found[0] == f"{WEB}:4: dropped by exact, rule pair (in the ledger: held_out); {HELD_OUT}:0 is held out"
    assert lines(told(folders, f"{HELD_OUT}:0"))[0] == f"{HELD_OUT}:0: kept: held-out rows are never removed"


def test_a_kept_row_has_its_findings_and_attributes(folders: tuple[str, str]) -> None:
    found = lines(told(folders, f"{GOLD}:2"))
    assert found[0] == f"{GOLD}:2: kept"
    assert "heuristics report reported: r_url_ratio_max; 0.97 > 0.2" in found
    assert "heuristics.i_words 3" in found
    # The last row of a file from which others were removed.
    found = lines(told(folders, "data/web.parquet:5"))
    assert found[0] == f"{WEB}:5: kept"
    assert "curate.ordinal 5" in found
    assert "heuristics.i_words 3" in found
    assert "is kept too." in found


@pytest.mark.parametrize(
    ("task", "ordinal"), [(task, row) for task, cases in TASKS.items() for row in range(len(cases))]
)
def test_every_row_is_explained_with_its_own_text(folders: tuple[str, str], task: str, ordinal: int) -> None:
    found = told(folders, f"{task}:{ordinal}")
    case = TASKS[task][ordinal]
    assert lines(found)[0].startswith(f"{task}:{ordinal}: {'dropped by' if case.dropped else 'kept'}")
    assert " ".join((case.row.instruction or "").split())[:30] in " ".join(lines(found))
    assert "\x1b" not in found


def test_without_the_rows_a_kept_row_is_read_from_the_folder_and_samples_help(folders: tuple[str, str]) -> None:
    assert "is kept too." in told(folders, f"{WEB}:5", with_rows=False)
    assert told(folders, f"{WEB}:0", with_rows=False) == told(folders, f"{WEB}:0")


def test_without_rows_and_samples_it_says_what_to_give(tmp_path: Path) -> None:
    data = {**curated_folder.data_of(), "samples": {}, "closest": {}}
    rows, curated = curated_folder.write(tmp_path, data)
    found = explain(ExplainConfig(path=str(curated), row=f"{WEB}:0"))
    assert found.endswith("give rows=<folder of the rows that were curated> to see it.\n")
    found = explain(ExplainConfig(path=str(curated), row=f"{WEB}:3", rows=[str(rows)]))
    assert "The text of sums item 7 is not known here." in found
    assert "How many apples does Ann have" in found


def test_an_override_of_the_settings_is_said(tmp_path: Path) -> None:
    data = curated_folder.data_of()
    data["settings"]["overrides"] = [
        {"prefix": "data__gold", "near": {"mode": "report", "bands": 32}},
        {"prefix": "data", "near": {"mode": "off"}},
    ]
    _, curated = curated_folder.write(tmp_path, data)
    found = lines(explain(ExplainConfig(path=str(curated), row=f"{GOLD}:0")))
    assert found[1] == "other settings for the tasks of 'data__gold': near: report"


def refused(action: type[PairmillError], call: object, **options: object) -> PairmillError:
    with pytest.raises(action) as raised:
        call(**options)  # type: ignore[operator]
    return raised.value


def explained(path: str, row: str, rows: list[str] | None = None) -> str:
    return explain(ExplainConfig(path=path, row=row, rows=rows or []))


@pytest.mark.parametrize(
    ("row", "what", "rest"),
    [
        ("data__wep.parquet:0", "unknown task", "did you mean 'data__web.parquet'?"),
        ("zzz:0", "unknown task", "the first is 'data__gold.jsonl'"),
        (f"{WEB}:6", "the task does not have this row", "expected 0 to 5"),
        (f"{HELD_OUT}:1", "the task does not have this row", "expected 0 to 0"),
        (WEB, "not a row", "<task>:<ordinal>"),
        (f"{WEB}:-1", "not a row", "<task>:<ordinal>"),
        (f"{WEB}:²", "not a row", "<task>:<ordinal>"),
        (":3", "not a row", "<task>:<ordinal>"),
    ],
)
def test_a_row_that_does_not_exist_is_refused(folders: tuple[str, str], row: str, what: str, rest: str) -> None:
    error = refused(UsageError, explained, path=folders[1], row=row)
    assert str(error).startswith(f"row: {what}")
    assert rest in str(error)
    assert error.exit_code == 2


def test_a_folder_that_is_not_a_finished_one_of_curate_is_refused(tmp_path: Path, folders: tuple[str, str]) -> None:
    error = refused(InputError, explained, path=folders[0], row=f"{WEB}:0")
    assert "not a finished folder" in str(error)
    _, unfinished = curated_folder.write(tmp_path / "unfinished", done=False)
    assert "has not finished it" in str(refused(InputError, explained, path=str(unfinished), row=f"{WEB}:0"))
    other = tmp_path / "other"
    other.mkdir()
    Manifest("clean", 1, "0" * 16, {}, [], Ledger(), []).finish(str(other))
    error = refused(InputError, explained, path=str(other), row=f"{WEB}:0")
    assert "the folder is of another stage; got clean" in str(error)
    # These are not the rows that the folder was made of.
    error = refused(InputError, explained, path=folders[1], row=f"{WEB}:0", rows=[str(other)])
    assert "not the rows that were curated" in str(error)
    empty = tmp_path / "empty"
    empty.mkdir()
    error = refused(InputError, explained, path=folders[1], row=f"{WEB}:0", rows=[str(empty)])
    assert "expected a folder with data/gold.jsonl" in str(error)
    assert error.exit_code == 3


def test_a_folder_whose_files_changed_is_refused(tmp_path: Path) -> None:
    _, curated = curated_folder.write(tmp_path)
    path = curated / "decisions" / "near" / f"{WEB}.parquet"
    assert CuratedFolder.open(str(curated)).count(WEB) == 6
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    error = refused(InputError, CuratedFolder.open, path=str(curated))
    assert "missing or changed" in str(error)
    assert path.name in str(error)


# --- show -----------------------------------------------------------------------------------------------------------


def shown(path: str, rule: str, n: int = 20, rows: list[str] | None = None) -> str:
    return show(ShowConfig(path=path, rule=rule, n=n, rows=rows or []))


def test_samples_of_a_rule_have_both_texts_and_are_the_same_every_time(folders: tuple[str, str]) -> None:
    rows, path = folders
    found = shown(path, "pair", rows=[rows])
    assert lines(found)[0] == "exact: pair, instruction and response are equal. 2 of 2 findings"
    assert "Blue. Blue." in lines(found)
    assert "Apple. Apple." in lines(found)
    assert shown(path, "exact.pair", rows=[rows]) == found
    first = shown(path, "pair", n=1, rows=[rows])
    assert first.splitlines()[0].endswith("1 of 2 findings")
    assert first.splitlines()[1:] == found.splitlines()[1 : len(first.splitlines())]
    assert shown(path, "strong") == shown(path, "near.strong", rows=[rows])


def test_an_unknown_rule_is_refused(folders: tuple[str, str]) -> None:
    error = refused(UsageError, shown, path=folders[1], rule="stong")
    assert "did you mean 'strong'?" in str(error)
    assert "exact.pair, near.strong" in str(error)
    assert refused(UsageError, shown, path=folders[1], rule="pair", n=0).exit_code == 2


def test_a_rule_of_two_operations_has_to_be_named_in_full(tmp_path: Path) -> None:
    data = curated_folder.data_of()
    data["operations"]["filter"]["rules"] = {"pair": {"report": 0}}
    _, curated = curated_folder.write(tmp_path, data)
    error = refused(UsageError, shown, path=str(curated), rule="pair")
    assert "expected one of exact.pair, filter.pair" in str(error)
    assert "0 of 0 findings" in shown(str(curated), "filter.pair")


# --- the command line -----------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from pairmill.stages.curate.explain import ExplainConfig, explain
from pairmill.stages.curate.show import ShowConfig, show
from pairmill.interface import cli
commands = {"explain": cli.Command(ExplainConfig, explain), "show": cli.Command(ShowConfig, show)}
raise SystemExit(cli.main("curate", ExplainConfig, explain, sys.argv[1:], commands))
"""


def test_errors_end_with_their_exit_codes(folders: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    commands = {"explain": cli.Command(ExplainConfig, explain), "show": cli.Command(ShowConfig, show)}

    def run(*arguments: str) -> int:
        return cli.main("curate", ExplainConfig, None, arguments, commands)  # type: ignore[arg-type]

    assert run("explain", f"path={folders[1]}", f"row={WEB}:0") == 0
    assert f"{GOLD}:0 is kept in its place" in capsys.readouterr().out
    assert run("explain", f"path={folders[1]}", "row=nothing:0") == 2
    assert run("explain", f"path={folders[0]}", f"row={WEB}:0") == 3
    assert run("show", f"path={folders[1]}", "rule=pair", "n=many") == 2
    assert run("show", "--help") == 0
    assert "how many samples" in capsys.readouterr().out


def test_a_terminal_shows_which_words_differ(folders: tuple[str, str]) -> None:
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "explain", f"path={folders[1]}", f"row={WEB}:0"],
        cwd=REPOSITORY,
        env={**environment(), "TERM": "xterm"},
        stdout=follower,
        stderr=subprocess.PIPE,
    ) as process:
        os.close(follower)
        data = b""
        while True:
            try:
                more = os.read(leader, 65536)
            except OSError:  # the other end is closed
                break
            if not more:
                break
            data += more
        assert process.wait() == 0, process.stderr
    os.close(leader)
    text = data.decode()
    assert "\x1b[1;4mtrace\x1b[0m" in text
    assert "\x1b[1;4mfollow\x1b[0m" in text
