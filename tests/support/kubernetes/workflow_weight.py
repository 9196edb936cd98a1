"""What the workflow object of a run weighs: Kubeflow shows no task any more once it has more than 1 MiB.

Argo keeps everything about a run in one object of Kubernetes: its specification and, for each node, what the node was
given. Beyond :data:`MAX_BYTES` it compresses the nodes, and Kubeflow 2.17 does not read that: the states of tasks stay
as they were. So the object of a finished run is written here as the compiler, the driver and Argo write it, with texts
of the right length, and measured. Recorded objects are within 2 % of it (docs/decisions/0049-weight-of-a-run.md).

A task of a container is six nodes, of a driver and of an executor: with the stock retry of every template each is there
twice, and the executor within a DAG of its own. All six hold the pod's patch, in which component, executor input and
environment are. An iteration of a loop is six nodes more.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Spec = dict[str, Any]

MAX_BYTES = 1 << 20
"""MAX_WORKFLOW_SIZE of Argo's workflow controller."""

_FIXED = 13_900
"""Bytes of the workflow that do not follow from the pipeline: metadata, Argo's templates, conditions."""

_ARTIFACTS = "//".join(("minio:", "mlpipeline/v2/artifacts"))  # as long as Kubeflow's own; nothing is read there
_ID = "0" * 10
_UUID = "00000000-0000-0000-0000-000000000000"
_TIME = "2026-01-01T00:00:00Z"
_SERVERS = [
    *("--pod_name", "$(KFP_POD_NAME)", "--pod_uid", "$(KFP_POD_UID)"),
    *("--ml_pipeline_server_address", "ml-pipeline.kubeflow.svc.cluster.local", "--ml_pipeline_server_port", "8887"),
    *("--mlmd_server_address", "metadata-grpc-service.kubeflow.svc.cluster.local", "--mlmd_server_port", "8080"),
    *("--publish_logs", "true", "--publish_logs", "true", "--"),
]
_STORE = {
    "accessKeyKey": "accesskey",
    "disableSSL": "true",
    "endpoint": "seaweedfs.kubeflow:9000",
    "fromEnv": "false",
    "maxRetries": "5",
    "region": "minio",
    "secretKeyKey": "secretkey",
    "secretName": "mlpipeline-minio-artifact",
}


def dump(value: Any) -> str:
    """JSON as Go writes it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@dataclass(frozen=True)
class Run:
    """What a run's size follows from, beside the pipeline.

    Args:
        values: parameters of the run by name, in place of their defaults.
        items: of every loop that runs over what a task made.
        outputs: values of tasks' output parameters by their name, in place of :data:`TYPICAL`.
        artifacts: where Kubeflow keeps artifacts.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    items: int = 1
    outputs: Mapping[str, Any] = field(default_factory=dict)
    artifacts: str = _ARTIFACTS


def workflow_bytes(documents: list[Spec], run: Run) -> int:
    """Return bytes of the workflow of a finished run.

    Args:
        documents: a compiled pipeline and what belongs to its platform.
        run: what else its size follows from.
    """
    return _Workflow(documents, run).size()


def nodes(documents: list[Spec], run: Run) -> list[Spec]:
    """Return the nodes of that workflow, as far as their size goes."""
    workflow = _Workflow(documents, run)
    workflow.size()
    return workflow.nodes


