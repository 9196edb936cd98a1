"""``prepare``: the folder of a node belongs to the sampler's user.

A hostPath of type DirectoryOrCreate is made by the kubelet, for root alone, and nothing in a pod's specification gives
it to another user. So one small container runs as root, with no capability but CHOWN, and does this. It mounts the
folder *above*: what is mounted itself was found by the kubelet, which follows links, so that from inside a link to
/etc looks like any folder.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from components.sample.node import owned
from components.sample.node.space import mounts
from pairmill import log, storage
from pairmill.engine.stage import option
from pairmill.errors import StorageError, UsageError

NON_ROOT = 65532
"""The user that our images run as."""
_MODE = 0o755


@dataclass(kw_only=True)
class PrepareConfig:
    """Hand the folder of a node, which the kubelet makes for root, to the sampler's user."""

    path: str = option(help="folder of the node; the folder above is what has to be mounted")
    uid: int = option(NON_ROOT, help="user that is to own it")
    gid: int = option(NON_ROOT, help="group that is to own it")


def prepare(config: PrepareConfig) -> str:
    """Make the folder if it is not there, and hand it over, writable for its owner alone.

    Raises:
        UsageError: a negative id.
        StorageError: it is a symbolic link, which may lead anywhere, or is mounted itself, or may not be changed.
    """
    for name in ("uid", "gid"):
        if getattr(config, name) < 0:
            raise UsageError("is negative", where=name, got=str(getattr(config, name)), expected="an id, 0 or more")
    path = storage.local_path(storage.normalise(config.path, "path"))
    with owned.errors_at(f"path={path}"):
        parent = owned.open_path(path.parent)
        try:
            if owned.lstat(parent, path.name) is None:
                os.mkdir(path.name, 0o700, dir_fd=parent)
            found = owned.lstat(parent, path.name)
            if found is not None and stat.S_ISLNK(found.st_mode):
                raise StorageError(
                    "is a symbolic link",
                    where=f"path={path}",
                    got=f"a link of {owned.user(found.st_uid)}",
                    expected="a folder",
                    hint="remove it, and start the pod again",
                )
            # Without its other capabilities root cannot read a closed folder of another user, and need not.
            handle = os.open(path.name, owned.STEP, dir_fd=parent)
        finally:
            os.close(parent)
        try:
            _refuse_mounted(path, handle)
            _hand_over(handle, config.uid, config.gid)
        finally:
            os.close(handle)
    log.event(f"{path} belongs to {config.uid}:{config.gid}, mode {_MODE:o}")
    return ""


def _refuse_mounted(path: Path, handle: int) -> None:
    real = os.readlink(f"/proc/self/fd/{handle}")
    found = [mount for mount in mounts() if mount.point == real]
    # A tmpfs of its own, whole, is what an administrator mounts there; a part of another file system is a bind mount,
    # as the kubelet makes them.
    if found and not (found[-1].root == "/" and found[-1].kind == "tmpfs"):
        raise StorageError(
            "is mounted itself, so that it cannot be seen whether it is a link on the node",
            where=f"path={path}",
            got=f"a mount of {found[-1].root} of a file system of type {found[-1].kind}",
            expected=f"a mount of the folder above, {path.parent}",
            hint="mount it as manifests/base/sampler-daemonset/daemonset.yaml does",
        )


def _hand_over(handle: int, uid: int, gid: int) -> None:
    state, itself = os.fstat(handle), f"/proc/self/fd/{handle}"
    if stat.S_IMODE(state.st_mode) != _MODE:
        # Root without CAP_FOWNER changes the mode of what is root's alone, and CAP_CHOWN makes it root's.
        if state.st_uid != os.geteuid():
            os.chown(itself, os.geteuid(), -1)
            state = os.fstat(handle)
        os.chmod(itself, _MODE)
    if (state.st_uid, state.st_gid) != (uid, gid):
        os.chown(itself, uid, gid)
