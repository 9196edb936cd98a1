"""Runs of a tiny net through the stage, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pairmill.engine import runner
from pairmill.engine.runner import Result
from pairmill.errors import StageFailure
from pairmill.stages.train import launch
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.core import Train
from pairmill.stages.train.watch.records import METRICS, exact, read
from tests.support.data import samples

SETTINGS = (
    "model.layers=1",
    "model.width=16",
    "model.heads=2",
    "batch.tokens=128",
    "optimizer.lr=0.01",
    "schedule.warmup_steps=2",
    "training.threads=1",
    "evaluation.every_steps=0",
    "checkpoints.every_minutes=0",
    "watch.every_steps=1",
    "watch.tensorboard=false",
)


def data(folder: Path, rows: int = 60, epochs: int = 2, seed: int = 1) -> Path:
    """A sampled folder of rows of 3 to 16 inputs: about 4 batches an epoch."""
    draw = np.random.default_rng(seed)
    return samples.sampled(folder, [draw.integers(2, 9, (rows, 2)).tolist() for _ in range(epochs)], seed=seed, ids=60)


def config(root: Path, sampled: Path, *settings: str, **options: Any) -> TrainConfig:
    return TrainConfig(
        root=str(root),
        sampled=[str(sampled)],
        train_config=str(empty(root)),
        set=[*SETTINGS, *settings],
        processes=1,
        **options,
    )


def empty(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    path = root / "train_config.yaml"
    path.touch()
    return path


def train(config: TrainConfig, group: launch.Group | None = None) -> Result:
    """Run the stage. Of a run that fails, the error itself is raised."""
    try:
        return runner.run(Train(group or launch.Group(config)), config)
    except StageFailure as failure:
        ((_, error),) = failure.failures
        raise error from None


def digest(result: Result) -> str:
    found: str = result.manifest.data["digest"]
    return found


def lines(result: Result) -> list[dict[str, Any]]:
    """What metrics.jsonl says and is not measured, events left out."""
    found = read(Path(result.uri) / METRICS)
    return [exact(line) for line in found if line["kind"] != "event"]


def events(result: Result) -> list[str]:
    return [line["event"] for line in read(Path(result.uri) / METRICS) if line["kind"] == "event"]


def checkpoints(root: Path) -> list[Path]:
    return sorted(path.parent for path in root.glob("train/shards/*/checkpoints/*/_RECORD.json"))
