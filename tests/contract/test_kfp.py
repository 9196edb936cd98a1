"""Components and pipeline as Kubeflow sees them: the compiled file, its traps, and signatures."""

import ast
import copy
import dataclasses
import inspect
import io
import re
import subprocess
import sys
import typing
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from components.fetch.config import KINDS, SHARES, FetchConfig
from components.fetch.core import Fetch
from components.sample.node.carry_out import Made
from components.sample.run import outcome as sample_outcome
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.options import MAX_SHARES, default_of, later_shares
from pairmill.interface import kfp as ours
from pairmill.interface import launcher, stagecli
from pipelines import compile as compiler
from pipelines.lint import lint
from pipelines.stages import EVERY, LAST, STAGES
from tests.support.helpers import REPOSITORY, python

FOLDER = REPOSITORY / "pipelines" / "compiled"
COMPILED = FOLDER / "pretraining.yaml"
PARALLEL = FOLDER / "pretraining-parallel.yaml"
TRAINING = FOLDER / "pretraining-train.yaml"
SHARED = [
    ("clean", 1),
    ("clean", 2),
    *(("curate", number) for number in STAGES["curate"].config.shared_rounds),
    *(("select", number) for number in STAGES["select"].config.shared_rounds),
    ("train_tokenizer", 1),
    ("tokenize", 1),
    ("tokenize", 2),
]
DIGEST = "sha256:" + "ab" * 32


def command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``pipelines.compile``, in this process, which has imported kfp already."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = compiler.main(arguments)
    return code, out.getvalue(), err.getvalue()


def compiled(folder: Path, *arguments: str) -> str:
    code, out, err = command(f"output={folder / 'made.yaml'}", *arguments)
    assert code == 0, err
    assert out == f"{folder / 'made.yaml'}\n"
    return (folder / "made.yaml").read_text()


def documents(file: Path) -> list[dict[str, Any]]:
    """The pipeline, and what only Kubernetes knows of: volumes, secrets, time limits."""
    found = compiler.documents(file.read_bytes())
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    return documents(COMPILED)[0]


@pytest.fixture(scope="module")
def parallel() -> dict[str, Any]:
    return documents(PARALLEL)[0]


BRANCHED = "sample-2"
"""The one task of the branch that a run with holdout= takes."""


def executors(spec: dict[str, Any]) -> dict[str, Any]:
    """The stages' containers; that of the branch is one of them again."""
    found = {name.removeprefix("exec-"): one["container"] for name, one in spec["deploymentSpec"]["executors"].items()}
    assert found.pop(BRANCHED) == found["sample"]
    return found


def tasks(spec: dict[str, Any]) -> dict[str, Any]:
    """The tasks, and the loops, outside the branch."""
    found = spec["root"]["dag"]["tasks"]
    return {name: task for name, task in found.items() if not name.startswith("condition-")}


def component(spec: dict[str, Any], stage: str) -> dict[str, Any]:
    found: dict[str, Any] = spec["components"][f"comp-{stage.replace('_', '-')}"]
    return found


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in [key, *strings(item)]]
    if isinstance(value, list):
        return [text for item in value for text in strings(item)]
    return [value] if isinstance(value, str) else []


# --- the compiled file ----------------------------------------------------------------------------------------------


def test_the_compiled_files_are_those_in_the_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ours.IMAGE_VARIABLE, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.compile"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.yaml")}
    assert sorted(done.stdout.split()) == sorted(made)
    kept = {str(path.relative_to(REPOSITORY)): path.read_text() for path in FOLDER.rglob("*.yaml")}
    assert made == kept, "run: python -m pipelines.compile"
    # What is beyond Latin-1 was refused by a real backend, and some databases know no more than ASCII for sure.
    assert all(text.isascii() for text in made.values())
    assert len(made) == 5 + len(EVERY)


def test_every_executor_uses_the_image_that_is_given_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ours.IMAGE_VARIABLE, raising=False)
    image = f"registry.example/pairmill@{DIGEST}"
    made = compiled(tmp_path, f"image={image}")
    # Sample has a second task, for held-out rows.
    assert made.count(image) == len(STAGES) + 1
    assert made.replace(image, ours.PLACEHOLDER_IMAGE) == COMPILED.read_text()
    made = compiled(tmp_path, f"image={image}", "fan_out=true")
    assert made.count(image) == len(STAGES) + len(SHARED) + 1
    assert made.replace(image, ours.PLACEHOLDER_IMAGE) == PARALLEL.read_text()
    made = compiled(tmp_path, f"image={image}", "component=clean")
    assert made.replace(image, ours.PLACEHOLDER_IMAGE) == (FOLDER / "components" / "clean.yaml").read_text()


