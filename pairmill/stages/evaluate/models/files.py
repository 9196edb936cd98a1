"""The digest of a folder without a manifest."""

from __future__ import annotations

from pairmill import storage
from pairmill.engine.manifest import digest_files


def digest_of_folder(uri: str) -> str:
    """Hexadecimal sha256 over names and contents of the files in a folder, those of hidden ones and texts left out."""
    store = storage.store_for(uri)
    paths = sorted(item.path for item in store.list(uri))
    paths = [path for path in paths if path.endswith((".json", ".safetensors", ".jinja", ".model", ".bin"))]
    return digest_files(uri, paths)
