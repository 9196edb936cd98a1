"""The results below a root, newest first, and what a manifest says before its tables: none is read whole.

A listing looks at the time of each manifest alone: of 10,000 results that takes a tenth of a second.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from pairmill import storage
from pairmill.engine.manifest import MANIFEST, STARTED, InputRef, Ledger, is_fingerprint
from pairmill.errors import InputError

FOLDERS: Final = (
    *("fetch", "clean", "take_out", "curate", "select", "tokenizer", "tokenize", "union", "mix", "sample"),
    *("train", "evaluate", "compare", "search"),
)
"""Folders of results below a root, in the order of the line. Those of a stage of one's own come after them."""
WITHOUT_REPORT: Final = ("union",)
"""Those of them whose results have no report."""
_STAGES: Final = {"tokenized": "tokenize", "sampled": "sample", "index": "curate"}
"""The stage that finished the folders of some roles. Of others the input says it."""
SHARDS: Final = "shards"
"""The folder of a stage's shards, beside its results."""
BLOCKS: Final = "blocks"
"""The folder of a stage's records once more, a thousand in one object, beside its shards."""
RECORD: Final = "_RECORD.json"
"""In the folder of a shard that is done."""
_INPUTS: Final = re.compile(rb'"fingerprint": "[0-9a-f]{16}",\n ?"format": [0-9]+,\n ?"inputs": ')
_FILES: Final = b'"files": ['
_SIZE: Final = re.compile(rb'"size": ([0-9]+),\s*"task": ')
_NEXT: Final = re.compile(r',\s*"[a-z]+": ')


class ResultFolder(NamedTuple):
    """A folder of results below a root.

    Attributes:
        folder: that it is in, below the root.
        finished: when its manifest was written; None if it has none.
    """

    uri: str
    folder: str
    fingerprint: str
    finished: datetime | None

    @property
    def is_begun(self) -> bool:
        """Whether pairmill has begun it and not finished it."""
        return self.finished is None and storage.store_for(self.uri).exists(storage.join(self.uri, STARTED))


class Head(NamedTuple):
    """What a manifest says before its tables.

    Args:
        stage: that finished the folder.
        ledger: what became of the rows.
        options: that change bytes.
        size: bytes of the files.
    """

    stage: str
    inputs: Sequence[InputRef]
    ledger: Ledger
    options: dict[str, Any]
    size: int

    @property
    def tokens(self) -> int | None:
        """Tokens of the result; None before there are tokens. Those of a sample are of all epochs."""
        measures = self.ledger.measures
        return measures.get("tokens_sampled", measures.get("tokens"))

    @property
    def is_held_out(self) -> bool:
        """Whether it is a sample of held-out rows."""
        return self.stage == "sample" and any(ref.role == "held_out" for ref in self.inputs)


def list_stages(root: str) -> list[str]:
    """Return the folders below a root in which results and shards of stages may be, in the order of the line."""
    names = storage.store_for(root).dated(root, MANIFEST)
    return [*(name for name in FOLDERS if name in names), *(name for name in names if name not in FOLDERS)]


def list_results(root: str, folders: Sequence[str] = ()) -> list[ResultFolder]:
    """Return what is in the folders of stages below a root: finished results, newest first, then all others.

    Args:
        folders: to look into; none = those of all stages.
    """
    store = storage.store_for(root)
    result = []
    for folder in folders or list_stages(root):
        top = storage.join(root, folder)
        for name, finished in store.dated(top, MANIFEST).items():
            if is_fingerprint(name):
                result.append(ResultFolder(f"{top}/{name}", folder, name, finished))
    return sorted(result, key=lambda item: (item.finished is None, -item.finished.timestamp() if item.finished else 0))


def read_head(folder: str) -> Head:
    """Return what a finished folder says before its tables: with 16,000 tasks these take a second to read.

    Raises:
        InputError: the folder has no manifest of pairmill.
    """
    uri = storage.join(folder, MANIFEST)
    data = storage.store_for(folder).read(uri)
    try:
        start = _INPUTS.search(data)
        if start is None:
            raise ValueError("no inputs")
        # The keys of a manifest are sorted: the files are right before, ledger and options right after the inputs.
        files = data[max(data.rfind(_FILES, 0, start.start()), 0) : start.start()]
        inputs, ledger, options = _values(data[start.end() :].decode(), 3)
        stage = json.loads(data[data.rindex(b'"stage": ') + len(b'"stage": ') :].partition(b",\n")[0])
        return Head(
            stage, [InputRef(**item) for item in inputs], Ledger(**ledger), options, sum(map(int, _SIZE.findall(files)))
        )
    except (ValueError, TypeError) as error:
        raise InputError("not a pairmill manifest", where=uri, got=repr(error)) from error


def _values(text: str, count: int) -> list[Any]:
    """Decode values of successive keys, the first of which is where the text begins."""
    decoder, result, place = json.JSONDecoder(), [], 0
    for _ in range(count):
        value, place = decoder.raw_decode(text, place)
        result.append(value)
        following = _NEXT.match(text, place)
        place = following.end() if following is not None else place
    return result


def folder_of(ref: InputRef) -> str:
    """Return the finished folder of an input below the root; empty if it is not a folder of a known stage."""
    stage = ref.stage or _STAGES.get(ref.role, "")
    return f"{stage}/{ref.fingerprint}" if stage and is_fingerprint(ref.fingerprint) else ""
