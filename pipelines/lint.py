"""Finds what compiles and fails, or lies, on a cluster: ``python -m pipelines.lint [file=<compiled file>]``.

Every rule is a function of the compiled pipeline; its docstring is the reason. ``recorded`` names what a real Kubeflow
Pipelines 2.17.0 did: runs of probe pipelines that ``tests/conformance/test_kubeflow.py`` repeats.
"""

from __future__ import annotations

if __name__ == "__main__":  # before the imports, which take half a second
    from pairmill.interface.interrupt import quiet

    quiet()

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pairmill.engine.stage import option
from pairmill.errors import InputError, UsageError
from pairmill.interface import cli
from pipelines.compile import COMPILED

Spec = dict[str, Any]
Found = Iterator[tuple[str, str]]

# Argo puts a pod's template into one variable of 131,072 bytes, in which a value can stand three times, escaped twice.
LONGEST_TEXT = 4096
# The workflow object may have 1 MiB, and an iteration of one task takes 10 to 15 kB of it.
MOST_ITERATIONS = 64
# Doubles hold every integer up to here.
LARGEST_INTEGER = 2**53

_INPUT = re.compile(r"\{\{\$\.inputs\.(parameters|artifacts)\['(.+?)'\]")
_PLACEHOLDER = re.compile(r"\{\{\$.*?\}\}")
_RESOLVED = re.compile(
    r"\{\{\$(\.inputs\.parameters\['.+?'\]|\.inputs\.artifacts\['.+?'\]\.(path|uri)"
    r"|\.outputs\.parameters\['.+?'\]\.output_file|\.outputs\.artifacts\['.+?'\]\.(path|uri))?\}\}"
)
# As the whole value of a task's input; {{$.pipeline_root}} is not among them.
_OF_THE_RUN = re.compile(
    r"\{\{\$\.pipeline_(job_name|job_uuid|job_resource_name|task_uuid|job_(create|schedule)_time_utc)\}\}"
)
_OF_THE_TASK = "{{$.pipeline_task_name}}"
_EXPANDED = re.compile(r"\{\{(?!\$)|\$\(|\$\$")
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|(ACCESS|API|PRIVATE)_?KEY")
_PLACE = re.compile(r"(^|_)(raw|path|uri|url|dir|folder)$")
# Where a program keeps its own files, and what it says of itself: no result depends on these.
_HARMLESS = {"HOME", "TMPDIR", "PAIRMILL_LOG"}


@dataclass(frozen=True)
class Finding:
    """A rule that the pipeline breaks: which, where, what stands there, and why that is wrong."""

    rule: str
    where: str
    got: str
    reason: str

    def __str__(self) -> str:
        return f"{self.where}: {self.rule}: {self.got}. {self.reason}"


@dataclass(frozen=True)
class Rule:
    """A trap; ``recorded``: runs in which a real backend showed it."""

    name: str
    reason: str
    recorded: tuple[str, ...]
    check: Callable[[Pipeline], Found]


RULES: list[Rule] = []


def _rule(*recorded: str) -> Callable[[Callable[[Pipeline], Found]], Callable[[Pipeline], Found]]:
    def add(check: Callable[[Pipeline], Found]) -> Callable[[Pipeline], Found]:
        reason = " ".join((check.__doc__ or "").split())
        RULES.append(Rule(check.__name__.replace("_", "-"), reason, recorded, check))
        return check

    return add


