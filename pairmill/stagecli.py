"""What the command lines of the sharded stages share: run the stage, say where its folder is."""

from __future__ import annotations

from typing import TypeVar

from pairmill import cli, runner
from pairmill.cli import Outcome
from pairmill.metrics import of_rows
from pairmill.stage import RunConfig, Stage

C = TypeVar("C", bound=RunConfig)


def main(stage: Stage[C]) -> int:
    """Run a stage from ``sys.argv``; returns the exit code."""
    return cli.main(stage.name, stage.config, lambda config: run(stage, config))


def run(stage: Stage[C], config: C) -> Outcome:
    """Run a stage; its result is the URI of the finished folder."""
    result = runner.run(stage, config)
    manifest = result.manifest
    ledger = manifest.ledger
    report = stage.report(manifest)
    made = {"bytes": sum(file.size for file in manifest.files)}
    return Outcome(
        stdout=f"{result.uri}\n",
        parameters={"output": result.uri, "fingerprint": manifest.fingerprint, "rows": ledger.rows_out},
        metrics={**(of_rows(ledger) if stage.counts_rows else {}), **made, **report.metrics},
        report=lambda: report,
        manifest=manifest.dump(),
        metadata={"data": result.uri, "fingerprint": manifest.fingerprint, "rows": ledger.rows_out},
        reused=result.reused,
        seconds=result.seconds,
    )
