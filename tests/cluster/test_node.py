"""The sampler on a real node, as an operator works with it. In order: each test goes on where the one before ended."""

import json
import re
import time

import pytest

from pairmill.stages.sample.node.serve import PORT
from tests.support.kubernetes.cluster.rig import (
    MANIFESTS,
    NAMESPACE,
    NODE_FOLDER,
    SAMPLER,
    Doc,
    ReachableS3,
    Rig,
    last_line,
    object_of,
    say,
    shell,
    until,
    waited_in_vain,
)

ACCOUNT = f"system:serviceaccount:{NAMESPACE}:pairmill-sampler"


def container(pod: Doc, name: str) -> Doc:
    """State of a pod's container, init or not."""
    status = pod["status"]
    every = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    found: Doc = next((one for one in every if one["name"] == name), {})
    return found


def refused(cluster: Rig, plan: str) -> Doc:
    """How the sampler's writer of this plan ended, once it has failed."""

    def ended() -> Doc | None:
        state = container(cluster.pod(plan), "sample")
        ends = (state.get(name, {}).get("terminated", {}) for name in ("state", "lastState"))
        return next((end for end in ends if end.get("exitCode")), None)

    found: Doc = until(ended, "the sampler refuses")
    return found


def limits(cpu: str = "2", memory: str = "1Gi") -> Doc:
    """A patch: how much of the node the sampler may take."""
    resources = {"requests": {"cpu": "10m", "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}
    # `prepare` stands here to stay first.
    spec = {"initContainers": [{"name": "prepare"}, {"name": "sample", "resources": resources}]}
    return {**object_of("apps/v1", "DaemonSet"), "spec": {"template": {"spec": spec}}}


def training(seconds: int, job: str = "pairmill-trainer") -> Doc:
    """A patch: how long the example trainer holds its samples."""
    trainer = {"name": "trainer", "env": [{"name": "TRAIN_SECONDS", "value": str(seconds)}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": job, "namespace": NAMESPACE},
        "spec": {"template": {"spec": {"containers": [trainer]}}},
    }


def metrics(cluster: Rig, pod: Doc) -> dict[str, str]:
    """The reporter's page, by name and labels."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}:{PORT}/proxy/metrics"
    lines = cluster.kubectl("get", f"--raw={path}").splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))


def samples(cluster: Rig) -> set[str]:
    """What stands in the node's folder, hidden folders included."""
    return set(cluster.node()) - {"PLAN"}


def test_rollout(cluster: Rig) -> None:
    plan = cluster.plans[0]
    start = time.monotonic()
    warned = cluster.sampler(plan).strip()
    pod = cluster.rolled_out(plan)
    # Pod Security's `restricted` has to say what manifests/base/sampler-daemonset/namespace.yaml says, and no more.
    assert len(warned.splitlines()) == 1
    assert set(re.findall(r'container "(\w+)"', warned)) == {"prepare"}
    assert re.findall(r"volumes ([^)]*) use", warned) == ['"samples", "shm", "project"']
    say(warned)
    say(f"rollout of {plan}: pod ready after {time.monotonic() - start:.1f} s")
    done = cluster.last_of_sampler(pod)
    assert done["message"] == "sample: done"
    say(f"  sample: {done['metrics']['bytes']:,} bytes in {done['seconds']} s")
    assert samples(cluster) == {plan}
    assert cluster.wanted() == plan
    owner = cluster.on_node(
        "python", "-c", f"import os; s = os.stat('{NODE_FOLDER}'); print(s.st_uid, s.st_gid)"
    ).stdout
    assert owner.split() == ["65532", "65532"], "`prepare` hands the folder over"
    say(f"  verify: {cluster.verify(plan)}")


def test_metrics(cluster: Rig) -> None:
    plan = cluster.plans[0]
    pod = cluster.pod(plan)
    page = metrics(cluster, pod)
    assert page["pairmill_sample_ready"] == "1"
    (info,) = (name for name in page if name.startswith("pairmill_sample_info"))
    assert f'fingerprint="{plan}"' in info
    assert int(page["pairmill_sample_bytes"]) > 1_000_000
    for name, value in page.items():
        say(f"  {name} {value}")
    command = ["python", "-m", "pairmill", "sample", "verify", f"path={NODE_FOLDER}"]
    where = ["exec", pod["metadata"]["name"], "--container=report", f"--namespace={NAMESPACE}"]
    assert cluster.kubectl(*where, "--", *command) == f"{NODE_FOLDER}/{plan}\n", (
        "the reporter's limit is enough to verify"
    )


def test_the_trainer_prints_a_batch(cluster: Rig) -> None:
    plan = cluster.plans[0]
    cluster.apply("examples/trainer", plan)
    out = cluster.job("pairmill-trainer")
    assert f"{NODE_FOLDER}/{plan}\n" in out, "`wait` prints the folder"
    assert re.search(rf"plan {plan}: [\d,]+ rows an epoch, [\d,]+ tokens as uint16", out)
    assert len(re.findall(r"^row \d: instruction \[\d.*\] response \[\d.*\]$", out, re.MULTILINE)) == 4
    assert "done" in out.splitlines()
    for line in out.splitlines():
        say(f"  {line}")
    cluster.end("pairmill-trainer")


def test_nobody_can_write_and_no_token_is_there(cluster: Rig) -> None:
    pod = cluster.pod(cluster.plans[0])["metadata"]["name"]
    report = ["exec", pod, "--container=report", f"--namespace={NAMESPACE}", "--", "python", "-c"]
    for place in (NODE_FOLDER, "/app", "/tmp"):
        program = f"open('{place}/written', 'w')"
        done = cluster.try_kubectl(*report, program)
        assert "Read-only file system" in done.stderr, f"{place}: {done.stderr}"
    program = "import os; print(os.getuid(), os.path.exists('/var/run/secrets/kubernetes.io'))"
    assert cluster.kubectl(*report, program).split() == ["65532", "False"]
    status = cluster.kubectl(*report, "print(open('/proc/1/status').read())")
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE)
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    say("report: uid 65532, no capability, seccomp filter, no new privileges, nothing to write to, no token")


def test_the_account_may_do_nothing_else(cluster: Rig) -> None:
    def rights(account: str) -> str:
        return cluster.kubectl("auth", "can-i", "--list", f"--namespace={NAMESPACE}", f"--as={account}")

    # An account that nobody ever bound to anything has what every authenticated user has.
    nobody = f"system:serviceaccount:{NAMESPACE}:nobody"
    assert rights(ACCOUNT) == rights(nobody)
    for verb, what in (
        ("get", "pods"),
        ("list", "secrets"),
        ("get", "nodes"),
        ("create", "pods"),
        ("watch", "configmaps"),
    ):
        assert cluster.try_kubectl("auth", "can-i", verb, what, f"--as={ACCOUNT}").stdout.strip() == "no"
    rows = [line.split()[0] for line in rights(ACCOUNT).splitlines()[1:]]
    say(f"RBAC: as any account without a role, it may create {', '.join(row for row in rows if '[' not in row)}")
    say(f"  and get {', '.join(sorted({row.strip('[]/*') for row in rows if '[' in row}))}")


def test_a_second_plan_and_back(cluster: Rig) -> None:
    first, second = cluster.plans[:2]
    before = cluster.node()[first]
    start = time.monotonic()
    cluster.sampler(second)
    pod = cluster.rolled_out(second)
    say(f"rollout of {second}: pod ready after {time.monotonic() - start:.1f} s")
    assert samples(cluster) == {first, second}, "KEEP=1: the one before stays"
    assert cluster.wanted() == second
    cluster.verify(second)

    start = time.monotonic()
    cluster.sampler(first)
    pod = cluster.rolled_out(first)
    done = cluster.last_of_sampler(pod)
    assert done["message"] == "sample: reused"
    assert cluster.node()[first] == before, "the same folder"
    assert cluster.wanted() == first
    say(
        f"back to {first}: pod ready after {time.monotonic() - start:.1f} s, "
        f"of which the sampler took {done['seconds'] * 1000:.0f} ms (reused)"
    )

    cluster.kubectl("rollout", "undo", SAMPLER, f"--namespace={NAMESPACE}")
    pod = cluster.rolled_out(second)
    assert cluster.last_of_sampler(pod)["message"] == "sample: reused"
    assert cluster.wanted() == second
    say(f"kubectl rollout undo: {second} again, reused")


def test_a_held_sample_is_not_retired(cluster: Rig) -> None:
    first, second, third = cluster.plans
    cluster.apply("examples/trainer", first, training(seconds=3600))
    until(lambda: f"plan {first}" in cluster.trainer_log(), "the trainer maps its samples")
    cluster.sampler(third, settings={"KEEP": 0})
    log = cluster.log(cluster.rolled_out(third), "sample")
    assert [line["held"] for line in log if "held" in line] == [first]
    assert [line["removed"] for line in log if "removed" in line] == [second]
    assert samples(cluster) == {first, third}
    say(f"KEEP=0 while a trainer holds {first}:")
    for line in log:
        say(f"  {line['message']}")

    cluster.end("pairmill-trainer")
    cluster.sampler(second, settings={"KEEP": 0})
    cluster.rolled_out(second)
    assert samples(cluster) == {second}
    say("  once it has ended, the next rollout removes it")


def test_a_pod_that_goes_while_it_writes_leaves_nothing(cluster: Rig) -> None:
    second, third = cluster.plans[1:]
    # Stopped, the writer cannot clear up when it is told to end: what it began stays until somebody else comes.
    cluster.freeze(third)
    cluster.sampler(third, limits(cpu="200m"))
    written = cluster.frozen()
    pod = cluster.pod(third)["metadata"]
    (partial,) = (name for name in samples(cluster) if name.endswith(".partial"))
    assert samples(cluster) - {f".{third}.{third}.lock"} == {second, partial}
    cluster.kubectl("delete", "pod", pod["name"], f"--namespace={NAMESPACE}", "--grace-period=0", "--force")
    say(f"pod deleted when it had written {written:,} bytes of {partial}")
    new = cluster.rolled_out(third)
    assert new["metadata"]["uid"] != pod["uid"]
    assert samples(cluster) == {second, third}, "no leftovers"
    for line in cluster.log(new, "sample"):
        say(f"  {line['message']}")
    say(f"  verify: {cluster.verify(third)}")


def test_the_kubelet_restarts(cluster: Rig) -> None:
    third = cluster.plans[2]
    before, inode = cluster.pod(third), cluster.node()[third]
    shell(cluster.given.restart_kubelet)
    cluster.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=120s")
    cluster.rolled_out(third)
    time.sleep(10)  # long enough for a kubelet that knows nothing of the pod to begin anew
    after = cluster.pod(third)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    for name in ("sample", "report"):
        assert container(after, name)["restartCount"] == container(before, name)["restartCount"]
    assert cluster.node()[third] == inode
    assert metrics(cluster, after)["pairmill_sample_ready"] == "1"
    say("kubelet restarted: the same pod, ready, nothing written again")

    cluster.kubectl("delete", "pod", after["metadata"]["name"], f"--namespace={NAMESPACE}")
    new = cluster.rolled_out(third)
    assert cluster.last_of_sampler(new)["message"] == "sample: reused"
    assert cluster.node()[third] == inode
    say(f"pod deleted: the new one reuses in {cluster.last_of_sampler(new)['seconds'] * 1000:.0f} ms")


def test_a_memory_limit_that_is_too_low_is_refused_with_the_numbers(cluster: Rig) -> None:
    first, third = cluster.plans[0], cluster.plans[2]
    cluster.sampler(first, limits(memory="64Mi"))

    state = refused(cluster, first)
    say(f"limit of 64Mi: exit {state['exitCode']}, reason {state['reason']}, message of the pod:")
    say(f"  {state['message'].strip()}")
    assert (state["exitCode"], state["reason"]) == (4, "Error")
    said = last_line(state["message"])["message"]
    assert len(re.findall(r"\d[\d,]{6,}", said)) == 4
    assert "memory limit" in said
    assert first not in samples(cluster)
    assert not [name for name in samples(cluster) if name.startswith(".")]
    assert cluster.wanted() == third, "trainers still get the sample before"
    cluster.verify(third)
    (named,) = re.findall(r"set the limit to (\d+) MiB", said)
    cluster.sampler(first, limits(memory=f"{named}Mi"))
    cluster.rolled_out(first)
    cluster.verify(first)
    say(f"  with the {named} MiB that it names: rolled out")


def test_a_trainer_that_waits_in_vain_says_what_is_missing(cluster: Rig) -> None:
    wait = {"name": "pairmill-wait", "args": ["wait", f"path={NODE_FOLDER}", "plan=$(PLAN)", "timeout=2"]}
    patch = training(seconds=0)
    patch["spec"]["template"]["spec"] = {"initContainers": [wait]}
    cluster.apply("examples/trainer", "f" * 16, patch)
    out = cluster.job("pairmill-trainer", expected="failed").splitlines()
    message = json.loads(next(line for line in out if line.startswith("{")))
    assert message["exit_code"] == 3
    assert waited_in_vain(NODE_FOLDER, "f" * 16, 2) in message["message"]
    say(f"wait for a plan that nobody rolled out: exit 3, {message['message']}")
    cluster.end("pairmill-trainer")


def test_wrong_credentials_are_said_and_right_ones_taken_up(cluster: Rig, store: tuple[ReachableS3, str]) -> None:
    first, second = cluster.plans[:2]
    server, root = store
    assert second not in samples(cluster)
    cluster.put_secret(NAMESPACE, server.secret(cluster, AWS_SECRET_ACCESS_KEY="wrong"))
    start = time.monotonic()
    cluster.sampler_of_bucket(second, root, server.port)
    state = refused(cluster, second)
    said = last_line(state["message"])
    say(
        f"{root} with a wrong key: exit {state['exitCode']} after {time.monotonic() - start:.1f} s, message of the pod:"
    )
    say(f"  {said['message']}")
    assert state["exitCode"] == said["exit_code"] == 4
    assert "403" in said["message"]
    assert "wrong" not in state["message"], "a key is never said"
    pod = cluster.pod(second)
    assert pod["status"]["phase"] == "Pending"
    assert cluster.wanted() == first, "trainers still get the sample before"

    cluster.put_secret(NAMESPACE, server.secret(cluster))
    start = time.monotonic()
    found = cluster.rolled_out(second)
    assert found["metadata"]["uid"] == pod["metadata"]["uid"], "the secret is read at every start"
    done = cluster.last_of_sampler(found)
    say(f"  mended: ready after {time.monotonic() - start:.1f} s by itself, {done['metrics']['bytes']:,} bytes")
    say(f"  in {done['seconds']} s; verify: {cluster.verify(second)}")
    program = "import os; print(*(n for n in os.environ if 'AWS' in n), os.path.exists('/var/run/secrets/pairmill'))"
    report = ["exec", found["metadata"]["name"], "--container=report", f"--namespace={NAMESPACE}", "--"]
    assert cluster.kubectl(*report, "python", "-c", program).split() == ["False"], "the reporter has no credentials"


def test_a_bucket_that_is_not_there_is_said(cluster: Rig, store: tuple[ReachableS3, str]) -> None:
    second, third = cluster.plans[1:]
    cluster.sampler_of_bucket(third, "s3://nobody-made-this/project", store[0].port)
    state = refused(cluster, third)
    said = last_line(state["message"])
    say(f"a bucket that is not there: exit {state['exitCode']}, {said['message']}")
    assert state["exitCode"] == said["exit_code"] == 4
    assert "the bucket does not exist" in said["message"]
    assert cluster.wanted() == second


def test_stage_in(cluster: Rig, store: tuple[ReachableS3, str]) -> None:
    second = cluster.plans[1]
    before = cluster.node()
    patch = training(seconds=0, job="pairmill-stage-in")
    patch["spec"]["template"]["metadata"] = {"annotations": {"pairmill.dev/root": store[1]}}
    cluster.apply("examples/stage-in", second, patch)
    out = cluster.job("pairmill-stage-in")
    assert f"plan {second}:" in out
    assert "done" in out.splitlines()
    assert cluster.node() == before, "the node's folder has nothing to do with it"
    say(f"stage-in: the Job made its samples itself from {store[1]}, in a volume of its own")
    for line in out.splitlines():
        if line.startswith(("plan", "row")):
            say(f"  {line}")
    cluster.end("pairmill-stage-in")


@pytest.mark.parametrize("overlay", ["eks", "gke", "minio"])
def test_the_api_server_takes_the_overlay(cluster: Rig, overlay: str) -> None:
    """What no schema knows (label values, names of ports, quantities) is refused by the server."""
    folder = str(MANIFESTS / "overlays" / overlay)
    out = cluster.kubectl("apply", "--dry-run=server", "--kustomize", folder)
    assert "daemonset.apps/pairmill-sampler" in out
    say(f"overlays/{overlay}: {len(out.splitlines())} objects taken by the API server (dry run)")


def test_nothing_is_left_but_samples(cluster: Rig) -> None:
    cluster.kubectl("delete", SAMPLER, f"--namespace={NAMESPACE}", "--wait")
    names = set(cluster.node())
    assert names - {"PLAN"} <= set(cluster.plans)
    assert cluster.plans[0] in names
    for name in names - {"PLAN"}:
        say(f"without the sampler: {cluster.verify(name)}")
