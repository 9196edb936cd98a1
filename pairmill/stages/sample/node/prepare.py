"""``prepare``: gives the node's folder to the sampler's user.

The kubelet makes a hostPath of type DirectoryOrCreate for root alone, and a pod's specification cannot give it to
another user. So one small container does this as root, with no capability but CHOWN. It mounts the folder *above*: the
kubelet follows links to what it mounts, so in the container a link to /etc would look like any folder.
"""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from pairmill import log, storage
from pairmill.engine.options import option
from pairmill.errors import StorageError
from pairmill.fields import Checked
from pairmill.stages.sample.node import owned
from pairmill.stages.sample.node.space import mounts

NON_ROOT = 65532
"""The user that our images run as."""
_MODE = 0o755


@dataclass(kw_only=True)
class PrepareConfig(Checked):
    """Give the folder of a node, which the kubelet makes for root, to the sampler's user."""

    path: str = option(help="folder of the node; mount the folder above it")
    uid: int = option(NON_ROOT, help="its new owner", at_least=0)
    gid: int = option(NON_ROOT, help="its new group", at_least=0)


def prepare(config: PrepareConfig) -> str:
    """Make the folder if it is absent, and give it to its owner, who alone may write to it.

    Raises:
        StorageError: the folder is a symbolic link, or is itself a mount, or may not be changed.
    """
    path = storage.local_path(storage.normalise(config.path, "path"))
    with owned.errors_at(f"path={path}"):
        with owned.closing(owned.open_path(path.parent)) as parent:
            if owned.lstat(parent, path.name) is None:
                os.mkdir(path.name, 0o700, dir_fd=parent)
            result = owned.lstat(parent, path.name)
            if result is not None and stat.S_ISLNK(result.st_mode):
                raise StorageError(
                    "is a symbolic link",
                    where=f"path={path}",
                    got=f"a link of {owned.user(result.st_uid)}",
                    expected="a folder",
                    hint="remove it, and start the pod again",
                )
            # Without its other capabilities root cannot read a closed folder of another user, and does not have to.
            handle = os.open(path.name, owned.STEP, dir_fd=parent)
        with owned.closing(handle):
            _refuse_mounted(path, handle)
            _give_to(handle, config.uid, config.gid)
    log.event(f"{path} belongs to {config.uid}:{config.gid}, mode {_MODE:o}")
    return ""


def _refuse_mounted(path: Path, handle: int) -> None:
    real = os.readlink(f"/proc/self/fd/{handle}")
    result = [mount for mount in mounts() if mount.point == real]
    # An administrator may mount a whole tmpfs there. Part of another file system is a bind mount, like the kubelet's.
    if result and not (result[-1].root == "/" and result[-1].kind == "tmpfs"):
        raise StorageError(
            "is a mount itself, so a link on the node would go unnoticed",
            where=f"path={path}",
            got=f"a mount of {result[-1].root} of a file system of type {result[-1].kind}",
            expected=f"a mount of the folder above, {path.parent}",
            hint="mount it as manifests/base/sampler-daemonset/daemonset.yaml does",
        )


def _give_to(handle: int, uid: int, gid: int) -> None:
    state, itself = os.fstat(handle), f"/proc/self/fd/{handle}"
    if stat.S_IMODE(state.st_mode) != _MODE:
        # Without CAP_FOWNER root changes only the mode of its own files, and CAP_CHOWN makes this one its own.
        if state.st_uid != os.geteuid():
            os.chown(itself, os.geteuid(), -1)
            state = os.fstat(handle)
        os.chmod(itself, _MODE)
    if (state.st_uid, state.st_gid) != (uid, gid):
        os.chown(itself, uid, gid)
