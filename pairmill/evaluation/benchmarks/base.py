"""What benchmarks share: one text a question, the data set's main configuration, figures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pairmill.errors import InputError
from pairmill.evaluation.benchmarks.question import (
    REFERENCE,
    Need,
    Question,
    Row,
    Rows,
    Verdict,
    digest_of,
)
from pairmill.evaluation.prompts import choices_prompt, letters, shot, with_shots
from pairmill.evaluation.scoring import totals
from pairmill.evaluation.scoring.letters import letter, letter_within
from pairmill.evaluation.settings import LENIENT, STRICT
from pairmill.text import boxed

MOST_CHOICES: Final = 26
USUAL_CHOICES: Final = 10
"""Among whose letters an answer is looked for where the question is not known."""
MATHEMATICS: Final[tuple[str, ...]] = (
    "math",
    "gsm",
    "aime",
    "numina",
    "olympiad",
    "arithmetic",
    "algebra",
    "theorem",
    "amps",
)
CHOICES: Final[tuple[str, ...]] = (
    "mmlu",
    "arc_",
    "hellaswag",
    "winogrande",
    "boolq",
    "openbook",
    "reclor",
    "scienceqa",
    "choice",
)
PASSAGES: Final[tuple[str, ...]] = ("drop", "squad", "reading", "span", "qasper", "quac", "newsqa")
"""Words in the names of sources that train what benchmarks of a kind ask."""
LONGEST: Final = 50_000
"""Characters of an answer in which a letter is looked for."""


def make_question(
    benchmark: Base, number: int, prompt: str, gold: Any, *, group: str = "", choices: Sequence[str] = (), text: str
) -> Question:
    """Return the question of a row of the first split that a benchmark needs."""
    condition = str(benchmark.settings.get("condition", ""))
    name = f"{benchmark.needs[0].split} {number}"
    return Question(
        benchmark=benchmark.name,
        id=name,
        group=group,
        prompt=prompt,
        condition=condition,
        gold=gold,
        choices=tuple(choices),
        digest=digest_of(prompt, condition),
        text=text,
    )


@dataclass(frozen=True)
class Base:
    """A benchmark with one text a question and one configuration.

    Subclasses set the class attributes, and give questions and verdicts. ``family`` has words in the names of sources
    whose answers should be in a form that the scorer reads (:mod:`pairmill.audit.forms`); none = no source is meant.
    """

    name = ""
    source = ""
    family: ClassVar[tuple[str, ...]] = ()
    configs: tuple[str, ...] = ("default",)
    grouped = False
    calls_tools = False

    @property
    def needs(self) -> tuple[Need, ...]:
        """The splits that are read; the first has the questions."""
        raise NotImplementedError

    @property
    def settings(self) -> Mapping[str, Any]:
        """How texts are generated where the user says nothing."""
        return {"condition": "direct", "max_context": 3072, "temperature": 0.0, "samples": 1}

    def check(self) -> None:
        """Raise UsageError if what it is scored with is not installed."""

    def questions(self, rows: Rows) -> Iterator[Question]:
        """Yield the questions, in the order of the rows."""
        need = self.needs[0]
        for number, row in enumerate(rows[need.split]):
            yield self.question(number, row)

    def question(self, number: int, row: Row) -> Question:
        """Return the question of a row."""
        raise NotImplementedError

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        """Return the verdict on the texts of a question."""
        raise NotImplementedError

    def accepts(self, text: str) -> bool:
        """Return whether the scorer reads an answer in a text: what :meth:`score` calls invalid is not accepted."""
        return bool(text.strip())

    def total(self, scored: Iterable[tuple[Question, Verdict]], profile: str = "pairmill") -> dict[str, Any]:
        """Return the figures; with ``hrm_text`` as the reference names and computes them."""
        if profile == "hrm_text":
            return dict(totals.reference_figures(scored, grouped=self.grouped))
        return totals.figures(scored)

    def row_text(self, number: int, row: Row, column: str, split: str = "") -> str:
        """Return the text of a column of a row. Raises InputError if it is not text."""
        if not isinstance(row[column], str):
            raise self.wrong(number, column, row[column], "text", split)
        return str(row[column])

    def wrong(self, number: int, column: str, got: object, expected: str, split: str = "") -> InputError:
        """Return the error of a value that makes no question."""
        where, shown = f"benchmark {self.name}, {split or self.needs[0].split}, row {number}", repr(got)
        shown = shown if len(shown) <= 200 else shown[:200] + "…"
        return InputError(f"not a valid {column}", where=where, got=shown, expected=expected)


@dataclass(frozen=True)
class Item:
    """A row of a multiple choice benchmark: its text, its choices, and which of them is right, from 0."""

    text: str
    choices: tuple[str, ...]
    right: int
    group: str = ""


@dataclass(frozen=True)
class Choices(Base):
    """Multiple choice by letters, one token an answer, with the first rows of a split as shots.

    Args:
        num_shots: how many; fewer if the split has fewer.
    """

    num_shots: int = 0

    family = CHOICES
    split = ""
    shot_split = ""
    columns: tuple[str, ...] = ()

    @property
    def needs(self) -> tuple[Need, ...]:
        result = [Need(self.split, self.columns)]
        if self.num_shots:
            result.append(Need(self.shot_split, self.columns, first=self.num_shots))
        return tuple(result)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**super().settings, "max_context": 4096, "max_tokens": 1}

    def item(self, number: int, row: Row, split: str) -> Item:
        """Return the parts of a row."""
        raise NotImplementedError

    def checked(self, number: int, row: Row, split: str) -> Item:
        """Return the parts of a row, if they make a question."""
        result = self.item(number, row, split)
        if not 1 < len(result.choices) <= MOST_CHOICES:
            raise self.wrong(number, "choices", result.choices, f"2 to {MOST_CHOICES} of them", split)
        if not 0 <= result.right < len(result.choices):
            raise self.wrong(number, "answer", result.right, f"0 to {len(result.choices) - 1}", split)
        return result

    def shots_of(self, rows: Rows) -> list[tuple[str, str]]:
        """Return the groups and texts of all rows that can be shots."""
        if not self.num_shots:
            return []
        made = []
        for number, row in enumerate(rows[self.shot_split]):
            item = self.checked(number, row, self.shot_split)
            made.append((item.group, shot(choices_prompt(item.text, item.choices), letters(MOST_CHOICES)[item.right])))
        return made

    def chosen(self, shots: Sequence[tuple[str, str]], group: str) -> list[str]:
        """Return the shots before a question of a group."""
        return [text for _, text in shots[: self.num_shots]]

    def questions(self, rows: Rows) -> Iterator[Question]:
        shots = self.shots_of(rows)
        for number, row in enumerate(rows[self.split]):
            item = self.checked(number, row, self.split)
            valid = letters(len(item.choices))
            prompt = with_shots(self.chosen(shots, item.group), choices_prompt(item.text, item.choices))
            yield make_question(
                self, number, prompt, valid[item.right], group=item.group, choices=valid, text=item.text.strip()
            )

    def score(self, question: Question, texts: Sequence[str]) -> Verdict:
        strict = letter(texts[0], question.choices)
        within = letter_within(boxed(texts[0]) or texts[0][:LONGEST], question.choices)
        return choice_verdict(question, strict, strict or within)

    def accepts(self, text: str) -> bool:
        return letter(text, letters(USUAL_CHOICES)) is not None


def choice_verdict(question: Question, choice: str | None, lenient: str | None) -> Verdict:
    """Right is 1. The reference credits an invalid answer with one part in as many as there are choices.

    Args:
        question: of which the letters are choices.
        choice: the letter that counts.
        lenient: the letter that a box or a sentence has.
    """
    right = float(choice is not None and choice == question.gold)
    credit = 1 / len(question.choices) if choice is None else right
    ways = {STRICT: right, LENIENT: float(lenient == question.gold), f"{LENIENT}_invalid": float(lenient is None)}
    return Verdict(choice, right, choice is None, {**ways, "with_credit": credit, REFERENCE: credit})
