"""A stand-in for the API server of Kubeflow Pipelines 2.17, over real HTTP on loopback.

It keeps pipelines, versions, experiments, runs and recurring runs as the server does, in the shapes of the recorded
objects and of kfp_server_api's models, and plays runs from a script: one frame for every time that a run is asked for.
Tasks are listed as by a stock installation, which wraps every template in a retry, unless a node says otherwise.

    with ApiServer() as server:
        server.add_run("r1", [frame("RUNNING", Node("clean", "RUNNING")), frame("SUCCEEDED")])
        server.fail("GET", "/apis/v2beta1/runs/*", 503, times=2)
"""

import json
import re
import socket
import ssl
import threading
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.parser import BytesParser
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, unquote, unquote_plus, urlsplit

from pairmill.kubeflow.compile import documents

WORKFLOW = "pairmill-x7k2p"


def node_id(*place: str) -> str:
    """The id of a node of the workflow: nothing that could be derived from its place."""
    return f"{WORKFLOW}-{zlib.crc32(repr(place).encode())}"


def named_node(name: str) -> str:
    """The id that Argo gives to a node of this name, below the workflow's: FNV-1a of 32 bits."""
    found = 2166136261
    for byte in f"{WORKFLOW}{name}".encode():
        found = (found ^ byte) * 16777619 % 2**32
    return f"{WORKFLOW}-{found}"


def frozen(now: dict[str, Any], state: str, version: dict[str, str]) -> dict[str, Any]:
    """A run that ended while its tasks are shown as they were, of an uploaded version."""
    ended = {**now, "state": state, "state_history": [*now["state_history"], {"state": state}]}
    return {**ended, "finished_at": "2026-11-21T01:20:00Z", "pipeline_version_reference": version}


@dataclass(frozen=True)
class Node:
    """A task in a run.

    Args:
        state: of the task; empty = it is left out, ``DRIVER FAILED`` = so it is because its driver failed.
        executor: of its pod where that is another one.
        loop: with ``index`` the iteration that it is in.
        attempts: states of its pods; empty = one.
        stock: whether its installation wraps every template in a retry.
    """

    name: str
    state: str
    executor: str = ""
    loop: str = ""
    index: int = 0
    attempts: tuple[str, ...] = ()
    start: str = "2026-11-21T01:00:00Z"
    end: str = "2026-11-21T01:01:05Z"
    stock: bool = True

    @property
    def place(self) -> tuple[str, ...]:
        inside = (self.loop, f"iteration-iterations({self.index}:{self.index})", "iteration-item") if self.loop else ()
        return ("root", *inside, self.name)

    @property
    def pods(self) -> tuple[str, ...]:
        """States of its pods, as far as they have numbers."""
        return self.attempts or ((self.executor or self.state,) if self.stock else ())

    @property
    def log_node(self) -> str:
        """The node whose log tells of it."""
        if self.state == "DRIVER FAILED":
            return node_id(*self.place[:-1], f"{self.name}-driver", *(["(0)"] if self.stock else []))
        last = f"executor({len(self.pods) - 1})" if self.pods else "executor"
        return node_id(*self.place, last)


class _Entries:
    """Task details; ``stock``: a node that is not an attempt has the attempts below it, and one called like it."""

    def __init__(self, stock: bool) -> None:
        self._stock = stock
        self.found: dict[tuple[str, ...], dict[str, Any]] = {}

    def add(
        self,
        place: tuple[str, ...],
        now: str | None,
        children: Sequence[tuple[str, ...]] = (),
        like: Node | None = None,
        start: str = "",
        *,
        alone: bool = False,
    ) -> None:
        if self._stock and not alone and now is not None:
            # Recorded: the one around it is never PENDING.
            self.add(place, "RUNNING" if now == "PENDING" else now, [(*place, "(0)")], like, start, alone=True)
            self.add((*place, "(0)"), now, children, like, start, alone=True)
            return
        name = "".join(place[-2:]) if place[-1] == "(0)" else place[-1]
        known = self.found.setdefault(place, {"display_name": name, "child_tasks": []})
        known.update({"run_id": "", "task_id": str(uuid.uuid5(uuid.NAMESPACE_OID, ".".join(place)))})
        known.update({"create_time": "2026-11-21T01:00:00Z", "start_time": start or (like.start if like else None)})
        known["end_time"] = like.end if like and now not in {"RUNNING", "PENDING"} else "1970-01-01T00:00:00Z"
        known["state"] = now
        known["child_tasks"] += [{"pod_name": node_id(*child)} for child in children]


