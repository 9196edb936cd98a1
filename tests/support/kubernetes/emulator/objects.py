"""The object store that the launcher copies artifacts to and from."""

from pathlib import Path
from typing import Protocol

from pairmill import storage


class Objects(Protocol):
    """Objects by URI."""

    def put(self, uri: str, data: bytes) -> None:
        """Create or replace one."""

    def get(self, uri: str) -> bytes:
        """Its bytes."""

    def list(self, uri: str) -> list[str]:
        """Paths of those below a URI taken as a folder, sorted."""

    def exists(self, uri: str) -> bool:
        """Whether one stands at exactly this URI."""


class Folder:
    """A local folder: ``minio://bucket/key`` is the file ``<top>/minio/bucket/key``."""

    def __init__(self, top: Path) -> None:
        self._top = top

    def path(self, uri: str) -> Path:
        """The file that an object is, or the folder that a prefix is."""
        scheme, _, rest = uri.partition("://")
        return self._top / scheme / rest

    def put(self, uri: str, data: bytes) -> None:
        self.path(uri).parent.mkdir(parents=True, exist_ok=True)
        self.path(uri).write_bytes(data)

    def get(self, uri: str) -> bytes:
        return self.path(uri).read_bytes()

    def list(self, uri: str) -> list[str]:
        top = self.path(uri)
        return sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.is_file())

    def exists(self, uri: str) -> bool:
        return self.path(uri).is_file()


class Stores:
    """Whatever ``pairmill.storage`` reaches by a URI."""

    def put(self, uri: str, data: bytes) -> None:
        storage.store_for(uri).write(uri, data)

    def get(self, uri: str) -> bytes:
        return storage.store_for(uri).read(uri)

    def list(self, uri: str) -> list[str]:
        return [entry.path for entry in storage.store_for(uri).list(uri)]

    def exists(self, uri: str) -> bool:
        return storage.store_for(uri).exists(uri)
