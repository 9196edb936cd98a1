"""``tasks=``: which tasks of tokenized folders are taken, what rules call them, and which of two equal ones stays.

::

    include: ["*"]                          # globs over the tasks' own names; {match: …, from: new} of a folder alone
    exclude: [{match: "opus__*", why: "the corpus forbids it"}]
    rename: {"flan__{triviaqa,squad}*": "flan_factual__*"}
    duplicates: first                       # or last; of two tasks of one name or one content
    expect: {tasks: 11413}

Names are for rules: identity, order and draws follow what a task has (:attr:`pairmill.formats.tokens.Dataset.key`).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from pairmill.engine.expect import Expectation
from pairmill.errors import UsageError, did_you_mean
from pairmill.fields import Checked, setting
from pairmill.formats.settings_file import SettingsFile
from pairmill.rules.match import Matcher, Selector, expand

MEASURES: Final = ("tasks", "rows", "tokens")
_SIGNS: Final = re.compile(r"\[!?\]?[^\]]*\]|.", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Included(Checked):
    """Tasks to take, and in ``from`` the name of the folder that this is said of; empty = of all."""

    match: list[str] | str = setting(help="globs over the names of tasks")
    from_: str = setting("", help="name of a folder of tokenized_path=")


@dataclass(frozen=True, kw_only=True)
class Excluded(Included):
    """Tasks to leave out, and why."""

    why: str = setting(help="the reason, for people", filled=True, hint="write why: <the reason>")


@dataclass(frozen=True)
class TasksSettings(Checked):
    """What the file says."""

    include: list[str | Included] = setting(list, help="tasks to take; empty = all")
    exclude: list[Excluded] = setting(list, help="tasks to leave out, each with its reason")
    rename: dict[str, str] = setting(dict, help="new names by glob; a * is replaced by what the * of the glob matches")
    duplicates: Literal["", "refuse", "first", "last"] = setting(
        "", help="which of two tasks of one name or one content stays; empty = refuse two of different folders"
    )
    missing: Literal["refuse", "report"] = setting("refuse", help="what to do about an include that no task matches")
    expect: dict[str, Any] = setting(dict, help="tasks, rows and tokens that the union has to have")


class Clause(NamedTuple):
    """An ``include`` or ``exclude``: what it matches, of which folder, why, and where it is written."""

    selector: Selector
    folder: str
    why: str
    where: str


class _Clauses:
    """Clauses of one kind, and which of them some task matched."""

    def __init__(self, clauses: Sequence[Clause]) -> None:
        self._clauses = clauses
        self._matcher = Matcher([clause.selector for clause in clauses])
        self._used = set[int]()

    def concern(self, folder: str) -> bool:
        """Return whether any is of a folder."""
        return any(clause.folder in {"", folder} for clause in self._clauses)

    def find(self, folder: str, name: str) -> Clause | None:
        """Return the first that matches a task."""
        numbers = [number for number in self._matcher.numbers(name) if self._clauses[number].folder in {"", folder}]
        self._used.update(numbers)
        return self._clauses[numbers[0]] if numbers else None

    def idle(self) -> list[Clause]:
        """Return those that no task matched so far."""
        return [clause for number, clause in enumerate(self._clauses) if number not in self._used]


class _Rename:
    """A new name for what a glob matches.

    Each run of wildcards with a ``*`` in it, as ``{triviaqa,squad}*``, is a part that is kept: the new name has a ``*``
    for each of them.
    """

    def __init__(self, glob: str, name: str, where: str) -> None:
        self.glob, self.where, self.used, self._name = glob, where, False, name.split("*")
        expand(glob, where)
        text, kept = _translate(glob)
        if kept != len(self._name) - 1:
            raise UsageError(
                "the new name has not a * for each part that the glob keeps",
                where=where,
                got=f"{len(self._name) - 1} in {name!r}",
                expected=f"{kept}, as in {glob!r}",
                hint="braces and sets beside a * are of its part; others are not kept",
            )
        self._pattern = re.compile(text, re.DOTALL)

    def apply(self, name: str) -> str | None:
        """Return the new name; None if the glob does not match.

        Raises:
            UsageError: the new name is none.
        """
        match = self._pattern.fullmatch(name)
        if match is None:
            return None
        self.used = True
        new = self._name[0] + "".join(map("".join, zip(match.groups(), self._name[1:], strict=True)))
        if not new or "/" in new or new in {".", ".."}:
            raise UsageError("not a name for a task", where=self.where, got=repr(new), expected="a file's name")
        return new


def _translate(glob: str) -> tuple[str, int]:
    """Return a glob as a regular expression with a group for each part that is kept, and the number of groups."""
    result, run, kept, depth, star = "", "", 0, 0, False
    for sign in [*_SIGNS.findall(glob), ""]:
        if depth or sign in {"*", "?", "{"} or (sign.startswith("[") and len(sign) > 1):
            star |= sign == "*"
            depth += (sign == "{") - (sign == "}")
            own = {"*": ".*", "?": ".", "{": "(?:", "}": ")", ",": "|" if depth else ","}
            run += own.get(sign) or _sign(sign)
            continue
        result += f"({run})" if star else run
        kept += star
        run, star = "", False
        result += re.escape(sign)
    return result, kept


def _sign(sign: str) -> str:
    return fnmatch.translate(sign).removesuffix(r"\Z").removesuffix(r"\z") if len(sign) > 1 else re.escape(sign)


@dataclass(frozen=True)
class TasksFile:
    """The file, read; it notes which of its lines some task needed."""

    settings: TasksSettings = field(default_factory=TasksSettings)
    where: str = ""
    places: tuple[tuple[str, ...], ...] = ((), ())

    @classmethod
    def load(cls, given: str, folders: Sequence[str]) -> TasksFile:
        """Read a file.

        Args:
            given: path or URI; empty = every task is taken by its own name.
            folders: the names of the folders that the tasks are of.

        Raises:
            UsageError: absent, not YAML, or a line of it cannot be.
        """
        if not given:
            return cls()
        file = SettingsFile.load(given, "tasks")
        settings = file.onto(TasksSettings())
        places = tuple(tuple(part.where for part in file.items(key)) for key in ("include", "exclude"))
        result = cls(settings, file.uri, places)
        for clause in (*result._clauses("include"), *result._clauses("exclude")):
            if clause.folder and clause.folder not in folders:
                raise UsageError(
                    f"no folder is called {clause.folder!r}",
                    where=clause.where,
                    expected=", ".join(folders),
                    hint=did_you_mean(clause.folder, folders) or "name folders: tokenized_path=base=<folder>,…",
                )
        result.renames, result.expectation  # noqa: B018 - what is wrong with them is said before anything is opened
        return result

    def _clauses(self, key: Literal["include", "exclude"]) -> list[Clause]:
        items: Sequence[str | Included] = getattr(self.settings, key)
        result = []
        for item, where in zip(items, self.places[key == "exclude"], strict=True):
            clause = Included(match=item) if isinstance(item, str) else item
            selector = Selector.parse({"match": clause.match}, where)
            result.append(Clause(selector, clause.from_, getattr(clause, "why", ""), where))
        return result

    @cached_property
    def included(self) -> _Clauses:
        """The tasks to take."""
        return _Clauses(self._clauses("include"))

    @cached_property
    def excluded(self) -> _Clauses:
        """The tasks to leave out."""
        return _Clauses(self._clauses("exclude"))

    @cached_property
    def renames(self) -> list[_Rename]:
        """The new names, in order; the first that matches counts."""
        return [_Rename(glob, name, f"{self.where}, rename {glob!r}") for glob, name in self.settings.rename.items()]

    @cached_property
    def expectation(self) -> Expectation | None:
        """What the union has to have."""
        expect = self.settings.expect
        return Expectation.parse(expect, f"{self.where}, expect", MEASURES) if expect else None

    def refuse_idle(self) -> list[str]:
        """Return what ``include`` names and no task was, if that is only reported.

        Raises:
            UsageError: a line is for no task.
        """
        lines = [(clause.where, clause.selector.label.removeprefix("match ")) for clause in self.excluded.idle()]
        lines += [(item.where, item.glob) for item in self.renames if not item.used]
        missing = [(clause.where, clause.selector.label.removeprefix("match ")) for clause in self.included.idle()]
        lines += missing if self.settings.missing == "refuse" else []
        if lines:
            more = f", and {len(lines) - 1:,} more lines" if len(lines) > 1 else ""
            raise UsageError(
                "a line is for no task",
                where=lines[0][0],
                got=f"{lines[0][1]!r}, which no task matches{more}",
                hint="take it out, or correct the glob; what include names may be lacking with missing: report",
            )
        return [label for _, label in missing]

    def rename(self, name: str) -> str:
        """Return what rules call a task."""
        return next((new for item in self.renames if (new := item.apply(name)) is not None), name)
