"""A plan of sample as other stages know it: a finished folder that says which rows each epoch has, and no arrays."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import FinishedFolder, Manifest
from pairmill.errors import InputError
from pairmill.formats.results.sample import SampleResult

FOLDER = "plan/"
HELD_OUT = "held_out"
"""An input with this role says that a plan is of held-out rows."""
BASE = "base"
"""An input with this role is the plan that a plan adds tasks to; its own folder has only what it adds."""
AFTER = "after"
"""An input with this role is what a model read of another plan before this one."""
PARTS = "parts"
"""An input with this role says which epochs of other plans the epoch is put together of."""
MIXTURE = "mixture"
"""An input with this role says that rows are drawn as a mixture says."""
CHOICES = "choices"
"""An input with this role says that rules chose single rows, by files that they name."""

PARENT = "parent"
"""An input with this role is the plan whose first epochs a plan keeps."""


class Ancestor(NamedTuple):
    """A plan that another one goes on with, by itself or over plans between them.

    Attributes:
        plan: its fingerprint, which its folder is named after.
        fingerprints: of its arrays on a node, by layout.
        digest: of its arrays in the layout that was planned (:attr:`pairmill.loader.folder.SampledFolder.digest`);
            empty = not known.
        epochs: rows of each of its epochs.
        kept: how many of its first epochs the other plan has, row by row.
    """

    plan: str
    fingerprints: Mapping[str, str]
    digest: str
    epochs: Sequence[int]
    kept: int


def ancestors(manifest: Manifest) -> list[Ancestor]:
    """Return the plans that a plan, or the arrays of one, goes on with; the oldest first."""
    result = SampleResult.find(manifest)
    return [Ancestor(**item) for item in result.parent.get("chain", ())] if result is not None else []


def read_plan(given: str, option: str, name: str = "") -> FinishedFolder:
    """Read the finished folder of a plan.

    Args:
        given: path or URI.
        option: that gave it.
        name: what it is called there; empty = nothing.

    Raises:
        InputError: it is not a plan, as sampled arrays alone are not.
    """
    uri = storage.normalise(given, option)
    manifest = manifests.read(uri)
    if (
        manifest is None
        or manifest.stage != "sample"
        or not any(item.path.startswith(FOLDER) for item in manifest.files)
    ):
        where = f"{option}: {name}={uri}" if name else f"{option}={uri}"
        hint = "give <root>/sample/<fingerprint>, which can be drawn again with other seeds; arrays cannot"
        raise InputError("not a plan of sample", where=where, expected="its folder", hint=hint)
    return FinishedFolder(uri, manifest)


def find_base(home: str, manifest: Manifest) -> FinishedFolder | None:
    """Find the plan that a plan adds to, which is beside it; None if it adds to none.

    Args:
        home: folder of the plan.

    Raises:
        InputError: it is not there, or files of it are missing or changed.
    """
    name = next((ref.fingerprint for ref in manifest.inputs if ref.role == BASE), "")
    if not name:
        return None
    uri = storage.join(storage.parent_of(home), name)
    base = manifests.read_intact(uri)
    if base is None or base.fingerprint != name:
        raise InputError(
            "the plan that this one adds tasks to is missing",
            where=home,
            expected=uri,
            hint="copy that folder there too: this plan has only what it adds to it",
        )
    return FinishedFolder(uri, base)
