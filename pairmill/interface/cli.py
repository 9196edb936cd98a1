"""The command line of every stage: ``pairmill <stage> key=value …``, with options from its dataclass.

stdout has only the stage's result; logs, progress and errors go to stderr. Exit codes: 0 done, 2 usage, 3 input,
4 storage, 5 internal, 130 interrupted.

In a Kubeflow pod the argument ``--executor-input <json>`` has the options and the places of outputs instead
(:mod:`pairmill.interface.launcher`).
"""

from __future__ import annotations

import atexit
import dataclasses
import gc
import importlib
import logging
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

import pairmill
from pairmill import log
from pairmill.engine import usage
from pairmill.engine.candidates import with_left_out
from pairmill.engine.options import default_of, program_name
from pairmill.errors import Attempts, PairmillError, UsageError, did_you_mean, from_os_error
from pairmill.extras import how_to_install
from pairmill.interface import interrupt, launcher, run_file
from pairmill.report import format_number

if TYPE_CHECKING:
    from pairmill.report.model import Report

C = TypeVar("C")

_FOLLOWING: Final = "pairmill.line.following"
_SHARDED: Final = "pairmill.interface.stagecli"
_TRACKED: Final = "MLFLOW_RUN_ID"
"""Of a task that has a run in MLflow; others import nothing for it."""
_TRACKING: Final = "pairmill.lineage.tracking"
INTERRUPTED = interrupt.INTERRUPTED
TERMINATED = interrupt.TERMINATED


class Outcome(NamedTuple):
    """The outcome of a stage.

    Args:
        stdout: the result, written to stdout unchanged.
        parameters: Kubeflow output parameters.
        metrics: numbers to compare between runs.
        report: makes the report.
        manifest: makes the bytes of the manifest artifact, which only Kubeflow takes.
        metadata: of the manifest artifact; only texts and small numbers.
        reused: whether an earlier result was reused.
        seconds: duration.
        options: of later stages that this one knows, by name.
        look_at: what the report would say is to be looked at, where that is known without it.
        finished: whether the result is whole; false of a share of it.
    """

    stdout: str
    parameters: Mapping[str, launcher.Value]
    metrics: Mapping[str, float]
    report: Callable[[], Report]
    manifest: Callable[[], bytes]
    metadata: Mapping[str, str | float] = {}
    reused: bool = False
    seconds: float = 0.0
    options: Mapping[str, str] = {}
    look_at: Callable[[], Sequence[str]] | None = None
    finished: bool = True


@dataclass(frozen=True)
class NoOptions:
    """Take no option."""


class Command(NamedTuple):
    """A command: its options, and a function from them to stdout.

    What is named, as ``module:name``, is imported when the command is used.
    """

    config_class: type[Any] | str
    run: Callable[[Any], str] | str


def settings_command(stage: str, settings: str) -> Command:
    """Make the command ``settings`` of a stage: it has no options, and prints the default file.

    Args:
        stage: its name.
        settings: the class of the settings, as ``module:name``.
    """
    doc = f"Print configs/{stage}_config.yaml with all defaults, a comment on each line."
    config = type("SettingsConfig", (NoOptions,), {"__doc__": doc})
    return Command(config, lambda _: named(settings).default_file())


def main(
    stage: str,
    config_class: type[C],
    run: Callable[[C], Outcome] | str,
    arguments: Sequence[str],
    commands: Mapping[str, Command] | None = None,
) -> int:
    """Run a stage, or the command that the first argument names; return the exit code.

    Args:
        stage: its name.
        config_class: its options.
        run: makes of options the outcome; or ``module:name`` of such a function or of the class of a sharded stage,
            imported once the options are known to be right: the help needs nothing of it.
        arguments: of the command line.
        commands: by name.
    """
    arguments = list(arguments)
    program_of_stage = program_name(stage)
    for name, command in (commands or {}).items():
        if arguments[:1] == [name]:
            return run_command(f"{program_of_stage} {name}", command, arguments[1:])

    def work() -> None:
        if not run_file.is_named(arguments):
            refuse_unknown(arguments, commands or {})
        task = launcher.ExecutorInput.parse(arguments[1:]) if arguments[:1] == [launcher.FLAG] else None
        known = {item.name for item in dataclasses.fields(config_class)}  # type: ignore[arg-type]
        if task is not None:
            launcher.adopt_secrets()
        lists = {name for name, kind in get_type_hints(config_class).items() if kind == list[str]}
        options = run_file.GivenOptions(task.given(known)) if task else given_options(arguments, lists)
        try:
            given = options.values if task else with_left_out(stage, config_class, options.values)
            config = build(config_class, given)
        except PairmillError as error:
            raise options.locate(error) from error
        outcome = runner_of(run)(config)
        if task is None and outcome.look_at is not None:
            lines = outcome.look_at()
        else:
            report = outcome.report()
            lines = report.look_at
        if task is not None:
            state = {"reused": "true" if outcome.reused else "false"}
            metadata = {**outcome.metadata, **state}
            parameters = {**outcome.parameters, launcher.OPTIONS: {**task.handed_on(known), **outcome.options}}
            manifest = outcome.manifest()
            task.write(parameters, outcome.metrics, report, manifest, metadata)
            place = str(outcome.metadata["data"])
            usage.leave(place)
            if _TRACKED in os.environ and outcome.finished:
                importlib.import_module(_TRACKING).set_tags(manifest, place)
        # Also for a reused folder: the terminal may be all that a person sees.
        _summary(stage, outcome)
        for line in lines:
            log.event(f"{stage}: {line}", level=logging.WARNING, stage=stage)
        if task is None and outcome.finished:
            # The line knows the stages, and they this module: it is looked up by name, as programs are.
            importlib.import_module(_FOLLOWING).show(stage, outcome.parameters, outcome.metadata, given)
        sys.stdout.write(outcome.stdout)
        sys.stdout.flush()

    return program(program_of_stage, config_class, arguments, work, commands or ())


