"""Near deduplication as an operation: its settings, and what its rules do."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from pairmill import _native
from pairmill.errors import UsageError
from pairmill.fields import Checked, setting
from pairmill.formats.settings_file import Part
from pairmill.rowstage import Task
from pairmill.stages.curate.operation import Learned, Operation, Reasons, TaskFindings

Mode = Literal["drop", "report", "off"]

# What the functions in Rust take.
_MOST_TOKENS = 1 << 16
_MOST_HASHES = 1 << 12
# A row of a family may be compared with as many for each band.
_MOST_KEPT = 1_000


class _Banded(Checked):
    """Settings of MinHash."""

    bands: int
    rows: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bands * self.rows > _MOST_HASHES:
            expected = f"bands x rows of at most {_MOST_HASHES}"
            raise UsageError("out of range", where="bands", got=str(self.bands), expected=expected)


@dataclass(frozen=True)
class DocumentSettings(_Banded):
    """How documents are compared: rows with an empty instruction."""

    jaccard: float = setting(
        0.8, help="two documents are duplicates if their sets of 5-grams overlap at least this much", above=0, at_most=1
    )
    contained: float = setting(
        0.9,
        help="the share of a document's 5-grams in another from which it is reported as contained",
        above=0,
        at_most=1,
    )
    bands: int = setting(20, help="of MinHash", at_least=1)
    rows: int = setting(5, help="of a band", at_least=1)


@dataclass(frozen=True)
class NearSettings(_Banded):
    """How rows are compared (docs/curation.md)."""

    mode: Mode = setting("drop", help="whether a near duplicate is dropped, reported, or not looked for")
    fields: Literal["pair", "instruction", "response"] = setting(
        "pair", help="what is compared: both fields, or one of them"
    )
    max_similar: int | None = setting(
        None,
        help="with one field, keep this many rows that are alike in it, and cap the others; null = no cap",
        at_least=1,
        at_most=_MOST_KEPT,
        needs="fields",
        hint="fields: names one of the two",
    )
    number_guard: Literal["both", "instruction", "off"] = setting(
        "both", help="the fields whose numbers have to be equal"
    )
    min_response: int = setting(
        20, help="tokens from which a response is evidence by itself", at_least=0, at_most=_MOST_TOKENS
    )
    min_instruction: int = setting(
        16, help="tokens from which an instruction may differ at all", at_least=0, at_most=_MOST_TOKENS
    )
    bands: int = setting(32, help="of MinHash", at_least=1)
    rows: int = setting(4, help="of a band", at_least=1)
    refine: bool = setting(True, help="cut large buckets by the 3-grams that few of their members have")
    documents: DocumentSettings = setting(DocumentSettings, help="how rows without an instruction are compared")


def native(settings: NearSettings) -> _native.NearSettings:
    """Return the settings, for the functions in Rust."""
    documents = settings.documents
    # An index has no removed rows: files one after another would not give what one run gives.
    whole = {} if settings.refine else {"follow": False}
    return _native.NearSettings(
        fields=settings.fields,
        number_guard=settings.number_guard,
        min_response=settings.min_response,
        min_instruction=settings.min_instruction,
        bands=settings.bands,
        rows=settings.rows,
        document_bands=documents.bands,
        document_rows=documents.rows,
        jaccard=documents.jaccard,
        containment=documents.contained,
        keep=settings.max_similar or 1,
        **whole,
    )


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
