"""Starts the pipeline on a cluster and waits for its end: ``python -m pipelines.submit host=… image=… root=… …``.

Also ``watch`` (wait for a run that was started before), ``schedule`` (make a recurring run), ``pause``, ``resume`` and
``delete`` (a recurring run). stdout has the id of the run and nothing else. docs/submitting.md describes everything.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pairmill import storage
from pairmill.engine.options import MAX_SHARES, option
from pairmill.errors import UsageError
from pairmill.interface import cli
from pairmill.log import event
from pipelines import compile as compiler
from pipelines.compile import CompileConfig, ImageConfig
from pipelines.parameters import Parameters, Training, idle, of, stage_configs
from pipelines.submit import publish
from pipelines.submit.server import Server, ServerConfig
from pipelines.submit.watch import WatchConfig, watch

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
        """The end of ``--help``."""
        return _CODES


@dataclass(kw_only=True)
class PipelineConfig(Training, Parameters, ImageConfig, ServerConfig, _Details):
    """What is uploaded: options of the server, of what is compiled in, and the pipeline's parameters."""

    image: str = option(help="image of every stage, by digest")
    workers: int = option(
        1,
        help="pods that share the work of each of clean, curate, select, train_tokenizer and tokenize; "
        "1 = the pipeline without loops",
    )
    version: str = option("", help="name of the pipeline's version; empty = <semver>-<git sha>")
    experiment: str = option("pairmill", help="experiment that the run belongs to; created if absent")
    service_account: str = option("", help="Kubernetes service account of the run's pods; empty = the server's default")

    def __post_init__(self) -> None:
        ServerConfig.__post_init__(self)
        ImageConfig.__post_init__(self)
        # A pod would refuse these hours later.
        if not 1 <= self.workers <= MAX_SHARES:
            raise UsageError("out of range", where="workers", got=str(self.workers), expected=f"1 to {MAX_SHARES}")
        if self.train and not self.trainer_image:
            expected = "name@sha256:… of the image that trains"
            raise UsageError("required with train=true", where="trainer_image", expected=expected)
        stage_configs(self.parameters())
        places = [(name, getattr(self, name)) for name in ("root", "raw", "tokenizer", "tokenized")]
        for name, place in [*places, *(("rows", item) for item in cli.split_list(self.rows))]:
            if place and "://" not in place and not place.startswith("/"):
                expected = "the URI of a folder in a bucket, or an absolute path of the image or of a volume"
                raise UsageError("is a relative path", where=name, got=place, expected=expected)
        if storage.scheme(self.root) == "file" and not self.is_mounted(str(storage.local_path(self.root))):
            raise UsageError(
                "is a folder of one pod, which no other pod sees and which ends with it",
                where="root",
                got=self.root,
                expected="the URI of a folder in a bucket, as s3://bucket/folder",
                hint="volume=<claim>=<path> mounts a volume in every pod; root= may be below that path",
            )

    def parameters(self) -> dict[str, Any]:
        """The parameters of the pipeline that is run."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(of(self.workers > 1, self.train))}


@dataclass(kw_only=True)
class SubmitConfig(PipelineConfig, WatchConfig):
    """Upload the pipeline once, start a run of it, wait for its end."""

    name: str = option("", help="name of the run; empty = version and time")
    wait: bool = option(True, help="wait for the run; false = print its id and leave it")

    def __post_init__(self) -> None:
        PipelineConfig.__post_init__(self)
        WatchConfig.__post_init__(self)


@dataclass(kw_only=True)
class RunConfig(ServerConfig, WatchConfig, _Details):
    """Wait for a run that was started before."""

    run: str = option(help="id of the run")

    def __post_init__(self) -> None:
        ServerConfig.__post_init__(self)
        WatchConfig.__post_init__(self)


@dataclass(kw_only=True)
class ScheduleConfig(PipelineConfig):
    """Upload the pipeline once, and make or replace a recurring run of it."""

    name: str = option("pairmill", help="name of the recurring run")
    cron: str = option(help="when: minute hour day month weekday, in UTC")

    def __post_init__(self) -> None:
        super().__post_init__()
        publish.seconds_cron(self.cron)


@dataclass(kw_only=True)
class RecurringConfig(ServerConfig, _Details):
    """Pause, resume or delete a recurring run."""

    name: str = option("pairmill", help="name of the recurring run")
    experiment: str = option("pairmill", help="experiment that it belongs to")


def _upload(config: PipelineConfig) -> tuple[Server, Any]:
    name = config.version or publish.version_name()
    given = {item.name: getattr(config, item.name) for item in dataclasses.fields(ImageConfig)}
    with tempfile.TemporaryDirectory(prefix="pairmill-") as folder:
        target = Path(folder) / "pipeline.yaml"
        # It is compiled for these parameters, so a stage whose result is given has no pod at all.
        without = idle(dataclasses.asdict(config), here=False)
        compiler.run(CompileConfig(output=str(target), fan_out=config.workers > 1, **given), without)
        server = Server(config)
        version = publish.upload(server, target, name)
    event(f"pipeline version {version.display_name}", version=version.display_name)
    return server, version


def submit(config: SubmitConfig) -> None:
    """Start a run and wait for it."""
    server, version = _upload(config)
    name = config.name or f"{version.display_name} {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())}"
    run = publish.start(server, version, name, config, config.parameters())
    _announce(server, run, f"run {name!r}")
    if config.wait:
        watch(server, run, config)


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
    "watch": (RunConfig, watch_run),
    "schedule": (ScheduleConfig, schedule),
    **{verb: (RecurringConfig, partial(change, verb)) for verb in ("pause", "resume", "delete")},
}


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code. A process that has imported this module can fork and call it."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name = arguments.pop(0) if arguments and arguments[0] in _COMMANDS else "submit"
    config_class, command = _COMMANDS[name]

    def work() -> None:
        if name == "submit":
            cli.refuse_unknown(arguments, _COMMANDS)
        command(cli.build(config_class, cli.split(arguments)))

    module = "pipelines.submit" if name == "submit" else f"pipelines.submit {name}"
    return cli.program(module, name, config_class, arguments, work)


if __name__ == "__main__":
    raise SystemExit(main())
