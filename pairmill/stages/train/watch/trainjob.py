"""Progress and metrics in the status of a TrainJob, where Kubeflow Trainer takes them.

With its feature gate ``TrainJobStatus`` the controller gives each pod three variables: where to post, the certificates
of the server, and a token.

Source: kubeflow/trainer, ``proposals/2779-trainjob-progress``, and ``UpdateTrainJobStatusRequest`` of
``trainer.kubeflow.org/v1alpha1``.
"""

import logging
import math
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pairmill import log
from pairmill.errors import PairmillError
from pairmill.net.post import post
from pairmill.stages.train.watch.records import Line, numbers_of

_URL: Final = "KUBEFLOW_TRAINER_SERVER_URL"
_CA: Final = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
_PROOF: Final = "KUBEFLOW_TRAINER_SERVER_TOKEN"
"""Name files."""
_EVERY: Final = 5.0
"""Seconds between two posts; the server is the controller, which has others to serve."""
_MOST_METRICS: Final = 256
_MOST_CHARACTERS: Final = 64
"""Of the name of a metric, and of its value."""
_MOST_FAILURES: Final = 5
"""In a row; a controller that is restarted misses fewer."""


class TrainJob:
    """The status of the TrainJob that this process trains for; outside of one nothing is posted.

    Args:
        steps: of the whole training.
        step: from which this process goes on.
        environment: variables of the pod.
    """

    def __init__(self, steps: int, step: int = 0, environment: Mapping[str, str] = os.environ) -> None:
        self._steps, self._first, self._environment = steps, step, environment
        self._begun, self._posted, self._failures = time.monotonic(), -math.inf, 0
        self._values: dict[str, str] = {}

    def write(self, line: Line) -> None:
        """Take the numbers of a line, and post them if the last post was some seconds ago, or the training is over."""
        if _URL not in self._environment or self._failures >= _MOST_FAILURES:
            return
        if line["kind"] in {"step", "heldout"}:
            numbers = numbers_of(line)
            self._values |= {name: f"{value:.6g}" for name, value in numbers.items() if len(name) <= _MOST_CHARACTERS}
        now = time.monotonic()
        if now - self._posted >= _EVERY or line["step"] >= self._steps:
            self._posted = now
            self._post(self.status(line["step"], now - self._begun))

    def status(self, step: int, seconds: float) -> dict[str, Any]:
        """Return the body of the post after a step.

        Args:
            step: the last one that is done.
            seconds: that this process has trained for.
        """
        done, left = step - self._first, max(0, self._steps - step)
        metrics = [{"name": name, "value": value} for name, value in self._values.items()][:_MOST_METRICS]
        return {
            "trainerStatus": {
                "progressPercentage": min(100, 100 * step // max(1, self._steps)),
                **({"estimatedRemainingSeconds": round(seconds / done * left)} if done > 0 else {}),
                "metrics": metrics,
                "lastUpdatedTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        }

    def _post(self, status: Mapping[str, Any]) -> None:
        try:
            token = Path(self._environment[_PROOF]).read_text().strip()
            post(self._environment[_URL], status, {"Authorization": f"Bearer {token}"}, self._environment[_CA])
        except (PairmillError, OSError, KeyError) as error:
            self._failures += 1
            if self._failures in (1, _MOST_FAILURES):
                log.event(f"train: the status of the TrainJob is not updated: {error}", level=logging.WARNING)
        else:
            self._failures = 0
