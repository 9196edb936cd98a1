"""Whether a sample fits: the file system's free space, and the memory limit that its pages are charged to.

The pages of a tmpfs are charged to the cgroup of the process that writes them. The kernel kills a process that exceeds
the limit, and no message says how much was too much; so the numbers are compared before the first byte is written.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from pairmill.errors import StorageError

_UNLIMITED = 1 << 60
_MEMORY = {"tmpfs", "ramfs"}
_MIB = 1 << 20
_MARGIN = 32 * _MIB
"""What Python itself may still take."""
_ROOM = 16 * _MIB
"""Added to the limit that the error names: a program's memory when it asks differs from start to start."""


class Limit(NamedTuple):
    """Memory that a cgroup may hold, and what it holds that cannot be reclaimed, in bytes."""

    most: int
    held: int


def require_space(target: Path, needed: int, working: int, freed: int = 0) -> None:
    """Raise StorageError (exit code 4) with the numbers, unless ``needed`` bytes fit below ``target``.

    Args:
        target: the folder to be made.
        needed: bytes of its files.
        working: bytes of memory to make them with.
        freed: bytes of older samples there that are removed first.
    """
    existing, free = free_bytes(target.parent)
    free += freed
    if needed > free:
        raise StorageError(
            "no space left for the sample",
            where=f"output_path={target}",
            got=f"{free:,} bytes free in {existing}",
            expected=f"{needed:,} bytes",
            hint=f"nothing was written; free {needed - free:,} more bytes, or lower epochs or max_per_file",
        )
    if not in_memory(existing):
        needed = 0  # a disk's pages can be written back and given up
    wanted = needed + working + _MARGIN
    for limit in memory_limits():
        enough = limit.held + wanted
        if enough > limit.most:
            raise StorageError(
                "the sample does not fit within the container's memory limit",
                where=f"output_path={target}",
                got=f"a limit of {limit.most:,} bytes, of which {limit.held:,} are in use",
                expected=f"{needed:,} bytes for the sample and {working + _MARGIN:,} to work with",
                hint=f"nothing was written; set the limit to {-(-(enough + _ROOM) // _MIB)} MiB or more "
                "(what is written to /dev/shm counts as memory)",
            )


def free_bytes(path: Path) -> tuple[Path, int]:
    """Return the nearest folder to ``path`` that exists, and bytes that we may still write there."""
    existing = next(item for item in (path, *path.parents) if item.exists())
    system = os.statvfs(existing)
    return existing, system.f_bavail * system.f_frsize


class Mount(NamedTuple):
    """A mount: where it is, which folder of its file system is there, and the type of that."""

    point: str
    root: str
    kind: str


def mounts(text: str | None = None) -> Iterator[Mount]:
    """Yield all mounts in order; ``text`` is that of /proc/self/mountinfo."""
    if text is None:
        try:
            text = Path("/proc/self/mountinfo").read_text()
        except OSError:
            return
    for line in text.splitlines():
        head, _, tail = line.partition(" - ")
        # Spaces in a path are written as \040.
        root, point = (path.replace("\\040", " ") for path in head.split()[3:5])
        yield Mount(point, root, tail.split()[0])


def in_memory(path: Path, text: str | None = None) -> bool:
    """Return whether files at ``path`` are in memory; ``text`` is that of /proc/self/mountinfo."""
    best, kind = "", ""
    resolved = str(path.resolve())
    for mount in mounts(text):
        point = mount.point
        if (resolved == point or resolved.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, mount.kind
    return kind in _MEMORY


def memory_limits(cgroups: str | None = None, top: Path = Path("/sys/fs/cgroup")) -> Iterator[Limit]:
    """Yield the limits of this process's memory cgroup and of those above it, in either version's files.

    Args:
        cgroups: text of /proc/self/cgroup.
        top: where cgroups are mounted.
    """
    try:
        lines = (Path("/proc/self/cgroup").read_text() if cgroups is None else cgroups).splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, files = top, ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            mount, files = top / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        # In a container the path may be the host's, but the mounted tree begins at the container's own group.
        folder = mount / path.lstrip("/")
        if not (folder / files[1]).exists():
            folder = mount
        while True:
            limit = _limit(folder, *files)
            if limit is not None:
                yield limit
            if folder == mount:
                break
            folder = folder.parent


def _limit(folder: Path, most: str, current: str, prefix: str) -> Limit | None:
    try:
        text = (folder / most).read_text().strip()
        if text == "max" or int(text) >= _UNLIMITED:
            return None
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        # Cached pages of files on a disk are counted too, but are reclaimed on demand. A tmpfs has none of these.
        reclaimable = int(stat[f"{prefix}inactive_file"]) + int(stat[f"{prefix}active_file"])
        return Limit(int(text), max(0, int((folder / current).read_text()) - reclaimable))
    except (OSError, ValueError, KeyError):
        return None
