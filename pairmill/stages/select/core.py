"""The select stage: rows → the same files with fewer rows, the ones worth training on.

    1  fit      fit         by block and target slice: bucket counts, moments of attributes by group
    2  add up   model       one shard: log weights of buckets, groups with mean and deviation
    3  score    score       by block: log weights, score of attributes, group, tokens, noise
    4  choose   choose      one shard: which rows are taken, by streaming the keys of all blocks
    5  write    write       by task: chosen rows, their attributes, decisions
                divergence  by block: bucket counts of chosen rows and of uniform samples
                summary     one shard: texts of the best and worst rows
    6  join     pairmill.formats.joined_parts  files that were written in parts; most runs have none

A *block* is what one shard reads: consecutive slices of files, in rank order. A *ranking* is an order of all candidates
by key: dsir has one for each target, a score has one alone.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias, TypeVar

from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import InputRef, Ledger, Manifest, content_key
from pairmill.engine.stage import GivenResult, Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import given
from pairmill.formats.joined_parts import JoinParts
from pairmill.formats.means import MEANS, joined
from pairmill.log import event
from pairmill.report.model import Report
from pairmill.stages.select import arrays, inputs, quotas
from pairmill.stages.select.attributes import AttributeQuery
from pairmill.stages.select.choose import Choose, chosen_path, refuse_more
from pairmill.stages.select.config import SelectConfig
from pairmill.stages.select.divergence import CountChosen
from pairmill.stages.select.findings import Findings, Span
from pairmill.stages.select.fit import MOMENTS, Features, FitRows, FitTarget
from pairmill.stages.select.inputs import Block, Rows, Slice
from pairmill.stages.select.model import AddUp, Model, load_moments, refuse_empty
from pairmill.stages.select.rankings import Budget, KeyRule, Ranking, ScoredRows, rankings_of
from pairmill.stages.select.report.page import report_of
from pairmill.stages.select.score import Scored, ScoreRows
from pairmill.stages.select.settings import Quota, Settings
from pairmill.stages.select.sidecar import sidecars
from pairmill.stages.select.summary import ReadTexts, SelectionRecords, locate_extremes, metrics_of, summarise
from pairmill.stages.select.write import WriteRows, parts_of

T = TypeVar("T")
ShardRounds: TypeAlias = "Generator[Sequence[Shard[Any]], list[ShardRecord], T]"


@dataclass(frozen=True, kw_only=True)
class SelectPlan(StagePlan[None]):
    """What is read.

    Args:
        rows: the row files in rank order.
        settings: of the stage.
        query: what is read of attributes.
        targets: the blocks of each target; none of ``target_by_attribute``.
        rankings: in the order in which they take.
        records: known after the last round.
    """

    rows: Rows
    settings: Settings
    query: AttributeQuery
    targets: list[list[Block]]
    rankings: tuple[Ranking, ...]
    records: SelectionRecords | None = None


class Select(Stage[SelectConfig, SelectPlan]):
    """Fit, score, choose, write."""

    name: ClassVar[str] = "select"
    output_in_list: ClassVar[bool] = True
    version: ClassVar[int] = 2
    round_count: ClassVar[int] = 6
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
        return given.passed_on(option, config.rows)

    def plan(self, config: SelectConfig) -> SelectPlan:
        settings, longest = config.settings, config.max_record_bytes
        if settings.unread:
            unread = ", ".join(settings.unread)
            event(f"select: {unread}: not read with method: {settings.method}", level=logging.WARNING)
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
        query = AttributeQuery.from_settings(settings)
        query.refuse_unknown(rows)
        targets = []
        for target in settings.dsir.targets if settings.uses_targets else ():
            blocks, given_rows = inputs.target_rows(
                target.rows,
                target.name,
                settings.dsir.fields,
                verify=config.verify,
                longest=longest,
                expansion=expansion,
            )
            targets.append(blocks)
            refs += given_rows.refs
        return SelectPlan(
            inputs=refs,
            rows_expected=rows.found.rows,
            build_context=lambda: None,
            says={"settings": settings.to_manifest()},
            rows=rows,
            settings=settings,
            query=query,
            targets=targets,
            rankings=rankings_of(settings),
        )

    def rounds(self, config: SelectConfig, plan: SelectPlan) -> ShardRounds[SelectPlan]:
        settings = plan.settings
        model = yield from self._fit(config, plan)
        scored = yield [
            ScoreRows.from_settings(block, model, settings, plan.query, plan.rankings, config.seed)
            for block in plan.rows.blocks
        ]
        (chosen,) = yield [
            Choose(
                blocks=tuple(scored),
                model=model,
                rankings=plan.rankings,
                rule=KeyRule.from_settings(settings),
                budget=Budget.from_settings(settings, model.read(Model).candidates),
                quota=settings.attributes.quota if settings.uses_score else Quota(),
                filters_last=settings.filters_last,
                allow_unfilled=settings.allow_unfilled,
                name="choose",
                size=8 * (len(plan.rankings) + 1) * model.read(Model).rows,
            )
        ]
        return replace(plan, records=(yield from self._write(config, plan, model, scored, chosen)))

    def _fit(self, config: SelectConfig, plan: SelectPlan) -> ShardRounds[ShardRecord]:
        """Make what weights and scores are made of: rounds 1 and 2."""
        settings = plan.settings
        features = Features.from_settings(settings.dsir)
        rows = [FitRows.from_settings(block, settings, plan.query, config.seed) for block in plan.rows.blocks]
        targets = [
            FitTarget(block, features, name=f"target {target.name} {block.name}", size=block.size)
            for target, blocks in zip(settings.dsir.targets, plan.targets, strict=False)
            for block in blocks
        ]
        records = yield [*rows, *targets]
        by_target, at = [], len(rows)
        for blocks in plan.targets:
            by_target.append(tuple(records[at : at + len(blocks)]))
            at += len(blocks)
        laplace = settings.dsir.laplace if settings.uses_weights else None
        (record,) = yield [
            AddUp(tuple(records[: len(rows)]), tuple(by_target), laplace, plan.query.terms, name="add up")
        ]
        model = record.read(Model)
        names = [target.name for target in settings.dsir.targets] or [ranking.name for ranking in plan.rankings]
        refuse_empty(model, names if settings.uses_weights else [], f"select_config={config.select_config}")
        if settings.uses_score:
            quotas.refuse_unknown(settings.attributes.quota, load_moments(record).names, settings.attributes.group_by)
        # Before anything is scored; what groups of weight 0 take from it, and tokens, choose knows.
        if settings.rows is not None:
            refuse_more(settings.rows, model.candidates, "rows", allow_unfilled=settings.allow_unfilled)
        return record

    def _write(
        self,
        config: SelectConfig,
        plan: SelectPlan,
        model: ShardRecord,
        scored: list[ShardRecord],
        chosen: ShardRecord,
    ) -> ShardRounds[SelectionRecords]:
        """Write the chosen rows of tasks or of their parts, beside counts of what was chosen and texts to show."""
        settings, blocks = plan.settings, plan.rows.blocks
        findings = _findings_by_task(plan, model, scored, chosen)
        slices: dict[str, list[Slice]] = {}
        for part in (part for block in blocks for part in block.slices):
            slices.setdefault(part.task.name, []).append(part)
        writes: list[list[WriteRows]] = []
        for task in plan.rows.tasks:
            known = findings.get(task.name)
            parts = parts_of(task, slices.get(task.name, ()))
            writes.append(
                [
                    WriteRows.from_task(
                        task,
                        known if known is None or part is None else replace(known, spans=known.spans[at : at + 1]),
                        settings,
                        longest=config.max_record_bytes,
                        part=part,
                    )
                    for at, part in enumerate(parts)
                ]
            )
        shown = [row[1:] for ranking in locate_extremes(chosen, scored) for rows in ranking.values() for row in rows]
        files = {task.name: task.file for task in plan.rows.training if any(name == task.name for name, _ in shown)}
        texts = ReadTexts(files, tuple(dict.fromkeys(shown)), config.max_record_bytes, name="read texts")
        features = Features.from_settings(settings.dsir)
        counts = [CountChosen.from_record(block, chosen, features) for block in blocks if settings.uses_weights]
        records = iter((yield [*(shard for shards in writes for shard in shards), texts, *counts]))
        written = [[next(records) for _ in shards] for shards in writes]
        shown_texts, counted = next(records), list(records)
        joins = [
            JoinParts.of(self.name, self.version, task.name, parts, task.path)
            for task, parts in zip(plan.rows.tasks, written, strict=True)
            if len(parts) > 1
        ]
        joined_files = yield joins
        return SelectionRecords(model, scored, chosen, shown_texts, counted, written, joined_files)

    def ledger(self, plan: SelectPlan, rounds: Rounds) -> Ledger:
        """Add up the ledgers of shards that write rows: the others count none."""
        assert plan.records is not None
        return Ledger.sum(record.ledger for parts in plan.records.written for record in parts)

    def parts(self, plan: SelectPlan, rounds: Rounds) -> dict[str, Ledger]:
        assert plan.records is not None
        written = zip(plan.rows.tasks, plan.records.written, strict=True)
        return {task.name: Ledger.sum(record.ledger for record in parts) for task, parts in written}

    def finish(self, config: SelectConfig, plan: SelectPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        records = plan.records
        assert records is not None
        for record in (*(record for parts in records.written for record in parts), *records.joined):
            for file in record.lasting():
                out.link(record.folder, file)
        held_out = {
            task.path: parts[0].ledger.rows_in
            for task, parts in zip(plan.rows.tasks, records.written, strict=True)
            if task.held_out
        }
        return {
            **summarise(plan.rows.tasks, plan.rankings, plan.settings, records),
            MEANS: joined(record.data for parts in records.written for record in parts),
            **({"held_out": held_out} if held_out else {}),
            **plan.rows.found.passed_on(),
        }

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        tasks = len([name for name in manifest.tasks() if not name.startswith(HELD_OUT)])
        return {**metrics_of(manifest.data), "tasks": tasks}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def _findings_by_task(
    plan: SelectPlan, model: ShardRecord, scored: Sequence[ShardRecord], chosen: ShardRecord
) -> Mapping[str, Findings]:
    """Gather what is known of the rows of each task: a span for each slice."""
    settings = plan.settings
    codes = arrays.files_of(chosen)
    spans: dict[str, list[Span]] = {}
    for block, record in zip(plan.rows.blocks, scored, strict=True):
        files, at = arrays.files_of(record), 0
        for task, first, count in record.read(Scored).slices:
            rows = ScoredRows(files, at, at + count)
            spans.setdefault(task, []).append(Span(rows, codes[chosen_path(block.number)], first))
            at += count
    rankings = tuple(ranking.name for ranking in plan.rankings)
    return {
        task: Findings(
            tuple(some),
            groups=model.file(MOMENTS),
            moments=codes.get(MOMENTS),
            rule=KeyRule.from_settings(settings),
            rankings=rankings,
            targets=tuple(target.name for target in settings.dsir.targets) or rankings,
            filters_last=settings.filters_last,
        )
        for task, some in spans.items()
    }
