"""metrics.jsonl: what a run did, one JSON object a line, in the order of its steps.

Every line has ``step`` and ``kind``:

``step``     every ``watch.every_steps`` steps, the first and the last: the numbers below
``heldout``  losses of the rows that the plan sets apart
``sample``   texts that the model writes
``event``    ``event`` names it: begun, resumed, skipped (an update), rolled_back (weights, to an earlier checkpoint),
             stopped, finished, outlier (watch/outliers.py), with the places of its rows; other keys say more

===================  ==============================================================================================
loss                 mean cross entropy over the labels of this step, in nats
accuracy             share of these labels that are the arg max
exact_accuracy       share of rows with a label whose labels are all right
perplexity           exp(min(loss, 20))
lr                   learning rate of this step's update
grad_norm            norm of all gradients, before clipping
b                    calls of stacks that are differentiated, of nets that have that number
at                   of each sampled folder the epoch and the row that come next: pairmill trace begins there
tokens, labels       tokens that rows have, and labels, since step 1
slots_used           share of the slots of this step's batches that hold a token
flops                floating-point operations since step 1, by the formula (pairmill/nets/cost.py)
loss/<source>        mean over the labels of the source since the line before
labels/<source>      labels of the source since step 1
tokens/<source>      tokens of the source since step 1
heldout_loss         of the current weights; heldout_perplexity, heldout_loss/<source>
heldout_ema_loss     of the averaged weights; heldout_ema_perplexity, heldout_ema_loss/<source>
tokens_per_s         measured since the line before, without evaluation and checkpoints
step_s, wait_s       seconds of a step, and of it waiting for data: means since the line before
mfu                  share of the peak of the devices that ``flops`` are, where the peak is known
memory_gb            most memory that one rank had so far: of its device, or resident on a CPU; 10^9 bytes
seconds              wall-clock seconds of the run, with evaluation, checkpoints and earlier attempts
time                 of the clock, in seconds since 1970 (UTC); of every kind of line
===================  ==============================================================================================

Numbers that follow from data are written exactly: a float is the shortest text that reads as the same float. What is
measured (:data:`MEASURED`) differs from run to run. A number that is not finite is null.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

METRICS: Final = "metrics.jsonl"
LIVE: Final = "live"
"""The folder, in that of its shard, that has metrics.jsonl and TensorBoard files while a run trains."""
MEASURED: Final = frozenset({"tokens_per_s", "step_s", "wait_s", "mfu", "memory_gb", "seconds", "time"})
"""Keys whose values are measured; all others follow from data, seed and configuration."""
MOST_LOSS: Final = 20.0
"""Perplexity is that of a loss of at most this."""

Line = dict[str, Any]


@dataclass(frozen=True)
class OfSource:
    """What one source had in a step, over all ranks.

    Args:
        loss: sum of the cross entropies of its labels, in nats.
        tokens: tokens of its rows.
    """

    loss: float
    labels: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Record:
    """One step, over all ranks. Counts are of this step alone; :class:`Watcher` adds them up.

    Args:
        step: 1, 2, …
        loss: mean over labels; not finite if the step was skipped for that.
        accuracy, exact_accuracy: shares, 0 to 1.
        lr: of the update.
        grad_norm: before clipping.
        tokens: that rows have.
        labels: that are counted.
        slots: of all micro-batches and ranks, padding included.
        flops: of forward and backward.
        b: differentiated calls; None for nets without it.
        memory_gb: most memory of a rank so far, 10^9 bytes.
        skipped: the update was left out by all ranks.
        sources: by name; empty where rows have no source.
        seconds: that the step took, with waiting, without what is done between steps.
        wait_s: seconds of waiting for data.
        at: of each folder of rows the epoch and the row that come next.
    """

    step: int
    loss: float
    accuracy: float
    exact_accuracy: float
    lr: float
    grad_norm: float
    tokens: int
    labels: int
    slots: int
    flops: float
    b: int | None = None
    memory_gb: float = 0.0
    skipped: bool = False
    sources: Mapping[str, OfSource] = field(default_factory=dict)
    seconds: float = 0.0
    wait_s: float = 0.0
    at: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class HeldOut:
    """Losses of held-out rows with one set of weights.

    Args:
        loss: mean over labels, in nats.
        by_source: mean loss by source.
    """

    loss: float
    labels: int
    by_source: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """A text that the model wrote.

    Args:
        prompt: what it was given.
        text: what it wrote.
        condition: tags of the prompt.
    """

    prompt: str
    text: str
    condition: str = ""


def perplexity(loss: float) -> float:
    """``exp`` of the loss, of at most :data:`MOST_LOSS`."""
    return math.exp(min(loss, MOST_LOSS)) if math.isfinite(loss) else math.nan


class Lines:
    """The open file. A line is one write to the kernel: a killed process leaves at most its last line torn.

    Args:
        path: of the file; it is made if it does not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, step: int, values: Mapping[str, object]) -> Line:
        """Append a line; return it."""
        line: Line = {"step": step, "kind": kind, **{name: _finite(value) for name, value in values.items()}}
        left = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        while left:  # a signal, or a disk that fills up, may cut a write short
            left = left[os.write(self._file, left) :]
        return line

    def cut(self, step: int) -> None:
        """Forget the lines after this step, and a last line that is torn."""
        end = 0
        for line, after in _read(self._path):
            if line["step"] > step:
                break
            end = after
        os.truncate(self._path, end)

    def sync(self) -> None:
        """Wait until the lines are on the disk."""
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read(path: Path) -> Iterator[Line]:
    """Yield the whole lines of a file, in order; a torn line and what follows it are left out."""
    return (line for line, _ in _read(path))


