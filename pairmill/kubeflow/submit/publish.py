"""What a submission creates on the server: the pipeline and its version, an experiment, a run, a recurring run.

Everything that has a name is looked for before it is created, and again if its creation fails: two submissions at once
share it, and a lost answer does no harm.
"""

import contextlib
import hashlib
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
    content, client = compiled.read_bytes(), server.client
    info = compiler.documents(content)[0]["pipelineInfo"]
    names = {"name": info["name"], "display_name": info["name"], "description": info.get("description", "")}

    def pipeline() -> Any:
        there = client.list_pipelines(filter=_filter(info["name"]), namespace=server.namespace).pipelines
        wanted = client.api_models.V2beta1Pipeline(**names, namespace=server.namespace)
        return there[0] if there else client.pipelines.pipeline_service_create_pipeline(wanted)

    def version(name: str) -> Any:
        there = client.list_pipeline_versions(owner, filter=_filter(name)).pipeline_versions
        return there[0] if there else client.upload_pipeline_version(str(compiled), name, owner, description=mark)

    # The server keeps the specification in a form of its own; the description keeps its digest.
    owner, mark = _made(server, pipeline).pipeline_id, compiler.mark(content)
    for wanted in (name, f"{name}-{compiler.digest(content)[:8]}"):
        result = _made(server, partial(version, wanted))
        if result.description == mark:
            return result
    raise UsageError("this name has other content", where="version", got=name, hint="give another version=")


def start(server: Server, version: Any, name: str, config: Any, parameters: dict[str, Any]) -> str:
    """Start a run; returns its id.

    Raises:
        Unanswered: the run may have started. It is not tried again: a second run would do everything twice.
    """
    common = _common(server, version, config, parameters)
    try:
        with contextlib.redirect_stdout(None):
            return str(server.client.run_pipeline(job_name=name, **common).run_id)
    except Unanswered as error:
        hint = f"look whether {name!r} is among the runs before you submit it again"
        raise Unanswered(error.what, where=error.where, got=error.got, hint=hint) from error


def experiment_id(server: Server, name: str) -> str:
    """Return the id of the experiment of this name, which is created if necessary."""
    create = partial(server.client.create_experiment, name, namespace=server.namespace)
    return str(_made(server, create).experiment_id)


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
    common = _common(server, version, config, parameters)
    content = {**common, "cron_expression": seconds_cron(config.cron)}
    mark = f"sha256:{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}"
    old = recurring(server, config.name, common["experiment_id"])
    paused = any(job.status == "DISABLED" for job in old)
    same = [job for job in old if job.description == mark]
    create = partial(server.client.create_recurring_run, job_name=config.name, description=mark, enabled=not paused)
    kept = same[0] if same else create(max_concurrency="1", no_catchup=True, **content)
    for job in old:
        if job.recurring_run_id != kept.recurring_run_id:
            _delete(server, job.recurring_run_id)
    change = "is unchanged" if same else "was replaced" if old else "was created"
    event(
        f"recurring run {config.name} {change}: {config.cron} (UTC), {version.display_name}"
        f"{', paused: resume starts it' if paused else ''}",
        recurring_run=kept.recurring_run_id,
    )
    return str(kept.recurring_run_id)


def recurring(server: Server, name: str, experiment: str) -> list[Any]:
    """Return the recurring runs of this name in this experiment."""
    result = server.client.list_recurring_runs(experiment_id=experiment, filter=_filter(name), page_size=100)
    return list(result.recurring_runs or [])


def change(server: Server, name: str, experiment: str, verb: str) -> None:
    """Pause, resume or delete the recurring run of this name.

    Raises:
        InputError: there is none.
    """
    jobs = recurring(server, name, experiment)
    if not jobs:
        raise InputError("no such recurring run", where="name", got=name, hint="check name, experiment and namespace")
    pause, resume = server.client.disable_recurring_run, server.client.enable_recurring_run
    for job in jobs:
        {"pause": pause, "resume": resume, "delete": partial(_delete, server)}[verb](job.recurring_run_id)


def _delete(server: Server, recurring_run: str) -> None:
    with contextlib.suppress(InputError):  # another submission deleted it
        server.client.delete_recurring_run(recurring_run)


def _common(server: Server, version: Any, config: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return what a run and a recurring run are created of alike."""
    return {
        "experiment_id": experiment_id(server, config.experiment),
        "pipeline_id": version.pipeline_id,
        "version_id": version.pipeline_version_id,
        "params": parameters,
        "service_account": config.service_account or None,
    }


def _made(server: Server, create: Callable[[], Any]) -> Any:
    """Return what ``create`` finds or makes. It is called again if its answer is lost, or another was faster."""
    for left in reversed(range(_TRIES)):
        try:
            # kfp.Client prints links, where the id of the run is to be alone.
            with contextlib.redirect_stdout(None):
                return create()
        except (Exists, Unanswered):
            if not left:
                raise
            time.sleep(server.poll * random.uniform(0.1, 0.3))  # noqa: S311
    raise AssertionError


def _filter(name: str) -> str:
    return json.dumps({"predicates": [{"operation": "EQUALS", "key": "display_name", "stringValue": name}]})
