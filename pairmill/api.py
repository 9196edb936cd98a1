"""Pairmill in Python: stages run from their options, and results opened to look at (docs/python.md)."""

import html
import importlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from pairmill import log
from pairmill.errors import UsageError
from pairmill.formats.opened import OpenResult, open_result

_CSS: Final = {"bold": "font-weight:600", "dim": "opacity:.6", "cyan": "color:#0891b2", "green": "color:#16a34a"}
"""How a notebook draws the styles of a terminal."""


def _span(part: Any) -> str:
    text = html.escape(part.text)
    return f'<span style="{_CSS[part.style]}">{text}</span>' if part.style in _CSS else text


class Shown:
    """Lines of :mod:`pairmill.show`: plain in ``print``, coloured in a notebook."""

    def __init__(self, lines: Iterable[Any]) -> None:
        self._lines = list(lines)

    def __repr__(self) -> str:
        return "\n".join("".join(part.text for part in line) for line in self._lines).rstrip()

    def _repr_html_(self) -> str:
        lines = ("".join(map(_span, line)) for line in self._lines)
        return '<pre style="white-space:pre-wrap">' + "\n".join(lines) + "</pre>"


class Result(OpenResult):
    """A finished folder, as :class:`pairmill.formats.opened.OpenResult`; a notebook shows its figures."""

    def stats(self) -> Any:
        """Return the figures that ``pairmill stats`` prints (:class:`pairmill.stats.Statistics`)."""
        return importlib.import_module("pairmill.stats").measure(self)

    def show(self, **options: Any) -> Shown:
        """Return what ``pairmill show`` prints, with its options: ``row=["flan:17"]``, ``n=5``, ``diff=…``.

        Raises:
            UsageError, InputError: as the command.
        """
        config = importlib.import_module("pairmill.show.config").ShowConfig(path=self.uri, **options)
        return Shown(importlib.import_module("pairmill.show.command").show(config))

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as ``pairmill stats format=json`` has them."""
        value: dict[str, Any] = json.loads(self.stats().json())
        return value

    def _repr_html_(self) -> str:
        page: str = self.stats().report()._repr_html_()
        return page


def open(path: str | Path) -> Result:  # noqa: A001 - read as pairmill.open
    """Open a finished folder of any stage, or one that others made in the form of one.

    Args:
        path: a path or URI.

    Raises:
        InputError: it is not one, or it is not finished.
    """
    return _opened(open_result(path))


def run(config: Any) -> Result:
    """Run a stage in this process, with worker processes as it likes; return its result, made or reused.

    Of a sample with ``output_path`` these are the arrays, otherwise the plan.

    Args:
        config: the options, as in ``pairmill.run(pairmill.TokenizeConfig(rows=[…], tokenizer=…, root=…))``.

    Raises:
        UsageError: not the options of a stage, or not a valid option.
        PairmillError: the stage failed, as its command does.
    """
    package, _, name = type(config).__module__.rpartition(".")
    if not package.startswith("pairmill.stages.") or name != "config":
        expected = "options of a stage, such as pairmill.CleanConfig(…)"
        raise UsageError("nothing to run", where="config", got=type(config).__name__, expected=expected)
    if not log.logger().handlers:
        log.setup()
    command = importlib.import_module(f"{package}.command")
    if hasattr(command, "RUN"):  # with more around it than stages have: arrays, processes of torch
        outcome = importlib.import_module("pairmill.interface.cli").named(command.RUN)(config)
    else:
        core = vars(importlib.import_module(f"{package}.core"))
        stage = next(kind for kind in core.values() if getattr(kind, "config", None) is type(config))
        outcome = importlib.import_module("pairmill.interface.stagecli").run(stage(), config)
    arrays = getattr(config, "output_path", "").replace("{fingerprint}", str(outcome.parameters["fingerprint"]))
    return _opened(open_result(arrays or str(outcome.metadata["data"])))


def _opened(result: OpenResult) -> Result:
    return Result(result.uri, result.kind, result.stage, result.inputs)
