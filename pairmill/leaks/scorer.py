"""Scores rows against the items of benchmarks (docs/curation.md)."""

import mmap
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, ClassVar, Final

import numpy as np

from pairmill import storage
from pairmill._native import LeakIndex, RowError
from pairmill.errors import InputError
from pairmill.formats import decisions, rows
from pairmill.leaks.settings import UNSCORED, VERDICTS
from pairmill.rowstage.scorer import Scored, Scorer

FIELDS: Final = ("instruction", "response")
_NO_INDEX: Final = "run the same command again with verify=true, which builds it anew"


@dataclass(frozen=True)
class LeakScorer(Scorer):
    """Which rows repeat items of benchmarks.

    A finding's rule is the verdict. ``score_i`` is the share of the question, ``score_r`` that of the best answer, and
    ``detail`` the field, with the window if the field was too long to be looked at as a whole.

    Args:
        key: of the shard that built it.
    """

    operation: ClassVar[str] = "decontaminate"

    uri: str
    key: str

    def identity(self) -> list[Any]:
        return [self.key]

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        """Map the index, which this process may have done before.

        Raises:
            InputError: it is missing or damaged.
        """
        index = _index(self.uri)
        yield lambda batch: _scored(index, batch)


@lru_cache(maxsize=1)
def _index(uri: str) -> LeakIndex:
    """Return the index at a URI, mapped; from a bucket it is downloaded once a process."""
    store = storage.store_for(uri)
    local = store.file(uri)
    if local is not None:
        with local.open("rb") as file:
            return _mapped(file, uri)
    with tempfile.TemporaryFile() as copy, store.open(uri) as file:
        shutil.copyfileobj(file, copy, 1 << 20)
        copy.flush()
        return _mapped(copy, uri)


def _mapped(file: BinaryIO, uri: str) -> LeakIndex:
    try:
        # The mapping keeps the file, also one that has no name any more.
        data = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        return LeakIndex(data)
    except ValueError as error:
        raise InputError("the index of benchmarks is damaged", where=uri, got=str(error), hint=_NO_INDEX) from error


def _scored(index: LeakIndex, batch: rows.Batch) -> Scored:
    try:
        row, item, verdict, field, question, answer, start, end, unscored = index.score(
            batch.instruction, batch.response
        )
    except RowError as error:
        number, what, got = error.args
        raise InputError(
            what, where=f"row {batch.start + number + 1}", got=got, hint="clean the data set again"
        ) from error
    names = [index.item(number) for number in item.tolist()]
    details = [
        FIELDS[each] if first < 0 else f"{FIELDS[each]}, tokens {first} to {last}"
        for each, first, last in zip(field.tolist(), start.tolist(), end.tolist(), strict=True)
    ]
    findings = decisions.table_of(
        {
            "ordinal": row,
            "rule": [VERDICTS[number] for number in verdict.tolist()],
            "action": ["report"] * len(row),
            "benchmark": [benchmark for benchmark, _ in names],
            "item": [name for _, name in names],
            "score_i": question,
            "score_r": answer,
            "detail": details,
        },
        len(row),
    )
    counts: dict[str, int] = {}
    for benchmark, _ in names:
        counts[f"hits {benchmark}"] = counts.get(f"hits {benchmark}", 0) + 1
    if unscored:
        counts[UNSCORED] = unscored
    return Scored(findings=findings if len(row) else None, counts=counts)
