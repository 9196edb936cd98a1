"""What a submission creates on the server: the pipeline and its version, an experiment, a run, a recurring run.

Everything that has a name is looked for before it is created, and again if its creation fails: two submissions at once
share it, and a lost answer does no harm.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pairmill
from pairmill.errors import InputError, UsageError
from pairmill.kubeflow import compile as compiler
from pairmill.kubeflow.submit.server import Exists, Server, Unanswered
from pairmill.log import event

_TOP = Path(__file__).resolve().parents[2]
_TRIES = 4


def version_name() -> str:
    """``<semver>-<git sha>``, with ``-dirty`` if a tracked file differs from the commit.

    Raises:
        UsageError: there is no commit to name.
    """
    sha = _git("rev-parse", "--short=12", "HEAD")
    dirty = "-dirty" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return f"{pairmill.__version__}-{sha}{dirty}"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(_TOP), *arguments], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1]
        raise UsageError(
            "there is no commit to name the version after", where="version", got=reason, hint="give version="
        ) from error
    return done.stdout.strip()


def upload(server: Server, compiled: Path, name: str) -> Any:
    """Return the pipeline's version with this name and content (a ``V2beta1PipelineVersion``), uploaded if necessary.

    If the name this name has other content (another image, other resources), a hash of ours is added to it.
    """
    content, models = compiled.read_bytes(), server.models
    info = compiler.documents(content)[0]["pipelineInfo"]
    names = {"name": info["name"], "display_name": info["name"], "description": info.get("description", "")}
    pipeline = _ensure(
        server,
        lambda: server.call(
            server.pipelines.pipeline_service_create_pipeline, models.V2beta1Pipeline(**names, **_namespace(server))
        ),
        server.pipelines.pipeline_service_list_pipelines,
        "pipelines",
        info["name"],
        **_namespace(server),
    )
    # The server keeps the specification in a form of its own; the description keeps its digest.
    mark, uploading = compiler.mark(content), server.uploads.upload_pipeline_version
    options = {"pipelineid": pipeline.pipeline_id, "description": mark}
    for wanted in (name, f"{name}-{compiler.digest(content)[:8]}"):
        result = _ensure(
            server,
            partial(server.call, uploading, str(compiled), name=wanted, **options),
            server.pipelines.pipeline_service_list_pipeline_versions,
            "pipeline_versions",
            wanted,
            pipeline.pipeline_id,
        )
        if result.description == mark:
            return result
    raise UsageError("this name has other content", where="version", got=name, hint="give another version=")


def start(server: Server, version: Any, name: str, config: Any, parameters: dict[str, Any]) -> str:
    """Start a run; returns its id.

    Raises:
        Unanswered: the run may have started. It is not tried again: a second run would do everything twice.
    """
    run = server.models.V2beta1Run(display_name=name, **_common(server, version, config, parameters))
    try:
        return str(server.call(server.runs.run_service_create_run, run).run_id)
    except Unanswered as error:
        hint = f"look whether {name!r} is among the runs before you submit it again"
        raise Unanswered(error.what, where=error.where, got=error.got, hint=hint) from error


def experiment_id(server: Server, name: str) -> str:
    """Return the id of the experiment of this name, which is created if necessary."""
    api, models = server.experiments, server.models
    result = _ensure(
        server,
        lambda: server.call(
            api.experiment_service_create_experiment,
            models.V2beta1Experiment(display_name=name, **_namespace(server)),
        ),
        api.experiment_service_list_experiments,
        "experiments",
        name,
        **_namespace(server),
    )
    return str(result.experiment_id)


def seconds_cron(cron: str) -> str:
    """Return a cron expression as Kubeflow takes it: it reads a field of seconds before the usual five.

    Source: `cron.Parse` of github.com/robfig/cron v1; five fields would be read as seconds to months.

    Raises:
        UsageError: not five fields.
    """
    fields = cron.split()
    if len(fields) != 5 or not all(re.fullmatch(r"[\w*/,?-]+", item) for item in fields):
        expected = "minute hour day month weekday, in UTC"
        raise UsageError("not a valid schedule", where="cron", got=repr(cron), expected=expected)
    return " ".join(["0", *fields])


def schedule(server: Server, version: Any, config: Any, parameters: dict[str, Any]) -> str:
    """Make or replace the recurring run of this name; returns its id. A paused one stays paused.

    At most one run at a time, and of several missed runs only the last. The API can change nothing of a recurring run
    but whether it is paused. So the new one is created before the old one is deleted: a lost connection leaves both,
    which the next call mends, and never none.
    """
    models, common = server.models, _common(server, version, config, parameters)
    old = recurring(server, config.name, common["experiment_id"])
    paused = any(job.status == "DISABLED" for job in old)
    wanted = models.V2beta1RecurringRun(
        display_name=config.name,
        max_concurrency="1",
        no_catchup=True,
        mode="DISABLE" if paused else "ENABLE",
        trigger=models.V2beta1Trigger(cron_schedule=models.V2beta1CronSchedule(cron=seconds_cron(config.cron))),
        **common,
    )
    same = [job for job in old if _same(job, wanted)]
    kept = same[0] if same else server.call(server.recurring.recurring_run_service_create_recurring_run, wanted)
    for job in old:
        if job.recurring_run_id != kept.recurring_run_id:
            _delete(server, job)
    change = "is unchanged" if same else "was replaced" if old else "was created"
    event(
        f"recurring run {config.name} {change}: {config.cron} (UTC), {version.display_name}"
        f"{', paused: resume starts it' if paused else ''}",
        recurring_run=kept.recurring_run_id,
    )
    return str(kept.recurring_run_id)


def recurring(server: Server, name: str, experiment: str) -> list[Any]:
    """Return the recurring runs of this name in this experiment."""
    method = server.recurring.recurring_run_service_list_recurring_runs
    result = server.call(method, experiment_id=experiment, filter=_filter(name), page_size=100)
    return list(result.recurring_runs or [])


def change(server: Server, name: str, experiment: str, verb: str) -> None:
    """Pause, resume or delete the recurring run of this name.

    Raises:
        InputError: there is none.
    """
    api = server.recurring
    jobs = recurring(server, name, experiment)
    if not jobs:
        raise InputError("no such recurring run", where="name", got=name, hint="check name, experiment and namespace")
    methods = {
        "pause": api.recurring_run_service_disable_recurring_run,
        "resume": api.recurring_run_service_enable_recurring_run,
    }
    for job in jobs:
        if verb == "delete":
            _delete(server, job)
        else:
            server.call(methods[verb], job.recurring_run_id)


def _delete(server: Server, job: Any) -> None:
    with contextlib.suppress(InputError):  # another submission deleted it
        server.call(server.recurring.recurring_run_service_delete_recurring_run, job.recurring_run_id)


def _common(server: Server, version: Any, config: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what a run and a recurring run say alike."""
    models = server.models
    return {
        "experiment_id": experiment_id(server, config.experiment),
        "pipeline_version_reference": models.V2beta1PipelineVersionReference(
            pipeline_id=version.pipeline_id, pipeline_version_id=version.pipeline_version_id
        ),
        "runtime_config": models.V2beta1RuntimeConfig(parameters=parameters),
        "service_account": config.service_account or None,
    }


