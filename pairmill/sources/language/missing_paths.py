"""Finds paths of a description that no record has, because they are misspelt.

Each shard records what it saw of each path. When all shards are done, a path that none of them saw is an error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pairmill.errors import InputError, nearest_name
from pairmill.sources.language.paths import MISSING, First, Path, Step

# Of a record that maps ids to values the names have no end.
_NAMES = 64
_LONGEST_NAME = 80
_SHOWN = 20


class Watched(NamedTuple):
    """A path that some record has to have.

    Args:
        place: where it is written, for messages.
        below: paths above it that are asked for with ``has``: it is missed only in records that have one of them.
    """

    path: Path
    place: str
    below: tuple[Path, ...] = ()

    def awaited_in(self, record: dict[str, Any]) -> bool:
        """Return whether the record is one that should have it."""
        return not self.below or any(path.find(record) not in (None, MISSING) for path in self.below)


@dataclass
class _Missed:
    """A path that no record had so far, and what the records had instead at the deepest place that it reached."""

    watched: Watched
    missed: bool = False
    depth: int = 0
    names: dict[str, None] = field(default_factory=dict)
    found: str = ""

    def found_in(self, record: dict[str, Any]) -> bool:
        depth, value = self.watched.path.reach(record)
        steps = self.watched.path.steps
        if depth == len(steps):
            return True
        if self.watched.awaited_in(record):
            self.missed = True
            if depth > self.depth:
                self.depth, self.names = depth, {}
            if depth == self.depth:
                self.found = kind_of(value)
                for name in names_at(value, steps[depth]):
                    if len(self.names) >= _NAMES:
                        break
                    self.names[name[:_LONGEST_NAME]] = None
        return False


class Watch:
    """Looks at the records of a shard.

    Args:
        watched: paths that some record of the source has to have.
    """

    def __init__(self, watched: Sequence[Watched]) -> None:
        self.open = [_Missed(item) for item in watched]
        """What no record had so far; for most sources empty after the first record."""

    def look(self, record: Any) -> None:
        """Look for the paths that no record had so far."""
        if isinstance(record, dict):
            self.open[:] = [item for item in self.open if not item.found_in(record)]

    def missed(self) -> dict[str, dict[str, Any] | None]:
        """Return the paths that no record had, and what it had instead; None if no record should have had it."""
        return {
            item.watched.path.text: {"depth": item.depth, "names": list(item.names), "found": item.found}
            if item.missed
            else None
            for item in self.open
        }


def refuse_missed(
    source: str, watched: Iterable[Watched], shards: Sequence[dict[str, dict[str, Any] | None]], records: int
) -> None:
    """Raise InputError for paths that no record of a source had.

    Args:
        source: name of the source.
        watched: its paths.
        shards: what :meth:`Watch.missed` said of each shard.
        records: how many records they have together.
    """
    wrong = []
    for item in watched:
        seen = [shard[item.path.text] for shard in shards if item.path.text in shard]
        missed = [what for what in seen if what is not None]
        if missed and len(seen) == len(shards):
            wrong.append((item, missed))
    if not wrong:
        return
    (first, missed), *others = wrong
    path = first.path
    depth = max(what["depth"] for what in missed)
    deepest = [what for what in missed if what["depth"] == depth]
    names = list(dict.fromkeys(name for what in deepest for name in what["names"]))
    hints = []
    near = nearest(path, depth, names)
    if near is not None:
        hints.append(f"did you mean {near.text!r}?")
    if others:
        hints.append("nor has any " + ", nor ".join(f"{item.path.text!r} ({item.place})" for item, _ in others))
    above = path.up_to(depth)
    there = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
    raise InputError(
        f"no record of {source} has {path.text!r}",
        where=first.place,
        got=(there or deepest[0]["found"]) + (f" at {above}" if above else ""),
        expected=f"a path that one of the {records} records has, or has(…) in where: around one that may be absent",
        hint="; ".join(hints),
    )


def nearest(path: Path, depth: int, names: Iterable[str]) -> Path | None:
    """Return the path with the name that is spelled most like the one at ``depth``, if one is."""
    step = path.steps[depth]
    wanted = step.value if isinstance(step, First) else step
    if isinstance(wanted, int):
        return None
    name = nearest_name(wanted, names)
    if name is None:
        return None
    return path.instead(depth, step._replace(value=name) if isinstance(step, First) else name)


def names_at(value: Any, step: Step) -> list[str]:
    """Return the names that a step could have: the fields of an object, or the texts under the step's key in a list."""
    if isinstance(step, str):
        return [name for name in value if isinstance(name, str)] if isinstance(value, dict) else []
    if isinstance(step, First) and isinstance(value, list):
        values = (item.get(step.key) for item in value if isinstance(item, dict))
        return list(dict.fromkeys(text for text in values if isinstance(text, str)))
    return []


def kind_of(value: Any) -> str:
    """Return what a value is, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return f"a list of {len(value)}"
        case dict():
            return "an object with " + (
                ", ".join(str(name)[:_LONGEST_NAME] for name in list(value)[:_SHOWN]) or "nothing"
            )
    return f"a value of type {type(value).__name__}"
