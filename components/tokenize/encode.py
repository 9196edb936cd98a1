"""The first round of tokenize: the rows of a file become arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from components.tokenize.config import TokenizeConfig
from pairmill import _native
from pairmill.encoder import Encoder
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, InternalError
from pairmill.formats import rows, tokens
from pairmill.formats.slices import FileSlice
from pairmill.log import event

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pairmill.engine.conditions import Tag
    from pairmill.engine.content import Content


@dataclass(frozen=True)
class Vocabulary:
    """The tokenizer, with the ids of delimiters and condition tags.

    Args:
        config: the stage's.
        uri: of the tokenizer, for messages.
        text: the tokenizer.json.
        boq: id of the token before a question; ``eoq`` and ``eoa`` of those after a question and an answer.
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
    conditions: dict[str, int]
    size: int
    native: bool

    @classmethod
    def of(cls, config: TokenizeConfig, uri: str, data: bytes, own: Mapping[str, Tag] = MappingProxyType({})) -> Self:
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
        ids = {
            token: encoder.token_to_id(token) for token in (config.boq, config.eoq, config.eoa, *conditions.values())
        }
        missing = [token for token, number in ids.items() if number is None]
        if missing:
            asked = {name: tag for name, tag in own.items() if conditions.get(name) in missing}
            said = {conditions[name]: f" (the tag {name} of {', '.join(tag.sources)})" for name, tag in asked.items()}
            raise InputError(
                "the tokenizer lacks delimiter or condition tokens",
                where=uri,
                got=", ".join(token + said.get(token, "") for token in missing),
                expected="tokens of its vocabulary",
                hint=_tokens_for(asked, config)
                if asked
                else "train it with these special_tokens=, or choose others with boq= eoq= eoa= conditions=",
            )
        number = {token: value for token, value in ids.items() if value is not None}
        made = cls(
            config,
            uri,
            text,
            number[config.boq],
            number[config.eoq],
            number[config.eoa],
            {tag: number[token] for tag, token in conditions.items()},
            encoder.vocab_size,
            encoder.native is not None,
        )
        vars(made)["encoder"] = encoder
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "encoder"}

    @cached_property
    def encoder(self) -> Encoder:
        """Each worker builds its own, without the check that :meth:`of` made."""
        return Encoder.from_json(self.text, where=self.uri, checked=self.native)


def _tokens_for(tags: Mapping[str, Tag], config: TokenizeConfig) -> str:
    """What to do about tags of one's own that a tokenizer has no token for."""
    others = [item for item in config.conditions if item.partition("=")[0] not in tags]
    return (
        "train a tokenizer on these rows, which adds the tokens; or name tokens that this one has: conditions="
        + ",".join([*others, *(f"{name}=…" for name in tags)])
    )


@dataclass(frozen=True)
class EncodeRows(Shard[Vocabulary]):
    """Makes the arrays of a row file, or of some of its row groups."""

    part: FileSlice
    is_piece: bool

    def random_access(self) -> Mapping[str, Content]:
        return self.part.random_access

    def run(self, context: Vocabulary, out: Writer) -> ShardResult:
        config, uri = context.config, self.part.uri
        encoder = context.encoder
        layout = _native.Layout(context.boq, context.eoq, context.eoa, context.conditions)
        ledger = Ledger()
        totals = dict.fromkeys(("tokens", "response_tokens", "text_bytes"), 0)
        if context.native:  # the library does not tell
            totals["dropped_bytes"] = 0
        with tokens.writers(partial(out.create, scratch=self.is_piece)) as arrays:
            for batch in rows.read(
                uri,
                self.part,
                checked=not context.native,
                content=self.part.content,
                longest=self.part.longest,
            ):
                if config.profile == "data_io":
                    batch = _nulls_filled(batch)
                rows.refuse_nulls(batch, uri)
                with _rows_named(uri, batch.start, context):
                    made, dropped = _spans(encoder, layout, batch, totals["tokens"])
                for array, values in zip(arrays.values(), made, strict=True):
                    array.append(values)
                ledger.rows_in += len(batch)
                totals["tokens"] += len(made[0])
                totals["response_tokens"] += int(made[-1].sum())
                totals["text_bytes"] += rows.text_bytes(batch.instruction) + rows.text_bytes(batch.response)
                if context.native:
                    totals["dropped_bytes"] += dropped
        ledger.rows_kept = ledger.rows_out = ledger.rows_in
        ledger.measures = totals
        return ShardResult(ledger)


def _nulls_filled(batch: rows.Batch) -> rows.Batch:
    texts = [getattr(batch, name) for name in rows.FIELDS]
    return rows.Batch(batch.start, *(text.fill_null("") if text.null_count else text for text in texts))


def _spans(
    encoder: Encoder, layout: _native.Layout, batch: rows.Batch, start: int
) -> tuple[tuple[NDArray[Any], ...], int]:
    """The arrays of a batch whose first token lies at ``start``, and the bytes that have no symbol."""
    if encoder.native is not None:
        return layout.encode(encoder.native, batch.condition, batch.instruction, batch.response, start)
    question, answer = encoder.encode(batch.instruction), encoder.encode(batch.response)
    return layout.join(batch.condition, question, answer, start)


@contextmanager
def _rows_named(uri: str, start: int, context: Vocabulary) -> Iterator[None]:
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
        row, said = error.args
        raise InternalError(
            "the encoder panicked",
            where=f"{uri} row {start + row + 1}",
            got=said,
            hint="this is a defect of pairmill, please report it with the row",
        ) from error
