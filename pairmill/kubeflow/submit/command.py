"""Starts the pipeline on a cluster and waits for its end: ``pairmill submit host=… image=… root=… …``.

``compare``, ``search`` and ``evaluate`` start those pipelines. Also ``watch`` (wait for a run that was started before),
``schedule`` (make a recurring run), ``pause``, ``resume`` and ``delete`` (a recurring run). stdout has the run's id
and nothing else; of one that was started again, a line for each time. docs/submitting.md describes everything.
"""

import dataclasses
import logging
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pairmill import storage
from pairmill.engine.options import option
from pairmill.errors import UsageError
from pairmill.interface import cli
from pairmill.kubeflow import compile as compiler
from pairmill.kubeflow.compile import (
    MAX_WORKERS,
    MAX_WORKERS_TRAINING,
    CompileConfig,
    FanOut,
    ImageConfig,
    fan_out_option,
    refuse_workers,
)
from pairmill.kubeflow.submit import publish
from pairmill.kubeflow.submit.server import Server, ServerConfig
from pairmill.kubeflow.submit.watch import Ended, WatchConfig, watch
from pairmill.line import compare, search, watched
from pairmill.line.parameters import Parameters, Training, idle, parameters_class, stage_configs
from pairmill.log import event

# In looks at a run, before it is started again: half a minute with the usual five seconds.
_PAUSE_LOOKS = 6
_CODES = """exit codes:
  0    the run SUCCEEDED (with wait=false, and of the other commands: done)
  2    an option is wrong, or the server refuses the request as it is
  3    no such run or recurring run
  4    the server does not answer, or denies access (401, 403); a run that was started goes on
  5    a defect of pairmill
  6    the run FAILED
  7    the run was canceled (CANCELED, or FAILED after CANCELING)
  8    the run was SKIPPED
  9    timeout= is over
  10   the run ended in a state that this version does not know
  130  Ctrl-C: the run goes on
  143  SIGTERM: the run goes on"""


class _Details:
    @classmethod
    def details(cls) -> str:
        """Return the end of ``--help``."""
        return _CODES


@dataclass(kw_only=True)
class UploadConfig(ImageConfig, ServerConfig, _Details):
    """What is uploaded, whichever pipeline it is: options of the server and of what is compiled in."""

    image: str = option(help="image of every stage, by digest")
    version: str = option("", help="name of the pipeline's version; empty = <semver>-<git sha>")
    experiment: str = option("pairmill", help="experiment that the run belongs to; created if absent")
    service_account: str = option("", help="Kubernetes service account of the run's pods; empty = the server's default")

    def given(self) -> type[Any]:
        """Return the parameters of the pipeline that is run, as a dataclass."""
        raise NotImplementedError

    def form(self) -> dict[str, Any]:
        """Return the options of ``pairmill.kubeflow.compile`` that name this pipeline."""
        raise NotImplementedError

    def without(self) -> Collection[str]:
        """Return the stages that this run leaves out."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the pipeline that is run."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(self.given())}

    def require_trainer(self, because: str) -> None:
        """Raise UsageError without the image of tasks that train."""
        if not self.trainer_image:
            expected = "name@sha256:… of the image that trains"
            raise UsageError(f"required with {because}", where="trainer_image", expected=expected)

    def refuse_places(self, places: Iterable[tuple[str, str]]) -> None:
        """Raise UsageError for a place that the run's pods do not see, given as option and place."""
        for name, place in places:
            if place and "://" not in place and not place.startswith("/"):
                expected = "the URI of a folder in a bucket, or an absolute path of the image or of a volume"
                raise UsageError("is a relative path", where=name, got=place, expected=expected)
            if (
                name == "root"
                and storage.scheme(place) == "file"
                and not self.is_mounted(str(storage.local_path(place)))
            ):
                raise UsageError(
                    "is a folder of one pod, which no other pod sees and which ends with it",
                    where=name,
                    got=place,
                    expected="the URI of a folder in a bucket",
                    hint="volume=<claim>=<path> mounts a volume in every pod; root= may be below that path",
                )


