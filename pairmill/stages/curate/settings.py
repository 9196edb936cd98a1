"""``configs/curate_config.yaml``: what the operations do, and for which tasks they do something else.

Each operation's settings are a dataclass in its own room; here they are put together, read and applied to tasks.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass, replace
from functools import cache, cached_property
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

from pairmill import storage
from pairmill.errors import UsageError, did_you_mean
from pairmill.fields import setting
from pairmill.formats.settings_file import FileSettings, Part, SettingsFile, render, to_json
from pairmill.leaks.settings import Decontaminate
from pairmill.rules.match import KEYS, Matcher, Selector
from pairmill.rules.settings import TaskNames
from pairmill.stages.curate import operations
from pairmill.stages.curate.exact_settings import ExactSettings
from pairmill.stages.curate.filters import FilterSettings
from pairmill.stages.curate.near.settings import NearSettings
from pairmill.stages.curate.operation import Operation

_HEAD: Final = (
    "mode: drop removes rows, report only counts and shows them, off does not look. A rule's name is in decisions, "
    "in the report and in the ledger. Which operation looks first: {order}. The first that drops a row owns it."
)
_OVERRIDES: Final = (
    "items {prefix: web, near: report, heuristics: {…}}, or match: a glob or several, or re:, and not:; the first that "
    "matches a task counts"
)
Prefer: TypeAlias = Literal["rank", "longest_response"]


@dataclass(frozen=True)
class Override:
    """What is different for the tasks ``who``: settings of operations by name."""

    who: Selector
    changes: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class PreferredTasks(TaskNames, one_of=("prefixes", "match", "re")):
    """Tasks of which a row stays rather than its duplicates."""


class _ReadByRounds:
    """The operations whose settings the stage's rounds read by name; all others are known by the registry alone."""

    exact: ExactSettings
    near: NearSettings
    decontaminate: Decontaminate
    filter: FilterSettings
    overrides: list[Override]


@dataclass(frozen=True, kw_only=True)
class Settings(FileSettings, _ReadByRounds):
    """All of the file. Operations and overrides are fields of the subclass that :func:`settings_type` makes."""

    OPTION: ClassVar = "curate_config"

    source_priority: list[str | PreferredTasks] = setting(
        [],
        help="tasks, best first: the beginning of a name, or {match: a glob or several, not: …}; of duplicates the "
        "best stays",
    )
    prefer: Prefer = setting("rank", help="which duplicate stays: rank, or longest_response and then rank")
    same_condition_only: bool = setting(False, help="rows with different conditions are never duplicates")
    report_all: bool = setting(False, help="drop nothing, and let every operation look at every row")
    write_index: bool = setting(False, help="write index/ for the index= of a later run")

    def __post_init__(self) -> None:
        super().__post_init__()
        reserved = {*operations.names(), "source", "origin"}  # folders of attributes and decisions of their own
        for operation in operations.OPERATIONS:
            names = [name for name, _ in operation.parts(self.own(operation)) if name != operation.name]
            for at, name in enumerate(names):
                if name in reserved:
                    expected = f"a name that is not {', '.join(sorted(reserved))}"
                    raise UsageError("not a valid name", where=operation.name, got=repr(name), expected=expected)
                if name in names[:at]:
                    expected = "a distinct name for each"
                    raise UsageError(f"duplicate name {name!r}", where=operation.name, expected=expected)

    @classmethod
    def from_file(cls, file: SettingsFile) -> Self:
        """Read an open file; what overrides change is read onto what it says at the top."""
        plain: Any = file.onto(settings_type()(), leave=("overrides",))
        given = file.top.entries() if file.top is not None else {}
        completed = {
            operation.name: operation.complete(plain.own(operation), given.get(operation.name))
            for operation in operations.OPERATIONS
        }
        plain = replace(plain, **completed)
        overrides = [_override(part, plain) for part in file.items("overrides")]
        made: Self = replace(plain, overrides=overrides)
        return made

    @classmethod
    def default_file(cls) -> str:
        head = textwrap.fill(_HEAD.format(order=", ".join(operations.names())), 111)
        first = "What curation does: duplicates, leaks of benchmarks and poor rows are found, shown and removed."
        return render(settings_type()(), f"{first}\n{head}\nMade by: pairmill curate settings")

    @property
    def is_idle(self) -> bool:
        """Whether no operation looks at any task."""
        return all(
            operation.is_idle(item.own(operation)) for item in self.variants for operation in operations.OPERATIONS
        )

    def own(self, operation: Operation[Any]) -> Any:
        """Return an operation's part."""
        return getattr(self, operation.name)

    @cached_property
    def preferred(self) -> list[Selector]:
        """The tasks of ``source_priority``, best first."""
        named = (TaskNames(prefixes=[item]) if isinstance(item, str) else item for item in self.source_priority)
        return [item.selector or Selector() for item in named]

    def for_task(self, task: str) -> Settings:
        """Return the settings of a task: the first override that matches it is applied."""
        return self.variants[self.variant_of(task)]

    def variant_of(self, task: str) -> int:
        """Return the number of the variant that a task has: 0, or 1 and on for overrides."""
        return self._matcher.first(task.removeprefix("holdout/")) + 1

    @cached_property
    def _matcher(self) -> Matcher:
        return Matcher([item.who for item in self.overrides])

    @cached_property
    def variants(self) -> list[Settings]:
        """List the settings without overrides, and those with each of them applied."""
        every: Any = self
        plain = replace(every, overrides=[])
        return [plain, *(replace(plain, **item.changes) for item in self.overrides)]

    def to_manifest(self) -> dict[str, Any]:
        """Return all settings, JSON-like: of places only the last part, because a place is not content."""
        result: dict[str, Any] = to_json(self)
        result["overrides"] = [{**item.who.to_manifest(), **to_json(item.changes)} for item in self.overrides]
        return {name: _without_places(value) for name, value in result.items()}

    def __reduce__(self) -> Any:
        return _restore, ({item.name: getattr(self, item.name) for item in fields(self)},)


def _restore(values: Mapping[str, Any]) -> Settings:
    """Make settings in another process, which makes their class too."""
    return settings_type()(**values)


def settings_type() -> type[Settings]:
    """Return the class of settings that has a field for each operation of the registry."""
    return _settings_type(operations.OPERATIONS)


@cache
def _settings_type(known: tuple[Operation[Any], ...]) -> type[Settings]:
    added: list[tuple[str, Any, Any]] = [
        (operation.name, operation.field_type(), setting(operation.default, help=operation.help)) for operation in known
    ]
    added.append(("overrides", list[Override], setting([], help=_OVERRIDES)))
    return make_dataclass("Settings", added, bases=(Settings,), frozen=True, kw_only=True)


def _override(part: Part, plain: Settings) -> Override:
    entries = part.entries()
    who = Selector.parse({key: entries.pop(key).plain() for key in [*entries] if key in KEYS}, part.where)
    changes: dict[str, Any] = {}
    known = {operation.name: operation for operation in operations.OPERATIONS}
    for key, item in entries.items():
        operation = known.get(key)
        if operation is None:
            raise UsageError(
                f"unknown key {key!r}",
                where=item.where,
                expected=f"{', '.join((*KEYS, *known))}",
                hint=did_you_mean(key, known),
            )
        changes[key] = operation.override(plain.own(operation), item)
    return Override(who, changes)


_PLACES: Final = ("uri", "model", "tokenizer")


def _without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: storage.name_of(item) if key in _PLACES and isinstance(item, str) and item else _without_places(item)
            for key, item in value.items()
        }
    return [_without_places(item) for item in value] if isinstance(value, list) else value
