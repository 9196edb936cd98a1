"""The tokenize stage: rows → token arrays, one folder per row file.

A file is one shard, whose arrays are those of its task. A large Parquet file is cut between row groups into several,
and a second round of shards puts their arrays together (:mod:`pairmill.stages.tokenize.merge`). Token files of other
programs are tasks too (:mod:`pairmill.stages.tokenize.token_inputs`).
"""

import hashlib
import itertools
import json
import logging
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, ClassVar

from pairmill.chats.long_rows import PROMPT_CUT
from pairmill.engine import inputs, vanished
from pairmill.engine.ahead import Joins
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import InputRef, Manifest
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import chat_digests, report_rows, row_files, tokens, window_files
from pairmill.formats.report_rows import ReportRows
from pairmill.formats.results.tokens import TokenizeResult
from pairmill.formats.slices import Slicing
from pairmill.formats.tokenizer_file import NAME, locate, read
from pairmill.formats.tokens import Dataset
from pairmill.log import event
from pairmill.report.model import Report
from pairmill.stages.tokenize import token_inputs
from pairmill.stages.tokenize.chats import ChatPlan, refuse_none_kept
from pairmill.stages.tokenize.config import NONE, TokenizeConfig
from pairmill.stages.tokenize.encode import EncodeRows, Vocabulary
from pairmill.stages.tokenize.lengths import describe_lengths, find_lost
from pairmill.stages.tokenize.merge import MergeArrays, has_other_rows, joined_spans
from pairmill.stages.tokenize.rendered import EncodeChats
from pairmill.stages.tokenize.report import report_of, sums_of
from pairmill.stages.tokenize.token_inputs import TakeTokens
from pairmill.storage.base import each

# A slice is enough work to be worth a shard and a copy, and little enough that sixteen cores share half a gigabyte.
# A smaller file than open_from would be texts compressed to an eighth.
SLICING = Slicing(32 << 20, open_from=8 << 20, cut_from=64 << 20)


@dataclass(frozen=True, kw_only=True)
class TokenizePlan(StagePlan[Vocabulary]):
    """What tokenize reads.

    Args:
        shards: those of the first round, by task.
        config: the options, with the tags that the rows bring.
        chats: which rows a chat template renders.
        row_files: the digest of each row file, by task.
    """

    shards: dict[str, list[EncodeRows | EncodeChats] | list[TakeTokens]]
    config: TokenizeConfig
    chats: ChatPlan
    row_files: dict[str, str]

    def joins(self) -> Joins:
        return Joins(self.pieces(), tokens.HEAD, joined_spans)

    def pieces(self) -> dict[str, list[str]]:
        """Return the names of the shards of each task that is made of several, in order."""
        return {task: [shard.name for shard in shards] for task, shards in self.shards.items() if len(shards) > 1}


