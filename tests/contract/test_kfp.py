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

from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.options import default_of
from pairmill.interface import launcher, stagecli
from pairmill.kubeflow import compile as compiler
from pairmill.kubeflow import component as ours
from pairmill.kubeflow.lint import lint
from pairmill.line import parameters as pipeline_parameters
from pairmill.line.stages import EVERY, LAST, STAGES
from pairmill.line.table import LINE
from pairmill.stages.fetch.config import KINDS, FetchConfig
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.sample.node.carry_out import CarriedOut
from pairmill.stages.sample.run import outcome as sample_outcome
from tests.support.helpers import REPOSITORY

FOLDER = REPOSITORY / "pipelines" / "compiled"
COMPILED = FOLDER / "pretraining.yaml"
PARALLEL = FOLDER / "pretraining-parallel.yaml"
TRAINING = FOLDER / "pretraining-train.yaml"
SHARED = ["clean", "curate", "select", "train_tokenizer", "tokenize"]
WORKERS = compiler.MAX_WORKERS
DIGEST = "sha256:" + "ab" * 32


def command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``pairmill compile``, in this process, which has imported kfp already."""
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


BRANCHED = "held-out-sample"
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


def whole(stage: str) -> dict[str, Any]:
    """The component of a stage for pipelines of others."""
    spec = compiler.documents((REPOSITORY / "components" / stage / "component.yaml").read_bytes())[0]
    (found,) = spec["components"].values()
    return dict(found)


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
        [sys.executable, "-m", "pairmill", "compile"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.yaml")}
    assert sorted(done.stdout.split()) == sorted(made)
    files = [*FOLDER.rglob("*.yaml"), *REPOSITORY.glob("components/*/component.yaml")]
    kept = {str(path.relative_to(REPOSITORY)): path.read_text() for path in files}
    assert made == kept, "run: pairmill compile"
    # What is beyond Latin-1 was refused by a real backend, and some databases know no more than ASCII for sure.
    assert all(text.isascii() for text in made.values())
    assert len(made) == 6 + len(EVERY)


def test_every_executor_uses_the_image_that_is_given_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ours.IMAGE_VARIABLE, raising=False)
    image = f"registry.example/pairmill@{DIGEST}"
    made = compiled(tmp_path, f"image={image}")
    # Sample has a second task, for held-out rows.
    assert made.count(image) == len(STAGES) + 1
    assert made.replace(image, ours.PLACEHOLDER_IMAGE) == COMPILED.read_text()
    made = compiled(tmp_path, f"image={image}", f"workers={WORKERS}")
    assert made.count(image) == len(STAGES) + len(SHARED) * (WORKERS - 1) + 1
    assert made.replace(image, ours.PLACEHOLDER_IMAGE) == PARALLEL.read_text()
    made = compiled(tmp_path, f"image={image}", "component=clean")
    assert (
        made.replace(image, ours.PLACEHOLDER_IMAGE)
        == (REPOSITORY / "components" / "clean" / "component.yaml").read_text()
    )


def test_manifests_for_gitops_hold_the_same_pipeline(tmp_path: Path) -> None:
    options = ("form=manifests", "version=v1-0123456", "namespace=team", f"workers={WORKERS}")
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
    for options in ({}, {"namespace": "team"}, {"memory": "9Gi"}, {"workers": 2}):
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
        ("workers=2", "output: is empty; expected a file"),
        ("workers=0", f"workers: out of range; got 0; expected 1 to {WORKERS}"),
        (f"workers={WORKERS + 1}", f"workers: out of range; got {WORKERS + 1}; expected 1 to {WORKERS}; Argo"),
        ("component=cleen", "component: unknown value; got 'cleen'"),
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
    output = [] if option == "workers=2" else [f"output={tmp_path / 'made.yaml'}"]
    code, _, err = command(*output, option)
    assert code == 2
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("image", ["pairmill:latest", "pairmill", "registry.example/pairmill:v1.2.3"])
def test_an_image_that_is_not_named_by_digest_is_refused(tmp_path: Path, image: str) -> None:
    code, _, err = command(f"output={tmp_path / 'made.yaml'}", f"image={image}")
    assert code == 2
    assert "is not named by digest" in err
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
        assert container["command"] == ["python", "-m", "pairmill", "stage", stage]
        assert container["args"] == [launcher.FLAG, "{{$}}"]
        assert set(container) == {"image", "command", "args", "env", "resources"}
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


def test_no_artifact_of_one_task_goes_into_another(spec: dict[str, Any]) -> None:
    # The launcher downloads every input artifact whole before the program starts, and each that a task is given is
    # eight times in the workflow object. Strings are the data; a folder's manifest says what it was made of.
    for task in tasks(spec).values():
        assert "artifacts" not in task["inputs"]
    inspected = 0
    for stage in STAGES:
        assert "artifacts" not in component(spec, stage)["inputDefinitions"]
        # Pipelines of others may pass manifests on.
        for name in whole(stage)["inputDefinitions"].get("artifacts", {}):
            assert name.endswith("_manifest")
            inspected += 1
    assert inspected == 14


def test_every_required_input_is_passed_and_every_input_is_known(spec: dict[str, Any]) -> None:
    passed = 0
    for stage in STAGES:
        declared = component(spec, stage)["inputDefinitions"]["parameters"]
        given = tasks(spec)[stage.replace("_", "-")]["inputs"]["parameters"]
        assert set(given) == set(declared)
        alone = set(given) - {launcher.OPTIONS, launcher.DEFAULTS}
        if stage != "fetch":
            # Of the component's own inputs each that is required is passed, alone or with the others.
            known = whole(stage)["inputDefinitions"]["parameters"]
            assert alone <= set(known)
            required = {name for name, item in known.items() if not item.get("isOptional")}
            together = {"root", *pipeline_parameters.handed_on()}
            assert required <= alone | together, stage
        passed += len(given)
    assert passed > 40


def test_fetch_hands_on_every_option_that_it_does_not_answer_itself(spec: dict[str, Any]) -> None:
    given = tasks(spec)["fetch"]["inputs"]["parameters"]
    root = spec["root"]["inputDefinitions"]["parameters"]
    assert set(given) == {*root, launcher.DEFAULTS}
    assert all(given[name] == {"componentInputParameter": name} for name in root)
    assert given[launcher.DEFAULTS]["runtimeValue"]["constant"] == pipeline_parameters.defaults()
    defaults = pipeline_parameters.handed_on()
    # Root and places of finished data: it knows them better than who gave them.
    assert set(root) - set(defaults) == {"root", "raw", *KINDS}
    for name, default in defaults.items():
        stages = [stage for stage in STAGES if stage != "fetch" and name in _fields(stage)]
        assert stages, name
        assert {default_of(_fields(stage)[name]) for stage in stages} == {default}, name


def _fields(stage: str) -> dict[str, "dataclasses.Field[Any]"]:
    return {item.name: item for item in dataclasses.fields(STAGES[stage].config)}


def test_a_task_is_passed_options_all_at_once_and_alone_what_other_tasks_made(spec: dict[str, Any]) -> None:
    edges = 0
    for stage in STAGES:
        task = tasks(spec)[stage.replace("_", "-")]
        given = dict(task["inputs"]["parameters"])
        producers = {
            item["taskOutputParameter"]["producerTask"] for item in given.values() if "taskOutputParameter" in item
        }
        assert producers == set(task.get("dependentTasks", [])), stage
        edges += len(producers)
        if stage == "fetch":
            continue
        source = {"taskOutputParameter": {"outputParameterKey": launcher.OPTIONS, "producerTask": "fetch"}}
        assert given.pop(launcher.OPTIONS) == source
        assert set(given) <= set(STAGES[stage].reads), stage
    assert edges > 14


@pytest.mark.parametrize("file", [COMPILED, PARALLEL, TRAINING])
def test_every_compiled_line_is_the_table(file: Path) -> None:
    """Each task of the table is a task of the graph, in each of its branches, with its edges and no others."""
    spec = documents(file)[0]
    graphs = [spec["root"]["dag"], *(one["dag"] for one in spec["components"].values() if "dag" in one)]
    placed: dict[str, list[dict[str, Any]]] = {}
    for graph in graphs:
        for name, task in graph["tasks"].items():
            if name.startswith("condition"):
                continue
            read: dict[str, Any] = {}
            for option, value in task["inputs"]["parameters"].items():
                if "taskOutputParameter" in value:
                    read[option] = "{producerTask}-{outputParameterKey}".format(**value["taskOutputParameter"])
                elif str(value.get("componentInputParameter")).startswith("pipelinechannel--"):
                    read[option] = value["componentInputParameter"].removeprefix("pipelinechannel--")
                elif "runtimeValue" in value and option != launcher.DEFAULTS:
                    read[option] = value["runtimeValue"]["constant"]
            placed.setdefault(re.sub("-share(-[0-9]+)?$|(?<=train)-[0-9]+$", "", name), []).append(read)
    expected = {task.name.replace("_", "-"): task for task in LINE if task.stage != "train" or file == TRAINING}
    assert placed.keys() == expected.keys()
    for name, task in expected.items():
        edges = {option: f"{source.replace('_', '-')}-output" for option, source in task.reads.items()}
        edges |= task.options
        if name == "train":
            own = {option: option for option in pipeline_parameters.taken("train")}
            apart = edges.pop("held_out")
            # Where nothing is held out the other branch trains.
            assert sorted(placed[name], key=len) == [{**own, **edges}, {**own, **edges, "held_out": apart}]
            continue
        handed = {} if name == "fetch" else {launcher.OPTIONS: "fetch-options"}
        shares = WORKERS if task.shared and file == PARALLEL else 1
        assert len(placed[name]) == shares, name
        for read in placed[name]:
            shared = {read.pop("share", None), read.pop("finish", None)} - {None}
            assert bool(shared) == (shares > 1), name
            assert read == {**edges, **handed}, name


def test_values_stay_small(spec: dict[str, Any]) -> None:
    # A value counts once for the executor input and once for each argument it stands in; Argo's limit is 128 KiB.
    sizes = []
    for stage in STAGES:
        defaults = [item.get("defaultValue", "") for item in whole(stage)["inputDefinitions"]["parameters"].values()]
        sizes += [len(str(value)) for value in defaults]
        for text in [*executors(spec)[stage.replace("_", "-")]["args"], *map(str, defaults)]:
            assert len(text.encode()) < 4096
    assert len(sizes) > 25
    assert len(COMPILED.read_bytes()) < 50_000


def test_no_default_is_an_integer_that_a_double_cannot_hold() -> None:
    numbers = [
        item["defaultValue"]
        for stage in STAGES
        for item in whole(stage)["inputDefinitions"]["parameters"].values()
        if item["parameterType"] == "NUMBER_INTEGER" and "defaultValue" in item
    ]
    assert len(numbers) >= 10
    assert all(abs(number) < 2**53 and float(number).is_integer() for number in numbers)


def test_every_input_is_described_where_people_look_and_in_no_task(spec: dict[str, Any]) -> None:
    described = 0
    for definition in map(whole, EVERY):
        for kind in ("parameters", "artifacts"):
            for item in definition["inputDefinitions"].get(kind, {}).values():
                assert item.get("description")
                described += 1
    assert described > 100
    # The text of the pipeline's own form is its description (below): each that a task has is there eight times.
    every = {key for text in _nested([spec["root"], spec["components"], spec["deploymentSpec"]]) for key in text}
    assert "description" not in every
    for stage in STAGES:
        for item in component(spec, stage)["inputDefinitions"]["parameters"].values():
            assert set(item) == {"parameterType"}


def _nested(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(one for item in value.values() for one in _nested(item))]
    return [one for item in value for one in _nested(item)] if isinstance(value, list) else []


def test_every_declared_output_is_one_that_the_stage_provides(spec: dict[str, Any]) -> None:
    # A cluster fails a task whose declared output is missing.
    measures = dict.fromkeys(("epochs", "tokens_sampled", "unique_tokens", "response_tokens_sampled", "bytes"), 1)
    manifest = Manifest("sample", 1, "f", {"context_size": 1}, [], Ledger(measures=measures), [])
    manifest.data = {
        "analytics": "",
        "stats": {},
        "lengths": [],
        "cuts": [],
        "rules": {},
        "layout": "compact",
        "sources": [],
    }
    provided = {"sample": set(sample_outcome(CarriedOut(manifest, "x")).parameters)}
    source = ast.parse(inspect.getsource(stagecli.run))
    sharded = {
        key.value
        for node in ast.walk(source)
        if isinstance(node, ast.keyword) and node.arg == "parameters" and isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }
    assert sharded == {"output", "fingerprint", "rows_out"}
    fetched = set(Fetch().outputs(FetchConfig(root="r"), manifest, "f").parameters)
    assert fetched == {f"given_{name}" for name in KINDS}
    for stage in STAGES:
        outputs = whole(stage)["outputDefinitions"]
        more = fetched if stage == "fetch" else {"rows_out"}
        assert set(outputs["parameters"]) == {"output", "fingerprint"} | more
        assert set(outputs["parameters"]) <= provided.get(stage, sharded | fetched)
        assert set(outputs["artifacts"]) == {launcher.MANIFEST, launcher.METRICS, launcher.REPORT}
        assert {item["artifactType"]["schemaTitle"] for item in outputs["artifacts"].values()} == {
            "system.Dataset",
            "system.Metrics",
            "system.HTML",
        }
        # A task of ours declares what others read and what people look at.
        outputs = component(spec, stage)["outputDefinitions"]
        assert set(outputs["parameters"]) == {"output", *([launcher.OPTIONS] if stage == "fetch" else [])}
        assert set(outputs["artifacts"]) == {launcher.METRICS, launcher.REPORT}


# --- shared out over pods -------------------------------------------------------------------------------------------


def shares(spec: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By stage: the tasks that only share its work."""
    found: dict[str, list[dict[str, Any]]] = {}
    for name, task in sorted(tasks(spec).items()):
        stage, separator, _ = name.partition("-share")
        if separator:
            found.setdefault(stage.replace("-", "_"), []).append(task)
    return found


