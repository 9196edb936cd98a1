"""Near deduplication as an operation: its settings, and what its rules do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from pairmill.errors import UsageError
from pairmill.formats.settings_file import Part
from pairmill.rowstage import Task
from pairmill.stages.curate.operation import Learned, Operation, Reasons, TaskFindings

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


RULES: Final = ("equal_instruction", "weak_block", "weak_instruction", "strong", "document")
_OF_DOCUMENTS: Final = ("document", "contained")


class _Near(Operation[NearSettings]):
    def complete(self, own: NearSettings, part: Part | None) -> NearSettings:
        if part is None or part.is_scalar() or "mode" in part.entries():
            return own
        # One field alone does not prove that two rows say the same. A cap asks for rows that go.
        reports = own.fields != "pair" and own.max_similar is None
        return replace(own, mode="report") if reports else own

    def find(self, own: NearSettings, task: Task, learned: Learned) -> Iterator[TaskFindings]:
        if task.name in learned.decisions[self.name]:
            actions = dict.fromkeys(RULES, "drop" if own.max_similar is None else "cap")
            decisions = learned.decisions[self.name][task.name]
            yield TaskFindings(
                self.name, actions, own.mode == "report", self.reasons, decisions=decisions, by_source=True
            )

    def names_of_scores(self, rule: str) -> tuple[str, str]:
        return ("containment", "Jaccard index") if rule in _OF_DOCUMENTS else super().names_of_scores(rule)

    def describe_needed(self, rule: str, own: Mapping[str, Any]) -> str:
        documents = own.get("documents", {})
        bound = {"document": documents.get("jaccard"), "contained": documents.get("contained")}.get(rule, 0.75)
        return "" if bound is None else f"at least {bound:.3f}"

    def look_at(self, costs: Mapping[str, Any]) -> Iterator[str]:
        if unverified := costs.get("unverified", 0):
            yield (
                "Pairs of rows that were not compared, because too many rows are alike in the same way: "
                f"{unverified:,}. Their rows are kept."
            )


NEAR: Final = _Near(
    name="near",
    settings=NearSettings,
    help="near duplicates of pairs and documents",
    reasons=Reasons("dup_near", "cap_near"),
    scores=("instruction", "response"),
    meanings={
        "equal_instruction": "equal instructions, and responses that are equal or nearly so",
        "weak_block": "equal short responses, and one instruction contains the other",
        "weak_instruction": "equal short responses, and instructions that differ in typing errors",
        "strong": "long responses and instructions that are nearly equal",
        "document": "documents that are nearly equal",
        "contained": "a document that is contained in a longer one",
    },
)
