"""A run is watched by processes: its checkpoints are asked, with weights and figures that are theirs."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.pytorch.train import tiny
from tests.support.data import samples
from tests.support.nets.trained_runs import ROWS_INFO, tokenizer


def test_checkpoints_are_asked_by_processes(tmp_path: Path) -> None:
    draw = np.random.default_rng(1)
    info = {**ROWS_INFO, "vocab_size": 262}
    rows = [draw.integers(2, 9, (60, 2)).tolist() for _ in range(2)]
    data, root = samples.sampled(tmp_path / "data", rows, seed=1, ids=262, tokenizer_info=info), tmp_path / "root"
    (tmp_path / "tokenizer.json").write_text(tokenizer())
    kept = ("checkpoints.every_steps=4", "model.width=8")
    tiny.train(tiny.config(root, data, *kept, tokenizer=str(tmp_path / "tokenizer.json")))
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps({"question": "1?", "answer": "#### 1"}) + "\n")
    said = "generation.max_tokens=2,benchmarks.gsm8k.condition=cot,generation.max_context=64"
    command = [sys.executable, "-m", "pairmill", "evaluate", f"watch={root}", "every=8", f"root={root}", f"set={said}"]
    command += ["benchmarks=gsm8k", f"data=gsm8k={tmp_path / 'gsm8k.jsonl'}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["step", "8"]
    (table,) = (root / "evaluate/watched").rglob("table.csv")
    (found,) = [line for line in csv.DictReader(io.StringIO(table.read_text())) if line["metric"] == "gsm8k"]
    assert (found["step"], found["epoch_fraction"], found["n"]) == ("8", "2.0", "1")
    assert int(found["tokens"]) > 500
