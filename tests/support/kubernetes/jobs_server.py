"""A stand-in for a Kubernetes API server that carries out Indexed Jobs: a process for each pod.

It is reached over TLS with a token, as from a pod: the environment names the folder of the service account. What the
role of ``manifests/base/jobs`` does not allow is forbidden. A pod's end is judged by the Job's own podFailurePolicy and
backoffLimitPerIndex, and a pod that is deleted or preempted is made anew, as the Job controller does.
"""

import itertools
import json
import os
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

import yaml

from tests.support.helpers import REPOSITORY, until
from tests.support.kubernetes.emulator.containers import Engine, Pod, Process, Running

Doc = dict[str, Any]

NAMESPACE, TOKEN = "team", "a-token-of-the-service-account"
ROLE = REPOSITORY / "manifests" / "base" / "jobs" / "rbac.yaml"
KUEUE = "kueue.x-k8s.io"


def rules() -> list[Doc]:
    """Return what the role allows."""
    (role,) = (doc for doc in yaml.safe_load_all(ROLE.read_text()) if doc["kind"] == "Role")
    found: list[Doc] = role["rules"]
    return found


@dataclass
class Ran:
    """A pod that was made, and its program."""

    doc: Doc
    running: Running
    log: bytes = b""
    disrupted: bool = False


