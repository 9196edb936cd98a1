"""The pipeline on a Kubeflow Pipelines that is there already: which one, the environment says."""

import json
import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest
import yaml

from pairmill import storage
from pairmill.interface.launcher import SECRETS
from pairmill.kubeflow.submit import state
from pairmill.kubeflow.submit.server import Server, ServerConfig
from pairmill.line import stages
from tests.support.helpers import REPOSITORY
from tests.support.kubernetes.cluster.rig import SECRET, require, say
from tests.support.processes.nursery import PIPELINES, shared

OPTIONS = {"vocab_size": 512, "epochs": 2}
"""Of the runs, here and there."""
STAGES = tuple(name.replace("_", "-") for name in stages.STAGES)
"""Tasks that end a stage, as Kubeflow calls them."""
SHARED = ("clean", "curate", "select", "train-tokenizer", "tokenize")
"""Those whose work is shared out over pods."""
SECONDS = 3600
"""That a run may take: pulling its images on a new cluster included."""
_ENDPOINTS = {"gs": "STORAGE_EMULATOR_HOST", "s3": "AWS_ENDPOINT_URL", "minio": "AWS_ENDPOINT_URL"}
_KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS"


@dataclass(frozen=True)
class Given:
    """Everything that differs between installations.

    Args:
        host: address of Kubeflow Pipelines.
        image: of every stage.
        root: URI below which the tests make a folder of their own.
        workers: pods that share the work of a stage.
        namespace: of the pipeline's pods.
        endpoint: of the object store, as pods reach it; empty = as this process does.
        keep: whether what the tests make below ``root`` stays.
        options: more options of every submission.
        sampler_image: of the node sampler; empty = there is no cluster to try it on.
    """

    host: str
    image: str
    root: str
    workers: int
    namespace: str
    endpoint: str
    keep: bool
    options: list[str]
    sampler_image: str


def given() -> Given:
    """Read the environment; what is missing fails with what to set."""
    wanted = {
        "KFP": "address of Kubeflow Pipelines, as http://127.0.0.1:8888 behind a kubectl port-forward",
        "IMAGE": "of the pipeline, by digest, or by a tag that is on the cluster's nodes already (not latest)",
        "ROOT": "gs://, s3:// or minio://<bucket>/<folder> that this process and the cluster's pods reach",
    }
    if os.environ.get("KUBECONFIG"):
        wanted["SAMPLER_IMAGE"] = "of the node sampler, named as IMAGE is; or without it unset KUBECONFIG"
    require(wanted)
    root = os.environ["ROOT"].rstrip("/")
    if storage.scheme(root) not in _ENDPOINTS:
        pytest.fail(f"ROOT={root} is no bucket that pods reach: gs://, s3:// or minio:// is expected", pytrace=False)
    workers = os.environ.get("WORKERS") or "2"
    if not workers.isdecimal() or workers == "0":
        pytest.fail(f"WORKERS={workers} is no number of pods: 1 or more is expected", pytrace=False)
    return Given(
        os.environ["KFP"],
        os.environ["IMAGE"],
        root,
        int(workers),
        os.environ.get("NAMESPACE") or "kubeflow",
        os.environ.get("ENDPOINT", ""),
        bool(os.environ.get("KEEP")),
        os.environ.get("OPTIONS", "").split(),
        os.environ["SAMPLER_IMAGE"] if os.environ.get("KUBECONFIG") else "",
    )


def credentials(of: Given) -> dict[str, str]:
    """What the pods' secret holds: those of this environment that the compiled pipeline reads from it."""
    compiled = REPOSITORY / "pipelines/compiled/pretraining.yaml"
    platform = list(yaml.safe_load_all(compiled.read_text()))[1]["platforms"]["kubernetes"]["deploymentSpec"]
    executor = next(iter(platform["executors"].values()))
    (secret,) = (one for one in executor["secretAsEnv"] if one["secretName"] == SECRET)
    names = [pair["secretKey"] for pair in secret["keyToEnv"]]
    found = {name: os.environ[name] for name in names if os.environ.get(name)}
    # A process may have an endpoint for S3 alone.
    if os.environ.get("AWS_ENDPOINT_URL_S3"):
        found["AWS_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL_S3"]
    if of.endpoint:
        found[_ENDPOINTS[storage.scheme(of.root)]] = of.endpoint
    if _KEY_FILE in found:
        found["key.json"] = Path(found[_KEY_FILE]).read_text()
        found[_KEY_FILE] = f"{SECRETS}/key.json"
    return found


@dataclass
class Done:
    """A submission that has ended: its exit code, the id of its run, and what it said."""

    code: int
    run: str
    said: list[str] = field(default_factory=list)


def submit(of: Given, **options: object) -> Done:
    """Submit the pipeline and wait for the run, saying what the submission says."""
    ours: dict[str, object] = {
        "host": of.host,
        "namespace": of.namespace,
        "image": of.image,
        "allow_tag": "true",
        "experiment": "pairmill-cluster-test",
        "workers": of.workers,
        "cpu": "100m",
        "timeout": SECONDS,
        "on_timeout": "terminate",
        **OPTIONS,
    }
    arguments = [f"{name}={value}" for name, value in (ours | options).items()]
    environment = {**os.environ, "PAIRMILL_LOG": "json"}
    read, write = os.pipe()
    with TemporaryFile("w+") as stdout, open(read) as stderr:
        submission = shared(PIPELINES)
        process = submission.start(
            "pairmill", ["submit", *arguments, *of.options], environment, (stdout.fileno(), write)
        )
        os.close(write)
        said = []
        for line in stderr:
            said.append(json.loads(line)["message"] if line.startswith("{") else line.rstrip())
            say(f"  {said[-1]}")
        code = process.wait()
        stdout.seek(0)
        return Done(code, stdout.read().strip(), said)


def logs(of: Given, run: str) -> dict[str, str]:
    """The ends of the logs of a run's tasks that end a stage, by their names."""
    options = dict(option.split("=", 1) for option in of.options)
    known = {name: options[name] for name in ("token_file", "ca_file") if name in options}
    server = Server(ServerConfig(host=of.host, namespace=of.namespace, **known))
    end = time.monotonic() + 60
    while True:
        found: Any = server.client.get_run(run)
        nodes = {task.label: task.node for task in state.tasks(found, datetime.now(UTC)) if task.label in STAGES}
        # The server writes the states of the last tasks some seconds after that of the run.
        if all(nodes.get(stage) for stage in STAGES) or time.monotonic() > end:
            return {label: server.log_tail(run, node) for label, node in nodes.items()}
        time.sleep(1)
