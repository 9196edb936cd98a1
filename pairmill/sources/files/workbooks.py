"""Rows of a sheet of an Excel file, one after another, through openpyxl. Imported where a source has such files."""

import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import openpyxl

from pairmill.engine.content import pinned
from pairmill.errors import InputError
from pairmill.formats import limits
from pairmill.formats.file_slice import FileSlice


def rows_of(piece: FileSlice, sheet: str, described_in: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield (number, values) of each row that is not empty; formulas have the values that Excel saved.

    Args:
        sheet: its name; empty = there is one alone.
        described_in: for messages.

    Raises:
        InputError: not an Excel file, no such sheet or several, or it is much longer unpacked.
    """
    with _opened(piece) as book:
        names = [each.title for each in book.worksheets]
        if sheet not in names and (sheet or len(names) != 1):
            raise InputError(
                f"no sheet {sheet!r}" if sheet else "several sheets",
                where=piece.uri,
                got=", ".join(names),
                expected="one of them",
                hint=f"write in {described_in}: sheet: {names[0] if names else '…'}",
            )
        for number, values in enumerate(book[sheet or names[0]].iter_rows(values_only=True)):
            if any(value is not None for value in values):
                yield number, values


def sheets_of(piece: FileSlice) -> list[str]:
    """Return the names of the sheets. Raises InputError as :func:`rows_of`."""
    with _opened(piece) as book:
        return [each.title for each in book.worksheets]


@contextmanager
def _opened(piece: FileSlice) -> Iterator[Any]:
    with pinned(piece.uri, piece.content) as file:
        try:
            with zipfile.ZipFile(file) as packed:
                # Texts that cells share are held in memory.
                limits.Expansion(piece.uri, lambda: piece.size, piece.expansion).add(
                    sum(member.file_size for member in packed.infolist())
                )
            with warnings.catch_warnings(action="ignore"):
                yield openpyxl.load_workbook(file, read_only=True, data_only=True)
        except (zipfile.BadZipFile, KeyError, ValueError, TypeError, AttributeError, SyntaxError) as error:
            raise InputError(
                "not a readable Excel file", where=piece.uri, got=str(error), hint="save it again as .xlsx, or as CSV"
            ) from error
