"""The methods by name: which weights a method gives sources, and what the presets stand for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from pairmill.errors import UsageError, did_you_mean
from pairmill.mixture.plan import Method
from pairmill.mixture.planning import exponent_weights

MethodName = Literal["unimax", "exponent", "temperature", "weights", "attribute", "english", "code"]

ENGLISH_EPOCHS: Final = 1.0
"""Preset ``english``: UniMax, each row at most once."""
CODE_EXPONENT: Final = 1.3
"""Preset ``code``: shares in proportion to count ** 1.3, so the head is favoured."""


@dataclass(frozen=True)
class Recipe:
    """How a budget is shared out.

    Args:
        method: with presets and other spellings resolved.
        exponent: of the method ``exponent``.
        weights: by source, of the method ``weights``.
        max_epochs: cap of all sources in passes; None = no cap.
        asked: what was asked for, for reports.
        only: the sources that it is shared out to; empty = all.
    """

    method: Method
    exponent: float | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    max_epochs: float | None = None
    asked: str = ""
    only: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        name: MethodName,
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
        _require("exponent", exponent, needed=name == "exponent", method=name)
        _require("temperature", temperature, needed=name == "temperature", method=name)
        _require("weights", weights or None, needed=name in ("weights", "attribute"), method=name)
        if name == "english":
            if max_epochs not in (None, ENGLISH_EPOCHS):
                raise UsageError(
                    "the preset english has a cap of its own",
                    where="max_epochs",
                    got=f"{max_epochs:g}",
                    expected="null, or 1",
                    hint="method: unimax takes any cap",
                )
            return cls("unimax", max_epochs=ENGLISH_EPOCHS, asked=name)
        if name == "code":
            return cls("exponent", CODE_EXPONENT, max_epochs=max_epochs, asked=name)
        if name == "temperature":
            assert temperature is not None
            if not (math.isfinite(temperature) and temperature > 0):
                raise UsageError("out of range", where="temperature", got=repr(temperature), expected="above 0")
            return cls("exponent", 1 / temperature, max_epochs=max_epochs, asked=name)
        if name == "exponent":
            assert exponent is not None
            exponent_weights({}, exponent)
            return cls("exponent", exponent, max_epochs=max_epochs, asked=name)
        if name == "unimax":
            return cls("unimax", max_epochs=max_epochs, asked=name)
        return cls("weights", weights={**(weights or {})}, max_epochs=max_epochs, asked=name)

    def weights_of(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Return the weight of each source; of one without a token, or that the method is not for, 0.

        Raises:
            UsageError: a weight names an unknown source, a source has none, or all are 0.
        """
        if self.only:
            refuse_unknown("sources", dict.fromkeys(sorted(self.only), 1.0), counts)
            mine = {name: count for name, count in counts.items() if name in self.only}
            return {**dict.fromkeys(counts, 0.0), **replace(self, only=frozenset()).weights_of(mine)}
        if self.method == "unimax":
            return {name: float(count > 0) for name, count in counts.items()}
        if self.method == "exponent":
            assert self.exponent is not None
            return exponent_weights(counts, self.exponent)
        refuse_unknown("weights", self.weights, counts)
        missing = [name for name, count in counts.items() if count and name not in self.weights]
        if missing:
            raise UsageError(
                f"{len(missing)} sources have no weight" if len(missing) > 1 else "a source has no weight",
                where="weights",
                got=f"none for {', '.join(map(repr, missing[:5]))}{' …' if len(missing) > 5 else ''}",
                expected="one for each source",
                hint="0 leaves a source out",
            )
        result = {name: self.weights[name] if count else 0.0 for name, count in counts.items()}
        for name, weight in result.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise UsageError("out of range", where=f"weights.{name}", got=repr(weight), expected="0 or more")
        if not any(result.values()):
            raise UsageError("no source with a weight has a row", where="weights", expected="a weight above 0")
        return result


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
            hint=f"method: {'exponent' if option == 'exponent' else option} does",
        )
