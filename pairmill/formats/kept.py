"""What is kept for the user in ``$PAIRMILL_CACHE`` (by default ``~/.cache/pairmill``; empty = nowhere).

It saves time and decides nothing: a file that is missing, damaged or cannot be written is as if nothing were kept.
"""

import os
from pathlib import Path
from typing import Final

from pairmill import log, storage
from pairmill.digest import digest_bytes
from pairmill.errors import PairmillError

_DIGEST: Final = len(digest_bytes(b""))


def place_of(name: str) -> str | None:
    """Return where a file of this name is kept; None = nowhere."""
    chosen = os.environ.get("PAIRMILL_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = str(Path(home, "pairmill").expanduser()) if chosen is None else chosen
    return storage.normalise(f"{folder}/{name}", "PAIRMILL_CACHE") if folder else None


def load(place: str | None) -> memoryview:
    """Return what :func:`save` kept there; empty if that is nothing."""
    try:
        if place is not None and storage.store_for(place).exists(place):
            data = memoryview(storage.store_for(place).read(place))
            if bytes(data[:_DIGEST]) == digest_bytes(data[_DIGEST:]).encode():
                return data[_DIGEST:]
    except PairmillError:
        pass
    return memoryview(b"")


def save(place: str | None, body: bytes) -> None:
    """Keep bytes there in place of others, and log it if that fails."""
    if place is None:
        return
    try:
        with storage.store_for(place).create(place, durable=False) as path:
            path.write_bytes(digest_bytes(body).encode() + body)
    except (PairmillError, OSError) as error:
        log.event(f"{place} is not kept: {error}")
