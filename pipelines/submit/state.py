"""What a run object of Kubeflow Pipelines says: how the run ended, and the tasks that a person knows.

The REST API lists every node of the workflow under the name that Argo displays: drivers, loops, retries and pods beside
the tasks, and no entry says which other one it belongs to. A stock installation wraps every template in a retry, so
each task is listed as ``fetch`` and, for each attempt, as ``fetch(0)``. Tasks are told by their names and times alone:
how Argo makes the ids of its nodes is not part of any API.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from pipelines.stages import STAGES

SUCCEEDED, FAILED, SKIPPED, PENDING, RUNNING = "SUCCEEDED", "FAILED", "SKIPPED", "PENDING", "RUNNING"
CANCELING, CANCELED = "CANCELING", "CANCELED"
GOES_ON = frozenset({"", PENDING, RUNNING, CANCELING, "PAUSED", "RUNTIME_STATE_UNSPECIFIED"})
KNOWN = GOES_ON | {SUCCEEDED, FAILED, SKIPPED, CANCELED}

_DRIVER, _EXECUTOR = "-driver", "executor"
_ATTEMPT = re.compile(r"(.+)\((\d+)\)")
# What kfp's compiler calls DAGs that are not tasks of the pipeline.
_AROUND = re.compile(r"root|iteration-item|(for-loop|condition|condition-branches|exit-handler)-\d+")
_STAGES = frozenset(stage.replace("_", "-") for stage in STAGES)


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
        label: its name, with a number where several are called alike: ``clean[3]`` is the fourth that began.
        state: RUNNING only once its program runs; PENDING while its pod waits for a node or an image.
        seconds: from its start to its end, or to now.
        node: of a task that ended, the pod whose log says how; empty if the server does not say.
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
    """The tasks of the run (a ``V2beta1Run``) that have begun, and drivers that failed, in the order of their start."""
    details = list(run.run_details.task_details or []) if run.run_details else []
    entries = [entry for entry in details if entry.display_name and entry.state]
    newest = sorted(_newest(entries), key=_order)
    drivers = {entry.display_name.removesuffix(_DRIVER) for entry in entries if entry.display_name.endswith(_DRIVER)}
    shown = [one for one in newest if _name(one) in drivers and not _AROUND.fullmatch(_name(one))]
    failed_drivers = [one for one in newest if _name(one).endswith(_DRIVER) and one.state == FAILED]
    waiting = _waiting(entries, shown)
    nodes = {**_executors(entries, newest, shown), **_attempts(entries, failed_drivers)}
    labels = _labels(shown)
    labels.update({one.task_id: f"{_name(one).removesuffix(_DRIVER)} (driver)" for one in failed_drivers})
    return [
        Task(
            key=entry.task_id,
            label=labels[entry.task_id],
            state=PENDING if entry.task_id in waiting else entry.state,
            seconds=_seconds(entry, now),
            node=nodes.get(entry.task_id, ""),
        )
        for entry in sorted([*shown, *failed_drivers], key=_order)
    ]


def settled(found: Iterable[Task]) -> bool:
    """Whether every task has ended. The server writes the run's end some seconds before those of its tasks."""
    return all(task.state not in GOES_ON for task in found)


_EPOCH = datetime.fromtimestamp(0, UTC)


def _name(entry: Any) -> str:
    """The name without the number of an attempt."""
    match = _ATTEMPT.fullmatch(entry.display_name)
    return str(match[1] if match else entry.display_name)


def _number(entry: Any) -> int:
    match = _ATTEMPT.fullmatch(entry.display_name)
    return int(match[2]) if match else -1


def _start(entry: Any) -> datetime:
    started: datetime = entry.start_time or _EPOCH
    return started


def _order(entry: Any) -> tuple[datetime, str, str]:
    return _start(entry), entry.display_name, entry.task_id


def _newest(entries: Sequence[Any]) -> list[Any]:
    """Of entries that are called alike those around the attempts, which have the newest one's state."""
    found: dict[str, dict[int, list[Any]]] = {}
    for entry in entries:
        found.setdefault(_name(entry), {}).setdefault(_number(entry), []).append(entry)
    return [entry for numbered in found.values() for entry in numbered.get(-1) or numbered[max(numbered)]]


def _labels(shown: Sequence[Any]) -> dict[str, str]:
    """Labels by the entries' ids. The server does not say which iteration of its loop a task is in."""
    counts, numbers, found = Counter(map(_name, shown)), Counter[str](), {}
    for entry in shown:
        name = _name(entry)
        # kfp calls a stage that is in the loops of two rounds and after them "clean-2", "clean-3" and "clean".
        stage, _, number = name.rpartition("-")
        if stage in _STAGES and number.isdigit():
            rounds = f" round {int(number) - 1}" if int(number) > 2 else ""
            label = f"{stage}{rounds}[{numbers[name]}]"
        else:
            label = name if counts[name] == 1 else f"{name}[{numbers[name]}]"
        numbers[name] += 1
        found[entry.task_id] = label
    return found


def _waiting(entries: Sequence[Any], shown: Sequence[Any]) -> set[str]:
    """Ids of the tasks whose pods wait: to Kubeflow these tasks are RUNNING.

    A waiting pod is that of the task that began last before it. Among the workers of a loop that may be another one
    that runs; how many wait is right in any case.
    """
    pods = [one for one in entries if _name(one) == _EXECUTOR and one.state == PENDING]
    running = [one for one in shown if one.state == RUNNING]
    found: set[str] = set()
    for pod in sorted(pods, key=_order):
        before = [one for one in running if _start(one) <= _start(pod) and one.task_id not in found]
        if before:
            found.add(max(before, key=_order).task_id)
    return found


def _executors(entries: Sequence[Any], newest: Sequence[Any], shown: Sequence[Any]) -> dict[str, str]:
    """Pods of the tasks that ended, by the tasks' ids: of those that are retried the last attempt's."""
    if not any(_name(one) == _EXECUTOR and _number(one) >= 0 for one in entries):
        return {one.task_id: _last_child(one) for one in shown}
    found = {}
    for state in (SUCCEEDED, FAILED):
        ended = [one for one in shown if one.state == state]
        executors = [one for one in newest if _name(one) == _EXECUTOR and one.state == state]
        # Both in the order of their start: no entry says whose executor it is, and of tasks that began in one second
        # the logs may be exchanged. A task that was tried again as a whole leaves an executor for each attempt.
        pairs = zip(reversed(ended), reversed(executors), strict=False)
        found.update({task.task_id: _last_child(executor) for task, executor in pairs})
    return found


def _attempts(entries: Sequence[Any], drivers: Sequence[Any]) -> dict[str, str]:
    """Pods of drivers that failed. Where a driver is not retried it is the pod itself, and its id is nowhere."""
    retried = {_name(one) for one in entries if _number(one) >= 0}
    return {one.task_id: _last_child(one) for one in drivers if _name(one) in retried}


def _last_child(entry: Any) -> str:
    children = entry.child_tasks or []
    return str(children[-1].pod_name or "") if children else ""


def _seconds(entry: Any, now: datetime) -> float:
    ended = entry.end_time if entry.state not in GOES_ON else None
    end = ended if ended and ended.year > 1970 else now
    return max((end - entry.start_time).total_seconds(), 0.0) if entry.start_time else 0.0
