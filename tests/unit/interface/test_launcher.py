"""The contract with Kubeflow's launcher: what it hands over, and what it finds afterwards."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.interface import cli, launcher
from pairmill.interface.cli import Outcome
from pairmill.interface.launcher import FLAG, ExecutorInput, artifact_path
from pairmill.report.model import Report
from pairmill.stages.clean.config import CleanConfig

# As a backend of Kubeflow Pipelines 2.17 handed it over: keys, the launcher's own executor-logs, artifacts whose type
# is an empty schema, integers.
RECORDED = {
    "inputs": {
        "parameterValues": {
            "max_reject_fraction": 0.001,
            "profile": "pairmill",
            "raw": "minio://bucket/raw",
            "root": "minio://bucket/project",
            "sources": "gsm8k_train,sudoku",
            "workers": 8192,
        },
        "artifacts": {
            "rows_manifest": {
                "artifacts": [
                    {
                        "metadata": {"display_name": "manifest", "store_session_info": "{}"},
                        "name": "212",
                        "type": {"instanceSchema": ""},
                        "uri": "minio://mlpipeline/v2/artifacts/p/run/clean/uuid/manifest",
                    }
                ]
            }
        },
    },
    "outputs": {
        "parameters": {
            "output": {"outputFile": "/tmp/kfp/outputs/output"},
            "rows": {"outputFile": "/tmp/kfp/outputs/rows"},
        },
        "artifacts": {
            "executor-logs": {
                "artifacts": [
                    {
                        "name": "executor-logs",
                        "type": {"schemaTitle": "system.Artifact"},
                        "uri": "minio://mlpipeline/v2/artifacts/p/run/task/uuid/executor-logs-0",
                    }
                ]
            },
            "manifest": {
                "artifacts": [
                    {
                        "name": "manifest",
                        "type": {"schemaTitle": "system.Dataset", "schemaVersion": "0.0.1"},
                        "uri": "minio://mlpipeline/v2/artifacts/p/run/task/uuid/manifest",
                    }
                ]
            },
        },
        "outputFile": "/minio/mlpipeline/v2/artifacts/p/run/task/uuid/output_metadata.json",
    },
}


def local(folder: Path, **values: Any) -> dict[str, Any]:
    """An executor input whose outputs lie below a folder, none of whose parents exist."""
    places = folder / "some" / "where"
    return {
        "inputs": {"parameterValues": values},
        "outputs": {
            "parameters": {
                name: {"outputFile": str(places / "parameters" / name)} for name in ("output", "fingerprint", "rows")
            },
            "artifacts": {
                name: {"artifacts": [{"name": name, "uri": str(places / "artifacts" / name)}]}
                for name in ("manifest", "metrics", "report", "executor-logs")
            },
            "outputFile": str(places / "executor" / "output.json"),
        },
    }


OUTCOME = Outcome(
    stdout="/project/clean/f\n",
    parameters={"output": "/project/clean/é ü", "fingerprint": "0" * 16, "rows": 12, "unasked": "x"},
    metrics={"rows_in": 13, "drop_fraction": 0.5},
    report=lambda: Report("clean", {"Rows": 12}),
    manifest=lambda: b'{"stage": "clean"}\n',
    metadata={"data": "/project/clean/f", "fingerprint": "0" * 16, "rows": 12},
)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("gs://bucket/a/b c", "/gcs/bucket/a/b c"),
        ("s3://bucket/a%20b", "/s3/bucket/a%20b"),
        ("minio://mlpipeline/v2/x", "/minio/mlpipeline/v2/x"),
        ("/tmp/x", "/tmp/x"),
        ("file:///tmp/a%20b", "/tmp/a b"),
    ],
)
def test_artifacts_are_where_the_launcher_looks_for_them(uri: str, path: str) -> None:
    assert artifact_path(uri) == Path(path)


def test_a_scheme_that_the_launcher_does_not_mount_is_refused() -> None:
    with pytest.raises(UsageError, match=r"does not mount this scheme; expected gs, s3, minio"):
        artifact_path("https://example.org/x")


def test_a_recorded_task_is_understood() -> None:
    task = ExecutorInput.parse([json.dumps(RECORDED)])
    assert task.parameters == RECORDED["inputs"]["parameterValues"]
    assert task.output_parameters == {
        "output": Path("/tmp/kfp/outputs/output"),
        "rows": Path("/tmp/kfp/outputs/rows"),
    }
    assert set(task.output_artifacts) == {"executor-logs", "manifest"}
    assert task.output_file == Path("/minio/mlpipeline/v2/artifacts/p/run/task/uuid/output_metadata.json")
    config = cli.build(CleanConfig, task.parameters)
    assert (config.sources, config.workers, config.max_reject_fraction) == (["gsm8k_train", "sudoku"], 8192, 0.001)


def test_a_task_without_inputs_or_outputs_is_understood() -> None:
    task = ExecutorInput.parse(['{"outputs": {"outputFile": "/x"}}'])
    assert (task.parameters, task.output_parameters, task.output_artifacts) == ({}, {}, {})


def test_doubles_become_integers_on_the_way_to_options() -> None:
    values = {"raw": "r", "root": "x", "workers": 2.0, "max_reject_fraction": 0}
    config = cli.build(
        CleanConfig, ExecutorInput.parse([json.dumps({**RECORDED, "inputs": {"parameterValues": values}})]).parameters
    )
    assert (config.workers, type(config.workers), config.max_reject_fraction) == (2, int, 0.0)


def test_keys_that_kubeflow_itself_adds_are_no_options() -> None:
    # Recorded: where a pipeline builds a text from an upstream output, f"{task.output}/data", the executor input holds
    # that output as one more value. A component must not fail because of how a pipeline fills its options.
    values = {"raw": "r", "root": "x", "pipelinechannel--clean-output": "minio://bucket/clean"}
    task = ExecutorInput.parse([json.dumps({**RECORDED, "inputs": {"parameterValues": values}})])
    assert cli.build(CleanConfig, task.parameters).raw == "r"


# --- options that are passed all at once ----------------------------------------------------------------------------


def given(**values: Any) -> ExecutorInput:
    return ExecutorInput.parse([json.dumps({**RECORDED, "inputs": {"parameterValues": values}})])


def test_of_options_that_are_passed_together_a_stage_takes_those_that_it_knows() -> None:
    together = {"root": "r", "limit": 3.0, "context_size": 4097}
    task = given(options=together, raw="x", limit=5.0)
    assert task.given({"root", "raw", "limit"}) == {"root": "r", "raw": "x", "limit": 5.0}, "what is alone counts more"
    assert task.handed_on({"root", "raw", "limit"}) == {}
    with pytest.raises(UsageError, match="unknown option"):
        cli.build(CleanConfig, given(options={}, root="r", nope=1).given({"root"}))


def test_the_first_task_hands_on_what_is_not_the_default() -> None:
    known = {"root", "raw", "limit"}
    task = given(
        defaults={"limit": 0, "epochs": 10, "seed": 7},
        root="r",
        raw="x",
        limit=4.0,
        epochs=10.0,
        seed=0.0,
        turns="",
        windows=False,
        holdout="0.1",
    )
    assert task.given(known) == {"root": "r", "raw": "x", "limit": 4.0}
    # A default of 7 that is set to 0 is handed on; what is empty and has no default named is not.
    assert task.handed_on(known) == {"limit": 4.0, "seed": 0.0, "holdout": "0.1"}


def test_what_is_handed_on_and_what_the_stage_itself_knows_are_an_output(tmp_path: Path) -> None:
    outputs = {
        "parameters": {"options": {"outputFile": str(tmp_path / "options")}},
        "outputFile": str(tmp_path / "out"),
    }
    values = {"root": "r", "defaults": {"limit": 0}, "limit": 2.0, "epochs": 3.0}
    text = json.dumps({"inputs": {"parameterValues": values}, "outputs": outputs})
    assert run([FLAG, text], OUTCOME._replace(options={"root": "s3://b/r", "rows": "s3://b/rows"})) == 0
    made = {"root": "s3://b/r", "rows": "s3://b/rows", "limit": 2.0, "epochs": 3.0}
    assert json.loads((tmp_path / "options").read_text()) == made
    assert json.loads((tmp_path / "out").read_text())["parameterValues"] == {"options": made}


def test_variables_that_the_pod_lacks_are_read_from_mounted_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        f"{launcher.SECRETS}/AWS_ACCESS_KEY_ID": "from the secret",
        f"{launcher.SECRETS}/AWS_REGION": "from the secret",
        f"{launcher.SECRETS}/PATH": "/nowhere",
        f"{launcher.STORE_SECRETS}/accesskey": "of the store",
    }
    for name, text in files.items():
        file = tmp_path / name.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for name in ("AWS_ACCESS_KEY_ID", "MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_REGION", "of the pod")
    path = os.environ["PATH"]
    launcher.adopt_secrets(tmp_path)
    assert os.environ["AWS_ACCESS_KEY_ID"] == "from the secret"
    assert os.environ["MINIO_ACCESS_KEY"] == "of the store"
    assert (os.environ["AWS_REGION"], os.environ["PATH"]) == ("of the pod", path)
    assert "MINIO_SECRET_KEY" not in os.environ


def run(arguments: list[str], outcome: Outcome = OUTCOME) -> int:
    return cli.main("clean", CleanConfig, lambda config: outcome, arguments)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "5",
        "null",
        '"x"',
        "{}",
        '{"outputs": {}}',
        '{"outputs": null}',
        '{"outputs": {"outputFile": 5}}',
        '{"inputs": 5, "outputs": {"outputFile": "/x"}}',
        '{"outputs": {"outputFile": "/x", "parameters": {"a": {}}}}',
        '{"outputs": {"outputFile": "/x", "artifacts": {"a": {"artifacts": []}}}}',
        "{{$}}",
        "x=y",
    ],
)
def test_what_is_no_executor_input_is_a_usage_error(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([FLAG, text]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{FLAG}: not a valid executor input" in captured.err


@pytest.mark.parametrize("arguments", [[FLAG], [FLAG, "{}", "{}"], [FLAG, "{}", "workers=3"]])
def test_the_executor_input_stands_alone(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    assert "takes one value" in capsys.readouterr().err


def test_values_of_another_type_and_unknown_options_are_usage_errors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for values in ({"raw": "r", "root": "x", "workers": "many"}, {"raw": "r", "root": "x", "workrs": 1}, {"raw": "r"}):
        assert run([FLAG, json.dumps(local(tmp_path, **values))]) == 2
    assert not (tmp_path / "some").exists()
    assert "did you mean 'workers'?" in capsys.readouterr().err


def test_every_output_is_written_where_it_is_expected_and_said_twice_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = local(tmp_path, raw="r", root="x")
    assert run([FLAG, json.dumps(given)]) == 0
    assert capsys.readouterr().out == OUTCOME.stdout
    places = tmp_path / "some" / "where"
    output = json.loads((places / "executor" / "output.json").read_text())
    assert set(output) == {"parameterValues", "artifacts"}
    assert output["parameterValues"] == {"output": "/project/clean/é ü", "fingerprint": "0" * 16, "rows": 12}
    for name, value in output["parameterValues"].items():
        assert (places / "parameters" / name).read_text() == str(value)  # to the byte: no line feed is added
    assert set(output["artifacts"]) == {"manifest", "metrics", "report"}
    for name, listed in output["artifacts"].items():
        (artifact,) = listed["artifacts"]
        assert artifact["name"] == name
        assert artifact["uri"] == str(places / "artifacts" / name)
        assert (places / "artifacts" / name).is_file()
    assert (places / "artifacts" / "manifest").read_bytes() == OUTCOME.manifest()
    assert json.loads((places / "artifacts" / "metrics").read_text()) == OUTCOME.metrics
    assert (places / "artifacts" / "report").read_text() == OUTCOME.report().html()
    assert not (places / "artifacts" / "executor-logs").exists()


def test_metadata_is_flat_and_holds_no_null(tmp_path: Path) -> None:
    # The launcher fails on a null and mangles lists and maps.
    assert run([FLAG, json.dumps(local(tmp_path, raw="r", root="x"))]) == 0
    output = json.loads((tmp_path / "some" / "where" / "executor" / "output.json").read_text())
    fields = {
        name: artifact.get("metadata", {})
        for name, listed in output["artifacts"].items()
        for artifact in listed["artifacts"]
    }
    assert fields["manifest"] == {**OUTCOME.metadata, "reused": "false"}
    assert fields["metrics"] == OUTCOME.metrics
    values = [value for one in fields.values() for value in one.values()]
    assert len(values) >= 6
    assert all(type(value) in {str, int, float} for value in values)


def test_outputs_on_object_stores_go_to_the_launchers_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_MOUNTS", {scheme: str(tmp_path / scheme) for scheme in ("gs", "s3", "minio")})
    for scheme in ("gs", "s3", "minio"):
        given = local(tmp_path / scheme, raw="r", root="x")
        uri = f"{scheme}://bucket/top/p/run/task/uuid/manifest"
        given["outputs"]["artifacts"]["manifest"]["artifacts"][0]["uri"] = uri
        assert run([FLAG, json.dumps(given)]) == 0
        assert (tmp_path / scheme / "bucket/top/p/run/task/uuid/manifest").read_bytes() == OUTCOME.manifest()
        output = json.loads(Path(given["outputs"]["outputFile"]).read_text())
        assert output["artifacts"]["manifest"]["artifacts"][0]["uri"] == uri


def test_an_output_that_the_stage_does_not_provide_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = local(tmp_path, raw="r", root="x")
    given["outputs"]["parameters"]["rwos"] = {"outputFile": str(tmp_path / "rwos")}
    assert run([FLAG, json.dumps(given)]) == 2
    assert "rwos: the component declares an unknown output" in capsys.readouterr().err


def test_a_component_need_not_ask_for_every_output(tmp_path: Path) -> None:
    given = local(tmp_path, raw="r", root="x")
    given["outputs"] = {"outputFile": str(tmp_path / "output.json")}
    assert run([FLAG, json.dumps(given)]) == 0
    assert json.loads((tmp_path / "output.json").read_text()) == {"parameterValues": {}, "artifacts": {}}


def test_nothing_is_written_where_the_stage_fails(tmp_path: Path) -> None:
    def fail(config: CleanConfig) -> Outcome:
        raise UsageError("wrong")

    assert cli.main("clean", CleanConfig, fail, [FLAG, json.dumps(local(tmp_path, raw="r", root="x"))]) == 2
    assert list(tmp_path.iterdir()) == []
