"""A process ends with the one that started it, also where that was killed."""

import os
import subprocess
import sys

from pairmill.interface.parent import FOLLOWS

_CHILD = "from pairmill.interface.parent import end_with_parent; end_with_parent(); print('here', flush=True); "
_PARENT = f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {_CHILD + "import time; time.sleep(600)"!r}], stdin=subprocess.PIPE,
                         env={{**os.environ, {FOLLOWS!r}: "1"}})
os.read(0, 1)
os.kill(os.getpid(), 9)
"""


def test_a_process_ends_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"here\n"
        parent.communicate(b"x")  # the child has the other end of the pipe: its end is that of the child
    assert parent.returncode == -9


def test_others_go_on_at_the_end_of_their_input() -> None:
    environment = {name: value for name, value in os.environ.items() if name != FOLLOWS}
    command = [sys.executable, "-c", f"{_CHILD}import sys; sys.stdin.read(); print('on')"]
    done = subprocess.run(command, input=b"", capture_output=True, check=True, env=environment)
    assert done.stdout.split() == [b"here", b"on"]
