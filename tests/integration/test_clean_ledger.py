"""Whatever raw records hold, each is kept or dropped for a reason, and every row that was written is counted.

The example data of all sources, with random cells of it made null, empty, long, of another kind or no Unicode.
"""

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.sources.datasets import SOURCES
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from tests.support.cases import cases
from tests.support.helpers import python

TEXTS: list[Any] = [
    None,
    "",
    " \n",
    "\u2028",
    "x" * 5000,
    "{",
    "Answer:",
    "#### ",
    "\\boxed{",
    "<think>",
    "\ufeff",
    "é\0日",
]
DOCUMENTS = {name for name, source in SOURCES.items() if source.documents}
OTHERS: list[Any] = [*TEXTS, 5, -1, 0.5, True, [], [None], ["a", 3], {}, {"a": None}, "\ud800"]


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    done = python("examples/make_raw.py", str(folder), "sources=all")
    assert done.returncode == 0, done.stderr
    return folder


def spoiled_table(rng: random.Random, table: pa.Table) -> pa.Table:
    """Cells become others that the column's type allows."""
    columns = []
    for name in table.column_names:
        kind = table.schema.field(name).type
        values = table[name].to_pylist()
        for row in range(len(values)):
            if rng.random() < 0.1:
                values[row] = rng.choice(TEXTS) if pa.types.is_string(kind) else rng.choice([None, values[row - 1]])
        columns.append(pa.array(values, kind))
    return pa.table(columns, schema=table.schema)


def spoiled(rng: random.Random, value: Any) -> Any:
    """A JSON value, changed somewhere."""
    if rng.random() < 0.15:
        return rng.choice(OTHERS)
    if isinstance(value, dict):
        kept = {key: spoiled(rng, item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if rng.random() > 0.03}
    return [spoiled(rng, item) for item in value] if isinstance(value, list) else value


def spoiled_lines(rng: random.Random, data: bytes) -> bytes:
    """Lines lose their end, characters or all."""
    changes: list[Callable[[bytes], bytes]] = [
        lambda line: b"",
        lambda line: line[: len(line) // 2],
        lambda line: line + b"\xff",
        lambda line: line + b"," + line,
        lambda line: line,
    ]
    lines = data.split(b"\n")
    return b"\n".join(rng.choice(changes)(line) if rng.random() < 0.02 else line for line in lines)


def spoil(rng: random.Random, examples: Path, target: Path) -> dict[str, int]:
    """Write spoiled examples; records by source, of those whose files say how many there are."""
    counts: dict[str, int] = {}
    for path in sorted(examples.rglob("*")):
        if not path.is_file():
            continue
        made = target / path.relative_to(examples)
        made.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(spoiled_table(rng, pq.read_table(path)), made, row_group_size=17)
        elif path.suffix == ".json":
            value = json.loads(path.read_text())
            made.write_text(
                json.dumps([spoiled(rng, item) for item in value] if isinstance(value, list) else spoiled(rng, value))
            )
        elif path.suffix == ".jsonl":
            made.write_text("".join(json.dumps(spoiled(rng, json.loads(line))) + "\n" for line in path.open()))
        elif path.suffix in {".txt", ".csv"}:
            made.write_bytes(spoiled_lines(rng, path.read_bytes()))
        else:
            made.write_bytes(path.read_bytes())
    for name in ("amps_khan", "arb", "scibench"):
        values = [json.loads(path.read_text()) for path in (target / name).rglob("*.json")]
        counts[name] = sum(len(value) if isinstance(value, list) and name != "amps_khan" else 1 for value in values)
    for name in ("SYNTH", "tasksource", "webinstruct_verified", "textbookreasoning", "openmathinstruct2"):
        files = [path for path in (target / name).rglob("*.parquet") if re.search(r"synth|train", path.name)]
        counts[name] = sum(pq.ParquetFile(path).metadata.num_rows for path in files)
    return counts


@pytest.mark.parametrize("seed", cases(range(3), 1, 2))
def test_every_record_is_accounted_for(examples: Path, tmp_path: Path, seed: int) -> None:
    counts = spoil(random.Random(seed), examples, tmp_path / "raw")
    config = CleanConfig(raw=str(tmp_path / "raw"), root=str(tmp_path / "root"), workers=1, max_reject_fraction=1.0)
    result = runner.run(Clean(), config)
    folder, manifest = Path(result.uri), result.manifest
    sources = manifest.data["sources"]
    assert set(sources) == set(SOURCES)
    for name, one in sources.items():
        ledger = one["ledger"]
        assert ledger["rows_in"] == ledger["rows_kept"] + sum(ledger["dropped"].values()) > 0, name
        assert ledger["rows_in"] == counts.get(name, ledger["rows_in"]), name
    assert sum(one["rejects"] > 0 for one in sources.values()) >= 20
    assert manifest.ledger.rows_in == sum(one["ledger"]["rows_in"] for one in sources.values())
    rows = 0
    for path, count in manifest.data["outputs"].items():
        if path.endswith(".jsonl"):
            texts = [json.loads(line) for line in (folder / path).open(encoding="utf-8")]
        else:
            texts = pq.read_table(folder / path).to_pylist()
        assert len(texts) == count, path
        of_text = ["response"] if path.split("/")[1] in DOCUMENTS else ["condition", "instruction", "response"]
        assert all(isinstance(row[name], str) and row[name].strip() for row in texts for name in of_text), path
        rows += count
    assert rows == manifest.ledger.rows_out
    aside = [json.loads(line) for path in folder.glob("rejects/**/*.jsonl") for line in path.open()]
    assert len(aside) == sum(one["rejects"] for one in sources.values()) > 100
    assert all(line["file"] and line["place"] and line["reason"] for line in aside)
