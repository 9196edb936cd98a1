"""TextbookReasoning (Hub ``MegaScience/TextbookReasoning``): textbook questions, worked answers, and bare answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.card import hub_split
from sources.fields import asks_for_proof, text_of, texts_or_nulls
from sources.origin import Hub
from sources.source import Context, Malformed, Parsed, Source, To, Unit


class TextbookReasoning(Source):
    """Two outputs: every worked answer, and the reference answers to what does not ask for a proof.

    The reference takes ``improve`` for a request to prove.
    """

    name = "textbookreasoning"
    origin = Hub("MegaScience/TextbookReasoning", ("data/train-*",))
    licence = "CC-BY-NC-SA-4.0"
    citation = (
        "Fan, Wang, Liu: MegaScience: Pushing the Frontiers of Post-Training Datasets for Science Reasoning. 2025, "
        "arXiv:2507.16812"
    )
    fields = ("question", "answer", "reference_answer")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        found = hub_split(files, card, "train")
        return [Unit("data_clustered/textbookreasoning/{}.parquet", found, labels=("cot", "direct"))]

    def parse(self, record: Any, context: Context) -> Parsed:
        question = text_of(record, "question")
        if isinstance(question, Malformed):
            return question
        answers = texts_or_nulls(record, "answer", "reference_answer")
        if isinstance(answers, Malformed):
            return answers
        worked, bare = answers
        rows = [To("cot", Row("synth,cot", question, worked))]
        if not asks_for_proof(question, words=not context.data_io):
            rows.append(To("direct", Row("noisy,direct", question, bare)))
        return rows