def runner_of(run: Callable[[C], Outcome] | str) -> Callable[[C], Outcome]:
    """Return the function that runs a stage, of what :func:`main` is given."""
    made: Any = named(run)
    return partial(importlib.import_module(_SHARDED).run, made()) if isinstance(made, type) else made


def refuse_unknown(arguments: Sequence[str], commands: Iterable[str]) -> None:
    """Raise UsageError if the first argument is neither an option, a flag nor one of ``commands``."""
    names = list(commands)
    if names and arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        raise UsageError(
            "unknown command",
            where="arguments",
            got=repr(arguments[0]),
            expected=f"key=value, or one of {', '.join(names)}",
            hint=did_you_mean(arguments[0], names, "see --help"),
        )


def refuse(name: str, what: str, got: str, known: Sequence[str] = (), extra: str = "") -> int:
    """End ``pairmill <name>`` with a usage error, for want of a program; return the exit code.

    Args:
        name: empty = no command.
        what: is wrong.
        got: what was found.
        known: commands, if there is no such one.
        extra: that brings what the program needs; empty = that is not what is wrong.
    """

    def work() -> None:
        hint = how_to_install(extra) if extra else did_you_mean(name, known, "see pairmill --help")
        where, expected = ("arguments", ", ".join(known)) if known else (name, "")
        raise UsageError(what, where=where, got=got, expected=expected, hint=hint)

    return program("" if known else name, NoOptions, [], work)


def run_command(name: str, command: Command, arguments: Sequence[str], *, first: str = "") -> int:
    """Run a command, and write to stdout what it returns; return the exit code.

    Args:
        name: after ``pairmill``.
        command: what is run.
        arguments: of the command line.
        first: the option whose value the first argument may be without its key; empty = none.
    """
    arguments = name_first(arguments, first) if first else arguments

    def work() -> None:
        sys.stdout.write(named(command.run)(build(config_class, split(arguments))))
        sys.stdout.flush()

    config_class = named(command.config_class)
    return program(name, config_class, arguments, work)


def named(given: Any) -> Any:
    """Return what ``module:name`` names; anything but a text names itself."""
    if not isinstance(given, str):
        return given
    module, _, name = given.partition(":")
    return getattr(importlib.import_module(module), name)


def program(
    name: str, config_class: type[Any], arguments: Sequence[str], work: Callable[[], None], commands: Iterable[str] = ()
) -> int:
    """Do ``work``, or print the help of ``pairmill <name>`` if the arguments ask for it; return the exit code.

    The help lists the program's further ``commands``. Every error ends here, as one message.
    """
    if any(argument in {"--help", "-h", "help"} for argument in arguments):
        further = ", ".join(commands)
        text = help_text(name, config_class)
        text += f"\ncommands, each with a --help of its own: {further}\n" if further else ""

        def show() -> None:
            sys.stdout.write(text)

        work = show
    try:
        code = _program(name, arguments, work)
    except KeyboardInterrupt:  # while the program was ending
        code = INTERRUPTED
    interrupt.ended(code)
    return code


