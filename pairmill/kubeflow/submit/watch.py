"""A run as it goes: its tasks as they change, a warning if nothing changes, and how it ended."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from pairmill import log
from pairmill.engine.options import option
from pairmill.errors import PairmillError, UsageError
from pairmill.fields import Checked
from pairmill.interface.cli import INTERRUPTED, TERMINATED
from pairmill.kubeflow.submit import frozen, state
from pairmill.kubeflow.submit.server import Exists, NoLog, Refused, Server, Unanswered
from pairmill.kubeflow.submit.state import TaskStatus, Verdict
from pairmill.log import event
from pairmill.redact import escaped

if TYPE_CHECKING:
    from rich.table import Table

TIMED_OUT = 9

# In looks at the run: with the usual five seconds five minutes, ten minutes, and half a minute.
_PENDING_LOOKS, _LOST_LOOKS, _SETTLE_LOOKS = 60, 120, 6
_LOG_LINES, _MAX_LOGS = 20, 10
_FROZEN = (
    "Kubeflow shows no more of a run whose workflow object passed 1 MiB; docs/submitting.md says what makes it smaller"
)
_MAX_ROWS = 8


@dataclass(kw_only=True)
class WatchConfig(Checked):
    """How long to wait for a run."""

    timeout: float = option(0.0, help="seconds to wait for the run to end; 0 = as long as it takes", at_least=0)
    on_timeout: Literal["leave", "terminate"] = option("leave", help="what to do with the run then")
    on_interrupt: Literal["ask", "terminate", "leave"] = option(
        "ask", help="what to do with the run at Ctrl-C; ask = leave it if there is no terminal, and at SIGTERM"
    )


class Ended(PairmillError):
    """The run did not succeed, or the wait for it ended; ``exit_code`` tells which.

    Attributes:
        from_outside: whether no program of the run failed, but pods were ended: deleted, evicted, over memory or time.
    """

    def __init__(self, what: str, code: int, *, where: str = "", hint: str = "", from_outside: bool = False) -> None:
        super().__init__(what, where=where, hint=hint)
        self.exit_code, self.from_outside = code, from_outside


class _Terminated(BaseException):
    """SIGTERM came."""


def watch(server: Server, run: str, config: WatchConfig) -> None:
    """Wait until the run has succeeded.

    Raises:
        Ended: it ended otherwise, or the wait did.
        PairmillError: the server cannot be reached; the run goes on.
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
        self._again = f"the run goes on: pairmill submit watch host={server.host} run={run}"
        self._end = time.monotonic() + config.timeout if config.timeout else float("inf")
        self._pending: dict[str, float] = {}
        self._changed, self._shown = time.monotonic(), ""
        self._said: set[str] = set()
        self._terminating = False

    def wait(self) -> Any:
        """Return the run when it has ended."""
        while True:
            try:
                with _display() as show:
                    return self._until_ended(show)
            except (KeyboardInterrupt, _Terminated) as error:
                self._interrupted(TERMINATED if isinstance(error, _Terminated) else INTERRUPTED)

    def _until_ended(self, show: Callable[[str, Sequence[TaskStatus]], None]) -> Any:
        looks_after_end = 0
        while True:
            run = self._look()
            tasks = state.tasks(run, datetime.now(UTC))
            show(run.state or "", tasks)
            if state.verdict(run) is None:
                self._warn(run, tasks)
                self._check_timeout()
            # The server writes the end of the run some seconds before those of its tasks.
            elif (state.settled(tasks) and not frozen.is_frozen(run)) or looks_after_end == _SETTLE_LOOKS:
                return run
            else:
                looks_after_end += 1
            time.sleep(min(self._server.poll, max(self._end - time.monotonic(), 0.0) + 0.01))

    def _look(self) -> Any:
        """Return the run. If the server does not answer it is asked again, for a bounded time."""
        since, tries = time.monotonic(), 0
        while True:
            try:
                return self._server.client.get_run(self._run)
            except Unanswered as error:
                tries += 1
                if time.monotonic() - since > _LOST_LOOKS * self._server.poll:
                    got = f"{error.what} {error.got}"
                    raise Unanswered("connection lost", where=error.where, got=got, hint=self._again) from error
                if tries == 1:
                    event(f"{error.where}: {error.what}; trying again", run=self._run)
                self._check_timeout()
                time.sleep(self._server.poll * min(2.0**tries, 6.0) * random.uniform(0.5, 1.0))  # noqa: S311
            except Refused as error:
                hint = f"{error.hint}; {self._again}"
                raise Refused(error.what, where=error.where, got=error.got, hint=hint) from error

    def _warn(self, run: Any, tasks: Sequence[TaskStatus]) -> None:
        """Warn of what waits for long: Kubeflow never fails a pod that has no image or fits no node."""
        now, run_state = time.monotonic(), run.state or ""
        shown = repr([(task.key, task.state) for task in tasks])
        if shown != self._shown:
            self._changed, self._shown = now, shown
        driver = frozen.driver_that_runs(run)
        if driver and now - self._changed > _PENDING_LOOKS * self._server.poll:
            self._warn_of_frozen(f"{driver}, which takes seconds, is shown as running")
            return
        waiting = {task.key: task.label for task in tasks if task.state == state.PENDING}
        if run_state == state.PENDING:
            waiting["run"] = "the run"
        self._pending = {key: self._pending.get(key, now) for key in waiting}
        for key, since in self._pending.items():
            if now - since > _PENDING_LOOKS * self._server.poll and key not in self._said:
                if key != "run" and self._has_log(run, waiting[key]):
                    self._warn_of_frozen(f"{waiting[key]}, which is shown as waiting, has a log")
                    return
                self._warn_once(
                    key,
                    f"{waiting[key]} has waited for {_duration(now - since)} to start, and Kubeflow will not fail it: "
                    f"kubectl get pods -l pipeline/runid={self._run} and kubectl describe pod tell whether its image "
                    "can be pulled, and whether a node has the memory, disk and labels that it asks for",
                )
        if run_state and run_state not in state.KNOWN:
            self._warn_once(run_state, f"the run is {run_state}, which this version does not know")

    def _warn_of_frozen(self, why: str) -> None:
        long = _duration(time.monotonic() - self._changed)
        message = f"the run goes on, but no task has changed its state for {long}, and {why}: {_FROZEN}"
        self._warn_once("frozen", f"{message}. How the run ends will be told")

    def _has_log(self, run: Any, label: str) -> bool:
        """Return whether the pod of a task that is shown as waiting has a log: then it has begun."""
        if "frozen" in self._said:
            return True
        try:
            for task in frozen.hidden(run, self._pipeline(run)):
                for node in task.pods if task.label == label else ():
                    with contextlib.suppress(NoLog):
                        return bool(self._server.log_tail(self._run, node).strip())
        except (PairmillError, KeyError, TypeError):
            pass
        return False

    def _warn_once(self, key: str, message: str) -> None:
        if key not in self._said:
            self._said.add(key)
            event(message, level=logging.WARNING, run=self._run)

    def _check_timeout(self) -> None:
        if time.monotonic() < self._end:
            return
        if self._config.on_timeout == "terminate" and not self._terminating:
            self._terminate()
        raise self._left(f"has not ended in {_duration(self._config.timeout)}", TIMED_OUT)

    def _interrupted(self, code: int) -> None:
        """Terminate the run or leave it; returns if it is to be watched further. A second interrupt ends the wait."""
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
        answer = log.terminal().console().input(question, markup=False)
        return "terminate" if answer.strip().lower() in {"y", "yes"} else "watch"

    def _terminate(self) -> None:
        self._terminating = True
        # Refused if the run has ended meanwhile: the next look tells how.
        with contextlib.suppress(UsageError, Exists):
            self._server.client.terminate_run(self._run)
        event("the run is being terminated", run=self._run)

    def _left(self, what: str, code: int) -> Ended:
        return Ended(what, code, where=self._run, hint="it is being terminated" if self._terminating else self._again)

    def conclude(self, run: Any) -> None:
        """Tell how it ended, with the logs of the tasks that failed."""
        verdict = state.verdict(run)
        assert verdict is not None
        if frozen.is_frozen(run):
            event(f"the ends of some tasks are not shown: {_FROZEN}", level=logging.WARNING, run=self._run)
        if verdict is Verdict.SUCCEEDED:
            event(f"run {self._run} succeeded", run=self._run, state=run.state)
            return
        # Tasks that a termination ended have nothing to tell.
        tasks = state.tasks(run, datetime.now(UTC)) if verdict is not Verdict.CANCELED else []
        failed = [task for task in tasks if task.state == state.FAILED]
        if verdict is Verdict.FAILED and not failed and frozen.is_frozen(run):
            failed = self._hidden(run)
        outside = [self._show_log(task) for task in failed[:_MAX_LOGS]]
        if len(failed) > _MAX_LOGS:
            event(f"and {len(failed) - _MAX_LOGS} more tasks failed")
        names = ", ".join(task.label for task in failed[:_MAX_LOGS])
        why = getattr(run.error, "message", "") or (f"failed tasks: {names}" if names else "")
        what = {
            Verdict.FAILED: "failed",
            Verdict.CANCELED: "was canceled",
            Verdict.SKIPPED: "was skipped",
            Verdict.UNKNOWN: f"ended in the state {run.state}, which this version does not know",
        }[verdict]
        hint = f"see {self._server.link(self._run)}; submitted again it redoes only what is missing"
        raise Ended(
            f"{what}{f'; {why}' if why else ''}",
            verdict.value,
            where=f"run {self._run}",
            hint=hint,
            from_outside=bool(outside) and all(outside),
        )

    def _hidden(self, run: Any) -> list[TaskStatus]:
        """Return the tasks that failed and are not shown: those whose logs say so."""
        failed = []
        try:
            pipeline = self._pipeline(run)
            for task in frozen.hidden(run, pipeline):
                for node in (*task.pods, task.driver):
                    with contextlib.suppress(NoLog):
                        if ended_itself(self._server.log_tail(self._run, node)):
                            failed.append(TaskStatus(node, task.label, state.FAILED, 0.0, node))
                        break
        except (PairmillError, KeyError, TypeError) as error:
            event(f"the reason cannot be looked for: {error}", level=logging.WARNING, run=self._run)
        if not failed:
            event(
                f"no log of a task whose end is not shown says why; {_OUTSIDE}: kubectl get pods -l "
                f"pipeline/runid={self._run} tells",
                level=logging.WARNING,
                run=self._run,
            )
        return failed

    def _pipeline(self, run: Any) -> Any:
        """Return the specification of the run's pipeline."""
        version = run.pipeline_version_reference
        if run.pipeline_spec or not version:
            return frozen.specification(run.pipeline_spec)
        result = self._server.client.get_pipeline_version(version.pipeline_id, version.pipeline_version_id)
        return frozen.specification(result.pipeline_spec)

    def _show_log(self, task: TaskStatus) -> bool:
        """Show the end of a task's log; return whether its pod was ended from outside, by all that is known."""
        outside = f"{_OUTSIDE}; kubectl get pods -l pipeline/runid={self._run} tells which"
        reason, from_outside = "the server does not tell which log belongs to it", False
        try:
            if task.node:
                result = self._server.log_tail(self._run, task.node)
                lines = "".join(f"\n  {line[:2000]}" for line in program_lines(result)[-_LOG_LINES:])
                from_outside = not ended_itself(result)
                reason = f"{f'{outside}; ' if from_outside else ''}the end of its log:{lines or ' nothing'}"
        except NoLog as error:
            from_outside = True
            reason = f"it left no log: {outside}, or why it never began ({error.got})"
        except PairmillError as error:
            reason = f"its log is not available ({error.what}, {error.got})"
        event(f"{task.label} failed; {reason}", level=logging.ERROR, task=task.label)
        return from_outside


