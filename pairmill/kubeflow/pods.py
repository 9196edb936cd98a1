"""What the pods of a Job get: what tasks of the pipeline get, written as Kubernetes has it and not as kfp does."""

import dataclasses
import math
import shlex
from dataclasses import dataclass
from typing import Any, Final, Self

from pairmill.engine.options import list_item, option
from pairmill.interface import cli, launcher
from pairmill.kubeflow.placement import KUBEFLOWS_STORE, OF_THE_HUB, SCRATCH, Placement, quarter

VARIABLE: Final = "PAIRMILL_JOB"
"""Of the pod that starts a Job: :class:`JobConfig` as options. No result depends on it, so stages do not have it."""


@dataclass(kw_only=True)
class JobConfig(Placement):
    """How a stage is shared out by a Job."""

    shares: int = option(2, help="pods, all at the same time", at_least=2)
    image: str = option(help="of the pods", filled=True)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read it from :data:`VARIABLE`. Raises UsageError if it is not ``name=value …``."""
        return cli.build(cls, cli.split(shlex.split(text)))

    def dump(self) -> str:
        """Return it as :meth:`parse` reads it: the workflow object holds it several times."""
        usual, parts = type(self)(image=self.image), []
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            if item.name == "image" or value != getattr(usual, item.name):
                text = ",".join(map(list_item, value)) if isinstance(value, list) else str(value)
                parts.append(shlex.quote(f"{item.name}={text}"))
        return " ".join(parts)

    def pod(self, stage: str) -> dict[str, Any]:
        """Return the specification of a pod of a stage, but for what its container runs."""
        sizes = self.sizes(stage)
        limits = {name: sizes[name] for name in ("cpu", "memory")}
        scratch = {"emptyDir": {"sizeLimit": sizes["scratch"]}}
        secrets = [(KUBEFLOWS_STORE, launcher.STORE_SECRETS), (self.secret, launcher.SECRETS)]
        volumes: list[tuple[str, str, dict[str, Any]]] = [
            ("scratch", SCRATCH, scratch),
            *((name, path, {"secret": {"secretName": name, "optional": True}}) for name, path in secrets if name),
            *((claim, path, {"persistentVolumeClaim": {"claimName": claim}}) for claim, path in self.items("volume")),
        ]
        variables: list[dict[str, Any]] = [{"name": "TMPDIR", "value": SCRATCH}]
        if stage in OF_THE_HUB:
            variables.append({"name": "HF_HOME", "value": f"{SCRATCH}/huggingface"})
        if self.hub_secret and stage in OF_THE_HUB:
            name = OF_THE_HUB[stage]
            key = {"name": self.hub_secret, "key": name, "optional": True}
            variables.append({"name": name, "valueFrom": {"secretKeyRef": key}})
        tolerations = [
            {"key": key, "effect": effect, **({"value": value} if value else {"operator": "Exists"})}
            for key, value, effect in self.items("tolerations")
        ]
        nodes = {key: value for key, value, *_ in self.items("node_selector")}
        container = {
            "image": self.image,
            "env": variables,
            "resources": {"limits": limits, "requests": {name: quarter(size) for name, size in limits.items()}},
            "volumeMounts": [{"name": name, "mountPath": path} for name, path, _ in volumes],
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        }
        return {
            "containers": [container],
            "volumes": [{"name": name, **source} for name, _, source in volumes],
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            **({"nodeSelector": nodes} if nodes else {}),
            **({"tolerations": tolerations} if tolerations else {}),
            **({"priorityClassName": self.priority} if self.priority else {}),
        }


def apply_job(placement: Placement, task: Any, stage: str, image: str, shares: int) -> Any:
    """Let a task of a pipeline start a Job of ``shares`` pods and watch it; return the task."""
    given = {item.name: getattr(placement, item.name) for item in dataclasses.fields(Placement)}
    config = JobConfig(**given, image=image, shares=shares)
    # It watches, and looks at what is finished. In the queue it would wait for room that its own Job has.
    hours = placement.timeout_hours + math.ceil(placement.wait_hours)
    watcher = dataclasses.replace(
        placement, cpu="1", memory="4Gi", resources=[], timeout_hours=hours, queue="", queue_priority=""
    )
    watcher.apply(task, stage)
    return task.set_env_variable(VARIABLE, config.dump())
