"""Every promise in the tables of docs/operations.md names the tests that hold it, and they are there."""

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.support.helpers import REPOSITORY

_HEADINGS = ("## What pairmill promises about your data", "### What holds on a node")


def _promises() -> list[tuple[str, list[str]]]:
    text = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = []
    for heading in _HEADINGS:
        assert text.count(f"{heading}\n") == 1
        page = re.split(r"\n##+ ", text.split(f"{heading}\n", 1)[1], maxsplit=1)[0]
        lines = [line for line in page.splitlines() if line.startswith("| ")][1:]
        rows += [line.strip("|").split("|") for line in lines]
    # A line of one bold word begins a group.
    groups = re.compile(r"\*\*[^*]+\*\*")
    return [
        (promise.strip(), re.findall(r"`([^`]+::[^`]+)`", held))
        for promise, held in rows
        if not groups.fullmatch(promise.strip())
    ]


@functools.cache
def _tests_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_every_promise_names_tests_that_exist() -> None:
    promises = _promises()
    assert len(promises) >= 20
    named = [(promise, test) for promise, tests in promises for test in tests]
    assert all(tests for _, tests in promises), [promise for promise, tests in promises if not tests]
    for promise, test in named:
        file, name = test.split("::")
        path = REPOSITORY / "tests" / file
        assert path.is_file(), f"{promise}: {file} is not there"
        assert name in _tests_of(path), f"{promise}: {file} has no {name}"


def test_every_test_that_the_page_names_elsewhere_exists_too() -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    for test in re.findall(r"`([\w/]+\.py::\w+)`", text):
        file, name = test.split("::")
        assert name in _tests_of(REPOSITORY / "tests" / file), test


@pytest.mark.parametrize("broken", ["unit/test_log.py::test_nothing_of_the_kind", "unit/test_nothing.py::test_x"])
def test_a_promise_without_its_test_is_noticed(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}._promises", lambda: [("a promise", [broken])] * 20)
    with pytest.raises(AssertionError, match=r"a promise: .* (has no|is not there)"):
        test_every_promise_names_tests_that_exist()
