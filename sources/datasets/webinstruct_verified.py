"""WebInstruct, verified (Hub ``TIGER-Lab/WebInstruct-verified``, training split): questions with short answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.card import hub_split
from sources.fields import texts_or_nulls
from sources.origin import Hub
from sources.source import Context, Malformed, Parsed, Source, Unit


class WebInstructVerified(Source):
    """Question and answer as they are."""

    name = "webinstruct_verified"
    origin = Hub("TIGER-Lab/WebInstruct-verified", ("data/train-*",))
    licence = "Apache-2.0"
    citation = (
        "Ma, Liu, Jiang, Zhang, Ma, Chen: General-Reasoner: Advancing LLM Reasoning Across All Domains. 2025, "
        "arXiv:2505.14652"
    )
    fields = ("question", "answer")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return [Unit("data/webinstruct_verified.jsonl", hub_split(files, card, "train"))]

    def parse(self, record: Any, context: Context) -> Parsed:
        texts = texts_or_nulls(record, "question", "answer")
        return texts if isinstance(texts, Malformed) else Row("direct", *texts)
