"""The train stage: data and settings → a trained net.

Its one shard is the run. It resumes in its own folder, ``<root>/train/shards/<key>/``: ``checkpoints/`` and ``live/``
are there while it trains. The key says data, settings and first weights. It says neither the device nor the number of
processes, which change sums by rounding alone; with a profile whose losses follow from that number, it says it too.
"""

import json
import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.engine.rounds import key_maker
from pairmill.engine.stage import Rounds, Shard, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import UsageError
from pairmill.formats import window_files
from pairmill.formats.training_results import TrainResult
from pairmill.loader import RowPlan, plan_arrays
from pairmill.log import event, logger
from pairmill.report.model import Report
from pairmill.stages.train import launch, run
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.data.earlier import find_earlier
from pairmill.stages.train.data.inputs import Inputs, open_inputs, refuse_removed_rows, refuse_training_rows
from pairmill.stages.train.data.steps import scheduled_steps
from pairmill.stages.train.report.page import report_of
from pairmill.stages.train.report.summary import metrics_of
from pairmill.stages.train.run.job import Job
from pairmill.stages.train.samples import check_prompts
from pairmill.stages.train.start import Start
from pairmill.stages.train.watch.records import LIVE
from pairmill.training.settings import TrainSettings


@dataclass(frozen=True)
class Context:
    """All that the run needs. It stays in this process."""

    config: TrainConfig
    settings: TrainSettings
    inputs: Inputs
    start: Start | None
    earlier: str
    group: launch.Group | None

    def job(self, key: str) -> Job:
        """Return the run, in the folder of its shard."""
        config = self.config
        return Job(
            key=key,
            folder=storage.join(storage.normalise(config.root, "root"), Train.name, "shards", key),
            inputs=self.inputs,
            settings=self.settings,
            start=self.start,
            resume_from=config.resume_from,
            earlier=self.earlier,
            price=config.price,
            tokenizer_info=_tokenizer_info(self.inputs, self.settings, config.windows),
            data=_data(self.inputs, config.hub),
        )


@dataclass(frozen=True)
class TrainNet(Shard[Context], reads=()):
    """The whole run.

    Args:
        data: digest of what it reads.
        first_weights: digest of an earlier run, and what is taken of it; or the key of the run that it goes on with on
            a plan that extends that run's; empty = new weights.
        settings: all that its weights follow from.
        processes: their number, where losses follow from it.
    """

    work: ClassVar[str] = "train"

    data: str
    first_weights: tuple[str, ...]
    settings: Mapping[str, Any]
    processes: Mapping[str, int]

    def run(self, context: Context, out: Writer) -> ShardResult:
        if context.inputs.tokenizer is None:
            event(
                "train: the data do not say where their tokenizer.json is, so the run will be without, and generate, "
                "export and evaluate will need tokenizer=. Give it now, and it is kept beside the weights: "
                "tokenizer=<project of the data>/tokenize/<fingerprint>/tokenizer.json",
                level=logging.WARNING,
            )
        group = context.group or launch.Group(context.config)
        outcome = run.loop.fit(context.job(self.key), group.begin(), out)
        rows = dict(outcome.rows)
        trained = rows.pop("trained")
        ledger = Ledger(trained + sum(rows.values()), trained, trained)
        for reason, number in rows.items():
            if number:
                ledger.drop(reason, number)
        return ShardResult(ledger, outcome.data)


@dataclass(frozen=True, kw_only=True)
class TrainPlan(StagePlan[Context]):
    """Args: net: the run."""

    net: TrainNet


