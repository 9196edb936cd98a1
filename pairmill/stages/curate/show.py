"""``show``: samples of what a rule found."""

import heapq
from dataclasses import dataclass
from typing import Any

import numpy as np

from pairmill.engine.options import option
from pairmill.errors import UsageError, did_you_mean
from pairmill.fields import Checked
from pairmill.stages.curate.beside import visible
from pairmill.stages.curate.explain import ROWS_HELP, pair_of, show_pair
from pairmill.stages.curate.finished import CuratedFolder
from pairmill.stages.curate.operations import of_folder
from pairmill.stages.curate.report.wording import describe_finding, other_of, row_id
from pairmill.stages.curate.tallies import drawn

Finding = tuple[str, dict[str, Any]]
"""A task, and a decision about one of its rows."""


@dataclass(kw_only=True)
class ShowConfig(Checked):
    """Print samples of what a rule found, with both texts; the same ones every time."""

    path: str = option(help="finished folder of curate")
    rule: str = option(help="name of a rule as the report has it, as in strong or near.strong")
    n: int = option(20, help="how many samples", at_least=1)
    rows: list[str] = option([], help=ROWS_HELP)


def show(config: ShowConfig) -> str:
    """Draw samples of a rule by a hash of the row. Returns the text for the terminal.

    Raises:
        InputError: the folder is absent, unfinished or of another stage, or ``rows=`` has other rows.
        UsageError: the rule is unknown.
    """
    folder = CuratedFolder.open(config.path)
    folder.refuse_other_rows(config.rows)
    operation, rule = _rule_of(folder, config.rule)
    total, drawn = _draw(folder, operation, rule, config.n)
    wanted = {(task, item["ordinal"]) for task, item in drawn}
    wanted |= {(item["other_task"], item["other_ordinal"]) for _, item in drawn if item["other_task"]}
    texts = folder.texts(wanted, config.rows)
    owner = of_folder(operation)
    meaning = owner.describe_rule(rule)
    head = f"{operation}: {rule}" + (f", {meaning}" if meaning else "")
    parts = [visible(f"{head}. {len(drawn):,} of {total:,} findings") + "\n"]
    for number, (task, item) in enumerate(drawn, start=1):
        this = task, item["ordinal"]
        finding = describe_finding(operation, owner.describe_scores(item), item)
        parts.append(visible(f"\n{number}. {row_id(*this)} · {finding}") + "\n")
        parts.append(show_pair(pair_of(folder, this, item, texts), other_of(item)))
    return "".join(parts)


def _rule_of(folder: CuratedFolder, given: str) -> tuple[str, str]:
    """Return the operation and the rule that a name means, with or without the operation before it."""
    known = folder.result.operations
    rules = [(name, rule) for name in folder.operations() for rule in known.get(name, {}).get("rules", {})]
    result = [(name, rule) for name, rule in rules if given in (rule, f"{name}.{rule}")]
    if len(result) == 1:
        return result[0]
    names = [f"{name}.{rule}" for name, rule in rules]
    if result:
        meant = ", ".join(f"{name}.{rule}" for name, rule in result)
        raise UsageError("several operations have this rule", where="rule", got=repr(given), expected=f"one of {meant}")
    shown = ", ".join(names) or "none: no rule found a row"
    near = did_you_mean(given, [*names, *(rule for _, rule in rules)])
    raise UsageError("unknown rule", where="rule", got=repr(given), expected=shown, hint=near)


def _draw(folder: CuratedFolder, operation: str, rule: str, most: int) -> tuple[int, list[Finding]]:
    """Return how many findings there are, and those with the smallest draws: the first are the report's samples."""
    total = 0
    # The largest draw of the heap is at its top; task and number break ties, so decisions are never compared.
    heap: list[tuple[int, str, int, dict[str, Any]]] = []
    for task, batch in folder.decisions(operation, rule):
        ordinals = np.asarray(batch.column(batch.schema.get_field_index("ordinal"))).astype(np.uint64)
        draws = drawn(task, rule, ordinals)
        for index in np.argsort(draws, kind="stable")[:most].tolist():
            entry = -int(draws[index]), task, -total - index
            if len(heap) < most:
                heapq.heappush(heap, (*entry, batch.slice(index, 1).to_pylist()[0]))
            elif entry > heap[0][:3]:
                heapq.heapreplace(heap, (*entry, batch.slice(index, 1).to_pylist()[0]))
        total += len(batch)
    return total, [
        (task, decision)
        for _, task, _, decision in sorted(heap, key=lambda decision: (-decision[0], decision[1], -decision[2]))
    ]
