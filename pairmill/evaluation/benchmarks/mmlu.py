"""MMLU (Hendrycks et al. 2020, arXiv:2009.03300): four choices, shots of the question's subject."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pairmill.evaluation.benchmarks.base import Choices, Item
from pairmill.evaluation.benchmarks.question import Need, Row


@dataclass(frozen=True)
class Mmlu(Choices):
    """Groups are subjects.

    Args:
        special_shots: the shots of subjects whose questions are too long for ``num_shots``.
    """

    num_shots: int = 5
    special_shots: Mapping[str, int] = field(default_factory=lambda: {"high_school_european_history": 3})

    name = "mmlu"
    source = "cais/mmlu"
    configs: tuple[str, ...] = ("all",)
    grouped = True
    split = "test"
    shot_split = "dev"
    columns: tuple[str, ...] = ("subject", "question", "choices", "answer")

    @property
    def needs(self) -> tuple[Need, ...]:
        return tuple(Need(item.split, item.columns) for item in super().needs)

    def item(self, number: int, row: Row, split: str) -> Item:
        right = row["answer"]
        if not isinstance(right, int) or isinstance(right, bool):
            raise self.wrong(number, "answer", right, "the number of a choice, from 0", split)
        text = self.row_text(number, row, "question", split)
        return Item(text, tuple(map(str, row["choices"])), right, str(row["subject"]))

    def chosen(self, shots: Sequence[tuple[str, str]], group: str) -> list[str]:
        return [text for subject, text in shots if subject == group][: self.special_shots.get(group, self.num_shots)]
