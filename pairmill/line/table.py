"""The line: which stage feeds which. The one table of it, read by Kubeflow's pipelines and by the runner of a laptop.

To read it, or to run it on one machine, takes no kfp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.mix.config import MixConfig
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.select.config import SelectConfig
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig

T = TypeVar("T")


@dataclass(frozen=True)
class Task:
    """A task of the line: a stage, and the earlier tasks whose results it reads.

    Args:
        stage: the stage that it runs.
        config: the options of the stage.
        reads: by option of the stage, the task whose result that option takes.
        name: of the task; empty = the stage's.
        only_with: a parameter of the pipeline without which there is no such task; empty = every run has it.
        options: of the stage, in this task alone.
        shared: whether several machines may share its work.
    """

    stage: str
    config: type[Any]
    reads: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    only_with: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    shared: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.stage)

    @property
    def title(self) -> str:
        """The name for people."""
        return self.name.replace("_", " ").capitalize()


HELD_OUT = "held_out_sample"
"""The task that samples held-out rows."""

LINE = (
    Task("fetch", FetchConfig),
    Task("clean", CleanConfig, {"raw": "fetch"}, shared=True),
    # The withheld splits of benchmarks are below raw.
    Task("curate", CurateConfig, {"rows": "clean", "raw": "fetch"}, shared=True),
    Task("select", SelectConfig, {"rows": "curate"}, shared=True),
    Task("train_tokenizer", TrainTokenizerConfig, {"rows": "select"}, shared=True),
    Task("tokenize", TokenizeConfig, {"rows": "select", "tokenizer": "train_tokenizer"}, shared=True),
    Task("mix", MixConfig, {"tokenized_path": "tokenize", "rows": "select"}),
    Task("sample", SampleConfig, {"tokenized_path": "tokenize", "mixture": "mix"}),
    Task(
        "sample",
        SampleConfig,
        {"tokenized_path": "tokenize"},
        HELD_OUT,
        only_with="holdout",
        options={"held_out": True},
    ),
    Task("train", TrainConfig, {"sampled": "sample", "held_out": HELD_OUT}, only_with="train_config"),
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
