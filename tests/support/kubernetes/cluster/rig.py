"""What the tests do to a cluster, and how they say what they saw. Which cluster it is, the environment says."""

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from pairmill.kubeflow.placement import Placement
from tests.support.helpers import REPOSITORY
from tests.support.objectstores.servers import S3Server

MANIFESTS = REPOSITORY / "manifests"
SECRET = Placement().secret
"""Name of the secret with the credentials of the object store, in every namespace that reads from it."""
NAMESPACE = "pairmill"
OUTSIDE = "pairmill-test"
"""Namespace of what the tests bring: the project on the node, and a pod that looks at the node."""
SAMPLER = "daemonset/pairmill-sampler"
NODE_FOLDER = "/dev/shm/pairmill"
PROJECT = "/var/lib/pairmill"
OUR_PROJECT = Path(__file__).with_name("project.py")
LOCAL_IMAGE, REGISTRY_IMAGE = "localhost/pairmill-sampler", "registry.example/pairmill/sampler"
"""As the manifests name the sampler's image: the overlay and examples for one machine, and the others."""

Doc = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Everything that differs between clusters."""

    image: str
    load_images: str
    restart_kubelet: str


def settings() -> Settings:
    """Read the environment; what is missing fails with what to set."""
    wanted = {
        "KUBECONFIG": "of a cluster with one node that nobody works on",
        "SAMPLER_IMAGE": "name and tag of the image, as `make images` prints it",
        "LOAD_IMAGES": "a command that hands images to the node, called with their names: kind load docker-image",
        "RESTART_KUBELET": "a command: docker exec kind-control-plane systemctl restart kubelet",
    }
    require(wanted)
    return Settings(*(os.environ[name] for name in ("SAMPLER_IMAGE", "LOAD_IMAGES", "RESTART_KUBELET")))


def require(wanted: dict[str, str]) -> None:
    """Fail with what to set unless the environment has all of these variables."""
    missing = [f"  {name}: {meaning}" for name, meaning in wanted.items() if not os.environ.get(name)]
    if missing:
        pytest.fail("these variables are to be set:\n" + "\n".join(missing), pytrace=False)


def say(text: str) -> None:
    """A line of the protocol; `make cluster-test` shows them."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def last_line(message: str) -> Doc:
    """The last line of a log, or of the message of a pod, which is the end of its log, as the program wrote it.

    The text is in the line twice: Kubeflow's API shows only its key ``log``.
    """
    found: Doc = json.loads(message.splitlines()[-1])
    return found


def waited_in_vain(folder: str, plan: str, seconds: int) -> str:
    """What a trainer says that waited for the sample of a plan, which nobody made."""
    return f"no complete sample after {seconds} s; got {folder}/{plan} has no finished sample"


def renamed(image: str) -> Doc:
    """An image's name, and its digest or tag, as kustomize takes them."""
    name, at, digest = image.partition("@")
    if at:
        return {"newName": name, "digest": digest}
    name, _, tag = image.rpartition(":")
    return {"newName": name, "newTag": tag}


def object_of(version: str, kind: str) -> Doc:
    """The beginning of a patch of one of the sampler's objects."""
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "pairmill-sampler", "namespace": NAMESPACE}}


