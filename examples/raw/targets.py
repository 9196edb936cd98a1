"""Small sets of rows that selection aims at: good ones of the kind that a model is wanted for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from raw.files import json_lines
from raw.questions import science_problem
from raw.words import prose, word_problem


def problems(path: Path, rng: random.Random, count: int) -> None:
    """Word problems, and problems of science with their solution."""

    def rows() -> Iterator[dict[str, str]]:
        for place in range(count):
            if place % 2:
                question, worked = word_problem(rng)
                yield {"condition": "direct", "instruction": question, "response": worked.partition("#### ")[2]}
            else:
                item = science_problem(rng, "target", place, with_solution=True)
                yield {"condition": "cot", "instruction": item["problem_text"], "response": item["solution"].strip()}

    json_lines(path, rows())


def documents(path: Path, rng: random.Random, count: int) -> None:
    """Return connected prose, as books and papers have it."""
    json_lines(
        path, ({"condition": "", "instruction": "", "response": prose(rng, rng.randint(5, 15))} for _ in range(count))
    )


TARGETS = {"problems": problems, "documents": documents}
"""By name."""