class _Workflow:
    def __init__(self, documents: list[Spec], run: Run) -> None:
        self.spec = documents[0]
        platform = documents[1] if len(documents) > 1 else {}
        self.settings = (
            platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
        )
        self.run = run
        self.name = f"{self.spec['pipelineInfo']['name']}-00000"
        self.root = f"{run.artifacts}/{self.spec['pipelineInfo']['name']}/{_UUID}"
        self.parameters: dict[str, str] = {}
        self.templates: dict[str, Spec] = {}
        self.nodes: list[Spec] = []

    def size(self) -> int:
        declared = self.spec["root"].get("inputDefinitions", {}).get("parameters", {})
        values = {name: self.run.values.get(name, item.get("defaultValue", "")) for name, item in declared.items()}
        self.parameters["components-root"] = dump(self.spec["root"])
        path = f"{self.name}(0)"
        self._twice("DAG", self.name, "entrypoint", {})
        runtime = {
            "component": dump(self.spec["root"]),
            "runtime-config": dump({"parameterValues": values}),
            "task": "",
        }
        self._twice("Pod", f"{path}.root-driver", "system-dag-driver", runtime | _DAG, _DRIVEN_DAG)
        self._dag(self.spec["root"], f"{path}.root", "root", values)
        arguments = [{"name": name, "value": value} for name, value in self.parameters.items()]
        whole = {"arguments": arguments, "templates": list(self.templates.values()), "nodes": self.nodes}
        return _FIXED + len(dump(whole).encode()) + len(self.nodes) * (len(self.name) + 14)

    def _node(self, kind: str, path: str, template: str, given: Mapping[str, str], made: Spec | None = None) -> None:
        identity = f"{self.name}-{_ID}"
        node: Spec = {
            "boundaryID": identity,
            "children": [identity],
            "displayName": path.rsplit(".", 1)[-1],
            "finishedAt": _TIME,
            "id": identity,
            "name": path,
            "phase": "Succeeded",
            "progress": "16/16",
            "resourcesDuration": {"cpu": 75, "memory": 1467},
            "startedAt": _TIME,
            "templateName": template,
            "templateScope": f"local/{self.name}",
            "type": kind,
        }
        if kind in ("Pod", "DAG"):
            node["nodeFlag"] = {"retried": True}
        if kind == "DAG":
            node["outboundNodes"] = [identity]
        if kind == "Pod":
            del node["children"]
            node |= {"hostNodeName": "a-node-of-the-cluster", "taskResultSynced": True}
        if given:
            listed = [
                {**({"default": _DEFAULTS[name]} if name in _DEFAULTS else {}), "name": name, "value": value}
                for name, value in given.items()
            ]
            node["inputs"] = {"parameters": listed}
        if made is not None:
            key = f"private-artifacts/kubeflow/{self.name}/2026/01/01/{self.name}-{template}-{_ID}/main.log"
            node["outputs"] = {"artifacts": [{"name": "main-logs", "s3": {"key": key}}], "exitCode": "0", **made}
        self.nodes.append(node)

    def _twice(self, kind: str, path: str, template: str, given: Mapping[str, str], made: Spec | None = None) -> None:
        """Count a node, and what the stock retry of every template puts around it."""
        self._node("Retry", path, template, given, made)
        self._node(kind, f"{path}(0)", template, given, made)

    def _dag(self, component: Spec, path: str, template: str, values: Mapping[str, Any]) -> None:
        self._twice("DAG", path, template, {"parent-dag-id": "16"})
        tasks: Spec = component["dag"]["tasks"]
        own = self.templates.setdefault(template, {"dag": {"tasks": []}, **_TEMPLATE, "name": template})
        is_new = not own["dag"]["tasks"]
        made: dict[str, Spec] = {}
        order = list(tasks)
        # A task is declared by its name's place in the alphabet; here what it reads comes first.
        while order:
            ready = [item for item in order if not set(tasks[item].get("dependentTasks", [])) & set(order)]
            for name in ready or order[:1]:
                order.remove(name)
                task = tasks[name]
                if is_new:
                    own["dag"]["tasks"] += list(self._template_tasks(name, task))
                given = {key: self._value(source, values, made) for key, source in _sources(task).items()}
                made[name] = self._task(name, task, f"{path}(0)", given)

    def _task(self, name: str, task: Spec, path: str, given: Mapping[str, Any]) -> Spec:
        reference = task["componentRef"]["name"]
        component = self.spec["components"][reference]
        if "dag" not in component:
            return self._container(name, task, component, path, given)
        self.parameters.setdefault(f"components-{reference}", dump(component))
        driver = {"component": dump(component), "runtime-config": "", "task": dump(_sorted(task)), "task-name": name}
        if "parameterIterator" not in task:
            self._twice("Pod", f"{path}.{name}-driver", "system-dag-driver", driver | _DAG, _DRIVEN_DAG)
            if _is_skipped(task, given):
                self._node("Skipped", f"{path}.{name}", reference, {})
            else:
                self._dag(component, f"{path}.{name}", reference, given)
            return {}
        items = task["parameterIterator"]["items"]
        count = len(json.loads(items["raw"])) if "raw" in items else self.run.items
        loop = f"{path}.{name}"
        self._twice("DAG", loop, f"{reference}-{name}-iterator", {"parent-dag-id": "16"})
        self._twice("Pod", f"{loop}(0).iteration-driver", "system-dag-driver", driver | _DAG, _DRIVEN_DAG)
        self._node("TaskGroup", f"{loop}(0).iteration-iterations", f"{reference}-{name}", {})
        # kfp calls the item as the loop's input, and its parts as this with their name.
        item = task["parameterIterator"]["itemInput"]
        inner = {**given, item: self.run.outputs.get("item", "1/4")}
        for number in range(count):
            each = f"{loop}(0).iteration-iterations({number}:{number})"
            self._twice("DAG", each, f"{reference}-{name}", {"parent-dag-id": "16", "iteration-index": f"{number}"})
            self._twice("Pod", f"{each}(0).iteration-item-driver", "system-dag-driver", driver | _DAG, _DRIVEN_DAG)
            self._dag(component, f"{each}(0).iteration-item", reference, inner)
        return {}

    def _container(self, name: str, task: Spec, component: Spec, path: str, given: Mapping[str, Any]) -> Spec:
        label = component["executorLabel"]
        container = _with_numbers(self.spec["deploymentSpec"]["executors"][label]["container"])
        settings = self.settings.get(label, {})
        definition = dump(component)
        digest = hashlib.sha256(dump({**component, "executorLabel": ""}).encode()).hexdigest()
        self.parameters.setdefault(f"components-{digest}", definition)
        self.parameters.setdefault(f"implementations-{digest}", dump(container))
        self.parameters.setdefault(f"kubernetes-{task['componentRef']['name']}", dump(settings))
        patch = dump(self._patch(name, task, component, container, settings, given))
        driver = {
            "component": definition,
            "task": dump(_sorted(task)),
            "container": dump(container),
            "task-name": name,
            "parent-dag-id": "16",
            "iteration-index": "-1",
            "kubernetes-config": dump(settings),
        }
        cached = {"default": "false", "path": "/tmp/outputs/cached-decision"}
        outputs = [
            {
                "name": "pod-spec-patch",
                "value": patch,
                "valueFrom": {"default": "", "path": "/tmp/outputs/pod-spec-patch"},
            },
            {"default": "false", "name": "cached-decision", "value": "false", "valueFrom": cached},
            _CONDITION,
        ]
        self._twice("Pod", f"{path}.{name}-driver", "system-container-driver", driver, {"parameters": outputs})
        retried = _retry(task)
        prefix = "retry-" if retried else ""
        of_executor = {"pod-spec-patch": patch, "cached-decision": "false", **retried}
        self._twice("DAG", f"{path}.{name}", f"{prefix}system-container-executor", of_executor)
        of_pod = {"pod-spec-patch": patch, **retried}
        self._twice("Pod", f"{path}.{name}(0).executor", f"{prefix}system-container-impl", of_pod, {})
        result = component.get("outputDefinitions", {}).get("parameters", {})
        folder = f"{given.get('root', self.run.values.get('root', ''))}/{name.replace('-', '_')}/{'0' * 16}"
        typical = {"output": folder, "fingerprint": "0" * 16, **self.run.outputs}
        return {key: typical.get(key, "") for key in result}

    def _patch(
        self, name: str, task: Spec, component: Spec, container: Spec, settings: Spec, given: Mapping[str, Any]
    ) -> Spec:
        place = f"{self.root}/{name}/{_UUID}"
        outputs = component.get("outputDefinitions", {})
        parameters = {key: {"outputFile": f"/tmp/kfp/outputs/{key}"} for key in outputs.get("parameters", {})}
        kinds = {key: item["artifactType"] for key, item in outputs.get("artifacts", {}).items()}
        kinds["executor-logs"] = {"schemaTitle": "system.Artifact"}
        artifacts = {
            key: {"artifacts": [{"name": key, "type": kind, "uri": f"{place}/{key}"}]} for key, kind in kinds.items()
        }
        lineage = {
            key: {"artifacts": [self._input_artifact(source)]}
            for key, source in task.get("inputs", {}).get("artifacts", {}).items()
        }
        executor_input = {
            "inputs": {**({"artifacts": lineage} if lineage else {}), "parameterValues": dict(given)},
            "outputs": {
                **({"parameters": parameters} if parameters else {}),
                "artifacts": artifacts,
                "outputFile": f"/minio/{place.partition('://')[2]}/output_metadata.json",
            },
        }
        definition = {
            **component,
            "outputDefinitions": {
                **outputs,
                "artifacts": {
                    **outputs.get("artifacts", {}),
                    "executor-logs": {"artifactType": {"schemaTitle": "system.Artifact"}},
                },
            },
        }
        command = [
            "/kfp-launcher/launch",
            *("--pipeline_name", self.spec["pipelineInfo"]["name"], "--run_id", _UUID, "--execution_id", "18"),
            *("--executor_input", dump(executor_input), "--component_spec", dump(definition)),
            *_SERVERS,
        ]
        resources = container.get("resources", {})
        sizes = {
            part: {
                kind: resources[f"resource{kind.capitalize()}{part[:-1].capitalize()}"]
                for kind in ("cpu", "memory")
                if f"resource{kind.capitalize()}{part[:-1].capitalize()}" in resources
            }
            for part in ("limits", "requests")
        }
        if "accelerator" in resources:
            item = resources["accelerator"]
            sizes["limits"][item["resourceType"]] = item["resourceCount"]
        volumes, mounts = [], []
        for item in settings.get("secretAsVolume", []):
            secret = {"secretName": item["secretName"], "optional": bool(item.get("optional"))}
            volumes.append({"name": item["secretName"], "secret": secret})
            mounts.append({"name": item["secretName"], "mountPath": item["mountPath"]})
        for item in settings.get("emptyDirMounts", []):
            empty = {key: item[key] for key in ("medium", "sizeLimit") if key in item}
            volumes.append({"name": item["volumeName"], "emptyDir": empty})
            mounts.append({"name": item["volumeName"], "mountPath": item["mountPath"]})
        environment = [*container.get("env", [])]
        for item in settings.get("secretAsEnv", []):
            for pair in item["keyToEnv"]:
                reference = {
                    "name": item["secretName"],
                    "key": pair["secretKey"],
                    "optional": bool(item.get("optional")),
                }
                environment.append({"name": pair["envVar"], "valueFrom": {"secretKeyRef": reference}})
        main = {
            "name": "main",
            "image": container["image"],
            "command": command,
            "args": [*container.get("command", []), *container.get("args", [])],
            "env": environment,
            "resources": sizes,
            "volumeMounts": mounts,
        }
        patch: Spec = {"volumes": volumes, "containers": [main]}
        if "activeDeadlineSeconds" in settings:
            patch["activeDeadlineSeconds"] = int(settings["activeDeadlineSeconds"])
        for key, inside in (("nodeSelector", "labels"), ("tolerations", "")):
            if key in settings:
                patch[key] = settings[key][inside] if inside else settings[key]
        return patch

    def _input_artifact(self, source: Spec) -> Spec:
        producer = source.get("taskOutputArtifact", {}).get("producerTask", "x" * 12)
        folder = f"{self.run.values.get('root', '')}/{producer.replace('-', '_')}/{'0' * 16}"
        metadata = {
            "data": folder,
            "display_name": "manifest",
            "fingerprint": "0" * 16,
            "reused": "false",
            "rows_out": 1_000_000,
            "store_session_info": dump({"Provider": "minio", "Params": _STORE}),
        }
        uri = f"{self.root}/{producer}/{_UUID}/manifest"
        return {"name": "40", "type": {"instanceSchema": ""}, "uri": uri, "metadata": metadata}

    def _value(self, source: Spec, values: Mapping[str, Any], made: Mapping[str, Spec]) -> Any:
        if "componentInputParameter" in source:
            name = source["componentInputParameter"]
            if "parameterExpressionSelector" in source:
                return self.run.outputs.get("item", "")
            return values.get(name, "")
        if "taskOutputParameter" in source:
            output = source["taskOutputParameter"]
            return made.get(output["producerTask"], {}).get(output["outputParameterKey"], "")
        return source["runtimeValue"]["constant"]

    def _template_tasks(self, name: str, task: Spec) -> Iterator[Spec]:
        reference = task["componentRef"]["name"]
        component = self.spec["components"][reference]
        depends = " && ".join(f"{item}.Succeeded" for item in task.get("dependentTasks", []))
        if "dag" in component:
            given = {
                "component": f"{{{{workflow.parameters.components-{reference}}}}}",
                "parent-dag-id": "{{inputs.parameters.parent-dag-id}}",
                "task": dump(_sorted(task)),
                "task-name": name,
            }
            yield _template_task(f"{name}-driver", "system-dag-driver", depends, given)
            after = f"{{{{tasks.{name}-driver.outputs.parameters.condition}}}}"
            inner = {
                "parent-dag-id": f"{{{{tasks.{name}-driver.outputs.parameters.execution-id}}}}",
                "condition": after,
            }
            yield _template_task(name, reference, f"{name}-driver.Succeeded", inner) | {"when": f"{after} != false"}
            return
        digest = "0" * 64
        given = {
            "component": f"{{{{workflow.parameters.components-{digest}}}}}",
            "task": dump(_sorted(task)),
            "container": f"{{{{workflow.parameters.implementations-{digest}}}}}",
            "task-name": name,
            "parent-dag-id": "{{inputs.parameters.parent-dag-id}}",
            "kubernetes-config": f"{{{{workflow.parameters.kubernetes-{reference}}}}}",
        }
        yield _template_task(f"{name}-driver", "system-container-driver", depends, given)
        given = {
            "pod-spec-patch": f"{{{{tasks.{name}-driver.outputs.parameters.pod-spec-patch}}}}",
            "cached-decision": f"{{{{tasks.{name}-driver.outputs.parameters.cached-decision}}}}",
            **_retry(task),
        }
        yield _template_task(name, "retry-system-container-executor", f"{name}-driver.Succeeded", given)


