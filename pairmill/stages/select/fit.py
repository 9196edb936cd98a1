"""Counts of blocks: words and n-grams of raw and target rows by bucket, and moments of attributes by group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.content import Content, whole
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import jsonstream
from pairmill.formats.parquet_reader import open_parquet, parquet_batches
from pairmill.rowstage import Block, Slice
from pairmill.stages.select import arrays, attributes
from pairmill.stages.select.attributes import AttributeQuery
from pairmill.stages.select.features import Features, Fitted
from pairmill.stages.select.moments import Moments
from pairmill.stages.select.settings import OFF, SELECTORS, Settings

_TEXTS: Final = 1 << 20


@dataclass(frozen=True)
class FitRows(Shard[object], reads=()):
    """Counts the buckets of a block's rows, and adds up the attributes of its candidates.

    Args:
        features: None = no text is read.
        share: of the rows that are counted.
        query: attributes that are read.
        method: decides which rows are counted and which are candidates.
        seed: of the draw of rows that are counted.
    """

    block: Block
    features: Features | None
    share: float
    query: AttributeQuery
    method: str
    seed: int

    @classmethod
    def from_settings(cls, block: Block, settings: Settings, query: AttributeQuery, seed: int) -> FitRows:
        """Make the shard of a block; what it does not use has one value, so that equal shards have equal keys."""
        features = Features.from_settings(settings.dsir) if settings.selector.weights else None
        share = settings.dsir.fit_share if features is not None else 1.0
        method = settings.method if query.names else ""
        seed = seed if share < 1 else 0
        return cls(block, features, share, query, method, seed, name=f"fit {block.name}", size=block.size)

    def random_access(self) -> Mapping[str, Content]:
        return self.block.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        data = Fitted()
        kind = SELECTORS.get(self.method, OFF)
        own = kind.where == "target"
        counts = np.zeros((2 if own else 1, self.features.buckets if self.features is not None else 0), np.int64)
        moments: list[Moments] = []
        for piece in self.block.slices:
            count, values = 0, None
            if self.query.names or self.share < 1 or self.features is None:
                count = piece.count()
                values = attributes.read(self.query, piece, count)
            if self.features is not None:
                count = self._count_features(piece, self.features, values, counts, data)
            values = values or attributes.read(self.query, piece, count)
            within = values.passes if kind.where == "first" else np.ones(count, np.bool_)
            moments.append(Moments.from_values(values.values, values.groups, values.names, within))
            data.rows += count
        if self.features is not None:
            arrays.save(out, arrays.COUNTS, counts)
        Moments.merge(moments).save(out)
        return ShardResult(Ledger(), asdict(data))

    def _count_features(
        self,
        piece: Slice,
        features: Features,
        values: attributes.AttributeValues | None,
        counts: NDArray[np.int64],
        data: Fitted,
    ) -> int:
        """Count the features of a slice; return its rows."""
        which: NDArray[np.bool_] | None = None
        if values is not None:
            count = len(values.passes)
            fitted = SELECTORS.get(self.method, OFF).fits_candidates
            which = values.passes if fitted else np.ones(count, np.bool_)
            if self.share < 1:
                draws = _native.select_draws(piece.task, piece.ordinals(count), self.seed, "fit")
                which = which & (draws < self.share)
        start = 0
        for batch in piece.batches(features.fields):
            columns = {name: getattr(batch, name) for name in features.fields}
            stop = start + len(batch)
            mine = which[start:stop] if which is not None else None
            data.features += features.count(columns, counts[0], mine)
            data.fitted += len(batch) if mine is None else int(mine.sum())
            if len(counts) > 1:
                assert values is not None
                features.count(columns, counts[1], values.passes[start:stop])
            start = stop
        return start


@dataclass(frozen=True)
class FitTarget(Shard[object], reads=()):
    """Counts the buckets of a target's rows; they need only the fields that count, and may have others."""

    block: Block
    features: Features

    def random_access(self) -> Mapping[str, Content]:
        return self.block.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        data = Fitted()
        counts = np.zeros((1, self.features.buckets), np.int64)
        for piece in self.block.slices:
            for columns in _read_texts(piece, self.features.fields):
                data.features += self.features.count(columns, counts[0])
                data.rows += len(columns[self.features.fields[0]])
        data.fitted = data.rows
        arrays.save(out, arrays.COUNTS, counts)
        return ShardResult(Ledger(), asdict(data))


def _read_texts(piece: Slice, fields: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
    """Yield these columns of rows that may lack others."""
    file = piece.part
    if file.uri.endswith(".parquet"):
        with open_parquet(file.uri, file.content) as parquet:
            names = parquet.schema_arrow.names
            for name in fields:
                if name not in names:
                    raise InputError(f"column {name!r} is missing", where=file.uri, got=", ".join(names))
            groups = None if file.stop is None else range(file.start, file.stop)
            for batch in parquet_batches(file.uri, parquet, list(fields), groups, longest=file.longest):
                for name in fields:
                    if batch.column(name).null_count:
                        raise InputError(f"{name} is null", where=file.uri, expected="text")
                yield {name: batch.column(name).cast(pa.large_string()) for name in fields}
        return
    held: dict[str, list[str]] = {name: [] for name in fields}
    size = 0
    with whole(file.uri, file.content) as opened:
        for number, item in enumerate(jsonstream.objects(file.uri, longest=file.longest, file=opened), 1):
            where = f"{file.uri} row {number}"
            if not isinstance(item, jsonstream.Pairs):
                raise InputError("not a JSON object", where=where, got=type(item).__name__, expected=", ".join(fields))
            values: dict[str, Any] = dict(item)
            for name in fields:
                if not isinstance(values.get(name), str):
                    got = "nothing" if name not in values else type(values[name]).__name__
                    raise InputError(f"{name} is not text", where=where, got=got, expected="a string")
                held[name].append(values[name])
                size += len(values[name])
            if size >= _TEXTS:
                yield {name: pa.array(texts, pa.large_string()) for name, texts in held.items()}
                held, size = {name: [] for name in fields}, 0
    if held[fields[0]]:
        yield {name: pa.array(texts, pa.large_string()) for name, texts in held.items()}
