"""Finds what compiles and then fails on a cluster: ``pairmill lint [file=<compiled file>]``.

For pipelines of containers whose one argument is the executor input. The docstring of a rule is its reason.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pairmill.engine.options import option
from pairmill.errors import InputError
from pairmill.fields import Checked
from pairmill.interface import cli
from pairmill.kubeflow.compile import COMPILED, documents

Spec = dict[str, Any]
Check = Callable[["Task"], Iterable[str]]

# Argo puts a pod's template into one variable of 131,072 bytes. It can hold a value three times, escaped twice.
MAX_TEXT = 4096
# The workflow object may have 1 MiB, and an iteration of one small task takes 40 kB of it: docs/decisions/0049.
MAX_ITERATIONS = 20

_EXPANDED = re.compile(r"\{\{|\$\(|\$\$")
# Kubeflow fills these in where they are the whole value of an input.
_RUN = "task_name|job_name|job_uuid|job_resource_name|task_uuid|job_(create|schedule)_time_utc"
_WHOLE = re.compile(r"\{\{\$\.pipeline_(" + _RUN + r")\}\}")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(ACCESS|API|PRIVATE)_?KEY")


@dataclass(frozen=True)
class Task:
    """A task, or the pipeline itself. ``parent`` is the task whose DAG it is in; a DAG has no ``container``."""

    place: str
    spec: Spec
    component: Spec
    parent: Task | None
    container: Spec
    settings: Spec

    def inputs(self, kind: str) -> Spec:
        """Return the sources of its inputs: ``parameters`` or ``artifacts``."""
        return dict(self.spec.get("inputs", {}).get(kind, {}))

    @property
    def env(self) -> dict[str, str]:
        """Variables with constant values."""
        return {item["name"]: item.get("value", "") for item in self.container.get("env", [])}

    @property
    def items(self) -> Spec:
        """What it runs over, if it is a loop."""
        return dict(self.spec.get("parameterIterator", {}).get("items", {}))

    def values(self) -> Iterator[tuple[str, Any]]:
        """(name, value) of every default, constant, variable and loop that the pipeline's author wrote."""
        declared = self.component.get("inputDefinitions", {}).get("parameters", {}).items()
        yield from ((name, item.get("defaultValue")) for name, item in declared)
        given = self.inputs("parameters").items()
        yield from ((name, item.get("runtimeValue", {}).get("constant")) for name, item in given)
        yield from [*self.env.items(), ("loop", self.items.get("raw"))]


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def command_argument(task: Task) -> Iterator[str]:
    """Only {{$}} holds every input. Other placeholders fail, or stay text, for an absent input or a default; Argo and
    Kubernetes expand {{…}}, $(…) and $$.
    """
    for word in [*task.container.get("command", []), *task.container.get("args", [])]:
        if word != "{{$}}" and (_EXPANDED.search(word) or word.startswith('{"')):
            yield _short(word)


def value(task: Task) -> Iterator[str]:
    """Argo expands {{…}}, Kubernetes $(…) and $$; kfp inserts values into texts unquoted; a pod's template has 131,072
    bytes for all values; numbers are doubles, which round integers from 2^53 on. Pass a URI, as an input of its own.
    """
    for name, given in task.values():
        if isinstance(given, int | float) and abs(given) >= 2**53:
            yield f"{name}: {given:.0f}"
        for text in _texts(given):
            if len(text.encode()) > MAX_TEXT or (_EXPANDED.search(text) and not _WHOLE.fullmatch(text)):
                yield f"{name}: {_short(text)}"


def artifact(task: Task) -> Iterator[str]:
    """Kubeflow downloads input artifacts whole before the program starts, and cannot give a task one artifact twice.
    The importer does not look at the object. Pass data as a URI, and as artifact only the producer's manifest.
    """
    given = task.inputs("artifacts")
    sources = list(given.values())
    yield from (f"{name} is given twice" for name, source in given.items() if sources.count(source) > 1)
    yield from (name for name in given if task.container and not name.endswith("manifest"))
    if not task.container and "dag" not in task.component:
        yield "dsl.importer"


def loop(task: Task) -> Iterator[str]:
    """Yield the workflow object has 1 MiB, and an iteration takes 40 kB and three pods: loop once, over workers and not
    over items, and give parallelism=, without which all start at once.
    """
    if task.items and not task.spec.get("iteratorPolicy", {}).get("parallelismLimit"):
        yield "no parallelism"
    if len(json.loads(task.items.get("raw", "[]"))) > MAX_ITERATIONS:
        yield f"more than {MAX_ITERATIONS} iterations"
    above = task.parent
    while task.items and above is not None:
        if above.items:
            yield f"is inside {above.place}"
        above = above.parent


