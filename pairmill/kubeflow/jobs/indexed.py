"""The Indexed Job of a stage: a pod for each share, and what Kubernetes does when one ends."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pairmill.engine.manifest import fingerprint_from
from pairmill.interface import launcher
from pairmill.interface.interrupt import TERMINATED
from pairmill.kubeflow.pods import JobConfig

CONTAINER: Final = "share"
SPEC: Final = "pairmill.dev/spec"
RUN: Final = "pipeline/runid"
"""The label of the run that a pod or Job is of."""
_KEPT_SECONDS = 24 * 3600
_DEFECTS: Final = (2, 3)
"""Exit codes of what would fail again: an option or the data is wrong."""


@dataclass(frozen=True)
class Work:
    """What the pods of a Job do.

    Args:
        stage: that they run.
        options: of it, by name.
        home: URI of the finished folder, which the name of the Job follows from.
    """

    stage: str
    options: Mapping[str, Any]
    home: str

    @property
    def name(self) -> str:
        """The name of the Job: it follows from the result alone."""
        return f"pairmill-{self.stage.replace('_', '-')}-{fingerprint_from(self.home)[:12]}"


@dataclass(frozen=True)
class Starter:
    """The pod that starts a Job.

    Args:
        account: its service account, which the Job's pods have too.
        labels: that say which run it is of.
        owners: what it belongs to, a workflow of Kubeflow: when that is deleted, so is the Job.
    """

    account: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    owners: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def from_pod(cls, pod: Mapping[str, Any] | None) -> Self:
        """Read it from the pod; None = it is not known."""
        if pod is None:
            return cls()
        meta = pod["metadata"]
        labels = {name: text for name, text in meta.get("labels", {}).items() if name == RUN}
        owners = [
            {**owner, "controller": False, "blockOwnerDeletion": False} for owner in meta.get("ownerReferences", [])
        ]
        return cls(pod["spec"].get("serviceAccountName", ""), labels, owners)


def job_of(work: Work, config: JobConfig, starter: Starter) -> dict[str, Any]:
    """Return the Job. Its annotation :data:`SPEC` differs where its pods would do other work."""
    labels = {
        "app.kubernetes.io/name": "pairmill-share",
        "pairmill.dev/stage": work.stage,
        **config.queue_labels(),
        **starter.labels,
    }
    pod = _pod(work, config, starter)
    spec = {
        "completionMode": "Indexed",
        "completions": config.shares,
        # A share that never ran would be waited for by the others.
        "parallelism": config.shares,
        "backoffLimitPerIndex": config.retries,
        "activeDeadlineSeconds": config.timeout_hours * 3600,
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _rules()},
        **({"suspend": True} if config.queue else {}),
        "template": {
            # A sidecar would keep the pod running for ever.
            "metadata": {
                "labels": {**labels, "sidecar.istio.io/inject": "false"},
                "annotations": {"sidecar.istio.io/inject": "false"},
            },
            "spec": pod,
        },
    }
    # The run that it is of is not part of it.
    annotations = {SPEC: fingerprint_from(config.shares, config.queue, pod), "pairmill.dev/result": work.home}
    meta = {"name": work.name, "labels": labels, "annotations": annotations}
    owners = {"ownerReferences": starter.owners} if starter.owners else {}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {**meta, **owners}, "spec": spec}


def _rules() -> list[dict[str, Any]]:
    ended = {"containerName": CONTAINER, "operator": "In"}
    return [
        {"action": "FailJob", "onExitCodes": {**ended, "values": list(_DEFECTS)}},
        # Preempted, evicted, its node gone: a new pod, however often.
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": {**ended, "values": [TERMINATED]}},
    ]


def _pod(work: Work, config: JobConfig, starter: Starter) -> dict[str, Any]:
    values = {**work.options, "share": f"auto/{config.shares}", "finish": True}
    given = {"inputs": {"parameterValues": values}, "outputs": {"outputFile": "/tmp/outputs.json"}}  # noqa: S108
    # Kubernetes reads $(NAME) in arguments, and $$ as $.
    text = json.dumps(given, sort_keys=True).replace("$", "$$")
    pod = config.pod(work.stage)
    (container,) = pod["containers"]
    program = {"name": CONTAINER, "command": ["python", "-m", "pairmill", "stage", work.stage, launcher.FLAG, text]}
    account = {"serviceAccountName": starter.account} if starter.account else {}
    return {**pod, **account, "restartPolicy": "Never", "containers": [{**container, **program}]}
