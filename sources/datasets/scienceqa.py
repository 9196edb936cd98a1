"""ScienceQA, text only (Hub ``tasksource/ScienceQA_text_only``): school science by multiple choice, with lectures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.fields import choice_lines, letter_under, list_of_texts, text_or_null, texts_of
from sources.origin import Hub
from sources.source import Context, Malformed, Parsed, Source, Unit
from sources.splits import TrainAndValidation, files_by_split

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

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        taken, withheld = files_by_split(files, card, ("train", "validation", "test"), options, profile)
        return [Unit("data/Platypus/scienceqa.jsonl", taken, withheld)]

    def parse(self, record: Any, context: Context) -> Parsed:
        texts = texts_of(record, "question", "lecture", "solution")
        if isinstance(texts, Malformed):
            return texts
        question, lecture, solution = (text.strip() for text in texts)
        choices = list_of_texts(record, "choices")
        if isinstance(choices, Malformed):
            return choices
        letter = letter_under(record, "answer", None if context.data_io else len(choices))
        if isinstance(letter, Malformed):
            return letter
        base = "\n".join([question, "Options:", *choice_lines(choice.strip() for choice in choices)])
        if "hint" in record and not context.data_io:
            hint = text_or_null(record, "hint")
            if isinstance(hint, Malformed):
                return hint
            if hint and hint.strip():
                base += f"\n\nHint: {hint.strip()}"

        def instruction(task: str) -> str:
            return f"{task}\n\n{base}\n\nLecture: {lecture}" if lecture else base

        bare = Row("direct", instruction(_BARE), letter)
        return [Row("cot", instruction(_WORKED), f"{solution}\n\nAnswer: {letter}"), bare] if solution else bare
