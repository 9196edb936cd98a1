"""The report of a sample, to look at before any GPU is rented."""

import logging
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill import log, storage
from pairmill.engine.made_by import with_alarms
from pairmill.engine.manifest import Manifest
from pairmill.errors import PairmillError
from pairmill.formats import report_rows
from pairmill.formats.eligible_rows import SPLIT
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import HELD_OUT
from pairmill.lineage.page import section_of
from pairmill.lineage.steps import find
from pairmill.mixture.realised import Realised
from pairmill.mixture.shown import blocks, summary
from pairmill.report.charts import Bars, Histogram, Stacked
from pairmill.report.model import Block, Cell, Percent, Report, Samples, Section, Table, describe_rows
from pairmill.report.powers import bins
from pairmill.rules.rule import Rule
from pairmill.stages.sample import analytics
from pairmill.stages.sample.analytics import Stats
from pairmill.stages.sample.first_rows import first_rows as first_rows
from pairmill.stages.sample.inventory.lines import Inventory
from pairmill.stages.sample.inventory.pages import as_csv, checks_of, table_of
from pairmill.stages.sample.look_at import unusual
from pairmill.stages.sample.node.folder import NAME
from pairmill.stages.sample.preview.beside import Beside, expected_beside_drawn

_PARTS = ("instruction", "response")
_CHECKS = "Sums, and rules and tasks beside each other"
IN_TEXT = ("Expected and drawn, an epoch", "Inventory by source", _CHECKS)
"""Titles of the sections that report.md has beside the analytics."""


@dataclass
class PlanReport(Report):
    """The report in the plan's folder; its text is the analytics, the inventory, and what was expected and drawn.

    Args:
        analytics: as stdout has them.
        in_text: titles of the sections that are in the text too.
    """

    analytics: str = ""
    in_text: Collection[str] = ()

    def markdown(self) -> str:
        sections = [item for item in self.sections if isinstance(item, Section | Table) and item.title in self.in_text]
        blocks = [*([self.vanished] if self.vanished else []), *sections]
        return self.analytics + "".join(f"{line}\n" for block in blocks for line in block.markdown(2))


def report_in_line(manifest: Manifest, root: str) -> Report:
    """Report a sample; where the line that it ends is at hand below ``root``, with that in front of it."""
    report = with_alarms(report_of(manifest), manifest)
    if root:
        try:
            steps = find(storage.normalise(root, "root"), manifest)
        except PairmillError as error:  # the sample is whole, whatever became of the stages before it
            log.event(f"{NAME}: no report of the line: {error}", level=logging.WARNING)
        else:
            report.sections = [*section_of(steps), *report.sections]
    return report


def csv_of_tasks(manifest: Manifest) -> str:
    """Return the inventory by task, of more tasks than the analytics on stdout have lines for."""
    return as_csv(table_of(Inventory.from_manifest(manifest), "task"))


def plan_report(manifest: Manifest) -> Report:
    """Return the report of a plan as the stage writes it, with the analytics of data_io as text."""
    text, ours = SampleResult.from_manifest(manifest).analytics, manifest.options["profile"] == "pairmill"
    return PlanReport(**vars(report_of(manifest)), analytics=text, in_text=IN_TEXT if ours else ())


def report_of(manifest: Manifest) -> Report:
    """Report coverage by category and task, lengths, cuts, epochs and response tokens, and what was left out."""
    ledger, measures = manifest.ledger, manifest.ledger.measures
    result = SampleResult.from_manifest(manifest)
    stats = {name: Stats(**values) for name, values in result.stats.items()}
    categories = dict(sorted(analytics.by_category(stats).items(), key=lambda item: -item[1].cov_toks))
    tasks = dict(sorted(stats.items(), key=lambda item: -item[1].cov_toks))
    left_out = [
        (name, reason, count, f"{each.measures.get('truncated_tokens', 0):,}" if reason == "truncated" else "")
        for name, each in manifest.shards.items()
        for reason, count in {**each.dropped, **each.notes}.items()
    ]
    left_out.sort(key=lambda row: (-row[2], *row[:2]))
    epochs, truncated = measures["epochs"], ledger.notes.get("truncated", 0)
    whole = analytics.total(stats.values())
    cut = measures.get("truncated_tokens", 0)
    cut_share = Percent.ratio(cut, whole.unique_toks + cut)
    split = ledger.notes.get("split", 0)
    pieces, split_tokens, _ = (measures.get(name, 0) for name in SPLIT)
    figures: dict[str, Cell] = {}
    # The report of a plan whose rules split nothing has the bytes that it always had.
    if any(rule["long_context"] == "split" for rule in result.rules.values()):
        padded = analytics.padded_tokens(manifest)
        figures = {
            "Rows split": f"{split:,} into {pieces:,} pieces",
            "Tokens split": Percent.ratio(split_tokens, whole.toks),
            "Padding if rows are not packed": Percent.ratio(padded, padded + measures["tokens_sampled"]),
        }
    idle = result.idle_rules
    groups = expected_beside_drawn(manifest)
    mixture, summary = _mixture(manifest)
    if summary:
        figures["Mixture"] = summary
    return Report(
        "sample, held-out rows" if any(ref.role == HELD_OUT for ref in manifest.inputs) else "sample",
        {
            "Epochs": epochs,
            "Rows in": ledger.rows_in,
            "Rows sampled": ledger.rows_kept,
            "Rows over all epochs": ledger.rows_out,
            "Tokens over all epochs": measures["tokens_sampled"],
            "Unique tokens": measures["unique_tokens"],
            "Response tokens": Percent.ratio(measures["response_tokens_sampled"], measures["tokens_sampled"]),
            "Truncated rows": truncated,
            "Tokens cut off": cut_share,
            **figures,
            "Bytes on a node": measures["bytes"],
            "Layout": result.layout,
            "Fingerprint": manifest.fingerprint,
        },
        [
            *mixture,
            Bars("Tokens over all epochs by category", [(n, s.cov_toks) for n, s in categories.items()], "tokens"),
            _coverage("Coverage by category", categories),
            Stacked(
                "Instruction and response tokens by category",
                _PARTS,
                [(name, (each.cov_itoks, each.cov_rtoks)) for name, each in categories.items()],
                "tokens",
            ),
            Bars(
                "Epochs over the rows of a category",
                [(name, round(each.cov_rows / max(1, each.rows), 2)) for name, each in categories.items()],
                "times",
            ),
            Histogram("Rows over all epochs by length", bins(result.lengths), "tokens of a row", "rows"),
            Histogram("Truncated rows by what was cut", bins(result.cuts), "tokens cut off", "rows"),
            Samples("The first rows of epoch 0", result.rows, tag=report_rows.NAME),
            *_inventory(manifest),
            *([_expected_table(groups)] if groups else []),
            _table("Categories", "Category", categories),
            Section(
                "Tasks",
                [
                    _coverage("Coverage by task", tasks),
                    _table("All tasks", "Task", tasks),
                    _rules(result, tasks, mixed=bool(mixture)),
                    Table(
                        "Rules that apply to no task",
                        ("Rule", "Hidden by"),
                        [(repr(label), repr(by) if (by := result.hidden_rules.get(label)) else "") for label in idle],
                    ),
                ],
            ),
            Table("What was left out or cut", ("Task", "Reason", "Rows", "Tokens cut off"), left_out),
        ],
        verdict=f"Rows: {describe_rows(ledger, 'sampled')}; {ledger.rows_out:,} rows and "
        f"{measures['tokens_sampled']:,} tokens over {epochs:,} {'epoch' if epochs == 1 else 'epochs'}.",
        look_at=unusual(manifest),
    )


