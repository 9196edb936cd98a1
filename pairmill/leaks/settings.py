"""Settings: which benchmarks there are, and what becomes of rows that repeat their items."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pairmill.errors import UsageError
from pairmill.fields import Checked, setting
from pairmill.sources.language.expression import Expression
from pairmill.sources.language.template import Template

Mode = Literal["off", "report", "drop"]
Verdict = Literal["question_answer", "question", "variant", "short_question"]

VERDICTS: Final[Sequence[Verdict]] = ("question_answer", "question", "variant", "short_question")
"""From the worst to the least: question and answer of an item, its question alone, its question with other numbers, and
a question of fewer than five tokens."""


@dataclass(frozen=True)
class Benchmark(Checked):
    """Where the items of a benchmark are, and what of a record makes an item."""

    name: str = setting(help="of the benchmark in decisions and reports", filled=True)
    uri: str = setting(
        help="a file, a folder or a URI of a bucket; or on the Hub hf://datasets/<owner>/<name>[@<revision>], or "
        "<owner>/<name>@<revision>",
        filled=True,
    )
    question: str = setting(
        help='path of the question in a record, or a template such as "{question} {choices|letters}"',
        filled=True,
        parse=Template.parse,
    )
    answers: str = setting(
        "",
        help="the same for the answer; a path may lead to a list of texts, each of which is an answer. Empty: items "
        "have no answer",
        parse=Template.parse,
    )
    choices: str = setting(
        "",
        help="path of a list of choices; answers then leads to the number of the right one (from 0), its letter or its "
        "text",
        parse=Template.parse,
        needs="answers",
        form=(r"[^{]*", "a path, such as choices.text"),
        hint="answers: has the path of the right one",
    )
    item: str = setting(
        "", help="path of the item's name; empty: its number in the benchmark, from 0", parse=Template.parse
    )
    where: str = setting(
        "", help="which records are items, as where: of YAML sources says it; empty: all", parse=Expression
    )
    files: list[str] = setting([], help="patterns of the files below uri; empty: those of split")
    split: str = setting(
        "test",
        help="the files of this split, by the data set's card or by their names; of a folder without any, all files",
    )
    config: str = setting("", help="configuration of the data set; empty: its card's default")

    @property
    def meaning(self) -> list[Any]:
        """What of a record makes an item."""
        where = " ".join(self.where.split())
        return [self.question, self.answers, self.choices, self.item, where]


@dataclass(frozen=True)
class Decontaminate(Checked):
    """Rows that repeat items of benchmarks."""

    mode: Mode = setting("drop", help="drop such rows, report them, or do not look")
    drop_on: list[Verdict] = setting(
        ["question_answer", "question"], help="the verdicts that drop a row; others are reported"
    )
    benchmarks: list[Benchmark] = setting([], help="what must not be trained on", unique="name")
    withheld: list[str] = setting(
        [],
        help="names of our own sources whose withheld splits must not be trained on; raw= of the stage says where "
        "their files are",
        unique=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for number, benchmark in enumerate(self.benchmarks, 1):
            if benchmark.name in self.withheld:
                where = f"benchmarks[{number}].name"
                raise UsageError("the name of a withheld source", where=where, got=benchmark.name, hint="rename it")


UNSCORED: Final = "unscored"
"""Counts questions that were not compared with a row, because it shares words with too many."""
