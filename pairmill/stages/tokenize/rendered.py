"""The first round of tokenize for rows that a chat template renders: prompt and whole become arrays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import _native
from pairmill.chats.encode import ChatEncoder, EncodedRow
from pairmill.chats.render import PREFIX_MISMATCH, Chat, PrefixMismatch, render
from pairmill.chats.template import ChatTemplate, TemplateFailed
from pairmill.engine.content import Content
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import rows, tokens, window_files
from pairmill.formats.parquet_reader import open_parquet, parquet_batches
from pairmill.formats.slices import FileSlice
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
        template: what :meth:`pairmill.chats.template.ChatTemplate.to_data` describes, as JSON.
        boundary: see :mod:`pairmill.chats.render`.
        least: tokens of a response.
        chats: the file with the attribute ``chat`` of the rows; None = they are pairs.
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

    def random_access(self) -> Mapping[str, Content]:
        return {**self.part.random_access, **(self.chats.random_access if self.chats else {})}

    def run(self, context: Vocabulary, out: Writer) -> ShardResult:
        template = ChatTemplate.from_data(json.loads(self.template), "the chat template")
        encoder = context.chat_encoder(template)
        ledger = Ledger()
        totals = dict.fromkeys(("tokens", "response_tokens", "text_bytes"), 0)
        if context.config.windows:
            totals["window_tokens"] = 0
        create = partial(out.create, scratch=self.is_piece)
        chats = self._chats()
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
                encoded = self._encode(encoder, template, context, batch, given)
                kept = [row for row, item in enumerate(encoded) if not isinstance(item, str)]
                made = _arrays([item for item in encoded if not isinstance(item, str)], totals["tokens"])
                for array, values in zip(arrays.values(), made, strict=True):
                    array.append(values)
                places = np.array(kept, np.int64)
                sizes.append(rows.text_lengths(batch.response)[places])
                ordinals.append(places + batch.start)
                if flat is not None:
                    values = window_files.flat(made, rows.is_empty(batch.instruction)[places], context.eod)
                    flat.append(values)
                    totals["window_tokens"] += len(values)
                ledger.rows_in += len(batch)
                for item in encoded:
                    if isinstance(item, str):
                        ledger.drop(item)
                    elif item.apart:
                        ledger.note(APART)
                totals["tokens"] += len(made[0])
                totals["response_tokens"] += int(made[-1].sum())
                totals["text_bytes"] += rows.text_bytes(batch.instruction) + rows.text_bytes(batch.response)
        if self.chats is not None and self.part.stop is None and next(chats, None) is not None:
            raise self._other_rows(f"more than {ledger.rows_in:,} rows")
        ledger.rows_kept = ledger.rows_in - sum(ledger.dropped.values())
        if self.held_out:  # no later stage trains on them
            ledger.note("held_out", ledger.rows_kept)
        else:
            ledger.rows_out = ledger.rows_kept
        ledger.measures = totals
        return ShardResult(ledger)

    def _encode(
        self, encoder: ChatEncoder, template: ChatTemplate, context: Vocabulary, batch: rows.Batch, chats: list[str]
    ) -> list[EncodedRow | str]:
        texts = [getattr(batch, name).to_pylist() for name in rows.FIELDS]
        if self.chats is not None:
            if len(chats) < len(batch):
                raise self._other_rows(f"{batch.start + len(chats):,} rows")
            return list(encoder.encode(texts[1], texts[2], chats, self.boundary, self.least))
        made: list[EncodedRow | str] = [_FAILED] * len(batch)
        rendered: list[int] = []
        parts: list[tuple[str, str, str]] = []
        documents = []
        for row, (condition, instruction, response) in enumerate(zip(*texts, strict=True)):
            if not instruction:
                documents.append(row)
                continue
            chat = chat_of(condition, instruction, response)
            try:
                parts.append((*render(template, chat), chat.to_json()))
                rendered.append(row)
            except PrefixMismatch:
                made[row] = PREFIX_MISMATCH
            except TemplateFailed:
                continue
        prompts, rests, given = ([part[at] for part in parts] for at in (0, 1, 2))
        encoded = encoder.encode(prompts, rests, given, self.boundary, self.least)
        for row, item in zip(rendered, encoded, strict=True):
            made[row] = item
        for row, item in zip(documents, _encode_documents(context, batch, documents, self.part.uri), strict=True):
            made[row] = item
        return made

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


def chat_of(condition: str, instruction: str, response: str) -> Chat:
    """Return a pair as a chat; a condition other than ``direct`` is named by a system message."""
    first = [] if condition in ("", "direct") else [{"role": "system", "content": f"Task condition: {condition}"}]
    turns = [{"role": "user", "content": instruction}, {"role": "assistant", "content": response}]
    return Chat([*first, *turns])


def _encode_documents(context: Vocabulary, batch: rows.Batch, places: Sequence[int], uri: str) -> Iterator[EncodedRow]:
    """Yield rows without an instruction with the tokens around them that they have without a template."""
    if not places:
        return
    some = rows.Batch(batch.start, *(getattr(batch, name).take(list(places)) for name in rows.FIELDS))
    layout = _native.Layout(context.boq, context.eoq, context.eoa, context.conditions, untagged=True)
    with rows_named(uri, batch.start, context):
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
