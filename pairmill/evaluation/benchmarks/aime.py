"""AIME 2025 by majority vote over many samples of each problem."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.evaluation.benchmarks.base import MATHEMATICS, Base, make_question
from pairmill.evaluation.benchmarks.question import REFERENCE, Need, Question, Row, Verdict
from pairmill.evaluation.scoring import math as judged
from pairmill.evaluation.scoring.votes import LARGEST, agreement, chosen, pass_at, vote
from pairmill.text import boxed


@dataclass(frozen=True)
class Aime(Base):
    """Correct: the most frequent vote is the answer.

    A text is right if its vote is the answer. The reference counts for pass@k what math-verify finds in it, as text: 42
    units are right and 42.0 is wrong.

    Args:
        samples: texts of each problem.
        ks: of pass@k and maj_pass@k; those above the number of texts are left out, of the reference only of pass@k.
    """

    samples: int = 256
    ks: tuple[int, ...] = (1, 10, 100)

    name = "aime"
    family = MATHEMATICS
    source = "math-ai/aime25"

    def check(self) -> None:
        judged.check()

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("test", ("problem", "answer")),)

    @property
    def settings(self) -> Mapping[str, Any]:
        own = {"condition": "synth,cot", "max_context": 4096, "temperature": 0.6, "samples": self.samples}
        return {**super().settings, **own}

    def question(self, number: int, row: Row) -> Question:
        answer = str(row["answer"]).strip()
        if not (answer.isascii() and answer.isdigit()) or not 1 <= int(answer[:9]) <= LARGEST:
            raise self.wrong(number, "answer", row["answer"], f"1 to {LARGEST}")
        text = self.row_text(number, row, "problem")
        return make_question(self, number, text, int(answer), text=text)

    def accepts(self, text: str) -> bool:
        return vote(text) is not None

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        votes = [value for value in map(vote, texts) if value is not None]
        right = sum(value == question.gold for value in votes)
        extra: dict[str, float] = {"valid": float(len(votes)), "cons_count": float(agreement(votes))}
        for k in self.ks:
            extra[f"maj_pass@{k}"] = float(question.gold in chosen(votes, k))
            if k <= len(texts):
                extra[f"pass@{k}"] = pass_at(len(texts), right, k)
        result = sum(judged.equal(str(question.gold), _answer(text), as_text=True) is True for text in texts)
        extra |= {f"{REFERENCE}_right": float(result), f"{REFERENCE}_of": float(len(texts))}
        first = chosen(votes, 1)
        correct = float(question.gold in first)
        return Verdict(str(first[0]) if first else None, correct, not votes, {**extra, REFERENCE: correct})

    def total(self, scored: Iterable[tuple[Question, Verdict]], profile: str = "pairmill") -> dict[str, Any]:
        every = list(scored)
        if profile != "hrm_text":
            return super().total(every)
        result: dict[str, Any] = {}
        for number, (_, verdict) in enumerate(every):
            result |= {f"{number}_{name}": int(verdict.extra[name]) for name in ("valid", "cons_count")}
        for k in self.ks:
            votes = [verdict.extra[f"maj_pass@{k}"] for _, verdict in every]
            result[f"maj_pass@{k}"] = sum(votes) / max(1, len(votes))
        for k in self.ks:
            counts = [[int(verdict.extra[f"{REFERENCE}_{name}"]) for name in ("of", "right")] for _, verdict in every]
            passed = [pass_at(many, right, k) if k <= many else 0.0 for many, right in counts]
            result[f"pass@{k}"] = sum(passed) / max(1, len(passed))
        return result


def _answer(text: str) -> str:
    inside = boxed(text)
    return text if inside is None else inside
