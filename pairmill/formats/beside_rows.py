"""The rows that tokens were made of: their folders below a project, their row files, and the chats beside them."""

from collections.abc import Iterable, Iterator, Sequence

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import InputRef
from pairmill.formats import attributes
from pairmill.formats.parquet_reader import open_parquet

_BEFORE = ("select", "curate", "take_out", "clean")
"""Stages whose rows tokenize reads, the last first."""


def row_folders(tokenized: str, inputs: Iterable[InputRef]) -> Iterator[str]:
    """Yield the folders of rows below the root that a tokenized folder is below, as far as they are there.

    Args:
        tokenized: URI of the folder.
        inputs: of it.
    """
    root = storage.parent_of(storage.parent_of(tokenized))
    for ref in inputs:
        for stage in _BEFORE:
            uri = storage.join(root, stage, ref.fingerprint)
            if ref.role == "rows" and storage.store_for(uri).exists(storage.join(uri, manifests.MANIFEST)):
                yield uri
                break


def chats_of(folders: Iterable[str], task: str, ordinals: Sequence[int]) -> Iterator[str | None]:
    """Yield the chats of rows of a task as JSON, ordinals ascending; None of a pair, nothing of a task without chats.

    Args:
        folders: URIs of folders of rows; the first that has attributes of the task is read.
        task: its name there.
        ordinals: of the rows in the row file, ascending.
    """
    for folder in folders:
        uri = storage.join(folder, *attributes.path_of(task).split("/"))
        if not storage.store_for(uri).exists(uri):
            continue
        with open_parquet(uri) as file:
            if "chat" not in file.schema_arrow.names:
                return
            start = 0
            for group in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                mine = [number - start for number in ordinals if start <= number < start + size]
                if mine:
                    column = file.read_row_group(group, columns=["chat"]).column(0)
                    yield from (column[place].as_py() for place in mine)
                start += size
            return
