"""The weight of the house, measured on the tree and held: each figure may fall and not rise.

``python tests/contract/test_house.py`` prints the table; with the name of a measure behind it, the places that count.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

TOP = Path(__file__).resolve().parents[2]
PRODUCT = ("pairmill", "components", "pipelines")

Measure = Callable[[], list[str]]
KINDS = (ast.Import, ast.ImportFrom, ast.Call, ast.Subscript, ast.FunctionDef)
N = TypeVar("N", bound=ast.AST)


@cache
def trees() -> Mapping[str, ast.Module]:
    """Return the syntax tree of each Python file of the product, by path."""
    paths = sorted(path for folder in PRODUCT for path in (TOP / folder).rglob("*.py"))
    return {str(path.relative_to(TOP)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


@dataclass(frozen=True)
class Place:
    """A node, the file that it is in, and what it is inside of."""

    path: str
    node: Any
    in_function: bool
    for_type_checkers: bool

    def __str__(self) -> str:
        return f"{self.path}:{self.node.lineno}"


@cache
def places() -> Mapping[type[ast.AST], list[Place]]:
    """Return the nodes of the kinds that are measured, of all trees, in one walk."""
    kinds: dict[type[ast.AST], list[Place]] = {kind: [] for kind in KINDS}
    for path, tree in trees().items():
        waiting: list[tuple[Any, bool, bool]] = [(tree, False, False)]
        while waiting:
            node, in_function, for_types = waiting.pop()
            if type(node) in kinds:
                kinds[type(node)].append(Place(path, node, in_function, for_types))
            in_function = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for_types = for_types or (isinstance(node, ast.If) and last_name(node.test) == "TYPE_CHECKING")
            for name in node._fields:
                value = getattr(node, name)
                inside = value if type(value) is list else (value,)
                waiting += [(inner, in_function, for_types) for inner in inside if isinstance(inner, ast.AST)]
    for kind in kinds.values():
        kind.sort(key=lambda place: (place.path, place.node.lineno))
    return kinds


def find(kind: type[N], matches: Callable[[N], bool]) -> list[str]:
    """Return the places of the nodes of a kind that match."""
    return [str(place) for place in places()[kind] if matches(place.node)]


def last_name(node: ast.AST) -> str:
    """Return ``c`` of ``a.b.c`` and of ``c``."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


# Imports


@cache
def modules() -> Mapping[str, str]:
    """Return the path of each module of ``pairmill`` by its dotted name."""
    return {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path
        for path in trees()
        if path.startswith("pairmill/")
    }


@cache
def imports() -> list[tuple[Place, frozenset[str]]]:
    """Return every import with the modules of ours that it names."""
    return [
        (place, frozenset(targets(place.node)))
        for place in sorted(places()[ast.Import] + places()[ast.ImportFrom], key=str)
    ]