def test_the_pipeline_of_one_pod_a_stage_has_one_task_a_stage(spec: dict[str, Any]) -> None:
    assert not shares(spec)
    assert len(tasks(spec)) == len(STAGES)
    assert len(spec["components"]) == len(STAGES) + 2  # the branch, and its task


@pytest.mark.parametrize(
    ("without", "workers"),
    [
        (("clean",), 2),
        (("clean", "train_tokenizer"), 3),
        (("clean", "curate", "select", "train_tokenizer", "tokenize"), 2),
        (("clean", "train_tokenizer", "tokenize"), 1),
    ],
)
def test_a_pipeline_for_one_run_leaves_out_what_is_given(
    tmp_path: Path, without: tuple[str, ...], workers: int
) -> None:
    target = tmp_path / "pipeline.yaml"
    compiler.run(compiler.CompileConfig(output=str(target), workers=workers, image=f"a@{DIGEST}"), without)
    spec = documents(target)[0]
    left = [stage for stage in STAGES if stage not in without]
    named = {name.replace("-", "_") for name, task in tasks(spec).items() if name.replace("-", "_") in STAGES}
    assert named == set(left)
    assert {stage: len(some) for stage, some in shares(spec).items()} == {
        stage: workers - 1 for stage in SHARED if stage in left and workers > 1
    }
    assert not lint(documents(target))
    # What is given is among the options that fetch hands on.
    reads = tasks(spec)["sample"]["inputs"]["parameters"].get("tokenized_path")
    made = {"taskOutputParameter": {"outputParameterKey": "output", "producerTask": "tokenize"}}
    assert reads == (None if "tokenize" in without else made)
    if "curate" in left and "clean" in without:
        assert "rows" not in tasks(spec)["curate"]["inputs"]["parameters"]


