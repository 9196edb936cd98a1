"""The rows of a data set that may be sampled: filtered and cut as the options and the data set's rule say. Pure.

The algorithm is data_io's sampler (docs/format.md section 5); the default profile corrects its defects
(docs/differences.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.sample.analytics import REASONS, SPLIT, Stats
from components.sample.config import SampleConfig
from components.sample.node.plan import narrowest
from components.sample.split import Cutter, SplitRows, split_rows
from pairmill.engine.manifest import Ledger
from pairmill.formats.prefixes import Rule
from pairmill.formats.tokens import INDEX, Ints
from pairmill.report.powers import by_size

NEVER = 2**63 - 1
"""A context that no row has."""


@dataclass
class DatasetRows:
    """The rows of a data set that may be sampled, or were, with what became of the others.

    Attributes:
        columns: the four index arrays, int32 or int64 of shape (rows,); spans point into the data set's ``tokens.npy``.
        ledger: what became of all rows.
        length: tokens of the data set.
        least_context: the smallest context with which a row is left whose response is long enough; NEVER if none is.
        cuts: rows by how many tokens were cut off, as :func:`by_size` counts.
        origins: for each row, which may be a piece, the number of its row in the data set, ascending; None if each is
            a row of its own.
        stats: of the rows that may be sampled, and of those that were.
        lengths: rows over all epochs by tokens, as :func:`by_size` counts.
    """

    name: str
    rule: Rule
    columns: dict[str, NDArray[Any]]
    ledger: Ledger
    length: int
    least_context: int
    cuts: NDArray[np.int64]
    origins: NDArray[np.uint32] | None = None
    stats: Stats = field(default_factory=Stats)
    lengths: NDArray[np.int64] = field(default_factory=lambda: np.zeros(64, np.int64))

    def __len__(self) -> int:
        return len(self.columns["inst_len"])

    def sampled(self, coverage: NDArray[np.uint32]) -> DatasetRows:
        """Return only the rows that were taken; ``coverage`` counts how often each was."""
        taken = np.flatnonzero(coverage)
        columns = {name: values[taken] for name, values in self.columns.items()}
        times = coverage[taken].astype(np.int64)
        lengths = columns["inst_len"].astype(np.int64) + columns["resp_len"]
        kept, eligible = len(taken), len(self)
        if self.origins is not None:  # a row is kept if one of its pieces is
            kept, eligible = _distinct(self.origins[taken]), _distinct(self.origins)
        ledger = replace(self.ledger, rows_kept=kept, rows_out=int(times.sum()), dropped={**self.ledger.dropped})
        if kept < eligible:
            ledger.drop("not_sampled", eligible - kept)
        stats = Stats(
            rows=len(self),
            itoks=int(self.columns["inst_len"].sum(dtype=np.int64)),
            rtoks=int(self.columns["resp_len"].sum(dtype=np.int64)),
            cov_rows=int(times.sum()),
            cov_itoks=int((columns["inst_len"] * times).sum()),
            cov_rtoks=int((columns["resp_len"] * times).sum()),
            unique_rows=len(taken),
            unique_toks=int(lengths.sum()),
        )
        lengths = by_size(lengths, times)
        return replace(self, columns=columns, ledger=ledger, origins=None, stats=stats, lengths=lengths)


def _distinct(ascending: NDArray[np.uint32]) -> int:
    return int(np.count_nonzero(np.diff(ascending))) + bool(len(ascending))


def rows_of(
    name: str, rule: Rule, index: Iterable[Mapping[str, Ints]], config: SampleConfig, cutter: Cutter | None = None
) -> DatasetRows:
    """Filter, and truncate or split the rows of a data set, given in chunks of its four index arrays (int64).

    ``cutter`` is the data set's, if the rule splits rows.
    """
    kept: dict[str, list[NDArray[Any]]] = {column: [] for column in INDEX}
    origins: list[NDArray[np.uint32]] = []
    ledger, cuts = Ledger(), np.zeros(64, np.int64)
    length, least = 0, NEVER
    for chunk in index:
        inst_len, resp_len = chunk["inst_len"], chunk["resp_len"]
        allowed = config.context_size - np.minimum(inst_len, config.context_size)
        if rule.long_context == "truncate":
            fits, cut = allowed >= 1, np.minimum(resp_len, allowed)
        elif rule.long_context == "split":
            fits, cut = allowed >= 1, resp_len
        else:
            fits, cut = resp_len <= allowed, resp_len
        # The reference tests the length before it cuts, so a response cut to one token passes.
        tested = resp_len if config.profile == "data_io" else cut
        short = resp_len < config.min_resp_length
        cut_short = ~short & fits & (tested < config.min_resp_length)
        keep = fits & ~short & ~cut_short
        for reason, marked in zip(REASONS, (short, ~short & ~fits, cut_short), strict=True):
            if marked.any():
                ledger.drop(reason, int(marked.sum()))
        if cutter is None:
            taken = {name: values[keep] for name, values in {**chunk, "resp_len": cut}.items()}
        else:
            made = split_rows(chunk, keep, allowed, config.min_resp_length, cutter)
            _count_split(ledger, chunk, made)
            origins.append((made.rows + ledger.rows_in).astype(np.uint32))
            keep, taken = made.keep, made.columns
        ledger.rows_in += len(resp_len)
        length += int(inst_len.sum() + resp_len.sum())
        lost = (resp_len - cut)[keep]
        lost = lost[lost > 0]
        if len(lost):
            ledger.note("truncated", len(lost))
            ledger.measures["truncated_tokens"] = ledger.measures.get("truncated_tokens", 0) + int(lost.sum())
            cuts += by_size(lost)
        needed = inst_len + _least_response(rule, resp_len, config.min_resp_length)
        least = min(least, int(needed[~short].min(initial=NEVER)))
        for column, parts in kept.items():
            values = taken[column]
            # The largest number of the data set is unknown yet; that of the chunk is enough to save memory.
            parts.append(values.astype(narrowest(int(values.max(initial=0)))))
    columns = {column: np.concatenate(parts) if parts else np.empty(0, np.int32) for column, parts in kept.items()}
    pieces_of = np.concatenate(origins) if "split" in ledger.notes else None
    return DatasetRows(name, rule, columns, ledger, length, least, cuts, pieces_of)


def _count_split(ledger: Ledger, chunk: Mapping[str, Ints], made: SplitRows) -> None:
    for reason, count in made.dropped.items():
        ledger.drop(reason, count)
    if not len(made.split):
        return
    ledger.note("split", len(made.split))
    instructions = chunk["inst_len"][made.split]
    sums = (made.pieces.sum(), chunk["resp_len"][made.split].sum(), (instructions * (made.pieces - 1)).sum())
    for name, count in zip(SPLIT, sums, strict=True):
        ledger.measures[name] = ledger.measures.get(name, 0) + int(count)


def _least_response(rule: Rule, resp_len: Ints, least: int) -> Ints | int:
    """Return the tokens that the context must have beside an instruction for the row not to be dropped."""
    if rule.long_context == "truncate":
        return max(1, least)
    if rule.long_context == "split":  # a cut may have to move by three tokens, the rest of a character
        return np.minimum(resp_len, max(1, least) + 3)
    return resp_len
