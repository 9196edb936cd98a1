"""What a run object of Kubeflow Pipelines says: how the run ended, and the tasks that a person knows.

The REST API lists every node of the Argo workflow (drivers, loops, executors, the pods' own entries) without saying
where each stands. Argo derives a node's id from its place, so the place is found by hashing: `NodeID` in
github.com/argoproj/argo-workflows, workflow/common/util.go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

SUCCEEDED, FAILED, SKIPPED, PENDING, RUNNING = "SUCCEEDED", "FAILED", "SKIPPED", "PENDING", "RUNNING"
CANCELING, CANCELED = "CANCELING", "CANCELED"
GOES_ON = frozenset({"", PENDING, RUNNING, CANCELING, "PAUSED", "RUNTIME_STATE_UNSPECIFIED"})
KNOWN = GOES_ON | {SUCCEEDED, FAILED, SKIPPED, CANCELED}

# Names that the compiler and the backend give to what is no task of ours.
_NOISE = re.compile(
    r"(root|for-loop-\d+|iteration-(item|iterations)|condition(-branches)?-\d+|exit-handler-\d+(\.onExit)?)"
)
_ITERATION = re.compile(r"iteration-iterations\((\d+):")
_ATTEMPT = re.compile(r"executor(\((\d+)\))?")
_DRIVER = "-driver"

Place = tuple[str, ...]


class Verdict(Enum):
    """How a run ended. The value is the exit code."""

    SUCCEEDED = 0
    FAILED = 6
    CANCELED = 7
    SKIPPED = 8
    UNKNOWN = 10


@dataclass(frozen=True)
class Task:
    """A task of the pipeline, or the driver of one that failed before it.

    Args:
        key: the entry's id.
        label: stage and worker indices, as ``clean[3]``.
        state: RUNNING only once its program runs; PENDING while its pod waits for a node or an image.
        seconds: from its start to its end, or to now.
        node: whose log tells of it; empty if it never had a pod.
    """

    key: str
    label: str
    state: str
    seconds: float
    node: str


def verdict(run: Any) -> Verdict | None:
    """How the run (a ``V2beta1Run``) ended; None while it goes on.

    A terminated run ends in FAILED; only the CANCELING in its history tells it from one that failed.
    """
    state = run.state or ""
    if state == SUCCEEDED:
        return Verdict.SUCCEEDED
    if state == SKIPPED:
        return Verdict.SKIPPED
    if state == CANCELED:
        return Verdict.CANCELED
    if state == FAILED:
        canceled = any(entry.state == CANCELING for entry in run.state_history or [])
        return Verdict.CANCELED if canceled else Verdict.FAILED
    # The server writes the epoch where there is no time yet.
    ended = run.finished_at is not None and run.finished_at.year > 1970
    return Verdict.UNKNOWN if ended and state not in GOES_ON else None


def tasks(run: Any, now: datetime) -> list[Task]:
    """The tasks of the run (a ``V2beta1Run``) that have begun, in the order of their start.

    Where the server's ids are none of Argo's, tasks have no index, and those around others are among them.
    """
    entries = [entry for entry in _details(run) if entry.display_name]
    ids = {child.pod_name for entry in entries for child in entry.child_tasks or []}
    if not ids:
        return []
    workflow = min(ids).rsplit("-", 1)[0]
    places = _places(workflow, {entry.display_name for entry in entries} - {workflow}, ids)
    node_of = {place: node for node, place in places.items()}
    waiting = _waiting(entries, places)
    found = []
    for entry in entries:
        name, state = entry.display_name, entry.state or ""
        place = _place(entry, places)
        if not state or name == workflow or _ATTEMPT.fullmatch(name):
            continue
        if name.endswith(_DRIVER):
            if state != FAILED:
                continue
            label, node = f"{_label((*place[:-1], name[: -len(_DRIVER)]))} (driver)", node_of.get(place, "")
        else:
            node = _executor(place, node_of) if places else next((c.pod_name for c in entry.child_tasks or []), "")
            if _ITERATION.match(name) or _NOISE.fullmatch(name) or (not node and state != SKIPPED):
                continue
            label = _label(place)
        if state == RUNNING and entry.start_time in waiting:
            state = PENDING
        found.append((entry.start_time or _EPOCH, label, entry, state, node))
    found.sort(key=lambda item: (item[0], item[1]))
    return [
        Task(entry.task_id, label, state, _seconds(entry, now if state in GOES_ON else start), node)
        for start, label, entry, state, node in found
    ]


def settled(found: Iterable[Task]) -> bool:
    """Whether every task has ended. The server writes the run's end some seconds before those of its tasks."""
    return all(task.state not in GOES_ON for task in found)


