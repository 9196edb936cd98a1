"""IFEval (Zhou et al. 2023, arXiv:2311.07911): instructions that a program can check."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pairmill.evaluation.benchmarks.base import Base, make_question
from pairmill.evaluation.benchmarks.question import Need, Question, Row, Verdict
from pairmill.evaluation.scoring.instructions import BY_PUNKT, CHECKS, follows, punkt_sentences
from pairmill.evaluation.settings import LENIENT, STRICT


@dataclass(frozen=True)
class IfEval(Base):
    """Right is a text that follows every instruction of its prompt; ``instructions`` is the share that it follows.

    Lenient is what IFEval calls loose: a first or last line, and asterisks, may be taken away.
    """

    name = "ifeval"
    source = "google/IFEval"
    checks: ClassVar[Mapping[str, Any]] = CHECKS

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("train", ("prompt", "instruction_id_list", "kwargs")),)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "max_tokens": 1280, "max_context": 4096}

    def question(self, number: int, row: Row) -> Question:
        prompt = self.row_text(number, row, "prompt")
        names, given = row["instruction_id_list"], row["kwargs"]
        if not isinstance(names, list) or not names or any(name not in CHECKS for name in names):
            raise self.wrong(number, "instruction_id_list", names, f"some of {', '.join(CHECKS)}")
        if not isinstance(given, list) or len(given) != len(names) or not all(isinstance(item, dict) for item in given):
            raise self.wrong(number, "kwargs", given, "as many objects as there are instructions")
        # A table has every parameter in every row.
        gold = [
            [name, {key: value for key, value in item.items() if value}]
            for name, item in zip(names, given, strict=True)
        ]
        for name, item in gold:
            self._try(number, name, item)
        return make_question(self, number, prompt, gold, text=prompt)

    def _try(self, number: int, name: str, given: Mapping[str, Any]) -> None:
        if name.startswith(("language:", "change_case:english")):
            return  # has no parameter that can be wrong in form, and needs langdetect
        try:
            follows(name, given, "A text.")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self.wrong(number, "kwargs", given, f"the parameters of {name} ({error!r})") from error

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        made = {
            way: [
                follows(name, given, texts[0], loose=way == LENIENT, checks=self.checks)
                for name, given in question.gold
            ]
            for way in (STRICT, LENIENT)
        }
        extra = {way: float(all(each)) for way, each in made.items()}
        extra |= {
            "instructions" if way == STRICT else f"instructions_{way}": sum(each) / len(each)
            for way, each in made.items()
        }
        return Verdict(None, extra[STRICT], not texts[0].strip(), extra)


@dataclass(frozen=True)
class IfEvalByPunkt(IfEval):
    """The same, with sentences counted by NLTK's model, as lm-evaluation-harness counts them."""

    name = "ifeval_punkt"
    checks: ClassVar[Mapping[str, Any]] = BY_PUNKT

    def check(self) -> None:
        punkt_sentences("")
