"""The stage audit: a plan → a sample of its rows, checked and judged.

The first round draws and checks the rows of each source, the second asks the judge about them. The result is
``rows.jsonl``, a line for each row with its texts, faults, form and verdict, and a report.
"""

import io
import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from pairmill import storage
from pairmill.audit.before import PlanTasks, resolve
from pairmill.audit.checks import CHECKS
from pairmill.audit.config import AuditConfig
from pairmill.audit.draw import DrawnSource, DrawRows, PlanPart, PlanTexts
from pairmill.audit.forms import acceptances
from pairmill.audit.judge import VERDICTS, Judge, JudgeRows
from pairmill.audit.languages import codes_of
from pairmill.audit.report import AuditResult, report_of
from pairmill.audit.shared import MOST, Prompts, count_shared
from pairmill.audit.shared import NAME as SHARED
from pairmill.engine import policing
from pairmill.engine.manifest import FinishedFolder, InputRef, Manifest
from pairmill.engine.source_names import source_of
from pairmill.engine.stage import Rounds, Shard, ShardRecord, Stage, StagePlan
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.evaluation import benchmarks
from pairmill.formats.audited import KEEP, NAME
from pairmill.formats.beside_rows import row_folders
from pairmill.formats.opened import open_result
from pairmill.formats.removed_rows import RemovedRows, removed_rows
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import read_plan
from pairmill.formats.tokenized import Folder
from pairmill.report.model import Report

_PAGE: Final = 400
"""Rows that the report shows as text: more do not fit on a page."""
_LEAST, _MOST = 1, 8
"""Of them, of each source."""
_SHOWN: Final = 500
"""Characters of a text there."""


@dataclass(frozen=True, kw_only=True)
class AuditPlan(StagePlan[PlanTexts]):
    """Args: draws: the first round; judge: None without one; tokens: of responses in the plan, by source; before: what
    became of the sources of the plan before (:func:`pairmill.audit.before.resolve`)."""

    draws: Sequence[DrawRows]
    judge: Judge | None
    tokens: Mapping[str, int]
    before: Mapping[str, Mapping[str, Any]]


