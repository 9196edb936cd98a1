"""What the emulator of Kubeflow does where no run was recorded: expressions, numbers as text, the limit of retries."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes.emulator import Attempt, Backend, Folder, Process, expressions, values


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("inputs.parameter_values['pipelinechannel--s'] == 'a && !b'", True),
        ("inputs.parameter_values['pipelinechannel--s'] != 'a && !b'", False),
        ("int(inputs.parameter_values['pipelinechannel--n']) >= 3", True),
        ("double(inputs.parameter_values['pipelinechannel--n']) < 3.5", True),
        ("!(int(inputs.parameter_values['pipelinechannel--n']) == 3) && true == true", False),
        ("int(inputs.parameter_values['pipelinechannel--n']) == -1 || true == true", True),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    parameters = {"pipelinechannel--s": "a && !b", "pipelinechannel--n": 3.0}
    assert expressions.holds(condition, parameters) is holds


def test_an_expression_that_is_not_known_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="does not know"):
        expressions.holds("[1].exists(x, x > 0)", {})


@pytest.mark.parametrize(
    ("number", "of_the_driver", "of_the_launcher", "json"),
    [
        (1234567.5, "1.2345675e+06", "1234567.5", "1234567.5"),
        (1e21, "1e+21", "1000000000000000000000", "1e+21"),
        (-2.5e-7, "-2.5e-07", "-0.00000025", "-2.5e-7"),
        (12.5, "12.5", "12.5", "12.5"),
    ],
)
def test_numbers_as_text(number: float, of_the_driver: str, of_the_launcher: str, json: str) -> None:
    assert values.driver_text(number) == of_the_driver
    assert values.text(number) == of_the_launcher
    assert values.dumps(number) == json


def program(*command: str, **task: Any) -> dict[str, Any]:
    """A pipeline of one task."""
    return {
        "pipelineInfo": {"name": "any"},
        "root": {"dag": {"tasks": {"one": {"componentRef": {"name": "comp-one"}, **task}}}},
        "components": {"comp-one": {"executorLabel": "exec-one"}},
        "deploymentSpec": {"executors": {"exec-one": {"container": {"image": "any", "command": [*command]}}}},
    }


def test_the_longest_duration_limits_all_attempts_together(tmp_path: Path) -> None:
    policy = {"maxRetryCount": 9, "backoffDuration": "1s", "backoffFactor": 2.0, "backoffMaxDuration": "5s"}
    # Real seconds: with shorter ones a busy machine has begun the third attempt only after the limit.
    backend = Backend(Folder(tmp_path / "objects"), Process(), tmp_path / "pods", second=1.0)
    run = backend.run([program("false", retryPolicy=policy)])
    assert run.state == "FAILED"
    # They begin after 0, 1 and 3 seconds; the next would after 7.
    assert [attempt.index for attempt in run.attempts] == [0, 1, 2]


def test_a_stock_installation_tries_deleted_pods_again_and_programs_that_fail_never(tmp_path: Path) -> None:
    policy = {"maxRetryCount": 2, "backoffDuration": "1s", "backoffFactor": 2.0, "backoffMaxDuration": "9000s"}
    for given in ({"retryPolicy": policy}, {}):
        backend = Backend(Folder(tmp_path / "objects"), Process(), tmp_path / "pods", second=0.01, stock=True)
        run = backend.run([program("sh", "-c", "exit 3", **given)])
        assert (run.state, [attempt.node for attempt in run.attempts]) == ("FAILED", ["root.one.executor(0)"])

        def delete_the_first(attempt: Attempt) -> None:
            if attempt.index == 0:
                attempt.delete("somebody")

        backend.started = delete_the_first
        run = backend.run([program("sleep", "0.5", **given)])
        assert (run.state, [attempt.index for attempt in run.attempts]) == ("SUCCEEDED", [0, 1])


def test_secrets_and_volumes_reach_the_program(tmp_path: Path) -> None:
    settings = {
        "secretAsEnv": [{"secretName": "keys", "keyToEnv": [{"secretKey": "id", "envVar": "KEY_ID"}]}],
        "secretAsVolume": [{"secretName": "keys", "mountPath": "/tmp/emulator-keys"}],
        "genericEphemeralVolume": [{"volumeName": "scratch", "mountPath": "/tmp/emulator-scratch", "size": "1Gi"}],
    }
    platform = {"platforms": {"kubernetes": {"deploymentSpec": {"executors": {"exec-one": settings}}}}}
    command = 'echo "$KEY_ID" "$(cat /tmp/emulator-keys/id)" "$(ls /tmp/emulator-scratch | wc -l)"'
    secrets = {"keys": {"id": "AKIA"}}
    backend = Backend(Folder(tmp_path / "objects"), Process(), tmp_path / "pods", secrets)
    # What Kubernetes would expand is written twice.
    run = backend.run([program("sh", "-c", command.replace("$", "$$")), platform])
    assert run.state == "SUCCEEDED", run.failures()
    assert run.attempts[0].log == b"AKIA AKIA 0\n"
    assert backend.run([program("true"), platform]).state == "SUCCEEDED"
    backend.secrets = {}
    run = backend.run([program("true"), platform])
    assert run.state == "FAILED"
    assert 'secret "keys" not found' in run.reasons["root.one"]
