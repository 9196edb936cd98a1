"""Estimates a run: ``pairmill run … dry_run=true`` runs the line on the first records of each source, twice, and scales.

What is measured is the stages themselves: CPU seconds, memory of all their processes, rows, tokens, bytes of their
folders. Each is a line over the tokens of the two samples; rows and tokens follow each source by itself, since the first
records of a small source are all of it. How many records a source has is counted in the footers of Parquet files, and
follows from bytes in others. Nothing stays: both samples are below a temporary folder.
"""

from __future__ import annotations

import math
import os
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from pairmill import log, storage
from pairmill.cpu import available_cores
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.errors import Attempts, StorageError, UsageError
from pairmill.formats import rows as row_files
from pairmill.formats.results import CleanResult, SampleResult
from pairmill.line.runs import Ended
from pairmill.lineage.steps import Step
from pairmill.policy.enforce import in_force
from pairmill.rules.book import Rules
from pairmill.sources.files import raw
from pairmill.sources.files.card import suffix_of
from pairmill.sources.files.raw import RawFolder
from pairmill.sources.source import Source
from pairmill.stages.clean.sink import task_of
from pairmill.stages.fetch.bring import HubFile
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.sample.node.space import require_space
from pairmill.storage import partials

FIRST: Final = 256
"""Records of each source in the first sample."""
SAMPLE_BYTES: Final = 48 << 20
"""Bytes of raw files in the second, about: enough that work, not start-up, is what is measured."""
_ALONE: Final = 0.15
"""The part of the work of a stage that one core does while others wait."""
_DIGESTED: Final = 1 << 30
"""Bytes of given files that fetch digests in a second."""
_PAUSE: Final = 0.05

Runner = Callable[[Mapping[str, Any], Callable[[Ended], None]], None]
"""Runs the line with these parameters; calls the function with each task that ended."""


@dataclass
class Estimate:
    """What a task takes, or what it took of a sample.

    Args:
        stage: of the task.
        seconds: on this machine.
        cpu_seconds: of all its processes.
        rows: that it writes; None = it has none.
        tokens: that it writes; None = it has none.
        disk_bytes: below the root, shards included.
        memory_bytes: of all its processes at once, at most.
        processes: that were alive then.
        worker_bytes: memory of the largest but one.
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
    processes: int = 0
    worker_bytes: int = 0
    requests: int = 0
    fetched_bytes: int = 0


@dataclass
class _Sample:
    """The line on the first records of each source.

    Attributes:
        limit: records of each source; 0 = all.
        tasks: what each task took.
        counts: by stage and source, rows that are left.
        tokens: by source.
        drawn: by source, rows and tokens of all epochs for each row that was tokenized, unique tokens for each, too.
        records: by source, that clean read.
        folders: by source, its extract.
        token_bytes: of the arrays of tokens, and of the epochs.
    """

    limit: int
    tasks: dict[str, Estimate] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    folders: Mapping[str, RawFolder] = field(default_factory=dict)
    array_bytes: tuple[int, int] = (0, 0)


def estimate(
    values: Mapping[str, Any], wanted: Mapping[str, tuple[Source, RawFolder | None]], runner: Runner
) -> dict[str, Any]:
    """Return what a run takes: ``tasks``, ``total``, ``arrays_bytes`` and what was measured, JSON-like.

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
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pairmill-dry-run-", dir=partials.scratch()) as top:
        remote, requests = _remote(values, wanted, f"{top}/plan")
        first = _measure(values, wanted, FIRST, Path(top, "first"), runner)
        records = _records(wanted, remote, first, values)
        limit = _limit(records, first, values["limit"])
        second = first if limit == FIRST else _measure(values, wanted, limit, Path(top, "second"), runner)
        records = _records(wanted, remote, second, values)
    made = _scaled(values, wanted, records, first, second)
    made["fetch"].requests = requests
    made["fetch"].fetched_bytes = sum(size for sizes in remote.values() for size in sizes.values())
    tokens, epochs = _arrays(values, wanted, records, second)
    return {
        "tasks": [asdict(item) for item in made.values()],
        "total": {
            "seconds": round(sum(item.seconds for item in made.values()), 1),
            "cpu_seconds": round(sum(item.cpu_seconds for item in made.values()), 1),
            "disk_bytes": sum(item.disk_bytes for item in made.values()),
            "memory_bytes": max(item.memory_bytes for item in made.values()),
            "requests": requests,
            "fetched_bytes": made["fetch"].fetched_bytes,
        },
        "arrays_bytes": tokens + epochs if values["output_path"] else 0,
        "records": {name: sum(units.values()) for name, units in records.items()},
        "measured": {"records_of_each_source": second.limit, "seconds": round(time.monotonic() - begun, 1)},
    }


