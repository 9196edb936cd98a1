"""train_classifier: which rows it takes, what it writes, and what it refuses."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.errors import InputError, UsageError
from pairmill.stages.curate.scores.classifiers import ClassifierSettings
from pairmill.stages.curate.train_classifier import TrainConfig, auc, share_of, train
from tests.support.helpers import REPOSITORY
from tests.support.nets.models import batch_of


def _write(folder: Path, files: Mapping[str, Sequence[str]]) -> str:
    folder.mkdir(exist_ok=True)
    for name, texts in files.items():
        lines = [json.dumps({"condition": "", "instruction": "q", "response": text}) for text in texts]
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return str(folder)


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    good = [f"the careful answer number {number} explains why" for number in range(60)]
    bad = [f"buy number {number} now cheap" for number in range(60)]
    return {
        "positives": [_write(tmp_path / "up", {"books": good[:40], "mixed": good[40:]})],
        "negatives": [_write(tmp_path / "down", {"shop": bad[:40], "mixed": bad[40:]})],
        "output": str(tmp_path / "quality.npz"),
        "buckets": 500,
    }


def test_the_same_rows_give_the_same_bytes(options: dict[str, Any], tmp_path: Path) -> None:
    train(TrainConfig(**options))
    other = str(tmp_path / "again.npz")
    arguments = [f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in options.items()]
    command = [sys.executable, "-m", "pairmill", "curate", "train_classifier", *arguments[:2], f"output={other}"]
    done = subprocess.run([*command, arguments[3]], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{other}\n"
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "quality.npz").read_bytes()
    with np.load(other) as file:
        assert {name: (file[name].dtype.str, file[name].shape) for name in file.files} == {
            "weights": ("<f4", (500,)),
            "bias": ("<f4", ()),
            "buckets": ("<i8", ()),
            "ngrams": ("<i8", ()),
        }


def test_the_classifier_and_its_report(options: dict[str, Any], tmp_path: Path) -> None:
    assert train(TrainConfig(**options)) == f"{tmp_path / 'quality.npz'}\n"
    (scorer,) = ClassifierSettings(name="quality", kind="logit", model=options["output"]).scorers("")
    with scorer.opened() as score:
        scored = score(batch_of(["the careful answer explains", "buy cheap now"]))
    assert scored.columns[2].to_pylist() == ["good", "bad"]
    report = (tmp_path / "quality.md").read_text()
    for title in ("Accuracy by source", "Calibration", "Strongest features of positives", "accuracy", "AUC"):
        assert title in report
    assert "books and shop" in report or "books, shop" in report
    assert "| mixed |" in report
    assert "careful" in report.partition("Strongest features of positives")[2].partition("Strongest")[0]
    assert (tmp_path / "quality.html").read_text().startswith("<!doctype html>")


def test_an_unrelated_row_moves_no_other_row(options: dict[str, Any]) -> None:
    assert share_of("a.jsonl:0", 0, "rows") != share_of("a.jsonl:0", 1, "rows")
    assert share_of("a.jsonl:0", 0, "rows") != share_of("a.jsonl:0", 0, "held_back")
    held = [number for number in range(5000) if share_of(f"t:{number}", 0, "held_back") < 0.2]
    assert 900 < len(held) < 1100


def test_at_most_so_many_rows_of_each_side_are_taken(options: dict[str, Any], tmp_path: Path) -> None:
    train(TrainConfig(**options, rows=10))
    report = (tmp_path / "quality.md").read_text()
    counts = [int(line.rsplit(" ", 1)[1]) for line in report.splitlines() if line.startswith("- **rows")]
    assert sum(counts) == 20


def test_nothing_held_back_is_said(options: dict[str, Any], tmp_path: Path) -> None:
    train(TrainConfig(**options, held_back=0))
    assert "nothing was measured" in (tmp_path / "quality.md").read_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"output": "quality"}, "output: not a valid value; got 'quality'; expected <name>.npz"),
        ({"held_back": 1.0}, "held_back: out of range"),
        ({"rows": 1}, "rows: out of range"),
        ({"buckets": 1}, "buckets: out of range"),
        ({"ngrams": 65}, "ngrams: out of range"),
        ({"positives": []}, "positives: is empty"),
    ],
)
def test_options_are_refused(change: dict[str, Any], said: str, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=said):
        TrainConfig(**{**options, **change})


def test_a_side_without_rows_is_refused(options: dict[str, Any], tmp_path: Path) -> None:
    empty = _write(tmp_path / "empty", {"none": []})
    with pytest.raises(InputError, match="negatives: no row is left to train on"):
        train(TrainConfig(**{**options, "negatives": [empty]}))
    assert not (tmp_path / "quality.npz").exists()


def test_auc_counts_pairs() -> None:
    positive = np.array([True, True, False, False])
    assert auc(np.array([0.9, 0.8, 0.2, 0.1]), positive) == 1
    assert auc(np.array([0.9, 0.2, 0.2, 0.1]), positive) == (1 + 1 + 0.5 + 1) / 4
    assert np.isnan(auc(np.array([0.5]), np.array([True])))
