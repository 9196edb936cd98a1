"""What a run leaves below its root, wherever that is, and how raw files come there."""

from pathlib import Path

from pairmill import storage
from tests.support.helpers import SWITCHED

HOMES = ("clean", "tokenizer", "tokenize", "sample")
"""Folders of results whose content does not depend on where raw files stand; fetch's index names the place."""


def manifests(root: str) -> dict[str, bytes]:
    """Every manifest of results below a root."""
    store = storage.store_for(root)
    paths = [entry.path for entry in store.list(root) if entry.path.endswith("/_MANIFEST.json")]
    # A stage that was off may have said so, where it had a task.
    paths = [path for path in paths if "/given/" not in path and path.split("/")[0] in {*HOMES, *SWITCHED}]
    found = {path: store.read(f"{root}/{path}") for path in paths}
    assert {path.split("/")[0] for path in found} - set(SWITCHED) == set(HOMES)
    return found


def upload(folder: Path, uri: str) -> str:
    """The files below a folder as objects below a URI, which is returned."""
    store = storage.store_for(uri)
    for path in folder.rglob("*"):
        if path.is_file():
            store.copy(str(path), f"{uri}/{path.relative_to(folder)}")
    return uri
