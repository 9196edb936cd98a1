"""What happens in a task's pod: artifacts are fetched, the program runs, its outputs are read, checked and uploaded."""

import json
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.kubernetes.emulator.containers import Engine, Pod, Running
from tests.support.kubernetes.emulator.driver import Job, Plan, Spec, mounted
from tests.support.kubernetes.emulator.objects import Objects
from tests.support.kubernetes.emulator.values import doubles, dumps, parse, stored, text

# Folders that every pod has, empty and open to all.
_EMPTY = ("/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config")
# The launcher makes it in the image's own /tmp; here it is a folder of this machine, to be read from outside.
_SCRATCH = "/tmp/kfp"
# Between SIGTERM and SIGKILL; the 30 s of the pod are not given.
GRACE = 0.2


class LauncherError(Exception):
    """The launcher ends with exit code 1, and the task is failed."""


@dataclass
class Attempt:
    """One pod of a task, and what became of it.

    Attributes:
        node: its place in the workflow, as ``root.for-loop-1.iteration-iterations(0:0).iteration-item.work.executor``.
        task: name of the task.
        index: 0, or the number of the retry.
        folder: of this machine, that holds the pod's volumes by their mount point.
        command: program and arguments as the program got them.
        executor_input: what ``{{$}}`` became.
        log: stdout and stderr of the program, as far as it came.
        running: the program while it runs, to be killed.
        exit_code: of the program, negative for a signal; None: it was never started.
        reason: why the launcher failed the task, empty: it did not.
        deleted: the pod is to end, by whom.
    """

    node: str
    task: str
    index: int
    folder: Path
    command: list[str] = field(default_factory=list)
    executor_input: str = ""
    log: bytes = b""
    running: Running | None = None
    exit_code: int | None = None
    reason: str = ""
    deleted: str = ""

    @property
    def succeeded(self) -> bool:
        """Whether the pod ended well."""
        return not self.reason

    def delete(self, reason: str) -> None:
        """End the pod as Kubernetes does: SIGTERM, and no time to act on it."""
        self.deleted = reason
        if self.running is not None:
            self.running.kill(signal.SIGTERM)
            threading.Timer(GRACE, self.running.kill).start()

    def host(self, path: str) -> Path:
        """The path on this machine of one in the pod's volumes."""
        return self.folder / path.lstrip("/")


@dataclass
class Result:
    """What a pod that succeeded hands on: parameters by name, and (URI, type, metadata) of artifacts by name."""

    parameters: Spec
    artifacts: dict[str, tuple[str, str, Spec]]


@dataclass(frozen=True)
class Launcher:
    """Runs pods.

    Args:
        objects: where artifacts are.
        engine: what runs containers.
        started: called with each attempt whose program has just been started.
    """

    objects: Objects
    engine: Engine
    started: Callable[[Attempt], None]

    def run(self, attempt: Attempt, job: Job, pod: Pod, plan: Plan, expand: Callable[[str], str]) -> Result:
        """Run one pod to its end.

        Args:
            attempt: is filled in.
            pod: image, environment and extra volumes; its command still has the launcher's placeholders.
            plan: what the driver left.
            expand: what Argo and Kubernetes make of text in a pod's command.

        Raises:
            LauncherError: the pod failed.
        """
        given = json.loads(expand(dumps(plan.given)), parse_int=float)
        _logs(given["outputs"])["uri"] += f"-{attempt.index}"
        for place in (*_EMPTY, _SCRATCH, *pod.volumes):
            attempt.host(place).mkdir(parents=True, exist_ok=True)
        self._prepare(attempt, given)
        for one in _artifacts(given.get("inputs", {})):
            self._download(attempt, one["uri"])
        attempt.command = _filled(
            [expand(part) for part in pod.command], _with_defaults(given, plan.component), attempt
        )
        try:
            self._execute(attempt, pod, given)
            made = _executor_output(attempt.host(given["outputs"]["outputFile"]))
        except LauncherError:
            if not attempt.deleted:
                self._upload(attempt, job, given, {}, only=("executor-logs",))
            raise
        parameters = _parameters(attempt, given, plan.component, made.get("parameterValues", {}))
        artifacts = self._upload(attempt, job, given, made.get("artifacts", {}))
        for value in parameters.values():
            if isinstance(value, str) and value.encode("utf-8", "replace").decode() != value:
                raise LauncherError("failed to publish results to ML Metadata: string field contains invalid UTF-8")
        return Result(parameters, artifacts)

    def _prepare(self, attempt: Attempt, given: Spec) -> None:
        """Parents of all outputs are there, the outputs are not; outputFile's is that of an artifact."""
        outputs = given["outputs"]
        paths = [one["outputFile"] for one in outputs.get("parameters", {}).values()]
        for path in (*paths, *(mounted(one["uri"]) for one in _artifacts(outputs))):
            attempt.host(path).parent.mkdir(parents=True, exist_ok=True)
        attempt.host(mounted(_logs(outputs)["uri"])).touch()

    def _download(self, attempt: Attempt, uri: str) -> None:
        # An artifact without objects is none of the launcher's business: the path stays absent.
        target = attempt.host(mounted(uri))
        found = {f"{uri}/{path}": target / path for path in self.objects.list(uri)}
        if self.objects.exists(uri):
            found[uri] = target
        for source, path in found.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.objects.get(source))

    def _execute(self, attempt: Attempt, pod: Pod, given: Spec) -> None:
        volumes = {place: attempt.host(place) for place in (*_EMPTY, _SCRATCH, *pod.volumes)}
        ready = Pod(pod.name, pod.image, attempt.command, pod.env, volumes, pod.memory)
        try:
            attempt.running = self.engine.start(ready)
        except OSError as error:
            raise LauncherError(f"fork/exec {attempt.command[0]}: {error.strerror}") from error
        if attempt.deleted:
            attempt.delete(attempt.deleted)
        self.started(attempt)
        pipe = attempt.running.process.stdout
        assert pipe is not None
        # Whoever holds the pipe keeps the task open, a child in the background included.
        while data := os.read(pipe.fileno(), 1 << 16):
            attempt.log += data
        pipe.close()
        attempt.running.process.wait()
        attempt.exit_code = attempt.running.process.returncode
        attempt.host(mounted(_logs(given["outputs"])["uri"])).write_bytes(attempt.log)
        if attempt.deleted:
            raise LauncherError(attempt.deleted)
        if attempt.exit_code:
            raise LauncherError(f"failed to execute component: exit status {attempt.exit_code}")

    def _upload(
        self, attempt: Attempt, job: Job, given: Spec, made: Spec, only: tuple[str, ...] = ()
    ) -> dict[str, tuple[str, str, Spec]]:
        found = {}
        for one in sorted(_artifacts(given["outputs"]), key=lambda one: one["name"]):
            name, uri = one["name"], one["uri"]
            if only and name not in only:
                continue
            written = (made.get(name, {}).get("artifacts") or [{}])[0]
            uri = written.get("uri") or uri
            if not f"{uri}/".startswith(f"{job.root}/"):
                raise LauncherError(f'URI "{uri}" does not have expected bucket prefix "{job.root}"')
            path = attempt.host(mounted(uri))
            for file in [path] if path.is_file() else sorted(path.rglob("*")):
                if file.is_file():
                    below = "" if file == path else f"/{file.relative_to(path)}"
                    self.objects.put(uri + below, file.read_bytes())
            try:
                metadata = stored({**one.get("metadata", {}), **written.get("metadata", {})})
            except ValueError as error:
                raise LauncherError(f'unable to produce MLMD artifact for output "{name}": {error}') from error
            found[name] = (uri, one["type"].get("schemaTitle", ""), {"display_name": name, **metadata})
        return found


