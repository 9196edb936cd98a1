"""An exported folder gives the ids of training in stock transformers, or there is no folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pairmill.errors import InputError
from pairmill.nets.run import Run
from pairmill.stages.train.export import probes
from pairmill.stages.train.export.command import ExportConfig, export
from tests.support import trained_runs
from tests.support.trained_runs import finished, tiny


def make_run(tmp_path: Path) -> Run:
    return Run.open(str(finished(tmp_path / "run", tiny("hrm"), tokenizer_info=trained_runs.ROWS_INFO)))


def test_transformers_gives_the_ids_of_training(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    export(ExportConfig(run=run.uri, output=str(tmp_path / "out")))
    assert "transformers" in probes.check(tmp_path / "out")


def test_a_folder_of_other_ids_is_refused_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, check = make_run(tmp_path), probes.check

    def damage(folder: Path) -> list[str]:
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_bytes())
        # What transformers applies on top of the file: a space before each text.
        path.write_text(json.dumps({**config, "add_prefix_space": True, "tokenizer_class": "GPT2Tokenizer"}))
        return check(folder)

    monkeypatch.setattr(probes, "check", damage)
    with pytest.raises(InputError, match="transformers gives other ids"):
        export(ExportConfig(run=run.uri, output=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