def test_pods_share_a_stage_as_tasks_beside_the_one_that_finishes(
    spec: dict[str, Any], parallel: dict[str, Any]
) -> None:
    assert list(shares(parallel)) == sorted(SHARED)
    for name, task in tasks(parallel).items():
        if "-share" in name:
            continue
        # All but the shares is the pipeline of one pod a stage.
        stage, expected = name.replace("-", "_"), tasks(spec)[name]
        given = dict(task["inputs"]["parameters"])
        if stage in SHARED:
            assert given.pop("share") == {"runtimeValue": {"constant": f"1/{WORKERS}"}}
            assert given.pop("finish") == {"runtimeValue": {"constant": True}}
        assert given == expected["inputs"]["parameters"]
        assert task.get("dependentTasks") == expected.get("dependentTasks")


def test_a_share_is_given_what_the_finishing_task_is_given_and_puts_nothing_out(parallel: dict[str, Any]) -> None:
    for stage, some in shares(parallel).items():
        finishing = tasks(parallel)[stage.replace("_", "-")]
        numbers = []
        for task in some:
            given = dict(task["inputs"]["parameters"])
            numbers.append(given.pop("share")["runtimeValue"]["constant"])
            assert given == {
                name: one for name, one in finishing["inputs"]["parameters"].items() if name not in ("share", "finish")
            }
            assert task["dependentTasks"] == finishing["dependentTasks"]
            assert "outputDefinitions" not in parallel["components"][task["componentRef"]["name"]]
        assert sorted(numbers) == [f"{number}/{WORKERS}" for number in range(2, WORKERS + 1)]


