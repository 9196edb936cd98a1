"""Where and how tasks run on a cluster: resources, retries, time limits, nodes, scratch space, credentials."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pairmill.engine.options import option
from pairmill.errors import UsageError
from pairmill.fields import Checked
from pairmill.interface import launcher
from pairmill.line.stages import EVERY, LAST

SCRATCH = "/scratch"
"""Folder for temporary files: the one volume of a pod that has a limit. Everything else is the node's own disk."""

MEMORY = "/dev/shm"  # noqa: S108 - the place of arrays
"""Of a task that trains, a volume in memory: arrays are in it, and what processes of one training share."""

# The stages that ask the Hub (curate for benchmarks) or tell Weights & Biases, and the variable that lets them in.
# These tokens are in a secret of their own, as a mounted secret shows all of its keys.
OF_THE_HUB = {"fetch": "HF_TOKEN", "curate": "HF_TOKEN", "train": "WANDB_API_KEY"}
QUEUE: Final = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY: Final = "kueue.x-k8s.io/priority-class"
# Kubeflow's own store, for minio://.
KUBEFLOWS_STORE = "mlpipeline-minio-artifact"
_SIZED = ("cpu", "memory", "scratch")
_SIZES_OF_TRAINING = {"cpu": "8", "memory": "64Gi", "shm": "32Gi"}
_CORES = re.compile("[1-9][0-9]*m?")
_BYTES = re.compile("([1-9][0-9]*)([KMGTP])(i?)")
_EFFECTS = "NoSchedule|PreferNoSchedule|NoExecute"
_NAME = ("[a-z0-9]([a-z0-9.-]*[a-z0-9])?", "small letters, digits, - and .")
_FORMS = {
    "resources": (
        re.compile(r"(\w+)\.(cpu|memory|scratch|shm)=(.*)"),
        "resource of a stage",
        "<stage>.<cpu|memory|scratch>=<quantity>, or train.shm=<quantity>",
    ),
    "node_selector": (re.compile("([^=]+)=(.*)"), "node label", "key=value"),
    "gpu_nodes": (re.compile("([^=]+)=(.*)"), "node label", "key=value"),
    "volume": (re.compile(r"([a-z0-9][a-z0-9.-]*)=((?:/[\w.-]+)+)"), "volume", "<claim>=<path>, as pairmill=/project"),
    "tolerations": (re.compile(f"([^=:]+)(?:=([^:]*))?:({_EFFECTS})"), "toleration", f"key=value:<{_EFFECTS}>"),
}
"""Of list options: the form of an item, what it is, and how it is written."""