def shell(command: str, *arguments: str) -> None:
    done = subprocess.run([*shlex.split(command), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def until(condition: Callable[[], Any], what: str, seconds: float = 120, pause: float = 0.5) -> Any:
    """Wait until the condition gives something that is true, and return it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"waited {seconds} s in vain: {what}"
        time.sleep(pause)
    return found


class ReachableS3(S3Server):
    """An S3 server of this machine that the pods of a cluster on it reach too."""

    def _command(self, port: int) -> list[str]:
        return [word.replace("127.0.0.1:", ":") for word in super()._command(port)]

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    def secret(self, cluster: "Cluster", **other: str) -> dict[str, str]:
        """What leads a pod here; ``other`` replaces some of it."""
        given = self.environment(f"http://{cluster.this_machine()}:{self.port}")
        # As the pipeline's tasks have it: pairmill/kubeflow/placement.py.
        return {name.removesuffix("_S3"): value for name, value in given.items()} | other


class Cluster:
    """A cluster, and the sampler on it."""

    def __init__(self, image: str, folder: Path) -> None:
        self.image = image
        self._folder = folder
        self._count = 0

    # --- kubectl

    def try_kubectl(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        kubectl = str(Path(sys.executable).with_name("kubectl"))
        return subprocess.run([kubectl, *arguments], capture_output=True, text=True, timeout=timeout, check=False)

    def kubectl(self, *arguments: str, timeout: float = 300) -> str:
        done = self.try_kubectl(*arguments, timeout=timeout)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def get(self, *arguments: str) -> Doc:
        found: Doc = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return found

    def put(self, namespace: str, doc: Doc, verb: str = "apply") -> None:
        """Make an object; one of this name is changed, or with ``create`` none may be there."""
        path = self._folder / "object.yaml"
        path.write_text(yaml.safe_dump(doc))
        self.kubectl(verb, f"--namespace={namespace}", f"--filename={path}")
        path.unlink()

    def put_secret(self, namespace: str, values: dict[str, str]) -> None:
        """What reads from the object store gets its credentials from here."""
        self.put(namespace, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": values})

    def refuse_used(self, *namespaces: str) -> None:
        """Leave a cluster alone that has a sampler already."""
        for namespace in namespaces:
            if self.try_kubectl("get", "namespace", namespace).returncode == 0:
                pytest.fail(f"this cluster has a namespace {namespace} already: these tests need one of their own")

    def this_machine(self) -> str:
        """The address by which pods reach this machine: the one that it reaches their node from."""
        (node, *_) = self.get("nodes")["items"]
        (address,) = (one["address"] for one in node["status"]["addresses"] if one["type"] == "InternalIP")
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
            probe.connect((address, 9))  # sends nothing
            return str(probe.getsockname()[0])

    # --- the manifests

    def apply(self, folder: str, plan: str, *patches: Doc, settings: dict[str, Any] | None = None) -> str:
        """Apply a folder of manifests with this image and plan, as an operator's own overlay would.

        Returns what the API server warned of.
        """
        self._count += 1
        here = self._folder / f"overlay-{self._count}"
        here.mkdir()
        kind, of = ("DaemonSet", "pairmill-sampler") if folder.startswith("overlays") else ("Job", ".*")
        label = {"op": "add", "path": "/spec/template/metadata/labels/pairmill.dev~1plan", "value": plan}
        kustomization: Doc = {
            "namespace": NAMESPACE,
            "resources": [os.path.relpath(MANIFESTS / folder, here)],
            "images": [{"name": name, **renamed(self.image)} for name in (LOCAL_IMAGE, REGISTRY_IMAGE)],
            "patches": [
                {"target": {"kind": kind, "name": of}, "patch": yaml.safe_dump([label])},
                *({"patch": yaml.safe_dump(patch)} for patch in patches),
            ],
        }
        if settings is not None:
            literals = [f"{key}={value}" for key, value in settings.items()]
            merge = {"name": "pairmill-sampler", "namespace": NAMESPACE, "behavior": "merge", "literals": literals}
            kustomization["configMapGenerator"] = [merge]
        (here / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        done = self.try_kubectl("apply", "--kustomize", str(here))
        assert done.returncode == 0, done.stderr
        return done.stderr

    def sampler(self, plan: str, *patches: Doc, settings: dict[str, Any] | None = None) -> str:
        """Apply the overlay `kind` with this plan; returns the warnings."""
        return self.apply("overlays/kind", plan, *patches, settings=settings)

    def sampler_of_bucket(
        self, plan: str, root: str, port: int | None, node: str = "", folder: str = NODE_FOLDER
    ) -> None:
        """Apply the overlay `minio` with little memory, wherever there is a GPU or not: samples from ``root``.

        Args:
            plan: to carry out.
            root: project folder in a bucket.
            port: of the store; None = any, where it is not known what a Service makes of it.
            node: the only one that takes it; empty = all do.
            folder: of the node, in the place of the usual one.
        """
        resources = {"requests": {"cpu": "10m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
        spec: Doc = {
            "affinity": None,
            "nodeSelector": {"kubernetes.io/hostname": node} if node else None,
            # `prepare` stands here to stay first; what it mounts is the folder above.
            "initContainers": [
                {"name": "prepare", "args": ["prepare", f"path={folder}"]},
                {"name": "sample", "resources": resources},
            ],
            "volumes": [{"name": "samples", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}],
        }
        daemonset = {**object_of("apps/v1", "DaemonSet"), "spec": {"template": {"spec": spec}}}
        names = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
        way = {"protocol": "TCP", **({"port": port} if port else {})}
        egress = [{"ports": names}, {"ports": [way]}]
        policy = {**object_of("networking.k8s.io/v1", "NetworkPolicy"), "spec": {"egress": egress}}
        self.apply("overlays/minio", plan, daemonset, policy, settings={"ROOT": root})

    def clear(self, node: str, folder: str) -> None:
        """Remove a folder of a node and what is in it."""
        program = f"import shutil; shutil.rmtree('/parent/{Path(folder).name}', ignore_errors=True)"
        container = {
            "name": "main",
            "image": self.image,
            "command": ["python", "-c", program],
            "securityContext": {"runAsUser": 0},
            "volumeMounts": [{"name": "parent", "mountPath": "/parent"}],
        }
        spec = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
            "volumes": [{"name": "parent", "hostPath": {"path": str(Path(folder).parent), "type": "Directory"}}],
        }
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "clear"}, "spec": spec}
        self.put(NAMESPACE, pod, "create")
        self.ended("clear", NAMESPACE)

    def rolled_out(self, plan: str) -> Doc:
        """Wait for the rollout; returns the pod."""
        here = f"--namespace={NAMESPACE}"
        done = self.try_kubectl("rollout", "status", SAMPLER, here, "--timeout=180s")
        assert done.returncode == 0, done.stderr + self.kubectl("describe", "pods", here)
        return self.pod(plan)

    def pod(self, plan: str) -> Doc:
        """The sampler's pod for this plan, once there is one and no other."""

        def alone() -> Doc | None:
            pods = self.get("pods", "--selector=app.kubernetes.io/name=pairmill-sampler", f"--namespace={NAMESPACE}")
            items: list[Doc] = pods["items"]
            right = [pod for pod in items if pod["metadata"]["labels"]["pairmill.dev/plan"] == plan]
            return right[0] if len(items) == len(right) == 1 else None

        found: Doc = until(alone, f"one pod of the sampler, for plan {plan}")
        return found

    def log(self, pod: Doc, container: str) -> list[Doc]:
        """What a container said, a line each."""
        name = pod["metadata"]["name"]
        text = self.kubectl("logs", name, f"--container={container}", f"--namespace={NAMESPACE}")
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def last_of_sampler(self, pod: Doc) -> Doc:
        """The line by which a sampler has ended; warnings and the command that may follow come after it."""
        ends = ("sample: done", "sample: reused")
        return next(line for line in reversed(self.log(pod, "sample")) if line["message"] in ends)

    def ended(self, pod: str, namespace: str) -> str:
        """Wait until a pod of ours ends well; returns what it printed."""

        def phase() -> str:
            now: str = self.get("pod", pod, f"--namespace={namespace}")["status"]["phase"]
            return now if now in {"Succeeded", "Failed"} else ""

        last = until(phase, f"{pod} ends")
        out = self.kubectl("logs", pod, f"--namespace={namespace}")
        assert last == "Succeeded", out
        return out

    def trainer_log(self) -> str:
        """What the example trainer has printed so far."""
        return self.try_kubectl("logs", "job/pairmill-trainer", f"--namespace={NAMESPACE}").stdout

    def job(self, name: str, expected: str = "done") -> str:
        """Wait for a Job to end as expected; returns what its containers said."""

        def ended() -> str:
            status = self.get("job", name, f"--namespace={NAMESPACE}")["status"]
            return "done" if status.get("succeeded") else "failed" if status.get("failed") else ""

        state = until(ended, f"job {name} ends")
        # In any order, of which one that never started may be the first.
        where = [f"job/{name}", "--all-containers", "--ignore-errors", f"--namespace={NAMESPACE}"]
        out = self.try_kubectl("logs", *where).stdout
        assert state == expected, out
        return out

    def end(self, job: str) -> None:
        """Delete a Job and its pods, which hold their samples until they are gone."""
        self.kubectl("delete", "job", job, f"--namespace={NAMESPACE}", "--cascade=orphan")
        pods = f"--selector=batch.kubernetes.io/job-name={job}"
        self.kubectl("delete", "pods", pods, f"--namespace={NAMESPACE}", "--grace-period=1")


class Rig(Cluster):
    """A cluster of one node with the project folder on it, and a pod `look` that sees the node's folders."""

    def __init__(self, given: Settings, folder: Path) -> None:
        super().__init__(given.image, folder)
        self.given = given
        self.plans: list[str] = []

    # --- before and after

    def refuse_unfit(self) -> None:
        """These tests need one node, with nothing of theirs on it."""
        self.refuse_used(NAMESPACE, OUTSIDE)
        nodes = self.get("nodes")["items"]
        assert len(nodes) == 1, "these tests look at one node"
        info = nodes[0]["status"]["nodeInfo"]
        say(f"node {nodes[0]['metadata']['name']}: {info['kubeletVersion']}, {info['containerRuntimeVersion']}")

    def set_up(self) -> None:
        shell(self.given.load_images, self.image)
        say(f"image {self.image}")
        self.kubectl("create", "namespace", OUTSIDE)
        scripts = [f"--from-file={path}" for path in (OUR_PROJECT, OUR_PROJECT.with_name("freeze.py"))]
        self.kubectl("create", "configmap", "project", *scripts, f"--namespace={OUTSIDE}")
        self.plans = json.loads(self._project("make").splitlines()[-1])
        self.put(OUTSIDE, self._pod("look", ["python", "-c", "import time; time.sleep(86400)"], user=65532), "create")
        self.kubectl("wait", "--for=condition=Ready", "pod/look", f"--namespace={OUTSIDE}", "--timeout=60s")
        say(f"project folder with plans {', '.join(self.plans)}")

    def tear_down(self) -> None:
        self.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
        if self.try_kubectl("get", "configmap", "project", f"--namespace={OUTSIDE}").returncode == 0:
            self._project("remove")
        for what in (f"namespace/{OUTSIDE}", "priorityclass/pairmill-sampler"):
            self.kubectl("delete", what, "--ignore-not-found", "--timeout=120s")
        say("removed what the tests made")

    def _project(self, what: str) -> str:
        command = ["python", "/opt/test/project.py", what, PROJECT, NODE_FOLDER]
        self.put(OUTSIDE, self._pod(f"project-{what}", command, user=0), "create")
        return self.ended(f"project-{what}", OUTSIDE)

    def _pod(self, name: str, command: list[str], user: int) -> Doc:
        places = {"project": PROJECT, "samples": NODE_FOLDER}
        volumes: list[Doc] = [
            {"name": key, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for key, path in places.items()
        ]
        container = {
            "name": "main",
            "image": self.image,
            "command": command,
            "securityContext": {"runAsUser": user},
            "volumeMounts": [
                *({"name": key, "mountPath": path, "readOnly": user != 0} for key, path in places.items()),
                {"name": "script", "mountPath": "/opt/test", "readOnly": True},
            ],
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
                "containers": [container],
                "volumes": [*volumes, {"name": "script", "configMap": {"name": "project"}}],
            },
        }

    # --- the node

    def freeze(self, plan: str) -> None:
        """Stop the next writer of this plan (SIGSTOP) as soon as it has begun to write; ``frozen`` waits for it."""
        pod = self._pod("freeze", ["python", "/opt/test/freeze.py", NODE_FOLDER, plan], user=0)
        pod["spec"]["hostPID"] = True
        self.put(OUTSIDE, pod, "create")
        self.kubectl("wait", "--for=condition=Ready", "pod/freeze", f"--namespace={OUTSIDE}", "--timeout=60s")

    def frozen(self) -> int:
        """Wait until the writer is stopped; returns the bytes it had written."""
        return int(self.ended("freeze", OUTSIDE))

    def on_node(self, *command: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command in the pod that sees the node's folders."""
        return self.try_kubectl("exec", "look", f"--namespace={OUTSIDE}", "--", *command, timeout=timeout)

    def node(self) -> dict[str, int]:
        """What is in the node's folder, with the inode of each entry."""
        program = f"import json, os; print(json.dumps({{e.name: e.inode() for e in os.scandir({NODE_FOLDER!r})}}))"
        done = self.on_node("python", "-c", program)
        assert done.returncode == 0, done.stderr
        found: dict[str, int] = json.loads(done.stdout)
        return {name: inode for name, inode in found.items() if not name.startswith("made by")}

    def wanted(self) -> str:
        """The node's file PLAN."""
        return self.on_node("python", "-c", f"print(open('{NODE_FOLDER}/PLAN').read(), end='')").stdout.strip()

    def verify(self, plan: str) -> str:
        """Check the digests of a sample on the node; returns what the program said."""
        done = self.on_node("python", "-m", "pairmill", "sample", "verify", f"path={NODE_FOLDER}/{plan}")
        assert done.returncode == 0, done.stderr
        message: str = json.loads(done.stderr.splitlines()[-1])["message"]
        return message
