"""The data options of KempnerForge: defaults, refusals in the original's words, TOML, command line.

Sections and keys of the trainer are ignored; unknown keys of `data` are refused.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

_TRUE = {"true", "yes", "on", "1"}
_NONE = {"none", "null"}


@dataclass
class DatasetSource:
    """One source of a mixture."""

    path: str = ""
    weight: float = 1.0
    name: str = ""
    hf_name: str = ""
    hf_config: str = ""

    def __post_init__(self) -> None:
        if self.weight <= 0:
            raise ValueError(f"Dataset weight must be positive, got {self.weight}")

    @property
    def label(self) -> str:
        """What phases call it."""
        return self.name or self.path or self.hf_name


@dataclass
class TrainingPhase:
    """From a step on: weights by name of a source, and a factor of the learning rate."""

    start_step: int = 0
    dataset_weights: dict[str, float] = field(default_factory=dict)
    lr_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.start_step < 0:
            raise ValueError("TrainingPhase.start_step must be non-negative")
        if self.lr_scale <= 0:
            raise ValueError("TrainingPhase.lr_scale must be positive")
        for name, weight in self.dataset_weights.items():
            if weight < 0:
                raise ValueError(f"TrainingPhase.dataset_weights['{name}'] must be non-negative")


@dataclass
class DataConfig:
    """Section `data`."""

    dataset_path: str = ""
    file_pattern: str = "*.npy"
    tokenizer_path: str = ""
    num_workers: int = 4
    pin_memory: bool = True
    prefetch_factor: int = 2
    hf_dataset_name: str | None = None
    hf_dataset_config: str | None = None
    hf_dataset_split: str = "train"
    hf_dataset_text_field: str = "text"
    hf_dataset_image_field: str = "image"
    hf_dataset_prompt_field: str = ""
    hf_image_size: int = 224
    hf_streaming: bool = False
    pack_sequences: bool = False
    datasets: list[DatasetSource] = field(default_factory=list)
    mix_temperature: float = 1.0
    phases: list[TrainingPhase] = field(default_factory=list)
    anneal_start_step: int = 0  # 0 = off
    anneal_weights: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.num_workers < 0:
            raise ValueError("num_workers must be non-negative")
        if self.prefetch_factor < 1:
            raise ValueError("prefetch_factor must be >= 1")
        if self.mix_temperature <= 0:
            raise ValueError("mix_temperature must be positive")
        for source in self.datasets:
            if not source.path and not source.hf_name:
                raise ValueError(f"DatasetSource '{source.name}' must have either path or hf_name")
        steps = [phase.start_step for phase in self.phases]
        if any(later <= earlier for earlier, later in pairwise(steps)):
            raise ValueError("data.phases start_steps must be strictly monotonically increasing")
        if self.anneal_start_step < 0:
            raise ValueError("anneal_start_step must be non-negative")
        if self.phases and self.anneal_start_step > 0:
            raise ValueError(
                "Cannot use both data.phases and data.anneal_start_step — use phases for multi-phase scheduling"
            )


@dataclass
class TrainConfig:
    """The data options of section `train`."""

    batch_size: int = 8  # sequences a rank
    seq_len: int = 2048
    seed: int = 42
    data_seed: int | None = None
    grad_accum_steps: int = 1

    @property
    def effective_data_seed(self) -> int:
        """The seed of shuffles."""
        return self.seed if self.data_seed is None else self.data_seed


@dataclass
class EvalConfig:
    """The data options of section `eval`."""

    enabled: bool = False
    interval: int = 1000
    steps: int = 50
    dataset_path: str = ""
    file_pattern: str = "*.npy"
    hf_dataset_name: str | None = None
    hf_dataset_config: str | None = None
    hf_dataset_split: str = "validation"
    hf_dataset_text_field: str = "text"


@dataclass
class JobConfig:
    """The three sections."""

    data: DataConfig = field(default_factory=DataConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)


def load_config(path: str | Path | None = None, cli_args: Iterable[str] = ()) -> JobConfig:
    """Read a TOML file, if given, and arguments `--section.key=value`, which override it; the last one wins.

    A bare `--section.key` means true. An argument that does not begin with `--` is ignored.

    Raises:
        ValueError: an unknown key of `data`, or a value that is refused.
    """
    given: dict[str, Any] = tomllib.loads(Path(path).read_text()) if path is not None else {}
    for argument in cli_args:
        if argument.startswith("--"):
            name, _, text = argument[2:].partition("=")
            section, _, key = name.partition(".")
            given.setdefault(section, {})[key] = text if "=" in argument else "true"

    def known(kind: type[Any], section: str) -> Any:
        names = {item.name for item in fields(kind)}
        return _made(kind, {key: value for key, value in given.get(section, {}).items() if key in names})

    return JobConfig(_made(DataConfig, given.get("data", {})), known(TrainConfig, "train"), known(EvalConfig, "eval"))


def _made(kind: type[Any], given: Mapping[str, Any]) -> Any:
    hints = get_type_hints(kind)
    valid = sorted(item.name for item in fields(kind))
    unknown = sorted(set(given) - set(valid))
    if unknown:
        raise ValueError(f"Unknown config keys in {kind.__name__}: {unknown}. Valid keys: {valid}")
    return kind(**{key: _coerced(hints[key], value) for key, value in given.items()})


def _coerced(hint: Any, value: Any) -> Any:
    """The value as the field's type, from TOML or text; as lenient as the original: 2.7 is 2 for an integer."""
    if get_origin(hint) is UnionType:
        if value is None or (isinstance(value, str) and value.lower() in _NONE):
            return None
        hint = next(kind for kind in get_args(hint) if kind is not NoneType)
    if hint is bool:
        return value.lower() in _TRUE if isinstance(value, str) else bool(value)
    if hint is str:
        return str(value)
    if isinstance(value, str):
        value = ast.literal_eval(value)
    if get_origin(hint) is list:
        (kind,) = get_args(hint)
        return [_made(kind, item) for item in value]
    if get_origin(hint) is dict:
        return {str(key): float(number) for key, number in value.items()}
    return hint(value)
