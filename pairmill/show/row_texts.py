"""Rows as they are in their files: every column, and chats message by message."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from pairmill.chats.render import Chat
from pairmill.errors import InputError
from pairmill.formats.opened import OpenResult
from pairmill.formats.row_batches import read_batches
from pairmill.show.chats import describe_chat
from pairmill.show.config import ShowConfig, Wanted
from pairmill.show.lines import HEAD, SOFT, TARGET, Line, Part, line, visible

_FIRST: Final = 3
_LAST: Final = ("instruction", "response")
"""Columns that are shown below the others."""


def show(result: OpenResult, config: ShowConfig) -> Iterator[Line]:
    """Yield the rows that are asked for, or the first of the first tasks.

    Raises:
        InputError: a file is damaged, or has no such row.
        UsageError: no such task.
    """
    count = config.n or _FIRST
    if config.row:
        wanted = [Wanted.parse(name) for name in config.row]
    elif config.task:
        wanted = [Wanted(config.task, number) for number in range(count)]
    else:
        wanted = [Wanted(name, 0) for name in islice(result.tasks, count)]
    for task, number in wanted:
        name = result.row_file(task)
        record = _find(result.files[name], number)
        if record is None and not config.row:
            return
        if record is None:
            raise InputError("no such row", where="row", got=f"{name}:{number}", expected="fewer, counted from 0")
        yield from _describe(f"{name}:{number}", record)
        yield []


def _find(uri: str, number: int) -> dict[str, Any] | None:
    for first, batch in read_batches(uri, number):
        if number < first + len(batch):
            record: dict[str, Any] = batch.slice(number - first, 1).to_pylist()[0]
            return record
    return None


def _describe(name: str, record: dict[str, Any]) -> Iterator[Line]:
    yield line(name, HEAD)
    for column, value in record.items():
        if column not in (*_LAST, "chat"):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            yield [Part(f"{visible(column)}  ", SOFT), Part(visible(text))]
    for column in _LAST:
        if column in record:
            yield line(column, HEAD)
            yield (
                line("(null)", SOFT)
                if record[column] is None
                else line(record[column], TARGET if column == "response" else "")
            )
    if record.get("chat"):
        yield line("messages", HEAD)
        yield from describe_chat(Chat.from_json(record["chat"]))
