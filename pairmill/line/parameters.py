"""The pipeline's parameters, and the options that each stage makes of them.

Without kfp: a submission is read, and refused, before anything heavy is imported.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pairmill import storage
from pairmill.address import is_address
from pairmill.engine.options import RunConfig, default_of, list_item, option
from pairmill.errors import Attempts, UsageError
from pairmill.interface import cli
from pairmill.line.stages import LAST, STAGES
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.curate.config import CurateConfig
from pairmill.stages.fetch.config import KINDS, FetchConfig
from pairmill.stages.mix.config import MixConfig
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.select.config import SelectConfig
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig


def parameter(config: type[Any], name: str) -> Any:
    """Make a parameter of a stage's option: the same text and default, lists joined by commas."""
    (item,) = (item for item in dataclasses.fields(config) if item.name == name)
    return option(default_of(item), help=item.metadata["help"])


@dataclass(kw_only=True)
class Parameters:
    """Every stage, from raw files to epochs."""

    root: str = parameter(FetchConfig, "root")
    raw: str = parameter(FetchConfig, "raw")
    sources: str = parameter(FetchConfig, "sources")
    rows: str = parameter(FetchConfig, "rows")
    limit: int = option(0, help="only the first this many records of each source, for a trial; 0 = all")
    source_options: str = parameter(CleanConfig, "source_options")
    holdout: str = parameter(CleanConfig, "holdout")
    turns: str = parameter(CleanConfig, "turns")
    max_reject_fraction: float = parameter(CleanConfig, "max_reject_fraction")
    max_record_bytes: int = parameter(CleanConfig, "max_record_bytes")
    on_long_record: str = parameter(CleanConfig, "on_long_record")
    max_expansion: int = parameter(CleanConfig, "max_expansion")
    curate_config: str = parameter(CurateConfig, "curate_config")
    index: str = parameter(CurateConfig, "index")
    write_index: bool = parameter(CurateConfig, "write_index")
    select_config: str = parameter(SelectConfig, "select_config")
    tokenizer: str = parameter(FetchConfig, "tokenizer")
    tokenized: str = parameter(FetchConfig, "tokenized")
    vocab_size: int = parameter(TrainTokenizerConfig, "vocab_size")
    template: str = parameter(TokenizeConfig, "template")
    windows: bool = parameter(TokenizeConfig, "windows")
    mix_config: str = parameter(MixConfig, "mix_config")
    compare: str = parameter(MixConfig, "compare")
    prefix_config_path: str = parameter(SampleConfig, "prefix_config_path")
    epochs: int = parameter(SampleConfig, "epochs")
    context_size: int = parameter(SampleConfig, "context_size")
    min_resp_length: int = parameter(SampleConfig, "min_resp_length")
    seed: int = parameter(SampleConfig, "seed")
    unmatched: str = parameter(SampleConfig, "unmatched")
    fail_on: str = parameter(FetchConfig, "fail_on")
    links: str = parameter(FetchConfig, "links")
    policy: str = parameter(FetchConfig, "policy")
    policy_on: str = parameter(FetchConfig, "policy_on")
    output_path: str = option("", help="folder for the sampled arrays; empty on a cluster, where the nodes make them")
    profile: str = parameter(CleanConfig, "profile")


@dataclass(kw_only=True)
class Training:
    """Parameters of the last stage, in a pipeline that trains. Of the others it takes ``root`` alone."""

    train_config: str = parameter(TrainConfig, "train_config")
    set: str = parameter(TrainConfig, "set")


@dataclass(kw_only=True)
class TrainingParameters(Training, Parameters):
    """Every stage, from raw files to a trained net."""


def parameters_class(train: bool = False) -> type[Parameters]:
    """Return the parameters of the pipeline, or of the one that trains."""
    return TrainingParameters if train else Parameters


def options_of(stage: str, *, training: bool = False) -> list[str]:
    """Return the parameters that are options of a stage and not the result of another one.

    Args:
        training: whether the pipeline trains, and so has the parameters of a training.
    """
    if stage in LAST:
        return ["root", *(item.name for item in dataclasses.fields(Training))]
    options = {item.name for item in dataclasses.fields(STAGES[stage].config)} - set(STAGES[stage].reads)
    given = TrainingParameters if training else Parameters
    return [item.name for item in dataclasses.fields(given) if item.name in options]


def handed_on() -> dict[str, Any]:
    """Return what fetch hands on: the parameters of later stages, each with the default that these have.

    Root and finished data are not among them: fetch says where they are.
    """
    result: dict[str, Any] = {}
    for stage in STAGES:
        for name in options_of(stage) if stage != "fetch" else ():
            if name in ("root", *KINDS):
                continue
            (item,) = (item for item in dataclasses.fields(STAGES[stage].config) if item.name == name)
            default = result.setdefault(name, default_of(item))
            assert default == default_of(item), name
    return result


