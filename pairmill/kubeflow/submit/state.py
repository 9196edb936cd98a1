"""What a run object of Kubeflow Pipelines says: how the run ended, and the tasks that a person knows.

The REST API lists every node of the workflow under the name that Argo displays: drivers, loops, retries and pods beside
the tasks. A stock installation wraps every template in a retry, so each task is listed as ``fetch`` and, for each
attempt, as ``fetch(0)``. No entry names its parent, and how Argo makes node ids is not part of any API: only names and
times tell entries apart.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Self

SUCCEEDED, FAILED, SKIPPED, PENDING, RUNNING = "SUCCEEDED", "FAILED", "SKIPPED", "PENDING", "RUNNING"
CANCELING, CANCELED = "CANCELING", "CANCELED"
ACTIVE = frozenset({"", PENDING, RUNNING, CANCELING, "PAUSED", "RUNTIME_STATE_UNSPECIFIED"})
KNOWN = ACTIVE | {SUCCEEDED, FAILED, SKIPPED, CANCELED}

_DRIVER, _EXECUTOR = "-driver", "executor"
_EPOCH = datetime.fromtimestamp(0, UTC)
# The names that kfp's compiler gives to DAGs that are not tasks of the pipeline.
_AROUND = re.compile(r"root|iteration-item|(for-loop|condition|condition-branches|exit-handler)-\d+")


class Verdict(Enum):
    """How a run ended, named as its state. The value is the exit code."""

    SUCCEEDED = 0
    FAILED = 6
    CANCELED = 7
    SKIPPED = 8
    UNKNOWN = 10


@dataclass(frozen=True)
class TaskStatus:
    """A task of the pipeline, or the driver of one that failed before the task began.

    Args:
        key: the entry's id.
        label: its name, with a number if several have that name: ``clean[3]`` is the fourth that began.
        state: PENDING while its pod waits for a node or an image, RUNNING once its program runs.
        seconds: from its start to its end, or to now.
        node: of a task that ended, the pod whose log tells why; empty if the server does not say.
    """

    key: str
    label: str
    state: str
    seconds: float
    node: str


@dataclass(frozen=True, order=True)
class _Entry:
    """An entry of the run's list, in the order of start. ``attempt`` is -1 for the entry around all attempts."""

    start: datetime
    display: str
    key: str
    name: str
    attempt: int
    state: str
    end: datetime
    pod: str

    @classmethod
    def from_task(cls, task: Any) -> Self:
        match = re.fullmatch(r"(.+)\((\d+)\)", task.display_name)
        name, attempt = (match[1], int(match[2])) if match else (task.display_name, -1)
        pod = str(task.child_tasks[-1].pod_name or "") if task.child_tasks else ""
        start, end = task.start_time or _EPOCH, task.end_time or _EPOCH
        return cls(
            start, task.display_name, task.task_id, name=name, attempt=attempt, state=task.state, end=end, pod=pod
        )


def verdict(run: Any) -> Verdict | None:
    """Return how the run (a ``V2beta1Run``) ended; None while it goes on.

    A terminated run ends in FAILED; only the CANCELING in its history tells it from one that failed.
    """
    state = run.state or ""
    if state == FAILED and any(entry.state == CANCELING for entry in run.state_history or []):
        return Verdict.CANCELED
    if state in Verdict.__members__:
        return Verdict[state]
    # The server writes the epoch if there is no time yet.
    ended = run.finished_at is not None and run.finished_at.year > 1970
    return Verdict.UNKNOWN if ended and state not in ACTIVE else None


def tasks(run: Any, now: datetime) -> list[TaskStatus]:
    """Return the tasks of the run (a ``V2beta1Run``) that have begun, and drivers that failed, in the order of their
    start."""
    details = (run.run_details.task_details or []) if run.run_details else []
    entries = sorted(_Entry.from_task(item) for item in details if item.display_name and item.state)
    newest = _newest(entries)
    drivers = {item.name.removesuffix(_DRIVER) for item in entries if item.name.endswith(_DRIVER)}
    shown = [item for item in newest if item.name in drivers and not _AROUND.fullmatch(item.name)]
    broken = [item for item in newest if item.name.endswith(_DRIVER) and item.state == FAILED]
    waiting, pods, labels = _waiting(entries, shown), _pods(entries, newest, shown, broken), _labels(shown)
    labels.update({item.key: f"{item.name.removesuffix(_DRIVER)} (driver)" for item in broken})
    result = []
    for item in sorted([*shown, *broken]):
        end = item.end if item.end != _EPOCH and item.state not in ACTIVE else now
        seconds = max((end - item.start).total_seconds(), 0.0) if item.start != _EPOCH else 0.0
        state = PENDING if item.key in waiting else item.state
        result.append(TaskStatus(item.key, labels[item.key], state, seconds, pods.get(item.key, "")))
    return result


def settled(tasks: Iterable[TaskStatus]) -> bool:
    """Return whether every task has ended. The server writes the run's end some seconds before those of its tasks."""
    return all(task.state not in ACTIVE for task in tasks)


def _newest(entries: Sequence[_Entry]) -> list[_Entry]:
    """Return for each name the entries around all attempts, which have the last one's state; else the last attempt."""
    last: dict[str, int] = {}
    for item in entries:
        last[item.name] = -1 if -1 in (item.attempt, last.get(item.name)) else max(item.attempt, last.get(item.name, 0))
    return [item for item in entries if item.attempt == last[item.name]]


def _labels(shown: Sequence[_Entry]) -> dict[str, str]:
    """Labels by the entries' ids. The server does not say which iteration of its loop a task is in."""
    counts, numbers, result = Counter(item.name for item in shown), Counter[str](), {}
    for item in shown:
        result[item.key] = item.name if counts[item.name] == 1 else f"{item.name}[{numbers[item.name]}]"
        numbers[item.name] += 1
    return result


def _waiting(entries: Sequence[_Entry], shown: Sequence[_Entry]) -> set[str]:
    """Ids of the tasks whose pods wait, which Kubeflow calls RUNNING.

    A waiting pod belongs to the task that began last before it. Among the workers of a loop this may be another one
    that runs; the number of those that wait is always right.
    """
    running = [item for item in shown if item.state == RUNNING]
    for pod in entries:
        before = [item for item in running if item.start <= pod.start]
        if pod.name == _EXECUTOR and pod.state == PENDING and before:
            running.remove(max(before))
    left = {item.key for item in running}
    return {item.key for item in shown if item.state == RUNNING} - left


def _pods(
    entries: Sequence[_Entry], newest: Sequence[_Entry], shown: Sequence[_Entry], broken: Sequence[_Entry]
) -> dict[str, str]:
    """Pods by the ids of the tasks that ended and of the drivers that failed; of several attempts the last one's."""
    wrapped = {item.name for item in entries if item.attempt >= 0}
    # A driver without attempts is the pod itself, and no entry has its id.
    result = {item.key: item.pod for item in broken if item.name in wrapped}
    if _EXECUTOR not in wrapped:
        return result | {item.key: item.pod for item in shown}
    for state in (SUCCEEDED, FAILED):
        # Paired in the order of start, the last first: no entry says whose executor it is, so the logs of tasks that
        # began in the same second may be exchanged. A task that was retried as a whole has an executor per attempt.
        ended = [item for item in shown if item.state == state]
        executors = [item for item in newest if item.name == _EXECUTOR and item.state == state]
        result |= {item.key: pod.pod for item, pod in zip(reversed(ended), reversed(executors), strict=False)}
    return result
