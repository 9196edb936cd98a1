"""The first round of tokenize for token files of other programs: their samples become arrays, and no text is encoded.

Each longest stretch of tokens that are trained on is an answer and makes a row. Its instruction span is everything
before it in the sample, so the rows of one sample repeat their beginnings, as those of a chat do. Where nothing is
before it, and for a document, the instruction span is BOQ and EOQ: a loss needs a token before the first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine import inputs
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import limits, row_files, token_files, tokens
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.formats.token_files import Index, Ints, Samples
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.encode import READ, Vocabulary, flat_file

_BIN, _IDX = ".bin", ".idx"
# Bytes of tokens that are put together at once.
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True)
class TakeTokens(Shard[Vocabulary], reads=READ):
    """Makes the arrays of a token file, or of some of its row groups or documents.

    Args:
        tokenizer: digest of its file.
        part: of the Parquet file, or of the ``.bin`` file with documents in place of row groups.
        is_piece: whether a later round puts the arrays together with others.
        index: of a ``.bin`` file its ``.idx``.
    """

    tokenizer: str
    part: FileSlice
    is_piece: bool
    index: FileSlice | None = None

    def random_access(self) -> Mapping[str, Content]:
        return {item.uri: item.content for item in (self.part, self.index) if item is not None}

    def run(self, context: Vocabulary, out: Writer) -> ShardResult:
        head = np.array([context.boq, context.eoq], np.uint32)
        windows = context.config.windows
        ledger, total, answers, window_tokens = Ledger(), 0, 0, 0
        create = partial(out.create, scratch=self.is_piece)
        with tokens.writers(create) as arrays, flat_file(create, windows) as flat:
            for samples in self._samples():
                _refuse_unknown_ids(samples, self._where, context)
                rows = Rows.from_samples(samples)
                rows.count(samples, ledger)
                rows.refuse_copies(samples, self._where, self.part.longest)
                if flat is not None:
                    document = rows.flat(samples, context.eod)
                    flat.append(document)
                    window_tokens += len(document)
                for values, inst_len, resp_len in rows.spans(samples.ids, head):
                    ends = total + np.cumsum(inst_len + resp_len)
                    made: tuple[NDArray[Any], ...] = (
                        values,
                        ends - resp_len - inst_len,
                        inst_len,
                        ends - resp_len,
                        resp_len,
                    )
                    for array, column in zip(arrays.values(), made, strict=True):
                        array.append(column)
                    total += len(values)
                    answers += int(resp_len.sum())
        ledger.measures = {"tokens": total, "response_tokens": answers, "text_bytes": 0, "given_tokens": total}
        if windows:
            ledger.measures["window_tokens"] = window_tokens
        return ShardResult(ledger)

    @property
    def _where(self) -> str:
        """What comes before the number of a sample in messages."""
        return f"{self.part.uri} {'row' if self.index is None else 'document'}"

    def _samples(self) -> Iterator[Samples]:
        part = self.part
        if self.index is None:
            return token_files.read_parquet(part.uri, part, content=part.content, longest=part.longest)
        return Index.open(self.index.uri, self.index.content).read(part.uri, part, longest=part.longest)


@dataclass(frozen=True)
class Rows:
    """The rows of some samples: where sample, answer and row begin and end in the ids; int64 [rows] each."""

    begins: Ints
    answers: Ints
    ends: Ints

    @classmethod
    def from_samples(cls, samples: Samples) -> Rows:
        """Make a row of each stretch that is trained on; of a document, all of it."""
        if samples.trained is None:
            filled = np.diff(samples.offsets) > 0
            begins = samples.offsets[:-1][filled]
            return cls(begins, begins, samples.offsets[1:][filled])
        answers, ends = token_files.runs(samples.trained, samples.offsets)
        return cls(samples.offsets[_sample_of(samples, answers)], answers, ends)

    def count(self, samples: Samples, ledger: Ledger) -> None:
        """Count the samples and these rows."""
        answers = np.bincount(_sample_of(samples, self.answers), minlength=len(samples))
        kept, empty = answers > 0, np.diff(samples.offsets) == 0
        ledger.rows_in += len(samples)
        ledger.rows_kept += int(kept.sum())
        ledger.rows_out += len(self.answers)
        reasons = {"no_token": empty, "no_token_trained_on": ~kept & ~empty}
        for reason, dropped in reasons.items():
            if dropped.any():
                ledger.drop(reason, int(dropped.sum()))
        if (answers > 1).any():
            ledger.note("several_answers", int((answers > 1).sum()))

    def refuse_copies(self, samples: Samples, where: str, longest: int) -> None:
        """Raise InputError if the rows of one sample have more than ``longest`` bytes of tokens together.

        The rows of a sample with an answer at every second token take the square of its length.
        """
        which = _sample_of(samples, self.answers)
        rows = np.bincount(which, minlength=len(samples))
        taken = 4 * np.bincount(which, self.ends - self.begins, minlength=len(samples))
        wrong = (rows > 1) & (taken > longest)
        if wrong.any():
            at = int(wrong.argmax())
            raise InputError(
                "the rows of one sample are longer than max_record_bytes",
                where=f"{where} {samples.start + at + 1}",
                got=f"{int(taken[at]):,} bytes for {rows[at]:,} answers",
                expected=f"at most {longest:,}",
                hint="a row repeats what is before its answer; mark fewer stretches as trained on, "
                "or raise max_record_bytes=",
            )

    def flat(self, samples: Samples, eod: int) -> NDArray[np.uint32]:
        """Return the tokens of the samples that have a row, once each, and ``eod`` after each that does not end so."""
        parts: list[NDArray[Any]] = [np.empty(0, np.uint32)]
        for number in np.unique(_sample_of(samples, self.answers)).tolist():
            ids = samples.ids[samples.offsets[number] : samples.offsets[number + 1]].astype(np.uint32)
            parts += [ids] if ids[-1] == eod else [ids, np.array([eod], np.uint32)]
        return np.concatenate(parts)

    def spans(
        self, ids: NDArray[np.generic], head: NDArray[np.uint32]
    ) -> Iterator[tuple[NDArray[np.uint32], Ints, Ints]]:
        """Yield tokens, lengths of the instructions and of the responses of consecutive rows.

        Args:
            ids: of the samples.
            head: the instruction span of a row whose answer begins its sample.
        """
        bare = self.answers == self.begins
        inst_len = self.answers - self.begins + bare * len(head)
        resp_len = self.ends - self.answers
        for first, count in limits.stretches(4 * (inst_len + resp_len), _BLOCK_BYTES):
            some = slice(first, first + count)
            parts: list[NDArray[np.generic]] = []
            for begin, end, alone in zip(
                self.begins[some].tolist(), self.ends[some].tolist(), bare[some].tolist(), strict=True
            ):
                if alone:
                    parts.append(head)
                parts.append(ids[begin:end])
            yield np.concatenate(parts).astype(np.uint32), inst_len[some], resp_len[some]


def _sample_of(samples: Samples, places: Ints) -> Ints:
    """Return the number of the sample that each place in the ids belongs to."""
    return np.searchsorted(samples.offsets, places, side="right") - 1


def _refuse_unknown_ids(samples: Samples, where: str, context: Vocabulary) -> None:
    ids = samples.ids
    if not len(ids) or (int(ids.min()) >= 0 and int(ids.max()) < context.size):
        return
    place = int(((ids < 0) | (ids >= context.size)).argmax())
    sample = int(_sample_of(samples, np.array([place]))[0])
    raise InputError(
        "a token is outside the vocabulary",
        where=f"{where} {samples.start + sample + 1}, token {place - int(samples.offsets[sample]) + 1}",
        got=str(ids[place]),
        expected=f"0 to {context.size - 1}, the tokens of {context.uri}",
        hint="give the tokenizer that made these tokens as tokenizer=",
    )


def discover(given: Sequence[str], *, verify: bool) -> inputs.Inputs:
    """Find the token files of the option ``tokens``: those of Parquet, and pairs of ``.bin`` and ``.idx``.

    One file of a pair, or what its two names have in common, means both.

    Raises:
        InputError: as :func:`pairmill.engine.inputs.discover`, or a file without its partner.
    """
    uris: dict[str, None] = {}
    for item in given:
        stem = item.removesuffix(_BIN).removesuffix(_IDX)
        uri = storage.normalise(stem, "tokens")
        pair = [f"{stem}{end}" for end in (_BIN, _IDX) if storage.store_for(uri).exists(f"{uri}{end}")]
        uris.update(dict.fromkeys(pair or [item]))
    result = inputs.discover(list(uris), token_files.EXTENSIONS, "tokens", verify=verify)
    known = {file.uri for file in result.files}
    for file in result.files:
        if file.kind != "parquet" and _partner(file.uri) not in known:
            raise InputError(
                f"a .{file.kind} file without its partner",
                where=file.uri,
                expected=f"{storage.name_of(_partner(file.uri))} beside it, as Megatron-LM writes both",
                hint="a .bin without an index has no documents; Windows.of_files of the loader reads it as it is"
                if file.kind == "bin"
                else "copy the .bin file too",
            )
    return result


def _partner(uri: str) -> str:
    return f"{uri[: -len(_BIN)]}{_IDX if uri.endswith(_BIN) else _BIN}"


def shards_of(
    planned: inputs.Inputs, tokenizer: str, slicing: Slicing, config: TokenizeConfig
) -> dict[str, list[TakeTokens]]:
    """Return the shards of each task, in order.

    Args:
        found: from :func:`discover`.
        tokenizer: digest of its file.
        slicing: how files are cut: Parquet between row groups, ``.bin`` between documents.
        config: with the longest record and the most that a file may expand to.
    """
    files = {file.uri: file for file in planned.files}
    made: dict[str, list[TakeTokens]] = {}
    for file in planned.files:
        if file.kind == "idx":
            continue
        whole = row_files.slice_whole(file, config.max_record_bytes, config.max_expansion)
        index = None
        if file.kind == "bin":
            other = files[_partner(file.uri)]
            index = FileSlice(other.task, other.uri, size=other.size, content=other.content)
        try:
            parts = slicing.cut(whole) if index is None else _documents(whole, index, slicing)
        except InputError:
            # A damaged file is its shard's to name, so that all others are committed.
            parts = [whole]
        alone = len(parts) == 1
        made[file.task] = [
            TakeTokens(
                tokenizer,
                part,
                not alone,
                index,
                name=file.task if alone else f"{file.task} {number:05}",
                size=min(part.size, slicing.size),
            )
            for number, part in enumerate(parts)
        ]
    return made


def _documents(whole: FileSlice, index: FileSlice, slicing: Slicing) -> list[FileSlice]:
    """Cut between documents, with about as many in each slice: only the header of the index is read here."""
    count = Index.open(index.uri, index.content).documents
    many = min(whole.size // slicing.size, count) if whole.size >= slicing.cut_from else 1
    if many <= 1:
        return [whole]
    bounds = [count * number // many for number in range(many + 1)]
    return [
        replace(whole, start=start, stop=stop, first=start, size=whole.size // many) for start, stop in pairwise(bounds)
    ]
