"""What the manifest says of a run: counts by operation, rule and source, samples, histograms and costs."""

from collections.abc import Iterable, Mapping
from typing import Any

from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Rounds, ShardRecord
from pairmill.formats.results.rows import CurateResult
from pairmill.log import event
from pairmill.rowstage import Rows
from pairmill.rowstage.histograms import Histogram
from pairmill.rowstage.scorer import ScoredSlice
from pairmill.stages.curate import operations
from pairmill.stages.curate.decide import Decided
from pairmill.stages.curate.settings import Settings
from pairmill.stages.curate.tallies import Tally


def summarise(
    settings: Settings,
    sources: Mapping[str, Any],
    tally: Tally,
    histograms: Mapping[str, Histogram],
    items: Mapping[str, int],
    costs: Mapping[str, Any],
) -> CurateResult:
    """Add up what the manifest promises.

    Args:
        settings: of all operations.
        sources: what became of the rows of each.
        tally: of all tasks.
        histograms: of all tasks, by ``<operation>.<column>``.
        items: of each benchmark.
        costs: by operation.
    """
    bounds = _bounds(settings)
    return CurateResult(
        settings=settings.to_manifest(),
        sources=sources,
        operations=_operations(settings, tally),
        matrix=tally.matrix,
        benchmarks={
            name: {
                "items": count,
                "hit": len(tally.items.get(name, ())),
                "rows": tally.hit_rows.get(name, 0),
                "by_rule": {rule: sum(some.values()) for rule, some in tally.benchmarks.get(name, {}).items()},
                "by_source": _summed(tally.benchmarks.get(name, {}).values()),
            }
            for name, count in sorted(items.items())
        },
        histograms={name: item.shown(bounds.get(name, [None, None])) for name, item in sorted(histograms.items())},
        samples=tally.samples,
        closest=tally.closest,
        costs=costs,
    )


def by_source(sources: Iterable[tuple[str, Decided]]) -> dict[str, dict[str, Any]]:
    """Return what became of the rows of each source, given its tasks."""
    result: dict[str, dict[str, Any]] = {}
    for source, decided in sources:
        item = result.setdefault(source, {"rows": 0, "kept": 0, "would_go": 0, "dropped": {}})
        item["rows"] += decided.rows
        item["kept"] += decided.kept
        item["would_go"] += decided.would_go
        for reason, count in decided.dropped.items():
            item["dropped"][reason] = item["dropped"].get(reason, 0) + count
    return dict(sorted(result.items()))


def _operations(settings: Settings, tally: Tally) -> dict[str, Any]:
    """Modes and counts by operation's name, in their order.

    Each has ``mode``, as the settings say; ``modes`` by rule, as they are carried out; ``rules``, findings by rule and
    action; ``owned``, rows of which a rule is the first that drops them, or would in mode drop of the operation;
    ``would_go``, rows that mode drop of a rule or of its operation would remove, by rule; and ``by_source``.
    """
    parts = [
        (operation, name, part.mode)
        for operation in operations.OPERATIONS
        for name, part in operation.parts(settings.own(operation))
    ]
    result: dict[str, Any] = {}
    for operation, name, mode in parts:
        mine = tally.rules.get(name, {})
        sources: dict[str, dict[str, int]] = {}
        for rule, some in mine.items():
            for source, actions in some.items():
                sources.setdefault(source, {})[rule] = sum(actions.values())
        counts = {rule: _summed(some.values()) for rule, some in sorted(mine.items())}
        owned, reported = (
            {rule: sum(some.values()) for rule, some in sorted(item.get(name, {}).items())}
            for item in (tally.owned, tally.reported)
        )
        modes = {rule: ", ".join(some) for rule, some in sorted(tally.modes.get(name, {}).items())}
        result[name] = {
            "mode": mode,
            "modes": modes,
            "rules": counts,
            "owned": owned,
            "would_go": {} if operation.changes else _would_go(counts, owned, reported),
            "by_source": dict(sorted(sources.items())),
        }
    return result


def _would_go(
    counts: Mapping[str, Mapping[str, int]], owned: Mapping[str, int], reported: Mapping[str, int]
) -> dict[str, int]:
    """Return rows that mode drop of each rule would remove, by rule."""
    result = {}
    for rule, actions in counts.items():
        gone = actions.get("drop", 0) + actions.get("cap", 0)
        result[rule] = owned.get(rule, 0) - gone + reported.get(rule, 0)
    return {rule: count for rule, count in result.items() if count > 0}


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for item in counts:
        for name, count in item.items():
            total[name] = total.get(name, 0) + count
    return dict(sorted(total.items()))


def _bounds(settings: Settings) -> dict[str, list[float | None]]:
    """Return the bounds of attributes, by ``<operation>.<column>``: those of tasks that no override changes."""
    result: dict[str, list[float | None]] = {}
    rules = [bound for operation in operations.OPERATIONS for bound in operation.bounds(settings.own(operation))]
    for name, rule in rules:
        known = result.setdefault(name, [None, None])
        result[name] = [own if own is not None else new for own, new in zip(known, rule.bounds, strict=True)]
    return result


def costs_of(
    rows: Rows,
    count: int,
    exact: Iterable[ShardRecord],
    near: Mapping[str, int],
    scores: Mapping[str, Mapping[int, ShardRecord]],
) -> dict[str, dict[str, int]]:
    """Add up rows, bytes of rows that were read, and bytes of scratch, by operation."""
    size = {piece.number: piece.part.size for piece in rows.slices_with_held_out}
    costs = {"exact": {"rows": count, "bytes": sum(size.values()), "scratch_bytes": scratch(exact)}}
    if near:
        costs["near"] = dict(near)
    for name, records in scores.items():
        costs[name] = {
            "rows": sum(record.read(ScoredSlice).rows for record in records.values()),
            "bytes": sum(size[number] for number in records),
            "scratch_bytes": scratch(records.values()),
            **_counted(name, records.values()),
        }
    return costs


def _counted(name: str, records: Iterable[ShardRecord]) -> dict[str, int]:
    """Return what a scorer counted of all rows that it saw, besides what decisions and histograms say."""
    shown = operations.of_folder(name).counts_shown
    if shown is not None and not shown:
        return {}
    counts = _summed(record.read(ScoredSlice).counts for record in records)
    return {key: count for key, count in counts.items() if shown is None or key in shown}


def scratch(records: Iterable[ShardRecord]) -> int:
    """Return bytes of files that only later rounds read."""
    return sum(file.size for record in records for file in record.files if file.path in record.scratch)


def log_totals(ledger: Ledger, rounds: Rounds, folder: str) -> None:
    """Log what was kept and dropped, and what lies in the cache."""
    size = scratch(record for records in rounds for record in records)
    dropped = sum(ledger.dropped.values())
    share = f" ({100 * dropped / ledger.rows_in:.1f} %)" if ledger.rows_in else ""
    event(
        f"curate: {ledger.rows_in:,} rows in, {ledger.rows_kept:,} kept, {dropped:,} dropped{share}; "
        f"the cache of shards has {size:,} bytes that only later rounds read",
        rows_in=ledger.rows_in,
        rows_kept=ledger.rows_kept,
        scratch_bytes=size,
    )
    if ledger.dropped:
        largest = sorted(ledger.dropped.items(), key=lambda item: (-item[1], item[0]))
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in largest)
        event(f"curate: dropped {reasons}; why, row by row: {folder}/report.html", dropped=ledger.dropped)
