"""What the workflow object of a run weighs: the formula against an object that a real installation kept."""

import copy
import gzip
import json
from pathlib import Path
from typing import Any

from tests.support.kubernetes import workflow_weight as weight
from tests.support.kubernetes.workflow_weight import Run


def recorded(shared: Path) -> dict[str, Any]:
    """The finished workflow of a serial run with held-out rows."""
    file = shared / "conformance" / "kubeflow" / "sizes" / "workflow-holdout.json.gz"
    found: dict[str, Any] = json.loads(gzip.decompress(file.read_bytes()))
    return found


def size(value: Any) -> int:
    return len(weight.dump(value).encode())


def compiled(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    """The pipeline that the workflow was made of, put together from what it has of it."""
    given = {one["name"]: one["value"] for one in workflow["spec"]["arguments"]["parameters"]}
    root = json.loads(given["components-root"])
    components, executors, settings = {}, {}, {}
    for template in workflow["spec"]["templates"]:
        for task in template.get("dag", {}).get("tasks", []):
            values = {one["name"]: one.get("value", "") for one in task.get("arguments", {}).get("parameters", [])}
            if "task" not in values:
                continue
            reference = json.loads(values["task"])["componentRef"]["name"]
            held = {
                name: given[text[len("{{workflow.parameters.") : -2]]
                for name, text in values.items()
                if "{{work" in text
            }
            components[reference] = component = json.loads(held["component"])
            if "container" in held:
                component["executorLabel"] = label = f"exec-{reference}"
                executors[label] = {"container": json.loads(held["container"])}
                settings[label] = json.loads(held["kubernetes-config"])
    pipeline = {
        "pipelineInfo": {"name": workflow["metadata"]["generateName"].rstrip("-")},
        "root": root,
        "components": components,
        "deploymentSpec": {"executors": executors},
    }
    return [pipeline, {"platforms": {"kubernetes": {"deploymentSpec": {"executors": settings}}}}]


def run_of(workflow: dict[str, Any]) -> Run:
    (driver,) = [one for one in workflow["status"]["nodes"].values() if one["displayName"] == "root-driver(0)"]
    (runtime,) = [one["value"] for one in driver["inputs"]["parameters"] if one["name"] == "runtime-config"]
    return Run(json.loads(runtime)["parameterValues"])


def test_the_formula_gives_what_was_recorded(shared: Path) -> None:
    workflow = recorded(shared)
    found = weight.workflow_bytes(compiled(workflow), run_of(workflow))
    assert abs(found / size(workflow) - 1) < 0.01


def test_the_nodes_are_those_that_were_recorded(shared: Path) -> None:
    workflow = recorded(shared)
    nodes = weight.nodes(compiled(workflow), run_of(workflow))
    kept = {one["name"].partition("(0)")[2]: one for one in workflow["status"]["nodes"].values()}
    made = {one["name"].partition("(0)")[2]: one for one in nodes}
    assert len(nodes) == len(workflow["status"]["nodes"])
    assert made.keys() == kept.keys()
    for name, node in made.items():
        assert (node["type"], node["templateName"]) == (kept[name]["type"], kept[name]["templateName"])
        if name:
            assert abs(size(node) / size(kept[name]) - 1) < 0.1, name
    assert abs(sum(map(size, nodes)) / size(workflow["status"]["nodes"]) - 1) < 0.01


def test_descriptions_weigh_what_they_were_found_to_weigh(shared: Path) -> None:
    # 799,162 bytes without them, by the same records.
    workflow = recorded(shared)
    documents = copy.deepcopy(compiled(workflow))

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            kept = {key: one for key, one in value.items() if key != "description" or not isinstance(one, str)}
            return {key: without(one) for key, one in kept.items()}
        return [without(one) for one in value] if isinstance(value, list) else value

    found = weight.workflow_bytes([without(documents[0]), *documents[1:]], run_of(workflow))
    assert abs(found / 799_162 - 1) < 0.01