def test_every_task_of_both_pipelines_has_its_place_on_the_cluster() -> None:
    inspected = 0
    for file in (COMPILED, PARALLEL):
        spec, platform = documents(file)
        on_kubernetes = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        assert set(on_kubernetes) == set(spec["deploymentSpec"]["executors"])
        for name, one in on_kubernetes.items():
            assert one["activeDeadlineSeconds"] == str(24 * 3600)
            assert one["emptyDirMounts"] == [{"mountPath": "/scratch", "sizeLimit": "50Gi", "volumeName": "scratch"}]
            secrets = [item for kind in ("secretAsEnv", "secretAsVolume") for item in one.get(kind, [])]
            assert {item["optional"] for item in secrets} == {True}
            container = spec["deploymentSpec"]["executors"][name]["container"]
            hub = {"HF_HOME": "/scratch/huggingface"} if name.startswith(("exec-fetch", "exec-curate")) else {}
            assert {one["name"]: one["value"] for one in container["env"]} == {"TMPDIR": "/scratch", **hub}
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
        for task in tasks(spec).values():
            assert task["retryPolicy"] == {
                "maxRetryCount": 2,
                "backoffDuration": "30s",
                "backoffFactor": 2.0,
                # Of all attempts together, for Argo.
                "backoffMaxDuration": f"{3 * 24 * 3600}s",
            }
            assert task["cachingOptions"] == {}
            inspected += 1
    assert inspected == 2 * len(STAGES) + len(SHARED) * (WORKERS - 1)