@dataclass(frozen=True)
class Task:
    """A task with what belongs to it.

    Attributes:
        place: its name below those of the DAGs that it is in.
        parent: the task whose component is the DAG that this one is in.
        inside: the component that is that DAG.
        container: what is run, None: it is a DAG or an importer.
        settings: of Kubernetes.
    """

    place: str
    spec: Spec
    component: Spec
    parent: Task | None
    inside: Spec
    container: Spec | None
    settings: Spec

    @property
    def parameters(self) -> dict[str, Spec]:
        """Sources of its input parameters."""
        return dict(self.spec.get("inputs", {}).get("parameters", {}))

    @property
    def artifacts(self) -> dict[str, Spec]:
        """Sources of its input artifacts."""
        return dict(self.spec.get("inputs", {}).get("artifacts", {}))

    def declared(self, kind: str) -> dict[str, Spec]:
        """Input definitions of its component: ``parameters`` or ``artifacts``."""
        return dict(self.component.get("inputDefinitions", {}).get(kind, {}))

    @property
    def words(self) -> list[str]:
        """Command and arguments."""
        container = self.container or {}
        return [*container.get("command", []), *container.get("args", [])]

    @property
    def env(self) -> dict[str, str]:
        """Variables with constant values."""
        return {one["name"]: one.get("value", "") for one in (self.container or {}).get("env", [])}

    @property
    def cached(self) -> bool:
        """Whether a run before can stand in for it."""
        return bool(self.spec.get("cachingOptions", {}).get("enableCache"))

    @property
    def iterator(self) -> Spec:
        """What it runs over, if it is a loop."""
        return dict(self.spec.get("parameterIterator", {}))

    def constants(self) -> Iterator[tuple[str, str]]:
        """Every text that the pipeline's author wrote into its inputs, with where."""
        for name, source in self.parameters.items():
            for text in _texts(source.get("runtimeValue", {}).get("constant")):
                yield f"{self.place}: {name}", text
        for text in _texts(self.iterator.get("items", {}).get("raw")):
            yield f"{self.place}: loop", text

    def origin(self, kind: str, source: Spec) -> tuple[str, str] | None:
        """(place of the task that made it, or empty, and its name) of what an input comes from."""
        key = source.get("componentInputParameter") or source.get("componentInputArtifact")
        if key is not None:
            if self.parent is None:
                return "", str(key)
            above = self.parent.spec.get("inputs", {}).get(kind, {}).get(key)
            return self.parent.origin(kind, above) if above is not None else None
        made = source.get("taskOutputParameter") or source.get("taskOutputArtifact")
        if made is None:
            return None
        top = self.place.rpartition(".")[0]
        return f"{top}.{made['producerTask']}", str(made.get("outputParameterKey") or made["outputArtifactKey"])


class Pipeline:
    """A compiled pipeline: its definition and, in a second document, the platform's part of it."""

    def __init__(self, documents: Iterable[Spec]) -> None:
        self.spec, *rest = documents
        platform = rest[0] if rest else {}
        self._settings = (
            platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
        )

    @cached_property
    def tasks(self) -> list[Task]:
        """Every task, those of loops, conditions and nested pipelines included."""
        return list(self._below(self.spec["root"], None, "root"))

    @property
    def containers(self) -> list[Task]:
        """Tasks that run a program."""
        return [task for task in self.tasks if task.container is not None]

    @property
    def parameters(self) -> dict[str, Spec]:
        """Run parameters."""
        return dict(self.spec["root"].get("inputDefinitions", {}).get("parameters", {}))

    def _below(self, inside: Spec, parent: Task | None, top: str) -> Iterator[Task]:
        for name, spec in inside["dag"]["tasks"].items():
            component = self.spec["components"][spec["componentRef"]["name"]]
            label = component.get("executorLabel", "")
            executor = self.spec["deploymentSpec"]["executors"].get(label, {})
            settings = self._settings.get(label, {})
            task = Task(f"{top}.{name}", spec, component, parent, inside, executor.get("container"), settings)
            yield task
            if "dag" in component:
                yield from self._below(component, task, task.place)

    def importers(self) -> Iterator[Task]:
        """Tasks that only register a URI."""
        for task in self.tasks:
            if task.container is None and "dag" not in task.component:
                yield task

    def defaults(self) -> Iterator[tuple[str, Any, str]]:
        """(where, value, type) of every default and constant."""
        for name, one in self.parameters.items():
            yield f"parameter {name}", one.get("defaultValue"), one["parameterType"]
        for task in self.tasks:
            for name, one in task.declared("parameters").items():
                constant = task.parameters.get(name, {}).get("runtimeValue", {}).get("constant")
                yield f"{task.place}: {name}", one.get("defaultValue"), one["parameterType"]
                yield f"{task.place}: {name}", constant, one["parameterType"]

    def texts(self) -> Iterator[tuple[str, str]]:
        """(where, text) of everything that goes into a pod's template as it is written."""
        for where, value, _ in self.defaults():
            for text in _texts(value):
                yield where, text
        for task in self.tasks:
            for number, word in enumerate(task.words):
                yield f"{task.place}: word {number} of the command", word
            for name, text in task.env.items():
                yield f"{task.place}: env {name}", text
            for text in _texts(task.iterator.get("items", {}).get("raw")):
                yield f"{task.place}: loop", text


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _texts(one)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


# --- inputs and placeholders ----------------------------------------------------------------------------------------


