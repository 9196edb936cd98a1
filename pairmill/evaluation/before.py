"""What is known of an evaluation before there is a model: for stages that ask for trainings, each of them evaluated."""

from collections.abc import Sequence

from pairmill.errors import UsageError
from pairmill.evaluation import benchmark_data, benchmarks, harness_tasks
from pairmill.evaluation.settings import EvaluateSettings, parse_places
from pairmill.training.settings import TrainSettings


def check(
    trainings: TrainSettings,
    evaluate_config: str,
    overrides: Sequence[str],
    asked: Sequence[str] = (),
    data: Sequence[str] = (),
    root: str = "",
) -> None:
    """Refuse what every one of the evaluations would refuse, after its training.

    Args:
        trainings: settings of the trainings.
        evaluate_config: the file of the evaluations' settings; empty = the default one.
        overrides: settings in its place, the option ``evaluate_set``.
        asked: names of benchmarks.
        data: where data of benchmarks are, as the option of that name says it.

    Raises:
        UsageError: the settings are wrong, no benchmark has a name, or the runs will lack the weights to evaluate.
        InputError: a benchmark's data are not where ``data`` says.
    """
    settings = EvaluateSettings.load(evaluate_config, overrides, by="evaluate_set")
    for name in (*settings.benchmarks, *asked):
        if not harness_tasks.is_task(name):
            benchmarks.named(name)
    places = parse_places(data)
    if places:
        benchmark_data.find([name for name in asked if name in places], places, root, settings)
    if settings.net.weights == "ema" and not trainings.averages:
        raise UsageError(
            "the runs will have no average of weights",
            where="evaluate_set: net.weights",
            got="ema, and training.ema is off",
            expected="evaluate_set=net.weights=current",
            hint="or let the runs keep an average: training.ema=auto",
        )
