"""What a shell starts in the place of ``pairmill`` (see typed_program): ``<name of a socket> <argument> …``."""

import json
import os
import signal
import socket
import sys


def main() -> int:
    """Let the program be forked, and wait for it; return the exit code of a shell."""
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(f"\0{sys.argv[1]}")
    asked = {"arguments": sys.argv[2:], "environment": dict(os.environ), "folder": os.getcwd()}
    socket.send_fds(talk, [b"+"], [1, 2])
    talk.sendall(json.dumps(asked).encode() + b"\n")
    answers = talk.makefile()
    number = int(answers.readline())
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(number, signal.SIGTERM))
    code = int(answers.readline())
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