class Audit(Stage[AuditConfig, AuditPlan]):
    """Rows of each source; verdicts."""

    name: ClassVar[str] = "audit"
    version: ClassVar[int] = 2
    watched: ClassVar[bool] = False
    config = AuditConfig

    def plan(self, config: AuditConfig) -> AuditPlan:
        plan = read_plan(config.plan, "plan")
        drawn, folder = SampleResult.from_manifest(plan.manifest), _tokenized(plan, config.tokenized_path)
        given = [storage.normalise(each, "row_folders") for each in config.row_folders]
        beside = tuple(
            (home, each) for home in folder.homes for each in given or row_folders(home, open_result(home).inputs)
        )
        context = PlanTexts(plan.uri, folder.uri, beside)
        context.texts  # noqa: B018 - a folder without a tokenizer is refused before anything is drawn
        prints = tuple(storage.name_of(each) for _, each in beside)
        strata, tokens = _strata(plan, drawn, folder, config)
        config.rule_file  # noqa: B018 - what is wrong with it is said now
        draws = [
            DrawRows(
                source=name,
                parts=tuple(parts),
                content=plan.manifest.fingerprint,
                most=config.rows,
                checks=tuple(config.checks or CHECKS),
                languages=codes_of(str(drawn.facts.get(source_of(parts[0].task), {}).get("language", ""))),
                beside=prints,
                prompts=min(config.prompts, -(-MOST // len(strata))),
                name=name,
                size=sum(part.rows for part in parts),
            )
            for name, parts in sorted(strata.items())
        ]
        judge = Judge.from_config(config)
        earlier = [read_plan(config.before, "before")] if config.before else []
        denied = policing.record().get("left_out", ())
        became: dict[str, Any] = {}
        for item in earlier:
            then = _tasks(item, _tokenized(item, "", "before"))
            became = resolve(then, _tasks(plan, folder, denied), config.followed)
        return AuditPlan(
            inputs=[
                InputRef("plan", plan.manifest.fingerprint, "sample"),
                *(InputRef("before", item.manifest.fingerprint, "sample") for item in earlier),
                *([InputRef("judge", judge.model.digest[:16])] if judge is not None else []),
            ],
            build_context=lambda: context,
            says={
                "benchmarks": benchmarks.VERSION,
                "rows": prints,
                "judge": [judge.prompt, judge.schema] if judge is not None else [],
            },
            check=partial(check, config),
            draws=draws,
            judge=judge,
            tokens=tokens,
            before=became,
        )

    def rounds(self, config: AuditConfig, plan: AuditPlan) -> Generator[Sequence[Shard[Any]], list[ShardRecord], None]:
        drawn = yield plan.draws
        if plan.judge is not None:
            yield [JudgeRows(plan.judge, tuple(record.file(NAME) for record in drawn), name="judge")]

    def finish(self, config: AuditConfig, plan: AuditPlan, rounds: Rounds, out: Writer) -> dict[str, Any]:
        verdicts = _verdicts(rounds[1][0]) if plan.judge is not None else {}
        sources = {record.name: vars(record.read(DrawnSource)) for record in rounds[0]}
        each = max(_LEAST, min(_MOST, _PAGE // max(1, len(sources))))
        shown: dict[str, list[dict[str, Any]]] = {}
        kept: dict[str, list[int]] = {name: [0, 0] for name in sources}
        tasks: dict[str, list[int]] = {}
        with out.create(NAME) as local, local.open("w", encoding="utf-8") as file:
            for record in rounds[0]:
                rows = []
                for line in storage.store_for(record.uri(NAME)).read(record.uri(NAME)).splitlines():
                    row = json.loads(line)
                    if row["key"] in verdicts:
                        row["verdict"] = verdict = verdicts[row["key"]]
                        for counts in (kept[record.name], tasks.setdefault(row["task"], [0, 0])):
                            counts[0] += 1
                            counts[1] += bool(verdict[KEEP])
                    file.write(json.dumps(row, ensure_ascii=True) + "\n")
                    rows.append(row)
                # The worst first, then as they were drawn.
                rows.sort(key=lambda row: (row.get("verdict", {}).get(KEEP, True), -len(row["faults"])))
                shown[record.name] = [_cut(row) for row in rows[:each]]
        shares = {
            name: {reader: count / max(1, item["tokens"]) for reader, count in item["readers"].items()}
            for name, item in sources.items()
        }
        return AuditResult(
            sources=sources,
            tokens={name: plan.tokens[name] for name in sources},
            kept=kept if plan.judge is not None else {},
            tasks=tasks,
            shared=count_shared({record.name: _prompts(record) for record in rounds[0]}),
            before=plan.before,
            judged=rounds[1][0].data if plan.judge is not None else {},
            acceptances=[vars(item) for item in acceptances(shares, plan.tokens)],
            shown=shown,
        ).to_data()

    def metrics(self, manifest: Manifest) -> dict[str, float]:
        return {name: round(value, 6) for name, value in AuditResult.from_manifest(manifest).measures().items()}

    def report(self, manifest: Manifest) -> Report:
        return report_of(manifest)


def _tokenized(plan: FinishedFolder, given: str, option: str = "plan") -> Folder:
    """Return the tokenized folder of a plan: the one that is given, or the one that is below the project.

    Raises:
        InputError: it is not there, or another one.
    """
    folder: Folder = open_result(given or plan.uri, "tokenized_path" if given else option).tokenized
    wanted = next((ref.fingerprint for ref in plan.manifest.inputs if ref.role == "tokenized"), "")
    if wanted and folder.fingerprint != wanted:
        where = f"tokenized_path={folder.uri}"
        raise InputError("the plan was made from another folder", where=where, got=folder.fingerprint, expected=wanted)
    return folder


def _tasks(plan: FinishedFolder, folder: Folder, denied: Iterable[str] = ()) -> PlanTasks:
    """Return the tasks of a plan, and of its tokenized folder; those that a policy in force denies are not drawn."""
    tasks = {task.name: task.key for task in folder.tasks}
    left_out = {*plan.manifest.data.get(policing.KEY, {}).get("left_out", ()), *denied}
    drawn = {item["name"] for item in SampleResult.from_manifest(plan.manifest).sources if item["rows"]} - left_out
    return PlanTasks({name: tasks[name] for name in drawn & tasks.keys()}, tasks.keys() - drawn, left_out)


def _prompts(record: ShardRecord) -> Prompts:
    uri = record.uri(SHARED)
    return np.load(io.BytesIO(storage.store_for(uri).read(uri)))  # type: ignore[no-any-return]


def _strata(
    plan: FinishedFolder, drawn: SampleResult, folder: Folder, config: AuditConfig
) -> tuple[dict[str, list[PlanPart]], dict[str, int]]:
    """Return by source, or by task, the parts of the plan, and the tokens of responses over all epochs.

    What a policy in force does not allow is left out.
    """
    tasks = {task.name: task for task in folder.tasks}
    named = sorted({item["name"] for item in drawn.sources})
    lacking = [name for name in named if name not in tasks]
    if lacking:
        raise InputError("lacks a task of the plan", where=f"tokenized_path={folder.uri}", got=f"no {lacking[0]!r}")
    left_out = policing.leave_out_tasks([tasks[name] for name in named], f"plan={plan.uri}")
    removed = {name: _spans(item) for name, item in removed_rows(tasks[name] for name in named).items()}
    strata: dict[str, list[PlanPart]] = {}
    tokens: dict[str, int] = {}
    first = 0
    for item in drawn.sources:
        name, rows = item["name"], item["rows"]
        if rows and name not in left_out:
            stratum = name if config.by == "task" else source_of(name)
            strata.setdefault(stratum, []).append(PlanPart(name, tasks[name].key, first, rows, removed.get(name, ())))
        first += rows
    for name, stats in drawn.stats.items():
        stratum = name if config.by == "task" else source_of(name)
        tokens[stratum] = tokens.get(stratum, 0) + stats["cov_rtoks"]
    return strata, tokens


def _spans(removed: RemovedRows) -> tuple[tuple[int, int], ...]:
    spans = removed.spans()
    ends = spans["resp_start"] + spans["resp_len"]
    return tuple(zip(spans["resp_start"].tolist(), ends.tolist(), strict=True))


def check(config: AuditConfig, manifest: Manifest) -> None:
    """Raise InputError if a sample is not what the options, or rules, expect."""
    result = AuditResult.from_manifest(manifest)
    if config.expectation is not None:
        config.expectation.check("the sample of all sources", result.measures())
    rules = config.rule_file
    if rules is None:
        return
    if rules.top.expect is not None:
        rules.top.expect.check("the sample of all sources", result.measures())
    for label, expectation in rules.expectations():
        tasks = [task for task in result.by_task() if rules.label_of(task) == label]
        if tasks:
            expectation.check(f"the sample of the rule for {label!r}", result.measures(tasks))


def _verdicts(record: ShardRecord) -> dict[str, dict[str, Any]]:
    lines = storage.store_for(record.uri(VERDICTS)).read(record.uri(VERDICTS)).splitlines()
    return {item["key"]: item["verdict"] for item in map(json.loads, lines) if item["verdict"] is not None}


def _cut(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("task", "row", "faults", "form", "verdict")
    texts = {name: row[name][:_SHOWN] + "…" * (len(row[name]) > _SHOWN) for name in ("prompt", "answer")}
    return {**{name: row[name] for name in names if name in row}, **texts}
