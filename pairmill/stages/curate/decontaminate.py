"""Decontamination as an operation: rows that repeat items of benchmarks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from pairmill.leaks.settings import UNSCORED, VERDICTS, Decontaminate
from pairmill.rowstage.scorer import Scorer
from pairmill.stages.curate.operation import Reasons, Rule, ScoredOperation


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
