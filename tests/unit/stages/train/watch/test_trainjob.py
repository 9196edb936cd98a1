"""The status of a TrainJob: what is posted, how often, and what becomes of a controller that is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from pairmill.stages.train.watch import trainjob
from pairmill.stages.train.watch.trainjob import TrainJob
from tests.support import lazy
from tests.support.servers.posts import Posts

trainer = lazy.Module("kubeflow_trainer_api.models")


def environment(posts: Posts, folder: Path) -> dict[str, str]:
    (folder / "token").write_text("secret-1\n")
    return {
        "KUBEFLOW_TRAINER_SERVER_URL": f"{posts.url}/status",
        "KUBEFLOW_TRAINER_SERVER_CA_CERT": "",
        "KUBEFLOW_TRAINER_SERVER_TOKEN": str(folder / "token"),
    }


def test_progress_and_metrics_are_posted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter((100.0, 110.0, 112.0, 113.0, 120.0))
    monkeypatch.setattr(trainjob.time, "monotonic", lambda: next(times))
    with Posts() as posts:
        job = TrainJob(50, 10, environment(posts, tmp_path))
        job.write({"kind": "step", "step": 20, "loss": 2.5, "lr": 1e-4, "x" * 65: 1.0})
        # Less than five seconds later; its numbers are in the next post.
        job.write({"kind": "heldout", "step": 20, "heldout_loss": 3.0})
        job.write({"kind": "event", "step": 21, "event": "skipped"})
        job.write({"kind": "step", "step": 30, "loss": 2.25, "lr": 1e-4})
    assert [value["trainerStatus"]["progressPercentage"] for value in posts.values] == [40, 60]
    # Ten steps in ten seconds, thirty are left; then twenty in twenty.
    assert [value["trainerStatus"]["estimatedRemainingSeconds"] for value in posts.values] == [30, 20]
    metrics = [{item["name"]: item["value"] for item in value["trainerStatus"]["metrics"]} for value in posts.values]
    assert metrics == [{"loss": "2.5", "lr": "0.0001"}, {"loss": "2.25", "lr": "0.0001", "heldout_loss": "3"}]
    assert posts.headers[0]["authorization"] == "Bearer secret-1"
    for value in posts.values:
        # The model that Kubeflow Trainer's own package has of the request.
        model = trainer.TrainerV1alpha1UpdateTrainJobStatusRequest.from_dict(value)
        assert model is not None
        status = model.to_dict()["trainerStatus"]
        assert {key: item for key, item in status.items() if key != "lastUpdatedTime"} == {
            key: item for key, item in value["trainerStatus"].items() if key != "lastUpdatedTime"
        }


def test_the_last_step_is_posted_at_once(tmp_path: Path) -> None:
    with Posts() as posts:
        job = TrainJob(2, 0, environment(posts, tmp_path))
        job.write({"kind": "step", "step": 1, "loss": 2.0})
        job.write({"kind": "step", "step": 2, "loss": 1.0})
    assert [value["trainerStatus"]["progressPercentage"] for value in posts.values] == [50, 100]
    assert posts.values[-1]["trainerStatus"]["estimatedRemainingSeconds"] == 0


def test_nothing_is_posted_outside_of_a_trainjob() -> None:
    with Posts() as posts:
        TrainJob(1, 0, {}).write({"kind": "step", "step": 1, "loss": 2.0})
    assert posts.values == []


def test_a_controller_that_refuses_is_warned_of_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Posts(503) as posts:
        job = TrainJob(1, 0, environment(posts, tmp_path))
        for _ in range(9):
            job.write({"kind": "step", "step": 1, "loss": 2.0})
    assert len(posts.values) == 5
    assert caplog.text.count("the status of the TrainJob is not updated: ") == 2
    assert "503" in caplog.text
    assert "secret-1" not in caplog.text


def test_a_token_that_is_missing_stops_no_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Posts() as posts:
        variables = environment(posts, tmp_path) | {"KUBEFLOW_TRAINER_SERVER_TOKEN": str(tmp_path / "none")}
        TrainJob(1, 0, variables).write({"kind": "step", "step": 1, "loss": 2.0})
    assert posts.values == []
    assert "the status of the TrainJob is not updated: " in caplog.text
