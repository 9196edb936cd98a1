"""The base of stages that choose rows: held-out rows, changed texts, shards for a report, and what it refuses."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from pairmill.engine import manifest as manifests
from pairmill.engine import runner
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, InternalError
from pairmill.formats.kept_rows import Texts
from pairmill.formats.limits import EXPANSION, RECORD_BYTES
from pairmill.rowstage import (
    Block,
    Findings,
    Rewrite,
    RowConfig,
    RowPlan,
    Rows,
    RowStage,
    ShardRounds,
    VerdictWriter,
)
from tests.support import tools
from tests.support.stages import curating


@dataclass(frozen=True)
class Shout(Rewrite):
    """Writes responses in capitals."""

    mark: str

    def apply(self, texts: Texts, ledger: Ledger) -> Texts:
        condition, instruction, response = texts
        ledger.note("shouted", len(response))
        return [condition, instruction, pa.array([text.upper() + self.mark for text in response.to_pylist()])]


@dataclass(frozen=True)
class Judge(Shard[object]):
    """Keeps rows with a response that the rule does not name."""

    block: Block
    word: str
    lacking: int = 0
    report: bool = False

    def run(self, context: object, out: Writer) -> ShardResult:
        with VerdictWriter(out, report=self.report) as verdicts:
            for piece in self.block.slices[self.lacking :]:
                texts = [text for batch in piece.batches() for text in batch.response.to_pylist()]
                keep = np.array([text != self.word for text in texts])
                table = pa.table({"size": [len(text) for text in texts]})
                verdicts.add(piece, keep, "named", attributes={"words": table})
        return ShardResult(Ledger(), verdicts.data())


@dataclass(frozen=True)
class Count(Shard[object]):
    """Counts for the report."""

    numbers: tuple[int, ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        return ShardResult(Ledger(), {"total": sum(self.numbers)})


@dataclass(kw_only=True)
class PickConfig(RowConfig):
    """Pick rows."""

    word: str = "no"
    mark: str = ""
    lacking: int = 0
    report: bool = False


class Pick(RowStage[PickConfig, RowPlan]):
    """One round, and two beside the writing."""

    name: ClassVar[str] = "pick"
    version: ClassVar[int] = 1
    config = PickConfig
    measures_lengths: ClassVar[bool] = True

    def find(self, config: PickConfig, plan: RowPlan) -> ShardRounds[Findings]:
        blocks = plan.rows.blocks
        found = Findings.from_records(
            (yield [Judge(block, config.word, config.lacking, config.report, name=block.name) for block in blocks])
        )
        if not config.mark:
            return found
        rewrite = Shout(config.mark)
        return Findings([type(one)(one.rows, one.removed, one.attributes, None, rewrite) for one in found.verdicts])

    def summarise(self, config: PickConfig, plan: RowPlan, findings: Findings) -> ShardRounds[int]:
        counted = yield [Count(tuple(one.rows for one in findings.verdicts), name="count")]
        (again,) = yield [Count((counted[0].data["total"], 1), name="again")]
        total: int = again.data["total"]
        return total

    def data(self, config: PickConfig, plan: RowPlan, out: Writer) -> dict[str, Any]:
        out.write("more.txt", b"more")
        return {
            "total": plan.summary,
            "lengths": [record.data["lengths"] for parts in plan.written for record in parts],
        }


def finished(base: Path) -> Path:
    """Write a finished folder with rows to train on, held-out rows, and attributes of both."""
    folder = base / "given"
    tools.write_rows(folder / "a.jsonl", [("", "q", "yes"), ("", "q", "no"), ("", "q", "maybe")])
    tools.write_rows(folder / "holdout" / "h.jsonl", [("", "q", "no")])
    for top, count in (("", 3), ("holdout/", 1)):
        name = "a" if not top else "h"
        tools.write_table(folder / f"{top}attributes/source/{name}.jsonl.parquet", {"age": list(range(count))})
    files = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        below, data = path.relative_to(folder).as_posix(), path.read_bytes()
        task = below if path.suffix == ".jsonl" else ""
        files.append(File(below, len(data), hashlib.sha256(data).hexdigest(), task))
    made = Manifest("clean", 1, "0" * 16, {}, [], Ledger(4, 4, 3), files, data={"held_out": {"holdout/h.jsonl": 1}})
    manifests.begin(str(folder), "clean", "0" * 16)
    made.finish(str(folder))
    return folder


def pick(base: Path, rows: Path | Sequence[Path], **options: Any) -> Path:
    places = [rows] if isinstance(rows, Path) else rows
    config = PickConfig(rows=list(map(str, places)), root=str(base / "root"), workers=1, **options)
    return Path(runner.run(Pick(), config).uri)


def test_held_out_rows_are_passed_on_with_what_is_beside_them(tmp_path: Path) -> None:
    given = finished(tmp_path)
    folder = pick(tmp_path, given)
    assert curating.kept(folder, "a.jsonl") == [("", "q", "yes"), ("", "q", "maybe")]
    for path in ("holdout/h.jsonl", "holdout/attributes/source/h.jsonl.parquet"):
        assert (folder / path).read_bytes() == (given / path).read_bytes()
    assert curating.attributes(folder, "source", "a.jsonl")["age"].to_pylist() == [0, 2]
    assert curating.attributes(folder, "words", "a.jsonl")["size"].to_pylist() == [3, 5]
    assert curating.attributes(folder, "origin", "a.jsonl")["ordinal"].to_pylist() == [0, 2]
    made = curating.manifest(folder)
    assert made.ledger == Ledger(4, 3, 2, {"named": 1}, {"for_evaluation": 1})
    assert made.data["held_out"] == {"holdout/h.jsonl": 1}
    assert made.data["means"] == {"source.age": {"a": [3, 3.0, 2, 2.0]}, "words.size": {"a": [3, 10.0, 2, 8.0]}}


@pytest.mark.parametrize("report", [False, True])
def test_a_report_keeps_all_rows_and_counts_what_would_go(report: bool, tmp_path: Path) -> None:
    given = finished(tmp_path)
    folder = pick(tmp_path, given, report=report)
    assert len(curating.kept(folder, "a.jsonl")) == (3 if report else 2)
    assert curating.attributes(folder, "source", "a.jsonl")["age"].to_pylist() == ([0, 1, 2] if report else [0, 2])
    (decision,) = curating.decisions(folder, "pick", "a.jsonl")
    assert (decision["ordinal"], decision["rule"]) == (1, "named")
    assert decision["action"] == ("report" if report else "drop")
    made = curating.manifest(folder)
    assert made.ledger.dropped == ({} if report else {"named": 1})
    # Held-out rows are not measured.
    _, lengths = sorted(made.data["lengths"], key=len)
    assert [lengths[end][key] for end in ("before", "after") for key in ("rows", "response")] == [3, 10, 2, 8]


def test_a_slice_reads_the_attributes_that_its_block_has(tmp_path: Path) -> None:
    folder = pick(tmp_path, finished(tmp_path))
    rows = Rows.discover([str(folder)], verify=False, longest=RECORD_BYTES, expansion=EXPANSION)
    ((plain,), (piece,)) = (blocks[0].slices for blocks in (rows.blocks, rows.blocks_with({"origin", "words"})))
    assert plain.count() == piece.count() == 2
    assert (plain.ordinals(2).tolist(), piece.ordinals(2).tolist()) == ([0, 1], [0, 2])
    assert set(piece.attributes) == {"origin", "words"}
    (sizes,) = piece.read_columns(piece.attributes["words"], ["size"], 2)
    assert sizes.to_pylist() == [3, 5]
    with pytest.raises(InputError, match="other rows than its task"):
        piece.read_columns(piece.attributes["words"], ["size"], 3)
    assert plain.identify() != piece.identify()


def test_shards_for_the_report_share_the_rounds_of_the_writing(tmp_path: Path) -> None:
    folder = pick(tmp_path, finished(tmp_path))
    made = curating.manifest(folder)
    assert made.data["total"] == 4
    assert (folder / "more.txt").read_bytes() == b"more"
    assert "more.txt" in {file.path for file in made.files}
    config = PickConfig(rows=[str(tmp_path / "given")], root=str(tmp_path / "root"), workers=1)
    plan = Pick().plan(config)
    rounds = Pick().rounds(config, plan)
    assert [type(one).__name__ for one in next(rounds)] == ["Judge"]


def test_a_rewrite_changes_rows_that_stay_and_counts_them(tmp_path: Path) -> None:
    given = finished(tmp_path)
    folder = pick(tmp_path, given, mark="!")
    assert [response for _, _, response in curating.kept(folder, "a.jsonl")] == ["YES!", "MAYBE!"]
    assert curating.kept(folder, "holdout/h.jsonl") == [("", "q", "no")]
    assert curating.manifest(folder).ledger.notes == {"for_evaluation": 1, "shouted": 2}
    other = pick(tmp_path, given, mark="?")
    assert [response for _, _, response in curating.kept(other, "a.jsonl")] == ["YES?", "MAYBE?"]


def test_what_is_not_decided_about_and_two_files_of_one_path_are_refused(tmp_path: Path) -> None:
    given = finished(tmp_path)
    with pytest.raises(InternalError, match="not one verdict for each slice"):
        pick(tmp_path, given, lacking=1)
    tools.write_rows(tmp_path / "other" / "a.jsonl", [("", "q", "yes")])
    with pytest.raises(InputError, match=r"a\.jsonl"):
        pick(tmp_path, [given, tmp_path / "other"])
