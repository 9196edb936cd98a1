"""The line: which stage feeds which. The one table of it, read by Kubeflow's pipelines and by the runner of a laptop.

To read it, or to run it on one machine, takes no kfp. It names stages without importing them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A task of the line: a stage, and the earlier tasks whose results it reads.

    Args:
        stage: the stage that it runs.
        reads: by option of the stage, the task whose result that option takes.
        name: of the task; empty = the stage's.
        only_with: a parameter of the pipeline without which there is no such task; empty = every run has it.
        options: of the stage, in this task alone.
        shared: whether several machines may share its work.
        idle_without: the option without which it chooses nothing, so that the tasks after it may go without it.
    """

    stage: str
    reads: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    only_with: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = False
    idle_without: str = ""

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
    Task("clean", {"raw": "fetch"}, shared=True),
    # The withheld splits of benchmarks are below raw.
    Task("curate", {"rows": "clean", "raw": "fetch"}, shared=True),
    Task("select", {"rows": "curate"}, shared=True, idle_without="select_config"),
    Task("train_tokenizer", {"rows": "select"}, shared=True),
    Task("tokenize", {"rows": "select", "tokenizer": "train_tokenizer"}, shared=True),
    Task("mix", {"tokenized_path": "tokenize", "rows": "select"}, idle_without="mix_config"),
    Task("sample", {"tokenized_path": "tokenize", "mixture": "mix"}),
    Task("sample", {"tokenized_path": "tokenize"}, HELD_OUT, only_with="holdout", options={"held_out": True}),
    Task("train", {"sampled": "sample", "held_out": HELD_OUT}, only_with="train_config"),
)
"""Every task, after all that it reads."""

GIVEN = {"clean": "rows", "train_tokenizer": "tokenizer", "tokenize": "tokenized"}
"""The parameter that a run gives in place of a stage's result."""
FILTERS = ("curate", "select")
"""The stages whose result is some of the rows that they read: left out, they pass on all of them."""


def result_without(task: Task, results: Mapping[str, T]) -> T | None:
    """Return the result that stands for that of a task which is left out: the rows that it would choose from, or none.

    Args:
        task: that is left out.
        results: of the tasks before it.
    """
    return results.get(task.reads["rows"]) if task.stage in FILTERS else None
