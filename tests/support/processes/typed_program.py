"""``pairmill`` as a program in PATH, forked from a nursery: for scripts and pages whose lines are typed into a shell.

Such a line costs 0.1 s of processor time, where an interpreter that imports all costs ten times that. The program is a
small client: it hands its streams, arguments, variables and working folder to this process, which lets a nursery fork
(one that hashes in another way than tests' stages do); it passes SIGTERM on, and ends as the fork does. Where the
client is killed, so is the fork.
"""

import json
import os
import select
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.support.processes.nursery import shared

_CLIENT = Path(__file__).with_name("typed_client.py")


class TypedProgram:
    """Puts the program into a folder: ``<folder>/pairmill``."""

    def __init__(self, folder: Path) -> None:
        self._nursery = shared(number=1)
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind("")  # Linux chooses a name: a path in a test's folder may be too long
        self._door.listen()
        name = self._door.getsockname()[1:].decode()
        folder.mkdir(parents=True, exist_ok=True)
        script = folder / "pairmill"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{_CLIENT}" {name} "$@"\n')
        script.chmod(0o755)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Start no more."""
        self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                talk, _ = self._door.accept()
                threading.Thread(target=self._serve, args=(talk,), daemon=True).start()

    def _serve(self, talk: socket.socket) -> None:
        with talk, talk.makefile() as file:
            _, streams, *_ = socket.recv_fds(talk, 1, 2)
            asked = json.loads(file.readline())
            output = (streams[0], streams[1])
            child = self._nursery.start(
                "pairmill", asked["arguments"], asked["environment"], output, folder=asked["folder"]
            )
            for each in streams:
                os.close(each)
            talk.sendall(b"%d\n" % child.pid)
            select.select([talk, child], [], [])
            if child.poll() is None:
                child.kill()
            with suppress(BrokenPipeError):
                talk.sendall(b"%d\n" % child.wait())
