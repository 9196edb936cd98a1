"""What has to be known before figures of benchmarks are believed, in sentences: for the log and for the report."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pairmill.engine.manifest import Ledger
from pairmill.evaluation.settings import LENIENT

_EMPTY: Final = 0.5
"""From this share of answers that cannot be read on, a figure says little of what the model knows."""
TOO_LONG: Final = "prompt_too_long"
"""The note of a prompt that leaves no room for an answer."""


def cautions(table: Mapping[str, Any], parts: Mapping[str, Ledger]) -> Iterator[str]:
    """Yield the sentences.

    Args:
        table: by benchmark, its figures (``pairmill.stages.evaluate.scored.ScoredBenchmark`` as a mapping).
        parts: by benchmark, its ledger.
    """
    for name, item in table.items():
        figures = item["all"]
        if (figures["invalid"] or 0) >= _EMPTY:
            lenient = figures["also"].get(LENIENT)
            also = "" if lenient is None else f"; read leniently, {share(lenient)} are right"
            causes = ", ".join(f"{count:,} {cause}" for cause, count in sorted(item["causes"].items()))
            why = f" ({causes})" if causes else ""
            yield f"{name}: {share(figures['invalid'])} of the answers cannot be read{why}{also}."
        long = parts[name].notes.get(TOO_LONG, 0)
        if long and long == figures["n"]:
            yield (
                f"{name}: none of the prompts left room for an answer, so the figure says nothing of the model. "
                "Give it a longer context, or ask with fewer examples."
            )
        elif long:
            yield (
                f"{name}: {long:,} of {figures['n']:,} prompts left no room for an answer; they count as answered with "
                "nothing."
            )


def share(value: float | None) -> str:
    """Return a share in percent; a dash if it is not known."""
    return "–" if value is None else f"{100 * value:.1f}%"
