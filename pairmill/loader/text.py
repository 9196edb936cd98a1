"""Texts of the `datasets` library (written against 5.2) as token windows: a whole split at once, or a stream.

The library is imported when a data set is named, and only then; the wheel does not depend on it. `eager` says what a
tokenizer may be. The id that ends a document must always be given: a tokenizer without one must not silently end
documents with token 0, as it does in the reference loader.
"""

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
from pairmill.loader.arguments import boolean, integer, shown, string
from pairmill.loader.windows import Windows

Tokens = NDArray[np.int32]
Encode = Callable[[list[str]], Sequence[Any]]
"""Ids of each of several texts, without special tokens."""

_TOGETHER = 64
"""Documents that are tokenized in one call, as some tokenizers are faster then."""


class Mark(NamedTuple):
    """A position in a stream of documents: the first token of the next chunk.

    Attributes:
        epoch: from 0.
        document: in the order of the epoch, from 0; those without tokens count.
        offset: tokens of it that come before.
    """

    epoch: int = 0
    document: int = 0
    offset: int = 0


class TokenizedDocument(NamedTuple):
    """Tokens of one document, from its token `mark.offset` to its end; the last one is the end-of-text id."""

    mark: Mark
    ids: Tokens


class Chunk(NamedTuple):
    """Tokens cut off the front of documents, where the rest begins (None: nothing is left), and the last document."""

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
        dataset: a `datasets.Dataset`, or the name of one, for `load_dataset`.
        tokenizer: a function of a text that returns its ids; a `tokenizers.Tokenizer`; a tokenizer of transformers; or
            a `pairmill.encoder.Encoder`. No special tokens are added.
        eos_id: the id that ends a document. A document without tokens is left out, and so is its end.
        seq_len: slots of a window.
        packed: number the documents of a window, and predict nothing from the end of one.
        text_field: the column of texts.
        split, config: of a data set given by name.
        name: of the source; None = the name of the data set, or "text".

    Raises:
        UsageError: an argument is not as described, or `datasets` is not installed.
        InputError: no such column, a value that is not text, an id outside int32, or no tokens at all.
    """
    eos, seq_len, packed = _eos(eos_id), integer(seq_len, "seq_len", 1), boolean(packed, "packed")
    title = string(name or (dataset if isinstance(dataset, str) else "text"), "name")
    rows = open_dataset(dataset, config, split, text_field, streaming=False)
    ids = tokenize_all(rows, tokenizer, eos, text_field)
    if not len(ids):
        raise InputError("no tokens", where=title, hint="check text_field and the tokenizer")
    return Windows.of_arrays([ids], seq_len=seq_len, eos_id=eos if packed else None, name=title)


class TextStream:
    """One endless stream of documents, tokenized on the way and cut into chunks, which a mark resumes exactly.

    Chunk k is tokens [k * seq_len, k * seq_len + seq_len] of all epochs' documents one after another, each followed by
    `eos_id`: an epoch's last documents continue into the next, nothing is lost, and no token depends on the number of
    ranks. With n ranks, the caller gives chunk k to rank k mod n; each rank reads and tokenizes all.

    Documents come in the order of the library: `shuffle(seed + epoch, buffer)`. So seed 42 orders its epoch 1 as seed
    43 orders its epoch 0, and the order depends on the version of the library.

    A resume of a `datasets.Dataset` costs nothing, as its shuffle is a permutation. For an `IterableDataset`, all of
    the epoch before the mark is read, decoded and shuffled again, but not tokenized: the library's own state would drop
    what its shuffle buffer held and fill it with other documents ("examples from shuffle buffers are lost when
    resuming", `IterableDataset.state_dict` of 5.2), which is another stream.

    Args:
        dataset: a `datasets.IterableDataset` or `Dataset`, or the name of one, which is streamed.
        tokenizer: as for `eager`.
        eos_id: as for `eager`.
        seq_len: slots of a window; a chunk has one token more.
        seed: of the order.
        buffer: documents among which an `IterableDataset` is shuffled; 0 = no shuffle.
        text_field: the column of texts.
        split, config: of a data set given by name.

    Raises:
        UsageError: an argument is not as described, or `datasets` is not installed.
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
        self.eos_id, self.seq_len = _eos(eos_id), integer(seq_len, "seq_len", 1)
        self._buffer, self._seed = integer(buffer, "buffer", 0), integer(seed, "seed", 0)
        self._dataset = open_dataset(dataset, config, split, text_field, streaming=True)
        self._encode, self._field = batch_encoder(tokenizer), text_field
        if not hasattr(self._dataset, "shuffle"):
            expected = "a Dataset or IterableDataset of the datasets library, or the name of one"
            raise UsageError("wrong type", where="dataset", got=shown(dataset), expected=expected)

    def chunks(self, mark: Mark = Mark()) -> Iterator[tuple[Tokens, Mark]]:  # noqa: B008 (immutable)
        """Yield chunks without end from a mark on: tokens int32 [seq_len + 1], and the mark of the chunk after it.

        Raises:
            UsageError: not a mark.
            InputError: the mark is past the end of its epoch or document, so the data or the tokenizer differ; an epoch
                has no tokens; or what `eager` raises for a row.
        """
        for part in mark:
            integer(part, "mark", 0)
        for chunk in cut_chunks(self._documents(mark), self.seq_len + 1, self.seq_len):
            assert chunk.front is not None, "a chunk's last token is the first of the next"
            yield chunk.tokens, chunk.front

    def _documents(self, mark: Mark) -> Iterator[TokenizedDocument]:
        yield from self._epoch(mark)
        epoch = mark.epoch
        while True:
            epoch += 1
            documents = self._epoch(Mark(epoch))
            first = next(documents, None)
            if first is None:
                raise InputError("no tokens", where=f"epoch {epoch} of the texts", hint="check the tokenizer")
            yield first
            yield from documents

    def _epoch(self, mark: Mark) -> Iterator[TokenizedDocument]:
        """Return the rest of an epoch."""
        rows = shuffled(self._dataset, self._seed + mark.epoch, self._buffer)
        if _indexable(rows):
            rows = rows.select(range(mark.document, len(rows))) if mark.document < len(rows) else ()
        else:
            rows = islice(rows, mark.document, None)
        first = Mark(mark.epoch, mark.document)
        documents = tokenize_documents(rows, self._encode, self.eos_id, self._field, first)
        if mark == (mark.epoch, 0, 0):
            return documents
        head = next(documents, None)
        if head is None or head.mark.document != mark.document or mark.offset >= len(head.ids):
            raise InputError(
                "past the end of its epoch or document",
                where=str(mark),
                hint="resume with the data, seed, buffer and tokenizer that the mark was made with",
            )
        return chain([TokenizedDocument(mark, head.ids[mark.offset :])], documents)


def open_dataset(
    dataset: Any, config: str | None, split: str, text_field: str, *, streaming: bool, revision: str | None = None
) -> Any:
    """Open a data set by name, or take it as it is. Columns other than the text are dropped, not decoded."""
    string(text_field, "text_field")
    string(split, "split")
    if isinstance(dataset, str):
        try:
            from datasets import load_dataset
        except ImportError as error:
            hint = "pip install datasets==5.2.0"
            raise UsageError("needs the datasets library", where=f"dataset={dataset}", hint=hint) from error
        with _foreign(f"dataset={dataset}", "cannot be loaded"):
            dataset = load_dataset(dataset, config, split=split, streaming=streaming, revision=revision)
    if _indexable(dataset) and text_field in dataset.column_names:
        return dataset.select_columns([text_field])
    return dataset


def shuffled(dataset: Any, seed: int, buffer: int) -> Any:
    """Return the rows as the library shuffles them."""
    if not buffer:
        return dataset
    if _indexable(dataset):
        # Not into the cache on disk: every epoch would leave a file of indices there.
        return dataset.shuffle(seed=seed, keep_in_memory=True)
    return dataset.shuffle(seed=seed, buffer_size=buffer)


def _indexable(dataset: Any) -> bool:
    return hasattr(dataset, "to_iterable_dataset")


def tokenize_all(rows: Iterable[dict[str, Any]], tokenizer: Any, eos_id: int, text_field: str) -> Tokens:
    """Return all tokens of all rows, int32 [tokens], each document followed by `eos_id`."""
    # It grows as a list does, and takes four bytes a token instead of some forty.
    ids = array("i")
    for document in tokenize_documents(rows, batch_encoder(tokenizer), eos_id, text_field, Mark()):
        ids.frombytes(document.ids.tobytes())
    return np.frombuffer(ids, np.int32)


def tokenize_documents(
    rows: Iterable[dict[str, Any]], encode: Encode, eos_id: int, text_field: str, first: Mark
) -> Iterator[TokenizedDocument]:
    """Documents with the end-of-text id; those without tokens are left out. `first` is the mark of the first row."""
    try:
        given = iter(rows)
    except TypeError:
        expected = "rows, each a mapping with a text"
        raise UsageError("wrong type", where="dataset", got=shown(rows), expected=expected) from None
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
                where = f"document {number} of the texts"
                yield TokenizedDocument(Mark(first.epoch, number), _with_end(ids, eos_id, where))
            number += 1


def cut_chunks(documents: Iterable[TokenizedDocument], size: int, step: int) -> Iterator[Chunk]:
    """Chunks of `size` tokens off the front, each `step` after the one before; an incomplete last one is left out."""
    held: deque[TokenizedDocument] = deque()
    tokens = 0
    for document in documents:
        held.append(document)
        tokens += len(document.ids)
        while tokens >= size:
            chunk = np.concatenate([part.ids[:size] for part in _front(held, size)])[:size]
            left = step
            while held and left >= len(held[0].ids):
                left -= len(held.popleft().ids)
            if left:
                (epoch, number, offset), ids = held[0]
                held[0] = TokenizedDocument(Mark(epoch, number, offset + left), ids[left:])
            tokens -= step
            yield Chunk(chunk, held[0].mark if held else None, document.mark)


def _front(held: Iterable[TokenizedDocument], size: int) -> Iterator[TokenizedDocument]:
    for document in held:
        if size <= 0:
            return
        yield document
        size -= len(document.ids)


def batch_encoder(tokenizer: Any) -> Encode:
    """Return a function of texts for any tokenizer (see `eager`)."""
    if isinstance(tokenizer, Encoder):

        def encode(texts: list[str]) -> Sequence[Any]:
            ids, offsets = tokenizer.encode(texts)
            return np.split(ids, offsets[1:-1])

        return encode
    if hasattr(tokenizer, "encode_batch"):
        return lambda texts: [made.ids for made in tokenizer.encode_batch(texts, add_special_tokens=False)]
    if hasattr(tokenizer, "convert_tokens_to_ids"):
        # Of transformers; one call for many texts runs on all cores.
        return lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"]
    if callable(tokenizer):
        return lambda texts: [tokenizer(text) for text in texts]
    expected = "a function of a text, or a tokenizer of tokenizers, transformers or pairmill"
    raise UsageError("not a tokenizer", where="tokenizer", got=type(tokenizer).__name__, expected=expected)


@contextmanager
def _foreign(where: str, what: str) -> Iterator[None]:
    """Turn any exception of the library, a data set or a tokenizer into an InputError that says where."""
    try:
        yield
    except (PairmillError, MemoryError):
        raise
    except Exception as error:
        raise InputError(what, where=where, got=shown(error), hint="see the error that caused this one") from error


def _eos(eos_id: int | None) -> int:
    hint = "name the id that ends documents; a tokenizer without an end-of-text token needs one too"
    if eos_id is None:
        raise UsageError("missing", where="eos_id", got="None", expected=f"0 to {2**31 - 1}", hint=hint)
    return integer(eos_id, "eos_id", 0, 2**31 - 1, hint)


def _text(row: dict[str, Any], field: str, where: str) -> str:
    if not isinstance(row, Mapping):
        raise InputError("not a row", where=where, got=shown(row), expected=f"a mapping with {field}")
    if field not in row:
        got = ", ".join(sorted(map(str, row)))
        raise InputError("no such column", where=where, got=got, expected=field, hint="set text_field")
    result = row[field]
    if not isinstance(result, str):
        got = type(result).__name__
        raise InputError("not text", where=f"{where}, {field}", got=got, hint="filter out such rows")
    return result


def _with_end(ids: Any, eos_id: int, where: str) -> Tokens:
    what = "the tokenizer did not return token ids"
    with _foreign(where, what):
        result = np.asarray(ids)
    if result.ndim != 1 or result.dtype.kind not in "ui" or int(result.min()) < 0 or int(result.max()) >= 2**31:
        raise InputError(what, where=where, got=shown(ids), expected="a list of integers of 0 to 2**31 - 1")
    return np.append(result.astype(np.int32), np.int32(eos_id))
