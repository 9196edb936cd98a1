"""Records of finished shards, a thousand in one object: ``<root>/<stage>/blocks/<series>/<digest>``.

A process that has finished a thousand shards, or the last of its round, writes their records once more as a block; so
does who had to read them one at a time. A later look-up lists the blocks, reads those, and lists the folders of shards:
a record of a block counts if the listing has the shard's ``_RECORD.json``, which alone decides, and its files with
their sizes. So blocks need no order and no lock: the same records may be in two, and any block may be deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pairmill import storage
from pairmill.engine.listing import BLOCKS
from pairmill.engine.records import ShardRecord
from pairmill.engine.stage import Shard
from pairmill.storage.base import each

MANY: Final = 256
"""A round of more shards has blocks; of fewer each record takes its own requests, many at once."""
RECORDS: Final = 1_000
"""Of a full block."""
_MAGIC: Final = b"pairmill records 1\n"
_DIGEST: Final = 32
_AT_ONCE: Final = 32


class Blocks:
    """The blocks of the shards of a round.

    Args:
        cache: URI of the folder that has the folders of all shards.
        shards: of the round.

    Attributes:
        offered: packed records by key, of these and of earlier shards of their series. Nobody looked for their files.
    """

    def __init__(self, cache: str, shards: Sequence[Shard[Any]]) -> None:
        self._home = storage.join(storage.parent_of(cache), BLOCKS)
        self._series = sorted({shard.series for shard in shards})
        self._seen: set[str] = set()
        self._pending: dict[str, list[bytes]] = {}
        self.offered: dict[str, bytes] = {}

    def refresh(self) -> None:
        """Read the blocks that were not read yet."""
        store = storage.store_for(self._home)
        for series in self._series:
            folder = storage.join(self._home, series)
            uris = [storage.join(folder, entry.path) for entry in store.list(folder)]
            fresh = [uri for uri in uris if uri not in self._seen]
            for data in each(lambda uri, _: store.read(uri), fresh, _AT_ONCE):
                self.offered |= {ShardRecord.unpack(packed, "", "").key: packed for packed in _parse(data)}
            self._seen.update(fresh)

    def add(self, shard: Shard[Any], record: ShardRecord) -> None:
        """Take the record of a shard that is finished and in no block; a thousand of them become one."""
        pending = self._pending.setdefault(shard.series, [])
        pending.append(record.packed)
        if len(pending) == RECORDS:
            self._write(shard.series)

    def flush(self) -> None:
        """Write what was added and is in no block yet."""
        for series in [series for series, pending in self._pending.items() if pending]:
            self._write(series)

    def _write(self, series: str) -> None:
        body = b"".join([_MAGIC, *(len(item).to_bytes(4, "little") + item for item in self._pending.pop(series))])
        digest = hashlib.sha256(body)
        uri = storage.join(self._home, series, digest.hexdigest()[:_DIGEST])
        storage.store_for(uri).write(uri, body + digest.digest())


def _parse(data: bytes) -> Iterator[bytes]:
    """Yield the packed records of a block; none of one that is damaged or of another format."""
    body, digest = data[:-_DIGEST], data[-_DIGEST:]
    place = len(_MAGIC)
    if body.startswith(_MAGIC) and hashlib.sha256(body).digest() == digest:
        while place < len(body):
            start = place + 4
            place = start + int.from_bytes(body[place:start], "little")
            yield body[start:place]
