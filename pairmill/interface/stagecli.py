"""The command line of a sharded stage: run the stage, print the URI of its folder."""

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pairmill.engine import policing, runner
from pairmill.engine.made_by import with_alarms
from pairmill.engine.manifest import Manifest
from pairmill.engine.metrics import of_rows
from pairmill.engine.options import RunConfig, WorkerSlice
from pairmill.engine.pass_on import PassOn
from pairmill.engine.runner import Together
from pairmill.engine.stage import GivenResult, Stage
from pairmill.interface import cli
from pairmill.interface.cli import Command, Outcome
from pairmill.policy import in_force
from pairmill.report.model import Report, Table

C = TypeVar("C", bound=RunConfig)

_JOB = "PAIRMILL_JOB"
"""Of a pod whose stage a Job is to share out, how (:mod:`pairmill.kubeflow.pods`)."""


def main(stage: Stage[C, Any], arguments: Sequence[str], commands: Mapping[str, Command] | None = None) -> int:
    """Run a stage, or the further command that the first argument names; return the exit code."""
    return cli.main(stage.name, stage.config, lambda config: run(stage, config), arguments, commands)


def run(stage: Stage[C, Any], config: C) -> Outcome:
    """Run a stage, or a share of one; its result is the URI of the folder, which a share leaves unfinished."""
    given = _instead_of(stage.name, config) if config.given or config.is_off else None
    if given is not None:
        stage = PassOn(stage, given)
    together = Together(WorkerSlice.parse(config.share), _patience()) if config.share else None
    # The tasks of an array have one command.
    finishes = config.finish and (together is None or together.part.number == 1 or not config.share.startswith("auto"))
    share = together is not None and not finishes
    with in_force(config):
        if given is None and policing.takes_out_records():
            config = _without_removed(stage.name, config, together)
        if together is None and given is None and not config.is_off and _JOB in os.environ:
            jobs = importlib.import_module("pairmill.kubeflow.jobs.fan_out")
            jobs.fan_out(stage.name, config, *runner.locate(stage, config), os.environ[_JOB])
        if together is not None and share:
            result = runner.run_share(stage, config, together)
        else:
            result = runner.run(stage, config, together)
    manifest = result.manifest
    ledger = manifest.ledger
    own = {"shards": len(manifest.shards)} if share else stage.metrics(manifest)
    made = {"bytes": sum(file.size for file in manifest.files)}
    outputs = stage.outputs(config, manifest, result.uri)
    return Outcome(
        stdout="".join(f"{line}\n" for line in outputs.printed),
        parameters={
            "output": outputs.output,
            "fingerprint": manifest.fingerprint,
            "rows_out": outputs.rows,
            **outputs.parameters,
        },
        metrics={**(of_rows(ledger) if stage.counts_rows else {}), **made, **own},
        report=lambda: (
            _report_of_share(config.share, manifest) if share else with_alarms(stage.report(manifest), manifest)
        ),
        manifest=manifest.dump,
        metadata={"data": result.uri, "fingerprint": manifest.fingerprint, "rows_out": outputs.rows},
        reused=result.reused,
        seconds=result.seconds,
        options=outputs.options,
        finished=not share,
    )


def _instead_of(stage: str, config: RunConfig) -> GivenResult | None:
    # Most runs are given nothing, and what looks at tokenizers and token folders is a tenth of their start.
    from pairmill.formats.given import instead_of

    return instead_of(stage, config)


def _without_removed(stage: str, config: Any, together: Together | None) -> Any:
    # It cuts rows, and few policies take out any.
    from pairmill.policy.take_out import without_removed

    return without_removed(stage, config, together)


def _patience() -> float:
    """Seconds that a share waits for others without progress; ``PAIRMILL_SHARE_PATIENCE`` overrides it."""
    return float(os.environ.get("PAIRMILL_SHARE_PATIENCE", Together.patience))


def _report_of_share(share: str, manifest: Manifest) -> Report:
    ledger, count = manifest.ledger, len(manifest.shards)
    rows = [(name, item.rows_in, item.rows_kept) for name, item in sorted(manifest.shards.items())]
    return Report(
        f"{manifest.stage}, share {share}",
        {
            "Shards": count,
            "Rows in": ledger.rows_in,
            "Rows kept": ledger.rows_kept,
            "Fingerprint": manifest.fingerprint,
        },
        [Table("Shards", ("Shard", "Rows in", "Rows kept"), rows)],
        verdict=f"{count:,} shards of share {share} are done; the task after all shares finishes the stage.",
    )
