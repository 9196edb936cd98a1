"""TheoremQA (Hub ``TIGER-Lab/TheoremQA``): theorems applied; a benchmark's test split, taken only if named."""

from collections.abc import Mapping
from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.fields import texts_or_nulls
from pairmill.sources.files.splits import BenchmarkOnly
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Drop, Malformed, Parsed
from pairmill.sources.source import Context, Source


class TheoremQa(Source):
    """Questions without a picture. ``sources=theoremqa`` takes them, ``all`` does not.

    The reference means the same and, with pandas 3, writes none: a record of texts and nulls alone becomes one of
    pandas' texts, in which the missing picture is NaN, and that is not None. All columns are read, because one number
    in a record keeps it from that.
    """

    name = "theoremqa"
    origin = Hub("TIGER-Lab/TheoremQA", ("data/test-*",))
    licence = "MIT"
    citation = (
        "Chen, Yin, Ku, Lu, Wan, Ma, Xu, Wang, Xia: TheoremQA: A Theorem-driven Question Answering Dataset. EMNLP "
        "2023, arXiv:2305.12524"
    )
    options = BenchmarkOnly
    splits = ("test",)
    output = "data/Platypus/theoremqa.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        question, answer = texts_or_nulls(record, "Question", "Answer")
        if "Picture" not in record:
            return Malformed("missing_Picture")
        if record["Picture"] is not None:
            return Drop("needs_a_picture")
        if context.quirks.rows_lost_by_pandas and _texts_alone(record):
            return Drop("lost_by_pandas_3")
        return Row("direct", question, answer)


def _texts_alone(record: Mapping[str, Any]) -> bool:
    """Return whether every value is text or missing; NaN, the one value that is not itself, counts as missing."""
    return all(
        value is None or isinstance(value, str) or (isinstance(value, float) and value != value)
        for value in record.values()
    )
