"""What a shard's key is made of: its fields, the options that it reads, and the code of a stage from elsewhere.

A field counts unless it says why it does not: ``uri: str = field(metadata=unkeyed("a place"))``. A class that is not
keyed by its fields has a method ``identify``, which returns what it is keyed by. The name of a class counts; one that
was renamed has the name before as ``keyed_as``, so that results are not made again.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import sys
import sysconfig
from collections.abc import Hashable, Iterator, Mapping, Set
from enum import Enum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, cast

from pairmill.engine.manifest import canonical, content_key
from pairmill.errors import InternalError

_OURS: Final = "pairmill"
_PLAIN: Final = frozenset({str, int, float, bool})
_WHY: Final = "unkeyed"


def unkeyed(why: str) -> Mapping[str, str]:
    """Return the metadata of a field that changes no byte of the result, for the reason given."""
    assert why
    return {_WHY: why}


def why_unkeyed(item: dataclasses.Field[Any]) -> str:
    """Return why a field does not count; empty if it counts."""
    why: str = item.metadata.get(_WHY, "")
    return why if item.metadata.get("changes_bytes", True) else "an option that changes no byte"


def identify(value: object, where: tuple[str, ...]) -> object:
    """Return JSON-like values that are equal if, and only if, the values mean the same bytes.

    A mapping counts without its order, a sequence with it.

    Args:
        value: a shard, or a value within one.
        where: class and names of fields, for the message.

    Raises:
        InternalError: nothing says what a value of this type is keyed by.
    """
    kind: Any = type(value)
    if value is None or kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        # Lists of slices have a hundred thousand numbers: a call for each would take most of the time.
        return [item if type(item) in _PLAIN else identify(item, where) for item in cast(Any, value)]
    if hasattr(kind, "identify"):
        return {"": _name(kind), "as": identify(kind.identify(value), where)}
    if dataclasses.is_dataclass(value):
        fields = {name: identify(getattr(value, name), (*where, name)) for name in _keyed(kind)}
        return {"": _name(kind), **fields}
    if isinstance(value, Mapping):
        pairs = [[identify(key, where), identify(item, (*where, str(key)))] for key, item in value.items()]
        return {"mapping": sorted(pairs, key=canonical)}
    if isinstance(value, Enum):
        return {"enum": [kind.__qualname__, value.name]}
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return {"": kind.__qualname__, "items": [identify(item, where) for item in value]}
    if isinstance(value, Set):
        return {"set": sorted((identify(item, where) for item in value), key=canonical)}
    if isinstance(value, bytes):
        return {"sha256": hashlib.sha256(value).hexdigest()}
    raise InternalError(
        "nothing says what a value of this type is keyed by",
        where=".".join(where),
        got=kind.__qualname__,
        expected="None, text, a number, bytes, an enum, a tuple, a mapping, a set, or a dataclass of these",
        hint='give the class a method identify(), or the field metadata=unkeyed("why it changes no byte")',
    )


def _name(kind: Any) -> str:
    return vars(kind).get("keyed_as") or str(kind.__qualname__)


@cache
def _keyed(kind: Hashable) -> tuple[str, ...]:
    return tuple(item.name for item in dataclasses.fields(cast(Any, kind)) if not why_unkeyed(item))


def is_ours(module: str) -> bool:
    """Return whether a module is of this repository, where a test demands a new version of a stage that changed."""
    return module.partition(".")[0] == _OURS


@cache
def code_digest(*modules: str) -> str:
    """Digest the syntax trees of these modules and of those that they import from the same place.

    Comments, positions and docstrings do not count; any constant does. Modules of pairmill, of Python and of other
    installed packages do not count either.
    """
    trees: dict[str, str] = {}  # by module; names do not count, as a program's is another than a module's
    left = list(modules)
    tops = {module.partition(".")[0] for module in modules} - {_OURS}
    own = tuple(f"{module.rpartition('.')[0]}." for module in modules if "." in module)
    while left:
        name = left.pop()
        if name in trees or (path := _source_of(name)) is None:
            continue
        if name in modules or name.startswith(own) or name.partition(".")[0] in tops or _is_local(name, path):
            tree = ast.parse(path.read_bytes())
            left += _imported(tree, name, is_package=path.name == "__init__.py")
            trees[name] = meaning_of(tree)
    missing = [module for module in modules if module not in trees]
    if missing:
        raise InternalError(
            "the code of a stage cannot be read",
            where=missing[0],
            expected="a module with a source file",
            hint="results are reused only if the code that made them is the same, so the stage has to be in a file",
        )
    return content_key(sorted(trees.values()))


def _source_of(name: str) -> Path | None:
    """Return the source file of a module; None if there is no such module, or it has none."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        origin = getattr(loaded, "__file__", None)
    else:
        try:
            spec = find_spec(name)
        except (ImportError, AttributeError, ValueError):  # a name within a module, which is not a module itself
            return None
        origin = spec.origin if spec is not None else None
    return Path(origin) if origin is not None and origin.endswith(".py") and Path(origin).is_file() else None


def _is_local(name: str, path: Path) -> bool:
    places = sysconfig.get_paths()
    installed = {places[place] for place in ("stdlib", "platstdlib", "purelib", "platlib")}
    return not is_ours(name) and not any(path.is_relative_to(place) for place in installed)


def _imported(tree: ast.Module, name: str, *, is_package: bool) -> Iterator[str]:
    """Yield the names that may be imported modules, with the packages that they are in."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: None if is_package and node.level == 1 else -(node.level - is_package)]
            parent = ".".join([*(above if node.level else []), *([node.module] if node.module else [])])
            names = [parent, *(f"{parent}.{alias.name}" for alias in node.names)]
        else:
            continue
        for whole in names:
            parts = whole.split(".")
            yield from (".".join(parts[:count]) for count in range(1, len(parts) + 1))


def meaning_of(tree: ast.Module) -> str:
    """Return the syntax tree as text, without positions and docstrings, which it loses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del node.body[0]
    return ast.dump(tree)