def test_manifests_for_gitops_hold_the_same_pipeline(tmp_path: Path) -> None:
    options = ("form=manifests", "version=v1-0123456", "namespace=team", "fan_out=true")
    pipeline, version = compiler.documents(compiled(tmp_path, *options).encode())
    assert (pipeline["kind"], version["kind"]) == ("Pipeline", "PipelineVersion")
    assert pipeline["metadata"] == {"name": "pairmill-pretraining-parallel", "namespace": "team"}
    assert version["metadata"] == {"name": "v1-0123456", "namespace": "team"}
    assert version["spec"]["pipelineName"] == "pairmill-pretraining-parallel"
    assert version["spec"]["displayName"] == "v1-0123456"
    assert [version["spec"]["pipelineSpec"], version["spec"]["platformSpec"]] == documents(PARALLEL)


def test_another_content_is_another_version_for_gitops(tmp_path: Path) -> None:
    # A PipelineVersion is immutable: Kubeflow refuses a second one of its name with another content.
    names = []
    for options in ({}, {"namespace": "team"}, {"memory": "9Gi"}, {"fan_out": True}):
        (file,) = compiler.run(compiler.CompileConfig(form="manifests", output=str(tmp_path / "made.yaml"), **options))
        pipeline, version = compiler.documents(file.read_bytes())
        assert pipeline["metadata"]["name"] == version["spec"]["pipelineName"]
        names.append(version["metadata"]["name"])
        assert version["spec"]["displayName"] == names[-1]
    *names, parallel = names
    assert re.fullmatch("pairmill-pretraining-parallel-[0-9a-f]{12}", parallel)
    assert all(re.fullmatch("pairmill-pretraining-[0-9a-f]{12}", name) for name in names)
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("fan_out=true", "output: is empty; expected a file"),
        ("component=cleen", "component: unknown stage"),
        ("memory=lots", "memory: not a valid quantity; got 'lots'"),
        ("resources=clean.disk=4", "resources: not a resource of a stage; got clean.disk=4"),
        ("resources=clean.cpu=many", "clean.cpu: not a valid quantity; got 'many'; expected such as 2 or 500m"),
        ("memory=4", "memory: not a valid quantity; got '4'; expected such as 16Gi"),
        ("retries=-1", "retries: out of range"),
        ("timeout_hours=0", "timeout_hours: out of range"),
        ("node_selector=pool", "node_selector: not a node label; got pool"),
        ("tolerations=pool=data", "tolerations: not a toleration; got pool=data"),
        ("gpus=-1", "gpus: out of range"),
        ("gpu_nodes=a100", "gpu_nodes: not a node label; got a100"),
        ("resources=clean.shm=4Gi", "clean.shm: only what trains has one; got 4Gi; expected train.shm="),
        ("resources=train.memory=16Gi", "train.shm: what is in /dev/shm counts as memory of the pod; got 32Gi of 16Gi"),
        ("volume=Claim=/data", "volume: not a volume; got Claim=/data"),
        ("trainer_image=trainer:latest", "trainer_image: is not named by digest"),
    ],
)
def test_what_cannot_be_compiled_is_refused(tmp_path: Path, option: str, message: str) -> None:
    output = [] if option == "fan_out=true" else [f"output={tmp_path / 'made.yaml'}"]
    code, _, err = command(*output, option)
    assert code == 2
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("image", ["pairmill:latest", "pairmill", "registry.example/pairmill:v1.2.3"])
def test_an_image_that_is_not_named_by_digest_is_refused(tmp_path: Path, image: str) -> None:
    done = python("-m", "pipelines.compile", f"output={tmp_path / 'made.yaml'}", f"image={image}")
    assert done.returncode == 2
    assert "is not named by digest" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_tag_is_taken_where_it_is_asked_for(tmp_path: Path) -> None:
    assert compiled(tmp_path, "image=pairmill:dev", "allow_tag=true").count("image: pairmill:dev") == len(STAGES) + 1


def test_the_placeholder_image_can_never_be_pulled() -> None:
    assert re.fullmatch(r"registry\.invalid/[a-z/]+@sha256:0{64}", ours.PLACEHOLDER_IMAGE)


# --- traps of Kubeflow ----------------------------------------------------------------------------------------------


def test_the_pipeline_is_every_stage_once(spec: dict[str, Any]) -> None:
    names = {stage.replace("_", "-") for stage in STAGES}
    assert set(executors(spec)) == set(tasks(spec)) == names


def test_a_container_is_its_stages_module_and_the_executor_input_alone(spec: dict[str, Any]) -> None:
    # Any other placeholder fails where a default is used, or is text on a cluster: {{$}} alone holds everything.
    found = executors(spec)
    for stage in STAGES:
        container = found[stage.replace("_", "-")]
        assert container["command"] == ["python", "-m", f"components.{stage}"]
        assert container["args"] == [launcher.FLAG, "{{$}}"]
        assert set(container) == {"image", "command", "args", "env", "resources"}
        assert (REPOSITORY / "components" / stage / "__main__.py").is_file()
    assert len(found) == len(STAGES)


def test_no_placeholder_stands_anywhere_else(spec: dict[str, Any]) -> None:
    every = strings(spec)
    assert len(every) > 300
    assert every.count("{{$}}") == len(STAGES) + 1
    assert not [text for text in every if "{{" in text and text != "{{$}}"]
    # Within a branch kfp names the inputs, and writes the condition.
    every = strings([tasks(spec), [one for name, one in spec["components"].items() if "condition" not in name]])
    for trap in ("Concat", "IfPresent", "concat", "ifPresent", "importer", "pipelinechannel", "$(", "iterator"):
        assert not [text for text in every if trap in text], trap


