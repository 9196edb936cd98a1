"""Jobs as Kubernetes takes them, with what tasks of the pipeline have, and the least rights that start them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from pairmill.errors import UsageError
from pairmill.interface import cli
from pairmill.kubeflow import compile as compiler
from pairmill.kubeflow.compile import CompileConfig, documents
from pairmill.kubeflow.jobs.indexed import CONTAINER, Starter, Work, job_of
from pairmill.kubeflow.placement import Placement
from pairmill.kubeflow.pods import VARIABLE, JobConfig
from pairmill.stages.tokenize.config import TokenizeConfig
from tests.contract.test_weight import GIVEN, HELD_OUT, line
from tests.support import lazy
from tests.support.helpers import REPOSITORY
from tests.support.kubernetes.jobs_server import rules
from tests.support.kubernetes.workflow_weight import MAX_BYTES

kubernetes_validate = lazy.Module("kubernetes_validate")
IMAGE = f"registry.example/pairmill/pipeline@sha256:{'0' * 64}"
EXAMPLE = REPOSITORY / "manifests" / "examples" / "job" / "job.yaml"
OPTIONS: list[dict[str, Any]] = [
    {},
    {
        "queue": "day",
        "queue_priority": "soon",
        "priority": "low",
        "volume": ["pairmill=/project"],
        "secret": "",
        "hub_secret": "",
    },
    {"node_selector": ["pool=spot"], "tolerations": ["spot=true:NoSchedule", "gpu:NoExecute"], "cpu": "16"},
    {"resources": ["curate.memory=16Gi"], "memory": "8Gi", "scratch": "1Ti"},
]


def spec(config: JobConfig, stage: str = "curate") -> dict[str, Any]:
    work = Work(stage, {"root": "s3://bucket/root"}, "s3://bucket/root/curate/0123456789abcdef")
    return job_of(work, config, Starter("pipeline-runner"))


@pytest.mark.parametrize("options", OPTIONS)
def test_a_job_fits_the_schema(options: dict[str, Any]) -> None:
    job = spec(JobConfig(shares=1000, image=IMAGE, **options))
    kubernetes_validate.validate(job, "1.34", strict=True)
    assert job["spec"]["parallelism"] == job["spec"]["completions"] == 1000
    assert ("suspend" in job["spec"]) == ("queue" in options)
    assert job["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("options", OPTIONS)
def test_its_pods_have_what_a_task_of_the_pipeline_has(options: dict[str, Any], tmp_path: Path) -> None:
    (file,) = compiler.run(CompileConfig(output=str(tmp_path / "tasks.yaml"), image=IMAGE, workers=2, **options))
    pipeline, platform = documents(file.read_bytes())
    executor = pipeline["deploymentSpec"]["executors"]["exec-curate"]["container"]
    placed = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-curate"]
    pod = JobConfig(shares=2, image=IMAGE, **options).pod("curate")
    (container,) = pod["containers"]
    sizes = executor["resources"]
    assert container["resources"] == {
        "limits": {"cpu": sizes["resourceCpuLimit"], "memory": sizes["resourceMemoryLimit"]},
        "requests": {"cpu": sizes["resourceCpuRequest"], "memory": sizes["resourceMemoryRequest"]},
    }
    assert pod.get("nodeSelector", {}) == placed.get("nodeSelector", {}).get("labels", {})
    # Kueue knows a pod and a Job by the same labels.
    job = spec(JobConfig(shares=2, image=IMAGE, **options))
    labels = {name: text for name, text in job["metadata"]["labels"].items() if "kueue" in name}
    assert labels == placed.get("podMetadata", {}).get("labels", {})
    tolerations = [{"operator": "Equal", **item} for item in pod.get("tolerations", [])]
    assert tolerations == [{"operator": "Equal", **item} for item in placed.get("tolerations", [])]
    mounts = {item["mountPath"] for item in container["volumeMounts"]}
    kinds = ("emptyDirMounts", "secretAsVolume", "pvcMount")
    assert mounts == {item["mountPath"] for kind in kinds for item in placed.get(kind, [])}
    assert pod["volumes"][0] == {"name": "scratch", "emptyDir": {"sizeLimit": placed["emptyDirMounts"][0]["sizeLimit"]}}
    secrets = {pair["envVar"] for item in placed.get("secretAsEnv", []) for pair in item["keyToEnv"]}
    assert {item["name"] for item in container["env"] if "valueFrom" in item} == secrets
    assert [item for item in container["env"] if "value" in item] == executor["env"]
    assert container["image"] == executor["image"]


def test_a_run_of_a_thousand_pods_weighs_less_than_one_of_four(tmp_path: Path) -> None:
    by_job = line(tmp_path, GIVEN | HELD_OUT, workers=1000, fan_out="job", queue="day", priority="low")
    assert by_job < 500_000
    assert by_job < line(tmp_path, GIVEN | HELD_OUT, workers=2) < MAX_BYTES


def test_only_shared_stages_start_a_job_and_only_the_watcher_knows_of_it(tmp_path: Path) -> None:
    (file,) = compiler.run(CompileConfig(output=str(tmp_path / "made.yaml"), image=IMAGE, workers=64, fan_out="job"))
    pipeline, platform = documents(file.read_bytes())
    executors = pipeline["deploymentSpec"]["executors"]
    given = {
        name: {item["name"]: item["value"] for item in made["container"]["env"]} for name, made in executors.items()
    }
    starters = {name: JobConfig.parse(env[VARIABLE]) for name, env in given.items() if VARIABLE in env}
    assert set(starters) == {f"exec-{name}" for name in ("clean", "curate", "select", "train-tokenizer", "tokenize")}
    assert {(config.shares, config.image, config.cpu) for config in starters.values()} == {(64, IMAGE, "2")}
    # It outlives the Job that it waits for and watches.
    times = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert int(times["exec-clean"]["activeDeadlineSeconds"]) == (24 + 12) * 3600
    assert VARIABLE not in str(spec(starters["exec-curate"]))


def test_a_task_that_waits_for_a_job_does_not_take_its_place_in_the_queue(tmp_path: Path) -> None:
    config = CompileConfig(
        output=str(tmp_path / "made.yaml"), image=IMAGE, workers=64, fan_out="job", queue="day", queue_priority="soon"
    )
    (file,) = compiler.run(config)
    executors = documents(file.read_bytes())[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    queued = {name for name, made in executors.items() if "kueue" in str(made.get("podMetadata", {}))}
    assert {"exec-fetch", "exec-sample"} <= queued
    assert not queued & {f"exec-{name}" for name in ("clean", "curate", "select", "train-tokenizer", "tokenize")}


def test_a_priority_without_a_queue_is_refused() -> None:
    with pytest.raises(UsageError, match="queue_priority: needs queue"):
        Placement(queue_priority="soon")


def test_the_role_allows_what_is_asked_for_and_nothing_else() -> None:
    allowed = {
        (rule["apiGroups"][0], kind, verb) for rule in rules() for kind in rule["resources"] for verb in rule["verbs"]
    }
    assert allowed == {
        *(("batch", "jobs", verb) for verb in ("create", "get", "delete")),
        *(("", "pods", verb) for verb in ("get", "list")),
        ("", "pods/log", "get"),
        ("", "events", "list"),
        *(("kueue.x-k8s.io", kind, "list") for kind in ("localqueues", "workloads")),
    }


def test_the_example_is_such_a_job_of_a_command_that_exists() -> None:
    example = yaml.safe_load(EXAMPLE.read_text())
    kubernetes_validate.validate(example, "1.34", strict=True)
    made = spec(JobConfig(shares=8, image=IMAGE))["spec"]
    for name in ("completionMode", "completions", "parallelism", "podFailurePolicy", "podReplacementPolicy"):
        assert example["spec"][name] == made[name], name
    (container,) = example["spec"]["template"]["spec"]["containers"]
    assert container["name"] == CONTAINER
    given = {**cli.split(container["args"][1:]), "share": "1/8", "rows": "a", "tokenizer": "b"}
    assert cli.build(TokenizeConfig, given).finish
