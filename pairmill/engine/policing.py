"""What a policy says of what a stage reads: asked where rows, tokens and raw files are found, while a stage plans.

The policy itself is :mod:`pairmill.policy`; a command puts it in force with :func:`enforced`. Without one
all is let in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, Protocol

from pairmill import storage
from pairmill.engine.manifest import InputRef
from pairmill.engine.source_names import HELD_OUT, source_of
from pairmill.errors import InputError

KEY: Final = "policy"
"""In the data of manifests: the decisions on what was read."""
REMOVALS: Final = "removals"
"""In these decisions: the entries on single records of the sources that were read."""
REMOVED: Final = "removed"
"""The ledger's reason of records and rows that a policy takes out one by one."""


class Subject(NamedTuple):
    """Something that a policy may say something of: a source, a raw file, or a task.

    Args:
        name: of the task, or of the source.
        names: further names that it goes by, such as ``<source>/<path>``.
        contents: digests of the files that it is, or was made of.
        licence: of its source, if the caller knows it; None = it is not known yet, and is asked for later.
        place: URI of the folder that it is read from: its manifests may know more.
        evaluation: whether it is read to measure with, and not to train on.
        is_whole: whether it is all of a source: where clauses decide on single files or tasks, these are asked later.
    """

    name: str
    names: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    licence: str | None = ""
    place: str = ""
    evaluation: bool = False
    is_whole: bool = False

    @classmethod
    def from_task(cls, task: str, contents: Iterable[str] = (), place: str = "") -> Subject:
        """Return a task, which goes by ``<source>/<file>`` too; held-out rows are there to measure with."""
        name = task.removeprefix(HELD_OUT)
        source = source_of(task)
        rest = name.partition(f"{source}__")[2]
        names = (name, f"{source}/{rest}", source) if rest else (name, source)
        return cls(task, names, tuple(contents), "", place, task.startswith(HELD_OUT))

    @property
    def source(self) -> str:
        """The source that it is of."""
        name = self.name.removeprefix(HELD_OUT)
        return source_of(name.partition("/")[0] if "/" in name else name)


class Judge(Protocol):
    """A policy in force."""

    def leave_out(self, subjects: Sequence[Subject], where: str, *, by_name: bool) -> frozenset[str]:
        """Return the names that are left out. Raises InputError if the policy refuses one."""

    def removed_rows(self, subject: Subject) -> Sequence[int]:
        """Return the ordinals of rows that are taken out of a task's row file. Raises InputError if it is not known."""

    def removed_records(self, file: str, digest: str) -> frozenset[int | str]:
        """Return the places of records that are taken out of a raw file. Raises InputError if it is another file."""

    def entries_on(self, source: str) -> Sequence[str]:
        """Return the names of the entries on single records of a source."""

    @property
    def takes_out_records(self) -> bool:
        """Whether there are entries on single records."""

    def note_removed(self, rows: Mapping[str, int]) -> None:
        """Note how many rows of each task were taken out before a stage read it."""

    @property
    def record(self) -> dict[str, Any]:
        """What manifests say of all that was asked so far."""


_JUDGE: ContextVar[Judge | None] = ContextVar("judge", default=None)


@contextmanager
def enforced(judge: Judge | None) -> Iterator[None]:
    """Put a policy in force for all that is read within."""
    token = _JUDGE.set(judge)
    try:
        yield
    finally:
        _JUDGE.reset(token)


def is_in_force() -> bool:
    """Return whether there is a policy."""
    return _JUDGE.get() is not None


def leave_out(subjects: Iterable[Subject], where: str, *, by_name: bool = True) -> frozenset[str]:
    """Return the names that a policy in force leaves out.

    Args:
        subjects: that would be read.
        where: the option that names them, for messages.
        by_name: whether the user names each of them; of all that there are, some may be left out in any case.

    Raises:
        InputError: the policy refuses one.
    """
    judge = _JUDGE.get()
    return judge.leave_out([*subjects], where, by_name=by_name) if judge is not None else frozenset()


def removed_records(file: str, digest: str) -> frozenset[int | str]:
    """Return the places of records of a raw file that a policy in force takes out: lines from 1, or names of members.

    Args:
        file: ``<source>/<path>``.

    Raises:
        InputError: the policy knows the file with another content, so that its lines may be others.
    """
    judge = _JUDGE.get()
    return judge.removed_records(file, digest) if judge is not None else frozenset()


def removed_rows(subject: Subject) -> Sequence[int]:
    """Return which rows a policy in force takes out of a task: ordinals in its row file, ascending.

    Raises:
        InputError: nobody looked for them in this file.
    """
    judge = _JUDGE.get()
    return judge.removed_rows(subject) if judge is not None else ()


def takes_out_records() -> bool:
    """Return whether a policy in force takes out single records."""
    judge = _JUDGE.get()
    return judge is not None and judge.takes_out_records


def note_removed(rows: Mapping[str, int]) -> None:
    """Note for manifests how many rows of each task were taken out before a stage read it."""
    if (judge := _JUDGE.get()) is not None:
        judge.note_removed(rows)


def entries_on(sources: Iterable[str]) -> set[str]:
    """Return the names of a policy's entries on single records of some sources."""
    judge = _JUDGE.get()
    return {name for source in sources for name in judge.entries_on(source)} if judge is not None else set()


class Task(Protocol):
    """A task of a tokenized folder: its name, which may be a new one, and the URI of its own folder."""

    @property
    def name(self) -> str: ...

    @property
    def uri(self) -> str: ...


def leave_out_tasks(tasks: Iterable[Task], where: str) -> frozenset[str]:
    """Return the names of tasks of a tokenized folder that a policy in force leaves out.

    Raises:
        InputError: the policy refuses one, or all are left out.
    """
    if not is_in_force():
        return frozenset()
    subjects = []
    for task in tasks:
        subject = Subject.from_task(task.name, place=storage.parent_of(task.uri))
        before = Subject.from_task(storage.name_of(task.uri))
        subjects.append(subject._replace(names=(*subject.names, before.name, *before.names)))
    left_out = leave_out(subjects, where)
    if subjects and len(left_out) == len(subjects):
        refuse_nothing(where)
    return left_out


def refuse_nothing(where: str) -> None:
    """Raise InputError: all that there was to read is left out."""
    raise InputError(
        "the policy leaves nothing to read",
        where=where,
        got=", ".join(record()["left_out"][:5]),
        expected="something that the policy allows",
        hint="pairmill policy check policy=… says which clauses decide",
    )


def record() -> dict[str, Any]:
    """Return what manifests say of the policy in force; empty without one."""
    judge = _JUDGE.get()
    return judge.record if judge is not None else {}


def ref_of(recorded: Mapping[str, Any]) -> list[InputRef]:
    """Return the policy as an input of a result: what it decides on what was read. Its words change nothing."""
    if not recorded:
        return []
    decisions = {name: sorted({item["decision"] for item in items}) for name, items in recorded["decisions"].items()}
    taken_out = [recorded[REMOVALS]] if REMOVALS in recorded else []
    return [InputRef.from_content(KEY, decisions, recorded["left_out"], *taken_out)]
