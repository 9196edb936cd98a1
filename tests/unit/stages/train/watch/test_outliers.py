"""Steps that stick out of those before them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np

from pairmill.stages.train.watch.outliers import FAR, LEAST, MOST, WINDOW, Outliers


def values(step: int, loss: float = 0.0) -> dict[str, float]:
    noise = math.sin(12.9898 * step) * 43758.5453 % 1 - 0.5
    return {"loss": loss or 3 + 0.1 * noise, "grad_norm": 1 + 0.2 * noise}


def test_a_jump_stands_out_and_noise_does_not() -> None:
    seen = Outliers()
    results = [
        seen.add(step, values(step, 6.0 if step in (10, 200) else 0.0), {"step": step}) for step in range(1, 300)
    ]
    assert [step for step, result in enumerate(results, 1) if result] == [200]
    result = results[199]
    assert result is not None
    assert (result["what"], result["loss"], result["usual"] < 3.1, result["times"] > FAR) == ("loss", 6.0, True, True)
    assert seen.highest[0]["before"] == {"step": 200}
    assert len(seen.highest) == MOST
    assert [item["times"] for item in seen.highest] == sorted((item["times"] for item in seen.highest), reverse=True)


def test_the_median_and_the_spread_are_those_of_the_steps_before() -> None:
    draw = np.random.default_rng(0).normal(5, 1, 300)
    seen = Outliers()
    for step, loss in enumerate(draw.tolist()):
        result = seen.add(step, {"loss": loss, "grad_norm": 1.0}, {})
        before = draw[max(0, step - WINDOW) : step]
        if step < LEAST:
            assert result is None
            continue
        spread = 1.4826 * np.median(np.abs(before - np.median(before)))
        assert (result is not None) == bool((loss - np.median(before)) / spread > FAR)


def test_a_value_that_is_not_finite_is_left_out() -> None:
    seen = Outliers()
    for step in range(100):
        assert seen.add(step, values(step, math.nan if step % 3 else 0.0), {}) is None
    assert all(math.isfinite(value) for value in seen.last["loss"])


def test_a_run_that_goes_on_finds_what_one_without_a_stop_finds() -> None:
    whole, first = Outliers(), Outliers()
    for step in range(1, 150):
        whole.add(step, values(step), {"step": step})
        if step == 80:
            first = Outliers.from_state(json.loads(json.dumps(asdict(first))))
        first.add(step, values(step), {"step": step})
    assert asdict(whole) == asdict(first)
    assert Outliers.from_state({}) == Outliers()
