"""The Indexed Job of a stage: a pod for each share, and what Kubernetes does when one ends."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from pairmill.engine.manifest import fingerprint_from
from pairmill.interface import launcher
from pairmill.interface.interrupt import TERMINATED

VARIABLE: Final = "PAIRMILL_JOB"
"""Of the pod that starts a Job: :class:`Fanout` as JSON. No result depends on it, so it is not an option."""
CONTAINER: Final = "share"
QUEUE: Final = "kueue.x-k8s.io/queue-name"
SPEC: Final = "pairmill.dev/spec"
_KEPT_SECONDS = 24 * 3600
_DEFECTS: Final = (2, 3)
"""Exit codes of what would fail again: an option or the data is wrong."""


@dataclass(frozen=True, kw_only=True)
class Fanout:
    """How a stage is shared out.

    Args:
        shares: pods, all at the same time.
        pod: the specification of a pod, but for what its container runs.
        queue: LocalQueue of Kueue; empty = the Job is not queued.
        retries: further pods of a share that failed; those that were ended from outside do not count.
        hours: that the Job may run.
        wait_hours: that it may wait with no pod running.
    """

    shares: int
    pod: Mapping[str, Any]
    queue: str = ""
    retries: int = 2
    hours: int = 24
    wait_hours: float = 12.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read it from :data:`VARIABLE`."""
        return cls(**json.loads(text))

    def dump(self) -> str:
        """Return it as :meth:`parse` reads it, without what is the default."""
        given = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        kept = {item.name: given[item.name] for item in dataclasses.fields(self) if given[item.name] != item.default}
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))


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
        """The name of the Job: the same for the same result, whoever wants it."""
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
        labels = {name: text for name, text in meta.get("labels", {}).items() if name == "pipeline/runid"}
        owners = [
            {**owner, "controller": False, "blockOwnerDeletion": False} for owner in meta.get("ownerReferences", [])
        ]
        return cls(pod["spec"].get("serviceAccountName", ""), labels, owners)


def job_of(work: Work, fanout: Fanout, starter: Starter) -> dict[str, Any]:
    """Return the Job. Its annotation :data:`SPEC` differs where its pods would do other work."""
    labels = {
        "app.kubernetes.io/name": "pairmill-share",
        "pairmill.dev/stage": work.stage,
        **({QUEUE: fanout.queue} if fanout.queue else {}),
        **starter.labels,
    }
    spec = {
        "completionMode": "Indexed",
        "completions": fanout.shares,
        # A share that never ran would be waited for by the others.
        "parallelism": fanout.shares,
        "backoffLimitPerIndex": fanout.retries,
        "activeDeadlineSeconds": fanout.hours * 3600,
        "ttlSecondsAfterFinished": _KEPT_SECONDS,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _rules()},
        **({"suspend": True} if fanout.queue else {}),
        "template": {
            # A sidecar would keep the pod running for ever.
            "metadata": {
                "labels": {**labels, "sidecar.istio.io/inject": "false"},
                "annotations": {"sidecar.istio.io/inject": "false"},
            },
            "spec": _pod(work, fanout, starter),
        },
    }
    annotations = {SPEC: fingerprint_from(spec), "pairmill.dev/result": work.home}
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


def _pod(work: Work, fanout: Fanout, starter: Starter) -> dict[str, Any]:
    values = {**work.options, "share": f"auto/{fanout.shares}", "finish": True}
    given = {"inputs": {"parameterValues": values}, "outputs": {"outputFile": "/tmp/outputs.json"}}  # noqa: S108
    # Kubernetes reads $(NAME) in arguments, and $$ as $.
    text = json.dumps(given, sort_keys=True).replace("$", "$$")
    (container,) = fanout.pod["containers"]
    program = {"name": CONTAINER, "command": ["python", "-m", "pairmill", "stage", work.stage, launcher.FLAG, text]}
    account = {"serviceAccountName": starter.account} if starter.account else {}
    return {**fanout.pod, **account, "restartPolicy": "Never", "containers": [{**container, **program}]}
