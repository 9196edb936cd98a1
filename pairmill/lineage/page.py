"""One page over the line: how shares of sources and means of attributes change, and what each stage dropped."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.usage import Total, Usage
from pairmill.formats.results.rows import SelectResult
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.training_results import TrainResult
from pairmill.lineage.flow import flow_of
from pairmill.lineage.steps import Step, by_source
from pairmill.mixture.realised import Realised
from pairmill.mixture.shown import summary
from pairmill.report.charts import Stacked
from pairmill.report.model import Block, Bytes, Cell, Link, Percent, Report, Section, Table, describe_names

_PARTS: Final = 4
"""Sources with a colour of their own: a chart has five, and the last is all others'."""
_OTHERS: Final = "all others"
_DASH: Final = "–"
_HELD_OUT: Final = ("heldout_loss", "heldout_ema_loss")
_MEASURED: Final = "heuristics."
_DONE: Final = {
    "clean": "cleaned",
    "curate": "curated",
    "select": "selected",
    "tokenize": "tokenized",
    "sample": "sampled",
}
"""What rows are called after a stage."""

Shares = Mapping[str, float]
"""By source; of nothing, none."""


def section_of(steps: Sequence[Step]) -> list[Block]:
    """Return the page as a folded part of the report of its sample; nothing if the line has no other stage."""
    whole = report_of(steps)
    return [Section("The line, from its first rows to this sample", whole.sections, whole.verdict)] if steps[1:] else []


def report_of(
    steps: Sequence[Step],
    runs: Sequence[Manifest] = (),
    finished: Mapping[str, str] | None = None,
    used: Mapping[str, Sequence[Usage]] | None = None,
) -> Report:
    """Return the page.

    Args:
        steps: as :func:`pairmill.lineage.steps.find` gives them, of which the last is a sample.
        runs: those of train on it.
        finished: when each was, by fingerprint; the page is then below the root, and leads to their reports.
        used: what the pods of each stage took.
    """
    rows = {_DONE[stage]: counts for stage, counts in _stages(steps, "rows").items()}
    tokens = {_DONE[stage]: counts for stage, counts in _stages(steps, "tokens").items()}
    first, last = next(iter(rows.values()), {}), rows.get("sampled", {})
    dropped = Ledger.sum(step.manifest.ledger for step in steps if step.stage not in {steps[0].stage, "sample"}).dropped
    lost = sorted(dropped.items(), key=lambda item: (-item[1], item[0]))
    reasons = describe_names([f"{count:,} {reason.replace('_', ' ')}" for reason, count in lost])
    names = _largest(rows, tokens)
    verdict = (
        f"{sum(first.values()):,} rows after {steps[0].stage} of {len(first):,} sources; "
        f"{sum(dropped.values()):,} dropped since"
        + (f" ({reasons})" if lost else "")
        + f"; {sum(last.values()):,} rows over all epochs."
    )
    return Report(
        "the line",
        _figures(steps, rows, tokens),
        [
            flow_of(steps),
            _chart("Shares of sources in rows", rows, names, "rows"),
            _chart("Shares of sources in response tokens", tokens, names, "tokens"),
            _table("Sources", "Source", names, rows, tokens),
            *_planned(steps),
            *_means(steps),
            *_trained(runs),
            *_used(used or {}),
            Table(
                "What each stage dropped, and why",
                ("Stage", "Reason", "Rows", "Of its rows"),
                [
                    (step.stage, reason.replace("_", " "), count, Percent.ratio(count, step.manifest.ledger.rows_in))
                    for step in steps
                    for reason, count in sorted(
                        step.manifest.ledger.dropped.items(), key=lambda item: (-item[1], item[0])
                    )
                ],
                "Each stage's own report has the rows and the evidence.",
            ),
            Table(
                "Stages",
                ("Stage", "Fingerprint", "Rows in", "Rows out", *(["Finished"] if finished is not None else [])),
                [
                    (
                        step.stage if finished is None else _linked(step),
                        step.manifest.fingerprint,
                        step.manifest.ledger.rows_in,
                        step.manifest.ledger.rows_out,
                        *([finished[step.manifest.fingerprint]] if finished is not None else []),
                    )
                    for step in steps
                ],
            ),
        ],
        verdict=verdict,
        look_at=_vanished(first, last),
    )


