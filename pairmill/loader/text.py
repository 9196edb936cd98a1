"""Texts of the `datasets` library (written against 5.2) as token windows: a whole split at once, or a stream.

The library is imported when a data set is asked for by name, and not before; the wheel does without it. A tokenizer is
anything of the kinds that `eager` names, and the id that ends a document is always given: a tokenizer that has none
must not silently end documents with token 0, as it does in the reference loader.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill.encoder import Encoder
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.loader.arguments import flag, shown, text, whole
from pairmill.loader.windows import Windows

Tokens = NDArray[np.int32]

# Documents that are tokenized in one call, for tokenizers that are the faster for it.
_TOGETHER = 64


class Mark(NamedTuple):
    """A place in a stream of documents: where the first token of the next chunk lies.

    Attributes:
        epoch: from 0.
        document: of the epoch's order, from 0; those without tokens count.
        offset: tokens of it that lie before.
    """

    epoch: int = 0
    document: int = 0
    offset: int = 0


START = Mark()


class Piece(NamedTuple):
    """Tokens of one document, from its token `mark.offset` to its end; the end-of-text id is the last."""

    mark: Mark
    ids: Tokens


class Chunk(NamedTuple):
    """Tokens cut off the front of pieces, where the rest begins (None: nothing is left), and the last piece by then."""

    tokens: Tokens
    front: Mark | None
    last: Mark


def eager(
    dataset: Any,
    tokenizer: Any,
    *,
    eos_id: int | None,
    seq_len: int,
    packed: bool = False,
    text_field: str = "text",
    split: str = "train",
    config: str | None = None,
    name: str | None = None,
) -> Windows:
    """Tokenize a whole split into one int32 array, each document followed by `eos_id`, and cut it into windows.

    Args:
        dataset: a `datasets.Dataset`, or the name of one, which `load_dataset` finds.
        tokenizer: a function of a text that returns its ids; a `tokenizers.Tokenizer`; a tokenizer of transformers; or
            a `pairmill.encoder.Encoder`. No special tokens are added.
        eos_id: the id that ends a document. One without tokens is left out, its end too.
        seq_len: slots of a window.
        packed: number the documents of a window, and predict nothing from the end of one.
        text_field: the column of texts.
        split, config: of a data set given by name.
        name: of the source; None = that of the data set, or "text".

    Raises:
        UsageError: `eos_id` is None, no tokenizer, or `datasets` is not installed.
        InputError: no column of that name, a value that is no text, an id outside int32, or no tokens at all.
    """
    eos, seq_len = _require_eos(eos_id), whole(seq_len, "seq_len")
    packed, title = flag(packed, "packed"), "text" if name is None else text(name, "name")
    for given, option in ((text_field, "text_field"), (split, "split")):
        text(given, option)
    ids = tokenized(opened(dataset, config, split, text_field, streaming=False), tokenizer, eos, text_field)
    title = title if name or not isinstance(dataset, str) else dataset
    if not len(ids):
        raise InputError("holds no tokens", where=title, hint="check text_field and the tokenizer")
    return Windows.of_arrays([ids], seq_len=seq_len, eos_id=eos if packed else None, name=title)


class TextStream:
    """One endless stream of documents, tokenized on the way and cut into chunks, which a mark resumes exactly.

    Chunk k is tokens [k * seq_len, k * seq_len + seq_len] of all epochs' documents one after another, each followed by
    `eos_id`: an epoch's last documents run on into the next, nothing is lost, and no token depends on how many ranks
    there are. With n of them, chunk k is for rank k mod n, which the caller sees to; each rank reads and tokenizes all.

    Documents come in the order of the library: `shuffle(seed + epoch, buffer)`. So the seed 42 orders its epoch 1 as 43
    does its epoch 0, and the order is that of one version of the library.

    What a resume costs: of a `datasets.Dataset` nothing, its shuffle being a permutation. Of an `IterableDataset`, all
    of the epoch that lies before is read, decoded and shuffled again, and not tokenized: the library's own state would
    drop what its shuffle buffer held and fill it with other documents ("examples from shuffle buffers are lost when
    resuming", `IterableDataset.state_dict` of 5.2), which is not the same stream.

    Args:
        dataset: a `datasets.IterableDataset` or `Dataset`, or the name of one, which is streamed.
        tokenizer: as for `eager`.
        eos_id: the id that ends a document. One without tokens is left out, its end too.
        seq_len: slots of a window; a chunk has a token more.
        seed: of the order.
        buffer: documents among which an `IterableDataset` is shuffled; 0 = the order as it lies.
        text_field: the column of texts.
        split, config: of a data set given by name.

    Raises:
        UsageError: an argument is none of these, or `datasets` is not installed.
    """

    def __init__(
        self,
        dataset: Any,
        tokenizer: Any,
        *,
        eos_id: int | None,
        seq_len: int,
        seed: int,
        buffer: int = 10_000,
        text_field: str = "text",
        split: str = "train",
        config: str | None = None,
    ) -> None:
        seq_len, buffer = whole(seq_len, "seq_len"), whole(buffer, "buffer")
        for given, option in ((text_field, "text_field"), (split, "split")):
            text(given, option)
        if seq_len < 1:
            raise UsageError("is no length of a window", where="seq_len", got=str(seq_len), expected=">= 1")
        if buffer < 0:
            raise UsageError("is no number of documents", where="buffer", got=str(buffer), expected=">= 0")
        self.eos_id = _require_eos(eos_id)
        self.seq_len = seq_len
        self._dataset = opened(dataset, config, split, text_field, streaming=True)
        self._encode = encoding(tokenizer)
        if not hasattr(self._dataset, "shuffle"):
            raise UsageError(
                "is of another type",
                where="dataset",
                got=shown(dataset),
                expected="a Dataset or IterableDataset of the datasets library, or the name of one",
            )
        self._field, self._seed, self._buffer = text_field, whole(seed, "seed", least=0), buffer

    def chunks(self, mark: Mark = START) -> Iterator[tuple[Tokens, Mark]]:
        """Yield chunks without end from a mark on: tokens int32 [seq_len + 1], and the mark of the chunk after it.

        Raises:
            UsageError: no such mark can be.
            InputError: the mark lies behind its epoch or document, so the data or the tokenizer is another one; an
                epoch without tokens; or what `eager` raises of a row.
        """
        if any(whole(part, "mark") < 0 for part in mark):
            raise UsageError("is no place in a stream", where="mark", got=str(mark), expected="numbers of 0 or more")
        for chunk in cut(self._pieces(mark), self.seq_len + 1, self.seq_len):
            assert chunk.front is not None, "a chunk's last token is the first of the next"
            yield chunk.tokens, chunk.front

    def _pieces(self, mark: Mark) -> Iterator[Piece]:
        yield from self._from(mark)
        epoch = mark.epoch
        while True:
            epoch += 1
            pieces = self._from(Mark(epoch))
            first = next(pieces, None)
            if first is None:
                raise InputError("has no tokens", where=f"epoch {epoch} of the texts", hint="check the tokenizer")
            yield first
            yield from pieces

    def _from(self, mark: Mark) -> Iterator[Piece]:
        rows = self._ordered(mark)
        pieces = tokenized_pieces(rows, self._encode, self.eos_id, self._field, Mark(mark.epoch, mark.document))
        if mark.offset or mark.document:
            head = next(pieces, None)
            if head is None or head.mark.document != mark.document or mark.offset >= len(head.ids):
                raise InputError(
                    "lies behind the end of its epoch or document",
                    where=str(mark),
                    hint="resume with the data, seed, buffer and tokenizer that the mark was made with",
                )
            pieces = chain([Piece(mark, head.ids[mark.offset :])], pieces)
        return pieces

    def _ordered(self, mark: Mark) -> Iterator[dict[str, Any]]:
        rows = ordered(self._dataset, self._seed + mark.epoch, self._buffer)
        if _indexable(rows):
            return iter(rows.select(range(mark.document, len(rows))) if mark.document < len(rows) else ())
        return islice(rows, mark.document, None)


def opened(dataset: Any, config: str | None, split: str, text_field: str, *, streaming: bool) -> Any:
    """The data set of this name, or what is one already."""
    if isinstance(dataset, str):
        try:
            from datasets import load_dataset
        except ImportError as error:
            raise UsageError(
                "needs the datasets library", where=f"dataset={dataset}", hint="pip install datasets==5.2.0"
            ) from error
        with _foreign(f"dataset={dataset}", "cannot be had"):
            dataset = load_dataset(dataset, config, split=split, streaming=streaming)
    # Other columns would be decoded with every row.
    return (
        dataset.select_columns([text_field]) if _indexable(dataset) and text_field in dataset.column_names else dataset
    )


def ordered(dataset: Any, seed: int, buffer: int) -> Any:
    """The rows as the library shuffles them."""
    if _indexable(dataset):
        # Not into the cache on disk: every epoch would leave a file of indices there.
        return dataset.shuffle(seed=seed, keep_in_memory=True) if buffer else dataset
    return dataset.shuffle(seed=seed, buffer_size=buffer) if buffer else dataset


def _indexable(dataset: Any) -> bool:
    return hasattr(dataset, "to_iterable_dataset")


def tokenized(rows: Iterable[dict[str, Any]], tokenizer: Any, eos_id: int, text_field: str) -> Tokens:
    """All tokens of all rows, int32 [tokens], each document followed by `eos_id`."""
    # Grows as a list does, and takes four bytes a token where that takes some forty.
    ids = array("i")
    for piece in tokenized_pieces(rows, encoding(tokenizer), eos_id, text_field, START):
        ids.frombytes(piece.ids.tobytes())
    return np.frombuffer(ids, np.int32)


def tokenized_pieces(
    rows: Iterable[dict[str, Any]],
    encode: Callable[[list[str]], Sequence[Any]],
    eos_id: int,
    text_field: str,
    first: Mark,
) -> Iterator[Piece]:
    """Each document's tokens and the end-of-text id; documents without tokens are left out. `first` marks the first."""
    try:
        given = iter(rows)
    except TypeError:
        raise UsageError(
            "is of another type", where="dataset", got=shown(rows), expected="rows, each a mapping with a text"
        ) from None
    number = first.document

    def following() -> list[dict[str, Any]]:
        with _foreign(f"documents from {number} on", "cannot be read"):
            return list(islice(given, _TOGETHER))

    while group := following():
        texts = [_text(row, text_field, f"document {number + at} of the texts") for at, row in enumerate(group)]
        with _foreign(f"documents {number} to {number + len(group) - 1} of the texts", "cannot be tokenized"):
            encoded = [(ids, len(ids)) for ids in encode(texts)]
        for ids, length in encoded:
            if length:
                yield Piece(Mark(first.epoch, number), _checked(ids, eos_id, f"document {number} of the texts"))
            number += 1


def cut(pieces: Iterable[Piece], size: int, step: int) -> Iterator[Chunk]:
    """Chunks of `size` tokens off the front, each `step` after the one before; tokens that fill none are left."""
    held: deque[Piece] = deque()
    tokens = 0
    for piece in pieces:
        held.append(piece)
        tokens += len(piece.ids)
        while tokens >= size:
            chunk = np.concatenate([part.ids[:size] for part in _front(held, size)])[:size]
            left = step
            while held and left >= len(held[0].ids):
                left -= len(held.popleft().ids)
            if left:
                (epoch, document, offset), ids = held[0]
                held[0] = Piece(Mark(epoch, document, offset + left), ids[left:])
            tokens -= step
            yield Chunk(chunk, held[0].mark if held else None, piece.mark)


def _front(held: Iterable[Piece], size: int) -> Iterator[Piece]:
    for piece in held:
        if size <= 0:
            return
        yield piece
        size -= len(piece.ids)


def encoding(tokenizer: Any) -> Callable[[list[str]], Sequence[Any]]:
    """A function of texts that returns the ids of each, without special tokens; see `eager` for what a tokenizer is."""
    if isinstance(tokenizer, Encoder):

        def by_pairmill(texts: list[str]) -> Sequence[Any]:
            ids, offsets = tokenizer.encode(texts)
            return np.split(ids, offsets[1:-1])

        return by_pairmill
    if hasattr(tokenizer, "encode_batch"):
        return lambda texts: [made.ids for made in tokenizer.encode_batch(texts, add_special_tokens=False)]
    if hasattr(tokenizer, "convert_tokens_to_ids"):
        # Of transformers, where one call for many texts runs on all cores.
        return lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"]
    if callable(tokenizer):
        return lambda texts: [tokenizer(text) for text in texts]
    raise UsageError(
        "is no tokenizer",
        where="tokenizer",
        got=type(tokenizer).__name__,
        expected="a function of a text, or a tokenizer of tokenizers, transformers or pairmill",
    )


@contextmanager
def _foreign(where: str, what: str) -> Iterator[None]:
    """What the library, a data set or a tokenizer raises is an error of ours that says where.

    Raises:
        InputError: with what was raised.
    """
    try:
        yield
    except (PairmillError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            what, where=where, got=shown(error), hint="the error that led to this one says more"
        ) from error


def _require_eos(eos_id: int | None) -> int:
    eos_id = None if eos_id is None else whole(eos_id, "eos_id")
    if eos_id is None or not 0 <= eos_id < 2**31:
        raise UsageError(
            "is no token id",
            where="eos_id",
            got=str(eos_id),
            expected="0 to 2**31 - 1",
            hint="a tokenizer without an end-of-text token needs one: name the id that is to end documents",
        )
    return eos_id


def _text(row: dict[str, Any], field: str, where: str) -> str:
    if not isinstance(row, Mapping):
        raise InputError("is not a row", where=where, got=shown(row), expected=f"a mapping with {field}")
    if field not in row:
        got = ", ".join(sorted(map(str, row)))
        raise InputError("has no such column", where=where, got=got, expected=field, hint="give text_field")
    found = row[field]
    if not isinstance(found, str):
        raise InputError(
            "is not text", where=f"{where}, {field}", got=type(found).__name__, hint="filter such rows out"
        )
    return found


def _checked(ids: Any, eos_id: int, where: str) -> Tokens:
    with _foreign(where, "was not tokenized into ids"):
        found = np.asarray(ids)
    if found.ndim != 1 or found.dtype.kind not in "ui" or int(found.min()) < 0 or int(found.max()) >= 2**31:
        raise InputError(
            "was not tokenized into ids",
            where=where,
            got=shown(ids),
            expected="a list of integers of 0 to 2**31 - 1",
        )
    return np.append(found.astype(np.int32), np.int32(eos_id))