def test_only_what_asks_the_hub_has_its_token() -> None:
    for file in (COMPILED, PARALLEL):
        platform = documents(file)[1]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        having = set()
        for name, one in platform.items():
            secrets = {
                pair["envVar"]: given["secretName"]
                for given in one.get("secretAsEnv", [])
                for pair in given["keyToEnv"]
            }
            mounted = {given["secretName"]: given["mountPath"] for given in one["secretAsVolume"]}
            # Every key of a secret that is mounted is a file.
            places = {"pairmill-storage": launcher.SECRETS, "mlpipeline-minio-artifact": launcher.STORE_SECRETS}
            assert mounted == places
            if "HF_TOKEN" in secrets:
                having.add(name)
                assert secrets["HF_TOKEN"] == "pairmill-hub"
        assert having == {name for name in platform if name.startswith(("exec-fetch", "exec-curate"))}
        assert len(having) >= 2


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
        assert "secretAsEnv" not in one
        assert [item["secretName"] for item in one["secretAsVolume"]] == ["mlpipeline-minio-artifact"]
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


def test_a_components_parameters_are_its_stages_options() -> None:
    inspected, stricter = 0, set()
    for stage in STAGES:
        config = STAGES[stage].config
        hints = typing.get_type_hints(config)
        parameters = whole(stage)["inputDefinitions"]["parameters"]
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


