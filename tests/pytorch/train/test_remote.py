"""A project in a bucket: checkpoints, lines and the finished run are there, and a run that was killed goes on."""

from pathlib import Path
from typing import Any

import pytest

from pairmill import storage
from pairmill.nets.run import Run
from pairmill.nets.trained import WEIGHTS
from tests.pytorch.train import tiny
from tests.pytorch.train.test_kill import dying, killed
from tests.support.objectstores.fixtures import gcs_server, gs, s3, s3_server, use

__all__ = ["gcs_server", "gs", "s3", "s3_server", "use"]

SETTINGS = ("checkpoints.every_steps=2", "checkpoints.keep=2", "watch.tensorboard=true")


@pytest.mark.parametrize("backend", ["s3", "gs"])
def test_killed_and_started_again_in_a_bucket(tmp_path: Path, backend: str, request: pytest.FixtureRequest) -> None:
    root = f"{request.getfixturevalue(backend)}/project"
    sampled = tiny.data(tmp_path / "sampled")
    whole = tiny.train(tiny.config(tmp_path / "whole", sampled, *SETTINGS))

    def config() -> Any:
        found = tiny.config(tmp_path / "settings", sampled, *SETTINGS)
        found.root = root
        return found

    def work() -> None:
        storage.forget()  # connections are the parent's
        dying(6, during=False)
        tiny.train(config())

    killed(work)
    (shard,) = storage.store_for(root).folders(storage.join(root, "train", "shards"))
    checkpoints = storage.join(root, "train", "shards", shard, "checkpoints")
    again = tiny.train(config())
    assert again.manifest.data["digest"] == whole.manifest.data["digest"]
    assert len(storage.store_for(checkpoints).folders(checkpoints)) == 2
    assert {WEIGHTS, "config.json", "metrics.jsonl", "report.html"} <= {file.path for file in again.manifest.files}
    run = Run.open(again.uri)
    assert run.trained.steps == whole.manifest.data["last"]["step"]
    assert run.net("ema").state_dict().keys() == run.net("current").state_dict().keys()
    # Others begin with its checkpoints, or its weights.
    after = tiny.train(tiny.config(tmp_path / "after", sampled, weights_from=again.uri, weights="current"))
    assert after.uri != again.uri
    more = tiny.train(tiny.config(tmp_path / "more", sampled, weights_from=checkpoints, weights="all"))
    assert more.uri != after.uri
    assert tiny.train(config()).reused
