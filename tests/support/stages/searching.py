"""Searches over tokenized folders: the plans of their mixtures, and evaluations with a known law in place of nets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmill.engine import runner
from pairmill.engine.manifest import Ledger, Manifest, content_key
from pairmill.engine.runner import Result
from pairmill.mixture import shares
from pairmill.mixture.reading import load_mixture
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.core import Sample
from pairmill.stages.search.config import SearchConfig
from pairmill.stages.search.core import Search
from tests.support.stages import mixing

Law = Callable[[Mapping[str, float]], Mapping[str, float]]
"""From the share of each source to bits a byte of each held-out source."""


def search(root: Path, tokenized: Path, said: str = "max_epochs: 3\nbudget: 40_000\n", **options: Any) -> Result:
    """Run the stage in this process."""
    given: dict[str, Any] = {"context_size": 200, "epochs": 2, "workers": 1, "prefix_config_path": mixing.rules(root)}
    config = SearchConfig(
        root=str(root),
        tokenized_path=str(tokenized),
        mix_config=str(mixing.settings(root, said)),
        **{**given, **options},
    )
    return runner.run(Search(), config)


def sampled(root: Path, tokenized: Path, mixture: str, **options: Any) -> str:
    """The plan of a mixture."""
    given: dict[str, Any] = {"context_size": 200, "prefix_config_path": mixing.rules(root), "output_path": ""}
    config = SampleConfig(root=str(root), tokenized_path=str(tokenized), mixture=mixture, **{**given, **options})
    return runner.run(Sample(), config).uri


def shares_of(mixture: str) -> dict[str, float]:
    """The shares of the sources of a mixture, as its rows have them."""
    return dict(shares.predicted(load_mixture(mixture), ""))


def evaluated(root: Path, losses: Mapping[str, float], rows: int = 50) -> str:
    """A finished folder of evaluate that says these bits a byte."""
    table: dict[str, Any] = {
        name: {"rows": rows, "tokens": 10 * rows, "bytes": 40 * rows, "loss": 3 * loss, "bits_per_byte": loss}
        for name, loss in losses.items()
    }
    table["all"] = {**next(iter(table.values()))}
    data = {"held_out": {"table": table, "sources": sorted(losses), "exact": True}, "benchmarks": {}}
    fingerprint = content_key(data)[:16]
    folder = root / "evaluate" / fingerprint
    folder.mkdir(parents=True, exist_ok=True)
    made = Manifest("evaluate", 1, fingerprint, {}, [], Ledger(), [], data=data)
    (folder / "_MANIFEST.json").write_bytes(made.dump())
    return str(folder)


def outputs_of(made: Result) -> dict[str, Any]:
    """Return what a pipeline loops over; the options decide nothing here."""
    return dict(Search().outputs(None, made.manifest, made.uri).parameters)  # type: ignore[arg-type]


def runs_of(drawn: Result) -> list[str]:
    """The mixtures that a search drew."""
    listed = outputs_of(drawn)["mixtures"]
    assert isinstance(listed, list)
    return [one["mixture"] for one in listed]


def proxies(root: Path, tokenized: Path, drawn: Result, law: Law, noise: float = 0.0) -> dict[str, list[str]]:
    """The options ``sampled`` and ``evaluated`` of a search whose proxies lose what a law says."""
    draw = np.random.default_rng(1)
    mixtures = runs_of(drawn)
    plans = [sampled(root, tokenized, mixture) for mixture in mixtures]
    made = []
    for mixture in mixtures:
        losses = law(shares_of(mixture))
        made.append(evaluated(root, {name: loss + noise * draw.normal() for name, loss in losses.items()}))
    return {"sampled": plans, "evaluated": made}


def log_linear(slopes: Mapping[str, Mapping[str, float]], floor: float = 0.6) -> Law:
    """The law that the search assumes."""

    def law(of: Mapping[str, float]) -> dict[str, float]:
        return {
            target: floor + float(np.exp(sum(slope * of[name] for name, slope in by.items())))
            for target, by in slopes.items()
        }

    return law


def power(gains: Mapping[str, Mapping[str, float]], floor: float = 0.6) -> Law:
    """Another law: a power of how much of the data helps."""

    def law(of: Mapping[str, float]) -> dict[str, float]:
        return {
            target: floor + 0.5 * (0.05 + sum(gain * of[name] for name, gain in by.items())) ** -0.4
            for target, by in gains.items()
        }

    return law


def best(law: Law, names: list[str], limits: Mapping[str, float], steps: int = 50) -> float:
    """The lowest mean loss over a grid of all mixtures of up to four sources under limits."""
    grid = _grid(len(names), steps) / steps
    allowed = grid[(grid <= np.array([limits[name] for name in names]) + 1e-9).all(axis=1)]
    return min(float(np.mean(list(law(dict(zip(names, point, strict=True))).values()))) for point in allowed.tolist())


def _grid(axes: int, left: int) -> NDArray[np.int64]:
    if axes == 1:
        return np.array([[left]])
    return np.concatenate([np.insert(_grid(axes - 1, left - first), 0, first, axis=1) for first in range(left + 1)])
