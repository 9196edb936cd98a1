"""Rows are held against the records that they are made of, through all stages, by marks in their texts."""

import numpy as np
import pytest

from pairmill.lineage.records import Origins
from tests.support import traced
from tests.support.traced import Line


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    return traced.make(tmp_path_factory.mktemp("line"))


@pytest.mark.parametrize("stage", ["clean", "curate", "select", "tokenize"])
def test_every_row_names_its_record_and_every_record_its_rows(line: Line, stage: str) -> None:
    origins = Origins.open(str(getattr(line, stage)))
    rows = traced.texts(line.select if stage == "tokenize" else getattr(line, stage))
    assert sorted(rows) == origins.tasks
    expected: dict[str, set[tuple[str, int]]] = {}
    lines = {}
    for task, texts in rows.items():
        found = origins.records(task, np.arange(len(texts)))
        assert len(found) == len(texts)
        for ordinal, (record, text) in enumerate(zip(found, texts, strict=True)):
            lines[record] = text
            expected.setdefault(str(record), set()).add((task, ordinal))
            raw = (line.raw / record.file).read_text("utf-8").splitlines()[record.line - 1]
            assert set(traced.marks(text)) == set(traced.marks(raw)) != set()
    assert any(task.startswith("holdout/") for task in rows)
    made = origins.rows(lines)
    assert {str(record): {*mine} for record, mine in made.items()} == expected
