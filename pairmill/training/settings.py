"""``train_config.yaml``: profile, data, net, optimizer, schedule, length of the run, checkpoints. No torch here.

Defaults are layers: those of the profile, then what the net and the size were published with. The file has what differs
from them, and overrides of the command line (``optimizer.lr=0.001``) come last. So every value of the settings that are
read is the one that counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, get_type_hints

from pairmill.errors import UsageError
from pairmill.fields import Checked, setting
from pairmill.formats.settings_file import FileSettings, SettingsFile, render
from pairmill.nets.settings import SIZES, ModelSettings, NetName, SizeName
from pairmill.training.data_settings import DataSettings
from pairmill.training.optimizers import OPTIMIZERS, OptimizerKind, OptimizerName
from pairmill.training.profiles import PROFILES, ProfileName, QuirkName
from pairmill.training.shapes import SHAPES, Shape, ShapeName


def _list(registry: Mapping[str, OptimizerKind | Shape]) -> str:
    """List the names of a registry, those of every profile first."""
    texts: dict[str, list[str]] = {}
    for name, kind in registry.items():
        texts.setdefault(kind.profile, []).append(f"{name} ({kind.note})" if kind.note else name)
    return "; ".join(
        (f"with the profile {profile} " if profile else "") + ", ".join(texts[profile]) for profile in texts
    )


@dataclass(frozen=True, kw_only=True)
class BatchSettings(Checked):
    """A global batch: what one step of the optimizer reads."""

    tokens: int = setting(4096, help="slots, of all processes and all parts together", at_least=1)
    accumulate: int = setting(
        1,
        help="parts, one after another; each needs memory for about tokens / processes / accumulate slots",
        at_least=1,
        divides="tokens",
    )
    target_only: bool = setting(True, help="only responses are learned; with attention prefixlm it has to be true")
    tail: Literal["drop", "keep", "carry"] = setting(
        "drop", help="what happens to an epoch's last batch; drop it, keep it, or carry its rows into the next epoch"
    )
    long_rows: Literal["refuse", "skip"] = setting(
        "refuse", help="rows longer than a batch; refuse to begin, or skip them"
    )


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings(Checked):
    """The optimizer."""

    name: OptimizerName = setting("adam_atan2", help=_list(OPTIMIZERS))
    lr: float = setting(1e-3, help="highest learning rate", above=0)
    betas: list[float] = setting(
        [0.9, 0.95], help="of the means of gradients and of their squares", length=2, at_least=0, below=1
    )
    eps: float = setting(1e-8, help="of adamw", at_least=0)
    weight_decay: float = setting(0.1, help="each step takes lr times this part of a weight away", at_least=0)
    decay: Literal["all", "matrices"] = setting(
        "matrices", help="what decays; all weights, or matrices (two dimensions or more, embedding and head too)"
    )
    clip: float = setting(
        0.0,
        help="highest norm of the gradient of all weights together; 0 = not clipped. The norm is logged in any case",
        at_least=0,
    )


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings(Checked):
    """The learning rate of each step."""

    shape: ShapeName = setting("cosine", help=f"after the warm-up; {_list(SHAPES)}")
    warmup_steps: int | None = setting(
        None,
        help="step s of the warm-up has s / warmup_steps of the rate; null = a twentieth of the run, at most 2000",
        at_least=0,
    )
    min_ratio: float = setting(
        0.1, help="part of the rate that the last step has, and any after it", at_least=0, at_most=1
    )
    stable_steps: int | None = setting(
        None, help="of wsd, steps between warm-up and descent; null = all but the descent", at_least=0
    )
    decay_steps: int | None = setting(
        None, help="of the descent; null = all after the warm-up, of wsd a fifth of the run", above=0
    )
    wsd_decay: Literal["linear", "cosine", "sqrt"] = setting("linear", help="how wsd goes down; linear, cosine or sqrt")
    rex_alpha: float = setting(1.0, help="exponent of rex", above=0)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Checked, at_most_one=("epochs", "steps", "tokens")):
    """How long, from which random numbers, and how it is computed."""

    epochs: int = setting(
        0, help="of the folder; 0 = all that it has. Give one of epochs, steps and tokens", at_least=0
    )
    steps: int = setting(0, help="of the optimizer; 0 = as many as the data give", at_least=0)
    tokens: int = setting(0, help="to read; 0 = as many as there are", at_least=0)
    seed: int = setting(0, help="of the initial weights and the order of windows", at_least=0)
    ema: Literal["auto", "off"] | float = setting(
        "auto",
        help="part of the mean of the weights that a step keeps; auto = 1 - 10 / steps, from 0 to 0.9999. off "
        "= no mean",
        at_least=0,
        below=1,
    )
    z_loss: float = setting(
        0.0, help="weight of the squared logarithm of the normaliser, over labelled positions", at_least=0
    )
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        "auto", help="of activations; auto is bfloat16 on a GPU and float32 on a CPU. Weights are float32"
    )
    attention_path: Literal["auto", "rows", "flex", "varlen"] = setting(
        "auto", help="how attention is computed; auto, rows (exact, anywhere), flex or varlen (on a GPU)"
    )
    compile: bool = setting(False, help="torch.compile")
    threads: int = setting(0, help="of a process; 0 = one per core", at_least=0)


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(Checked):
    """Loss on held-out rows and examples of texts, while it trains and at the end."""

    every_steps: int = setting(100, help="0 = only at the end", at_least=0)
    rows: int = setting(512, help="how many at most, the same at each evaluation; 0 = all", at_least=0)
    prompts: list[str] = setting([], help="texts that are answered at the end, for the report")
    condition: str = setting("", help="of the prompts, such as cot")
    new_tokens: int = setting(64, help="of an answer, at most", at_least=1)


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings(Checked):
    """Where a run that was interrupted goes on."""

    every_steps: int = setting(0, help="0 = not by steps", at_least=0)
    every_minutes: float = setting(10.0, help="0 = not by time", at_least=0)
    keep: int = setting(3, help="how many of the newest stay", at_least=1)
    asynchronous: bool = setting(True, help="written while training goes on")
    early: list[int] = setting(
        [],
        help="two steps, with every_steps; between them only first + 1, 2, 4, 8, … are saved. Empty = none",
        length=2,
        at_least=0,
        ascending=True,
        needs="every_steps",
    )


@dataclass(frozen=True, kw_only=True)
class WatchSettings(Checked):
    """What is written while it trains."""

    every_steps: int = setting(10, help="between lines of metrics.jsonl", at_least=1)
    tensorboard: bool = setting(True, help="TensorBoard files too")
    wandb: str = setting("", help="project of Weights & Biases; empty = none. The key is in the environment")


@dataclass(frozen=True, kw_only=True)
class TrainSettings(FileSettings):
    """All settings."""

    OPTION: ClassVar = "train_config"
    HEAD: ClassVar = """\
