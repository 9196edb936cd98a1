"""What the options of a submission are, and what a run's object says of its tasks."""

import dataclasses
import io
import json
import logging
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import kfp_server_api
import pytest
import yaml
from rich.console import Console

from pairmill import log
from pairmill.errors import UsageError
from pairmill.interface import cli
from pairmill.kubeflow.compile import MAX_WORKERS, MAX_WORKERS_TRAINING, ImageConfig
from pairmill.kubeflow.submit import command, publish, state, watch
from pairmill.kubeflow.submit.server import ServerConfig
from pairmill.kubeflow.submit.state import Verdict
from pairmill.kubeflow.submit.watch import TIMED_OUT, WatchConfig
from pairmill.line import compare, parameters, search
from pairmill.stages.fetch.config import KINDS
from tests.support.helpers import REPOSITORY, python
from tests.support.kubernetes.pipelines_server import Node, frame, read_log
from tests.support.tools import STAGES

NOW = datetime(2026, 11, 21, 1, 10, tzinfo=UTC)


def model(run: dict[str, Any]) -> Any:
    answer = SimpleNamespace(data=json.dumps(run))
    return kfp_server_api.ApiClient().deserialize(answer, "V2beta1Run")


def shown(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(task.label, task.state) for task in state.tasks(model(run), NOW)]


@pytest.mark.parametrize(
    ("base", "made_of"),
    [
        (command.SubmitConfig, parameters.Parameters),
        (command.ScheduleConfig, parameters.Parameters),
        (command.CompareConfig, compare.Comparison),
        (command.SearchConfig, search.Parameters),
    ],
)
def test_options_are_ours_the_compilers_and_the_pipelines(base: type[Any], made_of: type[Any]) -> None:
    ours = {item.name for item in dataclasses.fields(base)}
    given = {item.name for item in dataclasses.fields(made_of)}
    compiling = {item.name for item in dataclasses.fields(ImageConfig)}
    others = {item.name for kind in (ImageConfig, ServerConfig, WatchConfig) for item in dataclasses.fields(kind)}
    assert not others & given, "a parameter of the pipeline would hide an option"
    assert given | compiling < ours
    assert all(item.metadata["help"] for item in dataclasses.fields(base))


@pytest.mark.parametrize(
    ("workers", "train", "file"),
    [(1, False, "pretraining"), (3, False, "pretraining-parallel"), (1, True, "pretraining-train")],
)
def test_the_parameters_of_the_run_are_the_compiled_pipelines(workers: int, train: bool, file: str) -> None:
    compiled = REPOSITORY / "pipelines" / "compiled" / f"{file}.yaml"
    (specification, *_) = yaml.safe_load_all(compiled.read_text())
    names = list(specification["root"]["inputDefinitions"]["parameters"])
    values = {**{name: index for index, name in enumerate(names)}, "workers": workers, "train": train}
    config = object.__new__(command.SubmitConfig)
    vars(config).update(**values, host="h", image="i")
    assert config.parameters() == {name: values[name] for name in names}


def submission(**options: str) -> dict[str, str]:
    return {"host": "https://kubeflow.example", "image": f"a@sha256:{'0' * 64}", "root": "s3://b/p", **options}


def test_the_defaults_are_those_that_every_stage_takes() -> None:
    found = parameters.stage_configs(dataclasses.asdict(parameters.Parameters(root="s3://b/p")))
    assert list(found) == list(STAGES)
    assert (found["sample"].epochs, found["clean"].profile, found["fetch"].root) == (10, "pairmill", "s3://b/p")


def test_a_training_is_checked_before_the_run_and_needs_its_image() -> None:
    trainer = f"t@sha256:{'1' * 64}"
    with pytest.raises(UsageError, match=r"^trainer_image: required with train=true"):
        cli.build(command.SubmitConfig, submission(train="true"))
    with pytest.raises(UsageError, match=r"^train_config: no storage backend"):
        cli.build(command.SubmitConfig, submission(train="true", trainer_image=trainer, train_config="ftp://x/y"))
    made = cli.build(command.SubmitConfig, submission(train="true", trainer_image=trainer, set="training.steps=9"))
    assert made.parameters()["set"] == "training.steps=9"
    assert "set" not in cli.build(command.SubmitConfig, submission()).parameters()
    given = dataclasses.asdict(parameters.TrainingParameters(root="s3://b/p"))
    assert list(parameters.stage_configs(given)) == [*STAGES, "train"]


