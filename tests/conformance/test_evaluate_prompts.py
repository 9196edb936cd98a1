"""Prompts of benchmarks from rows in their data sets' columns: every recorded one."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pairmill.evaluation.benchmarks import REGISTRY, Question
from pairmill.evaluation.benchmarks.base import Base

NAMES = {"MMLUPro": "mmlu_pro"}
SOURCES = {"gsm8k": "gsm8k"}


@pytest.fixture(scope="module")
def recorded(shared: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared / "conformance/train/evaluate/prompts.json").read_text())
    return found


def benchmark_of(case: str) -> Base:
    name, _, options = case.partition(" ")
    found: Any = REGISTRY[NAMES.get(name, name.lower())]
    return dataclasses.replace(found, **json.loads(options)) if options else found  # type: ignore[no-any-return]


def rows_of(benchmark: Base, rows: dict[str, Any], times: int) -> dict[str, Any]:
    source = SOURCES.get(benchmark.name, benchmark.source)
    # The recorded rows were given for each of the configurations that were asked for.
    return {need.split: rows.get(f"{source} {need.split}", []) * times for need in benchmark.needs}


def truth_of(question: Question) -> Any:
    if question.benchmark == "mmlu_pro":
        return [question.gold, list(question.choices), question.group]
    if not question.choices:
        return question.gold
    found: dict[str, Any] = {"valid_set": list(question.choices), "gold": question.gold}
    return found | ({"subject": question.group} if question.group else {})


def test_prompts(recorded: dict[str, Any]) -> None:
    assert recorded["result"]
    for case, expected in recorded["result"].items():
        one = benchmark_of(case)
        times = len(expected["prompts"]) if one.name == "math" else 1
        questions = list(one.questions(rows_of(one, recorded["rows"], times)))
        assert [question.prompt for question in questions] == expected["prompts"], case
        assert [truth_of(question) for question in questions] == expected["truths"], case
        assert {name: one.settings.get(name) for name in expected["overrides"]} == expected["overrides"], case
        assert ("max_tokens" in one.settings) == ("max_tokens" in expected["overrides"]), case


def test_rows_are_of_benchmarks_that_there_are(recorded: dict[str, Any]) -> None:
    """Every recorded split is one that a benchmark reads."""
    known = {f"{SOURCES.get(one.name, one.source)} {need.split}" for one in REGISTRY.values() for need in one.needs}
    assert recorded["rows"].keys() <= known