def refuse_too_large(values: Mapping[str, Any], made: Mapping[str, Any]) -> None:
    """Refuse a run whose results do not fit, by its estimate.

    Raises:
        StorageError, Refusals: there is too little room for the results, for the arrays, or too little memory.
    """
    attempts, total = Attempts(), made["total"]
    if storage.scheme(values["root"]) == "file":
        root = storage.local_path(values["root"])
        existing = next(path for path in (root, *root.parents) if path.exists())
        system = os.statvfs(existing)
        free = system.f_bavail * system.f_frsize
        with attempts.each():
            if total["disk_bytes"] > free:
                raise StorageError(
                    "no space left for the results",
                    where=f"root={root}",
                    got=f"{free:,} bytes free in {existing}",
                    expected=f"about {total['disk_bytes']:,} bytes",
                    hint="free space, or write root=<a folder of a larger disk>",
                )
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
    header = ("stage", "minutes", "rows", "tokens", "disk", "memory", "requests", "fetched")
    lines = [
        (
            item["stage"],
            f"{item['seconds'] / 60:.1f}",
            "" if item["rows"] is None else f"{item['rows']:,}",
            "" if item["tokens"] is None else f"{item['tokens']:,}",
            _size(item["disk_bytes"]),
            _size(item["memory_bytes"]),
            f"{item['requests']:,}" if item["requests"] else "",
            _size(item["fetched_bytes"]) if item["fetched_bytes"] else "",
        )
        for item in made["tasks"]
    ]
    total = made["total"]
    lines.append(
        (
            "all",
            f"{total['seconds'] / 60:.1f}",
            "",
            "",
            _size(total["disk_bytes"]),
            _size(total["memory_bytes"]),
            "",
            "",
        )
    )
    used = [at for at, name in enumerate(header) if any(line[at] for line in lines)]
    widths = {at: max(len(line[at]) for line in (header, *lines)) for at in used}
    text = "".join(
        "  " + "  ".join(f"{line[at]:{'<' if at == 0 else '>'}{widths[at]}}" for at in used).rstrip() + "\n"
        for line in (header, *lines)
    )
    if made["arrays_bytes"]:
        text += f"\n  arrays: {_size(made['arrays_bytes'])} in output_path\n"
    measured = made["measured"]
    what = (
        f"the first {measured['records_of_each_source']:,} records of each source"
        if measured["records_of_each_source"]
        else "a whole run"
    )
    return f"{text}\n  measured on {what} in {measured['seconds']:.0f} s; nothing was left behind\n"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if count >= 10 or unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


# --- samples ----------------------------------------------------------------------------------------------------------


