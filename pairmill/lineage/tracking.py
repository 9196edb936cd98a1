"""Tags of a task's run in MLflow, where Kubeflow Pipelines keeps one.

Kubeflow makes the run of the pipeline and a nested one for each task, and logs the metrics of its artifacts there. Tags
are the task's own: with ``injectUserEnvVars`` its container gets ``MLFLOW_RUN_ID`` and ``MLFLOW_TRACKING_URI``, and
credentials as MLflow's own client takes them.

Source: kubeflow/pipelines 2.17, ``backend/src/v2/common/plugins/mlflow``; MLflow's REST API, ``runs/log-batch``.
"""

import base64
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pairmill import log
from pairmill.engine.manifest import Manifest
from pairmill.errors import PairmillError
from pairmill.lineage.steps import Step, by_source
from pairmill.net.post import post

_MOST_SOURCES: Final = 50
"""Sources with a tag of their own, the largest: MLflow takes 100 tags a request."""
_MOST_NAME, _MOST_VALUE = 250, 5000
"""Characters of a tag."""
_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"
"""Of the service account."""


def tags_of(manifest: Manifest, uri: str) -> dict[str, str]:
    """Return the tags of a result: stage, fingerprint, place, the plan of a sample, and the share of each source.

    Shares are of response tokens; before there are tokens, of rows.
    """
    step = Step(manifest.stage, manifest)
    tags = {"stage": manifest.stage, "fingerprint": manifest.fingerprint, "output": uri}
    if manifest.stage == "sample":
        tags["plan"] = manifest.fingerprint
    counts = by_source(step.tokens or step.rows)
    whole = sum(counts.values())
    largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:_MOST_SOURCES]
    tags |= {f"share.{source}": f"{count / whole:.6f}" for source, count in largest if whole}
    # Of other characters MLflow refuses the whole request.
    return {
        "pairmill." + re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)[: _MOST_NAME - 9]: text[:_MOST_VALUE]
        for name, text in tags.items()
    }


def set_tags(manifest: bytes, uri: str, environment: Mapping[str, str] = os.environ) -> None:
    """Set the tags of this task's run; a server that does not take them is a warning, because the result is there.

    Args:
        manifest: of the result, as it is written.
        environment: variables of the task.
    """
    tags = [{"key": name, "value": text} for name, text in tags_of(Manifest.load(manifest, uri), uri).items()]
    try:
        server = environment.get("MLFLOW_TRACKING_URI", "").rstrip("/")
        value = {"run_id": environment["MLFLOW_RUN_ID"], "metrics": [], "params": [], "tags": tags}
        post(f"{server}/api/2.0/mlflow/runs/log-batch", value, _headers(environment))
    except (PairmillError, OSError) as error:
        log.event(f"MLflow has no tags of this task: {error}", level=logging.WARNING)


def _headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what says who asks, and in which workspace.

    Raises:
        OSError: the service account has no token.
    """
    headers = {}
    if "MLFLOW_WORKSPACE" in environment:
        headers["X-MLflow-Workspace"] = environment["MLFLOW_WORKSPACE"]
    if "MLFLOW_TRACKING_TOKEN" in environment:
        headers["Authorization"] = f"Bearer {environment['MLFLOW_TRACKING_TOKEN']}"
    elif "MLFLOW_TRACKING_USERNAME" in environment:
        name, password = environment["MLFLOW_TRACKING_USERNAME"], environment.get("MLFLOW_TRACKING_PASSWORD", "")
        headers["Authorization"] = "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
    elif environment.get("MLFLOW_TRACKING_AUTH", "").startswith("kubernetes"):
        headers["Authorization"] = f"Bearer {Path(_ACCOUNT).read_text().strip()}"
    return headers
