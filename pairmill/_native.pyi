"""The hot loops of pairmill, compiled (rust/python): byte-level BPE as in tokenizers 0.22.2, what `sample` and the
loader do for every row, and the reading of JSON rows.

Strings and words come in as any object with `__arrow_c_array__` (pyarrow, polars, ...), a single array without nulls.
Work runs without the GIL. Counting, training and encoding check for Ctrl-C every 50 ms; a KeyboardInterrupt leaves a
WordCounter with part of the rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Final, Literal, Protocol, TypedDict, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ArrowArray",
    "BatchWalk",
    "Blake3",
    "Encoder",
    "EpochArrays",
    "Layout",
    "LeakIndex",
    "LeakIndexBuilder",
    "MadeRows",
    "Mt19937",
    "NearSettings",
    "NoCausalError",
    "Numbers",
    "Pattern",
    "Philox",
    "PlainBatch",
    "Planner",
    "RowError",
    "RowForm",
    "RowIndex",
    "RowLengths",
    "RowPanic",
    "RowRun",
    "RowTable",
    "TaskError",
    "TokenArrays",
    "TokenFile",
    "TokenFiles",
    "Trainer",
    "UnknownTagError",
    "WordCounter",
    "__version__",
    "add_passes",
    "added_places",
    "blake3_files",
    "blake3_joined",
    "copy_digested",
    "curate_bucket_counts",
    "curate_bucket_terms",
    "curate_exact_keys",
    "curate_forms",
    "curate_letters",
    "curate_logit",
    "curate_logit_train",
    "curate_metrics",
    "curate_near_buckets",
    "curate_near_deal",
    "curate_near_distinct",
    "curate_near_find",
    "curate_near_join",
    "curate_near_mark",
    "curate_near_places",
    "curate_near_refine",
    "curate_near_resolve",
    "curate_near_rules",
    "curate_near_segments",
    "curate_pair_metrics",
    "curate_pii",
    "curate_redact",
    "curate_sketches",
    "curate_unicode",
    "curate_verify",
    "data_io_document_sample",
    "fill_prefixlm",
    "find_values",
    "gather",
    "json_lines",
    "json_rows",
    "mixture_samples",
    "mixture_sources",
    "pack_rows",
    "sample_summaries",
    "sample_summary",
    "select_count",
    "select_draws",
    "select_ln",
    "select_score",
    "select_tokens",
    "simd_levels",
    "tokenizer_encoder",
    "tokenizer_settings",
]

__version__: Final[str]

class _Arrow(Protocol):
    """Exports one Arrow array through the Arrow PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[object, object]: ...