def _used(used: Mapping[str, Sequence[Usage]]) -> list[Block]:
    """Return what each stage took of the cluster, and all of them together; nothing where no pod left it."""
    totals = {stage: Total.sum(pods) for stage, pods in used.items() if pods}
    if totals:
        totals["together"] = Total.sum(pod for pods in used.values() for pod in pods)
    lines = [
        (
            stage,
            total.pods,
            round(total.pod_seconds),
            round(total.core_seconds),
            round(total.gib_seconds),
            round(total.gpu_seconds),
            Percent.ratio(total.cpu_seconds, total.core_seconds),
            Bytes(total.peak_bytes) if total.peak_bytes else _DASH,
        )
        for stage, total in totals.items()
    ]
    heads = ("Stage", "Pods", "Pod seconds", "Core seconds", "GiB seconds", "GPU seconds", "Cores used", "Most memory")
    note = (
        "Seconds of pods, times the cores, memory and GPUs that each might use. Pods that were killed are not counted, "
        "and a pod without a limit of cores counts those of its node."
    )
    return [Table("What it took", heads, lines, note)] if lines else []


def _linked(step: Step) -> Link:
    return Link(step.stage, f"../{step.stage}/{step.manifest.fingerprint}/report.html")


def _stages(steps: Iterable[Step], what: str) -> dict[str, dict[str, int]]:
    """Return counts by stage and source, in the order of the stages."""
    result: dict[str, dict[str, int]] = {}
    for step in steps:
        counts = by_source(getattr(step, what))
        if counts:
            mine = result.setdefault(step.stage, {})
            for name, count in counts.items():
                mine[name] = mine.get(name, 0) + count
    return result


