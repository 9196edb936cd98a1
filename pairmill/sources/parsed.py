"""What a reader gives for a record, and what a source's ``parse`` returns for it."""

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pairmill.formats.row import Row

Record = tuple[int | str, Any]
"""The place of a record in its file (0-based row or line, or the name of an archive's member), and the record."""


@dataclass(frozen=True)
class Drop:
    """A record that gives no row. ``reason`` is a short snake_case name under which it is counted."""

    reason: str


@dataclass(frozen=True)
class Malformed(Drop):
    """A record that breaks its source's promise: it is put aside under ``rejects/``, and too many fail the stage.

    Args:
        reason: as above.
        weight: how many records it counts as when malformed records are too many. 0: the published data set is known
            to contain such records. More than 1: others may be wrong too, without showing it.
        mendable: whether ``json: lenient`` may read it.
    """

    weight: int = 1
    mendable: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class WrongAttribute(Malformed):
    """A record with an attribute of another type than its declaration says.

    Args:
        value: what was found.
    """

    name: str = ""
    value: Any = None


class MalformedRecord(Exception):
    """Raised within ``parse`` for a malformed record, instead of returning :class:`Malformed`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.why = Malformed(reason)


TOO_LONG = Malformed("record_too_long", 0)
"""What readers give for a record of more than ``max_record_bytes`` where such records are put aside, as was asked."""
CHOSEN_AS_ANSWER = "chosen_as_answer"
ANSWER_LINE = "answer: {path: ground_truth, template: '\\boxed{{answer}}'}"
USE_LINES = (ANSWER_LINE, "use: prompts", f"use: pairs (or pairs: {CHOSEN_AS_ANSWER})")
"""What a YAML file says of records that are prompts or pairs."""
WITHHELD = "withheld_split"
"""The reason under which records of splits that are not trained on are counted."""


class Note(NamedTuple):
    """Something that happened to a record that is kept, counted beside its rows."""

    what: str
    times: int


FURTHER_TURNS = "further_turns"
"""The note for a conversation: its turns (a request and its answer) after the one that makes the row."""


ANSWERS = "answers"
"""The note of every chat, kept or not: how many answers it has. Each of them is a row or a drop beside it."""


class ChatCounts(NamedTuple):
    """What a chat adds to the sums of its source.

    Args:
        calls: rows whose answer calls a tool.
        ended: the reason why the chat ends early; empty = it does not.
        tools: how often each tool is called in it.
        prompts: characters of the instructions of its rows.
        repeated: those of them that another row of the chat has too: all but the longest instruction's.
        responses: characters of the responses.
    """

    calls: int
    ended: str
    tools: Mapping[str, int]
    prompts: int
    repeated: int
    responses: int


class Finding(NamedTuple):
    """What a person is told about a malformed record.

    Args:
        found: what was there instead; empty = nothing that can be shown.
        write: the line of the source's description that takes such records, or leaves them out; empty = none does.
    """

    found: str
    write: str = ""


class Labelled(NamedTuple):
    """A row, and the label of the output that it belongs to, if a unit has one output per label."""

    label: str
    row: Row


Part = Row | Labelled | Drop | Note | ChatCounts
Parsed = Row | Labelled | Drop | Sequence[Part]
"""What ``parse`` returns. The rows of a sequence are written. A drop or a note beside a row is noted; drops alone drop
the record."""


# A union that is written in a function is made anew at each call.
_ALONE = (Row, Labelled, Drop)


def parts_of(parsed: Parsed) -> Sequence[Part]:
    """Return what ``parse`` returned, as a sequence."""
    return [parsed] if isinstance(parsed, _ALONE) else parsed


_SHOWN = 120
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxdict, _BRIEF.maxlist, _BRIEF.maxstring = 3, 8, 4, _SHOWN // 2


def shown(value: Any) -> str:
    """Return the beginning of a value as Python writes it, without writing out a long one."""
    text = _BRIEF.repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def writable(text: str) -> str:
    """Text with escapes for what is not Unicode."""
    return text.encode("utf-8", "backslashreplace").decode()