@_rule("defaulted", "default-in-command", "optional-absent", "optional-none-parameter")
def default_in_placeholder(pipeline: Pipeline) -> Found:
    """The driver fills in placeholders before defaults are added, so the task fails: pass the input, or read {{$}}."""
    for task in pipeline.containers:
        above = task.inside.get("inputDefinitions", {}).get("parameters", {})
        for name in _placed(task, beside_output=False):
            source = task.parameters.get(name)
            key = above.get((source or {}).get("componentInputParameter", ""), {})
            if source is None or (key.get("isOptional") and "defaultValue" not in key):
                yield f"{task.place}: {name}", "is not passed, and stands in the command"


@_rule("default-beside-output")
def absent_input_in_text(pipeline: Pipeline) -> Found:
    """Beside an output's path the placeholder of an input that is absent stays as text."""
    for task in pipeline.containers:
        for name in _placed(task, beside_output=True):
            if name not in task.parameters and "defaultValue" not in task.declared("parameters")[name]:
                yield f"{task.place}: {name}", "is not passed, and stands in the command"


def _placed(task: Task, *, beside_output: bool) -> list[str]:
    words = [word for word in task.words if not word.startswith('{"IfPresent"')]
    names = [
        found[2]
        for word in words
        if ("$.outputs" in word) == beside_output
        for found in _INPUT.finditer(word)
        if found[1] == "parameters"
    ]
    return [name for name in dict.fromkeys(names) if name in task.declared("parameters")]


@_rule("artifact-optional-absent-path")
def absent_artifact_in_placeholder(pipeline: Pipeline) -> Found:
    """The path of an optional artifact that is absent arrives as the placeholder's own text."""
    for task in pipeline.containers:
        names = {found[2] for word in task.words for found in _INPUT.finditer(word) if found[1] == "artifacts"}
        for name in sorted(names & set(task.declared("artifacts")) - set(task.artifacts)):
            yield f"{task.place}: {name}", "is not passed, and its path or URI stands in the command"


@_rule("unknown-placeholder")
def unknown_input(pipeline: Pipeline) -> Found:
    """The driver fails: the component declares no such input."""
    for task in pipeline.containers:
        for word in task.words:
            for found in _INPUT.finditer(word):
                if found[2] not in task.declared(found[1]):
                    yield task.place, found[0]


@_rule("own-placeholders")
def unresolved_placeholder(pipeline: Pipeline) -> Found:
    """It arrives as text: of a command only {{$}}, inputs, and paths and URIs resolve."""
    for task in pipeline.containers:
        for word in task.words:
            for found in _PLACEHOLDER.finditer(word):
                if not _RESOLVED.fullmatch(found[0]):
                    yield task.place, found[0]


@_rule("concat", "concat-if-present")
def concat_placeholder(pipeline: Pipeline) -> Found:
    """The backend does not know ConcatPlaceholder and passes its JSON as text: use an f-string."""
    for task in pipeline.containers:
        for word in task.words:
            if word.startswith('{"Concat"'):
                yield task.place, _short(word)


@_rule("if-present-artifact")
def if_present_on_artifact(pipeline: Pipeline) -> Found:
    """IfPresentPlaceholder always takes the else branch for an artifact, even when it is given."""
    for task, name in _conditions(pipeline):
        if name in task.declared("artifacts"):
            yield task.place, name


@_rule("if-present")
def if_present_on_default(pipeline: Pipeline) -> Found:
    """For IfPresentPlaceholder a default does not count as present: pass the input."""
    for task, name in _conditions(pipeline):
        if "defaultValue" in task.declared("parameters").get(name, {}) and name not in task.parameters:
            yield f"{task.place}: {name}", "has a default and is not passed"


def _conditions(pipeline: Pipeline) -> Iterator[tuple[Task, str]]:
    for task in pipeline.containers:
        for word in task.words:
            if word.startswith('{"IfPresent"'):
                yield task, json.loads(word)["IfPresent"]["InputName"]


@_rule("special-placeholders")
def special_placeholder_in_text(pipeline: Pipeline) -> Found:
    """It resolves only as the whole value of an input, and {{$.pipeline_root}} never."""
    for task in pipeline.tasks:
        for where, text in task.constants():
            whole = text == _OF_THE_TASK or _OF_THE_RUN.fullmatch(text)
            if "{{$.pipeline_" in text and not whole:
                yield where, _short(text)


@_rule("list-into-text", "outputs-into-text")
def text_built_in_pipeline(pipeline: Pipeline) -> Found:
    """Its parts are put in unquoted, so {{$}} may cease to be JSON: pass them plain, build the text in the program."""
    for task in pipeline.tasks:
        for where, text in task.constants():
            if "{{$.inputs.parameters['pipelinechannel--" in text:
                yield where, _short(text)


