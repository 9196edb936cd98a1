"""What a stage is: a dataclass of options, and rounds of shards.

``plan`` finds the inputs, ``rounds`` yields one list of shards after another and is sent the records of each, and
``finish`` puts the result together. :mod:`pairmill.engine.runner` runs a stage on this machine. A stage knows nothing
of Kubernetes, Kubeflow or clouds.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from pairmill.engine import policing
from pairmill.engine.ahead import Joins
from pairmill.engine.content import Content
from pairmill.engine.keys import unkeyed
from pairmill.engine.links import LeftOut, left_out
from pairmill.engine.manifest import InputRef, Ledger, Manifest, fingerprint_from
from pairmill.engine.options import RunOptions, byte_options, list_item
from pairmill.engine.records import ShardFile as ShardFile
from pairmill.engine.records import ShardRecord as ShardRecord
from pairmill.engine.writer import Writer
from pairmill.report.model import Report
from pairmill.storage.base import Begun

X = TypeVar("X")
X_contra = TypeVar("X_contra", contravariant=True)


@dataclass
class ShardResult:
    """What became of the rows that a shard read, and small JSON-like data for later rounds and ``finish``.

    A stage declares the data as a dataclass, writes it with ``asdict`` and reads it with :meth:`ShardRecord.read`.
    """

    ledger: Ledger
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Shard(ABC, Generic[X_contra]):
    """One unit of work: picklable, so that any process of any machine can run it, any number of times.

    Its key is a digest of the stage's name and version, the class, and all fields but those declared ``unkeyed``
    (:mod:`pairmill.engine.keys`); of a stage that is not part of pairmill, or has no version, also of its code. Equal
    keys mean equal bytes, in any run and any root. The options that change bytes and what the plan ``says`` count too,
    unless the class names the options that its shards read of the context::

        class LongRows(Shard[LongerConfig], reads=("least",)):

    What else a context has must be in a field, as a digest: contexts are made only if there is work.

    Args:
        name: what a person calls it; unique within its round.
        key: given by the engine.
        size: bytes to read; larger shards start first.
        series: given by the engine: a name that shards have in common which differ only in what they read.
        begun: given by the engine: what it has joined of files before the shard was known, by path.
    """

    work: ClassVar[str] = ""
    """What its round does, for progress: ``find exact duplicates``; empty = the words of the class's name."""
    options_read: ClassVar[tuple[str, ...] | None] = None
    """Names of the options that count; None = all that change bytes, and what the plan says."""

    name: str = field(kw_only=True, metadata=unkeyed("only people read it: while a shard runs, its name is its key"))
    key: str = field(default="", kw_only=True, metadata=unkeyed("it is made of all others"))
    size: int = field(default=0, kw_only=True, metadata=unkeyed("it decides only what starts first"))
    series: str = field(
        default="", kw_only=True, repr=False, metadata=unkeyed("it follows from what the key follows from")
    )
    begun: Mapping[str, Begun] | None = field(
        default=None, kw_only=True, repr=False, compare=False, metadata=unkeyed("what is joined has the same bytes")
    )

    def __init_subclass__(cls, *, reads: tuple[str, ...] | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if reads is not None:
            cls.options_read = reads

    @classmethod
    def words(cls) -> str:
        """Return what its round does, in words for people."""
        return cls.work or re.sub("(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()

    @property
    def waits(self) -> bool:
        """Whether it waits for a server more than it works: then it runs in a thread, as a process takes a second."""
        return False

    @abstractmethod
    def run(self, context: X_contra, out: Writer) -> ShardResult:
        """Do the work and write its files to ``out``. ``context`` is that of the plan."""

    def random_access(self) -> Mapping[str, Content]:
        """Return the files that it reads with random access, by URI; others are digested while they are read."""
        return {}


Rounds: TypeAlias = Sequence[Sequence[ShardRecord]]
"""The records of each round, in the order in which the shards were yielded."""


def _nothing_expected(manifest: Manifest) -> None:
    """Accept any result."""


@dataclass(frozen=True, kw_only=True)
class StagePlan(Generic[X]):
    """What a stage will read. A stage adds what its rounds need in a subclass.

    Args:
        inputs: what is read, by content; part of the fingerprint.
        build_context: makes the context that every shard gets; the context must be picklable.
        rows_expected: rows that the previous stage wrote, if a manifest says so; the ledger must agree.
        says: what the manifest says besides options and shards (a licence, a revision), JSON-like; part of the
            fingerprint.
        options: options whose value in the manifest differs from the user's, by name: a path is not content.
        fingerprint: the name of the finished folder, of a stage that knows better what it follows from; empty = it
            follows from inputs, options, ``says`` and the shards of the first round.
        left_out: of the folders that were listed: links, and folders that no source reads.
        policy: what the policy in force decided on all that was found; it is an input, as what it leaves out is.
        check: called with the manifest before it is written, and when it is reused; raises InputError if the result is
            not as the options expect.
    """

    inputs: list[InputRef]
    build_context: Callable[[], X]
    rows_expected: int | None = None
    says: object = None
    options: dict[str, Any] = field(default_factory=dict)
    fingerprint: str = ""
    left_out: tuple[LeftOut, ...] = field(default_factory=left_out)
    policy: Mapping[str, Any] = field(default_factory=policing.record)
    check: Callable[[Manifest], None] = _nothing_expected

    @cached_property
    def context(self) -> X:
        """The context of all shards; built on first use, so only if there is work."""
        return self.build_context()

    def joins(self) -> Joins | None:
        """Return what the second round joins of the files of the first, if the first is the largest part of the work.

        The engine then begins to join them while that runs, and the shards of the second round go on with it.
        """
        return None

    @property
    def all_inputs(self) -> list[InputRef]:
        """The inputs, and the policy as one of them."""
        return [*self.inputs, *policing.ref_of(self.policy)]

    def manifest_options(self, config: RunOptions) -> dict[str, Any]:
        """Return the options that change bytes, as the manifest lists them."""
        return {**byte_options(config), **self.options}


C = TypeVar("C", bound=RunOptions)
P = TypeVar("P", bound="StagePlan[Any]")


class GivenResult(NamedTuple):
    """What a stage is given in place of its result.

    Args:
        option: the option that gives it.
        uris: what the stage passes on; none if a later stage is given its result too, so that this one's is not read.
        files: how many files, or data sets, there are.
        size: bytes of them.
        rows: how many rows, where that is known.
    """

    option: str
    uris: tuple[str, ...] = ()
    files: int = 0
    size: int = 0
    rows: int | None = None


class Outputs(NamedTuple):
    """What later tasks take from a stage.

    Args:
        output: what they read: by default the URI of the finished folder.
        rows: how many rows it has.
        printed: the lines of stdout.
        parameters: further output parameters of the Kubeflow component, by name; lists are for loops of a pipeline.
        options: options of later stages that this one knows, by name: a pipeline's first task hands them on.
    """

    output: str
    rows: int
    printed: Sequence[str]
    parameters: Mapping[str, str | list[dict[str, str]]] = {}
    options: Mapping[str, str] = {}


class Stage(ABC, Generic[C, P]):
    """A stage. ``name`` is the word for it everywhere: folder, module, Kubeflow task, test, README."""

    name: ClassVar[str]
    folder: ClassVar[str] = ""
    """Its folder below the root, if that is not the name."""
    output_in_list: ClassVar[bool] = False
    """Whether the next stages take its folder as an item of a list option, in which commas are escaped."""
    counts_rows: ClassVar[bool] = True
    """Whether its ledger counts rows; false for raw files."""
    watched: ClassVar[bool] = True
    """Whether a part that loses half of its rows is an alarm; false where options say how many rows are used."""
    version: ClassVar[int] = 0
    """Format version: raise it when the same input and options give other bytes than before. 0 = none is kept: the
    stage's code is in the keys of its shards, as it always is of a stage that is not part of pairmill."""
    history: ClassVar[dict[int, str]] = {}
    """For each version from 2 on, why results of the previous version are not used again: one clause, for the log."""
    is_command: ClassVar[bool] = True
    """Whether people run it; false of one that others run."""
    round_count: ClassVar[int] = 0
    """How many rounds it has, empty ones included, for progress; 0 = that differs from run to run."""
    config: type[C]

    @abstractmethod
    def plan(self, config: C) -> P:
        """Find the inputs. Check that they exist, and that the options fit together.

        Write nothing, except what keeps a later plan the same (fetch's lock).
        """

    @abstractmethod
    def rounds(self, config: C, plan: P) -> Generator[Sequence[Shard[Any]], list[ShardRecord], P | None]:
        """Yield the shards of each round; ``yield`` returns their records, in the same order.

        It is pure: records in, shards out. Every process replays it on the records that it finds. To refuse a result
        though each shard is right (too many malformed rows, no row at all), raise between two rounds or after the last.
        A stage that learns from its shards what it has read returns the corrected plan; others return None.

        A shard of a later round has the files that it really reads as fields, so that one changed input redoes its own
        shards only.
        """

    def is_intact(self, config: C, plan: P, folder: str) -> bool:
        """Return False if data that the manifest references outside the folder is missing; the stage is run again."""
        return True

    def ledger(self, plan: P, rounds: Rounds) -> Ledger:
        """Return what became of every row, over all rounds. By default the sum of the first round's ledgers.

        The runner refuses one that does not reconcile with the ledgers of every round: a stage whose later rounds
        drop rows returns ``first.then(later)``.
        """
        return Ledger.sum(record.ledger for record in rounds[0])

    def parts(self, plan: P, rounds: Rounds) -> dict[str, Ledger]:
        """Return the ledgers that the manifest lists by name under ``shards``. By default those of the first round."""
        return {record.name: record.ledger for record in rounds[0]}

    def finish(self, config: C, plan: P, rounds: Rounds, out: Writer) -> dict[str, Any]:
        """Put the folder together from the shards' files; return the manifest's data.

        By default the folder is the union of the last round's files. Under :data:`pairmill.engine.vanished.KEY` the
        data may have the alarms of the stage, in place of those that follow from the ledgers of :meth:`parts`.
        """
        for record in rounds[-1]:
            for file in record.files:
                out.link(record.folder, file)
        return {}

    def outputs(self, config: C, manifest: Manifest, folder: str) -> Outputs:
        """Return what later tasks take. The manifest of a share has no data."""
        output = list_item(folder) if self.output_in_list else folder
        return Outputs(output, manifest.ledger.rows_out, printed=[folder])

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        """Numbers that Kubeflow compares between runs, besides rows and bytes: :mod:`pairmill.engine.metrics`."""
        return {}

    @abstractmethod
    def report(self, manifest: Manifest) -> Report:
        """Return the report of a finished folder, for people."""


def fingerprint_of(
    stage: Stage[Any, Any] | type[Stage[Any, Any]],
    config: RunOptions,
    plan: StagePlan[Any],
    shards: Sequence[Shard[Any] | ShardRecord],
) -> str:
    """Return the name of the finished folder: 16 hexadecimal digits over all that it and its manifest follow from.

    Args:
        shards: of the first round, or their records. Their names and order are included, because the manifest lists
            them.
    """
    if plan.fingerprint:
        return plan.fingerprint
    inputs = [{"role": item.role, "fingerprint": item.fingerprint} for item in plan.all_inputs]
    named = [[shard.name, shard.key] for shard in shards]
    # The manifest names what was left out; of nothing the fingerprint is as it always was.
    more = [list(plan.left_out)] if plan.left_out else []
    parts = [stage.name, stage.version, plan.manifest_options(config), inputs, named, plan.says, *more]
    return fingerprint_from(*parts)
