"""The stages, in the order in which data passes through them: one entry each, and no other list of them.

A line is :data:`STAGES`; what may follow, in another image, is :data:`LAST`; what runs are made for is :data:`BESIDE`.

The compiler, the pipeline's parameters, the documents and the tests take them from here.
"""

from __future__ import annotations

from pairmill.interface.launcher import Component
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

_FETCHED = {
    "given_rows": (
        str,
        "finished rows that were given, where later stages read them; joined by commas, empty for none",
    ),
    "given_tokenizer": (str, "the tokenizer that was given, where later stages read it; empty for none"),
    "given_tokenized": (str, "the tokenized folder that was given, where later stages read it; empty for none"),
}
# On a cluster each node makes the arrays: whether a pod makes some, and where, must be said.
_SAID = ("root", "output_path", "tokenized_path")

STAGES = {
    stage.name: stage
    for stage in (
        Component("fetch", FetchConfig, outputs=_FETCHED),
        Component("clean", CleanConfig, reads=("raw",)),
        # The lineage of what it is given is that of raw: both are from fetch.
        Component("curate", CurateConfig, reads=("rows", "raw")),
        Component("select", SelectConfig, reads=("rows",), passes_on=True),
        Component("train_tokenizer", TrainTokenizerConfig, reads=("rows",), passes_on=True),
        Component("tokenize", TokenizeConfig, reads=("rows", "tokenizer"), passes_on=True),
        Component("mix", MixConfig, reads=("tokenized_path", "rows")),
        Component("sample", SampleConfig, reads=("tokenized_path", "mixture"), required=_SAID),
    )
}
"""The line, by name: the stages of the image ``pipeline``, which every run has."""

LAST = {
    stage.name: stage
    for stage in (
        # On a cluster a task has plans, not arrays: what trains makes these in its own pod.
        Component("train", TrainConfig, reads=("sampled", "held_out"), required=("sampled",), image="trainer"),
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
