"""The rooms of the program, which of them imports which, and their picture in docs/architecture.md.

A room is a package of ``pairmill`` (``pairmill.engine``), or of ``pairmill.stages`` or ``pairmill.kubeflow``, with all
that is in it. A package inside a stage is a room of its own if it imports nothing else of the stage
(``pairmill.stages.sample.node``). Modules directly in ``pairmill`` that import no room are drawn as one node. Imports
inside functions and for type checkers count as the others.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
BASE = "pairmill"
PACKAGES = (
    BASE,
    *(f"{BASE}.{name}" for name in ("sources", "leaks", "evaluation", "stages", "audit", "begin", "line", "kubeflow")),
)
"""From the lowest to the highest: each may import itself and those before it."""
NATIVE = "pairmill._native"

Edges = Mapping[str, frozenset[str]]


@cache
def modules() -> Mapping[str, Path]:
    """Return every module of ours by dotted name."""
    result = {}
    for path in sorted((TOP / BASE).rglob("*.py")):
        parts = path.relative_to(TOP).with_suffix("").parts
        result[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return result


def package_of(name: str) -> str:
    """Return the package of :data:`PACKAGES` that a module is in."""
    return next(package for package in reversed(PACKAGES) if _within(name, package))


@cache
def imported(path: Path) -> frozenset[str]:
    """Dotted names that a module imports anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


@cache
def _inner_rooms() -> frozenset[str]:
    """Package inside a stage that import nothing else of it."""
    packages = {name for name, path in modules().items() if path.name == "__init__.py" and name.count(".") == 3}

    def others(package: str) -> set[str]:
        stage = package.rpartition(".")[0]
        names = {other for name, path in modules().items() if _within(name, package) for other in imported(path)}
        return {other for other in names if _within(other, stage) and not _within(other, package)}

    return frozenset(name for name in packages if name.startswith(f"{BASE}.stages.") and not others(name))


def _within(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def _room(name: str) -> str:
    """Return the room of a module or of a name in it."""
    parts = name.split(".")
    if (inner := ".".join(parts[:4])) in _inner_rooms():
        return inner
    of_several = name.startswith((f"{BASE}.stages.", f"{BASE}.kubeflow."))
    package = ".".join(parts[: 3 if of_several else 2])
    if package == NATIVE or (package in modules() and modules()[package].name == "__init__.py"):
        return package
    # A module, or a name, directly in the package.
    return package if package in modules() and not of_several else ".".join(parts[: 2 if of_several else 1])


@cache
def edges() -> Edges:
    """Return the rooms that each room imports."""
    result: dict[str, set[str]] = {}
    for name, path in modules().items():
        targets = {_room(other) for other in imported(path) if other.partition(".")[0] == BASE}
        result.setdefault(_room(name), set()).update(targets - {_room(name)})
    result.setdefault(NATIVE, set())
    rooms = {name for name in result if "." in name and modules().get(name, TOP).name == "__init__.py"}
    basics = {name for name in result if name.count(".") == 1 and name not in rooms | {NATIVE}}
    while higher := {name for name in basics if result[name] - basics - {BASE, NATIVE}}:
        basics -= higher
    merged: dict[str, set[str]] = {}
    for name, targets in result.items():
        at = BASE if name in basics else name
        merged.setdefault(at, set()).update({BASE if target in basics else target for target in targets} - {at})
    used = {target for targets in merged.values() for target in targets}
    return {name: frozenset(targets) for name, targets in merged.items() if targets or name in used}


def basics() -> list[str]:
    """Return the modules that are drawn as one node."""
    names = [name.removeprefix(f"{BASE}.") for name in modules() if name.startswith(f"{BASE}.")]
    return sorted(name for name in names if "." not in name and f"{BASE}.{name}" not in edges())


def reduced(graph: Edges) -> Edges:
    """Return the graph without the arrows that follow from others (it must have no cycle)."""

    @cache
    def below(name: str) -> frozenset[str]:
        return graph[name].union(*(below(target) for target in graph[name]))

    return {
        name: frozenset(target for target in targets if not any(target in below(other) for other in targets))
        for name, targets in graph.items()
    }


def picture() -> str:
    """Return the rooms as a Mermaid graph; an arrow goes from a room to a room that it imports."""
    graph = reduced(edges())
    lines = ["```mermaid", "flowchart TD"]
    for package in reversed(PACKAGES):
        lines.append(f"  subgraph package_{_node(package)}[{package}]")
        lines += [f"    {_node(name)}[{_label(name)}]" for name in _of(package, graph)]
        lines.append("  end")
    lines += [f"  {_node(name)} --> {_node(target)}" for name in sorted(graph) for target in sorted(graph[name])]
    return "\n".join([*lines, "```"])


def table() -> str:
    """Return the rooms with what each is for and imports, as a Markdown table."""
    graph = edges()
    lines = ["| room | what it is | imports |", "|---|---|---|"]
    for package in reversed(PACKAGES):
        for name in _of(package, graph):
            said = ", ".join(f"`{_short(target)}`" for target in sorted(graph[name])) or "nothing of ours"
            lines.append(f"| `{_short(name)}` | {_summary(name)} | {said} |")
    return "\n".join(lines)


def _of(package: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if package_of(name) == package)


def _node(name: str) -> str:
    return name.replace(".", "_")


def _short(name: str) -> str:
    return name.removeprefix(f"{BASE}.") if name.startswith(f"{BASE}.") else name


def _label(name: str) -> str:
    if name == BASE:
        return '"' + "<br>".join(basics()) + '"'
    return (
        '"_native (Rust)"' if name == NATIVE else name.removeprefix(f"{package_of(name)}.").rpartition("pairmill.")[2]
    )


def _summary(name: str) -> str:
    if name == BASE:
        return "basics: " + ", ".join(f"`{module}`" for module in basics())
    if name == NATIVE:
        return "the hot loops, in Rust (`rust/`)"
    text = ast.get_docstring(ast.parse(modules()[name].read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0].replace("``", "`")
