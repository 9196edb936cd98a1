"""Lines of styled text for a terminal, or plain for a pipe; and ids as text, with control tokens to be seen.

Data never reach a terminal raw: what it would obey is drawn as a picture of itself, or escaped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from tokenizers import Tokenizer

from pairmill import log, storage
from pairmill.errors import InputError
from pairmill.redact import escaped_json
from pairmill.report.markdown import VISIBLE

HEAD: Final = "bold"
SOFT: Final = "dim"
CONTROL: Final = "cyan"
TARGET: Final = "green"
PROMPT: Final = ""


class Part(NamedTuple):
    """A piece of a line; ``style`` is a colour or a weight as rich names it."""

    text: str
    style: str = ""


Line = Sequence[Part]


def visible(text: str) -> str:
    """Return a text without anything that a terminal would obey."""
    return escaped_json(text.translate(VISIBLE))


def line(text: str, style: str = "") -> Line:
    """Return a line of one style; its text is shown as it is visible."""
    return [Part(visible(text), style)]


def plain(lines: Iterable[Line]) -> str:
    """Return lines without their styles."""
    return "".join("".join(part.text for part in each) + "\n" for each in lines)


def write(lines: Iterable[Line]) -> None:
    """Print lines as they are made: in colour on a terminal, unless ``NO_COLOR`` is set."""
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        log.terminal().write_styled(lines)
        return
    for each in lines:
        sys.stdout.write(plain([each]))


class Decoder:
    """Ids as text.

    Args:
        uri: of the tokenizer.json.

    Raises:
        InputError: it is not one.
    """

    def __init__(self, uri: str) -> None:
        self.text = storage.store_for(uri).read(uri).decode()
        try:
            self._tokenizer = Tokenizer.from_str(self.text)
            # As pairmill encodes rows: a text that spells a control token is a text.
            self._tokenizer.encode_special_tokens = True
        except Exception as error:  # the library raises no class of its own
            raise InputError("not a tokenizer.json", where=uri, got=str(error)[:200]) from error
        added = self._tokenizer.get_added_tokens_decoder().items()
        self._control = {number: token.content for number, token in added if token.special}

    def parts(self, ids: Sequence[int], style: str = PROMPT) -> Iterator[Part]:
        """Yield ids as text, control tokens in double brackets: a text that only spells one has none."""
        for is_control, run in groupby(ids, self._control.__contains__):
            if is_control:
                yield from (Part(f"⟦{visible(self._control[number])}⟧", CONTROL) for number in run)
            else:
                yield Part(visible(self._tokenizer.decode(list(run), skip_special_tokens=False)), style)

    def decode(self, ids: Sequence[int]) -> str:
        """Return ids as one text, with control tokens in double brackets."""
        return "".join(part.text for part in self.parts(ids))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without any that the tokenizer would add."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def token(self, number: int) -> str:
        """Return one id as text; of a part of a character the symbol that the vocabulary has."""
        text = self.decode([number])
        return text if "\ufffd" not in text else visible(self._tokenizer.id_to_token(number) or "?")

    def table(self, prompt: Sequence[int], response: Sequence[int]) -> Iterator[Line]:
        """Yield a line for each id: place, id, ``▮`` where it is learned, and its text."""
        for place, number in enumerate([*prompt, *response]):
            learned = place >= len(prompt)
            mark = "▮" if learned else "·"
            text = self.token(number).replace("\n", "␊").replace("\t", "␉")
            yield [
                Part(f"  {place:>6} {number:>8} ", SOFT),
                Part(f"{mark} {text}", CONTROL if number in self._control else TARGET if learned else PROMPT),
            ]