@final
class ArrowArray:
    """An Arrow array; `pyarrow.array()` takes it without copying."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[object, object]:
        """Return the capsules (schema, array). `requested_schema` is ignored, as the interface allows."""

    def __len__(self) -> int:
        """Return the number of rows."""

@final
class Encoder:
    """Text to token ids: NFC, split, byte symbols, merges. It is immutable, and threads may share it.

    Args:
        vocab: token (in byte symbols) to id, or pairs of them; unique ids of 0 to 2**32 - 2.
        merges: (left, right) by rank; both sides and their concatenation must be tokens.
        simd: one of `simd_levels`, for tests; None = the fastest.

    Raises:
        ValueError: vocab or merges are contradictory; the message names the token or the merge. Or the processor lacks
            the level; the message names those that it has.
    """

    def __new__(
        cls,
        vocab: Mapping[str, int] | Iterable[tuple[str, int]],
        merges: Sequence[tuple[str, str]],
        *,
        simd: str | None = None,
    ) -> Encoder: ...
    @property
    def vocab_size(self) -> int:
        """The number of tokens, added ones included."""

    def token_to_id(self, token: str) -> int | None:
        """Return the id of a token (in byte symbols, unless it is an added one), or None."""

    def encode(self, strings: _Arrow) -> tuple[NDArray[np.uint32], NDArray[np.int64], int]:
        """Encode each row as a separate document; special tokens in it are plain text.

        Args:
            strings: Arrow utf8 or large_utf8, rows [rows], without nulls.

        Returns:
            ids uint32 [n]; offsets int64 [rows + 1], where row i has ids[offsets[i]:offsets[i + 1]]; and the number of
            bytes (of the texts in NFC) that have no symbol in the vocabulary and were dropped.

        Raises:
            TypeError: not an Arrow array of these types.
            ValueError: a null, by row, or an array that is not valid.
            RowPanic: a defect of the encoder.
        """

class RowError(ValueError):
    """A row is not text; `args` are the row, from 0, what is wrong with it, and what was found."""

class UnknownTagError(ValueError):
    """A tag of a condition has no token; `args` are the row, from 0, and the tag."""

class RowPanic(RuntimeError):
    """A panic, which is a defect of this module; `args` are the row, from 0, and the message of the panic."""

# Tokens uint32 [n]; inst_start, inst_len, resp_start, resp_len uint64 [rows].
_Spans = tuple[NDArray[np.uint32], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint64]]

@final
class Layout:
    """The tokens around the texts of a row: `boq`, one for each tag of the condition, the question, `eoq`, the answer,
    `eoa`.

    Args:
        boq: id that opens a row.
        eoq: id that ends a question.
        eoa: id that ends an answer.
        tags: id by tag; the tags of a condition are joined by commas.
        untagged: whether an empty condition has no tags; otherwise, and if "" is a tag, it is the tag "".
    """

    def __new__(cls, boq: int, eoq: int, eoa: int, tags: Mapping[str, int], *, untagged: bool = False) -> Layout: ...
    def encode(
        self, encoder: Encoder, condition: _Arrow, instruction: _Arrow, response: _Arrow, start: int
    ) -> tuple[_Spans, int]:
        """Encode rows: each text is a separate document; special tokens in it are plain text.

        Args:
            encoder: encodes the texts.
            condition: Arrow utf8 or large_utf8 [rows], without nulls; so are the two texts.
            instruction: the questions.
            response: the answers.
            start: the position that the first token will have.

        Returns:
            The arrays of docs/format.md section 4, in its order; and the number of bytes (of the texts in NFC) that
            have no symbol in the vocabulary and were dropped.

        Raises:
            TypeError: not Arrow arrays of these types.
            ValueError: unequal lengths, a null, by row, or an array that is not valid.
            RowError: a text is not UTF-8.
            UnknownTagError: a tag of a condition has no token.
            RowPanic: a defect of the encoder.
        """

    def join(
        self,
        condition: _Arrow,
        instruction: tuple[NDArray[np.uint32], NDArray[np.int64]],
        response: tuple[NDArray[np.uint32], NDArray[np.int64]],
        start: int,
    ) -> tuple[_Spans, int]:
        """As `encode`, for texts that were encoded elsewhere; the number of dropped bytes is 0.

        Args:
            condition: as above.
            instruction: ids [n] and offsets [rows + 1] of the questions, as `Encoder.encode` returns them.
            response: those of the answers.
            start: as above.

        Raises:
            TypeError: not arrays of these types.
            ValueError: unequal lengths, a null, or offsets that do not ascend or are larger than the number of ids.
            UnknownTagError: a tag of a condition has no token.
        """

def json_lines(names: list[str], columns: list[_Arrow]) -> bytes:
    """Return equally long columns of texts, Arrow utf8 or large_utf8 [rows] without nulls, as JSON Lines.

    The objects are compact; quotes, backslashes and control characters alone are escaped.

    Raises:
        ValueError: columns of several lengths, or another number of names.
    """

def json_rows(data: bytes, last: bool) -> tuple[ArrowArray, ArrowArray, ArrowArray, int, bool]:
    """Read rows from the start of JSON text, a stream of values with any white space, or none, between them.

    Args:
        data: bytes that need not end with a row.
        last: nothing follows them.

    Returns:
        Condition, instruction and response, Arrow large_utf8 [rows]; how many bytes these rows take; and whether
        reading stopped at something that is not a row, which the caller must examine.
    """

@final
class WordCounter:
    """Counts how often each piece, the unit within which merges happen, occurs in documents."""

    def __new__(cls) -> WordCounter: ...
    def __len__(self) -> int:
        """Return the number of distinct pieces."""

    def add(self, strings: _Arrow, truncate: int, chosen: NDArray[np.bool_] | None = None) -> int:
        """Count the pieces of each row, a separate document, cut to its first `truncate` Unicode scalar values.

        Args:
            strings: Arrow utf8 or large_utf8 [rows], without nulls.
            truncate: characters kept of each document, at least 0; sys.maxsize for all.
            chosen: bool [rows], which rows to count; None = all.

        Returns:
            The bytes of the rows counted, before they were cut.

        Raises:
            TypeError: not arrays of these types.
            ValueError: a null, by row, an array that is not valid, or another number of choices than of rows.
            OverflowError: `truncate` is negative.
        """

    def merge(self, words: _Arrow, counts: _Arrow | NDArray[np.int64]) -> None:
        """Add the counts of another counter, as its `words()` returned them.

        Args:
            words: Arrow binary or large_binary [n], without nulls; UTF-8 bytes of pieces in NFC.
            counts: int64 [n], Arrow or NumPy, each at least 1.

        Raises:
            TypeError: not arrays of these types.
            ValueError: unequal lengths, a null, an empty word, a count below 1, or a sum past 2**63 - 1; the words
                before it are added.
        """

    def words(self) -> tuple[ArrowArray, NDArray[np.int64]]:
        """Return the distinct pieces, Arrow large_binary [n], sorted by bytes, and their counts, int64 [n].

        The counter is empty afterwards.
        """

@final
class Trainer:
    """Byte-level BPE from counted words, with the vocabulary and merges of tokenizers 0.22.2.

    A word of n bytes takes 12 + 4 * n bytes of memory, and about three times as much during the training.
    """

    def __new__(cls) -> Trainer: ...
    def __len__(self) -> int:
        """Return the number of words added."""

    @property
    def text_bytes(self) -> int:
        """The bytes of the text that the added words make up: counts times lengths."""

    def add(self, words: _Arrow, counts: _Arrow | NDArray[np.int64]) -> None:
        """Add words. Their order does not matter, and a word may be added several times with parts of its count.

        Args:
            words: Arrow binary or large_binary [n], without nulls.
            counts: int64 [n], Arrow or NumPy, each at least 1.

        Raises:
            TypeError: not arrays of these types.
            ValueError: unequal lengths, a null, a count below 1, 2**63 bytes of text, or too many distinct words:
                each takes three places and one for each byte, of 2**32 places.
        """

    def train(
        self, vocab_size: int, special_tokens: Sequence[str], min_frequency: int = 2, full_alphabet: bool = False
    ) -> tuple[list[str], list[tuple[str, str]], NDArray[np.int64], bool]:
        """Train on the added words. The trainer is empty afterwards.

        Args:
            vocab_size: tokens wanted, special tokens and alphabet included; those are never cut.
            special_tokens: get the first ids, in this order; a repeated one counts once.
            min_frequency: a pair that occurs less often is not merged.
            full_alphabet: include all 256 byte symbols, not only those of the bytes that occur.

        Returns:
            The tokens by id; the merges (left, right) by rank; int64 [merges], how often each replaced a pair, which
            is the number of tokens that it saves on the text; and whether a pair occurred more than 2**31 - 1 times:
            the reference counts in 32 bits and would have been wrong.
        """

def simd_levels() -> list[str]:
    """Return the levels at which this processor can encode; the last is the fastest and the default. Ids are the same.

    "scalar" runs on every processor of the architecture, "avx2" on newer ones of x86-64 (rust/core/src/simd.rs).
    """

def tokenizer_settings(text: str) -> str:
    """Return the JSON of a tokenizer.json without `model.vocab` and `model.merges`, which are nearly all of it.

    Raises:
        ValueError: not a JSON object with an object `model`.
    """

def tokenizer_encoder(
    text: str,
    *,
    pattern: Literal["qwen2", "llama3", "gpt2"],
    normalize: bool,
    ignore_merges: bool,
    simd: str | None = None,
) -> Encoder:
    """Return the encoder of a tokenizer.json with a byte-level BPE model; its added tokens are found in texts.

    Args:
        text: the file. Its other settings are ignored; the arguments replace them.
        pattern: how a text is split (rust/core/src/bpe/split.rs).
        normalize: convert texts to NFC first.
        ignore_merges: a piece that is a token gets its id, whatever the merges say.
        simd: as for `Encoder`.

    Raises:
        ValueError: vocab, merges and added tokens are contradictory, or added tokens cannot be found as tokenizers
            0.22.2 finds them: the same token twice, single words, white space that two of them take. Or the processor
            lacks the level.
    """

def data_io_document_sample(seed: int, name: str, n: int, limit: int) -> NDArray[np.uint64]:
    """Return the documents that data_io's train_tokenizer keeps of a file: indices uint64 [min(n, limit)], in order.

    The same sample bit for bit, which is mostly the head of the file.

    Args:
        seed: its --seed, 0 to 2**64 - 1.
        name: the task name of the file.
        n: documents in the file, below 2**32 - 1 if more than `limit`.
        limit: documents wanted.

    Raises:
        ValueError: too many documents.
        OverflowError: a negative or too large number.
    """

@final
class Blake3:
    """BLAKE3 of bytes in order. Threads take turns."""

    def __new__(cls) -> Blake3: ...
    def update(self, data: NDArray[np.uint8]) -> None:
        """Add the next bytes (contiguous)."""

    def hexdigest(self) -> str:
        """Return the digest of all bytes up to here, as 64 hexadecimal digits."""

def blake3_joined(path: str | PathLike[str], known: Sequence[tuple[int, bytes]], threads: int) -> str:
    """Return the digest of a file, as :func:`blake3_files` does, of which some pieces of 1 MiB are digested.

    `known` has runs of such pieces, as :func:`copy_digested` returns them. Threads read the others.

    Raises:
        OSError: the file cannot be read.
    """

def copy_digested(source: int, target: int, start: int, stop: int, place: int) -> tuple[int, int, bytes]:
    """Copy bytes [start, stop) of an open file to a place of another.

    Returns:
        How many bytes were copied, fewer only where the file ends; the number of the first piece of 1 MiB of the target
        that they fill; and 32 bytes of BLAKE3's tree for each such piece.

    Raises:
        OSError: one of them cannot be read or written.
    """

def blake3_files(paths: Sequence[str | PathLike[str]], threads: int) -> list[str]:
    """Return the digests of files, as 64 hexadecimal digits; empty for a file that became shorter meanwhile.

    `threads` threads read pieces of 16 MiB. Checks for Ctrl-C every 50 ms.

    Raises:
        OSError: a file cannot be read.
    """

@final
class Philox:
    """The permutations of numpy's `Generator(Philox)`, bit for bit. Each call continues the stream; threads take turns.

    Args:
        low, high: `SeedSequence(seed).generate_state(2, numpy.uint64)`.
    """

    def __new__(cls, low: int, high: int) -> Philox: ...
    def shuffle(self, values: NDArray[np.uint32]) -> None:
        """Put `values` (contiguous) in the order of `permutation(len(values))`, in place.

        Raises:
            ValueError: 2**32 values or more.
        """

@final
class Planner:
    """Draws the plan of a sample: data sets in order, many at a time. No byte depends on threads, budget or batches.

    Args:
        seed: as text.
        epochs: how many.
        context, shortest: longest row and shortest response in tokens.
        workers: threads.
        budget: bytes of rows and places in memory.
        bases: the plans that this one adds to, one upon another; each has random orders of its own.
    """

    def __new__(
        cls, seed: str, epochs: int, *, context: int, shortest: int, workers: int, budget: int, bases: int = 0
    ) -> Planner: ...
    def draw(
        self, tasks: Sequence[Any]
    ) -> tuple[list[tuple[list[int], list[list[int]], list[tuple[int, int, list[int]]]]], bool]:
        """Draw the first of these tasks (``pairmill.stages.sample.draw``).

        Returns:
            For each that was drawn 19 counts (rows and tokens of the task; responses too short, rows over the context,
            responses too short once cut; the smallest context; rows that may be sampled, their instruction and response
            tokens; the same of rows as often as they are drawn; rows drawn once, and their tokens; rows drawn and cut,
            and tokens that they lose; rows with a piece that may be sampled, and that is drawn; the squares of the
            lengths of rows that may be sampled), rows from 1 that are examples of the three reasons and of a cut, and
            by walk its rows, their response tokens, and response tokens that each epoch draws. And whether the task
            after them cannot be read by this reader.

        Raises:
            OSError: the scratch folder cannot be written, or 2^32 rows are drawn.
        """

    def is_full(self) -> bool:
        """Return whether more is in memory than the budget, and :meth:`store_in` was not called."""

    def store_in(self, scratch: str) -> None:
        """Move what is in memory to files in this folder, and from now on what comes.

        Raises:
            OSError: it cannot be written.
        """

    def histograms(self) -> tuple[list[int], list[int]]:
        """Return counts of drawn rows by powers of two: by tokens, and by tokens that were cut off."""

    def columns(self) -> list[tuple[str, tuple[NDArray[Any] | None, str, int, int]]]:
        """Take the columns: by name an array, or path, length and width of one in a file without its header."""

    def epoch(self, number: int) -> tuple[NDArray[Any] | None, str, int, int]:
        """Take the places of an epoch in random order, likewise."""

def add_passes(counts: NDArray[np.uint8], places: NDArray[np.uint32]) -> None:
    """Count each place once more, uint8 [rows]; a count stays at 255. Raises IndexError."""

def added_places(seed: str, bases: int, epoch: int, count: int, total: int) -> NDArray[np.uint32]:
    """Draw where the rows that a plan adds come in an epoch: numbers below ``total``, ascending, uint32 [count].

    Args:
        seed: as text.
        bases: as :class:`Planner` takes it.
        epoch: its number.
        count: rows of it that are added.
        total: rows of it, the added ones included.
    """

def gather(
    tokens: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    width: int,
    out: NDArray[np.uint8],
) -> int:
    """Fill `out` with the ids of spans, one after another; return the largest id before it is cut, or 0.

    Args:
        tokens: the bytes of little-endian uint32 ids, uint8 [4 * tokens], contiguous, as all of these.
        starts: the first id of each span, int64 [spans].
        lengths: the number of ids of each span, int64 [spans].
        width: the lowest bytes of an id that are kept: 1, 2 or 4.
        out: uint8 [width * ids of all spans].

    Raises:
        ValueError: a span outside `tokens`, or `out` of another length; part of it may be filled then.
    """

def sample_summaries(
    tasks: Sequence[tuple[str, Sequence[str], str]], options: tuple[int, int, bool], threads: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Sum up the rows of tasks on this machine, as `sample_summary` does. Checks for Ctrl-C every 50 ms.

    Args:
        tasks: of each its folder, the digests of `inst_start`, `inst_len`, `resp_start` and `resp_len` (`blake3:` and
            64 digits, 64 digits of SHA-256, or empty = any), and what its rule says of long rows.
        options: as for `sample_summary`.
        threads: 1 or more.

    Returns:
        The numbers, int64 [tasks, 12], and whether the arrays of each task are plain and as expected, bool [tasks]; the
        numbers of others are 0.

    Raises:
        ValueError: an unknown long_context.
    """