def _artifacts(side: Spec) -> list[Spec]:
    return [one for listed in side.get("artifacts", {}).values() for one in listed["artifacts"]]


def _logs(outputs: Spec) -> Spec:
    (found,) = outputs["artifacts"]["executor-logs"]["artifacts"]
    logs: Spec = found
    return logs


def _with_defaults(given: Spec, component: Spec) -> Spec:
    declared = component.get("inputDefinitions", {}).get("parameters", {})
    defaults = {name: doubles(one["defaultValue"]) for name, one in declared.items() if "defaultValue" in one}
    values = doubles({**defaults, **given["inputs"].get("parameterValues", {})})
    inputs = {**given["inputs"], **({"parameterValues": values} if values else {})}
    return {"inputs": inputs, "outputs": given["outputs"]}


def _filled(command: list[str], given: Spec, attempt: Attempt) -> list[str]:
    places = {}
    for side in ("inputs", "outputs"):
        for name, listed in given[side].get("artifacts", {}).items():
            uri = listed["artifacts"][0]["uri"]
            places[f"{{{{$.{side}.artifacts['{name}'].uri}}}}"] = uri
            places[f"{{{{$.{side}.artifacts['{name}'].path}}}}"] = mounted(uri)
    for name, value in given["inputs"].get("parameterValues", {}).items():
        places[f"{{{{$.inputs.parameters['{name}']}}}}"] = text(value)
    for name, one in given["outputs"].get("parameters", {}).items():
        places[f"{{{{$.outputs.parameters['{name}'].output_file}}}}"] = one["outputFile"]

    def fill(part: str) -> str:
        for place, value in places.items():
            part = part.replace(place, value)
        return part

    # What is filled in is searched again: placeholders within values resolve, and {{$}} may cease to be JSON.
    attempt.executor_input = fill(dumps(given))
    program, *arguments = (part.replace("{{$}}", dumps(given)) for part in command)
    return [program, *map(fill, arguments)]


def _executor_output(path: Path) -> Spec:
    if not path.exists():
        return {}
    try:
        made = doubles(json.loads(path.read_bytes()))
        unknown = set(made) - {"parameterValues", "artifacts"}
        for one in _artifacts(made):
            unknown |= set(one) - {"name", "type", "uri", "properties", "customProperties", "metadata", "customPath"}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LauncherError(f"failed to unmarshall ExecutorOutput in file {path}: {error!r}") from error
    if unknown:
        raise LauncherError(f"failed to unmarshall ExecutorOutput in file {path}: unknown field {min(unknown)}")
    return dict(made)


def _parameters(attempt: Attempt, given: Spec, component: Spec, made: Spec) -> Spec:
    values = dict(made)
    for name, one in given["outputs"].get("parameters", {}).items():
        if name in values:
            continue
        kind = component["outputDefinitions"]["parameters"][name]["parameterType"]
        try:
            values[name] = parse(attempt.host(one["outputFile"]).read_bytes(), kind)
        except (OSError, ValueError) as error:
            raise LauncherError(f'failed to read output parameter name="{name}" type="{kind}": {error}') from error
    return values


def volume_size(given: str) -> int:
    """Bytes of a quantity of Kubernetes, such as 64Mi."""
    units = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "k": 10**3, "M": 10**6, "G": 10**9}
    unit = next((unit for unit in units if given.endswith(unit)), "")
    return int(float(given.removesuffix(unit)) * units.get(unit, 1))
