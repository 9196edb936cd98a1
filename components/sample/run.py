"""What ``python -m components.sample`` does: make a plan, or take the one that is given, and carry it out."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from components.sample.config import SampleConfig
from components.sample.node.carry_out import carry_out, open_plan
from components.sample.node.folder import NAME
from pairmill import log
from pairmill.engine.manifest import Manifest
from pairmill.engine.metrics import of_rows
from pairmill.errors import StageFailure
from pairmill.interface.cli import Outcome

if TYPE_CHECKING:
    from pairmill.engine.runner import Result
    from pairmill.report.page import Report


def run(config: SampleConfig) -> Outcome:
    """Plan and carry out, each only if it was not done before."""
    start, planned = time.monotonic(), None
    if not config.plan and config.root:
        planned = _plan(config)
        config = replace(config, plan=planned.uri)
    reused = planned is None or planned.reused
    if config.plan:
        sample = open_plan(config)
        assert sample.planned is not None
        manifest, where = sample.planned, sample.home
        if config.output_path:
            made = carry_out(config, sample.manifest.fingerprint, lambda: sample, sample.files)
            manifest, reused = made.manifest, reused and made.reused
    else:
        from components.sample.core import Draft  # nodes that carry out a plan start faster without

        draft = Draft.of(config)
        made = carry_out(config, draft.fingerprint, draft.sample)
        manifest, where, reused = made.manifest, str(made.node.target), made.reused
    if reused and planned is None:
        log.event(f"{NAME}: reused, nothing to do", stage=NAME, fingerprint=manifest.fingerprint)
    return outcome(manifest, where, reused=reused, seconds=time.monotonic() - start)


def _plan(config: SampleConfig) -> Result:
    """Run the stage, in this process: it has one shard."""
    from components.sample.core import Sample
    from pairmill.engine import runner

    try:
        return runner.run(Sample(), config)
    except StageFailure as failure:
        raise failure.failures[0][1] from None


def outcome(manifest: Manifest, where: str, *, reused: bool = False, seconds: float = 0.0) -> Outcome:
    """What the program prints, and gives Kubeflow, of a sample; ``where``: its folder, the plan's if it is kept."""
    ledger, measures = manifest.ledger, manifest.ledger.measures
    metrics = {
        **of_rows(ledger),
        "truncated_rows": ledger.notes.get("truncated", 0),
        # Samples of older versions of pairmill did not count them.
        "truncated_tokens": measures.get("truncated_tokens", 0),
        "tokens": measures["tokens_sampled"],
        "response_tokens": measures["response_tokens_sampled"],
        "unique_tokens": measures["unique_tokens"],
        "epochs": measures["epochs"],
        "tasks": len(manifest.shards),
        "bytes": measures["bytes"],
    }
    return Outcome(
        stdout=manifest.data["analytics"],
        parameters={"output": where, "fingerprint": manifest.fingerprint, "rows_out": ledger.rows_out},
        metrics=metrics,
        report=lambda: _report(manifest),
        manifest=manifest.dump(),
        metadata={"data": where, "fingerprint": manifest.fingerprint, "rows_out": ledger.rows_out},
        reused=reused,
        seconds=seconds,
    )


def _report(manifest: Manifest) -> Report:
    from components.sample.report import report_of

    return report_of(manifest)
