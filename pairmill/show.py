"""``pairmill show tokenized=<folder> row=<task>:<n>``: rows as a model sees them, beside the messages.

With ``check_server=<url>`` the ids of prompts are compared with those that a server makes of the same messages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pairmill import storage
from pairmill.chats.encode import ChatEncoder
from pairmill.chats.render import WHOLE, Chat, PrefixMismatch, render
from pairmill.chats.server import TokenizingServer
from pairmill.chats.template import ChatTemplate, TemplateFailed
from pairmill.engine import manifest as manifests
from pairmill.engine.options import option
from pairmill.errors import InputError, UsageError, did_you_mean
from pairmill.formats import attributes, tokens
from pairmill.formats.chat_digests import KEY
from pairmill.formats.parquet_reader import open_parquet
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.formats.tokenizer_file import NAME
from pairmill.interface import cli
from pairmill.lineage import steps
from pairmill.redact import escaped_json
from pairmill.report.markdown import VISIBLE

_BEFORE: Final = ("select", "curate", "clean")
"""Stages whose rows tokenize reads, the last first."""


@dataclass(kw_only=True)
class ShowConfig:
    """Print rows as a model sees them, with visible control tokens, beside the messages that they were made of."""

    tokenized: str = option("", help="folder that tokenize finished; empty = the only one below root")
    root: str = option("", help="project folder or URI, in place of tokenized")
    row: list[str] = option([], help="<task>:<n>, n from 0 as in the row file; several joined by commas")
    rows: list[str] = option(
        [], help="folders of the rows, if they are not below the root that the tokenized folder is below"
    )
    check_server: str = option("", help="URL of a server, to compare the ids of prompts with those that it makes")
    model: str = option("", help="name of the model on the server; empty = its only one", needs="check_server")
    n: int = option(20, help="with check_server: how many rows are compared, from all tasks", at_least=1)


class _Row(NamedTuple):
    task: str
    ordinal: int
    prompt: list[int]
    response: list[int]


def run(config: ShowConfig) -> str:
    """Return the text for the terminal.

    Raises:
        InputError: no such folder, task or row, or the server makes other ids.
        UsageError: neither ``row`` nor ``check_server`` is given.
    """
    if not config.row and not config.check_server:
        raise UsageError("nothing to show", where="row", expected="row=<task>:<n>, or check_server=<url>")
    folder = _Folder(config)
    shown = [folder.describe(folder.find(name)) for name in config.row]
    if config.check_server:
        shown.append(folder.check(TokenizingServer(config.check_server, config.model), config.n))
    return "\n".join(shown)


class _Folder:
    """A tokenized folder, its tokenizer, and the chats beside the rows that it was made of."""

    def __init__(self, config: ShowConfig) -> None:
        given = config.tokenized or _only_one_below(config.root)
        self._folder = open_tokenized(given, "tokenized", tolerate_strays=True)
        self._tasks = {task.name: task for task in self._folder.tasks}
        uri = storage.join(self._folder.uri, NAME)
        if not storage.store_for(uri).exists(uri):
            raise InputError("a tokenized folder without its tokenizer", where=uri, hint="tokenize the rows again")
        self._text = storage.store_for(uri).read(uri).decode()
        self._tokenizer = Tokenizer.from_str(self._text)
        added = self._tokenizer.get_added_tokens_decoder().items()
        self._control = {number: token.content for number, token in added if token.special}
        described = self._folder.info.get(KEY)
        self._template = ChatTemplate.from_data(described, "the chat template of the folder") if described else None
        self._rows = [storage.normalise(each, "rows") for each in config.rows] or list(self._find_rows())

    def _find_rows(self) -> Iterator[str]:
        """Yield the folders of rows below the root that the folder is below."""
        manifest = manifests.read(self._folder.uri)
        root = storage.parent_of(storage.parent_of(self._folder.uri))
        for ref in manifest.inputs if manifest else ():
            for stage in _BEFORE:
                uri = storage.join(root, stage, ref.fingerprint)
                if ref.role == "rows" and storage.store_for(uri).exists(storage.join(uri, manifests.MANIFEST)):
                    yield uri
                    break

    def find(self, name: str) -> _Row:
        """Return the row of a name."""
        task, separator, number = name.rpartition(":")
        if not separator or not number.isdecimal():
            raise UsageError("not a row", where="row", got=repr(name), expected="<task>:<n>, as in flan:17")
        if task not in self._tasks and (same := [each for each in self._tasks if each.rpartition(".")[0] == task]):
            task = same[0]
        if task not in self._tasks:
            names = sorted(self._tasks)
            raise InputError(
                "no such task",
                where="row",
                got=task,
                expected=", ".join(names[:10]),
                hint=did_you_mean(task, names[:1000]),
            )
        result = next(self._read(task, [int(number)]), None)
        if result is None:
            raise InputError(
                "no such row", where="row", got=name, expected=f"one of the {self._count(task):,} rows that have tokens"
            )
        return result

    def _count(self, task: str) -> int:
        return self._tasks[task].array("inst_len").length

    def _read(self, task: str, ordinals: Sequence[int]) -> Iterator[_Row]:
        """Yield some rows of a task, by their ordinals in the row file, ascending."""
        dataset = self._tasks[task]
        known = dataset.ordinals()
        places = np.array(ordinals, np.int64)
        if known is not None:
            places = np.searchsorted(known, places)
        elif len(places):
            places = places[places < self._count(task)]
        index = {name: _values(dataset.array(name)) for name in tokens.INDEX}
        array = dataset.array()
        for place in places.tolist():
            if place >= len(index["inst_len"]) or (known is not None and int(known[place]) not in ordinals):
                continue
            spans = [
                _slice(array, int(index[f"{part}_start"][place]), int(index[f"{part}_len"][place]))
                for part in ("inst", "resp")
            ]
            yield _Row(task, place if known is None else int(known[place]), *spans)

    def describe(self, row: _Row) -> str:
        """Return the text of a row."""
        lines = [
            f"{row.task}:{row.ordinal}, {len(row.prompt):,} tokens of prompt and {len(row.response):,} of response",
            f"prompt\n{self._visible(row.prompt)}",
            f"target\n{self._visible(row.response)}",
        ]
        chat = next(self._chats(row.task, [row.ordinal]), None)
        if chat is not None:
            lines.append("messages")
            lines += [f"  {_described(message)}" for message in chat.messages]
            lines += [f"  tools: {_compact(tool)}" for tool in chat.tools or ()]
        return escaped_json("\n".join(lines).translate(VISIBLE)) + "\n"

    def _visible(self, ids: Sequence[int]) -> str:
        """Return ids as text, with control tokens in double brackets: a text that spells one has none."""
        parts: list[str] = []
        for is_control, run in groupby(ids, self._control.__contains__):
            if is_control:
                parts += [f"⟦{self._control[number]}⟧" for number in run]
            else:
                parts.append(self._tokenizer.decode(list(run), skip_special_tokens=False))
        return "".join(parts)

    def _chats(self, task: str, ordinals: Sequence[int]) -> Iterator[Chat]:
        """Yield the chats of rows of a task, ordinals ascending; none of rows that are pairs."""
        for folder in self._rows:
            uri = storage.join(folder, *attributes.path_of(task).split("/"))
            if not storage.store_for(uri).exists(uri):
                continue
            with open_parquet(uri) as file:
                if "chat" not in file.schema_arrow.names:
                    return
                wanted, start = list(ordinals), 0
                for group in range(file.metadata.num_row_groups):
                    size = file.metadata.row_group(group).num_rows
                    mine = [number - start for number in wanted if start <= number < start + size]
                    if mine:
                        column = file.read_row_group(group, columns=["chat"]).column(0)
                        yield from (Chat.from_json(column[place].as_py()) for place in mine)
                    start += size
                return

    def check(self, server: TokenizingServer, most: int) -> str:
        """Compare the ids of prompts with a server's; return what was compared.

        Raises:
            InputError: ids differ, or no row was rendered by a template.
        """
        if self._template is None:
            raise InputError(
                "no row of the folder is rendered by a chat template",
                where=f"tokenized={self._folder.uri}",
                hint="write template: in the YAML file of the source, or give tokenize template=",
            )
        encoder = ChatEncoder(self._text, self._folder.uri, self._template)
        equal = shortened = 0
        rendered = set[str]()
        for row, chat in self._drawn(most):
            try:
                prompt, rest = render(self._template, chat)
            except (PrefixMismatch, TemplateFailed):
                shortened += 1
                continue
            (whole,) = encoder.encode([prompt], [rest], [chat.to_json()], WHOLE, 1)
            if isinstance(whole, str) or whole.ids[: whole.prompt].tolist() != row.prompt:
                shortened += 1  # the row is a window of its chat
                continue
            got, what = server.ids(chat.messages[:-1], chat.tools or [], self._template.variables, prompt)
            if got != row.prompt:
                raise self._differ(row, got)
            equal += 1
            rendered.add(what)
        if not equal:
            raise InputError(
                "no row could be compared",
                where=f"tokenized={self._folder.uri}",
                got=f"{shortened} rows that are windows of their chats" if shortened else "no rows with chats",
                hint="name the folder of the rows with rows=",
            )
        more = f"; {shortened} rows that are windows of their chats were not compared" if shortened else ""
        return f"{equal} prompts have the server's ids, of {' and '.join(sorted(rendered))}{more}\n"

    def _drawn(self, most: int) -> Iterator[tuple[_Row, Chat]]:
        """Yield rows with chats, from all tasks, evenly spread in each."""
        names = sorted(self._tasks)
        each = -(-most // len(names))
        left = most
        for name in names:
            count = self._count(name)
            known = self._tasks[name].ordinals()
            places = sorted({at * count // each for at in range(each)})[:left] if count else []
            ordinals = [place if known is None else int(known[place]) for place in places]
            ordinals = sorted(set(ordinals))
            chats = list(self._chats(name, ordinals))
            if chats:
                yield from zip(self._read(name, ordinals), chats, strict=True)
                left -= len(chats)
            if left <= 0:
                return

    def _differ(self, row: _Row, got: Sequence[int]) -> InputError:
        pairs = zip(got, row.prompt, strict=False)
        first = next((at for at, (theirs, ours) in enumerate(pairs) if theirs != ours), min(len(got), len(row.prompt)))
        return InputError(
            f"the server makes other ids of a prompt, from token {first} on",
            where=f"{row.task}:{row.ordinal}",
            got=f"{list(got[first : first + 8])} {self._visible(got[first : first + 8])!r}",
            expected=f"{row.prompt[first : first + 8]} {self._visible(row.prompt[first : first + 8])!r}",
            hint="serve the model with the template and the tokenizer of this folder",
        )


def _only_one_below(root: str) -> str:
    """Return the one finished folder of tokenize below a root."""
    if not root:
        raise UsageError(
            "no folder to show rows of", where="tokenized", expected="tokenized=<folder>, or root=<project>"
        )
    uri = storage.normalise(root, "root")
    names = [step.manifest.fingerprint for step in steps.finished(uri, "tokenize")]
    if len(names) != 1:
        raise InputError(
            "several tokenized folders" if names else "no finished tokenized folder",
            where=storage.join(uri, "tokenize"),
            got=", ".join(names) or "none",
            expected="one",
            hint="name it with tokenized=" if names else "run pairmill tokenize first",
        )
    return storage.join(uri, "tokenize", names[0])


def _values(array: tokens.Array) -> NDArray[Any]:
    return np.concatenate([np.empty(0, array.dtype), *array.pieces()])


def _slice(array: tokens.Array, start: int, length: int) -> list[int]:
    """Read some values of an array."""
    with storage.store_for(array.uri).open(array.uri) as file:
        file.seek(array.offset + start * array.dtype.itemsize)
        values: list[int] = np.frombuffer(file.read(length * array.dtype.itemsize), array.dtype).tolist()
        return values


def _described(message: dict[str, Any]) -> str:
    """Return a message as lines."""
    more = {key: value for key, value in message.items() if key not in ("role", "content") and value}
    return f"{message['role']}: {message.get('content') or ''}" + (f" {_compact(more)}" if more else "")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def main(arguments: Sequence[str]) -> int:
    """Run the command; return the exit code."""

    def work() -> None:
        sys.stdout.write(run(cli.build(ShowConfig, cli.split(arguments))))

    return cli.program("show", ShowConfig, arguments, work)
