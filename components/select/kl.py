"""How near the chosen rows are to their targets: divergences of bucket counts, beside those of uniform samples.

CountChosen(block)   bucket counts of the rows that each target took, and of the uniform samples
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.select.fit import COUNTS, Features
from components.select.inputs import Block
from components.select.model import TINY, Model, load, shares
from components.select.settings import Settings
from components.select.shapes import Chosen
from pairmill import _native
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardRecord, ShardResult
from pairmill.engine.writer import Writer

VERSION: Final = 1
# Features of the raw rows that are added to those of a sample: a small sample misses buckets by chance alone.
_SMOOTH: Final = 1000.0


def chosen_path(block: int) -> str:
    """What choose says of the rows of a block: uint8 [rows], 0 or the number of the target + 1."""
    return f"chosen{block}.npy"


def uniform_path(block: int) -> str:
    """In how many uniform samples the rows of a block are: uint8 [rows]."""
    return f"uniform{block}.npy"


@dataclass
class Counted:
    """The data of a record: features of the rows that each target took."""

    features: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class CountChosen(HandKeyed[object]):
    """Bucket counts of chosen rows and of uniform samples, of a block: int64 [2 · targets, buckets].

    Args:
        chosen: record of choose.
        targets: how many.
    """

    block: Block
    chosen: ShardRecord
    targets: int
    features: Features

    @classmethod
    def of(cls, block: Block, chosen: ShardRecord, targets: int, settings: Settings) -> CountChosen:
        """The shard for a block."""
        features = Features.of(settings.dsir)
        data = chosen.read(Chosen)
        key = content_key(
            "select count",
            VERSION,
            block.identity(),
            features.identity,
            targets,
            data.digests[block.number],
            chosen.key,
        )
        return cls(f"count {block.name}", key, block.size, block, chosen, targets, features)

    def random_access(self) -> dict[str, Content]:
        return self.block.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        chosen = load(self.chosen, chosen_path(self.block.number))
        samples = load(self.chosen, uniform_path(self.block.number))
        counts = np.zeros((2 * self.targets, self.features.buckets), np.int64)
        data = Counted([0] * self.targets, [0] * self.targets)
        order = sample_order(self.chosen.read(Chosen).rows)
        start = 0
        for one in self.block.slices:
            for batch in one.batches(self.features.fields):
                columns = {name: getattr(batch, name) for name in self.features.fields}
                stop = start + len(batch)
                mine, drawn = chosen[start:stop], samples[start:stop]
                for target in range(self.targets):
                    taken = mine == target + 1
                    if taken.any():
                        data.features[target] += self.features.count(columns, counts[target], taken)
                        data.rows[target] += int(taken.sum())
                # The row that is in n samples is in those of the n largest.
                for number in np.unique(drawn[drawn > 0]).tolist():
                    some = np.zeros(self.features.buckets, np.int64)
                    self.features.count(columns, some, drawn == number)
                    for target in order[:number]:
                        counts[self.targets + target] += some
                start = stop
        with out.create(COUNTS, scratch=True) as local, local.open("wb") as file:
            np.save(file, counts)
        return ShardResult(Ledger(), asdict(data))


def sample_order(rows: Sequence[int]) -> list[int]:
    """The rankings by the size of their uniform samples, from large to small; equal ones in their order."""
    return sorted(range(len(rows)), key=lambda one: (-rows[one], one))


def divergences(names: Sequence[str], fitted: ShardRecord, counted: Sequence[ShardRecord]) -> dict[str, Any]:
    """What the report says of each target, JSON-like.

    ``raw``, ``selected`` and ``uniform`` are the divergences in nats of the target from all rows, from those that it
    took and from a uniform sample of as many; ``reduction`` is uniform - selected. ``selected_unsmoothed`` is for
    comparison alone: a small choice misses buckets, however good it is.

    Args:
        names: of the targets.
        fitted: record of AddUp.
        counted: records of CountChosen.
    """
    counts = load(fitted, COUNTS)
    model = fitted.read(Model)
    total = np.zeros((2 * len(names), counts.shape[1]), np.int64)
    features, rows = [0] * len(names), [0] * len(names)
    for record in counted:
        total += load(record, COUNTS)
        data = record.read(Counted)
        features = [one + more for one, more in zip(features, data.features, strict=True)]
        rows = [one + more for one, more in zip(rows, data.rows, strict=True)]
    raw = shares(counts[0])
    found = {}
    for at, name in enumerate(names):
        target = shares(counts[at + 1])
        selected = divergence(target, smoothed(total[at], raw))
        uniform = divergence(target, smoothed(total[len(names) + at], raw))
        found[name] = {
            "raw": divergence(target, raw),
            "selected": selected,
            "uniform": uniform,
            "reduction": uniform - selected,
            "selected_unsmoothed": divergence(target, shares(total[at])),
            "mean_features_selected": features[at] / rows[at] if rows[at] else 0.0,
            "mean_features_raw": model.features / model.fitted if model.fitted else 0.0,
            "rows": rows[at],
        }
    return found


def divergence(target: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Σ p · (ln p - ln q) over the buckets that the target has, in nats, with the same bits on every machine."""
    some = target > 0
    mine, theirs = target[some], other[some]
    terms = mine * (_native.select_ln(mine + TINY) - _native.select_ln(theirs + TINY))
    return math.fsum(terms.tolist())


def smoothed(counts: NDArray[np.int64], raw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shares of counts to which some of the raw distribution is added."""
    return (counts + _SMOOTH * raw) / (float(counts.sum()) + _SMOOTH)
