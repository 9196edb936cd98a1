"""``pairmill init <folder | file | hf://…>``: looks at data, and writes the description that makes rows of it."""

import json
import logging
import os
import re
import shlex
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from pairmill import address, log, storage
from pairmill.begin.columns import Column, columns_of
from pairmill.begin.draft import Draft, draft
from pairmill.begin.files import SAMPLED_RECORDS, RawFiles, files_at, files_on_hub
from pairmill.begin.sample import Sample, look
from pairmill.engine.options import option
from pairmill.errors import InputError, UsageError
from pairmill.formats.rows import Row
from pairmill.interface import cli
from pairmill.redact import escaped
from pairmill.sources.datasets import SOURCES
from pairmill.sources.language.description import Description
from pairmill.sources.language.mapped import Mapped, yaml_line
from pairmill.sources.parsed import Finding, Malformed, writable
from pairmill.sources.source import Context, checked, parse_record

_SHOWN_ROWS, _SHOWN_CHARACTERS = 3, 300
_EXAMPLE = 60
_COLUMNS = 40
_KEPT = ""


@dataclass(kw_only=True)
class InitConfig:
    """Look at data and write the YAML file by which it becomes rows; print three rows and the next command."""

    data: str = option(
        help="a folder or a file, here or in a bucket, or hf://datasets/owner/name of the Hub; may be given alone"
    )
    output: str = option("", help="the YAML file to write; empty = <name>.yaml in the working directory")
    name: str = option("", help="name of the source, of a-z 0-9 _ -; empty = after the data")
    format: str = option("", help="extension of the files to take, where there are several: jsonl, csv, …")
    confirm: bool = option(False, help="replace the YAML file if it exists")


def init(config: InitConfig) -> str:
    """Write the description; return what is printed.

    Raises:
        UsageError: the description exists, or an option is not valid.
        InputError: nothing is there that can become rows.
    """
    name = config.name or _name_of(config.data)
    output = storage.normalise(config.output or f"{name}.yaml", "output")
    store = storage.store_for(output)
    if store.exists(output) and not config.confirm:
        raise UsageError("the file exists", where=f"output={output}", hint="write confirm=true to replace it")
    place = address.parse(config.data, "data", ("dataset",))
    files = files_on_hub(place, config.format) if place else files_at(config.data, output, config.format)
    with tempfile.TemporaryDirectory(prefix="pairmill-") as scratch:
        sample = look(files, output, Path(scratch))
        columns = columns_of(sample.records)
        made = draft(columns, len(sample.records))
        made.lines = {"name": name, **files.lines, **sample.lines, **made.lines}
        text = writable("\n".join([*_about(config.data, files, sample, columns), *_entries(made), ""]))
        source = Mapped(Description(output, text.encode(), None if place else files.raw), SOURCES)
        rows, counts, finding = _rows(source, sample)
    if not rows:
        raise _no_rows(counts, finding, columns)
    for warning in (*files.remarks, *sample.remarks, *made.warnings):
        log.event(writable(f"init: {warning}"), level=logging.WARNING)
    store.write(output, text.encode())
    return "\n".join([f"{output}\n", *_printed(rows, counts), _next(output, files), ""])


def _name_of(data: str) -> str:
    last = data.rstrip("/").rsplit("/", 1)[-1].partition("@")[0]
    name = re.sub(r"[^a-z0-9]+", "_", last.partition(".")[0].lower()).strip("_")[:60] or "own"
    return f"{name}_own" if name in {*SOURCES, "all"} else name


def _about(data: str, files: RawFiles, sample: Sample, columns: Sequence[Column]) -> Iterator[str]:
    """Yield comments on what was found."""
    count, pieces, size = len(files.sizes), len(sample.pieces), sum(files.sizes.values())
    rows = "" if sample.rows is None else f", {'about ' if sample.is_estimate else ''}{sample.rows:,} records"
    looked = len(sample.records) + sum(sample.faults.values())
    yield f"# Written by pairmill init {shlex.quote(data)}. Every line may be changed: docs/sources.md."
    yield f"# {count:,} file{'s' * (count != 1)}{', ' + files.kind[1:] if files.kind else ''}, {size:,} bytes{rows}."
    yield f"# Looked at: {looked:,} records of {pieces} file{'s' * (pieces != 1)}."
    if sample.faults:
        yield f"# Not readable: {', '.join(f'{count:,} {reason}' for reason, count in sample.faults.most_common())}."
    yield "#"
    width = min(max([len(column.path) for column in columns[:_COLUMNS]] + [6]), _EXAMPLE)
    yield f"# {'column':{width}}  {'holds':14}  filled  characters: mean, longest  example"
    for column in columns[:_COLUMNS]:
        share = f"{100 * column.filled // max(1, len(sample.records))} %"
        length = f"{column.mean():,}, {column.longest:,}" if column.longest else ""
        example = column.example if len(column.example) <= _EXAMPLE else column.example[: _EXAMPLE - 1] + "…"
        yield _comment(f"{column.path:{width}}  {column.kind or 'null':14}  {share:>6}  {length:25}  {example}")
    if len(columns) > _COLUMNS:
        yield f"# and {len(columns) - _COLUMNS:,} further ones"
    yield ""


