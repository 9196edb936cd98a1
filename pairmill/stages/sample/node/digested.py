"""Files of tokens that were digested as their manifests promise, and that nothing has changed since.

A sample digests what it copies from; where one row in five is drawn that is a third of its time. Who draws again from
the same folder does not pay for it again: what the kernel says of a file (inode, size, both times of change, this start
of the machine) is kept once its digest was right, as a node keeps it of its samples
(:mod:`pairmill.stages.sample.node.facts`). No program can set the time of the inode's change.
"""

import hashlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.digest import is_blake3
from pairmill.engine.content import Content
from pairmill.formats import kept
from pairmill.stages.sample.node.owned import boot_id

_NAME: Final = "digested-1"
_MOST: Final = 1 << 20
"""Files of which it is kept, 8 bytes each; of more, those of the last sample alone."""
_YOUNG: Final = 2_000_000_000
"""Nanoseconds: two changes within a tick of the kernel's clock have one time, so a file must be older than that."""


def marks_of(contents: Mapping[str, Content]) -> dict[str, int]:
    """Return a number for the content and the state of each file, by URI; none of what no BLAKE3 is promised, of what
    has just changed, or is not there."""
    marks, boot, now = {}, boot_id(), time.time_ns()
    for uri, content in contents.items() if boot else ():
        if not (content.promised and is_blake3(content.digest)):
            continue
        try:
            facts = os.stat(storage.local_text(uri))
        except OSError:  # its reader says why
            continue
        times = facts.st_mtime_ns, facts.st_ctime_ns
        if max(times) + _YOUNG < now:
            text = f"{boot} {facts.st_dev} {facts.st_ino} {facts.st_size} {times} {content.digest}"
            marks[uri] = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    return marks


def unchanged(marks: Mapping[str, int]) -> set[str]:
    """Return those files that had the right digest in this state."""
    old = _kept()
    mine = np.fromiter(marks.values(), np.uint64, len(marks))
    known = np.searchsorted(old, mine) < np.searchsorted(old, mine, "right")
    return {uri for uri, same in zip(marks, known.tolist(), strict=True) if same}


def keep(marks: Iterable[int]) -> None:
    """Keep the states of files whose digests were right."""
    new, old = np.fromiter(marks, np.uint64), _kept()
    if len(new):
        # Ascending, and maybe twice: numpy.unique would import a third of numpy's start.
        states = np.sort(np.concatenate([old, new]) if len(old) + len(new) <= _MOST else new)
        kept.save(kept.place_of(_NAME), states.tobytes())


def _kept() -> NDArray[np.uint64]:
    return np.frombuffer(kept.load(kept.place_of(_NAME)), np.uint64)
