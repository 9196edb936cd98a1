"""Decontamination as an operation: which benchmarks there are, and what becomes of rows that repeat their items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pairmill.errors import UsageError
from pairmill.sources.expression import Expression
from pairmill.sources.template import Template
from pairmill.stages.curate.operation import Reasons, ScoredOperation
from pairmill.stages.curate.rules import Rule
from pairmill.stages.curate.scorer import Scorer

Mode = Literal["off", "report", "drop"]
Verdict = Literal["question_answer", "question", "variant", "short_question"]

VERDICTS: Final[Sequence[Verdict]] = ("question_answer", "question", "variant", "short_question")
"""From the worst to the least: question and answer of an item, its question alone, its question with other numbers, and
a question of fewer than five tokens."""


@dataclass(frozen=True)
class Benchmark:
    """Where the items of a benchmark are, and what of a record makes an item.

    Args:
        name: of the benchmark in decisions and reports.
        uri: a file, a folder or a URI of a bucket; or on the Hub hf://datasets/<owner>/<name>[@<revision>], or
            <owner>/<name>@<revision>.
        question: path of the question in a record, or a template such as "{question} {choices|letters}".
        answers: the same for the answer; a path may lead to a list of texts, each of which is an answer. Empty: items
            have no answer.
        choices: path of a list of choices; answers then leads to the number of the right one (from 0), its letter or
            its text.
        item: path of the item's name; empty: its number in the benchmark, from 0.
        where: which records are items, as where: of YAML sources says it; empty: all.
        files: patterns of the files below uri; empty: those of split.
        split: the files of this split, by the data set's card or by their names; of a folder without any, all files.
        config: configuration of the data set; empty: its card's default.
    """

    name: str
    uri: str
    question: str
    answers: str = ""
    choices: str = ""
    item: str = ""
    where: str = ""
    files: list[str] = field(default_factory=list)
    split: str = "test"
    config: str = ""

    def __post_init__(self) -> None:
        for key in ("name", "uri", "question"):
            if not getattr(self, key).strip():
                raise UsageError("is empty", where=key, expected="a text")
        if self.choices and not self.answers:
            raise UsageError("needs answers", where="choices", hint="write answers: answer, the path of the right one")
        parsers: dict[str, Any] = {"question": Template.parse, "answers": Template.parse, "choices": Template.parse}
        parsers |= {"item": Template.parse, "where": Expression}
        for key, parse in parsers.items():
            text = getattr(self, key)
            try:
                _ = parse(text) if text else None
            except UsageError as error:
                raise UsageError(
                    error.what, where=key, got=error.got, expected=error.expected, hint=error.hint
                ) from error
        if "{" in self.choices:
            raise UsageError("not a path", where="choices", got=repr(self.choices), expected="such as choices.text")

    @property
    def meaning(self) -> list[Any]:
        """What of a record makes an item."""
        where = " ".join(self.where.split())
        return [self.question, self.answers, self.choices, self.item, where]


@dataclass(frozen=True)
class Decontaminate:
    """Rows that repeat items of benchmarks.

    Args:
        mode: drop such rows, report them, or do not look.
        drop_on: the verdicts that drop a row; others are reported.
        benchmarks: what must not be trained on.
        withheld: names of our own sources whose withheld splits must not be trained on; raw= of the stage says where
            their files are.
    """

    mode: Mode = "drop"
    drop_on: list[Verdict] = field(default_factory=lambda: ["question_answer", "question"])
    benchmarks: list[Benchmark] = field(default_factory=list)
    withheld: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = [*(one.name for one in self.benchmarks), *self.withheld]
        twice = [name for place, name in enumerate(names) if name in names[:place]]
        if twice:
            where = "withheld" if twice[0] in self.withheld else "benchmarks"
            raise UsageError("two benchmarks have the same name", where=where, got=twice[0], hint="rename one of them")


UNSCORED: Final = "unscored"
"""Counts questions that were not compared with a row, because it shares words with too many."""


class _Decontaminate(ScoredOperation[Decontaminate]):
    def scorers(self, variants: Sequence[Any], root: str) -> list[Scorer]:
        """Return none: what scores rows is made once its index is built."""
        return []

    def rules(self, part: Decontaminate) -> list[Rule]:
        return []

    def actions_of(self, part: Decontaminate) -> Mapping[str, str]:
        return dict.fromkeys(part.drop_on, "drop")

    def describe_needed(self, rule: str, own: Mapping[str, Any]) -> str:
        return "a long question needs 0.750, a short one 1; an answer 0.800"

    def look_at(self, costs: Mapping[str, Any]) -> Iterator[str]:
        if unscored := costs.get(UNSCORED, 0):
            yield (
                f"{unscored:,} times a benchmark's question was not compared with a row that shares words with it, "
                "because too many questions share words with that row. Look at such benchmarks by themselves."
            )


DECONTAMINATE: Final = _Decontaminate(
    name="decontaminate",
    settings=Decontaminate,
    help="rows that leak a benchmark",
    reasons=Reasons("contaminated_{rule}"),
    order=tuple(VERDICTS),
    meanings={
        "question_answer": "question and answer of a benchmark",
        "question": "a question of a benchmark",
        "variant": "a question of a benchmark with other numbers",
        "short_question": "the instruction is a short question of a benchmark",
    },
    scores=("question", "answer"),
    counts_shown=(UNSCORED,),
)
