"""``configs/select_config.yaml``: which rows are chosen, by what, and how many; and the registry of selectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NoReturn, TypeAlias

from pairmill import storage
from pairmill.errors import UsageError
from pairmill.fields import COLUMN, NAME, Checked, setting
from pairmill.formats.settings_file import FileSettings


@dataclass(frozen=True)
class Selector:
    """A method.

    Args:
        note: what it is, in words, if its name does not say it.
        reason: in the ledger, of rows that are not chosen.
        targets: whether it reads target rows, by which each row gets a log weight.
        score: whether each row gets a score of its attributes, and groups count.
        where: what ``attributes.where`` decides: ``first``, which rows are candidates; ``last``, which of the chosen
            rows stay; ``target``, which rows are the target; empty = it is not read.
        rule: ``module.NAME`` of this package: the class of the rule by which rows are ordered
            (:class:`~pairmill.stages.select.rankings.KeyRule` or a subclass).
    """

    note: str = ""
    reason: str = "not_selected_dsir"
    targets: bool = False
    score: bool = False
    where: Literal["", "first", "last", "target"] = ""
    rule: str = "rankings.KeyRule"

    @property
    def weights(self) -> bool:
        """Whether rows get a log weight, for which their texts are read."""
        return self.targets or self.where == "target"

    @property
    def both(self) -> bool:
        """Whether the score of a row has a part of its log weight in it."""
        return self.targets and self.score

    @property
    def fits_candidates(self) -> bool:
        """Whether the raw distribution is that of the rows within ``attributes.where`` alone."""
        return self.where == "first" and not self.score


OFF: Final = Selector()
SELECTORS: Final[dict[str, Selector]] = {
    "dsir": Selector(targets=True),
    "attributes": Selector(score=True, where="first", reason="not_selected_attribute"),
    "hybrid": Selector(targets=True, score=True, where="first", reason="not_selected_hybrid"),
    "filter_then_dsir": Selector(
        "only rows within attributes.where are fitted and chosen", targets=True, where="first"
    ),
    "dsir_then_filter": Selector("of the chosen rows those within attributes.where stay", targets=True, where="last"),
    "target_by_attribute": Selector("the rows within attributes.where are the target", where="target"),
}
"""The registry."""

if TYPE_CHECKING:
    Method = str
else:
    Method = Literal[("off", *SELECTORS)]


def describe_methods() -> str:
    """Describe all methods in a line."""
    listed = [f"{name} ({kind.note})" if kind.note else name for name, kind in SELECTORS.items()]
    return f"{', '.join(['off', *listed[:-1]])}, or {listed[-1]}"


Length: TypeAlias = Literal["sqrt", "mean", "none"]
Share: TypeAlias = Literal["proportional", "unimax", "exponent", "weights"]
RowField: TypeAlias = Literal["instruction", "response"]

OWN_TARGET: Final = "attributes"
"""The name of the target that ``target_by_attribute`` makes of rows."""


@dataclass(frozen=True, kw_only=True)
class Target(Checked):
    """Texts that chosen rows should resemble."""

    name: str = setting(help="of the target; part of every draw", filled=True, form=NAME)
    rows: str = setting(help="place of its rows: a .jsonl or .parquet file, or a folder of such", filled=True)
    share: float = setting(1.0, help="of the budget; those of all targets are scaled to a sum of 1", above=0)


@dataclass(frozen=True, kw_only=True)
class DsirSettings(Checked):
    """Rows that resemble targets: importance weights of hashed words and n-grams (DSIR)."""

    fields: list[RowField] = setting(
        ["instruction", "response"],
        help="texts whose features count; no n-gram crosses from one to the next",
        filled=True,
        unique=True,
    )
    ngrams: int = setting(2, help="longest n-gram, in words", at_least=1, at_most=16)
    buckets: int = setting(10_000, help="of hashed features", at_least=2, at_most=1 << 20)
    hash: Literal["xxh3", "sha256"] = setting(
        "xxh3", help="of features: xxh3, or sha256 for the weights of data-selection"
    )
    laplace: float = setting(
        1.0, help="added to each bucket of a target, so that a word it lacks costs little", at_least=0
    )
    length: Length = setting(
        "sqrt",
        help="log weight of a row divided by the root of its features (sqrt), by their number (mean), or whole (none)",
    )
    noise: bool = setting(True, help="draw rows by weight; false takes the largest weights")
    fit_share: float = setting(
        1.0, help="share of the rows that the raw distribution is estimated from", above=0, at_most=1
    )
    targets: list[Target] = setting([], help="items {name, rows: <place>, share}", unique="name", max_length=100)


@dataclass(frozen=True, kw_only=True)
class Bound(Checked, any_of=("min", "max", "in_")):
    """Bounds of an attribute; a row whose value is absent is outside."""

    attribute: str = setting(
        help="<operation>.<column>, such as heuristics.r_url_ratio, source.date, sidecar.topic; or row.condition",
        form=COLUMN,
    )
    min: float | None = setting(None, help="least value of a candidate", at_most="max")
    max: float | None = setting(None, help="greatest value of a candidate")
    in_: list[str | int | float | bool] | None = setting(None, help="values of candidates")


@dataclass(frozen=True, kw_only=True)
class Term(Checked):
    """A part of a row's score."""

    attribute: str = setting(
        help="<operation>.<column>, a number or a date; of a date the years before reference_date count", form=COLUMN
    )
    weight: float = setting(
        1.0, help="of the attribute, whose values are scaled to mean 0 and deviation 1 within each group", nonzero=True
    )