def sample_summary(
    inst_len: NDArray[np.uint64], resp_len: NDArray[np.uint64], long_context: str, options: tuple[int, int, bool]
) -> NDArray[np.int64]:
    """Sum up the rows of a task that may be sampled.

    Args:
        inst_len: tokens of the instruction of each row, uint64 [rows].
        resp_len: tokens of the response of each row, uint64 [rows].
        long_context: truncate, drop or split.
        options: context_size, min_resp_length, and whether a response is tested before it is cut, as data_io does.

    Returns:
        int64 [12], as `pairmill.formats.task_summaries` names them.

    Raises:
        ValueError: unequal lengths, or an unknown long_context.
    """

@final
class RowTable:
    """Where the rows of a plan are in the sampled tokens; epochs look rows up in it by their number.

    Args:
        rows: how many there will be.
        first: the number of the first of them; a plan may have a table for each part of its rows.
        tokens: they follow each other after so many tokens, response after instruction; 64 bytes have 14 of them (or 7,
            where a length is over 65,535). None: they lie anywhere; 64 bytes have 7 of them, or each takes 24 where a
            response does not follow its instruction, or a length is over 65,535.

    Attributes:
        total: tokens of all rows up to the last that was added.
        after: the number after that of the last.
    """

    def __new__(cls, rows: int, first: int, tokens: int | None) -> RowTable: ...
    @property
    def total(self) -> int: ...
    @property
    def after(self) -> int: ...
    def add(
        self,
        base: int,
        inst_start: NDArray[np.int32] | NDArray[np.int64],
        inst_len: NDArray[np.int32] | NDArray[np.int64],
        resp_start: NDArray[np.int32] | NDArray[np.int64],
        resp_len: NDArray[np.int32] | NDArray[np.int64],
    ) -> None:
        """Add the next rows; `base` is added to their starts, which count only where rows lie apart.

        Raises:
            ValueError: a length below 0, or of 2**32 or more.
        """

@final
class EpochArrays:
    """The four index arrays of an epoch, written and digested in the order of its rows.

    Args:
        heads: the headers of their files.
        handles: open files, empty; None = they are only digested.
        widths: bytes of a start and of a length: 4 or 8, the second not above the first.

    Raises:
        OSError: a file cannot be written.
        ValueError: other widths.
    """

    def __new__(cls, heads: Sequence[bytes], handles: Sequence[int] | None, widths: tuple[int, int]) -> EpochArrays: ...
    def set_aside(self, table: RowTable, order: NDArray[np.uint32], path: str) -> None:
        """Keep the places of those rows of these that are in the table, in a new file; each table has one of its own.

        Raises:
            OSError: it cannot be written, or is there before its table came.
        """

    def append(self, table: RowTable, order: NDArray[np.uint32]) -> None:
        """Append the rows of these numbers, which are in the table, or were set aside in the same order.

        Raises:
            OSError: a file cannot be written.
            ValueError: there is no such row.
        """

    def finish(self) -> list[tuple[str, int]]:
        """Write the last bytes of each file, and return its BLAKE3, in hexadecimal, and its bytes."""

