"""AIME 2025 by majority vote over many samples of each problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.evaluate.benchmarks.base import Base, asked
from components.evaluate.benchmarks.question import REFERENCE, Need, Question, Row, Verdict
from components.evaluate.scoring.votes import LARGEST, chosen, pass_at, vote


@dataclass(frozen=True)
class Aime(Base):
    """Correct: the most frequent vote is the answer.

    Args:
        samples: texts of each problem.
        ks: of pass@k and maj_pass@k; those above the number of texts are left out.
    """

    samples: int = 256
    ks: tuple[int, ...] = (1, 4, 16, 64, 256)

    name = "aime"
    source = "math-ai/aime25"

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
        return asked(self, number, text, int(answer), text=text)

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        votes = [value for value in map(vote, texts) if value is not None]
        right = sum(value == question.gold for value in votes)
        extra: dict[str, float] = {"valid": float(len(votes)), "cons_count": float(right)}
        for k in self.ks:
            if k <= len(texts):
                extra[f"maj_pass@{k}"] = float(question.gold in chosen(votes, k))
                extra[f"pass@{k}"] = pass_at(len(texts), right, k)
        first = chosen(votes, 1)
        correct = float(question.gold in first)
        return Verdict(str(first[0]) if first else None, correct, not votes, {**extra, REFERENCE: correct})

    def total(self, scored: Iterable[tuple[Question, Verdict]], profile: str = "pairmill") -> dict[str, Any]:
        every = list(scored)
        if profile != "hrm_text":
            return super().total(every)
        found: dict[str, Any] = {}
        for number, (_, verdict) in enumerate(every):
            found |= {f"{number}_{name}": int(verdict.extra[name]) for name in ("valid", "cons_count")}
        for name in [f"{kind}@{k}" for kind in ("maj_pass", "pass") for k in self.ks]:
            values = [verdict.extra[name] for _, verdict in every if name in verdict.extra]
            if values:
                found[name] = sum(values) / len(values)
        return found
