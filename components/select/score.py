"""What each row is worth: its log weight by target, and its score of attributes.

ScoreRows(block)   log weights, score, group and tokens of each row
ScaleWeights       hybrid: mean and deviation of log weights by group, over all blocks
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from components.select.attributes import Wanted, read
from components.select.fit import Features, candidates_pass
from components.select.groups import Moments, score_of
from components.select.inputs import Block, Slice
from components.select.model import GROUPS, WEIGHTS, groups_of, load
from components.select.settings import Length, Settings
from components.select.shapes import Groups, Looked, Scale
from pairmill import _native, storage
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardRecord, ShardResult
from pairmill.engine.writer import Writer

VERSION: Final = 1
LOG_WEIGHTS: Final = "log_weights.npy"
FEATURES: Final = "features.npy"
SCORE: Final = "score.npy"
GROUP: Final = "group.npy"
TOKENS: Final = "tokens.npy"
CANDIDATE: Final = "candidate.npy"
PASSES: Final = "passes.npy"
MOMENTS: Final = "moments.json"
SCALE: Final = "scale.json"


@dataclass
class Scored:
    """The data of a record of ScoreRows, whose files are arrays with a value for each row of the block.

    ``log_weights.npy``  float64 [targets, rows]: scaled by length; if rows have weights
    ``features.npy``     uint32: how many features the row has; if rows have weights
    ``score.npy``        float64: of attributes; if there is one
    ``group.npy``        uint32: code of the group; if there are several
    ``tokens.npy``       uint32: response tokens; if they are counted
    ``candidate.npy``    bool: whether the row can be chosen; absent = all can
    ``passes.npy``       bool: within ``attributes.where``; of dsir_then_filter

    Args:
        slices: task, number of the first row, and rows, of each slice of the block.
        candidates: how many rows can be chosen.
        files: the names of the files above that there are.
    """

    slices: list[list[Any]]
    candidates: int
    files: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Of the block."""
        return sum(count for _, _, count in self.slices)


@dataclass(frozen=True)
class ScoreRows(HandKeyed[object]):
    """Log weights, score, group and tokens of the rows of a block.

    Args:
        fitted: record of AddUp.
        features: None = rows have no weights.
        length: what log weights are divided by.
        tokens: whether response tokens are counted.
        weights: of the attributes that are scored, in the order of ``wanted.terms``.
        method: decides who is a candidate.
        scale: whether moments of log weights are taken.
    """

    block: Block
    fitted: ShardRecord
    features: Features | None
    length: Length
    tokens: bool
    wanted: Wanted
    weights: tuple[float, ...]
    method: str

    @classmethod
    def of(cls, block: Block, fitted: ShardRecord, settings: Settings, wanted: Wanted) -> ScoreRows:
        """The shard for a block."""
        features = Features.of(settings.dsir) if settings.uses_weights else None
        weights = tuple(one.weight for one in settings.attributes.score) if settings.uses_score else ()
        key = content_key(
            "select score",
            VERSION,
            block.identity(wanted.operations),
            fitted.key,
            features.identity if features is not None else None,
            settings.dsir.length,
            _native.curate_unicode() if settings.counts_tokens else None,
            wanted.identity(),
            weights,
            settings.method,
        )
        return cls(
            f"score {block.name}",
            key,
            block.size,
            block,
            fitted,
            features,
            settings.dsir.length,
            settings.counts_tokens,
            wanted,
            weights,
            settings.method,
        )

    def random_access(self) -> dict[str, Content]:
        return {**self.block.random_access, **self.block.attribute_files(self.wanted.operations)}

    def run(self, context: object, out: Writer) -> ShardResult:
        weights = load(self.fitted, WEIGHTS) if self.features is not None else None
        groups = groups_of(self.fitted)
        codes = {name: code for code, name in enumerate(groups.names)}
        parts: dict[str, list[NDArray[Any]]] = {}
        data = Scored([], 0)
        moments: list[Moments] = []
        for one in self.block.slices:
            count, found = self._texts(one, weights)
            candidate = np.ones(count, np.bool_)
            if self.wanted.names:
                looked = read(self.wanted, one, count)
                mine = _codes(looked, codes)
                if candidates_pass(self.method):
                    candidate = looked.passes
                    found[CANDIDATE] = [candidate]
                elif self.method == "dsir_then_filter":
                    found[PASSES] = [looked.passes]
                if len(groups.names) > 1:
                    found[GROUP] = [mine.astype(np.uint32)]
                if self.weights:
                    assert groups.scale is not None
                    found[SCORE] = [score_of(looked, mine, groups.scale, self.weights)]
                if self.method == "hybrid":
                    moments.append(
                        Moments.by_code(np.concatenate(found[LOG_WEIGHTS], axis=1)[:1], mine, groups.names, candidate)
                    )
            elif self.method == "hybrid":
                moments.append(
                    Moments.by_code(
                        np.concatenate(found[LOG_WEIGHTS], axis=1)[:1], np.zeros(count, np.int32), [""], candidate
                    )
                )
            for name, arrays in found.items():
                parts.setdefault(name, []).extend(arrays)
            data.slices.append([one.task.name, one.part.first, count])
            data.candidates += int(candidate.sum())
        data.files = sorted(parts)
        for name in data.files:
            arrays = parts.pop(name)
            with out.create(name, scratch=True) as local, local.open("wb") as file:
                _save(file, arrays)
        if self.method == "hybrid":
            with out.create(MOMENTS, scratch=True) as local:
                local.write_text(json.dumps(Moments.joined(moments).to_json(), separators=(",", ":")), "utf-8")
        return ShardResult(Ledger(), asdict(data))

    def _texts(self, one: Slice, weights: NDArray[np.float64] | None) -> tuple[int, dict[str, list[NDArray[Any]]]]:
        """What the texts of a slice say, in pieces, and its rows; nothing is read if nothing needs it."""
        features = self.features
        if features is None and not self.tokens:
            return one.count(), {}
        sums, counts, tokens = [], [], []
        rows = 0
        names = [*(features.fields if features is not None else ()), *(["response"] if self.tokens else [])]
        for batch in one.batches(list(dict.fromkeys(names))):
            if features is not None:
                assert weights is not None
                texts = [getattr(batch, name) for name in features.fields]
                some = _native.select_score(texts, weights, features.ngrams, features.hash)  # type: ignore[arg-type]
                sums.append(by_length(*some, self.length))
                counts.append(some[1])
            if self.tokens:
                tokens.append(_native.select_tokens(batch.response))
            rows += len(batch)
        found: dict[str, list[NDArray[Any]]] = {}
        if features is not None:
            assert weights is not None
            found[FEATURES] = [np.empty(0, np.uint32), *counts]
            found[LOG_WEIGHTS] = [np.empty((len(weights), 0)), *sums]
        if self.tokens:
            found[TOKENS] = [np.empty(0, np.uint32), *tokens]
        return rows, found