class Train(Stage[TrainConfig, TrainPlan]):
    """One round of one shard."""

    name: ClassVar[str] = "train"
    watched: ClassVar[bool] = False
    version: ClassVar[int] = 4
    round_count: ClassVar[int] = 1
    history: ClassVar[dict[int, str]] = {
        2: "damage of records and files of shards could go unseen; the rows of a batch followed from the number of "
        "processes",
        3: "the key of a shard follows from all that it reads",
        4: "digests of data are BLAKE3; a manifest says which digest it has of each file",
    }
    config = TrainConfig

    def __init__(self, group: launch.Group | None = None) -> None:
        self._group = group

    def plan(self, config: TrainConfig) -> TrainPlan:
        settings = config.settings
        refuse_removed_rows(config)
        refuse_training_rows(config)
        inputs, start = _open(config)
        settings.check_steps(scheduled_steps(inputs, settings, launch.count(config)))
        return _plan(config, inputs, start, self._group)

    def rounds(
        self, config: TrainConfig, plan: TrainPlan
    ) -> Generator[Sequence[Shard[Context]], list[ShardRecord], None]:
        yield [plan.net]

    def finish(self, config: TrainConfig, plan: TrainPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        super().finish(config, plan, rounds, out)
        storage.clear(storage.join(storage.parent_of(rounds[0][0].folder), LIVE))  # the finished folder has its files
        return rounds[0][0].data

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        return metrics_of(TrainResult.from_manifest(manifest))

    def report(self, manifest: Manifest) -> Report:

        return report_of(manifest)


def _plan(config: TrainConfig, inputs: Inputs, start: Start | None, group: launch.Group | None) -> TrainPlan:
    settings = config.settings
    processes = settings.processes(launch.count(config))
    earlier = find_earlier(config.resume_from, inputs) if config.resume_from else ""
    refs = [InputRef("data", inputs.digest[:16]), *_folders(inputs)]
    if earlier:
        refs.append(InputRef("resume_from", earlier))
    if start is not None:
        refs.append(InputRef("weights_from", start.digest[:16]))
    return TrainPlan(
        inputs=refs,
        build_context=lambda: Context(config, settings, inputs, start, earlier, group),
        says={"settings": settings.to_manifest(), **processes},
        net=TrainNet(
            inputs.digest,
            (start.digest, start.take) if start is not None else (earlier,) if earlier else (),
            settings.to_manifest(),
            processes,
            name=settings.model.net,
        ),
        policy={},  # it refuses plans, and changes none
    )


def open_job(config: TrainConfig) -> Job:
    """Open the run that these options name, as every rank sees it."""
    config = replace(config)
    plan = _plan(config, *_open(config), None)
    return plan.context.job(key_maker(Train(), config, plan)(plan.net))


def follow(config: TrainConfig) -> None:
    """Be another rank than 0."""
    # What rank 0 says is enough.
    logger().setLevel(logging.WARNING)
    ranks = launch.join(config)
    # Opened now: rank 0 needs as long for the same.
    job = open_job(config)
    try:
        if ranks.share(launch.WORD) == "begin":
            run.loop.fit(job, ranks, None)
    except SystemExit:  # stopped by a signal: all ranks are
        ranks.close()
        raise
    ranks.close()


def _open(config: TrainConfig) -> tuple[Inputs, Start | None]:
    settings = config.settings
    if config.weights_from and config.resume_from:
        raise UsageError(
            "a run goes on or begins",
            where="resume_from, weights_from",
            got="both",
            expected="one of them",
            hint="resume_from= goes on with the same run; weights_from= begins another one",
        )
    settings.check_ranks(launch.count(config))
    config = plan_arrays.on_this_machine(config)
    inputs = open_inputs(config, settings)
    info = _tokenizer_info(inputs, settings, config.windows)
    check_prompts(settings.evaluation, inputs.tokenizer, info)
    start = Start.find(config.weights_from, config.weights) if config.weights_from else None
    if start is not None:
        start.check(settings.model, inputs.vocab_size, inputs.tokenizer)
    return inputs, start


def _folders(inputs: Inputs) -> list[InputRef]:
    """Name the sampled folders that have manifests, by which their rows are traced back."""
    paths = [str(folder.path) for folder in inputs.plan.folders] if isinstance(inputs.plan, RowPlan) else []
    samples = [manifests.read(path) for path in paths]
    return [InputRef("sampled", sample.fingerprint) for sample in samples if sample is not None]


def _data(inputs: Inputs, hub: str) -> dict[str, str]:
    """Say what is read, for people; no path of a machine is in it."""
    kinds = {"rows": "sampled folder", "windows": "flat token files", "stream": "stream of texts"}
    samples = [sample.fingerprint for sample in _folders(inputs)]
    if isinstance(inputs.plan, RowPlan) and 1 < len(samples) == len(inputs.plan.names):  # what phases call them
        samples = [f"{name}={sample}" for name, sample in zip(inputs.plan.names, samples, strict=True)]
    texts = {"kind": kinds[inputs.kind], "sample": ", ".join(samples), "Hub": hub}
    return {name: text for name, text in texts.items() if text}


def _tokenizer_info(inputs: Inputs, settings: TrainSettings, windows: Sequence[str]) -> dict[str, Any]:
    """Return the tokens that begin and end texts, as the data name them."""
    if isinstance(inputs.plan, RowPlan):
        return dict(inputs.plan.folders[0].metadata.tokenizer_info)
    if inputs.kind == "stream" or not windows:
        return {"eod": settings.data.hub.eos} if settings.data.hub.eos else {}
    uri = storage.join(storage.normalise(windows[0].rpartition("=")[2], "windows"), window_files.INFO)
    store = storage.store_for(uri)
    return {"eod": json.loads(store.read(uri))["eod"]} if store.exists(uri) else {}
