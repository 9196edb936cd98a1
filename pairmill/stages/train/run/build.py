"""The state of a run at its beginning: from its newest checkpoint, from an earlier run's weights, or new."""

from collections.abc import Mapping
from typing import Any, Final

import torch

from pairmill import log, storage
from pairmill.errors import InputError
from pairmill.formats.settings_file import differences
from pairmill.nets import attention
from pairmill.nets.builder import build
from pairmill.nets.checkpoint import Checkpoint
from pairmill.nets.initial import initialise
from pairmill.nets.net import Net
from pairmill.nets.trained import CHECKPOINTS
from pairmill.stages.train.data.feed import Feed
from pairmill.stages.train.data.inputs import Inputs
from pairmill.stages.train.data.steps import planned, scheduled_steps
from pairmill.stages.train.run import first_weights, hardware, parallel
from pairmill.stages.train.run.checkpoint import Checkpoints, restore
from pairmill.stages.train.run.job import Job
from pairmill.stages.train.run.parallel import Ranks
from pairmill.stages.train.run.state import RunState
from pairmill.stages.train.run.update import Counts
from pairmill.training.optimizers.optimizer import make
from pairmill.training.schedules import choose_ema_beta
from pairmill.training.settings import TrainSettings

_OF_TENSORS: Final = ("settings.model.", "settings.optimizer.", "settings.profile")
"""Settings that an earlier run has in common with the one that goes on with it."""


def find_checkpoint(job: Job, ranks: Ranks, checkpoints: Checkpoints) -> Checkpoint | None:
    """Find the checkpoint to go on from; None: the run begins.

    An earlier run, on a plan that this one's extends, counts if net and optimizer are the same.

    Raises:
        InputError: it is of another run, or ``resume_from`` has none.
    """
    result = checkpoints.newest()
    if result is None and job.resume_from:
        result = _checkpoints_elsewhere(job.resume_from, ranks).newest()
        if result is None:
            raise InputError("no complete checkpoint", where=f"resume_from={job.resume_from}", hint="leave it out")
    if result is None or result.says.get("run") == job.key:
        return result
    differ = differences(job.identify(ranks.size), result.says.get("identity", {}))
    if result.says.get("run") != job.earlier or any(name.startswith(_OF_TENSORS) for name in differ):
        raise InputError(
            "a checkpoint of another run",
            where=result.folder,
            got=_describe(differ),
            expected="the same data, settings and first weights",
            hint="weights_from= takes its weights and begins a new run",
        )
    return result


def build_state(job: Job, ranks: Ranks, resumed: Checkpoint | None) -> RunState:
    """Build net and optimizer with the weights that a new run begins with, and settle what it computes on."""
    settings, inputs = job.settings, job.inputs
    says: Mapping[str, Any] = resumed.says if resumed else {}
    begin = None
    if resumed is not None and says["run"] != job.key:  # an earlier run, whose plan had other epochs to come
        begin, says = inputs.plan.position(says["feed"]), {}
    # Bits follow from the number of threads too: where there are as many ranks, a process keeps its own.
    kept: int = says["threads"] if says.get("ranks") == ranks.size else 0
    threads = hardware.settle(settings.training.threads or kept, ranks)
    # Counted once: a run that goes on keeps its schedule.
    total: int = says.get("total") or scheduled_steps(inputs, settings, ranks.size, begin)
    steps: int = says.get("steps") or planned(inputs, settings, ranks.size, begin).steps
    precision = hardware.precision(settings.training.precision, ranks.device)
    path = attention.choose(settings.training.attention_path, ranks.device, precision)
    net = build_net(settings, inputs, ranks, precision)
    if job.start is not None:
        first_weights.load_weights(job.start, net, ranks)
    beta = choose_ema_beta(settings, total)
    optimizer = make(settings.optimizer, parallel.parameters(net).items(), beta)
    if job.start is not None:
        first_weights.load_optimizer(job.start, net, optimizer, ranks)
    if settings.training.compile:
        net.compile()
    return RunState(
        job=job,
        ranks=ranks,
        resumed=resumed,
        threads=threads,
        total=total,
        steps=steps,
        precision=precision,
        path=path,
        beta=beta,
        net=net,
        optimizer=optimizer,
    )


def build_net(settings: TrainSettings, inputs: Inputs, ranks: Ranks, precision: torch.dtype) -> Net:
    """Build the net with its initial weights, sharded over the ranks."""
    with torch.device("meta"):
        net = build(settings.model, inputs.vocab_size, inputs.positions)
    parallel.shard(net, ranks, precision)
    initialise(net, settings.training.seed)
    return net


def resume(state: RunState, feed: Feed, checkpoints: Checkpoints) -> None:
    """Put back what the checkpoint has, if the run goes on from one; take the loader's position."""
    resumed = state.resumed
    if resumed is not None:
        restore(checkpoints, resumed, state.net, state.optimizer)
        feed.load_state_dict(resumed.says["feed"])
        state.counts = Counts(**resumed.says["counts"])
        if resumed.says["run"] != state.job.key:  # rows that the end of its plan left may be read
            sources, left = feed.state_dict()["sources"], state.counts.left
            names = {key: key.rpartition(" ") for key in left}
            state.counts.left = {
                key: left[key] for key, (source, _, epoch) in names.items() if int(epoch) < sources[source][0]
            }
        state.step = resumed.step
        if state.ranks.rank == 0:
            text = f"train: goes on after step {state.step:,} of {state.steps:,}"
            log.event(text, step=state.step, uri=resumed.folder)
    state.position = feed.state_dict()


def _checkpoints_elsewhere(given: str, ranks: Ranks) -> Checkpoints:
    """Return the checkpoints below a folder, or in it."""
    uri = storage.normalise(given, "resume_from")
    inside = storage.join(uri, CHECKPOINTS)
    return Checkpoints(inside if storage.store_for(inside).folders(inside) else uri, ranks)


def _describe(differ: Mapping[str, list[Any]]) -> str:
    """Say what is different, by name."""
    shown = [f"{name.removeprefix('settings.')} {there} (here {here})" for name, (there, here) in differ.items()]
    return ", ".join(shown[:5]) or "another version of the trainer"