_CONDITION = {
    "name": "condition",
    "value": "true",
    "valueFrom": {"default": "true", "path": "/tmp/outputs/condition"},
}
_DRIVEN_DAG = {
    "parameters": [
        {"name": "execution-id", "value": "16", "valueFrom": {"path": "/tmp/outputs/execution-id"}},
        {
            "name": "iteration-count",
            "value": "0",
            "valueFrom": {"default": "0", "path": "/tmp/outputs/iteration-count"},
        },
        _CONDITION,
    ]
}
_DAG = {"parent-dag-id": "16", "iteration-index": "-1", "driver-type": "DAG"}
_DEFAULTS = {
    "runtime-config": "",
    "task-name": "",
    "parent-dag-id": "0",
    "iteration-index": "-1",
    "driver-type": "DAG",
    "kubernetes-config": "",
    "cached-decision": "false",
}
_TEMPLATE = {
    "inputs": {"parameters": [{"name": "parent-dag-id"}]},
    "metadata": {"annotations": {"pipelines.kubeflow.org/v2_component": "true", "sidecar.istio.io/inject": "false"}},
    "outputs": {},
}


def _is_skipped(task: Spec, given: Mapping[str, Any]) -> bool:
    """Return whether a condition on one text leaves the task out; of any other condition it is taken to run."""
    condition = task.get("triggerPolicy", {}).get("condition", "")
    match = re.fullmatch(r"(!\()?inputs\.parameter_values\['(.+?)'\] (==|!=) '(.*?)'\)?", condition)
    if match is None:
        return False
    holds = (given.get(match[2]) == match[4]) == (match[3] == "==")
    return holds == bool(match[1])


def _sources(task: Spec) -> Spec:
    return dict(task.get("inputs", {}).get("parameters", {}))


def _sorted(task: Spec) -> Spec:
    return task


def _retry(task: Spec) -> dict[str, str]:
    policy = task.get("retryPolicy", {})
    if not policy.get("maxRetryCount"):
        return {}
    longest = policy["backoffMaxDuration"].removesuffix("s")
    return {
        "retry-max-count": str(policy["maxRetryCount"]),
        "retry-backoff-duration": policy["backoffDuration"].removesuffix("s"),
        "retry-backoff-factor": f"{policy['backoffFactor']:g}",
        "retry-backoff-max-duration": longest,
    }


def _template_task(name: str, template: str, depends: str, given: Mapping[str, str]) -> Spec:
    parameters = [{"name": key, "value": value} for key, value in given.items()]
    task: Spec = {"arguments": {"parameters": parameters}, "name": name, "template": template}
    return task | ({"depends": depends} if depends else {})


def _with_numbers(container: Spec) -> Spec:
    return container