def numbers_of(line: Line) -> dict[str, int | float]:
    """Return the numbers of a line of kind ``step`` or ``heldout``, without those that were not finite."""
    return {
        name: value for name, value in line.items() if name not in {"step", "time"} and isinstance(value, int | float)
    }


def tag_of(name: str) -> str:
    """Return the tag of a number: what is before its last slash is the group of charts that TensorBoard shows it in.

    >>> tag_of("loss"), tag_of("loss/web"), tag_of("heldout_ema_loss/web"), tag_of("heldout_loss")
    ('train/loss', 'train_loss_by_source/web', 'heldout_ema_loss_by_source/web', 'heldout/loss')
    """
    whole, _, source = name.partition("/")
    if source:
        group = whole if whole.startswith("heldout") else f"train_{whole}"
        return f"{group}_by_source/{source}"
    if whole.startswith("heldout_"):
        return f"heldout/{whole.removeprefix('heldout_')}"
    return f"{_GROUPS.get(whole, 'speed')}/{whole}"


_GROUPS: Final = {
    "loss": "train",
    "accuracy": "train",
    "exact_accuracy": "train",
    "perplexity": "train",
    "lr": "update",
    "grad_norm": "update",
    "b": "update",
    "tokens": "data",
    "labels": "data",
    "slots_used": "data",
}
"""Others are of the group speed."""


def last_of(lines: Iterable[Line]) -> Line:
    """Return the last value of each key of lines that are no events or samples."""
    last: Line = {}
    for line in lines:
        if line["kind"] in {"step", "heldout"}:
            last |= {name: value for name, value in line.items() if name != "kind"}
    return last


def exact(line: Mapping[str, Any]) -> Line:
    """Return a line without what is measured: the same in every run of the same data, seed, configuration and ranks."""
    return {name: value for name, value in line.items() if name not in MEASURED}


def _read(path: Path) -> Iterator[tuple[Line, int]]:
    """Yield lines, and where each ends in bytes."""
    end = 0
    with path.open("rb") as file:
        for text in file:
            end += len(text)
            try:
                line = json.loads(text) if text.endswith(b"\n") else None
            except ValueError:
                return
            if not isinstance(line, dict) or not isinstance(line.get("step"), int):
                return
            yield line, end


def _finite(value: object) -> object:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