def test_no_task_is_cached(spec: dict[str, Any]) -> None:
    # Kubeflow's cache never looks whether data changed or is still there.
    assert [task.get("cachingOptions", {}).get("enableCache", False) for task in tasks(spec).values()] == [False] * len(
        STAGES
    )
    assert all("cachingOptions" in task for task in tasks(spec).values())


def test_bulk_data_never_travels_as_an_artifact(spec: dict[str, Any]) -> None:
    # The launcher downloads every input artifact whole before the program starts.
    inspected = 0
    for stage in STAGES:
        for name in component(spec, stage)["inputDefinitions"].get("artifacts", {}):
            assert name.endswith("_manifest")
            inspected += 1
    for task in tasks(spec).values():
        for name, given in task["inputs"].get("artifacts", {}).items():
            assert name.endswith("_manifest")
            assert given["taskOutputArtifact"]["outputArtifactKey"] == launcher.MANIFEST
    assert inspected == 14


def test_no_artifact_goes_into_two_inputs_of_one_task(spec: dict[str, Any]) -> None:
    for task in tasks(spec).values():
        given = [
            (item["taskOutputArtifact"]["producerTask"], item["taskOutputArtifact"]["outputArtifactKey"])
            for item in task["inputs"].get("artifacts", {}).values()
        ]
        assert len(given) == len(set(given))


def test_every_required_input_is_passed_and_every_input_is_known(spec: dict[str, Any]) -> None:
    passed = 0
    for stage in STAGES:
        inputs = component(spec, stage)["inputDefinitions"]
        given = tasks(spec)[stage.replace("_", "-")]["inputs"]
        for kind in ("parameters", "artifacts"):
            known = inputs.get(kind, {})
            required = {name for name, item in known.items() if not item.get("isOptional")}
            if kind == "artifacts":  # lineage, which a share of the work leaves to the one that finishes
                assert not required
                required = set(known)
            assert required <= set(given.get(kind, {})) <= set(known)
            passed += len(given.get(kind, {}))
    assert passed > 20


def test_a_task_whose_data_comes_from_another_takes_its_manifest_too(spec: dict[str, Any]) -> None:
    # The string is the data, the artifact is the lineage; a string alone would leave a hole in it.
    edges = 0
    for name, task in tasks(spec).items():
        producers = {
            item["taskOutputParameter"]["producerTask"]
            for item in task["inputs"]["parameters"].values()
            if "taskOutputParameter" in item
        }
        lineage = {item["taskOutputArtifact"]["producerTask"] for item in task["inputs"].get("artifacts", {}).values()}
        assert producers == lineage == set(task.get("dependentTasks", [])), name
        edges += len(producers)
    assert edges == 14


def test_values_stay_small(spec: dict[str, Any]) -> None:
    # A value counts once for the executor input and once for each argument it stands in; Argo's limit is 128 KiB.
    sizes = []
    for stage in STAGES:
        defaults = [
            item.get("defaultValue", "") for item in component(spec, stage)["inputDefinitions"]["parameters"].values()
        ]
        sizes += [len(str(value)) for value in defaults]
        for text in [*executors(spec)[stage.replace("_", "-")]["args"], *map(str, defaults)]:
            assert len(text.encode()) < 4096
    assert len(sizes) > 25
    assert len(COMPILED.read_bytes()) < 100_000


def test_no_default_is_an_integer_that_a_double_cannot_hold(spec: dict[str, Any]) -> None:
    numbers = [
        item["defaultValue"]
        for stage in STAGES
        for item in component(spec, stage)["inputDefinitions"]["parameters"].values()
        if item["parameterType"] == "NUMBER_INTEGER" and "defaultValue" in item
    ]
    assert len(numbers) >= 10
    assert all(abs(number) < 2**53 and float(number).is_integer() for number in numbers)


def test_every_input_of_every_component_and_of_the_pipeline_is_described(spec: dict[str, Any]) -> None:
    described = 0
    for definition in [spec["root"], *(one for name, one in spec["components"].items() if "condition" not in name)]:
        for kind in ("parameters", "artifacts"):
            for name, item in definition["inputDefinitions"].get(kind, {}).items():
                assert item.get("description"), name
                described += 1
    assert described > 40