def _later(time: str) -> str:
    """A few seconds later: under load a task's pods begin so much later than the task."""
    return (datetime.fromisoformat(time) + timedelta(seconds=4)).strftime("%Y-%m-%dT%H:%M:%SZ")


def frame(state: str, *nodes: Node, history: Sequence[str] = (), finished: bool | None = None) -> dict[str, Any]:
    """A run as the server returns it at one moment."""
    ended = state not in {"PENDING", "RUNNING", "CANCELING"} if finished is None else finished
    entries = _Entries(all(node.stock for node in nodes))
    entries.add((WORKFLOW,), state, [("root-driver",)])
    entries.add(("root-driver",), "SUCCEEDED", [("root",)])
    entries.add(("root",), state, [(*node.place[:-1], f"{node.name}-driver") for node in nodes[:1]])
    for node in nodes:
        place, above = node.place, node.place[:-1]
        driver = (*above, f"{node.name}-driver")
        if node.loop:
            loop, turns, turn = place[:2], (*place[:2], "iteration-iterations"), place[:3]
            around = state if ended else "RUNNING"
            entries.add(loop, around, [(*loop, "iteration-driver")])
            entries.add((*loop, "iteration-driver"), "SUCCEEDED", [turns])
            # Not a template's, so it is not wrapped.
            entries.add(turns, around, [turn], alone=True)
            entries.add(turn, around, [(*turn, "iteration-item-driver")])
            entries.add((*turn, "iteration-item-driver"), "SUCCEEDED", [(*turn, "iteration-item")])
            entries.add((*turn, "iteration-item"), around, [driver])
        entries.add(driver, "SUCCEEDED" if node.state != "DRIVER FAILED" else "FAILED", [place])
        if node.state in {"", "DRIVER FAILED"}:
            entries.add(place, None)
            continue
        entries.add(place, node.state, [(*place, "executor")], node)
        attempts = [(*place, f"executor({number})") for number in range(len(node.pods))]
        now = node.executor or node.state
        around = "RUNNING" if attempts and now == "PENDING" else now
        entries.add((*place, "executor"), around, attempts, node, _later(node.start), alone=True)
        for attempt, outcome in zip(attempts, node.pods, strict=True):
            entries.add(attempt, outcome, like=node, start=_later(node.start), alone=True)
    past = [{"update_time": "2026-11-21T01:00:00Z", "state": each} for each in history or ("PENDING", "RUNNING", state)]
    return {
        "display_name": "a run",
        "storage_state": "AVAILABLE",
        "created_at": "2026-11-21T01:00:00Z",
        "finished_at": "2026-11-21T01:02:00Z" if ended else "1970-01-01T00:00:00Z",
        "state": state,
        "state_history": past,
        "run_details": {"task_details": sorted(entries.found.values(), key=lambda entry: entry["task_id"])},
    }


TERMINATED = [
    frame("CANCELING", history=("PENDING", "RUNNING", "CANCELING")),
    frame("FAILED", history=("PENDING", "RUNNING", "CANCELING", "FAILED")),
]


@dataclass
class Request:
    """One request as it came; ``body`` is JSON, or the parts of an upload."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any = None


@dataclass
class _Run:
    id: str
    frames: list[dict[str, Any]]
    asked: int = 0
    made_of: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Fault:
    method: str
    pattern: str
    status: int  # 0: the connection is cut
    times: int
    skip: int
    body: str
    then: Callable[[], object]


def read_log(archived: bytes) -> bytes:
    """What the server makes of a pod's log: of a line that is a JSON object the text of its ``log`` alone."""
    lines = []
    for line in archived.splitlines():
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        lines.append(str(found.get("log", "")).encode() if isinstance(found, dict) else line)
    return b"".join(line + b"\n" for line in lines)


