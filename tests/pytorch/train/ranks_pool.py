"""Workers that run functions of a test module as ranks: torch is imported once for all of them and all tests."""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

Job = Callable[..., Any]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _work(pipe: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    while True:
        try:
            job, environment, args, leaves = pipe.recv()
        except EOFError:
            return
        os.environ.update(environment)
        try:
            result: Any = ("value", job(*args))
        except (Exception, SystemExit) as error:
            result = ("error", type(error).__name__, str(error), traceback.format_exc())
        pipe.send(result)
        if result[0] == "error" and leaves:
            os._exit(1)
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()


class Pool:
    """Processes that stay, and their pipes."""

    def __init__(self, size: int) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["pairmill.stages.train.run.loop", "tests.pytorch.train.tiny"])
        self.pipes: list[Connection] = []
        self.processes: list[BaseProcess] = []
        self._context = context
        for _ in range(size):
            self._add()

    def _add(self) -> None:
        mine, theirs = self._context.Pipe()
        process = self._context.Process(target=_work, args=(theirs,), daemon=True)
        process.start()
        theirs.close()
        self.pipes.append(mine)
        self.processes.append(process)

    def run(self, size: int, job: Job, *args: object, without: Sequence[int] = (), leaves: bool = False) -> list[Any]:
        """Call ``job(*args)`` on ranks of a group; return ("value", …) or ("error", class, message, trace) or
        ("died", exit code) of each.

        ``without``: ranks that never start; their result is None. ``leaves``: a process ends after an error, as real
        ranks do: the end of its connections is what the others notice.
        """
        port = free_port()
        there = [rank for rank in range(size) if rank not in without]
        for rank in there:
            environment = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
            names = {name: str(value) for name, value in environment.items()}
            self.pipes[rank].send((job, names | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}, args, leaves))
        results: list[Any] = [None] * size
        for rank in there:
            assert self.pipes[rank].poll(40), f"rank {rank} does not answer"
            try:
                results[rank] = self.pipes[rank].recv()
            except EOFError:
                self.processes[rank].join()
                results[rank] = ("died", self.processes[rank].exitcode)
            if results[rank][0] == "died" or (results[rank][0] == "error" and leaves):
                self.processes[rank].join()
                self._add()
                self.pipes[rank], self.processes[rank] = self.pipes.pop(), self.processes.pop()
        return results

    def values(self, size: int, job: Job, *args: object) -> list[Any]:
        """As ``run``, where no rank may fail."""
        results = self.run(size, job, *args)
        for rank, result in enumerate(results):
            assert result[0] == "value", f"rank {rank}: {result[-1]}"
        return [result[1] for result in results]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.join(20)
            assert process.exitcode == 0, process.exitcode
