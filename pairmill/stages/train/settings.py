"""``train_config.yaml``: profile, data, net, optimizer, schedule, length of the run, checkpoints. No torch here.

Defaults are layers: those of the profile, then what the net and the size were published with. The file has what differs
from them, and overrides of the command line (``optimizer.lr=0.001``) come last. So every value of the settings that are
read is the one that counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args, get_type_hints

from pairmill.errors import UsageError
from pairmill.formats.settings_file import SettingsFile, render, to_json
from pairmill.stages.train.data_settings import DataSettings
from pairmill.stages.train.profiles import DEFAULTS, NETS, QUIRKS, QuirkName
from pairmill.stages.train.profiles.hrm_text import OF_L
from pairmill.stages.train.shape import KINDS, SIZES

DEFAULT: Final = "train_config.yaml"
"""The default file, in the working directory. It is optional: without it every setting has its default."""

HEAD: Final = """How a net is trained. Each line has a setting and its default: take away the # of those that you
change. Defaults follow from profile, model.net and model.size, so leave alone what you do not change. An override of
the command line counts more than this file: set=optimizer.lr=0.001
Made by: pairmill train settings"""

ProfileName = Literal["pairmill", "hrm_text", "hrm_text_finetuning", "kempner"]
NetName = Literal["transformer", "hrm", "trm", "trm_match_recurrence", "rins", "ut", "llama"]
SizeName = Literal["none", "B", "L", "XL", "XXL", "XXL_wide"]
OptimizerName = Literal["adam_atan2", "adamw", "lion", "muon", "schedule_free_adamw"]
ShapeName = Literal["constant", "cosine", "linear", "wsd", "sqrt", "rex", "none"]

OF_KEMPNER: Final = frozenset({"lion", "muon", "schedule_free_adamw", "sqrt", "rex", "none"})
"""Optimizers and shapes that the profile kempner alone has."""


def _check(where: str, right: bool, got: Any, expected: str, hint: str = "", what: str = "out of range") -> None:
    if not right:
        shown = f"{got:g}" if isinstance(got, float) else str(got)
        raise UsageError(what, where=where, got=shown, expected=expected, hint=hint)


def _at_least(settings: Any, least: float, *names: str) -> None:
    for name in names:
        _check(name, getattr(settings, name) >= least, getattr(settings, name), f"at least {least:g}")


@dataclass(frozen=True, kw_only=True)
class Override:
    """Blocks of the H stack that differ from the others. A value of null is that of the net.

    Args:
        layers: blocks of the H stack; it is not halved.
        heads: attention heads.
        expansion: width of the MLP.
        norm: pre or post.
        norm_eps: added to the mean square.
        rope_base: of the rotary positions.
        init: rule of the initial weights.
        init_std: its standard deviation.
    """

    layers: int | None = None
    heads: int | None = None
    expansion: float | None = None
    norm: Literal["pre", "post"] | None = None
    norm_eps: float | None = None
    rope_base: float | None = None
    init: Literal["lecun_normal", "fixed_normal", "megatron"] | None = None
    init_std: float | None = None

    def given(self) -> dict[str, Any]:
        """The values that differ."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """The net.

    Args:
        net: transformer, hrm, trm, trm_match_recurrence, rins, ut or llama.
        size: none, or a published one (B, L, XL, XXL, XXL_wide), which sets layers, width, heads and expansion.
        layers: blocks; with half_layers, of both stacks together.
        width: of the residual stream.
        heads: attention heads; they divide the width into even parts.
        key_value_heads: of llama, key and value heads; 0 = as many as heads.
        expansion: the MLP is 2/3 of this many times as wide as the net, rounded up to a multiple of 256.
        feed_width: of the MLP, in place of the rule; 0 = by the rule.
        norm: before each layer (pre) or after it (post).
        norm_eps: added to the mean square.
        pos_emb: rope is the only one.
        rope_base: of the rotary positions.
        attention: prefixlm (an instruction sees all of itself) or causal.
        init: rule of the initial weights; lecun_normal, fixed_normal or megatron.
        init_std: standard deviation of fixed_normal and megatron; 0 = the rule's own.
        half_layers: of two stacks each has half the layers; of trm_match_recurrence and rins too.
        H_cycles: of hrm and trm, how often H is called.
        L_cycles: of hrm, trm and rins, how often L is called, for each call of H.
        cycles: of ut, how often the stack is called.
        H_bp_steps: of trm, the last calls for H that are differentiated.
        L_bp_steps: of trm, the last calls for L that are differentiated.
        L_bp_cycles: of rins, the last calls of L that are differentiated.
        bp_cycles: of ut, the last calls that are differentiated.
        bp_min: of hrm, differentiated calls at the beginning.
        bp_max: of hrm, differentiated calls after the warm-up.
        bp_warmup_ratio: of hrm, the part of the run in which they grow; 0 = bp_max from the start.
        H_override: of hrm, blocks of the H stack that differ.
        qk_norm: of llama, queries and keys are normalised.
        tied: of llama, embedding and head are one matrix.
    """

    net: NetName = "transformer"
    size: SizeName = "none"
    layers: int = 4
    width: int = 128
    heads: int = 4
    key_value_heads: int = 0
    expansion: float = 4.0
    feed_width: int = 0
    norm: Literal["pre", "post"] = "pre"
    norm_eps: float = 1e-6
    pos_emb: Literal["rope"] = "rope"
    rope_base: float = 10_000.0
    attention: Literal["prefixlm", "causal"] = "prefixlm"
    init: Literal["lecun_normal", "fixed_normal", "megatron"] = "lecun_normal"
    init_std: float = 0.0
    half_layers: bool = False
    H_cycles: int = 2
    L_cycles: int = 3
    cycles: int = 4
    H_bp_steps: int = 2
    L_bp_steps: int = 1
    L_bp_cycles: int = 4
    bp_cycles: int = 2
    bp_min: int = 3
    bp_max: int = 5
    bp_warmup_ratio: float = 0.2
    H_override: Override = field(default_factory=Override)
    qk_norm: bool = False
    tied: bool = False

    @classmethod
    def of(cls, net: NetName, **values: Any) -> ModelSettings:
        """A net with what it was published with, and these values."""
        return cls(**{"net": net, **defaults_of_net(net, values.get("size", "none")), **values})

    def __post_init__(self) -> None:
        _at_least(self, 1, "layers", "width", "heads", "H_cycles", "L_cycles", "cycles")
        _at_least(self, 0, "key_value_heads", "feed_width", "init_std")
        _at_least(self, 0, "H_bp_steps", "L_bp_steps", "L_bp_cycles", "bp_cycles")
        for name in ("expansion", "norm_eps", "rope_base"):
            _check(name, getattr(self, name) > 0, getattr(self, name), "above 0")
        if self.half_layers and not KINDS[self.net].halves:
            raise UsageError("this net has one stack", where="half_layers", got=self.net, expected="false")
        if self.half_layers and self.layers % 2:
            hint = f"{self.layers + 1} or {max(2, self.layers - 1)}"
            _check("layers", False, self.layers, "an even number, as half_layers is true", hint, "odd")
        self._check_heads("heads", self.heads)
        if self.H_override.heads is not None:
            _check("H_override.heads", self.H_override.heads > 0, self.H_override.heads, "above 0")
            self._check_heads("H_override.heads", self.H_override.heads)
        if self.H_override.given() and self.net != "hrm":
            raise UsageError("this net has no H stack of its own", where="H_override", got=self.net, expected="hrm")
        if self.key_value_heads and self.heads % self.key_value_heads:
            _check("key_value_heads", False, self.key_value_heads, f"a divisor of heads, which is {self.heads}")
        for name in ("key_value_heads", "qk_norm", "tied"):
            if getattr(self, name) and self.net != "llama":
                raise UsageError("only llama has it", where=name, got=self.net, expected="model.net: llama")
        _check("bp_min", 1 <= self.bp_min <= self.bp_max, self.bp_min, f"1 to {self.bp_max}, which is bp_max")
        _check("bp_warmup_ratio", 0 <= self.bp_warmup_ratio <= 1, self.bp_warmup_ratio, "0 to 1")

    def _check_heads(self, name: str, heads: int) -> None:
        if self.width % heads or self.width // heads % 2:
            near = [one for one in range(1, self.width + 1) if self.width % one == 0 and self.width // one % 2 == 0]
            hint = f"{min(near, key=lambda one: abs(one - heads))} would do" if near else "make the width even"
            expected = f"heads that divide the width {self.width} into even parts"
            _check(name, False, heads, expected, hint, "heads do not divide the width")


def defaults_of_net(net: str, size: str) -> dict[str, Any]:
    """Values of :class:`ModelSettings` that a net and a size bring."""
    found = dict(KINDS[net].shipped)
    # As published, the embedding learns nothing at first (hrm) or ever (trm): the profile hrm_text has it so.
    found.pop("bp_min", None)
    if net == "trm":
        found["H_bp_steps"] = found["H_cycles"]
    if net == "llama":
        found |= {"attention": "causal", "init": "megatron", "init_std": 0.02}
    if size in SIZES:
        found |= {**SIZES[size]._asdict(), "expansion": 4.0}
    return found


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """A global batch: what one step of the optimizer reads.

    Args:
        tokens: slots, of all processes and all parts together.
        accumulate: parts, one after another; each needs memory for about tokens / processes / accumulate slots.
        target_only: only responses are learned; with attention prefixlm it has to be true.
        tail: what happens to an epoch's last batch; drop it, keep it, or carry its rows into the next epoch.
        long_rows: rows longer than a batch; refuse to begin, or skip them.
    """

    tokens: int = 4096
    accumulate: int = 1
    target_only: bool = True
    tail: Literal["drop", "keep", "carry"] = "drop"
    long_rows: Literal["refuse", "skip"] = "refuse"

    def __post_init__(self) -> None:
        _at_least(self, 1, "tokens", "accumulate")
        _check("accumulate", self.tokens % self.accumulate == 0, self.accumulate, f"a divisor of tokens, {self.tokens}")


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """The optimizer.

    Args:
        name: adam_atan2 (no eps, does not see the scale of gradients) or adamw; lion, muon and schedule_free_adamw with
            the profile kempner.
        lr: highest learning rate.
        betas: of the means of gradients and of their squares.
        eps: of adamw.
        weight_decay: each step takes lr times this part of a weight away.
        decay: what decays; all weights, or matrices (two dimensions or more, embedding and head too).
        clip: highest norm of the gradient of all weights together; 0 = not clipped. The norm is logged in any case.
    """

    name: OptimizerName = "adam_atan2"
    lr: float = 1e-3
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    eps: float = 1e-8
    weight_decay: float = 0.1
    decay: Literal["all", "matrices"] = "matrices"
    clip: float = 0.0

    def __post_init__(self) -> None:
        _check("lr", self.lr > 0, self.lr, "above 0")
        _check("betas", len(self.betas) == 2, self.betas, "two numbers", what="not two numbers")
        _check("betas", all(0 <= one < 1 for one in self.betas), self.betas, "numbers from 0 to below 1")
        _at_least(self, 0, "eps", "weight_decay", "clip")


@dataclass(frozen=True, kw_only=True)
class ScheduleSettings:
    """The learning rate of each step.

    Args:
        shape: after the warm-up; constant, cosine, linear or wsd (constant, then down at the end). sqrt, rex and none
            with the profile kempner.
        warmup_steps: step s of the warm-up has s / warmup_steps of the rate; null = a twentieth of the
            run, at most 2000.
        min_ratio: part of the rate that the last step has, and any after it.
        stable_steps: of wsd, steps between warm-up and descent; null = all but the descent.
        decay_steps: of the descent; null = all after the warm-up, of wsd a fifth of the run.
        wsd_decay: how wsd goes down; linear, cosine or sqrt.
        rex_alpha: exponent of rex.
    """

    shape: ShapeName = "cosine"
    warmup_steps: int | None = None
    min_ratio: float = 0.1
    stable_steps: int | None = None
    decay_steps: int | None = None
    wsd_decay: Literal["linear", "cosine", "sqrt"] = "linear"
    rex_alpha: float = 1.0

    def __post_init__(self) -> None:
        for name in ("warmup_steps", "stable_steps"):
            _check(name, (getattr(self, name) or 0) >= 0, getattr(self, name), "at least 0, or null")
        _check("decay_steps", self.decay_steps is None or self.decay_steps > 0, self.decay_steps, "above 0, or null")
        _check("min_ratio", 0 <= self.min_ratio <= 1, self.min_ratio, "0 to 1")
        _check("rex_alpha", self.rex_alpha > 0, self.rex_alpha, "above 0")
        if self.stable_steps is not None and self.shape != "wsd":
            raise UsageError("only wsd has it", where="stable_steps", got=self.shape, expected="schedule.shape: wsd")


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How long, from which random numbers, and how it is computed.

    Args:
        epochs: of the folder; 0 = all that it has. Give one of epochs, steps and tokens.
        steps: of the optimizer; 0 = as many as the data give.
        tokens: to read; 0 = as many as there are.
        seed: of the initial weights and the order of windows.
        ema: part of the mean of the weights that a step keeps; auto = 1 - 10 / steps, from 0 to 0.9999. off = no mean.
        z_loss: weight of the squared logarithm of the normaliser, over labelled positions.
        precision: of activations; auto is bfloat16 on a GPU and float32 on a CPU. Weights are float32.
        attention_path: how attention is computed; auto, rows (exact, anywhere), flex or varlen (on a GPU).
        compile: torch.compile.
        threads: of a process; 0 = one per core.
    """

    epochs: int = 0
    steps: int = 0
    tokens: int = 0
    seed: int = 0
    ema: Literal["auto", "off"] | float = "auto"
    z_loss: float = 0.0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    attention_path: Literal["auto", "rows", "flex", "varlen"] = "auto"
    compile: bool = False
    threads: int = 0

    def __post_init__(self) -> None:
        _at_least(self, 0, "epochs", "steps", "tokens", "z_loss", "threads")
        _check("seed", 0 <= self.seed < 1 << 63, self.seed, "0 to 2^63 - 1")
        lengths = [name for name in ("epochs", "steps", "tokens") if getattr(self, name)]
        if len(lengths) > 1:
            hint = f"{lengths[0]}=0 takes the one back that a profile or the file gives"
            raise UsageError(
                "the length is given twice", where=lengths[1], got=" and ".join(lengths), expected="one", hint=hint
            )
        if isinstance(self.ema, float):
            _check("ema", 0 <= self.ema < 1, self.ema, "0 to below 1, auto or off")


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """Loss on held-out rows and examples of texts, while it trains and at the end.

    Args:
        every_steps: 0 = only at the end.
        rows: at most so many, the same at each evaluation; 0 = all.
        prompts: texts that are answered at the end, for the report.
        condition: of the prompts, such as cot.
        new_tokens: of an answer, at most.
    """

    every_steps: int = 100
    rows: int = 512
    prompts: list[str] = field(default_factory=list)
    condition: str = ""
    new_tokens: int = 64

    def __post_init__(self) -> None:
        _at_least(self, 0, "every_steps", "rows")
        _at_least(self, 1, "new_tokens")


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """Where a run that was interrupted goes on.

    Args:
        every_steps: 0 = not by steps.
        every_minutes: 0 = not by time.
        keep: the newest so many stay.
        asynchronous: written while training goes on.
        early: two steps, with every_steps; between them only first + 1, 2, 4, 8, … are saved. Empty = none.
    """

    every_steps: int = 0
    every_minutes: float = 10.0
    keep: int = 3
    asynchronous: bool = True
    early: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        _at_least(self, 0, "every_steps", "every_minutes")
        _at_least(self, 1, "keep")
        right = not self.early or (len(self.early) == 2 and 0 <= self.early[0] < self.early[1])
        _check("early", right, self.early, "two steps, ascending, or nothing")
        if self.early and not self.every_steps:
            raise UsageError("needs every_steps", where="early", got=str(self.early), expected="every_steps above 0")


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """What is written while it trains.

    Args:
        every_steps: between lines of metrics.jsonl.
        tensorboard: TensorBoard files too.
        wandb: project of Weights & Biases; empty = none. The key is in the environment.
    """

    every_steps: int = 10
    tensorboard: bool = True
    wandb: str = ""

    def __post_init__(self) -> None:
        _at_least(self, 1, "every_steps")


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """All settings.

    Args:
        profile: pairmill, or the defaults and defects of a reference; hrm_text, hrm_text_finetuning, kempner.
        data: how what the options name is read.
        model: the net.
        batch: what a step reads.
        optimizer: how weights change.
        schedule: the learning rate of each step.
        training: how long, and how it is computed.
        evaluation: on held-out rows.
        checkpoints: where an interrupted run goes on.
        watch: what is written while it trains.
    """

    profile: ProfileName = "pairmill"
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    watch: WatchSettings = field(default_factory=WatchSettings)

    @classmethod
    def load(
        cls, given: str = DEFAULT, overrides: Sequence[str] = (), option: str = "train_config", by: str = "set"
    ) -> TrainSettings:
        """Read a file and overrides; an absent DEFAULT gives the defaults.

        Args:
            given: URI of the file.
            overrides: such as ``optimizer.lr=0.001``; the last one of a key counts.
            option: the one that names the file, for messages.
            by: the one that the overrides came by, for messages.

        Raises:
            UsageError: the file is absent, not YAML, or has an unknown key or a wrong value; or an override has.
        """
        return cls._read(SettingsFile.load(given, option, DEFAULT), overrides, by)

    @classmethod
    def parse(cls, text: str = "", overrides: Sequence[str] = (), where: str = DEFAULT) -> TrainSettings:
        """The settings of a text."""
        return cls._read(SettingsFile(where, text.encode()), overrides, "set")

    @classmethod
    def _read(cls, file: SettingsFile, overrides: Sequence[str], by: str) -> TrainSettings:
        file.override(overrides, by)
        if file.top is None:
            return defaults()
        entries = file.top.entries()
        model = entries["model"].entries() if "model" in entries and not entries["model"].is_null() else {}
        kinds = get_type_hints(cls) | get_type_hints(ModelSettings)
        profile, net, size = (
            part.as_type(kinds[name]) if (part := found.get(name)) else None
            for name, found in (("profile", entries), ("net", model), ("size", model))
        )
        return file.onto(defaults(profile or "pairmill", net, size))

    def __post_init__(self) -> None:
        if not self.batch.target_only and self.model.attention == "prefixlm" and not self.quirk("targets_in_prefix"):
            raise UsageError(
                "the instruction would see its own labels",
                where="batch.target_only",
                got="false, with attention prefixlm",
                expected="true",
                hint="or set model.attention to causal",
            )
        for where, name in (("optimizer.name", self.optimizer.name), ("schedule.shape", self.schedule.shape)):
            if name in OF_KEMPNER and self.profile != "kempner":
                kind = type(getattr(self, where.split(".")[0])).__dataclass_fields__[where.split(".")[1]].type
                expected = ", ".join(one for one in get_args(globals()[str(kind)]) if one not in OF_KEMPNER)
                raise UsageError("only the profile kempner has it", where=where, got=name, expected=expected)

    def quirk(self, name: QuirkName) -> bool:
        """Whether a named defect of a reference is reproduced (pairmill/stages/train/profiles)."""
        return name in QUIRKS[self.profile]

    @property
    def averages(self) -> bool:
        """Whether a run will have an average of its weights."""
        return self.training.ema != "off" or self.optimizer.name == "schedule_free_adamw"

    def processes(self, ranks: int) -> dict[str, int]:
        """JSON-like: the number of processes, where losses follow from it: a defect of some profiles. Else nothing.

        Without the defects, runs on any number of processes differ by rounding alone, and are one run.
        """
        return {"processes": ranks} if self.quirk("packed_by_process") or self.quirk("mean_of_means") else {}

    def said(self) -> dict[str, Any]:
        """JSON-like: all that weights and numbers of a run follow from, so neither ``watch`` nor ``checkpoints``."""
        found: dict[str, Any] = to_json(self)
        for section, name in _OF_NO_EFFECT:
            del found[section][name]
        return {name: value for name, value in found.items() if name not in ("watch", "checkpoints")}

    def notes(self, total: int) -> list[str]:
        """What a person should know before the run begins, a line each.

        Args:
            total: steps of the whole run.
        """
        found = []
        model, schedule = self.model, self.schedule
        if self.profile != "pairmill":
            found.append(f"profile {self.profile} reproduces defects: {', '.join(sorted(QUIRKS[self.profile]))}")
        if model.size != "none":
            for name, value in SIZES[model.size]._asdict().items():
                if getattr(model, name) != value:
                    found.append(f"model.{name} is {getattr(model, name)}; size {model.size} has {value}")
        if self.profile == "hrm_text" and model.size == "L" and self.optimizer.lr == defaults("hrm_text").optimizer.lr:
            found.append(f"HRM-Text's instructions train size L with {' '.join(OF_L)}")
        if (schedule.warmup_steps or 0) >= total:
            found.append(f"the run ends within the warm-up: {schedule.warmup_steps} steps, and the run has {total}")
        if schedule.shape not in ("constant", "none") and schedule.min_ratio == 1:
            found.append("schedule.min_ratio is 1: the rate stays constant after the warm-up")
        if model.net == "hrm" and model.bp_min <= model.H_cycles:
            when = "during the warm-up of bp_min" if model.bp_max > model.H_cycles else "ever"
            found.append(f"the embedding learns nothing {when}: it takes bp_min {model.H_cycles + 1}")
        if model.net.startswith("trm") and model.H_bp_steps < model.H_cycles:
            found.append(f"the embedding learns nothing: it takes H_bp_steps {model.H_cycles}")
        ema = self.training.ema
        if isinstance(ema, float) and ema**total >= 0.01:
            found.append(
                f"training.ema {ema:g}: after {total} steps, {ema**total:.0%} of the mean are the initial weights; "
                "auto would fit"
            )
        return found

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
        if schedule.shape == "wsd" and warmup + stable >= total and not reference:
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
    """The settings where the file says no more than these; None = the net or size of the profile."""
    given = DEFAULTS[profile]
    model = given.get("model", {})
    net = net or model.get("net", "transformer")
    size = size or model.get("size", "none")
    assert net is not None
    assert size is not None
    of_profile = {**NETS.get(profile, {}).get(net, {}), **model, "net": net, "size": size}
    plain = TrainSettings()
    return replace(
        plain,
        profile=profile,
        model=ModelSettings.of(**of_profile),
        **{name: replace(getattr(plain, name), **values) for name, values in given.items() if name != "model"},
    )


def default_file(profile: ProfileName = "pairmill", net: NetName | None = None, size: SizeName | None = None) -> str:
    """The text of train_config.yaml as it is shipped: every default, commented out."""
    text = render(defaults(profile, net, size), HEAD)
    # A name with nothing after it has settings below it.
    return re.sub(r"^( *)(\w+: *[^ #\n])", r"\1#\2", text, flags=re.MULTILINE)
