"""GitHub's workflows as far as they can be read here, and what documents say can be installed."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helpers import REPOSITORY

INSTALL = (REPOSITORY / "docs" / "install.md").read_text(encoding="utf-8")
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))


def _steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def _makefile() -> str:
    files = [REPOSITORY / "Makefile", *sorted((REPOSITORY / "make").glob("*.mk"))]
    return "".join(file.read_text(encoding="utf-8") for file in files)


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


def test_documents_install_what_a_workflow_publishes() -> None:
    published = [workflow.stem for workflow in WORKFLOWS if "gh-action-pypi-publish@" in workflow.read_text()]
    assert published == ["release"]
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    pages = "".join((REPOSITORY / path).read_text(encoding="utf-8") for path in listed.stdout.splitlines())
    named = {
        extra for names in re.findall(r"pip install '(?:\.|pairmill)\[([a-z,]+)\]", pages) for extra in names.split(",")
    }
    assert len(named) >= 4
    assert named <= {*extras}
    listed_extras = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", INSTALL, re.MULTILINE))))
    assert listed_extras == {*extras} - {"curate", "dev"}  # what images take, what developers take


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_others_wrote_is_named_by_its_digest(workflow: Path) -> None:
    used = [step["uses"] for step in _steps(workflow) if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)] == []


def test_what_publishes_runs_nothing_of_the_repository() -> None:
    jobs = {
        f"{workflow.stem} {name}": job
        for workflow in WORKFLOWS
        for name, job in yaml.safe_load(workflow.read_text())["jobs"].items()
        if "id-token" in job.get("permissions", {})
    }
    assert {*jobs} == {"release publish", "site deploy"}
    for job in jobs.values():
        assert job["environment"]
        assert job["if"].startswith("github.ref")
        assert not [step for step in job["steps"] if "run" in step or "checkout" in step["uses"]]


def test_each_folder_of_tests_is_run_by_one_job() -> None:
    makefile = _makefile()
    listed = re.search(r"^TESTS := \$\(addprefix tests/,(.*)\)$", makefile, re.MULTILINE)
    assert listed
    jobs = yaml.safe_load((REPOSITORY / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    halves = [half.split() for half in jobs["test"]["strategy"]["matrix"]["tests"]]
    assert sorted(folder for half in halves for folder in half) == sorted(f"tests/{one}" for one in listed[1].split())
    # Without a file for `make test-serial` a half would run the other's.
    for half in halves:
        texts = [path.read_text() for folder in half for path in (REPOSITORY / folder).rglob("test_*.py")]
        assert any("mark.serial" in text for text in texts), half


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_is_made_is_a_target(workflow: Path) -> None:
    makefile = _makefile()
    targets = {*re.findall(r"^([a-z-]+):", makefile, re.MULTILINE)}
    lines = [line for step in _steps(workflow) for line in step.get("run", "").splitlines()]
    made = [word for line in lines if "make " in line for word in line.split("make ", 1)[1].split()]
    wanted = {word for word in made if re.fullmatch("[a-z-]+", word)}
    assert wanted
    assert wanted <= targets


def test_what_is_kept_from_run_to_run_depends_on_lock_files() -> None:
    kept = [step["with"] for step in _steps(WORKFLOWS[0]) if step.get("uses", "").startswith("actions/cache@")]
    assert WORKFLOWS[0].stem == "ci"
    assert len(kept) >= 3
    for options in kept:
        (files,) = re.findall(r"hashFiles\((.*)\)", options["key"])
        for pattern in re.findall(r"'([^']+)'", files):
            assert list(REPOSITORY.glob(pattern)), pattern