class TaskError(ValueError):
    """The tokens of a task cannot be copied; `args`: why, its number, and a number.

    odd: its file is not an array of as many little-endian uint32 as was said. large: it has this id. read: the file
    cannot be read, with this errno, or 0 where it ends early. row: a row lies outside the tokens.
    """

@final
class TokenFile:
    """A file of tokens, put together by native threads in pieces of 256 KiB, and digested as it is written.

    Args:
        sources: path of the `tokens.npy` of each task, how many ids it has, and whether to digest it in passing.
        head: the header of the file.
        handle: the open file, empty; None = it is only digested.
        tokens: how many it will have.
        width: bytes of each: 1, 2 or 4; what they cannot hold wraps.
        limit: ids must be below it; None = any id.
        threads: how many.
    """

    def __new__(
        cls,
        sources: Sequence[tuple[str, int, bool]],
        *,
        head: bytes,
        handle: int | None,
        tokens: int,
        width: int,
        limit: int | None,
        threads: int,
    ) -> TokenFile: ...
    def copy(
        self,
        tasks: Sequence[int],
        counts: Sequence[int],
        inst_start: NDArray[np.int32] | NDArray[np.int64],
        inst_len: NDArray[np.int32] | NDArray[np.int64],
        resp_start: NDArray[np.int32] | NDArray[np.int64],
        resp_len: NDArray[np.int32] | NDArray[np.int64],
    ) -> int:
        """Append the tokens of rows, instruction before response; nothing after an error. Return the bytes read.

        Args:
            tasks: numbers of those that the rows are of.
            counts: how many rows each has.
            inst_start, inst_len, resp_start, resp_len: spans in the task's own tokens; [rows].

        Raises:
            TaskError: the tokens of a task cannot be copied.
            OSError: the file cannot be written.
            ValueError: more tokens than were said.
        """

    def put(self, data: NDArray[np.uint8]) -> None:
        """Append bytes.

        Raises:
            OSError, ValueError: as `copy`.
        """

    def digests(self) -> list[str]:
        """Return BLAKE3, in hexadecimal, of the file of each task; empty unless it was to be and was read in passing.

        That is not so if rows are in another order than their tokens, or few and far apart.
        """

    def finish(self) -> tuple[str, int]:
        """Return BLAKE3, in hexadecimal, and bytes of the file."""

class NoCausalError(ValueError):
    """Not every rank can have a row whose response has two tokens or more; `args`: such rows, and all rows."""

@final
class Numbers:
    """An array of numbers of any type, read in place: a mapped file is neither copied nor cast as a whole.

    Args:
        array: its bytes, uint8 [n], little-endian; they must not change.
        kind: `u1` to `u8`, `i1` to `i8`, `f4` or `f8`.

    Raises:
        ValueError: another kind.
    """

    def __new__(cls, array: NDArray[np.uint8], kind: str) -> Numbers: ...

class _Survey(TypedDict):
    """Each count of rows comes with the number of the first such row, or 0."""

    rows: int
    empty: tuple[int, int]
    outside: tuple[int, int]
    long: tuple[int, int]
    one_token: tuple[int, int]
    skipped: int
    inputs: int
    targets: int
    longest: tuple[int, int]

@final
class RowIndex:
    """The four index arrays of an epoch, which has as many rows as the shortest one."""

    def __new__(cls, inst_start: Numbers, inst_len: Numbers, resp_start: Numbers, resp_len: Numbers) -> RowIndex: ...
    def window(
        self,
        start: int,
        tokens: int,
        *,
        longer_than: int = ...,
        skip_long: bool = False,
        skip_one_token: bool = False,
    ) -> NDArray[np.int64]:
        """Return rows from `start` on, until their inputs add up to `tokens` or the epoch ends.

        Args:
            start: number of a row.
            tokens: stop at this many inputs; a row has `inst_len + resp_len - 1`.
            longer_than: rows that need more slots are long. A row needs a slot for each input, and two more if its
                response is one token, because such a row needs another one beside it.
            skip_long: leave out long rows.
            skip_one_token: leave out rows whose response is one token.

        Returns:
            int64 [rows, 5]: number of the row, inst_start, inst_len, resp_start, resp_len.
        """

    def survey(
        self, tokens: int, *, longer_than: int = ..., skip_long: bool = False, skip_one_token: bool = False
    ) -> _Survey:
        """Look at every row.

        Args:
            tokens: length of the token array; rows must be inside it.
            longer_than: as in `window`.
            skip_long: as in `window`.
            skip_one_token: as in `window`.

        Returns:
            rows; those with an empty text, outside the tokens, long, with a response of one token, and those that
            `window` leaves out; inputs and targets (tokens of responses) of all rows; inputs and number of the longest.
        """

@final
class RowRun:
    """Global batches in the middle of an epoch, one after another, of which the rows of one rank are kept.

    They end before a batch that the caller must look at: after which no row may come, or whose ranks cannot each have a
    row whose response has two tokens or more.

    Args:
        index: the epoch.
        start: number of the first row.
        count: the most batches.
        rank: below `ranks`.
        tokens: slots of a rank.
        balance, ranks: as in `pack_rows`, which packs them with `causal`.
        longer_than, skip_long, skip_one_token: as in `RowIndex.window`.

    Raises:
        ValueError: there is no such rank, or the balance is unknown.
    """

    def __new__(
        cls,
        index: RowIndex,
        start: int,
        count: int,
        *,
        rank: int,
        ranks: int,
        tokens: int,
        balance: str,
        longer_than: int,
        skip_long: bool,
        skip_one_token: bool,
    ) -> RowRun: ...
    def sizes(self) -> list[tuple[int, int, int]]:
        """Return of each batch: rows and inputs of all ranks, and the row after it."""

    def fill(
        self,
        tokens: Numbers | TokenFiles,
        first: int,
        source: tuple[int, int],
        target_only: bool,
        outs: Sequence[NDArray[np.int32]],
    ) -> list[tuple[tuple[int, int, int, int, int], NDArray[np.int64]]]:
        """Write the batches from number `first` on, one into each of `outs`, as `fill_prefixlm` does.

        Args:
            source: its number, and that of the epoch.

        Returns:
            Of each batch what `fill_prefixlm` returns, and its rows: source, epoch, number, int64 [rows, 3].

        Raises:
            ValueError, OSError: as `fill_prefixlm`; or there are fewer batches.
        """

@final
class RowLengths:
    """Inputs of a plan's rows, and which have a response of one token: about a byte a row.

    Args:
        rows: how many there will be.
    """

    def __new__(cls, rows: int) -> RowLengths: ...
    def __len__(self) -> int: ...
    @property
    def most(self) -> int:
        """Slots that a rank needs for the row that needs the most."""

    def extend(self, inst_len: NDArray[np.int64], resp_len: NDArray[np.int64]) -> None:
        """Add rows by the tokens of their texts, int64 [rows] each.

        Raises:
            ValueError: a row lacks a text, or has 2**31 tokens or more.
        """

