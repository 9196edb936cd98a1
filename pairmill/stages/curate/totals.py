"""What the report shows, added up over tasks: some tasks a shard, then one shard for all, which reads a few texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from pairmill import _native, storage
from pairmill.engine.content import Content
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import some_rows
from pairmill.stages.curate import histograms, tallies
from pairmill.stages.curate.decontaminate.index import LeakPlan
from pairmill.stages.curate.histograms import Histogram
from pairmill.stages.curate.tallies import Tally

VERSION: Final = 1
TOTALS: Final = "totals.json"
SUMMARY: Final = "summary.json"
_TASKS: Final = 256
_SHOWN = 2000
"""Characters of a text that the report shows."""
_SHOWN_OF_RULE = 12
_PRIVATE: Final = "pii."
"""Samples whose texts are not shown: a report travels further than the rows."""


@dataclass(frozen=True)
class AddUp(HandKeyed[object]):
    """The tallies and histograms of some tasks.

    Args:
        tallies: URIs of those of tasks.
        scored: URIs of histograms by operation's name.
    """

    tallies: tuple[str, ...]
    scored: tuple[tuple[str, str], ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        total = tallies.joined(Tally.load(storage.store_for(uri).read(uri)) for uri in self.tallies)
        found: dict[str, Histogram] = {}
        for name, uri in self.scored:
            some = histograms.of_json(json.loads(storage.store_for(uri).read(uri)))
            histograms.join(found, {f"{name}.{column}": one for column, one in some.items()})
        raw = {"tally": total.raw(), "histograms": histograms.to_json(found)}
        with out.create(TOTALS, scratch=True) as local:
            local.write_text(json.dumps(raw, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
        return ShardResult(Ledger())


def groups(
    tasks: Sequence[tuple[str, str, Sequence[tuple[str, str, str]]]],
) -> Iterator[AddUp]:
    """The shards for tasks, each with key and URI of its tally, and name, key and URI of each histogram."""
    for number, start in enumerate(range(0, len(tasks), _TASKS)):
        some = tasks[start : start + _TASKS]
        key = content_key(
            "curate totals",
            VERSION,
            tallies.VERSION,
            [[one, [[name, scored] for name, scored, _ in files]] for one, _, files in some],
        )
        scored = tuple((name, uri) for _, _, files in some for name, _, uri in files)
        yield AddUp(f"totals {number:05}", key, len(some), tuple(uri for _, uri, _ in some), scored)


@dataclass(frozen=True)
class Summarise(HandKeyed[object]):
    """The totals of all tasks, with the texts of samples.

    Args:
        totals: URIs of the groups'.
        files: row files by task.
        leaks: the benchmarks.
        redact: whether personal data is looked for, so that no text shows any.
        longest: bytes of the longest row.
    """

    work = "write the report"

    totals: tuple[str, ...]
    files: Mapping[str, InputFile]
    leaks: LeakPlan
    redact: bool
    longest: int

    @classmethod
    def of(
        cls, records: Sequence[Any], files: Mapping[str, InputFile], leaks: LeakPlan, *, redact: bool, longest: int
    ) -> Summarise:
        """The shard, given the records of AddUp."""
        digests = [[task, one.sha256] for task, one in sorted(files.items())]
        key = content_key("curate summary", VERSION, [record.key for record in records], digests, leaks.key, redact)
        return cls("summary", key, 0, tuple(record.uri(TOTALS) for record in records), files, leaks, redact, longest)

    def run(self, context: object, out: Writer) -> ShardResult:
        raws = [json.loads(storage.store_for(uri).read(uri)) for uri in self.totals]
        total = tallies.joined(Tally(**raw["tally"]) for raw in raws)
        found: dict[str, Histogram] = {}
        for raw in raws:
            histograms.join(found, histograms.of_json(raw["histograms"]))
        samples = {key: [one for _, one in some[:_SHOWN_OF_RULE]] for key, some in total.samples.items()}
        closest = {key: [one for _, one in some[:_SHOWN_OF_RULE]] for key, some in total.closest.items()}
        every = [(key, one) for some in (samples, closest) for key in some for one in some[key]]
        self._put_texts([one for key, one in every if not key.startswith(_PRIVATE)])
        for key, one in every:
            if key.startswith(_PRIVATE):
                one |= dict.fromkeys(("instruction", "response", "other_instruction", "other_response"), "")
        said = {
            "tally": {**total.raw(), "samples": samples, "closest": closest},
            "histograms": histograms.to_json(found),
        }
        with out.create(SUMMARY, scratch=True) as local:
            local.write_text(json.dumps(said, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
        return ShardResult(Ledger())

    def _put_texts(self, samples: Sequence[dict[str, Any]]) -> None:
        """Put the texts of both rows into samples; a row of an index has none."""
        wanted: dict[str, set[int]] = {}
        for one in samples:
            wanted.setdefault(one["task"], set()).add(one["ordinal"])
            if one["other_task"] in self.files:
                wanted.setdefault(one["other_task"], set()).add(one["other_ordinal"])
        texts: dict[tuple[str, int], tuple[str, str]] = {}
        for task, ordinals in sorted(wanted.items()):
            file = self.files[task]
            content = Content(file.sha256, file.stamp, file.promised)
            for ordinal, row in some_rows.read(file.uri, ordinals, content, self.longest).items():
                texts[task, ordinal] = self._shown(row.instruction or ""), self._shown(row.response or "")
        items = self._items({(one["benchmark"], one["item"]) for one in samples if one["benchmark"]})
        for one in samples:
            one["instruction"], one["response"] = texts[one["task"], one["ordinal"]]
            other = texts.get((one["other_task"], one["other_ordinal"]), ("", ""))
            one["other_instruction"], one["other_response"] = items.get((one["benchmark"], one["item"]), other)

    def _shown(self, text: str) -> str:
        # The cut comes last: half of an address would not be found.
        if self.redact:
            replaced, _ = _native.curate_redact(pa.array([text], pa.large_string()))
            (text,) = pa.array(replaced).to_pylist()
        return text[:_SHOWN]

    def _items(self, wanted: set[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str]]:
        """Question and answers of items of benchmarks."""
        names = {benchmark for benchmark, _ in wanted}
        return {
            (one.name, item.name): (item.question[:_SHOWN], "\n".join(item.answers)[:_SHOWN])
            for one in self.leaks.found
            if one.name in names
            for item in one.items()
            if (one.name, item.name) in wanted
        }


def summary_of(uri: str) -> tuple[Tally, dict[str, Histogram]]:
    """What Summarise wrote; the samples have no order any more."""
    raw = json.loads(storage.store_for(uri).read(uri))
    return Tally(**raw["tally"]), histograms.of_json(raw["histograms"])


def refuse_nothing_kept(rows: int, kept: int, dropped: Mapping[str, int], config: str, given: Sequence[str]) -> None:
    """Raise InputError if there is no row in what is given, or all are dropped."""
    if not rows:
        where = f"rows={','.join(given)}"
        raise InputError("the row files contain no row", where=where, hint="check the stage before")
    if not kept:
        reason, count = max(dropped.items(), key=lambda item: (item[1], item[0]))
        raise InputError(
            "no row is left",
            where=f"curate_config={config}",
            got=f"{rows:,} rows, of which {count:,} are dropped as {reason}",
            expected="at least one kept row",
            hint="set the mode of that operation to report, and look at its report before it drops rows",
        )
