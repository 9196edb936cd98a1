"""WebInstruct, verified (Hub ``TIGER-Lab/WebInstruct-verified``, training split): questions with short answers."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.fields import texts_or_nulls
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, Source


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
    output = "data/webinstruct_verified.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        return Row("direct", *texts_or_nulls(record, "question", "answer"))
