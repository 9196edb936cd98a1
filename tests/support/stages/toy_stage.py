"""A stage small enough to see through: every line of ``*.txt`` below a folder becomes an upper-case line.

What a file's text says decides what happens to its shard, so that tests can make any shard fail in any way. Each
shard leaves a mark in ``marks`` (a place beside the project, never part of the result) each time it is processed.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pairmill import storage
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.engine.options import StageConfig, option
from pairmill.engine.stage import Rounds, Shard, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, StorageError, UsageError
from pairmill.report.model import Report
from tests.support.helpers import PATIENCE

COMMAND = f"""
import sys
from {__name__} import Toy
from pairmill.interface import stagecli
raise SystemExit(stagecli.main(Toy(), sys.argv[1:]))
"""
"""A program for ``python -c``. As a module of its own it would be __main__, which worker processes cannot import."""


@dataclass(kw_only=True)
class ToyConfig(StageConfig):
    """Turn lines into upper-case lines."""

    source: str = option(help="folder of text files", changes_bytes=False)
    marks: str = option(help="folder that gets one file per shard processed", changes_bytes=False)
    suffix: str = option("!", help="put after every line")
    refuse: str = option("", help="what is raised after the first round; empty = nothing", changes_bytes=False)
    prepared: str = option("", help="a text that misbehaves when the context is built", changes_bytes=False)
    chance: bool = option(False, help="whether other bytes are written each time", changes_bytes=False)
    expect: int = option(-1, help="rows that the stage before wrote; -1 = unknown", changes_bytes=False)


@dataclass(frozen=True)
class Upper(Shard[str], reads=()):
    """The lines of one file. The context is a greeting."""

    path: str
    sha256: str
    uri: str = field(metadata=unkeyed("a place"))
    suffix: str
    marks: str = field(metadata=unkeyed("a place beside the project"))
    chance: bool = field(metadata=unkeyed("for tests of shards that make other bytes each time"))

    def run(self, context: str, out: Writer) -> ShardResult:
        mark(self.marks, self.path)
        text = storage.store_for(self.uri).read(self.uri).decode()
        if text.startswith("together"):
            _wait_for_another(Path(self.marks))
        _misbehave(text)
        lines = [line for line in text.splitlines() if line]
        ledger = Ledger(rows_in=len(text.splitlines()), rows_kept=len(lines), rows_out=len(lines))
        if len(lines) < ledger.rows_in:
            ledger.drop("empty", ledger.rows_in - len(lines))
        if "lose a row" in text:
            ledger.rows_kept -= 1
        upper = "".join(line.upper() + self.suffix + "\n" for line in lines)
        out.write(f"upper/{self.path}", upper.encode(), task=self.path)
        drawn = secrets.token_hex(8) if self.chance else ""
        for place in ("one", "two") if drawn else ():
            out.write(f"{place}/{self.path}", drawn.encode())
        if text.startswith("later: "):
            _misbehave(text.removeprefix("later: "))
        return ShardResult(ledger, {"greeting": context, "lines": len(lines), "drawn": drawn})


@dataclass(frozen=True, kw_only=True)
class ToyPlan(StagePlan[str]):
    """Args: shards: one for each file."""

    shards: list[Upper]


class Toy(Stage[ToyConfig, ToyPlan]):
    """One shard per file."""

    name: ClassVar[str] = "toy"
    version: ClassVar[int] = 1
    config = ToyConfig

    def plan(self, config: ToyConfig) -> ToyPlan:
        folder = storage.normalise(config.source, "source")
        store = storage.store_for(folder)
        shards, digests = [], []
        for entry in store.list(folder):
            uri = storage.join(folder, entry.path)
            digests.append((entry.path, store.digest(uri)))
            shards.append(
                Upper(
                    entry.path,
                    digests[-1][1],
                    uri,
                    config.suffix,
                    config.marks,
                    config.chance,
                    name=entry.path,
                    size=entry.size,
                )
            )
        return ToyPlan(
            inputs=[InputRef("source", content_key(digests)[:16])],
            rows_expected=None if config.expect < 0 else config.expect,
            build_context=lambda: self.greeting(config),
            shards=shards,
        )

    def greeting(self, config: ToyConfig) -> str:
        if config.prepared:
            Path(config.marks, f"prepare.{os.getpid()}.").touch()
        _misbehave(config.prepared)
        return "hello"

    def rounds(self, config: ToyConfig, plan: ToyPlan) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        yield plan.shards
        if config.refuse:
            raise InputError(config.refuse, where=self.name)

    def finish(self, config: ToyConfig, plan: ToyPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        super().finish(config, plan, rounds, out)
        lines = [record.data["lines"] for record in rounds[0]]
        if not config.chance:
            return {"lines": lines}
        drawn = secrets.token_hex(8)
        out.write("end", drawn.encode())
        return {"lines": lines, "drawn": [record.data["drawn"] for record in rounds[0]], "end": drawn}

    def report(self, manifest: Manifest) -> Report:
        return Report("toy", {"Rows": manifest.ledger.rows_out})


def mark(marks: str, name: str) -> None:
    """Note that a shard is run."""
    Path(marks, f"{name}.{os.getpid()}.{secrets.token_hex(4)}").touch()


def _wait_for_another(marks: Path) -> None:
    """Until a second process is or was at work."""
    end = time.monotonic() + PATIENCE
    while len({path.name.rsplit(".", 2)[1] for path in marks.iterdir()}) < 2:
        assert time.monotonic() < end, "nobody else comes"
        time.sleep(0.005)


def _misbehave(text: str) -> None:
    if text.startswith("input error"):
        raise InputError("bad text", where="the file")
    if text.startswith("storage error"):
        raise StorageError("no space left", where="the file")
    if text.startswith("usage error"):
        raise UsageError("bad option", where="the option")
    if text.startswith("a bug"):
        raise ZeroDivisionError("oops")
    if text.startswith("os error"):
        raise PermissionError(13, "Permission denied", "/the/file")
    if text.startswith("out of memory"):
        raise MemoryError
    if text.startswith("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if text.startswith("slow"):
        time.sleep(0.15)
    if text.startswith("endless"):
        time.sleep(600)
