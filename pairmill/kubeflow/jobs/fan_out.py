"""Shares a stage out by an Indexed Job: starts it or finds it, watches it, and says why it waits or has failed.

The pod that does so may be killed at any instant: the Job has a name that follows from its result, so the next one
finds it, and its pods go on meanwhile. Where its run was terminated, none comes: then it deletes the Job.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from pairmill.errors import PairmillError, StorageError
from pairmill.fields import default_value
from pairmill.interface.interrupt import leave_when_told
from pairmill.kubeflow.jobs.indexed import CONTAINER, RUN, SPEC, Starter, Work, job_of
from pairmill.kubeflow.jobs.server import ApiServer, Doc, Exists
from pairmill.kubeflow.jobs.waiting import check_queue, reason_of_wait
from pairmill.kubeflow.pods import JobConfig
from pairmill.log import event

_POLL = 5.0
"""Seconds between two looks at a Job; ``PAIRMILL_JOB_POLL`` overrides it."""
_LOGGED_AGAIN = 600.0
_LOG_LINES: Final = "20"


class ShareFailed(PairmillError):
    """A share failed. The exit code is that of its program."""

    def __init__(self, what: str, code: int, *, where: str, got: str, hint: str) -> None:
        super().__init__(what, where=where, got=got, hint=hint)
        self.exit_code = code if 2 <= code <= 5 else 5


def fan_out(stage: str, config: Any, home: str, is_finished: Callable[[], bool], text: str) -> None:
    """Have all shares of a stage done, and its folder finished, by the pods of a Job; nothing if it is finished.

    Args:
        home: URI of its finished folder.
        is_finished: whether that is there.
        text: of :data:`pairmill.kubeflow.pods.VARIABLE`.

    Raises:
        UsageError: the queue does not exist, or the cluster refuses the Job.
        StorageError: the service account may not do this, or no pod ran for too long.
        ShareFailed: a share failed, with the end of its log.
    """
    if is_finished():
        return
    job, server = JobConfig.parse(text), ApiServer()
    fields = [item for item in dataclasses.fields(config) if item.name not in {"share", "finish", "workers"}]
    values = {item.name: getattr(config, item.name) for item in fields}
    options = {item.name: values[item.name] for item in fields if values[item.name] != default_value(item)}
    pod = os.environ.get("KFP_POD_NAME", "")
    starter = Starter.from_pod(server.get(server.path("pods", pod, "/api/v1")) if pod else None)
    check_queue(server, job.queue)
    watched = _Watched(server, Work(stage, options, home), job)
    if pod:
        leave_when_told()
    try:
        watched.start(job_of(watched.work, job, starter))
        watched.follow(is_finished)
    except SystemExit:
        watched.leave(pod)
        raise


@dataclass
class _Watched:
    """A Job while it is watched; ``own`` = it is of the same run as this pod."""

    server: ApiServer
    work: Work
    config: JobConfig
    own: bool = False
    idle_since: float = field(default_factory=time.monotonic)
    logged: str = ""
    logged_at: float = 0.0

    @property
    def path(self) -> str:
        return self.server.path("jobs", self.work.name)

    @property
    def where(self) -> str:
        return f"{self.work.stage}: Job {self.work.name}"

    def start(self, job: Doc) -> None:
        """Make the Job, or go on with the one that is there; one that has ended or does other work is replaced."""
        while True:
            try:
                self.server.create(self.server.path("jobs"), job)
            except Exists:
                there = self.server.get(self.path)
                if there is None:
                    continue
            else:
                self.own = True
                self.say(f"started for {self.config.shares} shares")
                return
            if not there["metadata"].get("deletionTimestamp"):
                same = there["metadata"].get("annotations", {}).get(SPEC) == job["metadata"]["annotations"][SPEC]
                if same and not _end_of(there):
                    self.own = there["metadata"]["labels"].get(RUN) == job["metadata"]["labels"].get(RUN)
                    self.say("found running, and watched from here on")
                    return
                shares = there["spec"].get("completions")
                why = "has ended" if same else f"was started with other options ({shares} shares)"
                self.say(f"of an earlier run {why}, and is replaced; finished shards are reused")
                self.server.delete(self.path)
            time.sleep(_poll())

    def follow(self, is_finished: Callable[[], bool]) -> None:
        """Wait until the Job has ended well; it is then deleted. One that failed stays for a day."""
        while True:
            job = self.server.get(self.path)
            if job is None:
                # Who else watched it deletes it when it has ended well.
                if is_finished():
                    return
                raise StorageError("was deleted before it had ended", where=self.where, hint="submit again")
            end = _end_of(job)
            if end and end["type"] != "Failed":
                self.say(f"all {self.config.shares} shares are done")
                self.server.delete(self.path)
                return
            if end:
                raise self.failure(end)
            self.look(job)
            time.sleep(_poll())

    def leave(self, pod: str) -> None:
        """Delete the run's own Job after SIGTERM, unless the pod of this process is deleted: then another one comes.

        What ends a run, or a task whose time is over, signals to its pods and does not delete them. Kubeflow gives this
        process 0.2 s: two requests.
        """
        with suppress(PairmillError):
            there = self.server.get(self.server.path("pods", pod, "/api/v1")) if self.own else None
            if there is not None and not there["metadata"].get("deletionTimestamp"):
                self.server.delete(self.path)

    def look(self, job: Doc) -> None:
        """Say how far it is and what it waits for. Raises StorageError if no pod has run for too long."""
        status = job.get("status", {})
        done, running, active = (status.get(name, 0) for name in ("succeeded", "ready", "active"))
        text = f"{done} of {self.config.shares} shares are done, {running} run"
        reason = ""
        if running and not job["spec"].get("suspend"):
            self.idle_since = time.monotonic()
        if running + done < self.config.shares:
            reason = reason_of_wait(self.server, job, self.config.queue)
        if status.get("failed"):
            text += f", {status['failed']} pods failed or were ended from outside"
        self.say(f"{text}; {active - running} pods wait: {reason}" if reason else text)
        hours = (time.monotonic() - self.idle_since) / 3600
        if hours > self.config.wait_hours:
            self.server.delete(self.path)
            raise StorageError(
                "no pod has run",
                where=self.where,
                got=f"{hours:.1f} h of waiting for {reason or 'the Job controller'}",
                hint="ask for less (workers=, cpu=, memory=), or wait longer: wait_hours=",
            )

    def failure(self, end: Doc) -> ShareFailed:
        """Return why it failed, with the end of the log of a share that did."""
        pods = self.server.get(
            self.server.path("pods", api="/api/v1"),
            labelSelector=f"batch.kubernetes.io/job-name={self.work.name}",
            fieldSelector="status.phase=Failed",
            limit="50",
        )
        failed = sorted(map(_Ended.from_pod, (pods or {}).get("items", [])), key=lambda item: item.from_outside)
        if not failed:
            raise StorageError(end["reason"], where=self.where, got=end["message"], hint="submit again")
        first = failed[0]
        log = self.server.text(
            f"{self.server.path('pods', first.pod, '/api/v1')}/log", container=CONTAINER, tailLines=_LOG_LINES
        )
        lines = [_message_of(line) for line in log.splitlines() if line.strip()]
        for line in lines:
            event(f"share {first.index + 1}: {line}", level=logging.ERROR, stage=self.work.stage)
        return ShareFailed(
            f"share {first.index + 1} of {self.config.shares} failed with exit code {first.code}{first.why}",
            first.code,
            where=self.where,
            got=lines[-1] if lines else end.get("message", ""),
            hint=f"kubectl -n {self.server.namespace} logs {first.pod}; the Job stays for a day",
        )

    def say(self, text: str) -> None:
        """Log it where it has changed, or was logged some minutes ago."""
        now = time.monotonic()
        if text != self.logged or now - self.logged_at > _LOGGED_AGAIN:
            self.logged, self.logged_at = text, now
            event(f"{self.where} {text}", stage=self.work.stage)


@dataclass(frozen=True)
class _Ended:
    """A pod that has failed."""

    pod: str
    index: int
    code: int
    why: str

    @classmethod
    def from_pod(cls, pod: Doc) -> _Ended:
        meta, status = pod["metadata"], pod.get("status", {})
        states = [item.get("state", {}).get("terminated") or {} for item in status.get("containerStatuses", [])]
        state = next(iter(states), {})
        index = meta.get("annotations", {}).get("batch.kubernetes.io/job-completion-index", "0")
        reason = state.get("reason") or status.get("reason") or ""
        known = f" ({reason})" if reason and reason != "Error" else ""
        return cls(meta["name"], int(index), int(state.get("exitCode", 0)), known)

    @property
    def from_outside(self) -> bool:
        return self.code in {0, 143}


def _end_of(job: Doc) -> Doc | None:
    """Return the condition by which a Job has ended; None if it goes on."""
    conditions = job.get("status", {}).get("conditions", [])
    return next(
        (item for item in conditions if item["type"] in {"Complete", "Failed"} and item["status"] == "True"), None
    )


def _message_of(line: str) -> str:
    """Return what a line of a log says to people."""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, KeyError, TypeError):
        return line


def _poll() -> float:
    return float(os.environ.get("PAIRMILL_JOB_POLL", _POLL))