def test_what_trains_takes_its_options_as_parameters() -> None:
    config = LAST["train"].config
    parameters = whole("train")["inputDefinitions"]["parameters"]
    assert set(parameters) == {item.name for item in dataclasses.fields(config)}
    required = {name for name, item in parameters.items() if not item.get("isOptional")}
    assert required == {"root", "sampled"}
    outputs = whole("train")["outputDefinitions"]
    assert set(outputs["parameters"]) == {"output", "fingerprint", "rows_out"}
    assert set(outputs["artifacts"]) == {launcher.MANIFEST, launcher.METRICS, launcher.REPORT}


def test_a_default_that_kubeflow_hands_over_gives_the_options_default() -> None:
    from pairmill.interface import cli

    inspected = 0
    for stage in STAGES:
        config = STAGES[stage].config
        parameters = whole(stage)["inputDefinitions"]["parameters"]
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
        shown = whole(stage)["inputDefinitions"]["parameters"]
        for name in root.keys() & shown.keys():
            assert root[name]["parameterType"] == shown[name]["parameterType"]
            # Without a template fetch looks at no tokenizer; a pipeline always has one.
            if "defaultValue" in shown[name] and name not in STAGES[stage].reads and stage != "fetch":
                assert root[name]["defaultValue"] == shown[name]["defaultValue"], f"{stage}.{name}"
                inspected += 1
    assert inspected > 15


# --- what the interface shows ---------------------------------------------------------------------------------------


def test_the_description_has_every_parameter_in_its_group_and_links(tmp_path: Path) -> None:
    for file in (COMPILED, PARALLEL):
        spec = documents(file)[0]
        text = spec["pipelineInfo"]["description"]
        assert spec["pipelineInfo"]["displayName"].startswith("Pretraining data")
        shown = re.findall(r"^- `(\w+)`: \S", text, re.MULTILINE)
        assert sorted(shown) == sorted(spec["root"]["inputDefinitions"]["parameters"])
        pages = re.findall(r"docs/\w+\.md", text)
        assert len(pages) == 4
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
    command = [program, "dsl", "compile", "--py", "pairmill/kubeflow/pretraining.py", "--output", target]
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
    own, fetch = copy.deepcopy(tasks(training)), copy.deepcopy(component(training, "fetch"))
    # It looks for the file of the training too.
    assert own["fetch"]["inputs"]["parameters"].pop("train_config") == {"componentInputParameter": "train_config"}
    assert fetch["inputDefinitions"]["parameters"].pop("train_config") == {"parameterType": "STRING"}
    assert own == tasks(spec)
    for stage in STAGES:
        assert (fetch if stage == "fetch" else component(training, stage)) == component(spec, stage)
    held, without = branches(training).values()
    assert list(held) == [BRANCHED, "train"]
    assert list(without) == ["train-2"]
    # Nothing goes into a branch as an artifact.
    assert not [task for task in (*held.values(), *without.values()) if "artifacts" in task["inputs"]]
    given = dict(without["train-2"]["inputs"]["parameters"])
    assert given.pop("sampled") == {"componentInputParameter": "pipelinechannel--sample-output"}
    assert set(given) == {"root", "set", "train_config"}
    more = {"held_out": {"taskOutputParameter": {"outputParameterKey": "output", "producerTask": BRANCHED}}}
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
    assert len(pages) == 5
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
    compiled(tmp_path, "train=true", "gpus=0", f"workers={compiler.MAX_WORKERS_TRAINING}")
    spec, platform = documents(tmp_path / "made.yaml")
    assert spec["pipelineInfo"]["name"] == "pairmill-pretraining-parallel-train"
    assert "accelerator" not in spec["deploymentSpec"]["executors"]["exec-train"]["container"]["resources"]
    assert "tolerations" not in platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-train"]
    assert sorted(shares(spec)) == sorted(SHARED)
