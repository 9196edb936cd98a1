"""Every manifest, and the status that a training posts, before a real API server that has the schemas of all kinds."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pairmill.stages.train.watch.trainjob import TrainJob
from tests.contract.test_manifests import FOLDERS, MANIFESTS
from tests.support.kubernetes.cluster.rig import Cluster, Doc, require, say
from tests.support.servers.posts import Posts

NAMESPACES = ("pairmill", "team", "kubeflow")
"""What the manifests are for."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    wanted = (
        "files, folders or addresses of the custom resources' definitions: Trainer's, Training Operator's, Prometheus'"
    )
    require({"KUBECONFIG": "of a cluster that nobody works on", "CRDS": wanted})
    cluster = Cluster("", tmp_path_factory.mktemp("cluster"))
    cluster.refuse_used(*NAMESPACES)
    files = [f"--filename={each}" for each in os.environ["CRDS"].split()]
    try:
        cluster.kubectl("apply", "--server-side", *files)
        cluster.kubectl("wait", "crd", "--all", "--for=condition=established", "--timeout=60s")
        for namespace in NAMESPACES:
            cluster.kubectl("create", "namespace", namespace)
        yield cluster
    finally:
        # With a definition its objects go too.
        cluster.kubectl("delete", "--ignore-not-found", *files)
        for namespace in NAMESPACES:
            cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--timeout=120s")


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_server_takes_a_folder_of_manifests(cluster: Cluster, tmp_path: Path, folder: str) -> None:
    given = tmp_path / "given.yaml"
    given.write_text(cluster.kubectl("kustomize", str(MANIFESTS / folder)))
    kinds = [doc["kind"].lower() for doc in yaml.safe_load_all(given.read_text())]
    apply = ("apply", "--server-side", "--dry-run=server", "--validate=strict", f"--filename={given}")
    taken = [line.partition("/")[0].partition(".")[0] for line in cluster.kubectl(*apply).splitlines()]
    assert sorted(taken) == sorted(kinds)
    say(f"{folder}: {len(kinds)} objects")


def status_of(cluster: Cluster, folder: Path, status: Doc) -> Doc:
    """The status of the example's TrainJob, once it was applied as Trainer's server of statuses does."""
    name = {"name": "pairmill-torch", "namespace": "team"}
    path = folder / "status.yaml"
    doc = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": name, "status": status}
    path.write_text(yaml.safe_dump(doc))
    who = ("--field-manager=trainer-status", "--force-conflicts")
    cluster.kubectl("apply", "--server-side", "--subresource=status", *who, f"--filename={path}")
    found: Doc = cluster.get("trainjob", name["name"], f"--namespace={name['namespace']}")
    return dict(found["status"])


def test_the_status_of_a_trainjob_is_what_a_training_posts(cluster: Cluster, tmp_path: Path) -> None:
    cluster.kubectl("apply", "--kustomize", str(MANIFESTS / "examples" / "team"))
    (tmp_path / "token").write_text("t")
    variables = {"CA_CERT": "", "TOKEN": str(tmp_path / "token")}
    with Posts() as posts:
        variables["URL"] = f"{posts.url}/status"
        job = TrainJob(10, 0, {f"KUBEFLOW_TRAINER_SERVER_{name}": value for name, value in variables.items()})
        job.write({"kind": "step", "step": 4, "loss": 2.5, "lr": 1e-4})
        # More metrics than a status has room for, with the longest names.
        job.write({"kind": "step", "step": 10, **{f"loss/{number:0>59}": -1.2345678e-30 for number in range(300)}})
    for value in posts.values:
        assert status_of(cluster, tmp_path, value) == value
    first, last = (value["trainerStatus"] for value in posts.values)
    assert (first["progressPercentage"], last["progressPercentage"], len(last["metrics"])) == (40, 100, 256)
    say(json.dumps(first))
    # The schema is in force: one more is refused.
    last["metrics"].append({"name": "one", "value": "1"})
    with pytest.raises(
        AssertionError, match=r"status.trainerStatus.metrics: Too many: 257: must have at most 256 items"
    ):
        status_of(cluster, tmp_path, {"trainerStatus": last})
