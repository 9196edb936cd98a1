"""The share of a task of an array job, from the environment that Kubernetes and Slurm give it."""

import pytest

from pairmill.engine.options import WorkerSlice
from pairmill.errors import UsageError


def slurm(index: int, indices: range) -> dict[str, str]:
    values = {"ID": index, "COUNT": len(indices), "MIN": indices[0], "MAX": indices[-1], "STEP": indices.step}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in values.items()}


@pytest.fixture(autouse=True)
def no_array(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JOB_COMPLETION_INDEX", *slurm(0, range(1))):
        monkeypatch.delenv(name, raising=False)


def share(monkeypatch: pytest.MonkeyPatch, text: str, environment: dict[str, str]) -> str:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return str(WorkerSlice.parse(text))


@pytest.mark.parametrize(
    ("text", "environment", "expected"),
    [
        ("auto/8", {"JOB_COMPLETION_INDEX": "0"}, "1/8"),
        ("auto/8", {"JOB_COMPLETION_INDEX": "7"}, "8/8"),
        ("auto", slurm(0, range(4)), "1/4"),
        ("auto", slurm(4, range(1, 5)), "4/4"),
        ("auto", slurm(6, range(0, 8, 2)), "4/4"),
        # A task of a larger array that is submitted again.
        ("auto/64", slurm(3, range(3, 4)), "4/64"),
        ("auto", slurm(3, range(3, 4)), "1/1"),
    ],
)
def test_the_share_is_the_place_in_the_array(
    monkeypatch: pytest.MonkeyPatch, text: str, environment: dict[str, str], expected: str
) -> None:
    assert share(monkeypatch, text, environment) == expected


@pytest.mark.parametrize(
    ("text", "environment", "what", "hint"),
    [
        ("auto", {}, "no array job started this process", "share=1/7"),
        ("auto", {"JOB_COMPLETION_INDEX": "3"}, "does not say how many tasks", "share=auto/<completions"),
        ("auto/4", {"JOB_COMPLETION_INDEX": "4"}, "more tasks than shares", "completions: 4"),
        ("auto", {**slurm(7, range(8)), "SLURM_ARRAY_TASK_COUNT": "2"}, "have gaps", "share=auto/<shares>"),
        ("auto/", {"JOB_COMPLETION_INDEX": "0"}, "not a valid share", "auto/7"),
        ("5", {}, "not a valid share", "1/7 to 7/7"),
    ],
)
def test_an_array_that_does_not_fit_is_refused_with_the_line_to_write(
    monkeypatch: pytest.MonkeyPatch, text: str, environment: dict[str, str], what: str, hint: str
) -> None:
    with pytest.raises(UsageError) as error:
        share(monkeypatch, text, environment)
    assert what in str(error.value)
    assert hint in str(error.value)
