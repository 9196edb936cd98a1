"""The comparison of plans as a Kubeflow pipeline: what :mod:`pairmill.line.compare` says, as its tasks."""

from typing import Any, Final

from pairmill.kubeflow.tasks import Tasks, pipeline
from pairmill.line.compare import Comparison, compare_task, one_run, own_options

NAME: Final = "pairmill-compare"
_TOGETHER: Final = dict.fromkeys(("root", "train_config", "benchmarks", "data", "training", "evaluate_config"), str)
"""Parameters that tasks of the pipeline take all at once, with their types."""


def define(tasks: Tasks, values: Any) -> None:
    """Make the tasks of the pipeline.

    Args:
        tasks: :class:`pairmill.kubeflow.tasks.Tasks`.
        values: has the parameters of :class:`Comparison`.
    """
    checked = tasks.first("compare", _TOGETHER, values, **own_options(values))
    with tasks.each(checked.outputs["runs"]) as run:
        pod = tasks.pod()
        one_run(pod, run, values)
        ended = pod.place("Run")
    trained, evaluated = (tasks.collected(ended.outputs[stage]) for stage in ("train", "evaluate"))
    compare_task(tasks, values, trained=trained, evaluated=evaluated)


build = pipeline(
    NAME,
    "Comparison of plans",
    Comparison,
    define,
    {"Comparing": "docs/comparing.md", "Operating it": "docs/operations.md"},
)
