"""The select stage: rows → the same files with fewer rows, the ones worth training on.

    1  fit      by block and target slice: bucket counts, moments of attributes by group
    2  add up   one shard (model.py): log weights of buckets, groups with mean and deviation
    3  score    by block: log weights, score of attributes, group, tokens, noise
    4  choose   one shard: which rows are taken, by streaming the keys of all blocks
    5  judge    by block: verdicts on rows, and their scores as attributes

Then the row stage (:mod:`pairmill.rowstage`) writes the chosen rows. Beside it words of what was chosen are counted
(divergence.py), and the best and worst rows are read (summary.py).

A *ranking* is an order of all candidates by key: dsir has one for each target, a score has one alone.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

from pairmill.engine.manifest import InputRef, Manifest
from pairmill.engine.stage import ShardRecord
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats.results.rows import SelectResult
from pairmill.formats.row_files import ORIGIN
from pairmill.log import event
from pairmill.report.model import Report
from pairmill.rowstage import Block, RowPlan, Rows, RowStage, ShardRounds
from pairmill.rowstage.verdicts import read_verdicts
from pairmill.stages.select import quotas
from pairmill.stages.select.attributes import AttributeQuery
from pairmill.stages.select.choose import Choose, chosen_path, refuse_more
from pairmill.stages.select.config import SelectConfig
from pairmill.stages.select.divergence import CountChosen
from pairmill.stages.select.features import Features
from pairmill.stages.select.fit import FitRows, FitTarget
from pairmill.stages.select.judge import JudgeRows
from pairmill.stages.select.model import AddUp, Model, refuse_empty
from pairmill.stages.select.moments import MOMENTS, Moments
from pairmill.stages.select.rankings import Budget, Ranking, rankings_of, rule_of
from pairmill.stages.select.report.page import report_of
from pairmill.stages.select.score import ScoreRows
from pairmill.stages.select.settings import Quota, Settings
from pairmill.stages.select.sidecar import SIDECAR, sidecar_files, with_sidecars
from pairmill.stages.select.summary import ReadSamples, SelectFindings, metrics_of, summarise


@dataclass(frozen=True, kw_only=True)
class SelectPlan(RowPlan):
    """The rows, targets and settings of a selection.

    Args:
        query: what is read of attributes.
        blocks: of the rows, with the files of attributes that are read.
        targets: the blocks of each target; none of ``target_by_attribute``.
        rankings: in the order in which they take.
    """

    settings: Settings
    query: AttributeQuery
    blocks: list[Block]
    targets: list[list[Block]]
    rankings: tuple[Ranking, ...]


class Select(RowStage[SelectConfig, SelectPlan]):
    """Fit, add up, score, choose, judge."""

    name: ClassVar[str] = "select"
    reasons_asked = tuple(f"not_selected_{method}" for method in ("attribute", "hybrid", "dsir"))
    version: ClassVar[int] = 4
    round_count: ClassVar[int] = 7
    history: ClassVar[dict[int, str]] = {
        2: "damage of records and files of shards could go unseen",
        3: "the key of a shard follows from all that it reads; means and deviations are added in float64",
        4: "digests of data are BLAKE3; a manifest says which digest it has of each file",
    }
    config = SelectConfig
    measures_lengths: ClassVar[bool] = True

    def plan(self, config: SelectConfig) -> SelectPlan:
        settings = config.settings
        if settings.unread:
            unread = ", ".join(settings.unread)
            event(f"select: {unread}: not read with method: {settings.method}", level=logging.WARNING)
        rows = self.discover(config)
        if not rows.blocks:
            raise InputError(
                "there are only held-out rows", where=f"rows={','.join(config.rows)}", expected="rows to choose from"
            )
        refs, attributed = list(rows.inputs.refs), rows
        if settings.sidecar is not None:
            attributed = with_sidecars(settings.sidecar, rows)
            files = {task.beside[SIDECAR].digest for task in attributed.training}
            refs.append(InputRef.from_content("sidecar", sorted(files)))
        query = AttributeQuery.from_settings(settings)
        query.refuse_unknown(attributed)
        targets = targets_of(config)
        return SelectPlan(
            inputs=[*refs, *(ref for target in targets for ref in target.inputs.refs)],
            rows_expected=rows.inputs.rows,
            build_context=lambda: None,
            says={"settings": settings.to_manifest()},
            rows=rows,
            settings=settings,
            query=query,
            blocks=attributed.blocks_with(query.operations | {ORIGIN}),
            targets=[target.blocks for target in targets],
            rankings=rankings_of(settings),
        )

    def find(self, config: SelectConfig, plan: SelectPlan) -> ShardRounds[SelectFindings]:
        settings, rule = plan.settings, rule_of(plan.settings)
        model = yield from self._fit(config, plan)
        scored = yield [
            ScoreRows.from_settings(block, model, settings, plan.query, plan.rankings, config.seed)
            for block in plan.blocks
        ]
        (chosen,) = yield [
            Choose(
                blocks=tuple(scored),
                model=model,
                rankings=plan.rankings,
                rule=rule,
                budget=Budget.from_settings(settings, model.read(Model).candidates),
                quota=settings.attributes.quota if settings.selector.score else Quota(),
                filters_last=settings.selector.where == "last",
                allow_unfilled=settings.allow_unfilled,
                name="choose",
                size=8 * (len(plan.rankings) + 1) * model.read(Model).rows,
            )
        ]
        rankings = tuple(ranking.name for ranking in plan.rankings)
        judged = yield [
            JudgeRows(
                block=block,
                scored=record,
                codes=chosen.file(chosen_path(block.number)),
                groups=model.file(MOMENTS),
                moments=chosen.file(MOMENTS) if rule.part else None,
                rule=rule,
                rankings=rankings,
                targets=tuple(target.name for target in settings.dsir.targets) or rankings,
                filters_last=settings.selector.where == "last",
                reason=settings.selector.reason,
                report=settings.mode == "report",
                name=f"judge {block.name}",
                size=block.size,
            )
            for block, record in zip(plan.rows.blocks, scored, strict=True)
        ]
        verdicts = [verdict for record in judged for verdict in read_verdicts(record)]
        return SelectFindings(verdicts, model, scored, chosen)

    def _fit(self, config: SelectConfig, plan: SelectPlan) -> ShardRounds[ShardRecord]:
        """Make what weights and scores are made of: rounds 1 and 2."""
        settings = plan.settings
        features = Features.from_settings(settings.dsir)
        rows = [FitRows.from_settings(block, settings, plan.query, config.seed) for block in plan.blocks]
        targets = [
            FitTarget(block, features, name=f"target {target.name} {block.name}", size=block.size)
            for target, blocks in zip(settings.dsir.targets, plan.targets, strict=False)
            for block in blocks
        ]
        records = iter((yield [*rows, *targets]))
        fitted = tuple(islice(records, len(rows)))
        by_target = tuple(tuple(islice(records, len(blocks))) for blocks in plan.targets)
        laplace = settings.dsir.laplace if settings.selector.weights else None
        (record,) = yield [AddUp(fitted, by_target, laplace, plan.query.terms, name="add up")]
        model = record.read(Model)
        names = [target.name for target in settings.dsir.targets] or [ranking.name for ranking in plan.rankings]
        refuse_empty(model, names if settings.selector.weights else [], f"select_config={config.select_config}")
        if settings.selector.score:
            quotas.refuse_unknown(settings.attributes.quota, Moments.load(record).names, settings.attributes.group_by)
        # Before anything is scored; what groups of weight 0 take from it, and tokens, choose knows.
        if settings.rows is not None:
            refuse_more(settings.rows, model.candidates, "rows", allow_unfilled=settings.allow_unfilled)
        return record

    def nothing_kept(self, config: SelectConfig) -> tuple[str, str]:
        return f"select_config={config.select_config}", "loosen the bounds of attributes.where"

    def summarise(
        self, config: SelectConfig, plan: SelectPlan, findings: SelectFindings
    ) -> ShardRounds[Sequence[ShardRecord]]:
        features = Features.from_settings(plan.settings.dsir)
        blocks = plan.rows.blocks if plan.settings.selector.weights else []
        counts = [CountChosen.from_record(block, findings.chosen, features) for block in blocks]
        samples = ReadSamples.from_findings(findings, plan.rows, plan.rankings, config.max_record_bytes)
        return (yield [samples, *counts])

    def data(self, config: SelectConfig, plan: SelectPlan, out: Writer) -> dict[str, Any]:
        samples, *counted = plan.summary
        return summarise(plan, plan.rankings, plan.settings, samples, counted)

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        return {**metrics_of(SelectResult.from_manifest(manifest)), **super().metrics(manifest)}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def targets_of(config: SelectConfig) -> list[Rows]:
    """Find the rows of all targets. Raises InputError if those of one do not exist."""
    settings = config.settings
    return [
        Rows.discover(
            [target.rows],
            verify=config.verify,
            longest=config.max_record_bytes,
            expansion=config.max_expansion,
            option=f"dsir.targets {target.name}",
            fields=settings.dsir.fields,
        )
        for target in (settings.dsir.targets if settings.selector.targets else ())
    ]


def check(config: SelectConfig) -> None:
    """Refuse targets and a sidecar that do not exist, before there are rows."""
    targets_of(config)
    if config.settings.sidecar is not None:
        sidecar_files(config.settings.sidecar)
