"""``configs/mix_config.yaml``: sources, method, budget, caps and phases."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Final, Literal

from pairmill.errors import UsageError
from pairmill.fields import COLUMN, Checked, setting
from pairmill.formats.settings_file import FileSettings
from pairmill.mixture.methods import METHODS, MethodName, MethodOrOff, Recipe, WantedPhase, Within
from pairmill.mixture.plan import MOST_EPOCHS
from pairmill.rules.settings import TaskNames

_CLOSE: Final = 1e-9
_LEAVE: Final = "a source is left out by the weight 0, or by others: leave"


@dataclass(frozen=True, kw_only=True)
class SourceSettings(TaskNames, one_of=("prefixes", "match", "re")):
    """A source."""

    name: str = setting(help="of the source", filled=True, form=(r"[^|\n]+", "text without |"))


@dataclass(frozen=True, kw_only=True)
class BucketAttribute(Checked, one_of=("edges", "in_")):
    """An attribute whose values are put into groups."""

    attribute: str = setting(
        help="<operation>.<column> of the files in attributes/ beside the rows. Of a date the year counts", form=COLUMN
    )
    edges: list[float] = setting(
        [],
        help="ascending numbers; n edges make n + 1 groups, and a value on an edge is in the group above it",
        ascending=True,
    )
    in_: list[str] = setting([], help='values that are a group each; all others are the group "other"', unique=True)
    names: list[str] = setting([], help='of the groups of edges, in place of "<0.5" and the like')

    def __post_init__(self) -> None:
        super().__post_init__()
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
        """Return the names of the groups; the last is that of rows without a value."""
        if self.in_:
            return [*self.in_, OTHER, NONE]
        if self.names:
            return [*self.names, NONE]
        first, last = f"<{self.edges[0]:g}", f">={self.edges[-1]:g}"
        return [first, *(f"{low:g}-{high:g}" for low, high in pairwise(self.edges)), last, NONE]


OTHER: Final = "other"
NONE: Final = "none"
_MAX_BUCKETS: Final = 65_000


@dataclass(frozen=True, kw_only=True)
class Buckets(TaskNames):
    """Sources that are not tasks but groups of rows. Their names are those of the groups, joined by |.

    Their tasks are those that are named, or else all that no source has.
    """

    attributes: list[BucketAttribute] = setting(
        [],
        help="items {attribute: <operation>.<column>, edges: [0.3, 0.7]} or {attribute, in: [values]}; with several, "
        "each combination is a bucket. Empty = no buckets",
        unique="attribute",
    )

    def names(self) -> list[str]:
        """Return the names of all buckets, by code; whether a row is in them is not known yet."""
        names = [""]
        for attribute in self.attributes:
            names = [f"{before}|{label}" if before else label for before in names for label in attribute.labels]
        return names


@dataclass(frozen=True, kw_only=True)
class PhaseSettings(Checked):
    """A part of the training. What a phase does not say is as at the top."""

    name: str = setting(help="of the phase")
    until: float = setting(help="the share of the budget after which it ends; of the last one 1")
    sources: list[str] = setting([], help="names of the sources that it draws from; empty = all")
    epochs: int | None = setting(
        None,
        help="of this phase; null = its share of the option epochs, if that is a whole number",
        at_least=1,
        at_most=MOST_EPOCHS,
    )
    method: MethodName | None = setting(None, help="as at the top")
    exponent: float | None = setting(None, help="as at the top")
    temperature: float | None = setting(None, help="as at the top")
    weights: dict[str, float] = setting({}, help="as at the top")
    max_epochs: float | None = setting(None, help="passes over any source until the end of this phase")


@dataclass(frozen=True, kw_only=True)
class MixSettings(FileSettings):
    """All settings."""

    OPTION: ClassVar = "mix_config"
    HEAD: ClassVar = """\
