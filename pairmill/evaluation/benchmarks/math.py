"""MATH (Hendrycks et al. 2021, arXiv:2103.03874): expressions, judged by math-verify."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.evaluation.benchmarks.base import MATHEMATICS, Base, make_question
from pairmill.evaluation.benchmarks.question import REFERENCE, Need, Question, Row, Verdict
from pairmill.evaluation.scoring import math as judged
from pairmill.evaluation.settings import LENIENT, STRICT
from pairmill.text import boxed


@dataclass(frozen=True)
class Math(Base):
    """Both sides are judged as formulas. The reference's verdict, which is without delimiters, is a column."""

    name = "math"
    family = MATHEMATICS
    source = "EleutherAI/hendrycks_math"
    configs: tuple[str, ...] = (
        "algebra",
        "counting_and_probability",
        "geometry",
        "intermediate_algebra",
        "number_theory",
        "prealgebra",
        "precalculus",
    )

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("test", ("problem", "solution")),)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "condition": "synth,cot"}

    def check(self) -> None:
        judged.check()

    def question(self, number: int, row: Row) -> Question:
        gold = boxed(self.row_text(number, row, "solution"))
        if not gold:
            raise self.wrong(number, "solution", row["solution"][-80:], "an answer in \\boxed{…}")
        text = self.row_text(number, row, "problem")
        return make_question(self, number, text, gold, group=str(row.get("type") or ""), text=text)

    def accepts(self, text: str) -> bool:
        return judged.answer_in(text)[1]

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        inside = boxed(texts[0])
        given, in_box = judged.answer_in(texts[0])
        result = judged.equal(judged.delimited(question.gold), given)
        old = judged.equal(question.gold, texts[0] if inside is None else inside)
        right, unjudged = float(result is True), result is None
        extra = {
            STRICT: float(in_box and result is True),
            LENIENT: right,
            "unjudged": float(unjudged),
            REFERENCE: float(old is True),
            f"{REFERENCE}_invalid": float(not in_box),
        }
        return Verdict(None if inside is None else inside[:1000], right, unjudged or not in_box, extra)