def test_a_root_may_be_on_a_volume_that_all_pods_mount() -> None:
    for root in ("/data", "/data/project", "file:///data/project"):
        made = cli.build(command.SubmitConfig, submission(root=root, volume="scratch=/other,claim=/data"))
        assert made.parameters()["root"] == root


def test_a_template_that_the_trained_tokenizer_lacks_is_refused_before_the_run() -> None:
    def configs(**options: str) -> dict[str, Any]:
        return parameters.stage_configs(dataclasses.asdict(parameters.Parameters(root="s3://b/p", **options)))

    with pytest.raises(UsageError, match=r"^template: the tokenizer that this run trains lacks .*got llama3: <"):
        configs(template="llama3")
    with pytest.raises(UsageError, match=r"^template: not a known template; got 'lama'"):
        configs(template="lama")
    assert configs(template="qwen")["tokenize"].eoa == "<|endoftext|>"
    assert configs(template="llama3", tokenizer="hf://o/n")["tokenize"].boq == "<|begin_of_text|>"


def test_every_parameter_goes_to_a_stage_and_is_shown_in_a_group() -> None:
    names = [item.name for item in dataclasses.fields(parameters.Parameters)]
    # One by one to fetch, which hands on what later stages take.
    assert parameters.taken("fetch") == names
    assert {"root", "raw", *KINDS, *parameters.handed_on()} == set(names)
    compiled = (REPOSITORY / "pipelines" / "compiled" / "pretraining-parallel.yaml").read_text()
    assert all(f"- `{name}`: " in compiled for name in names)


@pytest.mark.parametrize("made_by", [command.SubmitConfig, command.ScheduleConfig])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"epochs": "0"}, "epochs: out of range; got 0"),
        ({"profile": "nonsense"}, "profile: .*got 'nonsense'|profile: .*'nonsense'"),
        ({"vocab_size": "3"}, "vocab_size: .*; got 3; expected 287 or more"),
        ({"vocab_size": "-1"}, "vocab_size: out of range; got -1"),
        ({"root": "ftp://x"}, "root: no storage backend for this scheme; got ftp://x"),
        ({"root": "build/x"}, "root: is a relative path; got build/x"),
        ({"raw": "raw"}, "raw: is a relative path; got raw"),
        ({"root": ""}, "root: is empty"),
        ({"root": "/project"}, "root: is a folder of one pod, .* got /project; .* volume=<claim>=<path> mounts"),
        ({"root": "file:///project"}, "root: is a folder of one pod"),
        ({"root": "/data/../project/x", "volume": "claim=/data"}, "root: is a folder of one pod"),
        ({"root": "/database", "volume": "claim=/data"}, "root: is a folder of one pod"),
        ({"root": "/data", "volume": "/data"}, "volume: not a volume; got /data; expected <claim>=<path>"),
        ({"raw": "http://x/y"}, "raw: no storage backend"),
        ({"prefix_config_path": "https://x/rules.yaml"}, "prefix_config_path: no storage backend"),
        ({"max_reject_fraction": "2"}, "max_reject_fraction: out of range"),
        ({"source_options": "gsm8k.nothing=1"}, "source_options"),
        ({"tokenized": "s3://b/t", "tokenizer": "s3://b/k"}, "tokenizer: cannot be given with tokenized"),
        ({"rows": "s3://b/r", "raw": "s3://b/raw"}, "raw: would not be read"),
        ({"rows": "rows"}, "rows: is a relative path; got rows"),
        ({"rows": "hf://owner/name"}, "this names a model; write rows=hf://datasets/owner/name"),
        ({"tokenizer": "s3://b/k", "vocab_size": "500"}, "vocab_size: is of no use with tokenizer="),
        ({"context_size": "0"}, "context_size: out of range"),
        ({"min_resp_length": "-1"}, "min_resp_length: out of range"),
        ({"seed": "-1"}, "seed: out of range"),
        ({"output_path": "{fingerprint}/x"}, "output_path"),
        ({"workers": "0"}, "workers: out of range"),
        (
            {"workers": str(MAX_WORKERS + 1)},
            f"workers: out of range; got {MAX_WORKERS + 1}; expected 1 to {MAX_WORKERS};",
        ),
        (
            {"workers": str(MAX_WORKERS_TRAINING + 1), "train": "true", "trainer_image": f"a@sha256:{'0' * 64}"},
            f"workers: out of range; .*; expected 1 to {MAX_WORKERS_TRAINING} with train=true",
        ),
    ],
)
def test_what_a_stage_would_refuse_is_refused_before_it_is_submitted(
    made_by: type[Any], options: dict[str, str], said: str
) -> None:
    more = {"cron": "0 3 * * *"} if made_by is command.ScheduleConfig else {}
    assert cli.build(made_by, submission(**more)).host == "https://kubeflow.example"
    with pytest.raises(UsageError, match=said):
        cli.build(made_by, {**submission(**options), **more})


