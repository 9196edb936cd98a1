"""Stages as processes of their own, forked from one that has imported what all import.

A fresh interpreter imports for a third of a second before a stage begins, and hundreds of tests show a stage something
that it refuses. A process from here has its own arguments, environment, output and exit code, runs the module as
``python -m`` does and waits for the module's threads. Not for tests that compare the bytes of two runs, since all hash
alike, nor for those of how a process starts, ends or is killed.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_IMPORTED = (
    "components.clean.core",
    "components.fetch.core",
    "components.sample.core",
    "components.sample.run",
    "components.tokenize.core",
    "components.train_tokenizer.core",
    "omegaconf",
    "pairmill._native",
    "pairmill.interface.stagecli",
    "pyarrow.parquet",
)

# The child leaves the loop and goes on as if it had been started for its module. When it is forked no thread runs but
# the allocator's, which minds forks. To look for garbage among all that was imported, or to take it down at the end,
# would touch every page and copy it: a tenth of a second in place of a fiftieth.
_PROGRAM = """
import atexit, gc, importlib, json, os, runpy, sys, threading, traceback
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
gc.collect()
gc.freeze()
for line in sys.stdin:
    given = json.loads(line)
    child = os.fork()
    if not child:
        break
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
else:
    raise SystemExit
for number, path in enumerate([os.devnull, *given["output"]]):
    opened = os.open(path, os.O_RDWR)
    os.dup2(opened, number)
    os.close(opened)
os.environ.clear()
os.environ.update(given["environment"])
sys.argv[1:] = given["arguments"]
if given["die_before"]:
    from tests.support.kill_points import die_before
    die_before(given["die_before"])
code = 0
try:
    runpy.run_module(given["module"], run_name="__main__", alter_sys=True)
except SystemExit as ended:
    code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
except BaseException:
    traceback.print_exc()
    code = 1
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)
"""


class Nursery:
    """Runs modules one after the other.

    Args:
        folder: working directory of all.
        imported: what they have imported already.
    """

    def __init__(self, folder: Path, imported: Sequence[str] = _IMPORTED) -> None:
        self._folder, self._imported = folder, imported

    def __enter__(self) -> Self:
        # Threads of numpy's algebra would be started by its import.
        command = ["env", "OPENBLAS_NUM_THREADS=1", sys.executable, "-c", _PROGRAM, json.dumps(self._imported)]
        self._process = subprocess.Popen(
            command, cwd=self._folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], die_before: int = 0
    ) -> "subprocess.CompletedProcess[str]":
        """Run a module to its end, or until it is killed (see kill_points); stdout and stderr as text."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            output = [Path(folder, name) for name in ("stdout", "stderr")]
            for path in output:
                path.touch()
            given = {"module": module, "arguments": list(arguments), "environment": dict(environment)}
            given["die_before"] = die_before
            self._process.stdin.write(json.dumps({**given, "output": list(map(str, output))}) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, "the process that forks has ended"
            texts = [path.read_text(encoding="utf-8") for path in output]
        return subprocess.CompletedProcess([module, *arguments], int(answer), *texts)
