"""Rows that repeat items of benchmarks: the recorded verdicts and scores of specification curation, 3."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pairmill._native import LeakIndex
from pairmill.formats import rows
from pairmill.leaks import index
from pairmill.leaks.settings import Benchmark
from tests.support.data import leaks

NAMES = ("bench_word", "bench_mcq", "bench_math", "bench_short", "bench_copy")
PLANTED = ("question_answer", "question", "paraphrase_qa", "paraphrase_q", "embedded_qa", "in_response")
FOUND = {"question", "question_answer"}


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[dict[str, Any]]:
    folder = shared / "conformance" / "curate" / "decontaminate"
    return [json.loads(line) for line in (folder / "expected.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def found(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[tuple[str, str], dict[str, Any]]]:
    """The findings of each row, by benchmark and item."""
    folder = shared / "conformance" / "curate" / "decontaminate"
    root = tmp_path_factory.mktemp("leaks")
    mapped = [
        Benchmark(
            name=name,
            uri=str(folder / "benchmark.jsonl"),
            question="question",
            answers="answers",
            item="item",
            where=f"benchmark == '{name}'",
        )
        for name in NAMES
    ]
    scorer, records = leaks.built(root, *mapped)
    assert sum(index.items(records).values()) == 304
    made: list[dict[tuple[str, str], dict[str, Any]]] = []
    with scorer.opened() as score:
        for batch in rows.read(str(folder / "train.parquet")):
            first = len(made)
            made += [{} for _ in range(len(batch))]
            scored = score(batch)
            for one in scored.findings.to_pylist() if scored.findings is not None else ():
                made[first + one["ordinal"]][one["benchmark"], one["item"]] = one
    return made


def hits(cases: list[dict[str, Any]], found: list[Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for case, mine in zip(cases, found, strict=True):
        for hit in case["hits"]:
            yield case["row_id"], hit, mine[hit["benchmark"], hit["item"]]


def test_each_row_repeats_the_recorded_items(cases: list[dict[str, Any]], found: list[Any]) -> None:
    assert len(cases) == 1_620
    wanted = [{(hit["benchmark"], hit["item"]) for hit in case["hits"]} for case in cases]
    assert sum(map(len, wanted)) > 190
    assert [set(mine) for mine in found] == wanted


def test_verdicts_and_fields_are_the_recorded_ones(cases: list[dict[str, Any]], found: list[Any]) -> None:
    for row, hit, mine in hits(cases, found):
        assert (mine["rule"], mine["detail"].split(",")[0]) == (hit["verdict"], hit["field"]), row


def test_scores_are_the_recorded_ones(shared: Path, cases: list[dict[str, Any]]) -> None:
    """To nine decimals, which a decision's 32 bits do not have."""
    folder = shared / "conformance" / "curate" / "decontaminate"
    records = [json.loads(line) for line in (folder / "benchmark.jsonl").read_text("utf-8").splitlines()]
    items = [leaks.Item(one["item"], one["question"], one["answers"], one["benchmark"]) for one in records]
    table = pq.read_table(folder / "train.parquet")
    texts = list(zip(table["instruction"].to_pylist(), table["response"].to_pylist(), strict=True))
    scores = {
        (hit.row, hit.benchmark, hit.item): (hit.question, hit.answer)
        for hit in leaks.hits_of(LeakIndex(leaks.data_of(items)), texts)
    }
    wanted = {
        (row, hit["benchmark"], hit["item"]): (hit["question"], hit["answer"])
        for row, case in enumerate(cases)
        for hit in case["hits"]
    }
    assert scores.keys() == wanted.keys()
    off = [max(abs(mine - theirs) for mine, theirs in zip(scores[at], wanted[at], strict=True)) for at in wanted]
    assert max(off) < 1e-9


@pytest.mark.parametrize("kind", PLANTED)
def test_every_planted_item_is_found(kind: str, cases: list[dict[str, Any]], found: list[Any]) -> None:
    planted = [(case, mine) for case, mine in zip(cases, found, strict=True) if case["kind"] == kind]
    assert len(planted) == 30
    missed = [
        case["row_id"]
        for case, mine in planted
        if mine.get((case["benchmark"], case["item"]), {}).get("rule") not in FOUND
    ]
    assert missed == []


def test_rows_that_leak_nothing_are_left_alone(cases: list[dict[str, Any]], found: list[Any]) -> None:
    kinds = Counter(case["kind"] for case in cases)
    flagged = Counter(
        case["kind"]
        for case, mine in zip(cases, found, strict=True)
        if any(one["rule"] in FOUND for one in mine.values())
    )
    assert kinds["unrelated"] == 900
    assert kinds["variant_numbers"] == 10
    assert flagged["unrelated"] == flagged["variant_numbers"] == flagged["answer_only"] == 0
    assert flagged["same_template_unrelated"] <= kinds["same_template_unrelated"] / 100


def test_the_same_question_in_capitals_is_an_item_of_its_own(found: list[Any]) -> None:
    copies = [mine for mine in found if ("bench_copy", "c0") in mine]
    both = [mine for mine in found if ("bench_word", "0") in mine]
    assert copies == both
    assert copies
