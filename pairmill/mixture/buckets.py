"""The bucket of each row of a task, from the attributes beside its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill import arrow_compute as pc
from pairmill.engine.content import pinned
from pairmill.engine.inputs import InputFile
from pairmill.errors import InputError
from pairmill.formats.attributes import unknown
from pairmill.mixture.settings import BucketAttribute

Codes = NDArray[np.uint16]
Labels = NDArray[np.int64]


def codes_of(task: str, attributes: Sequence[BucketAttribute], files: Mapping[str, InputFile]) -> Codes:
    """Return the codes of all rows of a task, uint16 [rows].

    Args:
        task: name, for messages.
        attributes: what makes the buckets; of the last one the code counts fastest.
        files: of attributes, by operation.

    Raises:
        InputError: a file or a column is absent, or of a type that has no groups.
    """
    codes: Labels | None = None
    for item in attributes:
        operation, _, column = item.attribute.partition(".")
        there = [name for path, file in sorted(files.items()) for name in _names(path, file)]
        if item.attribute not in there:
            raise unknown(
                f"the rows of {task!r} have no such attribute",
                item.attribute,
                "mix_config buckets",
                there,
                "set the mode of that operation of curate to report, or leave the task out with buckets.not",
                InputError,
            )
        labels = _labels(item, files[operation], column)
        if codes is not None and len(codes) != len(labels):
            raise InputError(
                f"two files of attributes of {task!r} have different numbers of rows",
                where=files[operation].uri,
                got=f"{len(labels):,}",
                expected=f"{len(codes):,}, as {attributes[0].attribute} has",
                hint="run the stage that made them again",
            )
        codes = labels if codes is None else codes * len(item.labels) + labels
    assert codes is not None
    return codes.astype(np.uint16)


def _names(operation: str, file: InputFile) -> list[str]:
    """Return the attributes in a file."""

    with pinned(file.uri, file.content) as opened:
        return [f"{operation}.{column}" for column in pq.ParquetFile(opened).schema_arrow.names]


def _labels(attribute: BucketAttribute, file: InputFile, column: str) -> Labels:
    """Return the number of the group of each row."""

    result = []
    with pinned(file.uri, file.content) as opened:
        table = pq.ParquetFile(opened)
        for batch in table.iter_batches(columns=[column]):
            values = batch.column(0)
            if pa.types.is_timestamp(values.type):
                values = pc.year(values)
            result.append((_by_edges if attribute.edges else _by_value)(attribute, values, file))
    return np.concatenate(result) if result else np.empty(0, np.int64)


def _by_edges(attribute: BucketAttribute, values: Any, file: InputFile) -> Labels:

    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise InputError(
            "not a number",
            where=file.uri,
            got=f"{attribute.attribute}: {kind}",
            expected="numbers or dates",
            hint="use in:",
        )
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False)
    labels: Labels = np.searchsorted(np.array(attribute.edges), numbers, side="right").astype(np.int64)
    labels[np.isnan(numbers)] = len(attribute.labels) - 1  # null is NaN here
    return labels


def _by_value(attribute: BucketAttribute, values: Any, file: InputFile) -> Labels:

    if pa.types.is_nested(values.type):
        raise InputError(
            "a list is not a value",
            where=file.uri,
            got=f"{attribute.attribute}: {values.type}",
            expected="texts or numbers",
        )
    places = {value: number for number, value in enumerate(attribute.in_)}
    other, none = len(attribute.in_), len(attribute.in_) + 1
    encoded = values.cast(pa.string()).dictionary_encode()
    by_code = np.array([*(places.get(text, other) for text in encoded.dictionary.to_pylist()), none], np.int64)
    labels: Labels = by_code[encoded.indices.fill_null(len(by_code) - 1).to_numpy(zero_copy_only=False)]
    return labels
