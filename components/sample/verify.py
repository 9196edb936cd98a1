"""``verify``: every file of a sampled folder against its manifest."""

from __future__ import annotations

from dataclasses import dataclass

from pairmill import log, storage
from pairmill import manifest as manifests
from pairmill.errors import InputError
from pairmill.sampled import folder_of
from pairmill.stage import option

_SHOWN = 10


@dataclass(kw_only=True)
class VerifyConfig:
    """Check every file of a sampled folder against its manifest."""

    path: str = option(help="sampled folder, or folder of a node")


def verify(config: VerifyConfig) -> str:
    """Read every file; returns the folder.

    Raises:
        InputError: there is no finished folder, or a file is missing or not what the manifest says.
    """
    folder = str(folder_of(config.path, "path"))
    manifest = manifests.read(folder)
    if manifest is None:
        raise InputError("holds no finished sample", where=f"path={folder}", hint="see whether the sampler has ended")
    wrong = manifests.damage(folder, manifest.files)
    damaged = {line.partition(":")[0] for line in wrong}
    files = [file for file in manifest.files if file.path not in damaged]
    digests = storage.store_for(folder).digests([storage.join(folder, file.path) for file in files])
    for file, digest in zip(files, digests, strict=True):
        if digest != file.sha256:
            wrong.append(f"{file.path}: sha256 {digest[:16]}…, expected {file.sha256[:16]}…")
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise InputError(
            f"{len(wrong)} of {len(manifest.files)} files are not what the manifest says",
            where=folder,
            got="; ".join(wrong[:_SHOWN]) + more,
            hint="remove the folder and sample again",
        )
    size = sum(file.size for file in manifest.files)
    log.event(
        f"{folder}: {len(manifest.files)} files of {size:,} bytes are what the manifest says",
        files=len(manifest.files),
        bytes=size,
        fingerprint=manifest.fingerprint,
    )
    return f"{folder}\n"