def _measure(
    values: Mapping[str, Any],
    wanted: Mapping[str, tuple[Source, RawFolder | None]],
    limit: int,
    top: Path,
    runner: Runner,
) -> _Sample:
    """Run the line on the first records of each source, and measure it."""
    log.event(f"dry run: the line on {f'the first {limit:,} records' if limit else 'all records'} of each source")
    arrays = top / "arrays"
    here = {"root": str(top / "root"), "limit": limit, "output_path": str(arrays) if values["output_path"] else ""}
    sample, folders = _Sample(limit), dict[str, str]()
    used = _cpu()
    with _Memory() as memory, _quiet(top):

        def ended(item: Ended) -> None:
            nonlocal used
            now = _cpu()
            name = "held out" if item.stage in sample.tasks else item.stage
            most, processes, worker = memory.take()
            sample.tasks[name] = Estimate(
                name, item.seconds, now - used, memory_bytes=most, processes=processes, worker_bytes=worker
            )
            folders[name] = item.folder
            used = now

        runner({**values, **here}, ended)
    for name, task in sample.tasks.items():
        task.disk_bytes = _disk(Path(folders[name]).parent) if name != "held out" else 0
    if limit or any(folder is None for _, folder in wanted.values()):
        sample.tasks["fetch"].disk_bytes += _disk(top / "root" / "raw")
    made = {name: _read(folder) for name, folder in folders.items() if name not in ("held out", "train")}
    sample.folders = raw.index(folders["fetch"]) or {}
    result = CleanResult.from_manifest(made["clean"])
    sample.records = {name: item["ledger"]["rows_in"] for name, item in result.sources.items()}
    owner = _Owner(wanted, sample.folders, values["profile"])
    for name in ("clean", "curate", "select", "tokenize"):
        if name in made:
            sample.counts[name] = owner.add_up(Step(name, made[name]).rows)
    sample.tokens = owner.add_up({name: item.measures["tokens"] for name, item in made["tokenize"].shards.items()})
    stats = SampleResult.from_manifest(made["sample"]).stats
    columns = [
        owner.add_up({name: item["cov_rows"] for name, item in stats.items()}),
        owner.add_up({name: item["cov_itoks"] + item["cov_rtoks"] for name, item in stats.items()}),
        owner.add_up({name: item["unique_toks"] for name, item in stats.items()}),
    ]
    sample.drawn = {name: (columns[0][name], columns[1][name], columns[2][name]) for name in columns[0]}
    if arrays.is_dir():
        tokens = (arrays / "tokens.npy").stat().st_size if (arrays / "tokens.npy").exists() else 0
        sample.array_bytes = tokens, _disk(arrays) - tokens
    return sample


def _read(folder: str) -> Manifest:
    made = manifests.read(folder)
    assert made is not None
    return made