def test_every_declared_output_is_one_that_the_stage_provides(spec: dict[str, Any]) -> None:
    # A cluster fails a task whose declared output is missing.
    measures = dict.fromkeys(("epochs", "tokens_sampled", "unique_tokens", "response_tokens_sampled", "bytes"), 1)
    manifest = Manifest("sample", 1, "f", {"context_size": 1}, [], Ledger(measures=measures), [])
    manifest.data = {"analytics": "", "stats": {}, "lengths": [], "cuts": [], "rules": {}, "layout": "compact"}
    provided = {"sample": set(sample_outcome(Made(manifest, "x")).parameters)}
    source = ast.parse(inspect.getsource(stagecli.run))
    sharded = {
        key.value
        for node in ast.walk(source)
        if isinstance(node, ast.keyword) and node.arg == "parameters" and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }
    assert sharded == {"output", "fingerprint", "rows_out"}
    fetched = set(Fetch().parameters(FetchConfig(root="r", split=3)))
    assert fetched == {*(f"given_{name}" for name in KINDS), *SHARES}
    declared = 0
    for stage in STAGES:
        outputs = component(spec, stage)["outputDefinitions"]
        more = fetched if stage == "fetch" else {"rows_out"}
        assert set(outputs["parameters"]) == {"output", "fingerprint"} | more
        assert set(outputs["parameters"]) <= provided.get(stage, sharded | fetched)
        assert set(outputs["artifacts"]) == {launcher.MANIFEST, launcher.METRICS, launcher.REPORT}
        assert {item["artifactType"]["schemaTitle"] for item in outputs["artifacts"].values()} == {
            "system.Dataset",
            "system.Metrics",
            "system.HTML",
        }
        declared += len(outputs["parameters"])
    assert declared == 3 * len(STAGES) - 1 + len(KINDS) + len(SHARES)


# --- shared out over pods -------------------------------------------------------------------------------------------


def loops(spec: dict[str, Any]) -> dict[tuple[str, int], tuple[str, dict[str, Any], dict[str, Any]]]:
    """By stage and round, in order: the name of the loop, its task, and the task within it."""
    found = {}
    # kfp numbers loops, and YAML has names by the alphabet: for-loop-1, for-loop-10, for-loop-2.
    for name, task in sorted(tasks(spec).items(), key=lambda item: (len(item[0]), item[0])):
        if "parameterIterator" in task:
            (inner,) = spec["components"][task["componentRef"]["name"]]["dag"]["tasks"].values()
            title, _, number = inner["taskInfo"]["name"].partition(": a share of round ")
            assert inner["inputs"]["parameters"]["round"] == {"runtimeValue": {"constant": int(number)}}
            found[title.lower().replace(" ", "_"), int(number)] = (name, task, inner)
    return found


def test_the_pipeline_of_one_pod_a_stage_has_no_loop_and_one_task_a_stage(spec: dict[str, Any]) -> None:
    assert not loops(spec)
    assert len(tasks(spec)) == len(STAGES)
    assert len(spec["components"]) == len(STAGES) + 2  # the branch, and its task
    assert "workers" not in spec["root"]["inputDefinitions"]["parameters"]


@pytest.mark.parametrize(
    ("without", "fan_out"),
    [
        (("clean",), True),
        (("clean", "train_tokenizer"), True),
        (("clean", "train_tokenizer", "tokenize"), False),
    ],
)
def test_a_pipeline_for_one_run_leaves_out_what_is_given(
    tmp_path: Path, without: tuple[str, ...], fan_out: bool
) -> None:
    target = tmp_path / "pipeline.yaml"
    compiler.run(compiler.CompileConfig(output=str(target), fan_out=fan_out, image=f"a@{DIGEST}"), without)
    spec = documents(target)[0]
    left = [stage for stage in STAGES if stage not in without]
    named = {name.replace("-", "_") for name, task in tasks(spec).items() if name.replace("-", "_") in STAGES}
    assert named == set(left)
    assert set(loops(spec)) == ({item for item in SHARED if item[0] in left} if fan_out else set())
    assert not lint(documents(target))
    for name, task in tasks(spec).items():
        artifacts = [str(source) for source in task["inputs"].get("artifacts", {}).values()]
        assert len(artifacts) == len(set(artifacts)), name
    reads = tasks(spec)["sample"]["inputs"]["parameters"]["tokenized_path"]["taskOutputParameter"]
    expected = ("fetch", "given_tokenized") if "tokenize" in without else ("tokenize", "output")
    assert (reads["producerTask"], reads["outputParameterKey"]) == expected


def test_shares_of_each_round_are_a_loop_and_the_task_that_finishes_is_last(
    spec: dict[str, Any], parallel: dict[str, Any]
) -> None:
    found = loops(parallel)
    # kfp sorts tasks by name, and numbers loops as they are made.
    assert sorted(found, key=lambda key: int(found[key][0].rpartition("-")[2])) == SHARED
    alone = copy.deepcopy(tasks(spec))
    for name, task in tasks(parallel).items():
        if "parameterIterator" in task:
            continue
        # All but the loops is the pipeline of one pod a stage.
        stage = name.replace("-", "_")
        expected = alone[name]
        given = dict(task["inputs"]["parameters"])
        if stage == "fetch":
            assert given.pop("split") == {"componentInputParameter": "workers"}
            expected["inputs"]["parameters"].pop("split")
        assert given == expected["inputs"]["parameters"]
        assert task["inputs"].get("artifacts") == expected["inputs"].get("artifacts")
        before = set(expected.get("dependentTasks", []))
        # Each round waits for the one before it, and what finishes for the last one.
        for number in STAGES[stage].config.shared_rounds if stage in dict(SHARED) else ():
            loop, task_of_loop, _ = found[stage, number]
            assert set(task_of_loop["dependentTasks"]) == before | {"fetch"}
            before = {one for one in before if "for-loop" not in one} | {loop}
        assert set(task.get("dependentTasks", [])) == before