@dataclass(kw_only=True)
class PipelineConfig(Training, Parameters, UploadConfig):
    """The line, from raw files to epochs, and with ``train`` to a net."""

    workers: int = option(
        1,
        help="pods that share the work of each of clean, curate, select, train_tokenizer and tokenize, at most "
        f"{MAX_WORKERS} ({MAX_WORKERS_TRAINING} with train=true); 1 = one pod a stage",
    )
    fan_out: FanOut = fan_out_option()
    train: bool = option(False, help="the pipeline whose last task trains on the sample: docs/training.md")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_workers(self.workers, self.train, self.fan_out)
        if self.train:
            self.require_trainer("train=true")
        stage_configs(self.parameters())
        places = [(name, getattr(self, name)) for name in ("root", "raw", "tokenizer", "tokenized")]
        self.refuse_places([*places, *(("rows", item) for item in cli.split_list(self.rows))])

    def given(self) -> type[Any]:
        return parameters_class(self.train)

    def form(self) -> dict[str, Any]:
        return {"workers": self.workers, "fan_out": self.fan_out, "train": self.train}

    def without(self) -> Collection[str]:
        # It is compiled for these parameters, so a stage whose result is given has no pod at all.
        return idle(dataclasses.asdict(self), here=False)


@dataclass(kw_only=True)
class StartConfig(WatchConfig):
    """How a run is started."""

    name: str = option("", help="name of the run; empty = version and time")
    wait: bool = option(True, help="wait for the run; false = print its id and leave it")


@dataclass(kw_only=True)
class SubmitConfig(PipelineConfig, StartConfig):
    """Upload the pipeline once, start a run of it, wait for its end."""