def _inventory(manifest: Manifest) -> list[Block]:
    """Return the inventory by source; of samples of an older pairmill, which do not have all its sums, none."""
    if "unique_tokens" not in manifest.ledger.measures:
        return []
    inventory = Inventory.from_manifest(manifest)
    checks = Section(_CHECKS, checks_of(inventory, "source"))
    return [table_of(inventory, "source"), checks]


def _mixture(manifest: Manifest) -> tuple[list[Block], str]:
    """Return what there is to show and to say of the mixture, if there is one."""
    drawn = SampleResult.from_manifest(manifest)
    if not drawn.mixture:
        return [], ""

    realised = Realised.load(drawn.mixture)
    return blocks(realised), summary(realised)


def _rules(result: SampleResult, tasks: Iterable[str], *, mixed: bool) -> Table:
    """Return the rule of each task: as the file says it, and what it comes to."""
    labels = {name: "no rule" if (label := result.prefixes.get(name)) is None else repr(label) for name in tasks}
    if mixed:
        note = "The mixture says how many rows an epoch has."
        rows = [(name, label, result.rules[name]["long_context"]) for name, label in labels.items()]
        return Table("Rules applied", ("Task", "Rule", "Over the context"), rows, note)
    return Table(
        "Rules applied",
        ("Task", "Rule", "Group", "Rows per epoch", "Times over", "Over the context", "Response tokens per epoch"),
        [
            (name, label, result.group_of_task.get(name, ""), *_rule(result.rules[name]))
            for name, label in labels.items()
        ],
    )


def _rule(recorded: Mapping[str, Any]) -> tuple[str, int, str, str]:
    """Return the cells of a rule; rows that the solver counted have repeats in them."""
    rule = Rule.from_manifest(recorded)
    if rule.rows is not None:
        low, high = min(rule.rows), max(rule.rows)
        return f"{low:,}" if low == high else f"{low:,} to {high:,}", 1, rule.long_context, "all"
    limits = (rule.max_per_file, rule.max_response_tokens_per_file)
    rows, tokens = ("all" if limit is None else f"{limit:,}" for limit in limits)
    return rows, rule.repeat, rule.long_context, tokens


def _coverage(title: str, stats: dict[str, Stats]) -> Stacked:
    return Stacked(
        title,
        ("rows sampled", "rows not sampled"),
        [(name, (item.unique_rows, item.rows - item.unique_rows)) for name, item in stats.items()],
        "rows",
    )


def _table(title: str, what: str, stats: dict[str, Stats]) -> Table:
    return Table(
        title,
        (what, "Rows", "Rows sampled", "Coverage", "Rows over all epochs", "Epochs", "Tokens", "Response tokens"),
        [
            (
                name,
                item.rows,
                item.unique_rows,
                Percent.ratio(item.unique_rows, item.rows),
                item.cov_rows,
                round(item.cov_rows / max(1, item.rows), 2),
                item.cov_toks,
                Percent.ratio(item.cov_rtoks, item.cov_toks),
            )
            for name, item in stats.items()
        ],
    )


def _expected_table(groups: Sequence[Beside]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            group.name,
            round(group.rows),
            round(group.drawn_rows),
            round(group.tokens),
            round(group.drawn_tokens),
            f"{round(group.drawn_tokens - group.tokens):+,}",
            "–" if math.isnan(group.errors) else f"{group.errors:+.1f}",
        )
        for group in groups
    ]
    return Table(
        "Expected and drawn, an epoch",
        ("Group", "Rows expected", "Rows drawn", "Tokens expected", "Tokens drawn", "Difference", "Standard errors"),
        rows,
        "Expected from the mean lengths of the rows that may be sampled; beyond three standard errors look twice.",
    )
