"""The select stage: rows → the same files with fewer rows, the ones worth training on.

    1  fit        components.select.fit      by block and target slice: bucket counts, groups, moments of attributes
    2  fitted     components.select.model    one shard: all of them added up → log weights of buckets, groups with scale
    3  score      components.select.score    by block: log weights, score of attributes, group, tokens of each row
    4  scaled     components.select.score    hybrid alone, one shard: mean and deviation of log weights by group
    5  keys       components.select.keys     by block: the key of each row in each ranking
    6  choose     components.select.choose   one shard: which rows are taken, by streaming keys of all blocks
    7  write      components.select.write    by task: kept rows, their attributes, decisions;
                  components.select.kl       by block: bucket counts of chosen rows and of uniform samples
    8  summarise  components.select.summary  one shard: what the report says

A round that a method does not need is empty. A *block* is what one shard reads: consecutive slices of row files, in
rank order. A *ranking* is an order of all candidates by key: dsir has one for each target, a score has one alone. See
:mod:`components.select.shapes` for what goes from room to room; rows of a block are dense arrays, in order.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Final

from components.select import inputs, quotas
from components.select.attributes import Wanted
from components.select.choose import Choose, refuse_more
from components.select.config import SelectConfig
from components.select.fit import FitRows, FitTarget
from components.select.inputs import Block, Rows, Slice
from components.select.keys import Keyed, Keying, MakeKeys
from components.select.kl import CountChosen
from components.select.model import AddUp, Model, groups_of, refuse_empty
from components.select.report.page import report_of
from components.select.score import ScaleWeights, Scored, ScoreRows
from components.select.settings import OWN_TARGET, Quota, Settings
from components.select.shapes import Budget, KeyedBlock, Ranking, Span, spans_by_task
from components.select.sidecar import sidecars
from components.select.summary import Summarise, data_of, metrics_of
from components.select.write import WriteRows, parts_of
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.engine.stage import GivenResult, Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats.joined_parts import JoinParts
from pairmill.formats.means import MEANS, joined
from pairmill.log import event
from pairmill.report.model import Report

# The rounds counted from the end.
_WRITE: Final = -2
_SUMMARY: Final = -1


@dataclass(frozen=True, kw_only=True)
class SelectPlan(StagePlan[None]):
    """What is read.

    Args:
        rows: the row files in rank order.
        settings: of the stage.
        wanted: what is read of attributes.
        targets: the blocks of each target; none of ``target_by_attribute``.
        rankings: in the order in which they take.
        done: known after the last round.
    """

    rows: Rows
    settings: Settings
    wanted: Wanted
    targets: list[list[Block]]
    rankings: list[Ranking]
    done: Done | None = None


@dataclass(frozen=True)
class Done:
    """What the rounds learn on the way.

    Args:
        fitted: record of AddUp.
        scored: records of ScoreRows by block.
        keyed: records of MakeKeys by block.
        chosen: record of Choose.
        counted: records of CountChosen by block; none without weights.
        written: records of WriteRows by task: one, or that of each part.
        spans: where the rows of each task are.
        budget: that was shared out.
    """

    fitted: ShardRecord
    scored: list[ShardRecord]
    keyed: list[ShardRecord]
    chosen: ShardRecord
    counted: list[ShardRecord]
    written: list[list[ShardRecord]]
    spans: Mapping[str, Sequence[Span]]
    budget: Budget


class Select(Stage[SelectConfig, SelectPlan]):
    """Fit, score, choose, write."""

    name: ClassVar[str] = "select"
    output_in_list: ClassVar[bool] = True
    version: ClassVar[int] = 2
    round_count: ClassVar[int] = 8
    history: ClassVar[dict[int, str]] = {
        2: "damage of records and files of shards could go unseen",
    }
    config = SelectConfig

    def given(self, config: SelectConfig) -> GivenResult | None:
        if config.tokenized:
            return GivenResult("tokenized")
        option = "profile" if config.profile == "data_io" else ""
        if not option and config.settings.method == "off":
            option = "select_config"
        if not option:
            return None
        from pairmill.formats import given

        return given.passed_on(option, config.rows)

    def plan(self, config: SelectConfig) -> SelectPlan:
        settings, longest = config.settings, config.max_record_bytes
        if settings.unread:
            said = f"select: {', '.join(settings.unread)}: not read with method: {settings.method}"
            event(said, level=logging.WARNING)
        expansion = config.max_expansion
        rows = inputs.discover(config.rows, verify=config.verify, longest=longest, expansion=expansion)
        if not rows.blocks:
            raise InputError(
                "there are only held-out rows",
                where=f"rows={','.join(config.rows)}",
                expected="rows to choose from",
            )
        refs = list(rows.found.refs)
        if settings.sidecar is not None:
            rows = sidecars(settings.sidecar, rows)
            files = {task.beside["sidecar"].sha256 for task in rows.training}
            refs.append(InputRef("sidecar", content_key(sorted(files))[:16]))
        wanted = Wanted.of(settings)
        wanted.refuse_unknown(rows)
        targets = []
        for target in settings.dsir.targets if settings.uses_targets else ():
            blocks, found = inputs.target_rows(
                target.rows,
                target.name,
                settings.dsir.fields,
                verify=config.verify,
                longest=longest,
                expansion=expansion,
            )
            targets.append(blocks)
            refs += found.refs
        return SelectPlan(
            inputs=refs,
            rows_expected=rows.found.rows,
            build_context=lambda: None,
            says={"settings": settings.said()},
            rows=rows,
            settings=settings,
            wanted=wanted,
            targets=targets,
            rankings=rankings_of(settings),
        )

    def rounds(
        self, config: SelectConfig, plan: SelectPlan
    ) -> Generator[Sequence[Shard[Any]], list[ShardRecord], SelectPlan]:
        # Each part forgets its shards when it returns: there may be very many of them.
        fitted = yield from _fitted(plan, config)
        scored = yield [ScoreRows.of(block, fitted, plan.settings, plan.wanted) for block in plan.rows.blocks]
        scaled = yield [ScaleWeights.of(scored, fitted)] if _is_scaled(plan.settings) else []
        keying = Keying.of(plan.settings, plan.rankings, config.seed)
        scale = scaled[0] if scaled else None
        keyed = yield [
            MakeKeys.of(block, record, scale, keying) for block, record in zip(plan.rows.blocks, scored, strict=True)
        ]
        done = yield from _chosen(plan, fitted, scored, keyed)
        counts = [
            CountChosen.of(block, done.chosen, len(plan.rankings), plan.settings)
            for block in plan.rows.blocks
            if plan.settings.uses_weights
        ]
        done = yield from _written(plan, done, counts, config.max_record_bytes)
        joins = [
            JoinParts.of(self.name, self.version, task.name, some, task.path)
            for task, some in zip(plan.rows.tasks, done.written, strict=True)
            if len(some) > 1
        ]
        yield [Summarise.of(plan.rows.tasks, plan.rankings, plan.settings, done, config.max_record_bytes), *joins]
        return replace(plan, done=done)

    def ledger(self, plan: SelectPlan, rounds: Rounds) -> Ledger:
        """That of the round that writes rows: the others count none."""
        return Ledger.sum(record.ledger for record in rounds[_WRITE])

    def parts(self, plan: SelectPlan, rounds: Rounds) -> dict[str, Ledger]:
        assert plan.done is not None
        written = zip(plan.rows.tasks, plan.done.written, strict=True)
        return {task.name: Ledger.sum(record.ledger for record in some) for task, some in written}

    def finish(self, config: SelectConfig, plan: SelectPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        assert plan.done is not None
        summary, *joins = rounds[_SUMMARY]
        for record in (*(record for some in plan.done.written for record in some), *joins):
            for file in record.lasting():
                out.link(record.folder, file)
        held_out = {
            task.path: some[0].ledger.rows_in
            for task, some in zip(plan.rows.tasks, plan.done.written, strict=True)
            if task.held_out
        }
        return {
            **data_of(plan.rows.tasks, plan.rankings, plan.settings, plan.done, summary),
            MEANS: joined(record.data for some in plan.done.written for record in some),
            **({"held_out": held_out} if held_out else {}),
            **plan.rows.found.passed_on(),
        }

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        tasks = len([name for name in manifest.tasks() if not name.startswith(HELD_OUT)])
        return {**metrics_of(manifest.data), "tasks": tasks}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def rankings_of(settings: Settings) -> list[Ranking]:
    """In the order in which they take rows."""
    if settings.uses_score:
        return [Ranking(settings.method, 1.0)]
    if settings.method == "target_by_attribute":
        return [Ranking(OWN_TARGET, 1.0)]
    total = math.fsum(one.share for one in settings.dsir.targets)
    return [Ranking(one.name, one.share / total) for one in settings.dsir.targets]


def budget_of(settings: Settings, candidates: int) -> Budget:
    """How much is chosen. A share is taken as the decimal number that it is written as; at least one row is chosen."""
    if settings.share is not None:
        return Budget(rows=max(1, math.floor(Fraction(str(settings.share)) * candidates)))
    return Budget(rows=settings.rows, tokens=settings.tokens)


def _is_scaled(settings: Settings) -> bool:
    return settings.method == "hybrid" and settings.hybrid.lambda_ > 0


def _fitted(plan: SelectPlan, config: SelectConfig) -> Generator[Sequence[Shard[Any]], list[ShardRecord], ShardRecord]:
    """Rounds 1 and 2: what weights and scores are made of."""
    settings = plan.settings
    targets = [
        [FitTarget.of(block, target.name, settings.dsir) for block in blocks]
        for target, blocks in zip(settings.dsir.targets if plan.targets else (), plan.targets, strict=True)
    ]
    first = yield [
        *(FitRows.of(block, settings, plan.wanted, config.seed) for block in plan.rows.blocks),
        *(one for some in targets for one in some),
    ]
    at = len(plan.rows.blocks)
    fits, by_target = first[:at], []
    for some in targets:
        by_target.append(first[at : at + len(some)])
        at += len(some)
    (fitted,) = yield [AddUp.of(fits, by_target, settings, plan.wanted)]
    names = [one.name for one in plan.rankings] if settings.method != "hybrid" else [settings.dsir.targets[0].name]
    model = fitted.read(Model)
    refuse_empty(model, names if settings.uses_weights else [], f"select_config={config.select_config}")
    if settings.uses_score:
        own = settings.attributes
        quotas.refuse_unknown(own.quota, groups_of(fitted).names, own.group_by)
    # Before anything is scored; what groups of weight 0 take from it, and tokens, choose knows.
    if settings.rows is not None:
        refuse_more(settings.rows, model.candidates, "rows", allow_unfilled=settings.allow_unfilled)
    return fitted


def _chosen(
    plan: SelectPlan, fitted: ShardRecord, scored: list[ShardRecord], keyed: list[ShardRecord]
) -> Generator[Sequence[Shard[Any]], list[ShardRecord], Done]:
    """Round 6: which rows are taken."""
    settings = plan.settings
    read = [record.read(Scored) for record in scored]
    blocks = []
    for block, one, record, other in zip(plan.rows.blocks, read, keyed, scored, strict=True):
        data = record.read(Keyed)
        blocks.append(KeyedBlock(block.number, one.rows, data.candidates, record, other))
    spans = spans_by_task([[(task, first, rows) for task, first, rows in one.slices] for one in read])
    budget = budget_of(settings, sum(one.candidates for one in blocks))
    (chosen,) = yield [
        Choose.of(
            blocks,
            plan.rankings,
            budget,
            groups_of(fitted),
            settings.attributes.quota if settings.uses_score else Quota(),
            has_tokens=settings.counts_tokens,
            has_passes=settings.method == "dsir_then_filter",
            allow_unfilled=settings.allow_unfilled,
        )
    ]
    return Done(fitted, scored, keyed, chosen, [], [], spans, budget)


def _written(
    plan: SelectPlan, done: Done, counts: Sequence[CountChosen], longest: int
) -> Generator[Sequence[Shard[Any]], list[ShardRecord], Done]:
    """Round 7: the chosen rows of tasks or of their parts, beside counts of what was chosen."""
    slices: dict[str, list[Slice]] = {}
    for block in plan.rows.blocks:
        for one in block.slices:
            slices.setdefault(one.task.name, []).append(one)
    writes: list[WriteRows] = []
    owners: list[int] = []
    for number, task in enumerate(plan.rows.tasks):
        for part, spans in parts_of(task, slices.get(task.name, ()), done.spans.get(task.name, ())):
            writes.append(
                WriteRows.of(
                    task,
                    spans,
                    done.chosen,
                    done.scored,
                    done.keyed,
                    plan.rankings,
                    plan.settings,
                    longest=longest,
                    part=part,
                )
            )
            owners.append(number)
    records = yield [*writes, *counts]
    written: list[list[ShardRecord]] = [[] for _ in plan.rows.tasks]
    for number, record in zip(owners, records[: len(writes)], strict=True):
        written[number].append(record)
    return replace(done, counted=records[len(writes) :], written=written)
