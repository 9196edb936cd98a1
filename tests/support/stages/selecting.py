"""Rows with attributes for select, and what a run made of them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from pairmill.engine import runner
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest, content_key
from pairmill.formats import attributes
from pairmill.formats.rows import Row, writer_for
from pairmill.stages.select.config import SelectConfig
from pairmill.stages.select.core import Select
from tests.support.definitions.selection import Result, Selection
from tests.support.stages import curating

TYPES = {
    "quality.score": "number",
    "quality.toxicity": "number",
    "quality.words": "integer",
    "quality.good": "boolean",
    "topic.name": "text",
    "source.date": "date",
}
TOPICS = ["law", "art", "sea", None]
THEME = ["anchor", "harbour", "vessel", "tide", "sail", "deck", "mast", "rope", "keel", "crew"]
WORDS = ["the", "of", "a", *curating.WORDS[:14]]
REFERENCE = datetime(2026, 1, 1, tzinfo=UTC)

Rows = dict[str, list[dict[str, Any]]]


def generated(seed: int, counts: Mapping[str, int], *, nulls: float = 0.1, skip: float = 0.0) -> Rows:
    """Make rows by path, some of them about a theme; ``ordinal`` skips some numbers, as if rows before had gone."""
    rng = random.Random(seed)
    made: Rows = {}
    for path, count in counts.items():
        some, ordinal = made.setdefault(path, []), 0
        for _ in range(count):
            while rng.random() < skip:
                ordinal += 1
            words = [*WORDS, *THEME * (3 if rng.random() < 0.4 else 0)]

            def text(least: int, most: int, words: Sequence[str] = words) -> str:
                return " ".join(rng.choice(words) for _ in range(rng.randint(least, most)))

            values: dict[str, Any] = {
                "quality.score": rng.choice([rng.gauss(0, 1), rng.gauss(0, 1), float(rng.randint(0, 2))]),
                "quality.toxicity": rng.random(),
                "quality.words": rng.randint(0, 9),
                "quality.good": rng.random() < 0.5,
                "topic.name": rng.choice(TOPICS),
                "source.date": datetime(rng.randint(2015, 2025), rng.randint(1, 12), 3, 4, tzinfo=UTC),
            }
            values = {name: None if rng.random() < nulls else value for name, value in values.items()}
            some.append(
                {
                    "task": path.replace("/", "__"),
                    "ordinal": ordinal,
                    "condition": rng.choice(["direct", "cot"]),
                    "instruction": text(0, 12),
                    "response": text(0, 30),
                    "attributes": values,
                }
            )
            ordinal += 1
    return made


def write(folder: Path, rows: Rows, held_out: Mapping[str, Sequence[Row]] | None = None) -> Path:
    """Write a finished folder of these rows with their attributes; row groups are small."""
    files: list[File] = []
    ledger = Ledger()

    def add(path: Path, task: str = "") -> None:
        content = path.read_bytes()
        files.append(File(path.relative_to(folder).as_posix(), len(content), hashlib.sha256(content).hexdigest(), task))

    def put(path: str, some: Iterable[Row], task: str) -> None:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file, writer_for(path, file) as writer:
            held = list(some)
            for start in range(0, max(1, len(held)), 7):
                writer.write(held[start : start + 7])
        add(target, task)

    for path, some in rows.items():
        task = path.replace("/", "__")
        put(path, [Row(item["condition"], item["instruction"], item["response"]) for item in some], task)
        ledger.rows_in += len(some)
        ledger.rows_kept += len(some)
        ledger.rows_out += len(some)
        tables: dict[str, dict[str, str]] = {"origin": {"ordinal": "integer"}}
        for name, kind in TYPES.items():
            operation, _, column = name.partition(".")
            tables.setdefault(operation, {})[column] = kind
        for operation, types in tables.items():
            target = folder / attributes.path_of(task, operation)
            target.parent.mkdir(parents=True, exist_ok=True)
            values = [
                tuple(
                    item["ordinal"] if operation == "origin" else item["attributes"][f"{operation}.{name}"]
                    for name in types
                )
                for item in some
            ]
            with target.open("wb") as file, attributes.AttributesWriter(file, types) as writer:
                for start in range(0, len(some), 7):
                    writer.write(attributes.table_of(types, values[start : start + 7]))
            add(target)
    for path, held in (held_out or {}).items():
        put(path, held, f"holdout/{path.removeprefix('holdout/').replace('/', '__')}")
    data = {"held_out": {path: len(some) for path, some in held_out.items()}} if held_out else {}
    _finish(folder, ledger, files, data)
    return folder


def sealed(folder: Path) -> None:
    """Finish a folder again whose files were changed."""
    before = curating.manifest(folder)
    files = []
    for item in before.files:
        content = (folder / item.path).read_bytes()
        files.append(File(item.path, len(content), hashlib.sha256(content).hexdigest(), item.task))
    (folder / "_MANIFEST.json").unlink()
    _finish(folder, before.ledger, files, before.data)


def _finish(folder: Path, ledger: Ledger, files: list[File], data: dict[str, Any]) -> None:
    fingerprint = content_key([[item.path, item.digest] for item in files])[:16]
    manifest = Manifest("curate", 1, fingerprint, {}, [InputRef("rows", "00")], ledger, files)
    manifest.data.update(data)
    (folder / "_STARTED.json").write_text("{}")
    manifest.finish(str(folder))


def targets(base: Path, texts: Mapping[str, Sequence[tuple[str, str]]]) -> list[dict[str, Any]]:
    """Write files of targets, as the settings name them."""
    result = []
    for name, some in texts.items():
        path = base / f"{name}.jsonl"
        if not path.exists():
            with path.open("wb") as file, writer_for(path.name, file) as writer:
                writer.write([Row("", *item) for item in some])
        result.append({"name": name, "rows": str(path)})
    return result


def themed(seed: int, count: int = 12) -> list[tuple[str, str]]:
    """Make texts about the theme."""
    rng = random.Random(seed)
    words = [*THEME, *THEME, *WORDS[:6]]
    return [(" ".join(rng.choices(words, k=6)), " ".join(rng.choices(words, k=15))) for _ in range(count)]


def write_settings(base: Path, settings: Mapping[str, Any], name: str = "select_config.yaml") -> str:
    """Write a file of settings; return its path."""
    path = base / name
    path.write_text(yaml.safe_dump(dict(settings), sort_keys=False))
    return str(path)


def config_of(root: Path, given: Path | Sequence[Path], settings: Mapping[str, Any], **options: Any) -> SelectConfig:
    """Return the stage's options."""
    root.mkdir(parents=True, exist_ok=True)
    places = [given] if isinstance(given, Path) else given
    return SelectConfig(
        rows=[str(item) for item in places],
        root=str(root),
        select_config=write_settings(root, settings),
        workers=options.pop("workers", 1),
        **options,
    )


