"""Indexed data sets as Megatron-LM writes them, made from the public description of the format."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

CODES = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}

Document = Sequence[Sequence[int]]


def indexed(prefix: Path, documents: Sequence[Document], dtype: str = "uint16", **changed: Any) -> Path:
    """Write ``<prefix>.bin`` and ``<prefix>.idx``; returns the path of the former.

    Args:
        prefix: the path without extension.
        documents: each a list of sequences of ids.
        dtype: of the ids.
        changed: values of the header, or ``lengths``, ``places``, ``bounds``, that differ from what the data are.
    """
    sequences = [sequence for document in documents for sequence in document]
    kind = np.dtype(dtype)
    lengths = [len(sequence) for sequence in sequences]
    values = {
        "magic": b"MMIDIDX\x00\x00",
        "version": 1,
        "code": CODES[dtype],
        "sequences": len(sequences),
        "entries": len(documents) + 1,
        "lengths": lengths,
        "places": [sum(lengths[:number]) * kind.itemsize for number in range(len(lengths))],
        "bounds": [sum(map(len, documents[:number])) for number in range(len(documents) + 1)],
        **changed,
    }
    head = struct.pack("<QBQQ", *(values[name] for name in ("version", "code", "sequences", "entries")))
    prefix.parent.mkdir(parents=True, exist_ok=True)
    index = values["magic"] + head + np.array(values["lengths"], "<i4").tobytes()
    index += np.array(values["places"], "<i8").tobytes() + np.array(values["bounds"], "<i8").tobytes()
    prefix.with_name(f"{prefix.name}.idx").write_bytes(index)
    ids = [number for sequence in sequences for number in sequence]
    path = prefix.with_name(f"{prefix.name}.bin")
    path.write_bytes(np.array(ids, kind.newbyteorder("<")).tobytes())
    return path
