"""What the command lines of the sharded stages share: run the stage, say where its folder is."""

from __future__ import annotations

from typing import TypeVar

from pairmill import cli, runner
from pairmill.cli import Outcome
from pairmill.manifest import Manifest
from pairmill.report import Report, Table
from pairmill.stage import RunConfig, Share, Stage

C = TypeVar("C", bound=RunConfig)


def main(stage: Stage[C]) -> int:
    """Run a stage from ``sys.argv``; returns the exit code."""
    return cli.main(stage.name, stage.config, lambda config: run(stage, config))


def run(stage: Stage[C], config: C) -> Outcome:
    """Run a stage, or a share of one; its result is the URI of the folder, which a share leaves unfinished."""
    share = Share.parse(config.share) if config.share else None
    result = runner.run_share(stage, config, share) if share else runner.run(stage, config)
    manifest = result.manifest
    ledger = manifest.ledger
    rows = {
        "rows_in": ledger.rows_in,
        "rows_kept": ledger.rows_kept,
        "rows_out": ledger.rows_out,
        "drop_fraction": round(1 - ledger.rows_kept / ledger.rows_in, 6) if ledger.rows_in else 0.0,
    }
    metrics = {
        **(rows if stage.counts_rows else {}),
        **ledger.measures,
        "bytes": sum(file.size for file in manifest.files),
    }
    return Outcome(
        stdout=f"{result.uri}\n",
        parameters={
            "output": result.uri,
            "fingerprint": manifest.fingerprint,
            "rows_out": ledger.rows_out,
            **stage.parameters(config),
        },
        metrics=metrics,
        report=lambda: _report_of_share(config.share, manifest) if share else stage.report(manifest),
        manifest=manifest.dump(),
        metadata={"data": result.uri, "fingerprint": manifest.fingerprint, "rows_out": ledger.rows_out},
        reused=result.reused,
        seconds=result.seconds,
    )


def _report_of_share(share: str, manifest: Manifest) -> Report:
    ledger = manifest.ledger
    head: dict[str, str | int | float] = {
        "Share": share,
        "Shards": len(manifest.shards),
        "Rows in": ledger.rows_in,
        "Rows kept": ledger.rows_kept,
    }
    rows = [(name, one.rows_in, one.rows_kept) for name, one in sorted(manifest.shards.items())]
    table = Table("Shards", ("Shard", "Rows in", "Rows kept"), rows)
    return Report(f"{manifest.stage}, share {share}", head, [table])
