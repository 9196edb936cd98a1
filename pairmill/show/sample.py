"""Rows of a plan or of sampled arrays, told by epoch and place; and batches as the loader packs them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.errors import UsageError
from pairmill.formats.opened import OpenResult, TokenRows, open_result
from pairmill.formats.plan_rows import PlanRows
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.tokenized_path import stored
from pairmill.formats.tokenizer_file import NAME
from pairmill.loader.batch import IGNORED, Batch
from pairmill.loader.plan import World
from pairmill.loader.row_plan import RowPlan
from pairmill.loader.segments import find_draw
from pairmill.show.config import ShowConfig, Wanted
from pairmill.show.lines import HEAD, SOFT, TARGET, Decoder, Line, Part, decoder_for, line, token_lines, visible

_FIRST: Final = 3
_WIDTH: Final = 96
"""Characters of a strip."""
_CONTEXTS: Final = 4
_MOST_ROWS: Final = 40
_EXPECTED: Final = "<epoch>:<place>, as in 0:17"
_PROMPT, _TARGET, _PADDING = "░", "█", "·"


def show(result: OpenResult, config: ShowConfig) -> Iterator[Line]:
    """Yield the rows that are asked for, or the first of epoch 0; with ``batch`` a batch.

    Raises:
        InputError: the tokens of a plan are missing; or a batch cannot be made.
        UsageError: no such epoch, place or batch.
    """
    sample = Sample(result, config)
    if config.batch >= 0:
        yield from _show_batch(sample, result, config)
        return
    wanted = [Wanted.parse(name, _EXPECTED) for name in config.row]
    for epoch, place in wanted or [Wanted("0", place) for place in range(config.n or _FIRST)]:
        if not epoch.isdecimal():
            raise UsageError("not a row", where="row", got=f"{epoch}:{place}", expected=_EXPECTED)
        if not wanted and place >= sample.length(0):
            return
        yield from sample.describe(int(epoch), place)
        yield []


class _Row(NamedTuple):
    """A row of an epoch.

    Attributes:
        name: its task and its number in the row file, as far as they are known.
        note: what was done to it.
    """

    name: str
    prompt: list[int]
    response: list[int]
    note: str = ""


class Sample:
    """A plan with the tokens that it was drawn from, or arrays alone."""

    def __init__(self, result: OpenResult, config: ShowConfig) -> None:
        self._ids = config.ids
        self.plan = result if result.kind == "plan" else _plan_of(result, config.root)
        self._arrays = result if result.kind == "sampled" else None
        self.decoder = _decoder(result, self.plan, config)
        self._epochs: dict[int, TokenRows] = {}
        self._tokens: dict[str, TokenRows] = {}
        self._names: list[str] = []
        self._ends: NDArray[np.int64] = np.empty(0, np.int64)
        if self.plan is not None:
            self._rows = PlanRows(self.plan)
            self._place_tasks([(item["name"], item["rows"]) for item in _drawn(self.plan).sources])
            self._tokenized = open_result(self.plan.tokenized.uri)
        elif result.manifest is not None:
            self._place_tasks(list(_drawn(result).sizes()))

    def _place_tasks(self, sizes: Sequence[tuple[str, int]]) -> None:
        self._names = [name for name, _ in sizes]
        self._ends = np.cumsum([size for _, size in sizes])

    def length(self, epoch: int) -> int:
        """Return the rows of an epoch."""
        return self._rows.length(epoch) if self.plan is not None else len(self._epoch(epoch))

    def _epoch(self, epoch: int) -> TokenRows:
        assert self._arrays is not None
        if epoch not in self._epochs:
            self._epochs[epoch] = self._arrays.tokens(epoch=epoch)
        return self._epochs[epoch]

    def row(self, epoch: int, place: int) -> _Row:
        """Return the row at a place of an epoch."""
        length = self.length(epoch)
        if place >= length:
            expected = f"0 to {length - 1:,}"
            raise UsageError("no such place in the epoch", where="row", got=f"{epoch}:{place}", expected=expected)
        if self.plan is None:
            rows = self._epoch(epoch)
            prompt, response = rows[place]
            return _Row(self._task_at(int(rows.index["inst_start"][place])), prompt.tolist(), response.tolist())
        at = self._rows.at(epoch, place)
        task = self._task_at(at)
        if task not in self._tokens:
            self._tokens[task] = self._tokenized.tokens(task)
        source = self._tokens[task]
        first, length, start, size = self._rows.spans(at)
        prompt, response = source.tokens[first : first + length], source.tokens[start : start + size]
        number = int(np.searchsorted(source.index["resp_start"], start, "right")) - 1
        whole = int(source.index["resp_len"][number])
        known = self._tokenized.ordinals(task)
        ordinal = number if known is None else int(known[number])
        note = "" if size == whole else f", of {whole:,} tokens of the response"
        return _Row(f"{task}:{ordinal}", prompt.tolist(), response.tolist(), note)

    def _task_at(self, place: int) -> str:
        if not self._names:
            return "a row"
        return self._names[min(int(np.searchsorted(self._ends, place, "right")), len(self._names) - 1)]

    def describe(self, epoch: int, place: int) -> Iterator[Line]:
        """Yield the lines of a row."""
        row = self.row(epoch, place)
        counts = f"{len(row.prompt):,} tokens of prompt and {len(row.response):,} of response{row.note}"
        yield line(f"epoch {epoch}, place {place:,}: {row.name}, {counts}", HEAD)
        yield from token_lines(self.decoder, row.prompt, row.response, table=self._ids)


def _drawn(result: OpenResult) -> SampleResult:
    assert result.manifest is not None
    return SampleResult.from_manifest(result.manifest)


def _plan_of(result: OpenResult, root: str) -> OpenResult | None:
    """Return the plan that arrays were made of, where it is below the project."""
    if not root or result.manifest is None:
        return None
    uri = storage.join(storage.normalise(root, "root"), "sample", result.manifest.fingerprint)
    return open_result(uri) if manifests.exists(uri) else None


def _decoder(result: OpenResult, plan: OpenResult | None, config: ShowConfig) -> Decoder | None:
    """Return the tokenizer of the tokens: the one that is named, that of the tokenized folder, or of a local path."""
    if config.tokenizer:
        return decoder_for(config.tokenizer, {})
    homes = plan.tokenized.homes if plan is not None else ()
    for uri in (storage.join(home, NAME) for home in homes):
        if storage.store_for(uri).exists(uri):
            return Decoder(uri)
    tokenized = next((ref.fingerprint for ref in result.inputs if ref.role == "tokenized"), "")
    home = stored(storage.normalise(config.root, "root"), tokenized) if config.root and tokenized else None
    if home is not None:
        return Decoder(storage.join(home, NAME))
    return decoder_for("", result.info().get("tokenizer_info", {}))


def _show_batch(sample: Sample, result: OpenResult, config: ShowConfig) -> Iterator[Line]:
    if result.kind != "sampled" or result.path is None:
        hint = "make them with pairmill sample plan=<plan> output_path=<folder>"
        raise UsageError("batches are packed from arrays on this machine", where="batch", got=result.uri, hint=hint)
    longest = int(result.info()["max_seq_len"]) + 1
    world = World(config.ranks, config.batch_tokens or _CONTEXTS * longest * config.ranks)
    plan = RowPlan(result.path, tail="keep")
    plan.check(world)
    draw = find_draw(plan, world, config.batch)
    slots = world.batch_tokens
    share = f"{draw.tokens:,} of {slots:,} slots ({draw.tokens / slots:.1%})"
    yield line(
        f"batch {config.batch} of epoch {draw.epoch}: {draw.rows:,} rows from place {draw.start_row:,}, {share}", HEAD
    )
    memory = np.empty(plan.size(world), np.uint8)
    shown: list[tuple[int, int]] = []
    for rank in range(world.ranks):
        batch = plan.fill(draw, rank, world, memory)
        yield from _describe_share(sample, batch, rank)
        shown += [(epoch, row) for _, epoch, row in batch.rows.tolist()]
    yield []
    for epoch, place in shown[: config.n or _FIRST]:
        yield from sample.describe(epoch, place)
        yield []


def _describe_share(sample: Sample, batch: Batch, rank: int) -> Iterator[Line]:
    """Yield a rank's share of a batch: a strip of its slots, and a line for each row."""
    ends = batch["cu_seqlens"][: len(batch.rows) + 1].tolist()
    learned = batch["labels"] != IGNORED
    used = ends[-1]
    yield []
    yield line(f"rank {rank}: {len(batch.rows):,} rows, {used:,} slots, {int(learned.sum()):,} targets", HEAD)
    yield _strip(learned, used, ends)
    yield line(f"{'slots':>17} {'prompt':>7} {'targets':>8}  position_ids  epoch:place and task", SOFT)
    for (_, epoch, row), start, end in zip(batch.rows.tolist()[:_MOST_ROWS], ends, ends[1:], strict=False):
        targets = int(learned[start:end].sum())
        positions = f"{batch['position_ids'][start]}…{batch['position_ids'][end - 1]}"
        name = sample.row(epoch, row).name
        yield [
            Part(f"{start:>8,}…{end - 1:<8,} {end - start - targets:>7,} ", SOFT),
            Part(f"{targets:>8,}", TARGET),
            Part(f"  {positions:<12}  {epoch}:{row} {visible(name)}"),
        ]
    if len(batch.rows) > _MOST_ROWS:
        yield line(f"… and {len(batch.rows) - _MOST_ROWS:,} more rows", SOFT)


def _strip(learned: NDArray[np.bool_], used: int, ends: Sequence[int]) -> Line:
    """Return the slots as a strip: what most slots of a cell are; a row begins at each bar."""
    slots = len(learned)
    edges = np.linspace(0, slots, min(_WIDTH, slots) + 1).astype(int)
    starts = set(np.searchsorted(edges, ends[1:-1], "right") - 1)
    parts = []
    for cell, (low, high) in enumerate(pairwise(edges)):
        if cell in starts:
            parts.append(Part("│", HEAD))
        elif low + high > 2 * used:
            parts.append(Part(_PADDING, SOFT))
        elif 2 * int(learned[low:high].sum()) > high - low:
            parts.append(Part(_TARGET, TARGET))
        else:
            parts.append(Part(_PROMPT))
    return parts
