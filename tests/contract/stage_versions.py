"""Which sources make each stage's bytes, and which version they were recorded with.

A shard is used again by its key, and the key knows of the program no more than the stage's ``version``: a change of
what a stage writes without another version leaves old results standing where a fresh root gives others.
``stage_versions.json`` holds for each stage, and each source of clean, the digests of all modules that make its bytes.
Whoever changes one of them raises the version, or says why nobody's bytes change:

    python tests/contract/stage_versions.py                            what differs
    python tests/contract/stage_versions.py raised                     record all whose version was raised
    python tests/contract/stage_versions.py neutral clean "reason"     the bytes are as before, because …; or: all

Digests are of what a module does: comments, docstrings, formatting and the words of errors and log lines are not part
of them. Modules under ``apart`` make no data; each has its reason there.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pairmill.line.stages import EVERY

TOP = Path(__file__).resolve().parents[2]
RECORD = "tests/contract/stage_versions.json"
_SOURCES = "pairmill.sources.datasets"
_NATIVE = "pairmill._native"
_PACKAGES = ("pairmill",)


@dataclass
class Unit:
    """What has a version: a stage, or a source of clean.

    Args:
        version: its own; of a source ``<clean's>.<its own>``, as either makes its rows anew.
        modules: digests by name.
        neutral: changes since this version was recorded that changed no bytes, with the reason.
    """

    version: str
    modules: dict[str, str]
    neutral: list[dict[str, Any]] = field(default_factory=list)

    def changed(self, now: Unit) -> list[str]:
        """The modules that are not what they were."""
        names = self.modules.keys() | now.modules.keys()
        return sorted(name for name in names if self.modules.get(name) != now.modules.get(name))

    def raised(self, now: Unit) -> bool:
        """Whether a version is higher than it was."""
        old, new = ([int(part) for part in unit.version.split(".")] for unit in (self, now))
        return any(after > before for before, after in zip(old, new, strict=True))


class Tree:
    """The repository as it is at ``top``."""

    def __init__(self, top: Path = TOP) -> None:
        self._record = top / RECORD
        self._top = top
        self.recorded = json.loads(self._record.read_text())
        self._edges: dict[str, list[str]] = {}

    @functools.cached_property
    def units(self) -> dict[str, Unit]:
        """Everything that has a version, as it is."""
        found = {}
        stages = {stage: self._closure(f"pairmill.stages.{stage}.core") for stage in EVERY}
        for stage, modules in stages.items():
            # The code of a stage without a version is in its keys.
            if version := self._module(f"pairmill.stages.{stage}.core").version:
                found[stage] = Unit(str(version), self._digests(modules))
        for path in sorted((self._top / "pairmill" / "sources" / "datasets").glob("[!_]*.py")):
            module = f"{_SOURCES}.{path.stem}"
            version = f"{found['clean'].version}.{self._version(module, 1)}"
            found[f"source {path.stem}"] = Unit(version, self._digests(self._closure(module) - stages["clean"]))
        return found

    def known(self) -> dict[str, Unit]:
        """Everything that has a version, as it was recorded."""
        return {name: Unit(**unit) for name, unit in self.recorded["units"].items()}

    def wrong(self) -> list[str]:
        """What is neither recorded nor declared neutral, a line each."""
        known, lines = self.known(), []
        for name, now in self.units.items():
            if name not in known:
                lines.append(f"{name} is new")
            elif changed := known[name].changed(now):
                raised = "its version was raised" if known[name].raised(now) else "its version was not"
                lines.append(f"{name}: {', '.join(changed)} changed, and {raised}")
            elif known[name].version != now.version:
                lines.append(f"{name}: its version was changed")
        return [*lines, *(f"{name} is gone" for name in known.keys() - self.units.keys())]

    def record(self, wanted: str = "", reason: str = "") -> list[str]:
        """Record what was raised, and with a reason the neutral change of one unit or of all; what is left wrong."""
        known, units = self.known(), self.units
        for name, now in units.items():
            old = known.get(name)
            changed = old.changed(now) if old else []
            if old is None or old.raised(now):
                known[name] = now
            elif changed and reason and wanted in {name, "all"}:
                note = {"modules": changed, "reason": reason}
                known[name] = Unit(old.version, now.modules, [*old.neutral, note])
        self.recorded["units"] = {name: asdict(known[name]) for name in units}
        self._record.write_text(json.dumps(self.recorded, indent=1, ensure_ascii=False) + "\n")
        return self.wrong()

    # --- how ---

    def _closure(self, first: str) -> set[str]:
        """A module and all of ours that it imports, wherever it does, without those that are apart."""
        found: set[str] = set()
        left = [first]
        while left:
            name = left.pop()
            if name not in found and (name == first or not name.startswith(_SOURCES + ".")):
                found.add(name)
                left += self._imported(name)
        return found

    def _imported(self, name: str) -> list[str]:
        if name not in self._edges:
            module = self._module(name) if name != _NATIVE else None
            some = module.imports if module else ()
            # A registry names a module beside it, which is imported where it is needed.
            beside = {
                f"{place}.{word}"
                for word in (module.named if module else ())
                for place in (name, name.rpartition(".")[0])
            }
            some = (*some, *sorted(beside))
            self._edges[name] = [one for one in some if (one == _NATIVE or self._file(one)) and not self._is_apart(one)]
        return self._edges[name]

    def _is_apart(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.recorded["apart"])

    def _file(self, name: str) -> Path | None:
        path = self._top.joinpath(*name.split("."))
        return next((one for one in (path.with_suffix(".py"), path / "__init__.py") if one.exists()), None)

    def _module(self, name: str) -> _Module:
        path = self._file(name)
        assert path is not None
        return _module(path.read_text())

    def _digests(self, names: set[str]) -> dict[str, str]:
        return {name: self._native if name == _NATIVE else self._module(name).digest for name in sorted(names)}

    @functools.cached_property
    def _native(self) -> str:
        found = []
        for part in ("core", "python"):
            for path in sorted((self._top / "rust" / part).rglob("*")):
                name = path.relative_to(self._top).as_posix()
                wanted = (path.suffix == ".rs" and "/src/" in name) or name == "rust/core/Cargo.toml"
                if wanted and not self._is_apart(name):
                    text = re.sub(r"^\s*(//|#).*$", "", path.read_text(), flags=re.MULTILINE)
                    found.append([name, " ".join(text.split())])
        return _digest(found)

    def _version(self, name: str, default: int | None = None) -> int:
        version = self._module(name).version or default
        assert version is not None, f"{name} has no version"
        return version


@dataclass(frozen=True)
class _Module:
    """A module of ours."""

    imports: tuple[str, ...]
    named: tuple[str, ...]
    """First words of texts such as ``adam.ADAMW``."""
    digest: str
    version: int | None
    """What it assigns to ``version`` of its class, or to ``VERSION``."""


@functools.cache
def _module(text: str) -> _Module:
    tree = ast.parse(text)
    imports = tuple(sorted({name for name in _imports(tree) if name.split(".")[0] in _PACKAGES}))
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))
    named = tuple(sorted({match[1] for text in texts if (match := re.fullmatch(r"([a-z_]+)\.[A-Z]\w+", text))}))
    return _Module(imports, named, _digest(_meaning(tree)), _version(tree))


def _version(tree: ast.Module) -> int | None:
    for owner in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        for node in owner.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(getattr(node, "value", None), "value", None)
            if _name(targets[0]) in {"version", "VERSION"} and isinstance(value, int):
                return value
    return None


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from _imports(node)


def _meaning(node: Any, *, said: bool = False) -> Any:
    """What a piece of Python does, as JSON; the same under every version of Python that we support."""
    if isinstance(node, list):
        return [_meaning(one, said=said) for one in node]
    if not isinstance(node, ast.AST):
        return node if isinstance(node, str | int | bool | type(None)) else repr(node)
    if isinstance(node, ast.Constant):
        return ["text"] if said and isinstance(node.value, str) else ["Constant", repr(node.value)]
    # What is said of a failure or of progress is for people.
    said = said or isinstance(node, ast.Raise) or (isinstance(node, ast.Call) and _name(node.func) == "event")
    left_out = {"ctx", "returns"} | ({"annotation"} if isinstance(node, ast.arg) else set())  # of an option it matters
    fields = {name: value for name, value in ast.iter_fields(node) if name not in left_out}
    body = fields.get("body")
    if isinstance(body, list):
        # Texts by themselves are docstrings, of attributes too.
        fields["body"] = [
            one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        ]
    return [type(node).__name__, {name: _meaning(value, said=said) for name, value in fields.items() if value}]


def _name(node: object) -> str:
    """The last name of what is called or assigned to."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def main(arguments: list[str]) -> int:
    """See the head of this file."""
    tree = Tree()
    match arguments:
        case []:
            wrong = tree.wrong()
        case ["raised"]:
            wrong = tree.record()
        case ["neutral", name, reason] if len(reason.split()) > 2 and name in {"all", *tree.units}:
            wrong = tree.record(name, reason)
        case _:
            print(__doc__)
            print(f"got {arguments}; a name is one of all, {', '.join(tree.units)}, a reason three words or more")
            return 2
    print("\n".join(wrong) or "every stage is what was recorded")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
