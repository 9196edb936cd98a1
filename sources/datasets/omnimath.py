"""Omni-MATH (Hub ``KbsdJames/Omni-MATH``): olympiad problems; a benchmark's test split, taken only if named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairmill.engine.stage import Profile
from pairmill.formats.rows import Row
from sources.fields import text_or_null, texts_of
from sources.origin import Hub
from sources.source import Context, Malformed, Parsed, Source, Unit
from sources.splits import BenchmarkOnly, files_by_split


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

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        taken, withheld = files_by_split(files, card, ("test",), options, profile)
        return [Unit("data/omnimath.jsonl", taken, withheld)]

    def parse(self, record: Any, context: Context) -> Parsed:
        problem, texts = text_or_null(record, "problem"), texts_of(record, "solution", "answer")
        if isinstance(problem, Malformed):
            return problem
        if isinstance(texts, Malformed):
            return texts
        solution, answer = texts
        return [Row("cot", problem, solution.strip()), Row("direct", problem, answer.strip())]
