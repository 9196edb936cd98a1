"""Text to token ids, as tokenizers 0.22.2 does it.

The Rust encoder gives the same ids about thirty times as fast for byte-level BPE with the split of Qwen 2 (that of
train_tokenizer), Llama 3 or GPT-2. Any other tokenizer.json is encoded by the tokenizers library itself. In both cases
special tokens in a text are plain text and none are added; added tokens that are not special are recognised.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pairmill import _native
from pairmill.errors import InputError, InternalError, from_os_error

if TYPE_CHECKING:
    import pyarrow as pa
    from tokenizers import Tokenizer


# The splits that rust/core/src/bpe/split.rs implements. The library encodes with any other expression.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3_SPLIT = SPLIT.replace(r"\p{N}|", r"\p{N}{1,3}|")
GPT2_SPLIT = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

PRE_TOKENIZER = {
    "type": "Sequence",
    "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": SPLIT}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
    ],
}

_Pattern = Literal["qwen2", "llama3", "gpt2"]
_PATTERNS: dict[str, _Pattern] = {SPLIT: "qwen2", LLAMA3_SPLIT: "llama3", GPT2_SPLIT: "gpt2"}
_FAMILIES = {"qwen2": "Qwen 2 and 3", "llama3": "Llama 3 and GPT-4", "gpt2": "GPT-2"}

# Options of the BPE model that the native encoder lacks, with the values that switch them off.
_MODEL_OFF: dict[str, tuple[Any, ...]] = {
    "dropout": (None, 0.0),
    "unk_token": (None,),
    "continuing_subword_prefix": (None, ""),
    "end_of_word_suffix": (None, ""),
    "byte_fallback": (False, None),
}
# Options that it has, or that have no effect without an unknown token.
_MODEL_KNOWN = {"type", "vocab", "merges", "ignore_merges", "fuse_unk"}

# Later versions have other normalisers and character classes: 1.0 gives other ids.
_LIBRARY_VERSION = "0.22."

# Rows in one call of the library, which takes about 200 bytes of memory a token.
_LIBRARY_ROWS = 1024

# Cases that have gone wrong in this or another tokenizer: contractions with case folding, line ends and spaces around
# everything, the end of the text, marks newer than the normaliser, bytes without a symbol, control strings, long words.
PROBES = (
    "", " ", "  ", "\n", "\r\n", " \n", "\n ", "\t\t", "a", "a ", " a", "a  b", "a   ", "\u3000", "a\u3000\u3000b",
    "Hello, world!", "I'm you're he'LL she'Ve 'Twas 'ſo 'sfoo 'xfoo ''s", "don't", "'", "'é", "1234567890", "٣٤٥",
    "x²½", "Ⅷ", "foo_bar.baz(qux)", " !?\r\n\n x", "...\n\n\n", "!!! ???", "{'a': [1, 2]}", "\\frac{1}{2}",
    "\\le \\alpha^{2}", "e\u0301 o\u0308\u0323", "é ö", "\u212b \u1e9b\u0323", "\u0344", "\uac00\u11a8",
    "\u1100\u1161\u11a8", "\u0958", "\U00011935\U00011930", "a\u0898\u0301", "a\u1ac1\u0323", "\ufb01 ﬀ",
    "日本語のテスト。", "Привет, мир", "שָׁלוֹם", "नमस्ते", "ไทย", "😀👩‍👩‍👧🏽",
    "\u200b\u200d\ufeff", "\u0085\u00a0\u2028x", "\u2003!", "\x00\x04\x1c\x7f",
    "\u0378\ue000\U0010ffff", "<think>x</think>", "<|im_end|><|im_start|>", "<tool_call>{}", "a\u0000b",
    "12 345 678 9012345 ٣٤٥٦ ²³¼½Ⅷ 1a23", "it's IT'S we've 'll ''re ' s", "a  1  !  \u00a0b \n c\t\td",
    "supercalifragilisticexpialidocious", "ab" * 100, "=" * 200, " " * 300 + "x", "\n" * 70, "aaaaaaaaaaaaaaaaa",
)  # fmt: skip
# The maximum of probes made of a file's own tokens: of the added ones, and of the vocabulary.
_ADDED_PROBES = 100
_VOCAB_PROBES = 250


class _Pair(NamedTuple):
    ids: NDArray[np.uint32]
    offsets: NDArray[np.int64]


class Encoded(_Pair):
    """Token ids of some texts: the pair (ids, offsets).

    Attributes:
        ids: uint32 [n], all texts one after another.
        offsets: int64 [rows + 1]; text i has ids[offsets[i]:offsets[i + 1]].
        dropped_bytes: number of UTF-8 bytes (after normalisation) that have no symbol in the vocabulary and were
            dropped; None on the library's path, which does not tell.
    """

    dropped_bytes: int | None

    def __new__(cls, ids: NDArray[np.uint32], offsets: NDArray[np.int64], dropped_bytes: int | None) -> Self:
        made = super().__new__(cls, ids, offsets)
        made.dropped_bytes = dropped_bytes
        return made


class Encoder:
    """An encoder of a tokenizer.json; see `from_file` and `from_json`.

    Attributes:
        path: "native" or "library".
        reason: why that path, in words.
        native: the native encoder; None on the library's path.
        vocab_size: number of tokens, added ones included.
    """

    def __init__(
        self, text: str, *, where: str = "tokenizer.json", library: bool = False, checked: bool = False
    ) -> None:
        tokenizer = None if checked and not library else _library(text, where)
        self.native, self.reason = (None, "asked for") if library else _made_native(text, tokenizer, where)
        self._where = where
        self._tokenizer: Tokenizer | None = None
        self.path: Literal["native", "library"]
        self.vocab_size: int
        if self.native is not None:
            self.path, self.vocab_size = "native", self.native.vocab_size
        else:
            self._tokenizer = tokenizer or _library(text, where)
            self.path, self.vocab_size = "library", self._tokenizer.get_vocab_size(with_added_tokens=True)

    @classmethod
    def from_file(cls, path: str | Path, *, library: bool = False, checked: bool = False) -> Encoder:
        """Read a tokenizer.json.

        Args:
            path: the file, of the format of tokenizers 0.22.
            library: always encode with the tokenizers library.
            checked: the native encoder of the same text was compared with the library before, and is not compared
                again, which would take most of the time.

        Raises:
            InputError: the file is absent or not a tokenizer.
            StorageError: it cannot be read.
            InternalError: the native encoder and the library differ on one of the probes, or another version of the
                library is installed.
        """
        try:
            text = Path(path).read_bytes().decode()
        except OSError as error:
            raise from_os_error(error, str(path)) from error
        except UnicodeDecodeError as error:
            raise InputError("not a valid tokenizer", where=str(path), got=str(error), expected="UTF-8 text") from error
        return cls(text, where=str(path), library=library, checked=checked)

    @classmethod
    def from_json(
        cls, text: str, *, where: str = "tokenizer.json", library: bool = False, checked: bool = False
    ) -> Encoder:
        """Load an encoder as `from_file` does, from the text of a tokenizer.json; `where` names it in errors."""
        return cls(text, where=where, library=library, checked=checked)

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token (in byte symbols, unless it is an added one), or None."""
        if self.native is not None:
            return self.native.token_to_id(token)
        assert self._tokenizer is not None
        result: int | None = self._tokenizer.token_to_id(token)
        return result

    def encode(self, strings: pa.Array | pa.ChunkedArray | list[str]) -> Encoded:
        """Encode each string separately.

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
            sum(dropped) if self.native else None,
        )

    def _encode(self, chunk: pa.Array) -> Encoded:
        if self.native is not None:
            return Encoded(*self.native.encode(chunk))
        assert self._tokenizer is not None
        return _encode_by_library(self._tokenizer, chunk.to_pylist(), self._where)


def _made_native(text: str, tokenizer: Tokenizer | None, where: str) -> tuple[_native.Encoder | None, str]:
    """Return the native encoder of a tokenizer.json or None, and why. It is compared with `tokenizer` unless that is
    None."""

    try:
        settings = json.loads(_native.tokenizer_settings(text))
    except ValueError as error:
        return None, f"the native encoder cannot read it: {error}"
    known = _recognised(settings)
    if isinstance(known, str):
        return None, f"the native encoder does not support its {known}"
    try:
        native = _native.tokenizer_encoder(
            text, pattern=known.pattern, normalize=known.normalize, ignore_merges=known.ignore_merges
        )
    except ValueError as error:
        return None, f"the native encoder refuses it: {error}"
    if tokenizer is None:
        return native, f"{known.describe(settings)}; checked before"
    probes = [*PROBES, *_probes_of(settings, tokenizer)]
    _compare(native, tokenizer, probes, where)
    return native, f"{known.describe(settings)}; equal to the library on {len(probes)} probes"


def _compare(native: _native.Encoder, tokenizer: Tokenizer, probes: list[str], where: str) -> None:
    import pyarrow as pa

    # pyarrow.array() of a list imports pandas, if it is installed, which takes longer than everything else.
    data = [probe.encode() for probe in probes]
    offsets = np.cumsum([0, *map(len, data)], dtype=np.int64)
    texts = pa.LargeStringArray.from_buffers(len(data), pa.py_buffer(offsets), pa.py_buffer(b"".join(data)))
    got = Encoded(*native.encode(texts))
    expected = _encode_by_library(tokenizer, probes, where)
    for row, probe in enumerate(probes):
        ours, theirs = _row(got, row), _row(expected, row)
        if ours != theirs:
            raise InternalError(
                "the native encoder differs from the tokenizers library",
                where=where,
                got=f"{ours} for {probe!r}",
                expected=str(theirs),
                hint="report this with the tokenizer file; tokenizers 0.22.2 must be installed",
            )


class _Recognised(NamedTuple):
    """A configuration that the native encoder supports."""

    pattern: _Pattern
    normalize: bool
    ignore_merges: bool

    def describe(self, settings: dict[str, Any]) -> str:
        added = sum(not token["special"] for token in settings.get("added_tokens") or ())
        if self == _Recognised("qwen2", True, False) and not added:
            return "the configuration of train_tokenizer"
        result = [f"the split of {_FAMILIES[self.pattern]}", "NFC" if self.normalize else "no normalisation"]
        if self.ignore_merges:
            result.append("whole tokens before merges")
        if added:
            result.append(f"added tokens found in texts: {added}")
        return ", ".join(result)


def _row(encoded: Encoded, row: int) -> list[int]:
    ids: list[int] = encoded.ids[encoded.offsets[row] : encoded.offsets[row + 1]].tolist()
    return ids


def _recognised(settings: dict[str, Any]) -> _Recognised | str:
    """Return the native encoder's configuration for a tokenizer.json, or the names of settings that it does not
    support."""
    model = settings["model"]
    pattern = _pattern(_steps(settings.get("pre_tokenizer"), "pretokenizers"))
    normalizers = _steps(settings.get("normalizer"), "normalizers")
    checks = {
        "truncation": settings.get("truncation") is None,
        "padding": settings.get("padding") is None,
        "normalizer": normalizers in ([], [{"type": "NFC"}]),
        "pre_tokenizer": pattern is not None,
        "post_processor": all(map(_keeps_ids, _steps(settings.get("post_processor"), "processors"))),
        # Files of old versions have no type.
        "model": model.get("type", "BPE") == "BPE" and set(model) <= _MODEL_KNOWN | set(_MODEL_OFF),
        **{f"model.{key}": model.get(key) in off for key, off in _MODEL_OFF.items()},
    }
    different = [name for name, same in checks.items() if not same]
    if different or pattern is None:
        return ", ".join(different)
    return _Recognised(pattern, bool(normalizers), bool(model.get("ignore_merges")))


def _steps(section: dict[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    """Return the steps of a section in order, with nested sequences flattened."""
    if section is None:
        return []
    if section.get("type") != "Sequence":
        return [section]
    return [step for item in section[inside] for step in _steps(item, inside)]


def _pattern(steps: list[dict[str, Any]]) -> _Pattern | None:
    """Return the split of a pre-tokenizer before it turns bytes into symbols, if the native encoder has it."""
    if not steps or steps[-1].get("type") != "ByteLevel" or steps[-1].get("add_prefix_space") is not False:
        return None
    own = steps[-1].get("use_regex", True)
    if len(steps) == 1:
        return "gpt2" if own else None
    split = steps[0]
    # The expressions match everything, so removing the text between matches changes nothing.
    isolates = split.get("behavior") == "Isolated" or (split.get("behavior") == "Removed" and split.get("invert"))
    if len(steps) == 2 and not own and split.get("type") == "Split" and isolates:
        return _PATTERNS.get(split["pattern"].get("Regex", ""))
    return None


def _keeps_ids(processor: dict[str, Any]) -> bool:
    """Return whether a post-processor leaves the ids of a single text unchanged if no special tokens are added."""
    if processor.get("type") == "TemplateProcessing":
        texts = [piece["Sequence"]["id"] for piece in processor["single"] if "Sequence" in piece]
        return texts == ["A"]
    return processor.get("type") in {"ByteLevel", "RobertaProcessing", "BertProcessing"}


def _probes_of(settings: dict[str, Any], tokenizer: Tokenizer) -> list[str]:
    """Texts made of a file's own tokens: added ones within and beside others, and some of its vocabulary."""
    from tokenizers import decoders

    added = [token["content"] for token in settings.get("added_tokens") or ()]
    step = -(-len(added) // _ADDED_PROBES) or 1
    probes = [f"a{token} {token}{token}  1{token}\n{token[1:]}{token[:-1]}b" for token in added[::step]]
    size = tokenizer.get_vocab_size(with_added_tokens=False)
    tokens = map(tokenizer.id_to_token, range(0, size, -(-size // _VOCAB_PROBES) or 1))
    decoder = decoders.ByteLevel()
    return probes + [decoder.decode([token]) for token in tokens if token is not None]


def _chunks(strings: pa.Array | pa.ChunkedArray | list[str]) -> list[pa.Array]:
    """Convert to arrays of string or large_string without nulls."""
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


def _library(text: str, where: str) -> Tokenizer:
    """Load a tokenizer.json with the tokenizers library."""
    import tokenizers

    if not tokenizers.__version__.startswith(_LIBRARY_VERSION):
        raise InternalError(
            "the installed version of tokenizers gives other ids",
            where=where,
            got=tokenizers.__version__,
            expected=f"{_LIBRARY_VERSION}x",
            hint="install tokenizers==0.22.2",
        )
    try:
        tokenizer = tokenizers.Tokenizer.from_str(text)
    # The library raises bare Exception.
    except Exception as error:
        raise InputError(
            "not a valid tokenizer",
            where=where,
            got=str(error),
            expected="a tokenizer.json that tokenizers 0.22 reads",
            hint="train it again, or download it again",
        ) from error
    tokenizer.encode_special_tokens = True
    return tokenizer


def _encode_by_library(tokenizer: Tokenizer, texts: list[str], where: str) -> Encoded:
    # Padding to the longest text of a batch would make ids depend on the other texts.
    rows = _LIBRARY_ROWS if tokenizer.padding is None else 1
    ids: list[list[int]] = []
    for start in range(0, len(texts), rows):
        try:
            batch = tokenizer.encode_batch_fast(texts[start : start + rows], add_special_tokens=False)
        # The library raises bare Exception.
        except Exception as error:
            raise InputError(
                "the tokenizers library failed on a text",
                where=f"{where}, one of the rows {start + 1} to {min(start + rows, len(texts))}",
                got=str(error),
            ) from error
        ids += [encoding.ids for encoding in batch]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(row) for row in ids], out=offsets[1:])
    return Encoded(np.fromiter(chain.from_iterable(ids), np.uint32, offsets[-1]), offsets, None)
