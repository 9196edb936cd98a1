"""OpenBookQA (Hub ``allenai/openbookqa``, config ``additional``): school science by multiple choice, with a fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.fields import choice_lines, list_of_texts, text_of, texts_with_nulls_as
from sources.origin import Hub
from sources.source import Context, Malformed, Parsed, Source, Unit
from sources.splits import TrainOnly, files_by_split

_TASK = "Based on the given fact, which of the following option is the correct answer to the question?"


class OpenBookQa(Source):
    """Question, choices and fact; the answer is the choice's letter. Labels of choices are not used.

    The reference, through pandas 3, writes ``nan`` for a null question or fact and ``None`` for a null choice.
    """

    name = "openbookqa"
    origin = Hub("allenai/openbookqa", ("additional/train-*", "additional/validation-*"))
    licence = "none stated"
    citation = (
        "Mihaylov, Clark, Khot, Sabharwal: Can a Suit of Armor Conduct Electricity? A New Dataset for Open Book "
        "Question Answering. EMNLP 2018"
    )
    options = TrainOnly
    fields = ("question_stem", "choices", "fact1", "answerKey")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        splits = ("train", "validation")
        taken, withheld = files_by_split(files, card, splits, options, profile, config="additional")
        return [Unit("data/Platypus/openbookqa.jsonl", taken, withheld)]

    def parse(self, record: Any, context: Context) -> Parsed:
        texts = texts_with_nulls_as("nan" if context.data_io else None, record, "question_stem", "fact1")
        if isinstance(texts, Malformed):
            return texts
        stem, fact = texts
        labelled = record.get("choices")
        if not isinstance(labelled, Mapping):
            return Malformed("null_choices" if labelled is None else "choices_is_no_object")
        listed = labelled.get("text")
        if context.data_io and isinstance(listed, list):
            listed = ["None" if choice is None else choice for choice in listed]
        choices = list_of_texts({"choices": listed}, "choices")
        key = text_of(record, "answerKey")
        if isinstance(choices, Malformed):
            return choices
        if isinstance(key, Malformed):
            return key
        if len(key) != 1:
            return Malformed("answer_key_is_no_letter")
        # The reference looks the choice up and forgets it: to Python, -1 is the last one.
        lowest = -len(choices) if context.data_io else 0
        if not lowest <= ord(key) - 65 < len(choices):
            return Malformed("answer_key_out_of_range")
        options = "".join(f"\n{line}" for line in choice_lines(choices))
        return Row("direct", f"{_TASK}\n\n{stem} {options}\n\nFact: {fact}", key)