class _Owner:
    """Which source the task of a row is of, by the names that its units give to tasks."""

    def __init__(
        self,
        wanted: Mapping[str, tuple[Source, RawFolder | None]],
        folders: Mapping[str, RawFolder],
        profile: Any,
    ) -> None:
        self._prefixes: list[tuple[str, str]] = []
        for name, (source, there) in wanted.items():
            folder = there or folders[name]
            for unit in source.units(folder.listed(), folder.card(), profile, source.options()):
                head, _, _ = unit.output.partition("{}")
                self._prefixes.append((task_of(head) or head, name))
        self._prefixes.sort(key=lambda item: -len(item[0]))

    def add_up(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Add up counts of tasks by source."""
        result: dict[str, int] = {}
        for task, count in counts.items():
            name = next((name for prefix, name in self._prefixes if task.startswith(prefix)), None)
            if name is not None:
                result[name] = result.get(name, 0) + count
        return result


# --- the whole ---------------------------------------------------------------------------------------------------------


def _remote(
    values: Mapping[str, Any], wanted: Mapping[str, tuple[Source, RawFolder | None]], root: str
) -> tuple[dict[str, dict[str, int]], int]:
    """Return bytes by path of the files that fetch would bring, by source, and how many requests that takes."""
    missing = [name for name, (_, folder) in wanted.items() if folder is None]
    if not missing:
        return {}, 0
    given = [item for item in values["sources"].split(",") if item]
    config = FetchConfig(
        root=root, sources=given, raw=values["raw"], policy=values["policy"], policy_on=values["policy_on"]
    )
    with in_force(config):
        shards = Fetch().plan(replace(config, sources=missing) if "all" in given else config).shards
    result: dict[str, dict[str, int]] = {name: {} for name in missing}
    for shard in shards:
        if shard.source in result:
            path = shard.file.path if isinstance(shard, HubFile) else shard.name
            result[shard.source][path] = shard.size
    return result, len(shards) + len(missing)


def _records(
    wanted: Mapping[str, tuple[Source, RawFolder | None]],
    remote: Mapping[str, Mapping[str, int]],
    sample: _Sample,
    values: Mapping[str, Any],
) -> dict[str, dict[str, float]]:
    """Return how many records each task of each source has, by output."""
    result: dict[str, dict[str, float]] = {}
    for name, (source, there) in wanted.items():
        known = there or sample.folders[name]
        sizes = there.sizes if there is not None else remote.get(name, {})
        extract = sample.folders[name]
        units = source.units(known.listed(), known.card(), values["profile"], source.options())
        read = {path for unit in units for path in unit.files}
        size = sum(extract.sizes[path] for path in extract.sizes.keys() & read)
        density = size / max(1, sample.records.get(name, 0))
        counted: dict[str, float] = {}
        for unit in units:
            for path in unit.files:
                if source.whole_files:
                    count = 1.0
                elif there is not None and suffix_of(path) == ".parquet":
                    count = row_files.count(there.uri_of(path))
                else:
                    count = sizes.get(path, 0) / max(density, 1e-9)
                counted[unit.output] = counted.get(unit.output, 0.0) + count
        if not any(counted.values()) and sizes:  # archives, and the rows of a server: all that is known is bytes
            counted = dict.fromkeys(counted, sum(sizes.values()) / max(density, 1e-9) / max(1, len(counted)))
        result[name] = _at_most(counted or {"": float(sample.records.get(name, 0))}, values["limit"])
    return result


def _at_most(counted: Mapping[str, float], limit: int) -> dict[str, float]:
    left, result = float(limit or math.inf), {}
    for output, count in counted.items():
        result[output] = min(count, left)
        left -= result[output]
    return result


def _limit(records: Mapping[str, Mapping[str, float]], first: _Sample, limit: int) -> int:
    """Return how many records of each source the second sample has; 0 = all."""
    whole = {name: sum(units.values()) for name, units in records.items()}
    size = {name: sum(first.folders[name].sizes.values()) / max(1, first.records.get(name, 0)) for name in whole}
    most = max(whole.values())
    wanted = FIRST
    while wanted < most and sum(min(wanted, whole[name]) * size[name] for name in whole) < SAMPLE_BYTES:
        wanted *= 2
    if wanted < most:
        return wanted
    return limit


def _scaled(
    values: Mapping[str, Any],
    wanted: Mapping[str, tuple[Source, RawFolder | None]],
    records: Mapping[str, Mapping[str, float]],
    first: _Sample,
    second: _Sample,
) -> dict[str, Estimate]:
    """Return what each task takes of the whole."""
    factors = {name: sum(units.values()) / max(1, second.records.get(name, 0)) for name, units in records.items()}
    if not second.limit or second.limit == values["limit"]:
        factors = dict.fromkeys(factors, 1.0)
    work = [sum(first.tokens.values()), sum(second.tokens.values())]
    whole = sum(count * factors[name] for name, count in second.tokens.items())
    further = (whole - work[1]) / (work[1] - work[0]) if work[1] > work[0] else 0.0
    cores = available_cores()
    made = {}
    for name, task in second.tasks.items():
        before = first.tasks[name]
        cpu = max(0.0, task.cpu_seconds - before.cpu_seconds) * further
        more = max(0, cores - max(1, task.processes - 1)) if further > 0.5 else 0
        made[name] = Estimate(
            name,
            round(task.seconds + cpu * (_ALONE + (1 - _ALONE) / cores), 2),
            round(task.cpu_seconds + cpu, 2),
            disk_bytes=round(task.disk_bytes + max(0, task.disk_bytes - before.disk_bytes) * further),
            memory_bytes=task.memory_bytes + more * task.worker_bytes,
        )
        if name in second.counts:
            made[name].rows = round(sum(count * factors[source] for source, count in second.counts[name].items()))
        if name == "tokenize":
            made[name].tokens = round(whole)
    drawn = _drawn(values, wanted, records, second)
    made["sample"].rows, made["sample"].tokens = round(drawn[0]), round(drawn[1])
    if second.limit and all(folder is not None for _, folder in wanted.values()):
        # Given files stay where they are, and are digested; an extract of them is not.
        size = sum(sum(folder.sizes.values()) for _, folder in wanted.values() if folder is not None)
        made["fetch"].seconds = round(first.tasks["fetch"].seconds + size / _DIGESTED, 2)
        made["fetch"].cpu_seconds = round(first.tasks["fetch"].cpu_seconds + size / _DIGESTED, 2)
        made["fetch"].disk_bytes = 0
    return made


def _drawn(
    values: Mapping[str, Any],
    wanted: Mapping[str, tuple[Source, RawFolder | None]],
    records: Mapping[str, Mapping[str, float]],
    sample: _Sample,
) -> tuple[float, float, float]:
    """Return rows and tokens of all epochs, and unique tokens. Caps of plain rules are those of the whole tasks."""
    rules = Rules.load(values["prefix_config_path"], values["profile"], "prefix_config_path")
    plain = sample.limit and "mix" not in sample.tasks and isinstance(rules, Rules) and not rules.needs_solving
    sums = [0.0, 0.0, 0.0]
    for name, (rows, tokens, unique) in sample.drawn.items():
        tokenized = max(1, sample.counts["tokenize"].get(name, 0))
        rate = tokenized / max(1, sample.records.get(name, 0))
        per_row, known = tokens / max(1, rows), unique / tokenized
        for output, count in records[name].items():
            there = count * rate
            if plain and output and "{}" not in output:
                rule, _ = rules.match(task_of(output))
                most = math.inf if rule.max_per_file is None else rule.max_per_file
                all_rows = min(there, most) * rule.repeat * values["epochs"]
            else:
                all_rows = there * rows / tokenized
            sums[0] += all_rows
            sums[1] += all_rows * per_row
            sums[2] += min(there, all_rows) * (known or per_row)
    return sums[0], sums[1], sums[2]


def _arrays(
    values: Mapping[str, Any],
    wanted: Mapping[str, tuple[Source, RawFolder | None]],
    records: Mapping[str, Mapping[str, float]],
    sample: _Sample,
) -> tuple[int, int]:
    """Return bytes of the arrays of tokens, and of the epochs."""
    rows, _, unique = _drawn(values, wanted, records, sample)
    were = [sum(item[at] for item in sample.drawn.values()) for at in range(3)]
    tokens, epochs = sample.array_bytes
    return round(tokens * unique / max(1, were[2])), round(epochs * rows / max(1, were[0]))


# --- measures ---------------------------------------------------------------------------------------------------------


def _cpu() -> float:
    """CPU seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _disk(folder: Path) -> int:
    """Return the bytes that a folder takes; a file with two names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            entry = path.lstat()
            seen[entry.st_dev, entry.st_ino] = entry.st_blocks * 512
    return sum(seen.values())


@contextmanager
def _quiet(top: Path) -> Iterator[None]:
    """Keep what tasks log: of a sample it would be taken for the run's. It is shown if a task fails."""
    top.mkdir()
    kept = os.dup(2)
    try:
        with (top / "log").open("w+b") as file:
            os.dup2(file.fileno(), 2)
            try:
                yield
            except BaseException:
                file.seek(0)
                os.write(kept, file.read()[-1 << 16 :])
                raise
            finally:
                os.dup2(kept, 2)
    finally:
        os.close(kept)


class _Memory(threading.Thread):
    """Watches the memory of the processes below this one (on Linux; elsewhere it stays 0)."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._most = (0, 0, 0)

    def __enter__(self) -> _Memory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def take(self) -> tuple[int, int, int]:
        """Return the most bytes since the last call, of how many processes, and those of the second largest."""
        most, self._most = self._most, (0, 0, 0)
        return most

    def run(self) -> None:
        while not self._ended.wait(_PAUSE):
            sizes = sorted(filter(None, map(_memory_of, _below(os.getpid()))), reverse=True)
            worker = sizes[1] if len(sizes) > 1 else 0
            self._most = max(self._most, (sum(sizes), len(sizes), worker))


def _below(pid: int) -> Iterator[int]:
    """Yield the processes that a process started, and theirs."""
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, path.read_text().split()):
                yield child
                yield from _below(child)


def _memory_of(pid: int) -> int:
    """Return bytes of a process; of pages that it shares its part."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0
