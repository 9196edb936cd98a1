"""Whole runs of HRM-Text, repeated by the stage: 120 steps on one rank, on two, and both ways to go on from a run.

HRM-Text's resume begins another run with the weights (and the optimizer's state) of an earlier one: ``weights_from=``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from components.train import launch
from components.train.config import TrainConfig
from components.train.core import Train
from components.train.settings import ModelSettings
from components.train.trained import EMA, WEIGHTS, Trained
from components.train.watch.records import METRICS, read
from pairmill.engine import runner
from pairmill.interface import cli
from tests.pytorch_conformance.recorded import ROOT, TRAIN

LOSSES, NORMS = 1e-4, 1e-5
MODEL = {"layers": 4, "width": 64, "heads": 2, "init": "lecun_normal", "norm_eps": 1e-6}
SETTINGS = [
    "profile=hrm_text",
    "model.size=none",
    *(f"model.{name}={value}" for name, value in MODEL.items()),
    "batch.tokens=512",
    "optimizer.lr=0.003",
    "schedule.min_ratio=0.1",
    "schedule.warmup_steps=5",
    "training.ema=0.9",
    "training.precision=float32",
    "training.threads=1",
    "watch.every_steps=1",
    "watch.tensorboard=false",
    "checkpoints.every_minutes=0",
    "checkpoints.every_steps=60",
    "checkpoints.keep=9",
]


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TRAIN / "run" / "runs.json").read_text())
    assert set(found) == {"one_rank", "two_ranks", "resume_with_optimizer", "resume_from_ema"}
    return found


@pytest.fixture(scope="module")
def initial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded initial weights, as a finished run has them."""
    folder = tmp_path_factory.mktemp("initial")
    weights = load_file(TRAIN / "run" / "init.safetensors")
    tensors = {name.removeprefix("init."): one for name, one in weights.items()}
    save_file({name: one if "zL" in name else one.float() for name, one in tensors.items()}, folder / WEIGHTS)
    model = ModelSettings.of("hrm", **MODEL)
    (folder / "config.json").write_bytes(Trained(vars(model) | {"H_override": {}}, 512, 64, {}).dump())
    return folder


def train(root: Path, *options: str, more: tuple[str, ...] = (), processes: int = 1) -> Path:
    """The folder of a finished run: in this process if it is one, as torch is imported here already."""
    arguments = [
        *(f"sampled={TRAIN / 'run' / 'data'}", f"root={root}", f"processes={processes}"),
        *(f"set={','.join([*SETTINGS, *more])}", *options),
    ]
    if processes == 1:
        config = cli.build(TrainConfig, cli.split(arguments))
        return Path(runner.run(Train(launch.Group(config)), config).uri)
    environment = os.environ | {"PAIRMILL_LOG": "json", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "components.train", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def one_rank(initial: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("one_rank")
    train(root, f"weights_from={initial}", "weights=current", more=("training.epochs=4", "batch.tail=drop"))
    return root


def compare(folder: Path, recorded: dict[str, Any]) -> None:
    """Every loss, accuracy, rate and b of the run, and the norms at its end."""
    lines = [line for line in read(folder / METRICS) if line["kind"] == "step"]
    logged = recorded["logged"][1:]
    assert len(lines) == len(logged) > 29
    for mine, theirs in zip(lines, logged, strict=True):
        assert mine["step"] == theirs["step"]
        assert mine["loss"] == pytest.approx(theirs["train/loss"], abs=LOSSES)
        assert mine["accuracy"] == pytest.approx(theirs["train/accuracy"], abs=0.01)
        assert mine["lr"] == pytest.approx(theirs["train/lr"], rel=1e-12)
        assert mine["b"] == theirs["bp_steps"]
    weights, averaged = load_file(folder / WEIGHTS), load_file(folder / EMA)
    looked = 0
    for name, norm in recorded["final_norms"].items():
        if name.startswith("optim.state."):
            tensor = averaged[name.removeprefix("optim.state.").removesuffix(".param_ema")]
        else:
            tensor = weights[name.removeprefix("model.")]
        assert float(tensor.double().norm()) == pytest.approx(norm, rel=NORMS), name
        looked += 1
    assert looked == 36


def finished(root: Path) -> Path:
    (found,) = (path.parent for path in (root / "train").glob("*/_MANIFEST.json"))
    return found


def test_one_rank(one_rank: Path, runs: dict[str, Any]) -> None:
    compare(finished(one_rank), runs["one_rank"])


def test_two_ranks(initial: Path, runs: dict[str, Any], tmp_path: Path) -> None:
    start = f"weights_from={initial}", "weights=current"
    compare(train(tmp_path, *start, more=("training.epochs=1",), processes=2), runs["two_ranks"])


def test_resume_with_optimizer(one_rank: Path, runs: dict[str, Any], tmp_path: Path) -> None:
    (checkpoints,) = (one_rank / "train" / "shards").glob("*/checkpoints")
    start = f"weights_from={checkpoints / '00000060'}", "weights=all"
    folder = train(tmp_path, *start, more=("training.epochs=1",))
    compare(folder, runs["resume_with_optimizer"])


def test_resume_from_ema(one_rank: Path, runs: dict[str, Any], tmp_path: Path) -> None:
    start = f"weights_from={finished(one_rank)}", "weights=ema"
    compare(
        train(tmp_path, *start, more=("training.epochs=1", "optimizer.betas=[0.8\\,0.95]")), runs["resume_from_ema"]
    )


def test_counts_of_the_optimizer_go_on(one_rank: Path, runs: dict[str, Any]) -> None:
    (record,) = (one_rank / "train" / "shards").glob("*/checkpoints/00000120/_RECORD.json")
    steps = json.loads(record.read_text())["says"]["optimizer"]["steps"]
    recorded = runs["one_rank"]["optimizer_steps"]
    assert {f"optim.state.{name}.step": float(count) for name, count in steps.items()} == recorded
