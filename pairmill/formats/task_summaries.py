"""Sums over the rows of tasks that may be sampled, from their index arrays alone, and kept by content.

What a rule would take is known from these in milliseconds, where the arrays of a large folder take seconds to read. The
sums of a task follow from its content, whatever its name and place, so they are kept for the user
(:mod:`pairmill.formats.kept`).
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from pairmill import log, storage
from pairmill._native import sample_summaries, sample_summary
from pairmill.cpu import available_cores
from pairmill.engine.manifest import fingerprint_from
from pairmill.formats import kept
from pairmill.formats.eligible_rows import RowOptions
from pairmill.formats.tokens import INDEX, Dataset

Ints = NDArray[np.int64]

VERSION: Final = 1
"""Of the files that are kept: another meaning of a number needs another version."""
_SUMS: Final = (
    *("rows_in", "length", "rows", "inst_tokens", "resp_tokens", "resp_squares", "squares"),
    *("response_too_short", "over_context", "response_too_short_once_cut", "truncated", "truncated_tokens"),
)
_WIDTH: Final = len(_SUMS)
_MODES: Final = {"truncate": 0, "drop": 1, "split": 2}
_AT_ONCE: Final = 512
_MOST_KEPT: Final = 200_000
"""Tasks in a file, of 0.1 kB each; with more, only those of the last folder stay."""


@dataclass(frozen=True)
class TaskSummaries:
    """Sums over the rows of tasks, int64 [tasks] each; a row's response is already cut to the context.

    Attributes:
        rows_in: all rows.
        length: tokens of all rows.
        rows: rows that may be sampled; of rows that are split their pieces, as if each but the last filled the context.
        inst_tokens: instruction tokens of these.
        resp_tokens: response tokens of these.
        resp_squares: sum of the squares of their responses' lengths.
        squares: sum of the squares of their lengths.
        response_too_short: rows that are left out, as are the next two.
        over_context: rows that the context has no room for.
        response_too_short_once_cut: rows whose response is too short once it is cut.
        truncated: rows that lose tokens.
        truncated_tokens: tokens that they lose.
    """

    rows_in: Ints
    length: Ints
    rows: Ints
    inst_tokens: Ints
    resp_tokens: Ints
    resp_squares: Ints
    squares: Ints
    response_too_short: Ints
    over_context: Ints
    response_too_short_once_cut: Ints
    truncated: Ints
    truncated_tokens: Ints

    @classmethod
    def from_numbers(cls, numbers: Ints) -> Self:
        """Take the numbers of tasks as the Rust core returns them, int64 [tasks, numbers]."""
        return cls(**dict(zip(_SUMS, numbers.T, strict=True)))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def tokens(self) -> Ints:
        """Tokens of the rows that may be sampled, int64 [tasks]."""
        return self.inst_tokens + self.resp_tokens


def summarize(
    tasks: Sequence[Dataset], long_contexts: Sequence[str], options: RowOptions, *, cache: bool = True
) -> TaskSummaries:
    """Sum up the rows of tasks that may be sampled, in their order.

    Args:
        tasks: of a tokenized folder.
        long_contexts: what the rule of each says of long rows.
        options: what else decides which rows may be sampled.
        cache: use what earlier runs kept, and keep it.

    Raises:
        InputError: an index array is absent, damaged or wrong.
    """
    keys = np.array(
        [int(task.key, 16) + _MODES[long] & (1 << 64) - 1 for task, long in zip(tasks, long_contexts, strict=True)],
        np.uint64,
    )
    place = _place_of(options) if cache else None
    old = _load(place)
    at = np.minimum(np.searchsorted(old[0], keys), len(old[0]) - 1)
    known = old[0][at] == keys if len(old[0]) else np.zeros(len(keys), np.bool_)
    numbers = np.zeros((len(keys), _WIDTH), np.int64)
    numbers[known] = old[1][at[known]]
    missing = np.flatnonzero(~known).tolist()
    if missing:
        read = _read([tasks[number] for number in missing], [long_contexts[number] for number in missing], options)
        numbers[missing] = np.concatenate(list(read))
        _save(place, old, (keys, numbers))
    return TaskSummaries.from_numbers(numbers)


def _read(tasks: Sequence[Dataset], long_contexts: Sequence[str], options: RowOptions) -> Iterator[Ints]:
    """Yield the numbers of some tasks after the others, int64 [some, numbers]."""
    with log.progress("read lengths", len(tasks), "tasks") as progress:
        for first in range(0, len(tasks), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            numbers = read_numbers(tasks[some], long_contexts[some], options)
            progress.advance(len(numbers), int(numbers[:, 0].sum()), 0)
            yield numbers


def read_numbers(
    tasks: Sequence[Dataset], long_contexts: Sequence[str], options: RowOptions, threads: int | None = None
) -> Ints:
    """Read the index arrays of tasks, int64 [tasks, numbers]; as :func:`summarize`, but nothing is kept.

    Args:
        tasks, long_contexts, options: as for :func:`summarize`.
        threads: None = as many as there are cores.
    """
    threads = threads or available_cores()
    limits = options.context_size, options.min_resp_length, options.profile == "data_io"
    given, places = [], []
    for place, (task, long_context) in enumerate(zip(tasks, long_contexts, strict=True)):
        if (folder := storage.store_for(task.uri).file(task.uri)) is not None:
            given.append((os.fspath(folder), [task.contents[name].digest for name in INDEX], long_context))
            places.append(place)
    numbers = np.empty((len(tasks), _WIDTH), np.int64)
    numbers[places], fit = sample_summaries(given, limits, threads)
    slow = sorted({*range(len(tasks))} - {*np.array(places, np.int64)[fit].tolist()})
    if slow:  # in a bucket, or not plain: what is wrong gets its words here
        with ThreadPoolExecutor(2 * threads) as pool:
            items = [(tasks[place], long_contexts[place]) for place in slow]
            numbers[slow] = list(pool.map(partial(_read_slowly, limits=limits), items))
    return numbers


def _read_slowly(item: tuple[Dataset, str], limits: tuple[int, int, bool]) -> Ints:
    task, long_context = item
    total = np.zeros(_WIDTH, np.int64)
    for chunk in task.index():
        inst, resp = chunk["inst_len"].view(np.uint64), chunk["resp_len"].view(np.uint64)
        total += sample_summary(inst, resp, long_context, limits)
    return total


_Kept = tuple[NDArray[np.uint64], Ints]
"""Keys, ascending where they are kept, uint64 [tasks]; the numbers of each, int64 [tasks, numbers]."""


def _place_of(options: RowOptions) -> str | None:
    """Return where summaries with these options are kept; None = nowhere."""
    values = options.context_size, options.min_resp_length, options.profile
    return kept.place_of(f"lengths-{VERSION}-{fingerprint_from(*values)}")


def _load(place: str | None) -> _Kept:
    body = kept.load(place)
    if len(body) % (8 * (1 + _WIDTH)):
        body = body[:0]
    keys, numbers = np.split(np.frombuffer(body, np.int64), [len(body) // (8 * (1 + _WIDTH))])
    return keys.view(np.uint64), numbers.reshape(-1, _WIDTH)


def _save(place: str | None, old: _Kept, new: _Kept) -> None:
    """Keep the new summaries, and the old ones beside them; if that fails, they are read again the next time."""
    if place is None:
        return
    if len(old[0]) + len(new[0]) > _MOST_KEPT:
        old = old[0][:0], old[1][:0]
    keys, first = np.unique(np.concatenate([old[0], new[0]]), return_index=True)
    numbers = np.concatenate([old[1], new[1]])[first]
    kept.save(place, keys.tobytes() + numbers.tobytes())
