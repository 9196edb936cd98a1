"""Scoring of outputs of our own making, hostile ones too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.evaluation.benchmarks import REFERENCE, REGISTRY, Question, Verdict
from pairmill.evaluation.scoring import drop, math, numbers, totals
from pairmill.evaluation.scoring.intervals import wilson
from pairmill.evaluation.scoring.letters import letter, letter_within
from pairmill.evaluation.scoring.votes import chosen, pass_at, vote
from pairmill.text import boxed
from tests.support.helpers import REPOSITORY

LONG = 100_000
HOSTILE = [
    "{" * LONG,
    "}" * LONG,
    "\\boxed{" + "{" * LONG,
    "\\boxed{" * (LONG // 7),
    "\\boxed{" + "{}" * (LONG // 2) + "}",
    "(" * LONG,
    "(A" * (LONG // 2),
    "9" * LONG,
    "1," * (LONG // 2),
    "1,111" * (LONG // 5),
    "\\boxed{" + "9" * LONG + "}",
    "1e99999999",
    "\\frac{" * (LONG // 6),
    "$" * LONG,
    "{" * (LONG // 3),
    "\\boxed{" + "(" * 2000 + ")" * 2000 + "}",
    "\\boxed{10^{10^{10}}!}",
    "\x00\ud800\n" * 1000,
    "the the a " * (LONG // 10),
    " " * LONG,
]
GOLD: dict[str, Any] = {
    "gsm8k": 72,
    "math": "\\frac{1}{2}",
    "drop": [["3"]],
    "aime": 42,
    "ifeval": [["startend:quotation", {}], ["startend:end_checker", {"end_phrase": "the end"}]],
    "ifeval_punkt": [["startend:quotation", {}], ["startend:end_checker", {"end_phrase": "the end"}]],
    "bfcl": {"category": "simple_python", "functions": [{"name": "f"}], "answers": [{"f": {}}]},
}


def question(name: str, gold: Any, choices: Sequence[str] = (), group: str = "") -> Question:
    return Question(name, "", group, "", "", gold, tuple(choices), "")


@pytest.mark.parametrize("name", REGISTRY)
def test_hostile_outputs_are_scored_in_bounded_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = math.Judge(0.2)
    monkeypatch.setattr(math, "equal", judge.verdict)
    choices = () if name in GOLD else ("A", "B", "C", "D")
    asked = question(name, GOLD.get(name, "B"), choices)
    for text in HOSTILE:
        start = time.monotonic()
        verdict = REGISTRY[name].score(asked, [text])
        assert time.monotonic() - start < 30, text[:20]
        assert verdict.correct == 0, text[:20]
        assert len(verdict.extracted or "") <= 1000
        json.dumps(verdict.extra)
    judge.close()


@pytest.mark.parametrize(
    ("text", "is_strict", "is_lenient"),
    [
        ("72", True, True),
        ("\\boxed{72}", True, True),
        ("\\boxed{\\$72}", True, True),
        ("1,072", False, False),
        ("\\boxed{72.00}", True, True),
        ("\\boxed{72.9}", False, False),
        ("72.9", False, False),
        ("\\boxed{72\\%}", False, True),
        ("72%", False, True),
        ("\\boxed{72 dollars}", False, True),
        ("\\boxed{72\\text{ cm}^2}", False, True),
        ("72 m2", False, True),
        ("The answer is 72.", False, True),
        ("First 71, then $72.", False, True),
        ("5 + 67 = 72\n#### 72", False, True),
        ("#### 72 (or 71)", False, False),
        ("The answer is -72.", False, False),
        ("it is 12-72", False, True),
        ("７２", False, False),
        ("7２", False, False),
        ("\\boxed{7_2}", False, False),
        ("7,2", False, False),
        (".72", False, False),
        ("72/2", False, False),
        ("144/72", False, False),
        ("0x48", False, False),
        ("72e3x", False, False),
        ("", False, False),
    ],
)
def test_whole_numbers(text: str, is_strict: bool, is_lenient: bool) -> None:
    assert (numbers.strict(text) == 72, numbers.lenient(text) == 72) == (is_strict, is_lenient)
    verdict = REGISTRY["gsm8k"].score(question("gsm8k", 72), [text])
    assert (verdict.correct, verdict.extra["strict"], verdict.extra["lenient"]) == (is_strict, is_strict, is_lenient)
    assert verdict.invalid == (numbers.strict(text) is None)


def test_negative_numbers() -> None:
    assert numbers.strict("-1,072.50") == Decimal("-1072.5")
    assert numbers.lenient("it fell to −5 degrees") == -5
    assert numbers.lenient("from 3-5 degrees") == 5


def test_braces_are_counted_over_the_whole_text() -> None:
    assert boxed("\\boxed{a{b}} and {c}") == "a{b}"
    assert boxed("\\fbox{1} \\boxed{2") is None
    assert boxed("x} \\boxed{1}") == "1"


def test_letters() -> None:
    assert letter(" b\n", "ABCD") == "B"
    assert letter("B.", "ABCD") is None
    assert letter("E", "ABCD") is None
    assert letter_within("A or (b) or (C)", "ABCD") == "C"
    assert letter_within("not E", "ABCD") is None


def test_an_invalid_letter_is_wrong_and_its_credit_is_beside_it() -> None:
    verdict = REGISTRY["arc"].score(question("arc", "A", "ABCDE"), ["?"])
    ways = {"strict": 0.0, "lenient": 0.0, "lenient_invalid": 1.0}
    assert verdict == Verdict(None, 0.0, True, {**ways, "with_credit": 0.2, REFERENCE: 0.2})


def test_formulas_are_judged_with_delimiters_and_the_old_verdict_is_kept() -> None:
    for gold, text, right, old in [
        ("\\pi", "\\boxed{\\pi}", 1, 0),
        ("3\\pi", "\\boxed{3}", 0, 1),
        ("(1,2)", "We get $x=1$, so \\boxed{(1,2)}.", 1, 0),
        ("x^2+1", "so it is $1+x^2$", 1, 0),
    ]:
        verdict = REGISTRY["math"].score(question("math", gold), [text])
        assert (verdict.correct, verdict.extra[REFERENCE]) == (right, old), text
    assert verdict.invalid
    assert verdict.extra["strict"] == 0


def test_an_answer_that_meets_the_limit_is_invalid_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = math.Judge(0.5)
    try:
        assert judge.verdict("$5$", "$9^{9^{9^{9^9}}}$") is None
        assert judge.verdict("$5$", "$5$") is True, "another process goes on"
        assert judge.verdict("$5$", "x" * (math.LONGEST + 1)) is None
        monkeypatch.setattr(math, "equal", judge.verdict)
        verdict = REGISTRY["math"].score(question("math", "5"), ["\\boxed{9^{9^{9^{9^9}}}}"])
        assert (verdict.correct, verdict.invalid, verdict.extra["unjudged"]) == (0, True, 1)
    finally:
        judge.close()


def test_a_fork_has_a_judge_of_its_own() -> None:
    judge = math.Judge()
    assert judge.verdict("$5$", "$5$")
    child = os.fork()
    if child == 0:
        os._exit(0 if judge.verdict("$5$", "$6$") is False else 1)
    assert judge.verdict("$7$", "$7$") is True
    assert os.waitpid(child, 0)[1] == 0
    judge.close()


def test_a_judge_that_was_killed_is_started_again() -> None:
    judge = math.Judge()
    assert judge.verdict("$5$", "$5$")
    assert judge._process is not None
    judge._process.kill()
    judge._process.wait()
    assert judge.verdict("$5$", "$5$") is None
    assert judge.verdict("$5$", "$5$") is True
    judge.close()


def test_without_math_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install '\.\[evaluate\]'"):
        REGISTRY["math"].check()
    REGISTRY["gsm8k"].check()


def test_drop() -> None:
    assert drop.score("the 3 dogs", [["3 dogs"], ["4"]]) == (1.0, 1.0)
    assert drop.score("4 dogs", [["3 dogs"]]) == (0.0, 0.0), "another number is worth nothing"
    assert drop.score("x", [[""]]) == (0.0, 0.0)


def test_votes() -> None:
    assert [vote(text) for text in ("7", "\\boxed{007}", "0", "1000", "7.0", "x")] == [7, 7, None, None, None, None]
    assert chosen([3, 5, 5, 3, 1], 2) == [3, 5]
    assert pass_at(4, 1, 1) == pytest.approx(0.25)
    assert pass_at(4, 1, 4) == 1
    assert pass_at(4, 4, 2) == 1
    with pytest.raises(ValueError, match="5 of 4"):
        pass_at(4, 1, 5)
    verdict = REGISTRY["aime"].score(question("aime", 42), ["42", "\\boxed{42}", "7", "x"])
    assert (verdict.correct, verdict.extra["maj_pass@1"], verdict.extra["pass@1"]) == (1, 1, 0.5)
    assert "pass@10" not in verdict.extra


def test_votes_as_the_reference_counts_them() -> None:
    """Right for pass@k is what math-verify finds as text, whether it is a vote or not; the consensus may be wrong."""
    asked = question("aime", 42)
    verdict = REGISTRY["aime"].score(asked, ["42.0", "42 units", "\\boxed{41}", "41"])
    assert (verdict.correct, verdict.extra["pass@1"], verdict.extra["valid"]) == (0, 0, 2)
    found = REGISTRY["aime"].total([(asked, verdict)], "hrm_text")
    assert (found["0_valid"], found["0_cons_count"]) == (2, 2)
    assert found["pass@1"] == pytest.approx(1 / 4)
    assert (found["maj_pass@1"], found["maj_pass@10"], found["pass@10"]) == (0, 0, 0)


def test_the_reference_has_no_accuracy_of_drop() -> None:
    asked = question("drop", [["Tom Brady"]])
    scored = [(asked, REGISTRY["drop"].score(asked, [text])) for text in ("Brady", "tom brady")]
    assert REGISTRY["drop"].total(scored, "hrm_text") == {"n": 2, "em": 0.5, "f1": pytest.approx(0.835)}
    assert REGISTRY["drop"].total(scored)["figure"] == 0.5


def test_intervals() -> None:
    """Wilson's interval, from the roots of its own quadratic equation."""
    for right, n in [(0, 1), (1, 1), (5, 10), (3, 40), (812, 1319)]:
        low, high = wilson(right, n)
        share, z = right / n, 1.959963984540054
        assert 0 <= low <= share <= high <= 1
        for edge in (low, high):
            assert (share - edge) ** 2 == pytest.approx(z * z * edge * (1 - edge) / n, abs=1e-12)
    with pytest.raises(ValueError, match="1 of 0"):
        wilson(1, 0)


def test_figures_are_over_questions_and_over_groups() -> None:
    groups = {"a": [1, 1, 1, 0], "b": [0]}
    scored = [
        (question("mmlu", "A", "ABCD", name), Verdict("A", value, False, {"strict": value}))
        for name, values in groups.items()
        for value in values
    ]
    found = totals.figures(scored)
    assert (found["n"], found["figure"], found["macro"]) == (5, 0.6, 0.375)
    assert (found["low"], found["high"]) == wilson(3, 5)
    assert (found["groups"]["a"]["n"], found["groups"]["a"]["figure"]) == (4, 0.75)
    assert found["also"] == {"strict": 0.6}
    assert totals.figures([])["figure"] is None


def test_nothing_here_imports_torch_or_the_network() -> None:
    code = (
        "import sys, pairmill.evaluation.benchmarks, pairmill.evaluation.scoring.math;"
        "print([name for name in ('torch', 'datasets', 'math_verify', 'huggingface_hub') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
