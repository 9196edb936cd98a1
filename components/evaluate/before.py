"""What is known of an evaluation before there is a model: for stages that ask for trainings, each of them evaluated."""

from __future__ import annotations

from collections.abc import Sequence

from components.evaluate import benchmarks, harness
from components.evaluate.settings import DEFAULT, EvaluateSettings
from components.train.settings import TrainSettings
from pairmill.errors import UsageError


def check(trainings: TrainSettings, evaluate_config: str, overrides: Sequence[str], asked: Sequence[str] = ()) -> None:
    """Refuse what every one of the evaluations would refuse, after its training.

    Args:
        trainings: settings of the trainings.
        evaluate_config: the file of the evaluations' settings; empty = the default one.
        overrides: settings in its place, the option ``evaluate_set``.
        asked: names of benchmarks.

    Raises:
        UsageError: the settings are wrong, no benchmark has a name, or the runs will lack the weights to evaluate.
    """
    settings = EvaluateSettings.load(evaluate_config or DEFAULT, overrides, "evaluate_set")
    for name in (*settings.benchmarks, *asked):
        if not harness.is_task(name):
            benchmarks.named(name)
    if settings.net.weights == "ema" and not trainings.averages:
        raise UsageError(
            "the runs will have no average of weights",
            where="evaluate_set: net.weights",
            got="ema, and training.ema is off",
            expected="evaluate_set=net.weights=current",
            hint="or let the runs keep an average: training.ema=auto",
        )
