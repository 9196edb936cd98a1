"""What the options of a submission are, and what a run's object says of its tasks."""

import dataclasses
import inspect
import json
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import kfp_server_api
import pytest
from apiserver import Node, frame
from helpers import REPOSITORY

from pairmill import cli
from pairmill.errors import UsageError
from pipelines.compile import ImageConfig
from pipelines.placement import Placement
from pipelines.pretraining import build
from pipelines.submit import __main__ as command
from pipelines.submit import publish, state
from pipelines.submit.state import Verdict
from pipelines.submit.watch import TIMED_OUT

NOW = datetime(2026, 11, 21, 1, 10, tzinfo=UTC)


def model(run: dict[str, Any]) -> Any:
    answer = SimpleNamespace(data=json.dumps(run))
    return kfp_server_api.ApiClient().deserialize(answer, "V2beta1Run")


def shown(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(task.label, task.state) for task in state.tasks(model(run), NOW)]


@pytest.mark.parametrize("base", [command.SubmitConfig, command.ScheduleConfig])
def test_options_are_ours_the_compilers_and_the_pipelines(base: type[Any]) -> None:
    ours = {item.name for item in dataclasses.fields(base)}
    parameters = set(inspect.signature(build(Placement(), fan_out=True).pipeline_func).parameters)
    compiling = {item.name for item in dataclasses.fields(ImageConfig)}
    assert not (ours | compiling) & parameters, "a parameter of the pipeline would hide an option"
    made = command.with_pipeline(base)
    assert {item.name for item in dataclasses.fields(made)} == ours | parameters | compiling
    assert all(item.metadata["help"] for item in dataclasses.fields(made))


@pytest.mark.parametrize("workers", [1, 7])
def test_the_parameters_of_the_run_are_the_pipelines(workers: int) -> None:
    parameters = inspect.signature(build(Placement(), fan_out=True).pipeline_func).parameters
    values = {**{name: index for index, name in enumerate(parameters)}, "workers": workers}
    given = command.parameters(SimpleNamespace(**values, host="h", image="i"))
    assert given == {name: value for name, value in values.items() if name != "workers" or workers > 1}


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
    with pytest.raises(UsageError, match="is no schedule"):
        publish.seconds_cron(cron)


@pytest.mark.parametrize("now", ["PENDING", "RUNNING", "CANCELING", "PAUSED", "RUNTIME_STATE_UNSPECIFIED", None])
def test_a_run_that_goes_on_has_no_verdict(now: str | None) -> None:
    run = model(frame("RUNNING"))
    run.state = now
    assert state.verdict(run) is None


def test_a_terminated_run_is_told_from_a_failed_one_by_its_history() -> None:
    assert state.verdict(model(frame("FAILED"))) is Verdict.FAILED
    assert state.verdict(model(frame("FAILED", history=("RUNNING", "CANCELING", "FAILED")))) is Verdict.CANCELED


def test_workers_have_their_index_and_what_is_around_them_is_not_shown() -> None:
    workers = [Node("encode-2", "RUNNING", loop="for-loop-2", index=index) for index in (0, 1, 11)]
    run = frame("RUNNING", Node("clean", "SUCCEEDED"), *workers, Node("finish", ""))
    found = [("clean", "SUCCEEDED"), ("encode[0]", "RUNNING"), ("encode[11]", "RUNNING"), ("encode[1]", "RUNNING")]
    assert sorted(shown(run)) == sorted(found)


def test_a_task_whose_pod_waits_is_pending() -> None:
    assert shown(frame("RUNNING", Node("clean", "RUNNING", executor="PENDING"))) == [("clean", "PENDING")]
    assert shown(frame("RUNNING", Node("clean", "RUNNING", executor="RUNNING"))) == [("clean", "RUNNING")]
    assert shown(frame("RUNNING", Node("clean", "RUNNING", attempts=("PENDING",)))) == [("clean", "PENDING")]
    retried = Node("clean", "RUNNING", attempts=("FAILED", "RUNNING"))
    assert shown(frame("RUNNING", retried)) == [("clean", "RUNNING")]


def test_the_log_of_a_retried_task_is_that_of_its_last_attempt() -> None:
    retried = Node("clean", "FAILED", attempts=("FAILED",) * 11)
    (task,) = state.tasks(model(frame("FAILED", retried)), NOW)
    assert task.node == retried.log_node


def test_a_driver_is_shown_only_where_it_failed() -> None:
    assert shown(frame("FAILED", Node("clean", "DRIVER FAILED"))) == [("clean (driver)", "FAILED")]


def test_ids_of_another_kind_lose_the_index_and_no_failure() -> None:
    run = frame("FAILED", Node("encode", "FAILED", loop="for-loop-1", index=3))
    for entry in run["run_details"]["task_details"]:
        entry["child_tasks"] = [{"pod_name": child["pod_name"][:-1] + "x"} for child in entry["child_tasks"]]
    (task,) = (each for each in state.tasks(model(run), NOW) if each.state == "FAILED")
    assert (task.label, bool(task.node)) == ("encode", True)


def test_time_runs_until_the_end() -> None:
    (done,) = state.tasks(model(frame("SUCCEEDED", Node("clean", "SUCCEEDED"))), NOW)
    (going,) = state.tasks(model(frame("RUNNING", Node("clean", "RUNNING"))), NOW)
    assert (done.seconds, going.seconds) == (65.0, timedelta(minutes=10).total_seconds())
    assert (state.settled([done]), state.settled([done, going])) == (True, False)


def test_a_run_of_which_nothing_is_known_yet_has_no_tasks() -> None:
    assert state.tasks(model({"run_id": "r", "state": "PENDING"}), NOW) == []