def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the modules of ours that an import names."""
    names = (
        [alias.name for alias in node.names]
        if isinstance(node, ast.Import)
        else [f"{node.module}.{alias.name}" for alias in node.names]
    )
    for name in names:
        for module in (name, name.rpartition(".")[0]):
            if module in modules():
                yield module
                break


@cache
def graph() -> dict[str, set[str]]:
    """Return the modules that each module imports, wherever in it and for whom."""
    names = {path: name for name, path in modules().items()}
    edges: dict[str, set[str]] = {name: set() for name in names.values()}
    for place, named in imports():
        if place.path in names:
            edges[names[place.path]] |= named - {names[place.path]}
    return edges


def reachable(edges: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """Return all that each node reaches."""
    reached = {}
    for name in edges:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            fresh = [target for target in edges.get(waiting.pop(), ()) if target not in seen]
            seen.update(fresh)
            waiting += fresh
        reached[name] = seen
    return reached


@cache
def circles() -> list[tuple[str, ...]]:
    """Return the groups of modules each of which reaches every other."""
    reached = reachable(graph())
    groups = {
        tuple(sorted(other for other in reached[name] if name in reached[other]))
        for name in reached
        if name in reached[name]
    }
    return sorted(groups)


def circles_of_files() -> list[str]:
    return [" <-> ".join(group) for group in circles()]


def files_in_circles() -> list[str]:
    return [modules()[name] for group in circles() for name in group]


def imports_inside_functions() -> list[str]:
    return [str(place) for place, _ in imports() if place.in_function]


def imports_for_type_checkers() -> list[str]:
    return [str(place) for place, _ in imports() if place.for_type_checkers]


def stages_importing_stages() -> list[str]:
    return sorted(
        f"{place} {target}"
        for place, named in imports()
        for target in named
        if place.path.startswith("pairmill/stages/")
        and target.startswith("pairmill.stages.")
        and place.path.split("/")[2] != target.split(".")[2]
        and place.path.count("/") > 2
    )


def longest_chain(room: str) -> list[str]:
    """Return the longest chain of files of a room that import one another; a circle is as long as it has files."""
    inside = {name for name in graph() if f"{name}.".startswith(f"{room}.")}
    circle = {name: group for group in circles() for name in group}

    @cache
    def chain(name: str) -> list[str]:
        group = inside.intersection(circle.get(name, (name,)))
        below = {target for member in group for target in graph()[member] if target in inside} - group
        return [*sorted(group), *max((chain(target) for target in sorted(below)), key=len, default=[])]

    return max((chain(name) for name in sorted(inside)), key=len)


def floors_of(room: str) -> Measure:
    return lambda: longest_chain(room)


# Words of Python


def hooks_of_stage() -> list[str]:
    (stage,) = (
        node
        for node in trees()["pairmill/engine/stage.py"].body
        if isinstance(node, ast.ClassDef) and node.name == "Stage"
    )
    return [node.name for node in stage.body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]


def functions_that_read_a_manifest() -> list[str]:
    """Return the functions that make a manifest of a folder."""

    def matches(node: ast.FunctionDef) -> bool:
        if node.returns is None or not node.args.args or node.args.args[0].annotation is None:
            return False
        returns = ast.unparse(node.returns)
        return "Manifest" in returns and ast.unparse(node.args.args[0].annotation) in {"str", "Path"}

    return find(ast.FunctionDef, matches)


def keys_written_by_hand() -> list[str]:
    return find(ast.Call, lambda node: last_name(node.func) == "content_key")


def calls_with_seven_positional_arguments() -> list[str]:
    return find(ast.Call, lambda node: len(node.args) >= 7)


def is_post_init(node: ast.FunctionDef) -> bool:
    return node.name == "__post_init__"


def post_inits() -> list[str]:
    return find(ast.FunctionDef, is_post_init)


def lines_of_post_inits() -> list[str]:
    return [
        f"{place.path}:{line}"
        for place in places()[ast.FunctionDef]
        if is_post_init(place.node)
        for line in range(place.node.lineno, place.node.end_lineno + 1)
    ]


def reads_of_data() -> list[str]:
    """Return the places of ``data["name"]`` and ``data.get("name")``."""

    def is_name(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and isinstance(node.value, str)

    def is_subscript(node: ast.Subscript) -> bool:
        return last_name(node.value) == "data" and isinstance(node.ctx, ast.Load) and is_name(node.slice)

    def is_get(node: ast.Call) -> bool:
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "get" or not node.args:
            return False
        return last_name(node.func.value) == "data" and is_name(node.args[0])

    return sorted(find(ast.Subscript, is_subscript) + find(ast.Call, is_get))


def lines_of_product() -> list[str]:
    """Count lines of Python and Rust without tests, fuzz targets, and what is generated."""
    generated = {str(path.relative_to(TOP)) for path in (TOP / "components").glob("*/component.py")}
    rust = (path for path in (TOP / "rust").rglob("*.rs") if not {"target", "tests", "fuzz"} & set(path.parts))
    texts = {TOP / path: (TOP / path).read_text(encoding="utf-8") for path in trees() if path not in generated}
    texts |= {
        path: path.read_text(encoding="utf-8").partition("\n#[cfg(test)]\nmod ")[0]
        for path in rust
        if path.stem != "tests"
    }
    return [str(path) for path, text in texts.items() for _ in text.splitlines()]


MEASURES: Mapping[str, tuple[Measure, int, int | None]] = {
    "lines of product": (lines_of_product, 136_184, 78_000),
    "circles of files": (circles_of_files, 0, 0),
    "files in circles": (files_in_circles, 0, 0),
    "stages importing stages": (stages_importing_stages, 0, 0),
    "imports inside functions": (imports_inside_functions, 58, 60),
    "imports for type checkers": (imports_for_type_checkers, 34, 40),
    "floors of select": (floors_of("pairmill.stages.select"), 6, 8),
    "floors of curate": (floors_of("pairmill.stages.curate"), 6, 7),
    "floors of train": (floors_of("pairmill.stages.train"), 5, 7),
    "floors of sources": (floors_of("pairmill.sources"), 6, 6),
    "hooks of Stage": (hooks_of_stage, 9, 9),
    "functions that read a manifest": (functions_that_read_a_manifest, 3, 3),
    "keys written by hand": (keys_written_by_hand, 30, 30),
    "calls with seven positional arguments": (calls_with_seven_positional_arguments, 0, 0),
    "__post_init__": (post_inits, 30, 30),
    "lines of __post_init__": (lines_of_post_inits, 333, None),
    "reads of data[...]": (reads_of_data, 0, 0),
}
"""Name: how it is measured, the most there may be now, what is wanted. Lower a bound when its figure has fallen."""


@pytest.mark.parametrize("name", MEASURES)
def test_the_house_grows_no_heavier(name: str) -> None:
    measure, bound, _ = MEASURES[name]
    places = measure()
    assert len(places) <= bound, f"{name}: got {len(places)}, expected {bound} at most:\n" + "\n".join(
        [*dict.fromkeys(places)][-100:]
    )


def test_measures_see_what_they_count() -> None:
    # Each is wrong rather than perfect if it finds nothing in a tree that has some.
    assert len(modules()) > 300
    assert "pairmill.storage" in graph()["pairmill.engine.manifest"]
    assert len(longest_chain("pairmill.stages.clean")) >= 3
    assert {"plan", "rounds", "finish", "report"} <= set(hooks_of_stage())
    assert any(place.startswith("pairmill/engine/manifest.py") for place in functions_that_read_a_manifest())
    assert reachable({"a": ["b"], "b": ["a"], "c": []}) == {"a": {"a", "b"}, "b": {"a", "b"}, "c": set()}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print("\n".join(MEASURES[sys.argv[1]][0]()))
    else:
        print("| | now | bound | wanted |\n|---|---:|---:|---:|")
        for name, (measure, bound, wanted) in MEASURES.items():
            print(f"| {name} | {len(measure()):,} | {bound:,} | {'' if wanted is None else f'≤ {wanted:,}'} |")
