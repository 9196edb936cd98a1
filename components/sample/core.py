"""The sample stage: a tokenized folder and a rule file → epochs of rows for a trainer to map, and a report.

It is no list of shards: its result is one folder on the machine that trains, made in one go or not at all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from components.sample import analytics, materialize
from components.sample.config import SampleConfig
from components.sample.plan import TaskRows, epochs, rows_of
from pairmill import log, storage, tokens
from pairmill import manifest as manifests
from pairmill.cli import Outcome
from pairmill.errors import InputError, from_os_error
from pairmill.manifest import MANIFEST, InputRef, Ledger, Manifest
from pairmill.prefixes import Rules, reference_json
from pairmill.report import Bars, Report, Table
from pairmill.stage import Writer, byte_options

NAME = materialize.NAME
VERSION = 1


@dataclass(frozen=True)
class _Plan:
    folder: tokens.Folder
    tasks: list[TaskRows]

    def stats(self) -> dict[str, analytics.Stats]:
        return {task.name: analytics.of_task(task) for task in self.tasks}


def run(config: SampleConfig) -> Outcome:
    """Plan, write what is missing of the folder and the report, and say what was sampled."""
    start = time.monotonic()
    target = materialize.target_of(config.output_path) if config.output_path else None
    rules = Rules.load(config.prefix_config_path, config.profile, "prefix_config_path")
    folder = tokens.open_folder(config.tokenized_path, "tokenized_path", tolerate_strays=config.profile == "pairmill")
    refs = [InputRef("tokenized", folder.fingerprint), InputRef("rules", rules.digest())]
    inputs = [[ref.role, ref.fingerprint] for ref in refs]
    fingerprint = manifests.content_key(NAME, VERSION, byte_options(config), inputs)[:16]
    home = storage.join(storage.normalise(config.root, "root"), NAME, fingerprint) if config.root else ""

    if target is not None:
        materialize.sweep(target)
    known = [
        manifest
        for manifest in (
            manifests.whole(home) if home else None,
            materialize.finished(target, fingerprint) if target else None,
        )
        if manifest
    ]
    if len(known) == bool(home) + bool(target):
        log.event(f"{NAME}: reused, nothing to do", stage=NAME, fingerprint=fingerprint)
        return _outcome(known[0], home, target, True, time.monotonic() - start)

    plan = _plan(folder, rules, config)
    manifest = _describe(plan, config, refs, fingerprint)
    if target is not None:
        manifest = _materialize(target, plan, manifest, config)
    if home:
        _keep(home, manifest)
    return _outcome(manifest, home, target, False, time.monotonic() - start)


def _plan(folder: tokens.Folder, rules: Rules, config: SampleConfig) -> _Plan:
    tasks = []
    for source in folder.tasks:
        rule, ambiguous = rules.match(source.name)
        if ambiguous and config.profile == "data_io":
            log.event(f"Warning: Multiple possible prefixes for task {source.name}, pick config {reference_json(rule)}")
        tasks.append(rows_of(source.name, rule, source.index(), config))
    total = sum(task.total for task in tasks)
    if not total:
        raise InputError(
            "the tokenized folder holds no row", where=f"tokenized_path={folder.uri}", hint="tokenize again"
        )
    if folder.rows is not None and folder.rows != total:
        raise InputError(
            "the tokenized folder holds other rows than its manifest says",
            where=folder.uri,
            got=str(total),
            expected=str(folder.rows),
            hint="tokenize again",
        )
    for _ in epochs(tasks, config):
        pass  # counts coverage
    return _Plan(folder, tasks)


def _ledger(tasks: list[TaskRows]) -> Ledger:
    ledger = Ledger()
    for task in tasks:
        ledger.rows_in += task.total
        taken = int((task.coverage > 0).sum())
        ledger.rows_kept += taken
        ledger.rows_out += int(task.coverage.sum())
        for reason, count in task.dropped.items():
            ledger.drop(reason, count)
        if taken < len(task):
            ledger.drop("not_sampled", len(task) - taken)
        if task.truncated:
            ledger.note("truncated", task.truncated)
    return ledger


def _describe(plan: _Plan, config: SampleConfig, refs: list[InputRef], fingerprint: str) -> Manifest:
    ledger = _ledger(plan.tasks)
    ledger.reconcile(NAME)
    stats = plan.stats()
    whole = analytics.total(stats)
    ledger.measures = {
        "epochs": config.epochs,
        "tokens_sampled": whole.cov_toks,
        "unique_tokens": whole.unique_toks,
        "response_tokens_sampled": whole.cov_rtoks,
    }
    lengths = np.concatenate([task.inst_len + task.resp_len for task in plan.tasks])
    covered = np.concatenate([task.coverage for task in plan.tasks])
    groups = analytics.by_category(stats)
    data = {
        "analytics": analytics.markdown(plan.tasks, config.profile),
        "categories": {
            name: [one.rows, one.unique_rows, one.cov_rows, one.cov_toks, one.cov_rtoks]
            for name, one in sorted(groups.items())
        },
        "lengths": analytics.histogram(lengths, covered),
        "tasks": len(plan.tasks),
    }
    shards = {task.name: _ledger([task]) for task in plan.tasks}
    return Manifest(NAME, VERSION, fingerprint, byte_options(config), refs, ledger, [], shards, data)


def _materialize(target: Path, plan: _Plan, manifest: Manifest, config: SampleConfig) -> Manifest:
    with materialize.partial_folder(target, manifest.fingerprint) as partial:
        # Another process may have made it while this one waited for the lock.
        made = materialize.finished(target, manifest.fingerprint)
        if made is not None:
            return made
        try:
            manifest.files = materialize.write(partial, plan.folder.tasks, plan.tasks, plan.folder.info, config)
            (partial / MANIFEST).write_bytes(manifest.dump())
            materialize.commit(partial, target)
        except OSError as error:
            raise from_os_error(error, f"output_path={target}") from error
    return manifest


def _keep(home: str, manifest: Manifest) -> None:
    manifests.begin(home, NAME, manifest.fingerprint)
    out = Writer(home)
    out.write("analytics.md", manifest.data["analytics"].encode())
    out.write_report(report_of(manifest))
    # The same whether or not arrays were drawn on this machine: a finished folder's bytes follow from its name.
    manifests.finish(home, replace(manifest, files=out.files))


def report_of(manifest: Manifest) -> Report:
    """What a person wants to see of a sample."""
    ledger, measures = manifest.ledger, manifest.ledger.measures
    categories = manifest.data["categories"]
    left_out = [
        (name, reason, count)
        for name, one in manifest.shards.items()
        for reason, count in sorted({**one.dropped, **one.notes}.items())
    ]
    tasks = [
        (name, one.rows_in, one.rows_kept, one.rows_out, one.rows_out / max(1, one.rows_kept))
        for name, one in manifest.shards.items()
    ]
    return Report(
        "sample",
        {
            "Epochs": measures["epochs"],
            "Rows in": ledger.rows_in,
            "Rows sampled": ledger.rows_kept,
            "Rows over all epochs": ledger.rows_out,
            "Tokens over all epochs": measures["tokens_sampled"],
            "Unique tokens": measures["unique_tokens"],
            "Response tokens": f"{measures['response_tokens_sampled'] / max(1, measures['tokens_sampled']):.1%}",
            "Truncated rows": ledger.notes.get("truncated", 0),
            "Fingerprint": manifest.fingerprint,
        },
        [
            Bars("Tokens sampled by category", [(name, item[3]) for name, item in categories.items()], "tokens"),
            Bars(
                "Rows sampled by length in tokens",
                [(label, count) for label, count in manifest.data["lengths"]],
                "rows",
            ),
            Table(
                "Categories",
                ("Category", "Rows", "Rows sampled", "Rows over all epochs", "Tokens", "Response tokens"),
                [(name, *item) for name, item in categories.items()],
            ),
            Table("Tasks", ("Task", "Rows", "Rows sampled", "Rows over all epochs", "Times each"), tasks),
            Table("What was left out or cut", ("Task", "Reason", "Rows"), left_out),
        ],
    )


def _outcome(manifest: Manifest, home: str, target: Path | None, reused: bool, seconds: float) -> Outcome:
    measures = manifest.ledger.measures
    where = home or str(target)
    metrics = {
        "rows_in": manifest.ledger.rows_in,
        "rows_sampled": manifest.ledger.rows_kept,
        "rows_over_all_epochs": manifest.ledger.rows_out,
        "truncated_rows": manifest.ledger.notes.get("truncated", 0),
        **measures,
        "tasks": manifest.data["tasks"],
    }
    return Outcome(
        stdout=manifest.data["analytics"],
        parameters={"output": where, "fingerprint": manifest.fingerprint, "rows": manifest.ledger.rows_out},
        metrics=metrics,
        report=report_of(manifest),
        manifest=manifest.dump(),
        metadata={"data": where, "fingerprint": manifest.fingerprint, "rows": manifest.ledger.rows_out},
        reused=reused,
        seconds=seconds,
    )
