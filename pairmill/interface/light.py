"""Dataclasses at the start of a program: Python compiles six functions for each, of which most are never called.

There are 120 before ``pairmill sample`` does anything, and in Python 3.11 they took two fifths of its start. So
programs make those of pairmill, and of what inherits from them, without: what is alike in all is not compiled at all,
and ``__init__`` when the first object is made. Who imports pairmill in a program of theirs has Python's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError
from reprlib import recursive_repr
from typing import Any, Final

_PYTHONS: Final = dataclasses.dataclass
OURS: Final = "pairmill."
_OPTIONS: Final = {"frozen", "kw_only", "eq", "repr"}
"""Those that are known here; with others Python makes the class."""


def lighten() -> None:
    """From now on make dataclasses of pairmill's modules, and those that inherit from them, without compiling."""
    dataclasses.dataclass = dataclass


def dataclass(cls: type[Any] | None = None, /, **options: bool) -> Any:
    """Make a dataclass as :func:`dataclasses.dataclass` does."""

    def make(cls: type[Any]) -> type[Any]:
        ours = any(base.__module__.startswith(OURS) for base in cls.__mro__)
        return _light(cls, options) if ours and options.keys() <= _OPTIONS else _PYTHONS(cls, **options)

    return make if cls is None else make(cls)


def _light(given: type[Any], options: Mapping[str, bool]) -> Any:
    frozen, eq, own = options.get("frozen", False), options.get("eq", True), vars(given)
    explicit = "__hash__" in own and not (own["__hash__"] is None and "__eq__" in own)
    made: Any = _PYTHONS(given, init=False, repr=False, eq=False, kw_only=options.get("kw_only", False))
    items = dataclasses.fields(made)
    methods: dict[str, Any] = {"__init__": _initialiser(made, frozen)}
    if options.get("repr", True):
        methods["__repr__"] = _printer([item.name for item in items if item.repr])
    if eq:
        values = _values([item.name for item in items if item.compare])
        methods["__eq__"] = lambda self, other: (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )
    for name, method in methods.items():
        if name not in vars(made):
            setattr(made, name, method)
    if eq and not explicit:
        hashed = _values([item.name for item in items if (item.compare if item.hash is None else item.hash)])
        made.__hash__ = (lambda self: hash(hashed(self))) if frozen else None
    if frozen:
        _freeze(made, {item.name for item in items})
    return made


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    return lambda item: tuple([getattr(item, name) for name in names])


def _printer(names: Sequence[str]) -> Callable[[Any], str]:
    @recursive_repr()
    def printed(self: Any) -> str:
        values = ", ".join([f"{name}={getattr(self, name)!r}" for name in names])
        return f"{self.__class__.__qualname__}({values})"

    return printed


def _freeze(cls: Any, names: set[str]) -> None:
    def refuse(what: str) -> Callable[..., None]:
        def method(self: Any, name: str, *value: Any) -> None:
            if type(self) is cls or name in names:
                raise FrozenInstanceError(f"cannot {what} field {name!r}")
            getattr(super(cls, self), own)(name, *value)

        own = "__setattr__" if what == "assign to" else "__delattr__"
        return method

    cls.__setattr__, cls.__delattr__ = refuse("assign to"), refuse("delete")


def _initialiser(cls: Any, frozen: bool) -> Callable[..., None]:
    def first(self: Any, *values: Any, **named: Any) -> None:
        if cls.__init__ is first:
            cls.__init__ = _compiled(cls, frozen)
        cls.__init__(self, *values, **named)

    return first


def _compiled(cls: type[Any], frozen: bool) -> Callable[..., None]:
    scope: dict[str, Any] = {"_set": object.__setattr__, "_new": MISSING}
    places, names, body = list[str](), list[str](), list[str]()
    for item in dataclasses.fields(cls):
        name, value, default = item.name, item.name, ""
        if item.default_factory is not MISSING:
            scope[f"_make_{name}"], default = item.default_factory, " = _new"
            value = f"_make_{name}() if {name} is _new else {name}" if item.init else f"_make_{name}()"
        elif item.default is not MISSING:
            scope[f"_default_{name}"], default = item.default, f" = _default_{name}"
        if item.init:
            (names if item.kw_only else places).append(name + default)
        elif item.default_factory is MISSING:
            continue
        body.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ", ".join(["self", *places, *(["*", *names] if names else [])])
    # Of names that are Python's, and no text of anybody's.
    exec(f"def __init__({arguments}):\n " + "\n ".join(body or ["pass"]), scope)  # noqa: S102
    made: Callable[..., None] = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
