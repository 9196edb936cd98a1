"""What a committed shard made, packed: a stage of a million shards holds a record of each.

A record is some 200 bytes: the key, the name of the folder of its files, and the rest as compressed JSON, which is
decoded when it is asked for. The same bytes are sent by a worker, and are in blocks (:mod:`pairmill.engine.blocks`).
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeVar

from pairmill import storage
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import File, Ledger, canonical

D = TypeVar("D")

ATTEMPT: Final = 16
"""Characters of the name of the folder that has a shard's files: hexadecimal digits."""
_KEY, _FOLDER, _COUNT = slice(1, 33), slice(33, 33 + ATTEMPT // 2), slice(41, 45)
"""Where key, name of the folder and number of digests are, after a byte that says which of the first two there are."""
_HEXADECIMAL: Final = re.compile(rb"[0-9a-f]{64}")
_PLACE: Final = b"\0"
"""In place of a digest, whose bytes are before the rest: JSON has no such byte, and digits would take twice as many."""
_COMMON: Final = canonical(
    {
        "data": {"bytes": 0, "runs": [0], "rows": 0, "size": 0},
        "files": [
            {"blake3": "", "path": path, "size": 0, "task": ""} for path in ("rows.parquet", "data_clustered__.bin")
        ],
        "ledger": asdict(Ledger()),
        "scratch": ["keys.bin", "rows.bin"],
    }
)
"""What records have in common; a change of it is another format of blocks."""
# A window of 1 kB is made in a few microseconds.
_EMPTY: Final = zlib.compressobj(1, zlib.DEFLATED, -10, 4, zdict=_COMMON)


@dataclass(frozen=True)
class ShardFile:
    """A file that a shard made, for a shard of a later round; see :meth:`ShardRecord.file`."""

    uri: str = field(metadata=unkeyed("a place"))
    path: str
    size: int = field(metadata=unkeyed("follows from the digest"))
    digest: str


class ShardRecord:
    """What a committed shard made. Written last into the shard's folder, as ``_RECORD.json``.

    Args:
        key: of the shard, 64 hexadecimal digits; empty = the folder of the shard is ``cache`` itself.
        cache: URI of the folder that has the folders of all shards.
        ledger: what became of the rows that it read.
        files: that it made, with paths relative to ``folder``.
        data: small JSON-like data.
        scratch: paths of the files that only later rounds read.
        attempt: name of the folder of its files below ``<cache>/<key>``; empty without files.
    """

    __slots__ = ("_cache", "_packed", "name")

    def __init__(
        self,
        name: str,
        key: str,
        cache: str,
        *,
        ledger: Ledger,
        files: Sequence[File] = (),
        data: Mapping[str, Any] | None = None,
        scratch: Sequence[str] = (),
        attempt: str = "",
    ) -> None:
        content = {"ledger": vars(ledger), "files": [file.to_json() for file in files], "data": data or {}}
        self.name, self._cache = name, cache
        self._packed = pack(key, attempt, {**content, "scratch": [*scratch]})

    @classmethod
    def unpack(cls, packed: bytes, name: str, cache: str) -> ShardRecord:
        """Return the record that has these bytes, by the name that a shard has in this run."""
        record = cls.__new__(cls)
        record.name, record._cache, record._packed = name, cache, packed
        return record

    @property
    def packed(self) -> bytes:
        """What :meth:`unpack` makes the record of."""
        return self._packed

    @property
    def key(self) -> str:
        """The key of the shard."""
        return self._packed[_KEY].hex() if self._packed[0] & 1 else ""

    @property
    def folder(self) -> str:
        """URI of the folder of its files."""
        attempt = self._packed[_FOLDER].hex() if self._packed[0] & 2 else ""
        return storage.join(self._cache, *filter(None, (self.key, attempt)))

    @property
    def ledger(self) -> Ledger:
        """What became of the rows that the shard read."""
        return Ledger(**_decoded(self._packed)["ledger"])

    @property
    def files(self) -> list[File]:
        """The files; paths are relative to ``folder``."""
        return [File.from_json(item) for item in _decoded(self._packed)["files"]]

    @property
    def data(self) -> dict[str, Any]:
        """Small data for later rounds."""
        data: dict[str, Any] = _decoded(self._packed)["data"]
        return data

    @property
    def scratch(self) -> list[str]:
        """Paths of the files that only later rounds read."""
        scratch: list[str] = _decoded(self._packed)["scratch"]
        return scratch

    def read(self, kind: type[D]) -> D:
        """Return the data, as the dataclass that the shard made it of."""
        return kind(**self.data)

    def identify(self) -> object:
        """Return what a shard that reads the record is keyed by: all of it but places."""
        files = [[file.path, file.digest, file.task] for file in self.files]
        return [self.name, _decoded(self._packed)["ledger"], files, self.data]

    def file(self, path: str) -> ShardFile:
        """Return one of its files, for a shard that reads no other."""
        (file,) = (file for file in self.files if file.path == path)
        return ShardFile(self.uri(path), path, file.size, file.digest)

    def lasting(self) -> list[File]:
        """Return the files that are not scratch."""
        scratch = set(self.scratch)
        return [file for file in self.files if file.path not in scratch]

    def uri(self, path: str) -> str:
        """Return the URI of one of its files."""
        return storage.join(self.folder, *path.split("/"))

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardRecord.unpack, (self._packed, self.name, self._cache)

    def __repr__(self) -> str:
        return f"ShardRecord({self.name!r}, folder={self.folder!r}, {_decoded(self._packed)!r})"

    def __eq__(self, other: object) -> bool:
        mine = self.name, self._cache, self._packed
        return isinstance(other, ShardRecord) and mine == (other.name, other._cache, other._packed)

    __hash__ = None  # type: ignore[assignment]


def pack(key: str, attempt: str, content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a record: its key, the name of the folder of its files, and what it says, JSON-like."""
    stream, text = _EMPTY.copy(), canonical(content)
    digests = [bytes.fromhex(item.decode()) for item in _HEXADECIMAL.findall(text)]
    text = _HEXADECIMAL.sub(_PLACE, text)
    head = bytes.fromhex(f"{bool(key) + 2 * bool(attempt):02x}{key or '0' * 64}{attempt or '0' * ATTEMPT}")
    return b"".join((head, len(digests).to_bytes(4, "little"), *digests, stream.compress(text), stream.flush()))


# A stage asks a record for its data, then for its files: it is decoded once.
@lru_cache(64)
def _decoded(packed: bytes) -> dict[str, Any]:
    place, stream = _COUNT.stop, zlib.decompressobj(-10, zdict=_COMMON)
    end = place + 32 * int.from_bytes(packed[_COUNT], "little")
    digests = (packed[start : start + 32].hex().encode() for start in range(place, end, 32))
    text = stream.decompress(packed[end:]) + stream.flush()
    content: dict[str, Any] = json.loads(re.sub(_PLACE, lambda _: next(digests), text))
    return content
