"""Stages of one pod: each is given what earlier ones made, and the first that fails ends the task."""

import json
from pathlib import Path
from typing import Any

import pytest

from pairmill.interface import chain
from pairmill.interface.launcher import FLAG


def argument(folder: Path, steps: list[dict[str, Any]], outputs: tuple[str, ...], **values: Any) -> str:
    """The executor input of a task."""
    places = {name: {"outputFile": str(folder / name)} for name in outputs}
    report = {"report": {"artifacts": [{"name": "report", "uri": str(folder / "report")}]}}
    given = {
        "inputs": {"parameterValues": {**values, "steps": steps}},
        "outputs": {"parameters": places, "artifacts": report, "outputFile": str(folder / "out.json")},
    }
    return json.dumps(given)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows" / "a.jsonl"
    file.parent.mkdir()
    file.write_text("".join(f'{{"condition": "", "instruction": "q{n}", "response": "a{n} " }}\n' for n in range(30)))
    return file.parent


def test_a_stage_reads_what_the_one_before_it_made(tmp_path: Path, rows: Path) -> None:
    steps = [
        {"stage": "curate", "options": {"rows": "=rows", "workers": 1}, "together": True},
        {"stage": "select", "options": {"rows": "=curate.output", "workers": 1}, "together": True},
    ]
    root = str(tmp_path / "root")
    text = argument(tmp_path, steps, ("curate", "select"), rows=str(rows), options={"root": root, "epochs": 3})
    assert chain.main([FLAG, text]) == 0
    curated, selected = ((tmp_path / name).read_text() for name in ("curate", "select"))
    assert Path(curated, "_MANIFEST.json").is_file()
    assert selected == curated, "select is off, so it passes on what it is given"
    made = json.loads((tmp_path / "out.json").read_text())
    assert made["parameterValues"] == {"curate": curated, "select": selected}
    assert (tmp_path / "report").read_bytes().startswith(b"<!doctype html>")
    assert made["artifacts"]["report"]["artifacts"][0]["metadata"]["fingerprint"]


def test_the_first_that_fails_ends_the_task_with_its_code(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    steps = [
        {"stage": "curate", "options": {"rows": "=rows", "root": "=root"}},
        {"stage": "select", "options": {"rows": "=curate.output", "root": "=root"}},
    ]
    text = argument(tmp_path, steps, ("select",), rows=str(tmp_path / "nowhere"), root=str(tmp_path / "root"))
    assert chain.main([FLAG, text]) == 3
    said = capfd.readouterr().err
    assert "nowhere" in said
    assert "stage curate failed; got exit code 3" in said
    assert not (tmp_path / "root" / "select").exists()
    assert not (tmp_path / "out.json").exists()
