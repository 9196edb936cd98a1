"""Text to token ids, as tokenizers 0.22.2 does it.

A tokenizer.json of the one configuration that train_tokenizer writes goes to the Rust encoder, which gives the same ids
some thirty times as fast; any other goes to the tokenizers library itself. Either way special tokens in a text are
plain text and none are added.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pairmill.errors import InputError, InternalError, from_os_error

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    from pairmill import _native

# The split that rust/core/src/split.rs scans; any other expression is the library's business.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

PRE_TOKENIZER = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
    ],
}

# Options of the BPE model that the native encoder does not have, with the values that switch them off.
_MODEL_OFF: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0.0),
    "unk_token": (None,),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "fuse_unk": (False, None),
    "byte_fallback": (False, None),
    "ignore_merges": (False, None),
}
_SECTIONS = {
    "version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder",
    "model",
}  # fmt: skip

# Rows in one call of the library: bounds its memory, some 200 bytes a token.
_LIBRARY_ROWS = 1024

# What went wrong somewhere once, in this or another tokenizer: contractions with case folding, line ends and spaces
# before and after everything, the end of the text, marks newer than the normaliser, bytes without a symbol, control
# strings, long words.
_PROBES = (
    "", " ", "  ", "\n", "\r\n", " \n", "\n ", "\t\t", "a", "a ", " a", "a  b", "a   ", "\u3000", "a\u3000\u3000b",
    "Hello, world!", "I'm you're he'LL she'Ve 'Twas 'ſo 'sfoo 'xfoo ''s", "don't", "'", "'é", "1234567890", "٣٤٥",
    "x²½", "Ⅷ", "foo_bar.baz(qux)", " !?\r\n\n x", "...\n\n\n", "!!! ???", "{'a': [1, 2]}", "\\frac{1}{2}",
    "\\le \\alpha^{2}", "e\u0301 o\u0308\u0323", "é ö", "\u212b \u1e9b\u0323", "\u0344", "\uac00\u11a8",
    "\u1100\u1161\u11a8", "\u0958", "\U00011935\U00011930", "a\u0898\u0301", "a\u1ac1\u0323", "\ufb01 ﬀ",
    "日本語のテスト。", "Привет, мир", "שָׁלוֹם", "नमस्ते", "ไทย", "😀👩‍👩‍👧🏽",
    "\u200b\u200d\ufeff", "\u0085\u00a0\u2028x", "\u2003!", "\x00\x04\x1c\x7f",
    "\u0378\ue000\U0010ffff", "<think>x</think>", "<|im_end|><|im_start|>", "<tool_call>{}", "a\u0000b",
    "supercalifragilisticexpialidocious", "ab" * 100, "=" * 200, " " * 300 + "x", "\n" * 70, "aaaaaaaaaaaaaaaaa",
)  # fmt: skip


class Encoded(NamedTuple):
    """Token ids of some texts.

    Attributes:
        ids: uint32 [n], all texts one after another.
        offsets: int64 [rows + 1]; text i has ids[offsets[i]:offsets[i + 1]].
        dropped_bytes: UTF-8 bytes (after NFC) that have no symbol in the vocabulary and vanished; None on the library's
            path, which does not tell.
    """

    ids: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    dropped_bytes: int | None


class Encoder:
    """A tokenizer.json made ready to encode; see `from_file` and `from_json`.

    Attributes:
        path: who encodes, "native" or "library".
        reason: why.
        vocab_size: number of tokens, added ones included.
    """

    def __init__(
        self, text: str, *, where: str = "tokenizer.json", library: bool = False, checked: bool = False
    ) -> None:
        self._where = where
        self._native: _native.Encoder | None = None
        self._tokenizer: Tokenizer | None = None
        if checked:
            config = json.loads(text)
            self._ids: dict[str, int] = dict(config["model"]["vocab"])
            self._ids |= {token["content"]: token["id"] for token in config["added_tokens"]}
            self.vocab_size: int = len(self._ids)
            self.path: Literal["native", "library"] = "native"
            self.reason = "compared with the library before"
            self._native = _native_of(config)
            return

        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_str(text)
        # The library raises bare Exception for every fault of a file.
        except Exception as error:
            raise InputError(
                "not a tokenizer",
                where=where,
                got=str(error),
                expected="a tokenizer.json that tokenizers 0.22 reads",
                hint="train it again, or fetch the file again",
            ) from error
        tokenizer.encode_special_tokens = True
        self._ids = tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = tokenizer.get_vocab_size(with_added_tokens=True)
        self.path = "library"
        self._tokenizer = tokenizer
        config = json.loads(text)
        self.reason = "asked for" if library else _difference(config)
        if not self.reason:
            self._go_native(config, tokenizer)

    @classmethod
    def from_file(cls, path: str | Path, *, library: bool = False) -> Encoder:
        """Read a tokenizer.json.

        Args:
            path: the file, of the format of tokenizers 0.22.
            library: encode with the tokenizers library whatever the configuration.

        Raises:
            InputError: the file is absent or not a tokenizer.
            StorageError: it cannot be read.
            InternalError: the native encoder and the library differ on one of the probes.
        """
        try:
            text = Path(path).read_bytes().decode()
        except OSError as error:
            raise from_os_error(error, str(path)) from error
        except UnicodeDecodeError as error:
            raise InputError("not a tokenizer", where=str(path), got=str(error), expected="UTF-8 text") from error
        return cls(text, where=str(path), library=library)

    @classmethod
    def from_json(
        cls, text: str, *, where: str = "tokenizer.json", library: bool = False, checked: bool = False
    ) -> Encoder:
        """Take the text of a tokenizer.json; `where` names it in errors. Otherwise as `from_file`.

        `checked`: another encoder of this text said that its path is native, so that the library has no say any more.
        """
        return cls(text, where=where, library=library, checked=checked)

    @property
    def native(self) -> _native.Encoder | None:
        """The native encoder; None on the library's path."""
        return self._native

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token, given in byte symbols or, for an added one, as it is; None if there is none."""
        return self._ids.get(token)

    def encode(self, strings: pa.Array | pa.ChunkedArray | list[str]) -> Encoded:
        """Encode each string as a document of its own.

        Args:
            strings: [rows] of string, large_string, string_view, or a dictionary of those, without nulls.

        Raises:
            TypeError: another type.
            ValueError: a null; the message names the row.
            InputError: the library fails on a text.
        """
        chunks = _chunks(strings)
        parts = [self._encode(chunk) for chunk in chunks]
        if len(parts) == 1:
            return parts[0]
        offsets = [np.zeros(1, np.int64)]
        total = 0
        for part in parts:
            offsets.append(part.offsets[1:] + total)
            total += len(part.ids)
        dropped = [part.dropped_bytes for part in parts if part.dropped_bytes is not None]
        return Encoded(
            np.concatenate([np.zeros(0, np.uint32), *(part.ids for part in parts)]),
            np.concatenate(offsets),
            sum(dropped) if self._native else None,
        )

    def _encode(self, chunk: pa.Array) -> Encoded:
        if self._native is not None:
            return Encoded(*self._native.encode(chunk))
        assert self._tokenizer is not None
        return _encode_by_library(self._tokenizer, chunk.to_pylist(), self._where)

    def _go_native(self, config: dict[str, Any], tokenizer: Tokenizer) -> None:
        """Encode natively from here on, after comparing the two encoders on the probes."""
        import pyarrow as pa

        try:
            native = _native_of(config)
        except ValueError as error:
            self.reason = f"the native encoder refuses the vocabulary: {error}"
            return
        got = Encoded(*native.encode(pa.array(_PROBES, pa.large_string())))
        expected = _encode_by_library(tokenizer, list(_PROBES), self._where)
        for row, probe in enumerate(_PROBES):
            ours, theirs = _row(got, row), _row(expected, row)
            if ours != theirs:
                raise InternalError(
                    "the native encoder differs from the tokenizers library",
                    where=self._where,
                    got=f"{ours} for {probe!r}",
                    expected=str(theirs),
                    hint="report this with the tokenizer file; tokenizers 0.22.2 must be installed",
                )
        self.path, self._native, self._tokenizer = "native", native, None
        self.reason = f"the configuration of train_tokenizer; equal to the library on {len(_PROBES)} probes"


def _native_of(config: dict[str, Any]) -> _native.Encoder:
    from pairmill import _native

    model = config["model"]
    merges = [tuple(merge.split(" ") if isinstance(merge, str) else merge) for merge in model["merges"]]
    return _native.Encoder(model["vocab"], merges)


def _row(encoded: Encoded, row: int) -> list[int]:
    ids: list[int] = encoded.ids[encoded.offsets[row] : encoded.offsets[row + 1]].tolist()
    return ids


def _difference(config: dict[str, Any]) -> str:
    """Say in what a tokenizer.json that the library reads differs from what the native encoder does; "" if in nothing.

    The decoder has no part in encoding, nor has a byte-level post-processor, which moves offsets only.
    """
    model = config["model"]
    added = config.get("added_tokens") or []
    checks = {
        "sections": set(config) <= _SECTIONS,
        "truncation": config.get("truncation") is None,
        "padding": config.get("padding") is None,
        "normalizer": config.get("normalizer") == {"type": "NFC"},
        "pre_tokenizer": config.get("pre_tokenizer") == PRE_TOKENIZER,
        "post_processor": (config.get("post_processor") or {"type": "ByteLevel"}).get("type") == "ByteLevel",
        "model": model.get("type") == "BPE" and set(model) <= {"type", "vocab", "merges", *_MODEL_OFF},
        **{f"model.{key}": model.get(key) in off for key, off in _MODEL_OFF.items()},
        "added_tokens": all(token["special"] for token in added)
        and len({token["content"] for token in added}) == len(added),
    }
    different = [name for name, same in checks.items() if not same]
    return f"not the configuration of train_tokenizer: {', '.join(different)}" if different else ""


def _chunks(strings: pa.Array | pa.ChunkedArray | list[str]) -> list[pa.Array]:
    """Return the strings as arrays of string or large_string, without nulls."""
    import pyarrow as pa

    if isinstance(strings, list):
        strings = pa.array(strings, pa.large_string())
    if not isinstance(strings, pa.Array | pa.ChunkedArray):
        raise TypeError(f"got {type(strings).__name__}; expected a pyarrow Array or ChunkedArray, or a list of str")
    texts = (pa.string(), pa.large_string(), pa.string_view())
    kind = strings.type.value_type if pa.types.is_dictionary(strings.type) else strings.type
    if kind not in texts:
        raise TypeError(f"got an Arrow array of {strings.type}; expected string, large_string or string_view")
    if strings.type not in texts[:2]:
        strings = strings.cast(pa.large_string())
    if strings.null_count:
        row = strings.is_null().index(True).as_py()
        raise ValueError(f"row {row} is null ({strings.null_count} of {len(strings)} are); expected no nulls")
    return strings.chunks if isinstance(strings, pa.ChunkedArray) else [strings]


def _encode_by_library(tokenizer: Tokenizer, texts: list[str], where: str) -> Encoded:
    # Padding to the longest of a batch would make the ids of a text depend on its neighbours.
    rows = _LIBRARY_ROWS if tokenizer.padding is None else 1
    ids: list[list[int]] = []
    for start in range(0, len(texts), rows):
        try:
            batch = tokenizer.encode_batch_fast(texts[start : start + rows], add_special_tokens=False)
        # The library raises bare Exception.
        except Exception as error:
            raise InputError(
                "the tokenizers library fails on a text",
                where=f"{where}, one of the rows {start} to {min(start + rows, len(texts)) - 1}",
                got=str(error),
            ) from error
        ids += [encoding.ids for encoding in batch]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(row) for row in ids], out=offsets[1:])
    return Encoded(np.fromiter(chain.from_iterable(ids), np.uint32, offsets[-1]), offsets, None)
