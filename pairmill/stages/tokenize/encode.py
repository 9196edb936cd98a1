"""The first round of tokenize: the rows of a file become arrays."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairmill import _native
from pairmill.chats.encode import ChatEncoder
from pairmill.chats.template import ChatTemplate
from pairmill.encoder import Encoder
from pairmill.engine.conditions import Tag
from pairmill.engine.content import Content
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, InternalError
from pairmill.formats import rows, templates, tokens, window_files
from pairmill.formats.slices import FileSlice
from pairmill.formats.token_lengths import Lengths, TokenLengths
from pairmill.log import event
from pairmill.stages.tokenize.config import TokenizeConfig

READ: Final = ("profile", "boq", "eoq", "eoa", "conditions", "windows", "eod")
"""The options that every shard of the first round reads."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer, with the ids of delimiters and condition tags.

    Args:
        config: the stage's.
        uri: of the tokenizer, for messages.
        text: the tokenizer.json.
        boq: id of the token before a question; ``eoq`` and ``eoa`` of those after a question and an answer.
        eod: id of the token after a document in flat files.
        conditions: id by condition tag.
        size: number of tokens.
        native: whether our own encoder takes this tokenizer; if not, the library does the work.
    """

    config: TokenizeConfig
    uri: str
    text: str
    boq: int
    eoq: int
    eoa: int
    eod: int
    conditions: dict[str, int]
    size: int
    native: bool

    @classmethod
    def from_tokenizer(
        cls, config: TokenizeConfig, uri: str, data: bytes, own: Mapping[str, Tag] = MappingProxyType({})
    ) -> Self:
        """Load the tokenizer, and have the library check it: a third of a second.

        ``own`` are the tags that the rows brought along.

        Raises:
            InputError: not a tokenizer, or it lacks a token that the options name.
        """
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise InputError("not a tokenizer", where=uri, got=str(error), expected="UTF-8 text") from error
        encoder = Encoder.from_json(text, where=uri)
        event(f"tokenize: {uri} by the {encoder.path} encoder ({encoder.reason})", encoder=encoder.path)
        conditions = config.condition_tokens()
        named = (config.boq, config.eoq, config.eoa, config.end_of_document, *conditions.values())
        ids = {token: encoder.token_to_id(token) for token in named}
        missing = [token for token, number in ids.items() if number is None]
        if missing:
            fit = templates.name_fitting(lambda token: encoder.token_to_id(token) is not None)
            others = f"boq= eoq= eoa= {'eod= ' if config.windows else ''}conditions="
            hint = f"train it with these special_tokens=, or choose others with {others}"
            asked = {name: tag for name, tag in own.items() if conditions.get(name) in missing}
            conditions_named = {
                conditions[name]: f" (the tag {name} of {', '.join(tag.sources)})" for name, tag in asked.items()
            }
            # A token that an option names has nothing to do with the template.
            if fit and templates.template(config.template).tokens.intersection(missing):
                hint = fit
            elif asked:
                hint = _tokens_for(asked, config)
            raise InputError(
                "the tokenizer lacks delimiter or condition tokens",
                where=uri,
                got=", ".join(token + conditions_named.get(token, "") for token in dict.fromkeys(missing)),
                expected="tokens of its vocabulary",
                hint=hint,
            )
        number = {token: value for token, value in ids.items() if value is not None}
        made = cls(
            config,
            uri,
            text,
            boq=number[config.boq],
            eoq=number[config.eoq],
            eoa=number[config.eoa],
            eod=number[config.end_of_document],
            conditions={tag: number[token] for tag, token in conditions.items()},
            size=encoder.vocab_size,
            native=encoder.native is not None,
        )
        vars(made)["encoder"] = encoder
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("encoder", "_chat_encoders")}

    @cached_property
    def encoder(self) -> Encoder:
        """Each worker builds its own, without the check that :meth:`from_tokenizer` made."""
        return Encoder.from_json(self.text, where=self.uri, checked=self.native)

    @cached_property
    def _chat_encoders(self) -> dict[str, ChatEncoder]:
        return {}

    def chat_encoder(self, template: ChatTemplate) -> ChatEncoder:
        """Return the encoder of rows that a template rendered, made once in each worker."""
        made = self._chat_encoders
        if template.digest not in made:
            made[template.digest] = ChatEncoder(self.text, self.uri, template, checked=self.native)
        return made[template.digest]


def _tokens_for(tags: Mapping[str, Tag], config: TokenizeConfig) -> str:
    """Return what to do about tags of one's own that a tokenizer has no token for."""
    others = [item for item in config.conditions if item.partition("=")[0] not in tags]
    return (
        "train a tokenizer on these rows, which adds the tokens; or name tokens that this one has: conditions="
        + ",".join([*others, *(f"{name}=…" for name in tags)])
    )


