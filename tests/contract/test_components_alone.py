"""Components that are copied alone: without pairmill installed they compile to what ``component.yaml`` holds."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pairmill.line.stages import EVERY

COMPONENTS = Path(__file__).parents[2] / "components"

# What a stranger's environment has: kfp, and no pairmill.
WITHOUT_PAIRMILL = """
import importlib.abc, runpy, sys
class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "pairmill":
            raise ModuleNotFoundError(f"no module named {name}")
sys.meta_path.insert(0, Refused())
for folder in sys.argv[1:]:
    runpy.run_path(folder + "/component.py", run_name="__main__")
"""


def compiled(path: Path) -> Any:
    """Return a compiled component: each text in one line, and none of outputs, whose texts kfp does not read."""

    def flat(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: flat(item) for key, item in value.items()}
        if isinstance(value, list):
            return [flat(item) for item in value]
        return " ".join(value.split()) if isinstance(value, str) else value

    loaded = flat(yaml.safe_load(path.read_text()))
    for owner in (loaded["root"], *loaded["components"].values()):
        for kind in owner["outputDefinitions"].values():
            for output in kind.values():
                output.pop("description", None)
    return loaded


def test_they_compile_alone_to_what_is_committed(tmp_path: Path) -> None:
    for stage in EVERY:
        (tmp_path / stage).mkdir()
        (tmp_path / stage / "component.py").write_text((COMPONENTS / stage / "component.py").read_text())
    variables = {
        key: value for key, value in os.environ.items() if not key.startswith(("PAIRMILL_IMAGE", "PYTHONPATH"))
    }
    subprocess.run(
        [sys.executable, "-c", WITHOUT_PAIRMILL, *map(str, (tmp_path / stage for stage in EVERY))],
        check=True,
        cwd=tmp_path,
        env=variables,
    )
    for stage in EVERY:
        assert compiled(tmp_path / stage / "component.yaml") == compiled(COMPONENTS / stage / "component.yaml"), stage


@pytest.mark.parametrize("stage", EVERY)
def test_they_import_kfp_alone(stage: str) -> None:
    tree = ast.parse((COMPONENTS / stage / "component.py").read_text())
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    assert sorted(modules) == ["kfp", "kfp.dsl", "os"], modules


@pytest.mark.parametrize("stage", EVERY)
def test_every_argument_has_a_text(stage: str) -> None:
    tree = ast.parse((COMPONENTS / stage / "component.py").read_text())
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    described = re.findall(r"^    (\w+): ", ast.get_docstring(function) or "", re.MULTILINE)
    assert described == [argument.arg for argument in function.args.args]
