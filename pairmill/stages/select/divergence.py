"""How near the chosen rows are to their targets: divergences of bucket counts, beside those of uniform samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardFile, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.rowstage import Block
from pairmill.stages.select import arrays
from pairmill.stages.select.choose import Chosen, chosen_path, uniform_path
from pairmill.stages.select.features import TINY, Features, shares
from pairmill.stages.select.model import Model

# Features of the raw rows that are added to those of a sample: a small sample misses buckets by chance alone.
_SMOOTH: Final = 1000.0


@dataclass(frozen=True)
class CountChosen(Shard[object], reads=()):
    """Counts the buckets of chosen rows and of uniform samples, of a block: int64 [2 · targets, buckets].

    Args:
        codes: what took each row.
        samples: in how many uniform samples each row is.
        taken: rows that each target took, of all blocks.
    """

    block: Block
    codes: ShardFile
    samples: ShardFile
    taken: tuple[int, ...]
    features: Features

    @classmethod
    def from_record(cls, block: Block, chosen: ShardRecord, features: Features) -> CountChosen:
        """Make the shard of a block, given the record of Choose."""
        codes, samples = (chosen.file(path(block.number)) for path in (chosen_path, uniform_path))
        taken = tuple(chosen.read(Chosen).rows)
        return cls(block, codes, samples, taken, features, name=f"count {block.name}", size=block.size)

    def random_access(self) -> Mapping[str, Content]:
        return self.block.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        codes, samples = (arrays.load(file) for file in (self.codes, self.samples))
        targets = len(self.taken)
        counts = np.zeros((2 * targets, self.features.buckets), np.int64)
        order = order_samples(self.taken)
        start = 0
        for batch in (batch for piece in self.block.slices for batch in piece.batches(self.features.fields)):
            columns = {name: getattr(batch, name) for name in self.features.fields}
            stop = start + len(batch)
            mine, drawn = codes[start:stop], samples[start:stop]
            for target in range(targets):
                taken = mine == target + 1
                if taken.any():
                    self.features.count(columns, counts[target], taken)
            # The row that is in n samples is in those of the n largest.
            for number in np.unique(drawn[drawn > 0]).tolist():
                some = np.zeros(self.features.buckets, np.int64)
                self.features.count(columns, some, drawn == number)
                for target in order[:number]:
                    counts[targets + target] += some
            start = stop
        arrays.save(out, arrays.COUNTS, counts)
        return ShardResult(Ledger())


def order_samples(rows: Sequence[int]) -> list[int]:
    """Order the rankings by the size of their uniform samples, from large to small; equal ones as they are."""
    return sorted(range(len(rows)), key=lambda at: (-rows[at], at))


def compare(
    names: Sequence[str], fitted: ShardRecord, taken: Sequence[int], counted: Iterable[ShardRecord]
) -> dict[str, Any]:
    """Compare each target with all rows, with those that it took, and with a uniform sample of as many; JSON-like.

    ``raw``, ``selected`` and ``uniform`` are divergences in nats; ``reduction`` is uniform - selected.
    ``selected_unsmoothed`` is for comparison alone: a small choice misses buckets, however good it is.

    Args:
        names: of the targets.
        fitted: record of AddUp.
        taken: rows that each target took.
        counted: records of CountChosen.
    """
    counts = arrays.load(fitted, arrays.COUNTS)
    model = fitted.read(Model)
    total = np.zeros((2 * len(names), counts.shape[1]), np.int64)
    for record in counted:
        total += arrays.load(record, arrays.COUNTS)
    raw = shares(counts[0])
    compared = {}
    for at, name in enumerate(names):
        target = shares(counts[at + 1])
        selected = divergence(target, smooth(total[at], raw))
        uniform = divergence(target, smooth(total[len(names) + at], raw))
        compared[name] = {
            "raw": divergence(target, raw),
            "selected": selected,
            "uniform": uniform,
            "reduction": uniform - selected,
            "selected_unsmoothed": divergence(target, shares(total[at])),
            "mean_features_selected": int(total[at].sum()) / taken[at] if taken[at] else 0.0,
            "mean_features_raw": model.features / model.fitted if model.fitted else 0.0,
            "rows": taken[at],
        }
    return compared


def divergence(target: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Sum p · (ln p - ln q) over the buckets that the target has, in nats, with the same bits on every machine."""
    some = target > 0
    mine, theirs = target[some], other[some]
    terms = mine * (_native.select_ln(mine + TINY) - _native.select_ln(theirs + TINY))
    return math.fsum(terms.tolist())


def smooth(counts: NDArray[np.int64], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return shares of counts to which some of the raw distribution is added."""
    return (counts + _SMOOTH * raw) / (float(counts.sum()) + _SMOOTH)
