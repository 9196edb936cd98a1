"""The learning rate of each step, how many calls hrm differentiates, and the EMA's beta. No torch here."""

from math import ceil, cos, floor, pi

from pairmill.nets.settings import ModelSettings
from pairmill.training.optimizers import OPTIMIZERS
from pairmill.training.settings import TrainSettings
from pairmill.training.shapes import SHAPES


class Rate:
    """The learning rate. After the last step it stays where it is.

    Args:
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
        self._shape = SHAPES[schedule.shape]
        # A run of one step has no warm-up.
        default = min(2000, ceil(total / 20), total - 1)
        self.warmup = default if schedule.warmup_steps is None else schedule.warmup_steps
        left = total - self.warmup
        self.decay = schedule.decay_steps or left
        self.stable = 0
        if self._shape.stable:
            most = left - (schedule.stable_steps or 0)
            self.decay = schedule.decay_steps or (most if schedule.stable_steps is not None else ceil(total / 5))
            self.decay = min(self.decay, most)
            self.stable = left - self.decay if schedule.stable_steps is None else schedule.stable_steps

    def at(self, step: int) -> float:
        """Return the rate of a step, from 1, before the phase's ``lr_scale``."""
        return self._settings.optimizer.lr * self.factor(step)

    def factor(self, step: int) -> float:
        """Return the part of the highest rate that a step has."""
        settings = self._settings
        if not self._shape.warms_up and OPTIMIZERS[settings.optimizer.name].schedule_free:
            return min(1.0, step / max(1, self.warmup))
        if settings.quirk("rate_from_zero"):
            return self._factor_from_zero(step)
        if settings.quirk("cosine_rises") and self._schedule.shape == "cosine":
            return compute_rising_cosine(step, self._total, self.warmup, self._schedule.min_ratio)
        if step < self.warmup:
            return step / self.warmup
        return self._fall(min(1.0, max(0, step - self.warmup - self.stable) / self.decay))

    def _factor_from_zero(self, step: int) -> float:
        """Return KempnerForge's factor: the first update of a warm-up has 0."""
        schedule, done = self._schedule, step - 1
        if self._shape.warms_up and done < self.warmup:
            return done / self.warmup
        stable = (schedule.stable_steps or 0) if self._shape.stable else 0
        decay = schedule.decay_steps
        left = max(1, self._total - self.warmup - stable) if decay is None else decay
        return self._fall(min(1.0, max(0.0, (done - self.warmup - stable) / left)))

    def _fall(self, x: float) -> float:
        """Return the factor at a part x of the descent."""
        schedule = self._schedule
        shape = SHAPES[schedule.wsd_decay] if self._shape.stable else self._shape
        return 1.0 if shape.fall is None else shape.fall(x, schedule.min_ratio, schedule.rex_alpha)


def compute_rising_cosine(step: int, total: int, warmup: int, least: float) -> float:
    """Return HRM-Text's factor of the learning rate at a step from 1: beyond the total it rises again.

    Raises:
        ZeroDivisionError: the total is the warm-up, and the step has reached it.
    """
    if step < warmup:
        return step / warmup
    return least + max(0.0, (1 - least) * 0.5 * (1 + cos(pi * (step - warmup) / (total - warmup))))


def count_differentiated(model: ModelSettings, step: int, total: int) -> int | None:
    """Count the calls that are differentiated at a step, from 1: b. None for nets in which it does not grow."""
    if not model.kind.grows:
        return None
    warmup = model.bp_warmup_ratio * total
    done = min(1.0, step / warmup) if warmup > 0 else 1.0
    return model.bp_min + floor(done * (model.bp_max - model.bp_min))


def choose_ema_beta(settings: TrainSettings, total: int) -> float | None:
    """Return the part of the mean of the weights that a step keeps; None = no mean.

    ``auto`` is 1 - 10 / total: whatever the length, the initial weights are e^-10 of the mean at the end, and about the
    last tenth of the run makes it up. The mean of a run of ten steps or fewer is the last weights.
    """
    ema = settings.training.ema
    if ema == "off":
        return None
    return ema if isinstance(ema, float) else min(0.9999, max(0.0, 1 - 10 / total))


def saves_at(settings: TrainSettings, step: int) -> bool:
    """Tell whether ``checkpoints.every_steps`` and ``early`` ask for a checkpoint after this step; 0 is the start."""
    every, early = settings.checkpoints.every_steps, settings.checkpoints.early
    if early and early[0] <= step <= early[1]:
        after = step - early[0]
        return after & (after - 1) == 0  # the first, and a power of two after it
    return every > 0 and step > 0 and step % every == 0
