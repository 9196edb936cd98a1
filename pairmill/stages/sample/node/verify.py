"""``verify``: every file of a sampled folder against its manifest."""

from __future__ import annotations

from dataclasses import dataclass

from pairmill import verify as verifier
from pairmill.engine import manifest as manifests
from pairmill.engine.options import option
from pairmill.errors import InputError
from pairmill.formats.sample_folder import folder_of


@dataclass(kw_only=True)
class VerifyConfig:
    """Check every file of a sampled folder against its manifest."""

    path: str = option(help="sampled folder, or folder of a node")


def verify(config: VerifyConfig) -> str:
    """Read every file. Return the folder.

    Raises:
        InputError: the folder is unfinished, or a file is missing or differs from the manifest.
    """
    folder = str(folder_of(config.path, "path"))
    if manifests.read(folder) is None:
        raise InputError("no finished sample", where=f"path={folder}", hint="wait until the sampler has finished")
    return verifier.verify(folder)