@dataclass(frozen=True, kw_only=True)
class Quota(Checked):
    """How the budget is shared out to groups; a group that has less gives all it has, and the others share the rest."""

    method: Share = setting(
        "proportional",
        help="proportional to what each group has, unimax (as evenly as what they have allows), exponent, or weights",
    )
    exponent: float = setting(1.0, help="of exponent: shares as (what a group has) to this power")
    weights: dict[str, float] = setting(
        {}, help="of weights: {group: number}; a group that is not named gets nothing", at_least=0, nonzero=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.method == "weights") != bool(self.weights):
            raise UsageError(
                "method and weights do not fit together",
                where="weights",
                got=f"method: {self.method}",
                expected="method: weights and weights: {group: number}",
            )


@dataclass(frozen=True, kw_only=True)
class AttributesSettings(Checked):
    """Rows chosen by what is known of each."""

    where: list[Bound] = setting(
        [], help="items {attribute, min, max, in}: only rows within all of them are candidates"
    )
    score: list[Term] = setting(
        [],
        help="items {attribute, weight}: the sum of weighted, scaled values; null counts as the group's mean",
        unique="attribute",
    )
    group_by: str | None = setting(
        None,
        help="attribute whose values are the groups; null = all rows are one group. A row without a value is in the "
        'group ""',
        form=COLUMN,
    )
    edges: list[float] | None = setting(
        None,
        help="of group_by: a number or an age is in the group of the edges around it; null = a group for each value",
        filled=True,
        ascending=True,
        needs="group_by",
    )
    quota: Quota = setting(Quota, help="how the budget is shared out to groups")
    choose: Literal["top", "sample"] = setting(
        "top", help="top takes the best scores of each group, sample draws rows by score"
    )
    tau: float = setting(1.0, help="of sample: the larger, the less a score matters", above=0)


@dataclass(frozen=True, kw_only=True)
class HybridSettings(Checked):
    """Score of hybrid: lambda of the scaled log weight, and the rest of the score of attributes."""

    lambda_: float = setting(
        0.5, help="1 counts the log weight alone, 0 the score of attributes alone", at_least=0, at_most=1
    )


