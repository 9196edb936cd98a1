"""Omni-MATH (Hub ``KbsdJames/Omni-MATH``): olympiad problems; a benchmark's test split, taken only if named."""

from typing import Any

from pairmill.formats.row import Row
from pairmill.sources.fields import text_or_null, texts_of
from pairmill.sources.files.splits import BenchmarkOnly
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, Source


class OmniMath(Source):
    """Per problem the solution and the answer. ``sources=omnimath`` takes them, ``all`` does not."""

    name = "omnimath"
    origin = Hub("KbsdJames/Omni-MATH", ("test.jsonl",))
    licence = "Apache-2.0"
    citation = (
        "Gao, Song, Yang, Cai, Miao and others: Omni-MATH: A Universal Olympiad Level Mathematic Benchmark For Large "
        "Language Models. 2024, arXiv:2410.07985"
    )
    options = BenchmarkOnly
    fields = ("problem", "solution", "answer")
    splits = ("test",)
    output = "data/omnimath.jsonl"

    def parse(self, record: Any, context: Context) -> Parsed:
        problem = text_or_null(record, "problem")
        solution, answer = texts_of(record, "solution", "answer")
        return [Row("cot", problem, solution.strip()), Row("direct", problem, answer.strip())]
