"""The DaemonSet's pod as `podman kube play` runs it: what manifests/overlays/kind renders, on this machine as the node.

What is changed of the rendered template, because one machine without a kubelet lacks it:

- the plan's label names a plan of this test, and the hostPath volumes lead to folders of this test;
- arguments are written out: podman 4.3 puts no variable of a ConfigMap into them;
- the secret that need not exist is an empty folder: podman 4.3 wants secrets that are volumes to exist;
- probes and ports go: podman would run curl inside the container, and a pod without a network has no ports;
- restartPolicy is Never: podman starts a finished init container anew under any other;
- an annotation keeps finished init containers, whose logs and exit codes are read here.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pairmill.digest import digest_bytes
from tests.support.helpers import PATIENCE, REPOSITORY, contents, mount, python
from tests.support.kubernetes.cluster.freeze import writers
from tests.support.kubernetes.containers import SAMPLER, USER, podman

NODE_FOLDER = "/dev/shm/pairmill"
CONFINED = ("sample", "report")
# A container runs before its program listens.
ASK = """
import time, urllib.request
def ask(page, tries=100):
    try:
        return urllib.request.urlopen(f"http://127.0.0.1:9464/{page}").read().decode()
    except urllib.error.URLError:
        if not tries:
            raise
        time.sleep(0.1)
        return ask(page, tries - 1)
print(*map(ask, ["ready", "plan", "metrics"]))
"""
KEEP_INIT_CONTAINERS = {"io.podman.annotations.init.container.type": "always"}
PLANNED = Path("sample")
"""Where plans are, below the project folder."""


@pytest.fixture(scope="module")
def rendered() -> list[dict[str, Any]]:
    """The overlay's objects."""
    kubectl = Path(sys.executable).with_name("kubectl")
    folder = REPOSITORY / "manifests" / "overlays" / "kind"
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def written_out(arguments: list[str], values: dict[str, str]) -> list[str]:
    """Arguments with the values of the variables that they name."""
    return [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], text) for text in arguments]


def pod(rendered: list[dict[str, Any]], name: str, plan: str, node: Path, project: Path) -> str:
    """The DaemonSet's pod and its ConfigMaps as YAML, adapted as the top of this file says."""
    maps = {doc["metadata"]["name"]: doc for doc in rendered if doc["kind"] == "ConfigMap"}
    (daemonset,) = (doc for doc in rendered if doc["kind"] == "DaemonSet")
    template = json.loads(json.dumps(daemonset["spec"]["template"]))
    metadata, spec = template["metadata"], template["spec"]
    assert "pairmill.dev/plan" in metadata["labels"]
    metadata["labels"]["pairmill.dev/plan"] = plan
    metadata["annotations"] |= KEEP_INIT_CONTAINERS
    folders = {volume["name"]: volume["hostPath"] for volume in spec["volumes"] if "hostPath" in volume}
    assert folders["samples"]["path"] == NODE_FOLDER
    assert folders["shm"]["path"] == str(Path(NODE_FOLDER).parent)
    assert node.name == Path(NODE_FOLDER).name
    for volume, path in (("samples", node), ("shm", node.parent), ("project", project)):
        folders[volume]["path"] = str(path)
    for volume in spec["volumes"]:
        if volume.get("secret", {}).get("optional"):
            volume["emptyDir"] = {}
            del volume["secret"]
    for container in [*spec["initContainers"], *spec["containers"]]:
        assert container["image"] == SAMPLER
        given = [one["configMapRef"]["name"] for one in container.get("envFrom", []) if "configMapRef" in one]
        container["args"] = written_out(
            container["args"], dict(ChainMap({"PLAN": plan}, *(maps[one]["data"] for one in given)))
        )
        for key in ("livenessProbe", "ports", "readinessProbe"):
            container.pop(key, None)
    spec["restartPolicy"] = "Never"
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}
    return yaml.safe_dump_all([*maps.values(), made])


