"""Sudoku-Extreme (Hub ``sapientinc/sudoku-extreme``, file ``train.csv``): hard puzzles with their one solution."""

from collections.abc import Iterator, Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.formats.file_slice import FileSlice
from pairmill.formats.row import Row
from pairmill.sources.files.patterns import matching
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Malformed, Parsed, Record
from pairmill.sources.source import Context, Source, Unit, load_readers

_CELLS = 81


class Sudoku(Source):
    """A record is the CSV fields source, question, answer, rating; blanks of a puzzle are dots, and become zeros."""

    name = "sudoku"
    origin = Hub("sapientinc/sudoku-extreme", ("train.csv",))
    licence = "none stated"
    citation = (
        "Wang, Li, Sun, Chen, Liu, Wu, Lu, Song, Abbasi Yadkori: Hierarchical Reasoning Model. 2025, arXiv:2506.21734"
    )

    output = "data_clustered/sudoku_extreme/all.parquet"

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return [Unit(self.output, matching(("train.csv",), files))]

    def read(self, piece: FileSlice, profile: Profile) -> Iterator[Record]:
        fields: Iterator[Record] = load_readers().csv_fields(piece)
        return fields

    def parse(self, record: Any, context: Context) -> Parsed:
        match record:
            case (_, str(question), str(answer), _):
                if len(question) != _CELLS or len(answer) != _CELLS:
                    return Malformed("not_81_cells")
                return Row("direct", "Solve the Sudoku\n\n" + question.replace(".", "0"), answer)
        return Malformed("not_four_fields")
