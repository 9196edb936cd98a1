"""Our components in a checkout of kubeflow/pipelines-components, under that repository's own checks.

``make components-test CHECKOUT=<folder>``. Nothing of that repository is part of this one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pairmill.line.stages import EVERY

COMPONENTS = Path(__file__).parents[2] / "components"


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with our components in it, each as a contribution would bring it."""
    copy = tmp_path_factory.mktemp("snapshot") / "checkout"
    shutil.copytree(os.environ["CHECKOUT"], copy, ignore=shutil.ignore_patterns(".git"))
    for stage in EVERY:
        folder = copy / "components" / "data_processing" / stage
        folder.mkdir()
        for name in ("component.py", "metadata.yaml", "OWNERS"):
            shutil.copy(COMPONENTS / stage / name, folder)
        (folder / "__init__.py").write_text(f'from .component import {stage}\n\n__all__ = ["{stage}"]\n')
    return copy


def check(checkout: Path, *command: str) -> str:
    """Run one of the repository's checks in the copy, and return what it printed."""
    done = subprocess.run([sys.executable, *command], cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.mark.parametrize("stage", EVERY)
def test_its_checks_pass(checkout: Path, stage: str) -> None:
    folder = f"components/data_processing/{stage}"
    check(checkout, "-m", "scripts.validate_metadata.validate_metadata", "--dir", folder)
    compiled = check(checkout, "-m", "scripts.compile_check.compile_check", "--include-flagless", "--path", folder)
    assert "No targets" not in compiled
    imports = ".github/scripts/check_imports"
    check(checkout, f"{imports}/check_imports.py", "--config", f"{imports}/import_exceptions.yaml", folder)


@pytest.mark.parametrize("stage", EVERY)
def test_its_readme_tells_of_every_argument(checkout: Path, stage: str) -> None:
    folder = f"components/data_processing/{stage}"
    check(checkout, "-m", "scripts.generate_readme", "--component", folder, "--fix")
    check(checkout, "-m", "scripts.generate_readme", "--component", folder)
    readme = (checkout / folder / "README.md").read_text()
    for name in ("root", "output", "fingerprint", "report"):
        row = next(line for line in readme.splitlines() if line.startswith(f"| `{name}` |"))
        assert row.rstrip(" |").rsplit("|", 1)[1].strip() not in ("", "None"), row
