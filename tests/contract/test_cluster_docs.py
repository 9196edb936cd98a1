"""What a person reads before the first run on a cluster: examples are small, whole, and do as they say."""

import re
import shlex
import subprocess

import pytest
import yaml

from pairmill.interface import cli
from pairmill.kubeflow.compile import MAX_WORKERS, MAX_WORKERS_TRAINING
from pairmill.kubeflow.submit import command
from tests.support.helpers import REPOSITORY

DOCS = REPOSITORY / "docs"
SUBMITTING = (DOCS / "submitting.md").read_text()
OPERATIONS = (DOCS / "operations.md").read_text()


def commands(text: str, program: str) -> list[list[str]]:
    """Arguments of every call of a program in the code of a document."""
    code = "\n".join(line[4:] for line in text.splitlines() if line.startswith("    ")).replace("\\\n", " ")
    calls = [line for line in code.splitlines() if line.startswith(program)]
    return [shlex.split(line.removeprefix(program), comments=True) for line in calls]


@pytest.mark.parametrize("document", ["docs/submitting.md", "README.md"])
def test_the_first_example_of_submitting_is_small_and_taken(document: str) -> None:
    first = commands((REPOSITORY / document).read_text(), "pairmill submit")[0]
    given = cli.split([word for word in first if word != "…"])
    # Without sources= it would download every one that is known.
    assert given["sources"] not in {"", "all"}
    assert "," not in given["sources"]
    given["image"] = f"registry.example/x@sha256:{'0' * 64}"
    cli.build(command.SubmitConfig, given)


def test_what_make_images_leaves_can_be_submitted() -> None:
    first = SUBMITTING[: SUBMITTING.index("## Exit codes")]
    script = (REPOSITORY / "images" / "build.sh").read_text()
    assert "image=localhost/pairmill-$target:$version" in script
    assert "localhost/pairmill-pipeline:<version>" in first
    assert "push --digestfile" in first
    assert "allow_tag=true" in first


def test_retries_are_not_promised_on_a_stock_installation() -> None:
    said = OPERATIONS[OPERATIONS.index("**Retries.**") :]
    assert "workflow-controller-configmap" in said
    block = re.search(r"(?:^    .*\n)+", said, re.MULTILINE)
    assert block is not None
    defaults = yaml.safe_load(yaml.safe_load(block[0])["workflowDefaults"])
    # As the stock installation has it; the runs on record were made with and without it.
    assert defaults["spec"]["templateDefaults"]["retryStrategy"] == {"limit": 2, "retryPolicy": "OnError"}
    # tests/conformance/test_retries.py has what follows from either, by Argo's rules.
    assert "a stock one tries only pods that vanished" in OPERATIONS


def test_how_a_run_is_started_from_an_applied_version_is_said() -> None:
    said = SUBMITTING[SUBMITTING.index("## GitOps") : SUBMITTING.index("## Tokens")]
    compile_it, submit_it = commands(said, "pairmill compile"), commands(said, "pairmill submit")
    assert cli.split(compile_it[0])["form"] == "manifests"
    assert cli.split([word for word in submit_it[0] if word != "…"])["version"].startswith("pairmill-pretraining-")


def test_no_document_makes_a_namespace_that_is_applied_afterwards() -> None:
    # kubectl apply warns of an object that something else created.
    documents = [REPOSITORY / "README.md", *DOCS.rglob("*.md"), *(REPOSITORY / "manifests").rglob("*.md")]
    assert not [str(file) for file in documents if "kubectl create namespace" in file.read_text()]
    named = re.findall(r"kubectl apply -f (\S+)", OPERATIONS)
    assert named
    assert all((REPOSITORY / name).is_file() for name in named)


def test_the_most_workers_are_said() -> None:
    assert f"({MAX_WORKERS} at most, {MAX_WORKERS_TRAINING} with `train=true`)" in SUBMITTING
    assert f"(2 to {MAX_WORKERS}; 2 to {MAX_WORKERS_TRAINING} with `train=true`)" in OPERATIONS
    decision = (DOCS / "decisions" / "0049-weight-of-a-run.md").read_text()
    assert f"`MAX_WORKERS` is {MAX_WORKERS}, and {MAX_WORKERS_TRAINING} with `train=true`" in decision


def test_pip_says_nothing_in_a_demo() -> None:
    # maturin has pip install the package's dependencies anew, and pip names each that other systems need.
    done = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    calls = [line for line in done.stdout.splitlines() if "maturin develop" in line or "pip install" in line]
    assert len(calls) > 1
    assert all("PIP_QUIET=1" in line or "--quiet" in line.partition("pip install")[2] for line in calls)
