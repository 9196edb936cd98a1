"""Counts of all blocks, added up: log weights of buckets, and groups with the mean and deviation of their values."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.stages.select import arrays
from pairmill.stages.select.features import Fitted, log_weights
from pairmill.stages.select.moments import Moments
from pairmill.stages.select.settings import OWN_TARGET


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
        moments = Moments.merge(Moments.load(record) for record in self.blocks)
        self._refuse_unvalued(moments)
        moments.save(out)
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
            arrays.save(out, arrays.COUNTS, total)
            arrays.save(out, arrays.WEIGHTS, log_weights(total, self.laplace))
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


def _sum_counts(records: Sequence[ShardRecord]) -> NDArray[np.int64]:
    total: NDArray[np.int64] = arrays.load(records[0], arrays.COUNTS)
    for record in records[1:]:
        total += arrays.load(record, arrays.COUNTS)
    return total


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
