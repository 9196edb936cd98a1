"""A run whose picture is frozen: its workflow object passed 1 MiB, and Kubeflow shows no change of its tasks since.

The run's own state still arrives, and logs can be read by the node of the workflow. A node's id is a hash of its name,
and names follow from the pipeline: so the logs of pods that are not shown can be asked for.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pairmill.kubeflow.submit import state

Spec = Mapping[str, Any]

_ATTEMPTS = 3
"""Pods of a task that are looked for."""
_ITERATIONS = 16
"""Of a loop whose number of iterations is not shown either."""


@dataclass(frozen=True)
class Hidden:
    """A task whose end is not shown: its name, and the nodes whose logs may tell of it.

    Args:
        label: name of the task, with the number of its iteration.
        pods: of its attempts, the last first.
        driver: of the pod before them.
    """

    label: str
    pods: tuple[str, ...]
    driver: str


def is_frozen(run: Any) -> bool:
    """Return whether the run (a ``V2beta1Run``) has ended and its workflow is shown as if it went on."""
    return state.verdict(run) is not None and any(item.state in state.ACTIVE for item in _entries(run))


def driver_that_runs(run: Any) -> str:
    """Return the name of a driver that is shown as running; empty if there is none. One takes some seconds."""
    return next((item.display_name for item in _entries(run) if _DRIVER.search(item.display_name) and _runs(item)), "")


def hidden(run: Any, pipeline: Spec) -> list[Hidden]:
    """Return the tasks whose end is not shown, in the order of the pipeline.

    Args:
        run: a ``V2beta1Run``.
        pipeline: its specification.
    """
    entries = _entries(run)
    names = [item.display_name for item in entries]
    ended = {child.pod_name for item in entries if item.state == state.SUCCEEDED for child in item.child_tasks or []}
    workflows = [name for name in names if not name.endswith(")") and f"{name}(0)" in names]
    children = [child.pod_name for item in entries for child in item.child_tasks or []]
    workflow = next((name for name in workflows if any(item.startswith(f"{name}-") for item in children)), "")
    wrapped = "(0)" if workflow else ""
    workflow = workflow or next((item.rpartition("-")[0] for item in children), "")

    def node(path: str) -> str:
        return f"{workflow}-{_fnv(path)}"

    def tasks(component: Spec, path: str, number: str) -> Iterator[Hidden]:
        for name in _in_order(component["dag"]["tasks"]):
            task, place = component["dag"]["tasks"][name], f"{path}{wrapped}.{name}"
            inner = pipeline["components"][task["componentRef"]["name"]]
            if "parameterIterator" in task:
                for index in range(_iterations(names)):
                    each = f"{place}{wrapped}.iteration-iterations({index}:{index}){wrapped}.iteration-item"
                    yield from tasks(inner, each, f"[{index}]")
            elif "dag" in inner:
                yield from tasks(inner, place, number)
            else:
                attempts = [f"({attempt})" for attempt in reversed(range(_ATTEMPTS))]
                pods = [node(f"{place}{wrapped}.executor{attempt}") for attempt in [*attempts, ""]]
                # The child of an executor that succeeded, or of a task that did.
                if not ended.intersection(pods):
                    yield Hidden(f"{name}{number}", tuple(pods), node(f"{place}-driver{wrapped}"))

    return list(tasks(pipeline["root"], f"{workflow}{wrapped}.root", ""))


def specification(answer: Any) -> Spec:
    """Return the pipeline in a version, as the server has it: alone, or beside what belongs to its platform."""
    result = json.loads(answer) if isinstance(answer, str) else answer or {}
    return dict(result.get("pipeline_spec", result))


_DRIVER = re.compile(r"-driver(\(\d+\))?$")


def _entries(run: Any) -> list[Any]:
    details = (run.run_details.task_details or []) if run.run_details else []
    return [item for item in details if item.display_name and item.state]


def _runs(entry: Any) -> bool:
    return bool(entry.state == state.RUNNING)


def _iterations(names: list[str]) -> int:
    shown = [int(match[1]) for name in names if (match := re.match(r"iteration-iterations\((\d+):", name))]
    return max(shown, default=_ITERATIONS - 1) + 1


def _in_order(tasks: Spec) -> list[str]:
    """Return the names of tasks, each after those that it depends on."""
    left, result = dict(tasks), list[str]()
    while left:
        ready = [name for name, task in left.items() if not set(task.get("dependentTasks", [])) & left.keys()]
        for name in ready or list(left):
            del left[name]
            result.append(name)
    return result


def _fnv(text: str) -> int:
    """FNV-1a of 32 bits, from which Argo makes the id of a node."""
    result = 0x811C9DC5
    for byte in text.encode():
        result = (result ^ byte) * 0x01000193 & 0xFFFFFFFF
    return result
