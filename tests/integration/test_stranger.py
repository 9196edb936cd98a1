"""A stage that is not part of pairmill: what its author changes in its file is seen, whichever constant it is."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from pairmill.engine import keys, runner
from tests.support import tools

STAGE = '''
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pairmill.engine import inputs
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.options import RunConfig, option
from pairmill.engine.stage import Rounds, Shard, ShardFile, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.report.model import Report
from pairmill.storage import store_for

LEAST = 12


@dataclass(kw_only=True)
class LongLinesConfig(RunConfig):
    """Keep long lines."""

    rows: list[str] = option(help="folders of rows", changes_bytes=False)


@dataclass(frozen=True)
class KeepLong(Shard[object]):
    file: InputFile

    def run(self, context: object, out: Writer) -> ShardResult:
        lines = store_for(self.file.uri).read(self.file.uri).splitlines(keepends=True)
        kept = [line for line in lines if len(line) >= LEAST]
        out.write("long", b"".join(kept))
        ledger = Ledger(len(lines), len(kept), len(kept))
        ledger.drop("short", len(lines) - len(kept))
        return ShardResult(ledger)


@dataclass(frozen=True)
class Sort(Shard[object]):
    task: str
    lines: ShardFile

    def run(self, context: object, out: Writer) -> ShardResult:
        lines = sorted(store_for(self.lines.uri).read(self.lines.uri).splitlines(keepends=True))
        out.write(self.task, b"".join(lines), task=self.task)
        return ShardResult(Ledger(len(lines), len(lines), len(lines)))


class LongLines(Stage[LongLinesConfig, StagePlan[object]]):
    name: ClassVar[str] = "long_lines"
    config = LongLinesConfig

    def plan(self, config: LongLinesConfig) -> StagePlan[object]:
        self.found = inputs.discover(config.rows, ("jsonl",), "rows")
        return StagePlan(inputs=self.found.refs, build_context=object)

    def rounds(
        self, config: LongLinesConfig, plan: StagePlan[object]
    ) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        kept = yield [KeepLong(file, name=file.task, size=file.size) for file in self.found.files]
        yield [Sort(record.name, record.file("long"), name=record.name) for record in kept]

    def report(self, manifest: Manifest) -> Report:
        return Report("long_lines", {})
'''


def run(home: Path, stage: str, root: Path) -> tuple[dict[str, str], int, bool]:
    """The result of a program that starts now: its files, its rows, and whether it was there already."""
    (home / "long_lines.py").write_text(stage)
    sys.modules.pop("long_lines", None)
    keys.code_digest.cache_clear()
    importlib.invalidate_caches()
    module = importlib.import_module("long_lines")
    config = module.LongLinesConfig(rows=[str(home / "rows")], root=str(root), workers=1)
    result = runner.run(module.LongLines(), config)
    return tools.digests(Path(result.uri)), result.manifest.ledger.rows_out, result.reused


def test_a_changed_constant_gives_what_a_fresh_root_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file of the same size and second would be taken for it
    rows = [("direct", "q" * number, "a") for number in range(1, 90)]
    for name in ("a", "b"):
        tools.write_rows(tmp_path / "rows" / f"{name}.jsonl", rows)
    shortest = len((tmp_path / "rows" / "a.jsonl").read_bytes().splitlines(keepends=True)[0])
    first, other = (STAGE.replace("LEAST = 12", f"LEAST = {shortest + more}") for more in (40, 20))
    _, before, _ = run(tmp_path, first, tmp_path / "root")
    made, after, reused = run(tmp_path, other, tmp_path / "root")
    fresh = run(tmp_path, other, tmp_path / "fresh")
    assert not reused
    assert (made, after) == fresh[:2]
    assert before < after < 2 * len(rows)
    # What is said about the code changes nothing, and going back is free.
    assert run(tmp_path, f'"""Words."""\n# A comment.\n{other}', tmp_path / "root") == (made, after, True)
    assert run(tmp_path, first, tmp_path / "root")[1:] == (before, True)