_EPOCH = datetime.fromtimestamp(0, UTC)


def _details(run: Any) -> list[Any]:
    return list(run.run_details.task_details or []) if run.run_details else []


def _seconds(entry: Any, now: datetime) -> float:
    start = entry.start_time
    end = entry.end_time if entry.end_time and entry.end_time.year > 1970 else now
    return max((end - start).total_seconds(), 0.0) if start else 0.0


def _node_id(workflow: str, place: Place) -> str:
    value = 0x811C9DC5  # FNV-1a, 32 bits
    for byte in ".".join((workflow, *place)).encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{workflow}-{value}"


def _places(workflow: str, names: set[str], ids: set[str]) -> dict[str, Place]:
    """The place below the workflow of every id: names from level to level, each tried below each known place."""
    found: dict[str, Place] = {}
    # A node with no entry of its own yet is known by its driver.
    known = names | {name[: -len(_DRIVER)] for name in names if name.endswith(_DRIVER)} | {"root", "executor"}
    level: list[Place] = [()]
    while level:
        tried = {_node_id(workflow, (*place, name)): (*place, name) for place in level for name in sorted(known)}
        new = {node: place for node, place in tried.items() if node in ids and node not in found}
        found.update(new)
        level = list(new.values())
    return found


def _place(entry: Any, places: dict[str, Place]) -> Place:
    """Where an entry stands: its children are below it, or beside it (behind a driver stands what it drives)."""
    name = entry.display_name
    for child in entry.child_tasks or []:
        place = places.get(child.pod_name, ())
        for depth in range(len(place) - 1, 0, -1):
            if place[depth - 1] == name:
                return place[:depth]
        if place:
            return (*place[:-1], name)
    return (name,)


def _executor(place: Place, node_of: dict[Place, str]) -> str:
    """The node of the last attempt of the task at ``place``."""
    attempts = [place_ for place_ in node_of if place_[: len(place)] == place and len(place_) == len(place) + 1]
    numbered = [(match, node_of[found]) for found in attempts if (match := _ATTEMPT.fullmatch(found[-1]))]
    return max(numbered, key=lambda item: int(item[0][2] or -1))[1] if numbered else ""


def _label(place: Place) -> str:
    names = [name for name in place if not _NOISE.fullmatch(name) and not _ITERATION.match(name)]
    indices = [match[1] for name in place if (match := _ITERATION.match(name))]
    if indices:
        # A component that stands before its loop and in it is called "clean" and "clean-2"; the index says enough.
        names[-1:] = [re.sub(r"-\d+$", "", name) for name in names[-1:]]
    return ".".join(names) + "".join(f"[{index}]" for index in indices) if names else place[-1]


def _waiting(entries: list[Any], places: dict[str, Place]) -> set[datetime]:
    """Starts of which every executor is PENDING. Nothing else links an executor to its task than their common start."""
    states: dict[datetime, set[str]] = {}
    for entry in entries:
        # With retries, `executor` is the node above the attempts, and RUNNING while the first of them is PENDING.
        below = [places.get(child.pod_name, ("",))[-1] for child in entry.child_tasks or []]
        above = any(_ATTEMPT.fullmatch(name) for name in below)
        if _ATTEMPT.fullmatch(entry.display_name) and entry.start_time and not above:
            states.setdefault(entry.start_time, set()).add(entry.state or "")
    return {start for start, found in states.items() if found == {PENDING}}