@dataclass(kw_only=True)
class Placement(Checked):
    """What a cluster gives the tasks. It changes no result."""

    # Without a limit a stage would start a process for every core of the node, and run out of memory.
    cpu: str = option("2", help="cores of a pod, which starts as many processes; a quarter of them is asked for")
    memory: str = option("4Gi", help="memory limit of a pod, 400 MB a process; a quarter of it is asked for")
    scratch: str = option(
        "50Gi", help=f"limit of the volume at {SCRATCH}, which holds a shard's files until they are stored"
    )
    resources: list[str] = option([], help="of single stages, as tokenize.memory=16Gi,clean.cpu=4")
    retries: int = option(
        2,
        help="more attempts of a task, after 30 s, then 60 s; which failures count is up to the installation "
        "(docs/operations.md). submit starts a run again as often whose pods were ended from outside",
        at_least=0,
    )
    timeout_hours: int = option(
        24, help="hours after which a pod is ended, counted from its start, image pull included", at_least=1
    )
    parallelism: int = option(16, help="runs of a comparison or search at the same time", at_least=1)
    node_selector: list[str] = option([], help="labels of the nodes to run on, as key=value")
    tolerations: list[str] = option(
        [], help="taints of nodes to run on nevertheless, as key=value:NoSchedule or key:NoSchedule"
    )
    gpus: int = option(
        1, help="GPUs of a training's pod, with a process for each; 0 = it trains on its cores", at_least=0
    )
    gpu: str = option("nvidia.com/gpu", help="what the cluster calls them; a taint of that name is tolerated")
    gpu_nodes: list[str] = option([], help="labels of the nodes to train on, in place of node_selector, as key=value")
    volume: list[str] = option(
        [],
        help="PersistentVolumeClaims that every pod mounts, as <claim>=<path>: root= may then be below that path; "
        "empty = all data is in buckets",
    )
    queue: str = option(
        "",
        help="LocalQueue of Kueue that admits every pod that works, or the Jobs; empty = they start at once",
        form=_NAME,
    )
    queue_priority: str = option(
        "", help="WorkloadPriorityClass of Kueue; empty = that of the pods", form=_NAME, needs="queue"
    )
    priority: str = option("", help="with fan_out=job: PriorityClass of the Jobs' pods; empty = the usual", form=_NAME)
    wait_hours: float = option(
        12.0, help="with fan_out=job: hours without a running pod after which a task fails, and says why", above=0
    )
    secret: str = option("pairmill-storage", help="Kubernetes secret with AWS_*, GOOGLE_* or key files; need not exist")
    hub_secret: str = option(
        "pairmill-hub",
        help="Kubernetes secret with HF_TOKEN for fetch and curate, WANDB_API_KEY for train; need not exist",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _SIZED:
            _quantity(name, getattr(self, name))
        for stage in LAST:
            sizes = self.sizes(stage)
            if _bytes(sizes["shm"]) >= _bytes(sizes["memory"]):
                raise UsageError(
                    f"what is in {MEMORY} counts as memory of the pod",
                    where=f"{stage}.shm",
                    got=f"{sizes['shm']} of {sizes['memory']}",
                    expected=f"less than {stage}.memory",
                )
        for name in ("node_selector", "tolerations", "gpu_nodes", "volume"):
            self.items(name)

    def apply(self, task: Any, stage: str) -> Any:
        """Set these options on a task of the pipeline; return the task."""
        from kfp import kubernetes

        sizes = self.sizes(stage)
        cpu, memory, scratch = (sizes[name] for name in _SIZED)
        seconds = self.timeout_hours * 3600
        # Kubeflow's cache never looks whether the data at a URI changed or is still there. Every stage does, and ends
        # in about a second if its result exists: docs/decisions/0003-kubeflow-cache-off.md
        task.set_caching_options(False)
        # Argo takes the longest wait for the time of all attempts together, and kfp's default is one hour: a task that
        # failed later than that would never be tried again.
        every = (self.retries + 1) * seconds
        task.set_retry(self.retries, backoff_duration="30s", backoff_factor=2.0, backoff_max_duration=f"{every}s")
        task.set_cpu_request(quarter(cpu)).set_cpu_limit(cpu)
        task.set_memory_request(_memory_text(memory, sizes.get("shm"))).set_memory_limit(memory)
        kubernetes.set_timeout(task, seconds)
        kubernetes.empty_dir_mount(task, volume_name="scratch", mount_path=SCRATCH, size_limit=scratch)
        task.set_env_variable("TMPDIR", SCRATCH)
        if stage in OF_THE_HUB or stage in LAST:
            task.set_env_variable("HF_HOME", f"{SCRATCH}/huggingface")
        # The program reads variables there. No result depends on them: Kubeflow's cache does not see them.
        kubernetes.use_secret_as_volume(task, KUBEFLOWS_STORE, launcher.STORE_SECRETS, optional=True)
        if self.secret:
            kubernetes.use_secret_as_volume(task, self.secret, launcher.SECRETS, optional=True)
        if self.hub_secret and stage in OF_THE_HUB:
            name = OF_THE_HUB[stage]
            kubernetes.use_secret_as_env(task, self.hub_secret, {name: name}, optional=True)
        for claim, path in self.items("volume"):
            kubernetes.mount_pvc(task, claim, path)
        for key, value in self.queue_labels().items():
            kubernetes.add_pod_label(task, key, value)
        if stage in LAST:
            self._train(kubernetes, task, sizes["shm"])
        for key, value in self.items("gpu_nodes" if stage in LAST and self.gpu_nodes else "node_selector"):
            kubernetes.add_node_selector(task, key, value)
        for key, value, effect in self.items("tolerations"):
            kubernetes.add_toleration(
                task, key=key, operator="Equal" if value else "Exists", value=value or None, effect=effect
            )
        return task

    def queue_labels(self) -> dict[str, str]:
        """Return the labels by which Kueue knows a pod, or a Job, of the queue."""
        labels = {QUEUE: self.queue, QUEUE_PRIORITY: self.queue_priority}
        return {name: value for name, value in labels.items() if value}

    def _train(self, kubernetes: Any, task: Any, shm: str) -> None:
        """Give a task what it needs in order to train; ``kubernetes`` is that of kfp."""
        # What is in it counts as memory of the pod. Without it, a pod's /dev/shm has 64 MiB.
        kubernetes.empty_dir_mount(task, volume_name="shm", mount_path=MEMORY, medium="Memory", size_limit=shm)
        if self.gpus:
            task.set_accelerator_type(self.gpu).set_accelerator_limit(self.gpus)
            kubernetes.add_toleration(task, key=self.gpu, operator="Exists", effect="NoSchedule")

    def is_mounted(self, path: str) -> bool:
        """Return whether a path is on a volume that every pod mounts."""
        mounted = [Path(place) for _, place in self.items("volume")]
        return any(Path(os.path.normpath(path)).is_relative_to(place) for place in mounted)

    def sizes(self, stage: str) -> dict[str, str]:
        """Return the quantities of a stage's pod by resource."""
        usual = {name: getattr(self, name) for name in _SIZED}
        return usual | (_SIZES_OF_TRAINING if stage in LAST else {}) | self._of_stages().get(stage, {})

    def _of_stages(self) -> dict[str, dict[str, str]]:
        result: dict[str, dict[str, str]] = {}
        for stage, name, value in self.items("resources"):
            if stage not in EVERY:
                raise UsageError("unknown stage", where="resources", got=stage, expected=", ".join(EVERY))
            if name == "shm" and stage not in LAST:
                raise UsageError("only what trains has one", where=f"{stage}.shm", got=value, expected="train.shm=…")
            _quantity(f"{stage}.{name}", value)
            result.setdefault(stage, {})[name] = value
        return result

    def items(self, name: str) -> list[tuple[str, ...]]:
        """Return each item of a list option, split into its parts."""
        form, what, expected = _FORMS[name]
        result = []
        for item in getattr(self, name):
            match = form.fullmatch(item)
            if match is None:
                raise UsageError(f"not a {what}", where=name, got=item, expected=expected)
            result.append(match.groups(default=""))
        return result


def _quantity(where: str, text: str) -> None:
    form, expected = (_CORES, "such as 2 or 500m") if where.endswith("cpu") else (_BYTES, "such as 16Gi")
    if not form.fullmatch(text):
        raise UsageError("not a valid quantity", where=where, got=repr(text), expected=expected)


def _bytes(size: str) -> int:
    match = _BYTES.fullmatch(size)
    assert match is not None
    unit: int = (1024 if match[3] else 1000) ** " KMGTP".index(match[2])
    return int(match[1]) * unit


def _memory_text(memory: str, shm: str | None) -> str:
    """Return the memory that a pod asks for: a quarter of its limit; of one that trains what its arrays take, and a
    quarter of the rest, because the node would else be promised to others.
    """
    if shm is None:
        return quarter(memory)
    return f"{(_bytes(shm) + (_bytes(memory) - _bytes(shm)) // 4) // 1024**2}Mi"


def quarter(size: str) -> str:
    """Return a quarter of a quantity, in the next smaller unit so that it is an integer."""
    match = re.fullmatch("([0-9]+)(m|[KMGTP]?)(i?)", size)
    assert match is not None
    number, unit, binary = int(match[1]), match[2], match[3]
    if unit == "m":
        return f"{max(1, number // 4)}m"
    if not unit:
        return f"{number * 250}m"
    smaller = " KMGTP"[" KMGTP".index(unit) - 1].strip()
    return f"{number * (1024 if binary else 1000) // 4}{smaller}{binary if smaller else ''}"
