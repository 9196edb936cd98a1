"""A run as it goes: tasks while they change, what to look at when nothing does, and how it ended."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pairmill import log
from pairmill.engine.stage import option
from pairmill.errors import PairmillError, UsageError
from pairmill.interface.cli import INTERRUPTED, TERMINATED
from pairmill.log import event
from pairmill.redact import escaped
from pipelines.submit import state
from pipelines.submit.server import Exists, NoLog, Refused, Server, Unanswered
from pipelines.submit.state import Task, Verdict

if TYPE_CHECKING:
    from rich.table import Table

TIMED_OUT = 9

# In looks at the run: with the usual five seconds five minutes, ten minutes, and half a minute.
_PENDING_LOOKS, _LOST_LOOKS, _SETTLE_LOOKS = 60, 120, 6
_LOG_LINES, _LOGS = 20, 10
_ROWS = 8


@dataclass(kw_only=True)
class WatchConfig:
    """How long a run is waited for."""

    timeout: float = option(0.0, help="seconds to wait for the run to end; 0 = as long as it takes")
    on_timeout: Literal["leave", "terminate"] = option("leave", help="what becomes of the run then")
    on_interrupt: Literal["ask", "terminate", "leave"] = option(
        "ask", help="what becomes of the run at Ctrl-C; ask = leave it where there is no terminal, and at SIGTERM"
    )

    def __post_init__(self) -> None:
        if self.timeout < 0:
            raise UsageError("is negative", where="timeout", got=f"{self.timeout:g}", expected="seconds, or 0")


class Ended(PairmillError):
    """The wait ended with something else than a run that succeeded; ``exit_code`` says with what."""

    def __init__(self, what: str, code: int, *, where: str = "", hint: str = "") -> None:
        super().__init__(what, where=where, hint=hint)
        self.exit_code = code


class _Terminated(BaseException):
    """SIGTERM came."""


class _Display(Protocol):
    def show(self, run_state: str, tasks: Sequence[Task]) -> None:
        """Show what changed."""


def watch(server: Server, run: str, config: WatchConfig) -> None:
    """Wait until the run has succeeded.

    Raises:
        Ended: it ended otherwise, or the wait did.
        PairmillError: the server could not be asked; the run goes on.
    """
    watcher = _Watcher(server, run, config)
    previous = signal.signal(signal.SIGTERM, _on_sigterm)
    try:
        ended = watcher.wait()
    finally:
        signal.signal(signal.SIGTERM, previous)
    watcher.conclude(ended)


def _on_sigterm(*_: object) -> None:
    raise _Terminated


class _Watcher:
    def __init__(self, server: Server, run: str, config: WatchConfig) -> None:
        self._server, self._run, self._config = server, run, config
        self._again = f"the run goes on: python -m pipelines.submit watch host={server.host} run={run}"
        self._end = time.monotonic() + config.timeout if config.timeout else float("inf")
        self._pending: dict[str, float] = {}
        self._said: set[str] = set()
        self._terminating = False

    def wait(self) -> Any:
        """The run when it has ended."""
        while True:
            try:
                with _display() as display:
                    return self._until_ended(display)
            except (KeyboardInterrupt, _Terminated) as error:
                self._interrupted(TERMINATED if isinstance(error, _Terminated) else INTERRUPTED)

    def _until_ended(self, display: _Display) -> Any:
        looks_after_end = 0
        while True:
            run = self._look()
            tasks = state.tasks(run, datetime.now(UTC))
            display.show(run.state or "", tasks)
            if state.verdict(run) is not None:
                # The server writes the end of the run some seconds before those of its tasks.
                if state.settled(tasks) or looks_after_end == _SETTLE_LOOKS:
                    return run
                looks_after_end += 1
            else:
                self._watchdog(run, tasks)
                self._check_timeout()
            time.sleep(min(self._server.poll, max(self._end - time.monotonic(), 0.0) + 0.01))

    def _look(self) -> Any:
        """The run. An answer that fails to come is waited for, a bounded time."""
        since, tries = time.monotonic(), 0
        while True:
            try:
                return self._server.call(self._server.runs.run_service_get_run, self._run)
            except Unanswered as error:
                tries += 1
                if time.monotonic() - since > _LOST_LOOKS * self._server.poll:
                    raise Unanswered(
                        "the connection is lost", where=error.where, got=f"{error.what} {error.got}", hint=self._again
                    ) from error
                if tries == 1:
                    event(f"{error.where}: {error.what}; waiting for it", run=self._run)
                self._check_timeout()
                time.sleep(self._server.poll * min(2.0**tries, 6.0) * random.uniform(0.5, 1.0))  # noqa: S311
            except Refused as error:
                raise Refused(
                    error.what, where=error.where, got=error.got, hint=f"{error.hint}; {self._again}"
                ) from error

    def _watchdog(self, run: Any, tasks: Sequence[Task]) -> None:
        """Say what waits for long: a missing image and a pod that fits no node are no failure to Kubeflow."""
        now = time.monotonic()
        waiting = {task.key: task.label for task in tasks if task.state == state.PENDING}
        if run.state == state.PENDING:
            waiting["run"] = "the run"
        self._pending = {key: self._pending.get(key, now) for key in waiting}
        for key, since in self._pending.items():
            if now - since > _PENDING_LOOKS * self._server.poll and key not in self._said:
                self._said.add(key)
                event(
                    f"{waiting[key]} has waited for {_duration(now - since)} to start, and never fails by itself: "
                    f"kubectl get pods -l pipeline/runid={self._run} and kubectl describe pod say whether its image "
                    "can be pulled, and whether a node has the memory, the disk and the labels that it asks for",
                    level=logging.WARNING,
                    task=waiting[key],
                    run=self._run,
                )
        unknown = run.state or ""
        if unknown and unknown not in state.KNOWN and unknown not in self._said:
            self._said.add(unknown)
            event(f"the run is {unknown}, which this version does not know", level=logging.WARNING)

    def _check_timeout(self) -> None:
        if time.monotonic() < self._end:
            return
        if self._config.on_timeout == "terminate" and not self._terminating:
            self._terminate()
        raise self._left(f"has not ended in {_duration(self._config.timeout)}", TIMED_OUT)

    def _interrupted(self, code: int) -> None:
        """Terminate the run or not; returns if it is to be watched on. A second interrupt ends the wait."""
        try:
            choice = "leave" if self._terminating else self._choice(code)
            if choice == "terminate":
                self._terminate()
        except (KeyboardInterrupt, _Terminated, EOFError):
            choice = "leave"
        if choice == "leave":
            raise self._left("interrupted", code)

    def _choice(self, code: int) -> str:
        if self._config.on_interrupt != "ask":
            return self._config.on_interrupt
        if code == TERMINATED or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return "leave"
        question = "\nterminate the run? y = yes, Enter = no, go on watching, Ctrl-C = leave it running: "
        answer = log.console().input(question, markup=False)
        return "terminate" if answer.strip().lower() in {"y", "yes"} else "watch"

    def _terminate(self) -> None:
        self._terminating = True
        # Refused where the run has ended meanwhile: the next look says how.
        with contextlib.suppress(UsageError, Exists):
            self._server.call(self._server.runs.run_service_terminate_run, self._run)
        event("the run is being terminated", run=self._run)

    def _left(self, what: str, code: int) -> Ended:
        return Ended(what, code, where=self._run, hint="it is being terminated" if self._terminating else self._again)

    def conclude(self, run: Any) -> None:
        """Say how it ended; with logs, where tasks failed."""
        verdict = state.verdict(run)
        assert verdict is not None
        tasks = state.tasks(run, datetime.now(UTC))
        if verdict is Verdict.SUCCEEDED:
            event(f"run {self._run} succeeded", run=self._run, state=run.state)
            return
        # What a termination ended has nothing to tell.
        failed = [task for task in tasks if task.state == state.FAILED and verdict is not Verdict.CANCELED]
        for task in failed[:_LOGS]:
            self._show_log(task)
        if len(failed) > _LOGS:
            event(f"and {len(failed) - _LOGS} more tasks failed")
        names = ", ".join(task.label for task in failed[:_LOGS])
        said = getattr(run.error, "message", "") or (f"failed tasks: {names}" if names else "")
        what = {
            Verdict.FAILED: "failed",
            Verdict.CANCELED: "was canceled",
            Verdict.SKIPPED: "was skipped",
            Verdict.UNKNOWN: f"ended in the state {run.state}, which this version does not know",
        }[verdict]
        raise Ended(f"{what}{f'; {said}' if said else ''}", verdict.value, where=f"run {self._run}", hint=self._hint())

    def _hint(self) -> str:
        return f"see {self._server.link(self._run)}; submitted again it redoes only what is missing"

    def _show_log(self, task: Task) -> None:
        try:
            lines = told(self._server.log_tail(self._run, task.node)) if task.node else []
            reason = "its log is empty" if task.node else "the server does not say which log is its"
        except NoLog as error:
            lines, reason = [], f"it left no log, as a pod without memory, over its time limit or evicted ({error.got})"
        except PairmillError as error:
            lines, reason = [], f"its log cannot be had ({error.what}, {error.got})"
        if not lines:
            event(f"{task.label} failed; {reason}", level=logging.ERROR, task=task.label)
            return
        text = "\n".join(f"  {line[:2000]}" for line in lines[-_LOG_LINES:])
        event(f"{task.label} failed; the end of its log:\n{text}", level=logging.ERROR, task=task.label)


# Of Kubeflow's driver and launcher, which write into the log of the program that they start.
_GO = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ \S+:\d+\] ?(.*)")
_EXIT = re.compile(r"(Component failed to execute successfully|failed to execute component): exit status \d+")


def told(log: str) -> list[str]:
    """The lines of a task's log that are its program's, and why the launcher failed it if the program did not."""
    found, dumped = [], False
    for line in log.splitlines():
        if match := _GO.fullmatch(line):
            # What is dumped as JSON over several lines ends with its closing brace.
            dumped = match[2].endswith("{")
            if match[1] in "EF" and not _EXIT.fullmatch(match[2]):
                found.append(match[2])
        elif dumped:
            dumped = line != "}"
        elif line.strip():
            found.append(line)
    return found or [match[2] for line in log.splitlines() if (match := _GO.fullmatch(line)) and match[1] in "EF"]


class _Lines:
    """One line for every change: for a pipe and the log of a CI."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def show(self, run_state: str, tasks: Sequence[Task]) -> None:
        self._change("", "run", run_state)
        for task in tasks:
            self._change(task.key, task.label, task.state, None if task.state in state.GOES_ON else task.seconds)

    def _change(self, key: str, label: str, now: str, seconds: float | None = None) -> None:
        if now and self._seen.get(key) != now:
            self._seen[key] = now
            took = f" after {_duration(seconds)}" if seconds is not None else ""
            event(f"{label}: {now}{took}", task=label, state=now, seconds=seconds)


