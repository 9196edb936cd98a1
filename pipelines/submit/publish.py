"""What is put on the server: the pipeline and its version, once; an experiment; a run; a recurring run.

Everything that has a name is looked for first, and looked for again where making it fails: two submissions at once, or
an answer that was lost, end well.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import random
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pairmill.errors import InputError, UsageError
from pairmill.log import event
from pipelines.submit.server import Exists, Server, Unanswered

T = TypeVar("T")

_TOP = Path(__file__).resolve().parents[2]
_TRIES = 4


@dataclass(frozen=True)
class Version:
    """An uploaded version of the pipeline."""

    name: str
    pipeline_id: str
    version_id: str


def version_name() -> str:
    """``<semver>-<git sha>``, ``-dirty`` where a tracked file differs from the commit.

    Raises:
        UsageError: there is no commit to name.
    """
    sha = _git("rev-parse", "--short=12", "HEAD")
    dirty = "-dirty" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return f"{importlib.metadata.version('pairmill')}-{sha}{dirty}"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(_TOP), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise UsageError("no commit to name it by", where="version", got=reason, hint="give version=") from error
    return done.stdout.strip()


def upload(server: Server, compiled: Path, name: str) -> Version:
    """The version of this name with this content, uploaded if it is not there.

    Where the name stands for another content (another image, other resources), a hash of ours is part of the name.
    """
    import yaml

    from pipelines import compile as compiler

    content = compiled.read_bytes()
    mark = compiler.mark(content)
    (info, *_) = yaml.safe_load_all(content)
    pipeline_name, about = info["pipelineInfo"]["name"], info["pipelineInfo"].get("description", "")
    pipeline = _ensure(
        server,
        lambda: _named(
            server.call(
                server.pipelines.pipeline_service_list_pipelines, filter=_filter(pipeline_name), **_in(server)
            ).pipelines
        ),
        lambda: server.call(
            server.pipelines.pipeline_service_create_pipeline,
            server.models.V2beta1Pipeline(
                name=pipeline_name, display_name=pipeline_name, description=about, namespace=server.namespace or None
            ),
        ),
    )

    def find(wanted: str) -> Any:
        method = server.pipelines.pipeline_service_list_pipeline_versions
        return _named(server.call(method, pipeline.pipeline_id, filter=_filter(wanted)).pipeline_versions)

    def make(wanted: str) -> Any:
        method = server.uploads.upload_pipeline_version
        return server.call(method, str(compiled), name=wanted, pipelineid=pipeline.pipeline_id, description=mark)

    # The server keeps the specification in a form of its own; the description keeps its digest.
    for wanted in (name, f"{name}-{compiler.digest(content)[:8]}"):
        found = _ensure(server, partial(find, wanted), partial(make, wanted))
        if found.description == mark:
            return Version(wanted, pipeline.pipeline_id, found.pipeline_version_id)
    raise UsageError("stands for another content", where="version", got=name, hint="give another version=")


def start(
    server: Server, version: Version, name: str, experiment: str, service_account: str, parameters: Mapping[str, Any]
) -> str:
    """Start a run; returns its id.

    Raises:
        Unanswered: whether it started is not known. Not tried again: a second run would do everything twice.
    """
    run = server.models.V2beta1Run(
        display_name=name,
        experiment_id=experiment,
        pipeline_version_reference=_reference(server, version),
        runtime_config=server.models.V2beta1RuntimeConfig(parameters=dict(parameters)),
        service_account=service_account or None,
    )
    try:
        return str(server.call(server.runs.run_service_create_run, run).run_id)
    except Unanswered as error:
        hint = f"look whether {name!r} is among the runs before it is submitted again"
        raise Unanswered(error.what, where=error.where, got=error.got, hint=hint) from error


def experiment_id(server: Server, name: str) -> str:
    """The experiment's id; it is made if it is not there."""
    found = _ensure(
        server,
        lambda: _named(
            server.call(
                server.experiments.experiment_service_list_experiments, filter=_filter(name), **_in(server)
            ).experiments
        ),
        lambda: server.call(
            server.experiments.experiment_service_create_experiment,
            server.models.V2beta1Experiment(display_name=name, namespace=server.namespace or None),
        ),
    )
    return str(found.experiment_id)


def seconds_cron(cron: str) -> str:
    """A cron expression as Kubeflow takes it: it reads a field of seconds before the usual five.

    Source: `cron.Parse` of github.com/robfig/cron v1; five fields would be read as seconds to months.

    Raises:
        UsageError: not five fields.
    """
    fields = cron.split()
    if len(fields) != 5 or not all(re.fullmatch(r"[\w*/,?-]+", item) for item in fields):
        raise UsageError(
            "is no schedule", where="cron", got=repr(cron), expected="minute hour day month weekday, in UTC"
        )
    return " ".join(["0", *fields])


