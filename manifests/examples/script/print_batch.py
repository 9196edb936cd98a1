"""What a trainer does with the samples of its node: hold, map, read a batch. Needs numpy alone."""

import fcntl
import json
import os
import time
from pathlib import Path

import numpy as np

NODE = Path("/dev/shm/pairmill")  # noqa: S108 - the samples' place
ROWS = 4

plan = os.environ.get("PLAN") or (NODE / "PLAN").read_text().strip()
folder = NODE / plan

# Held until this process ends: the sampler keeps an older sample as long as anybody has a shared lock on its folder.
held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
fcntl.flock(held, fcntl.LOCK_SH)

metadata = json.loads((folder / "metadata.json").read_text())
tokens = np.load(folder / "tokens.npy", mmap_mode="r")
names = ("inst_start", "inst_len", "resp_start", "resp_len")
index = {name: np.load(folder / "epoch_0" / f"{name}.npy", mmap_mode="r") for name in names}
rows = len(index["inst_start"])
print(f"plan {plan}: {rows:,} rows an epoch, {len(tokens):,} tokens as {tokens.dtype}", flush=True)

for row in range(min(ROWS, rows)):
    start, length = index["inst_start"][row], index["inst_len"][row]
    instruction = tokens[start : start + length]
    start, length = index["resp_start"][row], index["resp_len"][row]
    response = tokens[start : start + length]
    assert len(instruction) + len(response) <= metadata["max_seq_len"], f"row {row} is longer than the context"
    print(f"row {row}: instruction {instruction.tolist()[:8]} response {response.tolist()[:8]}", flush=True)

time.sleep(float(os.environ.get("TRAIN_SECONDS", "0")))
print("done", flush=True)
