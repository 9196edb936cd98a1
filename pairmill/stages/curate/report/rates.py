"""Removal rates of a curated folder, for the metrics of its node in Kubeflow."""

from collections.abc import Mapping
from typing import Any


def removed_by_reason(sources: Mapping[str, Mapping[str, Any]]) -> dict[str, int]:
    """Add up the rows of all sources that were dropped, by ledger reason."""
    removed: dict[str, int] = {}
    for source in sources.values():
        for reason, count in source.get("dropped", {}).items():
            removed[reason] = removed.get(reason, 0) + count
    return dict(sorted(removed.items(), key=lambda item: (-item[1], item[0])))


def removal_rates(sources: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Return the share of the rows that was dropped for each reason, 0 to 1, as ``<reason>_fraction``.

    ``would_go_fraction`` is that of the kept rows that only a mode keeps.
    Reasons with a name of the user's after a colon (``heuristic:<rule>``) count together, so that the metrics of two
    runs have the same names.
    """
    rows = sum(source.get("rows", 0) for source in sources.values())
    removed: dict[str, int] = {}
    for reason, count in removed_by_reason(sources).items():
        family = reason.partition(":")[0]
        removed[family] = removed.get(family, 0) + count
    would_go = sum(source.get("would_go", 0) for source in sources.values())
    if would_go:
        removed["would_go"] = would_go
    return {f"{name}_fraction": round(count / rows, 6) for name, count in sorted(removed.items()) if rows}
