"""Scoring: every recorded output, whatever the names of the cases and however many there are."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pairmill.errors import InputError
from pairmill.evaluation.benchmarks import REFERENCE, REGISTRY, Question
from pairmill.evaluation.benchmarks.aime import Aime
from pairmill.evaluation.prompts import letters
from pairmill.evaluation.scoring import drop, numbers
from pairmill.evaluation.scoring.letters import letter_within
from pairmill.text import boxed


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    return shared / "conformance/train/evaluate"


def read(folder: Path, name: str) -> Any:
    found = json.loads((folder / f"{name}.json").read_text())
    assert found
    return found


def question(name: str, gold: Any, choices: Sequence[str] = (), group: str = "") -> Question:
    return Question(name, "", group, "", "", gold, tuple(choices), "")


def reference(name: str, asked: Sequence[Question], outputs: Sequence[str]) -> dict[str, Any]:
    one = REGISTRY[name]
    scored = [(q, one.score(q, [text])) for q, text in zip(asked, outputs, strict=True)]
    return one.total(scored, "hrm_text")


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found == pytest.approx(expected, abs=1e-12)


def test_files(folder: Path) -> None:
    """A file that these tests do not know would be left out."""
    known = {"boxed", "drop", "gsm8k", "letters", "majority_vote", "math", "mmlu_pro", "prompts"}
    assert {path.stem for path in folder.glob("*.json")} == known


def test_boxed(folder: Path) -> None:
    for case in read(folder, "boxed"):
        assert boxed(case["text"]) == case["boxed"], case


def test_gsm8k(folder: Path) -> None:
    recorded = read(folder, "gsm8k")
    benchmark = REGISTRY["gsm8k"]
    assert recorded["truths"]
    for case in recorded["truths"]:
        rows = {"test": [{"question": "q", "answer": case["answer"]}]}
        if "error" in case:
            with pytest.raises(InputError, match="row 0"):
                list(benchmark.questions(rows))
        else:
            assert [one.gold for one in benchmark.questions(rows)] == [case["truth"]]
    assert recorded["cases"]
    for case in recorded["cases"]:
        verdict = benchmark.score(question("gsm8k", case["truth"]), [case["output"]])
        assert numbers.reference(case["output"]) == case["extracted"], case
        found = (verdict.extra[REFERENCE], verdict.extra[f"{REFERENCE}_invalid"])
        assert found == (case["correct"], case["invalid"]), case
    asked = [question("gsm8k", case["truth"]) for case in recorded["cases"]]
    same(reference("gsm8k", asked, [case["output"] for case in recorded["cases"]]), recorded["totals"])
    same(reference("gsm8k", [], []), recorded["empty"])


def test_math(folder: Path) -> None:
    cases = read(folder, "math")["cases"]
    assert cases
    differing = 0
    for case in cases:
        verdict = REGISTRY["math"].score(question("math", case["gold_boxed"]), [case["output"]])
        found = (verdict.extra[REFERENCE], verdict.extra[f"{REFERENCE}_invalid"], verdict.correct, verdict.invalid)
        assert found == (case["correct"], case["invalid"], case["correct_if_delimited"], case["invalid"]), case
        differing += verdict.correct != verdict.extra[REFERENCE]
    assert differing == sum(case["correct"] != case["correct_if_delimited"] for case in cases)


def test_letters(folder: Path) -> None:
    recorded = read(folder, "letters")
    assert recorded["cases"]
    for name in ("mmlu", "arc", "hellaswag", "winogrande", "boolq"):
        for case in recorded["cases"]:
            asked = question(name, case["gold"], letters(case["n_choices"]))
            verdict = REGISTRY[name].score(asked, [case["output"]])
            found = (verdict.extra["with_credit"], verdict.extra[REFERENCE], verdict.invalid)
            assert found == (case["score"], case["score"], case["invalid"]), case
            assert verdict.correct == (0 if case["invalid"] else case["score"]), case
        overrides = recorded["generation_overrides"]
        assert overrides
        assert REGISTRY[name].settings | overrides == REGISTRY[name].settings
    macro = recorded["mmlu_macro"]
    asked_all = [
        question("mmlu", gold, letters(4), group) for gold, group in zip(macro["gold"], macro["subject"], strict=True)
    ]
    same(reference("mmlu", asked_all, macro["outputs"]), macro["result"])


def test_mmlu_pro(folder: Path) -> None:
    recorded = read(folder, "mmlu_pro")
    assert recorded["cases"]
    for case in recorded["cases"]:
        found = letter_within(boxed(case["output"]) or case["output"], recorded["options"])
        assert found == case["extracted"], case
        verdict = REGISTRY["mmlu_pro"].score(question("mmlu_pro", "A", recorded["options"]), [case["output"]])
        assert (verdict.extracted, verdict.invalid) == (case["extracted"], case["extracted"] is None)
    scored = recorded["scored"]
    asked = [
        question("mmlu_pro", gold, recorded["options"], group)
        for gold, group in zip(scored["gold"], scored["category"], strict=True)
    ]
    same(reference("mmlu_pro", asked, scored["outputs"]), scored["result"])


def test_majority_vote(folder: Path) -> None:
    recorded = read(folder, "majority_vote")
    one = replace(REGISTRY["aime"], samples=recorded["n"], ks=tuple(recorded["pass_k"]))  # type: ignore[type-var]
    assert isinstance(one, Aime)
    n, scored = recorded["n"], []
    for number, gold in enumerate(recorded["truths"]):
        asked = question("aime", gold)
        scored.append((asked, one.score(asked, recorded["outputs"][n * number : n * (number + 1)])))
    assert scored
    same(one.total(scored, "hrm_text"), recorded["result"])


def test_drop(folder: Path) -> None:
    cases = read(folder, "drop")["cases"]
    assert cases
    for case in cases:
        assert drop.score(case["output"], case["answers"]) == (case["em"], case["f1"]), case
        verdict = REGISTRY["drop"].score(question("drop", case["answers"]), [case["output"]])
        assert (verdict.correct, verdict.extra["f1"]) == (case["em"], case["f1"])