def _program(name: str, arguments: Sequence[str], work: Callable[[], None]) -> int:
    log.setup()
    last = name.rpartition(" ")[2]
    # An interpreter that ends collects garbage over all its modules: about 15 ms of the 170 ms of a node.
    atexit.register(gc.freeze)
    if "--version" in arguments:
        sys.stdout.write(f"pairmill {pairmill.__version__}\n")
        return 0
    try:
        interrupt.hear()
        work()
        sys.stdout.flush()
    except PairmillError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        # The reader of stdout has gone, and the work is committed. Without this Python fails again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        translated = from_os_error(error, last)
        return _fail(str(translated), translated.exit_code)
    except KeyboardInterrupt:
        return _fail(f"{last}: interrupted; run the same command to resume", INTERRUPTED)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and not (error.name or "pairmill").startswith("pairmill"):
            raise  # pairmill.interface.command names the extra that has it
        log.logger().exception("%s failed", last)
        return _fail(f"{last}: unexpected {type(error).__name__}: {error}; this is a defect of pairmill", 5)
    return 0


def _fail(message: str, code: int) -> int:
    interrupt.ended(code)
    log.logger().error(message, extra={"fields": {"exit_code": code}})
    return code


def split(arguments: Sequence[str]) -> dict[str, str]:
    """``key=value`` arguments by key.

    Raises:
        UsageError: an argument without ``=``, or a key given twice.
    """
    values: dict[str, str] = {}
    for number, argument in enumerate(arguments):
        key, separator, value = argument.partition("=")
        if not separator and key.startswith("-") and key.strip("-"):
            following = next(iter(arguments[number + 1 :]), "")
            value = following if following and "=" not in following and not following.startswith("-") else "…"
            wanted = f"{key.strip('-').replace('-', '_')}={value}"
            raise UsageError("not an option", where="arguments", got=repr(argument), hint=f"write {wanted}")
        if not separator or not key:
            raise UsageError("not an option", where="arguments", got=repr(argument), expected="key=value")
        if key in values:
            raise UsageError("given twice", where=key, got=f"{values[key]!r} and {value!r}", expected="one value")
        values[key] = value
    return values


def given_options(arguments: Sequence[str], lists: Collection[str]) -> run_file.GivenOptions:
    """Return the options of the command line, and before them those of a run file that the first argument names.

    ``lists`` are the options that take several values, or ``key=value``.

    Raises:
        UsageError: the file does not exist or is not a mapping of options; an argument is not ``key=value``.
    """
    if not run_file.is_named(arguments):
        return run_file.GivenOptions(split(arguments))
    return run_file.read(arguments[0], split(arguments[1:]), lists)


def name_first(arguments: Sequence[str], option: str) -> list[str]:
    """Return arguments in which the first one, written without its key, is the value of ``option``."""
    first = arguments[0] if arguments else "="
    if "=" in first.partition("/")[0] or first.startswith("-") or first == "help":
        return list(arguments)
    return [f"{option}={first}", *arguments[1:]]


def build(config_class: type[C], values: Mapping[str, Any]) -> C:
    """Make an options object from texts (or JSON values, from Kubeflow), checked by type.

    Raises:
        UsageError: an option is unknown, missing or of the wrong type; of several that are, Refusals.
    """
    hints = get_type_hints(config_class)
    known = {item.name: item for item in dataclasses.fields(config_class)}  # type: ignore[arg-type]
    given: dict[str, Any] = {}
    attempts = Attempts()
    for key, value in values.items():
        with attempts.each():
            if key not in known:
                expected = f"one of {', '.join(known)}" if known else "none: it has no options"
                raise UsageError("unknown option", where=key, expected=expected, hint=did_you_mean(key, known))
            given[key] = _converted(key, hints[key], _plain(key, hints[key], value))
    required = [name for name, item in known.items() if default_of(item) is dataclasses.MISSING]
    missing = [name for name in required if name not in values]
    with attempts.each():
        if missing and not attempts.errors:  # of a typo the name that was meant is missing too
            hint = f"write {missing[0]}=…; see --help"
            raise UsageError("required option missing", where=", ".join(missing), expected="key=value", hint=hint)
    attempts.refuse()
    return config_class(**given)


