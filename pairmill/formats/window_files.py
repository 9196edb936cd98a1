"""Flat token files beside the tasks of a tokenized folder: ``windows/<task>.npy`` and ``windows/windows.json``.

A file has the tokens of a task's rows, one row after another (uint32, ``.npy`` 1.0): the instruction span unless the
instruction is empty, then the response span, whose last token is the end-of-document id. ``windows.json`` names it.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.errors import InputError, from_os_error

FOLDER = "windows"
INFO = "windows.json"
NAME = "windows"
"""Of the array in the folder of a shard."""
DTYPE = np.uint32


def path_of(task: str) -> str:
    """Return the path of a task's file below the tokenized folder."""
    return f"{FOLDER}/{task}.npy"


def describe(token: str, number: int) -> bytes:
    """Return the bytes of ``windows.json``: the token that ends a document, and its id."""
    return json.dumps({"eod": token, "eod_id": number}, separators=(",", ":"), ensure_ascii=False).encode()


def end_of_document(folder: Path) -> int | None:
    """Return the id that ends a document in the files of a folder on this machine; None if the folder does not say.

    Raises:
        InputError: ``windows.json`` has no such id.
        StorageError: it cannot be read.
    """
    path = folder / INFO
    try:
        result = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os_error(error, str(path)) from error
    except (ValueError, RecursionError):
        result = None
    number = result.get("eod_id") if isinstance(result, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise InputError(
            "does not name the end of a document",
            where=str(path),
            expected='{"eod": token, "eod_id": id}',
            hint="copy the folder again, or tokenize again",
        )
    return number


def flat(
    arrays: tuple[NDArray[Any], ...], documents: NDArray[np.bool_], eod: int, *, rendered: bool = False
) -> NDArray[np.uint32]:
    """Return the tokens of some rows as a flat file has them.

    Args:
        arrays: tokens, inst_start, inst_len, resp_start, resp_len of the rows, which follow each other without a gap.
        documents: bool [rows], those whose instruction is empty.
        eod: the id that takes the place of the last token of a response.
        rendered: whether a chat template wrote the ends of the rows but documents: then it comes behind the last token.
    """
    tokens, _, inst_len, _, resp_len = arrays
    lengths = np.column_stack([inst_len, resp_len]).astype(np.int64)
    made = tokens
    if documents.any():
        kept = np.column_stack([~documents, np.ones_like(documents)])
        made = tokens[np.repeat(kept.ravel(), lengths.ravel())]
        lengths[documents, 0] = 0
    ends = np.cumsum(lengths.sum(axis=1)) - 1
    if len(ends) and (made[ends] != eod).any():
        made = made.copy()
        made[ends[documents] if rendered else ends] = eod
    if rendered and len(ends):
        made = np.insert(made, ends[made[ends] != eod] + 1, eod)
    return made
