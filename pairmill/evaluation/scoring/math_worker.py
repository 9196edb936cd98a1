"""The process of ``Judge``: a line with a pair in, a line with a verdict out.

It is started by its path and imports nothing of ours. Its own lines go through a copy of stdout: libraries print.
"""

import json
import logging
import os
import resource
import signal
import sys
from typing import Final

_MEMORY: Final = 2 << 30


def main() -> None:
    """Judge until stdin ends."""
    seconds = float(sys.argv[1])
    out = os.dup(1)
    os.dup2(2, 1)
    from math_verify import parse, verify

    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The default action ends the process wherever it is, inside a C function too.
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    os.write(out, b"ready\n")
    for line in sys.stdin.buffer:
        gold, answer, as_text = json.loads(line)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            golds = gold if as_text else parse(gold, parsing_timeout=None)
            result: bool | None = bool(golds) and bool(
                verify(golds, parse(answer, parsing_timeout=None), timeout_seconds=None)
            )
        except MemoryError:
            result = None
        except Exception:
            result = False
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        os.write(out, json.dumps(result).encode() + b"\n")


if __name__ == "__main__":
    main()