@dataclass(frozen=True, kw_only=True)
class Settings(FileSettings):
    """All of the file."""

    OPTION: ClassVar = "select_config"
    HEAD: ClassVar = """\
Which rows are chosen to train on. method: off passes all rows on. dsir chooses rows that resemble
targets, attributes the best by what is known of each row, hybrid both. Say how many with one of rows, tokens and share.
Every choice follows from the row and seed=, never from the order of rows or from how many processes work.
Made by: pairmill select settings"""

    method: Method = setting("off", help=describe_methods())
    mode: Literal["drop", "report"] = setting(
        "drop", help="drop removes rows that are not chosen, report only counts and shows them"
    )
    rows: int | None = setting(None, help="how many rows are chosen", at_least=1)
    tokens: int | None = setting(
        None,
        help="how many response tokens (docs/selection.md) are chosen; the row that reaches it is taken",
        at_least=1,
    )
    share: float | None = setting(None, help="which share of the candidates is chosen, in rows", above=0, at_most=1)
    allow_unfilled: bool = setting(False, help="whether rows or tokens may be more than there are; all are chosen then")
    dsir: DsirSettings = setting(DsirSettings, help="rows that resemble targets")
    attributes: AttributesSettings = setting(AttributesSettings, help="rows chosen by what is known of each")
    hybrid: HybridSettings = setting(HybridSettings, help="both")
    sidecar: str | None = setting(
        None,
        help="folder of <task>.parquet with columns of one's own for each row, or a Parquet file with the columns task "
        "and ordinal; null = none",
    )
    reference_date: str | None = setting(
        None, help="YYYY-MM-DD, from which the age of a date is counted; null = no date is scored"
    )

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
        self._refuse_absent()

    def _refuse_absent(self) -> None:
        """Refuse a method that lacks what it chooses by, or has what it does not read."""
        own, targets, kind = self.attributes, self.dsir.targets, self.selector
        scores = kind.score and not (kind.both and self.hybrid.lambda_ == 1)
        if kind.targets and not targets:
            self._refuse("no target is given", "dsir.targets", "{name, rows: <place>}")
        if kind.where == "target" and targets:
            expected = "none: the rows within attributes.where are the target"
            self._refuse("targets are not read with this method", "dsir.targets", expected)
        if kind.both and len(targets) > 1:
            self._refuse(f"{self.method} has one target", "dsir.targets", f"one in place of {len(targets)}")
        if not kind.where and own.where:
            expected = "filter_then_dsir, where only rows within them are candidates, or dsir_then_filter"
            self._refuse("bounds are not read with this method", "attributes.where", expected)
        if scores and not own.score and own.choose == "top":
            self._refuse("nothing is scored", "attributes.score", "{attribute, weight}, or choose: sample")
        if kind.where and not kind.score and not own.where:
            self._refuse("no bound is given", "attributes.where", "{attribute, min, max, in}")

    def _refuse(self, what: str, where: str, expected: str) -> NoReturn:
        raise UsageError(what, where=where, got=f"method: {self.method}", expected=expected)

    @property
    def selector(self) -> Selector:
        """What the method is."""
        return SELECTORS.get(self.method, OFF)

    @property
    def unread(self) -> list[str]:
        """The settings that differ from their defaults, but are not read with this method."""
        if self.method == "off":
            return []
        own, plain = self.attributes, AttributesSettings()
        scored = ("score", "group_by", "edges", "quota", "choose", "tau")
        unread = [f"attributes.{name}" for name in scored if getattr(own, name) != getattr(plain, name)]
        unread = [] if self.selector.score else unread
        if not self.selector.weights and self.dsir != DsirSettings():
            unread.append("dsir")
        if not self.selector.both and self.hybrid != HybridSettings():
            unread.append("hybrid")
        return unread

    def to_manifest(self) -> dict[str, Any]:
        """Return JSON-like settings for the manifest: of places only the last part, because a place is not content."""
        settings = super().to_manifest()
        for target in settings["dsir"]["targets"]:
            target["rows"] = storage.name_of(target["rows"])
        if settings["sidecar"]:
            settings["sidecar"] = storage.name_of(settings["sidecar"])
        return settings
