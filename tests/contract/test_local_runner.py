"""The local runner: container components as processes, and what a cluster would refuse is refused.

It leans on private names of kfp 2.17: the first tests notice when they move.
"""

import dataclasses
import importlib.metadata
import inspect
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kfp import dsl

from pairmill import log
from pairmill.errors import UsageError
from pairmill.interface import launcher
from pipelines import local
from pipelines.local import PipelineFailure, TaskRun
from tests.support import nursery
from tests.support.helpers import environment, python

# A program that keeps the launcher's contract, and breaks it where it is told to.
PROGRAM = """
import json, os, sys
from pathlib import Path

flag, text = sys.argv[1:]
assert flag == "--executor-input", sys.argv
given = json.loads(text)
values = given.get("inputs", {}).get("parameterValues", {})
print("chatter of the program")
if values.get("exit_code"):
    sys.exit(int(values["exit_code"]))
if values.get("mode") == "killed":
    os.kill(os.getpid(), 9)
outputs = given["outputs"]

def put(path, text):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)

result = {"output": values.get("text", "") + "!", "rows": 7}
if values.get("mode") == "forget":
    del result["rows"]
for name, value in result.items():
    put(outputs["parameters"][name]["outputFile"], str(value))
artifacts = {}
all_fields = {"manifest": {"data": "somewhere", "environment": os.environ.get("TOY", "")}, "metrics": {"rows": 7}}
for name, fields in all_fields.items():
    uri = outputs["artifacts"][name]["artifacts"][0]["uri"]
    put(uri, name + " of " + values.get("text", ""))
    artifacts[name] = {"artifacts": [{"name": name, "uri": uri, "metadata": fields}]}
read = {
    name: Path(item["artifacts"][0]["uri"]).read_text() for name, item in given["inputs"].get("artifacts", {}).items()
}
artifacts["metrics"]["artifacts"][0]["metadata"].update(read)
if values.get("mode") != "silent":
    put(outputs["outputFile"], json.dumps({"parameterValues": result, "artifacts": artifacts}))
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as module ``toys.toy``, found by child processes."""
    (tmp_path / "code" / "toys").mkdir(parents=True)
    (tmp_path / "code" / "toys" / "toy.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'code'}{os.pathsep}{environment()['PYTHONPATH']}")


def _container() -> dsl.ContainerSpec:
    return dsl.ContainerSpec(
        image="registry.invalid/toy",
        command=["python", "-m", "toys.toy"],
        args=[launcher.FLAG, dsl.PIPELINE_TASK_EXECUTOR_INPUT_PLACEHOLDER],
    )


@dsl.container_component
def toy(
    output: dsl.OutputPath(str),  # type: ignore[valid-type]
    rows: dsl.OutputPath(int),  # type: ignore[valid-type]
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
    text: str = "default",
    mode: str = "",
    exit_code: int = 0,
) -> dsl.ContainerSpec:
    return _container()


@dsl.container_component
def consumer(
    text: str,
    count: int,
    toy_manifest: dsl.Input[dsl.Dataset],
    output: dsl.OutputPath(str),  # type: ignore[valid-type]
    rows: dsl.OutputPath(int),  # type: ignore[valid-type]
    manifest: dsl.Output[dsl.Dataset],
    metrics: dsl.Output[dsl.Metrics],
) -> dsl.ContainerSpec:
    return _container()


@dsl.pipeline(name="chain")
def chain(text: str = "a", mode: str = "", exit_code: int = 0) -> None:
    first = toy(text=text, mode=mode, exit_code=exit_code)
    consumer(text=first.outputs["output"], count=first.outputs["rows"], toy_manifest=first.outputs["manifest"])


@dsl.pipeline(name="defaulted")
def defaulted() -> None:
    toy()


def run(tmp_path: Path, pipeline: Any = chain, **arguments: Any) -> list[TaskRun]:
    return local.run(pipeline, arguments, tmp_path / "artifacts")


# --- what it leans on -----------------------------------------------------------------------------------------------