@final
class BatchWalk:
    """A pass over the rows of an epoch in their order, which says where its batches end.

    Args:
        start: number of the first row, with which a batch begins.
        tokens: slots of a rank.
        balance, ranks: as in `pack_rows`, which packs them with `causal`.
        longer_than, skip_long, skip_one_token: as in `RowIndex.window`.

    Raises:
        ValueError: there are no ranks, or the balance is unknown.
    """

    def __new__(
        cls,
        start: int,
        *,
        ranks: int,
        tokens: int,
        balance: str,
        longer_than: int,
        skip_long: bool,
        skip_one_token: bool,
    ) -> BatchWalk: ...
    def follow(self, lengths: RowLengths, places: NDArray[np.uint32], most: int) -> bool:
        """Go on with rows of a table, by their places in it, until `most` batches have ended that were not taken.

        Returns:
            False if the batch after those that ended is for the caller to make: its ranks cannot each have the rows
            that they need, or which rows it has follows from more than lengths.

        Raises:
            ValueError: the table lacks such a row.
        """

    def take(self) -> NDArray[np.int64]:
        """Return the batches that have ended since: rows, inputs, and the row after each; int64 [batches, 3]."""

def find_values(values: NDArray[np.uint32], wanted: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Find each place of `values` that has one of `wanted`, which ascend.

    Returns:
        The places, and which of `wanted` each has; int64 [places, 2].

    Raises:
        ValueError: `wanted` does not ascend.
    """

def pack_rows(
    window: NDArray[np.int64],
    ranks: int,
    tokens: int,
    *,
    causal: bool = False,
    balance: str = "lpt",
) -> tuple[int, NDArray[np.uint32], NDArray[np.uint32]]:
    """Return the global batch at the start of a window of rows.

    It has the largest number of rows that longest-first puts into the ranks' slots, as HRM-Text's multipack sampler
    finds it. That is always one row or more, but fewer than there are ranks if the second row is too long.

    Args:
        window: as `RowIndex.window` gives it, int64 [w, 5]; with `ranks * tokens` inputs or more, the batch is as
            large as possible.
        ranks: number of ranks, 1 or more.
        tokens: slots of a rank.
        causal: every rank gets a row whose response has two tokens or more: rows are exchanged, or the batch is
            smaller. So every rank also has fewer rows than slots, as cu_seqlens needs.
        balance: `lpt` by tokens; `quadratic` by length²; `quadratic_work` by the work of attention with bidirectional
            prefixes.

    Returns:
        The number of rows; their places in the window, uint32 [rows], rank by rank in the order of assignment; and the
        offsets of the ranks in these, uint32 [ranks + 1].

    Raises:
        NoCausalError: `causal` is impossible.
        ValueError: `ranks` is 0, or the balance is unknown.
    """

@final
class TokenFiles:
    """Files of token ids that are one array, one after another, and are read row by row where they lie.

    At most 256 of them are open at the same time. Threads may share it.

    Args:
        files: path, the byte of the first id, `u1` to `u8` or `i1` to `i8`, and how many ids there are.

    Raises:
        ValueError: another type, or more than there can be.
    """

    def __new__(cls, files: Sequence[tuple[str, int, str, int]]) -> TokenFiles: ...
    def __len__(self) -> int: ...

def fill_prefixlm(
    tokens: Numbers | TokenFiles,
    window: NDArray[np.int64],
    places: NDArray[np.uint32],
    target_only: bool,
    out: NDArray[np.int32],
) -> tuple[int, int, int, int, int]:
    """Write a rank's rows into its slots.

    Args:
        tokens: all tokens; a row of files lies in one of them.
        window: int64 [w, 5].
        places: the rank's rows, places in the window, uint32 [k].
        target_only: only responses are supervised.
        out: int32 [6 or 7, slots]: inputs, labels, position_ids, prefix_lens, causal_lens, cu_seqlens and, if wanted,
            the number of each slot's row in the batch. Every slot is written.

    Returns:
        total_seqlen, numseqs, max_seqlen_prefix, max_seqlen_causal, max_seqlen_all.

    Raises:
        ValueError: too many inputs or rows for the slots; or a row with an empty text, or outside the tokens.
        OSError: a file cannot be read.
    """

@final
class Pattern:
    """A regular expression that is searched in time linear in the text, whatever the pattern.

    The language is that of the crate `regex`: that of Python's `re` without back-references and look-around.

    Args:
        pattern: as written, of Unicode text.

    Raises:
        ValueError: not such an expression, or one that takes more than 8 MiB when it is compiled; says where.
    """

    def __new__(cls, pattern: str) -> Pattern: ...
    def found_in(self, text: str) -> bool:
        """Return whether the expression matches anywhere in the text.

        Raises:
            UnicodeEncodeError: the text holds an unpaired surrogate.
        """

@final
class RowForm:
    """Where the texts of plain records are, and the condition of their rows.

    A pair is plain if both texts are there, a chat if questions and answers take turns, after at most one system
    message. Any other record is left to the caller.
    """

    @staticmethod
    def pair(condition: str, instruction: str | None, response: str, strip: bool) -> RowForm:
        """Return the form of pairs by the fields of their texts. Without an instruction the response is a document;
        `strip`: remove white space around both."""

    @staticmethod
    def chat(
        condition: str,
        turns: str,
        role: list[str],
        content: list[str],
        meanings: Mapping[str, str],
        beside: tuple[list[str], list[str]],
    ) -> RowForm:
        """Return the form of chats.

        Args:
            condition: of their rows.
            turns: field of a record with the list of messages.
            role: fields of a message with its role; the first with a value counts.
            content: the same of its text; no name is in both.
            meanings: `system`, `user` or `assistant` by role; those with another meaning are no plain chats'.
            beside: fields of records and of messages that have no value in a plain chat.
        """

    def lines(self, data: bytes, start: int, longest: int) -> MadeRows:
        """Return the rows of the plain records in the whole lines from a byte on.

        Args:
            data: the lines.
            start: bytes before the first of them.
            longest: bytes of a line; a longer one is not plain.

        Raises:
            ValueError: the start is beyond the data.
        """

    def chat_rows(self, record: object) -> tuple[list[list[str]], list[int], bool] | None:
        """Return what a record that is a plain chat gives; None of any other one.

        Returns:
            Instruction and response of each row; characters of instructions, of those that a longer one has too, and of
            responses; and whether the chat ends with a question.
        """

    def open(self, batch: _Arrow) -> PlainBatch | None:
        """Return the same of a record batch; None if a column or its field is not plain, or not valid.

        Raises:
            TypeError: not a record batch.
        """

@final
class PlainBatch:
    """A record batch with columns that may have plain records. Threads may share it."""

    def take(self, start: int) -> MadeRows:
        """Return the rows of the plain records from a record on, up to the first other one."""

@final
class MadeRows:
    """Rows of consecutive plain records, about 8 MiB of text at the most."""

    @property
    def end(self) -> int:
        """Bytes of the lines that were read, or records."""

    @property
    def places(self) -> int:
        """Lines that were read, blank ones too, or records."""

    @property
    def stopped(self) -> bool:
        """Whether the next record is not plain."""

    @property
    def records(self) -> int:
        """How many records gave the rows."""

    @property
    def repeated(self) -> int:
        """Characters of instructions that a longer one of the same chat has too."""

    @property
    def unanswered(self) -> int:
        """How many chats end with a question."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def columns(self) -> list[ArrowArray]:
        """Return condition, instruction and response, Arrow utf8 [rows]."""

    def row_places(self) -> NDArray[np.int64]:
        """Return of each row the line or record that it is of, from 0; int64 [rows]."""

    def lengths(self) -> list[NDArray[np.int64]]:
        """Return characters of instructions and of responses; int64 [rows] each."""

    def bits(self) -> list[list[int]]:
        """Return counts of instructions, and of responses, by the bits of their lengths."""

@final
class Mt19937:
    """The permutations of torch on a CPU, bit for bit. Each call continues the stream; threads take turns.

    Args:
        seed: the low 32 bits of torch's `manual_seed`.

    Raises:
        OverflowError: not of 0 to 2**32 - 1.
    """

    def __new__(cls, seed: int) -> Mt19937: ...
    def randperm(self, n: int) -> NDArray[np.int64]:
        """Return int64 [n]: what `torch.randperm(n)` of torch 2.9.1 draws next.

        Raises:
            ValueError: 214,748,364 elements or more, which torch draws in another way.
            OverflowError: `n` is negative.
        """

@final
class TokenArrays:
    """Token arrays, memory-mapped or not, whose windows make batches. Threads may share it.

    Args:
        arrays: integers.

    Raises:
        TypeError: floating-point numbers; the message says which array has them.
    """

    def __new__(cls, arrays: Sequence[Numbers]) -> TokenArrays: ...
    def __len__(self) -> int:
        """Return the number of arrays."""

    def fill(
        self,
        arrays: NDArray[np.int64],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        input_ids: NDArray[np.int64],
        labels: NDArray[np.int64],
        doc_ids: NDArray[np.int64] | None = None,
        eos_id: int | None = None,
    ) -> int | None:
        """Write one window t for each row: `input_ids` its tokens but the last, `labels` but the first.

        With `eos_id`, `labels` is -100 wherever `input_ids` is `eos_id`, and `doc_ids` is the number of `eos_id` before
        it. The rest of a row is padding: 0, -100, and a document of its own.

        Args:
            arrays: the array of each window, int64 [windows].
            starts: its first token, int64 [windows].
            lengths: its number of tokens, int64 [windows], at most slots + 1.
            input_ids: int64 [windows, slots], C-contiguous, as the next two.
            labels: of the same shape.
            doc_ids: of the same shape, given with `eos_id` alone.
            eos_id: the id that ends a document.

        Returns:
            The first window with an id below 0 as int64 (uint64 wraps), or None.

        Raises:
            ValueError: shapes differ, or only one of `doc_ids` and `eos_id` is given. Or a window is not in its array
                or is longer than a row; the rows before it are filled then.
        """

def mixture_sources(key: int, first: int, count: int, bounds: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return the source of each draw: each 1,024 draws have each source at its rate, give or take two, in random order.

    Args:
        key: of the order, 64 bits.
        first: number of the first draw.
        count: of draws.
        bounds: where each source's part of 2**64 ends, ascending, uint64 [sources]; the last is 2**64 - 1.

    Returns:
        uint32 [count].

    Raises:
        ValueError: the bounds do not ascend, or the last one is another.
    """

def mixture_samples(key: int, size: int, places: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the samples of a source at places of its passes, each pass being a permutation of all of them.

    Args:
        key: of the source, 64 bits.
        size: samples of the source, 1 to 2**63 - 1.
        places: from the first pass's beginning, uint64 [n]: place `p` is number `p % size` of pass `p // size`.

    Returns:
        int64 [n].

    Raises:
        ValueError: `size` is 0 or too large.
    """

@final
class NearSettings:
    """What near deduplication compares, and how it looks for candidates.

    Args:
        fields: `pair`; or `instruction` or `response`, rules 3 to 6 on that field with the other ignored.
        number_guard: the fields of a pair whose numbers must be equal: `both`, `instruction` or `off`.
        min_response: tokens from which on a response is evidence.
        min_instruction: tokens from which on an instruction may differ.
        bands: of MinHash, 1 or more.
        rows: of a band, 1 or more.
        document_bands: those of a document, a row with an empty instruction.
        document_rows: those of a document.
        jaccard: from here on two documents are duplicates.
        containment: from here on one document is contained in another.
        keep: rows that are alike of which none is removed; from the next one on they are.
        follow: compare a row that may be like a removed one with the row that stands for that.

    Raises:
        ValueError: an unknown name, or a number out of range.
    """

    def __new__(
        cls,
        *,
        fields: str = "pair",
        number_guard: str = "both",
        min_response: int = 20,
        min_instruction: int = 16,
        bands: int = 32,
        rows: int = 4,
        document_bands: int = 20,
        document_rows: int = 5,
        jaccard: float = 0.8,
        containment: float = 0.9,
        keep: int = 1,
        follow: bool = True,
    ) -> NearSettings: ...

def curate_bucket_counts(
    columns: Sequence[_Arrow],
    ngrams: int = 2,
    buckets: int = 10_000,
    hash: Literal["xxh3", "sha256"] = "xxh3",  # noqa: A002
) -> tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.uint32]]:
    """Count hashed word features: words and runs of other marks of the text in lower case, and n-grams of them.

    Args:
        columns: Arrow utf8 or large_utf8, rows [rows] each, without nulls; a row's counts of all columns are added.
        ngrams: the longest n-gram, 1 to 64.
        buckets: 1 to 2**32 - 1.
        hash: a term's bucket is its xxh3_64 with seed 0, or its SHA-256 as a number, modulo `buckets`.

    Returns:
        A sparse matrix: indptr int64 [rows + 1], where row i has places indptr[i] to indptr[i + 1]; at each place a
        bucket, ascending in a row, uint32 [n], and its count uint32 [n].

    Raises:
        ValueError: an argument out of range, columns of different lengths, or a null.
    """

