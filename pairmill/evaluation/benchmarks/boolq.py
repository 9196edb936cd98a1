"""BoolQ (Clark et al. 2019, arXiv:1905.10044)."""

from dataclasses import dataclass

from pairmill.evaluation.benchmarks.base import Choices, Item
from pairmill.evaluation.benchmarks.question import Row


@dataclass(frozen=True)
class BoolQ(Choices):
    """A passage and a question; the choices are Yes and No."""

    num_shots: int = 5

    name = "boolq"
    source = "google/boolq"
    split = "validation"
    shot_split = "train"
    columns: tuple[str, ...] = ("passage", "question", "answer")

    def item(self, number: int, row: Row, split: str) -> Item:
        if not isinstance(row["answer"], bool):
            raise self.wrong(number, "answer", row["answer"], "true or false", split)
        passage, question = (self.row_text(number, row, column, split) for column in self.columns[:2])
        text = f"{passage}\nQuestion: {question.capitalize()}?"
        return Item(text, ("Yes", "No"), 0 if row["answer"] else 1)
