"""``pairmill sample map path=…``: which tokens of a sampled folder are of which task."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pairmill import log, storage
from pairmill.engine import manifest as manifests
from pairmill.engine.source_names import source_of
from pairmill.errors import UsageError
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_folder import folder_of
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.report.model import Table
from pairmill.rules.book import Rules
from pairmill.stages.sample.inventory.pages import as_markdown
from pairmill.stages.sample.mapped.config import MapConfig
from pairmill.stages.sample.mapped.spans import Spans

NAME = "tasks.parquet"


def map_folder(config: MapConfig) -> str:
    """Write the map, and return its sums by source.

    Raises:
        UsageError: the tokenized folder has to be named.
        InputError: it is not the one that was sampled from, or a folder is absent or damaged.
    """
    spans = spans_of(config.path, config.tokenized_path, config.tasks)
    compared = spans.probe(config.probes) if spans.tasks else 0
    given = config.prefix_config_path
    rules = Rules.load(given, "data_io", "prefix_config_path") if given else None
    known = SampleResult.from_manifest(spans.manifest).prefixes if spans.manifest is not None else {}
    sources, rows = [source_of(name) for name in spans.names], spans.rows()
    columns = {
        "task": [*spans.names],
        "source": sources,
        "first_offset": spans.firsts,
        "last_offset": spans.ends - 1,
        "rows": rows,
        "rule": [(rules.label_of(name) if rules else known.get(name)) or "" for name in spans.names],
    }
    place = storage.normalise(config.out, "out") if config.out else storage.join(spans.uri, NAME)
    with storage.store_for(place).create(place) as path:
        pq.write_table(pa.table(columns), path)
    log.event(f"map of {len(spans.names):,} tasks, {compared:,} tokens compared: {place}", file=place, tokens=compared)
    return "\n".join(as_markdown(_by_source(sources, spans, rows))) + "\n"


def spans_of(path: str, tokenized: str, tasks: str) -> Spans:
    """Return the spans of the tasks of a sampled folder.

    Raises:
        UsageError: the folder is not of pairmill's sampler, and no tokenized folder is named.
        InputError: they do not belong together.
    """
    uri = storage.normalise(path, "path")
    if storage.scheme(uri) == "file":
        uri = storage.normalise(str(folder_of(path, "path")), "path")
    manifest = manifests.read(uri)
    if manifest is not None and manifest.stage == "sample":
        return Spans.of_ours(uri, manifest)
    if not tokenized:
        hint = "tokenized_path=<the folder that data_io's sampler read>"
        raise UsageError("the folder does not say which tokens are whose", where=f"path={uri}", hint=hint)
    folder = open_tokenized(tokenized, "tokenized_path", tolerate_strays=False, tasks=tasks)
    return Spans.of_data_io(uri, folder.tasks, folder.uri)


def _by_source(sources: list[str], spans: Spans, rows: NDArray[np.int64]) -> Table:
    names, at = np.unique(np.array(sources), return_inverse=True)
    columns = (np.ones(len(at)), spans.ends - spans.firsts, rows)
    sums = [np.bincount(at.ravel(), column).astype(np.int64).tolist() for column in columns]
    lines = sorted(zip(names.tolist(), *sums, strict=True), key=lambda line: (-line[3], line[0]))
    total = int(rows.sum())
    lines.append(("all", len(at), sum(sums[1]), total))
    shown = [(*line, f"{100 * line[3] / (total or 1):.2f} %") for line in lines]
    epochs = ", ".join(map(str, spans.epochs))
    return Table("Map", ("Source", "Tasks", "Tokens", "Rows", "Share"), shown, f"Rows of epochs {epochs}.")
