"""A stage that an Indexed Job shares out on a real Kubernetes, while pods of it are deleted: the bytes of one process.

And the role that starts it: tried by what it must not be able to do.
"""

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill import storage
from pairmill.kubeflow.pods import VARIABLE, JobConfig
from tests.support import tools
from tests.support.data.results import upload
from tests.support.kubernetes.cluster.rig import SECRET, Cluster, Doc, ReachableS3, require, say, until

NAMESPACE = "pairmill-jobs-test"
ACCOUNT = "pipeline-runner"
PODS = "--selector=app.kubernetes.io/name=pairmill-share"
HERE = f"--namespace={NAMESPACE}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require({"KUBECONFIG": "of a cluster that nobody works on", "IMAGE": "of the pipeline, that its nodes have"})
    cluster = Cluster(os.environ["IMAGE"], tmp_path_factory.mktemp("cluster"))
    cluster.refuse_used(NAMESPACE)
    cluster.kubectl("create", "namespace", NAMESPACE)
    try:
        cluster.kubectl("create", "serviceaccount", ACCOUNT, HERE)
        role = cluster.kubectl("kustomize", "manifests/base/jobs").replace(
            "namespace: kubeflow", f"namespace: {NAMESPACE}"
        )
        path = tmp_path_factory.mktemp("role") / "role.yaml"
        path.write_text(role)
        cluster.kubectl("apply", f"--filename={path}")
        yield cluster
    finally:
        cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s")


