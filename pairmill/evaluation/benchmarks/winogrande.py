"""Winogrande (Sakaguchi et al. 2019, arXiv:1907.10641), the debiased rows."""

from dataclasses import dataclass

from pairmill.evaluation.benchmarks.base import Choices, Item
from pairmill.evaluation.benchmarks.question import Row


@dataclass(frozen=True)
class Winogrande(Choices):
    """A sentence with a gap, and two words for it."""

    num_shots: int = 5

    name = "winogrande"
    source = "allenai/winogrande"
    configs: tuple[str, ...] = ("winogrande_debiased",)
    split = "validation"
    shot_split = "train"
    columns: tuple[str, ...] = ("sentence", "option1", "option2", "answer")

    def item(self, number: int, row: Row, split: str) -> Item:
        if str(row["answer"]) not in ("1", "2"):
            raise self.wrong(number, "answer", row["answer"], "1 or 2", split)
        sentence, *options = (self.row_text(number, row, column, split) for column in self.columns[:3])
        return Item(sentence, tuple(options), int(row["answer"]) - 1)
