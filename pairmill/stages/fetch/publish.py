"""What a run of fetch leaves behind: finished raw folders, the index of them, and digests in the lock."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pairmill import storage
from pairmill.digest import SHA256
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import MANIFEST, Ledger, Manifest, canonical
from pairmill.engine.stage import ShardRecord
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats.results.raw import RawResult
from pairmill.sources.origin import Git
from pairmill.stages.fetch import lock
from pairmill.stages.fetch.bring import Brought
from pairmill.stages.fetch.given import GivenData
from pairmill.stages.fetch.lock import Pin
from pairmill.stages.fetch.planned import RAW, PlannedSource


def publish(
    item: PlannedSource, root: str, stage_version: int, records: Sequence[ShardRecord], out: Writer
) -> dict[str, Any]:
    """Finish the raw folder of a source and index it; return what the manifest says about it."""
    source, about = item.source, item.about
    # Where given files are is not content, so it is not here.
    entry: dict[str, Any] = {"path": "", "about": about}
    extract: Mapping[str, Any] | None
    if item.given is not None:
        files = item.files(root, records)
        extract = item.given.extract._asdict() if item.given.extract else None
    else:
        entry["path"] = item.path
        finished = _finish_raw(item, root, stage_version, records)
        files, extract = finished.files, RawResult.from_manifest(finished).extract
    entry["files"] = [file.to_json() for file in files]
    known = {}
    if extract is not None:
        entry["extract"] = extract
        known = {what: extract[what] for what in ("limit", "records")}
    out.write(f"sources/{source.name}.json", canonical(entry))
    return {**about, **known, "files": len(files), "bytes": sum(file.size for file in files)}


def publish_given(item: PlannedSource, root: str, stage_version: int, records: Sequence[ShardRecord]) -> dict[str, Any]:
    """Finish the folder of finished data; return what the manifest says about it."""
    files = _finish_raw(item, root, stage_version, records).files
    return {**item.about, "path": item.path, "files": len(files), "bytes": sum(file.size for file in files)}


def _finish_raw(item: PlannedSource, root: str, stage_version: int, records: Sequence[ShardRecord]) -> Manifest:
    folder, about, brought = item.folder(root), item.about, item.brought(records)
    # The manifest of an older declaration is deleted. Its files stay: older indexes name them.
    existing = manifests.load_or_discard(folder, lambda manifest: manifest.fingerprint == item.identity)
    if existing is not None:
        result = RawResult.from_manifest(existing)
        if result.about != about:
            # Only the description is new.
            data = replace(result, about=about).to_data()
            storage.store_for(folder).write(storage.join(folder, MANIFEST), replace(existing, data=data).dump())
        return existing
    manifests.begin(folder, RAW, item.identity)
    out = Writer(folder)
    for record in brought:
        for file in record.files:
            out.link(record.folder, file)
    out.flush()
    files = sorted(out.files, key=lambda file: file.path)
    fetched = max(record.read(Brought).fetched for record in brought)
    ledger = Ledger.sum(record.ledger for record in brought)
    extract = None
    if item.limit:
        (first,) = (record.read(Brought) for record in brought)
        extract = {"limit": item.limit, "records": first.records, "listed": first.listed}
    made = Manifest(
        stage=RAW,
        version=stage_version,
        fingerprint=item.identity,
        options={},
        inputs=[],
        ledger=ledger,
        files=files,
        data=RawResult(about=about, fetched=fetched, extract=extract).to_data(),
    )
    return made.finish(folder)


def lock_digests(uri: str, seen: Mapping[str, PlannedSource]) -> None:
    """Add to the lock the digests of archives that were seen for the first time."""
    with lock.held(uri):
        pins = lock.read(uri)
        new = {
            name: Pin(item.pin.origin, item.pin.revision, item.revision)
            for name, item in seen.items()
            if item.pin is not None and pins.get(name) == item.pin  # else another run has moved it
        }
        if new:
            lock.write(uri, new)


def lock_tokenizer(uri: str, sources: Sequence[PlannedSource], root: str) -> None:
    """Compare the tokenizer of a git repository with the digest in the lock, or add the digest to it.

    A forge makes its archive anew, so the archive has no digest that can be locked.
    """
    for item in sources:
        if not isinstance(item.source, GivenData) or not isinstance(item.source.origin, Git) or item.pin is None:
            continue
        result, folder = item.finished(root), storage.join(root, *item.path.split("/"))
        uris = [storage.join(folder, *file.path.split("/")) for file in result.files] if result else []
        digests = [*storage.store_for(folder).digests(uris, [SHA256] * len(uris))]
        if item.pin.sha256 and digests != [item.pin.sha256]:
            raise InputError(
                "the file is not the one that the lock names",
                where=item.source.name,
                got=f"sha256 {', '.join(digests)}",
                expected=f"sha256 {item.pin.sha256}",
                hint="update=tokenizer locks what is published now",
            )
        if not item.pin.sha256 and len(digests) == 1:
            with lock.held(uri):
                name = item.source.address.locked
                if lock.read(uri).get(name) == item.pin:
                    lock.write(uri, {name: replace(item.pin, sha256=digests[0])})