def test_the_private_names_of_kfp_are_where_they_were() -> None:
    from kfp.local import status, subprocess_task_handler

    assert importlib.metadata.version("kfp").startswith("2.17.")
    handler = subprocess_task_handler.SubprocessTaskHandler
    assert list(inspect.signature(handler.validate_image).parameters) == ["self", "image"]
    assert list(inspect.signature(handler.validate_not_container_component).parameters) == ["self", "full_command"]
    assert list(inspect.signature(handler.run).parameters) == ["self"]
    assert {"SUCCESS", "FAILURE"} <= set(status.Status.__members__)
    text = inspect.getsource(handler)
    assert "self.full_command" in text or "full_command" in inspect.getsource(handler.__mro__[1])


def test_kfps_own_handler_stands_again_after_a_run_that_worked_and_one_that_failed(tmp_path: Path) -> None:
    from kfp.local import subprocess_task_handler

    before = subprocess_task_handler.SubprocessTaskHandler
    run(tmp_path)
    assert subprocess_task_handler.SubprocessTaskHandler is before
    with pytest.raises(PipelineFailure):
        run(tmp_path, exit_code=3)
    assert subprocess_task_handler.SubprocessTaskHandler is before


# --- values, artifacts and metrics ----------------------------------------------------------------------------------


def test_parameters_artifacts_and_metrics_come_through(tmp_path: Path) -> None:
    first, second = run(tmp_path, text="é $(x) ${HOME} 'q' \"d\"")
    assert (first.stage, first.exit_code) == ("toy", 0)
    assert first.output["parameterValues"] == {"output": "é $(x) ${HOME} 'q' \"d\"!", "rows": 7}
    assert second.output["parameterValues"]["output"] == "é $(x) ${HOME} 'q' \"d\"!!"
    assert first.artifact("metrics")["metadata"] == {"rows": 7}
    assert first.artifact("manifest")["metadata"]["data"] == "somewhere"
    assert Path(first.artifact("manifest")["uri"]).read_text() == "manifest of é $(x) ${HOME} 'q' \"d\""
    assert second.artifact("metrics")["metadata"]["toy_manifest"] == Path(first.artifact("manifest")["uri"]).read_text()
    assert first.seconds > 0
    assert Path(first.artifact("manifest")["uri"]).is_relative_to(tmp_path / "artifacts")


def test_defaults_of_a_component_reach_its_program(tmp_path: Path) -> None:
    (only,) = run(tmp_path, defaulted)
    assert only.output["parameterValues"]["output"] == "default!"


def test_programs_see_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY", "seen")
    (only,) = run(tmp_path, defaulted)
    assert only.artifact("manifest")["metadata"]["environment"] == "seen"


def test_what_programs_print_goes_to_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, defaulted)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "chatter of the program" in captured.err


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5])
def test_a_failing_task_fails_the_run_with_its_exit_code_and_no_later_task_runs(tmp_path: Path, code: int) -> None:
    with pytest.raises(PipelineFailure, match=f"task toy failed; got exit code {code}") as caught:
        run(tmp_path, exit_code=code)
    assert caught.value.exit_code == code


