"""ARC-Challenge (Clark et al. 2018, arXiv:1803.05457)."""

from dataclasses import dataclass

from pairmill.evaluation.benchmarks.base import Choices, Item
from pairmill.evaluation.benchmarks.question import Row


@dataclass(frozen=True)
class Arc(Choices):
    """The right letter is the place of ``answerKey`` among the row's labels: some rows have the labels 1 to 4."""

    num_shots: int = 25

    name = "arc"
    source = "allenai/ai2_arc"
    configs: tuple[str, ...] = ("ARC-Challenge",)
    split = "test"
    shot_split = "validation"
    columns: tuple[str, ...] = ("question", "choices", "answerKey")

    def item(self, number: int, row: Row, split: str) -> Item:
        choices = row["choices"]
        if not isinstance(choices, dict) or len(choices.get("text", ())) != len(choices.get("label", ".")):
            raise self.wrong(number, "choices", choices, "text and label, as many of each", split)
        labels = list(map(str, choices["label"]))
        if str(row["answerKey"]) not in labels:
            raise self.wrong(number, "answerKey", row["answerKey"], f"one of {', '.join(labels)}", split)
        text = self.row_text(number, row, "question", split)
        return Item(text, tuple(map(str, choices["text"])), labels.index(str(row["answerKey"])))
