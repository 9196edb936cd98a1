"""ReClor (Hub ``tasksource/reclor``): logical reasoning about a passage by multiple choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.fields import choice_lines, letter_under, list_of_texts, texts_with_nulls_as
from sources.origin import Hub
from sources.source import Context, Malformed, Parsed, Source, Unit
from sources.splits import TrainOnly, files_by_split


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

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        taken, withheld = files_by_split(files, card, ("train", "validation"), options, profile)
        return [Unit("data/Platypus/reclor.jsonl", taken, withheld)]

    def parse(self, record: Any, context: Context) -> Parsed:
        texts = texts_with_nulls_as("nan" if context.data_io else None, record, "question", "context")
        if isinstance(texts, Malformed):
            return texts
        question, passage = texts
        answers = list_of_texts(record, "answers")
        if isinstance(answers, Malformed):
            return answers
        letter = letter_under(record, "label", None if context.data_io else len(answers))
        if isinstance(letter, Malformed):
            return letter
        options = "".join(f"\n{line}" for line in choice_lines(answers))
        return Row("direct", f"{question}\n\n{passage}\n\nOptions:{options}", letter)
