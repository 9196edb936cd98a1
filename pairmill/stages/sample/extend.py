"""A plan that extends another, its parent: with more epochs, and from an epoch on with other rules or more tasks.

All epochs are drawn as if the training had been planned at once: each task walks on from where it was, under the rules
that held then and those that hold now. Epochs that the parent has are kept as they are, and so are the numbers of its
rows; rows that it has not get the numbers after them.

Epochs of mixtures and of parts, or of other choices of single rows, are not walked through again: their rows are
counted, and what comes after them is drawn from rows that were taken less.
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmill import log
from pairmill.engine.manifest import File, InputRef, Manifest
from pairmill.errors import InputError, UsageError
from pairmill.formats.eligible_rows import DatasetRows
from pairmill.formats.removed_rows import RemovedRows
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import CHOICES, HELD_OUT, MIXTURE, PARENT, PARTS, Ancestor, ancestors, read_plan
from pairmill.formats.token_listing import TokensInPlace, folder_digest, is_epoch, lasting
from pairmill.formats.tokenized import Folder
from pairmill.formats.tokens import INDEX, Dataset
from pairmill.rules.rule import Rule
from pairmill.stages.sample.base import BasePlan, match_tasks, require_same_options, require_same_tokenizer
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draw import MEMORY, twin_key
from pairmill.stages.sample.exposure.passes import SeenRows
from pairmill.stages.sample.exposure.reading import Reading
from pairmill.stages.sample.node.config import OutputFormat
from pairmill.stages.sample.node.layout import index_dtypes, token_dtype, token_file
from pairmill.stages.sample.node.materialize import parts_in_place
from pairmill.stages.sample.node.plan import VERSION, PlannedDataset, SamplePlan, fingerprints_of, sizes_of
from pairmill.stages.sample.node.plan_arrays import (
    JoinedArray,
    NewRows,
    PlanArray,
    RenumberedArray,
    StoredArray,
    Values,
)
from pairmill.stages.sample.sampled_rows import DrawnSample
from pairmill.stages.sample.wants import WalkToDraw, Wants
from pairmill.storage import partials

_FROM: Final = "from_epoch"
_MOST: Final = 2**32 - 1
_MOST_TIMES: Final = 255
_OFF: Final = Rule(max_per_file=0)
_WHAT: Final = "the plan that is extended"
_WITHOUT: Final = "leave extend= out, which plans anew"


@dataclass(frozen=True)
class Growth:
    """A plan that extends its parent.

    Attributes:
        plan: all of it.
        sources: its entries, as :class:`pairmill.formats.results.sample.SampleResult` has them.
        datasets: the tokens of each entry.
        shared: files of its arrays that the parent has too.
        recorded: what its manifest says of the parent.
    """

    plan: SamplePlan
    sources: list[dict[str, Any]]
    datasets: list[Dataset]
    shared: list[File]
    recorded: dict[str, Any]


@dataclass(frozen=True)
class _Phase:
    """Epochs of the parent from ``begin`` to before ``end``, under the same rules and policy.

    Attributes:
        rules: those that differ from the parent's own, by the names of its tasks.
        removed: the rows that the policy took out, by these names.
    """

    begin: int
    end: int
    rules: Mapping[str, dict[str, Any]]
    removed: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class ParentPlan:
    """The plan that is extended.

    Attributes:
        first: the first epoch that is drawn anew.
        counted: whether rows of epochs that are kept are counted, in place of drawing these once more.
        names: what each of its tasks is called there, by the name that it has now.
        tasks: all tasks of the tokenized folder in the order of drawing, each with the key of its random numbers.
    """

    uri: str
    manifest: Manifest
    result: SampleResult
    first: int
    counted: bool
    names: Mapping[str, str]
    tasks: list[tuple[Dataset, str]]

    @classmethod
    def open(cls, config: SampleConfig, layout: OutputFormat, folder: Folder) -> ParentPlan:
        """Read the parent, and find its tasks in the tokenized folder by their content.

        Raises:
            UsageError: an option differs from the parent's, or no epoch is drawn.
            InputError: it is not a plan that can be extended, or a task of it is not in the folder any more.
        """
        uri, manifest = read_plan(config.extend, "extend")
        result = SampleResult.from_manifest(manifest)
        if manifest.version != VERSION or not all(source.get("key") for source in result.sources):
            raise InputError(
                "an older pairmill made this plan, or it is of profile=data_io, whose tasks share one stream",
                where=f"extend={uri}",
                got=f"version {manifest.version}, without what tells its tasks",
                hint="plan it again with this pairmill and profile=pairmill; such a plan can be extended",
            )
        roles = {ref.role for ref in manifest.inputs}
        if HELD_OUT in roles:
            hint = "extend a plan to train on"
            raise UsageError("held-out rows are drawn once, each", where=f"extend={uri}", got=HELD_OUT, hint=hint)
        require_same_options(config, layout, manifest, _WHAT, _WITHOUT, ["epochs"])
        require_same_tokenizer(result, folder, _WHAT, _WITHOUT)
        first = _first_epoch(config, uri, manifest.ledger.measures["epochs"])
        distinct = list({source["name"]: source for source in result.sources}.values())
        kept, added = match_tasks(distinct, folder, _WHAT, _WITHOUT)
        names = {task.name: source["name"] for task, source in zip(kept, distinct, strict=True)}
        seen = defaultdict[str, int](int)
        keyed = []
        for task in kept:
            keyed.append((task, twin_key(task.key, seen[task.key])))
            seen[task.key] += 1
        # As pairmill.stages.sample.draw.in_plan_order has them: by content, and twins by their number.
        tasks = sorted([*keyed, *added], key=lambda item: (item[0].key, len(item[1]), item[1]))
        counted = bool(config.mixture or roles & {MIXTURE, PARTS} or result.parent.get("counted"))
        return cls(uri, manifest, result, first, counted=counted, names=names, tasks=tasks)

    @property
    def refs(self) -> list[InputRef]:
        """Return what the plan depends on, for its fingerprint."""
        refs = [InputRef(PARENT, self.manifest.fingerprint)]
        return refs if self.first == self._epochs else [*refs, InputRef(_FROM, str(self.first))]

    @property
    def _epochs(self) -> int:
        return int(self.manifest.ledger.measures["epochs"])

    @cached_property
    def _phases(self) -> list[_Phase]:
        """What held before :attr:`first`, in order."""
        mine = {"epochs": self._epochs, "rules": {}, "removed": self.result.removed}
        phases = list[_Phase]()
        for item in [*self.result.parent.get("earlier", ()), mine]:
            begin = phases[-1].end if phases else 0
            if begin < self.first:
                phases.append(_Phase(begin, min(item["epochs"], self.first), item["rules"], item["removed"]))
        return phases

    def removals(self, now: Mapping[str, RemovedRows]) -> list[tuple[int, Mapping[str, RemovedRows]]]:
        """Return the rows that policies took out and take out ``now``, each time with the first epoch without them."""
        if self.counted:  # without those that policies took out before
            return [(self.first, now)]
        tasks = {self.names[task.name]: task for task, _ in self.tasks if task.name in self.names}
        before = [
            (phase.begin, {tasks[name].name: RemovedRows(tasks[name], rows) for name, rows in phase.removed.items()})
            for phase in self._phases
        ]
        return [*before, (self.first, now)]

    @cached_property
    def kept(self) -> SeenRows:
        """The rows of epochs that are kept, where they are counted."""
        return SeenRows([Reading(self.uri, self.manifest, self.first)], by="name")

    @property
    def seen(self) -> SeenRows:
        """All rows that were read once :attr:`first` begins, in the plans before too."""
        return SeenRows([*Reading(self.uri, self.manifest, 0).chain()[:-1], *self.kept.readings])

    def shown(self, tasks: int) -> dict[str, Any]:
        """Return what a preview says of it, beside this many tasks."""
        rows = sum(sizes_of(self.manifest)[1][: self.first])
        return {
            "plan": self.manifest.fingerprint,
            "epochs": self.first,
            "rows": rows,
            "new_tasks": tasks - len(self.names),
        }

    def has_kept(self, task: str) -> bool:
        """Return whether rows of a task are counted, so that the planner does not read it by itself."""
        return self.counted and task in self.names

    def put_kept(self, task: Dataset, rows: DatasetRows) -> None:
        """Say of each row of a task how often epochs that are kept take it, which counts as seen.

        Raises:
            InputError: too often for a byte.
        """
        times = self.kept.of_rows(self.names[task.name], rows.columns["resp_start"])
        if times.max(initial=0) == _MOST_TIMES:
            raise InputError(
                "a row comes too often to be counted",
                where=f"extend={self.uri}: {task.name}",
                got=f"{_MOST_TIMES} times or more in {self.first} epochs",
                expected=f"{_MOST_TIMES - 1} times",
                hint=f"after={self.uri}:{self.first} instead of extend= makes a plan that begins after these epochs",
            )
        seen = times if rows.passes is None else rows.passes.astype(np.uint16) + times
        rows.passes = np.minimum(seen, _MOST_TIMES).astype(np.uint8)
        rows.kept = times, self.first

    def tell_of_rules(self, digest: str, file: str) -> None:
        """Log that other rules than the parent's count from now on: who left the option out may not mean them."""
        if digest != next(ref.fingerprint for ref in self.manifest.inputs if ref.role == "rules"):
            text = f"sample: from epoch {self.first} on the rules are those of {file}, and not the parent's"
            log.event(text, level=logging.WARNING)

    def _rule_before(self, task: str, rules: Mapping[str, dict[str, Any]]) -> Rule:
        name = self.names.get(task)
        return _OFF if name is None else Rule.from_manifest(rules.get(name, self.result.rules[name]))

    def off(self, task: str) -> Rule:
        """Return the rule of a task that is left out from now on; its rows are cut as before."""
        return replace(self._rule_before(task, {}), max_per_file=0, rows=None)

    def continued(self, task: str, rule: Rule, wants: Wants) -> Wants:
        """Return what to draw of a task: what was drawn before :attr:`first`, and then what ``rule`` says.

        Raises:
            InputError: the rule cuts rows in another way than before.
        """
        self.require_same_cuts(task, rule)
        if task in self.names and rule.members is not None and not self.counted:
            return wants  # each part has its rows of all epochs
        walks = []
        for walk in wants.walks:
            if self.counted:
                walks.append(walk._replace(earlier=[(self.first, WalkToDraw(walk.stream, rows=()))]))
                continue
            rules = [(phase.end, self._rule_before(task, phase.rules)) for phase in self._phases]
            before = [(end, Wants.by_rule(old, 0, walk.stream).walks[0]) for end, old in rules]
            walks.append(walk._replace(earlier=before))
        return wants._replace(walks=walks)

    def require_same_cuts(self, task: str, rule: Rule) -> None:
        """Raise InputError if a task was begun, and its long rows are cut in another way than the rule says."""
        if task not in self.names:
            return
        before = self.result.rules[self.names[task]]["long_context"]
        if rule.long_context != before:
            raise InputError(
                "rows of a task that was begun would be cut in another way",
                where=f"the rule of {task!r}: long_context",
                got=rule.long_context,
                expected=before,
                hint=f"write long_context: {before} in the rule; or {_WITHOUT}",
            )

    def choosing(self, digest: str) -> ParentPlan:
        """Return this as a plan has to extend it whose rules choose single rows, or none, by files of this digest."""
        before = next((ref.fingerprint for ref in self.manifest.inputs if ref.role == CHOICES), "")
        return self if digest == before else replace(self, counted=True)

    def grow(self, drawn: DrawnSample, rules: Mapping[str, Rule], layout: OutputFormat, workers: int) -> Growth:
        """Make the plan of what was drawn.

        Args:
            drawn: all epochs, of all tasks.
            rules: of each task, from :attr:`first` on.
            layout: of the arrays.

        Raises:
            InputError: an epoch that is kept does not come out as the parent has it, or there are too many rows.
        """
        tasks = {task.name: task for task, _ in self.tasks}
        before = SamplePlan.load(self.uri, self.manifest, workers, stored=True)
        now = {theirs: mine for mine, theirs in self.names.items()}
        # Rows of a plan that extends none are all that were taken of their task.
        sources = [
            {"tokens": self.result.stats[source["name"]]["unique_toks"], **source, "name": now[source["name"]]}
            for source in self.result.sources
        ]
        numbers, added = _number_rows(drawn.plan, before, sources, tasks)
        self._require_same_epochs(drawn.plan, before, numbers)
        entries = [*sources, *added]
        datasets = [PlannedDataset(item["name"], item["length"], item["rows"]) for item in entries]
        total, count = (sum(item["rows"] for item in some) for some in (sources, added))
        new = {name: NewRows(drawn.plan.rows[name], numbers, total, count) for name in INDEX}
        rows = {name: JoinedArray(before.rows[name], new[name]) for name in INDEX}
        parts = before.parts
        if added:
            parts = parts or (SamplePlan(datasets[: len(sources)], before.rows, ()),)
            parts = (*parts, SamplePlan(datasets[len(sources) :], new, ()))
        epochs: list[Values] = [*before.epochs[: self.first]]
        epochs += [RenumberedArray(order, numbers) for order in drawn.plan.epochs[self.first :]]
        self._tell(added)
        return Growth(
            SamplePlan(datasets, rows, epochs, parts),
            entries,
            [tasks[item["name"]] for item in entries],
            self._shared_files(sources, added, layout),
            self._recorded([*self.result.parts, *filter(None, [len(added)])], rules),
        )

    def _tell(self, added: Sequence[Mapping[str, Any]]) -> None:
        rows, fresh = sum(item["rows"] for item in added), sum(item["name"] not in self.names for item in added)
        log.event(
            f"sample: epochs 0 to {self.first - 1} are those of {self.uri}, row for row; {rows:,} rows are new, and "
            f"{fresh:,} tasks",
            rows=rows,
        )
        if self.first < self._epochs:
            log.event(
                f"sample: epochs of {self.uri} from {self.first} on are drawn anew: a training that has begun epoch "
                f"{self.first} there cannot go on here in the middle of it",
                level=logging.WARNING,
            )

    def _require_same_epochs(self, drawn: SamplePlan, before: SamplePlan, numbers: NDArray[np.uint32]) -> None:
        """Compare the rows of kept epochs with those that were drawn; a walk that took others would go on wrongly."""
        every = range(self.first)
        # Of rows that are counted it is not known which epoch has them.
        for numbered in [every] if self.counted else [[number] for number in every]:
            mine = [RenumberedArray(drawn.epochs[number], numbers) for number in numbered]
            theirs = [before.epochs[number] for number in numbered]
            if _content(mine) != _content(theirs):
                raise InputError(
                    "an epoch of the plan that is extended does not come out as it was, so its tasks cannot go on",
                    where=f"extend={self.uri}: epoch {', '.join(map(str, numbered))}",
                    got=f"{sum(map(len, mine)):,} rows",
                    expected=f"its {sum(map(len, theirs)):,} rows",
                    hint=f"rows are removed or cut in another way: give tasks that were begun what they had; or "
                    f"{_WITHOUT}",
                )

    def _shared_files(
        self, sources: Sequence[Mapping[str, Any]], added: Sequence[Mapping[str, Any]], layout: OutputFormat
    ) -> list[File]:
        """Return the parent's files that the arrays of the plan have too."""
        files = [File.from_json(file) for file in self.result.sample]
        fresh = [item for item in added if item["name"] not in self.names]
        if layout == "compact":
            sizes = [sum(item["tokens"] for item in some) for some in (sources, added)]
        else:
            distinct = {item["name"]: item["length"] for item in sources}
            sizes = [sum(distinct.values()), sum(item["length"] for item in fresh)]
        same = layout == "data_io" or index_dtypes(sizes[0], 0) == index_dtypes(sum(sizes), 0)
        kept = [file for file in files if is_epoch(file) and int(file.path[6:].split("/")[0]) < self.first and same]
        if layout == "compact" or (layout == "data_io" and not fresh):
            kept += [file for file in files if file.path.startswith("tokens")]
        return sorted(kept, key=lambda file: file.path)

    def _recorded(self, parts: list[int], rules: Mapping[str, Rule]) -> dict[str, Any]:
        earlier, now = [], {theirs: mine for mine, theirs in self.names.items()}
        for phase in () if self.counted else self._phases:
            pairs = ((name, self._rule_before(name, phase.rules).to_manifest(), rule) for name, rule in rules.items())
            differ = {name: old for name, old, rule in pairs if old != rule.to_manifest()}
            removed = {now[name]: [*rows] for name, rows in phase.removed.items()}
            earlier.append({"epochs": phase.end, "rules": differ, "removed": removed})
        me = Ancestor(
            self.manifest.fingerprint,
            fingerprints_of(self.manifest),
            _digest_of(self.result),
            sizes_of(self.manifest)[1],
            self.first,
        )
        drawn = {
            now[name]: [stats["cov_rows"], stats["cov_itoks"] + stats["cov_rtoks"]]
            for name, stats in (self.result.stats.items() if self.first == self._epochs else ())
        }
        before = [item._replace(kept=min(item.kept, self.first)) for item in ancestors(self.manifest)]
        return {
            "plan": self.manifest.fingerprint,
            "epochs": self._epochs,
            _FROM: self.first,
            "parts": parts,
            "earlier": earlier,
            **({"counted": True} if self.counted else {}),
            "drawn": drawn,
            "chain": [item._asdict() for item in [*before, me]],
        }