class Tokenize(Stage[TokenizeConfig, TokenizePlan]):
    """Round 1 encodes row files, large ones in pieces; round 2 puts the arrays of pieces together."""

    name: ClassVar[str] = "tokenize"
    version: ClassVar[int] = 7
    round_count: ClassVar[int] = 2
    history: ClassVar[dict[int, str]] = {
        2: "tokens could be those of a row file that changed while it was read",
        3: "the bytes of each response are kept",
        4: "damage of records and files of shards could go unseen",
        5: "the key of a shard follows from all that it reads",
        6: "rows of chat templates have the template's control tokens; lengths of rows are recorded",
        7: "digests of data are BLAKE3; a manifest says which digest it has of each file; the row file of each task "
        "is kept",
    }
    config = TokenizeConfig

    def plan(self, config: TokenizeConfig) -> TokenizePlan:
        uri = locate(config.tokenizer, config.root)
        data = read(uri)
        digest = hashlib.sha256(data).hexdigest()
        result = row_files.discover(config.rows, "rows", verify=config.verify, held_out=True)
        own = result.conditions
        if own and config.conditions == [NONE]:
            text = (
                f"tokenize: tags get no token, {', '.join(own)} neither; name all tags with conditions=, if they should"
            )
            event(text, level=logging.WARNING)
        other = token_inputs.discover(config.tokens, verify=config.verify)
        chats = ChatPlan.from_inputs(config, result, data, uri)
        given, config = config, config.with_conditions({name: tag.token for name, tag in own.items()})
        config = chats.with_delimiters(config, data, only=not other.files)
        windows = config.window_options()
        refs = [*result.refs, *other.refs, InputRef("tokenizer", digest[:16])]
        if config.profile == "data_io":
            # The reference copies the path it was given into tokenizer_info.json, so here the path changes bytes.
            refs.append(InputRef.from_content("tokenizer_path", config.tokenizer))
        taken = token_inputs.shards_of(other, digest, SLICING, config)
        _refuse_one_name(result.files, other.files)
        return TokenizePlan(
            inputs=refs,
            rows_expected=result.rows,
            build_context=lambda: Vocabulary.from_tokenizer(config, uri, data, own),
            shards={**{file.task: list(_shards(file, digest, config, chats)) for file in result.files}, **taken},
            options={**windows, **_changed(given, config), **chats.options},
            config=config,
            chats=chats,
            row_files={file.task: file.digest for file in result.files},
        )

    def rounds(
        self, config: TokenizeConfig, plan: TokenizePlan
    ) -> Generator[Sequence[Shard[Vocabulary]], list[ShardRecord], TokenizePlan | None]:
        first = [shard for shards in plan.shards.values() for shard in shards]
        records = yield first
        if config.profile == "pairmill" and not any(record.ledger.rows_kept for record in records):
            refuse_none_kept(
                record for shard, record in zip(first, records, strict=True) if isinstance(shard, EncodeChats)
            )
            read = {"rows": config.rows, "tokens": config.tokens}
            raise InputError(
                "the row files contain no row",
                where=" ".join(f"{name}={','.join(uris)}" for name, uris in read.items() if uris),
                hint="check the stage before" if config.rows else "no sample has a token that is trained on",
            )
        by_name = {record.name: record for record in records}
        yield [_merge(task, tuple(by_name[name] for name in names)) for task, names in plan.pieces().items()]
        samples = [
            record.ledger.rows_in for shard, record in zip(first, records, strict=True) if isinstance(shard, TakeTokens)
        ]
        if not samples or plan.rows_expected is None:
            return None
        # Manifests say how many rows there are, and nothing says how many samples.
        return replace(plan, rows_expected=plan.rows_expected + sum(samples), build_context=lambda: plan.context)

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
        other_rows = {record.name for record in encoded if has_other_rows(record)}
        other_rows |= {task for task, names in pieces.items() if other_rows.intersection(names)}
        for record in (*encoded, *merged):
            if record.name not in in_pieces:
                for file in record.files:
                    if file.path == f"{tokens.ROWS}.npy" and record.name not in other_rows:
                        continue  # all rows of the file are there
                    if file.path != f"{window_files.NAME}.npy":
                        out.link(record.folder, file, task=record.name)
                    elif record.ledger.measures["window_tokens"]:  # no window is cut from an empty file
                        top = HELD_OUT if record.name.startswith(HELD_OUT) else ""
                        path = window_files.path_of(record.name.removeprefix(top))
                        out.link(record.folder, file, path=f"{top}{path}")
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
            "condition_mapping": plan.config.condition_tokens(),
            "vocab_size": plan.context.size,
            **({chat_digests.KEY: plan.chats.described} if plan.chats.described else {}),
        }
        info_file = json.dumps(info, separators=(",", ":"), ensure_ascii=False).encode()
        out.write(tokens.INFO, info_file)
        held_out = _held_out(plan, encoded)
        if config.windows:
            end = window_files.describe(config.end_of_document, plan.context.eod)
            for top in ("", HELD_OUT) if held_out else ("",):
                out.write(f"{top}{window_files.FOLDER}/{window_files.INFO}", end)
        if held_out:  # so that this folder within the folder is a whole one, for a loader or another sampler
            out.write(HELD_OUT + tokens.INFO, info_file)
            if config.profile == "pairmill":
                out.write(HELD_OUT + NAME, plan.context.text.encode())
        if cut := sum(record.ledger.notes.get(PROMPT_CUT, 0) for record in encoded):
            text = f"tokenize: {cut:,} prompts lost their middle while their answers are whole"
            event(text, level=logging.WARNING, prompts=cut)
        task_of = {name: task for task, names in pieces.items() for name in names}
        result = TokenizeResult(
            vocab_size=plan.context.size,
            pieces=pieces,
            held_out=held_out,
            chat_template=plan.chats.described,
            row_files=plan.row_files,
            lengths=describe_lengths(encoded, task_of),
            rows=_rows(plan.context.text, config, [*(each for each in encoded if each.name not in in_pieces), *merged]),
        )
        return {**result.to_data(), vanished.KEY: find_lost(encoded, task_of)}

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        sums, per_byte = sums_of(manifest)
        vocab_size, tasks = TokenizeResult.from_manifest(manifest).vocab_size, len(manifest.tasks())
        return {**sums, "tokens_per_byte": round(per_byte, 6), "vocab_size": vocab_size, "tasks": tasks}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def _rows(tokenizer: str, config: TokenizeConfig, records: Sequence[ShardRecord]) -> list[dict[str, str]]:
    """Return the first row of the tasks with the most tokens, as text."""
    tasks = [record for record in records if not record.name.startswith(HELD_OUT)]
    tasks.sort(key=lambda record: (-record.file(f"{tokens.TOKENS}.npy").size, record.name))
    shown = ReportRows(tokenizer.encode(), config.tokenizer)

    def first(record: ShardRecord, _: Event) -> list[dict[str, str]]:
        return [*shown.first(Dataset(record.name, record.folder), record.name)]

    # A store answers a score of requests for each.
    return [*itertools.chain.from_iterable(each(first, tasks[: report_rows.MOST], None))]