@_rule("string-argo", "string-kubernetes", "string-braces-constant")
def expanded_text(pipeline: Pipeline) -> Found:
    """Argo expands {{…}}, and Kubernetes $(…) and $$, wherever they stand in a value."""
    for where, text in pipeline.texts():
        if _EXPANDED.search(text):
            yield where, _short(text)


@_rule("output-64k", "string-100k", "string-quotes-15k")
def long_text(pipeline: Pipeline) -> Found:
    """The pod's template has 131,072 bytes for all of it, escapes of escapes included: pass a URI."""
    for where, text in pipeline.texts():
        if len(text.encode()) > LONGEST_TEXT:
            yield where, _short(text)


@_rule("types", "outputs-many")
def large_integer(pipeline: Pipeline) -> Found:
    """Every number is a double: from 2^53 on another one arrives, silently. Pass text."""
    for where, value, kind in pipeline.defaults():
        if kind == "NUMBER_INTEGER" and value is not None and abs(value) >= LARGEST_INTEGER:
            yield where, f"{value:.0f}"


# --- artifacts ------------------------------------------------------------------------------------------------------


@_rule("artifact-in-two-inputs")
def artifact_twice(pipeline: Pipeline) -> Found:
    """The driver fails on one artifact in two inputs of a task."""
    for task in pipeline.tasks:
        counts = Counter(task.origin("artifacts", source) for source in task.artifacts.values())
        for origin, count in counts.items():
            if origin is not None and count > 1:
                yield task.place, f"{origin[0]}: {origin[1]}"


@_rule("artifact-50mb", "artifact-2000-files")
def bulk_artifact(pipeline: Pipeline) -> Found:
    """Every input artifact is downloaded whole, one object after another, before the program starts: pass a URI as
    text, and as artifact only a small one whose name ends in manifest.
    """
    for task in pipeline.containers:
        for name in task.artifacts:
            if not name.endswith("manifest"):
                yield task.place, name


@_rule("importer", "importer-https")
def imported_artifact(pipeline: Pipeline) -> Found:
    """The importer looks at nothing: where no object stands it succeeds, and the consumer finds no file."""
    for task in pipeline.importers():
        yield task.place, "dsl.importer"


@_rule("loop-after")
def collected_artifacts(pipeline: Pipeline) -> Found:
    """Whoever takes the artifacts of a loop downloads all of them: write records to storage and list them."""
    for task in pipeline.tasks:
        if task.iterator:
            for name in task.component["dag"].get("outputs", {}).get("artifacts", {}):
                yield task.place, name


# --- loops and order ------------------------------------------------------------------------------------------------


@_rule("loop-static")
def loop_without_limit(pipeline: Pipeline) -> Found:
    """Without parallelism= all iterations start at once."""
    for task in pipeline.tasks:
        if task.iterator and not task.spec.get("iteratorPolicy", {}).get("parallelismLimit"):
            yield task.place, "no parallelism"


@_rule("loop-static")
def loop_too_long(pipeline: Pipeline) -> Found:
    """The workflow object has 1 MiB, an iteration takes 10 kB and three pods: loop over workers, never over items."""
    for task in pipeline.tasks:
        items = task.iterator.get("items", {})
        above = task.inside.get("inputDefinitions", {}).get("parameters", {})
        source = task.parameters.get(items.get("inputParameter", ""), {})
        default = above.get(source.get("componentInputParameter", ""), {}).get("defaultValue")
        known = json.loads(items["raw"]) if "raw" in items else default
        if isinstance(known, list) and len(known) > MOST_ITERATIONS:
            yield task.place, f"{len(known)} iterations"


@_rule("loop-static")
def loop_in_loop(pipeline: Pipeline) -> Found:
    """Pods and the size of the workflow multiply: loop once."""
    for task in pipeline.tasks:
        above = task.parent
        while task.iterator and above is not None:
            if above.iterator:
                yield task.place, f"is inside {above.place}"
            above = above.parent


@_rule("exit-handler-failure", "ignore-upstream-failure")
def runs_after_failure(pipeline: Pipeline) -> Found:
    """It runs on whatever a failed task left, learns no reason, and the run is FAILED all the same."""
    for task in pipeline.tasks:
        if task.spec.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED":
            yield task.place, "dsl.ExitHandler or ignore_upstream_failure"


# --- pods -----------------------------------------------------------------------------------------------------------


