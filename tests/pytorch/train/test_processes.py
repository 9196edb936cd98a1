"""The command with ``processes=2``: a signal stops both with a checkpoint, and one goes on. (More: test_ranks.py.)"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pairmill.stages.train.run.job import STOPPED
from tests.pytorch.conftest import ROOT
from tests.pytorch.train import tiny


def start(root: Path, sampled: Path, processes: int) -> "subprocess.Popen[str]":
    settings = [*tiny.SETTINGS, "batch.tokens=120", "checkpoints.every_steps=5"]
    command = [
        *(sys.executable, "-m", "pairmill", "train", f"root={root}", f"sampled={sampled}", f"processes={processes}"),
        *(f"train_config={tiny.empty(root)}", f"set={','.join(settings)}", "device=cpu"),
    ]
    environment = os.environ | {"PAIRMILL_LOG": "json", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stderr=subprocess.PIPE)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, said = process.communicate(timeout=300)
    return process.returncode, said


def test_two_stop_and_one_goes_on(tmp_path: Path) -> None:
    rows, root = 3000, tmp_path / "root"
    sampled = tiny.data(tmp_path / "sampled", rows=rows, epochs=1)

    def saved() -> int:
        return max((int(path.name) for path in tiny.checkpoints(root)), default=0)

    two = start(root, sampled, 2)
    until(lambda: saved() >= 5)
    two.send_signal(signal.SIGTERM)
    code, said = ended(two)
    assert code == STOPPED, said
    assert "a checkpoint is saved, and the same command goes on" in said
    settings = [*tiny.SETTINGS, "batch.tokens=120", "checkpoints.every_steps=50"]
    one = tiny.train(tiny.config(root, sampled, *settings))
    ledger = one.manifest.ledger
    assert ledger.rows_in == rows
    assert ledger.rows_kept + ledger.dropped.get("left_at_end_of_epoch", 0) == rows
    assert tiny.events(one)[-2:] == ["resumed", "finished"]
