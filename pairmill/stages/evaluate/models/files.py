"""The digest of a folder without a manifest."""

from __future__ import annotations

from pairmill import storage
from pairmill.engine.manifest import content_key


def digest_of_folder(uri: str) -> str:
    """Hexadecimal sha256 over names and contents of the files in a folder, those of hidden ones and texts left out."""
    store = storage.store_for(uri)
    paths = sorted(one.path for one in store.list(uri))
    paths = [path for path in paths if path.endswith((".json", ".safetensors", ".jinja", ".model", ".bin"))]
    digested = store.digested([storage.join(uri, *path.split("/")) for path in paths])
    return content_key([[path, one.sha256] for path, one in zip(paths, digested, strict=True)])
