"""The line: which stage feeds which. The one table of it, read by Kubeflow's pipelines and by the runner of a laptop.

To read it, or to run it on one machine, takes no kfp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Task:
    """A task of the line: a stage, and the earlier tasks whose results it reads.

    Args:
        stage: the stage that it runs.
        reads: by option of the stage, the task whose result that option takes.
        name: of the task; empty = the stage's.
        only_with: a parameter of the pipeline without which there is no such task; empty = every run has it.
        options: of the stage, in this task alone.
    """

    stage: str
    reads: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    only_with: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.stage)

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name.replace("_", " ").capitalize()


HELD_OUT = "held_out_sample"
"""The task that samples held-out rows."""

LINE = (
    Task("fetch"),
    Task("clean", {"raw": "fetch"}),
    # The withheld splits of benchmarks are below raw.
    Task("curate", {"rows": "clean", "raw": "fetch"}),
    Task("select", {"rows": "curate"}),
    Task("train_tokenizer", {"rows": "select"}),
    Task("tokenize", {"rows": "select", "tokenizer": "train_tokenizer"}),
    Task("mix", {"tokenized_path": "tokenize", "rows": "select"}),
    Task("sample", {"tokenized_path": "tokenize", "mixture": "mix"}),
    Task("sample", {"tokenized_path": "tokenize"}, HELD_OUT, only_with="holdout", options={"held_out": True}),
    Task("train", {"sampled": "sample", "held_out": HELD_OUT}, only_with="train_config"),
)
"""Every task, after all that it reads."""

GIVEN = {"clean": "rows", "train_tokenizer": "tokenizer", "tokenize": "tokenized"}
"""The parameter that a run gives in place of a stage's result."""
FILTERS = ("curate", "select")
"""The stages whose result is some of the rows that they read: left out, they pass on all of them."""


def result_without(task: Task, results: Mapping[str, str], given: Mapping[str, str]) -> str:
    """Return what stands for the result of a task that is left out; empty if nothing does.

    Args:
        task: that is left out.
        results: of the tasks before it.
        given: the parameters that give results, by name.
    """
    if task.stage in FILTERS:
        return results.get(task.reads["rows"], "")
    return given[GIVEN[task.stage]] if task.stage in GIVEN else ""
