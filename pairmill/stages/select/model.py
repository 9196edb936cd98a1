"""Counts of all blocks, added up: log weights of buckets, and groups with the mean and deviation of their values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import _native, storage
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardFile, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.stages.select import arrays
from pairmill.stages.select.fit import COUNTS, MOMENTS, Fitted
from pairmill.stages.select.moments import Moments
from pairmill.stages.select.settings import OWN_TARGET

WEIGHTS: Final = "weights.npy"
# Added to each probability, as data-selection does: a bucket that nothing falls into has a logarithm too.
TINY: Final = 1e-8


@dataclass
class Model:
    """The data of the record of AddUp.

    Args:
        rows: of all blocks.
        candidates: of them.
        fitted: rows whose features were counted.
        features: of them.
        target_features: by target.
    """

    rows: int
    candidates: int
    fitted: int
    features: int
    target_features: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class AddUp(Shard[object], reads=()):
    """Adds up what all blocks counted.

    Its files are ``counts.npy`` (int64 [1 + targets, buckets], raw first), ``weights.npy`` (float64 [targets, buckets])
    and ``moments.json``.

    Args:
        blocks: records of FitRows.
        targets: records of FitTarget, by target; empty of ``target_by_attribute``, which FitRows counts.
        laplace: added to each bucket of a target; None = there are no counts, and so no log weights.
        terms: attributes that are scored.
    """

    work = "fit the model"

    blocks: tuple[ShardRecord, ...]
    targets: tuple[tuple[ShardRecord, ...], ...]
    laplace: float | None
    terms: tuple[str, ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        moments = Moments.merge(load_moments(record) for record in self.blocks)
        self._refuse_unvalued(moments)
        with out.create(MOMENTS, scratch=True) as local:
            local.write_bytes(moments.dump())
        fitted = [record.read(Fitted) for record in self.blocks]
        data = Model(
            sum(block.rows for block in fitted),
            int(moments.rows.sum()),
            sum(block.fitted for block in fitted),
            sum(block.features for block in fitted),
        )
        if self.laplace is not None:
            counts = [_sum_counts(self.blocks), *(_sum_counts(records) for records in self.targets)]
            total = np.concatenate(counts)
            arrays.save(out, COUNTS, total)
            arrays.save(out, WEIGHTS, log_weights(total, self.laplace))
            data.target_features = total[1:].sum(axis=1).tolist()
        return ShardResult(Ledger(), asdict(data))

    def _refuse_unvalued(self, moments: Moments) -> None:
        """Raise InputError if an attribute that is scored has no value in any row: a sidecar of other rows has none."""
        for name, counts in zip(self.terms, moments.counts, strict=False):
            if len(moments.names) and not counts.any():
                raise InputError(
                    "no candidate has a value of an attribute that is scored",
                    where=f"attributes.score {name}",
                    got=f"{int(moments.rows.sum()):,} rows without one",
                    hint="check whether its file is of these rows: a sidecar's tasks and ordinals have to be theirs",
                )


def load_moments(source: ShardRecord | ShardFile) -> Moments:
    """Read the moments that a shard wrote."""
    uri = source.uri(MOMENTS) if isinstance(source, ShardRecord) else source.uri
    return Moments.parse(storage.store_for(uri).read(uri))


def _sum_counts(records: Sequence[ShardRecord]) -> NDArray[np.int64]:
    total: NDArray[np.int64] = arrays.load(records[0], COUNTS)
    for record in records[1:]:
        total += arrays.load(record, COUNTS)
    return total


def log_weights(counts: NDArray[np.int64], laplace: float) -> NDArray[np.float64]:
    """Return the log weight of each bucket, float64 [targets, buckets], of counts [1 + targets, buckets], raw first."""
    raw = _native.select_ln(shares(counts[0]) + TINY)
    weights = np.empty((len(counts) - 1, counts.shape[1]))
    for line, target in zip(weights, counts[1:].astype(np.float64), strict=True):
        line[:] = _native.select_ln(shares(target + laplace) + TINY) - raw
    return weights


def shares(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Divide counts by their sum; 0 of nothing. Whole numbers and halves are summed exactly."""
    # numpy adds in an order that depends on the processor.
    total = math.fsum(counts.tolist())
    return counts.astype(np.float64) / total if total else np.zeros(len(counts))


def refuse_empty(model: Model, names: Sequence[str], where: str) -> None:
    """Raise InputError if rows or candidates are absent, or a target has no feature."""
    if not model.rows:
        raise InputError("the row files contain no row", where="rows", hint="check the stage before")
    if not model.candidates:
        raise InputError(
            "no row is a candidate",
            where=f"{where}, attributes.where",
            got=f"{model.rows:,} rows, none within all bounds",
            expected="at least one",
            hint="loosen the bounds",
        )
    for name, features in zip(names, model.target_features, strict=False):
        if not features:
            own = name == OWN_TARGET
            raise InputError(
                "the target is empty",
                where=f"{where}, {'attributes.where' if own else f'dsir.targets {name}'}",
                got="no word in any of its rows",
                expected="texts that chosen rows should resemble",
                hint="loosen the bounds" if own else "check the place and dsir.fields",
            )
