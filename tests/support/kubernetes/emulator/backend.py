"""The order of tasks, as the API server's compiler writes it for Argo: DAGs, loops, retries, states, and the cache."""

import datetime
import itertools
import math
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from pairmill.errors import PairmillError
from pairmill.kubeflow.compile import documents
from tests.support.kubernetes.emulator import driver
from tests.support.kubernetes.emulator.containers import Engine, Pod
from tests.support.kubernetes.emulator.driver import Artifact, DriverError, Inputs, Job, Outputs, Plan, Scope, Spec
from tests.support.kubernetes.emulator.launcher import Attempt, Launcher, LauncherError, volume_size
from tests.support.kubernetes.emulator.objects import Objects
from tests.support.kubernetes.emulator.values import doubles, dumps

ROOT = "minio://mlpipeline/v2/artifacts"
SUCCEEDED, FAILED, SKIPPED, OMITTED = "SUCCEEDED", "FAILED", "SKIPPED", "OMITTED"

# What the launcher notes beside an artifact, so that a consumer's launcher finds the store.
_SESSION = '{"Provider":"minio","Params":{"fromEnv":"true"}}'

_DEADLINE = "Pod was active longer than the specified deadline"


def load(path: Path | str) -> list[Spec]:
    """The documents of a compiled pipeline: its definition and, if it has one, the platform's."""
    return [document for document in documents(Path(path).read_bytes()) if document]


@dataclass
class Execution:
    """One execution of a container's task as ML Metadata knows it; ``state``: COMPLETE, CACHED or FAILED."""

    number: int
    task: str
    node: str
    inputs: Spec
    fingerprint: str = ""
    outputs: Outputs = field(default_factory=Outputs)
    state: str = "RUNNING"
    cached: int | None = None


@dataclass
class Run:
    """One run.

    Attributes:
        job: its names.
        state: SUCCEEDED or FAILED, once it ended; a terminated run ends in FAILED as well.
        nodes: state by node of the workflow, drivers included.
        attempts: pods of programs in the order they began.
        executions: of tasks.
        reasons: why nodes failed.
        outputs: of the tasks of the root DAG.
    """

    job: Job
    state: str = "RUNNING"
    nodes: dict[str, str] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)
    executions: list[Execution] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, Outputs] = field(default_factory=dict)
    terminated: bool = False

    def terminate(self) -> None:
        """End it: every pod is deleted, and none is started any more."""
        self.terminated = True
        for attempt in list(self.attempts):
            if attempt.exit_code is None:
                attempt.delete("terminated")

    def failures(self) -> str:
        """Reasons and ends of logs of what failed, for a test's message."""
        logs = [f"{one.node}: {one.log.decode(errors='replace')[-2000:]}" for one in self.attempts if one.reason]
        return "\n".join([*(f"{node}: {reason}" for node, reason in self.reasons.items()), *logs])


def _nothing(attempt: Attempt) -> None:
    pass


