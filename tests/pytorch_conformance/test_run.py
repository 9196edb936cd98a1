"""Whole runs of HRM-Text, repeated by the stage: 120 steps on one rank, on two, and both ways to go on from a run.

HRM-Text's resume begins another run with the weights (and the optimizer's state) of an earlier one: ``weights_from=``.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from pairmill.engine import runner
from pairmill.engine.options import list_item
from pairmill.interface import cli
from pairmill.nets.trained import EMA, WEIGHTS, Trained
from pairmill.stages.train import launch
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.core import Train
from pairmill.stages.train.watch.records import METRICS, read
from tests.pytorch_conformance.published import of_hrm_text
from tests.pytorch_conformance.recorded import ROOT, TRAIN

LOSSES, NORMS = 1e-4, 1e-5


def settings_of(config: dict[str, Any], every_steps: int) -> list[str]:
    """A recorded configuration as ours; checkpoints after each so many steps."""
    model = {**asdict(of_hrm_text(config["arch"])), "size": "none"}
    model["H_override"] = {name: value for name, value in model["H_override"].items() if value is not None}
    return [
        "profile=hrm_text",
        f"model={json.dumps(model)}",
        f"batch.tokens={config['global_batch_size']}",
        f"batch.target_only={json.dumps(config['data']['target_only'])}",
        f"optimizer.lr={config['lr']}",
        f"optimizer.weight_decay={config['weight_decay']}",
        f"optimizer.betas=[{config['beta1']}, {config['beta2']}]",
        f"schedule.min_ratio={config['lr_min_ratio']}",
        f"schedule.warmup_steps={config['lr_warmup_steps']}",
        f"training.epochs={config['epochs']}",
        f"training.ema={config['ema']}",
        "training.precision=float32",
        "training.threads=1",
        f"watch.every_steps={config['log_interval']}",
        "watch.tensorboard=false",
        "checkpoints.every_minutes=0",
        f"checkpoints.every_steps={every_steps}",
        "checkpoints.keep=9",
    ]


def steps_of(recorded: dict[str, Any]) -> int:
    return int(recorded["logged"][-1]["step"])


@pytest.fixture(scope="module")
def runs() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TRAIN / "run" / "runs.json").read_text())
    assert set(found) == {"one_rank", "two_ranks", "resume_with_optimizer", "resume_from_ema"}
    assert all(len(one["logged"]) > 2 for one in found.values())
    return found


@pytest.fixture(scope="module")
def initial(runs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded initial weights, as a finished run has them."""
    folder = tmp_path_factory.mktemp("initial")
    weights = load_file(TRAIN / "run" / "init.safetensors")
    tensors = {name.removeprefix("init."): one for name, one in weights.items()}
    save_file({name: one if "zL" in name else one.float() for name, one in tensors.items()}, folder / WEIGHTS)
    config = runs["one_rank"]["init"]["config"]
    said = config["train_metadata"]
    model = {**asdict(of_hrm_text(config["arch"])), "H_override": config["arch"].get("H_override", {})}
    (folder / "config.json").write_bytes(Trained(model, said["vocab_size"], said["max_seq_len"], {}).dump())
    return folder


def train(root: Path, recorded: dict[str, Any], *options: str, every_steps: int = 0, processes: int = 1) -> Path:
    """The folder of a finished run: in this process if it is one, as torch is imported here already."""
    arguments = [
        *(f"sampled={TRAIN / 'run' / 'data'}", f"root={root}", f"processes={processes}"),
        *(f"set={','.join(map(list_item, settings_of(recorded['init']['config'], every_steps)))}", *options),
    ]
    if processes == 1:
        config = cli.build(TrainConfig, cli.split(arguments))
        return Path(runner.run(Train(launch.Group(config)), config).uri)
    environment = os.environ | {"PAIRMILL_LOG": "json", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pairmill", "train", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def resumed_after(runs: dict[str, Any]) -> int:
    """The step of the whole run after which another goes on with its optimizer, whose counts go on too."""
    said = runs["resume_with_optimizer"]
    return int(max(said["optimizer_steps"].values())) - steps_of(said)


@pytest.fixture(scope="module")
def one_rank(initial: Path, runs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("one_rank")
    start = f"weights_from={initial}", "weights=current"
    train(root, runs["one_rank"], *start, every_steps=resumed_after(runs))
    return root


def compare(folder: Path, recorded: dict[str, Any]) -> None:
    """Every loss, accuracy, rate and b of the run, and the norms at its end."""
    lines = [line for line in read(folder / METRICS) if line["kind"] == "step"]
    logged = recorded["logged"][1:]
    assert [line["step"] for line in lines] == [line["step"] for line in logged]
    for mine, theirs in zip(lines, logged, strict=True):
        assert mine["loss"] == pytest.approx(theirs["train/loss"], abs=LOSSES)
        assert mine["accuracy"] == pytest.approx(theirs["train/accuracy"], abs=0.01)
        assert mine["lr"] == pytest.approx(theirs["train/lr"], rel=1e-12)
        assert mine.get("b") == theirs.get("bp_steps")
    weights, averaged = load_file(folder / WEIGHTS), load_file(folder / EMA)
    assert len(recorded["final_norms"]) >= len(averaged)
    for name, norm in recorded["final_norms"].items():
        if name.startswith("optim.state."):
            tensor = averaged[name.removeprefix("optim.state.").removesuffix(".param_ema")]
        else:
            tensor = weights[name.removeprefix("model.")]
        assert float(tensor.double().norm()) == pytest.approx(norm, rel=NORMS), name


def finished(root: Path) -> Path:
    (found,) = (path.parent for path in (root / "train").glob("*/_MANIFEST.json"))
    return found


def test_one_rank(one_rank: Path, runs: dict[str, Any]) -> None:
    compare(finished(one_rank), runs["one_rank"])


def test_two_ranks(initial: Path, runs: dict[str, Any], tmp_path: Path) -> None:
    start = f"weights_from={initial}", "weights=current"
    compare(train(tmp_path, runs["two_ranks"], *start, processes=2), runs["two_ranks"])


def test_resume_with_optimizer(one_rank: Path, runs: dict[str, Any], tmp_path: Path) -> None:
    (checkpoints,) = (one_rank / "train" / "shards").glob("*/checkpoints")
    start = f"weights_from={checkpoints / f'{resumed_after(runs):08}'}", "weights=all"
    compare(train(tmp_path, runs["resume_with_optimizer"], *start), runs["resume_with_optimizer"])


def test_resume_from_ema(one_rank: Path, runs: dict[str, Any], tmp_path: Path) -> None:
    start = f"weights_from={finished(one_rank)}", "weights=ema"
    compare(train(tmp_path, runs["resume_from_ema"], *start), runs["resume_from_ema"])


def test_counts_of_the_optimizer_go_on(one_rank: Path, runs: dict[str, Any]) -> None:
    recorded = runs["one_rank"]
    (record,) = (one_rank / "train" / "shards").glob(f"*/checkpoints/{steps_of(recorded):08}/_RECORD.json")
    steps = json.loads(record.read_text())["says"]["optimizer"]["steps"]
    assert {f"optim.state.{name}.step": float(count) for name, count in steps.items()} == recorded["optimizer_steps"]
