"""What a task is given: its inputs, where its outputs go, its pod, and the key under which a cache knows it."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from tests.support.kubernetes.emulator import expressions
from tests.support.kubernetes.emulator.values import converted, doubles, driver_text, dumps

Spec = dict[str, Any]

# One environment variable of the pod holds its template; more goes to a ConfigMap that Argo's role may not make.
TEMPLATE_LIMIT = 131_072
# What the template holds beside the patch of the driver: volumes, mounts, labels. Recorded: 60,000 letters twice fit,
# 64,000 twice do not.
_TEMPLATE = 4096

_OUTPUT_FOLDER = "/tmp/kfp/outputs"
_MOUNTS = {"gs": "/gcs", "s3": "/s3", "minio": "/minio"}
_INPUT = re.compile(r"\{\{\$\.inputs\.parameters\['(.+?)'\]\}\}")


class DriverError(Exception):
    """The driver's pod fails, and no other is made for the task."""


class _Null(Exception):
    """A pipeline's parameter without default that was not given."""


@dataclass
class Artifact:
    """An artifact as ML Metadata knows it."""

    number: int
    uri: str
    schema: str
    metadata: Spec

    def runtime(self) -> Spec:
        """As a consumer's executor input has it: neither the output's name nor its class."""
        found = {"name": str(self.number), "type": {"instanceSchema": ""}, "uri": self.uri}
        return {"artifacts": [{**found, "metadata": doubles(self.metadata)}]}


@dataclass
class Outputs:
    """Outputs of a task, whether a container or a nested pipeline."""

    parameters: Spec = field(default_factory=dict)
    artifacts: dict[str, Artifact] = field(default_factory=dict)


@dataclass
class Inputs:
    """Inputs of a task; artifacts by name."""

    parameters: Spec
    artifacts: dict[str, Artifact]

    def message(self) -> Spec:
        """As executor input has them: in the order of the message's fields, and what is empty is left out."""
        artifacts = {name: artifact.runtime() for name, artifact in sorted(self.artifacts.items())}
        found = {"artifacts": artifacts, "parameterValues": doubles(self.parameters)}
        return {name: value for name, value in found.items() if value}


@dataclass
class Scope:
    """One execution of a DAG: its inputs, its number, and outputs and states of its tasks so far."""

    inputs: Inputs
    number: int
    outputs: dict[str, Outputs] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A container's task as its driver leaves it.

    Attributes:
        policy: of retries, empty: there are none.
        component: its definition.
        container: image, command, arguments and environment as compiled.
        settings: of Kubernetes.
        given: executor input.
        command: command and arguments with the inputs that the driver fills in.
    """

    policy: Spec
    component: Spec
    container: Spec
    settings: Spec
    given: Spec
    command: list[str]


@dataclass(frozen=True)
class Job:
    """What a run is called."""

    pipeline: str
    name: str
    uuid: str
    workflow: str
    created: str
    root: str
    """Where artifacts of the run go: ``<pipeline root>/<pipeline>/<run id>``."""

    def constants(self, task: str, scope: Scope) -> dict[str, str]:
        """Placeholders that resolve where they are the whole value of a task's input."""
        return {
            "{{$.pipeline_job_name}}": self.name,
            "{{$.pipeline_job_uuid}}": self.uuid,
            "{{$.pipeline_job_resource_name}}": self.workflow,
            "{{$.pipeline_task_name}}": task,
            "{{$.pipeline_task_uuid}}": str(scope.number),
            "{{$.pipeline_job_create_time_utc}}": self.created,
            "{{$.pipeline_job_schedule_time_utc}}": self.created,
        }


def mounted(uri: str) -> str:
    """The path in a container that an artifact's URI is copied to and from. Raises ValueError for another scheme."""
    scheme, _, rest = uri.partition("://")
    if scheme not in _MOUNTS:
        raise ValueError(f"{uri}: no recognized storage URI")
    return f"{_MOUNTS[scheme]}/{rest}"


