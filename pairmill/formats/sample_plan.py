"""A plan of sample as other stages know it: a finished folder that says which rows each epoch has, and no arrays."""

from __future__ import annotations

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import FinishedFolder, Manifest
from pairmill.errors import InputError

FOLDER = "plan/"
HELD_OUT = "held_out"
"""An input with this role says that a plan is of held-out rows."""
BASE = "base"
"""An input with this role is the plan that a plan adds tasks to; its own folder has only what it adds."""
CHOICES = "choices"
"""An input with this role says that rules chose single rows, by files that they name."""


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
        manifest: of the plan.

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
