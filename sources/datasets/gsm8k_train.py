"""GSM8K, training split (Hub ``openai/gsm8k``, config ``main``): grade-school word problems with a final number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.card import hub_split
from sources.fields import texts_of
from sources.origin import Hub
from sources.source import Context, Malformed, Parsed, Source, Unit

_MARK = "#### "


class Gsm8kTrain(Source):
    """The question and the number after ``#### ``; the worked solution is not used."""

    name = "gsm8k_train"
    origin = Hub("openai/gsm8k", ("main/train-*",))
    licence = "MIT"
    citation = (
        "Cobbe, Kosaraju, Bavarian, Chen, Jun, Kaiser, Plappert, Tworek, Hilton, Nakano, Hesse, Schulman: Training "
        "Verifiers to Solve Math Word Problems. 2021, arXiv:2110.14168"
    )
    fields = ("question", "answer")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return [Unit("data/gsm8k_train.jsonl", hub_split(files, card, "train", "main"))]

    def parse(self, record: Any, context: Context) -> Parsed:
        texts = texts_of(record, "question", "answer")
        if isinstance(texts, Malformed):
            return texts
        question, answer = texts
        parts = answer.split(_MARK)
        if len(parts) != 2:
            return Malformed("no_final_answer" if len(parts) == 1 else "several_final_answers")
        return Row("direct", question.strip(), parts[1].strip())
