"""The sample stage: a tokenized folder and a rule file → a plan of rows and epochs, with the digests of its arrays.

The plan is the stage's one shard. :mod:`pairmill.stages.sample.node.carry_out` makes the arrays where they train.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

from pairmill.engine import runner, vanished
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.options import byte_options
from pairmill.engine.runner import Result
from pairmill.engine.stage import Rounds, Shard, ShardRecord, ShardResult, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import StageFailure
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.token_listing import is_epoch
from pairmill.report.model import Report
from pairmill.stages.sample import analytics
from pairmill.stages.sample.alarms import alarms_of, check_rules
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draft import Draft
from pairmill.stages.sample.node.carry_out import carry_out, threads


class Sample(Stage[SampleConfig, StagePlan["Draft"]]):
    """One round with one shard: drawing the plan."""

    name: ClassVar[str] = "sample"
    version: ClassVar[int] = 6
    round_count: ClassVar[int] = 1
    history: ClassVar[dict[int, str]] = {
        2: "plans hold rows and digests now",
        3: "a plan was kept when tokens changed while they were read; it records neither cuts nor the tokenizer",
        4: "damage of records and files of shards could go unseen; rows that are never drawn counted as cut",
        5: "the key of a shard follows from all that it reads",
        6: "rows are drawn in the order of their content, by streams of their own; rules have groups, shares and "
        "scales; digests of data are BLAKE3; a manifest says which digest it has of each file",
    }
    config = SampleConfig

    def plan(self, config: SampleConfig) -> StagePlan[Draft]:
        draft = self.draft = Draft.from_config(config)
        # Those that a mixture, or the plan that is drawn again, decides.
        return StagePlan(
            inputs=draft.inputs,
            build_context=lambda: draft,
            options=byte_options(draft.config),
            # That of the arrays in the plan's format: a folder on a node is named after it.
            fingerprint=draft.fingerprint,
            check=partial(check_rules, draft.rules),
            policy={},  # among the inputs of the draft already, as a sample without a plan has it
        )

    def rounds(
        self, config: SampleConfig, plan: StagePlan[Draft]
    ) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        yield [DrawPlan(plan.context.fingerprint, name="plan")]

    def parts(self, plan: StagePlan[Draft], rounds: Rounds) -> dict[str, Ledger]:
        """Return the ledgers of the data sets."""
        return {name: Ledger(**item) for name, item in rounds[0][0].read(DrawnPlan).ledgers.items()}

    def finish(self, config: SampleConfig, plan: StagePlan[Draft], rounds: Rounds, out: Writer) -> dict[str, Any]:
        super().finish(config, plan, rounds, out)
        data = {name: value for name, value in rounds[0][0].data.items() if name != "ledgers"}
        result = SampleResult.from_data(data)
        if len(result.stats) > analytics.MOST_TASKS:
            version, ledger = self.version, rounds[0][0].ledger
            whole = Manifest(
                self.name, version, plan.fingerprint, options={}, inputs=[], ledger=ledger, files=[], data=data
            )
            out.write(analytics.TASKS, _pages().csv_of_tasks(whole).encode())
        rows = _pages().first_rows(plan.context.folder, result, rounds[0][0])
        shown = {"rows": rows} if rows else {}
        return {**data, **shown, vanished.KEY: alarms_of(result, self.parts(plan, rounds))}

    def report(self, manifest: Manifest) -> Report:
        report: Report = _pages().plan_report(manifest)
        return report


def _pages() -> ModuleType:
    # A plan that is reused has its pages, and what makes them is a fifth of a start.
    from pairmill.stages.sample import report

    return report


def make_plan(config: SampleConfig) -> tuple[Result, Draft]:
    """Run the stage; return its result, and what it was made of."""
    stage = Sample()
    try:
        return runner.run(stage, config), stage.draft
    except StageFailure as failure:  # of the one shard
        raise failure.failures[0][1] from None


@dataclass(frozen=True, kw_only=True)
class DrawnPlan(SampleResult):
    """The data of the record: what the stage promises, and the ledgers of the data sets."""

    ledgers: Mapping[str, dict[str, Any]]


@dataclass(frozen=True)
class DrawPlan(Shard["Draft"], reads=()):
    """Draws the plan, and digests its arrays; if the options name a folder for them, writes them too."""

    fingerprint: str

    def run(self, context: Draft, out: Writer) -> ShardResult:
        config, sample = context.config, context.sample(out)
        if config.output_path:
            context.written = carry_out(config, context.fingerprint, lambda: sample)
        if context.written and not context.written.reused:
            manifest = context.written.manifest
        else:  # digests of a plan come from the tokens, never from arrays that are there already
            manifest = sample.make(None, threads(config))[0]
        ledgers = {name: vars(item) for name, item in manifest.shards.items()}
        files = [file.to_json() for file in manifest.files if context.base is None or not is_epoch(file)]
        return ShardResult(manifest.ledger, {**manifest.data, "sample": files, "ledgers": ledgers})
