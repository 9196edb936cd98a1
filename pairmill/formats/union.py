"""Tokenized folders as one: which tasks of which of them, by what names, and what identifies them.

The fingerprint of a union follows from content and names, wherever its folders are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import fingerprint_from
from pairmill.errors import InputError, UsageError
from pairmill.formats import chat_digests
from pairmill.formats.results.tokens import UnionResult
from pairmill.formats.tasks_file import Clause
from pairmill.formats.tasks_file import TasksFile as TasksFile
from pairmill.formats.tokenized import UNION, Folder
from pairmill.formats.tokens import BYTES, ROWS, Dataset

_OF_PLACE: Final = "tokenizer_path"
"""Of ``tokenizer_info.json``: where somebody's tokenizer was, which tells nothing."""
_TAGS: Final = "condition_mapping"
_SHOWN: Final = 5


@dataclass(frozen=True)
class Part:
    """A tokenized folder of a union, and what it is called."""

    name: str
    folder: Folder


@dataclass(frozen=True)
class Member:
    """A task of a union.

    Attributes:
        part: the number of its folder.
        own: its name there.
        task: by the name that rules call it.
    """

    part: int
    own: str
    task: Dataset

    @property
    def is_renamed(self) -> bool:
        """Whether rules call it by another name than its folder."""
        return self.own != self.task.name


@dataclass(frozen=True)
class Union:
    """Tokenized folders as one.

    Attributes:
        parts: in the order given.
        members: held-out tasks too; sorted by name by code point.
        excluded: tasks that were left out, and the clause that says so.
        duplicates: tasks that stayed away, and those that stayed in their place.
        missing: what ``include`` names, and no task is.
    """

    parts: Sequence[Part]
    members: Sequence[Member]
    excluded: Sequence[tuple[Member, Clause]]
    duplicates: Sequence[tuple[Member, Member]]
    missing: Sequence[str]

    @classmethod
    def join(cls, parts: Sequence[Part], file: TasksFile, where: str) -> Union:
        """Join folders.

        Args:
            parts: with their held-out tasks.
            file: which tasks are taken, and their names.
            where: the option and its value, for messages.

        Raises:
            InputError: the folders are of two tokenizers or templates, two tasks are equal, or the tasks are not what
                the file expects.
            UsageError: a line of the file is for no task, or gives two tasks one name.
        """
        refuse_different(parts, where)
        taken: list[Member] = []
        excluded: list[tuple[Member, Clause]] = []
        for number, part in enumerate(parts):
            all_of = not file.included.concern(part.name)
            for task in part.folder.tasks:
                top = HELD_OUT if task.name.startswith(HELD_OUT) else ""
                name = task.name[len(top) :]
                if not (all_of or file.included.find(part.name, name)):
                    continue
                if clause := file.excluded.find(part.name, name):
                    excluded.append((Member(number, task.name, task), clause))
                    continue
                new = top + file.rename(name)
                taken.append(Member(number, task.name, task if new == task.name else replace(task, name=new)))
        missing = file.refuse_idle()
        members, duplicates = _distinct(parts, taken, file, where)
        result = cls(parts, sorted(members, key=lambda item: item.task.name), excluded, duplicates, missing)
        if file.expectation is not None:
            file.expectation.check("the union", result.counts)
        return result

    @cached_property
    def counts(self) -> dict[str, float]:
        """Tasks, rows and tokens for training."""
        counted = [item.task.counts for item in self.members if not item.task.name.startswith(HELD_OUT)]
        return {
            "tasks": len(counted),
            "rows": sum(rows for rows, _ in counted),
            "tokens": sum(tokens for _, tokens in counted),
        }

    @cached_property
    def info(self) -> dict[str, Any]:
        """What the folders say of their tokenizer, their condition tags together."""
        result = dict(self.parts[0].folder.info)
        for part in self.parts[1:]:
            for key, value in part.folder.info.items():
                both = key == _TAGS and isinstance(value, dict) and isinstance(result.get(key), dict)
                result[key] = {**result[key], **value} if both else result.get(key, value)
        return result

    @cached_property
    def fingerprint(self) -> str:
        """Content identity: of the tokenizer, and of names and contents of tasks."""
        info = {key: value for key, value in self.info.items() if key != _OF_PLACE}
        return fingerprint_from(UNION, info, [_identity(member.task) for member in self.members])

    @property
    def result(self) -> UnionResult:
        """What its manifest says, by the places of this machine."""
        return UnionResult(
            folders=[
                {
                    "name": part.name,
                    "place": part.folder.uri,
                    "fingerprint": part.folder.fingerprint,
                    "tasks": {item.task.name: item.own for item in self.members if item.part == number},
                }
                for number, part in enumerate(self.parts)
            ],
            excluded=[
                {"task": item.own, "folder": self.parts[item.part].name, "why": clause.why}
                for item, clause in self.excluded
            ],
            duplicates=[
                {"task": item.own, "folder": self.parts[item.part].name, "stays": other.task.name}
                for item, other in self.duplicates
            ],
            missing=tuple(self.missing),
        )

    def folder(self, uri: str, option: str, held_out: bool | None) -> Folder:
        """Return it as one folder: of its tasks for training, of those that are held out, or of both (None).

        Raises:
            InputError: it has none.
        """
        tasks = [
            item.task for item in self.members if held_out is None or item.task.name.startswith(HELD_OUT) == held_out
        ]
        if not tasks:
            raise InputError(
                "the tokenized folders have no held-out rows" if held_out else "no task is left of the folders",
                where=f"{option}={uri}",
                got=f"{len(self.excluded):,} excluded tasks",
                hint="name folders with such rows" if held_out else "look at include and exclude of tasks=",
            )
        folders = [part.folder for part in self.parts]
        known = all(folder.rows is not None for folder in folders)
        return Folder(
            uri,
            tasks,
            self.info,
            self.fingerprint,
            sum(task.counts[0] for task in tasks) if known else None,
            tokenizer=next((folder.tokenizer for folder in folders if folder.tokenizer), ""),
            homes=tuple(home for folder in folders for home in folder.homes),
            sampled=any(folder.sampled for folder in folders),
            union=self.result,
        )


