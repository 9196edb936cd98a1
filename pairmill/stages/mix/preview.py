"""``preview``: the table of the report in a terminal, before anything is written, to try budgets and weights."""

import io
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pairmill.engine.manifest import Ledger
from pairmill.engine.options import option
from pairmill.errors import UsageError
from pairmill.formats.task_summaries import summarize
from pairmill.mixture.config import MixtureOptions
from pairmill.mixture.counting import count, count_plain
from pairmill.mixture.inputs import open_inputs
from pairmill.mixture.methods import MethodOrNone
from pairmill.mixture.plan import Mixture
from pairmill.mixture.planned import mixture_of, sources_of, table_of
from pairmill.mixture.reading import load_mixture
from pairmill.mixture.settings import MixSettings
from pairmill.policy import in_force
from pairmill.redact import escaped
from pairmill.report.model import format_cell
from pairmill.stages.mix.report import cells, describe_epochs, describe_method, header

_AS_SET = "empty = as mix_config says"
_WIDTH = 160
"""Of what is not a terminal."""
_COLUMNS = 6
"""Of the table in a terminal, besides those of the comparison: the report has all."""


@dataclass(kw_only=True)
class PreviewConfig(MixtureOptions):
    """Print the shares, tokens and passes that a mixture would have, and write nothing."""

    method: MethodOrNone = option("", help=f"the method; {_AS_SET}, where off shows the shares as they come")
    budget: str = option("", help=f"response tokens, as in 2_000_000 or 2e9; {_AS_SET}")
    exponent: str = option("", help=f"of method exponent; {_AS_SET}")
    temperature: str = option("", help=f"of method temperature; {_AS_SET}")
    weights: list[str] = option([], help=f"as in web=3,books=1; {_AS_SET}")
    max_epochs: str = option("", help=f"passes over any source; {_AS_SET}")
    allow_unfilled: bool = option(False, help="plan less than the budget if the caps do not allow it")
    compare: str = option("", help="an earlier mixture to show beside this one; empty = none")
    root: str = option("", help="project folder: by its manifests a policy knows contents under any name")


def preview(config: PreviewConfig) -> str:
    """Return the table.

    Raises:
        UsageError: options or settings are wrong, or the caps do not allow the budget.
        InputError: an input is absent, or not what it should be.
    """
    settings = _settings(config)
    with in_force(config):
        result = open_inputs(config, settings)
    earlier = load_mixture(config.compare, "compare") if config.compare else None
    counted, ledger = [], Ledger()
    plain = count_plain(result.tasks, lambda tasks, modes: summarize(tasks, modes, result.counting.options))
    for item in result.tasks:
        made, of_task = plain.get(item.task.name) or count(item, result.counting, result.codes(item))
        counted += made
        ledger.add(of_task)
    sources = sources_of(result.grouping, counted, ledger.dropped)
    mixture = mixture_of(settings, config, sources, result.inputs, result.where)
    rows = [asdict(row) for row in table_of(mixture, earlier)]
    return _printed(mixture, rows, settings, compared=earlier is not None)


def _settings(config: PreviewConfig) -> MixSettings:
    settings = MixSettings.load(config.mix_config)
    changed: dict[str, Any] = {}
    for name in ("budget", "exponent", "temperature", "max_epochs"):
        given = getattr(config, name)
        if given:
            changed[name] = _number(name, given)
    if config.weights:
        changed["weights"] = _weights(config.weights)
    if config.allow_unfilled:
        changed["allow_unfilled"] = True
    if config.method:
        changed["method"] = config.method
    elif settings.method == "off":
        changed["method"] = next((name for name in ("exponent", "temperature", "weights") if name in changed), "")
        if not changed["method"]:
            changed |= {"method": "exponent", "exponent": 1.0}
    if "method" in changed and settings.phases:
        changed["phases"] = []
    return settings.changed(**changed) if changed else settings


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(
            "not a number", where=name, got=repr(text), expected="as in 2000000, 2e6 or 2_000_000"
        ) from None


def _weights(items: Sequence[str]) -> dict[str, float]:
    result: dict[str, float] = {}
    for item in items:
        name, equals, value = item.rpartition("=")
        if not equals or not name:
            raise UsageError("not a weight", where="weights", got=repr(item), expected="source=number")
        if name in result:
            raise UsageError("given twice", where=f"weights.{name}", got=value, expected="one weight")
        result[name] = _number(f"weights.{name}", value)
    return result


def _printed(mixture: Mixture, rows: Sequence[Mapping[str, Any]], settings: MixSettings, *, compared: bool) -> str:
    lines = []
    phases = {phase.name: phase for phase in mixture.phases}
    for name in dict.fromkeys(row["phase"] for row in rows):
        some = [row for row in rows if row["phase"] == name]
        phase = phases.get(name)
        first, end = phase.epochs if phase is not None else (0, mixture.epochs)
        method = describe_method(
            settings.method if phase is None else some[0]["method"],
            [asdict(item) for item in (mixture.phases if phase is None else [phase])],
        )
        tokens = sum(row["tokens"] for row in some)
        lines.append(f"{name or 'all'}: {method}, {tokens:,.0f} response tokens, {describe_epochs(first, end)}")
        lines += _table(header(compared), cells(some, compared=compared), _COLUMNS + 2 * compared)
        lines.append("")
    if mixture.unfilled:
        lines += [f"{mixture.unfilled:,.0f} response tokens of the budget are not filled", ""]
    return "\n".join(lines[:-1]) + "\n"


def _table(head: Sequence[str], body: Sequence[Sequence[Any]], most: int) -> list[str]:
    """Columns of a terminal: as many of the first ones as it has room for, at least ``most``."""
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size((_WIDTH, 50)).columns if terminal else _WIDTH
    texts = [[escaped(format_cell(cell)) for cell in line] for line in (head, *body)]
    widths = [max(len(line[number]) for line in texts) for number in range(len(head))]
    shown = len(head)
    while shown > most and sum(widths[:shown]) + 2 * shown > width:
        shown -= 1
    out = io.StringIO()
    for line in texts:
        first, *others = (cell for cell in line[:shown])
        padded = [
            first.ljust(widths[0]),
            *(cell.rjust(wide) for cell, wide in zip(others, widths[1:shown], strict=True)),
        ]
        out.write("  ".join(padded).rstrip() + "\n")
    return out.getvalue().splitlines()