@_rule("cache-3-other-tag")
def image_by_tag(pipeline: Pipeline) -> Found:
    """A tag that moves gives a node another program, and the cache knows the name alone: name the image by digest."""
    for task in pipeline.containers:
        image = str((task.container or {})["image"])
        if not re.search(r"@sha256:[0-9a-f]{64}$", image):
            yield task.place, image


@_rule("no-image", "resources")
def image_pull_policy(pipeline: Pipeline) -> Found:
    """An image that is named by digest never changes: Always makes each pod depend on the registry, Never on luck."""
    for task in pipeline.containers:
        policy = task.settings.get("imagePullPolicy", "IfNotPresent")
        if policy != "IfNotPresent":
            yield task.place, policy


@_rule("killed-9", "pod-deleted")
def no_retry(pipeline: Pipeline) -> Found:
    """A pod that is evicted or loses its node fails the run: set_retry."""
    for task in pipeline.containers:
        if not task.spec.get("retryPolicy", {}).get("maxRetryCount"):
            yield task.place, "no retries"


@_rule("retry-max-duration")
def retry_max_duration(pipeline: Pipeline) -> Found:
    """It limits all attempts together, one hour where it is not set: give it the time of every attempt's timeout."""
    for task in pipeline.containers:
        policy = task.spec.get("retryPolicy", {})
        if policy.get("maxRetryCount"):
            longest = float(policy["backoffMaxDuration"].removesuffix("s"))
            needed = int(task.settings.get("activeDeadlineSeconds", 0)) * (policy["maxRetryCount"] + 1)
            if longest < max(needed, 3600):
                yield task.place, f"{longest:.0f} s for attempts that may take {needed} s"


@_rule("no-image", "accelerator")
def no_timeout(pipeline: Pipeline) -> Found:
    """A pod whose image is missing, or that no node fits, stays PENDING for ever and without a word: set_timeout."""
    for task in pipeline.containers:
        if not int(task.settings.get("activeDeadlineSeconds", 0)):
            yield task.place, "no timeout"


@_rule("oom", "oom-child")
def no_memory_limit(pipeline: Pipeline) -> Found:
    """Without a memory limit the pod takes its node's memory, and others are killed for it."""
    for task in pipeline.containers:
        if "resourceMemoryLimit" not in (task.container or {}).get("resources", {}):
            yield task.place, "no memory limit"


@_rule("empty-dir", "places")
def no_scratch(pipeline: Pipeline) -> Found:
    """Temporary files fill the node's own disk until the pod is evicted: mount a volume and point TMPDIR to it."""
    for task in pipeline.containers:
        place = task.env.get("TMPDIR", "")
        if not any(place == mount or place.startswith(f"{mount}/") for mount in _mounts(task)):
            yield task.place, f"TMPDIR={place}" if place else "no TMPDIR"


def _mounts(task: Task) -> list[str]:
    volumes = ("emptyDirMounts", "genericEphemeralVolume", "pvcMount")
    return [one["mountPath"].rstrip("/") for kind in volumes for one in task.settings.get(kind, [])]


@_rule("shm-memory", "empty-dir-over-limit")
def volume_without_limit(pipeline: Pipeline) -> Found:
    """A volume of the node's memory or disk without size limit takes all there is, and the pod is killed or evicted."""
    for task in pipeline.containers:
        for one in task.settings.get("emptyDirMounts", []):
            if not one.get("sizeLimit"):
                yield task.place, one["mountPath"]


@_rule("resources")
def secret_in_env(pipeline: Pipeline) -> Found:
    """Whoever sees the pipeline sees the value: use_secret_as_env."""
    for task in pipeline.containers:
        for name, text in task.env.items():
            if _SECRET.search(name.upper()) and text and not text.startswith("/"):
                yield task.place, name


@_rule("security-context-root")
def runs_as_root(pipeline: Pipeline) -> Found:
    """run_as_user=0 is obeyed, whatever the image says."""
    for task in pipeline.containers:
        if str(task.settings.get("securityContext", {}).get("runAsUser", "")) == "0":
            yield task.place, "run_as_user=0"


# --- caching --------------------------------------------------------------------------------------------------------


