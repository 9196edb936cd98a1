"""A finished folder of curate as its stage writes it, small, and the rows that it was made of.

What became of each row is in TASKS: its texts, and the decisions of operations about it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.formats import attributes, decisions
from pairmill.formats.rows import Row, writer_for

TEXT = "The {} of a long answer explains each step of the work in turn, so that a reader can follow it to the end."
LONG = " ".join(TEXT.format(word) for word in ("beginning", "middle", "end"))


@dataclass
class Case:
    """A row, and what operations decided about it, as columns of a decision by operation.

    ``dropped`` = the ledger reason, empty if it is kept.
    """

    row: Row
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    dropped: str = ""


def _drop(operation: str, reason: str, rule: str, **columns: Any) -> tuple[dict[str, dict[str, Any]], str]:
    return {operation: {"rule": rule, "action": "drop", **columns}}, reason


GOLD, WEB, HELD_OUT = "data__gold.jsonl", "data__web.parquet", "holdout/data__gold.jsonl"

TASKS: dict[str, list[Case]] = {
    GOLD: [
        Case(Row("direct", "What is the capital of France, and why?", LONG)),
        Case(Row("direct", "Name a colour.", "Blue.")),
        Case(
            Row("direct", "Name a shade.", "http://a.example http://b.example"),
            {"heuristics": {"rule": "r_url_ratio_max", "action": "report", "detail": "0.97 > 0.2"}},
        ),
    ],
    WEB: [
        Case(
            Row("cot", "What is the capital of France and why?", LONG.replace("follow", "trace")),
            *_drop("near", "dup_near", "strong", other_task=GOLD, other_ordinal=0, score_i=0.91, score_r=0.875),
        ),
        Case(Row("cot", "A row that is kept\nin two lines", "with <b>an</b> answer \x1b[31m")),
        Case(
            Row("cot", "Name a colour.", "Blue."),
            *_drop("exact", "dup_exact", "pair", other_task=GOLD, other_ordinal=1),
        ),
        Case(
            Row("cot", "How many apples does Ann have left if she had five and ate two?", "3"),
            *_drop(
                "decontaminate",
                "contaminated_question_answer",
                "question_answer",
                benchmark="sums",
                item="7",
                score_i=1.0,
                score_r=1.0,
            ),
        ),
        Case(
            Row("cot", "Name a fruit.", "Apple."),
            *_drop("exact", "held_out", "pair", other_task=HELD_OUT, other_ordinal=0),
        ),
        Case(Row("cot", "The last row", "is kept too.")),
    ],
    HELD_OUT: [Case(Row("direct", "Name a fruit.", "Apple."))],
}

TYPES = {"i_words": "integer", "r_url_ratio": "number"}


def path_of(task: str) -> str:
    """Path of a task's rows below a folder."""
    held_out, name = ("holdout/", task.removeprefix("holdout/")) if task.startswith("holdout/") else ("", task)
    return held_out + name.replace("__", "/")


def write(folder: Path, data: dict[str, Any] | None = None, *, done: bool = True) -> tuple[Path, Path]:
    """Write ``rows`` and ``curated`` below a folder; returns both."""
    rows, curated = folder / "rows", folder / "curated"
    files: list[File] = []
    ledger = Ledger()

    def add(path: Path, task: str = "") -> None:
        content = path.read_bytes()
        relative = path.relative_to(curated).as_posix()
        files.append(File(relative, len(content), hashlib.sha256(content).hexdigest(), task))

    for task, cases in TASKS.items():
        kept = [case for case in cases if not case.dropped]
        for base, some in ((rows, cases), (curated, kept)):
            path = base / path_of(task)
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file, writer_for(str(path), file) as writer:
                writer.write([case.row for case in some])
        add(curated / path_of(task), task)
        if not task.startswith("holdout/"):
            ledger.rows_in += len(cases)
            ledger.rows_kept += len(kept)
            ledger.rows_out += len(kept)
            for case in cases:
                if case.dropped:
                    ledger.drop(case.dropped)
        ordinals = [ordinal for ordinal, case in enumerate(cases) if not case.dropped]
        _attributes(curated, task, "curate", {"ordinal": "integer"}, [(ordinal,) for ordinal in ordinals], add)
        values = [(len((case.row.instruction or "").split()), 0.125) for case in kept]
        _attributes(curated, task, "heuristics", TYPES, values, add)
        for operation in sorted({name for case in cases for name in case.found}):
            found = [(ordinal, case.found[operation]) for ordinal, case in enumerate(cases) if operation in case.found]
            columns = {
                name: [ordinal if name == "ordinal" else one.get(name) for ordinal, one in found]
                for name in decisions.SCHEMA.names
            }
            path = curated / decisions.path_of(operation, task)
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(decisions.table_of(columns, len(found)), path)
            add(path)
    manifest = Manifest(
        stage="curate",
        version=1,
        fingerprint="0123456789abcdef",
        options={},
        inputs=[InputRef("rows", "00")],
        ledger=ledger,
        files=files,
        data=data_of() if data is None else data,
    )
    (curated / "_STARTED.json").write_text("{}")
    if done:
        manifest.finish(str(curated))
    return rows, curated


