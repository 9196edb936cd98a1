"""What bytes the tokens of a tokenizer.json have: how many, and which begin in the middle of a character of UTF-8.

A token of byte-level BPE has any bytes, so a text that is cut between two tokens may be cut within a character. It is
not if the bytes of the token after the cut do not begin with one that continues a character.
"""

from __future__ import annotations

import json
import re
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
    try:
        settings = json.loads(data)
        model = settings["model"]
        vocab = model["vocab"]
        pairs = vocab.items() if isinstance(vocab, dict) else ((item[0], number) for number, item in enumerate(vocab))
        bytes_of = _symbol if _byte_level(settings) else _fallback if model.get("byte_fallback") else None
        result = {number: bool(bytes_of and _continues(bytes_of(token))) for token, number in pairs}
        # As text: an added token goes before one of the vocabulary that has its id.
        result |= {token["id"]: False for token in settings.get("added_tokens") or ()}
        made = bytearray(max(result, default=-1) + 1)
        for number, inside in result.items():
            made[number] = inside
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(
            "not a valid tokenizer", where=where, got=repr(error), expected="a tokenizer.json", hint="tokenize again"
        ) from error
    return bytes(made)


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
    try:
        settings = json.loads(data)
        vocab = settings["model"]["vocab"]
        pairs = vocab.items() if isinstance(vocab, dict) else ((item[0], number) for number, item in enumerate(vocab))
        exact = _byte_level(settings)
        result = {number: len(token) if exact else _written(token) for token, number in pairs}
        for token in settings.get("added_tokens") or ():
            result[token["id"]] = 0 if token.get("special") else len(token["content"].encode())
        made = [0] * (max(result, default=-1) + 1)
        for number, size in result.items():
            made[number] = size
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(
            "not a valid tokenizer", where=where, got=repr(error), expected="a tokenizer.json", hint="tokenize again"
        ) from error
    return made, exact


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