def inputs_of(job: Job, scope: Scope, name: str, task: Spec, component: Spec) -> Inputs:
    """Inputs of a task in its DAG.

    Raises:
        DriverError: one cannot be resolved, or has another type.
    """
    declared: dict[str, Spec] = component.get("inputDefinitions", {}).get("parameters", {})
    given: dict[str, Spec] = task.get("inputs", {}).get("parameters", {})
    values: Spec = {}
    if "dag" in component:
        values = {
            key: doubles(one.get("defaultValue"))
            for key, one in declared.items()
            if key not in given and one.get("isOptional")
        }
    for key, source in given.items():
        try:
            values[key] = _value(job, scope, name, task, source)
        except _Null as error:
            if not declared.get(key, {}).get("isOptional"):
                raise DriverError(f"the resolved input parameter is null: {error}") from error
    for key, source in given.items():
        if key in values and "parameterExpressionSelector" in source:
            values[key] = expressions.select(values[key], source["parameterExpressionSelector"])
    iterated = task.get("parameterIterator", {}).get("itemInput")
    values.update(_checked(values, {key: one for key, one in declared.items() if key != iterated}))
    artifacts = {key: _artifact(scope, source) for key, source in task.get("inputs", {}).get("artifacts", {}).items()}
    if len({artifact.number for artifact in artifacts.values()}) < len(artifacts):
        raise DriverError("failed to lookup existing execution: one artifact stands in two inputs")
    return Inputs(values, artifacts)


def _checked(values: Spec, declared: dict[str, Spec]) -> Spec:
    found = {}
    for key, one in declared.items():
        if key not in values:
            # Recorded: a default that is used is added by the launcher, after the driver filled the placeholders.
            if not one.get("isOptional") and "defaultValue" not in one:
                raise DriverError(f'neither value nor default value provided for non-optional parameter "{key}"')
        elif values[key] is not None:
            try:
                found[key] = converted(values[key], one["parameterType"])
            except TypeError as error:
                raise DriverError(f'input parameter "{key}" {error}') from error
    return found


def _value(job: Job, scope: Scope, name: str, task: Spec, source: Spec) -> Any:
    match source:
        case {"componentInputParameter": str(key)}:
            if key not in scope.inputs.parameters:
                raise DriverError(f"parent DAG does not have input parameter {key}")
            if scope.inputs.parameters[key] is None:
                raise _Null(key)
            return scope.inputs.parameters[key]
        case {"taskOutputParameter": {"producerTask": producer, "outputParameterKey": key}}:
            if key not in scope.outputs.get(producer, Outputs()).parameters:
                raise DriverError(f"producer task {producer} has no output {key}")
            return scope.outputs[producer].parameters[key]
        case {"runtimeValue": {"constant": constant}}:
            return (
                job.constants(name, scope).get(constant, constant) if isinstance(constant, str) else doubles(constant)
            )
        case {"taskFinalStatus": {"producerTask": producer}}:
            status = {"pipelineTaskName": producer, "pipelineJobResourceName": job.workflow, "error": {}}
            state = {"SUCCEEDED": "COMPLETE"}.get(scope.states[producer], scope.states[producer])
            return doubles({**status, "state": state})
    raise NotImplementedError(f"{name}: the emulator does not know the input {source}")


def _artifact(scope: Scope, source: Spec) -> Artifact:
    match source:
        case {"componentInputArtifact": str(key)}:
            return scope.inputs.artifacts[key]
        case {"taskOutputArtifact": {"producerTask": producer, "outputArtifactKey": key}}:
            if key not in scope.outputs.get(producer, Outputs()).artifacts:
                raise DriverError(f"cannot find output artifact key {key} in producer task {producer}")
            return scope.outputs[producer].artifacts[key]
    raise NotImplementedError(f"the emulator does not know the input artifact {source}")


def items_of(task: Spec, inputs: Inputs) -> list[Any]:
    """What a loop runs over."""
    match task["parameterIterator"]["items"]:
        case {"raw": raw}:
            return list(doubles(json.loads(raw)))
        case {"inputParameter": key}:
            found = inputs.parameters[key]
            return list(doubles(json.loads(found)) if isinstance(found, str) else found)
    raise NotImplementedError(f"the emulator does not know the iterator {task['parameterIterator']}")


