"""The page of an audit: sources by what is wrong with them, the census of answer forms, and rows to read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pairmill.audit.before import MEANINGS, UNRESOLVED
from pairmill.audit.checks import CHECKS
from pairmill.audit.forms import FORMS, LEAST_ACCEPTED
from pairmill.audit.shared import LEAST_SHARED
from pairmill.engine.manifest import Manifest
from pairmill.engine.results import Result, empty
from pairmill.report.charts import Stacked
from pairmill.report.model import Block, Cell, Percent, Report, Samples, Section, Table, describe_names

_DASH: Final = "–"
_MOST_BARS: Final = 20
_LOOK_AT: Final = 0.5
"""The share of faulty, or of unusable, rows from which a source is to be looked at."""


@dataclass(frozen=True, kw_only=True)
class AuditResult(Result):
    """What the sample of a plan is like.

    Attributes:
        sources: by source, :class:`pairmill.audit.draw.DrawnSource`.
        tokens: of responses in the plan, over all epochs, by source.
        kept: by source the rows with a verdict, and those of them that stay; nothing without a judge.
        tasks: the same by task.
        judged: :class:`pairmill.audit.judge.JudgedRows`; nothing without a judge.
        acceptances: :class:`pairmill.audit.forms.Acceptance` of each benchmark that a source trains.
        shown: rows of each source as text.
        shared: by source the prompts that other sources have too (:func:`pairmill.audit.shared.count_shared`).
        before: what became of the sources of the plan before (:func:`pairmill.audit.before.resolve`).
    """

    sources: Mapping[str, Mapping[str, Any]]
    tokens: Mapping[str, int] = empty()
    kept: Mapping[str, Sequence[int]] = empty()
    tasks: Mapping[str, Sequence[int]] = empty()
    judged: Mapping[str, Any] = empty()
    acceptances: Sequence[Mapping[str, Any]] = ()
    shown: Mapping[str, Sequence[Mapping[str, Any]]] = empty()
    shared: Mapping[str, Mapping[str, Any]] = empty()
    before: Mapping[str, Mapping[str, Any]] = empty()

    @property
    def unresolved(self) -> list[str]:
        """The sources of the plan before of which a task is gone without a reason."""
        return [name for name, item in self.before.items() if UNRESOLVED in item["tasks"]]

    def by_task(self) -> dict[str, Sequence[int]]:
        """Return rows, and rows with a fault, of each task."""
        return {task: counts for item in self.sources.values() for task, counts in item["tasks"].items()}

    def measures(self, tasks: Iterable[str] | None = None) -> dict[str, float]:
        """Return what may be expected (:data:`pairmill.audit.config.MEASURES`) of all rows, or of those of some tasks.

        ``usable`` is left out where no row was judged.
        """
        known = self.by_task()
        names = known if tasks is None else list(tasks)
        rows, faulty = (sum(known[name][at] for name in names) for at in (0, 1))
        judged, kept = (sum(self.tasks[name][at] for name in names if name in self.tasks) for at in (0, 1))
        usable = {"usable": kept / judged} if judged else {}
        result = {"faulty": faulty / max(1, rows), "judged": judged / max(1, rows), **usable}
        if tasks is None:
            prompts, shared = (sum(item[what] for item in self.shared.values()) for what in ("prompts", "shared"))
            result |= {"shared": shared / prompts} if prompts else {}
            result |= {"unresolved": len(self.unresolved) / len(self.before)} if self.before else {}
        return result


def report_of(manifest: Manifest) -> Report:
    """Return the report of a finished audit."""
    result = AuditResult.from_manifest(manifest)
    measures = result.measures()
    rows = sum(item["rows"] for item in result.sources.values())
    judged = result.judged.get("judged", 0)
    usable = f"; {Percent(measures['usable'])} of {judged:,} judged texts are usable" if "usable" in measures else ""
    names = sorted(result.sources, key=lambda name: (-_severity(result, name), name))
    figures: dict[str, Cell] = {
        "Sources": len(names),
        "Rows": rows,
        "With a fault": Percent(measures["faulty"]),
        **({"Usable": Percent(measures["usable"])} if "usable" in measures else {}),
        **_costs(result),
    }
    return Report(
        "audit",
        figures,
        [
            Stacked(
                "Rows without and with a fault",
                ("without", "with a fault"),
                [(name, _parts(result, name)) for name in names[:_MOST_BARS]],
                "rows",
            ),
            _sources(result, names),
            _faults(result),
            *_shared(result),
            *_before(result),
            _census(result, names),
            _acceptances(result),
            *_texts(result, names),
        ],
        verdict=f"{rows:,} rows of {len(names):,} sources, {Percent(measures['faulty'])} of them with a fault{usable}.",
        look_at=[*_look_at(result, names)],
    )


def _severity(result: AuditResult, name: str) -> float:
    """Return how bad a source is: the share of unusable rows where they were judged, else that of faulty ones."""
    judged, kept = result.kept.get(name, (0, 0))
    faulty = _faulty(result, name)
    return float(1 - kept / judged + faulty / 1000 if judged else faulty)


def _faulty(result: AuditResult, name: str) -> float:
    item = result.sources[name]
    faulty, rows = item["faulty"], item["rows"]
    return float(faulty / max(1, rows))


def _parts(result: AuditResult, name: str) -> tuple[int, int]:
    item = result.sources[name]
    return item["rows"] - item["faulty"], item["faulty"]


def _costs(result: AuditResult) -> dict[str, Cell]:
    judged = result.judged
    if not judged:
        return {}
    without = sum(judged["without"].values())
    return {
        "Requests to the judge": judged["requests"],
        "Tokens of the judge": judged["tokens"],
        "Answers without a verdict": judged["rubbish"],
        **({"Texts without a verdict": without} if without else {}),
    }


def _sources(result: AuditResult, names: Sequence[str]) -> Table:
    rows: list[list[Cell]] = []
    for name in names:
        item, (judged, kept) = result.sources[name], result.kept.get(name, (0, 0))
        most = sorted(item["faults"].items(), key=lambda pair: (-pair[1], pair[0]))
        what = describe_names([f"{count} {check.replace('_', ' ')}" for check, count in most[:3]]) or _DASH
        usable = [Percent.ratio(kept, judged)] if result.judged else []
        rows.append([name, item["rows"], Percent(_faulty(result, name)), *usable, what])
    usable_name = ("Usable",) if result.judged else ()
    return Table("Sources, the worst first", ("Source", "Rows", "With a fault", *usable_name, "Most often"), rows)


def _faults(result: AuditResult) -> Table:
    counts: dict[str, list[int]] = {}
    for item in result.sources.values():
        for check, count in item["faults"].items():
            mine = counts.setdefault(check, [0, 0])
            mine[0] += count
            mine[1] += 1
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1][0], pair[0]))
    rows = [(name.replace("_", " "), rows, sources, CHECKS[name].meaning) for name, (rows, sources) in ordered]
    return Table("What the checks find", ("Check", "Rows", "Sources", "Meaning"), rows)


def _shared(result: AuditResult) -> Iterator[Table]:
    some = sorted(
        ((item["shared"] / item["prompts"], name, item) for name, item in result.shared.items() if item["shared"]),
        key=lambda row: (-row[0], row[1]),
    )
    if some:
        rows = [
            (name, item["prompts"], Percent(share), Percent.ratio(item["same"], item["prompts"]), item["most"] or _DASH)
            for share, name, item in some
        ]
        note = "The different prompts of some lengths, token by token; the lengths are the same for all sources."
        columns = ("Source", "Prompts compared", "In another source too", "With the same answer", "Most of them in")
        yield Table("Prompts that sources share", columns, rows, note)


def _before(result: AuditResult) -> Iterator[Table]:
    if result.before:
        used = [what for what in MEANINGS if any(what in item["tasks"] for item in result.before.values())]
        rows = [
            [name, *(item["tasks"].get(what, _DASH) for what in used), describe_names(item["places"]) or _DASH]
            for name, item in sorted(result.before.items(), key=lambda pair: UNRESOLVED not in pair[1]["tasks"])
        ]
        title = "What became of the tasks of the plan before"
        yield Table(title, ("Source", *(MEANINGS[what] for what in used), "Now in"), rows)


def _census(result: AuditResult, names: Sequence[str]) -> Table:
    used = [form for form in FORMS if any(form in item["forms"] for item in result.sources.values())]
    rows: list[list[Cell]] = []
    for name in names:
        item = result.sources[name]
        shares: list[Cell] = [
            Percent.ratio(item["forms"][form], item["tokens"]) if form in item["forms"] else _DASH for form in used
        ]
        rows.append([name, result.tokens[name], *shares])
    note = "Shares of the sampled tokens of answers."
    return Table("Forms of answers", ("Source", "Answer tokens in the plan", *used), rows, note)


def _acceptances(result: AuditResult) -> Table:
    rows = [
        (item["benchmark"], Percent(item["accepted"]), len(item["sources"]), describe_names(item["sources"]))
        for item in result.acceptances
    ]
    note = (
        "The share of the answer tokens in whose answers the benchmark's own scorer reads an answer, of the sources "
        "whose names say that they train what it asks."
    )
    return Table("What benchmarks accept", ("Benchmark", "Accepted", "Sources", "Of"), rows, note)


def _texts(result: AuditResult, names: Sequence[str]) -> Iterator[Block]:
    for name in names:
        texts = [
            {
                "row": f"{row['task']}:{row['row']}, {row['form']}{_describe_faults(row)}",
                "prompt": row["prompt"],
                "answer": row["answer"],
            }
            for row in result.shown[name]
        ]
        faulty = f"{result.sources[name]['faulty']:,} of {result.sources[name]['rows']:,} rows with a fault"
        yield Section(name, [Samples("Rows, those with faults first", texts, tag="row")], faulty)


def _describe_faults(row: Mapping[str, Any]) -> str:
    faults = "".join(f"; {check.replace('_', ' ')} ({what})" for check, what in row["faults"].items())
    verdict = row.get("verdict")
    return faults + ("; judge: " + ", ".join(f"{key} {value}" for key, value in verdict.items()) if verdict else "")


def _look_at(result: AuditResult, names: Sequence[str]) -> Iterator[str]:
    bad = [name for name in names if _severity(result, name) >= _LOOK_AT]
    what = "are not usable or have a fault" if result.judged else "have a fault"
    if bad:
        yield f"half or more of the rows {what}: {describe_names(bad)}"
    if result.unresolved:
        yield f"sources of the plan before are gone, and nothing says why: {describe_names(result.unresolved)}"
    for name, item in result.shared.items():
        if item["shared"] > LEAST_SHARED * item["prompts"]:
            beside = f", most of them {item['most']}" if item["most"] else ""
            share = Percent.ratio(item["shared"], item["prompts"])
            yield f"other sources have {share} of the prompts of {name}{beside}"
    for item in result.acceptances:
        if item["accepted"] < LEAST_ACCEPTED:
            yield (
                f"{item['benchmark']} reads an answer in {Percent(item['accepted'])} of the answer tokens of its "
                f"sources ({describe_names(item['sources'])}): a model learns another form than the one that is scored"
            )
    if result.judged.get("without"):
        reasons = ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in result.judged["without"].items())
        yield f"texts without a verdict: {reasons}"