# Lines of Kubeflow's driver and launcher, which write into the log of the program that they start.
_GO = re.compile(r"([IWEF])\d{4} [\d:.]+ +\d+ \S+:\d+\] ?(.*)")
_EXIT = re.compile(r"(Component failed to execute successfully|failed to execute component): exit status \d+")
_OUTSIDE = (
    "its pod was ended from outside: OOMKilled (raise memory=, or resources=<stage>.memory=), deleted, evicted (raise "
    "scratch=) or over its time (raise timeout_hours=)"
)


def ended_itself(log: str) -> bool:
    """Return whether the launcher or driver says in this log why it failed. One that is killed with its program
    cannot."""
    return any((match := _GO.fullmatch(line)) and match[1] in "EF" for line in log.splitlines())


def program_lines(log: str) -> list[str]:
    """Return the lines of a task's log that its program wrote; if there are none, why the launcher failed the task."""
    result, dumped = [], False
    for line in log.splitlines():
        if match := _GO.fullmatch(line):
            # JSON that is dumped over several lines ends with its closing brace.
            dumped = match[2].endswith("{")
            if match[1] in "EF" and not _EXIT.fullmatch(match[2]):
                result.append(match[2])
        elif dumped:
            dumped = line != "}"
        elif line.strip():
            result.append(line)
    return result or [match[2] for line in log.splitlines() if (match := _GO.fullmatch(line)) and match[1] in "EF"]


