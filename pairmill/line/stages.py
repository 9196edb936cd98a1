"""What Kubeflow is told of each stage. Those of the line follow from the table; a stage beside it has an entry here.

A line is :data:`STAGES`; what may follow, in another image, is :data:`LAST`; what runs are made for is :data:`BESIDE`.

The compiler, the pipeline's parameters, the documents and the tests take them from here.
"""

from collections.abc import Mapping
from typing import Any

from pairmill.engine.options import ReplaceableConfig
from pairmill.interface.launcher import Component
from pairmill.line.table import LINE, Task
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.compare.config import CompareConfig
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.mix.config import MixConfig
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.search.config import SearchConfig
from pairmill.stages.select.config import SelectConfig
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig

_CONFIGS: Mapping[str, type[Any]] = {
    "fetch": FetchConfig,
    "clean": CleanConfig,
    "curate": CurateConfig,
    "select": SelectConfig,
    "train_tokenizer": TrainTokenizerConfig,
    "tokenize": TokenizeConfig,
    "mix": MixConfig,
    "sample": SampleConfig,
    "train": TrainConfig,
}
"""The options of each stage of the table."""

_FETCHED = {
    "given_rows": (
        str,
        "finished rows that were given, where later stages read them; joined by commas, empty for none",
    ),
    "given_tokenizer": (str, "the tokenizer that was given, where later stages read it; empty for none"),
    "given_tokenized": (str, "the tokenized folder that was given, where later stages read it; empty for none"),
}
# On a cluster each node makes the arrays: whether a pod makes some, and where, must be said.
_ALWAYS = ("root", "output_path", "tokenized_path")

_OWN: Mapping[str, Mapping[str, Any]] = {
    "fetch": {"outputs": _FETCHED},
    "sample": {"required": _ALWAYS},
    # On a cluster a task has plans, not arrays: what trains makes these in its own pod.
    "train": {"required": ("sampled",), "image": "trainer"},
}
"""What Kubeflow is told of single stages beside what the table says."""


def _component(task: Task) -> Component:
    """Return what Kubeflow is told of the stage of a task."""
    config = _CONFIGS[task.stage]
    # The lineage of what a stage is given is that of raw, where it reads that: both are from fetch.
    passes_on = issubclass(config, ReplaceableConfig) and "fetch" not in task.reads.values()
    own = _OWN.get(task.stage, {})
    return Component(task.stage, config, reads=tuple(task.reads), passes_on=passes_on, **own)


_OF_LINE = [_component(task) for task in LINE if task.name == task.stage]

STAGES = {stage.name: stage for stage in _OF_LINE if stage.image == "pipeline"}
"""The line, by name: the stages of the image ``pipeline``, which every run has."""

LAST = {
    stage.name: stage
    for stage in (
        *(stage for stage in _OF_LINE if stage.image == "trainer"),
        Component("evaluate", EvaluateConfig, reads=("model", "held_out", "training"), image="trainer"),
    )
}
"""By name, what only some pipelines have: stages of the image ``trainer``."""

BESIDE = {
    stage.name: stage
    for stage in (
        Component(
            "compare",
            CompareConfig,
            outputs={"runs": (list, "the runs that the comparison needs: plan, seed, again, held_out and set of each")},
            lists=("trained", "evaluated"),
        ),
        Component(
            "search",
            SearchConfig,
            reads=("tokenized_path", "held_out"),
            outputs={
                "mixtures": (list, "the mixtures of the proxies, for a loop over their runs"),
                "optimum": (str, "the best mixture with the budget of a proxy; empty before there are results"),
            },
            lists=("sampled", "evaluated"),
        ),
    )
}
"""By name, stages of the image ``pipeline`` that only pipelines of runs have."""

EVERY = {**STAGES, **LAST, **BESIDE}