@dataclass
class Backend:
    """One installation: an object store, an engine, and a cache that lives as long as this object.

    Args:
        objects: where artifacts go.
        engine: what runs containers.
        folder: local folder for the pods' file systems.
        secrets: values by name of the secret and key, for secrets as environment or as files.
        before: called with each attempt before its pod starts; a LauncherError that it raises fails the pod.
        started: called with each attempt once its program runs; ``attempt.running.kill()`` is kill -9.
        after: called with each attempt when its pod has ended.
        second: seconds that a second of back-off or of a timeout takes.
        pods: most programs that run at a time, None: no limit.
        stock: whether Argo has the default that Kubeflow ships, a retry of every template by the policy OnError: it
            merges into the policy of a task, which names none, and only pods that were deleted are tried again.
    """

    objects: Objects
    engine: Engine
    folder: Path
    secrets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    before: Callable[[Attempt], None] = _nothing
    started: Callable[[Attempt], None] = _nothing
    after: Callable[[Attempt], None] = _nothing
    second: float = 1.0
    pods: int | None = None
    stock: bool = False

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self._cache: dict[tuple[str, str], Execution] = {}
        self._lock = threading.Lock()
        self._room = threading.Semaphore(self.pods) if self.pods else nullcontext()

    def number(self) -> int:
        """The next number of an execution or artifact."""
        with self._lock:
            return next(self._numbers)

    def cached(self, pipeline: str, fingerprint: str) -> Execution | None:
        """The first execution that was put in under this key, looked up per pipeline's name."""
        return self._cache.get((pipeline, fingerprint))

    def remember(self, pipeline: str, execution: Execution) -> None:
        """Put an execution that succeeded into the cache; the first one stays."""
        with self._lock:
            self._cache.setdefault((pipeline, execution.fingerprint), execution)

    def run(
        self,
        documents: Iterable[Spec],
        arguments: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        root: str = ROOT,
        enable_caching: bool | None = None,
        run: Run | None = None,
    ) -> Run:
        """Run a compiled pipeline to its end.

        Args:
            documents: its definition, and the platform's.
            arguments: run parameters.
            name: of the run, empty: that of the pipeline.
            root: pipeline root.
            enable_caching: as at submission: reaches the tasks of the root DAG only.
            run: of :meth:`prepare`, for a run that is to be terminated from outside.
        """
        pipeline, platform = _documents(documents)
        run = run or self.prepare(pipeline, name=name, root=root)
        work = _Work(self, run, pipeline, platform, enable_caching)
        run.state = work.root(dict(arguments or {}))
        return run

    def prepare(self, pipeline: Spec, *, name: str = "", root: str = ROOT) -> Run:
        """A run with its names, that nothing was done for yet."""
        called, uuid = pipeline["pipelineInfo"]["name"], str(uuid4())
        created = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        workflow = f"{called}-{secrets.token_hex(3)[:5]}"
        return Run(Job(called, name or called, uuid, workflow, created, f"{root}/{called}/{uuid}"))


def _documents(documents: Iterable[Spec]) -> tuple[Spec, Spec]:
    pipeline, *rest = documents
    return pipeline, rest[0] if rest else {}


