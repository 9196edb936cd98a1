"""Documents whose tokens end within characters, in a tokenized folder; and what pieces must be."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pairmill.formats.tokens import INDEX, INFO

# Symbols of byte-level BPE, as the paper of GPT-2 defines them.
PRINTED = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
SYMBOLS = {byte: chr(byte) for byte in PRINTED}
SYMBOLS |= {byte: chr(256 + n) for n, byte in enumerate(byte for byte in range(256) if byte not in SYMBOLS)}

BOQ, EOQ, EOA = "<boq>", "<eoq>", "<eoa>"
ADDED = [BOQ, EOQ, EOA, "ü"]


class Vocabulary:
    """All bytes, further tokens of several bytes, then the added ones."""

    def __init__(self, more: Sequence[bytes] = ()) -> None:
        single = [bytes([byte]) for byte in range(256)]
        self.tokens = [*single, *dict.fromkeys(one for one in more if len(one) > 1)]
        self.ids = {token: number for number, token in enumerate(self.tokens)}
        self.added = {token: len(self.tokens) + number for number, token in enumerate(ADDED)}

    @property
    def size(self) -> int:
        return len(self.tokens) + len(self.added)

    def text(self, ids: Sequence[int]) -> bytes:
        """The bytes of tokens; delimiters have none."""
        return b"".join(self.tokens[one] for one in ids if one < len(self.tokens))

    def json(self) -> bytes:
        vocab = {"".join(SYMBOLS[byte] for byte in token): number for token, number in self.ids.items()}
        added = [{"id": number, "content": token, "special": token != "ü"} for token, number in self.added.items()]
        settings: dict[str, Any] = {
            "added_tokens": added,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Split"}, {"type": "ByteLevel"}]},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": vocab, "merges": []},
        }
        return json.dumps(settings).encode()

    def encode(self, text: str, widths: Sequence[int]) -> list[int]:
        """The text in tokens of about these many bytes, again and again; EOA follows."""
        data, ids, at, number = text.encode(), [], 0, 0
        while at < len(data):
            token = data[at : at + widths[number % len(widths)]]
            if token not in self.ids:
                token = token[:1]
            ids.append(self.ids[token])
            at, number = at + len(token), number + 1
        return [*ids, self.added[EOA]]


def write(folder: Path, vocabulary: Vocabulary, tasks: dict[str, list[tuple[list[int], list[int]]]]) -> Path:
    """A tokenized folder of others, with its tokenizer, of instruction and response spans."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INFO).write_text(json.dumps({"vocab_size": vocabulary.size}))
    (folder / "tokenizer.json").write_bytes(vocabulary.json())
    for name, rows in tasks.items():
        (folder / name).mkdir(exist_ok=True)
        lengths = np.array([[len(part) for part in row] for row in rows], np.uint64).reshape(-1, 2)
        starts = (np.cumsum(lengths.ravel()) - lengths.ravel()).reshape(-1, 2).astype(np.uint64)
        columns = (starts[:, 0], lengths[:, 0], starts[:, 1], lengths[:, 1])
        ids = [one for row in rows for part in row for one in part]
        np.save(folder / name / "tokens.npy", np.array(ids, np.uint32))
        for part, values in zip(INDEX, columns, strict=True):
            np.save(folder / name / f"{part}.npy", np.ascontiguousarray(values))
    return folder


def naive(tokens: Sequence[bytes], most: int, least: int) -> list[int] | str:
    """The lengths of the pieces of a response by its tokens' bytes, the end token's empty; or why it has none."""

    def allowed(place: int) -> bool:
        return not tokens[place][:1] or not 0x80 <= tokens[place][0] < 0xC0

    if len(tokens) <= most:
        return [len(tokens)]
    if most < least:
        return "response_too_short_once_cut"
    places = [0]
    while len(tokens) - places[-1] > most:
        fitting = [one for one in range(places[-1] + 1, places[-1] + most + 1) if allowed(one)]
        if not fitting:
            return "character_over_context"
        places.append(fitting[-1])
    if len(tokens) - places[-1] < least:
        over = [
            one for one in range(places[-2] + 1, len(tokens) - least + 1) if allowed(one) and len(tokens) - one <= most
        ]
        if not over:
            return "response_too_short_once_cut"
        places[-1] = over[-1]
    return [end - start for start, end in zip(places, [*places[1:], len(tokens)], strict=True)]
