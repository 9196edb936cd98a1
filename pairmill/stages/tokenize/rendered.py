"""The first round of tokenize for rows that a chat template renders: prompt and whole become arrays."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native
from pairmill.chats.account import TemplateFailed
from pairmill.chats.encode import EncodedRow
from pairmill.chats.long_rows import fit_row
from pairmill.chats.render import PREFIX_MISMATCH, Chat, PrefixMismatch, chat_from_pair, render
from pairmill.chats.template import ChatTemplate
from pairmill.chats.window import CUT, SPLIT, LongRows
from pairmill.engine.content import Content
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.vanished import EXAMPLES
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import rows, tokens, window_files
from pairmill.formats.parquet_reader import open_parquet, parquet_batches
from pairmill.formats.slices import FileSlice
from pairmill.formats.token_lengths import Lengths, TokenLengths
from pairmill.stages.tokenize.encode import READ, Vocabulary, flat_file, optional, rows_named, spans, untagged

_CHAT: Final = "chat"
APART: Final = "prompt_and_rest_apart"
"""The note of rows that ``boundary: apart`` saved."""
_FAILED: Final = "template_failed"


@dataclass(frozen=True)
class EncodeChats(Shard[Vocabulary], reads=READ):
    """Makes the arrays of rendered rows, or of pairs that are rendered here.

    Args:
        tokenizer: the digest of its file.
        part: of the row file.
        is_piece: whether a later round puts the arrays together with others.
        held_out: whether the rows are for evaluation.
        template: what :meth:`pairmill.chats.template.ChatTemplate.to_data` describes, as JSON; empty = they are pairs
            between the delimiters, some of which are too long.
        boundary: see :mod:`pairmill.chats.render`.
        least: tokens of a response.
        chats: the file with the attribute ``chat`` of the rows; None = they are pairs.
        long_rows: what :meth:`pairmill.chats.window.LongRows.to_data` describes, as JSON; empty = they stay.
        context: tokens of the longest row, where ``long_rows`` says something.
    """

    work = "encode chats"

    tokenizer: str
    part: FileSlice
    is_piece: bool
    held_out: bool
    template: str
    boundary: str
    least: int
    chats: InputFile | None
    long_rows: str = ""
    context: int = 0

    def random_access(self) -> Mapping[str, Content]:
        return {**self.part.random_access, **(self.chats.random_access if self.chats else {})}

    def run(self, context: Vocabulary, out: Writer) -> ShardResult:
        encoding = _Encoding(self, context)
        ledger, before, after = Ledger(), TokenLengths(), TokenLengths()
        totals = dict.fromkeys(("tokens", "response_tokens", "text_bytes"), 0)
        if context.config.windows:
            totals["window_tokens"] = 0
        create = partial(out.create, scratch=self.is_piece)
        chats, kept_rows, made_rows = self._chats(), 0, 0
        with (
            tokens.writers(create) as arrays,
            optional(create, tokens.BYTES, tokens.BYTES_DTYPE, True) as sizes,
            optional(create, tokens.ROWS, tokens.ROWS_DTYPE, True) as ordinals,
            flat_file(create, context.config.windows) as flat,
        ):
            assert sizes is not None
            assert ordinals is not None
            for batch in rows.read(
                self.part.uri, self.part, checked=True, content=self.part.content, longest=self.part.longest
            ):
                rows.refuse_nulls(batch, self.part.uri)
                given = list(islice(chats, len(batch)))
                if self.chats is not None and len(given) < len(batch):
                    raise self._other_rows(f"{batch.start + len(given):,} rows")
                encoded = encoding.encode(batch, given)
                _, _, prompts, _, answers = _arrays([item for item in encoded if not isinstance(item, str)], 0)
                before.add(prompts, answers)
                results = [encoding.fit(item, batch, row, given, ledger) for row, item in enumerate(encoded)]
                kept = [row for row, items in enumerate(results) for _ in items]
                made = _arrays([item for items in results for item in items], totals["tokens"])
                after.add(made[2], made[-1])
                for array, values in zip(arrays.values(), made, strict=True):
                    array.append(values)
                places = np.array(kept, np.int64)
                sizes.append(rows.text_lengths(batch.response)[places])
                ordinals.append(places + batch.start)
                if flat is not None:
                    documents = rows.is_empty(batch.instruction)[places]
                    values = window_files.flat(made, documents, context.eod, rendered=True)
                    flat.append(values)
                    totals["window_tokens"] += len(values)
                ledger.rows_in += len(batch)
                kept_rows, made_rows = kept_rows + len(set(kept)), made_rows + len(kept)
                totals["tokens"] += len(made[0])
                totals["response_tokens"] += int(made[-1].sum())
                totals["text_bytes"] += rows.text_bytes(batch.instruction) + rows.text_bytes(batch.response)
        if self.chats is not None and self.part.stop is None and next(chats, None) is not None:
            raise self._other_rows(f"more than {ledger.rows_in:,} rows")
        ledger.rows_kept = kept_rows
        if self.held_out:  # no later stage trains on them
            ledger.note("held_out", kept_rows)
        else:
            ledger.rows_out = made_rows
        ledger.measures = totals
        lengths = Lengths(after.to_data(), before.to_data() if self.long_rows else {}, encoding.examples)
        return ShardResult(ledger, asdict(lengths))

    def _chats(self) -> Iterator[str]:
        """Yield the chats of the rows."""
        if self.chats is None:
            return
        with open_parquet(self.chats.uri, self.chats.content) as file:
            if _CHAT not in file.schema_arrow.names:
                raise self._other_rows(f"no column {_CHAT!r}")
            left = self.part.first
            for group in range(file.metadata.num_row_groups):
                size = file.metadata.row_group(group).num_rows
                if left >= size:
                    left -= size
                    continue
                for batch in parquet_batches(self.chats.uri, file, [_CHAT], range(group, group + 1), 1024):
                    column = batch.column(0)
                    for text in column.slice(min(left, len(column))).to_pylist():
                        if text is None:
                            raise self._other_rows("a row without its chat")
                        yield text
                    left = max(left - len(column), 0)

    def _other_rows(self, got: str) -> InputError:
        assert self.chats is not None
        return InputError(
            "the attributes beside rendered rows are of other rows",
            where=self.chats.uri,
            got=got,
            expected=f"the chat of each row of {self.part.uri}",
            hint="make the rows again",
        )


class _Encoding:
    """Encodes the rows of a shard, and makes those fit that are too long.

    Args:
        shard: what says how.
        context: the tokenizer.

    Attributes:
        examples: ordinals of rows without tokens, by reason.
    """

    def __init__(self, shard: EncodeChats, context: Vocabulary) -> None:
        self.examples: dict[str, list[int]] = {}
        self._shard, self._context = shard, context
        self._template = (
            ChatTemplate.from_data(json.loads(shard.template), "the chat template") if shard.template else None
        )
        self._encoder = context.chat_encoder(self._template) if self._template else None
        self._long = LongRows.from_data(json.loads(shard.long_rows)) if shard.long_rows else None
        if self._long and shard.held_out and self._long.answer == SPLIT:
            self._long = replace(self._long, answer=CUT)  # one held-out row stays one

    def encode(self, batch: rows.Batch, chats: Sequence[str]) -> list[EncodedRow | str]:
        """Return the ids of each row, or why it has none; ``chats`` are those of rendered rows."""
        if self._template is None or self._encoder is None:
            return list(self._encode_pairs(batch, range(len(batch))))
        texts = [getattr(batch, name).to_pylist() for name in rows.FIELDS]
        boundary, least = self._shard.boundary, self._shard.least
        if self._shard.chats is not None:
            return list(self._encoder.encode(texts[1], texts[2], chats, boundary, least))
        made: list[EncodedRow | str] = [_FAILED] * len(batch)
        rendered: list[int] = []
        parts: list[tuple[str, str, str]] = []
        documents = []
        for row, (condition, instruction, response) in enumerate(zip(*texts, strict=True)):
            if not instruction:
                documents.append(row)
                continue
            chat = chat_from_pair(condition, instruction, response)
            try:
                parts.append((*render(self._template, chat), chat.to_json()))
                rendered.append(row)
            except PrefixMismatch:
                made[row] = PREFIX_MISMATCH
            except TemplateFailed:
                continue
        prompts, rests, given = ([part[at] for part in parts] for at in (0, 1, 2))
        encoded = self._encoder.encode(prompts, rests, given, boundary, least)
        for row, item in zip(rendered, encoded, strict=True):
            made[row] = item
        for row, item in zip(documents, self._encode_pairs(batch, documents), strict=True):
            made[row] = item
        return made

    def fit(
        self, item: EncodedRow | str, batch: rows.Batch, row: int, chats: Sequence[str], ledger: Ledger
    ) -> tuple[EncodedRow, ...]:
        """Return what is in the place of a row: itself, what was made of it, or nothing; the ledger says why."""
        if isinstance(item, str):
            self._drop(item, batch.start + row, ledger)
            return ()
        if item.apart:
            ledger.note(APART)
        if self._long is None or len(item.ids) <= self._shard.context:
            return (item,)
        condition, instruction, response = (getattr(batch, name)[row].as_py() for name in rows.FIELDS)
        if chats:
            chat = Chat.from_json(chats[row])
        else:
            chat = chat_from_pair(condition if self._template else "", instruction, response)

        def encode(other: Chat) -> EncodedRow | str:
            return self._encode_chat(other) if self._template else self._encode_pair(condition, other)

        estimate = self._estimate if self._template else None
        fitted = fit_row(
            item, chat, self._shard.context, self._long, encode=encode, count=self._count, estimate=estimate
        )
        if not fitted.rows:
            self._drop(fitted.reason, batch.start + row, ledger)
        elif fitted.reason:
            ledger.note(fitted.reason)
        return fitted.rows

    def _drop(self, reason: str, ordinal: int, ledger: Ledger) -> None:
        ledger.drop(reason)
        some = self.examples.setdefault(reason, [])
        if len(some) < EXAMPLES:
            some.append(ordinal)

    def _count(self, text: str) -> int:
        return len(self._context.encoder.encode([text]).ids)

    def _estimate(self, chat: Chat) -> tuple[int, int] | None:
        """Return the tokens of the whole as those of the prompt; both apart where room is kept for an answer."""
        assert self._template is not None
        assert self._encoder is not None
        assert self._long is not None
        try:
            whole = self._encoder.count(self._template.render(chat.messages, chat.tools, generation_prompt=False))
            if not self._long.window.reserve_answer:
                return whole, 0
            prompt = self._encoder.count(self._template.render(chat.messages[:-1], chat.tools))
        except TemplateFailed:
            return None
        return prompt, whole - prompt

    def _encode_chat(self, chat: Chat) -> EncodedRow | str:
        assert self._encoder is not None
        try:
            return self._encoder.encode_chat(chat, self._shard.boundary, self._shard.least)
        except TemplateFailed:
            return _FAILED

    def _encode_pair(self, condition: str, chat: Chat) -> EncodedRow:
        texts = (condition, chat.messages[-2]["content"], chat.messages[-1]["content"])
        batch = rows.Batch(0, *(pa.array([text], pa.large_string()) for text in texts))
        (item,) = self._encode_pairs(batch, [0])
        return item

    def _encode_pairs(self, batch: rows.Batch, places: Sequence[int]) -> Iterator[EncodedRow]:
        """Yield rows with the tokens around them that they have without a template."""
        if not places:
            return
        context = self._context
        some = rows.Batch(batch.start, *(getattr(batch, name).take(pa.array(places)) for name in rows.FIELDS))
        layout = _native.Layout(context.boq, context.eoq, context.eoa, context.conditions, untagged=True)
        with rows_named(self._shard.part.uri, batch.start, context):
            made, _ = spans(context.encoder, layout, some if context.conditions else untagged(some), 0)
        ids, begins, prompts, _, answers = made
        for begin, prompt, answer in zip(begins.tolist(), prompts.tolist(), answers.tolist(), strict=True):
            yield EncodedRow(ids[begin : begin + prompt + answer], prompt)


def _arrays(encoded: Sequence[EncodedRow], start: int) -> tuple[NDArray[Any], ...]:
    """Return the five arrays of rows whose first token lies at ``start``."""
    sizes = np.array([len(item.ids) for item in encoded], np.int64)
    prompts = np.array([item.prompt for item in encoded], np.int64)
    begins = start + np.cumsum(sizes) - sizes
    ids = np.concatenate([np.empty(0, np.uint32), *(item.ids for item in encoded)])
    return ids, begins, prompts, begins + prompts, sizes - prompts
