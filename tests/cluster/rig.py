"""What the tests do to a cluster, and how they say what they saw. Which cluster it is, the environment says."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import REPOSITORY

MANIFESTS = REPOSITORY / "manifests"
NAMESPACE = "pairmill"
OUTSIDE = "pairmill-test"
"""Namespace of what the tests bring: the project on the node, and a pod that looks at the node."""
SAMPLER = "daemonset/pairmill-sampler"
NODE_FOLDER = "/dev/shm/pairmill"
PROJECT = "/var/lib/pairmill"
LOCAL_IMAGE = "localhost/pairmill-sampler"

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
    missing = [f"  {name}: {meaning}" for name, meaning in wanted.items() if not os.environ.get(name)]
    if missing:
        pytest.fail("these variables are to be set:\n" + "\n".join(missing), pytrace=False)
    return Settings(*(os.environ[name] for name in ("SAMPLER_IMAGE", "LOAD_IMAGES", "RESTART_KUBELET")))


def say(text: str) -> None:
    """A line of the protocol; `make cluster-test` shows them."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


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


class Cluster:
    """A cluster, the sampler on it, and a pod `look` that sees the node's folders."""

    def __init__(self, given: Settings, folder: Path) -> None:
        self.given = given
        self._folder = folder
        self._count = 0
        self.plans: list[str] = []

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

    # --- before and after

    def refuse_used(self) -> None:
        """Leave a cluster alone that has a sampler already."""
        for namespace in (NAMESPACE, OUTSIDE):
            if self.try_kubectl("get", "namespace", namespace).returncode == 0:
                pytest.fail(f"this cluster has a namespace {namespace} already: these tests need one of their own")
        nodes = self.get("nodes")["items"]
        assert len(nodes) == 1, "these tests look at one node"
        info = nodes[0]["status"]["nodeInfo"]
        say(f"node {nodes[0]['metadata']['name']}: {info['kubeletVersion']}, {info['containerRuntimeVersion']}")

    def set_up(self) -> None:
        shell(self.given.load_images, self.given.image)
        say(f"image {self.given.image}")
        self.kubectl("create", "namespace", OUTSIDE)
        scripts = [f"--from-file={Path(__file__).with_name(name)}" for name in ("project.py", "freeze.py")]
        self.kubectl("create", "configmap", "project", *scripts, f"--namespace={OUTSIDE}")
        self.plans = json.loads(self._project("make").splitlines()[-1])
        self._create(OUTSIDE, self._pod("look", ["python", "-c", "import time; time.sleep(86400)"], user=65532))
        self.kubectl("wait", "--for=condition=Ready", "pod/look", f"--namespace={OUTSIDE}", "--timeout=60s")
        say(f"project folder with plans {', '.join(self.plans)}")

    def tear_down(self) -> None:
        self.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=120s")
        if self.try_kubectl("get", "configmap", "project", f"--namespace={OUTSIDE}").returncode == 0:
            self._project("remove")
        for what in (f"namespace/{OUTSIDE}", "persistentvolume/pairmill-project", "priorityclass/pairmill-sampler"):
            self.kubectl("delete", what, "--ignore-not-found", "--timeout=120s")
        say("removed what the tests made")

    def _project(self, what: str) -> str:
        command = ["python", "/opt/test/project.py", what, PROJECT, NODE_FOLDER]
        self._create(OUTSIDE, self._pod(f"project-{what}", command, user=0))
        return self._result(f"project-{what}")

    def _result(self, pod: str) -> str:
        """Wait until a pod of ours ends well; returns what it printed."""

        def ended() -> str:
            phase: str = self.get("pod", pod, f"--namespace={OUTSIDE}")["status"]["phase"]
            return phase if phase in {"Succeeded", "Failed"} else ""

        phase = until(ended, f"{pod} ends")
        out = self.kubectl("logs", pod, f"--namespace={OUTSIDE}")
        assert phase == "Succeeded", out
        return out

    def _create(self, namespace: str, doc: Doc) -> None:
        path = self._folder / "create.yaml"
        path.write_text(yaml.safe_dump(doc))
        self.kubectl("create", f"--namespace={namespace}", f"--filename={path}")

    def _pod(self, name: str, command: list[str], user: int) -> Doc:
        places = {"project": PROJECT, "samples": NODE_FOLDER}
        volumes: list[Doc] = [
            {"name": key, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for key, path in places.items()
        ]
        container = {
            "name": "main",
            "image": self.given.image,
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

    # --- the manifests

    def apply(self, folder: str, plan: str, *patches: Doc, settings: dict[str, Any] | None = None) -> str:
        """Apply a folder of manifests with this image and plan, as an operator's own overlay would.

        Returns what the API server warned of.
        """
        self._count += 1
        here = self._folder / f"overlay-{self._count}"
        here.mkdir()
        name, _, tag = self.given.image.rpartition(":")
        kind, of = ("DaemonSet", "pairmill-sampler") if folder.startswith("overlays") else ("Job", ".*")
        label = {"op": "add", "path": "/spec/template/metadata/labels/pairmill.dev~1plan", "value": plan}
        kustomization: Doc = {
            "namespace": NAMESPACE,
            "resources": [os.path.relpath(MANIFESTS / folder, here)],
            "images": [{"name": LOCAL_IMAGE, "newName": name, "newTag": tag}],
            "patches": [
                {"target": {"kind": kind, "name": of}, "patch": yaml.safe_dump([label])},
                *({"patch": yaml.safe_dump(patch)} for patch in patches),
            ],
        }
        if settings is not None:
            literals = [f"{key}={value}" for key, value in settings.items()]
            merge = {"name": "pairmill-sampler", "behavior": "merge", "literals": literals}
            kustomization["configMapGenerator"] = [merge]
        (here / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        done = self.try_kubectl("apply", "--kustomize", str(here))
        assert done.returncode == 0, done.stderr
        return done.stderr

    def sampler(self, plan: str, *patches: Doc, settings: dict[str, Any] | None = None) -> str:
        """Apply the overlay `kind` with this plan; returns the warnings."""
        return self.apply("overlays/kind", plan, *patches, settings=settings)

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

    def trainer_log(self) -> str:
        """What the example trainer has printed so far."""
        return self.try_kubectl("logs", "job/pairmill-trainer", f"--namespace={NAMESPACE}").stdout

    def job(self, name: str, expected: str = "done") -> str:
        """Wait for a Job to end as expected; returns what its containers said."""

        def ended() -> str:
            status = self.get("job", name, f"--namespace={NAMESPACE}")["status"]
            return "done" if status.get("succeeded") else "failed" if status.get("failed") else ""

        state = until(ended, f"job {name} ends")
        out = self.try_kubectl("logs", f"job/{name}", "--all-containers", f"--namespace={NAMESPACE}").stdout
        assert state == expected, out
        return out

    def end(self, job: str) -> None:
        """Delete a Job and its pods, which hold their samples until they are gone."""
        self.kubectl("delete", "job", job, f"--namespace={NAMESPACE}", "--cascade=orphan")
        pods = f"--selector=batch.kubernetes.io/job-name={job}"
        self.kubectl("delete", "pods", pods, f"--namespace={NAMESPACE}", "--grace-period=1")

    # --- the node

    def freeze(self, plan: str) -> None:
        """Stop the next writer of this plan (SIGSTOP) as soon as it has written a megabyte; ``frozen`` waits for it."""
        pod = self._pod("freeze", ["python", "/opt/test/freeze.py", NODE_FOLDER, plan], user=0)
        pod["spec"]["hostPID"] = True
        self._create(OUTSIDE, pod)
        self.kubectl("wait", "--for=condition=Ready", "pod/freeze", f"--namespace={OUTSIDE}", "--timeout=60s")

    def frozen(self) -> int:
        """Wait until the writer is stopped; returns the bytes it had written."""
        return int(self._result("freeze"))

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
        done = self.on_node("python", "-m", "components.sample", "verify", f"path={NODE_FOLDER}/{plan}")
        assert done.returncode == 0, done.stderr
        message: str = json.loads(done.stderr.splitlines()[-1])["message"]
        return message
