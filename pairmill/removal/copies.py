"""Copies that hold records: arrays on nodes, by their own tokens, and what was published, by its manifest."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.address import HUB, parse
from pairmill.engine.listing import list_results
from pairmill.engine.manifest import MANIFEST, Manifest, exists, is_fingerprint
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.formats.opened import OpenResult, TokenRows, open_result
from pairmill.net import hub
from pairmill.removal.places import TOKENS, Places

_ROWS: Final = 1 << 20
"""Of which at once the first tokens are compared."""
_NODE: Final = "carry out the new plan there: pairmill sample with the same output_path= and policy="
_PUBLISHED: Final = "publish the new result there: pairmill publish <result> to={} replace=true confirm=true"
_HUB: Final = "; earlier commits still have the rows: squash them (super_squash_history of huggingface_hub)"
Tokens = NDArray[Any]


@dataclass(frozen=True)
class Copy:
    """A copy that was looked into.

    Args:
        place: folder or address, as it was given.
        result: stage and fingerprint that it is a copy of; empty = it does not say.
        manifest: SHA-256 of its manifest; empty without.
        rows: that are made of the records; of arrays those of all epochs.
        todo: what to do about it; empty if it has none.
    """

    place: str
    result: str
    manifest: str
    rows: int
    todo: str


def look_into(given: Sequence[str], root: str, places: Places) -> Iterator[Copy]:
    """Yield what is at some places.

    Args:
        given: folders, URIs or addresses on the Hub.
        places: of the records below the project. What cannot be looked into is added to ``unsearched``.

    Raises:
        InputError: nothing that pairmill made is at a place.
    """
    for place in (each for item in given for each in _each_in(item)):
        opened = None if place.startswith(HUB) else open_result(place, "copies")
        data = _hub_manifest(place) if opened is None else _manifest_of(opened)
        manifest = Manifest.load(data, place) if data else None
        rows: int | None
        if opened is not None and opened.kind == "sampled":
            wanted = [*_rows_of(places)]
            rows = sum(_count(opened.tokens(epoch=epoch), wanted) for epoch in range(opened.epochs)) if wanted else None
            todo, why = _NODE, "no tokenized result below root= has rows to compare its tokens with"
        else:
            rows = None if manifest is None else _known(manifest, root, places)
            todo = _PUBLISHED.format(place) + _HUB * (opened is None)
            why = "the result that it is a copy of is not known below root="
        if rows is None:
            places.unsearched.append((place, why))
            continue
        result = f"{manifest.stage}/{manifest.fingerprint}" if manifest is not None else ""
        yield Copy(place, result, sha256(data).hexdigest() if data else "", rows, todo if rows else "")


def _each_in(place: str) -> list[str]:
    """Return a place, or the samples in it if it is a node's folder of several."""
    if place.startswith(HUB):
        return [place]
    uri = storage.normalise(place, "copies")
    names = [] if exists(uri) else filter(is_fingerprint, storage.store_for(uri).folders(uri))
    return [f"{place.rstrip('/')}/{name}" for name in names if exists(storage.join(uri, name))] or [place]


def _manifest_of(opened: OpenResult) -> bytes:
    uri = storage.join(opened.uri, MANIFEST)
    return storage.store_for(uri).read(uri) if opened.stage else b""


def _hub_manifest(place: str) -> bytes:
    address = parse(f"{HUB}datasets/{place.removeprefix(HUB).removeprefix('datasets/')}", "copies", ("dataset",))
    assert address is not None
    repository = hub.Repository(address.name, "dataset", "name a branch after @, or none")
    commit = hub.commit_of(repository, address.revision)
    file = hub.files(repository, commit).get(MANIFEST)
    if file is None:
        raise InputError("no result of pairmill is there", where=f"copies={place}", expected=MANIFEST)
    with hub.opened(repository, commit, file) as remote:
        return remote.read()


def _known(manifest: Manifest, root: str, places: Places) -> int | None:
    """Return how many rows a result has that is known by its fingerprint, or by its row files; None = it is not known.

    An export is known by what it was made of.
    """
    prints = {manifest.fingerprint, *(ref.fingerprint for ref in manifest.inputs if manifest.stage == "export")}
    if holding := [item.count for item in places.holdings if item.manifest.fingerprint in prints]:
        return max(holding)
    unsearched = {storage.name_of(uri) for uri, _ in places.unsearched}
    if prints & {item.fingerprint for item in list_results(root)} - unsearched:
        return 0
    sources = {record.source for record in places.about}
    digests = [file.digest for file in manifest.files if file.task and source_of(file.task) in sources]
    known = all(digest in places.files for digest in digests) and any(file.task for file in manifest.files)
    return sum(len(places.files[digest]) for digest in digests) if known else None


def _rows_of(places: Places) -> Iterator[tuple[Tokens, Tokens]]:
    """Yield the tokens of the rows of the records: prompt and response."""
    for item in places.of_stage(TOKENS):
        opened = open_result(item.uri)
        for task, numbers in item.rows.items():
            rows = opened.tokens(task)
            yield from (rows[number] for number in numbers)


def _count(rows: TokenRows, wanted: Sequence[tuple[Tokens, Tokens]]) -> int:
    """Return how many of the rows have the tokens of a wanted one, or of a part of its response.

    Only rows whose prompt has the length of a wanted one, and whose response begins with two tokens that are side by
    side in one, are compared token by token.
    """
    by_length: dict[int, list[tuple[bytes, bytes]]] = {}
    for prompt, response in wanted:
        pair = tuple(np.ascontiguousarray(part, "<u4").tobytes() for part in (prompt, response))
        by_length.setdefault(len(prompt), []).append((pair[0], pair[1]))
    longest = max((len(response) for _, response in wanted), default=0)
    pairs = np.unique(np.concatenate([np.empty(0, np.uint64), *(_pairs(response) for _, response in wanted)]))
    count = 0
    for first in range(0, len(rows), _ROWS):
        inst, resp, start = (rows.index[name][first : first + _ROWS] for name in ("inst_len", "resp_len", "resp_start"))
        maybe = np.flatnonzero(np.isin(inst, [*by_length]) & (resp <= longest))
        if isinstance(rows.tokens, np.ndarray):
            at = start[maybe].astype(np.int64)
            second = np.minimum(at + 1, len(rows.tokens) - 1)
            begins = rows.tokens[at].astype(np.uint64) << np.uint64(32) | rows.tokens[second].astype(np.uint64)
            maybe = maybe[(resp[maybe] < 2) | np.isin(begins, pairs)]
        for number in maybe.tolist():
            head, part = (np.ascontiguousarray(each, "<u4").tobytes() for each in rows[first + number])
            same = (whole for mine, whole in by_length[int(inst[number])] if mine == head)
            count += any(_has(whole, part) for whole in same)
    return count


def _pairs(tokens: Tokens) -> NDArray[np.uint64]:
    wide = tokens.astype(np.uint64)
    return wide[:-1] << np.uint64(32) | wide[1:]


def _has(whole: bytes, part: bytes) -> bool:
    """Return whether ids of four bytes have others within them."""
    at = whole.find(part)
    while at % 4 and at >= 0:
        at = whole.find(part, at + 1)
    return at >= 0
