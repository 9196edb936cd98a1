"""Files with columns of one's own in place of rows: each stage says once, at its start, the description to write."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from tests.support import tools

ROWS = 12


def own(folder: Path, kind: str) -> Path:
    """Three files of questions and answers."""
    columns = {
        "question": [f"what is number {at}" for at in range(ROWS)],
        "answer": [f"it is {at} and no other" for at in range(ROWS)],
        "url": [f"https://example.org/{at}" for at in range(ROWS)],
    }
    for name in "abc":
        if kind == "parquet":
            tools.write_table(folder / f"{name}.parquet", columns)
        else:
            tools.write_lines(
                folder / f"{name}.jsonl",
                [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
            )
    return folder


def train_classifier(**options: object) -> tools.Done:
    return tools.run(
        [sys.executable, "-m", "pairmill", "curate", "train_classifier", *(f"{k}={v}" for k, v in options.items())]
    )


def said_by(done: tools.Done, option: str) -> str:
    """The description that the one message of a refused run has."""
    assert done.code == 3, done.err
    assert len([line for line in done.lines if line["severity"] == "ERROR"]) == 1, done.err
    assert done.message.count("is missing") == 1, done.message
    assert option in done.message
    found = done.message.partition("pairmill.stages.clean with sources=my_rows.yaml, and give the cleaned folder as")[
        2
    ].partition(":\n")[2]
    assert found, done.message
    return dedent(found) + "\n"


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
@pytest.mark.parametrize(
    ("stage", "option", "settings"),
    [
        ("curate", "rows", ""),
        ("select", "rows", "method: dsir\nrows: 3\ndsir: {targets: [{name: t, rows: TARGET}]}\n"),
        ("select", "dsir.targets t", "method: dsir\nrows: 3\ndsir: {targets: [{name: t, rows: OWN}]}\n"),
        ("train_tokenizer", "rows", ""),
        ("tokenize", "rows", ""),
        ("curate train_classifier", "positives", ""),
    ],
)
def test_the_description_is_said_once(stage: str, option: str, settings: str, kind: str, tmp_path: Path) -> None:
    mine = own(tmp_path / "own", kind)
    right = tmp_path / "rows.jsonl"
    tools.write_lines(right, [{"condition": "", "instruction": "what", "response": "this"}])
    options: dict[str, object] = {"rows": right if option.startswith("dsir") else mine, "root": tmp_path / "root"}
    if settings:
        path = tools.write_text(
            tmp_path / "settings.yaml", settings.replace("TARGET", str(right)).replace("OWN", str(mine))
        )
        options[f"{stage}_config"] = path
    if stage == "tokenize":
        options["tokenizer"] = tmp_path
        (tmp_path / "tokenizer.json").write_text("{}")
    if stage.endswith("train_classifier"):
        done = train_classifier(positives=mine, negatives=right, output=tmp_path / "q.npz")
    else:
        done = tools.stage(stage, **options)
    said = said_by(done, option)
    assert said.splitlines()[2:] == ["condition: direct", "instruction: question", "response: answer"]


def test_the_description_reads_the_files(tmp_path: Path) -> None:
    mine = own(tmp_path / "own", "parquet")
    said = said_by(tools.stage("curate", rows=mine, root=tmp_path / "root"), "rows")
    description = tools.write_text(tmp_path / "my_rows.yaml", said)
    raw = tools.folder(tools.stage("fetch", sources=description, root=tmp_path / "root"))
    clean = tools.folder(tools.stage("clean", raw=raw, sources=description, root=tmp_path / "root"))
    assert tools.read_manifest(clean)["ledger"]["rows_out"] > 0
    done = tools.stage("curate", rows=clean, root=tmp_path / "root")
    assert tools.ended(done).out
