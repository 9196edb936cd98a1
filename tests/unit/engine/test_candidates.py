"""What an input that was left out can be."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from pairmill.engine.candidates import MAKERS, candidates, with_left_out
from pairmill.engine.listing import FOLDERS
from pairmill.engine.manifest import InputRef
from pairmill.engine.options import RunConfig, option
from pairmill.errors import UsageError
from tests.support.data import roots


@dataclass(kw_only=True)
class EncodeConfig(RunConfig):
    rows: list[str] = option([], help="rows", takes="rows", unless=("tokens",))
    tokens: str = option("", help="tokens")
    tokenizer: str = option(help="tokenizer", takes="tokenizer")


def names(root: str, kind: str, stage: str = "") -> list[str]:
    return [f"{item.folder}/{item.fingerprint[0]}" for item in candidates(root, kind, stage)]


def test_the_last_of_a_line_is_the_candidate_and_no_stage_takes_what_comes_after_it(tmp_path: Path) -> None:
    root = str(tmp_path)
    assert names(root, "rows") == []
    roots.line(root)
    assert names(root, "rows", "tokenize") == ["curate/b"]
    assert names(root, "rows", "select") == ["curate/b"]
    assert names(root, "rows", "curate") == ["clean/a"]
    assert names(root, "rows", "of_ones_own") == ["curate/b"]
    assert names(root, "tokenizer", "tokenize") == ["tokenizer/c"]
    assert names(root, "tokenized", "mix") == ["tokenize/d"]
    assert names(root, "net", "evaluate") == []
    roots.line(root, "1b3456", age=-100)  # other rows, cleaned later; curated rows of before are made again
    assert names(root, "rows", "curate") == ["clean/1", "clean/a"]


def test_a_sample_of_held_out_rows_is_not_trained_on(tmp_path: Path) -> None:
    root = str(tmp_path)
    roots.result(root, "sample", "a", [InputRef("held_out", "")])
    assert names(root, "plan", "train") == []
    roots.result(root, "sample", "b", [InputRef("tokenized", "d" * 16)])
    assert names(root, "plan", "train") == ["sample/b"]


def test_what_was_given_stays_and_the_rest_is_the_only_candidate(tmp_path: Path) -> None:
    root = str(tmp_path / "a, b")
    made = roots.line(root)
    given = with_left_out("tokenize", EncodeConfig, {"root": root})
    assert given == {"root": root, "rows": made["curate"].replace(",", "\\,"), "tokenizer": made["train_tokenizer"]}
    given = with_left_out("tokenize", EncodeConfig, {"root": root, "tokens": "x", "tokenizer": "y"})
    assert given == {"root": root, "tokens": "x", "tokenizer": "y"}
    assert with_left_out("tokenize", EncodeConfig, {"tokenizer": "y"}) == {"tokenizer": "y"}


def test_of_several_each_has_the_command_to_write(tmp_path: Path) -> None:
    root = str(tmp_path / "a root")
    new = roots.line(root)["curate"]
    old = roots.result(root, "clean", "7", age=500)
    with pytest.raises(UsageError, match="left out, and several results below the root can be it") as caught:
        with_left_out("tokenize", EncodeConfig, {"root": root, "tokenizer": "y"})
    lines = str(caught.value).splitlines()[1:]
    assert lines[0].startswith(f"  pairmill tokenize 'root={root}' tokenizer=y 'rows={new}'  # 8 rows, 20")
    assert lines[1].startswith(f"  pairmill tokenize 'root={root}' tokenizer=y 'rows={old}'  # 10 rows, 20")
    for number in range(12):
        roots.result(root, "clean", f"{number:02}", age=900)
    with pytest.raises(UsageError, match="and 4 older ones: pairmill status"):
        with_left_out("tokenize", EncodeConfig, {"root": root, "tokenizer": "y"})


def test_every_kind_is_made_in_folders_of_results() -> None:
    assert {folder for folders in MAKERS.values() for folder in folders} < {*FOLDERS}
