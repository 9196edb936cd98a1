"""The index of a finished run: what a later run compares its rows with. It lies in ``index/`` of the finished folder.

``index/index.json`` names the tasks and the files of exact keys; ``index/near/`` is that of near deduplication.
"""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple

from pairmill import _native, storage
from pairmill.engine import manifest as manifests
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.stages.curate.exact import ExactFound, Keying
from pairmill.stages.curate.exact_files import INDEXED, SortedKeys
from pairmill.stages.curate.exact_settings import Kind
from pairmill.stages.curate.found import Place
from pairmill.stages.curate.near.index import NearFound

FORMAT: Final = 2
"""1 had rows that one rule of exact deduplication removes, where another rule named them."""
NAME: Final = "index/index.json"
NEAR: Final = "index/near"


class StoredIndex(NamedTuple):
    """What an earlier run left.

    Args:
        places: what the numbers in its entries mean.
        files: of exact keys, by kind.
        near: URI of that of near deduplication, if there is one.
    """

    fingerprint: str
    places: list[Place]
    files: list[tuple[Kind, SortedKeys]]
    near: str


def read(given: str, keying: Keying) -> StoredIndex:
    """Read the index of a finished folder.

    Raises:
        InputError: it is not a finished folder of curate, has no index, or one of another format or of other keys.
    """
    uri = storage.normalise(given, "index")
    where = f"index={uri}"
    hint = "give a finished folder that curate made with write_index=true"
    manifest = manifests.read_intact(uri)
    if manifest is None or manifest.stage != "curate":
        got = "no manifest" if manifest is None else f"a folder of {manifest.stage}"
        raise InputError("not a finished folder of curate", where=where, got=got, hint=hint)
    files = {file.path: file for file in manifest.files}
    if NAME not in files:
        raise InputError("the folder has no index", where=where, expected=NAME, hint=hint)
    raw = json.loads(manifests.read_file(uri, manifest, NAME))
    if raw.get("format") != FORMAT:
        raise InputError(
            "the index has another format",
            where=where,
            got=str(raw.get("format")),
            expected=str(FORMAT),
            hint="run curate again over the rows that the index is of",
        )
    wanted = {"light": keying.light, "conditions": keying.conditions, "unicode": _native.curate_unicode()}
    missing = [kind for kind in keying.kinds if kind not in raw["kinds"]]
    if raw["keys"] != wanted or missing:
        raise InputError(
            "the index was made with other settings",
            where=where,
            got=", ".join([*(f"{name}: {value}" for name, value in raw["keys"].items()), *raw["kinds"]]),
            expected=", ".join([*(f"{name}: {value}" for name, value in wanted.items()), *keying.kinds]),
            hint="use its exact.form, same_condition_only and modes of exact, or make it again",
        )
    result = [
        (kind, SortedKeys(storage.join(uri, *path.split("/")), tuple(bounds), 0, True, True, files[path].digest))
        for kind, path, bounds in raw["files"]
        if kind in keying.kinds
    ]
    near = storage.join(uri, *NEAR.split("/"))
    return StoredIndex(manifest.fingerprint, [Place(*item) for item in raw["places"]], result, near)


def write(out: Writer, keying: Keying, places: Sequence[Place], exact: ExactFound, near: NearFound) -> None:
    """Put a new index into a finished folder."""
    files: list[tuple[str, str, list[int]]] = []
    for number, (record, path, kind, bounds) in enumerate(exact.index_files):
        target = f"index/exact/{kind}-{number:05}"
        file = next(item for item in record.files if item.path == path)
        out.link(record.folder, file, path=target)
        files.append((kind, target, bounds))
    if near.index is not None:
        near.index.link(out, NEAR)
    content = {
        "format": FORMAT,
        "keys": {"light": keying.light, "conditions": keying.conditions, "unicode": _native.curate_unicode()},
        "kinds": list(keying.kinds),
        "entry": [list(item) for item in INDEXED.descr],
        "places": [[item.task, item.first] for item in places],
        "files": files,
    }
    out.write(NAME, json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode())
