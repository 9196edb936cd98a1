"""What each row of a block is worth: log weight by target, score of attributes, and the noise that draws add."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import _native
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.rowstage import Block, Slice
from pairmill.stages.select import arrays, attributes
from pairmill.stages.select.attributes import AttributeQuery
from pairmill.stages.select.features import Features
from pairmill.stages.select.moments import Moments
from pairmill.stages.select.rankings import (
    GROUP,
    LOG_WEIGHTS,
    PASSES,
    SCORE,
    TOKENS,
    UNIFORM,
    Ranking,
    Scored,
    noise_of,
)
from pairmill.stages.select.settings import SELECTORS, Length, Settings

_ROWS: Final = 1 << 20
"""Rows whose noise is drawn together."""


@dataclass(frozen=True)
class ScoreRows(Shard[object], reads=()):
    """Scores the rows of a block.

    Args:
        model: record of AddUp.
        features: None = rows have no weights.
        length: what log weights are divided by.
        tokens: version of the tables by which response tokens are counted; empty = they are not.
        query: attributes that are read.
        weights: of the attributes that are scored, in the order of ``query.terms``.
        method: decides which attributes are kept.
        salts: of noise, by the file that it is written to.
        seed: of all draws.
    """

    block: Block
    model: ShardRecord
    features: Features | None
    length: Length
    tokens: str
    query: AttributeQuery
    weights: tuple[float, ...]
    method: str
    salts: Mapping[str, str]
    seed: int

    @classmethod
    def from_settings(
        cls,
        block: Block,
        model: ShardRecord,
        settings: Settings,
        query: AttributeQuery,
        rankings: tuple[Ranking, ...],
        seed: int,
    ) -> ScoreRows:
        """Make the shard of a block; what it does not use has one value, so that equal shards have equal keys."""
        salts = {noise_of(number): ranking.salt for number, ranking in enumerate(rankings) if ranking.salt}
        salts |= {UNIFORM: "uniform"} if settings.selector.weights else {}
        return cls(
            block,
            model,
            features=Features.from_settings(settings.dsir) if settings.selector.weights else None,
            length=settings.dsir.length if settings.selector.weights else "none",
            tokens=_native.curate_unicode() if settings.tokens is not None else "",
            query=query,
            weights=tuple(term.weight for term in settings.attributes.score) if settings.selector.score else (),
            method=settings.method,
            salts=salts,
            seed=seed if salts else 0,
            name=f"score {block.name}",
            size=block.size,
        )

    def random_access(self) -> Mapping[str, Content]:
        return self.block.random_access

    def run(self, context: object, out: Writer) -> ShardResult:
        weights = arrays.load(self.model, arrays.WEIGHTS) if self.features is not None else None
        groups = Moments.load(self.model)
        codes_by_name = {name: code for code, name in enumerate(groups.names)}
        scored, moments, kind = Scored(), list[Moments](), SELECTORS[self.method]
        columns: dict[str, list[NDArray[Any]]] = {}
        for piece in self.block.slices:
            count, pieces = self._read_texts(piece, weights)
            values = attributes.read(self.query, piece, count)
            # A group without a candidate has no code, so its rows get 0.
            codes = np.array([codes_by_name.get(name, 0) for name in values.names] or [0])[values.groups]
            if self.query.where and kind.where != "target":
                pieces[PASSES] = [values.passes]
            if len(groups.names) > 1:
                pieces[GROUP] = [codes.astype(np.uint32)]
            if self.weights:
                pieces[SCORE] = [score(values.values, codes, groups, self.weights)]
            if kind.both:
                first = np.concatenate(pieces[LOG_WEIGHTS], axis=1)[:1]
                moments.append(Moments.from_values(first, codes, groups.names, values.passes))
            for name, some in pieces.items():
                columns.setdefault(name, []).extend(some)
            scored.counts.append(count)
        for name in sorted(columns):
            some = columns.pop(name)
            # A file of lines is one slice: its rows are not held twice.
            shape = (*some[0].shape[:-1], scored.rows)
            lines = range(shape[0]) if len(shape) > 1 else (...,)
            arrays.save_parts(out, name, some[0].dtype.str, shape, (array[line] for line in lines for array in some))
        if self.salts:
            ordinals = [piece.ordinals(rows) for piece, rows in zip(self.block.slices, scored.counts, strict=True)]
            for name, salt in sorted(self.salts.items()):
                arrays.save_parts(out, name, "<f8", (scored.rows,), self._draw(ordinals, salt))
        if moments:
            Moments.merge(moments).save(out)
        return ShardResult(Ledger(), asdict(scored))

    def _draw(self, ordinals: list[NDArray[np.int64]], salt: str) -> Iterator[NDArray[np.float64]]:
        """Draw noise for the rows of the block: a function of the row, the seed and the salt."""
        for piece, numbers in zip(self.block.slices, ordinals, strict=True):
            for at in range(0, len(numbers), _ROWS):
                yield _native.select_draws(piece.task, numbers[at : at + _ROWS], self.seed, salt, noise=True)

    def _read_texts(
        self, piece: Slice, weights: NDArray[np.float64] | None
    ) -> tuple[int, dict[str, list[NDArray[Any]]]]:
        """Weigh and count the texts of a slice, in pieces, and count its rows; nothing is read if nothing needs it."""
        features = self.features
        if features is None and not self.tokens:
            return piece.count(), {}
        sums, tokens = [], []
        rows = 0
        names = [*(features.fields if features is not None else ()), *(["response"] if self.tokens else [])]
        for batch in piece.batches(list(dict.fromkeys(names))):
            if features is not None:
                assert weights is not None
                texts = [getattr(batch, name) for name in features.fields]
                some = _native.select_score(texts, weights, features.ngrams, features.hash)  # type: ignore[arg-type]
                sums.append(scale_by_length(*some, self.length))
            if self.tokens:
                tokens.append(_native.select_tokens(batch.response))
            rows += len(batch)
        pieces: dict[str, list[NDArray[Any]]] = {}
        if weights is not None:
            pieces[LOG_WEIGHTS] = [np.empty((len(weights), 0)), *sums]
        if self.tokens:
            pieces[TOKENS] = [np.empty(0, np.uint32), *tokens]
        return rows, pieces


def scale_by_length(sums: NDArray[np.float64], features: NDArray[np.uint32], length: Length) -> NDArray[np.float64]:
    """Divide log weights by what the length of a row says; a row without a feature has length 1."""
    if length == "none":
        return sums
    number = np.maximum(features, 1).astype(np.float64)
    return np.divide(sums, np.sqrt(number) if length == "sqrt" else number)


def score(
    values: NDArray[np.float64], codes: NDArray[Any], groups: Moments, weights: Sequence[float]
) -> NDArray[np.float64]:
    """Sum weight · z over the terms, from the first to the last; float64 [rows]."""
    total = np.zeros(len(codes))
    for term, weight in enumerate(weights):
        total = total + weight * groups.scaled(term, values[term], codes)
    return total
