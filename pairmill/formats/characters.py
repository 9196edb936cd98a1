"""What bytes the tokens of a tokenizer.json have: how many, which begin within a character; ids as text.

A token of byte-level BPE has any bytes, so a text that is cut between two tokens may be cut within a character. It is
not if the bytes of the token after the cut do not begin with one that continues a character.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from pairmill.errors import InputError

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
# GPT-2's symbols: printable characters of Latin-1 are themselves; the other bytes are, in order, 256, 257, …
_PRINTED = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in set(_PRINTED)]
_BYTES = {chr(byte): byte for byte in _PRINTED} | {chr(256 + number): byte for number, byte in enumerate(_OTHERS)}


def continuing(data: bytes, where: str) -> bytes:
    """Return for each id 1 if its token begins with a byte that continues a character, else 0.

    Ids that no token has are 0.

    Args:
        data: a tokenizer.json, of any model.
        where: of it, for messages.

    Raises:
        InputError: it is not a tokenizer.
    """
    with _opened(data, where) as (settings, tokens, added):
        bytes_of = _symbol if _byte_level(settings) else _fallback if settings["model"].get("byte_fallback") else None
        result = {number: bytes_of is not None and _continues(bytes_of(token)) for token, number in tokens}
        # As text: an added token goes before one of the vocabulary that has its id.
        return bytes(_by_id({**result, **{token["id"]: False for token in added}}))


def lengths(data: bytes, where: str) -> tuple[list[int], bool]:
    """Return for each id how many bytes its token writes, and whether these numbers are exact.

    They are exact for byte-level tokenizers, each of whose symbols is a byte; of others it is what the token's own text
    has, whatever its decoder does with it. Special tokens, and ids that no token has, write nothing.

    Args:
        data: a tokenizer.json.
        where: of it, for messages.

    Raises:
        InputError: it is not a tokenizer.
    """
    with _opened(data, where) as (settings, tokens, added):
        exact = _byte_level(settings)
        result = {number: len(token) if exact else _written(token) for token, number in tokens}
        result |= {token["id"]: 0 if token.get("special") else len(token["content"].encode()) for token in added}
        return _by_id(result), exact


@contextmanager
def _opened(
    data: bytes, where: str
) -> Iterator[tuple[dict[str, Any], Iterable[tuple[str, int]], list[dict[str, Any]]]]:
    """Yield a tokenizer, the tokens of its vocabulary with their ids, and its added tokens; refuse what is none."""
    try:
        settings = json.loads(data)
        vocab = settings["model"]["vocab"]
        pairs = vocab.items() if isinstance(vocab, dict) else ((item[0], number) for number, item in enumerate(vocab))
        yield settings, pairs, settings.get("added_tokens") or []
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(
            "not a valid tokenizer", where=where, got=repr(error), expected="a tokenizer.json", hint="tokenize again"
        ) from error


def _by_id(values: Mapping[int, int]) -> list[int]:
    """Return a value for each id; 0 for those that have none."""
    made = [0] * (max(values, default=-1) + 1)
    for number, value in values.items():
        made[number] = value
    return made


def _written(token: str) -> int:
    return 1 if _BYTE.fullmatch(token) else len(token.replace("\u2581", " ").encode())


def _continues(byte: int | None) -> bool:
    return byte is not None and 0x80 <= byte < 0xC0


def _symbol(token: str) -> int | None:
    return _BYTES.get(token[:1])


def _fallback(token: str) -> int | None:
    result = _BYTE.fullmatch(token)
    return int(result[1], 16) if result else None


def _byte_level(settings: dict[str, Any]) -> bool:
    def inside(section: Any) -> bool:
        steps = [*section.get("pretokenizers", ()), *section.get("decoders", ())] if section else []
        return bool(section) and (section.get("type") == "ByteLevel" or any(map(inside, steps)))

    return inside(settings.get("pre_tokenizer")) or inside(settings.get("decoder"))


class TokenTexts:
    """Ids as text, without the tokenizers library: by the bytes of byte-level tokens, by symbols of others.

    Args:
        data: a tokenizer.json.
        where: of it, for messages.

    Raises:
        InputError: it is not a tokenizer.
    """

    def __init__(self, data: bytes, where: str) -> None:
        with _opened(data, where) as (settings, tokens, added):
            self._symbols: dict[int, str] = {number: token for token, number in tokens}
            self._byte_level = _byte_level(settings)
            self.control: dict[int, str] = {token["id"]: token["content"] for token in added if token.get("special")}
            self._added: dict[int, bytes] = {
                token["id"]: token["content"].encode() for token in added if not token.get("special")
            }

    def bytes_of(self, number: int) -> bytes:
        """Return what a token writes that is not a control token; a replacement character if there is no such id."""
        if number in self._added or number not in self._symbols:
            return self._added.get(number, b"\xef\xbf\xbd")
        symbol = self._symbols[number]
        if self._byte_level:
            return bytes(_BYTES[each] for each in symbol) if _BYTES.keys() >= set(symbol) else symbol.encode()
        byte = _fallback(symbol)
        return symbol.replace("\u2581", " ").encode() if byte is None else bytes([byte])

    def parts(self, ids: Iterable[int]) -> Iterator[tuple[str, bool]]:
        """Yield texts, and whether each is a control token."""
        for is_control, run in groupby(ids, self.control.__contains__):
            if is_control:
                yield from ((self.control[number], True) for number in run)
            else:
                yield b"".join(map(self.bytes_of, run)).decode(errors="replace"), False

    def text(self, ids: Iterable[int]) -> str:
        """Return ids as one text, control tokens in double brackets: a text that only spells one has none."""
        return "".join(f"⟦{text}⟧" if is_control else text for text, is_control in self.parts(ids))
