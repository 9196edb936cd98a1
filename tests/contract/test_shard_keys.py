"""No shard is found again that would be made otherwise: what a key lacks says in the code why.

Every field of every shard class of every stage is changed one by one, and every constant of a stage from elsewhere.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine import keys
from pairmill.engine.keys import identify, unkeyed, why_unkeyed
from pairmill.engine.manifest import canonical
from pairmill.engine.stage import Shard
from pairmill.line.stages import EVERY
from tests.support.helpers import REPOSITORY

SAMPLE = REPOSITORY / "examples" / "stages" / "usual_length.py"


def subclasses(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


@pytest.fixture(scope="module")
def shard_classes() -> list[type[Shard[Any]]]:
    """Those of all stages, of the row stage and of formats."""
    for room in (*(f"pairmill.stages.{name}" for name in EVERY), "pairmill.rowstage", "pairmill.formats"):
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            path = REPOSITORY.joinpath(*module.name.split("."), *(["__init__"] if module.ispkg else []))
            if "Shard" in path.with_suffix(".py").read_text(encoding="utf-8"):
                importlib.import_module(module.name)
    return [
        kind for kind in subclasses(Shard) if kind.__module__.startswith("pairmill.") and not inspect.isabstract(kind)
    ]


def bare(kind: type[Any], /, **values: str) -> Any:
    """A shard with a text in each field, which its own code does not see."""
    made = object.__new__(kind)
    for item in fields(kind):
        object.__setattr__(made, item.name, values.get(item.name, item.name))
    return made


def test_each_field_of_each_shard_counts_or_says_why_not(shard_classes: list[type[Shard[Any]]]) -> None:
    changed: Counter[bool] = Counter()
    for kind in shard_classes:
        assert "identify" not in vars(kind), f"{kind}: a shard is keyed by its fields"
        key = canonical(identify(bare(kind), ()))
        for item in fields(kind):
            other = canonical(identify(bare(kind, **{item.name: "another value"}), ()))
            why = why_unkeyed(item)
            assert (other == key) == bool(why), f"{kind.__qualname__}.{item.name}"
            assert not why or len(why) > 5
            changed[bool(why)] += 1
    assert len(shard_classes) > 30
    assert changed[False] > 2 * len(shard_classes), "shards have hardly a field that counts"


def test_no_two_shard_classes_of_a_stage_have_one_name(shard_classes: list[type[Shard[Any]]]) -> None:
    """Of a class only its name is in the key, so that a file can be moved."""
    names = Counter((*kind.__module__.split(".")[1:3], kind.__qualname__) for kind in shard_classes)
    assert [name for name, count in names.items() if count > 1] == []


def test_a_field_without_a_reason_is_refused() -> None:
    with pytest.raises(AssertionError):
        unkeyed("")


def test_each_constant_of_a_stage_from_elsewhere_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it is: at the top of the module, in a default, in an expression."""
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "stage_from_elsewhere.py"

    def digest(text: str) -> str:
        path.write_text(text, encoding="utf-8")
        keys.code_digest.cache_clear()
        return keys.code_digest(path.stem)

    source = f'{SAMPLE.read_text(encoding="utf-8")}\nBOUNDS = (0.5, {{"least": 3, "most": None}}, b"raw", -1)\n'
    tree = ast.parse(source)
    before = digest(source)
    assert digest(ast.unparse(tree)) == before  # without comments and blank lines
    names = [node for node in tree.body if isinstance(node, ast.Assign)]
    for assigned in names:
        was, assigned.value = assigned.value, ast.Constant("another")
        assert digest(ast.unparse(tree)) != before, f"line {assigned.lineno}"
        assigned.value = was
    assert len(names) > 1
    meaning = keys.meaning_of(tree)
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    for node in constants:
        value, node.value = node.value, "another"
        assert keys.meaning_of(tree) != meaning, f"line {node.lineno}: {value!r}"
        node.value = value
    assert len(constants) > 50
