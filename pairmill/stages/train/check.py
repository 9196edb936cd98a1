"""``check``: before an hour is spent, whether plan, tokenizer, net and ranks fit, and what the run will cost.

Every line is looked at even if one before it is wrong. Under torchrun all ranks run it, and rank 0 prints.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from pairmill import log, storage
from pairmill.engine.options import option
from pairmill.errors import PairmillError, StorageError, UsageError
from pairmill.formats.tokens import INDEX
from pairmill.loader import RowPlan
from pairmill.loader.arrays import map_array
from pairmill.nets import cost
from pairmill.redact import escaped
from pairmill.stages.train import launch, run
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.data.inputs import Inputs, open_inputs, refuse_training_rows
from pairmill.stages.train.data.steps import Planned, planned, scheduled_steps
from pairmill.stages.train.start import Start
from pairmill.stages.train.watch.progress import duration
from pairmill.training.schedules import Rate, count_differentiated
from pairmill.training.settings import TrainSettings

if TYPE_CHECKING:
    from pairmill.stages.train.run.parallel import Ranks

T = TypeVar("T")

_ROWS: Final = 4096
"""Rows whose shapes stand for all: an epoch has its rows in random order."""
_POINTS: Final = 1000
"""Steps at which the number of differentiated calls is looked up."""
_PER_WEIGHT: Final = 16
"""Bytes of a weight in a checkpoint: itself, two moments, their average, float32."""
CPU: Final = "CPU"
_WIDTH: Final = 120
"""Of what is not a terminal."""


@dataclass(kw_only=True)
class CheckConfig(TrainConfig):
    """Say what a training will need and whether its parts fit; under torchrun, whether its processes meet."""

    root: str = option(
        "",
        help="project folder or URI of the training; empty = room for checkpoints is not looked at",
        changes_bytes=False,
    )
    gpu: str = option("", help="what it will run on, such as H100; empty = what is here", changes_bytes=False)
    tokens_per_s: float = option(
        0.0, help="rate of all devices; 0 = by mfu, or measured here", changes_bytes=False, at_least=0
    )
    mfu: float = option(
        0.0,
        help="part of the peak that is reached, such as 0.4; 0 = measured here",
        changes_bytes=False,
        at_least=0,
        at_most=1,
    )
    measure: int = option(3, help="steps to measure; 0 = none", changes_bytes=False, at_least=0)
    limit_s: float = option(60.0, help="seconds to wait for the other processes", changes_bytes=False, at_least=0)


class Line(NamedTuple):
    """A line of the table."""

    name: str
    text: str
    wrong: bool = False


@dataclass
class CheckTable:
    """What was found so far.

    Attributes:
        lines: of the table.
        errors: what is wrong.
    """

    lines: list[Line] = field(default_factory=list)
    errors: list[PairmillError] = field(default_factory=list)

    def say(self, name: str, text: str) -> None:
        """Add a line."""
        self.lines.append(Line(name, text))

    def look(self, name: str, at: Callable[[], T]) -> T | None:
        """Return what this gives; None if it raises an error of ours, which becomes a line."""
        try:
            return at()
        except PairmillError as error:
            self.lines.append(Line(name, str(error), wrong=True))
            self.errors.append(error)
            return None


def check(config: CheckConfig) -> str:
    """Make the table; under torchrun that of rank 0.

    Raises:
        PairmillError: the gravest of what is wrong; the table is printed before.
    """
    result = CheckTable()
    ranks, size = None, config.processes or 1
    if find_spec("torch"):
        ranks, size = result.look("Processes", lambda: _met(config, result)), launch.count(config)
    else:
        result.say("Processes", f"{size}; torch is not installed, so nothing is tried")
    planned = _plan(config, result, size)
    right = not result.errors
    if ranks is not None:
        # All have an answer to each question, also those that found something.
        result.look("Processes", lambda: ranks.agree("the data", planned[0].digest if planned else None))
        right = result.look("Processes", lambda: ranks.any(bool(result.errors))) == (False,)
    if planned and right:
        _cost(config, result, *planned, ranks, size)
    if ranks is not None:
        result.look("Processes", ranks.close)
    text = "" if launch.rank() else table(result.lines)
    if result.errors:
        sys.stdout.write(text)
        sys.stdout.flush()
        raise max(result.errors, key=lambda error: error.exit_code)
    return text


def _met(config: CheckConfig, table: CheckTable) -> Ranks:
    """Join the other processes, and add something up with all of them."""
    begun = time.monotonic()
    ranks: Ranks = run.parallel.start(config.device, config.limit_s)
    if ranks.size > 1:
        ranks.try_sum()
        table.say("Processes", f"{ranks.size} reach each other, in {time.monotonic() - begun:.1f} s")
    else:
        several = launch.count(config) > 1
        later = "; whether they reach each other is tried with torchrun … -m pairmill train check …" if several else ""
        table.say("Processes", f"{launch.count(config)}{later}")
    return ranks


def _plan(config: CheckConfig, table: CheckTable, size: int) -> tuple[Inputs, Planned] | None:
    """Look whether settings, data and first weights fit, and how long the run is; None if it cannot be said."""
    settings = table.look("Settings", lambda: config.settings)
    if settings is None:
        return None
    table.say("Net", f"{_named(settings)}; profile {settings.profile}")
    table.look("Held out", lambda: refuse_training_rows(config))
    inputs = table.look("Data", lambda: open_inputs(config, settings))
    if inputs is None:
        return None
    table.say("Data", _describe(inputs))
    held = inputs.held_out
    table.say("Held out", f"{len(held):,} of {_some(held.sources)}" if held is not None else "none")
    if config.weights_from:
        start = table.look("First weights", lambda: _start(config, settings, inputs))
        if start is not None:
            table.say("First weights", f"{config.weights} of {start.uri}")
    length = table.look("Length", lambda: _length(settings, inputs, size))
    if length is None:
        return None
    used = length.tokens / (length.steps * settings.batch.tokens)
    steps = f"{length.steps:,} steps of {settings.batch.tokens:,} slots"
    table.say("Length", f"{steps}, {length.tokens:,} tokens, {used:.1%} of the slots")
    table.say("Learning rate", _schedule(settings, scheduled_steps(inputs, settings, size)))
    if inputs.tokenizer is None:
        table.say("Note", "without tokenizer=, generate, export and evaluate will need it")
    for note in settings.notes(length.steps):
        table.say("Note", note)
    return inputs, length


def _start(config: CheckConfig, settings: TrainSettings, inputs: Inputs) -> Start:
    start = Start.find(config.weights_from, config.weights)
    start.check(settings.model, inputs.vocab_size, inputs.tokenizer)
    return start


def _length(settings: TrainSettings, inputs: Inputs, size: int) -> Planned:
    length = planned(inputs, settings, size)
    settings.check_steps(scheduled_steps(inputs, settings, size))
    return length


def _named(settings: TrainSettings) -> str:
    model = settings.model
    size = f" {model.size}" if model.size != "none" else ""
    return f"{model.net}{size}, {model.layers} layers, width {model.width}, attention {model.attention}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _describe(inputs: Inputs) -> str:
    tokenizer = "with tokenizer.json" if inputs.tokenizer is not None else "without tokenizer.json"
    return (
        f"{inputs.kind} of {_some(inputs.sources)}; {inputs.vocab_size:,} ids {tokenizer}; "
        f"longest {inputs.longest:,}, {inputs.positions:,} positions; sha256 {inputs.digest[:16]}"
    )


def _schedule(settings: TrainSettings, steps: int) -> str:
    rate = Rate(settings, steps)
    schedule = f"{settings.schedule.shape} of {settings.optimizer.lr:g}: {rate.warmup:,} steps up"
    if rate.stable:
        schedule += f", {rate.stable:,} level"
    middle = max(1, steps // 2)
    return f"{schedule}; step 1 {rate.at(1):.3g}, step {middle:,} {rate.at(middle):.3g}, last {rate.at(steps):.3g}"


class Shape(NamedTuple):
    """Rows that stand for all: where they begin, their prefixes, and how many labels they have."""

    starts: list[int]
    prefixes: list[int]
    labels: int


def shape_of(inputs: Inputs, settings: TrainSettings) -> Shape:
    """Take some rows of the first epoch; of windows one that is one document: attention may cost no more."""
    if not isinstance(inputs.plan, RowPlan):
        return Shape([0, inputs.longest], [0], inputs.longest)
    plan = inputs.plan
    folder = plan.folders[plan.names.index(plan.phases[0].source)].epochs[0].folder
    _, inst, _, resp = (map_array(folder / f"{name}.npy")[:_ROWS].astype(np.int64) for name in INDEX)
    starts = [0, *np.cumsum(inst + resp - 1).tolist()]
    return Shape(starts, inst.tolist(), int(resp.sum()) if settings.batch.target_only else starts[-1])


def flops_per_token(settings: TrainSettings, vocab_size: int, shape: Shape, steps: int) -> float:
    """Count FLOPs of a token, forward and backward, on average: hrm differentiates more calls after its warm-up."""
    points = np.unique(np.linspace(1, steps, min(steps, _POINTS)).astype(int)).tolist()
    calls = [count_differentiated(settings.model, step, steps) for step in points]
    each = {
        item: cost.flops(settings.model, vocab_size, shape.starts, shape.prefixes, shape.labels, item)
        for item in set(calls)
    }
    return sum(each[item] for item in calls) / len(calls) / shape.starts[-1]


def _cost(
    config: CheckConfig, table: CheckTable, inputs: Inputs, length: Planned, ranks: Ranks | None, size: int
) -> None:
    settings, shape = config.settings, shape_of(inputs, config.settings)
    weights = cost.parameters(settings.model, inputs.vocab_size)
    each = flops_per_token(settings, inputs.vocab_size, shape, length.steps)
    table.say("Weights", f"{weights:,}")
    table.say("Computation", f"{each * length.tokens:.3g} FLOPs, {each:.3g} a token")
    device, there = _device(config, ranks)
    memory = table.look("Memory", lambda: _memory(settings, inputs.vocab_size, shape, size, device, there))
    if memory is not None:
        table.say("Memory", memory)
    room = table.look("Checkpoints", lambda: _room(config, weights))
    if room is not None:
        table.say("Checkpoints", room)
    if table.errors:  # no step is tried that does not fit
        return
    rate = table.look(
        "Rate", lambda: _rate(config, size, device, each) or _measure(config, inputs, length, ranks, size)
    )
    if rate is not None and not rate[0]:
        table.say("Rate", rate[1])
    elif rate is not None:
        hours = length.tokens / rate[0] / 3600
        price = f", {config.price * hours * size:,.2f} at {config.price:g} an hour" if config.price else ""
        table.say("Rate", f"{rate[0]:,.0f} tokens/s, {rate[1]}")
        table.say("Time", f"{duration(length.tokens / rate[0])} without evaluation and checkpoints{price}")


def _memory(settings: TrainSettings, vocab_size: int, shape: Shape, size: int, device: str, there: int) -> str:
    asked = settings.training.precision
    half = asked == "bfloat16" or (asked == "auto" and device != CPU)
    parts = size * settings.batch.accumulate
    slots = settings.batch.tokens // parts
    labels = round(slots * shape.labels / shape.starts[-1])
    need = cost.memory(settings.model, vocab_size, slots, labels, ranks=size, half=half)
    if there and need > there:
        raise UsageError(
            "a step does not fit into the memory of a device",
            where="batch.tokens",
            got=f"about {_bytes(need)} for {slots:,} slots",
            expected=f"at most {_bytes(there)}",
            hint=f"more processes, or batch.accumulate={settings.batch.accumulate * 2}",
        )
    whole = f" of {_bytes(there)}" if there else ""
    return f"about {_bytes(need)}{whole} a device, for {slots:,} slots at a time"


def _rate(config: CheckConfig, size: int, device: str, each: float) -> tuple[float, str] | None:
    """Return tokens per second of all devices, and how that is known, by the options; None = they do not say."""
    if config.tokens_per_s:
        return config.tokens_per_s, "as given"
    if config.mfu:
        peak = cost.peak(device)
        if peak is None:
            expected = f"a device of {', '.join(cost.PEAKS)}"
            hint = "set gpu=<name>, or tokens_per_s="
            raise UsageError("unknown peak FLOP/s", where="mfu", got=device, expected=expected, hint=hint)
        return config.mfu * peak * size / each, f"{config.mfu:.0%} of the peak of {size} x {device}"
    return None


def _measure(config: CheckConfig, inputs: Inputs, length: Planned, ranks: Ranks | None, size: int) -> tuple[float, str]:
    """Return tokens per second of all devices, and how they were measured; 0 = they were not."""
    if config.gpu or not config.measure or ranks is None:
        return 0.0, "not known: set tokens_per_s=, or mfu= and gpu="
    rate: tuple[float, str] = run.measure.measure_rate(
        config.settings, inputs, ranks, steps=length.steps, size=size, measured=config.measure
    )
    return rate


def _device(config: CheckConfig, ranks: Ranks | None) -> tuple[str, int]:
    """Return its name, and bytes of its memory; 0 = not known, as of a GPU that is not here."""
    if config.gpu:
        return config.gpu, 0
    if ranks is not None and ranks.device.type == "cuda":
        gpu: tuple[str, int] = run.parallel.describe_gpu(ranks.device)
        return gpu
    with suppress(ValueError, OSError):
        return CPU, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return CPU, 0


def _room(config: CheckConfig, weights: int) -> str:
    """Say what checkpoints take, compared with what is free if the project is on this machine."""
    options, item = config.settings.checkpoints, _PER_WEIGHT * weights
    # The new one is complete before the oldest goes; final weights and their average come on top.
    need = item * (options.keep + 1) + item // 2
    often = [f"{options.every_steps:,} steps"] if options.every_steps else []
    often += [f"{options.every_minutes:g} minutes"] if options.every_minutes else []
    when = f"every {' or '.join(often)}" if often else "at the end"
    sizes = f"{_bytes(item)} each, {when}; {_bytes(need)} for {options.keep}"
    uri = storage.normalise(config.root, "root") if config.root else ""
    if not uri or storage.scheme(uri) != "file":
        return sizes
    path = Path(storage.local_path(uri))
    folder = next(item for item in (path, *path.parents) if item.exists())
    free = shutil.disk_usage(folder).free
    if free < need:
        raise StorageError(
            "not enough room for the checkpoints",
            where=f"root={folder}",
            got=f"{_bytes(free)} free",
            expected=_bytes(need),
            hint="free some, or set checkpoints.keep lower",
        )
    return f"{sizes}; {_bytes(free)} are free"


def _bytes(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def table(lines: Sequence[Line]) -> str:
    """Lay the lines out as a terminal of this width shows them."""
    draw, terminal = log.terminal(), sys.stdout.isatty()
    width = shutil.get_terminal_size((_WIDTH, 50)).columns if terminal else _WIDTH
    console = draw.Console(file=io.StringIO(), width=width, force_terminal=terminal, highlight=False, markup=False)
    grid = draw.Table.grid(padding=(0, 2))
    for line in lines:
        name = draw.Text(f"{'wrong' if line.wrong else 'ok':5}", style="red" if line.wrong else "green")
        grid.add_row(name, draw.Text(line.name), draw.Text(escaped(line.text)))
    with console.capture() as capture:
        console.print(grid)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