def schedule(
    server: Server,
    version: Version,
    name: str,
    experiment: str,
    service_account: str,
    parameters: Mapping[str, Any],
    cron: str,
) -> str:
    """Make or replace the recurring run of this name; returns its id. One that was paused stays paused.

    At most one run at a time, and of the runs that were missed only the last. The API changes nothing of a recurring
    run but whether it is paused, so the new one is made first and the old one deleted then: a lost connection leaves
    both, which the next call mends, and never none.
    """
    models = server.models
    old = recurring(server, name, experiment)
    mode = "DISABLE" if any(job.status == "DISABLED" for job in old) else "ENABLE"
    wanted = models.V2beta1RecurringRun(
        display_name=name,
        experiment_id=experiment,
        pipeline_version_reference=_reference(server, version),
        runtime_config=models.V2beta1RuntimeConfig(parameters=dict(parameters)),
        service_account=service_account or None,
        max_concurrency="1",
        no_catchup=True,
        mode=mode,
        trigger=models.V2beta1Trigger(cron_schedule=models.V2beta1CronSchedule(cron=seconds_cron(cron))),
    )
    same = [job for job in old if _same(job, wanted)]
    if same:
        kept, said = same[0], "stands"
    else:
        kept = server.call(server.recurring.recurring_run_service_create_recurring_run, wanted)
        said = "is made anew" if old else "is made"
    for job in old:
        if job.recurring_run_id != kept.recurring_run_id:
            _delete(server, job)
    paused = ", paused: resume starts it" if mode == "DISABLE" else ""
    event(f"recurring run {name} {said}: {cron} (UTC), {version.name}{paused}", recurring_run=kept.recurring_run_id)
    return str(kept.recurring_run_id)


def recurring(server: Server, name: str, experiment: str) -> list[Any]:
    """The recurring runs of this name in this experiment."""
    method = server.recurring.recurring_run_service_list_recurring_runs
    found = server.call(method, experiment_id=experiment, filter=_filter(name), page_size=100)
    return list(found.recurring_runs or [])


def change(server: Server, name: str, experiment: str, verb: str) -> None:
    """Pause, resume or delete the recurring run of this name.

    Raises:
        InputError: there is none.
    """
    api = server.recurring
    jobs = recurring(server, name, experiment)
    if not jobs:
        raise InputError("no such recurring run", where="name", got=name, hint="check name, experiment and namespace")
    for job in jobs:
        if verb == "delete":
            _delete(server, job)
        elif verb == "pause":
            server.call(api.recurring_run_service_disable_recurring_run, job.recurring_run_id)
        else:
            server.call(api.recurring_run_service_enable_recurring_run, job.recurring_run_id)


def _delete(server: Server, job: Any) -> None:
    with contextlib.suppress(InputError):  # another submission deleted it
        server.call(server.recurring.recurring_run_service_delete_recurring_run, job.recurring_run_id)


def _same(job: Any, wanted: Any) -> bool:
    """Whether a recurring run does what the wanted one would. Whether it is paused is not looked at."""

    def facts(run: Any) -> tuple[Any, ...]:
        reference = run.pipeline_version_reference
        cron = run.trigger.cron_schedule.cron if run.trigger and run.trigger.cron_schedule else ""
        parameters = run.runtime_config.parameters if run.runtime_config else {}
        version = reference.pipeline_version_id if reference else ""
        return version, cron, parameters, str(run.max_concurrency), bool(run.no_catchup)

    account = not wanted.service_account or job.service_account == wanted.service_account
    return account and facts(job) == facts(wanted)


def _ensure(server: Server, find: Callable[[], T | None], make: Callable[[], T]) -> T:
    for left in reversed(range(_TRIES)):
        found = find()
        if found is not None:
            return found
        try:
            return make()
        except (Exists, Unanswered):
            if not left:
                raise
            time.sleep(server.poll * random.uniform(0.1, 0.3))  # noqa: S311
    raise AssertionError


def _named(found: list[T] | None) -> T | None:
    return found[0] if found else None


def _filter(name: str) -> str:
    text = json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
    # The server decodes a filter once more than HTTP does.
    return text.replace("%", "%25").replace("+", "%2B")


def _in(server: Server) -> dict[str, str]:
    return {"namespace": server.namespace} if server.namespace else {}


def _reference(server: Server, version: Version) -> Any:
    return server.models.V2beta1PipelineVersionReference(
        pipeline_id=version.pipeline_id, pipeline_version_id=version.version_id
    )