def test_a_killed_task_fails_the_run(tmp_path: Path) -> None:
    with pytest.raises(PipelineFailure) as caught:
        run(tmp_path, mode="killed")
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("mode", "said"), [("forget", "task toy did not write rows"), ("silent", "task toy did not write executor output")]
)
def test_a_task_that_forgets_a_declared_output_fails_the_run(
    tmp_path: Path, mode: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # A cluster fails it; kfp's local runner would let it pass.
    log.setup()
    with pytest.raises(PipelineFailure) as caught:
        run(tmp_path, mode=mode)
    assert caught.value.exit_code == 5
    assert said in capfd.readouterr().err


def test_a_failure_after_a_success_names_the_task_that_failed(tmp_path: Path) -> None:
    @dsl.pipeline(name="second-fails")
    def second_fails() -> None:
        first = toy()
        toy(exit_code=4).after(first)

    with pytest.raises(PipelineFailure) as caught:
        run(tmp_path, second_fails)
    assert caught.value.exit_code == 4


# --- the real pipeline ----------------------------------------------------------------------------------------------


def project(folder: Path) -> list[str]:
    """Raw data of two sources, and the arguments of a run."""
    answers = [
        {"question": f"What is {number} and {number}?", "answer": f"Add.\n#### {2 * number}"} for number in range(60)
    ]
    raw = folder / "raw"
    (raw / "gsm8k_train").mkdir(parents=True)
    (raw / "gsm8k_train" / "train.jsonl").write_text("".join(json.dumps(item) + "\n" for item in answers))
    (raw / "dmmath" / "train-easy").mkdir(parents=True)
    (raw / "dmmath" / "train-easy" / "add.txt").write_text("".join(f"{n} + 1 = ?\n{n + 1}\n" for n in range(80)))
    (folder / "rules.yaml").write_text("- prefix: dmmath__\n  max_per_file: 20\n")
    return [
        f"raw={raw}",
        f"root={folder / 'root'}",
        f"prefix_config_path={folder / 'rules.yaml'}",
        f"output_path={folder / 'sampled'}",
        "vocab_size=400",
        "epochs=2",
    ]


def forked(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return nursery.shared(nursery.PIPELINES).run("pipelines.local", arguments, environment())


def test_the_pipeline_runs_from_raw_data_to_epochs_and_then_reuses_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path /= "my data, and more"
    # A comma separates the items of lists, and clean's folder becomes an item of two.
    arguments = [item.replace(str(tmp_path), "~/my data, and more") for item in project(tmp_path)]
    # Stages as processes of their own, as its users have them.
    done = python("-m", "pipelines.local", *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for stage in ("clean", "train_tokenizer", "tokenize", "sample"):
        assert [line for line in lines if line.split()[:2] == [stage, "made"]], done.stdout
    assert (tmp_path / "sampled" / "epoch_1" / "inst_start.npy").is_file()
    assert not (tmp_path / "sampled" / "epoch_2").exists()
    (report,) = [line.split(maxsplit=1)[1] for line in lines if line.strip().startswith("report:")]
    assert Path(report).is_file()
    again = forked(*arguments)
    assert again.returncode == 0, again.stderr
    assert "every stage was reused" in again.stdout
    assert " made " not in again.stdout


def test_the_pipeline_ends_with_the_exit_code_of_the_stage_that_failed(tmp_path: Path) -> None:
    arguments = project(tmp_path)
    with (tmp_path / "raw" / "gsm8k_train" / "train.jsonl").open("a") as file:
        file.write("{\n" * 30)
    done = forked(*arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert "30 of 90 records of gsm8k_train are malformed" in done.stderr
    assert "task clean failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "root" / "tokenizer").exists()


def test_rules_are_absolute_where_they_are_given_and_the_default_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages start in the same folder; only of a default do they take it that it is absent."""
    seen: list[str] = []

    def run(pipeline: Any, arguments: dict[str, Any], _: Path) -> list[TaskRun]:
        seen.append(arguments["prefix_config_path"])
        raise UsageError("enough")

    monkeypatch.setattr(local, "run", run)
    monkeypatch.chdir(tmp_path)
    for given in ([], ["prefix_config_path=rules.yaml"]):
        monkeypatch.setattr("sys.argv", ["local", "raw=x", "root=y", *given])
        assert local.main() == 2
    assert seen == ["prefix_config.yaml", str(tmp_path / "rules.yaml")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["raw=x"], "root: required option missing"),
        (["raw=x", "root=y", "epoch=3"], "did you mean 'epochs'?"),
        (["raw=x", "root=nfs://server/x"], "nfs://"),
        (["raw=x", "root=y", "epochs=many"], "epochs"),
        # Not by the last stage, after all others have done their work.
        (["raw=x", "root=y", "epochs=0"], "epochs: out of range"),
        (["raw=x", "root=y", "vocab_size=3"], "vocab_size: is too small"),
        (["raw=x", "root=y", "profile=nonsense"], "profile: "),
    ],
)
def test_the_pipelines_options_are_checked_like_those_of_a_stage(arguments: list[str], said: str) -> None:
    done = python("-m", "pipelines.local", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in json.loads(done.stderr.splitlines()[-1])["message"]


def test_help_shows_every_parameter_of_the_pipeline() -> None:
    from pipelines.parameters import Parameters

    done = python("-m", "pipelines.local", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    names = [item.name for item in dataclasses.fields(Parameters)]
    assert len(names) >= 10
    for name in names:
        assert f"\n  {name}  (" in done.stdout
    assert "\n      \n" not in done.stdout  # an option without a meaning


@pytest.mark.parametrize("module", ["pipelines.compile", "pipelines.local"])
def test_help_names_the_command_that_was_asked(module: str) -> None:
    done = python("-m", module, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: python -m {module} key=value")
