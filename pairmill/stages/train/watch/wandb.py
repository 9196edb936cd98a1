"""Weights & Biases, for those who use it: a copy of what metrics.jsonl has. Nothing depends on it."""

import importlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pairmill import log
from pairmill.stages.train.watch.records import Line, numbers_of, tag_of

_SECONDS: Final = 60
"""A service that does not answer must not keep devices waiting."""


class Wandb:
    """A run of the service. It is off, after one warning, as soon as anything of it fails.

    Args:
        folder: for its own files, which WANDB_MODE=offline keeps for ``wandb sync``.
        settings: what it lists beside the run.
        id_: of the run that an earlier attempt began; "" for a new one.
    """

    def __init__(self, project: str, name: str, folder: Path, settings: Mapping[str, Any], id_: str = "") -> None:
        self.id = id_
        self._run: Any = None
        self._module: Any = None
        self._try(lambda: self._begin(project, name, folder, settings))

    def _begin(self, project: str, name: str, folder: Path, settings: Mapping[str, Any]) -> None:
        self._module = importlib.import_module("wandb")
        result = self._module.setup().settings
        # Without a key it would ask a terminal for one, and wait.
        if not result.api_key and result.mode != "offline":
            _warn("WANDB_API_KEY is not set")
            return
        self._run = self._module.init(
            project=project,
            name=name,
            dir=str(folder),
            config=dict(settings),
            id=self.id or None,
            resume="allow",
            settings=self._module.Settings(init_timeout=_SECONDS, silent=True),
        )
        self.id = str(self._run.id)

    def write(self, line: Line) -> None:
        """Send the numbers, or the texts, of a line. Steps that the service has, from before a resume, are not sent."""
        if self._run is None:
            return
        if line["kind"] == "sample":
            self._try(lambda: self._send(line["step"], {"samples": self._table(line)}))
        elif line["kind"] != "event":
            numbers = {tag_of(name): value for name, value in numbers_of(line).items()}
            self._try(lambda: self._send(line["step"], numbers))

    def _table(self, line: Line) -> Any:
        columns = ["condition", "prompt", "text"]
        return self._module.Table(columns=columns, data=[[item[name] for name in columns] for item in line["samples"]])

    def _send(self, step: int, values: Mapping[str, Any]) -> None:
        # Its steps only go up: it refuses others with a warning for each.
        if step >= self._run.step:
            self._run.log(dict(values), step=step)

    def close(self, *, failed: bool = False) -> None:
        """Wait for what is still to be sent."""
        if self._run is not None:
            run = self._run
            self._try(lambda: run.finish(exit_code=int(failed)))
            self._run = None

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:  # of a service that the run does not need
            self._run = None
            _warn(f"{type(error).__name__}: {error}")


def _warn(why: str) -> None:
    log.event(f"train: nothing more is sent to W&B: {why}", level=logging.WARNING)
