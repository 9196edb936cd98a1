"""Evaluation that follows a training as a Kubeflow pipeline: the watcher of :mod:`pairmill.stages.evaluate`, in a pod.

Its pod may be killed at any instant: the next attempt goes on, because all that it knows is in the store.
"""

import dataclasses
from typing import Any, Final

from pairmill.kubeflow.placement import Placement
from pairmill.kubeflow.tasks import Tasks, pipeline
from pairmill.line.watched import WATCH, Parameters

NAME: Final = "pairmill-evaluate"


def define(tasks: Tasks, values: Any) -> None:
    """Make the task of the pipeline; ``values`` has the parameters of :class:`Parameters`."""
    passed = {item.name: getattr(values, item.name) for item in dataclasses.fields(Parameters)}
    tasks.alone(WATCH, "evaluate watch", "Evaluate checkpoints", passed)


def build(placement: Placement, *, image: str = "", trainer_image: str = "", docs: str = "") -> Any:
    """Make the pipeline that kfp compiles.

    Args:
        placement: what the cluster gives its task.
        image: of no task here.
        trainer_image: of the task; empty = that of the environment, or a placeholder.
        docs: address below which the repository's files can be read, for links; empty = their paths alone.
    """
    tasks = Tasks(placement, image, trainer_image)
    pages = {"Evaluation": "docs/evaluation.md", "Operating it": "docs/operations.md"}
    title = "Evaluation that follows a training"
    return pipeline(NAME, title, Parameters, lambda given: define(tasks, given), pages=pages, docs=docs)
