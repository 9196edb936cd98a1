"""``configs/select_config.yaml``: which rows are chosen, by what, and how many."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias

from pairmill import storage
from pairmill.errors import UsageError
from pairmill.formats.settings_file import FileSettings

HEAD: Final = """Which rows are chosen to train on. method: off passes all rows on. dsir chooses rows that resemble
targets, attributes the best by what is known of each row, hybrid both. Say how many with one of rows, tokens and share.
Every choice follows from the row and seed=, never from the order of rows or from how many processes work.
Made by: pairmill select settings"""

Method: TypeAlias = Literal[
    "off", "dsir", "attributes", "hybrid", "filter_then_dsir", "dsir_then_filter", "target_by_attribute"
]
Length: TypeAlias = Literal["sqrt", "mean", "none"]
Share: TypeAlias = Literal["proportional", "unimax", "exponent", "weights"]
RowField: TypeAlias = Literal["instruction", "response"]

OWN_TARGET: Final = "attributes"
"""The name of the target that ``target_by_attribute`` makes of rows."""
MAX_TARGETS: Final = 100
_MAX_NGRAMS = 16
_MAX_BUCKETS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Target:
    """Texts that chosen rows should resemble.

    Args:
        name: of the target; part of every draw.
        rows: place of its rows: a .jsonl or .parquet file, or a folder of such.
        share: of the budget; those of all targets are scaled to a sum of 1.
    """

    name: str
    rows: str
    share: float = 1.0

    def __post_init__(self) -> None:
        if not self.name or not all(one.isalnum() or one in "_-." for one in self.name):
            raise UsageError("not a name", where="name", got=repr(self.name), expected="letters, digits, _, - and .")
        if not self.rows:
            raise UsageError("required", where="rows", expected="the place of rows")
        _positive("share", self.share)


@dataclass(frozen=True, kw_only=True)
class DsirSettings:
    """Rows that resemble targets: importance weights of hashed words and n-grams (DSIR).

    Args:
        fields: texts whose features count; no n-gram crosses from one to the next.
        ngrams: longest n-gram, in words.
        buckets: of hashed features.
        hash: of features: xxh3, or sha256 for the weights of data-selection.
        laplace: added to each bucket of a target, so that a word it lacks costs little.
        length: log weight of a row divided by the root of its features (sqrt), by their number (mean), or whole (none).
        noise: draw rows by weight; false takes the largest weights.
        fit_share: share of the rows that the raw distribution is estimated from.
        targets: items {name, rows: <place>, share}.
    """

    fields: list[RowField] = field(default_factory=lambda: ["instruction", "response"])
    ngrams: int = 2
    buckets: int = 10_000
    hash: Literal["xxh3", "sha256"] = "xxh3"
    laplace: float = 1.0
    length: Length = "sqrt"
    noise: bool = True
    fit_share: float = 1.0
    targets: list[Target] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.fields or len(set(self.fields)) < len(self.fields):
            raise UsageError("out of range", where="fields", got=str(self.fields), expected="each field at most once")
        _within("ngrams", self.ngrams, 1, _MAX_NGRAMS)
        _within("buckets", self.buckets, 2, _MAX_BUCKETS)
        if self.laplace < 0:
            raise UsageError("out of range", where="laplace", got=str(self.laplace), expected="0 or more")
        if not 0 < self.fit_share <= 1:
            raise UsageError("out of range", where="fit_share", got=str(self.fit_share), expected="above 0, to 1")
        _refuse_twice("targets", [one.name for one in self.targets])
        if len(self.targets) > MAX_TARGETS:
            raise UsageError(
                "too many targets", where="targets", got=str(len(self.targets)), expected=f"at most {MAX_TARGETS}"
            )


@dataclass(frozen=True, kw_only=True)
class Bound:
    """Bounds of an attribute; a row whose value is absent is outside.

    Args:
        attribute: <operation>.<column>, such as heuristics.r_url_ratio, source.date, sidecar.topic; or row.condition.
        min: least value of a candidate.
        max: greatest value of a candidate.
        in_: values of candidates.
    """

    attribute: str
    min: float | None = None
    max: float | None = None
    in_: list[str | int | float | bool] | None = None

    def __post_init__(self) -> None:
        refuse_attribute("attribute", self.attribute)
        if self.min is None and self.max is None and self.in_ is None:
            raise UsageError("no bound", where="", expected="min, max or in")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise UsageError("no value is within", where="min", got=f"{self.min} to {self.max}", expected="min <= max")


@dataclass(frozen=True, kw_only=True)
class Term:
    """A part of a row's score.

    Args:
        attribute: <operation>.<column>, a number or a date; of a date the years before reference_date count.
        weight: of the attribute, whose values are scaled to mean 0 and deviation 1 within each group.
    """

    attribute: str
    weight: float = 1.0

    def __post_init__(self) -> None:
        refuse_attribute("attribute", self.attribute)
        if self.weight == 0:
            raise UsageError("out of range", where="weight", got="0", expected="any other number")


@dataclass(frozen=True, kw_only=True)
class Quota:
    """How the budget is shared out to groups; a group that has less gives all it has, and the others share the rest.

    Args:
        method: proportional to what each group has, unimax (as evenly as what they have allows), exponent, or weights.
        exponent: of exponent: shares as (what a group has) to this power.
        weights: of weights: {group: number}; a group that is not named gets nothing.
    """

    method: Share = "proportional"
    exponent: float = 1.0
    weights: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.method == "weights") != bool(self.weights):
            raise UsageError(
                "method and weights do not fit together",
                where="weights",
                got=f"method: {self.method}",
                expected="method: weights and weights: {group: number}",
            )
        for name, weight in self.weights.items():
            if weight < 0:
                raise UsageError("out of range", where="weights", got=f"{name}: {weight}", expected="0 or more")
        if self.weights and not any(self.weights.values()):
            raise UsageError("out of range", where="weights", got="all 0", expected="one above 0")


@dataclass(frozen=True, kw_only=True)
class AttributesSettings:
    """Rows chosen by what is known of each.

    Args:
        where: items {attribute, min, max, in}: only rows within all of them are candidates.
        score: items {attribute, weight}: the sum of weighted, scaled values; null counts as the group's mean.
        group_by: attribute whose values are the groups; null = all rows are one group. A row without a value is in the
            group "".
        edges: of group_by: a number or an age is in the group of the edges around it; null = a group for each value.
        quota: how the budget is shared out to groups.
        choose: top takes the best scores of each group, sample draws rows by score.
        tau: of sample: the larger, the less a score matters.
    """

    where: list[Bound] = field(default_factory=list)
    score: list[Term] = field(default_factory=list)
    group_by: str | None = None
    edges: list[float] | None = None
    quota: Quota = field(default_factory=Quota)
    choose: Literal["top", "sample"] = "top"
    tau: float = 1.0

    def __post_init__(self) -> None:
        if self.group_by is not None:
            refuse_attribute("group_by", self.group_by)
        if self.edges is not None and (not self.edges or sorted(set(self.edges)) != self.edges):
            raise UsageError("not ascending", where="edges", got=str(self.edges), expected="[number, larger number, …]")
        if self.edges is not None and self.group_by is None:
            raise UsageError("no attribute has these edges", where="edges", expected="group_by: <attribute>")
        _refuse_twice("score", [one.attribute for one in self.score])
        _positive("tau", self.tau)


@dataclass(frozen=True, kw_only=True)
class HybridSettings:
    """Score of hybrid: lambda of the scaled log weight, and the rest of the score of attributes.

    Args:
        lambda_: 1 counts the log weight alone, 0 the score of attributes alone.
    """

    lambda_: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.lambda_ <= 1:
            raise UsageError("out of range", where="lambda", got=str(self.lambda_), expected="0 to 1")


@dataclass(frozen=True, kw_only=True)
class Settings(FileSettings):
    """All of the file.

    Args:
        method: off, dsir, attributes, hybrid, filter_then_dsir (only rows within attributes.where are fitted and
            chosen), dsir_then_filter (of the chosen rows those within attributes.where stay), or target_by_attribute
            (the rows within attributes.where are the target).
        mode: drop removes rows that are not chosen, report only counts and shows them.
        rows: how many rows are chosen.
        tokens: how many response tokens (docs/selection.md) are chosen; the row that reaches it is taken.
        share: which share of the candidates is chosen, in rows.
        allow_unfilled: whether rows or tokens may be more than there are; all are chosen then.
        dsir: rows that resemble targets.
        attributes: rows chosen by what is known of each.
        hybrid: both.
        sidecar: folder of <task>.parquet with columns of one's own for each row, or a Parquet file with the columns
            task and ordinal; null = none.
        reference_date: YYYY-MM-DD, from which the age of a date is counted; null = no date is scored.
    """

    OPTION: ClassVar = "select_config"
    HEAD: ClassVar = HEAD

    method: Method = "off"
    mode: Literal["drop", "report"] = "drop"
    rows: int | None = None
    tokens: int | None = None
    share: float | None = None
    allow_unfilled: bool = False
    dsir: DsirSettings = field(default_factory=DsirSettings)
    attributes: AttributesSettings = field(default_factory=AttributesSettings)
    hybrid: HybridSettings = field(default_factory=HybridSettings)
    sidecar: str | None = None
    reference_date: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == "off":
            return
        given = [name for name in ("rows", "tokens", "share") if getattr(self, name) is not None]
        if len(given) != 1:
            raise UsageError(
                "give one of rows, tokens and share",
                where=given[1] if given else "",
                got=", ".join(given) or "none",
                expected="exactly one",
            )
        for name in ("rows", "tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError("out of range", where=name, got=str(value), expected="1 or more")
        if self.share is not None and not 0 < self.share <= 1:
            raise UsageError("out of range", where="share", got=str(self.share), expected="above 0, to 1")
        self._refuse_absent()

    def _refuse_absent(self) -> None:
        """Refuse a method that lacks what it chooses by."""
        if self.uses_targets and not self.dsir.targets:
            raise UsageError(
                "no target is given",
                where="dsir.targets",
                got=f"method: {self.method}",
                expected="{name, rows: <place>}",
            )
        if self.method == "target_by_attribute" and self.dsir.targets:
            raise UsageError(
                "targets are not read with this method",
                where="dsir.targets",
                got=f"method: {self.method}",
                expected="none: the rows within attributes.where are the target",
            )
        if self.method == "hybrid" and len(self.dsir.targets) > 1:
            raise UsageError("hybrid has one target", where="dsir.targets", got=f"{len(self.dsir.targets)} targets")
        if self.method == "dsir" and self.attributes.where:
            raise UsageError(
                "bounds are not read with this method",
                where="attributes.where",
                got=f"method: {self.method}",
                expected="filter_then_dsir, where only rows within them are candidates, or dsir_then_filter",
            )
        unscored = not self.attributes.score and self.attributes.choose == "top"
        if unscored and (self.method == "attributes" or (self.method == "hybrid" and self.hybrid.lambda_ < 1)):
            raise UsageError(
                "nothing is scored",
                where="attributes.score",
                got=f"method: {self.method}",
                expected="{attribute, weight}, or choose: sample",
            )
        if ("filter" in self.method or self.method == "target_by_attribute") and not self.attributes.where:
            raise UsageError(
                "no bound is given",
                where="attributes.where",
                got=f"method: {self.method}",
                expected="{attribute, min, max, in}",
            )

    @property
    def uses_targets(self) -> bool:
        """Whether target rows are read."""
        return self.method in ("dsir", "hybrid", "filter_then_dsir", "dsir_then_filter")

    @property
    def uses_weights(self) -> bool:
        """Whether rows get a log weight, for which their texts are read."""
        return self.uses_targets or self.method == "target_by_attribute"

    @property
    def uses_score(self) -> bool:
        """Whether rows get a score of attributes, and groups count."""
        return self.method in ("attributes", "hybrid")

    @property
    def counts_tokens(self) -> bool:
        """Whether response tokens are counted."""
        return self.tokens is not None

    @property
    def filters_last(self) -> bool:
        """Whether rows outside of ``attributes.where`` are taken, and go then."""
        return self.method == "dsir_then_filter"

    @property
    def unread(self) -> list[str]:
        """The settings that say something, but are not read with this method."""
        if self.method == "off":
            return []
        own, plain = self.attributes, AttributesSettings()
        scored = ("score", "group_by", "edges", "quota", "choose", "tau")
        found = [f"attributes.{name}" for name in scored if getattr(own, name) != getattr(plain, name)]
        found = [] if self.uses_score else found
        if not self.uses_weights and self.dsir != DsirSettings():
            found.append("dsir")
        if self.method != "hybrid" and self.hybrid != HybridSettings():
            found.append("hybrid")
        return found

    @property
    def reason(self) -> str:
        """The ledger's reason for rows that are not chosen."""
        names = {"attributes": "attribute", "hybrid": "hybrid"}
        return f"not_selected_{names.get(self.method, 'dsir')}"

    def to_manifest(self) -> dict[str, Any]:
        """Return JSON-like settings for the manifest: of places only the last part, because a place is not content."""
        settings = super().to_manifest()
        for target in settings["dsir"]["targets"]:
            target["rows"] = storage.name_of(target["rows"])
        if settings["sidecar"]:
            settings["sidecar"] = storage.name_of(settings["sidecar"])
        return settings


def refuse_attribute(where: str, name: str) -> None:
    """Raise UsageError unless this is ``<operation>.<column>``."""
    operation, dot, column = name.partition(".")
    if not (operation and dot and column):
        raise UsageError("not an attribute", where=where, got=repr(name), expected="<operation>.<column>")


def _positive(where: str, value: float) -> None:
    if value <= 0:
        raise UsageError("out of range", where=where, got=str(value), expected="above 0")


def _within(where: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UsageError("out of range", where=where, got=str(value), expected=f"{least} to {most}")


def _refuse_twice(where: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise UsageError("given twice", where=where, got=name, expected="each once")