def iteration(task: Spec, inputs: Inputs, item: Any, component: Spec) -> Inputs:
    """Inputs of one iteration of a loop. Raises DriverError where the item has another type than it is declared."""
    iterator = task["parameterIterator"]
    values = {key: value for key, value in inputs.parameters.items() if key != iterator["items"].get("inputParameter")}
    values[iterator["itemInput"]] = item
    declared = component["inputDefinitions"]["parameters"]
    values.update(_checked(values, {key: one for key, one in declared.items() if key in values}))
    return Inputs(values, inputs.artifacts)


def triggered(task: Spec, inputs: Inputs) -> bool:
    """Whether the task's condition, if it has one, lets it run."""
    condition = task.get("triggerPolicy", {}).get("condition")
    return condition is None or expressions.holds(condition, inputs.parameters)


def executor_input(job: Job, name: str, inputs: Inputs, component: Spec) -> Spec:
    """Executor input of a container's task, with a place of its own for the outputs."""
    place = f"{job.root}/{name}/{uuid4()}"
    declared = component.get("outputDefinitions", {})
    artifacts = {key: one["artifactType"] for key, one in declared.get("artifacts", {}).items()}
    artifacts["executor-logs"] = {"schemaTitle": "system.Artifact"}
    outputs: Spec = {}
    if "parameters" in declared:
        outputs["parameters"] = {
            key: {"outputFile": f"{_OUTPUT_FOLDER}/{key}"} for key in sorted(declared["parameters"])
        }
    outputs["artifacts"] = {
        key: {"artifacts": [{"name": key, "type": kind, "uri": f"{place}/{key}"}]}
        for key, kind in sorted(artifacts.items())
    }
    outputs["outputFile"] = f"{mounted(place)}/output_metadata.json"
    return {"inputs": inputs.message(), "outputs": outputs}


def arguments(parts: list[str], parameters: Spec) -> list[str]:
    """Command or arguments with the values of inputs, as far as the driver fills them in.

    Raises:
        DriverError: a value is missing, which one is that only has a default.
    """
    found: list[str] = []
    for part in parts:
        if "$.outputs" in part:
            found.append(part)
        elif part.strip().startswith('{"IfPresent":'):
            choice = json.loads(part)["IfPresent"]
            present = parameters.get(choice["InputName"]) is not None
            chosen = choice["Then"] if present else choice.get("Else", [])
            found += [_filled(one, parameters) for one in ([chosen] if isinstance(chosen, str) else chosen)]
        else:
            found.append(_filled(part, parameters))
    return found


def _filled(part: str, parameters: Spec) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] not in parameters:
            raise DriverError(f'parameter "{match[1]}" not found in executor input')
        return driver_text(parameters[match[1]])

    return _INPUT.sub(value, part)


def too_long(plan: Plan) -> bool:
    """Whether the pod's template is longer than the environment variable that holds it."""
    patch = {"executor_input": dumps(plan.given), "component_spec": json.dumps(plan.component), "args": plan.command}
    # The patch is a text within the template, and the executor input one within the patch.
    return (
        len(json.dumps(json.dumps(patch, ensure_ascii=False), ensure_ascii=False).encode()) + _TEMPLATE > TEMPLATE_LIMIT
    )


def expanded(workflow: str, env: Mapping[str, str]) -> Callable[[str], str]:
    """How text of a pod's command is expanded: Argo's ``{{workflow.name}}``, then Kubernetes' ``$(VAR)``."""

    def expand(text: str) -> str:
        return re.sub(
            r"\$\$|\$\(([^)]*)\)",
            lambda found: "$" if found[1] is None else env.get(found[1], found[0]),
            text.replace("{{workflow.name}}", workflow),
        )

    return expand


def fingerprint(given: Spec, component: Spec, container: Spec) -> str:
    """The key of the cache: no environment, no resources, no display name, and artifacts by their number."""
    outputs = component.get("outputDefinitions", {})
    key = {
        "parameters": given["inputs"].get("parameterValues", {}),
        "artifacts": {name: one["artifacts"][0]["name"] for name, one in given["inputs"].get("artifacts", {}).items()},
        "outputs": {name: one["parameterType"] for name, one in outputs.get("parameters", {}).items()},
        "output artifacts": sorted(outputs.get("artifacts", {})),
        "image": container["image"],
        "command": [*container.get("command", []), *container.get("args", [])],
    }
    return hashlib.sha256(dumps(doubles(key)).encode()).hexdigest()