def _attributes(
    curated: Path, task: str, operation: str, types: dict[str, str], values: list[tuple[Any, ...]], add: Any
) -> None:
    path = curated / attributes.path_of(task, operation)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file, attributes.AttributesWriter(file, types) as writer:
        writer.write(pa.table(attributes.table_of(types, values)))
    add(path)


def sample_of(task: str, ordinal: int, operation: str) -> dict[str, Any]:
    """A sample as the manifest has it."""
    case = TASKS[task][ordinal]
    found = case.found[operation]
    other = TASKS[found["other_task"]][found["other_ordinal"]].row if found.get("other_task") else None
    item = ("How many apples has Ann left if she had five and ate two?", "3") if found.get("benchmark") else ("", "")
    names = ("other_task", "other_ordinal", "benchmark", "item", "score_i", "score_r", "action", "detail")
    return {
        "task": task,
        "ordinal": ordinal,
        "rule": found["rule"],
        **{name: found.get(name) for name in names},
        "instruction": case.row.instruction,
        "response": case.row.response,
        "other_instruction": other.instruction if other else item[0],
        "other_response": other.response if other else item[1],
    }


def data_of() -> dict[str, Any]:
    """The manifest's data of TASKS."""
    operations: dict[str, Any] = {
        name: {"mode": mode, "modes": {}, "rules": {}, "owned": {}, "would_go": {}, "by_source": {}}
        for name, mode in {
            "exact": "drop",
            "near": "drop",
            "decontaminate": "drop",
            "heuristics": "report",
            "filter": "report",
        }.items()
    }
    sources: dict[str, Any] = {}
    samples: dict[str, list[Any]] = {}
    for task, cases in TASKS.items():
        if task.startswith("holdout/"):
            continue
        source = "gold" if "gold" in task else "web"
        one = sources.setdefault(source, {"rows": 0, "kept": 0, "would_go": 0, "dropped": {}})
        for ordinal, case in enumerate(cases):
            one["rows"] += 1
            one["kept"] += not case.dropped
            if case.dropped:
                one["dropped"][case.dropped] = one["dropped"].get(case.dropped, 0) + 1
            for operation, found in case.found.items():
                rules = operations[operation]["rules"].setdefault(found["rule"], {})
                rules[found["action"]] = rules.get(found["action"], 0) + 1
                operations[operation]["modes"][found["rule"]] = operations[operation]["mode"]
                if found["action"] == "report":
                    would_go = operations[operation]["would_go"]
                    would_go[found["rule"]] = would_go.get(found["rule"], 0) + 1
                    one["would_go"] += 1
                owned = operations[operation]["owned"]
                owned[found["rule"]] = owned.get(found["rule"], 0) + 1
                by_source = operations[operation]["by_source"].setdefault(source, {})
                by_source[found["rule"]] = by_source.get(found["rule"], 0) + 1
                samples.setdefault(f"{operation}.{found['rule']}", []).append(sample_of(task, ordinal, operation))
    return {
        "settings": {
            "report_all": False,
            "near": {"mode": "drop", "min_response": 20},
            "heuristics": {"mode": "report", "profile": "pairs", "rules": []},
        },
        "sources": sources,
        "operations": operations,
        "matrix": {"web": {"gold": 1}},
        "benchmarks": {
            "sums": {"items": 12, "hit": 1, "rows": 1, "by_rule": {"question_answer": 1}, "by_source": {"web": 1}}
        },
        "histograms": {
            "heuristics.r_url_ratio": {
                "counts": [6, 1, 0, 1],
                "edges": [0.0, 0.1, 0.2, 0.5, 1.0],
                "bounds": [None, 0.2],
            },
            "heuristics.i_words": {"counts": [0, 3, 5], "edges": [0, 2, 4, 8], "bounds": [None, None]},
        },
        "samples": samples,
        "closest": {"near.strong": samples["near.strong"]},
        "costs": {
            "exact": {"rows": 9, "bytes": 1_000, "scratch_bytes": 300},
            "near": {"rows": 8, "bytes": 900, "scratch_bytes": 2_000, "verifications": 3, "unverified": 0},
        },
        "held_out": {HELD_OUT: 1},
    }