@dataclass(kw_only=True)
class RunsConfig(UploadConfig, StartConfig):
    """How a pipeline beside the line is started."""

    because: ClassVar[str] = "trainings"
    """What its tasks need torch for."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require_trainer(self.because)
        self.refuse()
        self.refuse_places([("root", self.parameters()["root"]), *self.places()])

    def refuse(self) -> None:
        """Raise UsageError for options that its first task would refuse."""
        raise NotImplementedError

    def places(self) -> list[tuple[str, str]]:
        """Return the folders that the options name beside the root, each with its option."""
        raise NotImplementedError


@dataclass(kw_only=True)
class CompareConfig(compare.Comparison, RunsConfig):
    """Upload the pipeline that compares plans once, start a run of it, wait for its end: docs/comparing.md."""

    def refuse(self) -> None:
        compare.refuse(self)

    def places(self) -> list[tuple[str, str]]:
        return compare.places_of(self)

    def given(self) -> type[Any]:
        return compare.Comparison

    def form(self) -> dict[str, Any]:
        return {"compare": True}


@dataclass(kw_only=True)
class SearchConfig(search.Parameters, RunsConfig):
    """Upload the pipeline that searches a mixture once, start a run of it, wait for its end: docs/searching.md."""

    def refuse(self) -> None:
        search.refuse(self)

    def places(self) -> list[tuple[str, str]]:
        return [(name, getattr(self, name)) for name in ("tokenized", "held_out", "earlier")]

    def given(self) -> type[Any]:
        return search.Parameters

    def form(self) -> dict[str, Any]:
        return {"search": True}


@dataclass(kw_only=True)
class EvaluateConfig(watched.Parameters, RunsConfig):
    """Upload the pipeline that evaluates checkpoints once, start a run of it, wait for its end: docs/evaluation.md."""

    because: ClassVar[str] = "checkpoints"

    def refuse(self) -> None:
        watched.refuse(watched.Parameters(**self.parameters()))

    def places(self) -> list[tuple[str, str]]:
        return watched.places_of(self)

    def given(self) -> type[Any]:
        return watched.Parameters

    def form(self) -> dict[str, Any]:
        return {"evaluate": True}


@dataclass(kw_only=True)
class RunConfig(ServerConfig, WatchConfig, _Details):
    """Wait for a run that was started before."""

    run: str = option(help="id of the run")


@dataclass(kw_only=True)
class ScheduleConfig(PipelineConfig):
    """Upload the pipeline once, and make or replace a recurring run of it."""

    name: str = option("pairmill", help="name of the recurring run")
    cron: str = option(help="when: minute hour day month weekday, in UTC", parse=publish.seconds_cron)


@dataclass(kw_only=True)
class RecurringConfig(ServerConfig, _Details):
    """Pause, resume or delete a recurring run."""

    name: str = option("pairmill", help="name of the recurring run")
    experiment: str = option("pairmill", help="experiment that it belongs to")


def _upload(config: UploadConfig) -> tuple[Server, Any]:
    name = config.version or publish.version_name()
    given = {item.name: getattr(config, item.name) for item in dataclasses.fields(ImageConfig)}
    with tempfile.TemporaryDirectory(prefix="pairmill-") as folder:
        target = Path(folder) / "pipeline.yaml"
        compiler.run(CompileConfig(output=str(target), **config.form(), **given), config.without())
        server = Server(config)
        version = publish.upload(server, target, name)
    event(f"pipeline version {version.display_name}", version=version.display_name)
    return server, version


def submit(config: Any) -> None:
    """Start a run and wait for it; start it again as often as ``retries`` says if pods of it were ended from outside.

    Kubernetes calls a pod that is deleted with grace failed, and Argo as Kubeflow ships it tries only errors again. A
    run that is started again reuses every result and every finished shard.

    Args:
        config: has the options of :class:`UploadConfig` and of :class:`StartConfig`.
    """
    server, version = _upload(config)
    for left in reversed(range(config.retries + 1)):
        name = config.name or f"{version.display_name} {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())}"
        run = publish.start(server, version, name, config, config.parameters())
        _announce(server, run, f"run {name!r}")
        if not config.wait:
            return
        try:
            watch(server, run, config)
            return
        except Ended as error:
            if not (error.from_outside and left):
                raise
            event(f"{error}; starting it again", level=logging.WARNING, run=run)
            time.sleep(_PAUSE_LOOKS * server.poll)


def watch_run(config: RunConfig) -> None:
    """Wait for a run."""
    server = Server(config)
    _announce(server, config.run, "run")
    watch(server, config.run, config)


def schedule(config: ScheduleConfig) -> None:
    """Make or replace a recurring run."""
    server, version = _upload(config)
    _print(publish.schedule(server, version, config, config.parameters()))


def change(verb: str, config: RecurringConfig) -> None:
    """Pause, resume or delete a recurring run."""
    server = Server(config)
    publish.change(server, config.name, publish.experiment_id(server, config.experiment), verb)
    event(f"recurring run {config.name}: {verb} done", recurring_run=config.name)


def _announce(server: Server, run: str, what: str) -> None:
    event(f"{what}: {server.link(run)}", run=run, link=server.link(run))
    _print(run)


def _print(result: str) -> None:
    sys.stdout.write(f"{result}\n")
    sys.stdout.flush()


_COMMANDS: dict[str, tuple[type[Any], Any]] = {
    "submit": (SubmitConfig, submit),
    "compare": (CompareConfig, submit),
    "search": (SearchConfig, submit),
    "evaluate": (EvaluateConfig, submit),
    "watch": (RunConfig, watch_run),
    "schedule": (ScheduleConfig, schedule),
    **{verb: (RecurringConfig, partial(change, verb)) for verb in ("pause", "resume", "delete")},
}


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code. A process that has imported this module can fork and call it."""
    rest = list(arguments)
    name = rest.pop(0) if rest and rest[0] in _COMMANDS else "submit"
    config_class, command = _COMMANDS[name]

    def work() -> None:
        if name == "submit":
            cli.refuse_unknown(rest, _COMMANDS)
        command(cli.build(config_class, cli.split(rest)))

    program = "submit" if name == "submit" else f"submit {name}"
    return cli.program(program, config_class, rest, work, _COMMANDS if name == "submit" else ())
