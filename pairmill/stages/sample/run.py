"""``pairmill sample``: carry out the plan that is given, or make one first.

Modules that only planning or the preview needs are imported in functions, so that a node starts without them.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pairmill import log, storage
from pairmill.engine import links, vanished
from pairmill.engine.manifest import MANIFEST, Manifest
from pairmill.engine.metrics import of_rows
from pairmill.formats.eligible_rows import SPLIT
from pairmill.formats.results.sample import SampleResult
from pairmill.interface.cli import Outcome
from pairmill.policy import in_force
from pairmill.stages.sample.analytics import MOST_TASKS, TASKS, Stats, markdown, padded_tokens
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.look_at import look_at
from pairmill.stages.sample.node.carry_out import CarriedOut, carry_out, open_plan
from pairmill.stages.sample.node.folder import NAME

if TYPE_CHECKING:
    from pairmill.mixture.realised import Realised
    from pairmill.report.model import Report


def run(config: SampleConfig) -> Outcome:
    """Make the plan and the arrays that the options ask for, unless an earlier run made them."""
    start = time.monotonic()
    with links.obeyed(config.links), _policed(config):
        made = _carry_out(config) if config.plan else _plan(config) if config.root else _draw(config)
    if made.reused and (config.plan or not config.root):  # the stage's runner logs it itself
        log.event(f"{NAME}: reused, nothing to do", stage=NAME, fingerprint=made.manifest.fingerprint)
    return outcome(made, time.monotonic() - start, config.root, planned=bool(config.plan or config.root))


def _policed(config: SampleConfig) -> AbstractContextManager[None]:
    """Put the policy in force that the options name; a node carries out what was planned under one."""
    return nullcontext() if config.plan else in_force(config)


def _carry_out(config: SampleConfig) -> CarriedOut:
    """Carry out the plan that is given. This is all that a node does."""
    sample = open_plan(config)
    vanished.refuse(sample.manifest, config.fail_on)
    if not config.output_path:
        return CarriedOut(sample.planned or sample.manifest, sample.home, True)
    return carry_out(config, sample.manifest.fingerprint, lambda: sample, sample.files)._replace(where=sample.home)


def _plan(config: SampleConfig) -> CarriedOut:
    """Run the stage, which keeps its plan below root; then carry the plan out."""
    from pairmill.stages.sample.core import make_plan

    planned, draft = make_plan(config)
    if not config.output_path:
        return CarriedOut(planned.manifest, planned.uri, planned.reused)
    written = draft.written
    if written is not None and not written.reused:  # while the plan was made, so the tokens are read once
        return written._replace(where=planned.uri)
    made = _carry_out(replace(draft.config, plan=planned.uri, base="", extend="", from_epoch=0, after=""))
    return made._replace(reused=made.reused and planned.reused)


def _draw(config: SampleConfig) -> CarriedOut:
    """Draw a sample and write its arrays, and keep no plan."""
    from pairmill.stages.sample.draft import Draft

    draft = Draft.from_config(config)
    made = carry_out(config, draft.fingerprint, draft.sample)
    draft.judge(made.manifest)
    return made


def outcome(made: CarriedOut, seconds: float = 0.0, root: str = "", *, planned: bool = True) -> Outcome:
    """Return what the program prints, and gives Kubeflow.

    Args:
        made: the sample.
        seconds: that it took.
        root: of the project, whose other stages the report then shows as well; empty = there is none.
        planned: whether a plan is kept, with its report.
    """
    manifest, ledger, measures = made.manifest, made.manifest.ledger, made.manifest.ledger.measures
    metrics = {
        **of_rows(ledger),
        "truncated_rows": ledger.notes.get("truncated", 0),
        # Samples of older versions of pairmill did not count them.
        "truncated_tokens": measures.get("truncated_tokens", 0),
        "split_rows": ledger.notes.get("split", 0),
        **{name: measures.get(name, 0) for name in SPLIT[:2]},
        "padded_tokens_unpacked": padded_tokens(manifest),
        "tokens": measures["tokens_sampled"],
        "response_tokens": measures["response_tokens_sampled"],
        "unique_tokens": measures["unique_tokens"],
        "epochs": measures["epochs"],
        "tasks": len(manifest.shards),
        "bytes": measures["bytes"],
        **_of_mixture(manifest),
    }
    return Outcome(
        stdout=_printed(made, planned=planned),
        parameters={"output": made.where, "fingerprint": manifest.fingerprint, "rows_out": ledger.rows_out},
        metrics=metrics,
        report=lambda: _report(manifest, root),
        manifest=manifest.dump,
        metadata={"data": made.where, "fingerprint": manifest.fingerprint, "rows_out": ledger.rows_out},
        reused=made.reused,
        seconds=seconds,
        look_at=partial(look_at, manifest),
    )


def _printed(made: CarriedOut, *, planned: bool) -> str:
    """Return the analytics; of many tasks without the lines of each, unless they are to be the reference's."""
    manifest, count = made.manifest, len(made.manifest.shards)
    result = SampleResult.from_manifest(manifest)
    if count <= MOST_TASKS or manifest.options["profile"] == "data_io":
        return result.analytics
    stats = {name: Stats(**values) for name, values in result.stats.items()}
    context = manifest.options["context_size"]
    text = markdown(stats, manifest.shards, "pairmill", context, _realised(manifest), by_task=False)
    place = TASKS if planned else f"{MANIFEST}, under data.analytics"
    return f"{text}{count:,} tasks; each has its line in {storage.join(made.where, place)}\n"


def _of_mixture(manifest: Manifest) -> dict[str, float]:
    realised = _realised(manifest)
    return {} if realised is None else realised.metrics()


def _realised(manifest: Manifest) -> Realised | None:
    drawn = SampleResult.from_manifest(manifest)
    if not drawn.mixture:
        return None
    from pairmill.mixture.realised import Realised

    return Realised.load(drawn.mixture)


def _report(manifest: Manifest, root: str) -> Report:
    """Return the report of the plan; where the line that it ends is at hand, with that in front of it."""
    from pairmill.stages.sample.report import report_in_line

    return report_in_line(manifest, root)
