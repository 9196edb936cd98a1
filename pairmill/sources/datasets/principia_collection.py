"""Principia (Hub ``facebook/principia-collection``): synthetic problems, their answers objects or numbers."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.fields import texts_or_nulls
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, Source

_SPLITS = ("mathematical_object", "numerical")


class PrincipiaCollection(Source):
    """Problem and answer as they are, of both splits."""

    name = "principia_collection"
    origin = Hub("facebook/principia-collection", tuple(f"data/{split}-*" for split in _SPLITS))
    licence = "CC-BY-NC-SA-4.0"
    citation = (
        "Aggarwal, Ghazvininejad, Kim, Kulikov, Lanchantin, Li, Li, Liu, Neubig, Ovalle, Saha, Sukhbaatar, Welleck, "
        "Weston, Whitehouse, Williams, Xu, Yu, Yuan, Zhang, Zhao: Reasoning over mathematical objects: on-policy "
        "reward modeling and test time aggregation. 2026, arXiv:2603.18886"
    )
    fields = ("problem_statement", "answer")
    splits = _SPLITS
    output = "data/principia_collection.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        return Row("synth,direct", *texts_or_nulls(record, "problem_statement", "answer"))
