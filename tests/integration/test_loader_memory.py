"""What a rank holds does not grow with the epoch: ten million rows, mapped, with their first batch at once."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest

from tests.support import tools
from tests.support.data import samples
from tests.support.helpers import PATIENCE

ROWS = 10_000_000
RANKS, SLOTS = 8, 24_576
MOST_MIB = 64
"""Memory that is not a page of a file."""
MOST_SECONDS = 1.0
"""Of processor, from the start of the process to the first batch."""

# The memory of loading and of each batch is over when the next is asked for: a thread looks on.
_PROGRAM = """
import json, sys, threading, time
from pairmill.loader import Loader, RowPlan

def anonymous():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

looked = [anonymous()]
over = threading.Event()

def look():
    while not over.wait(0.002):
        looked.append(anonymous())

threading.Thread(target=look, daemon=True).start()
ranks, slots = int(sys.argv[2]), int(sys.argv[3])
with Loader(RowPlan(sys.argv[1]), batch_tokens=ranks * slots, ranks=ranks) as loader:
    batches = iter(loader)
    rows = len(next(batches).rows)
    seconds = time.process_time()
    for made in range(2, 302):
        last = next(batches).start_row
over.set()
print(json.dumps({"seconds": seconds, "kilobytes": max(looked), "looks": len(looked), "batches": made, "row": last}))
"""


@pytest.fixture
def many() -> Iterator[Path]:
    folder = Path(mkdtemp(prefix="pairmill-test-", dir="/dev/shm"))
    try:
        yield samples.overlapping(folder / "many", ROWS)
    finally:
        rmtree(folder)


def test_ten_million_rows(many: Path) -> None:
    size = sum(path.stat().st_size for path in many.rglob("*.npy"))
    assert 16 * ROWS < size < 400e6
    command = [sys.executable, "-c", _PROGRAM, str(many), str(RANKS), str(SLOTS)]
    done = subprocess.run(
        command, cwd=tools.REPOSITORY, env=tools.environment(), capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["batches"], found["looks"] > 10) == (301, True), found
    assert found["row"] > 150_000, found
    assert found["kilobytes"] <= MOST_MIB * 1024, found
    assert found["seconds"] < MOST_SECONDS, found
