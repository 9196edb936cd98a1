"""GitHub's workflows as far as they can be read here, and what documents say can be installed."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helpers import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def _steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_a_checkout_leaves_no_token_to_what_the_repository_runs(workflow: Path) -> None:
    checkouts = [step for step in _steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert checkouts
    assert all(step.get("with", {}).get("persist-credentials") is False for step in checkouts)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_is_built_as_root_finds_the_toolchain_of_the_user(workflow: Path) -> None:
    # rustup's proxies in PATH look for the toolchain below HOME, which sudo sets to root's.
    commands = [line for step in _steps(workflow) for line in step.get("run", "").splitlines() if "sudo env" in line]
    assert all('"HOME=$HOME"' in line for line in commands), commands


def test_nothing_is_said_to_be_installed_that_no_workflow_publishes() -> None:
    publishes = any(
        re.search(r"twine upload|maturin (publish|upload)|pypi-publish|docker push|podman push", str(step))
        for workflow in WORKFLOWS
        for step in _steps(workflow)
    )
    assert not publishes, "then documents may say pip install pairmill"
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "*.py", "*.yaml", ":!tests"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    claims = [
        f"{path}: {line.strip()}"
        for path in listed.stdout.splitlines()
        for line in (REPOSITORY / path).read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install [^#]*\bpairmill\[|pip install '?pairmill", line)
    ]
    assert not claims, claims
