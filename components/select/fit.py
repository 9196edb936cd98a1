"""What is counted for weights and scores: bucket counts of raw and target rows, and moments of attributes by group.

FitRows(block)     bucket counts of its rows, moments of attributes of its candidates
FitTarget(block)   bucket counts of rows of a target

:mod:`components.select.model` adds them up.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from components.select.attributes import Wanted, read
from components.select.groups import Moments
from components.select.inputs import Block, Slice
from components.select.settings import DsirSettings, Settings
from pairmill import _native
from pairmill.engine.content import Content, whole
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import jsonstream, rows
from pairmill.formats.row_files import ORIGIN

VERSION: Final = 1
COUNTS: Final = "counts.npy"
MOMENTS: Final = "moments.json"
_TEXTS = 1 << 20


@dataclass(frozen=True)
class Features:
    """How texts become buckets.

    Args:
        fields: whose features are added up.
        ngrams: longest n-gram.
        buckets: how many.
        hash: of a feature.
    """

    fields: tuple[str, ...]
    ngrams: int
    buckets: int
    hash: str

    @classmethod
    def of(cls, settings: DsirSettings) -> Features:
        """Those of the settings."""
        return cls(tuple(settings.fields), settings.ngrams, settings.buckets, settings.hash)

    @property
    def identity(self) -> list[Any]:
        """What counts follow from beside the rows, JSON-like."""
        return [VERSION, _native.curate_unicode(), *asdict(self).values()]

    def count(
        self, columns: Mapping[str, pa.Array], counts: NDArray[np.int64], which: NDArray[np.bool_] | None = None
    ) -> int:
        """Add how often each bucket occurs to ``counts`` int64 [buckets]; return how many features there are."""
        texts = [columns[name] for name in self.fields]
        return _native.select_count(texts, counts, self.ngrams, self.hash, which)  # type: ignore[arg-type]


@dataclass
class Fitted:
    """The data of a record of FitRows or FitTarget.

    Args:
        rows: of the block.
        candidates: of them.
        fitted: rows that were counted.
        features: of the counted rows.
    """

    rows: int
    candidates: int = 0
    fitted: int = 0
    features: int = 0


@dataclass(frozen=True)
class FitRows(HandKeyed[object]):
    """Bucket counts and moments of a block.

    Args:
        features: None = no text is read.
        share: of the rows that are counted.
        wanted: attributes that are read.
        method: decides which rows are counted and which are candidates.
    """

    block: Block
    features: Features | None
    share: float
    wanted: Wanted
    method: str
    seed: int

    @classmethod
    def of(cls, block: Block, settings: Settings, wanted: Wanted, seed: int) -> FitRows:
        """The shard for a block."""
        features = Features.of(settings.dsir) if settings.uses_weights else None
        share = settings.dsir.fit_share if features is not None else 1.0
        operations = _operations(wanted, share)
        # Of equal shards all is equal: what is not used is not kept.
        seed = seed if share < 1 else 0
        method = settings.method if wanted.names else ""
        key = content_key(
            "select fit",
            VERSION,
            block.identity(operations),
            features.identity if features is not None else None,
            [share, seed] if share < 1 else 1,
            wanted.identity(),
            method,
        )
        return cls(f"fit {block.name}", key, block.size, block, features, share, wanted, method, seed)

    def random_access(self) -> dict[str, Content]:
        operations = _operations(self.wanted, self.share)
        return {**self.block.random_access, **self.block.attribute_files(operations)}

    def run(self, context: object, out: Writer) -> ShardResult:
        data = Fitted(0)
        features = self.features
        own = self.method == "target_by_attribute"
        counts = np.zeros((2 if own else 1, features.buckets if features is not None else 0), np.int64)
        moments: list[Moments] = []
        for one in self.block.slices:
            count = one.count() if self.wanted.names or self.share < 1 or features is None else None
            passes: NDArray[np.bool_] | None = None
            if self.wanted.names:
                assert count is not None
                looked = read(self.wanted, one, count)
                passes = looked.passes
                candidates = passes if candidates_pass(self.method) else np.ones(count, np.bool_)
                moments.append(Moments.of(looked, candidates))
                data.candidates += int(candidates.sum())
            if features is not None:
                count = self._texts(one, features, count, passes, counts, data)
            assert count is not None
            data.rows += count
            data.candidates += 0 if self.wanted.names else count
        if features is not None:
            with out.create(COUNTS, scratch=True) as local, local.open("wb") as file:
                np.save(file, counts)
        if self.wanted.names:
            with out.create(MOMENTS, scratch=True) as local:
                local.write_text(json.dumps(Moments.joined(moments).to_json(), separators=(",", ":")), "utf-8")
        return ShardResult(Ledger(), asdict(data))

    def _texts(
        self,
        one: Slice,
        features: Features,
        count: int | None,
        passes: NDArray[np.bool_] | None,
        counts: NDArray[np.int64],
        data: Fitted,
    ) -> int:
        """Count the features of a slice; return its rows."""
        which: NDArray[np.bool_] | None = None
        if count is not None:
            which = passes if passes is not None and self.method == "filter_then_dsir" else np.ones(count, np.bool_)
            if self.share < 1:
                draws = _native.select_draws(one.task.name, one.ordinals(count), self.seed, "fit")
                which = which & (draws < self.share)
        done = 0
        for batch in one.batches(features.fields):
            columns = {name: getattr(batch, name) for name in features.fields}
            stop = done + len(batch)
            mine = which[done:stop] if which is not None else None
            data.features += features.count(columns, counts[0], mine)
            data.fitted += len(batch) if mine is None else int(mine.sum())
            if len(counts) > 1:
                assert passes is not None
                features.count(columns, counts[1], passes[done:stop])
            done = stop
        return done


def _operations(wanted: Wanted, share: float) -> set[str]:
    """The attributes that are read; a draw is by the number that a row had at first."""
    return wanted.operations | ({ORIGIN} if share < 1 else set())


def candidates_pass(method: str) -> bool:
    """Whether only rows within ``attributes.where`` are candidates."""
    return method in ("attributes", "hybrid", "filter_then_dsir")


@dataclass(frozen=True)
class FitTarget(HandKeyed[object]):
    """Bucket counts of rows of a target; they need only the fields that count, and may have others."""

    block: Block
    features: Features

    @classmethod
    def of(cls, block: Block, name: str, settings: DsirSettings) -> FitTarget:
        """The shard for a block of the target of this name."""
        features = Features.of(settings)
        key = content_key("select target", block.identity(), features.identity)
        return cls(f"target {name} {block.name}", key, block.size, block, features)

    def random_access(self) -> dict[str, Content]:
        return self.block.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        data = Fitted(0)
        counts = np.zeros((1, self.features.buckets), np.int64)
        for one in self.block.slices:
            for columns in _target_texts(one, self.features.fields):
                data.features += self.features.count(columns, counts[0])
                data.rows += len(columns[self.features.fields[0]])
        data.fitted = data.rows
        with out.create(COUNTS, scratch=True) as local, local.open("wb") as file:
            np.save(file, counts)
        return ShardResult(Ledger(), asdict(data))


def _target_texts(one: Slice, fields: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
    """Yield these columns of rows that may lack others."""
    part = one.part
    if part.uri.endswith(".parquet"):
        with rows.open_parquet(part.uri, part.content) as file:
            names = file.schema_arrow.names
            for name in fields:
                if name not in names:
                    raise InputError(f"column {name!r} is missing", where=part.uri, got=", ".join(names))
            groups = None if part.stop is None else range(part.start, part.stop)
            for batch in rows.parquet_batches(part.uri, file, list(fields), groups, longest=part.longest):
                for name in fields:
                    if batch.column(name).null_count:
                        raise InputError(f"{name} is null", where=part.uri, expected="text")
                yield {name: batch.column(name).cast(pa.large_string()) for name in fields}
        return
    held: list[list[str]] = []
    size = 0
    with whole(part.uri, part.content) as opened:
        for number, item in enumerate(jsonstream.objects(part.uri, longest=part.longest, file=opened), 1):
            where = f"{part.uri} row {number}"
            if not isinstance(item, jsonstream.Pairs):
                raise InputError("not a JSON object", where=where, got=type(item).__name__, expected=", ".join(fields))
            found = dict(item)
            for name in fields:
                if not isinstance(found.get(name), str):
                    got = "nothing" if name not in found else type(found[name]).__name__
                    raise InputError(f"{name} is not text", where=where, got=got, expected="a string")
            held.append([found[name] for name in fields])
            size += sum(map(len, held[-1]))
            if size >= _TEXTS:
                yield _columns(held, fields)
                held, size = [], 0
    if held:
        yield _columns(held, fields)


def _columns(held: list[list[str]], fields: Sequence[str]) -> dict[str, pa.Array]:
    columns = zip(*held, strict=True)
    return {name: pa.array(column, pa.large_string()) for name, column in zip(fields, columns, strict=True)}