def test_a_share_is_given_what_the_finishing_task_is_given_but_lineage(parallel: dict[str, Any]) -> None:
    inspected = 0
    for (stage, number), (_, loop, inner) in loops(parallel).items():
        assert loop["iteratorPolicy"] == {"parallelismLimit": 16}
        shares = loop["inputs"]["parameters"][loop["parameterIterator"]["items"]["inputParameter"]]
        key = f"{stage}_shares" if number == 1 else f"{stage}_later_shares"
        assert SHARES[key] == (stage, number > 1)
        assert shares == {"taskOutputParameter": {"outputParameterKey": key, "producerTask": "fetch"}}
        item = loop["parameterIterator"]["itemInput"]
        whole = tasks(parallel)[stage.replace("_", "-")]["inputs"]["parameters"]
        given = {}
        for name, source in inner["inputs"]["parameters"].items():
            if name != "round":
                key = source["componentInputParameter"]
                given[name] = "share" if key == item else loop["inputs"]["parameters"][key]
        assert given == {**whole, "share": "share"}
        # Of 2.17 no run is on record that brought an artifact into a loop.
        assert "artifacts" not in inner["inputs"]
        inspected += len(given)
    assert inspected > 15


def test_every_task_of_both_pipelines_has_its_place_on_the_cluster() -> None:
    inspected = 0
    for file in (COMPILED, PARALLEL):
        spec, platform = documents(file)
        on_kubernetes = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        assert set(on_kubernetes) == set(spec["deploymentSpec"]["executors"])
        for name, one in on_kubernetes.items():
            assert one["activeDeadlineSeconds"] == str(24 * 3600)
            assert one["emptyDirMounts"] == [{"mountPath": "/scratch", "sizeLimit": "50Gi", "volumeName": "scratch"}]
            assert {item["optional"] for kind in ("secretAsEnv", "secretAsVolume") for item in one[kind]} == {True}
            container = spec["deploymentSpec"]["executors"][name]["container"]
            places = {"TMPDIR": "/scratch", "HF_HOME": "/scratch/huggingface"}
            assert {one["name"]: one["value"] for one in container["env"]} == places
            assert container["resources"] == {
                "memoryLimit": 4.294967296,
                "memoryRequest": 1.073741824,
                "cpuLimit": 2.0,
                "cpuRequest": 0.5,
                "resourceMemoryLimit": "4Gi",
                "resourceMemoryRequest": "1024Mi",
                "resourceCpuLimit": "2",
                "resourceCpuRequest": "500m",
            }
        inner = [task for *_, task in loops(spec).values()]
        for task in [*inner, *(task for task in tasks(spec).values() if "parameterIterator" not in task)]:
            assert task["retryPolicy"] == {
                "maxRetryCount": 2,
                "backoffDuration": "30s",
                "backoffFactor": 2.0,
                # Of all attempts together, for Argo.
                "backoffMaxDuration": f"{3 * 24 * 3600}s",
            }
            assert task["cachingOptions"] == {}
            inspected += 1
    assert inspected == 2 * len(STAGES) + len(SHARED)


