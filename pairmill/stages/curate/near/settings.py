"""The options of near deduplication: the part ``near`` of curate_config.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from pairmill.errors import UsageError

Mode = Literal["drop", "report", "off"]

# What the functions in Rust take.
_MOST_TOKENS = 1 << 16
_MOST_HASHES = 1 << 12
# A row of a family may be compared with as many for each band.
_MOST_KEPT = 1_000


@dataclass(frozen=True)
class DocumentSettings:
    """How documents are compared: rows with an empty instruction.

    Args:
        jaccard: two documents are duplicates if their sets of 5-grams overlap at least this much.
        contained: the share of a document's 5-grams in another from which it is reported as contained.
        bands: of MinHash.
        rows: of a band.
    """

    jaccard: float = 0.8
    contained: float = 0.9
    bands: int = 20
    rows: int = 5

    def __post_init__(self) -> None:
        _require(0 < self.jaccard <= 1, "jaccard", self.jaccard, "more than 0, at most 1")
        _require(0 < self.contained <= 1, "contained", self.contained, "more than 0, at most 1")
        _require_bands(self.bands, self.rows)


@dataclass(frozen=True)
class NearSettings:
    """How rows are compared (docs/curation.md).

    Args:
        mode: whether a near duplicate is dropped, reported, or not looked for.
        fields: what is compared: both fields, or one of them.
        max_similar: with one field, keep this many rows that are alike in it, and cap the others; null = no cap.
        number_guard: the fields whose numbers have to be equal.
        min_response: tokens from which a response is evidence by itself.
        min_instruction: tokens from which an instruction may differ at all.
        bands: of MinHash.
        rows: of a band.
        refine: cut large buckets by the 3-grams that few of their members have.
        documents: how rows without an instruction are compared.
    """

    mode: Mode = "drop"
    fields: Literal["pair", "instruction", "response"] = "pair"
    max_similar: int | None = None
    number_guard: Literal["both", "instruction", "off"] = "both"
    min_response: int = 20
    min_instruction: int = 16
    bands: int = 32
    rows: int = 4
    refine: bool = True
    documents: DocumentSettings = field(default_factory=DocumentSettings)

    def __post_init__(self) -> None:
        for name, value in (("min_response", self.min_response), ("min_instruction", self.min_instruction)):
            _require(0 <= value <= _MOST_TOKENS, name, value, f"0 to {_MOST_TOKENS}")
        _require_bands(self.bands, self.rows)
        if self.max_similar is not None:
            _require(self.fields != "pair", "max_similar", self.max_similar, "null, unless fields: names one field")
            within = 1 <= self.max_similar <= _MOST_KEPT
            _require(within, "max_similar", self.max_similar, f"1 to {_MOST_KEPT}, or null")


def _require_bands(bands: int, rows: int) -> None:
    _require(bands >= 1, "bands", bands, "1 or more")
    _require(rows >= 1, "rows", rows, "1 or more")
    _require(bands * rows <= _MOST_HASHES, "bands", bands, f"bands x rows of at most {_MOST_HASHES}")


def _require(right: bool, name: str, got: Any, expected: str) -> None:
    if not right:
        raise UsageError("out of range", where=name, got=str(got), expected=expected)
