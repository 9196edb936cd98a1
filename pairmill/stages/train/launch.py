"""The processes of a run: torchrun's, or those that ``processes=`` starts on this machine.

Rank 0 is the stage: it plans, and writes what the engine expects. The others open the same data and wait until rank 0
says that there is a run, or that there is nothing to do.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from pairmill.engine.options import arguments_of
from pairmill.extras import require
from pairmill.interface.parent import FOLLOWS
from pairmill.stages.train import run
from pairmill.stages.train.config import TrainConfig

if TYPE_CHECKING:
    from pairmill.stages.train.run.parallel import Ranks

WORD: Final = "what rank 0 does"


def rank() -> int:
    """Return the rank of this process, as torchrun gives it; 0 without torchrun."""
    return int(os.environ.get("RANK", "0"))


def count(config: TrainConfig) -> int:
    """Count the processes of a run."""
    if "WORLD_SIZE" in os.environ:
        return int(os.environ["WORLD_SIZE"])
    if config.processes:
        return config.processes
    require("train", "torch", "safetensors", where="train")
    return max(1, run.parallel.count_devices()) if config.device != "cpu" else 1


class Group:
    """What rank 0 knows of the others."""

    def __init__(self, config: TrainConfig) -> None:
        self._config = config
        self._begun = False
        self._ranks: Ranks | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            self._ranks = join(config)

    def begin(self) -> Ranks:
        """There is a run: all processes join it."""
        if self._ranks is None:
            size = count(self._config)
            if size > 1:
                self._spawn(size)
            self._ranks = join(self._config)
        if self._ranks.size > 1:
            self._ranks.share(WORD, "begin")
        self._begun = True
        return self._ranks

    def end(self, *, failed: bool) -> None:
        """Let the others go; after a failure in a run without waiting for them."""
        if self._ranks is not None and not (failed and self._begun):
            if not self._begun and self._ranks.size > 1:
                self._ranks.share(WORD, "nothing")
            self._ranks.close()
        for child in self._children:
            assert child.stdin is not None
            child.stdin.close()
            child.wait()

    def _spawn(self, size: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        os.environ |= _environment(0, size, port)
        command = [sys.executable, "-m", "pairmill", "train", *arguments_of(self._config)]
        for number in range(1, size):
            # The end of its standard input tells a process that this one is gone.
            environment = {**os.environ, **_environment(number, size, port), FOLLOWS: "1"}
            self._children.append(subprocess.Popen(command, env=environment, stdin=subprocess.PIPE))


def join(config: TrainConfig) -> Ranks:
    ranks: Ranks = run.parallel.start(config.device)
    return ranks


def _environment(number: int, size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(number),
        "LOCAL_RANK": str(number),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