def open_earlier(
    config: SampleConfig, layout: OutputFormat, folder: Folder
) -> tuple[BasePlan | None, ParentPlan | None]:
    """Open the plan that tasks are added to, or the one that is extended, as the options say."""
    base = BasePlan.open(config, layout, folder) if config.base else None
    return base, ParentPlan.open(config, layout, folder) if config.extend else None


def _first_epoch(config: SampleConfig, uri: str, epochs: int) -> int:
    """Return the first epoch that is drawn anew; raise UsageError if there is none."""
    first = config.from_epoch or epochs
    if first > epochs:
        raise UsageError(
            "no such epoch",
            where=_FROM,
            got=str(first),
            expected=f"1 to {epochs}, as extend={uri} has {epochs} epochs",
            hint=f"leave {_FROM}= out: epochs {epochs} and after are new",
        )
    if config.epochs <= first:
        unread = max(first - 1, 1)
        raise UsageError(
            "no epoch is drawn: those before it are kept as they were read",
            where="epochs",
            got=str(config.epochs),
            expected=f"more than {first}",
            hint=(f"mix with epochs={epochs + 1}" if config.mixture else f"epochs={epochs + 1}")
            + f"; or, if no training has begun epoch {unread}, also {_FROM}={unread}",
        )
    return first


