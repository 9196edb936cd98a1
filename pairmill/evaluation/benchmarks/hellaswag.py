"""HellaSwag (Zellers et al. 2019, arXiv:1905.07830)."""

from dataclasses import dataclass

from pairmill.evaluation.benchmarks.base import Choices, Item
from pairmill.evaluation.benchmarks.question import Row

_QUESTION = "Question: Which is the most logical continuation?"


@dataclass(frozen=True)
class HellaSwag(Choices):
    """A context that goes on in one of the endings."""

    num_shots: int = 10

    name = "hellaswag"
    source = "Rowan/hellaswag"
    split = "validation"
    shot_split = "train"
    columns: tuple[str, ...] = ("ctx_a", "ctx_b", "endings", "label")

    def item(self, number: int, row: Row, split: str) -> Item:
        label = str(row["label"])
        if not (label.isascii() and label.isdigit()) or len(label) > 2:
            raise self.wrong(number, "label", row["label"], "the number of an ending, from 0", split)
        first, second = (self.row_text(number, row, column, split) for column in ("ctx_a", "ctx_b"))
        text = f"{first} {second.capitalize()}\n{_QUESTION}"
        return Item(text, tuple(map(str, row["endings"])), int(label))
