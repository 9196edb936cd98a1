"""Whether mixtures have as much as a proxy reads, as far as that can be told before their rows are drawn.

How many batches rows make follows from their lengths. Two batches that follow each other hold more than one batch has
slots, or the first row of the second would be in the first; and a batch lacks less than the longest row.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from pairmill.engine.manifest import Ledger
from pairmill.errors import UsageError
from pairmill.log import event
from pairmill.mixture.inputs import CountingPlan
from pairmill.mixture.plan import Mixture
from pairmill.training.settings import TrainSettings

_DRAWS: Final = 1.05
"""The rows that are drawn may be longer than those of their task on average."""


def refuse_epochs(trainings: TrainSettings, epochs: int) -> None:
    """Raise UsageError if a proxy is to read more epochs than a mixture has."""
    if trainings.training.epochs > epochs:
        raise UsageError(
            "more than a mixture has",
            where="training.epochs",
            got=str(trainings.training.epochs),
            expected=f"at most {epochs}",
            hint="raise epochs=, or say train_set=training.epochs=0",
        )


def refuse_short(
    trainings: TrainSettings, mixtures: Sequence[Mixture], to_count: CountingPlan, ledgers: Mapping[str, Ledger]
) -> None:
    """Raise UsageError if a mixture certainly has fewer steps or tokens than a proxy reads; warn if it may have.

    Args:
        trainings: settings of the proxies.
        mixtures: of the proxies.
        to_count: the tasks.
        ledgers: of the tasks, with the rows that were tokenized.
    """
    asked, slots = trainings.training, trainings.batch.tokens
    if not (asked.steps or asked.tokens):
        return
    name, wanted = ("steps", asked.steps) if asked.steps else ("tokens", asked.tokens)
    mean = {
        item.task.name: item.task.array().length / max(1, ledgers[item.task.name].rows_in) - 1
        for item in to_count.tasks
    }
    least, doubtful = wanted, list[int]()
    for number, mixture in enumerate(mixtures):
        inputs = sum(sum(rows) * mean[task] for (task, _), rows in mixture.wants().items())
        fullest = min(mixture.context - 1, slots // 2)
        most = inputs / (slots - fullest) if asked.steps else inputs
        if wanted > _DRAWS * most:
            there = int(inputs / slots if asked.steps else inputs)
            raise UsageError(
                "more than a mixture has",
                where=f"training.{name}",
                got=f"{wanted:,}",
                expected=f"at most about {there:,}, which run {number} has",
                hint="lower it, raise search_config proxy_budget or mix_config budget, or leave it out",
            )
        sure = inputs / slots - mixture.epochs if asked.steps else inputs - mixture.epochs * slots
        if wanted > sure:
            least, doubtful = min(least, int(sure)), [*doubtful, number]
    if doubtful:
        event(
            f"search: {len(doubtful)} of {len(mixtures)} mixtures may have fewer {name} than the {wanted:,} of "
            f"training.{name}; {max(1, least):,} are safe",
            level=logging.WARNING,
            runs=doubtful,
        )