def refuse_different(parts: Sequence[Part], where: str) -> None:
    """Raise InputError if folders are of two tokenizers or two chat templates."""
    chat_digests.refuse_different([(part.name, part.folder.info) for part in parts], where)
    known = [part for part in parts if part.folder.tokenizer]
    for part in known[1:]:
        if part.folder.tokenizer != known[0].folder.tokenizer:
            raise _two_tokenizers(known[0], part, known[0].folder.tokenizer, part.folder.tokenizer, where)
    tags: dict[str, Any] = {}
    for part in parts:
        first, info = parts[0].folder.info, part.folder.info
        for key in sorted({*first, *info} - {_OF_PLACE, _TAGS, chat_digests.KEY}):
            if first.get(key) != info.get(key):
                raise _two_tokenizers(parts[0], part, f"{key} {first.get(key)!r}", f"{key} {info.get(key)!r}", where)
        mapping = info.get(_TAGS)
        for tag, token in mapping.items() if isinstance(mapping, dict) else ():
            if tags.setdefault(tag, token) != token:
                raise _two_tokenizers(parts[0], part, f"{tag} {tags[tag]!r}", f"{tag} {token!r}", where)


def _two_tokenizers(first: Part, other: Part, mine: str, theirs: str, where: str) -> InputError:
    return InputError(
        "the folders are of two tokenizers",
        where=where,
        got=f"{mine} of {first.name}, {theirs} of {other.name}",
        expected="one tokenizer, and one token for each delimiter and condition",
        hint=f"tokenize the rows of {other.name} with the tokenizer of {first.name}",
    )


def _identity(task: Dataset) -> list[str]:
    beside = (task.contents[name].digest for name in (BYTES, ROWS) if name in task.contents)
    return [task.name, task.key, *beside]


def _distinct(
    parts: Sequence[Part], taken: Iterable[Member], file: TasksFile, where: str
) -> tuple[list[Member], list[tuple[Member, Member]]]:
    """Leave one of each name and each content. Return the others, each with the one that is taken in its place."""
    wanted = file.settings.duplicates
    names: dict[str, Member] = {}
    keys: dict[tuple[bool, str], Member] = {}
    # Of several the last one is the first that is met.
    order = [*taken][::-1] if wanted == "last" else [*taken]
    gone: list[tuple[Member, Member]] = []
    kept: list[Member] = []
    for item in order:
        key = item.task.name.startswith(HELD_OUT), item.task.key
        what = "name" if item.task.name in names else "content"
        # Only with one that stays; tasks without a row are all alike.
        other = names.get(item.task.name) or (keys.get(key) if item.task.counts[0] else None)
        if other is not None and wanted in {"first", "last"}:
            gone.append((item, other))
            continue
        if other is not None and (what == "name" or wanted or item.part != other.part):
            raise _two_alike(parts, other, item, what, file, where)
        names[item.task.name] = item
        keys.setdefault(key, item)
        kept.append(item)
    return kept, gone


def _two_alike(
    parts: Sequence[Part], first: Member, second: Member, what: str, file: TasksFile, where: str
) -> InputError | UsageError:
    own = [f"{item.own} of {parts[item.part].name}" for item in (first, second)]
    got = f"{' and '.join(own)}, both {first.task.name!r}" if what == "name" else " and ".join(own)
    if what == "name" and (first.is_renamed or second.is_renamed):
        hint = "write names for rename that differ, or duplicates: first"
        return UsageError("a new name is that of another task", where=f"{file.where}, rename", got=got, hint=hint)
    left_out = f"{{match: {second.own!r}, from: {parts[second.part].name}, why: …}}"
    return InputError(
        f"two tasks have the same {what}",
        where=where,
        got=got,
        expected="each task once",
        hint=f"give tasks=<file> with duplicates: first, or exclude: [{left_out}]",
    )
