"""The chats beside tokenized rows: shown below them, and rendered to compare prompts with a server's ids."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pairmill import storage
from pairmill.chats.account import TemplateFailed
from pairmill.chats.encode import ChatEncoder
from pairmill.chats.render import WHOLE, Chat, PrefixMismatch, render
from pairmill.chats.server import TokenizingServer
from pairmill.chats.template import ChatTemplate
from pairmill.engine.inputs import HELD_OUT
from pairmill.errors import InputError
from pairmill.formats.beside_rows import chats_of, row_folders
from pairmill.show.config import ShowConfig
from pairmill.show.lines import HEAD, Decoder, Line, line
from pairmill.show.tokenized import TokenizedRows, TokenRow

_COMPARED: Final = 20


class Chats:
    """The chats of the rows of a tokenized folder."""

    def __init__(self, folder: TokenizedRows, decoder: Decoder, config: ShowConfig) -> None:
        self._folder, self._uri, self._decoder = folder, folder.result.uri, decoder
        template = folder.template
        self._template = ChatTemplate.from_data(template, "the chat template of the folder") if template else None
        self._rows = [storage.normalise(each, "rows") for each in config.rows] or list(
            row_folders(self._uri, folder.result.inputs)
        )

    def describe(self, row: TokenRow) -> Iterator[Line]:
        """Yield the messages and tools of a row, if it is of a chat."""
        chat = next(self._read(row.task, [row.ordinal]), None)
        if chat is not None:
            yield line("messages", HEAD)
            yield from describe_chat(chat)

    def _read(self, task: str, ordinals: Sequence[int]) -> Iterator[Chat | None]:
        """Yield the chats of rows of a task, ordinals ascending; None of a pair, nothing of a task of pairs."""
        for text in chats_of(self._rows, task, ordinals):
            yield Chat.from_json(text) if text is not None else None

    def check(self, config: ShowConfig) -> str:
        """Compare the ids of prompts with a server's; return what was compared.

        Raises:
            InputError: ids differ, or no row was rendered by a template.
        """
        if self._template is None:
            raise InputError(
                "no row of the folder is rendered by a chat template",
                where=f"tokenized={self._uri}",
                hint="write template: in the YAML file of the source, or give tokenize template=",
            )
        server = TokenizingServer(config.check_server, config.model)
        encoder = ChatEncoder(self._decoder.text, self._uri, self._template)
        equal = shortened = 0
        rendered = set[str]()
        for row, chat in self._drawn(config.n or _COMPARED):
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
                where=f"tokenized={self._uri}",
                got=f"{shortened} rows that are windows of their chats" if shortened else "no rows with chats",
                hint="name the folder of the rows with rows=",
            )
        more = f"; {shortened} rows that are windows of their chats were not compared" if shortened else ""
        return f"{equal} prompts have the server's ids, of {' and '.join(sorted(rendered))}{more}"

    def _drawn(self, most: int) -> Iterator[tuple[TokenRow, Chat]]:
        """Yield rows with chats, from all tasks, evenly spread in each."""
        names = [name for name in self._folder.result.tasks if not name.startswith(HELD_OUT)]
        each = -(-most // len(names))
        left = most
        for name in names:
            count, known = len(self._folder.result.tokens(name)), self._folder.result.ordinals(name)
            places = sorted({at * count // each for at in range(each)})[:left] if count else []
            ordinals = [place if known is None else int(known[place]) for place in places]
            ordinals = sorted(set(ordinals))
            for row, chat in zip(self._folder.read(name, ordinals), self._read(name, ordinals), strict=False):
                if chat is not None:
                    yield row, chat
                    left -= 1
            if left <= 0:
                return

    def _differ(self, row: TokenRow, got: Sequence[int]) -> InputError:
        pairs = zip(got, row.prompt, strict=False)
        first = next((at for at, (theirs, ours) in enumerate(pairs) if theirs != ours), min(len(got), len(row.prompt)))
        return InputError(
            f"the server makes other ids of a prompt, from token {first} on",
            where=f"{row.task}:{row.ordinal}",
            got=f"{list(got[first : first + 8])} {self._decoder.decode(got[first : first + 8])!r}",
            expected=f"{row.prompt[first : first + 8]} {self._decoder.decode(row.prompt[first : first + 8])!r}",
            hint="serve the model with the template and the tokenizer of this folder",
        )


def describe_chat(chat: Chat) -> Iterator[Line]:
    """Yield a line for each message and each declaration of a tool."""
    for message in chat.messages:
        yield line(f"  {_described(message)}")
    for tool in chat.tools or ():
        yield line(f"  tools: {_compact(tool)}")


def _described(message: dict[str, Any]) -> str:
    """Return a message as lines."""
    more = {key: value for key, value in message.items() if key not in ("role", "content") and value}
    return f"{message['role']}: {message.get('content') or ''}" + (f" {_compact(more)}" if more else "")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
