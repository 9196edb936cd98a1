"""The tokenize stage: rows → token arrays, one folder per row file.

A file is one shard, whose arrays are those of its task. A large Parquet file is cut between row groups into several,
and a second round of shards puts their arrays together (:mod:`components.tokenize.merge`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from components.tokenize.config import TokenizeConfig
from components.tokenize.merge import MergeArrays
from pairmill import _native
from pairmill.encoder import Encoder
from pairmill.engine import inputs
from pairmill.engine.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.engine.stage import Rounds, Shard, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, InternalError
from pairmill.formats import rows, tokens
from pairmill.formats.tokenizer_file import NAME, locate, read
from pairmill.log import event
from pairmill.report.charts import Bars
from pairmill.report.model import Report, Table, describe_names, describe_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pairmill.engine.content import Content

# Bytes of a piece before compression: enough work to be worth a shard and a copy, little enough that sixteen cores
# share half a gigabyte.
_PIECE_BYTES = 32 << 20
# Below this a Parquet file is one piece without a look at its footer: two would be texts shrunk to an eighth.
_SMALL = _PIECE_BYTES // 4


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
    def of(cls, config: TokenizeConfig, uri: str, data: bytes) -> Self:
        """Load the tokenizer, and have the library check it: a third of a second.

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
            raise InputError(
                "the tokenizer lacks delimiter or condition tokens",
                where=uri,
                got=", ".join(missing),
                expected="tokens of its vocabulary",
                hint="train it with these special_tokens=, or choose others with boq= eoq= eoa= conditions=",
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


@dataclass(frozen=True)
class EncodeRows(Shard[Vocabulary]):
    """Makes the arrays of a row file, or of some of its row groups."""

    file: inputs.InputFile
    part: rows.Part | None = None

    def random_access(self) -> Mapping[str, Content]:
        return self.file.random_access

    def run(self, context: Vocabulary, out: Writer) -> ShardResult:
        config, uri = context.config, self.file.uri
        encoder = context.encoder
        layout = _native.Layout(context.boq, context.eoq, context.eoa, context.conditions)
        ledger = Ledger()
        totals = dict.fromkeys(("tokens", "response_tokens", "text_bytes"), 0)
        if context.native:  # the library does not tell
            totals["dropped_bytes"] = 0
        with tokens.writers(partial(out.create, scratch=self.part is not None)) as arrays:
            for batch in rows.read(
                uri,
                self.part,
                checked=not context.native,
                content=self.file.content,
                longest=config.max_record_bytes,
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


@dataclass(frozen=True, kw_only=True)
class TokenizePlan(StagePlan[Vocabulary]):
    """Args: files: each row file with its parts, none of one that is a single shard."""

    files: list[tuple[inputs.InputFile, list[rows.Part]]]
    identity: list[Any]

    def pieces(self) -> dict[str, list[str]]:
        """The names of the shards of each task that is made of several, in order."""
        return {file.task: [shard.name for shard in self.shards_of(file, parts)] for file, parts in self.files if parts}

    def shards_of(self, file: inputs.InputFile, parts: list[rows.Part]) -> list[EncodeRows]:
        """The shards that encode a file."""
        if not parts:
            return [EncodeRows(file.task, content_key(*self.identity, file.sha256, file.kind), file.size, file)]
        return [
            EncodeRows(
                f"{file.task} {index:05}",
                content_key(*self.identity, file.sha256, file.kind, [part.start, part.stop]),
                part.size,
                file,
                part,
            )
            for index, part in enumerate(parts)
        ]


class Tokenize(Stage[TokenizeConfig, TokenizePlan]):
    """Round 1 encodes row files, large ones in pieces; round 2 puts the arrays of pieces together."""

    name: ClassVar[str] = "tokenize"
    shared_rounds: ClassVar[tuple[int, ...]] = (1, 2)
    version: ClassVar[int] = 2
    history: ClassVar[dict[int, str]] = {2: "tokens could be those of a row file that changed while it was read"}
    config = TokenizeConfig

    def plan(self, config: TokenizeConfig) -> TokenizePlan:
        uri = locate(config.tokenizer, config.root)
        data = read(uri)
        digest = hashlib.sha256(data).hexdigest()
        found = inputs.discover(config.rows, rows.EXTENSIONS, "rows", verify=config.verify)
        identity = [self.name, self.version, config.profile, digest]
        identity += [config.boq, config.eoq, config.eoa, config.condition_tokens()]
        refs = [*found.refs, InputRef("tokenizer", digest[:16])]
        if config.profile == "data_io":
            # The reference copies the path it was given into tokenizer_info.json, so here the path changes bytes.
            refs.append(InputRef("tokenizer_path", content_key(config.tokenizer)[:16]))
        return TokenizePlan(
            inputs=refs,
            rows_expected=found.rows,
            build_context=lambda: Vocabulary.of(config, uri, data),
            files=[(file, _parts(file)) for file in found.files],
            identity=identity,
        )

    def rounds(
        self, config: TokenizeConfig, plan: TokenizePlan
    ) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        records = yield [shard for file, parts in plan.files for shard in plan.shards_of(file, parts)]
        if config.profile == "pairmill" and not any(record.ledger.rows_in for record in records):
            raise InputError(
                "the row files hold no row", where=f"rows={','.join(config.rows)}", hint="check the stage before"
            )
        by_name = {record.name: record for record in records}
        yield [MergeArrays.of(task, [by_name[name] for name in names]) for task, names in plan.pieces().items()]

    def finish(self, config: TokenizeConfig, plan: TokenizePlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        encoded, merged = rounds
        dropped = sum(record.ledger.measures.get("dropped_bytes", 0) for record in encoded)
        if dropped:
            event(
                f"tokenize: {dropped:,} bytes of text have no symbol in this tokenizer's vocabulary and are left out",
                dropped_bytes=dropped,
            )
        pieces = plan.pieces()
        in_pieces = {name for names in pieces.values() for name in names}
        for record in (*encoded, *merged):
            if record.name not in in_pieces:
                for file in record.files:
                    out.link(record.folder, file, task=record.name)
        path = config.tokenizer
        if config.profile == "pairmill":
            # The folder brings its tokenizer along, so that it can be moved and says the same wherever it was made.
            path = NAME
            out.write(NAME, plan.context.text.encode())
        info = {
            "tokenizer_path": path,
            "boq": config.boq,
            "eoq": config.eoq,
            "eoa": config.eoa,
            "condition_mapping": config.condition_tokens(),
            "vocab_size": plan.context.size,
        }
        out.write(tokens.INFO, json.dumps(info, separators=(",", ":"), ensure_ascii=False).encode())
        return {"vocab_size": plan.context.size, **({"pieces": pieces} if pieces else {})}

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        sums, per_byte = _sums(manifest)
        vocab_size, tasks = manifest.data["vocab_size"], len(manifest.tasks())
        return {**sums, "tokens_per_byte": round(per_byte, 6), "vocab_size": vocab_size, "tasks": tasks}

    def report(self, manifest: Manifest) -> Report:
        ledger, measures = manifest.ledger, manifest.ledger.measures
        sums, per_byte = _sums(manifest)
        task_of = {name: task for task, names in manifest.data.get("pieces", {}).items() for name in names}
        by_task: dict[str, Ledger] = {}
        for name, one in manifest.shards.items():
            by_task.setdefault(task_of.get(name, name), Ledger()).add(one)
        tasks = [
            (
                name,
                one.rows_in,
                one.measures["tokens"],
                one.measures["response_tokens"],
                one.measures["text_bytes"] / max(1, one.measures["tokens"]),
            )
            for name, one in sorted(by_task.items(), key=lambda item: (-item[1].measures["tokens"], item[0]))
        ]
        empty = [name for name, one in sorted(by_task.items()) if not one.rows_in]
        look_at = []
        if measures.get("dropped_bytes"):
            look_at.append(f"{measures['dropped_bytes']:,} bytes of text have no symbol in the vocabulary: left out.")
        if empty:
            look_at.append(f"No row is in {describe_names(empty)}.")
        return Report(
            "tokenize",
            {
                "Rows": ledger.rows_in,
                "Tokens": sums["tokens"],
                "Response tokens": sums["response_tokens"],
                "Tokens per byte": per_byte,
                "Bytes without symbol": measures.get("dropped_bytes", "not known"),
                "Vocabulary": manifest.data["vocab_size"],
                "Fingerprint": manifest.fingerprint,
            },
            [
                Bars("Tokens by task", [(task[0], task[2]) for task in tasks], "tokens"),
                Table("Tasks", ("Task", "Rows", "Tokens", "Response tokens", "Bytes per token"), tasks),
            ],
            verdict=f"Rows: {describe_rows(ledger)}; {sums['tokens']:,} tokens, {per_byte:.4f} per byte of text.",
            look_at=look_at,
        )


def _sums(manifest: Manifest) -> tuple[dict[str, int], float]:
    """What was counted over all tasks, and tokens per byte of text."""
    sums = {"text_bytes": 0, "tokens": 0, "response_tokens": 0, **manifest.ledger.measures}
    return sums, sums["tokens"] / sums["text_bytes"] if sums["text_bytes"] else 0.0


def _parts(file: inputs.InputFile) -> list[rows.Part]:
    """Where to cut a file; empty = it is one shard."""
    parts: list[rows.Part] = []
    if file.kind == "parquet" and file.size >= _SMALL:
        # A damaged file is its shard's to name, so that all others are committed.
        with suppress(InputError):
            parts = rows.parts(file.uri, _PIECE_BYTES, file.content)
    return parts if len(parts) > 1 and sum(part.size for part in parts) >= 2 * _PIECE_BYTES else []


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
            hint="mend the row, or name the tag with conditions=",
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
