"""GSM8K, training split (Hub ``openai/gsm8k``, config ``main``): grade-school word problems with a final number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.clean.source import Drop, Malformed, Output, Parsed, Source, hub_split, text_of
from pairmill.rows import Row
from pairmill.stage import Profile

_MARK = "#### "


class Gsm8kTrain(Source):
    """The question and the number after ``#### ``; the worked solution is not used."""

    name = "gsm8k_train"

    def outputs(self, files: Sequence[str], card: str) -> list[Output]:
        return [Output("data/gsm8k_train.jsonl", hub_split(files, card, "train", "main"))]

    def parse(self, record: Any, profile: Profile) -> Parsed:
        question, answer = text_of(record, "question"), text_of(record, "answer")
        if isinstance(question, Malformed):
            return question
        if isinstance(answer, Malformed):
            return answer
        parts = answer.split(_MARK)
        if len(parts) != 2:
            return Malformed("no_final_answer" if len(parts) == 1 else "several_final_answers")
        row = Row("direct", question.strip(), parts[1].strip())
        if profile == "pairmill" and not (row.instruction and row.response):
            return Drop("empty_text")
        return row
