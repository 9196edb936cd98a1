"""The mix stage: a tokenized folder → how many rows of each task every epoch has.

The one round counts rows and response tokens; the plan follows from their sums.
"""

from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.formats.results.tokens import MixResult
from pairmill.mixture.counting import Counting
from pairmill.mixture.inputs import CountingPlan, counted_sources, ledgers_of, open_inputs
from pairmill.mixture.plan import NAME, Mixture
from pairmill.mixture.planned import mixture_of, table_of
from pairmill.mixture.reading import load_mixture
from pairmill.report.model import Report
from pairmill.stages.mix.config import MixConfig
from pairmill.stages.mix.report import report_of


@dataclass(frozen=True, kw_only=True)
class MixPlan(StagePlan[Counting]):
    """Args: to_count: what is counted; made: the plan, once its tasks are counted."""

    to_count: CountingPlan
    earlier: Mixture | None
    made: Mixture | None = None


class Mix(Stage[MixConfig, MixPlan]):
    """Count, plan."""

    name: ClassVar[str] = "mix"
    watched: ClassVar[bool] = False
    version: ClassVar[int] = 4
    round_count: ClassVar[int] = 1
    history: ClassVar[dict[int, str]] = {
        2: "damage of records and files of shards could go unseen",
        3: "the key of a shard follows from all that it reads",
        4: "digests of data are BLAKE3; a manifest says which digest it has of each file; tasks are counted by "
        "summaries, and folders of others are known by their index arrays",
    }
    config = MixConfig

    def plan(self, config: MixConfig) -> MixPlan:
        to_count = open_inputs(config, config.mix_settings, verify=config.verify)
        earlier = load_mixture(config.compare, "compare") if config.compare else None
        refs = to_count.refs()
        if earlier is not None:
            refs.append(InputRef.from_content("compare", earlier.dump().decode()))
        return MixPlan(
            inputs=refs,
            rows_expected=to_count.rows,
            build_context=lambda: to_count.counting,
            says={"settings": config.mix_settings.to_manifest()},
            to_count=to_count,
            earlier=earlier,
        )

    def rounds(
        self, config: MixConfig, plan: MixPlan
    ) -> Generator[Sequence[Shard[Counting]], list[ShardRecord], MixPlan]:
        records = yield list(plan.to_count.shards())
        counted = counted_sources(plan.to_count.grouping, records)
        made = mixture_of(config.mix_settings, config, counted, plan.to_count.inputs, plan.to_count.where)
        return replace(plan, made=made, build_context=lambda: plan.context)

    def parts(self, plan: MixPlan, rounds: Rounds) -> dict[str, Ledger]:
        """Return those of the tasks."""
        return ledgers_of(rounds[0])

    def finish(self, config: MixConfig, plan: MixPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        super().finish(config, plan, rounds, out)
        mixture = plan.made
        assert mixture is not None
        out.write(NAME, mixture.dump())
        return MixResult(
            method=config.mix_settings.method,
            budget=mixture.budget,
            asked=config.mix_settings.budget,
            unfilled=mixture.unfilled,
            epochs=mixture.epochs,
            phases=[asdict(phase) for phase in mixture.phases],
            table=[asdict(row) for row in table_of(mixture, plan.earlier)],
            compared=plan.earlier is not None,
            gone=sorted({*plan.earlier.names} - {*mixture.names}) if plan.earlier is not None else [],
            tasks=_tasks_of(mixture),
        ).to_data()

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        result = MixResult.from_manifest(manifest)
        rows = [row for row in result.table if not row["phase"]]
        return {
            "response_tokens": round(sum(row["tokens"] for row in rows)),
            "epochs": result.epochs,
            "sources": len(rows),
            "tasks": len(result.tasks),
            "unfilled_tokens": round(result.unfilled),
            "most_passes": round(max(row["epochs"] for row in rows), 6),
        }

    def report(self, manifest: Manifest) -> Report:

        return report_of(manifest)


def _tasks_of(mixture: Mixture) -> dict[str, list[Any]]:
    """Return each task's source, or how many buckets it has, and the rows and tokens that it may give."""
    tasks: dict[str, list[Any]] = {}
    for key, task in mixture.tasks.items():
        entry = tasks.setdefault(task.task, [[], 0, 0])
        entry[0].append(mixture.source_of[key])
        entry[1] += task.rows
        entry[2] += task.response_tokens
    return {
        task: [names[0] if len(names) == 1 else f"{len(names)} buckets", rows, count]
        for task, (names, rows, count) in tasks.items()
    }