def _same(job: Any, wanted: Any) -> bool:
    """Return whether a recurring run has everything that is wanted of it. Whether it is paused does not count."""

    def covers(there: Any, asked: Any) -> bool:
        if not isinstance(asked, dict):
            return bool(asked is None or there == asked)
        return isinstance(there, dict) and all(covers(there.get(name), value) for name, value in asked.items())

    return covers(job.to_dict(), wanted.to_dict() | {"mode": None})


def _ensure(
    server: Server, make: Callable[[], Any], listing: Callable[..., Any], kind: str, name: str, *given: Any, **more: Any
) -> Any:
    """Return the first object of this name that ``listing`` gives, or the one that ``make`` creates."""
    for left in reversed(range(_TRIES)):
        result = getattr(server.call(listing, *given, filter=_filter(name), **more), kind)
        if result:
            return result[0]
        try:
            return make()
        except (Exists, Unanswered):
            if not left:
                raise
            time.sleep(server.poll * random.uniform(0.1, 0.3))  # noqa: S311
    raise AssertionError


def _filter(name: str) -> str:
    text = json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
    # The server decodes a filter once more than HTTP does.
    return text.replace("%", "%25").replace("+", "%2B")


def _namespace(server: Server) -> dict[str, str]:
    return {"namespace": server.namespace} if server.namespace else {}
