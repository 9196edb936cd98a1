"""Forms and keys of the recorded texts and rows of specification curation, 0.4 and 1."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import _native
from pairmill.text import light


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[dict[str, Any]]:
    lines = (shared / "conformance/curate/dedup/normalise.jsonl").read_text("utf-8").splitlines()
    cases = [json.loads(line) for line in lines]
    assert cases
    return cases


@pytest.mark.parametrize(("place", "form"), [(0, "light"), (1, "tokens"), (2, "numbers")])
def test_each_text_has_its_recorded_form(cases: list[dict[str, Any]], place: int, form: str) -> None:
    made = _native.curate_forms(pa.array([case["text"] for case in cases]))[place]
    assert pa.array(made).to_pylist() == [case[form] for case in cases]


def test_both_light_forms_are_equal_on_every_recorded_row(shared: Path) -> None:
    files = sorted((shared / "conformance/curate").glob("*/*.parquet"))
    texts = []
    for path in files:
        table = pq.read_table(path)
        for name in {"instruction", "response"} & set(table.column_names):
            texts += table[name].to_pylist()
    assert texts
    assert pa.array(_native.curate_forms(pa.array(texts))[0]).to_pylist() == [light(text) for text in texts]


@pytest.mark.parametrize(
    ("column", "fields"),
    [
        ("exact_pair", ["instruction", "response"]),
        ("exact_instruction", ["instruction"]),
        ("exact_response", ["response"]),
    ],
)
def test_each_row_has_its_recorded_key(shared: Path, column: str, fields: list[str]) -> None:
    folder = shared / "conformance/curate/dedup"
    truth = pq.read_table(folder / "truth.parquet", columns=["row_id", column])
    assert truth.num_rows
    made: dict[str, list[str]] = {}
    for row_id, key in zip(truth["row_id"].to_pylist(), truth[column].to_pylist(), strict=True):
        name, ordinal = row_id.rsplit(":", 1)
        if name not in made:
            table = pq.read_table(folder / name, columns=fields)
            keys = _native.curate_exact_keys([table[field].combine_chunks() for field in fields], light=True)
            assert (keys.shape, keys.dtype) == ((table.num_rows, 2), np.uint64)
            made[name] = [f"{high:016x}{low:016x}" for high, low in keys.tolist()]
        assert made[name][int(ordinal)] == key, row_id
