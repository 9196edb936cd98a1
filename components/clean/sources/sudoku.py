"""Sudoku-Extreme (Hub ``sapientinc/sudoku-extreme``, file ``train.csv``): hard puzzles with their one solution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.clean.source import Malformed, Output, Parsed, Source
from pairmill.rows import Row
from pairmill.stage import Profile

_CELLS = 81


class Sudoku(Source):
    """A record is the CSV fields source, question, answer, rating; blanks of a puzzle are dots, and become zeros."""

    name = "sudoku"

    def outputs(self, files: Sequence[str], card: str) -> list[Output]:
        return [
            Output("data_clustered/sudoku_extreme/all.parquet", tuple(path for path in files if path == "train.csv"))
        ]

    def parse(self, record: Any, profile: Profile) -> Parsed:
        if len(record) != 4:
            return Malformed("not_four_fields")
        _, question, answer, _ = record
        if len(question) != _CELLS or len(answer) != _CELLS:
            return Malformed("not_81_cells")
        return Row("direct", "Solve the Sudoku\n\n" + question.replace(".", "0"), answer)