def _converted(key: str, kind: Any, value: Any) -> Any:
    if kind == list[str] or (kind is str and isinstance(value, str)):
        return value
    # What can be read in one way needs no library, whose import is a quarter of a start.
    if isinstance(value, str):
        if kind is int and re.fullmatch("[0-9]{1,18}", value):
            return int(value)
        if kind is bool and value in {"true", "false"}:
            return value == "true"
        if value in get_args(kind):
            return value
    import omegaconf

    # Nodes only convert here. A configuration with these values would resolve ${oc.env:…}, print a secret of the pod,
    # and accept ??? for any type.
    nodes: dict[Any, type[Any]] = {
        str: omegaconf.StringNode,
        int: omegaconf.IntegerNode,
        float: omegaconf.FloatNode,
        bool: omegaconf.BooleanNode,
    }
    if kind in nodes:
        node = nodes[kind](kind(), is_optional=False)
    else:
        node = omegaconf.LiteralNode(ref_type=kind, value=get_args(kind)[0], is_optional=False)
    try:
        converted = node.validate_and_convert(value)
    except (omegaconf.errors.OmegaConfBaseException, OverflowError) as error:
        raise UsageError(
            "not a valid value", where=key, got=repr(value)[:200], expected=type_name(kind), hint="see --help"
        ) from error
    if kind in {int, float} and not abs(converted) < 1 << 63:
        raise UsageError("out of range", where=key, got=repr(value)[:200], expected=f"{type_name(kind)} below 2^63")
    return converted


def _plain(name: str, kind: Any, value: Any) -> Any:
    # Kubeflow passes numbers as doubles, so 8192 can arrive as 8192.0. The reference accepts integral floats as well.
    if kind is int and isinstance(value, int | float) and abs(value) >= 2**53:
        raise UsageError(
            "larger than 2^53",
            where=name,
            got=repr(value)[:40],
            hint="Kubeflow passes numbers as doubles, which round it",
        )
    integral = re.fullmatch(r"([+-]?\d{1,20})\.0*", str(value).strip()) if kind is int else None
    if integral:
        return int(integral.group(1))
    if re.search("[\ud800-\udfff]", str(value)):
        raise UsageError("not text in UTF-8", where=name, got=ascii(value)[:200], expected=type_name(kind))
    if kind == list[str]:
        items = value if isinstance(value, list) else split_list(str(value))
        return [str(item).strip() for item in items if str(item).strip()]
    return value.strip() if isinstance(value, str) and kind is not str else value


def split_list(text: str) -> list[str]:
    """Return the items of a list option; ``\\,`` is a comma in an item (:func:`pairmill.engine.options.list_item`)."""
    return [item.replace("\\,", ",") for item in re.split(r"(?<!\\),", text)]


def type_name(kind: Any) -> str:
    """Return the name of a type in ``--help``."""
    arguments = getattr(kind, "__args__", None)
    if kind == list[str]:
        return "text,text,…"
    if arguments:
        return "|".join(str(item) for item in arguments)
    return {str: "text", int: "integer", float: "number", bool: "true|false"}.get(kind, str(kind))


def help_text(name: str, config_class: type[Any]) -> str:
    """Return the text of ``--help``: every option with type, default and meaning.

    A class method ``details`` of the options' class may add to it.
    """
    hints = get_type_hints(config_class)
    lines = [f"usage: pairmill {name}{' key=value …' if hints else ''}", ""]
    summary = (config_class.__doc__ or "").strip().splitlines()
    lines += [summary[0], ""] if summary else []
    for item in dataclasses.fields(config_class):
        value = default_of(item)
        default = "required" if value is dataclasses.MISSING else f"default: {value if value != '' else 'empty'}"
        default = "default: the only one below root that it can be" if item.metadata.get("takes") else default
        lines.append(f"  {item.name}  ({type_name(hints[item.name])}; {default})")
        lines.append(f"      {item.metadata.get('help', '')}")
    if list[str] in hints.values():
        lines += ["", "A comma in an item of a list is written \\,"]
    details = getattr(config_class, "details", None)
    if details is not None:
        lines += ["", details()]
    return "\n".join(lines) + "\n"


def _summary(stage: str, outcome: Outcome) -> None:
    state = "reused" if outcome.reused else "done"
    if not log.human():
        log.event(
            f"{stage}: {state}",
            stage=stage,
            seconds=round(outcome.seconds, 3),
            outputs=dict(outcome.parameters),
            metrics=dict(outcome.metrics),
        )
        return
    log.event(f"{stage}: {state} in {outcome.seconds:.1f} s")
    texts = {name: value for name, value in outcome.parameters.items() if isinstance(value, str)}
    figures = {name: format_number(value) for name, value in outcome.metrics.items()}
    figures |= {name: text for name, text in texts.items() if text and text not in outcome.stdout}
    # A figure is not torn at the end of a line.
    whole = [f"{name.replace('_', ' ')} {text}".replace(" ", "\N{NO-BREAK SPACE}") for name, text in figures.items()]
    width = log.terminal().console().width
    wrapper = textwrap.TextWrapper(width, "  ", "  ", break_long_words=False, break_on_hyphens=False)
    for line in wrapper.wrap(", ".join(whole)):
        log.event(line.replace("\N{NO-BREAK SPACE}", " "))
