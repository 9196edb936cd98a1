"""What the report shows, added up over tasks: some tasks a shard, then one shard for all, which reads a few texts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from pairmill import _native, storage
from pairmill.engine.content import Content
from pairmill.engine.inputs import InputFile
from pairmill.engine.keys import unkeyed
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import Shard, ShardFile, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import some_rows
from pairmill.leaks.index import LeakPlan
from pairmill.rowstage import histograms
from pairmill.rowstage.histograms import Histogram
from pairmill.stages.curate import tallies
from pairmill.stages.curate.tallies import Tally

TOTALS: Final = "totals.json"
SUMMARY: Final = "summary.json"
_SHOWN = 2000
"""Characters of a text that the report shows."""
_SHOWN_OF_RULE = 12


@dataclass(frozen=True)
class AddUp(Shard[object], reads=()):
    """Adds up the tallies and histograms of some tasks.

    Args:
        tallies: of the tasks.
        scored: histograms, each with the name of its operation.
    """

    tallies: tuple[ShardFile, ...]
    scored: tuple[tuple[str, ShardFile], ...]

    def run(self, context: object, out: Writer) -> ShardResult:
        total = tallies.joined(Tally.load(_read(file)) for file in self.tallies)
        found: dict[str, Histogram] = {}
        for name, file in self.scored:
            some = histograms.of_json(json.loads(_read(file)))
            histograms.join(found, {f"{name}.{column}": one for column, one in some.items()})
        raw = {"tally": total.raw(), "histograms": histograms.to_json(found)}
        with out.create(TOTALS, scratch=True) as local:
            local.write_text(json.dumps(raw, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
        return ShardResult(Ledger())


@dataclass(frozen=True)
class Summarise(Shard[object], reads=()):
    """The totals of all tasks, with the texts of samples.

    Args:
        totals: of groups of tasks.
        files: row files by task.
        leaks: the benchmarks.
        redact: whether personal data is looked for, so that no text shows any.
        private: names of operations of whose findings no text is shown.
        longest: bytes of the longest row.
    """

    work = "write the report"

    totals: tuple[ShardFile, ...]
    files: Mapping[str, InputFile]
    leaks: LeakPlan
    redact: bool
    private: tuple[str, ...]
    longest: int = field(metadata=unkeyed("a longer row fails the shard"))

    def run(self, context: object, out: Writer) -> ShardResult:
        raws = [json.loads(_read(file)) for file in self.totals]
        total = tallies.joined(Tally(**raw["tally"]) for raw in raws)
        found: dict[str, Histogram] = {}
        for raw in raws:
            histograms.join(found, histograms.of_json(raw["histograms"]))
        samples = {key: [one for _, one in some[:_SHOWN_OF_RULE]] for key, some in total.samples.items()}
        closest = {key: [one for _, one in some[:_SHOWN_OF_RULE]] for key, some in total.closest.items()}
        every = [(key, one) for some in (samples, closest) for key in some for one in some[key]]
        self._put_texts([one for key, one in every if key.partition(".")[0] not in self.private])
        for key, one in every:
            if key.partition(".")[0] in self.private:
                one |= dict.fromkeys(("instruction", "response", "other_instruction", "other_response"), "")
        summary = {
            "tally": {**total.raw(), "samples": samples, "closest": closest},
            "histograms": histograms.to_json(found),
        }
        with out.create(SUMMARY, scratch=True) as local:
            local.write_text(json.dumps(summary, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
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


def _read(file: ShardFile) -> bytes:
    return storage.store_for(file.uri).read(file.uri)


def summary_of(uri: str) -> tuple[Tally, dict[str, Histogram]]:
    """Return what Summarise wrote; the samples have no order any more."""
    raw = json.loads(storage.store_for(uri).read(uri))
    return Tally(**raw["tally"]), histograms.of_json(raw["histograms"])
