"""Evaluation that follows a training as a Kubeflow pipeline: the watcher of :mod:`pairmill.stages.evaluate`, in a pod.

Its pod may be killed at any instant: the next attempt goes on, because all that it knows is in the store.
"""

import dataclasses
from typing import Any, Final

from pairmill.kubeflow.tasks import Tasks, pipeline
from pairmill.line.watched import WATCH, Parameters

NAME: Final = "pairmill-evaluate"


def define(tasks: Tasks, values: Any) -> None:
    """Make the task of the pipeline; ``values`` has the parameters of :class:`Parameters`."""
    passed = {item.name: getattr(values, item.name) for item in dataclasses.fields(Parameters)}
    tasks.alone(WATCH, "evaluate watch", "Evaluate checkpoints", passed)


build = pipeline(
    NAME,
    "Evaluation that follows a training",
    Parameters,
    define,
    {"Evaluation": "docs/evaluation.md", "Operating it": "docs/operations.md"},
)
