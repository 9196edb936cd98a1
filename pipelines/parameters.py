"""The pipeline's parameters, described once, and the options that each stage makes of them.

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
from pairmill.engine.stage import default_of, option
from pairmill.errors import UsageError
from pairmill.interface import cli


def _like(config: type[Any], name: str, text: str) -> Any:
    """A parameter with the default of a stage's option, lists joined by commas."""
    found = {item.name: default_of(item) for item in dataclasses.fields(config)}
    return option(found[name], help=text)


@dataclass(kw_only=True)
class Parameters:
    """Every stage, from raw files to epochs."""

    root: str = option(help="project folder or URI; every result goes below it.")
    raw: str = _like(
        FetchConfig,
        "raw",
        "folder or URI with raw files that are there already, one folder per source; other sources are fetched.",
    )
    sources: str = _like(
        FetchConfig,
        "sources",
        "sources to train on, by name or as YAML files, joined by commas; all = every one that has a folder in raw, "
        "or without raw every known one.",
    )
    source_options: str = _like(
        CleanConfig, "source_options", "options of single sources, as source.option=value, joined by commas."
    )
    max_reject_fraction: float = _like(
        CleanConfig,
        "max_reject_fraction",
        "malformed rows of a source that are put aside, as a fraction; more fail the run.",
    )
    max_record_bytes: int = _like(
        CleanConfig,
        "max_record_bytes",
        "longest record that is read; a longer one fails the run, because memory follows it.",
    )
    vocab_size: int = _like(
        TrainTokenizerConfig, "vocab_size", "size of the vocabulary, special tokens and alphabet included."
    )
    prefix_config_path: str = _like(
        SampleConfig, "prefix_config_path", "rules that say how much of each task is sampled."
    )
    epochs: int = _like(SampleConfig, "epochs", "number of epochs.")
    context_size: int = _like(
        SampleConfig, "context_size", "longest row in tokens, one more than the trainer's context."
    )
    min_resp_length: int = _like(
        SampleConfig, "min_resp_length", "shortest response in tokens, its end token included."
    )
    seed: int = _like(SampleConfig, "seed", "seed of every random draw.")
    output_path: str = option("", help="folder for the sampled arrays; empty on a cluster, where the nodes make them.")
    profile: str = _like(CleanConfig, "profile", "pairmill, or data_io for the reference's bytes.")


@dataclass(kw_only=True)
class SharedParameters(Parameters):
    """Every stage, from raw files to epochs."""

    workers: int = option(4, help="pods that share the work of each of clean, train_tokenizer and tokenize.")


def of(fan_out: bool) -> type[Parameters]:
    """The parameters of the pipeline, or of the one whose stages are shared out over pods."""
    return SharedParameters if fan_out else Parameters


CONFIGS: dict[str, type[Any]] = {
    "fetch": FetchConfig,
    "clean": CleanConfig,
    "train_tokenizer": TrainTokenizerConfig,
    "tokenize": TokenizeConfig,
    "sample": SampleConfig,
}
TAKEN: dict[str, tuple[str, ...]] = {
    "fetch": ("root", "raw", "sources"),
    "clean": ("root", "sources", "source_options", "max_reject_fraction", "max_record_bytes", "profile"),
    "train_tokenizer": ("root", "vocab_size", "prefix_config_path", "seed", "max_record_bytes", "profile"),
    "tokenize": ("root", "max_record_bytes", "profile"),
    "sample": (
        "root",
        "output_path",
        "prefix_config_path",
        "epochs",
        "context_size",
        "min_resp_length",
        "seed",
        "profile",
    ),
}
"""The parameters that each stage takes as they are, under the names of its options."""

PLACES = ("root", "raw", "output_path", "prefix_config_path")

# Options that a stage takes from the one before it: the URI of a result.
_DATA = {
    "fetch": (),
    "clean": ("raw",),
    "train_tokenizer": ("rows",),
    "tokenize": ("rows", "tokenizer"),
    "sample": ("tokenized_path",),
}


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
    for stage, config in CONFIGS.items():
        taken = {name: given[name] for name in TAKEN[stage]}
        made[stage] = cli.build(config, {**taken, **dict.fromkeys(_DATA[stage], f"{given['root']}/{stage}")})
    return made
