"""The train_tokenizer stage: count words per row file, merge counts, learn merges."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from components.train_tokenizer.config import TrainTokenizerConfig
from pairmill import inputs, rows, storage
from pairmill.encoder import PRE_TOKENIZER, SPLIT
from pairmill.errors import InputError
from pairmill.log import event
from pairmill.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.prefixes import Rules
from pairmill.report import Bars, Report, Table
from pairmill.stage import Plan, Profile, Shard, ShardRecord, Stage, Writer

if TYPE_CHECKING:
    pass

_COUNTS = "words.parquet"
_BYTE_LEVEL = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}


@dataclass(frozen=True)
class _Work:
    file: inputs.InputFile
    limit: int | None
    """Texts (data_io) or rows (pairmill) to read; None = all."""


class TrainTokenizer(Stage[TrainTokenizerConfig]):
    """One shard counts the words of one row file."""

    name: ClassVar[str] = "train_tokenizer"
    folder: ClassVar[str] = "tokenizer"
    version: ClassVar[int] = 1
    config = TrainTokenizerConfig

    def plan(self, config: TrainTokenizerConfig) -> Plan:
        rules = Rules.load(config.prefix_config_path, config.profile, "prefix_config_path")
        found = inputs.discover(config.rows, rows.EXTENSIONS, "rows")
        shards = []
        limits = []
        for file in found.files:
            cap = rules.match(file.task)[0].max_per_file
            limit = None if cap is None else max(0, cap) * config.limit_mul_factor
            # The sample depends on the task's name only where there is a limit.
            sample = None if limit is None else [limit, config.seed, file.task, config.profile]
            key = content_key(
                self.name, self.version, config.tokenizer_type, config.truncate_len, sample, file.kind, file.sha256
            )
            shards.append(Shard(file.task, key, _Work(file, limit), file.size))
            limits.append([file.task, limit])
        refs = [*found.refs, InputRef("limits", content_key(limits)[:16])]
        return Plan(shards, refs, found.rows)

    def process(
        self, config: TrainTokenizerConfig, plan_context: Any, shard: Shard, out: Writer
    ) -> tuple[Ledger, dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from pairmill import _native

        work: _Work = shard.payload
        ledger = Ledger()
        counter = _native.WordCounter()
        texts = text_bytes = 0
        for batch, question, answer in _sampled(config, work, ledger):
            for column in (batch.instruction.filter(question), batch.response.filter(answer)):
                column = column.drop_null()
                texts += len(column)
                text_bytes += rows.text_bytes(column)
                counter.add(column, config.truncate_len)
        ledger.rows_out = ledger.rows_kept
        ledger.measures = {"texts": texts, "text_bytes": text_bytes}
        if config.tokenizer_type == "bpe":
            with out.create(_COUNTS) as path:
                words, counts = counter.words()
                table = pa.table({"word": pa.array(words), "count": pa.array(counts)})
                pq.write_table(table, path, compression="zstd", use_dictionary=False, row_group_size=1 << 18)
        return ledger, {}

    def accept(self, config: TrainTokenizerConfig, plan: Plan, records: list[ShardRecord]) -> None:
        if not sum(record.ledger.measures["texts"] for record in records):
            raise InputError(
                "the row files hold no text", where=f"rows={','.join(config.rows)}", hint="check the stage before"
            )

    def finish(
        self, config: TrainTokenizerConfig, plan: Plan, records: list[ShardRecord], shards: str, out: Writer
    ) -> dict[str, Any]:
        if config.tokenizer_type == "unigram":
            text, size = _unigram(config, plan)
            out.write("tokenizer.json", text.encode())
            return {"vocab_size": size, "asked": config.vocab_size, "merges": 0, "words": 0, "longest": []}
        tokenizer, words, overflow = _bpe(config, records, shards)
        text = json.dumps(tokenizer, indent=2, ensure_ascii=False)
        out.write("tokenizer.json", text.encode())
        out.write("config.json", b'{"model_type": "qwen3"}')
        model = tokenizer["model"]
        size = len(model["vocab"])
        if overflow:
            event(
                "train_tokenizer: a pair occurs more than 2,147,483,647 times; the 32-bit counts of the "
                "reference would have wrapped and lost it, here it is counted right",
                level=logging.WARNING,
            )
        if size < config.vocab_size:
            event(
                f"train_tokenizer: the rows give {size:,} tokens only, vocab_size={config.vocab_size} was asked for",
                level=logging.WARNING,
            )
        longest = sorted((token for token in model["vocab"] if token not in config.special_tokens), key=len)[-20:]
        return {
            "vocab_size": size,
            "asked": config.vocab_size,
            "merges": len(model["merges"]),
            "words": words,
            "longest": longest[::-1],
        }

    def report(self, manifest: Manifest) -> Report:
        data = manifest.data
        files = [
            (name, one.rows_in, one.rows_kept, one.measures["text_bytes"])
            for name, one in sorted(manifest.shards.items())
        ]
        return Report(
            "train_tokenizer",
            {
                "Vocabulary": data["vocab_size"],
                "Asked for": data["asked"],
                "Merges": data["merges"],
                "Distinct words": data["words"],
                "Rows": manifest.ledger.rows_in,
                "Rows read": manifest.ledger.rows_kept,
                "Fingerprint": manifest.fingerprint,
            },
            [
                Bars("Text by task", sorted(((item[0], item[3]) for item in files), key=lambda bar: -bar[1]), "bytes"),
                Table("Tasks", ("Task", "Rows", "Rows read", "Bytes of text"), files),
                Table(
                    "Longest tokens",
                    ("Token", "Bytes"),
                    [(token, len(token)) for token in data["longest"]],
                    "Written in the byte-level alphabet: Ġ is a space, Ċ a line feed.",
                ),
            ],
        )


def _sampled(config: TrainTokenizerConfig, work: _Work, ledger: Ledger) -> Any:
    """Batches of a file with, per row, whether its question and its answer are read."""
    import pyarrow as pa

    uri = work.file.uri
    chosen: NDArray[np.bool_] | None = None
    if work.limit is not None:
        total = rows.count(uri)
        chosen = _chosen_texts(config.profile, config.seed, work.file.task, total, work.limit)
    for batch in rows.read(uri):
        if config.profile == "pairmill":
            rows.refuse_nulls(batch, uri, ("instruction", "response"))
        ledger.rows_in += len(batch)
        both = np.ones((len(batch), 2), np.bool_) if chosen is None else chosen[batch.start : batch.start + len(batch)]
        read = int(both.any(axis=1).sum())
        ledger.rows_kept += read
        if read < len(batch):
            ledger.drop("over_file_limit", len(batch) - read)
        yield batch, pa.array(both[:, 0]), pa.array(both[:, 1])


def _chosen_texts(profile: Profile, seed: int, task: str, total: int, limit: int) -> NDArray[np.bool_] | None:
    """Shape (rows, 2): which texts of a file are read; None = all.

    data_io counts texts against the limit and keeps the head of a half-done shuffle; pairmill draws rows uniformly.
    """
    if profile == "data_io":
        from pairmill import _native

        if 2 * total <= limit:
            return None
        flat = np.zeros(2 * total, np.bool_)
        flat[_native.data_io_document_sample(seed, task, 2 * total, limit)] = True
        return flat.reshape(total, 2)
    if total <= limit:
        return None
    stream = int.from_bytes(hashlib.sha256(task.encode()).digest()[:16], "little")
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, stream])))
    mask = np.zeros(total, np.bool_)
    mask[generator.permutation(total)[:limit]] = True
    return np.repeat(mask[:, None], 2, axis=1)


def _bpe(config: TrainTokenizerConfig, records: list[ShardRecord], shards: str) -> tuple[dict[str, Any], int, bool]:
    from pairmill import _native

    counter = _native.WordCounter()
    for record in records:
        uri = storage.join(shards, record.key, _COUNTS)
        with rows.open_parquet(uri) as file:
            for batch in file.iter_batches(batch_size=1 << 16):
                counter.merge(batch.column("word"), batch.column("count"))
    words, counts = counter.words()
    vocab, merges, overflow = _native.train_bpe(
        words,
        counts,
        config.vocab_size,
        config.special_tokens,
        min_frequency=2,
        full_alphabet=config.profile == "pairmill",
    )
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    special = list(dict.fromkeys(config.special_tokens))
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": token, **plain} for number, token in enumerate(special)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": PRE_TOKENIZER,
        "post_processor": {"type": "ByteLevel", **_BYTE_LEVEL},
        "decoder": {"type": "ByteLevel", **_BYTE_LEVEL},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(vocab)},
            "merges": [list(pair) for pair in merges],
        },
    }
    return tokenizer, len(counts), overflow


def _unigram(config: TrainTokenizerConfig, plan: Plan) -> tuple[str, int]:
    # The library holds all texts in memory while it trains; the BPE path does not.
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    def texts() -> Any:
        for shard in plan.shards:
            for batch, question, answer in _sampled(config, shard.payload, Ledger()):
                for column in (batch.instruction.filter(question), batch.response.filter(answer)):
                    for text in column.drop_null().to_pylist():
                        yield text[: config.truncate_len]

    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), byte_level])
    tokenizer.post_processor = processors.ByteLevel(**_BYTE_LEVEL)
    trainer = trainers.UnigramTrainer(
        vocab_size=config.vocab_size, special_tokens=config.special_tokens, show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    # The library's Python decoder takes no settings, the reference's has these.
    raw = json.loads(tokenizer.to_str())
    raw["decoder"] = {"type": "ByteLevel", **_BYTE_LEVEL}
    return json.dumps(raw, indent=2, ensure_ascii=False), tokenizer.get_vocab_size()
