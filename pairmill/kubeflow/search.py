"""The search of a mixture as a Kubeflow pipeline: what :mod:`pairmill.line.search` says, as its tasks."""

from typing import Any, Final

from pairmill.kubeflow.tasks import Tasks, pipeline
from pairmill.line.runs import StageRun
from pairmill.line.search import Parameters, own_options, proxy, stage

NAME: Final = "pairmill-search"
_TOGETHER: Final = {
    **dict.fromkeys(("root", "train_config", "evaluate_config", "prefix_config_path"), str),
    **dict.fromkeys(("context_size", "min_resp_length"), int),
}
"""Parameters that tasks of the pipeline take all at once, with their types."""


def define(tasks: Tasks, given: Any) -> None:
    """Make the tasks of the pipeline; ``given`` has its parameters."""
    drawn = tasks.first("search", _TOGETHER, given, **own_options(given))
    with tasks.each(drawn.outputs["mixtures"]) as run:
        ended = _in_one_pod(tasks, given, run.mixture, "Proxy")

    def results() -> dict[str, Any]:
        # kfp 2.17 changes what is collected when it compiles the task that reads it: each task needs its own.
        return {
            "sampled": tasks.collected(ended.outputs["sample"]),
            "evaluated": tasks.collected(ended.outputs["evaluate"]),
        }

    result = stage(tasks, given, **results())
    best = _in_one_pod(tasks, given, result.outputs["optimum"], "Optimum")
    stage(tasks, given, **results(), measured=best.outputs["evaluate"])


def _in_one_pod(tasks: Tasks, given: Any, mixture: Any, title: str) -> StageRun:
    pod = tasks.pod()
    proxy(pod, given, mixture)
    return pod.place(title)


build = pipeline(
    NAME,
    "Search of a mixture",
    Parameters,
    define,
    {"Searching": "docs/searching.md", "Operating it": "docs/operations.md"},
)