def test_only_what_asks_the_hub_has_its_token() -> None:
    for file in (COMPILED, PARALLEL):
        platform = documents(file)[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        having = set()
        for name, one in platform.items():
            secrets = {
                pair["envVar"]: given["secretName"] for given in one["secretAsEnv"] for pair in given["keyToEnv"]
            }
            mounted = {given["secretName"] for given in one["secretAsVolume"]}
            # Every key of a secret that is mounted is a file.
            assert mounted == {"pairmill-storage"}
            if "HF_TOKEN" in secrets:
                having.add(name)
                assert secrets["HF_TOKEN"] == "pairmill-hub"
        assert having == {name for name in platform if name.startswith(("exec-fetch", "exec-curate"))}
        assert len(having) >= 2


def test_the_most_shares_fit_into_a_workflow_object(parallel: dict[str, Any]) -> None:
    # Measured on a stock installation, whose every template is wrapped in a retry: docs/decisions/0013-fan-out.md.
    measured_bytes, limit = 194_000, 1 << 20
    branch = 2 * 2 + 6  # its driver and itself, and of its task what of any task

    def nodes(shares: int, later: int) -> int:
        # The workflow, the driver of its root, and the root, each with its attempt. Of a task its driver, itself and
        # its executor; of a loop its driver, itself, what groups its iterations, and in each of these the iteration,
        # its driver, what is in it, and that one's driver, task and executor.
        found = 2 * 3 + 6 * len(STAGES) + branch
        return found + sum(5 + 12 * (shares if number == 1 else later) for _, number in loops(parallel))

    # Recorded with five stages and a loop for each of three, before there were later rounds, curate, select, mix and
    # the branch.
    later = sum(number > 1 for _, number in loops(parallel))
    recorded = [nodes(shares, 0) - later * 5 - branch - 2 * (6 + 5 + 12 * shares) - 6 for shares in (2, 3)]
    assert recorded == [123, 159]
    sizes = [nodes(count, later_shares(count)) * measured_bytes / 159 for count in range(1, MAX_SHARES + 2)]
    assert max(sizes[:-1]) < 0.925 * limit < nodes(MAX_SHARES + 1, 0) * measured_bytes / 159
    assert [later_shares(count) for count in (1, 2, 3, 12, 16, 20)] == [1, 2, 3, 0, 0, 0]
    assert [later_shares(count) for count in range(4, 12)] == [3, 3, 2, 2, 0, 0, 0, 0]
    assert nodes(4, 4) * measured_bytes / 159 > 0.925 * limit


def test_placement_is_what_is_asked_for(tmp_path: Path) -> None:
    compiled(
        tmp_path,
        "memory=6Gi",
        "resources=tokenize.memory=1Gi,tokenize.cpu=4,sample.scratch=2Gi",
        "node_selector=pool=data,zone=a",
        "tolerations=pool=data:NoSchedule,spot:NoExecute",
        "retries=0",
        "timeout_hours=2",
        "secret=",
        "hub_secret=",
        "volume=pairmill=/project",
    )
    spec, platform = documents(tmp_path / "made.yaml")
    found = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert len(found) == len(STAGES) + 1
    for one in found.values():
        assert one["nodeSelector"] == {"labels": {"pool": "data", "zone": "a"}}
        assert one["tolerations"] == [
            {"key": "pool", "operator": "Equal", "value": "data", "effect": "NoSchedule"},
            {"key": "spot", "operator": "Exists", "effect": "NoExecute"},
        ]
        assert one["activeDeadlineSeconds"] == "7200"
        assert [item["secretName"] for item in one["secretAsEnv"]] == ["mlpipeline-minio-artifact"]
        assert "secretAsVolume" not in one
        assert [(item["constant"], item["mountPath"]) for item in one["pvcMount"]] == [("pairmill", "/project")]
    sizes = {
        name: (one["resources"]["resourceMemoryLimit"], one["resources"]["resourceMemoryRequest"])
        for name, one in executors(spec).items()
    }
    assert sizes == {name: ("1Gi", "256Mi") if name == "tokenize" else ("6Gi", "1536Mi") for name in executors(spec)}
    assert executors(spec)["tokenize"]["resources"]["resourceCpuLimit"] == "4"
    assert executors(spec)["tokenize"]["resources"]["resourceCpuRequest"] == "1000m"
    assert found["exec-sample"]["emptyDirMounts"][0]["sizeLimit"] == "2Gi"
    assert all("maxRetryCount" not in task["retryPolicy"] for task in tasks(spec).values())


# --- signature = dataclass ------------------------------------------------------------------------------------------

# What the pipeline must say although the command line has a default for it.
STRICTER = {("sample", "root"), ("sample", "output_path"), ("sample", "tokenized_path")}
_TYPES = {"STRING": {str}, "NUMBER_INTEGER": {int}, "NUMBER_DOUBLE": {float}, "BOOLEAN": {bool}}


def kubeflow_type(kind: Any) -> type:
    """A text for lists (joined by commas) and for choices, the type itself for the others."""
    if kind == list[str] or typing.get_origin(kind) is typing.Literal:
        return str
    assert kind in {str, int, float, bool}
    return typing.cast(type, kind)


def test_a_components_parameters_are_its_stages_options(spec: dict[str, Any]) -> None:
    inspected, stricter = 0, set()
    for stage in STAGES:
        config = STAGES[stage].config
        hints = typing.get_type_hints(config)
        parameters = component(spec, stage)["inputDefinitions"]["parameters"]
        assert set(parameters) == {item.name for item in dataclasses.fields(config)}, stage
        for item in dataclasses.fields(config):
            shown = parameters[item.name]
            assert kubeflow_type(hints[item.name]) in _TYPES[shown["parameterType"]], f"{stage}.{item.name}"
            has_default = item.default is not dataclasses.MISSING or item.default_factory is not dataclasses.MISSING
            if not has_default:
                assert "defaultValue" not in shown, f"{stage}.{item.name}"
                assert not shown.get("isOptional"), f"{stage}.{item.name}"
            elif "defaultValue" not in shown:
                stricter.add((stage, item.name))
            else:
                assert shown["defaultValue"] == default_of(item), f"{stage}.{item.name}"
            assert shown["description"] == item.metadata["help"]
            inspected += 1
    assert inspected == sum(len(dataclasses.fields(stage.config)) for stage in STAGES.values()) >= 30
    assert stricter == STRICTER


@pytest.fixture(scope="module")
def training() -> dict[str, Any]:
    return documents(TRAINING)[0]


def test_what_trains_takes_its_options_as_parameters(training: dict[str, Any]) -> None:
    config = LAST["train"].config
    parameters = component(training, "train")["inputDefinitions"]["parameters"]
    assert set(parameters) == {item.name for item in dataclasses.fields(config)}
    required = {name for name, item in parameters.items() if not item.get("isOptional")}
    assert required == {"root", "sampled"}
    outputs = component(training, "train")["outputDefinitions"]
    assert set(outputs["parameters"]) == {"output", "fingerprint", "rows_out"}
    assert set(outputs["artifacts"]) == {launcher.MANIFEST, launcher.METRICS, launcher.REPORT}


def test_a_default_that_kubeflow_hands_over_gives_the_options_default(spec: dict[str, Any]) -> None:
    from pairmill.interface import cli

    inspected = 0
    for stage in STAGES:
        config = STAGES[stage].config
        parameters = component(spec, stage)["inputDefinitions"]["parameters"]
        values = {name: item["defaultValue"] for name, item in parameters.items() if "defaultValue" in item}
        values = {name: float(value) if type(value) is int else value for name, value in values.items()}
        # What other stages made is given, though rows= may be left out beside tokens=.
        values = {name: value for name, value in values.items() if name not in STAGES[stage].reads}
        required = {name: "x" for name in parameters if name not in values}
        built = cli.build(config, {**values, **required})
        plain = cli.build(config, required)
        assert built == plain
        inspected += len(values)
    assert inspected > 20


def test_the_pipelines_own_defaults_are_those_of_the_stages(spec: dict[str, Any]) -> None:
    root = spec["root"]["inputDefinitions"]["parameters"]
    inspected = 0
    for stage in STAGES:
        shown = component(spec, stage)["inputDefinitions"]["parameters"]
        for name, given in tasks(spec)[stage.replace("_", "-")]["inputs"]["parameters"].items():
            if "componentInputParameter" not in given:
                continue
            outer = root[given["componentInputParameter"]]
            assert outer["parameterType"] == shown[name]["parameterType"]
            if "defaultValue" in shown[name]:
                assert outer["defaultValue"] == shown[name]["defaultValue"], f"{stage}.{name}"
            inspected += 1
    assert inspected > 15


# --- what the interface shows ---------------------------------------------------------------------------------------


def test_the_description_has_every_parameter_in_its_group_and_links(tmp_path: Path) -> None:
    for file, more in ((COMPILED, set()), (PARALLEL, {"workers"})):
        spec = documents(file)[0]
        text = spec["pipelineInfo"]["description"]
        assert spec["pipelineInfo"]["displayName"].startswith("Pretraining data")
        shown = re.findall(r"^- `(\w+)`: \S", text, re.MULTILINE)
        assert sorted(shown) == sorted(spec["root"]["inputDefinitions"]["parameters"])
        assert ("workers" in shown) == bool(more)
        pages = re.findall(r"docs/\w+\.md", text)
        assert len(pages) == 3
        assert all((REPOSITORY / page).is_file() for page in pages)
    compiled(tmp_path, "docs=https://git.example/team/pairmill/")
    text = documents(tmp_path / "made.yaml")[0]["pipelineInfo"]["description"]
    assert "[Operating it](https://git.example/team/pairmill/docs/operations.md)" in text


def test_every_task_has_a_title(spec: dict[str, Any]) -> None:
    titles = ["Clean", "Curate", "Fetch", "Mix", "Sample", "Select", "Tokenize", "Train tokenizer"]
    assert sorted(task["taskInfo"]["name"] for task in tasks(spec).values()) == titles


def test_kfps_own_compiler_makes_the_same_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ours.IMAGE_VARIABLE, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    target = tmp_path / "made.yaml"
    program = Path(sys.executable).with_name("kfp")
    command = [program, "dsl", "compile", "--py", "pipelines/pretraining.py", "--output", target]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    assert target.read_text() == COMPILED.read_text()


# --- a pipeline that ends in a training -----------------------------------------------------------------------------

BRANCHES = "condition-branches-1"


def branches(spec: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Tasks by branch: of a run with held-out rows, and of one without."""
    found = component(spec, BRANCHES)["dag"]["tasks"]
    conditions = [one["triggerPolicy"]["condition"] for one in found.values()]
    held = "inputs.parameter_values['pipelinechannel--holdout'] != ''"
    assert conditions == [held, f"!({held})"]
    return {name: component(spec, name)["dag"]["tasks"] for name in found}


def test_a_pipeline_that_trains_is_the_other_one_and_a_task(spec: dict[str, Any], training: dict[str, Any]) -> None:
    assert training["pipelineInfo"]["name"] == "pairmill-pretraining-train"
    assert not lint(documents(TRAINING))
    own = copy.deepcopy(tasks(training))
    # It looks for the file of the training too.
    assert own["fetch"]["inputs"]["parameters"].pop("train_config") == {"componentInputParameter": "train_config"}
    assert own == tasks(spec)
    for stage in STAGES:
        assert component(training, stage) == component(spec, stage)
    held, without = branches(training).values()
    assert list(held) == ["sample-2", "train"]
    assert list(without) == ["train-2"]
    # Nothing goes into a branch as an artifact.
    assert not [task for task in (*held.values(), *without.values()) if "artifacts" in task["inputs"]]
    given = dict(without["train-2"]["inputs"]["parameters"])
    assert given.pop("sampled") == {"componentInputParameter": "pipelinechannel--sample-output"}
    assert set(given) == {"root", "set", "train_config"}
    more = {"held_out": {"taskOutputParameter": {"outputParameterKey": "output", "producerTask": "sample-2"}}}
    assert held["train"]["inputs"]["parameters"] == without["train-2"]["inputs"]["parameters"] | more
    branched = training["root"]["dag"]["tasks"][BRANCHES]
    read = branched["inputs"]["parameters"]["pipelinechannel--sample-output"]
    assert read == {"taskOutputParameter": {"outputParameterKey": "output", "producerTask": "sample"}}


def test_the_form_of_a_pipeline_that_trains_has_its_own_group(spec: dict[str, Any], training: dict[str, Any]) -> None:
    root = training["root"]["inputDefinitions"]["parameters"]
    assert root.keys() - spec["root"]["inputDefinitions"]["parameters"].keys() == {"train_config", "set"}
    text = training["pipelineInfo"]["description"]
    assert "\n**Training**\n\n- `train_config`: " in text
    assert "Training" not in spec["pipelineInfo"]["description"]
    pages = re.findall(r"docs/\w+\.md", text)
    assert len(pages) == 4
    assert all((REPOSITORY / page).is_file() for page in pages)


def test_the_pod_that_trains_has_gpus_memory_and_an_image_of_its_own() -> None:
    spec, platform = documents(TRAINING)
    kubernetes = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    containers = {name: one["container"] for name, one in spec["deploymentSpec"]["executors"].items()}
    images = {name: one["image"] for name, one in containers.items()}
    assert {name for name, image in images.items() if image != ours.PLACEHOLDER_IMAGE} == {"exec-train", "exec-train-2"}
    for name in ("exec-train", "exec-train-2"):
        assert images[name] == ours.PLACEHOLDER_IMAGE.replace("pipeline", "trainer")
        resources = containers[name]["resources"]
        assert (resources["accelerator"]["resourceType"], resources["accelerator"]["resourceCount"]) == (
            "nvidia.com/gpu",
            "1",
        )
        assert (resources["resourceCpuLimit"], resources["resourceMemoryLimit"]) == ("8", "64Gi")
        # What is in /dev/shm is memory of the node: the scheduler has to know of it.
        assert resources["resourceMemoryRequest"] == f"{(32 + (64 - 32) // 4) * 1024}Mi"
        shm = {"mountPath": "/dev/shm", "medium": "Memory", "sizeLimit": "32Gi", "volumeName": "shm"}
        assert shm in kubernetes[name]["emptyDirMounts"]
        assert kubernetes[name]["tolerations"] == [
            {"effect": "NoSchedule", "key": "nvidia.com/gpu", "operator": "Exists"}
        ]
        secrets = {one["secretName"]: one["keyToEnv"] for one in kubernetes[name]["secretAsEnv"]}
        assert [one["envVar"] for one in secrets["pairmill-hub"]] == ["WANDB_API_KEY"]
    others = [one for name, one in containers.items() if name not in ("exec-train", "exec-train-2")]
    assert len(others) == len(STAGES) + 1
    assert not [one for one in others if "accelerator" in one["resources"]]


def test_where_it_trains_is_asked_for(tmp_path: Path) -> None:
    trainer = f"registry.example/trainer@{DIGEST}"
    made = compiled(
        tmp_path,
        "train=true",
        f"trainer_image={trainer}",
        "gpus=4",
        "gpu=amd.com/gpu",
        "gpu_nodes=accelerator=mi300",
        "node_selector=pool=data",
        "resources=train.memory=512Gi,train.shm=200Gi",
    )
    assert made.count(trainer) == 2
    spec, platform = documents(tmp_path / "made.yaml")
    found = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert found["exec-clean"]["nodeSelector"] == {"labels": {"pool": "data"}}
    assert found["exec-train"]["nodeSelector"] == {"labels": {"accelerator": "mi300"}}
    assert found["exec-train"]["tolerations"][0]["key"] == "amd.com/gpu"
    assert found["exec-train"]["emptyDirMounts"][1]["sizeLimit"] == "200Gi"
    resources = spec["deploymentSpec"]["executors"]["exec-train"]["container"]["resources"]
    assert resources["accelerator"]["resourceCount"] == "4"
    assert resources["resourceMemoryLimit"] == "512Gi"
    compiled(tmp_path, "train=true", "gpus=0", "fan_out=true")
    spec, platform = documents(tmp_path / "made.yaml")
    assert spec["pipelineInfo"]["name"] == "pairmill-pretraining-parallel-train"
    assert "accelerator" not in spec["deploymentSpec"]["executors"]["exec-train"]["container"]["resources"]
    assert "tolerations" not in platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-train"]
    assert set(loops(spec)) == set(SHARED)