class _Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.body = status, json.dumps({"code": 2, "message": message})


class ApiServer:
    """The server. ``token`` is the one that it takes, empty = none; ``tls`` is a file with certificate and key.

    A run that is started is played from the first of ``scripts`` that is left, or from ``script``.
    """

    def __init__(self, *, token: str = "", multi_user: bool = False, tls: Path | None = None) -> None:
        self.token, self.multi_user = token, multi_user
        self.requests: list[Request] = []
        self.pipelines: list[dict[str, Any]] = []
        self.versions: list[dict[str, Any]] = []
        self.experiments: list[dict[str, Any]] = []
        self.recurring: list[dict[str, Any]] = []
        self.runs: dict[str, _Run] = {}
        self.script: list[dict[str, Any]] = [frame("SUCCEEDED")]
        self.scripts: list[list[dict[str, Any]]] = []
        self.logs: dict[str, bytes] = {}
        self._faults: list[_Fault] = []
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"server_of": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._http.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def add_run(self, run: str, frames: list[dict[str, Any]]) -> None:
        """A run that is there already."""
        self.runs[run] = _Run(run, frames)

    def fail(
        self,
        method: str,
        pattern: str,
        status: int,
        *,
        times: int = 10**9,
        skip: int = 0,
        body: str = "",
        then: Callable[[], object] = bool,
    ) -> None:
        """Answer so many requests with a status (0: cut the connection), after letting ``skip`` pass; before each such
        answer ``then`` happens."""
        self._faults.append(_Fault(method, pattern, status, times, skip, body, then))

    def asked(self, method: str, pattern: str) -> list[Request]:
        """The requests of a method whose path matches."""
        return [each for each in self.requests if each.method == method and fnmatchcase(each.path, pattern)]

    def answer(self, request: Request) -> tuple[int, str, bytes]:
        """Status, content type and body; a status of 0 cuts the connection."""
        with self._lock:
            self.requests.append(request)
            for fault in self._faults:
                if fault.method == request.method and fnmatchcase(request.path, fault.pattern) and fault.times:
                    if fault.skip:
                        fault.skip -= 1
                        continue
                    fault.times -= 1
                    fault.then()
                    return fault.status, "application/json", fault.body.encode()
            if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
                return 401, "application/json", b'{"code": 16, "message": "Request header error"}'
            try:
                found = self._route(request)
            except _Refusal as refusal:
                return refusal.status, "application/json", refusal.body.encode()
        if isinstance(found, bytes):
            return 200, "text/plain", found
        return 200, "application/json", json.dumps(found).encode()

    def _route(self, request: Request) -> Any:
        path = request.path.removeprefix("/apis/v2beta1/")
        method, *words = request.method, *re.split("[/:]", path)
        match (method, *words):
            case ("GET", "healthz"):
                return {"multi_user": self.multi_user}
            case ("GET", "pipelines"):
                return {"pipelines": self._find(self.pipelines, request)}
            case ("POST", "pipelines"):
                return self._add(self.pipelines, request.body, "pipeline_id", ("display_name", "namespace"))
            case ("GET", "pipelines", pipeline, "versions"):
                found = [each for each in self._find(self.versions, request) if each["pipeline_id"] == pipeline]
                return {"pipeline_versions": found}
            case ("GET", "pipelines", pipeline, "versions", version):
                (one,) = [each for each in self.versions if each["pipeline_version_id"] == version]
                pipeline_spec, platform_spec = documents(one["content"].encode())
                return {**one, "pipeline_spec": {"pipeline_spec": pipeline_spec, "platform_spec": platform_spec}}
            case ("POST", "pipelines", "upload_version"):
                made = {
                    "pipeline_id": request.query["pipelineid"],
                    "display_name": request.query["name"],
                    "description": request.query.get("description", ""),
                    "content": request.body["uploadfile"],
                }
                return self._add(self.versions, made, "pipeline_version_id", ("display_name", "pipeline_id"))
            case ("GET", "experiments"):
                return {"experiments": self._find(self.experiments, request)}
            case ("POST", "experiments"):
                return self._add(self.experiments, request.body, "experiment_id", ("display_name", "namespace"))
            case ("POST", "runs"):
                frames = self.scripts.pop(0) if self.scripts else self.script
                made = _Run(str(uuid.uuid4()), frames, made_of=request.body)
                self.runs[made.id] = made
                return {**request.body, "run_id": made.id, "state": "PENDING"}
            case ("GET", "runs", run):
                played = self._run(run)
                now = played.frames[min(played.asked, len(played.frames) - 1)]
                played.asked += 1
                return {**now, "run_id": run}
            case ("POST", "runs", run, "terminate"):
                played = self._run(run)
                played.frames, played.asked = TERMINATED, 0
                return {}
            case ("GET", "recurringruns"):
                owned = [each for each in self.recurring if each["experiment_id"] == request.query["experiment_id"]]
                return {"recurringRuns": self._find(owned, request)}
            case ("POST", "recurringruns"):
                status = "ENABLED" if request.body["mode"] == "ENABLE" else "DISABLED"
                return self._add(self.recurring, {**request.body, "status": status}, "recurring_run_id", ())
            case ("DELETE", "recurringruns", job):
                self.recurring.remove(self._job(job))
                return {}
            case ("POST", "recurringruns", job, ("enable" | "disable") as verb):
                self._job(job)["status"] = f"{verb.upper()}D"
                return {}
            case ("GET", "", "apis", "v1alpha1", "runs", run, "nodes", node, "log"):
                if node not in self.logs:
                    gone = f"BadRequestError: Failed to read logs for run {run}: NoSuchKey: The key does not exist."
                    return {"error_message": gone, "error_details": gone}
                return read_log(self.logs[node])
        raise _Refusal(404, f"{method} {request.path} is not known")

    def _find(self, items: list[dict[str, Any]], request: Request) -> list[dict[str, Any]]:
        if "namespace" in request.query and not self.multi_user:
            raise _Refusal(400, "In single-user mode, the namespace must be empty")
        wanted = {"namespace": request.query["namespace"]} if "namespace" in request.query else {}
        # As the server does, which decodes what HTTP has decoded.
        text = unquote_plus(request.query.get("filter", '{"predicates": []}'))
        for predicate in json.loads(text)["predicates"]:
            assert predicate["operation"] in {"EQUALS", 1}
            wanted[predicate["key"]] = predicate["stringValue"]
        return [each for each in items if all(each.get(key) == value for key, value in wanted.items())]

    def _add(
        self, items: list[dict[str, Any]], body: dict[str, Any], key: str, unique: tuple[str, ...]
    ) -> dict[str, Any]:
        if unique and any(all(each.get(name) == body.get(name) for name in unique) for each in items):
            raise _Refusal(409, f"{body['display_name']} already exists")
        made = {**body, key: str(uuid.uuid4())}
        items.append(made)
        return made

    def _run(self, run: str) -> _Run:
        if run not in self.runs:
            raise _Refusal(404, f"Run {run} not found")
        return self.runs[run]

    def _job(self, job: str) -> dict[str, Any]:
        for each in self.recurring:
            if each["recurring_run_id"] == job:
                return each
        raise _Refusal(404, f"Recurring run {job} not found")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: ApiServer

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        raw = self.rfile.read(int(headers.get("content-length", 0)))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = _body(headers.get("content-type", ""), raw)
        status, kind, answer = self.server_of.answer(Request(self.command, unquote(parts.path), query, headers, body))
        if not status:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", "/login")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _body(kind: str, raw: bytes) -> Any:
    if kind.startswith("multipart/"):
        message = BytesParser().parsebytes(f"Content-Type: {kind}\r\n\r\n".encode() + raw)
        parts = [part for part in message.get_payload() if not isinstance(part, str)]
        return {
            str(part.get_param("name", header="content-disposition")): part.get_payload(decode=False) for part in parts
        }
    return json.loads(raw) if raw else None
