"""Rows that a query gives of a SQLite file, through Python's DB-API. The file is read alone: nothing is attached."""

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from pairmill import storage
from pairmill.engine.content import pinned
from pairmill.errors import InputError, UsageError
from pairmill.formats import limits
from pairmill.formats.file_slice import DATABASES, FileSlice

DRIVERS = {
    **dict.fromkeys(("postgresql", "postgres"), "adbc_driver_postgresql"),
    **dict.fromkeys(("grpc", "grpc+tls"), "adbc_driver_flightsql"),
}
"""Scheme of a database's address, and the package whose ``dbapi`` reads it (arrow.apache.org/adbc)."""
_ROWS = 1000
_ALLOWED = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE))


def checked_query(text: str) -> str:
    """Return a query. Raises UsageError, without a place, unless it reads rows, and says in which order.

    Rows have places: which are drawn, and what is held out, follow from these. Without an order a database may give
    the same rows in another one tomorrow.
    """
    text = text.strip().removesuffix(";").strip()
    expected = "SELECT … FROM … ORDER BY … columns that tell rows apart, such as a key"
    if not re.match(r"(?i)(select|with)\b", text):
        raise UsageError("not a query that reads rows", got=repr(text[:80]), expected=expected)
    if not re.search(r"(?i)\border\s+by\b(?!.*\))", text, re.DOTALL):
        raise UsageError("the query does not say the order of the rows", expected=expected, hint="add ORDER BY rowid")
    return text


def checked_address(text: str) -> str:
    """Return the address of a database. Raises UsageError, without a place, unless a driver reads it, and for a
    password in it: descriptions and manifests are read by others."""
    parts = urlsplit(text)
    if parts.scheme not in DRIVERS:
        expected = ", ".join(f"{scheme}://…" for scheme in DRIVERS)
        hint = f"of a SQLite file write files: and query: ({', '.join(DATABASES)})"
        raise UsageError("not an address of a database", got=repr(text), expected=expected, hint=hint)
    if parts.password or "password" in parts.query:
        raise UsageError("the address has a password", expected="none: set PGPASSWORD, or write ~/.pgpass")
    return text


def rows_of(piece: FileSlice, query: str) -> Iterator[Any]:
    """Yield the names of the columns, then (number, values) of each row.

    Raises:
        InputError: not a SQLite file, or the query fails.
    """
    with ExitStack() as stack:
        try:
            cursor = stack.enter_context(closing(stack.enter_context(closing(_opened(piece, stack))).cursor()))
            cursor.execute(query)
            yield [item[0] for item in cursor.description]
            number = piece.first
            while rows := cursor.fetchmany(_ROWS):
                for values in rows:
                    yield number, values
                    number += 1
        except (sqlite3.Error, sqlite3.Warning) as error:
            if "too big" in str(error):
                raise limits.too_long(piece.uri, piece.longest) from error
            what = "not a SQLite file" if "not a database" in str(error) else "the query fails"
            hint = "correct query:, or see what is there: pairmill init <the file>"
            raise InputError(what, where=piece.uri, got=str(error), hint=hint) from error


def tables_of(piece: FileSlice) -> list[str]:
    """Return the names of the tables and views of a SQLite file. Raises InputError as :func:`rows_of`."""
    query = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%' ORDER BY name"
    rows = rows_of(piece, query)
    next(rows)
    return [values[0] for _, values in rows]


def _opened(piece: FileSlice, stack: ExitStack) -> sqlite3.Connection:
    store = storage.store_for(piece.uri)
    local = store.file(piece.uri)
    if local is not None:
        stack.enter_context(pinned(piece.uri, piece.content))
        log = Path(f"{local}-wal")
        if log.exists() and log.stat().st_size:
            raise InputError(
                "the database has changes beside its file",
                where=str(log),
                hint=f"write them into it: sqlite3 {local} 'PRAGMA wal_checkpoint(TRUNCATE)'",
            )
    else:
        copy = stack.enter_context(tempfile.NamedTemporaryFile(prefix="pairmill-"))  # noqa: SIM115
        with piece.opened() as file:
            shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()
        local = Path(copy.name)
    connection = sqlite3.connect(f"file:{quote(str(local))}?mode=ro&immutable=1", uri=True)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, piece.longest + (1 << 20))
    # A description is a stranger's: without this its query could attach any other file of the machine.
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
    connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
    return connection