@dataclass
class Jobs:
    """The server.

    Args:
        folder: for certificates and pods' folders.
        engine: what runs programs.
        queues: LocalQueues of Kueue; None = there is no Kueue.
        admits: whether Kueue has quota for a Job.
        makes_pods: empty, or why the Job controller may make none.
        pending: empty, or why no node takes a pod.
        started: called with each pod once its program runs.
    """

    folder: Path
    engine: Engine = field(default_factory=Process)
    queues: list[str] | None = None
    admits: bool = True
    makes_pods: str = ""
    pending: str = ""
    rules: list[Doc] = field(default_factory=rules)
    started: Callable[[Ran], None] = lambda _: None
    env: Mapping[str, str] = field(default_factory=dict)
    jobs: dict[str, Doc] = field(default_factory=dict)
    pods: dict[str, Ran | Doc] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def __enter__(self) -> Self:
        self.account.mkdir(parents=True)
        key, signed = self.folder / "key.pem", self.account / "ca.crt"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2", "-subj", "/CN=kubernetes"),
                *("-pkeyopt", "ec_paramgen_curve:P-256"),
                *("-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(signed)),
            ],
            check=True,
            capture_output=True,
        )
        (self.account / "token").write_text(TOKEN)
        (self.account / "namespace").write_text(NAMESPACE)
        jobs = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else {}
                if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                    status, made = 401, {"message": "Unauthorized"}
                else:
                    status, made = jobs.handle(self.command, self.path, body)
                data = made.encode() if isinstance(made, str) else json.dumps(made).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(signed, key)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.jobs):
            self._end(name)
        self._http.shutdown()
        self._http.server_close()

    @property
    def account(self) -> Path:
        """The folder of the service account."""
        return self.folder / "account"

    def environment(self) -> dict[str, str]:
        """Return the variables that lead a pod here."""
        address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self._http.server_port)}
        return {**address, "PAIRMILL_SERVICE_ACCOUNT": str(self.account), "PAIRMILL_JOB_POLL": "0.1"}

    # --- requests

    def handle(self, method: str, target: str, body: Doc) -> tuple[int, Doc | str]:
        """Answer a request."""
        split = urlsplit(target)
        query = dict(parse_qsl(split.query))
        with self._lock:
            self.asked.append(f"{method} {split.path}")
            parts = split.path.strip("/").split("/")
            if parts[:1] == ["apis"] and len(parts) == 2:  # of a group, as everybody may see
                known = parts[1] == KUEUE and self.queues is not None
                return (200, {"preferredVersion": {"version": "v1beta2"}}) if known else _no(parts[1])
            group = "" if parts[0] == "api" else parts[1]
            kind, *names = parts[parts.index("namespaces") + 2 :]
            resource = "/".join([kind, *names[1:]])
            verb = {"GET": "get" if names else "list", "POST": "create", "DELETE": "delete"}[method]
            if not self._may(verb, group, resource):
                who = f"system:serviceaccount:{NAMESPACE}:pipeline-runner"
                text = (
                    f'{resource} is forbidden: User "{who}" cannot {verb} resource "{resource}" in API group "{group}"'
                )
                return 403, {"message": f'{text} in the namespace "{NAMESPACE}"'}
            if method == "DELETE":
                return (200, {}) if self._end(names[0]) else _no(names[0])
            if method == "POST":
                return self._create(body)
            return self._get(resource, names, query)

    def _may(self, verb: str, group: str, resource: str) -> bool:
        return any(
            verb in rule["verbs"] and group in rule["apiGroups"] and resource in rule["resources"]
            for rule in self.rules
        )

    def _get(self, resource: str, names: list[str], query: Mapping[str, str]) -> tuple[int, Doc | str]:
        if resource == "jobs":
            return (200, self.jobs[names[0]]) if names[0] in self.jobs else _no(names[0])
        if resource == "pods/log":
            pod = self.pods.get(names[0])
            return (200, pod.log.decode()) if isinstance(pod, Ran) else _no(names[0])
        if resource == "pods" and names:
            doc = self.pods.get(names[0])
            return _no(names[0]) if doc is None else (200, doc.doc if isinstance(doc, Ran) else doc)
        if resource == "pods":
            name, phase = query["labelSelector"].partition("=")[2], query["fieldSelector"].partition("=")[2]
            docs = [pod.doc if isinstance(pod, Ran) else pod for pod in self.pods.values()]
            label = "batch.kubernetes.io/job-name"
            found = [pod for pod in docs if pod["metadata"]["labels"].get(label) == name]
            return 200, {"items": [pod for pod in found if pod["status"]["phase"] == phase]}
        if resource == "events":
            message = {"message": self.makes_pods, "lastTimestamp": "2026-11-27T03:00:00Z"}
            return 200, {"items": [message] if self.makes_pods else []}
        if resource == "localqueues":
            return 200, {"items": [{"metadata": {"name": name}} for name in self.queues or []]}
        if resource == "workloads":
            text = (
                "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor default, 2 more"
            )
            short = {"type": "QuotaReserved", "status": str(self.admits), "message": text}
            return 200, {"items": [{"status": {"conditions": [short]}}] if self.jobs else []}
        return _no(resource)

    # --- the Job controller

    def _create(self, job: Doc) -> tuple[int, Doc]:
        name = job["metadata"]["name"]
        if name in self.jobs:
            return 409, {"message": f'jobs.batch "{name}" already exists'}
        job["metadata"]["uid"] = f"uid-{next(self._numbers)}"
        job["status"] = {"active": 0, "ready": 0, "succeeded": 0, "failed": 0}
        self.jobs[name] = job
        if job["spec"].get("suspend") and self.queues is not None and self.admits:
            job["spec"]["suspend"] = False
        if not job["spec"].get("suspend") and not self.makes_pods:
            for index in range(job["spec"]["completions"]):
                threading.Thread(target=self._index, args=(job, index), daemon=True).start()
        return 201, job

    def _index(self, job: Doc, index: int) -> None:
        """Make pods for an index until one succeeds, or the policy ends it."""
        spec, status, failures = job["spec"], job["status"], 0
        while not self._is_over(job):
            code, ran = self._pod(job, index)
            with self._lock:
                if self._is_over(job):
                    return
                if code == 0:
                    status["succeeded"] += 1
                    if status["succeeded"] == spec["completions"]:
                        self._conclude(job, "Complete", "CompletionsReached", "")
                    return
                status["failed"] += 1
                action = self._action(spec, code, disrupted=ran.disrupted)
                pod = f"{NAMESPACE}/{ran.doc['metadata']['name']}"
                if action == "FailJob":
                    text = (
                        f"Container share for pod {pod} failed with exit code {code} matching FailJob rule at index 0"
                    )
                    self._conclude(job, "Failed", "PodFailurePolicy", text)
                    return
                failures += action != "Ignore"
                if failures > spec["backoffLimitPerIndex"]:
                    self._conclude(job, "Failed", "FailedIndexes", "Job has failed indexes")
                    return

    def _action(self, spec: Doc, code: int, *, disrupted: bool) -> str:
        for rule in spec["podFailurePolicy"]["rules"]:
            if disrupted and "onPodConditions" in rule:
                return str(rule["action"])
            if code in rule.get("onExitCodes", {}).get("values", []):
                return str(rule["action"])
        return ""

    def _pod(self, job: Doc, index: int) -> tuple[int, Ran]:
        template, number = job["spec"]["template"], next(self._numbers)
        name = f"{job['metadata']['name']}-{index}-{number}"
        (container,) = template["spec"]["containers"]
        labels = {**template["metadata"]["labels"], "batch.kubernetes.io/job-name": job["metadata"]["name"]}
        marks = {"batch.kubernetes.io/job-completion-index": str(index)}
        doc: Doc = {"metadata": {"name": name, "labels": labels, "annotations": marks}, "spec": template["spec"]}
        if self.pending:
            lacks = {"type": "PodScheduled", "status": "False", "message": self.pending}
            self.pods[name] = {**doc, "status": {"phase": "Pending", "conditions": [lacks]}}
            job["status"]["active"] += 1
            until(lambda: self._is_over(job), "the Job ends")
            return 143, Ran(doc, None)  # type: ignore[arg-type]
        places = [mount["mountPath"] for mount in container["volumeMounts"]]
        volumes = {place: self.folder / "pods" / name / place.lstrip("/") for place in places}
        for path in volumes.values():
            path.mkdir(parents=True)
        env = {item["name"]: item["value"] for item in container["env"] if "value" in item}
        env |= {"JOB_COMPLETION_INDEX": str(index), **self.env}
        command = [word.replace("$$", "$") for word in container["command"]]
        with self._lock:
            if self._is_over(job):
                return 143, Ran(doc, None)  # type: ignore[arg-type]
            doc["status"] = {"phase": "Running"}
            ran = Ran(doc, self.engine.start(Pod(name, container["image"], command, env, volumes, {})))
            self.pods[name] = ran
            job["status"]["active"] += 1
            job["status"]["ready"] += 1
        self.started(ran)
        pipe = ran.running.process.stdout
        assert pipe is not None
        while data := os.read(pipe.fileno(), 1 << 16):
            ran.log += data
        pipe.close()
        ran.running.process.wait()
        ended = ran.running.process.returncode
        code = ended if ended >= 0 else 128 - ended
        with self._lock:
            terminated = {
                "exitCode": code,
                "reason": "Completed" if code == 0 else "OOMKilled" if code == 137 else "Error",
            }
            doc["status"] = {
                "phase": "Succeeded" if code == 0 else "Failed",
                "containerStatuses": [{"name": "share", "state": {"terminated": terminated}}],
            }
            job["status"]["active"] -= 1
            job["status"]["ready"] -= 1
        return code, ran

    def _conclude(self, job: Doc, kind: str, reason: str, message: str) -> None:
        job["status"]["conditions"] = [{"type": kind, "status": "True", "reason": reason, "message": message}]
        self._kill(job)

    def _end(self, name: str) -> bool:
        with self._lock:
            job = self.jobs.pop(name, None)
            if job is None:
                return False
            job["metadata"]["deletionTimestamp"] = "now"
            self._kill(job)
            for pod, ran in list(self.pods.items()):
                doc = ran.doc if isinstance(ran, Ran) else ran
                if doc["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name:
                    del self.pods[pod]
            return True

    def _kill(self, job: Doc) -> None:
        for ran in self.of(job["metadata"]["name"]):
            with suppress(ProcessLookupError):
                ran.running.kill(signal.SIGTERM)
                threading.Timer(1.0, ran.running.kill).start()

    def of(self, name: str) -> list[Ran]:
        """Return the pods of a Job whose programs run."""
        ran = [pod for pod in self.pods.values() if isinstance(pod, Ran)]
        return [
            pod
            for pod in ran
            if pod.doc["metadata"]["labels"].get("batch.kubernetes.io/job-name") == name
            and pod.doc["status"]["phase"] == "Running"
        ]

    @staticmethod
    def _is_over(job: Doc) -> bool:
        return bool(job["status"].get("conditions")) or "deletionTimestamp" in job["metadata"]


def _no(name: str) -> tuple[int, Doc]:
    return 404, {"message": f'"{name}" not found'}


def settled(condition: Callable[[], object], seconds: float = 10) -> bool:
    """Return whether it holds within this time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False
