"""What the manifest says of a choice: counts by source and group, lengths, divergences, and the best and worst rows."""

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from typing import Any, Final, Self

from pairmill import storage
from pairmill.engine.inputs import InputFile
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import some_rows
from pairmill.formats.results.rows import SelectResult
from pairmill.formats.rows import Row
from pairmill.rowstage import Findings, RowPlan, Rows
from pairmill.rowstage.lengths import Lengths
from pairmill.rowstage.write import Written
from pairmill.stages.select.choose import Chosen, GroupCounts
from pairmill.stages.select.divergence import compare
from pairmill.stages.select.model import Model
from pairmill.stages.select.moments import Moments
from pairmill.stages.select.rankings import Budget, Ranking, Scored
from pairmill.stages.select.settings import Settings

SAMPLES: Final = "samples.json"
_SHOWN: Final = 2000
"""Characters of a text that the report shows."""
_GROUPS: Final = 1000
"""Groups that the manifest lists, the largest first."""


@dataclass(frozen=True)
class SelectFindings(Findings):
    """Verdicts, and the records that the report is made of.

    Args:
        model: record of AddUp.
        scored: records of ScoreRows, by block.
        chosen: record of Choose.
    """

    model: ShardRecord
    scored: Sequence[ShardRecord]
    chosen: ShardRecord


