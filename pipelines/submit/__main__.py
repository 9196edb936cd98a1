"""Starts the pipeline on a cluster and waits for its end: ``python -m pipelines.submit host=… image=… root=… …``.

Also ``watch`` (a run that was started before), ``schedule`` (a recurring run), ``pause``, ``resume`` and ``delete`` (of
a recurring run). stdout carries the id of the run alone; everything else goes to stderr. docs/submitting.md has all.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

import dataclasses
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from pairmill.engine.options import MAX_SHARES, option
from pairmill.errors import UsageError
from pairmill.interface import cli
from pairmill.log import event
from pipelines.compile import CompileConfig, ImageConfig
from pipelines.parameters import Parameters, of, stage_configs
from pipelines.submit.server import Server, ServerConfig
from pipelines.submit.watch import WatchConfig, watch

_CODES = """exit codes:
  0    the run SUCCEEDED (with wait=false, and of the other commands: done)
  2    an option is wrong, or the server refuses the request as it stands
  3    no such run or recurring run
  4    the server is not reached, or does not let us (401, 403); a run that was started goes on
  5    a defect of pairmill
  6    the run FAILED
  7    the run was canceled (CANCELED, or FAILED behind CANCELING)
  8    the run was SKIPPED
  9    timeout= is over
  10   the run ended in a state that this version does not know
  130  Ctrl-C: the run goes on
  143  SIGTERM: the run goes on"""


@dataclass(kw_only=True)
class _Config(ServerConfig):
    @classmethod
    def details(cls) -> str:
        """The end of ``--help``."""
        return _CODES


@dataclass(kw_only=True)
class _PublishConfig(_Config):
    image: str = option(help="image of every stage, by digest")
    version: str = option("", help="name of the pipeline's version; empty = <semver>-<git sha>")
    experiment: str = option("pairmill", help="experiment that the run belongs to; made if absent")
    service_account: str = option("", help="Kubernetes service account of the run's pods; empty = the server's default")


@dataclass(kw_only=True)
class SubmitConfig(WatchConfig, _PublishConfig):
    """Upload the pipeline once, start a run of it, wait for its end."""

    name: str = option("", help="name of the run; empty = version and time")
    wait: bool = option(True, help="wait for the run; false = print its id, and leave it to itself")

    def __post_init__(self) -> None:
        _PublishConfig.__post_init__(self)
        WatchConfig.__post_init__(self)


@dataclass(kw_only=True)
class RunConfig(WatchConfig, _Config):
    """Wait for a run that was started before."""

    run: str = option(help="id of the run")

    def __post_init__(self) -> None:
        _Config.__post_init__(self)
        WatchConfig.__post_init__(self)


@dataclass(kw_only=True)
class ScheduleConfig(_PublishConfig):
    """Upload the pipeline once, and make or replace a recurring run of it."""

    name: str = option("pairmill", help="name of the recurring run")
    cron: str = option(help="when: minute hour day month weekday, in UTC")


@dataclass(kw_only=True)
class RecurringConfig(_Config):
    """Pause, resume or delete a recurring run."""

    name: str = option("pairmill", help="name of the recurring run")
    experiment: str = option("pairmill", help="experiment that it belongs to")


def with_pipeline(base: type[Any]) -> type[Any]:
    """Options of ``base``, of what is compiled in, and the pipeline's own parameters as one class."""
    known = {item.name for item in dataclasses.fields(base)}
    added: dict[str, tuple[str, Any, Any]] = {}
    for more in (ImageConfig, Parameters):
        hints = get_type_hints(more)
        items = [item for item in dataclasses.fields(more) if item.name not in known]
        added.update({item.name: (item.name, hints[item.name], _field(item)) for item in items})
    about = "pods that share the work of each of clean, train_tokenizer and tokenize; 1 = the pipeline without loops"
    added["workers"] = ("workers", int, option(1, help=about))
    made = dataclasses.make_dataclass(base.__name__, added.values(), bases=(base,), kw_only=True)
    made.__doc__ = base.__doc__
    return made


def _field(item: dataclasses.Field[Any]) -> Any:
    default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
    return option(default, help=item.metadata["help"])


