"""Dataclasses that programs make are what Python makes."""

from __future__ import annotations

import copy
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar

import pytest

from pairmill.interface import light
from tests.support.cases import cases

Decorator = Callable[..., Any]


def shapes(dataclass: Decorator) -> dict[str, type[Any]]:
    """Classes with all that pairmill's have, made by this decorator."""

    @dataclass(frozen=True)
    class Plain:
        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)
        KNOWN: ClassVar[int] = 5

        @cached_property
        def twice(self) -> int:
            return 2 * self.a

    @dataclass(frozen=True, kw_only=True)
    class Named(Plain):
        d: float
        e: tuple[int, ...] = ()

        def __post_init__(self) -> None:
            if self.d < 0:
                raise ValueError("below 0")

    @dataclass
    class Open:
        a: int
        made: dict[str, int] = field(init=False, default_factory=dict)
        hidden: str = field(default="x", repr=False, compare=False)
        later: int = field(init=False)
        fixed: int = field(init=False, default=3)

    @dataclass(frozen=True, eq=False)
    class Identical(ABC):
        a: int

        @abstractmethod
        def work(self) -> int: ...

    @dataclass(frozen=True, repr=False)
    class Own:
        a: int
        unhashed: list[int] = field(hash=False)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and other.a == self.a

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True)
    class One:
        a: Any

    @dataclass(frozen=True)
    class Without:
        pass

    class Below(Plain):
        pass

    @dataclass(frozen=True, order=True)
    class Ordered:
        a: int

    made = locals().copy()
    return {name: item for name, item in made.items() if isinstance(item, type)}


DEEDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "text": lambda of: repr(of["Plain"](1, c=[2])),
    "text of a subclass": lambda of: repr(of["Named"](1, "x", d=1.0)),
    "hidden": lambda of: repr(of["Own"](1, []))[:20].partition(" object")[1],
    "equal": lambda of: (of["Plain"](1) == of["Plain"](1), of["Plain"](1) == of["Plain"](2), of["Plain"](1) == 1),
    "another class": lambda of: of["Plain"](1) == of["Below"](1),
    "not compared": lambda of: of["Open"](1) == of["Open"](1, "y"),
    "identity": lambda of: of["Identical"].__hash__ is object.__hash__,
    "abstract": lambda of: of["Identical"](1),
    "own": lambda of: (of["Own"](1, [2]) == of["Own"](1, [3]), hash(of["Own"](1, []))),
    "hash": lambda of: len({of["One"](1), of["One"](1), of["One"]("a")}),
    "what has no hash": lambda of: hash(of["Plain"](1)),
    "open has no hash": lambda of: hash(of["Open"](1)),
    "none": lambda of: (repr(of["Without"]()), of["Without"]() == of["Without"](), hash(of["Without"]())),
    "order": lambda of: of["Ordered"](1) < of["Ordered"](2),
    "frozen": lambda of: setattr(of["Plain"](1), "a", 2),
    "frozen to what it has not": lambda of: setattr(of["Plain"](1), "z", 2),
    "frozen is not deleted": lambda of: delattr(of["Plain"](1), "a"),
    "frozen for a subclass": lambda of: setattr(of["Below"](1), "a", 2),
    "a subclass has more": lambda of: setattr(of["Below"](1), "z", 2),
    "open": lambda of: setattr(of["Open"](1), "later", 2),
    "kept": lambda of: of["Plain"](3).twice,
    "defaults apart": lambda of: of["Plain"](1).c is of["Plain"](1).c,
    "not given": lambda of: (of["Open"](1).made, of["Open"](1).fixed, "fixed" in vars(of["Open"](1))),
    "too few": lambda of: of["Plain"](),
    "too many": lambda of: of["Plain"](1, "b", [], 4),
    "unknown": lambda of: of["Plain"](1, z=4),
    "by place": lambda of: of["Named"](1, "x", [], 2.0),
    "looked at": lambda of: of["Named"](1, d=-1.0),
    "replaced": lambda of: repr(dataclasses.replace(of["Named"](1, d=1.0), d=2.0)),
    "as values": lambda of: dataclasses.asdict(of["Named"](1, c=[5], d=1.0)),
    "copied": lambda of: repr(copy.deepcopy(of["Named"](1, c=[5], d=1.0))),
    "fields": lambda of: [(item.name, item.default, item.kw_only) for item in dataclasses.fields(of["Named"])],
    "matched": lambda of: of["Named"].__match_args__,
}


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """What Python makes, and what programs make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(light, "OURS", __name__)
        yield shapes(dataclasses.dataclass), shapes(light.dataclass)


@pytest.mark.parametrize("deed", cases(DEEDS))
def test_what_is_done_with_them_has_the_same_outcome(made: tuple[dict[str, Any], dict[str, Any]], deed: str) -> None:
    def outcome(of: dict[str, Any]) -> Any:
        try:
            return DEEDS[deed](of)
        except Exception as error:
            return type(error), str(error)

    pythons, ours = made
    assert outcome(ours) == outcome(pythons)


def test_a_class_of_others_is_made_by_python_unless_it_inherits_from_one_of_ours(
    made: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    @light.dataclass(frozen=True)
    class Others:
        __module__ = "dataclasses"
        a: int

    body = {"__module__": "dataclasses", "__annotations__": {"f": int}, "f": 0}
    heir = light.dataclass(type("Heir", (made[1]["Plain"],), body), frozen=True)
    assert Others.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert not heir.__dataclass_params__.frozen
    assert repr(heir(1, f=2)) == "Heir(a=1, b='b', c=[], f=2)"
