"""Rows of a database on a server, through its ADBC driver, as Parquet."""

import importlib
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.errors import InputError, StorageError, UsageError
from pairmill.extras import how_to_install
from pairmill.sources.files.databases import DRIVERS
from pairmill.sources.origin import Database
from pairmill.stages.fetch.extract import tables

FILE = "train.parquet"
"""The name that the rows get."""
_EVERY = 1 << 62


def write(origin: Database, path: Path, limit: int = 0) -> int:
    """Write the rows of a query to a Parquet file; return their number.

    Args:
        origin: the database and the query.
        path: local file to make.
        limit: only the first this many rows; 0 = all.

    Raises:
        UsageError: the driver is not installed.
        StorageError: the database does not answer.
        InputError: the query fails.
    """
    scheme = origin.address.partition("://")[0]
    driver = _driver(scheme, origin.address)
    try:
        connection: Any = driver.connect(origin.address)
    except driver.Error as error:
        got = " ".join(str(error).split())[:300]
        hint = "check the address, and PGPASSWORD; then run the same command"
        raise StorageError("the database does not answer", where=origin.address, got=got, hint=hint) from error
    written = 0
    try:
        with closing(connection), closing(connection.cursor()) as cursor:
            if scheme.startswith("postgres"):
                # A description is a stranger's, and the account may be allowed to write.
                cursor.execute("SET TRANSACTION READ ONLY")
            cursor.execute(origin.query)
            reader = cursor.fetch_record_batch()
            with pq.ParquetWriter(path, reader.schema) as writer:
                for table in tables(iter(reader), limit or _EVERY):
                    writer.write_table(table)
                    written += len(table)
    except (driver.Error, pa.ArrowException) as error:
        got = " ".join(str(error).split())[:300]
        raise InputError("the query fails", where=origin.address, got=got, hint="correct query:") from error
    if not written:
        raise InputError("the query gives no row", where=origin.address, hint="correct query:")
    return written


def _driver(scheme: str, address: str) -> ModuleType:
    package = DRIVERS[scheme]
    try:
        return importlib.import_module(f"{package}.dbapi")
    except ModuleNotFoundError as error:
        name = package.replace("_", "-")
        hint = how_to_install("databases") if scheme.startswith("postgres") else f"pip install {name}"
        raise UsageError(
            "its driver is not installed here", where=address, got=f"no {error.name}", hint=hint
        ) from error
