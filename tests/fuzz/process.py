"""Stages of one process (child.py), forked; how it ended, and what it said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from tests.fuzz.child import Ended, Job
from tests.support import tools
from tests.support.processes import nursery
from tests.support.processes.nursery import Child, Nursery

SECONDS = 120.0
"""A run of some rows takes a second. What takes longer than this hangs."""
REFUSED = {2, 3, 4}
"""Exit codes with which pairmill may refuse what it is given."""

Stages = Sequence[tuple[str, Mapping[str, str]]]


class Wrong(AssertionError):
    """What pairmill promises does not hold.

    Args:
        promise: which one, in a few words.
        seen: what was seen.
    """

    def __init__(self, promise: str, seen: str) -> None:
        super().__init__(f"{promise}: {seen}")
        self.promise = promise


_IMPORTED = (
    *nursery.STAGES,
    "pairmill.stages.evaluate.core",
    "pairmill.stages.search.settings",
    "pairmill.training.settings",
    "tests.support.processes.crash_points",
)


@cache
def nurseries() -> tuple[Nursery, Nursery]:
    """One for kept roots and one for fresh ones: all forks of one hash alike, and two hash differently."""
    return Nursery(_IMPORTED), Nursery(_IMPORTED)


@dataclass(frozen=True)
class Process:
    """Stages that run, and where their results and their log are."""

    child: Child
    results: Path
    log: Path

    @classmethod
    def start(
        cls,
        files: Path,
        stages: Stages,
        *,
        die_at: int = 0,
        die_before: int = 0,
        memory: int = 0,
        fresh: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a process.

        Args:
            files: the beginning of the paths of its own files.
            stages: name and options of each, in order.
            die_at: as of Job.
            die_before: the change of a name before which it is killed (kill_points); 0 = it is not.
            memory: as of Job.
            fresh: whether it is one for fresh roots.
            environment: what its environment has besides.
        """
        results, log, job = (files.with_suffix(f".{kind}") for kind in ("results", "log", "job"))
        job.write_text(
            json.dumps(asdict(Job([(name, dict(given)) for name, given in stages], str(results), die_at, memory)))
        )
        with log.open("wb") as file:
            output = (file.fileno(), file.fileno())
            own = {**tools.environment(), **(environment or {})}
            child = nurseries()[fresh].start("tests.fuzz.child", [str(job)], own, output, die_before)
        return cls(child, results, log)

    def wait(self, seconds: float = SECONDS) -> int:
        """Its exit code."""
        try:
            return self.child.wait(seconds)
        except TimeoutError:
            self.child.kill()
            raise Wrong("a run ends", f"not after {seconds:.0f} s\n{self.tail()}") from None

    def ended(self) -> list[Ended]:
        """The stages that ended, in whole or with an error."""
        return [one for one in self._results() if one.code or not one.share]

    def memory(self) -> int:
        """The bytes that it grew by at most."""
        return self._results()[-1].memory

    def _results(self) -> list[Ended]:
        return [Ended(**json.loads(line)) for line in self.results.read_text().splitlines()]

    def tail(self) -> str:
        """The end of its log, for people."""
        lines = [_line(line) for line in self.log.read_text(errors="replace").splitlines()[-3:]]
        return "\n".join(f"    {line[:1000]}" for line in lines)

    def require_code(self, code: int, *, may_refuse: bool) -> None:
        """Raise Wrong if it ended in another way than it may."""
        if code and not (may_refuse and code in REFUSED):
            expected = "0, 2, 3 or 4" if may_refuse else "0"
            raise Wrong(f"a run ends with {expected}", f"exit code {code}\n{self.tail()}")


def _line(text: str) -> str:
    """A line of a log: its message, and of a traceback the last two lines."""
    try:
        said = json.loads(text)
        return "\n      ".join([said["message"], *said.get("exception", "").splitlines()[-2:]])
    except ValueError:
        return text