def test_a_submission_is_read_and_refused_without_kfp() -> None:
    code = (
        "import sys; from pairmill.kubeflow.submit import command as c; from pairmill.interface import cli; "
        f"cli.build(c.SubmitConfig, {submission()!r}); print('kfp' in sys.modules)"
    )
    assert python("-c", code).stdout == "False\n"


def test_every_exit_code_is_in_the_help_and_in_the_document() -> None:
    codes = {"0", "2", "3", "4", "5", str(TIMED_OUT), str(cli.INTERRUPTED), str(cli.TERMINATED)}
    codes |= {str(verdict.value) for verdict in Verdict}
    said = command.SubmitConfig.details().splitlines()[1:]
    assert {line.split()[0] for line in said} == codes
    rows = re.findall(r"^\| (\d[\d, ]*) \|", (REPOSITORY / "docs" / "submitting.md").read_text(), re.MULTILINE)
    assert {code.strip() for row in rows for code in row.split(",")} == codes


@pytest.mark.parametrize(("cron", "seconds"), [("0 3 * * *", "0 0 3 * * *"), ("*/5 1,2 ? JAN MON-FRI", None)])
def test_a_field_of_seconds_is_put_before_a_schedule(cron: str, seconds: str | None) -> None:
    assert publish.seconds_cron(cron) == (seconds or f"0 {cron}")


@pytest.mark.parametrize("cron", ["", "* * * *", "0 0 3 * * *", "@daily", "* * * * $(x)"])
def test_what_is_no_schedule_is_refused(cron: str) -> None:
    with pytest.raises(UsageError, match="not a valid schedule"):
        publish.seconds_cron(cron)


@pytest.mark.parametrize("now", ["PENDING", "RUNNING", "CANCELING", "PAUSED", "RUNTIME_STATE_UNSPECIFIED", None])
def test_a_run_that_goes_on_has_no_verdict(now: str | None) -> None:
    run = model(frame("RUNNING"))
    run.state = now
    assert state.verdict(run) is None


def test_a_terminated_run_is_told_from_a_failed_one_by_its_history() -> None:
    assert state.verdict(model(frame("FAILED"))) is Verdict.FAILED
    assert state.verdict(model(frame("FAILED", history=("RUNNING", "CANCELING", "FAILED")))) is Verdict.CANCELED


STOCK = pytest.mark.parametrize("stock", [True, False])
"""An installation that wraps every template in a retry, and one whose administrator took that out."""


@STOCK
def test_workers_have_a_number_and_what_is_around_them_is_not_shown(stock: bool) -> None:
    workers = [
        Node("evaluate", each, loop="for-loop-2", index=index, stock=stock)
        for index, each in enumerate(["SUCCEEDED", "RUNNING", "RUNNING"])
    ]
    run = frame("RUNNING", Node("clean", "SUCCEEDED", stock=stock), *workers, Node("tokenize", "", stock=stock))
    found = shown(run)
    assert {label for label, _ in found} == {"clean", "evaluate[0]", "evaluate[1]", "evaluate[2]"}
    assert sorted(state for _, state in found) == ["RUNNING", "RUNNING", "SUCCEEDED", "SUCCEEDED"]


@STOCK
def test_each_task_is_shown_once_with_the_state_of_its_newest_attempt(stock: bool) -> None:
    first = Node("clean", "SUCCEEDED", stock=stock)
    again = Node("fetch", "SUCCEEDED", attempts=("FAILED", "SUCCEEDED"), stock=stock)
    going = Node("sample", "RUNNING", attempts=("FAILED", "RUNNING"), stock=stock)
    found = [("clean", "SUCCEEDED"), ("fetch", "SUCCEEDED"), ("sample", "RUNNING")]
    assert shown(frame("RUNNING", first, again, going)) == found


@STOCK
def test_a_task_whose_pod_waits_is_pending(stock: bool) -> None:
    def one(**given: Any) -> list[tuple[str, str]]:
        return shown(frame("RUNNING", Node("clean", "RUNNING", stock=stock, **given)))

    assert one(executor="PENDING") == [("clean", "PENDING")]
    assert one(executor="RUNNING") == [("clean", "RUNNING")]
    assert one(attempts=("PENDING",)) == [("clean", "PENDING")]
    assert one(attempts=("FAILED", "PENDING")) == [("clean", "PENDING")]
    assert one(attempts=("FAILED", "RUNNING")) == [("clean", "RUNNING")]