def curate_bucket_terms(
    columns: Sequence[_Arrow],
    wanted: NDArray[np.uint32],
    ngrams: int = 2,
    buckets: int = 10_000,
    hash: Literal["xxh3", "sha256"] = "xxh3",  # noqa: A002
) -> tuple[NDArray[np.uint32], ArrowArray, NDArray[np.uint64]]:
    """Find the terms that fall into some buckets.

    Args:
        columns: as for `curate_bucket_counts`, and so are the three last.
        wanted: buckets, uint32 [k].

    Returns:
        By bucket and then by term: the bucket uint32 [n], the term, and how often it occurs uint64 [n].
    """

def select_count(
    columns: Sequence[_Arrow],
    counts: NDArray[np.int64],
    ngrams: int = 2,
    hash: Literal["xxh3", "sha256"] = "xxh3",  # noqa: A002
    which: NDArray[np.bool_] | None = None,
) -> int:
    """Count hashed word features over rows; return how many there are. Features are those of `curate_bucket_counts`.

    Args:
        columns: Arrow utf8 or large_utf8 [rows] each, without nulls.
        counts: int64 [buckets]; how often each bucket occurs is added to it.
        ngrams: longest n-gram, 1 to 64.
        hash: of a feature.
        which: rows that count, bool [rows]; None = all.
    """

def select_score(
    columns: Sequence[_Arrow],
    weights: NDArray[np.float64],
    ngrams: int = 2,
    hash: Literal["xxh3", "sha256"] = "xxh3",  # noqa: A002
) -> tuple[NDArray[np.float64], NDArray[np.uint32]]:
    """Sum the weights of the hashed word features of each row, with the same bits on every machine.

    Args:
        columns: as for `select_count`.
        weights: float64 [targets, buckets], at least one target.
        ngrams: as above.
        hash: as above.

    Returns:
        Sums, float64 [targets, rows], and how many features each row has, uint32 [rows].
    """

