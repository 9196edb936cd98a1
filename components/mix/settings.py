"""``mix_config.yaml``: sources, method, budget, caps and phases."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, Literal

from pairmill.errors import UsageError
from pairmill.formats.settings_file import SettingsFile, render, to_json
from pairmill.mixture.making import WantedPhase, Within
from pairmill.mixture.methods import MethodName, Recipe, check_cap
from pairmill.mixture.plan import MOST_EPOCHS

DEFAULT: Final = "mix_config.yaml"
"""The default file, in the working directory. It is optional: without it every setting has its default."""

HEAD: Final = """How many response tokens each source gives to the training. With method: off nothing is planned: the
sampler takes what prefix_config.yaml says. Methods: unimax (as even as the caps allow), exponent or temperature
(shares in proportion to size ** exponent; a temperature T is the exponent 1/T), weights (given), attribute (weights
of buckets), english (unimax, each row at most once), code (exponent 1.3: large sources are favoured).
Made by: python -m components.mix settings"""

_CLOSE: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """A source.

    Args:
        name: of the source.
        prefixes: the tasks whose names begin with one of these.
    """

    name: str
    prefixes: list[str]

    def __post_init__(self) -> None:
        if not self.name or any(one in self.name for one in "|\n"):
            raise UsageError("not a name", where="name", got=repr(self.name), expected="text without |")
        if not self.prefixes:
            raise UsageError("the source has no prefix", where="prefixes", expected='a list; "" is every task')


@dataclass(frozen=True, kw_only=True)
class BucketAttribute:
    """An attribute whose values are put into groups.

    Args:
        attribute: <operation>.<column> of the files in attributes/ beside the rows. Of a date the year counts.
        edges: ascending numbers; n edges make n + 1 groups, and a value on an edge is in the group above it.
        in_: values that are a group each; all others are the group "other".
        names: of the groups of edges, in place of "<0.5" and the like.
    """

    attribute: str
    edges: list[float] = field(default_factory=list)
    in_: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        operation, dot, column = self.attribute.partition(".")
        if not (operation and dot and column):
            raise UsageError(
                "not an attribute", where="attribute", got=repr(self.attribute), expected="<operation>.<column>"
            )
        if bool(self.edges) == bool(self.in_):
            got = "both" if self.edges else "neither"
            raise UsageError("edges or in", where="edges", got=got, expected="one of them")
        if any(low >= high for low, high in pairwise(self.edges)):
            raise UsageError("not ascending", where="edges", got=str(self.edges), expected=str(sorted({*self.edges})))
        if len(set(self.in_)) < len(self.in_):
            raise UsageError("a value occurs twice", where="in", got=str(self.in_))
        if self.names and (self.in_ or len(self.names) != len(self.edges) + 1):
            expected = f"{len(self.edges) + 1} names for {len(self.edges)} edges" if self.edges else "none, with in"
            raise UsageError("the names do not fit", where="names", got=str(self.names), expected=expected)
        labels = self.labels
        if len(set(labels)) < len(labels) or any("|" in label for label in labels):
            raise UsageError(
                "the names of groups are not distinct, or have a |",
                where="names" if self.names else "in",
                got=", ".join(labels),
            )

    @property
    def labels(self) -> list[str]:
        """The names of the groups; the last is that of rows without a value."""
        if self.in_:
            return [*self.in_, OTHER, NONE]
        if self.names:
            return [*self.names, NONE]
        low, high = f"<{self.edges[0]:g}", f">={self.edges[-1]:g}"
        return [low, *(f"{one:g}-{two:g}" for one, two in pairwise(self.edges)), high, NONE]


OTHER: Final = "other"
NONE: Final = "none"
_MAX_BUCKETS: Final = 65_000


@dataclass(frozen=True, kw_only=True)
class Buckets:
    """Sources that are not tasks but groups of rows. Their names are those of the groups, joined by |.

    Args:
        attributes: items {attribute: <operation>.<column>, edges: [0.3, 0.7]} or {attribute, in: [values]}; with
            several, each combination is a bucket. Empty = no buckets.
        prefixes: the tasks whose rows are put into buckets; empty = all tasks that no source has.
    """

    attributes: list[BucketAttribute] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        count = len(self.names()) if self.attributes else 0
        if count > _MAX_BUCKETS:
            raise UsageError("too many buckets", where="attributes", got=f"{count:,}", expected=f"{_MAX_BUCKETS:,}")
        named = [one.attribute for one in self.attributes]
        for name in named:
            if named.count(name) > 1:
                raise UsageError("the attribute occurs twice", where="attributes", got=name)

    def names(self) -> list[str]:
        """The names of all buckets, by code; whether a row is in them is not known yet."""
        found = [""]
        for one in self.attributes:
            found = [f"{before}|{label}" if before else label for before in found for label in one.labels]
        return found


@dataclass(frozen=True, kw_only=True)
class PhaseSettings:
    """A part of the training. What a phase does not say is as at the top.

    Args:
        name: of the phase.
        until: the share of the budget after which it ends; of the last one 1.
        sources: names of the sources that it draws from; empty = all.
        epochs: of this phase; null = its share of the option epochs, if that is a whole number.
        method: as at the top.
        exponent: as at the top.
        temperature: as at the top.
        weights: as at the top.
        max_epochs: passes over any source until the end of this phase.
    """

    name: str
    until: float
    sources: list[str] = field(default_factory=list)
    epochs: int | None = None
    method: MethodName | None = None
    exponent: float | None = None
    temperature: float | None = None
    weights: dict[str, float] = field(default_factory=dict)
    max_epochs: float | None = None

    def __post_init__(self) -> None:
        if self.epochs is not None and not 1 <= self.epochs <= MOST_EPOCHS:
            raise UsageError("out of range", where="epochs", got=str(self.epochs), expected=f"1 to {MOST_EPOCHS:,}")


@dataclass(frozen=True, kw_only=True)
class MixSettings:
    """What the file says.

    Args:
        method: off, unimax, exponent, temperature, weights, attribute, english or code.
        budget: response tokens of the whole training, such as 2_000_000_000; null = one pass over all sources, or less
            where caps are lower.
        exponent: for method exponent; 1 is as it comes, 0 gives all sources the same, above 1 favours the large ones.
        temperature: for method temperature, in place of an exponent.
        weights: for methods weights and attribute, by source; 0 leaves a source out.
        max_epochs: passes over any source in the whole training; may be below 1; null = no cap.
        caps: by source, in place of max_epochs.
        allow_unfilled: plan less than the budget if the caps do not allow it, in place of an error.
        within: how the tokens of a source are shared out over its tasks: proportional (to their size) or unimax.
        sources: items {name, prefixes}; empty = each set of tasks is a source, as in the reports.
        others: tasks that no source has are an error, or leave (nothing is drawn of them), or sources (each set of them
            is a source).
        buckets: rows grouped by their attributes, each group a source.
        phases: items {name, until, epochs, method, …}, in order; empty = one phase.
    """

    method: Literal["off", "unimax", "exponent", "temperature", "weights", "attribute", "english", "code"] = "off"
    budget: float | None = None
    exponent: float | None = None
    temperature: float | None = None
    weights: dict[str, float] = field(default_factory=dict)
    max_epochs: float | None = None
    caps: dict[str, float] = field(default_factory=dict)
    allow_unfilled: bool = False
    within: Within = "proportional"
    sources: list[SourceSettings] = field(default_factory=list)
    others: Literal["error", "leave", "sources"] = "error"
    buckets: Buckets = field(default_factory=Buckets)
    phases: list[PhaseSettings] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.budget is not None and not self.budget > 0:
            raise UsageError("out of range", where="budget", got=f"{self.budget:g}", expected="above 0, or null")
        for name, cap in self.caps.items():
            check_cap(f"caps.{name}", cap)
        check_cap("max_epochs", self.max_epochs)
        names = [one.name for one in self.sources]
        for name in names:
            if names.count(name) > 1:
                raise UsageError("two sources have one name", where="sources", got=name)
        for name in {*names} & {*(self.buckets.names() if self.buckets.attributes else ())}:
            raise UsageError("a source has the name of a bucket", where="sources", got=name)
        if self.method == "attribute" and not self.buckets.attributes:
            raise UsageError(
                "the method attribute needs buckets", where="buckets", expected="attributes: [{attribute, edges}]"
            )
        self._check_phases()
        self.recipes()

    def _check_phases(self) -> None:
        names, before = [one.name for one in self.phases], 0.0
        for number, one in enumerate(self.phases, 1):
            where = f"phases[{number}].until"
            if names.count(one.name) > 1:
                raise UsageError("two phases have one name", where=f"phases[{number}].name", got=one.name)
            if not before < one.until:
                raise UsageError("not ascending", where=where, got=f"{one.until:g}", expected=f"above {before:g}")
            before = one.until
        if self.phases and abs(before - 1) > _CLOSE:
            raise UsageError(
                "the phases do not end at 1",
                where=f"phases[{len(self.phases)}].until",
                got=f"{before:g}",
                expected="1: the whole budget",
            )

    def recipes(self) -> list[Recipe]:
        """How each phase shares its part of the budget out; none if the method is off.

        Raises:
            UsageError: what a phase says does not fit together.
        """
        if self.method == "off":
            return []
        if not self.phases:
            return [self._recipe(PhaseSettings(name="", until=1))]
        found = []
        for number, one in enumerate(self.phases, 1):
            try:
                found.append(self._recipe(one))
            except UsageError as error:
                raise UsageError(
                    error.what,
                    where=f"phases[{number}].{error.where}",
                    got=error.got,
                    expected=error.expected,
                    hint=error.hint,
                ) from error
        return found

    def _recipe(self, phase: PhaseSettings) -> Recipe:
        assert self.method != "off"
        method = phase.method or self.method
        weights = phase.weights or (self.weights if _reads(method, "weights") or not self.phases else {})
        # What the top says is for the phases that read it.
        exponent, temperature, cap = phase.exponent, phase.temperature, phase.max_epochs
        if exponent is None and (_reads(method, "exponent") or not self.phases):
            exponent = self.exponent
        if temperature is None and (_reads(method, "temperature") or not self.phases):
            temperature = self.temperature
        if cap is None and (method != "english" or not self.phases):
            cap = self.max_epochs
        made = Recipe.of(method, exponent=exponent, temperature=temperature, weights=weights, max_epochs=cap)
        return replace(made, only=frozenset(phase.sources))

    def wanted(self, epochs: int) -> list[WantedPhase]:
        """The phases, or the one phase that there is without any.

        Args:
            epochs: of the training, unless each phase has its own.

        Raises:
            UsageError: some phases say how many epochs they have, and others do not; a share of the epochs is not a
                whole number; or all phases together have too many.
        """
        recipes = self.recipes()
        if not self.phases:
            return [WantedPhase("all", 1.0, epochs, recipe) for recipe in recipes]
        said = [one.epochs for one in self.phases]
        if any(one is None for one in said) and any(one is not None for one in said):
            number = said.index(None) + 1
            raise UsageError(
                "a phase has no epochs", where=f"mix_config phases[{number}].epochs", expected="a number, as the others"
            )
        found, before = [], 0.0
        for number, (one, recipe) in enumerate(zip(self.phases, recipes, strict=True), 1):
            share, before = one.until - before, one.until
            count = one.epochs
            if count is None:
                count = round(share * epochs)
                if count < 1 or abs(count - share * epochs) > 1e-6:
                    raise UsageError(
                        "the phase would not have a whole number of epochs",
                        where=f"mix_config phases[{number}].epochs",
                        got=f"{share:g} of {epochs}",
                        expected="a number for each phase",
                    )
            found.append(WantedPhase(one.name, share, count, recipe))
        total = sum(one.epochs for one in found)
        if total > MOST_EPOCHS:
            raise UsageError(
                "too many epochs in all phases together",
                where="mix_config phases",
                got=f"{total:,}",
                expected=f"at most {MOST_EPOCHS:,}",
            )
        return found

    @classmethod
    def load(cls, given: str, option: str = "mix_config") -> MixSettings:
        """Read a file; an absent DEFAULT gives the defaults.

        Raises:
            UsageError: the file is absent, not YAML, or has an unknown key or a wrong value.
        """
        return SettingsFile.load(given, option, DEFAULT).onto(cls())

    @classmethod
    def parse(cls, text: str, where: str = DEFAULT) -> MixSettings:
        """The settings of a text."""
        return SettingsFile(where, text.encode()).onto(cls())

    def said(self) -> dict[str, Any]:
        """JSON-like, for the manifest."""
        found: dict[str, Any] = to_json(self)
        return found

    def changed(self, **values: Any) -> MixSettings:
        """The same with other values. Another method does not keep what only the one before read."""
        if "method" in values:
            values = {"exponent": None, "temperature": None, "weights": {}, **values}
            if values["method"] == "english":
                values = {"max_epochs": None, **values}
        elif "exponent" in values or "temperature" in values:
            values = {"exponent": None, "temperature": None, **values}
        return replace(self, **values)


def _reads(method: str, option: str) -> bool:
    return method == option or (method == "attribute" and option == "weights")


def default_file() -> str:
    """The text of mix_config.yaml as it is shipped."""
    return render(MixSettings(), HEAD)
