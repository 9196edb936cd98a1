"""Records that have no answer as they are, and the lines of a description that make something of them."""

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from pairmill.engine.manifest import Ledger
from pairmill.engine.options import Profile
from pairmill.errors import InputError
from pairmill.formats.parquet_reader import open_parquet
from pairmill.formats.slices import FileSlice
from pairmill.sources.files.card import suffix_of
from pairmill.sources.parsed import USE_LINES, WITHHELD
from pairmill.sources.source import Source
from pairmill.stages.clean.limited import records_of

_FILTERED = "filtered_by_where"


def signs_in(source: Source, pieces: Sequence[FileSlice], ledger: Ledger, profile: Profile) -> list[str]:
    """Return which columns say that records are prompts or pairs, where none of them was kept."""
    others = sum(count for reason, count in ledger.dropped.items() if reason not in (_FILTERED, WITHHELD))
    if not source.signs or ledger.rows_kept or not others:
        return []
    piece = pieces[0]
    if suffix_of(piece.path) == ".parquet":
        with open_parquet(piece.uri, piece.content) as file:
            names: Iterable[Any] = file.schema_arrow.names
    else:
        reading: Any = records_of(piece, source, profile)
        with closing(reading):
            names = next((record for _, record in reading if isinstance(record, dict)), {})
    return [name for name in source.signs if name in names]


def no_rows(source: Source, signs: Sequence[str], dropped: dict[str, int], error: InputError | None) -> InputError:
    """Return the error for a source whose records have these columns and give no row; ``error``: what else is wrong."""
    hint = f"write in {source.described_in} one of: {'; '.join(USE_LINES)}"
    if error is not None:
        return InputError(error.what, where=error.where, got=error.got, expected=error.expected, hint=hint)
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(dropped.items(), key=lambda item: -item[1]))
    return InputError(
        f"no record of {source.name} gives a row",
        where="clean",
        got=f"records with {', '.join(signs)}, dropped as {reasons}",
        expected="an answer, or a line that says what becomes of them",
        hint=hint,
    )
