"""Near deduplication of rows in memory, through the native functions alone."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native

RULES = _native.curate_near_rules()


@dataclass(frozen=True, slots=True)
class Sketches:
    """What `curate_sketches` returns, with the edges of all rows."""

    offsets: NDArray[np.uint64]
    data: NDArray[np.uint8]
    edges: NDArray[np.uint32]
    unverified: int = 0

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a row."""

    row: int
    other: int
    rule: str
    score_i: float
    score_r: float


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of all rows."""

    removed: dict[int, Finding]
    contained: list[Finding]
    verifications: int


def verified(
    a: tuple[pa.Array, pa.Array], b: tuple[pa.Array, pa.Array], settings: _native.NearSettings
) -> list[tuple[bool, str, float, float]]:
    """Compare row i of a with row i of b, both instructions and responses: duplicates or not, the rule, the scores."""
    duplicate, rule, score_i, score_r = _native.curate_verify(a[0], a[1], b[0], b[1], settings)
    names = [RULES[number] for number in rule]
    return list(zip(duplicate.tolist(), names, score_i.tolist(), score_r.tolist(), strict=True))


def sketches(
    instruction: pa.Array, response: pa.Array, settings: _native.NearSettings, *, fixed: int = 0, refine: bool = True
) -> Sketches:
    """Return the sketches of rows in rank order and all pairs to compare."""
    offsets, data, keys, key_rows, _ = _native.curate_sketches(instruction, response, settings)
    edges, families = _native.curate_near_buckets(keys, key_rows.astype(np.uint64), fixed)
    found, unverified = [edges.astype(np.uint32)], 0
    if refine and len(families):
        anchors = np.flatnonzero(np.diff(families[:, 0], prepend=np.uint64(2**64 - 1)))
        members = families[:, 1].astype(np.uint32)
        ends = np.concatenate([anchors, [len(families)]]).astype(np.uint64)
        pairs, unverified = _native.curate_near_refine(offsets, data, members, ends, settings)
        found.append(members[pairs].reshape(-1, 2))
    return Sketches(offsets, data, np.concatenate(found), unverified)


def resolved(made: Sketches, settings: _native.NearSettings, *, fixed: int = 0) -> Found:
    """Decide about rows in rank order, of which the first ones are fixed."""
    order = np.arange(made.rows, dtype=np.uint32)
    row, other, rule, score_i, score_r, verifications = _native.curate_near_resolve(
        made.offsets, made.data, order, order < fixed, made.edges, settings
    )
    names = [RULES[number] for number in rule]
    columns = (row.tolist(), other.tolist(), names, score_i.tolist(), score_r.tolist())
    findings = [Finding(*finding) for finding in zip(*columns, strict=True)]
    removed = {finding.row: finding for finding in findings if finding.rule != "contained"}
    return Found(removed, [finding for finding in findings if finding.rule == "contained"], verifications)


def deduplicated(
    instruction: pa.Array, response: pa.Array, settings: _native.NearSettings | None = None, *, fixed: int = 0
) -> Found:
    """Find the near duplicates of rows in rank order, of which the first ones are fixed."""
    settings = settings or _native.NearSettings()
    return resolved(sketches(instruction, response, settings, fixed=fixed), settings, fixed=fixed)
