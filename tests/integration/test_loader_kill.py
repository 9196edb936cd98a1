"""Ranks that are killed: a new start hands out each row once, with the bytes that it would have had."""

import hashlib
import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from pairmill.loader import Loader, RowPlan
from tests.support.data import samples
from tests.support.helpers import PATIENCE, start

# A rank: notes each batch, then its position, as a trainer with a checkpoint after every step.
RANK = """
import hashlib, json, os, sys, time
from pathlib import Path
from pairmill.loader import Loader, RowPlan
folder, out, state = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
rank, ranks, batch_tokens, threads = map(int, sys.argv[4:])
loader = Loader(RowPlan(folder, tail="keep"), batch_tokens=batch_tokens, rank=rank, ranks=ranks, threads=threads)
if state:
    loader.load_state_dict(json.loads(state))
with open(out / f"{rank}.log", "w") as log:
    for batch in loader:
        digest = hashlib.sha256(b"".join(array.tobytes() for array in batch.values())).hexdigest()
        log.write(json.dumps([batch.step, batch.rows.tolist(), digest, loader.state_dict()]) + "\\n")
        log.flush()
        time.sleep(0.002)
"""


@pytest.mark.parametrize(
    "worlds",
    [pytest.param([(2, 300)], marks=pytest.mark.full), [(1, 120), (2, 300), (3, 450)]],
    ids=["one world", "changing worlds"],
)
def test_killed_ranks_go_on_with_each_row_once(tmp_path: Path, worlds: list[tuple[int, int]]) -> None:
    draw = random.Random(1)
    folder = samples.sampled(
        tmp_path / "sampled", [[(draw.randint(1, 30), draw.randint(2, 30)) for _ in range(700)] for _ in range(2)]
    )
    kept: dict[int, list[tuple[list[list[int]], str]]] = {}
    state, kills, codes = "", 0, {-9}
    while codes != {0}:
        ranks, batch_tokens = draw.choice(worlds)
        out = tmp_path / f"run {kills}"
        out.mkdir()
        running = [
            start(RANK, str(folder), str(out), state, *map(str, (rank, ranks, batch_tokens, draw.choice((0, 1, 3)))))
            for rank in range(ranks)
        ]
        if kills < 5:
            size, log = draw.randint(1, 8_000), out / "0.log"
            while running[0].poll() is None and not (log.exists() and log.stat().st_size > size):
                time.sleep(0.001)
            for process in running:
                process.kill()
        for process in running:
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode in {0, -9}, errors
        codes = {process.returncode for process in running}
        kills += codes != {0}
        # A killed rank's last line may be cut off; a checkpoint is what all ranks have reached.
        lines = [
            (out / f"{rank}.log").read_text().split("\n")[:-1] if (out / f"{rank}.log").exists() else []
            for rank in range(ranks)
        ]
        common = min(map(len, lines))
        for entries in zip(*(map(json.loads, mine[:common]) for mine in lines), strict=True):
            step, _, _, state_after = entries[0]
            assert all(entry[0] == step and entry[3] == state_after for entry in entries)
            assert step not in kept
            kept[step] = [(rows, digest) for _, rows, digest, _ in entries]
            state = json.dumps(state_after)
    assert kills == 5
    assert sorted(kept) == list(range(len(kept)))
    counts = Counter(tuple(row) for ranks_of in kept.values() for rows, _ in ranks_of for row in rows)
    assert counts == Counter((0, epoch, row) for epoch in range(2) for row in range(700))
    if len(worlds) == 1:
        for rank in range(2):
            with Loader(RowPlan(folder, tail="keep"), batch_tokens=300, rank=rank, ranks=2) as loader:
                for batch in loader:
                    digest = hashlib.sha256(b"".join(array.tobytes() for array in batch.values())).hexdigest()
                    assert kept[batch.step][rank] == (batch.rows.tolist(), digest)
