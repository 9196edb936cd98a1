"""The compare stage: plans, and what trainings on them came to → what differs, a table, and a verdict.

It trains nothing. Without runs its result is what differs between the plans, and its output ``runs`` says which runs to
make; with them it is the comparison. Both follow from content alone.
"""

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.engine.stage import Outputs, Rounds, Shard, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.evaluation import before
from pairmill.formats.training_results import CompareResult
from pairmill.report.model import Report
from pairmill.stages.compare import made, plans
from pairmill.stages.compare.config import CompareConfig
from pairmill.stages.compare.made import Run
from pairmill.stages.compare.plans import Budget, Plan
from pairmill.stages.compare.report.page import report_of
from pairmill.stages.compare.result import compare
from pairmill.stages.compare.table import table_of
from pairmill.training.settings import TrainSettings

RESULT: Final = "compare.json"
TABLE: Final = "table.md"


@dataclass(frozen=True)
class Context:
    """What is compared."""

    plans: Sequence[Plan]
    budget: Budget | None
    runs: Sequence[Run]


@dataclass(frozen=True)
class Judge(Shard[Context]):
    """The whole comparison: sums of small numbers."""

    work = "compare runs"

    inputs: tuple[InputRef, ...]

    def run(self, context: Context, out: Writer) -> ShardResult:
        result = compare(context.plans, context.budget, context.runs)
        out.write(RESULT, json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n")
        out.write(TABLE, table_of(result).encode())
        return ShardResult(Ledger(measures={"runs": len(context.runs)}), result)


@dataclass(frozen=True, kw_only=True)
class ComparePlan(StagePlan[Context]):
    """Args: asked: the runs of the comparison."""

    asked: list[dict[str, str]]


class Compare(Stage[CompareConfig, ComparePlan]):
    """One round of one shard."""

    name: ClassVar[str] = "compare"
    watched: ClassVar[bool] = False
    version: ClassVar[int] = 4
    round_count: ClassVar[int] = 1
    history: ClassVar[dict[int, str]] = {
        2: "damage of records and files of shards could go unseen; verdicts held their level for one look and one "
        "plan only",
        3: "the key of a shard follows from all that it reads",
        4: "digests of data are BLAKE3; a manifest says which digest it has of each file",
    }
    counts_rows: ClassVar[bool] = False
    config = CompareConfig

    def plan(self, config: CompareConfig) -> ComparePlan:
        opened = plans.read_all(config)
        plans.common(opened)
        plans.refuse_training_rows(config)
        budget = Budget.of_plans(config, opened) if config.seeds else None
        asked = []
        if budget is not None:
            asked = plans.runs(config, opened, budget)
            if config.train_config and not config.trained:
                settings = plans.settings_of(config, opened[0], budget, config.first_seed)
                trainings = TrainSettings.load(config.train_config, settings)
                before.check(
                    trainings, config.evaluate_config, config.evaluate_set, config.benchmarks, config.data, config.root
                )
                plans.warn_short(opened, budget, trainings.batch)
        self.asked = asked
        tokenizers = len({plan.tokenizer for plan in opened})
        runs: list[Run] = []
        if config.trained:
            runs = made.read_all(asked, config.trained, config.evaluated, tokenizers=tokenizers)
        refs = [InputRef(f"plan {plan.name}", plan.manifest.fingerprint) for plan in opened]
        refs += [InputRef.from_content(f"{run.plan} {run.seed}", *run.digests) for run in runs]
        return ComparePlan(
            inputs=refs,
            build_context=lambda: Context(opened, budget, runs),
            says={"budget": {"of": budget.counted, "tokens": budget.tokens} if budget else None},
            options={"budget": budget.tokens if budget else 0},
            asked=asked,
        )

    def rounds(
        self, config: CompareConfig, plan: ComparePlan
    ) -> Generator[Sequence[Shard[Context]], list[ShardRecord], None]:
        yield [Judge(tuple(plan.inputs), name="comparison")]

    def finish(self, config: CompareConfig, plan: ComparePlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        super().finish(config, plan, rounds, out)
        return rounds[0][0].data

    def outputs(self, config: CompareConfig, manifest: Manifest, folder: str) -> Outputs:
        return super().outputs(config, manifest, folder)._replace(parameters={"runs": self.asked})

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        result: dict[str, float] = {}
        for pair in CompareResult.from_manifest(manifest).pairs:
            figures = pair["all"]
            result[f"{pair['change']}_less_{pair['base']}"] = round(figures["mean"], 6)
            if figures["corrected_p"] is not None:
                result[f"{pair['change']}_p"] = round(figures["corrected_p"], 6)
        return result

    def report(self, manifest: Manifest) -> Report:

        return report_of(CompareResult.from_manifest(manifest))
