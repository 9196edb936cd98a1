"""``pairmill stats <folder>``: what is in any finished folder, in figures, within a second.

Rows, tokens and sources are those of the manifest, so they are exact. Lengths are measured on some rows, evenly spread,
where there are many.
"""

import importlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.options import option
from pairmill.engine.results import HeldOutRows
from pairmill.engine.source_names import source_of
from pairmill.formats.opened import OpenResult, open_result
from pairmill.formats.plan_rows import PlanRows
from pairmill.formats.results.raw import FetchResult
from pairmill.formats.results.rows import TrainTokenizerResult
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.results.tokens import MixResult, TokenizeResult
from pairmill.formats.training_results import EvaluateResult, TrainResult
from pairmill.interface import cli
from pairmill.policy.warn import warn_of_removed
from pairmill.report.charts import Histogram
from pairmill.report.model import Cell, Percent, Report, Table, format_cell
from pairmill.report.powers import bins, by_size
from pairmill.show.lines import visible

PERCENTILES: Final = (1, 5, 25, 50, 75, 95, 99, 100)
_ROWS: Final = 1 << 20
"""Rows whose lengths are measured; of more, blocks that are evenly spread."""
_PARTS: Final = 256
"""Tasks, or epochs, whose lengths are measured."""
_BAR: Final = 40


@dataclass(kw_only=True)
class StatsConfig:
    """Print rows, tokens, lengths and sources of a finished folder."""

    path: str = option(help="a finished folder or a row file, which may be given without path=")
    format: Literal["text", "json"] = option("text", help="text, or json for programs")


class Source(NamedTuple):
    """What a source has; None = there are no tokens, or they are not known."""

    name: str
    rows: int
    tokens: int | None
    response_tokens: int | None


@dataclass(frozen=True, repr=False)
class Statistics:
    """What a result has, in figures.

    Args:
        result: the folder.
        figures: by name.
        lengths: percentiles by what is measured: tokens of prompt, response and both, or bytes of texts.
        sizes: rows by length, as :func:`pairmill.report.powers.by_size` counts.
        unit: of lengths.
        measured: rows that lengths are of; fewer than there are if there are many.
        sources: those with the most tokens, or rows, first.
    """

    result: OpenResult
    figures: Mapping[str, Cell]
    lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    sizes: Sequence[int] = ()
    unit: str = "tokens"
    measured: int = 0
    sources: Sequence[Source] = ()

    def report(self) -> Report:
        """Return it as a report, for a page or a notebook."""
        result = self.result
        return Report(
            f"{result.kind}{f' of {result.stage}' if result.stage else ''}",
            dict(self.figures),
            [*self._tables(), Histogram("Rows by length", bins(list(self.sizes)), self.unit, "rows")],
            verdict=result.uri,
        )

    def text(self) -> str:
        """Return it for a terminal."""
        lines = [f"{self.result.kind} {self.result.uri}"]
        width = max(map(len, self.figures), default=0) + 2
        lines += [f"{name:{width}}{format_cell(value)}" for name, value in self.figures.items()]
        parts = ["\n".join(lines) + "\n", *(table.text() for table in self._tables())]
        bars = bins(list(self.sizes))
        most = max((count for _, count in bars), default=1)
        parts.append(
            "".join(f"{name:>12} {'█' * round(_BAR * count / most):{_BAR}} {count:,}\n" for name, count in bars)
        )
        return "\n".join(filter(None, parts))

    def __repr__(self) -> str:
        return self.text().rstrip()

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

    def json(self) -> str:
        """Return it for programs: one object."""
        value = {
            "path": self.result.uri,
            "kind": self.result.kind,
            "stage": self.result.stage,
            **{re.sub(r"\W", "_", name.lower()): cell for name, cell in self.figures.items()},
            "lengths": {
                name: dict(zip(map(str, PERCENTILES), values, strict=True)) for name, values in self.lengths.items()
            },
            "unit": self.unit,
            "measured_rows": self.measured,
            "rows_by_length": {str(2**power): count for power, count in enumerate(self.sizes) if count},
            "sources": [item._asdict() for item in self.sources],
        }
        return json.dumps(value, ensure_ascii=False) + "\n"

    def _tables(self) -> Iterator[Table]:
        if self.lengths:
            header = (f"Length in {self.unit}", *(f"{part}%" if part < 100 else "most" for part in PERCENTILES))
            rows: list[list[Cell]] = [[name, *values] for name, values in self.lengths.items()]
            yield Table(f"Lengths of {self.measured:,} rows", header, rows)
        if self.sources:
            yield _source_table(self.sources)