@dataclass(frozen=True)
class EncodeRows(Shard[Vocabulary], reads=READ):
    """Makes the arrays of a row file, or of some of its row groups. ``tokenizer`` is the digest of its file."""

    tokenizer: str
    part: FileSlice
    is_piece: bool
    held_out: bool = False

    def random_access(self) -> Mapping[str, Content]:
        return self.part.random_access

    def run(self, context: Vocabulary, out: Writer) -> ShardResult:
        config, uri = context.config, self.part.uri
        encoder = context.encoder
        may_be_untagged = config.profile == "pairmill"  # the reference fails on an empty condition
        layout = _native.Layout(context.boq, context.eoq, context.eoa, context.conditions, untagged=may_be_untagged)
        ledger, lengths = Ledger(), TokenLengths()
        totals = dict.fromkeys(("tokens", "response_tokens", "text_bytes"), 0)
        if context.native:  # the library does not tell
            totals["dropped_bytes"] = 0
        if config.windows:
            totals["window_tokens"] = 0
        create = partial(out.create, scratch=self.is_piece)
        kept = config.profile == "pairmill"  # the reference keeps no bytes of responses
        with (
            tokens.writers(create) as arrays,
            optional(create, tokens.BYTES, tokens.BYTES_DTYPE, kept) as sizes,
            flat_file(create, config.windows) as flat,
        ):
            for batch in rows.read(
                uri,
                self.part,
                checked=not context.native,
                content=self.part.content,
                longest=self.part.longest,
                to_train=True,
            ):
                if config.profile == "data_io":
                    batch = _nulls_filled(batch)
                rows.refuse_nulls(batch, uri)
                if not context.conditions:
                    batch = untagged(batch)
                with rows_named(uri, batch.start, context):
                    made, dropped = spans(encoder, layout, batch, totals["tokens"])
                for array, values in zip(arrays.values(), made, strict=True):
                    array.append(values)
                if sizes is not None:
                    sizes.append(rows.text_lengths(batch.response))
                if flat is not None:
                    values = window_files.flat(made, rows.is_empty(batch.instruction), context.eod)
                    flat.append(values)
                    totals["window_tokens"] += len(values)
                lengths.add(made[2], made[-1])
                ledger.rows_in += len(batch)
                totals["tokens"] += len(made[0])
                totals["response_tokens"] += int(made[-1].sum())
                totals["text_bytes"] += rows.text_bytes(batch.instruction) + rows.text_bytes(batch.response)
                if context.native:
                    totals["dropped_bytes"] += dropped
        ledger.rows_kept = ledger.rows_in
        if self.held_out:  # no later stage trains on them
            ledger.note("held_out", ledger.rows_in)
        else:
            ledger.rows_out = ledger.rows_in
        ledger.measures = totals
        return ShardResult(ledger, asdict(Lengths(lengths.to_data())))


def flat_file(
    create: Callable[..., AbstractContextManager[Path]], wanted: bool
) -> AbstractContextManager[tokens.NpyWriter | None]:
    """Return the writer of the flat file, if it is wanted."""
    return optional(create, window_files.NAME, window_files.DTYPE, wanted)


@contextmanager
def optional(
    create: Callable[..., AbstractContextManager[Path]], name: str, dtype: type[np.generic], wanted: bool
) -> Iterator[tokens.NpyWriter | None]:
    """Yield the writer of an array, if it is wanted."""
    if not wanted:
        yield None
        return
    with create(f"{name}.npy") as path, tokens.NpyWriter(path, dtype) as writer:
        yield writer


def _nulls_filled(batch: rows.Batch) -> rows.Batch:
    texts = [getattr(batch, name) for name in rows.FIELDS]
    return rows.Batch(batch.start, *(text.fill_null("") if text.null_count else text for text in texts))


def untagged(batch: rows.Batch) -> rows.Batch:

    return replace(batch, condition=pa.repeat(pa.scalar("", batch.condition.type), len(batch)))


def spans(
    encoder: Encoder, layout: _native.Layout, batch: rows.Batch, start: int
) -> tuple[tuple[NDArray[Any], ...], int]:
    """Return the arrays of a batch whose first token lies at ``start``, and the bytes that have no symbol."""
    if encoder.native is not None:
        return layout.encode(encoder.native, batch.condition, batch.instruction, batch.response, start)
    question, answer = encoder.encode(batch.instruction), encoder.encode(batch.response)
    return layout.join(batch.condition, question, answer, start)


@contextmanager
def rows_named(uri: str, start: int, context: Vocabulary) -> Iterator[None]:
    """Errors of the Rust module about a row name the file and the row within it; ``start`` is the batch's first."""
    try:
        yield
    except _native.UnknownTagError as error:
        row, tag = error.args
        raise InputError(
            f"condition {tag!r} is unknown",
            where=f"{uri} row {start + row + 1}",
            expected=", ".join(sorted(context.conditions)),
            hint="correct the row, or name the tag with conditions=",
        ) from error
    except _native.RowError as error:
        row, what, got = error.args
        raise InputError(what, where=f"{uri} row {start + row + 1}", got=got) from error
    except _native.RowPanic as error:
        row, message = error.args
        raise InternalError(
            "the encoder panicked",
            where=f"{uri} row {start + row + 1}",
            got=message,
            hint="this is a defect of pairmill, please report it with the row",
        ) from error
