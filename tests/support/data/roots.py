"""A root with finished results in it, made without running a stage: on a disk or in a bucket."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.engine.writer import Writer
from pairmill.mixture.plan import identity

DAY = 86_400.0


def result(
    root: str,
    stage: str,
    mark: str,
    inputs: Sequence[InputRef] = (),
    *,
    rows: int = 10,
    tokens: int = 0,
    files: dict[str, bytes] | None = None,
    age: float = 0.0,
) -> str:
    """Write a finished folder, whose fingerprint repeats ``mark``; return its URI. ``age`` in seconds is for files."""
    fingerprint = (mark * 16)[:16]
    folder = {"train_tokenizer": "tokenizer"}.get(stage, stage)
    home = storage.join(root, folder, fingerprint)
    manifests.begin(home, stage, fingerprint)
    out = Writer(home)
    for name, data in (files or {"data/rows.bin": mark.encode() * 1000}).items():
        out.write(name, data, task="rows")
    out.flush()
    ledger = Ledger(rows, rows, rows, measures={"tokens": tokens} if tokens else {})
    Manifest(stage, 1, fingerprint, {"profile": "pairmill"}, list(inputs), ledger, out.files).finish(home)
    made_older(home, age)
    return home


def made_older(uri: str, age: float) -> None:
    """Let all that is below a folder be this many seconds older."""
    if storage.scheme(uri) == "file" and age:
        top = storage.local_path(uri)
        for path in (top, *top.rglob("*")):
            past = path.stat().st_mtime - age
            os.utime(path, (past, past))


def rows_ref(stage: str, mark: str) -> InputRef:
    return InputRef("rows", (mark * 16)[:16], stage)


def line(root: str, letters: str = "abcdef", age: float = 0.0) -> dict[str, str]:
    """Write the results of a line, each a second after the one before; return their URIs by stage."""
    clean, curate, tokenizer, tokenize, mix, sample = list(letters)
    words, plan = f"tokenizer {letters}".encode(), f"mixture {letters}".encode()
    digest = hashlib.sha256(words).hexdigest()[:16]
    tokenized = InputRef("tokenized", tokenize * 16)
    made: dict[str, str] = {}

    def add(stage: str, mark: str, inputs: Sequence[InputRef] = (), **more: object) -> None:
        made[stage] = result(root, stage, mark, inputs, age=age - len(made), **more)  # type: ignore[arg-type]

    add("clean", clean)
    add("curate", curate, [rows_ref("clean", clean)], rows=8)
    add("train_tokenizer", tokenizer, [rows_ref("curate", curate)], files={"tokenizer.json": words})
    add("tokenize", tokenize, [rows_ref("curate", curate), InputRef("tokenizer", digest)], rows=8, tokens=800)
    add("mix", mix, [tokenized], files={"mixture.json": plan})
    add("sample", sample, [tokenized, InputRef("rules", "0" * 16), InputRef("mixture", identity(plan, {}))], rows=20)
    return made
