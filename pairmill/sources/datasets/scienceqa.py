"""ScienceQA, text only (Hub ``tasksource/ScienceQA_text_only``): school science by multiple choice, with lectures."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.choices import choice_lines
from pairmill.sources.fields import letter_under, list_of_texts, text_or_null, texts_of
from pairmill.sources.files.splits import TrainAndValidation
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, Source

_WORKED = "Solve the following question using the information provided in the lecture."
_BARE = "Choose the correct option letter for the following question based on the information from the lecture."


class ScienceQa(Source):
    """Per question the explained answer where there is one, and its letter. The reference leaves out the hint."""

    name = "scienceqa"
    origin = Hub("tasksource/ScienceQA_text_only", ("data/train-*", "data/validation-*", "data/test-*"))
    licence = "none stated (the original ScienceQA: CC-BY-NC-SA-4.0)"
    citation = (
        "Lu, Mishra, Xia, Qiu, Chang, Zhu, Tafjord, Clark, Kalyan: Learn to Explain: Multimodal Reasoning via Thought "
        "Chains for Science Question Answering. NeurIPS 2022, arXiv:2209.09513"
    )
    options = TrainAndValidation
    fields = ("question", "choices", "answer", "lecture", "solution")
    optional = ("hint",)
    splits = ("train", "validation", "test")
    output = "data/Platypus/scienceqa.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        question, lecture, solution = (text.strip() for text in texts_of(record, "question", "lecture", "solution"))
        choices = list_of_texts(record, "choices")
        letter = letter_under(record, "answer", None if context.quirks.letters_beyond_choices else len(choices))
        base = "\n".join([question, "Options:", *choice_lines(choice.strip() for choice in choices)])
        if "hint" in record and not context.quirks.omit_hint:
            hint = text_or_null(record, "hint")
            if hint and hint.strip():
                base += f"\n\nHint: {hint.strip()}"

        def instruction(task: str) -> str:
            return f"{task}\n\n{base}\n\nLecture: {lecture}" if lecture else base

        bare = Row("direct", instruction(_BARE), letter)
        return [Row("cot", instruction(_WORKED), f"{solution}\n\nAnswer: {letter}"), bare] if solution else bare
