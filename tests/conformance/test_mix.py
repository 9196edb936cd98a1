"""Mixtures: every recorded budget, rounding and rule, whatever their names and however many there are."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pairmill.mixture.export import rule_of
from pairmill.mixture.making import CountedSource, WantedPhase, make
from pairmill.mixture.methods import METHODS, Recipe
from pairmill.mixture.plan import PlannedTask
from pairmill.mixture.rounding import largest_remainder

CLOSE = 1e-9


@pytest.fixture(scope="module")
def recorded(shared: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((shared / "conformance/curate/mixing/expected.json").read_text())
    return found


def recipe(case: dict[str, Any]) -> Recipe:
    said = {name: case[name] for name in ("exponent", "temperature", "weights") if name in case}
    return Recipe.parse(case["method"], max_epochs=case.get("cap"), **said)


def test_budgets(recorded: dict[str, Any]) -> None:
    methods, looked = set(), 0
    for case in recorded["cases"]:
        sources = [
            CountedSource(name, (PlannedTask(name, max(1, count), count, count, 0),) if count else ())
            for name, count in case["counts"].items()
        ]
        made = make(
            sources,
            [WantedPhase("all", 1.0, 1, recipe(case))],
            budget=case["budget"],
            allow_unfilled=bool(case["unfilled"]),
        )
        found = {source.name: source for source in made.sources}
        assert found.keys() == case["expected"].keys()
        for name, expected in case["expected"].items():
            for what, value in expected.items():
                got = getattr(found[name], what)
                assert got == pytest.approx(value, rel=CLOSE, abs=0 if value else CLOSE), (case["case"], name, what)
                looked += 1
        assert made.unfilled == pytest.approx(case["unfilled"], rel=CLOSE, abs=CLOSE * case["budget"]), case["case"]
        assert math.fsum(one.tokens for one in made.sources) + made.unfilled == pytest.approx(case["budget"], rel=CLOSE)
        methods.add(case["method"])
    assert looked >= 3 * len(recorded["cases"]) > 0
    assert methods <= {*METHODS}
    assert len(methods) > 1


def test_presets_are_methods_with_their_parameters(recorded: dict[str, Any]) -> None:
    """``english`` is UniMax with one epoch, ``code`` the exponent 1.3: on the counts of every recorded case."""
    assert recorded["cases"]
    for case in recorded["cases"]:
        cap = case.get("cap")
        pairs = (
            (Recipe.parse("english", max_epochs=None), Recipe.parse("unimax", max_epochs=1)),
            (
                Recipe.parse("code", max_epochs=cap),
                Recipe.parse("exponent", exponent=1.3, max_epochs=cap),
            ),
        )
        for preset, plain in pairs:
            assert preset.weights_of(case["counts"]) == plain.weights_of(case["counts"]), case["case"]
            assert preset.max_epochs == plain.max_epochs


def test_rules_for_samplers_that_know_only_those(recorded: dict[str, Any]) -> None:
    assert recorded["prefix_rules"]
    for case in recorded["prefix_rules"]:
        most, repeat = rule_of(case["rows"], case["want"])
        assert (most, repeat) == (case["max_per_file"], case["repeat"]), case
        assert min(most, case["rows"]) * repeat == case["drawn"] <= case["want"]


def test_integers_by_largest_remainder(recorded: dict[str, Any]) -> None:
    assert recorded["largest_remainder"]
    for case in recorded["largest_remainder"]:
        real = {name: share * case["total"] for name, share in case["shares"].items()}
        assert largest_remainder(real, case["total"]) == case["expected"]
        assert largest_remainder(real) == case["expected"]
