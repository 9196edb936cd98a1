"""MMLU-Pro (Wang et al. 2024, arXiv:2406.01574): up to ten options, no shots, free text."""

from collections.abc import Sequence
from dataclasses import dataclass

from pairmill.evaluation.benchmarks.base import (
    CHOICES,
    MOST_CHOICES,
    USUAL_CHOICES,
    Base,
    choice_verdict,
    make_question,
)
from pairmill.evaluation.benchmarks.question import Need, Question, Row, Verdict
from pairmill.evaluation.prompts import letters, options_prompt
from pairmill.evaluation.scoring.letters import letter_within
from pairmill.text import boxed


@dataclass(frozen=True)
class MmluPro(Base):
    """Groups are categories."""

    name = "mmlu_pro"
    family = CHOICES
    source = "TIGER-Lab/MMLU-Pro"
    grouped = True

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("test", ("question", "options", "answer", "category")),)

    def question(self, number: int, row: Row) -> Question:
        options = tuple(map(str, row["options"]))
        if not 1 < len(options) <= MOST_CHOICES:
            raise self.wrong(number, "options", options, f"2 to {MOST_CHOICES} of them")
        valid, text = letters(len(options)), self.row_text(number, row, "question")
        if row["answer"] not in valid:
            raise self.wrong(number, "answer", row["answer"], f"one of {', '.join(valid)}")
        prompt, group = options_prompt(text, options), str(row["category"])
        return make_question(self, number, prompt, row["answer"], group=group, choices=valid, text=text)

    def accepts(self, text: str) -> bool:
        return letter_within(boxed(text) or text, letters(USUAL_CHOICES)) is not None

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        result = letter_within(boxed(texts[0]) or texts[0], question.choices)
        return choice_verdict(question, result, result)
