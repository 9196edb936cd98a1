"""The files of a finished run: whole tensors, a digest of them, and what the run says of itself."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from pairmill.engine.manifest import canonical
from pairmill.engine.writer import Writer
from pairmill.formats.settings_file import differences
from pairmill.formats.training_results import TrainFacts
from pairmill.nets.trained import EMA, NAME, TOKENIZER, WEIGHTS
from pairmill.stages.train.data.rows import texts_of
from pairmill.stages.train.report.summary import summarise
from pairmill.stages.train.run import hardware, parallel
from pairmill.stages.train.run.job import Outcome
from pairmill.stages.train.run.state import RunState
from pairmill.stages.train.watch.watcher import Watcher
from pairmill.training.settings import defaults


def write_results(state: RunState, watcher: Watcher | None, out: Writer | None) -> Outcome:
    """Write the final files, on rank 0. All ranks call it."""
    files = _gather_files(state)
    rows = state.counts.rows()
    if watcher is None or out is None:
        return Outcome(digest="", steps=state.step, rows=rows)
    for file, tensors in files.items():
        with out.create(file) as path:
            save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})
    digest = _digest(files)
    highest = [
        {**item, "texts": texts_of(state.job.inputs, state.settings, state.ranks.size, item["before"])}
        for item in watcher.highest
    ]
    result = summarise(watcher.metrics, _collect_facts(state), highest)
    out.write(NAME, state.describe(result.last).dump())
    if state.job.inputs.tokenizer is not None:
        out.write(TOKENIZER, state.job.inputs.tokenizer)
    watcher.end(out)
    more = {"digest": digest, "rows": rows, "threads": state.threads, "torch": torch.__version__}
    return Outcome(digest=digest, steps=state.step, rows=rows, data={**result.to_data(), **more})


def _gather_files(state: RunState) -> dict[str, dict[str, Tensor]]:
    """Return the whole tensors of each file, on the CPU: those of rank 0; of others nothing. All ranks call it."""
    averaged = {name: made["param_ema"] for name, made in state.optimizer.state.items() if "param_ema" in made}
    files = {WEIGHTS: state.gather_weights(), EMA: dict(parallel.whole(averaged, state.ranks))}
    return {file: files[file] for file in files if files[file]} if state.ranks.rank == 0 else {}


def _digest(files: Mapping[str, Mapping[str, Tensor]]) -> str:
    """Digest names, dtypes, shapes and bytes of all tensors, whatever files they are in: hexadecimal sha256."""
    digest = hashlib.sha256()
    for file, tensors in sorted(files.items()):
        for name, tensor in sorted(tensors.items()):
            digest.update(canonical([file.partition(".")[0], name, str(tensor.dtype), list(tensor.shape)]))
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def _collect_facts(state: RunState) -> TrainFacts:
    inputs, settings, model = state.job.inputs, state.settings, state.settings.model
    values: dict[str, Any] = settings.to_manifest()
    return TrainFacts(
        net=state.name,
        parameters=state.parameters,
        vocab_size=inputs.vocab_size,
        steps=state.steps,
        precision=str(state.precision).removeprefix("torch."),
        attention=state.path,
        devices=hardware.devices(state.ranks),
        device_count=state.ranks.size,
        processes=settings.processes(state.ranks.size).get("processes", 0),
        peak_flops=hardware.peak(state.ranks),
        price_per_hour=state.job.price,
        ema_beta=state.beta or 0.0,
        absent=state.counts.absent,
        plan=inputs.digest,
        data=state.job.data,
        epochs=settings.training.epochs or None,
        profile=settings.profile,
        settings=values,
        differences=differences(values, defaults(settings.profile, model.net, model.size).to_manifest()),
    )
