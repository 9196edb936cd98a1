"""What the report shows, added up over tasks: some tasks a shard, then one shard for all, which reads a few texts."""

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
        result: dict[str, Histogram] = {}
        for name, file in self.scored:
            some = histograms.of_json(json.loads(_read(file)))
            histograms.join(result, {f"{name}.{column}": item for column, item in some.items()})
        raw = {"tally": total.raw(), "histograms": histograms.to_json(result)}
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
        result: dict[str, Histogram] = {}
        for raw in raws:
            histograms.join(result, histograms.of_json(raw["histograms"]))
        samples = {key: [item for _, item in some[:_SHOWN_OF_RULE]] for key, some in total.samples.items()}
        closest = {key: [item for _, item in some[:_SHOWN_OF_RULE]] for key, some in total.closest.items()}
        every = [(key, item) for some in (samples, closest) for key in some for item in some[key]]
        self._put_texts([item for key, item in every if key.partition(".")[0] not in self.private])
        for key, item in every:
            if key.partition(".")[0] in self.private:
                item |= dict.fromkeys(("instruction", "response", "other_instruction", "other_response"), "")
        summary = {
            "tally": {**total.raw(), "samples": samples, "closest": closest},
            "histograms": histograms.to_json(result),
        }
        with out.create(SUMMARY, scratch=True) as local:
            local.write_text(json.dumps(summary, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
        return ShardResult(Ledger())

    def _put_texts(self, samples: Sequence[dict[str, Any]]) -> None:
        """Put the texts of both rows into samples; a row of an index has none."""
        wanted: dict[str, set[int]] = {}
        for item in samples:
            wanted.setdefault(item["task"], set()).add(item["ordinal"])
            if item["other_task"] in self.files:
                wanted.setdefault(item["other_task"], set()).add(item["other_ordinal"])
        texts: dict[tuple[str, int], tuple[str, str]] = {}
        for task, ordinals in sorted(wanted.items()):
            file = self.files[task]
            content = Content(file.digest, file.stamp, file.promised)
            for ordinal, row in some_rows.read(file.uri, ordinals, content, self.longest).items():
                texts[task, ordinal] = self._shown(row.instruction or ""), self._shown(row.response or "")
        items = self._items({(item["benchmark"], item["item"]) for item in samples if item["benchmark"]})
        for item in samples:
            item["instruction"], item["response"] = texts[item["task"], item["ordinal"]]
            other = texts.get((item["other_task"], item["other_ordinal"]), ("", ""))
            item["other_instruction"], item["other_response"] = items.get((item["benchmark"], item["item"]), other)

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
            (each.name, item.name): (item.question[:_SHOWN], "\n".join(item.answers)[:_SHOWN])
            for each in self.leaks.found
            if each.name in names
            for item in each.items()
            if (each.name, item.name) in wanted
        }


def _read(file: ShardFile) -> bytes:
    return storage.store_for(file.uri).read(file.uri)


def summary_of(uri: str) -> tuple[Tally, dict[str, Histogram]]:
    """Return what Summarise wrote; the samples have no order any more."""
    raw = json.loads(storage.store_for(uri).read(uri))
    return Tally(**raw["tally"]), histograms.of_json(raw["histograms"])