def select_draws(
    task: str, rows: NDArray[np.int64], seed: int, salt: str, *, noise: bool = False
) -> NDArray[np.float64]:
    """Draw a number within (0, 1) for each row, by task, number, seed and salt alone; float64 [rows].

    Args:
        task: name of the task.
        rows: number of each row in its task, from 0.
        seed: 0 to 2**64 - 1.
        salt: other salts make other draws.
        noise: return standard Gumbel noise made of the draws.
    """

def select_ln(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return natural logarithms, with the same bits on every machine."""

def select_tokens(strings: _Arrow) -> NDArray[np.uint32]:
    """Count the tokens of each text, uint32 [rows]; they are those of `curate_forms`."""

def curate_letters(strings: _Arrow) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count the letters of each text, with the marks on them, and its characters that are not white space; [rows]."""

def curate_logit(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint32],
    counts: NDArray[np.uint32],
    weights: NDArray[np.float32],
    bias: float,
) -> NDArray[np.float64]:
    """Return the probability of each row of a sparse matrix, float64 [rows], with the same bits on every machine.

    Args:
        indptr: with indices and counts as `curate_bucket_counts` returns them; a row is scaled to length 1.
        weights: float32 [buckets].
        bias: of all rows.

    Raises:
        ValueError: the arrays do not belong together.
    """

def curate_logit_train(
    indptr: NDArray[np.int64],
    indices: NDArray[np.uint32],
    counts: NDArray[np.uint32],
    positive: NDArray[np.bool_],
    buckets: int,
    *,
    steps: int = 300,
    rate: float = 4.0,
    momentum: float = 0.9,
    l2: float = 1e-4,
) -> tuple[NDArray[np.float64], float]:
    """Fit logistic regression by gradient descent over all rows, with the same bits on every machine.

    Args:
        indptr: with indices and counts as `curate_bucket_counts` returns them; a row is scaled to length 1.
        positive: bool [rows].
        buckets: number of weights.
        steps: of gradient descent.
        rate: of learning.
        momentum: share of a step that the next one keeps.
        l2: half of it times the squared length of the weights is added to the mean loss.

    Returns:
        Weights float64 [buckets] and the bias.
    """

def curate_near_rules() -> list[str]:
    """Return the names of the rules; a rule's number is its place."""

def curate_sketches(
    instruction: _Arrow, response: _Arrow, settings: NearSettings, condition: _Arrow | None = None
) -> tuple[NDArray[np.uint64], NDArray[np.uint8], NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint32]]:
    """Return what near deduplication needs of each row.

    Args:
        instruction: Arrow utf8 or large_utf8 [rows], without nulls.
        response: as above.
        settings: those of all calls of a run.
        condition: as above, where rows of different conditions are never compared.

    Returns:
        Offsets uint64 [rows + 1] and data uint8 of the sketches; keys uint64 [n] and the row of each, uint32 [n],
        ascending; the tokens of each response, uint32 [rows]. Rows that share a key are candidates. The low two bits of
        a key are its kind, the other bits are a hash.

    Raises:
        TypeError: not Arrow arrays of these types.
        ValueError: unequal lengths, a null, by row, or an array that is not valid.
    """

def curate_near_buckets(
    keys: NDArray[np.uint64], ids: NDArray[np.uint64], fixed: int, refine: bool = True, keep: int = 1
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the pairs of rows to compare, and the families to refine.

    Args:
        keys: uint64 [n], all that have the same key among them.
        ids: the row of each key, uint64 [n]; a smaller id has a smaller rank.
        fixed: ids below it are never removed; two of them are never compared.
        refine: whether there are families; without, all members of a bucket are compared (with its 2,000 best ones).
        keep: each row is compared with so many others at least: all of them may have to be like it.

    Returns:
        Edges uint64 [m, 2], the smaller id first; families uint64 [k, 2]: anchor (the smallest id of a large bucket)
        and member, the anchor being one. Both are sorted and without repetition.

    Raises:
        ValueError: unequal lengths.
    """

def curate_near_deal(
    records: NDArray[np.uint8], part: NDArray[np.uint32], parts: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Put records of one width in the order of their parts; those of a part stay in their order.

    Args:
        records: bytes of all, uint8 [n * width].
        part: of each record, uint32 [n], below `parts`.
        parts: how many there are.

    Returns:
        The bytes by part, uint8 [n * width]; the number of records of each part, int64 [parts].

    Raises:
        ValueError: a part that is too large, or bytes that are not a multiple of the number of parts.
    """

def curate_near_mark(words: NDArray[np.uint64], numbers: NDArray[np.int64]) -> None:
    """Add numbers to a set of one bit each.

    Args:
        words: of 64 bits each, uint64 [words]; changed.
        numbers: int64 [n], with repetitions.

    Raises:
        ValueError: a number that the set has no bit for.
    """

def curate_near_places(
    words: NDArray[np.uint64], before: NDArray[np.int64], numbers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many numbers of a set are smaller than each number, int64 [n].

    Args:
        words: the set, as `curate_near_mark` has it.
        before: how many numbers the words before each word have, int64 [words] or more.
        numbers: int64 [n].

    Raises:
        ValueError: a number that the set has no bit for.
    """

def curate_near_distinct(pairs: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the distinct ones of pairs, in the order in which they first come; uint64 [2 m].

    Args:
        pairs: both numbers of each, one pair after another, uint64 [2 n].

    Raises:
        ValueError: an odd number of numbers, or 2^32 pairs or more.
    """

def curate_near_find(names: NDArray[np.uint64], values: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Return the place of each value among the names.

    Args:
        names: ascending, uint64 [m].
        values: uint64 [n], in any order.

    Returns:
        uint32 [n].

    Raises:
        ValueError: a value is not among the names.
    """

def curate_near_join(parents: NDArray[np.uint32], a: NDArray[np.int64], b: NDArray[np.int64]) -> None:
    """Join the sets of the members of each pair, so that the smallest member of a set is its root.

    Args:
        parents: of each member one of its set that is not larger; at a root itself; uint32 [members]; changed.
        a: members, int64 [n].
        b: members, int64 [n].

    Raises:
        ValueError: unequal lengths, or a member that there is not.
    """

def curate_near_segments(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Copy segments of bytes, one after another, uint8 [sum of sizes].

    Args:
        data: uint8.
        starts: of the segments, int64 [n], in any order.
        sizes: of the segments, int64 [n].

    Raises:
        ValueError: unequal lengths, or a segment that is not within the data.
    """

def curate_near_refine(
    offsets: NDArray[np.uint64],
    data: NDArray[np.uint8],
    members: NDArray[np.uint32],
    family_offsets: NDArray[np.uint64],
    settings: NearSettings,
) -> tuple[NDArray[np.uint32], int]:
    """Return the pairs of rows to compare within families.

    Args:
        offsets: uint64 [rows + 1] into the data.
        data: sketches, uint8.
        members: rows, uint32 [members]; those of a family adjoin, in rank order.
        family_offsets: uint64 [families + 1], ascending from 0 to the number of members.
        settings: those that made the sketches.

    Returns:
        Edges uint32 [m, 2], indices of members, the smaller first, sorted and without repetition; the number of
        rows (once for each family) that were not compared with all rows that they resemble.

    Raises:
        ValueError: offsets that do not ascend or are larger than the data, members that are no rows, or a sketch that
            is not valid.
    """

def curate_near_resolve(
    offsets: NDArray[np.uint64],
    data: NDArray[np.uint8],
    order: NDArray[np.uint32],
    fixed: NDArray[np.bool_],
    edges: NDArray[np.uint32],
    settings: NearSettings,
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64], int]:
    """Decide greedily in rank order: a row is removed if it is a duplicate of as many retained rows
    as `keep` of the settings says (by default one).

    Args:
        offsets: uint64 [rows + 1] into the data.
        data: sketches, uint8.
        order: the rows by rank, a permutation, uint32 [rows].
        fixed: bool [rows], rows that are never removed; two of them are never compared.
        edges: the pairs to compare, uint32 [m, 2], in any order.
        settings: those that made the sketches.

    Returns:
        One entry for each finding, ascending by row, then by other row in rank order: the row, uint32; the other row,
        uint32; the rule, uint8; the scores of instruction and response, float64; and the number of verifications.
        A row with another rule than `contained` is removed, and its other row is the first retained one by rank that it
        is a duplicate of. `contained`: the row, which is retained, is part of the other one, retained too.

    Raises:
        ValueError: arrays that do not fit each other, or a sketch that is not valid.
    """

def curate_verify(
    instruction_a: _Arrow, response_a: _Arrow, instruction_b: _Arrow, response_b: _Arrow, settings: NearSettings
) -> tuple[NDArray[np.bool_], NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64]]:
    """Compare row i of a with row i of b.

    Args:
        instruction_a: Arrow utf8 or large_utf8 [rows], without nulls; so are the others.
        response_a: the response of a.
        instruction_b: the instruction of b.
        response_b: the response of b.
        settings: what to compare.

    Returns:
        Whether they are duplicates, bool [rows]; the rule, uint8 [rows]: the one passed last, or the first that failed;
        the scores, float64 [rows]: shares of common 3-grams of instruction and response, 0 where no rule needed it. Of
        two documents: containment and Jaccard index of their 5-grams.

    Raises:
        TypeError: not Arrow arrays of these types.
        ValueError: unequal lengths, a null, by row, or an array that is not valid.
    """

def curate_metrics(texts: _Arrow, which: Sequence[str] | None = None) -> dict[str, NDArray[Any]]:
    """Measure raw texts: the metrics of curate's heuristics (docs/curation.md).

    Args:
        texts: Arrow array of rows.
        which: names of metrics; None = all 35. Fewer take less time.

    Returns:
        By name, in a fixed order: [rows], int64 for whole numbers and float64 for others.

    Raises:
        ValueError: an unknown name.
    """

def curate_pair_metrics(instruction: _Arrow, response: _Arrow) -> dict[str, NDArray[Any]]:
    """Measure pairs.

    Returns:
        `response_instruction_ratio` (tokens of the response by those of the instruction) and `copy_ratio` (share of the
        response's distinct 3-grams of tokens that the instruction has), float64 [rows]; `same` (equal light forms),
        bool [rows].
    """

def curate_pii(texts: _Arrow) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint8]]:
    """Find personal data.

    Returns:
        Of all spans, by row and from left to right: row, start and stop in characters (uint32), and kind (uint8): 0
        mail address, 1 card number, 2 phone number, 3 IP address.
    """

