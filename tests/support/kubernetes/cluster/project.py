"""Runs in the cluster, with the sampler's image: makes or removes a project folder on the node, generated.

    python project.py make <project> <node folder>      prints the fingerprints of its plans, the last one larger
    python project.py remove <project> <node folder>

The machine may be a developer's: nothing is touched that this program did not make.
"""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

from pairmill.engine.manifest import MANIFEST, File, Ledger, Manifest

OURS = "made by pairmill's cluster tests"
TASKS = ("flan__a.parquet", "gsm8k_train.jsonl", "tasksource__b.parquet")
ROWS = 15_000
VOCABULARY = 65_536
EPOCHS = (4, 4, 40)
"""Of each plan. All three fit side by side into the 64 MB that a container engine gives /dev/shm of a kind node."""
RULES = "- prefix: flan__\n  max_per_file: 4_000\n- prefix: gsm8k_train.jsonl\n  repeat: 2\n"


def tokenized(root: Path) -> Path:
    """A tokenized folder with its manifest."""
    random = np.random.default_rng(7)
    name = hashlib.sha256(OURS.encode()).hexdigest()[:16]
    folder = root / "tokenize" / name
    files = []
    for task in TASKS:
        instruction, response = random.integers(4, 60, ROWS), random.integers(2, 80, ROWS)
        ends = np.cumsum(instruction + response)
        starts = ends - instruction - response
        arrays = {
            "tokens": random.integers(0, VOCABULARY, ends[-1], np.uint32),
            "inst_start": starts.astype(np.uint64),
            "inst_len": instruction.astype(np.uint64),
            "resp_start": (starts + instruction).astype(np.uint64),
            "resp_len": response.astype(np.uint64),
        }
        (folder / task).mkdir(parents=True)
        for array, values in arrays.items():
            path = folder / task / f"{array}.npy"
            np.save(path, values)
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            files.append(File(f"{task}/{array}.npy", path.stat().st_size, digest, task))
    (folder / "tokenizer_info.json").write_text(json.dumps({"vocab_size": VOCABULARY}))
    rows = ROWS * len(TASKS)
    ledger = Ledger(rows_in=rows, rows_kept=rows, rows_out=rows)
    (folder / MANIFEST).write_bytes(Manifest("tokenize", 1, name, {}, [], ledger, files).dump())
    return folder


def make(root: Path, node: Path) -> None:
    """The tokenized folder, and the plans, each with a seed of its own."""
    for folder in (root, node):
        if folder.is_dir() and any(folder.iterdir()):
            sys.exit(f"{folder} of the node is not empty: these tests need a cluster that nobody works on")
    for folder in (root, node):
        (folder / OURS).touch()
    source = tokenized(root)
    rules = root / "rules.yaml"
    rules.write_text(RULES)
    plans = []
    for seed, epochs in enumerate(EPOCHS):
        arguments = [f"tokenized_path={source}", f"prefix_config_path={rules}", f"root={root}", "output_path="]
        program = [sys.executable, "-m", "pairmill", "sample", *arguments, f"seed={seed}", f"epochs={epochs}"]
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL)
        (made,) = {path.name for path in (root / "sample").glob("[0-9a-f]*")} - set(plans)
        plans.append(made)
    print(json.dumps(plans))


def remove(root: Path, node: Path) -> None:
    """What ``make`` and the samplers after it left in the two folders; the marks go last."""
    for folder in (root, node):
        if (folder / OURS).exists():
            for path in sorted(folder.iterdir(), key=lambda path: path.name == OURS):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    {"make": make, "remove": remove}[sys.argv[1]](Path(sys.argv[2]), Path(sys.argv[3]))
