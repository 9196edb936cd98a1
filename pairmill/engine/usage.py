"""What pods of a stage took: at its end each leaves ``<root>/usage/<stage>/<fingerprint>/<pod>-<start>.json``.

A pod that is killed leaves none. Outside of pods nothing is written: a machine is not paid for by the second.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pairmill import log, storage
from pairmill.cpu import available_cores
from pairmill.engine.manifest import is_fingerprint
from pairmill.errors import PairmillError

FOLDER: Final = "usage"
"""Below the root."""

_NO_LIMIT: Final = 1 << 60
"""Bytes; cgroups write an even larger number where there is no limit."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a pod had and used."""

    pod: str
    seconds: float
    """From the start of its process on."""
    cores: int
    """That it might use: its limit, or those of its node."""
    memory_bytes: int
    """Its limit; 0 = none."""
    gpus: int
    cpu_seconds: float
    """Of its process, and of processes that it started and that have ended."""
    peak_bytes: int
    """The most memory that it had; 0 = not known."""


def measure() -> Usage:
    """Return what this process has taken up to now."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    limit = _bytes_in("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    return Usage(
        pod=os.uname().nodename,
        seconds=round(time.clock_gettime(time.CLOCK_BOOTTIME) - _started(), 1),
        cores=available_cores(),
        memory_bytes=limit if limit < _NO_LIMIT else 0,
        gpus=len([path for path in Path("/dev").glob("nvidia*") if path.name.removeprefix("nvidia").isdecimal()]),
        cpu_seconds=round(sum(item.ru_utime + item.ru_stime for item in used), 1),
        peak_bytes=_bytes_in("/sys/fs/cgroup/memory.peak", "/sys/fs/cgroup/memory/memory.max_usage_in_bytes"),
    )


def leave(result: str) -> None:
    """In a pod, write what it took for a result; storage that refuses is only logged, because the result is there.

    Args:
        result: URI of its folder, ``<root>/<stage>/<fingerprint>``; of another folder nothing is kept.
    """
    stage = storage.parent_of(result)
    if "KUBERNETES_SERVICE_HOST" not in os.environ or not is_fingerprint(storage.name_of(result)):
        return
    usage = measure()
    name = f"{usage.pod}-{int(time.time() - usage.seconds)}.json"
    folder = storage.join(FOLDER, storage.name_of(stage), storage.name_of(result))
    uri = storage.join(storage.parent_of(stage), folder, name)
    try:
        storage.store_for(uri).write(uri, json.dumps(asdict(usage), indent=1).encode())
    except PairmillError as error:
        log.event(f"what this pod took is not kept: {error}", level=logging.WARNING, uri=uri)


def read(root: str, stage: str, fingerprint: str) -> Sequence[Usage]:
    """Return what the pods of a result took, those that were not killed; of files that are not ours none."""
    top = storage.join(root, FOLDER, stage, fingerprint)
    store, result = storage.store_for(top), []
    for entry in store.list(top):
        try:
            result.append(Usage(**json.loads(store.read(storage.join(top, entry.path)))))
        except (TypeError, ValueError):
            log.event("not a file of what a pod took", level=logging.WARNING, uri=storage.join(top, entry.path))
    return result


class Total(NamedTuple):
    """What pods took together, in units that are paid for."""

    pods: int
    pod_seconds: float
    core_seconds: float
    gib_seconds: float
    gpu_seconds: float
    cpu_seconds: float
    peak_bytes: int

    @classmethod
    def sum(cls, pods: Iterable[Usage]) -> Total:
        """Add up pods; the peak is the largest."""
        items = list(pods)
        return cls(
            pods=len(items),
            pod_seconds=sum(item.seconds for item in items),
            core_seconds=sum(item.seconds * item.cores for item in items),
            gib_seconds=sum(item.seconds * item.memory_bytes for item in items) / (1 << 30),
            gpu_seconds=sum(item.seconds * item.gpus for item in items),
            cpu_seconds=sum(item.cpu_seconds for item in items),
            peak_bytes=max((item.peak_bytes for item in items), default=0),
        )


def _started() -> float:
    """Return when this process began, in seconds since the machine's start."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _bytes_in(*files: str) -> int:
    """Return the number in the first of these files that has one; 0 if none has."""
    for file in files:
        try:
            return int(Path(file).read_text())
        except (OSError, ValueError):
            continue
    return 0
