"""NaturalReasoning (Hub ``facebook/natural_reasoning``): questions from the web with a short reference answer."""

from collections.abc import Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.formats.row import Row
from pairmill.sources.fields import asks_for_proof, text_of
from pairmill.sources.files.card import hub_split
from pairmill.sources.files.patterns import matching
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Drop, Parsed
from pairmill.sources.source import Context, Source, Unit


class NaturalReasoning(Source):
    """The question and its reference answer; models' responses are not used.

    A question that asks for a proof has no short answer and is left out. The reference takes ``improve`` for one.
    """

    name = "natural_reasoning"
    origin = Hub("facebook/natural_reasoning", ("full.jsonl",))
    licence = "CC-BY-NC-4.0"
    citation = (
        "Yuan, Yu, Jiang, Padthe, Li, Kulikov, Cho, Wang, Tian, Weston, Li: NaturalReasoning: Reasoning in the Wild "
        "with 2.8M Challenging Questions. 2025, arXiv:2502.13124"
    )
    fields = ("question", "reference_answer")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        # The card lists no files: the Hub takes what is not named after a split for the training split.
        train = hub_split(files, card, "train") or matching(("full.jsonl",), files)
        return [Unit("data/natural_reasoning.jsonl", train)]

    def parse(self, record: Any, context: Context) -> Parsed:
        answer = text_of(record, "reference_answer").strip()
        if not answer:
            return Drop("empty_response")
        question = text_of(record, "question")
        if asks_for_proof(question, words=not context.quirks.proof_within_words):
            return Drop("asks_for_proof")
        return Row("noisy,direct", question, answer)
