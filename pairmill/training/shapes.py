"""The registry of shapes: how the learning rate goes down after its warm-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi, sqrt
from typing import TYPE_CHECKING, Final, Literal


@dataclass(frozen=True)
class Shape:
    """How a rate goes down.

    Attributes:
        fall: the factor of the rate at x, from 0 to 1, of the descent, by x, the least factor, and ``rex_alpha``; None:
            the factor stays 1, or the descent is that of ``wsd_decay``.
        note: what it is, in words.
        profile: that alone has it; empty = every profile.
        warms_up: whether the run begins with a warm-up.
        stable: whether the rate stays at its highest after the warm-up, before a descent by ``wsd_decay``.
    """

    fall: Callable[[float, float, float], float] | None = None
    note: str = ""
    profile: str = ""
    warms_up: bool = True
    stable: bool = False


def _cosine(x: float, least: float, _: float) -> float:
    return least + (1 - least) * 0.5 * (1 + cos(pi * x))


def _linear(x: float, least: float, _: float) -> float:
    return 1 - (1 - least) * x


def _sqrt(x: float, least: float, _: float) -> float:
    return least + (1 - least) * sqrt(1 - x)


def _rex(x: float, least: float, alpha: float) -> float:
    return max(least, float((1 - x) ** alpha))


SHAPES: Final[dict[str, Shape]] = {
    "constant": Shape(),
    "cosine": Shape(_cosine),
    "linear": Shape(_linear),
    "wsd": Shape(note="constant, then down at the end", stable=True),
    "sqrt": Shape(_sqrt, profile="kempner"),
    "rex": Shape(_rex, profile="kempner"),
    "none": Shape(profile="kempner", warms_up=False),
}
"""The registry."""

if TYPE_CHECKING:
    ShapeName = str
else:
    ShapeName = Literal[tuple(SHAPES)]
