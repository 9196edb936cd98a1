"""``verify``: every file of a sampled folder against its manifest; without one, its arrays against each other."""

from dataclasses import dataclass
from typing import Literal

from pairmill import storage
from pairmill import verify as verifier
from pairmill.engine import manifest as manifests
from pairmill.engine.options import option
from pairmill.errors import InputError
from pairmill.formats.sample_folder import folder_of
from pairmill.formats.token_listing import refuse_changed


@dataclass(kw_only=True)
class VerifyConfig:
    """Check every file of a sampled folder against its manifest; without one, its arrays against each other."""

    path: str = option(help="sampled folder, or folder of a node")
    sums: Literal["", "b3sum"] = option("", help="print the digests, as b3sum --check reads them in the folder")


def verify(config: VerifyConfig) -> str:
    """Read every file, and those of the tokens that the sample points into. Return the folder, or its files' digests.

    Raises:
        InputError: the folder is unfinished, or a file is missing or differs from the manifest or from the others.
    """
    path = folder_of(config.path, "path")
    folder = str(path)
    if manifests.read(folder) is None and (path / "metadata.json").is_file():
        # Imported here: only folders of other samplers need the loader.
        from pairmill.stages.sample.node.foreign import validate

        validate(path)
        return f"{folder}\n"
    if manifests.read(folder) is None:
        raise InputError("no finished sample", where=f"path={folder}", hint="wait until the sampler has finished")
    text = verifier.verify(folder)
    refuse_changed(storage.local_path(folder))
    return verifier.sums_of(folder) if config.sums else text