def curate_redact(texts: _Arrow) -> tuple[ArrowArray, NDArray[np.uint32]]:
    """Replace what `curate_pii` finds by `<EMAIL>`, `<CARD>`, `<PHONE>` and `<IP>`.

    Returns:
        The texts (large_string), and how many spans of each were replaced (uint32 [rows]).
    """

def curate_unicode() -> str:
    """Return the version of Unicode by which curate compares texts, "16.0.0": forms and keys may differ by another."""

def curate_exact_keys(columns: Sequence[_Arrow], light: bool) -> NDArray[np.uint64]:
    """Make a key of 128 bits for each row: XXH3 over length (uint64, little-endian) and UTF-8 bytes of each field.

    Args:
        columns: one or more, utf8 or large_utf8 [rows].
        light: take the light form of each field, not the field itself.

    Returns:
        uint64 [rows, 2], the high and the low half.

    Raises:
        TypeError: not arrays of text.
        ValueError: no columns, unequal lengths, a null, or a text that is not UTF-8.
    """

def curate_forms(strings: _Arrow) -> tuple[ArrowArray, ArrowArray, ArrowArray]:
    """Make the forms in which curate compares texts.

    Args:
        strings: utf8 or large_utf8 [rows].

    Returns:
        The light form, large_utf8 [rows]; the tokens and the sorted numbers, large_list of large_utf8 [rows].

    Raises:
        TypeError: not an array of text.
        ValueError: a null, or a text that is not UTF-8.
    """

@final
class LeakIndexBuilder:
    """Makes an index of the items of benchmarks, by which rows are scored.

    Args:
        most: bytes that the index may take, at most 2 GiB.
    """

    def __new__(cls, most: int = ...) -> LeakIndexBuilder: ...
    def __len__(self) -> int:
        """Return the number of items added."""

    def add(
        self, benchmark: str, items: _Arrow, questions: _Arrow, answers: _Arrow, answer_counts: NDArray[np.int64]
    ) -> None:
        """Add items of a benchmark.

        Args:
            benchmark: its name.
            items: their names; Arrow utf8 or large_utf8 [n], without nulls.
            questions: the same.
            answers: of all items, one after another; Arrow utf8 or large_utf8, without nulls.
            answer_counts: how many of them each item has, shape [n].

        Raises:
            OverflowError: the index would be too large.
            ValueError: the lengths do not fit.
        """

    def finish(self) -> NDArray[np.uint8]:
        """Return the bytes of the index; the builder is empty then.

        Raises:
            OverflowError: the index would be too large.
        """

@final
class LeakIndex:
    """An index of the items of benchmarks. Its bytes may be mapped into memory; none of them is copied.

    Args:
        data: what ``LeakIndexBuilder.finish`` made, uint8 [bytes]. It must not change while the index is used.

    Raises:
        ValueError: they are other bytes.
    """

    def __new__(cls, data: NDArray[np.uint8]) -> LeakIndex: ...
    def __len__(self) -> int:
        """Return the number of items."""

    @property
    def benchmarks(self) -> list[str]:
        """The names of the benchmarks, in the order in which they were added."""

    def item(self, number: int) -> tuple[str, str]:
        """Return the benchmark and the name of an item of ``score``. Raises IndexError if there is no such item."""

    def score(
        self, instruction: _Arrow, response: _Arrow
    ) -> tuple[
        NDArray[np.uint32],
        NDArray[np.uint32],
        NDArray[np.uint8],
        NDArray[np.uint8],
        NDArray[np.float64],
        NDArray[np.float64],
        NDArray[np.int64],
        NDArray[np.int64],
        int,
    ]:
        """Find the items that rows repeat.

        Args:
            instruction: Arrow utf8 or large_utf8 [rows], without nulls.
            response: the same.

        Returns:
            For each hit, by row and then the worst first: row; item; verdict (0 question and answer, 1 question,
            2 variant, 3 short question); field that the question is in (0 instruction, 1 response); share of the
            question; share of the answer; first token of the window and the one after its last, -1 where the whole
            field was looked at. Then how many questions were not looked at because a field had too many candidates.

        Raises:
            RowError: a text is not UTF-8.
            ValueError: the lengths differ.
        """
