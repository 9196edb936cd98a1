"""What readers ask of a source, and what they refuse of its tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pairmill.errors import InputError, did_you_mean
from pairmill.sources.files import json_shapes
from pairmill.sources.files.dialect import Dialect
from pairmill.sources.origin import Origin


class Readable(json_shapes.Expected, Protocol):
    """What readers ask of a source; its class says what each of them means."""

    @property
    def name(self) -> str: ...
    @property
    def origin(self) -> Origin: ...
    @property
    def optional(self) -> tuple[str, ...]: ...
    @property
    def counted(self) -> tuple[str, ...]: ...
    @property
    def dialect(self) -> Dialect: ...


def check_columns(uri: str, names: Sequence[str], source: Readable) -> None:
    """Raise InputError if a column that is read is missing or exists twice."""
    for name in source.fields:
        if name not in names:
            raise InputError(
                f"column {name!r} is missing",
                where=uri,
                got=", ".join(names),
                expected=", ".join(source.fields),
                hint=did_you_mean(name, names, f"check that this is the data set of {source.name}"),
            )
    for name in (*source.fields, *source.optional) or names:
        if name and names.count(name) > 1:
            raise InputError(
                f"column {name!r} exists {names.count(name)} times",
                where=uri,
                got=", ".join(names),
                expected="once",
                hint="rename the columns in the file",
            )
