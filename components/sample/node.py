"""A sampled folder on the machine that trains: hidden while it is written, renamed when it is whole, held, retired.

``<parent>/.<name>.<fingerprint>.partial`` is locked by its writer, so that two pods do not write twice. A folder that
stands at the target already is replaced only if pairmill wrote it. Where ``output_path`` ends with ``{fingerprint}``
the parent is the *folder of the node*: a folder for each sample, and ``PLAN``, which names the wanted one.

Whoever uses a sample may hold a shared flock(2) on its folder: then it is not retired.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from components.sample.config import FINGERPRINT
from pairmill import manifest as manifests
from pairmill import partials, storage
from pairmill.errors import UsageError
from pairmill.log import event
from pairmill.manifest import MANIFEST, Manifest
from pairmill.sampled import PLAN

NAME = "sample"
FACTS = "_NODE.json"
"""What is true of this node alone (seconds, bytes read), and so no part of the manifest."""


class Node:
    """Where a sample goes.

    Args:
        output_path: a local path, or one that ends with ``{fingerprint}``.
        fingerprint: of the sample.

    Raises:
        UsageError: it is no local path, or not one that could be a folder of its own.
    """

    def __init__(self, output_path: str, fingerprint: str) -> None:
        if storage.scheme(output_path) != "file":
            raise UsageError(
                "is no local folder", where="output_path", got=output_path, expected="a path, such as /dev/shm/sampled"
            )
        self._fingerprint = fingerprint
        given = storage.local_path(storage.normalise(output_path, "output_path"))
        self.shared = given.name == FINGERPRINT
        """Whether the parent is the folder of a node, with a folder for each sample."""
        self.target = given.with_name(fingerprint) if self.shared else given
        if self.target.parent == self.target:
            raise UsageError(
                "is the top of the file system", where="output_path", got=output_path, expected="a folder of its own"
            )

    def finished(self, *, verify: bool = False) -> Manifest | None:
        """The manifest of a whole folder of this sample at the target, else None; ``verify``: its files are read.

        Raises:
            UsageError: something that pairmill did not write stands there.
        """
        target = self.target
        if not target.exists() and not target.is_symlink():
            return None
        if target.is_dir() and not target.is_symlink() and not any(target.iterdir()):
            return None
        if not (target / MANIFEST).is_file():
            raise UsageError(
                "something that pairmill did not write stands there",
                where=f"output_path={target}",
                hint="remove it or choose another output_path",
            )
        made = _made(target)
        if made is None:
            raise UsageError("is no sampled folder", where=f"output_path={target}", hint="choose another output_path")
        return manifests.whole(str(target), verify=verify) if made in {"", self._fingerprint} else None

    @contextmanager
    def partial(self) -> Iterator[Path]:
        """An empty hidden folder beside the target, held by a lock; another writer of the same sample waits here.

        It is removed when the block ends, unless the block has renamed it.
        """
        self.target.parent.mkdir(parents=True, exist_ok=True)
        path = self.target.with_name(f".{self.target.name}.{self._fingerprint}.partial")

        def make() -> tuple[int, Path]:
            path.mkdir(exist_ok=True)
            return os.open(path, os.O_RDONLY | os.O_DIRECTORY), path

        handle, _ = partials.hold(make)
        try:
            for entry in path.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            yield path
        finally:
            if partials.names(path, handle):
                shutil.rmtree(path, ignore_errors=True)
            os.close(handle)

    def commit(self, partial: Path) -> None:
        """Put the folder in its place. One that stands there already changes places with it in one step, and goes.

        Processes that map the old one keep its pages.
        """
        target = self.target
        if target.is_dir() and any(target.iterdir()):
            if not _exchange(partial, target):
                aside = _aside(target)
                os.rename(target, aside)
                os.rename(partial, target)
                partial = aside
            shutil.rmtree(partial, ignore_errors=True)
        else:
            os.rename(partial, target)

    def sweep(self) -> None:
        """Remove the hidden folders that killed writers left beside the target."""
        name = "[0-9a-f]{16}" if self.shared else re.escape(self.target.name)
        ours = re.compile(rf"\.{name}\.[0-9a-f]{{16}}\.partial$")
        folders = [path for path in _children(self.target.parent) if ours.match(path.name)]
        for path in partials.sweep(folders):
            event(f"{NAME}: removed {path}, left by a run that was killed")

    def outdated(self, keep: int) -> list[Path]:
        """The node's samples but this and the ``keep`` that were wanted last."""
        if not self.shared:
            return []
        names = (
            path
            for path in _children(self.target.parent)
            if manifests.is_fingerprint(path.name) and path != self.target
        )
        others = [path for path in names if _made(path) == path.name]
        others.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return others[keep:]

    def retire(self, samples: list[Path]) -> None:
        """Remove samples that nobody holds."""
        for path in samples:
            if _removed(path):
                event(f"{NAME}: removed {path}, an older sample", removed=path.name)
            else:
                event(f"{NAME}: {path} stays, somebody holds it", held=path.name)

    def want(self) -> None:
        """Say that this sample, which stands, is the one that is wanted."""
        if not self.shared:
            return
        with suppress(PermissionError):
            os.utime(self.target)  # the order in which samples are retired
        store = storage.store_for(str(self.target))
        store.write(str(self.target.parent / PLAN), f"{self._fingerprint}\n".encode())


def _children(folder: Path) -> list[Path]:
    entries = folder.iterdir() if folder.is_dir() else ()
    return [path for path in entries if path.is_dir() and not path.is_symlink()]


def _made(folder: Path) -> str | None:
    """The fingerprint that a sampled folder's manifest names, "" if unreadable; None if it is no sampled folder."""
    try:
        raw = json.loads((folder / MANIFEST).read_bytes())
        return str(raw["fingerprint"]) if raw["stage"] == NAME else None
    except OSError:
        return None
    except (ValueError, TypeError, KeyError):
        # Cut or emptied: ours if the arrays are beside it, and then made again.
        return "" if (folder / "tokens.npy").is_file() and (folder / "metadata.json").is_file() else None


def _removed(folder: Path) -> bool:
    """Remove a folder that nobody holds; it is out of sight before its first file goes."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        aside = _aside(folder)
        os.rename(folder, aside)
        shutil.rmtree(aside, ignore_errors=True)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")


def _exchange(one: Path, other: Path) -> bool:
    # renameat2(2) with RENAME_EXCHANGE; Python has no name for it, and not every file system can do it.
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    at_fdcwd, exchange = -100, 2
    done: int = renameat2(at_fdcwd, os.fsencode(one), at_fdcwd, os.fsencode(other), exchange)
    return done == 0