@_rule("cache-8-producer-uncached", "cache-6-data-deleted")
def cached_by_place(pipeline: Pipeline) -> Found:
    """The cache knows the text of a URI, not what stands behind it: take its manifest too, or switch caching off."""
    for task in pipeline.containers:
        if not task.cached:
            continue
        makers = {origin[0] for one in task.artifacts.values() if (origin := task.origin("artifacts", one))}
        for name, declared in task.declared("parameters").items():
            origin = task.origin("parameters", task.parameters.get(name, {}))
            if origin is None or declared["parameterType"] != "STRING":
                continue
            maker, made = origin
            if maker not in makers if maker else _PLACE.search(made):
                yield f"{task.place}: {name}", f"from {maker or 'run parameter'} {made}, without a manifest"


@_rule("cache-5-other-resources-and-environment")
def cached_environment(pipeline: Pipeline) -> Found:
    """Environment is no part of the cache's key: another value gets the results of this one."""
    for task in pipeline.containers:
        for name in task.env:
            if task.cached and name not in _HARMLESS:
                yield task.place, name


@_rule("cache-key-1", "cache-key-2")
def cache_key(pipeline: Pipeline) -> Found:
    """A cache key of one's own has no effect: the fingerprint is the same as without it."""
    for task in pipeline.containers:
        if task.spec.get("cachingOptions", {}).get("cacheKey"):
            yield task.place, str(task.spec["cachingOptions"]["cacheKey"])


@_rule("special-placeholders")
def run_in_cached_task(pipeline: Pipeline) -> Found:
    """What is different in every run is part of the cache's key, and nothing ever hits."""
    for task in pipeline.tasks:
        for where, text in task.constants():
            if task.cached and _OF_THE_RUN.fullmatch(text):
                yield where, text


# --- the form -------------------------------------------------------------------------------------------------------


@_rule()
def no_description(pipeline: Pipeline) -> Found:
    """The form for a run, and the page of a task, show nothing but the name."""
    if not pipeline.spec["pipelineInfo"].get("description"):
        yield "pipeline", "no description"
    for name, one in pipeline.parameters.items():
        if not one.get("description"):
            yield f"parameter {name}", "no description"
    for task in pipeline.containers:
        for kind in ("parameters", "artifacts"):
            for name, one in task.declared(kind).items():
                if not one.get("description"):
                    yield f"{task.place}: {name}", "no description"


@_rule()
def no_display_name(pipeline: Pipeline) -> Found:
    """The graph shows the name that the compiler gave."""
    if not pipeline.spec["pipelineInfo"].get("displayName"):
        yield "pipeline", "no display name"
    for task in pipeline.containers:
        if task.spec["taskInfo"]["name"] == task.place.rpartition(".")[2]:
            yield task.place, "no display name"


# --- entry ----------------------------------------------------------------------------------------------------------


def lint(documents: Iterable[Spec]) -> list[Finding]:
    """What is wrong with a compiled pipeline: its definition and, if it has one, its platform's document."""
    pipeline = Pipeline(documents)
    return [
        Finding(rule.name, where, got, rule.reason)
        for rule in RULES
        for where, got in dict.fromkeys(rule.check(pipeline))
    ]


@dataclass(kw_only=True)
class LintConfig:
    """Find what compiles and fails on a cluster."""

    file: str = option(f"{COMPILED}/pretraining.yaml", help="compiled pipeline")
    allow: list[str] = option([], help="rules that do not count, joined by commas")

    def __post_init__(self) -> None:
        unknown = set(self.allow) - {rule.name for rule in RULES}
        if unknown:
            raise UsageError("no such rule", where="allow", got=", ".join(sorted(unknown)), hint="see --help")

    @classmethod
    def details(cls) -> str:
        """The rules."""
        lines = [f"  {rule.name}\n      {rule.reason}" for rule in RULES]
        return "\n".join(["rules:", *lines])


def run(config: LintConfig) -> list[Finding]:
    """Findings of a compiled file."""
    import yaml

    try:
        documents = [one for one in yaml.safe_load_all(Path(config.file).read_text()) if one]
        return [one for one in lint(documents) if one.rule not in config.allow]
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            "is no compiled pipeline", where=config.file, got=repr(error), hint="python -m pipelines.compile makes one"
        ) from error


def main() -> int:
    """Command line; exit code 3 with findings."""
    arguments = sys.argv[1:]

    def work() -> None:
        config = cli.build(LintConfig, cli.split(arguments))
        found = run(config)
        sys.stdout.writelines(f"{one}\n" for one in found)
        if found:
            raise InputError(
                f"{len(found)} findings", where=config.file, hint="each line on stdout says what is wrong there"
            )

    return cli.program("pipelines.lint", "lint", LintConfig, arguments, work)


if __name__ == "__main__":
    raise SystemExit(main())
