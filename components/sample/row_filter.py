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

from components.sample.analytics import REASONS, Stats
from components.sample.config import SampleConfig
from components.sample.node.plan import narrowest
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
        ledger = replace(self.ledger, rows_kept=len(taken), rows_out=int(times.sum()), dropped={**self.ledger.dropped})
        if len(taken) < len(self):
            ledger.drop("not_sampled", len(self) - len(taken))
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
        return replace(self, columns=columns, ledger=ledger, stats=stats, lengths=by_size(lengths, times))


def rows_of(name: str, rule: Rule, index: Iterable[Mapping[str, Ints]], config: SampleConfig) -> DatasetRows:
    """Filter and truncate the rows of a data set, given in chunks of its four index arrays (int64)."""
    kept: dict[str, list[NDArray[Any]]] = {column: [] for column in INDEX}
    ledger, cuts = Ledger(), np.zeros(64, np.int64)
    length, least = 0, NEVER
    for chunk in index:
        inst_len, resp_len = chunk["inst_len"], chunk["resp_len"]
        allowed = config.context_size - np.minimum(inst_len, config.context_size)
        if rule.long_context == "truncate":
            fits, cut = allowed >= 1, np.minimum(resp_len, allowed)
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
        ledger.rows_in += len(resp_len)
        length += int(inst_len.sum() + resp_len.sum())
        lost = (resp_len - cut)[keep]
        lost = lost[lost > 0]
        if len(lost):
            ledger.note("truncated", len(lost))
            ledger.measures["truncated_tokens"] = ledger.measures.get("truncated_tokens", 0) + int(lost.sum())
            cuts += by_size(lost)
        needed = inst_len + (max(1, config.min_resp_length) if rule.long_context == "truncate" else resp_len)
        least = min(least, int(needed[~short].min(initial=NEVER)))
        for column, values in zip(INDEX, (chunk["inst_start"], inst_len, chunk["resp_start"], cut), strict=True):
            # The largest number of the data set is unknown yet; that of the chunk is enough to save memory.
            values = values[keep]
            kept[column].append(values.astype(narrowest(int(values.max(initial=0)))))
    columns = {column: np.concatenate(parts) if parts else np.empty(0, np.int32) for column, parts in kept.items()}
    return DatasetRows(name, rule, columns, ledger, length, least, cuts)