def select(root: Path, given: Path | Sequence[Path], settings: Mapping[str, Any], **options: Any) -> Path:
    """Run the stage in this process; returns the finished folder."""
    return Path(runner.run(Select(), config_of(root, given, settings, **options)).uri)


def chosen(folder: Path, tasks: Iterable[str]) -> dict[str, set[str]]:
    """Return row ids by what chose them, as the attributes say."""
    result: dict[str, set[str]] = {}
    for task in tasks:
        own = column(folder, task, "chosen_by")
        for ordinal, name in zip(column(folder, task, "ordinal", "origin"), own, strict=True):
            if name is not None:
                result.setdefault(name, set()).add(f"{task}:{ordinal}")
    return result


def column(folder: Path, task: str, name: str, operation: str = "select") -> list[Any]:
    """Read an attribute of the rows that stay."""
    values: list[Any] = table(folder, task, operation)[name].to_pylist()
    return values


def table(folder: Path, task: str, operation: str = "select") -> pa.Table:
    """Read the attributes of the rows that stay."""
    return pq.read_table(folder / attributes.path_of(task, operation))


def defined(
    rows: Rows, settings: Mapping[str, Any], texts: Mapping[str, Sequence[tuple[str, str]]] = {}, **given: Any
) -> Result:
    """Choose as the definition does."""
    every = [item for some in rows.values() for item in some]
    return Selection(every, {**settings, "reference_date": REFERENCE}, texts, **given).run()
