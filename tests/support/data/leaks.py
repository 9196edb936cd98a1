"""Benchmarks, their index and the rows that are scored with it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pairmill._native import LeakIndex, LeakIndexBuilder
from pairmill.engine.shards import run_shard
from pairmill.engine.stage import ShardRecord
from pairmill.formats.rows import Batch
from pairmill.leaks import index
from pairmill.leaks.scorer import LeakScorer
from pairmill.leaks.settings import Benchmark, Decontaminate

VERDICTS = ("question_answer", "question", "variant", "short_question")


class Item(NamedTuple):
    """An item of a benchmark."""

    name: str
    question: str
    answers: Sequence[str] = ()
    benchmark: str = "bench"


class Hit(NamedTuple):
    """A row that repeats an item."""

    row: int
    benchmark: str
    item: str
    verdict: str
    field: str
    question: float
    answer: float
    window: tuple[int, int]


def data_of(items: Iterable[Item]) -> Any:
    """The bytes of the index of some items, uint8."""
    builder = LeakIndexBuilder()
    for item in items:
        name, question = pa.array([item.name]), pa.array([item.question])
        counts = np.array([len(item.answers)], np.int64)
        builder.add(item.benchmark, name, question, pa.array(item.answers, pa.string()), counts)
    return builder.finish()


def hits_of(made: LeakIndex, rows: Sequence[tuple[str, str]]) -> list[Hit]:
    """What of the items these rows (instruction, response) repeat."""
    found = made.score(*(pa.array([row[place] for row in rows], pa.string()) for place in (0, 1)))
    assert found[-1] == 0, "every candidate was looked at"
    row, item, verdict, field, question, answer, start, end = (column.tolist() for column in found[:8])
    return [
        Hit(
            row[at],
            *made.item(item[at]),
            VERDICTS[verdict[at]],
            ("instruction", "response")[field[at]],
            question[at],
            answer[at],
            (start[at], end[at]),
        )
        for at in range(len(row))
    ]


def written(path: Path, records: Sequence[Any]) -> Path:
    """A file of JSON Lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def built(root: Path, *benchmarks: Benchmark, **options: Any) -> tuple[LeakScorer, list[ShardRecord]]:
    """The scorer of benchmarks, planned and built as the stage does it, and the records of the shards."""
    withheld = options.pop("withheld", [])
    plan = index.planned(Decontaminate(benchmarks=list(benchmarks), withheld=withheld), root=str(root), **options)
    records = [
        run_shard("curate", replace(shard, key=plan.key), None, str(root / "shards"))() for shard in index.shards(plan)
    ]
    scorer = index.scorer(plan, records)
    assert scorer is not None
    return scorer, records


def batch(*rows: tuple[str, str]) -> Batch:
    """Rows (instruction, response) as a stage reads them."""
    columns = [pa.array([row[place] for row in rows], pa.string()) for place in (0, 1)]
    return Batch(0, pa.array(["direct"] * len(rows)), *columns)