@dataclass(frozen=True)
class ReadSamples(Shard[object], reads=()):
    """Reads the best and worst rows of each ranking.

    Args:
        files: that they are in, by task.
        places: the name of each ranking with its best and worst rows: value, task, and number in the file.
        longest: bytes of the longest row.
    """

    files: Mapping[str, InputFile]
    places: tuple[tuple[str, Mapping[str, list[tuple[float, str, int]]]], ...]
    longest: int = field(metadata=unkeyed("a longer row fails the shard"))

    @classmethod
    def from_findings(cls, findings: SelectFindings, rows: Rows, rankings: Sequence[Ranking], longest: int) -> Self:
        """Find the tasks of rows, of which the choice knows the place among all."""
        counts = (count for record in findings.scored for count in record.read(Scored).counts)
        starts = list(accumulate(counts, initial=0))

        def locate(value: float, place: int) -> tuple[float, str, int]:
            at = bisect_right(starts, place) - 1
            piece = rows.slices[at]
            return value, piece.task, piece.part.first + place - starts[at]

        extremes = zip(rankings, findings.chosen.read(Chosen).extremes, strict=True)
        places = tuple(
            (ranking.name, {end: [locate(*row) for row in some] for end, some in ends.items()})
            for ranking, ends in extremes
        )
        tasks = {task for _, ends in places for some in ends.values() for _, task, _ in some}
        files = {task.name: task.file for task in rows.training if task.name in tasks}
        return cls(files, places, longest, name="read samples")

    def run(self, context: object, out: Writer) -> ShardResult:
        numbers: dict[str, set[int]] = {}
        for _, task, number in (row for _, ends in self.places for some in ends.values() for row in some):
            numbers.setdefault(task, set()).add(number)
        texts: dict[str, dict[int, Row]] = {}
        for task, some in numbers.items():
            file = self.files[task]
            texts[task] = some_rows.read(file.uri, some, file.content, self.longest)

        def show(value: float, task: str, number: int) -> dict[str, Any]:
            row = texts[task][number]
            shown = {name: (getattr(row, name) or "")[:_SHOWN] for name in ("instruction", "response")}
            return {"value": value, "task": task, "ordinal": number, **shown}

        samples = {
            name: {end: [show(*row) for row in ends[end]] for end in ("best", "worst")} for name, ends in self.places
        }
        with out.create(SAMPLES, scratch=True) as local:
            local.write_text(json.dumps(samples, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
        return ShardResult(Ledger())


def summarise(
    plan: RowPlan, rankings: Sequence[Ranking], settings: Settings, samples: ShardRecord, counted: Sequence[ShardRecord]
) -> dict[str, Any]:
    """Make the manifest's data.

    Args:
        plan: after all rounds.
        rankings: in the order in which they took rows.
        samples: record of ReadSamples.
        counted: records of CountChosen; none without log weights.
    """
    findings = plan.findings
    assert isinstance(findings, SelectFindings)
    chosen, model = findings.chosen.read(Chosen), findings.model.read(Model)
    sources: dict[str, dict[str, int]] = {}
    before, after = Lengths(), Lengths()
    for task, parts in zip(plan.rows.tasks, plan.written, strict=True):
        for record in parts if not task.held_out else ():
            every, kept = (Lengths(**record.read(Written).lengths[end]) for end in ("before", "after"))
            before.join(every)
            after.join(kept)
            source = sources.setdefault(task.source, {"rows": 0, "chosen": 0, "characters": 0, "characters_chosen": 0})
            source["rows"] += every.rows
            source["chosen"] += kept.rows
            source["characters"] += every.response
            source["characters_chosen"] += kept.response
    uri = samples.uri(SAMPLES)
    # A hybrid has the divergences of its target.
    targets = (
        [target.name for target in settings.dsir.targets]
        if settings.selector.both
        else [ranking.name for ranking in rankings]
    )
    return {
        "settings": settings.to_manifest(),
        "method": settings.method,
        "mode": settings.mode,
        "budget": {
            "unit": "response_tokens" if settings.tokens is not None else "rows",
            "asked": Budget.from_settings(settings, model.candidates).amount,
            "taken": chosen.spent,
        },
        "rows": model.rows,
        "candidates": model.candidates,
        "chosen": sum(chosen.rows),
        "outside": chosen.outside,
        "rankings": [
            {"name": ranking.name, "share": ranking.share, "rows": count, "tokens": tokens}
            for ranking, count, tokens in zip(rankings, chosen.rows, chosen.tokens, strict=True)
        ],
        "groups": _summarise_groups(findings, settings),
        "divergences": compare(targets, findings.model, chosen.rows, counted) if counted else {},
        "sources": dict(sorted(sources.items())),
        "lengths": {"before": asdict(before), "after": asdict(after)},
        "samples": json.loads(storage.store_for(uri).read(uri)),
    }


def _summarise_groups(findings: SelectFindings, settings: Settings) -> dict[str, Any]:
    """List the largest groups: candidates, part of the budget by the rule alone, quota, taken; count them all."""
    if settings.attributes.group_by is None or not settings.selector.score:
        return {}
    groups, taken = Moments.load(findings.model), GroupCounts.from_record(findings.chosen)
    by_tokens = settings.tokens is not None
    rows: list[dict[str, Any]] = [
        {
            "group": name,
            "candidates": int(groups.rows[at]),
            "asked": taken.asked[at],
            "quota": taken.quotas[at],
            "taken": (taken.tokens if by_tokens else taken.rows)[at],
            "rows": taken.rows[at],
        }
        for at, name in enumerate(groups.names)
    ]
    rows.sort(key=lambda row: (-row["candidates"], row["group"]))
    short = [row for row in rows if row["asked"] > row["quota"] + 1]
    return {
        "by": settings.attributes.group_by,
        "number": len(rows),
        "short": len(short),
        "redistributed": sum(row["asked"] - row["quota"] for row in short),
        "groups": rows[:_GROUPS],
    }


def metrics_of(result: SelectResult) -> dict[str, float]:
    """Return numbers that Kubeflow compares between runs."""
    metrics: dict[str, float] = {"candidates": result.candidates, "chosen": result.chosen}
    if result.rows:
        metrics["chosen_fraction"] = round(result.chosen / result.rows, 6)
    for name, compared in result.divergences.items():
        metrics[f"kl_reduction_{name}"] = round(compared["reduction"], 9)
    for end in ("before", "after"):
        lengths = result.lengths[end]
        if lengths["rows"]:
            metrics[f"mean_response_characters_{end}"] = round(lengths["response"] / lengths["rows"], 3)
    return metrics