How many response tokens each source gives to the training. With method: off nothing is planned: the
sampler takes what prefix_config.yaml says. Methods: unimax (as even as the caps allow), exponent or temperature
(shares in proportion to size ** exponent; a temperature T is the exponent 1/T), weights (given), attribute (weights
of buckets), english (unimax, each row at most once), code (exponent 1.3: large sources are favoured).
Made by: pairmill mix settings"""

    method: MethodOrOff = setting("off", help=" or ".join(", ".join(["off", *METHODS]).rsplit(", ", 1)))
    budget: float | None = setting(
        None,
        help="response tokens of the whole training, such as 2_000_000_000; null = one pass over all sources, or less "
        "where caps are lower",
        above=0,
    )
    exponent: float | None = setting(
        None, help="for method exponent; 1 is as it comes, 0 gives all sources the same, above 1 favours the large ones"
    )
    temperature: float | None = setting(None, help="for method temperature, in place of an exponent")
    weights: dict[str, float] = setting({}, help="for methods weights and attribute, by source; 0 leaves a source out")
    max_epochs: float | None = setting(
        None, help="passes over any source in the whole training; may be below 1; null = no cap", above=0, hint=_LEAVE
    )
    caps: dict[str, float] = setting({}, help="by source, in place of max_epochs", above=0, hint=_LEAVE)
    allow_unfilled: bool = setting(
        False, help="plan less than the budget if the caps do not allow it, in place of an error"
    )
    within: Within = setting(
        "proportional",
        help="how the tokens of a source are shared out over its tasks: proportional (to their size) or unimax",
    )
    sources: list[SourceSettings] = setting(
        [],
        help="items {name, match} or {name, prefixes}; empty = each set of tasks is a source, as in the reports",
        unique="name",
    )
    others: Literal["error", "leave", "sources"] = setting(
        "error",
        help="tasks that no source has are an error, or leave (nothing is drawn of them), or sources (each set of them "
        "is a source)",
    )
    buckets: Buckets = setting(Buckets, help="rows grouped by their attributes, each group a source")
    phases: list[PhaseSettings] = setting(
        [], help="items {name, until, epochs, method, …}, in order; empty = one phase", unique="name"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        count = math.prod(len(attribute.labels) for attribute in self.buckets.attributes)
        if count > _MAX_BUCKETS:
            expected = f"at most {_MAX_BUCKETS:,}"
            raise UsageError("too many buckets", where="buckets.attributes", got=f"{count:,}", expected=expected)
        buckets = {*(self.buckets.names() if self.buckets.attributes else ())}
        for number, source in enumerate(self.sources, 1):
            if source.name in buckets:
                where = f"sources[{number}].name"
                raise UsageError("the name of a bucket", where=where, got=source.name, expected="another name")
        if self.method != "off" and METHODS[self.method].buckets and not self.buckets.attributes:
            raise UsageError(
                f"the method {self.method} needs buckets", where="buckets", expected="attributes: [{attribute, edges}]"
            )
        self._check_phases()
        self.recipes()

    def _check_phases(self) -> None:
        before = 0.0
        for number, phase in enumerate(self.phases, 1):
            if not before < phase.until:
                where = f"phases[{number}].until"
                raise UsageError("not ascending", where=where, got=f"{phase.until:g}", expected=f"above {before:g}")
            before = phase.until
        if self.phases and abs(before - 1) > _CLOSE:
            raise UsageError(
                "the phases do not end at 1",
                where=f"phases[{len(self.phases)}].until",
                got=f"{before:g}",
                expected="1: the whole budget",
            )

    def recipes(self) -> list[Recipe]:
        """List how each phase shares its part of the budget out; none if the method is off.

        Raises:
            UsageError: what a phase says does not fit together.
        """
        if self.method == "off":
            return []
        if not self.phases:
            return [self._recipe(PhaseSettings(name="", until=1))]
        recipes = []
        for number, phase in enumerate(self.phases, 1):
            try:
                recipes.append(self._recipe(phase))
            except UsageError as error:
                raise error.moved(f"phases[{number}].{error.where}") from error
        return recipes

    def _recipe(self, phase: PhaseSettings) -> Recipe:
        assert self.method != "off"
        method = phase.method or self.method
        kind = METHODS[method]
        weights = phase.weights or (self.weights if kind.needs == "weights" or not self.phases else {})
        # What the top says is for the phases that read it.
        exponent, temperature, cap = phase.exponent, phase.temperature, phase.max_epochs
        if exponent is None and (kind.needs == "exponent" or not self.phases):
            exponent = self.exponent
        if temperature is None and (kind.needs == "temperature" or not self.phases):
            temperature = self.temperature
        if cap is None and (kind.cap is None or not self.phases):
            cap = self.max_epochs
        made = Recipe.parse(method, exponent=exponent, temperature=temperature, weights=weights, max_epochs=cap)
        return replace(made, only=frozenset(phase.sources))

    def wanted(self, epochs: int) -> list[WantedPhase]:
        """List the phases, or the one phase that there is without any.

        Args:
            epochs: of the training, unless each phase has its own.

        Raises:
            UsageError: some phases say how many epochs they have, and others do not; a share of the epochs is not a
                whole number; or all phases together have too many.
        """
        recipes = self.recipes()
        if not self.phases:
            return [WantedPhase("all", 1.0, epochs, recipe) for recipe in recipes]
        epochs_of = [item.epochs for item in self.phases]
        if any(item is None for item in epochs_of) and any(item is not None for item in epochs_of):
            number = epochs_of.index(None) + 1
            raise UsageError(
                "a phase has no epochs", where=f"mix_config phases[{number}].epochs", expected="a number, as the others"
            )
        result, before = [], 0.0
        for number, (item, recipe) in enumerate(zip(self.phases, recipes, strict=True), 1):
            share, before = item.until - before, item.until
            count = item.epochs
            if count is None:
                count = round(share * epochs)
                if count < 1 or abs(count - share * epochs) > 1e-6:
                    raise UsageError(
                        "the phase would not have a whole number of epochs",
                        where=f"mix_config phases[{number}].epochs",
                        got=f"{share:g} of {epochs}",
                        expected="a number for each phase",
                    )
            result.append(WantedPhase(item.name, share, count, recipe))
        total = sum(item.epochs for item in result)
        if total > MOST_EPOCHS:
            raise UsageError(
                "too many epochs in all phases together",
                where="mix_config phases",
                got=f"{total:,}",
                expected=f"at most {MOST_EPOCHS:,}",
            )
        return result

    def changed(self, **values: Any) -> MixSettings:
        """Return the same with other values. Another method does not keep what only the one before read."""
        if "method" in values:
            values = {"exponent": None, "temperature": None, "weights": {}, **values}
            if values["method"] != "off" and METHODS[values["method"]].cap is not None:
                values = {"max_epochs": None, **values}
        elif "exponent" in values or "temperature" in values:
            values = {"exponent": None, "temperature": None, **values}
        return replace(self, **values)
