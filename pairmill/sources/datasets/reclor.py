"""ReClor (Hub ``tasksource/reclor``): logical reasoning about a passage by multiple choice."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.choices import choice_lines
from pairmill.sources.fields import letter_under, list_of_texts, texts_of
from pairmill.sources.files.splits import TrainOnly
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, Source


class ReClor(Source):
    """Question, passage and choices; the answer is the choice's letter.

    The reference, through pandas 3, writes ``nan`` for a null question or passage, and any letter for a label. The same
    questions are a task of tasksource, ``reclor``.
    """

    name = "reclor"
    origin = Hub("tasksource/reclor", ("train.json", "val.json"))
    licence = "other: for non-commercial research only"
    citation = "Yu, Jiang, Dong, Feng: ReClor: A Reading Comprehension Dataset Requiring Logical Reasoning. ICLR 2020"
    options = TrainOnly
    fields = ("context", "question", "answers", "label")
    splits = ("train", "validation")
    output = "data/Platypus/reclor.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        quirks = context.quirks
        question, passage = texts_of(record, "question", "context", null="nan" if quirks.null_as_text else None)
        answers = list_of_texts(record, "answers")
        letter = letter_under(record, "label", None if quirks.letters_beyond_choices else len(answers))
        options = "".join(f"\n{line}" for line in choice_lines(answers))
        return Row("direct", f"{question}\n\n{passage}\n\nOptions:{options}", letter)
