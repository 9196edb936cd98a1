"""Writes an export: parts that a killed run finished stay, and the manifest is written last."""

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Final

from pairmill import storage
from pairmill.cpu import available_cores
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import STARTED, File, InputRef, Ledger, Manifest, canonical, fingerprint_from
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, UsageError
from pairmill.export.parts import Counts, Exported, Part
from pairmill.formats.tokenizer_file import NAME as TOKENIZER
from pairmill.formats.training_results import ExportResult
from pairmill.log import event
from pairmill.storage.base import each

STAGE: Final = "export"
VERSION: Final = 1
_RECORDS: Final = "_parts"
"""The folder of what finished parts were; it is removed when the export is finished."""
_MOST: Final = 4
"""Parts that are written at once: each holds some batches, and more threads wait for the disk."""


@dataclass(frozen=True)
class Format:
    """A form that others read.

    Args:
        module, name: has ``write_<name>`` and ``describe_<name>``; imported only for an export to it.
        kinds: of results.
        library: what it needs beside pairmill.
    """

    module: str
    name: str
    kinds: tuple[str, ...]
    library: str = ""


def load(form: Format, to: str) -> tuple[Callable[..., None], Callable[..., dict[str, str]]]:
    """Return what writes a part, and what writes the files about all of them."""
    try:
        module = importlib.import_module(form.module)
    except ImportError as error:
        hint = f"pip install {form.library}" if form.library else "pip install 'pairmill[stages]'"
        raise UsageError("its library cannot be imported", where="to", got=f"{to}: {error}", hint=hint) from error
    return getattr(module, f"write_{form.name}"), getattr(module, f"describe_{form.name}")


def write(exported: Exported, form: Format, to: str, folder: str) -> None:
    """Write all of a result below a folder, or go on where a killed run stopped.

    Raises:
        UsageError: the folder has something else in it.
        InputError: the result changed while it was read.
    """
    put, describe = load(form, to)
    keys = [fingerprint_from(STAGE, VERSION, to, part.split, part.name, *part.identity) for part in exported.parts]
    fingerprint = fingerprint_from(STAGE, VERSION, to, exported.fingerprint, keys)
    if _is_finished(folder, fingerprint):
        storage.clear(storage.join(folder, _RECORDS))  # a run that was killed at its very end has left them
        event(f"export: {folder} is finished")
        return
    work = _Work(exported, put, folder)
    records = each(work.run, [*zip(exported.parts, keys, strict=True)], min(_MOST, available_cores()))
    out = Writer(folder)
    told = describe(exported, out, records)
    if exported.tokenizer:
        out.write(TOKENIZER, exported.tokenizer)
    out.write("README.md", _readme(exported, to, records, told).encode())
    out.flush()
    files = [File.from_json(item) for record in records for item in record["files"]]
    ledger = _ledger(exported, records)
    ledger.reconcile(folder)
    Manifest(
        stage=STAGE,
        version=VERSION,
        fingerprint=fingerprint,
        options={"to": to},
        inputs=[InputRef(exported.kind, exported.fingerprint, exported.stage)],
        ledger=ledger,
        files=sorted([*files, *out.files], key=lambda file: file.path),
        data=ExportResult(
            to=to,
            splits=_by("split", exported, records),
            sources=exported.counts or _by("source", exported, records),
            facts=dict(exported.facts),
            tokenizer_info=dict(exported.info),
        ).to_data(),
    ).finish(folder)
    storage.clear(storage.join(folder, _RECORDS))


def _is_finished(folder: str, fingerprint: str) -> bool:
    """Tell whether the folder is finished and whole; mark it as begun if nothing is in it."""
    store = storage.store_for(folder)
    manifest = manifests.read(folder, refuse_begun=False)
    started = storage.join(folder, STARTED)
    begun = json.loads(store.read(started)).get("fingerprint") if store.exists(started) else ""
    if manifest is not None and manifest.fingerprint == fingerprint:
        wrong = manifests.find_damage(folder, manifest.files)
        if not wrong:
            return True
        raise InputError(
            "the export was changed", where=folder, got=wrong[0], hint="remove the folder, and export again"
        )
    if begun != fingerprint and (begun or manifest is not None or store.list(folder)):
        hint = "name one that does not exist, or remove it"
        raise UsageError("has something else in it", where=f"output={folder}", expected="an empty folder", hint=hint)
    manifests.begin(folder, STAGE, fingerprint)
    return False


@dataclass(frozen=True)
class _Work:
    exported: Exported
    put: Callable[..., None]
    folder: str

    def run(self, item: tuple[Part, str], stop: Event) -> dict[str, Any]:
        """Write a part, unless its record and files are there; return the record."""
        store, (part, key) = storage.store_for(self.folder), item
        uri = storage.join(self.folder, _RECORDS, f"{key}.json")
        if store.exists(uri):
            record: dict[str, Any] = json.loads(store.read(uri))
            if not manifests.find_damage(self.folder, [File.from_json(item) for item in record["files"]]):
                return record
            store.delete(uri)
        out, counts = Writer(self.folder), Counts()
        self.put(self.exported, part, out, counts)
        out.flush()
        if stop.is_set():
            raise InputError("stopped", where=self.folder)
        record = {"path": f"{part.split}/{part.name}", **vars(counts), "files": [file.to_json() for file in out.files]}
        result: dict[str, Any] = json.loads(store.commit(uri, canonical(record)))
        return result


def _by(what: str, exported: Exported, records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return rows and tokens that were written by split or by source."""
    result: dict[str, dict[str, int]] = {}
    for part, record in zip(exported.parts, records, strict=True):
        counts = result.setdefault(getattr(part, what), {"rows": 0, "tokens": 0})
        for name in counts:
            counts[name] += record[name]
    return result


def _ledger(exported: Exported, records: Sequence[Mapping[str, Any]]) -> Ledger:
    ledger = Ledger()
    for part, record in zip(exported.parts, records, strict=True):
        rows_in = max(record["rows_in"], part.rows)  # rows that were promised and not read make it fail
        mine = Ledger(rows_in, record["rows"], record["rows"], measures={"tokens": record["tokens"]})
        for reason, count in record["left_out"].items():
            mine.drop(reason, count)
        ledger.add(mine)
    return ledger


def _readme(exported: Exported, to: str, records: Sequence[Mapping[str, Any]], told: Mapping[str, str]) -> str:
    front = f"---\n{told['front']}\n---\n\n" if told["front"] else ""
    lines = [f"# {exported.stage or exported.kind} {exported.fingerprint} as {to}", "", "| split | rows | tokens |"]
    lines.append("|---|---:|---:|")
    for split, counts in _by("split", exported, records).items():
        tokens = f"{counts['tokens']:,}" if counts["tokens"] else ""
        lines.append(f"| {split} | {counts['rows']:,} | {tokens} |")
    lines += [
        "",
        f"    {told['load']}",
        "",
        "Exported by pairmill; `pairmill verify <this folder>` compares its files.",
    ]
    return front + "\n".join(lines) + "\n"
