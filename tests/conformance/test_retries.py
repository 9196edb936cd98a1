"""What Argo tries again, by its rules, of pods as they were recorded: on a stock installation and on a mended one."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.helpers import REPOSITORY

Doc = dict[str, Any]


def _settings() -> tuple[Doc, Doc]:
    """The retry strategy of a stock installation and the mended one, as docs/operations.md says."""
    page = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    block = re.search(r"    workflowDefaults: \|\n((?: {6,}.*\n)+)", page)
    mended = re.search(r"<!-- retries -->\n\n((?: {6}.*\n)+)", page)
    assert block
    assert mended
    stock: Doc = yaml.safe_load(block[1])["spec"]["templateDefaults"]["retryStrategy"]
    return stock, {**stock, **yaml.safe_load(mended[1])}


def _is_tried_again(strategy: Doc, node: Doc) -> bool:
    """As processNodeRetries of Argo 4.0.5 (workflow/controller/operator.go), for a first attempt that failed."""
    policy = strategy.get("retryPolicy") or ("Always" if "expression" in strategy else "OnFailure")
    allowed = {"Always": {"Failed", "Error"}, "OnFailure": {"Failed"}, "OnError": {"Error"}}[policy]
    if node["phase"] not in allowed:
        return False
    if "expression" not in strategy:
        return True
    # `or`, `==` and quoted texts mean the same to Python as to Argo's language.
    last = {"lastRetry.status": node["phase"], "lastRetry.exitCode": node.get("exit_code") or "-1"}
    text = strategy["expression"]
    for name, value in last.items():
        text = text.replace(name, repr(value))
    assert re.fullmatch(r"(('[\w-]+') == ('[\w-]+')( or )?)+", text), text
    return any(left == right for left, right in re.findall(r"'([\w-]+)' == '([\w-]+)'", text))


def _failed(shared: Path, name: str) -> Doc:
    record = json.loads((shared / "conformance" / "kubeflow" / "recorded" / f"{name}.json").read_text())
    found: Doc = next(node for node in record["failed_nodes"] if node["type"] == "Pod")
    return found


def test_the_default_is_the_one_that_recorded_runs_had(shared: Path) -> None:
    path = shared / "conformance" / "kubeflow" / "sizes" / "workflow-holdout.json.gz"
    workflow = json.loads(gzip.decompress(path.read_bytes()))
    found = workflow["spec"]["templateDefaults"]["retryStrategy"]
    stock, _ = _settings()
    assert {name: str(value) for name, value in stock.items()} == found
    # kfp's retries name no policy, so that the default's is merged into them.
    (task,) = (one for one in workflow["spec"]["templates"] if one["name"] == "retry-system-container-impl")
    assert set(task["retryStrategy"]) == {"limit", "backoff"}


@pytest.mark.parametrize(
    ("name", "phase", "stock", "mended"),
    [
        ("pod-deleted", "Failed", False, True),
        ("pod-deleted-traced", "Failed", False, True),
        ("timeout", "Failed", False, True),
        ("empty-dir-over-limit", "Failed", False, True),
        # What would only fail again: wrong options and missing input, a program that dies, too little memory.
        ("exit-3", "Failed", False, False),
        ("killed-9", "Failed", False, False),
        ("oom", "Failed", False, False),
        ("oom-child", "Failed", False, False),
        # What Argo calls an error, here a pod that it could not make.
        ("output-64k", "Error", True, True),
    ],
)
def test_what_is_tried_again(shared: Path, name: str, phase: str, stock: bool, mended: bool) -> None:
    node = _failed(shared, name)
    assert node["phase"] == phase
    of_stock, of_mended = _settings()
    assert _is_tried_again(of_stock, node) == stock
    assert _is_tried_again(of_mended, node) == mended
    # Without a default, kfp's own retries, which name no policy.
    assert _is_tried_again({}, node) == (phase == "Failed")


def test_a_level_of_the_workflow_is_not_done_again_for_a_task_that_failed() -> None:
    # The default is that of every template, so of the graphs around tasks too; they have no exit code.
    assert not _is_tried_again(_settings()[1], {"phase": "Failed"})
