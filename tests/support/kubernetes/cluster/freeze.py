"""Runs in the cluster, as root and with the node's processes in sight: stops a writer in the midst of its work.

python freeze.py <node folder> <plan>      prints the bytes it had written
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

SECONDS = 100


def written(node: Path, plan: str) -> int:
    """Bytes in the hidden folder of the plan."""
    return sum(path.stat().st_size for path in node.glob(f".{plan}.*.partial/**/*.npy"))


def writers(plan: str) -> list[int]:
    """Processes that carry the plan out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if b"sample" in words and f"plan={plan}".encode() in words:
            found.append(int(path.parent.name))
    return found


def freeze(node: Path, plan: str, seconds: float = SECONDS) -> int:
    """Stop the writer of the plan once its hidden folder holds something; the bytes that are there.

    It runs for about a millisecond between two looks, so that it does not end between them.
    """
    end = time.monotonic() + seconds
    while True:
        found = writers(plan)
        _tell(found, signal.SIGSTOP)
        size = written(node, plan)
        if size:
            return size
        if (node / plan).exists():
            sys.exit(f"{plan} stood there before its writer was seen")
        if time.monotonic() > end:
            sys.exit(f"no writer of {plan} within {seconds} s")
        _tell(found, signal.SIGCONT)
        time.sleep(0.001)


def _tell(processes: list[int], what: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, what)


if __name__ == "__main__":
    print(freeze(Path(sys.argv[1]), sys.argv[2]))
