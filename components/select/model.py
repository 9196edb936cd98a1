"""What weights and scores are made of, added up: log weights of buckets, and groups with their mean and deviation."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.select.attributes import Wanted
from components.select.fit import COUNTS, MOMENTS, VERSION, Fitted
from components.select.groups import Moments
from components.select.settings import OWN_TARGET, Settings
from components.select.shapes import MAX_GROUPS, Groups, Scale
from pairmill import _native, storage
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError

WEIGHTS: Final = "weights.npy"
GROUPS: Final = "groups.json"
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
        target_rows: by target; of ``target_by_attribute`` none are said.
        target_features: by target.
        groups: how many there are.
    """

    rows: int
    candidates: int
    fitted: int = 0
    features: int = 0
    target_rows: list[int] = field(default_factory=list)
    target_features: list[int] = field(default_factory=list)
    groups: int = 1


@dataclass(frozen=True)
class AddUp(HandKeyed[object]):
    """Adds up what all blocks counted.

    Its files are ``counts.npy`` (int64 [1 + targets, buckets], raw first), ``weights.npy`` (float64 [targets, buckets])
    and ``groups.json``.

    Args:
        blocks: records' places and data.
        targets: the same, by target; empty of ``target_by_attribute``, which the blocks count.
        laplace: added to each bucket of a target.
        weighted: whether there are bucket counts, and so log weights.
        grouped: whether attributes were read, and so moments by group.
        terms: attributes that are scored.
    """

    work = "fit the model"

    blocks: tuple[ShardRecord, ...]
    targets: tuple[tuple[ShardRecord, ...], ...]
    laplace: float
    weighted: bool
    grouped: bool
    terms: tuple[str, ...]

    @classmethod
    def of(
        cls,
        blocks: Sequence[ShardRecord],
        targets: Sequence[Sequence[ShardRecord]],
        settings: Settings,
        wanted: Wanted,
    ) -> AddUp:
        """The shard, given the records of FitRows, and of FitTarget for each target."""
        key = content_key(
            "select add up",
            VERSION,
            [one.key for one in blocks],
            [[one.key for one in some] for some in targets],
            settings.dsir.laplace if settings.uses_weights else None,
            settings.uses_weights,
            bool(wanted.names),
        )
        some = tuple(tuple(records) for records in targets)
        return cls(
            "add up",
            key,
            0,
            tuple(blocks),
            some,
            settings.dsir.laplace,
            settings.uses_weights,
            bool(wanted.names),
            wanted.terms,
        )

    def run(self, context: object, out: Writer) -> ShardResult:
        read = [record.read(Fitted) for record in self.blocks]
        data = Model(
            sum(one.rows for one in read),
            sum(one.candidates for one in read),
            sum(one.fitted for one in read),
            sum(one.features for one in read),
        )
        if self.weighted:
            counts = [_sum(self.blocks), *(_sum(records)[0] for records in self.targets)]
            total = np.concatenate([counts[0], *(one[None] for one in counts[1:])])
            _save(out, COUNTS, total)
            _save(out, WEIGHTS, log_weights(total, self.laplace))
            data.target_rows = [sum(one.read(Fitted).rows for one in some) for some in self.targets]
            data.target_features = total[1:].sum(axis=1).tolist()
        names, row_counts, scale = [""], [data.candidates], None
        if self.grouped:
            moments = Moments.joined(
                Moments.of_json(json.loads(storage.store_for(uri).read(uri)))
                for uri in (record.uri(MOMENTS) for record in self.blocks)
            )
            names = sorted(moments.rows)
            row_counts = [moments.rows[name] for name in names]
            scale = moments.scale(names)
            self._refuse_unvalued(moments)
        if len(names) > MAX_GROUPS:
            raise InputError(
                "too many groups",
                where="attributes.group_by",
                got=f"{len(names):,}, such as {names[len(names) // 2]!r}",
                expected=f"at most {MAX_GROUPS:,}",
                hint="group by an attribute of few values",
            )
        data.groups = len(names)
        said = groups_to_json(Groups(names, row_counts, scale=scale))
        with out.create(GROUPS, scratch=True) as local:
            local.write_text(json.dumps(said, separators=(",", ":")), "utf-8")
        return ShardResult(Ledger(), asdict(data))

    def _refuse_unvalued(self, moments: Moments) -> None:
        """Raise InputError if an attribute that is scored has no value in any row: a sidecar of other rows has none."""
        for at, name in enumerate(self.terms):
            if moments.sums and not any(line[at].count for line in moments.sums.values()):
                raise InputError(
                    "no candidate has a value of an attribute that is scored",
                    where=f"attributes.score {name}",
                    got=f"{sum(moments.rows.values()):,} rows without one",
                    hint="check whether its file is of these rows: a sidecar's tasks and ordinals have to be theirs",
                )


def _sum(records: Sequence[ShardRecord]) -> NDArray[np.int64]:
    total: NDArray[np.int64] = load(records[0], COUNTS).astype(np.int64)
    for record in records[1:]:
        total += load(record, COUNTS)
    return total


def log_weights(counts: NDArray[np.int64], laplace: float) -> NDArray[np.float64]:
    """The log weight of each bucket, float64 [targets, buckets], of counts [1 + targets, buckets], raw first."""
    raw = shares(counts[0])
    found = [
        _native.select_ln(shares(one + laplace) + TINY) - _native.select_ln(raw + TINY)
        for one in counts[1:].astype(np.float64)
    ]
    return np.stack(found) if found else np.empty((0, counts.shape[1]))


def shares(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Counts divided by their sum; 0 of nothing. Whole numbers and halves are summed exactly."""
    total = float(_exact_sum(counts))
    return counts.astype(np.float64) / total if total else np.zeros(len(counts))


def _exact_sum(counts: NDArray[Any]) -> float:
    # numpy adds in an order that depends on the processor.
    return math.fsum(counts.tolist())


def _save(out: Writer, path: str, array: NDArray[Any]) -> None:
    with out.create(path, scratch=True) as local, local.open("wb") as file:
        np.save(file, array)


def load(record: ShardRecord, path: str) -> NDArray[Any]:
    """An array that a shard saved."""
    uri = record.uri(path)
    with storage.store_for(uri).open(uri) as file:
        found: NDArray[Any] = np.load(file)
    return found


def groups_to_json(groups: Groups) -> dict[str, Any]:
    """JSON-like."""
    scale = groups.scale
    made = None if scale is None else [scale.mean.tolist(), scale.deviation.tolist()]
    return {"names": groups.names, "rows": groups.rows, "scale": made}


def groups_of(record: ShardRecord) -> Groups:
    """The groups that AddUp wrote."""
    uri = record.uri(GROUPS)
    raw = json.loads(storage.store_for(uri).read(uri))
    scale = None
    if raw["scale"] is not None:
        mean, deviation = (np.array(one, np.float64).reshape(-1, len(raw["names"])) for one in raw["scale"])
        scale = Scale(mean, deviation)
    return Groups(raw["names"], raw["rows"], scale=scale)


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
    for name, features in zip(names, model.target_features, strict=True):
        if not features:
            own = name == OWN_TARGET
            raise InputError(
                "the target is empty",
                where=f"{where}, {'attributes.where' if own else f'dsir.targets {name}'}",
                got="no word in any of its rows",
                expected="texts that chosen rows should resemble",
                hint="loosen the bounds" if own else "check the place and dsir.fields",
            )