def defaults() -> dict[str, Any]:
    """Return the defaults that fetch needs of what it hands on: those of its own options, and that are not empty."""
    own = {item.name for item in dataclasses.fields(FetchConfig)}
    return {name: default for name, default in handed_on().items() if default or name in own}


def taken(stage: str, *, training: bool = False) -> list[str]:
    """Return the parameters that a task is passed one by one: fetch, which hands them on, all; a training its own."""
    if stage == "fetch":
        own = options_of(stage, training=training)
        names = [item.name for item in dataclasses.fields(Parameters)]
        return [*names, *(name for name in own if name not in names)]
    return options_of(stage) if stage in LAST else []


_TEXTS = {name for name, kind in get_type_hints(TrainingParameters).items() if kind is str}
LISTS = frozenset(
    name
    for stage in (*STAGES.values(), LAST["train"])
    for name, kind in get_type_hints(stage.config).items()
    if kind == list[str] and name in _TEXTS
)
"""Parameters that take several values, joined by commas."""

PLACES = (
    *("root", "raw", "output_path", "prefix_config_path", "policy"),
    *("curate_config", "index", "select_config", "mix_config", "compare", "train_config"),
)
_DEFAULTS = {item.name: item.default for item in dataclasses.fields(TrainingParameters) if item.name in PLACES}


def placed(given: Mapping[str, Any]) -> dict[str, str]:
    """Return the places among these parameters, for the processes of this machine: relative paths are made absolute.

    Raises:
        UsageError: no storage serves one, or an address is not valid.
    """
    result = {}
    for name in PLACES:
        # A default file may be absent. As an absolute path it would look like one that was given, which may not.
        if given.get(name) and given[name] != _DEFAULTS[name]:
            result[name] = storage.normalise(given[name], name)
    for name in KINDS:
        items = cli.split_list(given[name]) if name == "rows" else [given[name]]
        items = [item if is_address(item) else storage.normalise(item, name) for item in filter(None, items)]
        result[name] = ",".join(map(list_item, items)) if name == "rows" else "".join(items)
    return result


def idle(values: Mapping[str, Any], *, here: bool) -> tuple[str, ...]:
    """Return the stages that have nothing to do: a pipeline that is built for one run leaves them out.

    Args:
        values: the parameters.
        here: whether the stages run on this machine: then those that their settings switch off are left out too.
            Elsewhere they stay, so that a pipeline that was compiled for any run is the one that is submitted.

    Raises:
        UsageError: a stage would refuse its options, or here its settings.
    """
    return idle_of(stage_configs(values), here=here)


def idle_of(configs: Mapping[str, Any], *, here: bool) -> tuple[str, ...]:
    """Return the stages of :func:`idle`, by the options of every stage."""
    result, attempts = [], Attempts()
    for name, config in configs.items():
        with attempts.each():
            if isinstance(config, RunConfig) and (config.given or (here and config.is_off)):
                result.append(name)
    attempts.refuse()
    return tuple(result)


def stage_configs(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of every stage of a run with these parameters, checked as the stage itself checks them.

    Raises:
        UsageError: a stage would refuse one of them, or no storage serves a place; of several, Refusals.
    """
    attempts = Attempts()
    for name in PLACES:
        if given.get(name) or name == "root":
            with attempts.each():
                try:
                    storage.normalise(given[name], name)
                except UsageError as error:
                    raise UsageError(error.what, where=name, got=given[name], expected=error.expected) from error
    attempts.refuse()
    made = {}
    last = {"train": LAST["train"]} if "train_config" in given else {}
    for name, stage in {**STAGES, **last}.items():
        # Results of other stages do not exist yet: any place below the root will do.
        results = dict.fromkeys(set(stage.reads) - _NOT_ALWAYS, f"{given['root']}/{name}")
        options = {item: given[item] for item in options_of(name, training="train_config" in given)}
        with attempts.each():
            made[name] = cli.build(stage.config, {**options, **results})
    attempts.refuse()
    if not given["tokenizer"] and not given["tokenized"]:
        _refuse_untrained(given["template"], made["tokenize"], made["train_tokenizer"])
    return made


_NOT_ALWAYS = {"mixture"}
"""What a stage reads of another one only in some runs."""


def _refuse_untrained(template: str, wanted: TokenizeConfig, trained: TrainTokenizerConfig) -> None:
    """Raise UsageError if the template has tokens that the tokenizer of this run will not have."""
    tokens = [wanted.boq, wanted.eoq, wanted.eoa, *wanted.condition_tokens().values()]
    missing = [token for token in dict.fromkeys(tokens) if token not in trained.special_tokens]
    if missing:
        raise UsageError(
            "the tokenizer that this run trains lacks tokens of the template",
            where="template",
            got=f"{template}: {', '.join(missing)}",
            hint="name a tokenizer that has them with tokenizer=, or leave template= out",
        )