def _number_rows(
    drawn: SamplePlan, before: SamplePlan, sources: Sequence[Mapping[str, Any]], tasks: Mapping[str, Dataset]
) -> tuple[NDArray[np.uint32], list[dict[str, Any]]]:
    """Give drawn rows the numbers that the parent's have, and other rows those after them, task by task.

    Returns:
        The number of each row, uint32 [rows]; and the entries of rows that the parent has not, and of new tasks.
    """
    spans = defaultdict[str, list[tuple[int, int]]](list)
    for source, span in zip(sources, pairwise(accumulate((item["rows"] for item in sources), initial=0)), strict=True):
        spans[source["name"]].append(span)
    columns, theirs = ({name: _in_parts(plan.rows[name]) for name in INDEX} for plan in (drawn, before))
    count = sum(item.rows for item in drawn.datasets)
    numbers, after = _numbers(count), sum(item["rows"] for item in sources)
    added: list[dict[str, Any]] = []
    for item, (first, end) in zip(
        drawn.datasets, pairwise(accumulate((item.rows for item in drawn.datasets), initial=0)), strict=True
    ):
        mine, old = numbers[first:end], spans[item.name]
        keys = _keys(columns, first, end)
        order = None if (keys[1:] > keys[:-1]).all() else np.argsort(keys, kind="stable")
        ordered = keys if order is None else keys[order]
        new = np.ones(end - first, bool)
        for low, high in old:
            wanted = _keys(theirs, low, high)
            places = np.searchsorted(ordered, wanted)
            # One that is not there is of an epoch that is drawn anew.
            there = places < len(ordered)
            there[there] = ordered[places[there]] == wanted[there]
            places = places[there] if order is None else order[places[there]]
            mine[places] = np.arange(low, high, dtype=np.int64)[there]
            new[places] = False
        rows = int(np.count_nonzero(new))
        if after + rows > _MOST:
            raise InputError("too many rows", where="extend", got=f"{after + rows:,}", expected=f"at most {_MOST:,}")
        mine[new] = np.arange(after, after + rows, dtype=np.int64)
        after += rows
        if rows or not old:
            tokens = sum(int(columns[name].part(first, end)[new].sum(dtype=np.int64)) for name in INDEX[1::2])
            key = tasks[item.name].key
            added.append({"name": item.name, "length": item.length, "rows": rows, "key": key, "tokens": tokens})
    return numbers, added


