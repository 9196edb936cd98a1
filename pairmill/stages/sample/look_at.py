"""What is to be looked at of a sample, in sentences; without its report, whose import takes as long as a small sample.

So what most samples do not need is imported in functions.
"""

from pairmill.engine import vanished
from pairmill.engine.manifest import Manifest
from pairmill.formats.eligible_rows import SPLIT
from pairmill.formats.results.sample import SampleResult
from pairmill.stages.sample import analytics
from pairmill.stages.sample.analytics import Stats
from pairmill.stages.sample.preview.beside import beyond_chance, expected_beside_drawn


def look_at(manifest: Manifest) -> list[str]:
    """Return what the report says first, and the alarms."""
    return [*unusual(manifest), *vanished.sentences(manifest)]


def unusual(manifest: Manifest) -> list[str]:
    """Return what was cut or split, and what was drawn otherwise than expected."""
    ledger, measures, result = manifest.ledger, manifest.ledger.measures, SampleResult.from_manifest(manifest)
    lines = []
    if truncated := ledger.notes.get("truncated", 0):
        from pairmill.report.model import Percent

        whole = analytics.total(Stats(**values) for values in result.stats.values())
        cut = measures.get("truncated_tokens", 0)
        rows, tokens = Percent.ratio(truncated, whole.unique_rows), Percent.ratio(cut, whole.unique_toks + cut)
        lines.append(
            f"{truncated:,} sampled rows ({rows}) are longer than the context and "
            f"were cut: {cut:,} tokens, {tokens} of the sampled rows', are not seen."
        )
    if split := ledger.notes.get("split", 0):
        pieces, split_tokens, repeated = (measures.get(name, 0) for name in SPLIT)
        lines.append(
            f"{split:,} rows are longer than the context and were split into {pieces:,} pieces: "
            f"{split_tokens:,} response tokens, and {repeated:,} of instructions repeated."
        )
    lines += [
        f"{group.name}: {group.drawn_tokens:,.0f} tokens an epoch, and {group.tokens:,.0f} expected; chance is less."
        for group in beyond_chance(expected_beside_drawn(manifest))
    ]
    if result.composed:
        parts = (f"epoch {item['epoch']} of {item['plan']} ({item['rows']:,} rows)" for item in result.composed)
        lines.append(f"Put together of {' and '.join(parts)}.")
    if result.after:
        after = result.after
        lines.append(
            f"After {after['epochs']} epochs and {after['rows']:,} rows of {after['plan']}: {after['seen']:,} rows of "
            f"{after['tasks']:,} tasks were seen before, and passes_total leaves {after['left_out']:,} of them out."
        )
    if result.mixture:
        from pairmill.mixture import realised, shown

        drawn = realised.Realised.load(result.mixture)
        if drawn.outside or drawn.over_cap:
            lines.append(f"Mixture: {shown.summary(drawn)}")
    return lines
