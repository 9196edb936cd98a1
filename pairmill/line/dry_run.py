"""Estimates a run: ``pairmill run … dry_run=true`` runs the line on first records of each source, twice, and scales.

What is measured is the stages themselves: CPU seconds, memory of all their processes, rows, tokens, bytes of their
folders. Each is a line over the tokens of the two samples; rows and tokens follow each source by itself, since the
first records of a small source are all of it. Footers of Parquet files say how many records a source has; of others
it follows from their bytes. Nothing stays: both samples are below a temporary folder.
"""

import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from pairmill import log, storage
from pairmill.cpu import available_cores
from pairmill.engine import manifest as manifests
from pairmill.errors import Attempts, StorageError, UsageError
from pairmill.formats import rows as row_files
from pairmill.formats.results.raw import CleanResult
from pairmill.formats.results.sample import SampleResult
from pairmill.line.checks import Wanted, require_room
from pairmill.line.measured import Memory, MemoryUsed, cpu_seconds, disk_bytes, quiet
from pairmill.line.runs import Ended
from pairmill.lineage.steps import Step
from pairmill.policy import in_force
from pairmill.report.model import Bytes, Cell, Table
from pairmill.rules.book import Rules
from pairmill.sources.files import raw
from pairmill.sources.files.card import suffix_of
from pairmill.sources.files.extracts import least
from pairmill.sources.files.raw import RawFolder
from pairmill.sources.source import Unit
from pairmill.stages.clean.core import SLICING
from pairmill.stages.clean.sink import task_of
from pairmill.stages.fetch.bring import HubFile
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.sample.node.space import require_space
from pairmill.storage import partials

FIRST: Final = 256
"""Records of each source in the first sample."""
SAMPLE_BYTES = 96 << 20
"""Bytes of raw files in the second, about: enough that work is what is measured, and not start-up."""
_ALONE: Final = 0.15
"""The part of a stage's work that one core does while the others wait."""
_DIGESTED: Final = 1 << 30
"""Bytes of given files that fetch digests in a second."""
_HELD_OUT: Final = "held out"
_JOINING: Final = "clean"
"""The task that keeps parts of large files beside what it joins of them; that takes a quarter of its work."""
_ROWS: Final = ("clean", "curate", "select", "tokenize")

Runner = Callable[[Mapping[str, Any], Callable[[Ended], None]], None]
"""Runs the line with these parameters; calls the function with each task that ended."""


@dataclass
class Estimate:
    """What a task takes, or what it took of a sample.

    Args:
        seconds: on this machine, with nothing beside it.
        cpu_seconds: of all its processes.
        rows: that it writes; None = it has none.
        tokens: that it writes; None = it has none.
        disk_bytes: below the root, shards included.
        memory_bytes: of all its processes at once, at most.
        requests: to servers.
        fetched_bytes: from servers.
    """

    stage: str
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    rows: int | None = None
    tokens: int | None = None
    disk_bytes: int = 0
    memory_bytes: int = 0
    requests: int = 0
    fetched_bytes: int = 0


