"""The train_tokenizer stage: count words per row file, merge counts, learn merges."""

import logging
import math
import unicodedata
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import InputRef, Manifest
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import row_files
from pairmill.formats.results.rows import TrainTokenizerResult
from pairmill.formats.slices import Slicing
from pairmill.log import event
from pairmill.report.model import Report
from pairmill.rules.book import Rules
from pairmill.stages.train_tokenizer import learn, runs
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig
from pairmill.stages.train_tokenizer.count import HELD_OUT, HELD_OUT_OF, WORDS, CountWords, MergeRuns, Sample
from pairmill.stages.train_tokenizer.report import report_of

_TASK = ("rows", "rows_read", "text_bytes")
SLICING = Slicing(64 << 20, open_from=(16 << 20) + 1)
# Runs that are merged at once, or of very many the square root: each holds a file open and some 2 MB.
_FAN_IN = 32


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(StagePlan[TrainTokenizerConfig]):
    """Args: shards: those of the first round; config: the options, with the tokens that the rows ask for."""

    shards: list[CountWords]
    config: TrainTokenizerConfig


class TrainTokenizer(Stage[TrainTokenizerConfig, TrainingPlan]):
    """Round 1 counts words; round 2 merges the runs of counts in groups, where there are many."""

    name: ClassVar[str] = "train_tokenizer"
    watched: ClassVar[bool] = False
    folder: ClassVar[str] = "tokenizer"
    version: ClassVar[int] = 6
    round_count: ClassVar[int] = 2
    history: ClassVar[dict[int, str]] = {
        2: "words are counted in sorted runs now",
        3: "counts of a data_io run, which takes nulls for empty texts, were used by others, and those of a row file "
        "that changed while it was read",
        4: "damage of records and files of shards could go unseen; unigram gave other bytes each time",
        5: "the key of a shard follows from all that it reads",
        6: "digests of data are BLAKE3; a manifest says which digest it has of each file",
    }
    config = TrainTokenizerConfig

    def plan(self, config: TrainTokenizerConfig) -> TrainingPlan:
        rules = Rules.load(config.prefix_config_path, config.profile, "prefix_config_path")
        result = row_files.discover(config.rows, "rows", verify=config.verify)
        own = sorted(tag.token for tag in result.conditions.values())
        asked = config.with_tokens(own)
        rules.warn_of_idle(file.task for file in result.files)
        shards = []
        limits = []
        caps = _caps(rules, result.files)
        for file in result.files:
            cap = caps[file.task]
            limit = None if cap is None else max(0, cap) * config.limit_mul_factor
            sample = None if limit is None else Sample(limit, config.seed, file.task)
            whole = row_files.slice_whole(file, config.max_record_bytes, config.max_expansion)
            slices = SLICING.cut(whole)
            one_in = HELD_OUT_OF * -(-file.size // SLICING.size)
            for index, part in enumerate(slices):
                name, size = (f"{file.task} {index:05}", part.size) if len(slices) > 1 else (file.task, file.size)
                shards.append(CountWords(part, one_in, sample, name=name, size=size))
            limits.append([file.task, limit])
        return TrainingPlan(
            inputs=[*result.refs, InputRef.from_content("limits", limits)],
            rows_expected=result.rows,
            # Which characters of the longest tokens can be printed is Python's to say.
            says={"unicode": unicodedata.unidata_version},
            options={"special_tokens": asked.special_tokens} if asked is not config else {},
            build_context=lambda: config,
            shards=shards,
            config=asked,
        )

    def rounds(
        self, config: TrainTokenizerConfig, plan: TrainingPlan
    ) -> Generator[Sequence[Shard[TrainTokenizerConfig]], list[ShardRecord], None]:
        counted = yield plan.shards
        if not sum(record.ledger.measures["texts"] for record in counted):
            raise InputError(
                "the row files contain no text", where=f"rows={','.join(config.rows)}", hint="check the stage before"
            )
        yield [shard for name in (WORDS, HELD_OUT) for shard in self._merges(name, counted)]

    def _merges(self, name: str, counted: list[ShardRecord]) -> Iterator[MergeRuns]:
        """More runs than can be merged at once are merged in groups first."""
        result = [(record, path) for record in counted for path in runs.paths(record, name)]
        if len(result) <= _FAN_IN:
            return
        size = max(_FAN_IN, math.isqrt(len(result)))
        for start in range(0, len(result), size):
            group = result[start : start + size]
            files = tuple(record.file(path) for record, path in group)
            yield MergeRuns(f"{name}-00000.parquet", files, name=f"{name} {start // size:05}", size=len(group))

    def finish(self, config: TrainTokenizerConfig, plan: TrainingPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        config = plan.config
        counted, merged = rounds
        tasks: dict[str, dict[str, int]] = {}
        held_out_of: dict[str, list[str]] = {}
        for shard, record in zip(plan.shards, counted, strict=True):
            name, ledger = shard.task, record.ledger
            task = tasks.setdefault(name, dict.fromkeys(_TASK, 0))
            for key, value in zip(
                _TASK, (ledger.rows_in, ledger.rows_kept, ledger.measures["text_bytes"]), strict=True
            ):
                task[key] += value
            held_out_of.setdefault(name, []).extend(runs.uris(HELD_OUT, [record]))
        words, held_out = (runs.uris(name, merged) or runs.uris(name, counted) for name in (WORDS, HELD_OUT))
        learned = learn.learn(config, [*words, *held_out], full_alphabet=config.profile == "pairmill")
        with out.create("tokenizer.json") as local, local.open("w", encoding="utf-8", newline="") as file:
            file.writelines(learn.tokenizer_json(config, learned))
        out.write("config.json", b'{"model_type": "qwen3"}')
        size = len(learned.vocab)
        if learned.overflow:
            event(
                "train_tokenizer: a pair occurs more than 2,147,483,647 times; the 32-bit counts of the "
                "reference would overflow and lose it, but it is counted correctly here",
                level=logging.WARNING,
            )
        _say_size(config, size)
        metrics: dict[str, float] = {"vocab_size": size, "distinct_words": learned.words}
        if learned.text_bytes:
            metrics["tokens_per_byte"] = learned.tokens / learned.text_bytes
        growth, longest = learned.growth(), learn.longest(learned.vocab, config.special_tokens)
        merges = len(learned.merges)
        del learned
        if config.evaluate and held_out:
            unseen = learn.learn(config, words, full_alphabet=True)
            total = np.zeros(2, np.int64)
            for name, text_bytes, tokens in learn.encode(unseen, held_out_of.items()):
                tasks[name] |= {"held_out_bytes": text_bytes, "held_out_tokens": tokens}
                total += text_bytes, tokens
            metrics["held_out_tokens_per_byte"] = int(total[1]) / int(total[0])
        return TrainTokenizerResult(
            asked=config.vocab_size,
            tasks=tasks,
            vocab_size=size,
            merges=merges,
            growth=growth,
            longest=longest,
            metrics=metrics,
        ).to_data()

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        text_bytes = manifest.ledger.measures["text_bytes"]
        result = TrainTokenizerResult.from_manifest(manifest)
        return {**result.metrics, "text_bytes": text_bytes, "tasks": len(result.tasks)}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def _say_size(config: TrainTokenizerConfig, size: int) -> None:
    if size == config.vocab_size:
        return
    what = f"the rows give {size:,} tokens only" if size < config.vocab_size else f"the alphabet alone makes {size:,}"
    event(f"train_tokenizer: {what}, vocab_size={config.vocab_size} was asked for", level=logging.WARNING)


def _caps(rules: Rules, files: Sequence[InputFile]) -> dict[str, int | None]:
    """Return how many rows an epoch has of each task, as far as it follows from the sizes of files; None = all.

    ``max_rows`` of a group is shared out by size. What takes tokens to know is left to the sampler, with a warning.
    """
    sizes: Counter[str] = Counter()
    for file in files:
        sizes[rules.group_of(file.task) or ""] += file.size
    groups = {group.name: group for group in rules.groups}
    caps, unread = dict[str, int | None](), set[str]()
    for file in files:
        group = groups.get(name := rules.group_of(file.task) or "")
        caps[file.task] = rules.match(file.task)[0].max_per_file
        if group is not None and group.max_rows is not None and sizes[name]:
            share = -(-group.max_rows * file.size // sizes[name])
            caps[file.task] = share if (cap := caps[file.task]) is None else min(share, cap)
        elif group is not None and group.bounded:
            unread.add(name)
    if unread or rules.top.scale:
        named = ", ".join(map(repr, [*sorted(unread), *["scale"] * bool(rules.top.scale)]))
        event(
            f"train_tokenizer: of rules, max_per_file and max_rows limit how much is read, and not those of {named}",
            level=logging.WARNING,
        )
    return caps