def _numbers(count: int) -> NDArray[np.uint32]:
    """Make room for numbers of rows: in memory, or of many in a file that nobody else sees."""
    if count * 4 <= MEMORY:
        return np.empty(count, np.uint32)
    with tempfile.TemporaryFile(dir=partials.scratch()) as file:
        return np.memmap(file, np.uint32, "w+", shape=(count,))


def _in_parts(values: Values) -> PlanArray | StoredArray:
    """Return an array of which parts can be read."""
    return values if isinstance(values, PlanArray | StoredArray) else PlanArray(values.array())


def _keys(columns: Mapping[str, PlanArray | StoredArray], first: int, end: int) -> NDArray[np.int64]:
    """Return what tells rows of a task apart: where the response begins, and whether there is an instruction."""
    inst, resp = (columns[name].part(first, end).astype(np.int64) for name in INDEX[::2])
    keys: NDArray[np.int64] = 2 * resp + (inst == resp)
    return keys


def _content(arrays: Sequence[Values]) -> tuple[int, int]:
    """Return how many numbers arrays have, and a sum that tells which, in whatever order, and how often."""
    result = 0
    for piece in chain.from_iterable(values.pieces() for values in arrays):
        mixed = piece.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        result += int((mixed ^ (mixed >> np.uint64(32))).sum(dtype=np.uint64))
    return sum(map(len, arrays)), result % 2**64


def _digest_of(result: SampleResult) -> str:
    """Return the digest of a plan's arrays in its own layout; empty = not known."""
    files = lasting(File.from_json(file) for file in result.sample)
    if result.layout == "reference" or not any(map(is_epoch, files)):
        return ""
    parts: list[TokensInPlace] | None = None
    if result.layout == "compact" and len(result.parts) > 1:
        dtype = token_dtype(json.loads(result.tokenizer_info).get("vocab_size"), result.layout)
        by_path = {file.path: file for file in files}
        parts = parts_in_place(dtype, [by_path.pop(token_file(number)) for number in range(len(result.parts))])
        files = [*by_path.values()]
    return folder_digest({file.path: file.digest for file in files}, parts)