@contextlib.contextmanager
def _display() -> Iterator[Callable[[str, Sequence[TaskStatus]], None]]:
    """Provide a table on a terminal; else one line for every change, for a pipe and the log of a CI."""
    if log.human() and sys.stderr.isatty():
        draw = log.terminal()
        with draw.Live(console=draw.console(), auto_refresh=False) as live:
            yield lambda run_state, tasks: live.update(_table(run_state, tasks), refresh=True)
        return
    seen: dict[str, str] = {}

    def show(run_state: str, tasks: Sequence[TaskStatus]) -> None:
        for task in [TaskStatus("", "run", run_state, 0.0, ""), *tasks]:
            if task.state and seen.get(task.key) != task.state:
                seen[task.key] = task.state
                seconds = task.seconds if task.key and task.state not in state.ACTIVE else None
                took = f" after {_duration(seconds)}" if seconds is not None else ""
                event(f"{task.label}: {task.state}{took}", task=task.label, state=task.state, seconds=seconds)

    yield show


def _table(run_state: str, tasks: Sequence[TaskStatus]) -> Table:
    draw = log.terminal()
    colours = {state.SUCCEEDED: "green", state.FAILED: "red", state.RUNNING: "cyan", state.PENDING: "yellow"}
    table: Table = draw.Table("task", "state", title=f"run: {run_state}", title_justify="left")
    table.add_column("time", justify="right")
    stages: dict[tuple[str, str], list[TaskStatus]] = {}
    for task in tasks:
        stages.setdefault(task.label.partition("[")[:2], []).append(task)
    for (name, _), result in stages.items():
        rows = [(task.label, task.state, task.seconds, colours.get(task.state, "")) for task in result]
        # A table that is higher than the terminal loses its end.
        if len(result) > _MAX_ROWS:
            counts = Counter(task.state for task in result)
            states = ", ".join(f"{count} {each}" for each, count in sorted(counts.items()))
            rows = [(f"{name}[{len(result)}]", states, max(task.seconds for task in result), "")]
        for label, states, seconds, colour in rows:
            table.add_row(draw.Text(escaped(label)), states, _duration(seconds), style=colour)
    return table


def _duration(seconds: float) -> str:
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
