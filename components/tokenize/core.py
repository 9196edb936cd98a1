"""The tokenize stage: rows → token arrays, one folder per row file."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from components.tokenize.config import TokenizeConfig
from pairmill import inputs, rows, storage, tokens
from pairmill.errors import InputError
from pairmill.log import event
from pairmill.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.report import Bars, Report, Table
from pairmill.stage import Plan, Shard, ShardRecord, Stage, Writer
from pairmill.tokenizer_file import NAME, locate

if TYPE_CHECKING:
    from pairmill.encoder import Encoder


@dataclass(frozen=True)
class _Context:
    """The tokenizer by URI (each process loads it once) and the ids of delimiters and condition tags."""

    tokenizer: str
    digest: str
    boq: int
    eoq: int
    eoa: int
    conditions: dict[str, int]
    vocab_size: int


class Tokenize(Stage[TokenizeConfig]):
    """One shard makes one task: the five arrays of one row file."""

    name: ClassVar[str] = "tokenize"
    version: ClassVar[int] = 1
    config = TokenizeConfig

    def plan(self, config: TokenizeConfig) -> Plan:
        uri = locate(config.tokenizer, storage.normalise(config.root, "root"))
        digest = storage.store_for(uri).digest(uri)
        encoder = _encoder(uri, digest)
        event(f"tokenize: {uri} by the {encoder.path} encoder ({encoder.reason})", encoder=encoder.path)
        ids = {
            token: encoder.token_to_id(token)
            for token in (config.boq, config.eoq, config.eoa, *config.condition_tokens().values())
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
        context = _Context(
            uri,
            digest,
            number[config.boq],
            number[config.eoq],
            number[config.eoa],
            {tag: number[token] for tag, token in config.condition_tokens().items()},
            encoder.vocab_size,
        )
        found = inputs.discover(config.rows, rows.EXTENSIONS, "rows")
        identity = [self.name, self.version, config.profile, digest]
        identity += [context.boq, context.eoq, context.eoa, context.conditions]
        shards = [
            Shard(file.task, content_key(*identity, file.sha256, file.kind), file, file.size) for file in found.files
        ]
        refs = [*found.refs, InputRef("tokenizer", digest[:16])]
        if config.profile == "data_io":
            # The reference copies the path it was given into tokenizer_info.json, so here the path changes bytes.
            refs.append(InputRef("tokenizer_path", content_key(config.tokenizer)[:16]))
        return Plan(shards, refs, found.rows, context)

    def process(
        self, config: TokenizeConfig, plan_context: Any, shard: Shard, out: Writer
    ) -> tuple[Ledger, dict[str, Any]]:
        context: _Context = plan_context
        file: inputs.InputFile = shard.payload
        encoder = _encoder(context.tokenizer, context.digest)
        ledger = Ledger()
        offset = 0
        totals = dict.fromkeys(("tokens", "response_tokens", "text_bytes"), 0)
        with ExitStack() as stack:
            arrays = {
                name: stack.enter_context(
                    tokens.NpyWriter(
                        stack.enter_context(out.create(f"{name}.npy")), np.uint32 if name == "tokens" else np.uint64
                    )
                )
                for name in tokens.ARRAYS
            }
            for batch in rows.read(file.uri):
                if config.profile == "data_io":
                    batch = _nulls_filled(batch)
                rows.refuse_nulls(batch, file.uri)
                heads, codes = _condition_heads(batch, file.uri, context)
                question, answer = encoder.encode(batch.instruction), encoder.encode(batch.response)
                inst_len = np.diff(question.offsets) + np.array([len(head) for head in heads], np.int64)[codes] + 1
                resp_len = np.diff(answer.offsets) + 1
                ends = offset + np.cumsum(inst_len + resp_len)
                inst_start = ends - inst_len - resp_len
                resp_start = inst_start + inst_len
                arrays["tokens"].append(
                    _assemble(
                        heads, codes, question, answer, inst_start - offset, resp_start - offset, ends - offset, context
                    )
                )
                for name, values in zip(tokens.INDEX, (inst_start, inst_len, resp_start, resp_len), strict=True):
                    arrays[name].append(values)
                offset = int(ends[-1])
                ledger.rows_in += len(batch)
                totals["response_tokens"] += int(resp_len.sum())
                totals["text_bytes"] += rows.text_bytes(batch.instruction) + rows.text_bytes(batch.response)
                for part in (question, answer):
                    if part.dropped_bytes is not None:  # the library does not tell
                        totals["dropped_bytes"] = totals.get("dropped_bytes", 0) + part.dropped_bytes
        totals["tokens"] = offset
        ledger.rows_kept = ledger.rows_out = ledger.rows_in
        ledger.measures = totals
        return ledger, {}

    def accept(self, config: TokenizeConfig, plan: Plan, records: list[ShardRecord]) -> None:
        if config.profile == "pairmill" and not any(record.ledger.rows_in for record in records):
            raise InputError(
                "the row files hold no row", where=f"rows={','.join(config.rows)}", hint="check the stage before"
            )
        dropped = sum(record.ledger.measures.get("dropped_bytes", 0) for record in records)
        if dropped:
            event(
                f"tokenize: {dropped:,} bytes of text have no symbol in this tokenizer's vocabulary and are left out",
                dropped_bytes=dropped,
            )

    def finish(
        self, config: TokenizeConfig, plan: Plan, records: list[ShardRecord], shards: str, out: Writer
    ) -> dict[str, Any]:
        context: _Context = plan.context
        for record in records:
            source = storage.join(shards, record.key)
            for file in record.files:
                out.adopt(source, file, task=record.name)
        path = config.tokenizer
        if config.profile == "pairmill":
            # The folder brings its tokenizer along, so that it can be moved and says the same wherever it was made.
            path = NAME
            out.write(NAME, storage.store_for(context.tokenizer).read(context.tokenizer))
        info = {
            "tokenizer_path": path,
            "boq": config.boq,
            "eoq": config.eoq,
            "eoa": config.eoa,
            "condition_mapping": config.condition_tokens(),
            "vocab_size": context.vocab_size,
        }
        out.write(tokens.INFO, json.dumps(info, separators=(",", ":"), ensure_ascii=False).encode())
        return {"vocab_size": context.vocab_size}

    def report(self, manifest: Manifest) -> Report:
        measures = manifest.ledger.measures
        per_byte = measures["tokens"] / measures["text_bytes"] if measures.get("text_bytes") else 0.0
        tasks = [
            (
                name,
                one.rows_in,
                one.measures["tokens"],
                one.measures["response_tokens"],
                one.measures["text_bytes"] / max(1, one.measures["tokens"]),
            )
            for name, one in sorted(manifest.shards.items())
        ]
        return Report(
            "tokenize",
            {
                "Rows": manifest.ledger.rows_in,
                "Tokens": measures.get("tokens", 0),
                "Response tokens": measures.get("response_tokens", 0),
                "Tokens per byte": per_byte,
                "Bytes without symbol": measures.get("dropped_bytes", "not known"),
                "Vocabulary": manifest.data["vocab_size"],
                "Fingerprint": manifest.fingerprint,
            },
            [
                Bars(
                    "Tokens by task", sorted(((task[0], task[2]) for task in tasks), key=lambda bar: -bar[1]), "tokens"
                ),
                Table("Tasks", ("Task", "Rows", "Tokens", "Response tokens", "Bytes per token"), tasks),
            ],
        )


@lru_cache(maxsize=1)
def _encoder(uri: str, _digest: str) -> Encoder:
    from pairmill.encoder import Encoder

    try:
        text = storage.store_for(uri).read(uri).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("not a tokenizer", where=uri, got=str(error), expected="UTF-8 text") from error
    return Encoder.from_json(text, where=uri)


def _nulls_filled(batch: rows.Batch) -> rows.Batch:
    import pyarrow.compute as pc

    return rows.Batch(batch.start, *(pc.fill_null(getattr(batch, name), "") for name in rows.FIELDS))


def _condition_heads(batch: rows.Batch, uri: str, context: _Context) -> tuple[list[list[int]], NDArray[np.int64]]:
    """Per distinct condition of the batch the ids that open an instruction span, and per row which of them."""
    encoded = batch.condition.dictionary_encode()
    heads = []
    codes = encoded.indices.to_numpy().astype(np.int64)
    for code, condition in enumerate(encoded.dictionary.to_pylist()):
        tags = condition.split(",")
        unknown = [tag for tag in tags if tag not in context.conditions]
        if unknown:
            row = batch.start + int(np.flatnonzero(codes == code)[0])
            raise InputError(
                f"condition {unknown[0]!r} is unknown",
                where=f"{uri} row {row}",
                expected=", ".join(sorted(context.conditions)),
                hint="mend the row, or name the tag with conditions=",
            )
        heads.append([context.boq, *(context.conditions[tag] for tag in tags)])
    return heads, codes


def _assemble(
    heads: list[list[int]],
    codes: NDArray[np.int64],
    question: Any,
    answer: Any,
    inst_start: NDArray[np.int64],
    resp_start: NDArray[np.int64],
    ends: NDArray[np.int64],
    context: _Context,
) -> NDArray[np.uint32]:
    """Head, question, EOQ, answer, EOA of every row, one after another."""
    out = np.empty(int(ends[-1]), np.uint32)
    head_len = np.array([len(head) for head in heads], np.int64)[codes]
    widest = max(len(head) for head in heads)
    table = np.array([head + [0] * (widest - len(head)) for head in heads], np.uint32)
    for position in range(widest):
        mine = head_len > position
        out[inst_start[mine] + position] = table[codes[mine], position]
    for part, start in ((question, inst_start + head_len), (answer, resp_start)):
        lengths = np.diff(part.offsets)
        out[np.arange(len(part.ids)) + np.repeat(start - part.offsets[:-1], lengths)] = part.ids
    out[resp_start - 1] = context.eoq
    out[ends - 1] = context.eoa
    return out