@contextlib.contextmanager
def _display() -> Iterator[_Display]:
    if not (log.human() and sys.stderr.isatty()):
        yield _Lines()
        return
    from rich.live import Live

    with Live(console=log.console(), auto_refresh=False) as live:

        class _Live:
            def show(self, run_state: str, tasks: Sequence[Task]) -> None:
                live.update(_table(run_state, tasks), refresh=True)

        yield _Live()


def _table(run_state: str, tasks: Sequence[Task]) -> Table:
    from rich.table import Table
    from rich.text import Text

    colours = {state.SUCCEEDED: "green", state.FAILED: "red", state.RUNNING: "cyan", state.PENDING: "yellow"}
    table = Table(title=f"run: {run_state}", title_justify="left")
    table.add_column("task")
    table.add_column("state")
    table.add_column("time", justify="right")
    stages: dict[tuple[str, str], list[Task]] = {}
    for task in tasks:
        stages.setdefault(task.label.partition("[")[:2], []).append(task)
    for (name, _), found in stages.items():
        # A table that is higher than the terminal loses its end.
        if len(found) > _ROWS:
            counts = Counter(task.state for task in found)
            states = ", ".join(f"{count} {each}" for each, count in sorted(counts.items()))
            table.add_row(
                Text(escaped(f"{name}[{len(found)}]")), states, _duration(max(task.seconds for task in found))
            )
            continue
        for task in found:
            table.add_row(
                Text(escaped(task.label)), task.state, _duration(task.seconds), style=colours.get(task.state, "")
            )
    return table


def _duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
