"""Metrics and personal data of the recorded texts of specification curation, 4 and 8."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pairmill import _native
from pairmill.stages.curate.scores.pii import KINDS
from tests.support.definitions.text_metrics import metrics


def cases(path: Path) -> list[dict[str, Any]]:
    cases = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert len(cases) >= 30, path
    return cases


@pytest.fixture(scope="module")
def recorded(shared: Path) -> list[dict[str, Any]]:
    return cases(shared / "conformance/curate/heuristics/metrics.jsonl")


def test_every_metric_of_every_text_is_the_recorded_one(recorded: list[dict[str, Any]]) -> None:
    found = _native.curate_metrics(pa.array([case["text"] for case in recorded]))
    assert set(found) == set(recorded[0]["metrics"])
    for name, values in found.items():
        expected = pytest.approx([case["metrics"][name] for case in recorded], rel=0, abs=1e-12)
        assert values.tolist() == expected, name


def test_the_plain_metrics_that_others_are_compared_with_are_the_recorded_ones(recorded: list[dict[str, Any]]) -> None:
    for case in recorded:
        assert metrics(case["text"]) == pytest.approx(case["metrics"], rel=0, abs=1e-12), case["text"]


def test_every_metric_of_every_pair_is_the_recorded_one(shared: Path) -> None:
    pairs = cases(shared / "conformance/curate/heuristics/pairs.jsonl")
    instruction, response = (pa.array([pair[name] for pair in pairs]) for name in ("instruction", "response"))
    found = _native.curate_pair_metrics(instruction, response)
    assert set(found) == set(pairs[0]["metrics"])
    assert found["same"].tolist() == [pair["metrics"]["same"] for pair in pairs]
    for name in ("response_instruction_ratio", "copy_ratio"):
        assert found[name].tolist() == pytest.approx([pair["metrics"][name] for pair in pairs], rel=0, abs=1e-12)


def test_personal_data_are_found_and_replaced_as_recorded(shared: Path) -> None:
    recorded = cases(shared / "conformance/curate/pii/expected.jsonl")
    texts = pa.array([case["text"] for case in recorded])
    spans: list[list[list[Any]]] = [[] for _ in recorded]
    for row, start, stop, kind in zip(*(column.tolist() for column in _native.curate_pii(texts)), strict=True):
        spans[row].append([start, stop, KINDS[kind]])
    assert spans == [case["spans"] for case in recorded]
    redacted, replaced = _native.curate_redact(texts)
    assert pa.array(redacted).to_pylist() == [case["redacted"] for case in recorded]
    assert replaced.tolist() == [len(case["spans"]) for case in recorded]
