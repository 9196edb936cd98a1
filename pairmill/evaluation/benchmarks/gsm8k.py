"""GSM8k (Cobbe et al. 2021, arXiv:2110.14168): whole numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.evaluation.benchmarks.base import MATHEMATICS, Base, make_question
from pairmill.evaluation.benchmarks.question import REFERENCE, Need, Question, Row, Verdict
from pairmill.evaluation.scoring import numbers
from pairmill.evaluation.settings import LENIENT, STRICT


@dataclass(frozen=True)
class Gsm8k(Base):
    """Correct is strict: the box, or the whole text, is the number. Lenient takes the last number of a sentence too."""

    name = "gsm8k"
    family = MATHEMATICS
    source = "openai/gsm8k"
    configs: tuple[str, ...] = ("main",)

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("test", ("question", "answer")),)

    @property
    def settings(self) -> Mapping[str, Any]:
        # A served model goes on with another question, or its tokenizer's end is text there. lm-evaluation-harness ends
        # its GSM8k at the same texts.
        return {**super().settings, "condition": "synth,cot", "stop": ("Question:", "</s>", "<|im_end|>")}

    def question(self, number: int, row: Row) -> Question:
        answer = self.row_text(number, row, "answer")
        try:
            gold = int(answer.rpartition("####")[2].replace(",", "").strip())
        except ValueError:
            raise self.wrong(number, "answer", answer[-80:], "a whole number after the last ####") from None
        text = self.row_text(number, row, "question")
        return make_question(self, number, text, gold, text=text)

    def accepts(self, text: str) -> bool:
        return numbers.strict(text) is not None

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        plain, kind, old = numbers.strict(texts[0]), numbers.lenient(texts[0]), numbers.reference(texts[0])
        right = float(plain is not None and plain == question.gold)
        extra = {
            STRICT: right,
            LENIENT: float(kind is not None and kind == question.gold),
            f"{LENIENT}_invalid": float(kind is None),
            REFERENCE: float(old is not None and old == question.gold),
            f"{REFERENCE}_invalid": float(old is None),
        }
        return Verdict(None if plain is None else str(plain), right, plain is None, extra)