How a net is trained. Each line has a setting and its default: take away the # of those that you
change. Defaults follow from profile, model.net and model.size, so leave alone what you do not change. An override of
the command line counts more than this file: set=optimizer.lr=0.001
Made by: pairmill train settings"""

    profile: ProfileName = setting(
        "pairmill", help=f"whose defaults, and which defects of a reference: {', '.join(PROFILES)}"
    )
    data: DataSettings = setting(DataSettings, help="how what the options name is read")
    model: ModelSettings = setting(ModelSettings, help="the net")
    batch: BatchSettings = setting(BatchSettings, help="what a step reads")
    optimizer: OptimizerSettings = setting(OptimizerSettings, help="how weights change")
    schedule: ScheduleSettings = setting(ScheduleSettings, help="the learning rate of each step")
    training: TrainingSettings = setting(TrainingSettings, help="how long, and how it is computed")
    evaluation: EvaluationSettings = setting(EvaluationSettings, help="on held-out rows")
    checkpoints: CheckpointSettings = setting(CheckpointSettings, help="where an interrupted run goes on")
    watch: WatchSettings = setting(WatchSettings, help="what is written while it trains")

    @classmethod
    def from_file(cls, file: SettingsFile) -> TrainSettings:
        """Read an open file: over the defaults of the profile, the net and the size that it names."""
        if file.top is None:
            return defaults()
        entries = file.top.entries()
        model = entries["model"].entries() if "model" in entries and not entries["model"].is_null() else {}
        kinds = get_type_hints(cls) | get_type_hints(ModelSettings)
        profile, net, size = (
            part.as_type(kinds[name]) if (part := parts.get(name)) else None
            for name, parts in (("profile", entries), ("net", model), ("size", model))
        )
        return file.onto(defaults(profile or "pairmill", net, size))

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.batch.target_only and self.model.attention == "prefixlm" and not self.quirk("targets_in_prefix"):
            raise UsageError(
                "the instruction would see its own labels",
                where="batch.target_only",
                got="false, with attention prefixlm",
                expected="true",
                hint="or set model.attention to causal",
            )
        self._check_profile("optimizer.name", self.optimizer.name, OPTIMIZERS)
        shape = self.schedule.shape
        self._check_profile("schedule.shape", shape, SHAPES)
        if self.schedule.stable_steps is not None and not SHAPES[shape].stable:
            where, expected = "schedule.stable_steps", "schedule.shape: wsd"
            raise UsageError("only wsd has it", where=where, got=shape, expected=expected)

    def _check_profile(self, where: str, name: str, registry: Mapping[str, OptimizerKind | Shape]) -> None:
        """Raise UsageError if another profile alone has this optimizer or shape."""
        owner = registry[name].profile
        if owner and owner != self.profile:
            expected = ", ".join(name for name, kind in registry.items() if kind.profile in ("", self.profile))
            raise UsageError(f"only the profile {owner} has it", where=where, got=name, expected=expected)

    def quirk(self, name: QuirkName) -> bool:
        """Tell whether a named defect of a reference is reproduced."""
        return name in PROFILES[self.profile].quirks

    @property
    def averages(self) -> bool:
        """Whether a run will have an average of its weights."""
        return self.training.ema != "off" or OPTIMIZERS[self.optimizer.name].averages

    def processes(self, ranks: int) -> dict[str, int]:
        """Return the number of processes where losses follow from it, a defect of some profiles; else nothing.

        Without the defects, runs on any number of processes differ by rounding alone, and are one run.
        """
        return {"processes": ranks} if self.quirk("packed_by_process") or self.quirk("mean_of_means") else {}

    def to_manifest(self) -> dict[str, Any]:
        """Return all that weights and numbers of a run follow from: neither ``watch`` nor ``checkpoints``."""
        values = super().to_manifest()
        for section, name in _OF_NO_EFFECT:
            del values[section][name]
        return {name: value for name, value in values.items() if name not in ("watch", "checkpoints")}

    def notes(self, total: int) -> list[str]:
        """List what a person should know before the run begins, a line each.

        Args:
            total: steps of the whole run.
        """
        notes = []
        model, schedule = self.model, self.schedule
        if self.profile != "pairmill":
            quirks = ", ".join(sorted(PROFILES[self.profile].quirks))
            notes.append(f"profile {self.profile} reproduces defects: {quirks}")
        if model.size != "none":
            for name, value in SIZES[model.size]._asdict().items():
                if getattr(model, name) != value:
                    notes.append(f"model.{name} is {getattr(model, name)}; size {model.size} has {value}")
        instructions = PROFILES[self.profile].sizes.get(model.size)
        if instructions and self.optimizer.lr == defaults(self.profile).optimizer.lr:
            notes.append(f"HRM-Text's instructions train size {model.size} with {' '.join(instructions)}")
        if (schedule.warmup_steps or 0) >= total:
            notes.append(f"the run ends within the warm-up: {schedule.warmup_steps} steps, and the run has {total}")
        if schedule.min_ratio == 1 and (SHAPES[schedule.shape].fall or SHAPES[schedule.shape].stable):
            notes.append("schedule.min_ratio is 1: the rate stays constant after the warm-up")
        if note := model.kind.note(model):
            notes.append(note)
        ema = self.training.ema
        if isinstance(ema, float) and ema**total >= 0.01:
            notes.append(
                f"training.ema {ema:g}: after {total} steps, {ema**total:.0%} of the mean are the initial weights; "
                "auto would fit"
            )
        return notes

    def check_steps(self, total: int) -> None:
        """Raise UsageError if a run of this many steps does not reach the end of its warm-up."""
        schedule = self.schedule
        warmup = schedule.warmup_steps or 0
        if total < 1:
            raise UsageError(
                "the run has no step", where="training", expected="a batch or more", hint="see batch.tokens"
            )
        # The references begin such runs. With the profiles a note says so, and what would divide by zero is refused.
        reference = self.quirk("cosine_rises") or self.quirk("rate_from_zero")
        fits = warmup < total or (reference and not (self.quirk("cosine_rises") and warmup == total))
        if not fits:
            raise UsageError(
                "the run ends within the warm-up",
                where="schedule.warmup_steps",
                got=f"{warmup}, and {total} steps",
                expected=f"at most {total - 1}",
                hint="null is a twentieth of the run",
            )
        stable = schedule.stable_steps or 0
        if SHAPES[schedule.shape].stable and warmup + stable >= total and not reference:
            raise UsageError(
                "the run ends before the rate goes down",
                where="schedule.stable_steps",
                got=f"{stable} after a warm-up of {warmup}, and {total} steps",
                expected=f"at most {total - warmup - 1}",
            )

    def check_ranks(self, ranks: int) -> None:
        """Raise UsageError if a global batch cannot be shared out evenly over this many processes."""
        if self.batch.tokens % (ranks * self.batch.accumulate):
            parts = f"{ranks} processes" + (f" x {self.batch.accumulate} parts" if self.batch.accumulate > 1 else "")
            below = self.batch.tokens // (ranks * self.batch.accumulate) * ranks * self.batch.accumulate
            raise UsageError(
                "a global batch cannot be shared out evenly",
                where="batch.tokens",
                got=f"{self.batch.tokens} for {parts}",
                expected=f"a multiple of {ranks * self.batch.accumulate}",
                hint=f"{below or ranks * self.batch.accumulate} would do",
            )


_OF_NO_EFFECT: Final = (("training", "threads"), ("data", "prefetch"))
"""Settings that no weight follows from: bits may differ with the number of threads, as with that of processes."""


def defaults(
    profile: ProfileName = "pairmill", net: NetName | None = None, size: SizeName | None = None
) -> TrainSettings:
    """Make the settings where the file says no more than these; None = the net or size of the profile."""
    given = PROFILES[profile].defaults
    model = given.get("model", {})
    net, size = net or model.get("net", "transformer"), size or model.get("size", "none")
    values = {**PROFILES[profile].nets.get(net, {}), **model, "net": net, "size": size}
    plain = TrainSettings()
    return replace(
        plain,
        profile=profile,
        model=ModelSettings.for_net(**values),
        **{name: replace(getattr(plain, name), **values) for name, values in given.items() if name != "model"},
    )


def default_file(profile: ProfileName = "pairmill", net: NetName | None = None, size: SizeName | None = None) -> str:
    """Write train_config.yaml as it is shipped: every default, commented out."""
    text = render(defaults(profile, net, size), TrainSettings.HEAD)
    # A name with nothing after it has settings below it.
    return re.sub(r"^( *)(\w+: *[^ #\n])", r"\1#\2", text, flags=re.MULTILINE)
