"""How fast some steps are on the devices that are here."""

import time
from dataclasses import replace
from statistics import median

import torch

from pairmill.errors import InternalError, UsageError
from pairmill.loader import RowPlan
from pairmill.nets import attention
from pairmill.stages.train.data.feed import Feed
from pairmill.stages.train.data.inputs import Inputs
from pairmill.stages.train.run import hardware, parallel
from pairmill.stages.train.run.build import build_net
from pairmill.stages.train.run.parallel import Ranks
from pairmill.stages.train.run.step import Stepper
from pairmill.training.optimizers.optimizer import make
from pairmill.training.settings import TrainSettings


def measure_rate(
    settings: TrainSettings, inputs: Inputs, ranks: Ranks, *, steps: int, size: int, measured: int
) -> tuple[float, str]:
    """Measure tokens per second of all devices; say on what.

    Args:
        ranks: those that are here.
        steps: of the run.
        size: ranks of the run.
        measured: steps to measure.

    Raises:
        UsageError: a step needs more memory than there is.
    """
    shares = ranks.size * settings.batch.accumulate
    # A part of a batch that has room for the longest row, and for a row beside one with a response of one token.
    least = inputs.longest + 2 if isinstance(inputs.plan, RowPlan) else 0
    here = max(settings.batch.tokens * ranks.size // size, min(settings.batch.tokens, -(-least // shares) * shares))
    settings = replace(settings, batch=replace(settings.batch, tokens=here))
    hardware.settle(settings.training.threads, ranks)
    precision = hardware.precision(settings.training.precision, ranks.device)
    path = attention.choose(settings.training.attention_path, ranks.device, precision)
    net = build_net(settings, inputs, ranks, precision)
    optimizer = make(settings.optimizer, parallel.parameters(net).items(), None)
    if settings.training.compile:
        net.compile()
    stepper = Stepper(
        net,
        optimizer,
        settings,
        total=steps,
        ranks=ranks,
        path=path,
        sources=inputs.sources,
        vocab_size=inputs.vocab_size,
    )
    feed = Feed(inputs, settings, ranks.rank, ranks.size, ranks.device)
    seconds, tokens = [], []
    try:
        # The last step has the most differentiated calls. The first one allocates and compiles.
        for number, batch in zip(range(measured + 1), feed.batches(), strict=False):
            begun = time.perf_counter()
            stepper.step(steps, batch)
            if ranks.device.type == "cuda":
                torch.cuda.synchronize(ranks.device)
            if number:
                seconds.append(time.perf_counter() - begun)
                tokens.append(batch.tokens)
    except torch.OutOfMemoryError as error:
        hint = f"batch.accumulate={settings.batch.accumulate * 2} takes half as much at a time"
        raise UsageError(
            "a step needs more memory than there is", where="batch.tokens", got=str(error).split(".")[0], hint=hint
        ) from error
    finally:
        feed.close()
    if not seconds:
        raise InternalError("no step was measured", where="check")
    rate = sum(tokens) / len(tokens) / median(seconds) * size / ranks.size
    many = f", times {size / ranks.size:g}" if size != ranks.size else ""
    memory = hardware.memory_gb(ranks.device)
    text = f"{len(seconds)} steps of {median(seconds):.3g} s, {memory:.2g} GB, attention by {path}"
    return rate, f"measured on {hardware.devices(ranks)}{many}: {text}"
