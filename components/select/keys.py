"""The key of each row in each ranking: the largest keys are taken.

A draw is a function of the row, the seed and the ranking's name, so a key does not depend on any other row but through
what was fitted.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from components.select import score
from components.select.groups import scaled
from components.select.inputs import Block
from components.select.model import load
from components.select.score import CANDIDATE, GROUP, LOG_WEIGHTS, SCORE, Scored, scale_of
from components.select.settings import Settings
from components.select.shapes import Ranking
from pairmill import _native, storage
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats.row_files import ORIGIN

VERSION: Final = 1
UNIFORM: Final = "uniform"
"""Salt of the draws of uniform samples, and the name of their file."""
SAMPLE: Final = "sample"
"""Salt of the draws of rows by score."""
EXTREMES: Final = "extremes.json"
SHOWN: Final = 20
"""Best and worst rows of each ranking."""
_ROWS: Final = 1 << 20
"""Rows whose keys are made together."""


def path_of(ranking: int) -> str:
    """The file of the keys of a ranking, float64 [rows]; NaN = no candidate."""
    return f"key{ranking}.npy"


@dataclass(frozen=True)
class Keying:
    """What keys are made of.

    Args:
        rankings: their names.
        salts: of the noise of each ranking; empty = none.
        tau: what a score is divided by before noise is added.
        part: share of the log weight in a score; None = keys are log weights.
        seed: of all draws.
    """

    rankings: tuple[str, ...]
    salts: tuple[str, ...]
    tau: float
    part: float | None
    seed: int

    @classmethod
    def of(cls, settings: Settings, rankings: Sequence[Ranking], seed: int) -> Keying:
        """That of the settings."""
        names = tuple(one.name for one in rankings)
        if settings.uses_score:
            samples = settings.attributes.choose == "sample"
            part = settings.hybrid.lambda_ if settings.method == "hybrid" else 0.0
            return cls(names, (SAMPLE if samples else "",), settings.attributes.tau if samples else 1.0, part, seed)
        return cls(names, names if settings.dsir.noise else ("",) * len(names), 1.0, None, seed)


@dataclass
class Keyed:
    """The data of a record."""

    rows: int
    candidates: int


@dataclass(frozen=True)
class MakeKeys(HandKeyed[object]):
    """The keys of a block.

    Args:
        scored: record of ScoreRows.
        scale: record of ScaleWeights; None but of hybrid.
    """

    block: Block
    scored: ShardRecord
    scale: ShardRecord | None
    keying: Keying

    @classmethod
    def of(cls, block: Block, scored: ShardRecord, scale: ShardRecord | None, keying: Keying) -> MakeKeys:
        """The shard for a block."""
        key = content_key(
            "select keys",
            VERSION,
            block.identity({ORIGIN}),
            scored.key,
            scale.key if scale is not None else "",
            list(asdict(keying).values()),
        )
        return cls(f"keys {block.name}", key, block.size, block, scored, scale, keying)

    def random_access(self) -> dict[str, Content]:
        return self.block.attribute_files({ORIGIN})

    def run(self, context: object, out: Writer) -> ShardResult:
        scored = self.scored.read(Scored)
        candidate = load(self.scored, CANDIDATE) if CANDIDATE in scored.files else None
        values = self._values(scored)

        def save(path: str, keys: Callable[[_Chunk], NDArray[np.float64]]) -> None:
            with out.create(path, scratch=True) as local, local.open("wb") as file:
                head = {"descr": "<f8", "fortran_order": False, "shape": (scored.rows,)}
                np.lib.format.write_array_header_1_0(file, head)
                for one in self._chunks(scored):
                    made = np.array(keys(one), "<f8")
                    if candidate is not None:
                        made[~candidate[one.start : one.stop]] = np.nan
                    file.write(made.tobytes())

        extremes = []
        for number, salt in enumerate(self.keying.salts):
            found = _Extremes()

            def keys(one: _Chunk, number: int = number, salt: str = salt, found: _Extremes = found) -> Any:
                value = values(number, one.start, one.stop)
                found.add(one, value, None if candidate is None else candidate[one.start : one.stop])
                return value / self.keying.tau + self._noise(one, salt) if salt else value

            save(path_of(number), keys)
            extremes.append({"best": found.best, "worst": found.worst})
        save(f"{UNIFORM}.npy", lambda one: self._noise(one, UNIFORM))
        with out.create(EXTREMES, scratch=True) as local:
            local.write_text(json.dumps(extremes, separators=(",", ":")), "utf-8")
        return ShardResult(Ledger(), asdict(Keyed(scored.rows, scored.candidates)))

    def _chunks(self, scored: Scored) -> Iterator[_Chunk]:
        """The rows of the block, some at a time: a file of lines is one slice, however many rows it has."""
        start = 0
        for one, (task, first, count) in zip(self.block.slices, scored.slices, strict=True):
            ordinals = one.ordinals(count)
            for at in range(0, count, _ROWS):
                some = ordinals[at : at + _ROWS]
                yield _Chunk(start + at, start + at + len(some), task, first + at, some)
            start += count

    def _noise(self, one: _Chunk, salt: str) -> NDArray[np.float64]:
        return _native.select_draws(one.task, one.ordinals, self.keying.seed, salt, noise=True)

    def _values(self, scored: Scored) -> Callable[[int, int, int], NDArray[np.float64]]:
        """What rows are ranked by before noise: of a ranking, rows [start, stop)."""
        part = self.keying.part
        weights = load(self.scored, LOG_WEIGHTS) if part is None or part > 0 else None
        if part is None:
            assert weights is not None
            every = weights
            return lambda number, start, stop: every[number, start:stop]
        rest = load(self.scored, SCORE) if part < 1 and SCORE in scored.files else None
        groups = load(self.scored, GROUP) if GROUP in scored.files else None
        scale = scale_of(self.scale) if self.scale is not None else None

        def values(_: int, start: int, stop: int) -> NDArray[np.float64]:
            total = np.zeros(stop - start)
            # A part of 0 or 1 adds nothing to the other, not even a rounding.
            if weights is not None:
                assert scale is not None
                codes = np.zeros(stop - start, np.int64) if groups is None else groups[start:stop].astype(np.int64)
                z = scaled(weights[0, start:stop], codes, scale.mean[0], scale.deviation[0])
                total = z if part == 1 else part * z
            if rest is not None:
                total = rest[start:stop] if part == 0 else total + (1 - part) * rest[start:stop]
            return total

        return values


@dataclass(frozen=True)
class _Chunk:
    """Rows [start, stop) of the block; of a task the rows from ``first`` on, with their numbers at first."""

    start: int
    stop: int
    task: str
    first: int
    ordinals: NDArray[np.int64]


class _Extremes:
    """The best and the worst rows: value, task, number in its file, and number at first. Of equals the first."""

    def __init__(self) -> None:
        self.best: list[list[Any]] = []
        self.worst: list[list[Any]] = []

    def add(self, one: _Chunk, values: NDArray[np.float64], candidate: NDArray[np.bool_] | None) -> None:
        """Look at some more rows; only candidates (bool [rows]; None = all) count."""
        known = np.flatnonzero(candidate) if candidate is not None else np.arange(len(values))
        some = values[known]
        for sign, mine in ((-1.0, self.best), (1.0, self.worst)):
            places = known[np.argsort(sign * some, kind="stable")[:SHOWN]].tolist()
            mine += [[float(values[at]), one.task, int(one.first) + at, int(one.ordinals[at])] for at in places]
            # Stable: of equal values the earlier row stays first.
            mine.sort(key=lambda row, sign=sign: sign * row[0])  # type: ignore[misc]
            del mine[SHOWN:]


def extremes_of(records: Sequence[ShardRecord]) -> list[dict[str, list[list[Any]]]]:
    """The best and the worst rows of all blocks, by ranking: value, task, number in its file, and number at first."""
    total: list[dict[str, list[list[Any]]]] = []
    for record in records:
        uri = record.uri(EXTREMES)
        for number, some in enumerate(json.loads(storage.store_for(uri).read(uri))):
            if number == len(total):
                total.append({"best": [], "worst": []})
            mine = total[number]
            mine["best"] = heapq.nsmallest(SHOWN, [*mine["best"], *some["best"]], lambda one: (-one[0], *one[1:3]))
            mine["worst"] = heapq.nsmallest(SHOWN, [*mine["worst"], *some["worst"]], lambda one: tuple(one[:3]))
    return total


__all__ = ["EXTREMES", "Keyed", "Keying", "MakeKeys", "extremes_of", "path_of", "score"]
