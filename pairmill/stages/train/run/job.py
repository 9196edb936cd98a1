"""What a run is asked to do, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pairmill.errors import PairmillError
from pairmill.stages.train.data.inputs import Inputs
from pairmill.stages.train.start import Start
from pairmill.training.settings import TrainSettings

STOPPED: Final = 75
"""Exit code of a run that a signal ended after it saved a checkpoint; the same command goes on. EX_TEMPFAIL."""


class Diverged(PairmillError):
    """Loss or gradient were not finite ten times in a row, and going back to a checkpoint did not help. Exit code 6."""

    exit_code = 6


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run.

    Attributes:
        key: of the run: data, settings and first weights; its checkpoints say it.
        folder: URI that has ``checkpoints/`` and ``live/`` (metrics.jsonl) of the run.
        inputs: the data.
        start: weights of an earlier run; None = new ones.
        resume_from: URI of another folder of the same run, or of the earlier one, to go on from, if ``folder`` has no
            checkpoint.
        earlier: key of a run on a plan that this one's extends; this one goes on with it. Empty = none.
        price: of a device for an hour.
        tokenizer_info: which tokens begin and end texts (:class:`pairmill.nets.trained.Trained`).
        data: what is read, for the report: a name -> text.
    """

    key: str
    folder: str
    inputs: Inputs
    settings: TrainSettings
    start: Start | None = None
    resume_from: str = ""
    earlier: str = ""
    price: float = 0.0
    tokenizer_info: Mapping[str, Any] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)

    def identify(self, ranks: int) -> dict[str, Any]:
        """Return what makes it another run, JSON-like: data, first weights, settings, and perhaps the processes."""
        start = [self.start.digest, self.start.take] if self.start else [self.earlier] if self.earlier else []
        settings = {"settings": self.settings.to_manifest(), **self.settings.processes(ranks)}
        return {"data": self.inputs.digest, "weights_from": start, **settings}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished run.

    Attributes:
        digest: hexadecimal sha256 over names, dtypes, shapes and bytes of all final tensors, EMA included.
        steps: made.
        rows: what became of each row, by reason; ``trained`` are those whose update is in the weights.
        data: for the manifest (:class:`pairmill.formats.training_results.TrainResult`, and more), JSON-like.
    """

    digest: str
    steps: int
    rows: Mapping[str, int]
    data: dict[str, Any] = field(default_factory=dict)
