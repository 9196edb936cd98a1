"""The compiled pipeline on a real Kubeflow Pipelines, submitted as from CI, and the node sampler with the plan that it
made. Results are those of a run on this machine. In order: each test goes on where the one before ended.
"""

import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from pairmill import storage
from tests.support import tools
from tests.support.data.results import manifests, upload
from tests.support.helpers import python
from tests.support.kubernetes.cluster.rig import NAMESPACE, NODE_FOLDER, SECRET, Cluster, say
from tests.support.kubernetes.cluster.submission import (
    OPTIONS,
    SHARED,
    STAGES,
    Done,
    Given,
    credentials,
    given,
    logs,
    submit,
)

REFUSED, FAILED = 2, 6
"""Exit codes of a submission that was refused, and of one whose run failed: docs/submitting.md."""
NODE = "/dev/shm/pairmill-cluster-test"
"""In the place of the sampler's folder of a node, which may hold somebody's samples."""


@dataclass
class World:
    """What the tests work with: raw files as objects, a project folder, and the manifests that are expected in it."""

    given: Given
    cluster: Cluster | None
    raw: str
    root: str
    manifests: dict[str, bytes]

    def submit(self, **options: object) -> Done:
        """A submission on these raw files, unless ``raw`` says otherwise."""
        return submit(self.given, **{"raw": self.raw, "root": self.root, **options})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    of, folder = given(), tmp_path_factory.mktemp("pipeline")
    cluster = Cluster(of.sampler_image, folder) if of.sampler_image else None
    if cluster is not None:
        cluster.refuse_used(NAMESPACE)
    start = time.monotonic()
    made = python("examples/make_raw.py", str(folder / "raw"))
    assert made.returncode == 0, made.stderr
    tools.ended(tools.stage("run", raw=folder / "raw", root=folder / "root", **OPTIONS))
    expected = manifests(str(folder / "root"))
    say(f"the run on this machine: {len(expected)} folders of results in {time.monotonic() - start:.1f} s")

    ours = f"{of.root}/cluster-test-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
    put = False
    try:
        raw = upload(folder / "raw", f"{ours}/raw")
        say(f"raw files at {raw}")
        if cluster is not None:
            put = give_credentials(cluster, of)
        else:
            say(f"no KUBECONFIG: pods have what the secret {SECRET} of {of.namespace} holds, if it is there")
        yield World(of, cluster, raw, f"{ours}/project", expected)
    finally:
        if put and cluster is not None:
            cluster.kubectl("delete", "secret", SECRET, f"--namespace={of.namespace}")
        if of.keep:
            say(f"KEEP: {ours} stays")
        else:
            store = storage.store_for(ours)
            for entry in store.list(ours):
                store.delete(f"{ours}/{entry.path}")
            say(f"removed {ours}")


def give_credentials(cluster: Cluster, of: Given) -> bool:
    """Make the secret of the pipeline's pods; one that is there stays."""
    values = credentials(of)
    if cluster.try_kubectl("get", "secret", SECRET, f"--namespace={of.namespace}").returncode == 0:
        say(f"the secret {SECRET} of {of.namespace} is there already, and used as it is")
        return False
    if values:
        cluster.put_secret(of.namespace, values)
        say(f"secret {SECRET} in {of.namespace}, with {', '.join(sorted(values))}")
    return bool(values)


def labels(workers: int) -> list[str]:
    """What a submission calls the tasks of a run."""
    # The task that finishes a stage is one of the pods; kfp numbers the others from the second on.
    numbers = ["", *(f"-{number}" for number in range(2, workers))] if workers > 1 else []
    return [*STAGES, *(f"{name}-share{number}" for name in SHARED for number in numbers)]


def test_the_run_gives_what_this_machine_gives(world: World) -> None:
    start = time.monotonic()
    done = world.submit()
    assert done.code == 0
    assert done.said[-1] == f"run {done.run} succeeded"
    ended = [text.partition(": SUCCEEDED after ")[0] for text in done.said if ": SUCCEEDED after " in text]
    # Every task once, under its stage's name, whatever the installation wraps around it.
    assert sorted(ended) == sorted(labels(world.given.workers)), done.said
    assert manifests(world.root) == world.manifests
    shown = f"{len(world.manifests)} manifests are byte for byte those of this machine"
    say(f"{world.given.workers} workers, {time.monotonic() - start:.0f} s: {shown}")


def test_submitted_again_it_does_nothing(world: World) -> None:
    store = storage.store_for(world.root)
    before = store.list(world.root)
    start = time.monotonic()
    done = world.submit()
    assert done.code == 0
    assert store.list(world.root) == before
    found = logs(world.given, done.run)
    assert set(found) == set(STAGES)
    for stage, log in found.items():
        assert "reused, nothing to do" in log, f"{stage}:\n{log}"
    say(f"submitted again, {time.monotonic() - start:.0f} s: every stage was reused, and no object was made")


def test_a_run_that_fails_says_why(world: World) -> None:
    absent = f"{world.root}-nothing-here"
    done = world.submit(raw=absent, retries=0)
    assert done.code == FAILED
    (told,) = (text for text in done.said if " failed; " in text and not text.startswith("run "))
    assert told.startswith("fetch failed; the end of its log:\n")
    # The reason as the program says it, and nothing of what Kubeflow's own programs write beside it.
    assert absent in told.splitlines()[-1]
    assert not any(word in told for word in ("launcher_v2.go", "main.go", "ComponentSpec", "ExecutorOutput"))
    assert "failed tasks: fetch;" in done.said[-1]
    say(f"raw files that are not there: exit {done.code}, with the log of the task")


def test_what_no_pod_would_take_is_refused_here(world: World) -> None:
    for option, wrong in (("epochs", 0), ("vocab_size", 3), ("profile", "nonsense"), ("root", "ftp://x")):
        done = world.submit(**{option: wrong})
        assert (done.code, done.run) == (REFUSED, ""), option
        assert done.said[-1].startswith(f"{option}: ")


def test_a_node_samples_the_plan(world: World) -> None:
    cluster = world.cluster
    if cluster is None:
        say("no KUBECONFIG: the node sampler was not tried")
        return
    (plan,) = (path.split("/")[1] for path in world.manifests if path.startswith("sample/"))
    nodes = [one["metadata"] for one in cluster.get("nodes")["items"] if not one["spec"].get("taints")]
    assert nodes, "every node has a taint"
    name = nodes[0]["labels"]["kubernetes.io/hostname"]
    cluster.kubectl("create", "namespace", NAMESPACE)
    try:
        cluster.put_secret(NAMESPACE, credentials(world.given))
        cluster.sampler_of_bucket(plan, world.root, None, node=name, folder=NODE)
        pod = cluster.rolled_out(plan)
        verify = ["python", "-m", "pairmill", "sample", "verify", f"path={NODE_FOLDER}"]
        where = ["exec", pod["metadata"]["name"], "--container=report", f"--namespace={NAMESPACE}", "--"]
        assert cluster.kubectl(*where, *verify) == f"{NODE_FOLDER}/{plan}\n"
        done = cluster.last_of_sampler(pod)
        say(f"{name}: plan {plan} from {world.root}")
        say(f"  {done['metrics']['bytes']:,} bytes in {done['seconds']} s, verified")
    finally:
        cluster.kubectl("delete", "daemonset", "--all", f"--namespace={NAMESPACE}", "--wait")
        cluster.clear(name, NODE)
        cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=120s")
        cluster.kubectl("delete", "priorityclass/pairmill-sampler", "--ignore-not-found")