def _save(file: BinaryIO, arrays: Sequence[NDArray[Any]]) -> None:
    """Save pieces, joined along their last axis: a file of lines is one slice, and its rows are not held twice."""
    kind, shape = arrays[0].dtype, (*arrays[0].shape[:-1], sum(one.shape[-1] for one in arrays))
    head = {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, head)
    for line in range(shape[0]) if len(shape) > 1 else (...,):
        file.writelines(one[line].tobytes() for one in arrays)


def by_length(sums: NDArray[np.float64], features: NDArray[np.uint32], length: Length) -> NDArray[np.float64]:
    """Log weights, divided by what the length of a row says; a row without a feature has length 1."""
    if length == "none":
        return sums
    number = np.maximum(features, 1).astype(np.float64)
    found: NDArray[np.float64] = sums / (np.sqrt(number) if length == "sqrt" else number)
    return found


def _codes(looked: Looked, codes: dict[str, int]) -> NDArray[np.int64]:
    """The codes of rows among all groups; a group without a candidate has none, so its rows get 0."""
    table = np.array([codes.get(name, 0) for name in looked.names] or [0], np.int64)
    return table[looked.groups]


@dataclass(frozen=True)
class ScaleWeights(HandKeyed[object]):
    """Mean and deviation of the log weights of candidates, by group.

    Args:
        blocks: records of ScoreRows.
        fitted: record of AddUp.
    """

    blocks: tuple[ShardRecord, ...]
    fitted: ShardRecord

    @classmethod
    def of(cls, blocks: Sequence[ShardRecord], fitted: ShardRecord) -> ScaleWeights:
        """The shard."""
        key = content_key("select scale", VERSION, [one.key for one in blocks], fitted.key)
        return cls("scale", key, 0, tuple(blocks), fitted)

    def run(self, context: object, out: Writer) -> ShardResult:
        names = groups_of(self.fitted).names
        moments = Moments.joined(
            Moments.of_json(json.loads(storage.store_for(uri).read(uri)))
            for uri in (record.uri(MOMENTS) for record in self.blocks)
        )
        scale = moments.scale(names)
        with out.create(SCALE, scratch=True) as local:
            local.write_text(json.dumps([scale.mean.tolist(), scale.deviation.tolist()]), "utf-8")
        return ShardResult(Ledger())


def scale_of(record: ShardRecord) -> Scale:
    """What ScaleWeights wrote."""
    uri = record.uri(SCALE)
    mean, deviation = (np.array(one, np.float64) for one in json.loads(storage.store_for(uri).read(uri)))
    return Scale(mean, deviation)


__all__ = ["GROUPS", "Groups", "ScaleWeights", "ScoreRows", "Scored", "by_length", "scale_of"]
