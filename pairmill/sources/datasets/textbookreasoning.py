"""TextbookReasoning (Hub ``MegaScience/TextbookReasoning``): textbook questions, worked answers, and bare answers."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.fields import asks_for_proof, text_of, texts_or_nulls
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Labelled, Parsed
from pairmill.sources.source import Context, Source


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
    output = "data_clustered/textbookreasoning/{}.parquet"
    labels = ("cot", "direct")

    def parse(self, record: Any, context: Context) -> Parsed:
        question = text_of(record, "question")
        worked, bare = texts_or_nulls(record, "answer", "reference_answer")
        rows = [Labelled("cot", Row("synth,cot", question, worked))]
        if not asks_for_proof(question, words=not context.quirks.proof_within_words):
            rows.append(Labelled("direct", Row("noisy,direct", question, bare)))
        return rows
