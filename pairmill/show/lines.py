"""Lines of styled text for a terminal, or plain for a pipe; and ids as text, with control tokens to be seen.

Data never reach a terminal raw: what it would obey is drawn as a picture of itself, or escaped.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pairmill import log, storage
from pairmill.formats.characters import TokenTexts
from pairmill.formats.tokenizer_file import locate
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
    if log.draws() and (sys.stdout.isatty() or os.environ.get("FORCE_COLOR")):
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
        self._data = storage.store_for(uri).read(uri)
        self._uri = uri
        self._texts = TokenTexts(self._data, uri)

    @property
    def text(self) -> str:
        """The tokenizer.json."""
        return self._data.decode()

    def parts(self, ids: Iterable[int], style: str = PROMPT) -> Iterator[Part]:
        """Yield ids as text, control tokens in double brackets: a text that only spells one has none."""
        for text, is_control in self._texts.parts(ids):
            yield Part(f"⟦{visible(text)}⟧", CONTROL) if is_control else Part(visible(text), style)

    def decode(self, ids: Sequence[int]) -> str:
        """Return ids as one text, with control tokens in double brackets."""
        return "".join(part.text for part in self.parts(ids))

    def token(self, number: int) -> str:
        """Return one id as text; bytes that are no character by themselves are escaped."""
        if number in self._texts.control:
            return f"⟦{visible(self._texts.control[number])}⟧"
        return visible(self._texts.bytes_of(number).decode(errors="backslashreplace"))

    def table(self, prompt: Sequence[int], response: Sequence[int]) -> Iterator[Line]:
        """Yield a line for each id: place, id, ``▮`` where it is learned, and its text."""
        for place, number in enumerate([*prompt, *response]):
            learned = place >= len(prompt)
            mark = "▮" if learned else "·"
            text = self.token(number).replace("\n", "␊").replace("\t", "␉")
            yield [
                Part(f"  {place:>6} {number:>8} ", SOFT),
                Part(f"{mark} {text}", CONTROL if number in self._texts.control else TARGET if learned else PROMPT),
            ]


def decoder_for(tokenizer: str, info: Mapping[str, Any]) -> Decoder | None:
    """Return the tokenizer that an option names, else the one whose file on this machine a folder names; else None.

    Args:
        tokenizer: a tokenizer.json, or a folder with it; empty = none is named.
        info: ``tokenizer_info`` of the folder.
    """
    path = tokenizer or str(info.get("tokenizer_path", ""))
    return Decoder(locate(path)) if tokenizer or (os.path.isabs(path) and os.path.exists(path)) else None


def token_lines(decoder: Decoder | None, prompt: list[int], response: list[int], *, table: bool) -> Iterator[Line]:
    """Yield prompt and target as text, with ``table`` also each id; without a tokenizer the ids alone."""
    if decoder is None:
        yield line("no tokenizer is at hand: root=<project> or tokenizer=<folder> shows text in place of ids", SOFT)
        yield line(f"prompt {prompt}")
        yield line(f"target {response}", TARGET)
        return
    yield line("prompt", HEAD)
    yield [*decoder.parts(prompt)]
    yield line("target", HEAD)
    yield [*decoder.parts(response, TARGET)]
    if table:
        yield line("ids", HEAD)
        yield from decoder.table(prompt, response)
