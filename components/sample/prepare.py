"""``prepare``: the folder of a node belongs to the sampler's user.

A hostPath of type DirectoryOrCreate is made by the kubelet, for root alone, and nothing in a pod's specification gives
it to another user. So one small container runs as root, with no capability but CHOWN, and does this.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pairmill import log, storage
from pairmill.errors import StorageError, UsageError, from_os_error
from pairmill.stage import option

NON_ROOT = 65532
"""The user that our images run as."""


@dataclass(kw_only=True)
class PrepareConfig:
    """Hand the folder of a node, which the kubelet makes for root, to the sampler's user."""

    path: str = option(help="folder of the node")
    uid: int = option(NON_ROOT, help="user that is to own it")
    gid: int = option(NON_ROOT, help="group that is to own it")


def prepare(config: PrepareConfig) -> str:
    """Make the folder if it is not there, and hand it over.

    Raises:
        UsageError: a negative id.
        StorageError: it is a symbolic link, which may lead anywhere, or may not be changed.
    """
    for name in ("uid", "gid"):
        if getattr(config, name) < 0:
            raise UsageError("is negative", where=name, got=str(getattr(config, name)), expected="an id, 0 or more")
    path = storage.local_path(storage.normalise(config.path, "path"))
    if path.is_symlink():
        raise StorageError(
            "is a symbolic link", where=f"path={path}", expected="a folder", hint="remove it, and start the pod again"
        )
    try:
        path.mkdir(exist_ok=True)
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            state = os.fstat(handle)
            if (state.st_uid, state.st_gid) != (config.uid, config.gid):
                os.fchown(handle, config.uid, config.gid)
        finally:
            os.close(handle)
    except OSError as error:
        raise from_os_error(error, f"path={path}") from error
    log.event(f"{path} belongs to {config.uid}:{config.gid}")
    return ""
