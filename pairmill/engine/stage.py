"""The one idea: a stage is a dataclass of options and three functions over a list of shards.

``plan`` lists the work, ``process`` does one shard (anywhere, any number of times, in any order), ``finish`` merges.
:mod:`pairmill.engine.runner` runs a stage on this machine. A stage knows nothing of Kubernetes, Kubeflow or clouds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

from pairmill import storage
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.errors import UsageError
from pairmill.formats.limits import RECORD_BYTES

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from pairmill.engine.content import Content
    from pairmill.report.model import Report

Profile = Literal["pairmill", "data_io"]


def option(default: Any = dataclasses.MISSING, *, help: str, changes_bytes: bool = True) -> Any:  # noqa: A002
    """A field of a stage's options.

    Args:
        default: the default; without one the option is required.
        help: one line for ``--help``, the Kubeflow form and the README, with the unit.
        changes_bytes: whether the option is part of the fingerprint. Places (URIs) and the number of workers are
            not: what is read enters by content.
    """
    metadata = {"help": help, "changes_bytes": changes_bytes}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def default_of(item: dataclasses.Field[Any]) -> Any:
    """The default of an option as texts give it, lists joined by commas; ``dataclasses.MISSING`` if it is required."""
    if item.default_factory is not dataclasses.MISSING:
        return ",".join(map(list_item, item.default_factory()))
    return item.default


def list_item(text: str) -> str:
    """A text as an item of a list option, whose items commas separate."""
    return text.replace(",", "\\,")


@dataclass(kw_only=True)
class RunConfig:
    """Options that every sharded stage has."""

    root: str = option(help="project folder or URI; results go to <root>/<stage>/<fingerprint>", changes_bytes=False)
    workers: int = option(0, help="processes on this machine; 0 = one per available core", changes_bytes=False)
    share: str = option(
        "",
        help="do only this share of the shards, as 2/7, and finish nothing; empty = all, and finish",
        changes_bytes=False,
    )
    verify: bool = option(
        False,
        help="read what was made before and what is read, rather than trust sizes; what is damaged is made again",
        changes_bytes=False,
    )

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise UsageError("is negative", where="workers", got=str(self.workers), expected="0 or more")
        if self.share:
            Share.parse(self.share)


MOST_SHARES = 20
"""Of a stage: the workflow object of a Kubeflow run has 0.94 MB then, of the 1 MiB that Kubernetes takes.