@STOCK
def test_of_the_workers_of_a_loop_as_many_wait_as_pods_do(stock: bool) -> None:
    pods = ["RUNNING", "PENDING", "RUNNING", "PENDING", "PENDING"]
    workers = [
        Node("clean-2", "RUNNING", executor=pod, loop="for-loop-1", index=index, stock=stock)
        for index, pod in enumerate(pods)
    ]
    found = [state for _, state in shown(frame("RUNNING", *workers))]
    assert sorted(found) == sorted(pods)


@STOCK
@pytest.mark.parametrize("attempts", [(), ("FAILED",), ("FAILED",) * 11])
def test_the_log_of_a_failed_task_is_that_of_its_last_pod(stock: bool, attempts: tuple[str, ...]) -> None:
    failed = Node("clean", "FAILED", attempts=attempts, stock=stock)
    beside = Node("fetch", "SUCCEEDED", attempts=("SUCCEEDED",) if attempts else (), stock=stock)
    (task,) = (one for one in state.tasks(model(frame("FAILED", beside, failed)), NOW) if one.state == "FAILED")
    assert (task.label, task.node) == ("clean", failed.log_node)


def test_a_driver_is_shown_only_where_it_failed() -> None:
    for stock in (True, False):
        broken = Node("clean", "DRIVER FAILED", stock=stock)
        (task,) = state.tasks(model(frame("FAILED", broken)), NOW)
        # Where a driver is not wrapped it is the pod itself, and no entry names it.
        assert (task.label, task.state, task.node) == ("clean (driver)", "FAILED", broken.log_node if stock else "")


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("I1122 06:20:05.759209      21 main.go:67] Setting log level\nthe reason\n\n", ["the reason"]),
        (
            "the reason\nE1122 06:20:06.462351      21 launcher_v2.go:449] Component failed to execute successfully: "
            "exit status 2\nF1122 06:20:06.504467      21 main.go:59] failed to execute component: exit status 2\n",
            ["the reason"],
        ),
        (
            "F1122 06:20:06.504467      21 main.go:59] fork/exec python: no such file\n",
            ["fork/exec python: no such file"],
        ),
        (
            'I1122 06:20:05.7 21 main.go:333] ComponentSpec:{\n  "a": {\n  }\n}\nF1122 06:20:06.5 21 main.go:5] no',
            ["no"],
        ),
        ("E1122 06:20:06.4 21 launcher_v2.go:449] Component failed to execute successfully: exit status 2\n", None),
        ("", []),
    ],
)
def test_of_a_log_the_reason_is_shown_and_not_what_kubeflow_dumps(log: str, expected: list[str] | None) -> None:
    said = ["Component failed to execute successfully: exit status 2"]
    assert watch.program_lines(log) == (said if expected is None else expected)


def test_a_line_of_our_log_passes_kubeflows_log_endpoint_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    log.event("clean: raw: is missing; got s3://corpus/nothing", level=logging.ERROR, exit_code=3)
    try:
        raise RuntimeError("boom")
    except RuntimeError:
        log.logger().exception("clean failed")
    lines = read_log(capsys.readouterr().err.encode()).decode().splitlines()
    assert lines[0] == "clean: raw: is missing; got s3://corpus/nothing"
    assert (lines[1], lines[-1]) == ("clean failed", "RuntimeError: boom")
    assert len(lines) > 3


def test_time_runs_until_the_end() -> None:
    (done,) = state.tasks(model(frame("SUCCEEDED", Node("clean", "SUCCEEDED"))), NOW)
    (going,) = state.tasks(model(frame("RUNNING", Node("clean", "RUNNING"))), NOW)
    assert (done.seconds, going.seconds) == (65.0, timedelta(minutes=10).total_seconds())
    assert (state.settled([done]), state.settled([done, going])) == (True, False)


def test_a_run_of_which_nothing_is_known_yet_has_no_tasks() -> None:
    assert state.tasks(model({"run_id": "r", "state": "PENDING"}), NOW) == []


def test_names_of_tasks_are_shown_as_they_are_in_the_table() -> None:
    task = state.TaskStatus("id", "a\x1b[2J[bold]b", state.RUNNING, 3.0, "")
    output = io.StringIO()
    Console(file=output, width=80, color_system=None).print(watch._table("RUNNING", [task]))
    assert "a\\x1b[2J[bold]b" in output.getvalue()
    assert "\x1b" not in output.getvalue()
