"""The pipeline's parameters, and the options that each stage makes of them.

Without kfp: a submission is read, and refused, before anything heavy is imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.clean.config import CleanConfig
from components.fetch.config import FetchConfig
from components.sample.config import SampleConfig
from components.tokenize.config import TokenizeConfig
from components.train_tokenizer.config import TrainTokenizerConfig
from pairmill import storage
from pairmill.engine.options import default_of, option
from pairmill.errors import UsageError
from pairmill.interface import cli
from pipelines.stages import STAGES


def _of(config: type[Any], name: str) -> Any:
    """The option of a stage as a parameter: the same text and default, lists joined by commas."""
    (item,) = (item for item in dataclasses.fields(config) if item.name == name)
    return option(default_of(item), help=item.metadata["help"])


@dataclass(kw_only=True)
class Parameters:
    """Every stage, from raw files to epochs."""

    root: str = _of(FetchConfig, "root")
    raw: str = _of(FetchConfig, "raw")
    sources: str = _of(FetchConfig, "sources")
    source_options: str = _of(CleanConfig, "source_options")
    max_reject_fraction: float = _of(CleanConfig, "max_reject_fraction")
    max_record_bytes: int = _of(CleanConfig, "max_record_bytes")
    vocab_size: int = _of(TrainTokenizerConfig, "vocab_size")
    windows: bool = _of(TokenizeConfig, "windows")
    prefix_config_path: str = _of(SampleConfig, "prefix_config_path")
    epochs: int = _of(SampleConfig, "epochs")
    context_size: int = _of(SampleConfig, "context_size")
    min_resp_length: int = _of(SampleConfig, "min_resp_length")
    seed: int = _of(SampleConfig, "seed")
    output_path: str = option("", help="folder for the sampled arrays; empty on a cluster, where the nodes make them")
    profile: str = _of(CleanConfig, "profile")


@dataclass(kw_only=True)
class SharedParameters(Parameters):
    """Every stage, from raw files to epochs."""

    workers: int = option(4, help="pods that share the work of each of clean, train_tokenizer and tokenize")


def of(fan_out: bool) -> type[Parameters]:
    """The parameters of the pipeline, or of the one whose stages are shared out over pods."""
    return SharedParameters if fan_out else Parameters


def taken(stage: str) -> list[str]:
    """The parameters that a stage takes: those that are options of it and not the result of another stage."""
    options = {item.name for item in dataclasses.fields(STAGES[stage].config)} - set(STAGES[stage].reads)
    return [item.name for item in dataclasses.fields(Parameters) if item.name in options]


PLACES = ("root", "raw", "output_path", "prefix_config_path")


def stage_configs(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of every stage of a run with these parameters, checked as the stage itself checks them.

    Raises:
        UsageError: a stage would refuse one of them, or no storage serves a place.
    """
    for name in PLACES:
        if given[name] or name == "root":
            try:
                storage.normalise(given[name], name)
            except UsageError as error:
                raise UsageError(error.what, where=name, got=given[name], expected=error.expected) from error
    made = {}
    for name, stage in STAGES.items():
        # Results of other stages do not exist yet: any place below the root will do.
        results = dict.fromkeys(stage.reads, f"{given['root']}/{name}")
        made[name] = cli.build(stage.config, {**{item: given[item] for item in taken(name)}, **results})
    return made