A stock installation was measured at 194 kB for 3 shares of 3 stages: 1,220 bytes for each of 159 nodes. A share of a
stage is 12 nodes.
"""


@dataclass(frozen=True)
class Share:
    """The shards that one of several machines does: of ``count`` shares the one of this ``number``, from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """From ``number/count``.

        Raises:
            UsageError: it is no share.
        """
        match = re.fullmatch("([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError("is no share", where="share", got=text, expected="number/count, as 1/7 to 7/7")
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def all(cls, count: int) -> list[str]:
        """The texts of all shares of so many; none for one, which needs no share."""
        return [f"{number}/{count}" for number in range(1, count + 1)] if count > 1 else []

    def of(self, shards: list[Shard]) -> list[Shard]:
        """This share of the shards of a plan. Dealt out from the largest to the smallest, so that shares are alike."""
        return sorted(shards, key=lambda shard: (-shard.size, shard.name))[self.number - 1 :: self.count]


@dataclass(kw_only=True)
class StageConfig(RunConfig):
    """Options of a stage whose bytes the reference knows as well."""

    profile: Profile = option("pairmill", help="pairmill, or data_io for the reference's bytes, defects included")
    max_record_bytes: int = option(
        RECORD_BYTES,
        help="longest record that is read, in bytes; a longer one fails the stage, because memory follows it",
        changes_bytes=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_record_bytes < 1:
            raise UsageError(
                "out of range", where="max_record_bytes", got=str(self.max_record_bytes), expected="1 or more"
            )


C = TypeVar("C", bound=RunConfig)


def byte_options(config: Any) -> dict[str, Any]:
    """The options of ``config`` that change bytes, by name."""
    fields = dataclasses.fields(config)
    return {item.name: getattr(config, item.name) for item in fields if item.metadata.get("changes_bytes", True)}


@dataclass(frozen=True)
class Shard:
    """One unit of work.

    Args:
        name: what a person calls it; unique within the plan.
        key: sha256 of the content digests of what it reads, the options that change its bytes, and the stage's
            format version. Equal keys mean equal bytes, in any run and any root.
        payload: what ``process`` needs to know, picklable.
        size: bytes to read; larger shards start first.
    """

    name: str
    key: str
    payload: Any
    size: int = 0


@dataclass(frozen=True)
class Plan:
    """The work of a stage.

    Args:
        shards: in the order in which ``finish`` sees their records.
        inputs: what is read, by content; part of the fingerprint.
        rows_expected: rows that the stage before wrote, where a manifest says so; the ledger must agree.
        context: what ``process`` and ``finish`` need beside their shard, picklable; read once.
        says: what the manifest will say that follows neither from the options nor from the shards (a licence, a
            revision), JSON-like; part of the fingerprint.
        options: options that the manifest gives another value than the user did, by name: a path is not content.
        remnant: whether the shards are only those whose results are not there yet. Then they depend on what is there:
            neither the fingerprint nor the manifest knows them, inputs and ``says`` have to say it all, and the
            manifest has the stage's ``ledgers``.
    """

    shards: list[Shard]
    inputs: list[InputRef]
    rows_expected: int | None = None
    context: Any = None
    says: Any = None
    options: dict[str, Any] = field(default_factory=dict)
    remnant: bool = False


@dataclass
class ShardRecord:
    """What a committed shard holds. Written last into the shard's folder, as ``_RECORD.json``."""

    name: str
    key: str
    ledger: Ledger
    files: list[File]
    data: dict[str, Any] = field(default_factory=dict)


# Copies and uploads under way at once: an object store answers one in 10 to 100 ms, and many as fast as one.
_AT_ONCE = 32


class Writer:
    """Writes files below a folder and remembers size and digest of each.

    In an object store they are on their way while work goes on: what was written is there after :meth:`settle`.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files: list[File] = []
        self._remote = storage.scheme(folder) != "file"
        self._pending: list[Future[None]] = []
        self._pool: ThreadPoolExecutor | None = None

    @contextmanager
    def create(
        self, path: str, *, task: str = "", digest: Callable[[], str] | None = None, scratch: bool = False
    ) -> Iterator[Path]:
        """A local file to fill; it appears at ``path`` below the folder when the block ends without an exception.

        Args:
            path: of the file below the folder.
            task: the data set that the file belongs to.
            digest: says the sha256 of what was written when all is, where the caller took it on the way; without it the
                file is read once more.
            scratch: no folder adopts the file, a second round of shards alone reads it: it gets no digest, and nobody
                waits for the disk. If the machine goes down, its size shows what is lost of it.
        """
        uri = storage.join(self.folder, path)
        with ExitStack() as stack:
            local = stack.enter_context(storage.store_for(uri).create(uri, durable=not scratch, final=True))
            yield local
            if scratch:
                sha256 = ""
            elif digest:
                sha256 = digest()
            else:
                with local.open("rb") as file:
                    sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            self.files.append(File(path, local.stat().st_size, sha256, task))
            if self._remote:
                self._later(stack.pop_all().close)

    def write(self, path: str, data: bytes, *, task: str = "") -> None:
        """Write these bytes."""
        with self.create(path, task=task) as local:
            local.write_bytes(data)

    def write_report(self, report: Report) -> None:
        """Write the report as a page and as text."""
        self.write("report.html", report.html().encode())
        self.write("report.md", report.markdown().encode())

    def adopt(self, source_folder: str, file: File, *, task: str = "") -> None:
        """Take over a file of another folder (a shard's) without moving its bytes through this process.

        With ``task`` it goes into the folder of that task and belongs to it.
        """
        mine = replace(file, path=f"{task}/{file.path}", task=task) if task else file
        source, target = storage.join(source_folder, file.path), storage.join(self.folder, mine.path)
        copy = partial(storage.store_for(target).copy, source, target)
        self._later(copy) if self._remote else copy()
        self.files.append(mine)

    def settle(self) -> None:
        """Wait until everything that was written or adopted is there.

        Raises:
            PairmillError: something of it could not be stored; nothing is on its way any more.
        """
        if self._pool is not None:
            self._pool.shutdown()
        done, self._pending, self._pool = self._pending, [], None
        for one in done:
            one.result()

    def _later(self, work: Callable[[], None]) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(_AT_ONCE)
        self._pending.append(self._pool.submit(work))


class Stage(ABC, Generic[C]):
    """A stage. ``name`` is the word for it everywhere: folder, module, Kubeflow task, test, README."""

    name: ClassVar[str]
    folder: ClassVar[str] = ""
    """Its folder below the root where that is not the name."""
    feeds_lists: ClassVar[bool] = False
    """Whether the options that take its folder are lists: in a pipeline its URI is an item of one."""
    counts_rows: ClassVar[bool] = True
    """Whether its ledger is of rows; raw files are only brought."""
    version: ClassVar[int]
    """Format version: raised when the same input and options give other bytes than before."""
    history: ClassVar[dict[int, str]] = {}
    """For each version from 2 on, why results of the version before are not used again: one clause, for the log."""
    config: type[C]

    @abstractmethod
    def plan(self, config: C) -> Plan:
        """List the work. Validates options against each other and inputs by existence.

        Writes nothing, but what keeps a later plan from listing other work (fetch's lock).
        """

    @abstractmethod
    def process(self, config: C, plan_context: Any, shard: Shard, out: Writer) -> tuple[Ledger, dict[str, Any]]:
        """Do one shard: write its files to ``out``; return its ledger and small data for ``finish``."""

    def scattered(self, shard: Shard) -> Mapping[str, Content]:
        """What the shard reads here and there, by URI; the rest it digests as it reads. Nothing by default."""
        return {}

    def stands(self, config: C, plan: Plan, folder: str) -> bool:
        """Whether what the finished folder speaks of, but does not hold, is there; if not, the work is done again."""
        return True

    def settle(self, config: C, plan: Plan, records: list[ShardRecord]) -> Plan:
        """The plan with what its shards found out of its own content; the folder is named after this."""
        return plan

    def prepare(self, config: C, plan: Plan) -> Plan:
        """The plan with what its shards need and takes long to make; called once, and only if there is work to do."""
        return plan

    def gather(self, config: C, plan: Plan, records: list[ShardRecord]) -> list[Shard]:
        """Shards that put together what the first ones made, listed from their records; none by default.

        They are done like any others, and ``finish`` sees their records behind those of the first. What they write
        out counts as the stage's rows out in place of the rows that they read.
        """
        return []

    def accept(self, config: C, plan: Plan, records: list[ShardRecord]) -> None:
        """Raise if the shards, each right in itself, make no result that may be published. Writes nothing."""

    def finish(self, config: C, plan: Plan, records: list[ShardRecord], shards: str, out: Writer) -> dict[str, Any]:
        """Put the folder together from the shards' files (each below ``<shards>/<key>``); return manifest data.

        By default the folder is the union of the shards' files.
        """
        for record in records:
            for file in record.files:
                out.adopt(storage.join(shards, record.key), file)
        return {}

    def ledgers(self, manifest: Manifest) -> dict[str, Ledger]:
        """The ledgers that a manifest has in place of the shards', where the plan is a remnant."""
        return {}

    def parameters(self, config: C) -> dict[str, list[str]]:
        """Kubeflow output parameters beside those of every stage."""
        return {}

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        """What Kubeflow compares between runs, beside rows and bytes: :mod:`pairmill.engine.metrics`."""
        return {}

    @abstractmethod
    def report(self, manifest: Manifest) -> Report:
        """What a person wants to see of a finished folder."""