def runs_after_failure(task: Task) -> Iterator[str]:
    """Find a task that runs on whatever a failed one left; it learns no reason, and the run is FAILED all the same."""
    if task.spec.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED":
        yield "dsl.ExitHandler or ignore_upstream_failure"


def placement(task: Task) -> Iterator[str]:
    """Yield a pod without these fails the run when its node goes, waits for ever for an image or a node, or takes what
    others on its node need; a tag that moves runs another program than the one tested. ``placement`` sets them all.
    """
    retry, seconds = task.spec.get("retryPolicy", {}), int(task.settings.get("activeDeadlineSeconds", 0))
    retries = retry.get("maxRetryCount", 0)
    scratch = [item["mountPath"] for item in task.settings.get("emptyDirMounts", [])]
    wrong = {
        "an image without digest": not re.search(r"@sha256:[0-9a-f]{64}$", task.container.get("image", "")),
        "no retries": not retries,
        # It limits all attempts together, and is one hour where it is not set.
        "backoff_max_duration below the timeouts of all attempts": retries
        and float(retry["backoffMaxDuration"].removesuffix("s")) < max(seconds * (retries + 1), 3600),
        "no timeout": not seconds,
        "no memory limit": "resourceMemoryLimit" not in task.container.get("resources", {}),
        "no volume at TMPDIR": not any(Path(task.env.get("TMPDIR", "")).is_relative_to(item) for item in scratch),
        "a volume without size limit": any(
            not item.get("sizeLimit") for item in task.settings.get("emptyDirMounts", [])
        ),
        "a secret in a variable": any(
            _SECRET.search(name) and text[:1] not in {"", "/"} for name, text in task.env.items()
        ),
    }
    yield from (what for what, is_so in wrong.items() if is_so and task.container)


def cached(task: Task) -> Iterator[str]:
    """Yield the cache knows the text of a URI, and neither data nor variables. Stages find what is done by
    themselves."""
    if task.container and task.spec.get("cachingOptions", {}).get("enableCache"):
        yield "caching is on"


_CHECKS: tuple[Check, ...] = (command_argument, value, artifact, loop, runs_after_failure, placement, cached)
RULES = {check.__name__.replace("_", "-"): check for check in _CHECKS}


def _reason(rule: str) -> str:
    return " ".join((RULES[rule].__doc__ or "").split())


@dataclass(frozen=True)
class Finding:
    """A rule that a task breaks, and what was found there."""

    rule: str
    where: str
    got: str

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}: {self.got}. {_reason(self.rule)}"


def _tasks(documents: Iterable[Spec]) -> Iterator[Task]:
    """Return the pipeline and every task, those of loops, conditions and nested pipelines included."""
    spec, platform, *_ = *documents, {}
    settings = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})

    def below(parent: Task) -> Iterator[Task]:
        yield parent
        for name, task in parent.component.get("dag", {}).get("tasks", {}).items():
            component = spec["components"][task["componentRef"]["name"]]
            label = component.get("executorLabel", "")
            container = spec["deploymentSpec"]["executors"].get(label, {}).get("container", {})
            place = f"{parent.place}.{name}"
            yield from below(Task(place, task, component, parent, container, settings.get(label, {})))

    return below(Task("root", {}, spec["root"], None, {}, {}))


def lint(documents: Iterable[Spec]) -> list[Finding]:
    """Return what is wrong with a compiled pipeline: its definition and, if it has one, its platform's document."""
    tasks = list(_tasks(documents))
    return [Finding(rule, task.place, got) for rule, check in RULES.items() for task in tasks for got in check(task)]


@dataclass(kw_only=True)
class LintConfig(Checked):
    """Find what compiles and fails on a cluster."""

    file: str = option(f"{COMPILED}/pretraining.yaml", help="compiled pipeline")
    allow: list[str] = option([], help="rules that do not count, joined by commas", choices=tuple(RULES))

    @classmethod
    def details(cls) -> str:
        """Return the rules."""
        return "\n".join(["rules:", *(f"  {rule}\n      {_reason(rule)}" for rule in RULES)])


def run(config: LintConfig) -> list[Finding]:
    """Return the findings of a compiled file."""

    try:
        result = [item for item in documents(Path(config.file).read_bytes()) if item]
        return [item for item in lint(result) if item.rule not in config.allow]
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            "not a compiled pipeline", where=config.file, got=repr(error), hint="pairmill compile makes one"
        ) from error


def main(arguments: Sequence[str]) -> int:
    """Command line; returns the exit code, which is 3 with findings."""

    def work() -> None:
        config = cli.build(LintConfig, cli.split(arguments))
        result = run(config)
        sys.stdout.writelines(f"{item}\n" for item in result)
        if result:
            hint = "each line on stdout says what is wrong there"
            raise InputError(f"{len(result)} findings", where=config.file, hint=hint)

    return cli.program("lint", LintConfig, arguments, work)