def _held_out(plan: TokenizePlan, encoded: Sequence[ShardRecord]) -> dict[str, int]:
    """Held-out rows by task."""
    rows_of = {record.name: record.ledger.rows_kept for record in encoded}
    return {
        task: sum(rows_of[shard.name] for shard in shards)
        for task, shards in plan.shards.items()
        if task.startswith(HELD_OUT)
    }


def _merge(task: str, pieces: tuple[ShardRecord, ...]) -> MergeArrays:
    return MergeArrays(pieces, name=task, size=sum(file.size for piece in pieces for file in piece.files))


def _changed(given: TokenizeConfig, config: TokenizeConfig) -> dict[str, Any]:
    """Return the options that differ from those given."""
    names = ("boq", "eoq", "eoa", "conditions")
    return {name: getattr(config, name) for name in names if getattr(config, name) != getattr(given, name)}


def _shards(
    file: inputs.InputFile, tokenizer: str, config: TokenizeConfig, chats: ChatPlan
) -> Iterator[EncodeRows | EncodeChats]:
    whole = row_files.slice_whole(file, config.max_record_bytes, config.max_expansion)
    slices = [whole]
    # A damaged file is its shard's to name, so that all others are committed.
    with suppress(InputError):
        slices = SLICING.cut(whole)
    held_out = file.task.startswith(HELD_OUT)
    alone = len(slices) == 1
    for index, part in enumerate(slices):
        # All but the last are as good as equal, and start in order: each is joined to the ones before it.
        name, size = (file.task, file.size) if alone else (f"{file.task} {index:05}", min(part.size, SLICING.size))
        shard = EncodeRows(tokenizer, part, not alone, held_out, name=name, size=size)
        yield chats.rendering(shard, file) or shard


def _refuse_one_name(rows_: Sequence[inputs.InputFile], tokens_: Sequence[inputs.InputFile]) -> None:
    """Raise InputError if a row file and a token file are one task."""
    known = {file.task: file.uri for file in rows_}
    for file in tokens_:
        if file.task in known:
            raise InputError(
                f"two files give the task name {file.task!r}",
                where="rows, tokens",
                got=f"{known[file.task]} and {file.uri}",
                hint="rename one of them, or give the folder above one of them",
            )
