"""Linters that nobody here wrote: of workflows, scripts, images and objects of Kubernetes. ``make lint-test``.

A finding that stays has its reason here. ``LINTERS`` is the folder of the programs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TOP = Path(__file__).parents[2]
LINTERS = Path(os.environ["LINTERS"])

SCRIPTS = [
    ".ci/run",
    *sorted(str(path.relative_to(TOP)) for root in ("images", "manifests") for path in (TOP / root).rglob("*.sh")),
]

KEPT = {
    "ImagePullPolicy is not set to Always": "images are named by digest: one that is there is the one that is meant",
    "CPU limit is not set": "a limit slows a process down on a node whose cores are idle; requests share them out",
    "Ephemeral Storage request is not set": "root is read-only, and volumes have limits of their own",
    "Ephemeral Storage limit is not set": "as its request",
    "The container is running with a low user ID": "prepare hands over the folder in /dev/shm: CAP_CHOWN alone",
    "The container running with a low group ID": "as its user",
    "The pod does not have a matching NetworkPolicy": "examples: what a trainer may reach is its user's to say",
    "CPU request is not set": "examples: an init container runs once and would reserve cores for the life of the pod",
    "Image with latest tag": "the base alone: each overlay names its image by digest",
}
"""Findings of kube-score, by their text, and why they stay."""


def run(program: str, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LINTERS / program, *words], cwd=TOP, capture_output=True, text=True, check=False)


def refuse(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


def test_shellcheck_finds_nothing() -> None:
    assert len(SCRIPTS) >= 5
    refuse(run("shellcheck", *SCRIPTS))


def test_actionlint_finds_nothing() -> None:
    workflows = sorted((TOP / ".github/workflows").glob("*.yml"))
    assert workflows
    refuse(run("actionlint", "-no-color", f"-shellcheck={LINTERS / 'shellcheck'}", *workflows))


def test_zizmor_finds_nothing() -> None:
    done = run("zizmor", "--offline", "--no-progress", ".github/workflows")
    refuse(done)
    assert "No findings to report" in done.stdout + done.stderr


def test_hadolint_finds_nothing() -> None:
    refuse(run("hadolint", "images/Dockerfile"))


def folders() -> list[str]:
    """Every folder of manifests that can be applied."""
    paths = (path for path in (TOP / "manifests").rglob("kustomization.yaml") if "script" not in path.parts)
    applied = (path for path in paths if yaml.safe_load(path.read_text())["kind"] == "Kustomization")
    return sorted(str(path.parent.relative_to(TOP)) for path in applied)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """What kube-score says of each folder, without the names of objects and containers."""
    result = {}
    for folder in folders():
        file = tmp_path_factory.mktemp("rendered") / "objects.yaml"
        with file.open("w") as output:
            subprocess.run(
                [Path(sys.executable).with_name("kubectl"), "kustomize", folder], cwd=TOP, stdout=output, check=True
            )
        lines = run("kube-score", "score", "--output-format=ci", file).stdout.splitlines()
        matches = (re.fullmatch(r"\[(?:CRITICAL|WARNING)\] \S+ \S+: (?:\([\w-]+\) )?(.*)", line) for line in lines)
        result[folder] = {match[1] for match in matches if match}
    return result


def test_kube_score_finds_what_has_a_reason_alone(findings: dict[str, set[str]]) -> None:
    assert {folder: texts - KEPT.keys() for folder, texts in findings.items() if texts - KEPT.keys()} == {}


def test_each_reason_is_for_a_finding(findings: dict[str, set[str]]) -> None:
    assert set(KEPT) - set().union(*findings.values()) == set()