def _largest(rows: Mapping[str, Mapping[str, int]], tokens: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return all sources; first those with the greatest share anywhere."""
    most: dict[str, float] = {}
    for counts in (*rows.values(), *tokens.values()):
        for name, share in _shares(counts).items():
            most[name] = max(most.get(name, 0.0), share)
    return sorted(most, key=lambda name: (-most[name], name))


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    whole = sum(counts.values())
    return {name: count / whole for name, count in counts.items()} if whole else {}


def _figures(
    steps: Sequence[Step], rows: Mapping[str, Mapping[str, int]], tokens: Mapping[str, Mapping[str, int]]
) -> dict[str, Cell]:
    result: dict[str, Cell] = {f"Rows {name}": sum(counts.values()) for name, counts in rows.items()}
    result |= {f"Response tokens {name}": sum(counts.values()) for name, counts in tokens.items()}
    sample = steps[-1].manifest
    return {**result, "Epochs": sample.ledger.measures["epochs"], "Sample": sample.fingerprint}


def _chart(title: str, stages: Mapping[str, Mapping[str, int]], names: Sequence[str], unit: str) -> Block:
    own, rest = names[:_PARTS], names[_PARTS:]
    if len(rest) == 1:
        own, rest = names, []
    parts = [*own, *([_OTHERS] if rest else [])]
    bars = []
    for stage, counts in stages.items():
        others = [sum(counts.get(name, 0) for name in rest)] if rest else []
        bars.append((stage, [*(counts.get(name, 0) for name in own), *others]))
    return Stacked(title, parts, bars, unit)


def _table(
    title: str,
    what: str,
    names: Sequence[str],
    rows: Mapping[str, Mapping[str, int]],
    tokens: Mapping[str, Mapping[str, int]],
) -> Block:
    columns = [
        *((f"{stage}, rows", counts) for stage, counts in rows.items()),
        *((f"{stage}, tokens", counts) for stage, counts in tokens.items()),
    ]
    shares = [_shares(counts) for _, counts in columns]
    return Table(
        title,
        (what, *(name for name, _ in columns)),
        [(name, *(Percent(item.get(name, 0.0)) for item in shares)) for name in names],
        "Shares of all rows, and of all response tokens.",
    )


def _planned(steps: Sequence[Step]) -> Iterable[Block]:
    """Yield the sources of the mixture, from clean to what was planned and what was drawn; nothing without a
    mixture."""
    drawn = SampleResult.from_manifest(steps[-1].manifest)
    if not drawn.mixture:
        return
    realised = Realised.load(drawn.mixture)
    of_task = drawn.source_of_task
    columns: list[tuple[str, Shares]] = []
    for step in steps[:-1] if of_task else ():
        for unit, counts in (("rows", step.rows), ("tokens", step.tokens)):
            result: dict[str, float] = {}
            for task, count in counts.items():
                if task in of_task:
                    result[of_task[task]] = result.get(of_task[task], 0) + count
            if result:
                columns.append((f"{_DONE[step.stage]}, {unit}", _shares(result)))
    columns.append(("planned, tokens", {item.source: item.predicted for item in realised.whole}))
    columns.append(("sampled, tokens", {item.source: item.realised for item in realised.whole}))
    passes = {item.source: item.drawn / item.rows if item.rows else 0.0 for item in realised.passes}
    yield Table(
        "Sources of the mixture",
        ("Source", *(name for name, _ in columns), "Times over"),
        [
            (name, *(Percent(shares.get(name, 0.0)) for _, shares in columns), round(passes[name], 3))
            for name in columns[-1][1]
        ],
        "Shares of all rows, and of all response tokens; how often a row of the source is drawn. " + summary(realised),
    )


def _means(steps: Sequence[Step]) -> Iterable[Block]:
    """Means of attributes after each stage that knows them; a sample has those of the sources that it draws."""
    known = [step for step in steps if step.means]
    if not known:
        return
    drawn = _shares(by_source(steps[-1].rows))
    header = ["Attribute", "before " + known[0].stage, *(_DONE[step.stage] for step in known), "sampled"]
    names = sorted({name for step in known for name in step.means})
    lines: dict[str, tuple[Cell, ...]] = {}
    for name in names:
        cells: list[float | None] = []
        for at, step in enumerate(known):
            parts = step.means.get(name, {}).values()
            if at == 0:
                cells.append(_mean((item[0], item[1]) for item in parts))
            cells.append(_mean((item[2], item[3]) for item in parts))
        latest = next(step.means[name] for step in reversed(known) if name in step.means)
        weights = [
            (drawn.get(source, 0.0), drawn.get(source, 0.0) * item[3] / item[2])
            for source, item in latest.items()
            if item[2]
        ]
        cells.append(_mean(weights))
        if len({cell for cell in cells if cell is not None}) > 1:
            lines[name] = (name, *(_DASH if cell is None else f"{cell:.4g}" for cell in cells))
    first = [name for name in lines if name in _chosen_by(steps) or not name.startswith(_MEASURED)]
    note = "Of the rows that have a value. A sample has the means of its sources, weighted by the rows that are drawn."
    if first:
        yield Table("Means of attributes", header, [lines[name] for name in first], note)
    rest = [line for name, line in lines.items() if name not in first]
    if rest:
        yield Section("Means of what heuristics measured", [Table("Metrics", header, rest, note)])


def _trained(runs: Sequence[Manifest]) -> Iterable[Block]:
    """Yield what was trained on the sample; nothing if nothing was."""
    if not runs:
        return
    header = ("Run", "Net", "Parameters", "Steps", "Tokens", "Loss", "Held-out loss", "Held out, averaged")
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        result = TrainResult.from_manifest(run)
        last = result.last
        losses = [item and f"{item:.4f}" for item in (result.end.get("loss"), *map(last.get, _HELD_OUT))]
        counts = (result.parameters, last.get("step", 0), last.get("tokens", 0))
        rows.append((run.fingerprint, result.net, *counts, *(item or _DASH for item in losses)))
    yield Table("Trained on this sample", header, rows, "Loss: mean over labels at the end, in nats.")


def _chosen_by(steps: Sequence[Step]) -> set[str]:
    """Return the attributes that rows were selected by."""
    result = set()
    for step in steps:
        if step.stage == "select":
            attributes = SelectResult.from_manifest(step.manifest).settings["attributes"]
            result |= {item["attribute"] for part in ("where", "score") for item in attributes[part]}
    return result


def _mean(parts: Iterable[tuple[float, float]]) -> float | None:
    counts, sums = zip(*parts, strict=True) if (parts := list(parts)) else ((), ())
    return sum(sums) / sum(counts) if sum(counts) else None


def _vanished(first: Mapping[str, int], last: Mapping[str, int]) -> list[str]:
    gone = [name for name, count in first.items() if count and not last.get(name)]
    return [f"No row is left of {describe_names(gone)}."] if gone else []