@dataclass
class _Work:
    """One run while it is going on."""

    backend: Backend
    run: Run
    pipeline: Spec
    platform: Spec
    enable_caching: bool | None

    def root(self, arguments: Spec) -> str:
        component = self.pipeline["root"]
        declared = component.get("inputDefinitions", {}).get("parameters", {})
        unknown = set(arguments) - set(declared)
        missing = {name for name, one in declared.items() if not one.get("isOptional")} - set(arguments)
        if unknown or missing:
            raise ValueError(f"the API server refuses the run: unknown {sorted(unknown)}, missing {sorted(missing)}")
        # One argument of the root driver holds them all.
        if len(dumps(doubles(arguments))) > driver.TEMPLATE_LIMIT:
            self.run.nodes["root-driver"] = FAILED
            self.run.reasons["root-driver"] = "argument list too long"
            return FAILED
        values = {name: doubles(arguments.get(name, one.get("defaultValue"))) for name, one in declared.items()}
        scope = Scope(Inputs(values, {}), self.backend.number(), self.run.outputs)
        self.run.nodes["root-driver"] = SUCCEEDED
        return self.dag(scope, component, "root", is_root=True)

    def component(self, task: Spec) -> Spec:
        return dict(self.pipeline["components"][task["componentRef"]["name"]])

    def dag(self, scope: Scope, component: Spec, node: str, *, is_root: bool = False) -> str:
        """Run a DAG's tasks, each in a thread that waits for those it depends on."""
        tasks: dict[str, Spec] = component["dag"]["tasks"]
        done: dict[str, Future[str]] = {name: Future() for name in tasks}

        def work(name: str) -> None:
            try:
                state = self._task(
                    scope, name, tasks[name], node, [done[one] for one in _upstream(tasks[name])], is_root
                )
                scope.states[name] = state
                done[name].set_result(state)
            except BaseException as error:
                done[name].set_exception(error)

        with ThreadPoolExecutor(len(tasks)) as pool:
            list(pool.map(work, tasks))
        states = [future.result() for future in done.values()]
        self.run.nodes[node] = FAILED if FAILED in states else SUCCEEDED
        return self.run.nodes[node]

    def _task(
        self, scope: Scope, name: str, task: Spec, node: str, upstream: list["Future[str]"], is_root: bool
    ) -> str:
        states = [future.result() for future in upstream]
        if task.get("triggerPolicy", {}).get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED":
            if OMITTED in states:
                return OMITTED
            hook = f"{node}.{_upstream(task)[0]}.onExit"
            state = self._one(scope, name, task, hook, is_root)
            self.run.nodes[hook] = FAILED if state == FAILED else SUCCEEDED
            return state
        # A skipped task does not count as succeeded, and what depends on it is left out.
        if any(state != SUCCEEDED for state in states) or self.run.terminated:
            return OMITTED
        return self._one(scope, name, task, node, is_root)

    def _one(self, scope: Scope, name: str, task: Spec, node: str, is_root: bool) -> str:
        component = self.component(task)
        if "dag" not in component:
            executor = self.pipeline["deploymentSpec"]["executors"][component["executorLabel"]]
            if "importer" in executor:
                return self._import(scope, name, executor["importer"], node)
            return self._container(scope, name, task, component, node, is_root)
        looped = "parameterIterator" in task
        # A loop's driver is a task within the loop's own DAG.
        driven = f"{node}.{name}.iteration-driver" if looped else f"{node}.{name}-driver"
        try:
            inputs = driver.inputs_of(self.run.job, scope, name, task, component)
            triggered = driver.triggered(task, inputs)
            items = driver.items_of(task, inputs) if looped else []
        except DriverError as error:
            return self._driver_failed(driven, error)
        self.run.nodes[driven] = SUCCEEDED
        if not triggered:
            self.run.nodes[f"{node}.{name}"] = SKIPPED
            return SKIPPED
        if looped:
            return self._loop(scope, name, task, component, inputs, items, f"{node}.{name}")
        inner = Scope(inputs, self.backend.number())
        state = self.dag(inner, component, f"{node}.{name}")
        scope.outputs[name] = _outputs(component, inner)
        return state

    def _loop(
        self, scope: Scope, name: str, task: Spec, component: Spec, inputs: Inputs, items: list[Any], node: str
    ) -> str:
        inners = [Scope(inputs, self.backend.number()) for _ in items]
        limit = task.get("iteratorPolicy", {}).get("parallelismLimit") or len(items)

        def work(index: int) -> str:
            # An iteration that failed does not keep queued ones from starting.
            each = f"{node}.iteration-iterations({index}:{index})"
            try:
                inners[index].inputs = driver.iteration(task, inputs, items[index], component)
            except DriverError as error:
                state = self._driver_failed(f"{each}.iteration-item-driver", error)
            else:
                self.run.nodes[f"{each}.iteration-item-driver"] = SUCCEEDED
                state = self.dag(inners[index], component, f"{each}.iteration-item")
            self.run.nodes[each] = state
            return state

        states: list[str] = []
        if items:
            with ThreadPoolExecutor(limit) as pool:
                states = list(pool.map(work, range(len(items))))
        each = [_outputs(component, inner) for inner in inners]
        declared = component.get("outputDefinitions", {}).get("parameters", {})
        scope.outputs[name] = Outputs({key: [one.parameters.get(key) for one in each] for key in declared})
        state = FAILED if FAILED in states else SUCCEEDED
        self.run.nodes[f"{node}.iteration-iterations"] = state if items else SKIPPED
        self.run.nodes[node] = state
        return state

    def _driver_failed(self, node: str, error: DriverError) -> str:
        self.run.nodes[node] = FAILED
        self.run.reasons[node] = str(error)
        return FAILED

    def _import(self, scope: Scope, name: str, importer: Spec, node: str) -> str:
        uri = importer["artifactUri"]["constant"]
        try:
            driver.mounted(uri)
        except ValueError as error:
            return self._driver_failed(f"{node}.{name}", DriverError(str(error)))
        metadata = {**doubles(importer.get("metadata", {})), "store_session_info": _SESSION}
        artifact = Artifact(self.backend.number(), uri, importer["typeSchema"].get("schemaTitle", ""), metadata)
        scope.outputs[name] = Outputs({}, {"artifact": artifact})
        self.run.nodes[f"{node}.{name}"] = SUCCEEDED
        return SUCCEEDED

    def _container(self, scope: Scope, name: str, task: Spec, component: Spec, node: str, is_root: bool) -> str:
        container = self.pipeline["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
        job, place = self.run.job, f"{node}.{name}"
        caching = task.get("cachingOptions", {}).get("enableCache", False)
        if is_root and self.enable_caching is not None:
            caching = self.enable_caching
        try:
            inputs = driver.inputs_of(job, scope, name, task, component)
            given = driver.executor_input(job, name, inputs, component)
            execution = Execution(self.backend.number(), name, place, inputs.parameters)
            known = None
            if caching:
                execution.fingerprint = driver.fingerprint(given, component, container)
                known = self.backend.cached(job.pipeline, execution.fingerprint)
            if known is None:
                plan = self._plan(task, component, container, given, inputs)
        except DriverError as error:
            return self._driver_failed(f"{place}-driver", error)
        self.run.nodes[f"{place}-driver"] = SUCCEEDED
        self.run.executions.append(execution)
        if known is not None:
            execution.state, execution.outputs, execution.cached = "CACHED", known.outputs, known.number
            scope.outputs[name] = known.outputs
            self.run.nodes[f"{place}.executor"], self.run.nodes[place] = SKIPPED, SUCCEEDED
            return SUCCEEDED
        try:
            if driver.too_long(plan):
                raise LauncherError("configmaps is forbidden: the pod's template is longer than a variable may be")
            execution.outputs = self._pods(execution, plan)
        except LauncherError as error:
            self.run.reasons[place] = str(error)
            execution.state = state = FAILED
        else:
            execution.state, state = "COMPLETE", SUCCEEDED
            scope.outputs[name] = execution.outputs
            if caching:
                self.backend.remember(job.pipeline, execution)
        self.run.nodes[f"{place}.executor"] = self.run.nodes[place] = state
        return state

    def _plan(self, task: Spec, component: Spec, container: Spec, given: Spec, inputs: Inputs) -> Plan:
        parts = (container.get("command", []), container.get("args", []))
        command = [word for part in parts for word in driver.arguments(part, inputs.parameters)]
        patch = self.platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {})
        settings = patch.get("executors", {}).get(component["executorLabel"], {})
        return Plan(task.get("retryPolicy", {}), component, container, settings, given, command)

    def _pods(self, execution: Execution, plan: Plan) -> Outputs:
        """Pods of a task, one after another until one succeeds or there are no more retries."""
        policy = plan.policy or ({"maxRetryCount": 2, "backoffFactor": 1} if self.backend.stock else {})
        wait = _seconds(policy.get("backoffDuration", "0s"))
        longest = _seconds(policy["backoffMaxDuration"]) if "backoffMaxDuration" in policy else math.inf
        begin = time.monotonic()
        for index in itertools.count():
            node = f"{execution.node}.executor" + (f"({index})" if policy else "")
            self.run.nodes[node] = FAILED
            try:
                made = self._pod(node, execution, index, plan)
            except LauncherError:
                # The maximum is that of all attempts together.
                spent = (time.monotonic() - begin) / self.backend.second + wait
                last = index == policy.get("maxRetryCount", 0) or self.run.terminated or spent > longest
                if last or (self.backend.stock and not self._deleted(node)):
                    raise
                time.sleep(wait * self.backend.second)
                wait *= policy["backoffFactor"]
            else:
                self.run.nodes[node] = SUCCEEDED
                return made
        raise AssertionError("a count has no end")

    def _deleted(self, node: str) -> bool:
        """Whether somebody deleted the pod: to Argo an error, where all else is a failure."""
        return any(one.node == node and one.deleted not in {"", _DEADLINE} for one in self.run.attempts)

    def _pod(self, node: str, execution: Execution, index: int, plan: Plan) -> Outputs:
        backend, job, settings = self.backend, self.run.job, plan.settings
        name = f"{job.workflow}-system-container-impl-{secrets.randbelow(10**9):09}"
        attempt = Attempt(node, execution.task, index, backend.folder / name)
        env = {"KFP_POD_NAME": name, "KFP_POD_UID": str(uuid4())}
        if plan.policy:
            env["KFP_RETRY_INDEX"] = str(index)
        env |= {one["name"]: one.get("value", "") for one in plan.container.get("env", [])}
        expand = driver.expanded(job.workflow, env)
        env |= self._secrets(settings)
        mounts = [*settings.get("emptyDirMounts", []), *settings.get("genericEphemeralVolume", [])]
        memory = {one["mountPath"]: volume_size(one.get("sizeLimit", "64Gi")) for one in mounts if "medium" in one}
        volumes = {one["mountPath"]: attempt.host(one["mountPath"]) for one in mounts if "medium" not in one}
        volumes |= self._secret_files(settings, attempt)
        pod = Pod(name, plan.container["image"], plan.command, env, volumes, memory)
        launcher = Launcher(backend.objects, backend.engine, backend.started)
        seconds = int(settings.get("activeDeadlineSeconds", 0)) * backend.second
        with backend._room:
            if self.run.terminated:
                raise LauncherError("terminated")
            self.run.attempts.append(attempt)
            deadline = threading.Timer(seconds, attempt.delete, [_DEADLINE])
            if seconds:
                deadline.start()
            try:
                backend.before(attempt)
                made = launcher.run(attempt, job, pod, plan, expand)
            except (LauncherError, PairmillError) as error:
                # The object store, where pairmill's own stands in for the launcher's, may be what failed.
                attempt.reason = str(error)
                raise LauncherError(attempt.reason) from error
            finally:
                deadline.cancel()
                backend.after(attempt)
        artifacts = {
            key: Artifact(backend.number(), uri, kind, {**metadata, "store_session_info": _SESSION})
            for key, (uri, kind, metadata) in made.artifacts.items()
        }
        return Outputs(made.parameters, artifacts)

    def _secret(self, given: Spec) -> Mapping[str, str]:
        known = self.backend.secrets.get(given["secretName"])
        if known is None and not given.get("optional"):
            raise LauncherError(f'secret "{given["secretName"]}" not found')
        return known or {}

    def _secrets(self, settings: Spec) -> dict[str, str]:
        return {
            pair["envVar"]: self._secret(one)[pair["secretKey"]]
            for one in settings.get("secretAsEnv", [])
            for pair in one["keyToEnv"]
            if pair["secretKey"] in self._secret(one)
        }

    def _secret_files(self, settings: Spec, attempt: Attempt) -> dict[str, Path]:
        found = {}
        for one in settings.get("secretAsVolume", []):
            found[one["mountPath"]] = attempt.host(one["mountPath"])
            found[one["mountPath"]].mkdir(parents=True)
            for key, value in self._secret(one).items():
                (found[one["mountPath"]] / key).write_text(value)
        return found


def _upstream(task: Spec) -> list[str]:
    return list(task.get("dependentTasks", []))


def _outputs(component: Spec, scope: Scope) -> Outputs:
    """What a DAG hands on of its tasks' outputs."""
    declared = component["dag"].get("outputs", {})
    found = Outputs()
    for key, one in declared.get("parameters", {}).items():
        choices = one.get("valueFromOneof", {}).get("parameterSelectors") or [one["valueFromParameter"]]
        for choice in choices:
            made = scope.outputs.get(choice["producerSubtask"], Outputs()).parameters
            if choice["outputParameterKey"] in made:
                found.parameters[key] = made[choice["outputParameterKey"]]
    for key, one in declared.get("artifacts", {}).items():
        for choice in one["artifactSelectors"]:
            made_artifacts = scope.outputs.get(choice["producerSubtask"], Outputs()).artifacts
            if choice["outputArtifactKey"] in made_artifacts:
                found.artifacts[key] = made_artifacts[choice["outputArtifactKey"]]
    return found


def _seconds(duration: str) -> float:
    found = re.fullmatch(r"([0-9.]+)s", duration)
    assert found, duration
    return float(found[1])
