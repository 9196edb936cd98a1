"""The registry of methods, which give sources their weights; a method with a smaller name of another is a preset.

What a method is outside its entry in ``METHODS`` is its function of weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from pairmill.errors import UsageError, did_you_mean
from pairmill.mixture.planning import exponent_weights

Within = Literal["proportional", "unimax"]
"""How a source is shared out over its tasks."""


@dataclass(frozen=True)
class Recipe:
    """How a budget is shared out.

    Args:
        method: as plans name it: presets and other spellings are resolved.
        exponent: of the method ``exponent``.
        weights: by source, of the method ``weights``.
        max_epochs: cap of all sources in passes; None = no cap.
        only: the sources that it is shared out to; empty = all.
    """

    method: str
    exponent: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    max_epochs: float | None = None
    only: frozenset[str] = frozenset()

    @classmethod
    def parse(
        cls,
        name: str,
        *,
        exponent: float | None = None,
        temperature: float | None = None,
        weights: Mapping[str, float] | None = None,
        max_epochs: float | None = None,
    ) -> Recipe:
        """Resolve what the settings say.

        Raises:
            UsageError: both exponent and temperature, one that the method does not read, none where it needs one, a
                number that is out of range, or a cap of 0.
        """
        if exponent is not None and temperature is not None:
            raise UsageError(
                "exponent and temperature say the same",
                where="temperature",
                got=f"exponent {exponent:g} and temperature {temperature:g}",
                expected="one of them",
                hint="a temperature T is the exponent 1/T",
            )
        check_cap("max_epochs", max_epochs)
        kind = METHODS[name]
        for option, value in (("exponent", exponent), ("temperature", temperature), ("weights", weights or None)):
            _require(option, value, needed=kind.needs == option, method=name)
        if kind.cap is not None and max_epochs not in (None, kind.cap):
            raise UsageError(
                f"the preset {name} has a cap of its own",
                where="max_epochs",
                got=f"{max_epochs:g}",
                expected=f"null, or {kind.cap:g}",
                hint=f"method: {kind.planned} takes any cap",
            )
        if temperature is not None:
            if not (math.isfinite(temperature) and temperature > 0):
                raise UsageError("out of range", where="temperature", got=repr(temperature), expected="above 0")
            exponent = 1 / temperature
        if exponent is not None:
            exponent_weights({}, exponent)
        return cls(
            kind.planned or name,
            kind.exponent if exponent is None else exponent,
            {**(weights or {})},
            max_epochs if kind.cap is None else kind.cap,
        )

    def weights_of(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Return the weight of each source; of one without a token, or that the method is not for, 0.

        Raises:
            UsageError: a weight names an unknown source, a source has none, or all are 0.
        """
        if self.only:
            refuse_unknown("sources", dict.fromkeys(sorted(self.only), 1.0), counts)
            mine = {name: count for name, count in counts.items() if name in self.only}
            return {**dict.fromkeys(counts, 0.0), **replace(self, only=frozenset()).weights_of(mine)}
        return METHODS[self.method].weigh(counts, self)


@dataclass(frozen=True)
class WantedPhase:
    """A phase that is asked for: its share of the budget, how many epochs it has, and how it is shared out."""

    name: str
    share: float
    epochs: int
    recipe: Recipe


@dataclass(frozen=True)
class MixingMethod:
    """A method.

    Args:
        weigh: returns the weight of each source, 0 or more, by its count of tokens; of one without a token 0.
        needs: the setting that it needs: ``exponent``, ``temperature`` or ``weights``; empty = none.
        planned: the method that plans name in its place; empty = itself.
        exponent: that a preset has.
        cap: that a preset has, in passes.
        buckets: whether sources have to be buckets.
    """

    weigh: Callable[[Mapping[str, float], Recipe], dict[str, float]]
    needs: Literal["", "exponent", "temperature", "weights"] = ""
    planned: str = ""
    exponent: float | None = None
    cap: float | None = None
    buckets: bool = False


def _weigh_equally(counts: Mapping[str, float], recipe: Recipe) -> dict[str, float]:
    return {name: float(count > 0) for name, count in counts.items()}


def _weigh_by_size(counts: Mapping[str, float], recipe: Recipe) -> dict[str, float]:
    assert recipe.exponent is not None
    return exponent_weights(counts, recipe.exponent)


def _weigh_as_given(counts: Mapping[str, float], recipe: Recipe) -> dict[str, float]:
    refuse_unknown("weights", recipe.weights, counts)
    missing = [name for name, count in counts.items() if count and name not in recipe.weights]
    if missing:
        raise UsageError(
            f"{len(missing)} sources have no weight" if len(missing) > 1 else "a source has no weight",
            where="weights",
            got=f"none for {', '.join(map(repr, missing[:5]))}{' …' if len(missing) > 5 else ''}",
            expected="one for each source",
            hint="0 leaves a source out",
        )
    result = {name: recipe.weights[name] if count else 0.0 for name, count in counts.items()}
    for name, weight in result.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise UsageError("out of range", where=f"weights.{name}", got=repr(weight), expected="0 or more")
    if not any(result.values()):
        raise UsageError("no source with a weight has a row", where="weights", expected="a weight above 0")
    return result


METHODS: Final[dict[str, MixingMethod]] = {
    "unimax": MixingMethod(_weigh_equally),
    "exponent": MixingMethod(_weigh_by_size, needs="exponent"),
    "temperature": MixingMethod(_weigh_by_size, needs="temperature", planned="exponent"),
    "weights": MixingMethod(_weigh_as_given, needs="weights"),
    "attribute": MixingMethod(_weigh_as_given, needs="weights", planned="weights", buckets=True),
    # UniMax, each row at most once.
    "english": MixingMethod(_weigh_equally, planned="unimax", cap=1.0),
    # Shares in proportion to count ** 1.3, so the head is favoured.
    "code": MixingMethod(_weigh_by_size, planned="exponent", exponent=1.3),
}
"""The registry."""

PLANNED: Final = tuple(dict.fromkeys(kind.planned or name for name, kind in METHODS.items()))
"""The methods that plans name."""

if TYPE_CHECKING:
    MethodName = str
    MethodOrOff = str
    MethodOrNone = str
else:
    MethodName = Literal[tuple(METHODS)]
    MethodOrOff = Literal[("off", *METHODS)]
    MethodOrNone = Literal[("", *METHODS)]


def refuse_unknown(option: str, given: Mapping[str, float], names: Mapping[str, object]) -> None:
    """Raise UsageError if a key is not the name of a source."""
    for name in given:
        if name not in names:
            shown = ", ".join([*names][:20])
            raise UsageError(
                f"no source is called {name!r}",
                where=f"{option}.{name}",
                expected=f"one of {shown}{' …' if len(names) > 20 else ''}",
                hint=did_you_mean(name, names),
            )


def check_cap(where: str, cap: float | None) -> None:
    """Raise UsageError if a cap is not above 0."""
    if cap is not None and not (math.isfinite(cap) and cap > 0):
        hint = "a source is left out by the weight 0, or by others: leave" if cap == 0 else ""
        raise UsageError("out of range", where=where, got=f"{cap:g}", expected="above 0, or null = no cap", hint=hint)


def _require(option: str, value: object, *, needed: bool, method: str) -> None:
    if needed and value is None:
        raise UsageError("required option missing", where=option, expected=f"a value for method: {method}")
    if not needed and value is not None:
        raise UsageError(
            f"method: {method} does not read it",
            where=option,
            got=repr(value),
            expected="null",
            hint=f"method: {option} does",
        )
