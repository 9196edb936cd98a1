"""Tokenized rows as a model sees them, beside the messages that they were made of."""

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from pairmill import storage
from pairmill.engine.inputs import HELD_OUT
from pairmill.errors import InputError
from pairmill.formats.chat_digests import KEY
from pairmill.formats.opened import OpenResult
from pairmill.formats.tokenizer_file import NAME
from pairmill.formats.window_files import FOLDER as WINDOWS
from pairmill.show.config import ShowConfig, Wanted
from pairmill.show.lines import HEAD, Decoder, Line, decoder_for, line, token_lines

_FIRST: Final = 3


class TokenRow(NamedTuple):
    """A row of a task, with its place in the row file."""

    task: str
    ordinal: int
    prompt: list[int]
    response: list[int]


def show(result: OpenResult, config: ShowConfig) -> Iterator[Line]:
    """Yield the rows that are asked for, or the first ones; with ``check_server`` what was compared.

    Raises:
        InputError: no tokenizer, or no such row; or the server makes other ids.
        UsageError: no such task.
    """
    folder = TokenizedRows(result, config)
    if config.check_server:
        yield line(folder.chats().check(config))
        return
    wanted = [Wanted.parse(name) for name in config.row] or folder.first(config.n or _FIRST, config.task)
    for each in wanted:
        yield from folder.describe(folder.find(each))
        yield []


class TokenizedRows:
    """A tokenized folder, its tokenizer, and the chats beside the rows that it was made of."""

    def __init__(self, result: OpenResult, config: ShowConfig) -> None:
        self.result, self._config = result, config
        uri = storage.join(result.uri, NAME)
        has = not config.tokenizer and storage.store_for(uri).exists(uri)
        self.decoder = Decoder(uri) if has else decoder_for(config.tokenizer, result.info())
        self.template = result.info().get(KEY)

    def chats(self) -> Any:
        """Return the chats beside the rows; what renders and reads them is imported for rendered rows alone.

        Raises:
            InputError: the folder lacks its tokenizer.
        """
        if self.decoder is None:
            where = storage.join(self.result.uri, NAME)
            raise InputError("a tokenized folder without its tokenizer", where=where, hint="tokenize the rows again")
        return importlib.import_module("pairmill.show.chats").Chats(self, self.decoder, self._config)

    def first(self, count: int, task: str) -> list[Wanted]:
        """Return the first rows: of a task, or one each of the first tasks, found without the manifest."""
        if task:
            known = self.result.ordinals(task)
            return [Wanted(task, place if known is None else int(known[place])) for place in range(count)]
        result: list[Wanted] = []
        for name in self.result.first_tasks():
            if name.startswith((HELD_OUT, f"{WINDOWS}/")) or not len(self.result.tokens(name)):
                continue
            known = self.result.ordinals(name)
            result.append(Wanted(name, 0 if known is None else int(known[0])))
            if len(result) == count:
                break
        return result

    def find(self, wanted: Wanted) -> TokenRow:
        """Return the row of a name."""
        result = next(self.read(wanted.task, [wanted.number]), None)
        if result is None:
            count = len(self.result.tokens(wanted.task))
            raise InputError(
                "no such row",
                where="row",
                got=f"{wanted.task}:{wanted.number}",
                expected=f"one of the {count:,} rows that have tokens",
            )
        return result

    def read(self, task: str, ordinals: Sequence[int]) -> Iterator[TokenRow]:
        """Yield some rows of a task, by their ordinals in the row file, ascending."""
        task = self.result.task(task)
        rows, known = self.result.tokens(task), self.result.ordinals(task)
        for ordinal in ordinals:
            place = ordinal if known is None else int(np.searchsorted(known, ordinal))
            if place < len(rows) and (known is None or int(known[place]) == ordinal):
                prompt, response = rows[place]
                yield TokenRow(task, ordinal, prompt.tolist(), response.tolist())

    def describe(self, row: TokenRow) -> Iterator[Line]:
        """Yield the lines of a row."""
        counts = f"{len(row.prompt):,} tokens of prompt and {len(row.response):,} of response"
        yield line(f"{row.task}:{row.ordinal}, {counts}", HEAD)
        yield from token_lines(self.decoder, row.prompt, row.response, table=self._config.ids)
        if self.template is not None and self.decoder is not None:
            yield from self.chats().describe(row)
