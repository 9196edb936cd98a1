"""The rows of a data set that were taken, and what is counted of them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from pairmill.formats.eligible_rows import DatasetRows, count_cut
from pairmill.mixture.plan import Key
from pairmill.report.powers import by_size
from pairmill.stages.sample.analytics import Stats


@dataclass
class SampledRows(DatasetRows):
    """The rows of a data set that were taken; each is there once.

    Attributes:
        stats: of the rows that may be sampled, and of those that were.
        lengths: rows over all epochs by tokens, as :func:`by_size` counts.
        cuts: rows by how many tokens they lost, as :func:`by_size` counts.
        drawn: with a mixture, the response tokens of each of its tasks and buckets in each epoch.
    """

    stats: Stats
    lengths: NDArray[np.int64]
    cuts: NDArray[np.int64]
    drawn: dict[Key, list[int]] = field(default_factory=dict)


def sampled(rows: DatasetRows, coverage: NDArray[np.uint32]) -> SampledRows:
    """Return only the rows that were taken; ``coverage`` counts how often each was."""
    taken = np.flatnonzero(coverage)
    columns = {name: values[taken] for name, values in rows.columns.items()}
    times = coverage[taken].astype(np.int64)
    lengths = columns["inst_len"].astype(np.int64) + columns["resp_len"]
    kept, eligible = len(taken), len(rows)
    if rows.origins is not None:  # a row is kept if one of its pieces is
        kept, eligible = _distinct(rows.origins[taken]), _distinct(rows.origins)
    known = rows.ledger
    ledger = replace(known, rows_kept=kept, rows_out=int(times.sum()), dropped={**known.dropped}, notes={**known.notes})
    ledger.measures = {**known.measures}
    if kept < eligible:
        ledger.drop("not_sampled", eligible - kept)
    places, lost = rows.cut
    lost = lost[coverage[places] > 0]  # what a row lost that is never drawn is not missed
    count_cut(ledger, lost)
    stats = Stats(
        rows=len(rows),
        itoks=int(rows.columns["inst_len"].sum(dtype=np.int64)),
        rtoks=int(rows.columns["resp_len"].sum(dtype=np.int64)),
        cov_rows=int(times.sum()),
        cov_itoks=int((columns["inst_len"] * times).sum()),
        cov_rtoks=int((columns["resp_len"] * times).sum()),
        unique_rows=len(taken),
        unique_toks=int(lengths.sum()),
    )
    given = {**vars(rows), "columns": columns, "ledger": ledger, "origins": None}
    return SampledRows(**given, stats=stats, lengths=by_size(lengths, times), cuts=by_size(lost))


def _distinct(ascending: NDArray[np.uint32]) -> int:
    return int(np.count_nonzero(np.diff(ascending))) + bool(len(ascending))
