"""The learning rate of each step, how many calls hrm differentiates, and the EMA's beta. No torch here."""

from __future__ import annotations

from math import ceil, cos, floor, pi, sqrt

from pairmill.stages.train.profiles import hrm_text, kempner
from pairmill.stages.train.settings import ModelSettings, TrainSettings


class Rate:
    """The learning rate. After the last step it stays where it is.

    Args:
        settings: of the run.
        total: steps of the whole run.

    Attributes:
        warmup: steps that it takes.
        stable: of wsd, steps at the full rate after them.
        decay: steps of the descent.

    Raises:
        UsageError: the run is not longer than its warm-up.
    """

    def __init__(self, settings: TrainSettings, total: int) -> None:
        settings.check_steps(total)
        schedule = settings.schedule
        self._settings, self._schedule, self._total = settings, schedule, total
        given = schedule.warmup_steps
        # A run of one step has no warm-up.
        self.warmup = min(2000, ceil(total / 20), total - 1) if given is None else given
        left = total - self.warmup
        self.decay = schedule.decay_steps or left
        self.stable = 0
        if schedule.shape == "wsd":
            most = left - (schedule.stable_steps or 0)
            self.decay = schedule.decay_steps or (most if schedule.stable_steps is not None else ceil(total / 5))
            self.decay = min(self.decay, most)
            self.stable = left - self.decay if schedule.stable_steps is None else schedule.stable_steps

    def at(self, step: int) -> float:
        """The rate of a step, from 1, before the phase's ``lr_scale``."""
        return self._settings.optimizer.lr * self.factor(step)

    def factor(self, step: int) -> float:
        """The part of the highest rate that a step has."""
        shape, least = self._schedule.shape, self._schedule.min_ratio
        if shape == "none" and self._settings.optimizer.name == "schedule_free_adamw":
            return min(1.0, step / max(1, self.warmup))  # it has a warm-up of its own
        if self._settings.quirk("rate_from_zero"):
            return kempner.factor(
                step,
                self._total,
                shape,
                warmup=self.warmup,
                least=least,
                stable=self._schedule.stable_steps or 0,
                decay=self._schedule.decay_steps,
                wsd_decay=self._schedule.wsd_decay,
                alpha=self._schedule.rex_alpha,
            )
        if self._settings.quirk("cosine_rises") and shape == "cosine":
            return hrm_text.cosine(step, self._total, self.warmup, least)
        if step < self.warmup:
            return step / self.warmup
        x = min(1.0, max(0, step - self.warmup - self.stable) / self.decay)
        match self._schedule.wsd_decay if shape == "wsd" else shape:
            case "cosine":
                return least + (1 - least) * 0.5 * (1 + cos(pi * x))
            case "linear":
                return 1 - (1 - least) * x
            case "sqrt":
                return least + (1 - least) * sqrt(1 - x)
            case _:
                return 1.0


def steps_differentiated(model: ModelSettings, step: int, total: int) -> int | None:
    """How many calls of hrm are differentiated at a step, from 1 (b); None for other nets."""
    if model.net != "hrm":
        return None
    warmup = model.bp_warmup_ratio * total
    done = min(1.0, step / warmup) if warmup > 0 else 1.0
    return model.bp_min + floor(done * (model.bp_max - model.bp_min))


def ema_beta(settings: TrainSettings, total: int) -> float | None:
    """The part of the mean of the weights that a step keeps; None = no mean.

    ``auto`` is 1 - 10 / total: whatever the length, the initial weights are e^-10 of the mean at the end, and about the
    last tenth of the run makes it up. The mean of a run of ten steps or fewer is the last weights.
    """
    ema = settings.training.ema
    if ema == "off":
        return None
    return ema if isinstance(ema, float) else min(0.9999, max(0.0, 1 - 10 / total))


def saves_at(settings: TrainSettings, step: int) -> bool:
    """Whether ``checkpoints.every_steps`` and ``early`` ask for a checkpoint after this step; 0 is the start."""
    every, early = settings.checkpoints.every_steps, settings.checkpoints.early
    if early and early[0] <= step <= early[1]:
        return kempner.saves_early(step, *early)
    return every > 0 and step > 0 and step % every == 0