def _source_table(sources: Sequence[Source]) -> Table:
    rows = sum(item.rows for item in sources)
    cells: list[list[Cell]] = [[item.name, item.rows, Percent.ratio(item.rows, rows)] for item in sources]
    if any(item.tokens is None for item in sources):
        return Table("Sources", ("Source", "Rows", "Share"), cells)
    tokens = sum(item.tokens or 0 for item in sources)
    for item, row in zip(sources, cells, strict=True):
        own = item.tokens or 0
        row += [own, Percent.ratio(own, tokens), "–" if item.response_tokens is None else item.response_tokens]
    return Table("Sources", ("Source", "Rows", "Share", "Tokens", "Share of tokens", "Response tokens"), cells)


def measure(result: OpenResult) -> Statistics:
    """Return the figures of a result.

    Raises:
        InputError: the folder is damaged.
    """
    return _MEASURES.get(result.kind, _others)(result)


def _rows(result: OpenResult) -> Statistics:
    names = [name for name in result.tasks if not name.startswith(HELD_OUT)]
    every = _spread(names, _PARTS)
    lengths: dict[str, list[NDArray[np.int64]]] = {}
    reader = importlib.import_module("pairmill.formats.row_batches")  # pyarrow, which a trainer may lack
    counts: dict[str, int] = {}
    for name in every:
        for column, sizes in reader.first_lengths(result.files[name], max(1, _ROWS // 8 // len(every))):
            lengths.setdefault(column, []).append(sizes)
    if result.manifest is not None:
        counts = importlib.import_module("pairmill.lineage.steps").Step(result.stage, result.manifest).rows
    else:
        counts = {name: reader.count_rows(result.files[name]) for name in names}
    joined = {name: np.concatenate(parts) for name, parts in lengths.items()}
    if joined:
        joined["both"] = joined["instruction"] + joined["response"]
    sums = _summed({name: (count, None, None) for name, count in counts.items()})
    figures = {"Rows": sum(counts.values()), **_held_out(result), "Tasks": len(names), **_fingerprint(result)}
    return _with_lengths(Statistics(result, figures, unit="bytes of text", sources=sums), joined)


def _tokenized(result: OpenResult) -> Statistics:
    tasks = {name: task for name, task in result.datasets.items() if not name.startswith(HELD_OUT)}
    counts = {name: task.counts for name, task in tasks.items()}
    learned: dict[str, int] = {}
    if result.stage == "tokenize" and result.manifest is not None:
        pieces = TokenizeResult.from_manifest(result.manifest).pieces
        task_of = {name: task for task, names in pieces.items() for name in names}
        for name, ledger in result.manifest.shards.items():
            task = task_of.get(name, name)
            learned[task] = learned.get(task, 0) + ledger.measures.get("response_tokens", 0)
    sums = _summed({name: (rows, tokens, learned.get(name)) for name, (rows, tokens) in counts.items()})
    parts = _spread([name for name, (rows, _) in counts.items() if rows], _PARTS)
    index = [(rows.index["inst_len"], rows.index["resp_len"]) for rows in map(result.tokens, parts)]
    figures: dict[str, Cell] = {
        "Rows": sum(rows for rows, _ in counts.values()),
        **_held_out(result),
        "Tokens": sum(tokens for _, tokens in counts.values()),
        **({"Response tokens": sum(learned.values())} if learned else {}),
        "Tasks": len(tasks),
        "Vocabulary": result.info().get("vocab_size", "not known"),
        **_fingerprint(result),
    }
    return _with_lengths(
        Statistics(result, figures, sources=sums), _of_tokens([_blocks(*pair, len(index)) for pair in index])
    )


def _sampled(result: OpenResult) -> Statistics:
    drawn = SampleResult.find(result.manifest) if result.manifest is not None else None
    epochs = range(result.epochs)
    if result.kind == "plan":
        parts = list(PlanRows(result))
        orders = [(part, _block(part.order(epoch), len(epochs) * len(parts))) for part in parts for epoch in epochs]
        blocks = [(part.index[1][order], part.index[3][order]) for part, order in orders]
    else:
        rows = [result.tokens(epoch=epoch).index for epoch in epochs]
        blocks = [_blocks(item["inst_len"], item["resp_len"], len(epochs)) for item in rows]
    figures: dict[str, Cell] = {"Epochs": len(epochs), "Rows over all epochs": len(result)}
    sums: list[Source] = []
    if drawn is not None and result.manifest is not None:
        measures = result.manifest.ledger.measures
        figures |= {
            "Tokens over all epochs": measures["tokens_sampled"],
            "Response tokens": measures["response_tokens_sampled"],
            "Rows sampled": result.manifest.ledger.rows_kept,
            "Layout": drawn.layout,
        }
        counts = {
            name: (item["cov_rows"], item["cov_itoks"] + item["cov_rtoks"], item["cov_rtoks"])
            for name, item in drawn.stats.items()
        }
        sums = _summed(counts, drawn.source_of_task)
    elif all(len(item["inst_len"]) == len(block[0]) for item, block in zip(rows, blocks, strict=True)):
        figures["Tokens over all epochs"] = int(sum(int(part.sum()) for block in blocks for part in block))
    return _with_lengths(Statistics(result, {**figures, **_fingerprint(result)}, sources=sums), _of_tokens(blocks))


def _others(result: OpenResult) -> Statistics:
    """Return what the manifest of a result without rows says of it."""
    manifest, figures = result.manifest, dict[str, Cell]()
    sources: list[Source] = []
    if manifest is not None:
        if result.kind == "tokenizer":
            made = TrainTokenizerResult.from_manifest(manifest)
            named = {name.replace("_", " ").capitalize(): value for name, value in made.metrics.items()}
            figures = {"Merges": made.merges, **named}
            sources = _summed({name: (item["rows"], None, None) for name, item in made.tasks.items()})
        elif result.kind == "mixture":
            mixed = MixResult.from_manifest(manifest)
            figures = {"Method": mixed.method, "Response tokens": mixed.budget, "Epochs": mixed.epochs}
            rows = [(row["source"], row["rows"], row["tokens"]) for row in mixed.table if not row["phase"]]
            sources = [Source(name, int(count), round(tokens), round(tokens)) for name, count, tokens in rows]
        elif result.kind == "net":
            net = TrainResult.from_manifest(manifest)
            last = {name.replace("_", " "): value for name, value in net.last.items() if isinstance(value, int | float)}
            figures = {"Net": net.net, "Parameters": net.parameters, "Steps": net.steps, **last}
        elif result.kind == "fetched":
            fetched = FetchResult.from_manifest(manifest)
            figures = {"Sources": len(fetched.sources), "Bytes": manifest.ledger.measures.get("raw_bytes", 0)}
        elif result.kind == "evaluation":
            figures = {"Benchmarks": len(EvaluateResult.from_manifest(manifest).benchmarks)}
        figures["Files"] = len(manifest.files)
    return Statistics(result, {**figures, **_fingerprint(result)}, sources=sources)


_MEASURES: Final = {"rows": _rows, "tokenized": _tokenized, "plan": _sampled, "sampled": _sampled}


def _held_out(result: OpenResult) -> dict[str, Cell]:
    count = HeldOutRows.count(result.manifest) if result.manifest is not None else 0
    return {"Held-out rows": count} if count else {}


def _fingerprint(result: OpenResult) -> dict[str, Cell]:
    return {} if result.manifest is None else {"Fingerprint": result.manifest.fingerprint}


def _summed(
    counts: Mapping[str, tuple[int, int | None, int | None]], source_of_task: Mapping[str, str] | None = None
) -> list[Source]:
    """Add up counts of tasks by source; the sources with the most tokens, or rows, first."""
    sums: dict[str, list[int | None]] = {}
    for task, values in counts.items():
        own = sums.setdefault((source_of_task or {}).get(task) or source_of(task), [0, 0, 0])
        for at, value in enumerate(values):
            before = own[at]
            own[at] = None if value is None or before is None else before + value
    rows = [Source(name, rows or 0, tokens, learned) for name, (rows, tokens, learned) in sums.items()]
    return sorted(rows, key=lambda item: (-(item.tokens or 0), -item.rows, item.name))


def _spread(names: Sequence[str], most: int) -> list[str]:
    """Return at most that number of names, evenly spread."""
    return [names[at * len(names) // most] for at in range(most)] if len(names) > most else list(names)


def _block(values: NDArray[Any], parts: int) -> NDArray[Any]:
    """Return the values, or evenly spread ones if there are more than the share of one of ``parts``."""
    most = max(1, _ROWS // max(1, parts))
    return np.asarray(values if len(values) <= most else values[:: -(-len(values) // most)])


def _blocks(first: NDArray[Any], second: NDArray[Any], parts: int) -> tuple[NDArray[Any], NDArray[Any]]:
    return _block(first, parts), _block(second, parts)


def _of_tokens(blocks: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> dict[str, NDArray[np.int64]]:
    if not blocks:
        return {}
    prompt, response = (np.concatenate(part).astype(np.int64) for part in zip(*blocks, strict=True))
    return {"prompt": prompt, "response": response, "both": prompt + response}


def _with_lengths(statistics: Statistics, lengths: Mapping[str, NDArray[np.int64]]) -> Statistics:
    if not lengths or not len(lengths["both"]):
        return statistics
    shares = np.array(PERCENTILES) / 100
    return replace(
        statistics,
        lengths={name: np.quantile(values, shares, method="inverted_cdf").tolist() for name, values in lengths.items()},
        sizes=by_size(lengths["both"]).tolist(),
        measured=len(lengths["both"]),
    )


def run(config: StatsConfig) -> str:
    """Measure a result; return what is printed."""
    result = open_result(config.path)
    warn_of_removed(result)
    statistics = measure(result)
    return statistics.json() if config.format == "json" else visible(statistics.text())


main = partial(cli.run_command, "stats", cli.Command(StatsConfig, run), first="path")