@pytest.fixture(scope="module")
def store(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReachableS3]:
    with ReachableS3(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment().items():
            patch.setenv(name, value)
        storage.forget()
        cluster.put_secret(NAMESPACE, server.secret(cluster))
        yield server
    storage.forget()


def raw_files(folder: Path, modules: int) -> Path:
    """Make raw files of dmmath, each of which is a shard."""
    source = random.Random(7)
    for subset in ("train-easy", "train-medium", "train-hard"):
        for module in range(modules):
            path = folder / "dmmath" / "mathematics_dataset-v1.0" / subset / f"module_{module}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            sums = [(source.randrange(10**6), source.randrange(10**6)) for _ in range(50)]
            path.write_text("".join(f"What is {a} + {b}?\n{a + b}\n" for a, b in sums))
    return folder


def watcher(cluster: Cluster, name: str, config: JobConfig, options: dict[str, str]) -> Doc:
    """Return the pod that starts a Job, as Kubeflow would: with a token."""
    here = {"name": "KFP_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    container = {
        "name": "main",
        "image": cluster.image,
        "args": ["clean", *(f"{key}={value}" for key, value in options.items())],
        "env": [{"name": VARIABLE, "value": config.dump()}, {"name": "PAIRMILL_JOB_POLL", "value": "1"}, here],
        "envFrom": [{"secretRef": {"name": SECRET}}],
    }
    spec = {"restartPolicy": "Never", "serviceAccountName": ACCOUNT, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def test_pods_that_are_deleted_at_will_and_a_watcher_that_is_give_the_bytes_of_one_process(
    cluster: Cluster, store: ReachableS3, tmp_path: Path
) -> None:
    shares = int(os.environ.get("SHARES") or 64)
    root = f"{store.bucket()}/root"
    raw = upload(raw_files(tmp_path / "raw", shares), f"{store.bucket()}/raw")
    fetched = tools.ended(tools.stage("fetch", raw=raw, root=root, sources="dmmath")).out.splitlines()[-1]
    given = {"raw": fetched}
    expected = tools.ended(tools.stage("clean", root=tmp_path / "alone", **given)).out.strip()

    # So much of the node is asked for by each that most wait for it.
    config = JobConfig(shares=shares, image=cluster.image, cpu="500m", memory="8Gi", scratch="1Gi", retries=0)
    start, deleted, over = time.monotonic(), 0, threading.Event()
    cluster.put(NAMESPACE, watcher(cluster, "watcher-0", config, {**given, "root": root}), "create")

    def disturb() -> None:
        nonlocal deleted
        source = random.Random(1)
        while not over.wait(1):
            names = cluster.get("pods", PODS, "--field-selector=status.phase=Running", HERE)["items"]
            for pod in source.sample(names, min(2, len(names))):
                force = ["--force"] if deleted % 2 else []
                done = cluster.try_kubectl(
                    "delete", "pod", pod["metadata"]["name"], HERE, "--grace-period=0", "--wait=false", *force
                )
                deleted += not done.returncode
                if deleted > shares // 2:
                    return

    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        (job,) = until(lambda: cluster.get("jobs", HERE)["items"], "the Job is there")
        until(lambda: deleted > 3, "some pods were deleted", 600)
        cluster.kubectl("delete", "pod", "watcher-0", HERE, "--grace-period=0", "--force")
        cluster.put(NAMESPACE, watcher(cluster, "watcher-1", config, {**given, "root": root}), "create")

        def ended() -> str:
            phase: str = cluster.get("pod", "watcher-1", HERE)["status"]["phase"]
            return phase if phase in {"Succeeded", "Failed"} else ""

        state = until(ended, "the watcher ends", 1800, 2)
    finally:
        over.set()
        disturber.join()
    log = cluster.kubectl("logs", "watcher-1", HERE)
    assert state == "Succeeded", log
    assert "found running, and watched from here on" in log
    assert f"all {shares} shares are done" in log
    assert cluster.get("jobs", HERE)["items"] == []
    (result,) = (line for line in log.splitlines() if line.startswith(f"{root}/clean/"))
    read = storage.store_for(result).read
    for path in ("_MANIFEST.json", *(entry.path for entry in storage.store_for(result).list(result))):
        if path != "report.html":
            assert read(f"{result}/{path}") == (Path(expected) / path).read_bytes(), path
    seconds = time.monotonic() - start
    say(f"{shares} shares, {deleted} pods and a watcher deleted: the bytes of one process after {seconds:.0f} s")
    assert job["spec"]["completions"] == shares


@pytest.mark.parametrize(
    ("verb", "what", "allowed"),
    [
        ("create", "jobs.batch", True),
        ("get", "jobs.batch", True),
        ("delete", "jobs.batch", True),
        ("list", "pods", True),
        ("get", "pods/log", True),
        ("list", "events", True),
        ("create", "pods", False),
        ("delete", "pods", False),
        ("create", "pods/exec", False),
        ("patch", "jobs.batch", False),
        ("update", "jobs.batch", False),
        ("list", "jobs.batch", False),
        ("get", "secrets", False),
        ("list", "secrets", False),
        ("get", "configmaps", False),
        ("create", "rolebindings.rbac.authorization.k8s.io", False),
        ("create", "serviceaccounts/token", False),
    ],
)
def test_the_role_can_do_what_it_is_for_and_nothing_else(cluster: Cluster, verb: str, what: str, allowed: bool) -> None:
    who = f"--as=system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    done = cluster.try_kubectl("auth", "can-i", verb, *what.split("/", 1)[:1], *_sub(what), who, HERE)
    assert done.stdout.strip() == ("yes" if allowed else "no"), done.stderr
    elsewhere = cluster.try_kubectl("auth", "can-i", verb, what.split("/")[0], *_sub(what), who, "--namespace=default")
    assert elsewhere.stdout.strip() == "no"


def _sub(what: str) -> list[str]:
    return [f"--subresource={what.partition('/')[2]}"] if "/" in what else []


def test_without_the_role_the_task_says_what_the_server_forbids(
    cluster: Cluster, store: ReachableS3, tmp_path: Path
) -> None:
    cluster.kubectl("delete", "rolebinding", "pairmill-jobs", HERE)
    config = JobConfig(shares=2, image=cluster.image, cpu="100m", memory="1Gi", scratch="1Gi")
    root = f"{store.bucket()}/other"
    raw = upload(raw_files(tmp_path / "raw", 1), f"{store.bucket()}/few")
    fetched = tools.ended(tools.stage("fetch", raw=raw, root=root, sources="dmmath")).out.splitlines()[-1]
    pod = watcher(cluster, "forbidden", config, {"raw": fetched, "root": root})
    cluster.put(NAMESPACE, pod, "create")

    def code() -> int | None:
        statuses = cluster.get("pod", "forbidden", HERE)["status"].get("containerStatuses", [{}])
        ended = statuses[0].get("state", {}).get("terminated")
        return ended and ended["exitCode"]

    assert until(lambda: code() is not None and [code()], "it ends", 300) == [4]
    log = cluster.kubectl("logs", "forbidden", HERE)
    assert 'cannot get resource \\"pods\\"' in log or 'cannot create resource \\"jobs\\"' in log
    assert "manifests/base/jobs" in log