def _entries(made: Draft) -> Iterator[str]:
    for key, value in made.lines.items():
        notes = made.notes.get(key, [])
        yield from map(_comment, notes)
        yield f"{key}: {_flow(value)}" if not isinstance(value, str) else yaml_line(key, value)
    yield from map(_comment, made.notes.get("", []))
    if "licence" not in made.lines:
        yield "# what the inventory, and the card of a published result, say:"
        yield "# licence: CC-BY-4.0"


def _flow(value: Any) -> str:
    """Return a list or a mapping of texts as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return _flow(value[0]) if len(value) == 1 else "[" + ", ".join(map(_flow, value)) + "]"
    line = yaml_line("", str(value)).removeprefix(": ")
    return line if line[0] == '"' or not re.search(r"[^\w./ -]", line) else json.dumps(line, ensure_ascii=False)


def _comment(text: str) -> str:
    """Return a line of comment: names in data may have line breaks, and would write entries."""
    return f"# {escaped(' '.join(text.splitlines()))}".rstrip()


def _rows(source: Mapped, sample: Sample) -> tuple[list[Row], Counter[str], Finding]:
    """Return the first rows that the records make, what became of the records, and what is wrong with the first one
    that is malformed."""
    rows: list[Row] = []
    counts: Counter[str] = Counter()
    finding = Finding("")
    context = Context("pairmill")
    for piece in sample.pieces:
        reading: Any = source.read(piece, "pairmill")
        with closing(reading):
            for _, record in islice(reading, SAMPLED_RECORDS):
                made, drops = checked(parse_record(source, record, context), "pairmill", documents=source.documents)
                why = drops[0] if drops and not made else None
                counts[why.reason if why else _KEPT] += 1
                if isinstance(why, Malformed) and not isinstance(record, Malformed) and not finding.found:
                    finding = source.explain(record, why)
                rows += [row for _, row in made[: _SHOWN_ROWS - len(rows)]]
    return rows, counts, finding


def _no_rows(counts: Counter[str], finding: Finding, columns: Sequence[Column]) -> InputError:
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common())
    return InputError(
        "no record makes a row",
        where="data",
        got=writable(f"{reasons or 'no record'}; columns {', '.join(column.path for column in columns[:_COLUMNS])}"),
        expected="texts named question and answer, messages, or text",
        hint=writable(f"write in a YAML file (docs/sources.md): {finding.write}")
        if finding.write
        else "see docs/sources.md",
    )


def _printed(rows: Sequence[Row], counts: Counter[str]) -> Iterator[str]:
    """Yield the rows, and what became of all records that were looked at."""
    for number, row in enumerate(rows, 1):
        yield f"row {number}" + (f"  [{row.condition}]" if row.condition else "")
        for name, text in (("instruction", row.instruction), ("response", row.response)):
            if text:
                short = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]} … ({len(text):,})"
                yield f"  {name:11}  " + textwrap.indent(escaped(short), " " * 15).lstrip()
        yield ""
    lost = ", ".join(f"{count:,} {reason}" for reason, count in counts.most_common() if reason != _KEPT)
    yield f"{counts[_KEPT]:,} of {counts.total():,} records make rows{f'; {lost}' if lost else ''}. Next:\n"


def _next(output: str, files: RawFiles) -> str:
    """Return the command that goes on from here."""
    here = os.path.relpath(output) if storage.scheme(output) == "file" else output
    given = [f"raw={files.raw}"] if files.raw else []
    options = [f"sources={output if here.startswith('..') else here}", *given, "root=build", "output_path=build/epochs"]
    return f"  pairmill run {' '.join(map(shlex.quote, options))}"


main = partial(cli.run_command, "init", cli.Command(InitConfig, init), first="data")