def check(config: Any) -> None:
    """Refuse what a pod would refuse hours later.

    Raises:
        UsageError: an option of a stage is out of range, or a place is none that pods have.
    """
    if not 1 <= config.workers <= MAX_SHARES:
        raise UsageError("out of range", where="workers", got=str(config.workers), expected=f"1 to {MAX_SHARES}")
    stage_configs(dataclasses.asdict(config))
    for name in ("root", "raw"):
        place = getattr(config, name)
        if place and "://" not in place and not place.startswith("/"):
            raise UsageError(
                "is relative",
                where=name,
                got=place,
                expected="the URI of a bucket's folder, or a path that all pods see",
            )


def compiled(config: Any, folder: str) -> Path:
    """The pipeline, compiled for the image of ``config``.

    Raises:
        UsageError: an option is out of range.
    """
    from pipelines import compile as compiler

    check(config)
    given = {item.name: getattr(config, item.name) for item in dataclasses.fields(ImageConfig)}
    target = Path(folder) / "pipeline.yaml"
    (path,) = compiler.run(CompileConfig(output=str(target), fan_out=config.workers > 1, **given))
    return path


def parameters(config: Any) -> dict[str, Any]:
    """The pipeline's parameters among the options."""
    return {item.name: getattr(config, item.name) for item in dataclasses.fields(of(config.workers > 1))}


def _publish(config: Any) -> tuple[Server, Any, str]:
    from pipelines.submit import publish

    name = config.version or publish.version_name()
    with tempfile.TemporaryDirectory(prefix="pairmill-") as folder:
        file = compiled(config, folder)  # before anybody is asked: it may be refused
        server = Server(config)
        version = publish.upload(server, file, name)
    event(f"pipeline version {version.name}", version=version.name)
    return server, version, publish.experiment_id(server, config.experiment)


def submit(config: Any) -> None:
    """Start a run and wait for it."""
    from pipelines.submit import publish

    server, version, experiment = _publish(config)
    name = config.name or f"{version.name} {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())}"
    run = publish.start(server, version, name, experiment, config.service_account, parameters(config))
    _tell(server, run, f"run {name!r}")
    if config.wait:
        watch(server, run, config)


def watch_run(config: RunConfig) -> None:
    """Wait for a run."""
    server = Server(config)
    _tell(server, config.run, "run")
    watch(server, config.run, config)


def schedule(config: Any) -> None:
    """Make or replace a recurring run."""
    from pipelines.submit import publish

    publish.seconds_cron(config.cron)
    server, version, experiment = _publish(config)
    options = (config.name, experiment, config.service_account, parameters(config), config.cron)
    _print(publish.schedule(server, version, *options))


def change(verb: str, config: RecurringConfig) -> None:
    """Pause, resume or delete a recurring run."""
    from pipelines.submit import publish

    server = Server(config)
    publish.change(server, config.name, publish.experiment_id(server, config.experiment), verb)
    event(f"recurring run {config.name}: {verb} done", recurring_run=config.name)


def _tell(server: Server, run: str, what: str) -> None:
    event(f"{what}: {server.link(run)}", run=run, link=server.link(run))
    _print(run)


def _print(result: str) -> None:
    sys.stdout.write(f"{result}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class _Command:
    config_class: type[Any]
    work: Callable[[Any], None]
    of_pipeline: bool = False


_COMMANDS = {
    "submit": _Command(SubmitConfig, submit, of_pipeline=True),
    "watch": _Command(RunConfig, watch_run),
    "schedule": _Command(ScheduleConfig, schedule, of_pipeline=True),
    **{verb: _Command(RecurringConfig, partial(change, verb)) for verb in ("pause", "resume", "delete")},
}


def main() -> int:
    """Command line."""
    arguments = sys.argv[1:]
    name = arguments.pop(0) if arguments and arguments[0] in _COMMANDS else "submit"
    command = _COMMANDS[name]
    options = with_pipeline(command.config_class) if command.of_pipeline else command.config_class

    def work() -> None:
        if name == "submit":
            cli.refuse_unknown(arguments, _COMMANDS)
        command.work(cli.build(options, cli.split(arguments)))

    module = "pipelines.submit" if name == "submit" else f"pipelines.submit {name}"
    return cli.program(module, name, options, arguments, work)


if __name__ == "__main__":
    raise SystemExit(main())
