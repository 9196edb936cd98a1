"""``check``: what a run needs and costs, and what is wrong with it, all of it in one table."""

import json
import os
import re
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pairmill.errors import InputError, PairmillError, StorageError, UsageError
from pairmill.interface import cli
from pairmill.nets import attention
from pairmill.nets.batch import Packed
from pairmill.nets.builder import build
from pairmill.nets.initial import initialise
from pairmill.stages.train.check import CheckConfig, Shape, check, flops_per_token, shape_of, table
from pairmill.stages.train.command import COMMANDS
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.data.inputs import open_inputs
from pairmill.training.settings import TrainSettings
from tests.support.data import samples
from tests.support.processes import nursery
from tests.support.processes.nursery import TRAINING

ROOT = Path(__file__).resolve().parents[3]
TINY = ["model.layers=1", "model.width=16", "model.heads=2", "model.feed_width=32", "batch.tokens=64"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw = np.random.default_rng(1)
    return samples.sampled(tmp_path_factory.mktemp("check") / "a", [draw.integers(2, 9, (90, 2)).tolist()] * 2)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No train_config.yaml of the working directory."""
    monkeypatch.chdir(tmp_path)


def config(folder: Path, *settings: str, **options: Any) -> CheckConfig:
    return CheckConfig(sampled=[str(folder)], set=[*TINY, *settings], device="cpu", **options)


def lines(text: str) -> dict[str, str]:
    """What is said of each thing."""
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if not line.startswith(" "):
            _, name, said = re.split(r"\s{2,}", line, maxsplit=2)
        else:
            said = f"{found[name]} {line.strip()}"
        found[name] = said
    return found


def test_all_is_well(folder: Path, tmp_path: Path) -> None:
    said = lines(check(config(folder, root=str(tmp_path / "project"), price=2.0)))
    assert said["Net"].startswith("transformer, 1 layers, width 16")
    assert said["Data"].startswith("rows of a; 512 ids without tokenizer.json; longest 15, 15 positions")
    assert said["Held out"] == "none"
    assert "steps of 64 slots" in said["Length"]
    assert said["Learning rate"].startswith("cosine of 0.001: ")
    assert said["Weights"] == f"{2 * 512 * 16 + 5 * 16 * 16 + 3 * 16 * 32:,}"
    assert said["Rate"].endswith("attention by rows")
    assert "tokens/s, measured on CPU: 3 steps of" in said["Rate"]
    assert re.fullmatch(r"(\d+ \w+ ?)+ without evaluation and checkpoints, \d+\.\d\d at 2 an hour", said["Time"])
    assert "are free" in said["Checkpoints"]
    assert not (tmp_path / "project").exists()


def test_a_rate_is_given_or_a_part_of_the_peak(folder: Path) -> None:
    said = lines(check(config(folder, tokens_per_s=10.0, price=3.0)))
    tokens = int(said["Length"].split(" slots, ")[1].split()[0].replace(",", ""))
    assert said["Rate"] == "10 tokens/s, as given"
    assert said["Time"].startswith(f"{tokens // 600} min ")
    assert f"{tokens / 10 / 3600 * 3:.2f} at 3 an hour" in said["Time"]
    said = lines(check(config(folder, gpu="H100", mfu=0.5, processes=2)))
    each = float(said["Computation"].split(", ")[1].split()[0])
    rate = float(said["Rate"].split()[0].replace(",", ""))
    assert rate == pytest.approx(0.5 * 989e12 * 2 / each, rel=0.01)
    assert said["Rate"].endswith("50% of the peak of 2 x H100")
    assert lines(check(config(folder, gpu="H100")))["Rate"].startswith("not known")


@pytest.mark.parametrize(
    ("settings", "options", "kind", "said"),
    [
        (["batch.tokens=10"], {}, InputError, "batch.tokens: the longest row does not fit into a batch"),
        (["batch.tokens=65"], {"processes": 2}, UsageError, "a global batch cannot be shared out evenly"),
        (["schedule.warmup_steps=4000"], {}, UsageError, "the run ends within the warm-up"),
        (["training.steps=4000"], {}, UsageError, "training.steps: more than there are; got 4,000"),
        (["training.epochs=3"], {}, UsageError, "training.epochs: more than there are; got 3; expected 1 to 2"),
        (["model.lyers=3"], {}, UsageError, "lyers"),
        ([], {"mfu": 0.4}, UsageError, "unknown peak FLOP/s"),
        ([], {"weights_from": "/nowhere"}, InputError, "neither a finished run nor a checkpoint"),
        (["model.width=1048576"], {"root": "."}, StorageError, "not enough room for the checkpoints"),
    ],
)
def test_what_is_wrong(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    settings: list[str],
    options: dict[str, Any],
    kind: type[PairmillError],
    said: str,
) -> None:
    with pytest.raises(kind, match=said):
        check(config(folder, *settings, **options))
    printed = capsys.readouterr().out
    assert "wrong" in printed
    assert said in " ".join(printed.split())


def test_each_mistake_is_named_at_once(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError):
        check(config(folder, "training.steps=4000", weights_from=str(tmp_path / "nowhere")))
    printed = capsys.readouterr().out
    assert printed.count("wrong") == 2
    assert "First weights" in printed
    assert "Length" in printed


@pytest.mark.parametrize("net", ["transformer", "hrm"])
def test_computation_is_that_of_the_rows(folder: Path, net: str) -> None:
    wanted = TrainSettings.parse("", [*TINY, f"model.net={net}", "model.layers=2", "model.bp_min=2", "model.bp_max=2"])
    inputs = open_inputs(CheckConfig(sampled=[str(folder)]), wanted)
    shape = shape_of(inputs, wanted)
    _, (_, inst, _, resp) = samples.arrays(folder)
    assert shape == Shape([0, *np.cumsum(inst + resp - 1).tolist()], inst.tolist(), int(resp.sum()))
    # Counted while it runs: one row, causal within the response alone, which the formula has and a kernel has not.
    row = Shape([0, 9], [9], 1)
    model = build(wanted.model, 512, 16)
    initialise(model, 0)
    labels = torch.full((9,), -100)
    labels[-1] = 3
    packed = Packed(torch.arange(9), torch.arange(9), labels, (0, 9), (9,))
    with FlopCounterMode(display=False) as counted:
        y = model(packed, attention.sees(packed), 2)
        model.logits(y[8:]).sum().backward()
    assert flops_per_token(wanted, 512, row, 10) * 9 == pytest.approx(counted.get_total_flops(), rel=0.15)


def test_more_calls_are_differentiated_later(folder: Path) -> None:
    def each(*more: str) -> float:
        wanted = TrainSettings.parse("", [*TINY, "model.net=hrm", "model.layers=2", *more])
        return flops_per_token(wanted, 512, Shape([0, 9], [4], 5), 100)

    few, many = each("model.bp_min=2", "model.bp_max=2"), each("model.bp_min=5", "model.bp_max=5")
    grows = each("model.bp_min=2", "model.bp_max=5", "model.bp_warmup_ratio=0.5")
    assert few < grows < many
    assert grows > (few + many) / 2


def test_a_table_is_safe_to_print() -> None:
    from pairmill.stages.train.check import Line

    assert "\x1b" not in table([Line("Data", "rows of \x1b[31mred [bold]x[/bold]")])
    assert "[bold]x" in table([Line("Data", "[bold]x")])


def test_the_command_and_its_exit_codes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*options: str) -> int:
        arguments = ["check", "device=cpu", f"set={','.join(TINY)}", *options]
        return cli.main("train", TrainConfig, lambda _: pytest.fail("it trains"), arguments, COMMANDS)

    assert run(f"sampled={folder}", "measure=1") == 0
    assert "wrong" not in capsys.readouterr().out
    assert run(f"sampled={folder}", "processes=3") == 2
    assert run(f"sampled={tmp_path / 'nothing'}") == 3
    assert "not a sampled folder" in " ".join(capsys.readouterr().out.split())


def test_ranks_reach_each_other_and_have_the_same_data(folder: Path, tmp_path: Path) -> None:
    other = samples.sampled(tmp_path / "other", [[(3, 4)] * 60])
    ports = []
    for _ in range(3):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(str(free.getsockname()[1]))
    processes = []
    for rank in range(2):
        given = [str(tmp_path / f"{rank}.json"), " ".join(TINY), str(folder), str((folder, other)[rank]), *ports]
        where = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1"}
        environment = {**os.environ, **where, "OMP_NUM_THREADS": "1"}
        with open(os.devnull, "wb") as nothing:
            output, module = (nothing.fileno(), 2), "tests.pytorch.train.check_rank"
            processes.append(nursery.shared(TRAINING).start(module, given, environment, output, folder=str(tmp_path)))
    assert [process.wait() for process in processes] == [0, 0]
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert "2 reach each other" in told[0][0]
    assert told[1][0] == ""
    for rank in range(2):
        assert "ranks do not agree on the data" in told[rank][1]
        assert told[rank][1].startswith("rank 1 ")
    assert "rank 1" in told[0][2]
