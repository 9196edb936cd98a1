"""Searches by laws for many sources and seeds, and one whose tasks are processes, as a user starts it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pairmill.engine.manifest import content_key
from pairmill.mixture.plan import NAME
from pairmill.stages.search import findings
from pairmill.stages.search.core import OPTIMUM
from pairmill.stages.search.draw import Draw, mixtures
from pairmill.stages.search.findings import Measured
from pairmill.stages.search.laws import LAWS
from pairmill.stages.search.optimum import Objective, minimise
from pairmill.stages.search.space import Source, Space
from tests.support.data.tokens_and_mixtures import Bench
from tests.support.helpers import REPOSITORY
from tests.support.nets.mixture_task import BEST, in_project, options
from tests.support.processes.crash_points import crashes
from tests.support.stages.searching import log_linear, proxies, search

Floats = NDArray[np.float64]
SEEDS = 16
NOISE = 0.004


@pytest.mark.parametrize("axes", [3, 5, 8, 12])
@pytest.mark.parametrize("kind", ["log-linear", "power"])
def test_the_gain_that_is_found(kind: str, axes: int) -> None:
    """Prints what docs/searching.md says."""
    reached, correlations = [], []
    for seed in range(SEEDS):
        random = np.random.default_rng([axes, seed])
        natural = np.maximum(random.dirichlet(np.ones(axes)), 0.02)
        natural = natural / natural.sum()
        loss = task(kind, axes, random)
        limits = np.minimum(1.0, 6 * natural)
        points = np.stack(mixtures(Draw(seed), natural.tolist(), limits.tolist(), 3 * (axes + 1)))
        measured = loss(points) + random.normal(0, NOISE, (len(points), axes))
        space = Space.from_sources(
            [Source(str(n), int(1e6 * natural[n]), 6e6 * natural[n], "") for n in range(axes)], 1e6
        )
        targets = {str(one): measured[:, one] for one in range(axes)}
        found = findings.find(Measured(points, targets, dict.fromkeys(targets, 1 / axes)), space, 0.0)
        start = float(loss(points[0]).mean())
        truth = minimise(Objective(lambda p, loss=loss: float(loss(p).mean()), slope(loss, axes)), points[0], limits)
        reached.append((start - float(loss(found.optimum.point).mean())) / (start - truth.value))
        agreement = findings.agreement(found.objective(targets), found.objective(found.left_out))
        correlations.append(agreement["pearson"] or 0.0)
    ordered = sorted(reached)
    print(
        f"| {axes} | {3 * (axes + 1)} | {kind} | {100 * ordered[0]:.1f}% | {100 * ordered[1]:.1f}% | "
        f"{100 * float(np.median(ordered)):.1f}% | {min(correlations):.2f} | {float(np.median(correlations)):.3f} |"
    )
    assert ordered[1] >= 0.9
    assert float(np.median(correlations)) > 0.85
    assert axes + LAWS["log_linear"].more_runs <= len(points)


def task(kind: str, axes: int, random: np.random.Generator) -> Callable[[Floats], Floats]:
    """Each held-out source needs its own source most, and the others as they are related."""
    related = np.abs(random.normal(0, 0.25, (axes, axes))) + np.diag(random.uniform(0.6, 1.4, axes))
    worth = random.dirichlet(np.ones(axes)) * axes

    def log_linear(points: Floats) -> Floats:
        made: Floats = 0.7 + np.exp(points @ (-related * worth[:, None]).T)
        return made

    def power(points: Floats) -> Floats:
        made: Floats = 0.7 + 0.5 * worth * (0.1 + points @ related.T) ** -0.4
        return made

    return log_linear if kind == "log-linear" else power


def slope(loss: Callable[[Floats], Floats], axes: int) -> Callable[[Floats], Floats]:
    def gradient(point: Floats) -> Floats:
        step = 1e-6 * np.eye(axes)
        return np.array([(loss(point + one).mean() - loss(point - one).mean()) / 2e-6 for one in step])

    return gradient


def test_the_command_searches_by_processes(tmp_path: Path) -> None:
    project = tmp_path / "project"
    config = options(tmp_path / "task", project, runs=5, train_set="training.steps=12")
    config = dataclasses.replace(config, tokenized=str(in_project(Path(config.tokenized), project)), samples_path="")
    given = [f"{name}={value}" for name, value in vars(config).items() if value not in ("", 0)]
    command = [REPOSITORY / "build/torch/bin/python", "-m", "pairmill", "search", *given]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PAIRMILL_LOG": "json"}

    def run() -> dict[str, str]:
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 0
        sys.stderr.write(done.stdout)
        return dict(line.strip().split(": ", 1) for line in done.stdout.splitlines() if ": " in line)

    made = run()
    said = json.loads((Path(made["mixture"]).parent / "search.json").read_text())
    assert set(said["measured"]) == {"left", "right"}
    assert said["optimum"]["shares"].keys() == BEST.keys()
    assert Path(made["report"]).exists()
    assert not Path(f"/dev/shm/pairmill-search-{content_key(str(project))[:16]}").exists()
    assert run() == made


def test_a_kill_at_any_instant_changes_nothing(tmp_path: Path) -> None:
    root, bench = tmp_path / "root", Bench(tmp_path / "bench", context=200)
    bench.put("web__a", [*range(2, 42)])
    bench.put("books__x", [*range(20, 40)])
    law = log_linear({name: {"web": 0.1, "books": -0.4} for name in ("web", "books")})
    options: dict[str, Any] = {"set": ["runs=4"]}
    drawn = search(tmp_path / "drawn", bench.tokenized, "", **options)
    results = proxies(tmp_path / "drawn", bench.tokenized, drawn, law)

    def searched() -> dict[str, str]:
        made = search(root, bench.tokenized, "", **options, **results, measured=results["evaluated"][0])
        return {file.path: file.digest for file in made.manifest.files}

    whole = searched()
    assert {NAME, OPTIMUM, "search.json", "report.html", "report.md", "run-003.json"} <= whole.keys()
    shutil.rmtree(root)
    instants = 0
    for _ in crashes(searched, root):
        assert searched() == whole
        shutil.rmtree(root)
        instants += 1
    assert instants > 20