@dataclass
class Node:
    """This machine as a node: its folder, the project folder, and the pod."""

    name: str
    folder: Path
    project: Path
    rendered: list[dict[str, Any]]
    scratch: Path

    def play(self, plan: str) -> subprocess.Popen[str]:
        """Start the pod; podman ends once the sample stands and `report` runs, or when an init container failed."""
        self.remove()
        text = pod(self.rendered, self.name, plan, self.folder, self.project)
        path = self.scratch / "pod.yaml"
        path.write_text(text)
        command = ["podman", "kube", "play", "--network=none", str(path)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def sampled(self, plan: str) -> Path:
        """Play the pod to the end; the sampled folder."""
        play = self.play(plan)
        _, errors = play.communicate(timeout=PATIENCE)
        assert play.returncode == 0, errors + self.log("prepare") + self.log("sample")
        return self.folder / (self.folder / "PLAN").read_text().strip()

    def log(self, container: str) -> str:
        """What a container of the pod said."""
        done = podman("logs", f"{self.name}-{container}", check=False)
        return done.stdout + done.stderr

    def inspect(self, container: str) -> dict[str, Any]:
        """What podman knows of a container of the pod."""
        (found,) = json.loads(podman("container", "inspect", f"{self.name}-{container}").stdout)
        return dict(found)

    def remove(self) -> None:
        """Remove the pod."""
        podman("pod", "rm", "--force", "--time=0", "--ignore", self.name)


@pytest.fixture
def node(line: Path, rendered: list[dict[str, Any]], tmp_path: Path) -> Iterator[Node]:
    """A folder below /dev/shm that nobody else has: the machine's own /dev/shm/pairmill may hold somebody's samples."""
    name = f"pairmill-test-{secrets.token_hex(4)}"
    made = Node(name, Path("/dev/shm") / name / Path(NODE_FOLDER).name, line / "project", rendered, tmp_path)
    made.folder.parent.mkdir()
    yield made
    made.remove()
    # Podman makes a volume of a ConfigMap, and leaves it; one that is in use it does not remove.
    podman("volume", "rm", *(doc["metadata"]["name"] for doc in rendered if doc["kind"] == "ConfigMap"), check=False)
    subprocess.run(["umount", "--quiet", made.folder], check=False)
    shutil.rmtree(made.folder.parent, ignore_errors=True)


@pytest.fixture(scope="session")
def plan(line: Path) -> str:
    """The plan that the pipeline made."""
    (found,) = (path.name for path in (line / "project" / PLANNED).glob("[0-9a-f]*"))
    return found


@pytest.fixture(scope="session")
def large_plan(line: Path, plan: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan whose sample takes long enough to be killed in: 390 MB, nearly all of it rows of 100 epochs."""
    rules = tmp_path_factory.mktemp("rules") / "rules.yaml"
    rules.write_text('- prefix: ""\n  repeat: 40\n')
    (tokenized,) = (path for path in (line / "project" / "tokenize").iterdir() if path.name != "shards")
    options = (f"tokenized_path={tokenized}", f"prefix_config_path={rules}", "output_path=", "epochs=100")
    made = python("-m", "pairmill", "sample", f"root={line / 'project'}", *options)
    assert made.returncode == 0, made.stderr
    (found,) = {path.name for path in (line / "project" / PLANNED).glob("[0-9a-f]*")} - {plan}
    return found


def planned(project: Path, plan: str) -> list[dict[str, Any]]:
    """The files of its sample, as a plan names them."""
    manifest = json.loads((project / PLANNED / plan / "_MANIFEST.json").read_text())
    return list(manifest["data"]["sample"])


def expected(project: Path, plan: str) -> dict[str, str]:
    """Their digests by path."""
    return {file["path"]: f"blake3:{file['blake3']}" for file in planned(project, plan)}


def digests(sampled: Path) -> dict[str, str]:
    """Digest of every data file of a sampled folder, by path."""
    files = {path: data for path, data in contents(sampled).items() if not path.startswith("_")}
    return {path: digest_bytes(data) for path, data in files.items()}


def test_a_pod_writes_the_sample_and_a_second_one_reuses_it(node: Node, plan: str) -> None:
    """As the user of the image, on a root that is read-only, with no capability: as the manifests say."""
    sampled = node.sampled(plan)
    assert sampled.name == plan
    assert digests(sampled) == expected(node.project, plan)
    assert {(path.stat().st_uid, path.stat().st_gid) for path in [node.folder, *node.folder.rglob("*")]} == {
        (USER, USER)
    }
    for name, user, capabilities in (("prepare", "0:0", ["CAP_CHOWN"]), *((n, f"{USER}:{USER}", []) for n in CONFINED)):
        found = node.inspect(name)
        assert found["Config"]["User"] == user
        assert found["HostConfig"]["ReadonlyRootfs"]
        assert (found["EffectiveCaps"] or []) == (found["BoundingCaps"] or []) == capabilities
        assert "no-new-privileges" in found["HostConfig"]["SecurityOpt"]
    report = podman("exec", f"{node.name}-report", "python", "-c", ASK).stdout
    assert report.split()[:2] == ["ready", plan]
    assert "\npairmill_sample_ready 1\n" in report

    identity = {path: path.stat().st_ino for path in sampled.rglob("*")}
    assert node.sampled(plan) == sampled
    assert "reused" in node.log("sample")
    assert {path: path.stat().st_ino for path in sampled.rglob("*")} == identity


def test_a_pod_after_one_that_was_killed_while_it_wrote(node: Node, large_plan: str) -> None:
    """Right digests, and nothing left of the killed one."""
    play = node.play(large_plan)
    end = time.monotonic() + PATIENCE
    while not any(node.folder.glob(".*.partial/epoch_*/*.npy")):
        assert play.poll() is None, play.communicate()
        assert time.monotonic() < end, f"nothing was written within {PATIENCE} s"
        time.sleep(0.005)
    (writer,) = writers(large_plan)
    os.kill(writer, signal.SIGKILL)
    play.communicate(timeout=PATIENCE)
    assert play.returncode != 0
    assert node.inspect("sample")["State"]["ExitCode"] == 128 + signal.SIGKILL
    left = [path.name for path in node.folder.iterdir()]
    assert sorted(re.sub("[0-9a-f]{16}", "x", name) for name in left) == [".x.x.lock", ".x.x.partial"]

    sampled = node.sampled(large_plan)
    assert digests(sampled) == expected(node.project, large_plan)
    assert sorted(path.name for path in node.folder.iterdir()) == sorted(["PLAN", large_plan])


def test_a_node_with_too_little_room(node: Node, large_plan: str) -> None:
    """Exit 4 with the numbers, before the first byte."""
    node.folder.mkdir()
    mount(node.folder, "size=8m")
    play = node.play(large_plan)
    play.communicate(timeout=PATIENCE)
    assert play.returncode != 0
    assert node.inspect("sample")["State"]["ExitCode"] == 4
    needed = sum(file["size"] for file in planned(node.project, large_plan))
    said = json.loads(node.log("sample").splitlines()[-1])
    assert said["exit_code"] == 4
    numbers = [int(found.replace(",", "")) for found in re.findall(r"[\d,]*\d", said["message"])]
    # All of it but the page of the lock.
    assert any((8 << 20) - 8192 <= number <= 8 << 20 for number in numbers), said
    # In whole pages, and with the folders.
    assert any(needed <= number <= needed * 1.01 for number in numbers), (needed, said)
    assert list(node.folder.iterdir()) == []
