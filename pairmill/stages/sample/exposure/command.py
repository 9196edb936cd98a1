"""``pairmill sample exposure plan=…``: how often the rows of each source were seen."""

import csv
import io
import json
import re

import numpy as np

from pairmill import log, storage
from pairmill.errors import InputError
from pairmill.formats.tokenized_path import find_planned
from pairmill.formats.tokens import NpyWriter
from pairmill.loader.plan import STATE
from pairmill.stages.sample.exposure.config import ExposureConfig
from pairmill.stages.sample.exposure.passes import SeenRows
from pairmill.stages.sample.exposure.reading import Reading
from pairmill.stages.sample.exposure.table import lines_of, write

PASSES = "passes.npy"


def exposure(config: ExposureConfig) -> str:
    """Return the table; write the passes of each row if ``out=`` names a folder.

    Raises:
        UsageError: the plan has no such epoch or row.
        InputError: a plan, or with ``out=`` its tokenized folder, is missing or damaged.
    """
    epochs, rows = _read_upto(config.upto) if config.upto else (None, 0)
    seen = SeenRows(Reading.open(config.plan, epochs, rows, "plan").chain())
    text = write(lines_of(seen, config.group_by), config.group_by, config.format)
    if config.out:
        _keep(seen, config)
    return text


def _keep(seen: SeenRows, config: ExposureConfig) -> None:
    """Write the passes of every row of the last plan's tasks, in the order of their tokenized arrays."""
    last = seen.readings[-1]
    names = {source["key"]: source["name"] for source in last.result.sources}
    tokenized = next(ref.fingerprint for ref in last.manifest.inputs if ref.role == "tokenized")
    root = storage.parent_of(storage.parent_of(last.uri))
    tasks = find_planned(config.tokenized_path, root, tokenized, [*names.values()], digested=False)
    out = storage.normalise(config.out, "out")
    place = storage.join(out, PASSES)
    first, lines = 0, [("task", "first", "rows")]
    with storage.store_for(place).create(place) as path, NpyWriter(path, np.uint8) as passes:
        for key, task in zip(names, tasks, strict=True):
            starts = np.concatenate([np.empty(0, np.int64), *task.array("resp_start").pieces()])
            passes.append(seen.of_whole_rows(key, starts.astype(np.int64)))
            lines.append((task.name, str(first), str(len(starts))))
            first += len(starts)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    storage.store_for(out).write(storage.join(out, "tasks.csv"), text.getvalue().encode())
    log.event(f"passes of {first:,} rows of {len(tasks):,} tasks: {place}", folder=out, rows=first)


def _read_upto(text: str) -> tuple[int, int]:
    """Return the epochs and the rows of the next one that ``upto=`` says: ``<epoch>[:<row>]``, or a saved loader state.

    Raises:
        UsageError: it is neither.
        InputError: the file is not a saved state of a loader.
    """
    if parsed := re.fullmatch(r"(\d{1,9})(?::(\d{1,12}))?", text):
        return int(parsed[1]), int(parsed[2] or 0)
    uri = storage.normalise(text, "upto")
    try:
        state = json.loads(storage.store_for(uri).read(uri))
        if state["format"] != STATE:
            raise ValueError(f"format {state['format']!r}")
        return int(state["epoch"]), int(state["start_row"])
    except (ValueError, KeyError, TypeError) as error:
        hint = "save json.dumps(loader.state_dict()), or give upto=<epoch>:<row>"
        raise InputError(
            "not a saved position of a loader",
            where=f"upto={uri}",
            got=str(error),
            expected=f"format {STATE}",
            hint=hint,
        ) from error