@dataclass
class _Sample:
    """The line on the first records of each source.

    Attributes:
        limit: records of each source; 0 = all.
        folders: by source, its files there.
        tasks: what each task took.
        memory: by task.
        records: by source, that clean read.
        rows: by stage and source, that are left.
        tokens: by source, that were tokenized.
        drawn: by source, the rows of all epochs, their tokens, and tokens that are drawn at all.
        arrays: bytes of tokens, and of epochs.
    """

    limit: int
    folders: Mapping[str, RawFolder] = field(default_factory=dict)
    tasks: dict[str, Estimate] = field(default_factory=dict)
    memory: dict[str, MemoryUsed] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    rows: dict[str, dict[str, int]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    arrays: tuple[int, int] = (0, 0)


Records = Mapping[str, Mapping[str, float]]
"""How many records a source has, by its name and the output that they go to."""


def estimate(values: Mapping[str, Any], wanted: Wanted, runner: Runner) -> dict[str, Any]:
    """Return what a run takes, JSON-like: ``tasks``, ``total``, ``arrays_bytes``, ``records``, ``measured``.

    Args:
        values: the parameters.
        wanted: the sources, with their raw files if these are there.
        runner: runs the line.

    Raises:
        UsageError: the run has no source: finished rows and tokens are not sampled.
        RunFailure: a stage failed on the sample, as it would on the whole.
    """
    if not wanted or values["rows"]:
        raise UsageError(
            "only sources are sampled",
            where="dry_run",
            got="finished rows or tokens",
            hint="leave dry_run= out; of a tokenized folder, pairmill sample preview says what epochs have",
        )
    begun, line = time.monotonic(), _Line(values, wanted, runner)
    with tempfile.TemporaryDirectory(prefix="pairmill-dry-run-", dir=partials.scratch()) as top:
        remote, requests = line.remote(f"{top}/plan")
        first = second = line.measure(least(FIRST, values["limit"]), Path(top, "first"))
        limit = line.second_limit(line.records(first, remote), first)
        if limit != first.limit:
            second = line.measure(limit, Path(top, "second"))
        records = line.records(second, remote)
        made, arrays = line.scaled(records, first, second)
    made["fetch"].requests = requests
    made["fetch"].fetched_bytes = sum(size for sizes in remote.values() for size in sizes.values())
    every = list(made.values())
    total = {
        name: round(sum(getattr(item, name) for item in every), 1)
        for name in ("seconds", "cpu_seconds", "disk_bytes", "requests", "fetched_bytes")
    }
    return {
        "tasks": [asdict(item) for item in every],
        "total": {**total, "memory_bytes": max(item.memory_bytes for item in every)},
        "arrays_bytes": arrays,
        "records": {name: round(sum(units.values())) for name, units in records.items()},
        "measured": {"records_of_each_source": second.limit, "seconds": round(time.monotonic() - begun, 1)},
    }


def refuse_too_large(values: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Refuse a run whose results do not fit, by its estimate.

    Raises:
        StorageError, Refusals: there is too little room for the results, for the arrays, or too little memory.
    """
    attempts, total = Attempts(), made["total"]
    if storage.scheme(values["root"]) == "file":
        with attempts.each():
            require_room(storage.local_path(values["root"]), total["disk_bytes"])
    with attempts.each():
        if made["arrays_bytes"]:
            require_space(storage.local_path(values["output_path"]), made["arrays_bytes"], 0)
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with attempts.each():
        if total["memory_bytes"] > there:
            most = max(made["tasks"], key=lambda item: item["memory_bytes"])
            raise StorageError(
                "too little memory",
                where=most["stage"],
                got=f"{there:,} bytes on this machine",
                expected=f"about {total['memory_bytes']:,} bytes",
                hint="run it where there is more, or with fewer cores (taskset -c 0 pairmill run …)",
            )
    attempts.refuse()


def table(made: Mapping[str, Any]) -> str:
    """Write an estimate for people."""
    columns: dict[str, Callable[[Mapping[str, Any]], Cell]] = {
        "stage": lambda item: item["stage"],
        "minutes": lambda item: f"{item['seconds'] / 60:.1f}",
        "rows": lambda item: "" if item.get("rows") is None else item["rows"],
        "tokens": lambda item: "" if item.get("tokens") is None else item["tokens"],
        "disk": lambda item: Bytes(item["disk_bytes"]),
        "memory": lambda item: Bytes(item["memory_bytes"]),
        "requests": lambda item: item["requests"] or "",
        "fetched": lambda item: Bytes(item["fetched_bytes"]) if item["fetched_bytes"] else "",
    }
    items = [*made["tasks"], {**made["total"], "stage": "all"}]
    shown = {name: cells for name, cell in columns.items() if any(cells := [cell(item) for item in items])}
    text = Table("", list(shown), list(zip(*shown.values(), strict=True))).text()
    count, seconds = made["measured"]["records_of_each_source"], made["measured"]["seconds"]
    what = f"the first {count:,} records of each source" if count else "all of it"
    arrays = f"\n  arrays: {Bytes(made['arrays_bytes'])} in output_path\n" if made["arrays_bytes"] else ""
    return indent(text, "  ") + f"{arrays}\n  measured on {what} in {seconds:.0f} s; nothing was left behind\n"


@dataclass(frozen=True)
class _Line:
    """The line with these parameters on these sources."""

    values: Mapping[str, Any]
    wanted: Wanted
    runner: Runner

    def measure(self, limit: int, top: Path) -> _Sample:
        """Run the line on the first records of each source, and measure it."""
        log.event(f"dry run: {f'the first {limit:,} records' if limit else 'all records'} of each source")
        arrays = top / "arrays"
        here = {"root": str(top / "root"), "limit": limit}
        here["output_path"] = str(arrays) if self.values["output_path"] else ""
        sample, folders = _Sample(limit), dict[str, str]()
        used = cpu_seconds()
        with Memory() as memory, quiet(top):

            def ended(item: Ended) -> None:
                nonlocal used
                now = cpu_seconds()
                name = _HELD_OUT if item.stage in sample.tasks else item.stage
                sample.memory[name] = memory.take()
                sample.tasks[name] = Estimate(name, item.seconds, now - used)
                folders[name], used = item.folder, now

            self.runner({**self.values, **here}, ended)
        for name, folder in folders.items():
            sample.tasks[name].disk_bytes = disk_bytes(Path(folder).parent) if name != _HELD_OUT else 0
        if limit or not self._is_here:
            sample.tasks["fetch"].disk_bytes += disk_bytes(top / "root" / "raw")
        sample.folders = raw.index(folders["fetch"]) or {}
        self._count(sample, {name: folder for name, folder in folders.items() if name != _HELD_OUT})
        if arrays.is_dir():
            tokens = (arrays / "tokens.npy").stat().st_size if (arrays / "tokens.npy").exists() else 0
            sample.arrays = tokens, disk_bytes(arrays) - tokens
        return sample

    def _count(self, sample: _Sample, folders: Mapping[str, str]) -> None:
        """Take from the manifests what is left of each source."""
        made = {name: manifests.read(folder) for name, folder in folders.items()}
        steps = {name: Step(name, manifest) for name, manifest in made.items() if manifest is not None}
        result = CleanResult.from_manifest(steps["clean"].manifest)
        sample.records = {name: item["ledger"]["rows_in"] for name, item in result.sources.items()}
        prefixes = sorted(
            (
                (task_of(unit.output.partition("{}")[0]), name)
                for name in self.wanted
                for unit in self._units(name, sample)
            ),
            key=lambda item: -len(item[0]),
        )

        def by_source(counts: Mapping[str, int]) -> dict[str, int]:
            sums = dict.fromkeys(self.wanted, 0)
            for task, count in counts.items():
                owner = next((name for prefix, name in prefixes if task.startswith(prefix)), None)
                if owner is not None:
                    sums[owner] += count
            return sums

        sample.rows = {name: by_source(step.rows) for name, step in steps.items() if name in _ROWS}
        ledgers = steps["tokenize"].ledgers
        sample.tokens = by_source({name: ledger.measures["tokens"] for name, ledger in ledgers.items()})
        stats = SampleResult.from_manifest(steps["sample"].manifest).stats
        rows, tokens, unique = (
            by_source({name: sum(item[key] for key in keys) for name, item in stats.items()})
            for keys in (("cov_rows",), ("cov_itoks", "cov_rtoks"), ("unique_toks",))
        )
        sample.drawn = {name: (rows[name], tokens[name], unique[name]) for name in rows}

    @property
    def _is_here(self) -> bool:
        """Whether no source has to be fetched."""
        return all(folder is not None for _, folder in self.wanted.values())

    def _units(self, name: str, sample: _Sample) -> list[Unit]:
        source, there = self.wanted[name]
        folder = there or sample.folders[name]
        return source.units(folder.listed(), folder.card(), self.values["profile"], source.options())

    def remote(self, root: str) -> tuple[dict[str, dict[str, int]], int]:
        """Return bytes by path of what fetch would bring, by source, and how many requests that takes."""
        missing = [name for name, (_, folder) in self.wanted.items() if folder is None]
        if not missing:
            return {}, 0
        named = [item for item in self.values["sources"].split(",") if item not in ("", "all")]
        policy = {name: self.values[name] for name in ("policy", "policy_on")}
        config = FetchConfig(root=root, sources=named or missing, raw=self.values["raw"] if named else "", **policy)
        with in_force(config):
            shards = Fetch().plan(config).shards
        result: dict[str, dict[str, int]] = {name: {} for name in missing}
        for shard in shards:
            if shard.source in result:
                result[shard.source][shard.file.path if isinstance(shard, HubFile) else shard.name] = shard.size
        return result, len(shards) + 2 * len(missing)  # the commit and the list of each

    def records(self, sample: _Sample, remote: Mapping[str, Mapping[str, int]]) -> Records:
        """Return how many records each source has in the whole."""
        result: dict[str, dict[str, float]] = {}
        for name, (source, there) in self.wanted.items():
            sizes = remote.get(name, {}) if there is None else there.sizes
            units, read = self._units(name, sample), sample.folders[name].sizes
            paths = {path for unit in units for path in unit.files}
            density = sum(read[path] for path in read.keys() & paths) / max(1, sample.records.get(name, 0))
            counted: dict[str, float] = dict.fromkeys((unit.output for unit in units if unit.files), 0.0)
            for path, output in ((path, unit.output) for unit in units for path in unit.files):
                if source.whole_files:
                    counted[output] += 1
                elif there is not None and suffix_of(path) == ".parquet":
                    counted[output] += row_files.count(there.uri_of(path))
                else:
                    counted[output] += sizes.get(path, 0) / max(density, 1e-9)
            if not any(counted.values()):  # of an archive, and of a server's rows, bytes at most are known
                whole = sum(sizes.values()) / max(density, 1e-9) or float(sample.records.get(name, 0))
                counted = {output: whole / len(counted) for output in counted}
            left = float(self.values["limit"] or math.inf)
            for output, count in counted.items():
                counted[output] = min(count, left)
                left -= counted[output]
            result[name] = counted
        return result

    def second_limit(self, records: Records, first: _Sample) -> int:
        """Return how many records of each source the second sample has; 0 = all."""
        whole = {name: sum(units.values()) for name, units in records.items()}
        size = {name: sum(first.folders[name].sizes.values()) / max(1, first.records.get(name, 0)) for name in whole}
        wanted, most = first.limit, max(whole.values())
        if most <= wanted:
            return wanted
        while wanted < most and sum(min(wanted, whole[name]) * size[name] for name in whole) < SAMPLE_BYTES:
            wanted *= 2
        return wanted if wanted < most else int(self.values["limit"])

    def scaled(self, records: Records, first: _Sample, second: _Sample) -> tuple[dict[str, Estimate], int]:
        """Return what each task takes of the whole, and bytes of the arrays."""
        most = max(sum(units.values()) for units in records.values())
        is_whole = second.limit == self.values["limit"] or most <= second.limit
        factors = {
            name: 1.0 if is_whole else sum(units.values()) / max(1, second.records.get(name, 0))
            for name, units in records.items()
        }
        were, are = sum(first.tokens.values()), sum(second.tokens.values())
        whole = sum(count * factors[name] for name, count in second.tokens.items())
        further = (whole - are) / (are - were) if are > were else 0.0
        cores, made, cut = available_cores(), {}, self._cut_share(records, second)
        for name, task in second.tasks.items():
            before = first.tasks[name]
            joined = cut if name == _JOINING else 0.0
            cpu = max(0.0, task.cpu_seconds - before.cpu_seconds) * further * (1 + joined / 4)
            # A vocabulary is full soon.
            growth = 0.0 if name == "train_tokenizer" else further * (1 + joined)
            made[name] = Estimate(
                name,
                round(task.seconds + cpu * (_ALONE + (1 - _ALONE) / cores), 2),
                round(task.cpu_seconds + cpu, 2),
                disk_bytes=round(task.disk_bytes + max(0, task.disk_bytes - before.disk_bytes) * growth),
                memory_bytes=_memory(first.memory[name], second.memory[name], further, cores),
            )
            if name in second.rows:
                made[name].rows = round(sum(count * factors[source] for source, count in second.rows[name].items()))
        made["tokenize"].tokens = round(whole)
        rows, tokens, unique = self._drawn(records, second, is_whole=is_whole)
        made["sample"].rows, made["sample"].tokens = round(rows), round(tokens)
        if self._is_here and not is_whole:
            # Given files stay where they are, and are digested; those of an extract are written.
            size = sum(sum(folder.sizes.values()) for _, folder in self.wanted.values() if folder is not None)
            # The start is that of any stage: those of the sample had processes that make the extract.
            least_cpu = min(first.tasks.values(), key=lambda task: task.cpu_seconds)
            made["fetch"].seconds = round(least_cpu.seconds + size / _DIGESTED, 2)
            made["fetch"].cpu_seconds = round(least_cpu.cpu_seconds + size / _DIGESTED, 2)
            made["fetch"].disk_bytes, made["fetch"].memory_bytes = 0, second.memory["fetch"].first
        sums = [max(1, sum(item[at] for item in second.drawn.values())) for at in range(3)]
        return made, round(second.arrays[0] * unique / sums[2] + second.arrays[1] * rows / sums[0])

    def _cut_share(self, records: Records, sample: _Sample) -> float:
        """Return which share of the tokens is of tasks that are cut into slices, whose parts are written and joined."""
        cut = whole = 0.0
        for name, units in records.items():
            read = max(1, sample.records.get(name, 0))
            size = sum(sample.folders[name].sizes.values()) / read
            tokens = sample.tokens[name] / read
            whole += tokens * sum(units.values())
            cut += tokens * sum(count for count in units.values() if count * size >= SLICING.open_from)
        return cut / whole if whole else 0.0

    def _drawn(self, records: Records, sample: _Sample, *, is_whole: bool) -> tuple[float, float, float]:
        """Return rows and tokens of all epochs, and tokens that are drawn at all.

        Caps of rules are those of whole tasks, of which a sample has parts; what groups share out is taken as it is
        in the sample.
        """
        sums = [0.0, 0.0, 0.0]
        if is_whole:
            for item in sample.drawn.values():
                sums = [there + count for there, count in zip(sums, item, strict=True)]
            return sums[0], sums[1], sums[2]
        rules = Rules.load(self.values["prefix_config_path"], self.values["profile"], "prefix_config_path")
        plain = "mix" not in sample.tasks and not rules.needs_solving
        for name, (rows, tokens, unique) in sample.drawn.items():
            tokenized = sample.rows["tokenize"][name]
            for output, count in records[name].items() if rows else ():
                there = drawn = count * tokenized / max(1, sample.records[name])
                if plain and "{}" not in output:
                    rule, _ = rules.match(task_of(output))
                    drawn = min(there, math.inf if rule.max_per_file is None else rule.max_per_file)
                    drawn *= rule.repeat * self.values["epochs"]
                else:
                    drawn *= rows / tokenized
                sums[0] += drawn
                sums[1] += drawn * tokens / rows
                sums[2] += min(there, drawn) * unique / tokenized
        return sums[0], sums[1], sums[2]


def _memory(first: MemoryUsed, second: MemoryUsed, further: float, cores: int) -> int:
    """Return the most bytes of a task on the whole.

    A sample has too few shards for all workers to be at work. What the first process knows of all shards grows, and by
    less than they do.
    """
    if further <= 0:
        return second.whole
    grown = max(0, second.first - first.first) * (math.sqrt(1 + further) - 1)
    return max(second.whole, round(second.first + grown + second.worker * cores))
