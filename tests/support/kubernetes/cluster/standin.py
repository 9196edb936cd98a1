"""A Kubeflow Pipelines without a cluster: the API server of apiserver.py, whose runs the emulator carries out."""

import re
import threading
from typing import Any

import yaml

from tests.support.kubernetes.emulator import Attempt, Backend, Run
from tests.support.kubernetes.pipelines_server import ApiServer, Node, Request, frame

_ITERATION = re.compile(r"iteration-iterations\((\d+):")


class StandIn(ApiServer):
    """What is submitted runs on ``backend``, and is told as the server tells it."""

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        self._backend = backend
        self._carried_out: dict[str, Run] = {}

    def _route(self, request: Request) -> Any:
        match (request.method, *request.path.split("/")[3:]):
            case ("POST", "runs"):
                made = super()._route(request)
                self._carried_out[made["run_id"]] = self._start(request.body)
                return made
            case ("GET", "runs", run):
                found = self._carried_out[run]
                return {**frame(found.state, *(node for node, _ in self._tasks(found))), "run_id": run}
            case ("GET", "runs", run, "nodes", _, "log"):
                self.logs = {node.log_node: _archived(last) for node, last in self._tasks(self._carried_out[run])}
        return super()._route(request)

    def _start(self, made_of: dict[str, Any]) -> Run:
        wanted = made_of["pipeline_version_reference"]["pipeline_version_id"]
        (version,) = (one for one in self.versions if one["pipeline_version_id"] == wanted)
        documents = [document for document in yaml.safe_load_all(version["content"]) if document]
        run = self._backend.prepare(documents[0])

        def carry_out() -> None:
            try:
                self._backend.run(documents, made_of["runtime_config"]["parameters"], run=run)
            except BaseException:
                run.state = "FAILED"
                raise

        threading.Thread(target=carry_out, daemon=True).start()
        return run

    def _tasks(self, run: Run) -> list[tuple[Node, Attempt]]:
        """The tasks of a run that have begun, each with its last attempt."""
        begun: dict[str, list[Attempt]] = {}
        for attempt in list(run.attempts):
            begun.setdefault(attempt.node.rpartition(".")[0], []).append(attempt)
        found = []
        for place, attempts in begun.items():
            _, *above, name = place.split(".")
            loop = {"loop": above[0], "index": int(_ITERATION.findall(place)[0])} if above else {}
            # Without a policy of retries the one attempt has no number, and is the task's executor itself.
            states = tuple(_state(run, attempt) for attempt in attempts if attempt.node.endswith(")"))
            # In the order in which they began, which is all that tells whose log is which.
            start = f"2026-11-21T01:00:{len(found) % 60:02}Z"
            state = run.nodes.get(place, "RUNNING")
            node = Node(name, state, attempts=states, start=start, stock=self._backend.stock, **loop)
            found.append((node, attempts[-1]))
        return found


def _state(run: Run, attempt: Attempt) -> str:
    if run.nodes.get(attempt.node) == "SUCCEEDED":
        return "SUCCEEDED"
    if attempt.reason:
        return "FAILED"
    # Its pod has no program yet: it waits for room, or for its artifacts.
    return "PENDING" if attempt.running is None else "RUNNING"


def _archived(attempt: Attempt) -> bytes:
    """The log of a pod as Argo keeps it: the launcher writes into that of its program."""
    begun = b"I1122 06:20:05.759209      21 main.go:67] Setting log level to: '1'\n"
    if not attempt.reason:
        return (
            begun + attempt.log + b'I1122 06:20:06.202110      15 launcher_v2.go:1230] ExecutorOutput: {\n  "a": 1\n}\n'
        )
    return begun + attempt.log + f"F1122 06:20:06.504467      21 main.go:59] {attempt.reason}\n".encode()
