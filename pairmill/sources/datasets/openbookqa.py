"""OpenBookQA (Hub ``allenai/openbookqa``, config ``additional``): school science by multiple choice, with a fact."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.choices import choice_lines
from pairmill.sources.fields import list_of_texts, text_of, texts_of
from pairmill.sources.files.splits import TrainOnly
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Malformed, Parsed
from pairmill.sources.source import Context, Source

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
    config = "additional"
    splits = ("train", "validation")
    output = "data/Platypus/openbookqa.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        quirks = context.quirks
        stem, fact = texts_of(record, "question_stem", "fact1", null="nan" if quirks.null_as_text else None)
        labelled = record.get("choices")
        if not isinstance(labelled, dict):
            return Malformed("null_choices" if labelled is None else "choices_is_no_object")
        listed = labelled.get("text")
        if quirks.null_as_text and isinstance(listed, list):
            listed = ["None" if choice is None else choice for choice in listed]
        choices = list_of_texts({"choices": listed}, "choices")
        key = text_of(record, "answerKey")
        if len(key) != 1:
            return Malformed("answer_key_is_no_letter")
        # The reference looks the choice up and forgets it: to Python, -1 is the last one.
        lowest = -len(choices) if quirks.negative_choices else 0
        if not lowest <= ord(key) - 65 < len(choices):
            return Malformed("answer_key_out_of_range")
        options = "".join(f"\n{line}" for line in choice_lines(choices))
        return Row("direct", f"{_TASK}\n\n{stem} {options}\n\nFact: {fact}", key)
