"""A plan that adds tasks to another, its base: of the base's tasks nothing is read, drawn or digested again.

Added tasks draw the rows that they would draw in any plan. In each epoch they come in a uniformly random order of
their own at uniformly random places, so that the order of all rows is as random as one that is drawn at once; the
base's rows keep theirs among themselves.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from pairmill import storage
from pairmill._native import added_places
from pairmill.engine import policing
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.engine.options import byte_options
from pairmill.engine.policing import REMOVALS
from pairmill.errors import InputError, UsageError
from pairmill.formats.eligible_rows import NEVER
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import AFTER, CHOICES, HELD_OUT, PARENT, PARTS, read_plan
from pairmill.formats.tokenized import Folder
from pairmill.formats.tokens import Dataset
from pairmill.rules.rule import Rule
from pairmill.stages.sample.analytics import Stats
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draw import twin_key
from pairmill.stages.sample.node.layout import token_file
from pairmill.stages.sample.node.plan import VERSION, Addition, SamplePlan, sizes_of
from pairmill.stages.sample.node.plan_arrays import PlanArray
from pairmill.stages.sample.sampled_rows import SampledRows

_SHOWN: Final = 5
_MOST: Final = 2**32 - 1
_TOKENIZER: Final = "tokenizer"
_WITHOUT: Final = "leave base= out, which draws all tasks anew"


@dataclass(frozen=True)
class BasePlan:
    """The plan that tasks are added to.

    Attributes:
        kept: its tasks, in its order, by the names that they have now.
        added: the other tasks of the tokenized folder in the order of a plan, each with a key of its own.
    """

    uri: str
    manifest: Manifest
    kept: list[Dataset]
    added: list[tuple[Dataset, str]]

    @classmethod
    def open(cls, config: SampleConfig, layout: str, folder: Folder) -> BasePlan:
        """Read the base, and find its tasks in the tokenized folder by their content.

        Raises:
            UsageError: an option differs from the base's, or there is nothing to add.
            InputError: it is not a plan that can be added to, or a task of it is not in the folder any more.
        """
        uri, manifest = read_plan(config.base, "base")
        result = SampleResult.from_manifest(manifest)
        if config.root and storage.parent_of(uri) != storage.join(storage.normalise(config.root, "root"), "sample"):
            raise UsageError(
                "the base is of another project, and the plan needs it beside itself",
                where="root",
                got=config.root,
                expected=storage.parent_of(storage.parent_of(uri)),
                hint=f"root={storage.parent_of(storage.parent_of(uri))}, or copy the base below root={config.root}",
            )
        roles = {ref.role for ref in manifest.inputs}
        if manifest.version != VERSION or not all(source.get("key") for source in result.sources):
            raise InputError(
                "an older pairmill made this plan, or it is of profile=data_io",
                where=f"base={uri}",
                got=f"version {manifest.version}, without what tells its tasks",
                hint=f"plan its tasks again first, with this pairmill; or {_WITHOUT}",
            )
        if unfit := sorted(roles & {HELD_OUT, "mixture", PARENT, AFTER, PARTS}):
            raise UsageError(
                "no tasks can be added to a plan of held-out rows, of a mixture, of parts, or with extend= or after=",
                where=f"base={uri}",
                got=unfit[0],
                hint=_WITHOUT,
            )
        require_same_options(config, layout, manifest, "the base", _WITHOUT)
        if layout == "data_io":
            hint = "layout=compact for both plans; a node may still write layout=data_io"
            raise UsageError("one file of all tokens cannot be added to", where="layout", got=layout, hint=hint)
        require_same_tokenizer(result, folder, "the base", _WITHOUT)
        kept, added = match_tasks(result.sources, folder, "the base", _WITHOUT)
        if not added:
            raise UsageError(
                "there is no task to add",
                where=f"tokenized_path={folder.uri}",
                got=f"{len(kept):,} tasks, all of the base",
                hint=f"plan={uri} carries the base out as it is",
            )
        return cls(uri, manifest, kept, added)

    @cached_property
    def result(self) -> SampleResult:
        return SampleResult.from_manifest(self.manifest)

    @property
    def parts(self) -> list[int]:
        """How many tasks each plan has that the base is made of."""
        return self.result.parts

    @property
    def token_files(self) -> list[File]:
        """The base's files of tokens; none if it was planned without any."""
        names = {token_file(number) for number in range(len(self.parts))}
        return [file for file in map(File.from_json, self.result.sample) if file.path in names]

    def require_same_inputs(self, inputs: Sequence[InputRef]) -> None:
        """Raise InputError if other rows are chosen singly, or if another tokenizer splits rows."""
        ours, theirs = ({ref.role: ref.fingerprint for ref in refs} for refs in (inputs, self.manifest.inputs))
        # Added tasks may be the first that are split.
        tokenizer = ours.get(_TOKENIZER, "") if _TOKENIZER in theirs else ""
        for role, mine in ((CHOICES, ours.get(CHOICES, "")), (_TOKENIZER, tokenizer)):
            if mine != theirs.get(role, ""):
                raise InputError(
                    "rules choose other single rows" if role == CHOICES else "another tokenizer splits rows",
                    where=f"base={self.uri}",
                    got=mine or "none",
                    expected=theirs.get(role, "none"),
                    hint=_WITHOUT,
                )

    def require_same_rules(self, of_task: Mapping[str, Rule]) -> None:
        """Compare what the rules mean for the base's tasks with what they meant.

        Raises:
            InputError: some give other rows.
        """
        pairs = {task.name: source["name"] for task, source in zip(self.kept, self.result.sources, strict=True)}
        theirs = {name: Rule.from_manifest(self.result.rules[before]) for name, before in pairs.items()}
        other = [name for name, rule in theirs.items() if rule.to_manifest() != of_task[name].to_manifest()]
        if other:
            raise InputError(
                f"the rules give {len(other):,} tasks of the base other rows than it has",
                where=f"base={self.uri}",
                got=f"{listed(other)}; of the first {json.dumps(of_task[other[0]].to_manifest())}",
                expected=json.dumps(theirs[other[0]].to_manifest()),
                hint=f"give added tasks rules, groups and shares of their own, before those of the base; or {_WITHOUT}",
            )

    def require_removed(self, removed: Iterable[str]) -> None:
        """Raise InputError if the base may have rows of its tasks that a policy takes out: names of tasks."""
        names = [item.name for item in self.kept if item.name in {*removed}]
        if names and not {*policing.record()[REMOVALS]} <= {*self.result.policy.get(REMOVALS, ())}:
            raise InputError(
                "the base was drawn before rows were taken out of its tasks",
                where=f"base={self.uri}",
                got=listed(names),
                expected="a plan that was drawn with this policy=",
                hint=_WITHOUT,
            )

    def sampled(self, of_task: Mapping[str, Rule]) -> list[SampledRows]:
        """Return what was drawn of the base's tasks."""
        result = self.result
        return [
            SampledRows(
                name=task.name,
                rule=of_task[task.name],
                ledger=Ledger(**vars(self.manifest.shards[source["name"]])),
                length=source["length"],
                least_context=NEVER,
                examples={reason: [*rows] for reason, rows in result.examples.get(source["name"], {}).items()},
                stats=Stats(**result.stats[source["name"]]),
            )
            for task, source in zip(self.kept, result.sources, strict=True)
        ]

    def add(self, plan: SamplePlan, seed: int) -> Addition:
        """Draw where the rows of added tasks come.

        Raises:
            InputError: a plan does not hold as many.
        """
        rows, epochs = sizes_of(self.manifest)
        sizes = [rows + sum(item.rows for item in plan.datasets)]
        sizes += [count + len(order) for count, order in zip(epochs, plan.epochs, strict=True)]
        if max(sizes) > _MOST:
            raise InputError(
                "too many rows", where=f"base={self.uri}", got=f"{max(sizes):,}", expected=f"at most {_MOST:,}"
            )
        bases = len(self.parts)
        places = [
            PlanArray(added_places(str(seed), bases, number, len(order), total))
            for number, (order, total) in enumerate(zip(plan.epochs, sizes[1:], strict=True))
        ]
        return Addition(plan, places)

    def recorded(self) -> dict[str, Any]:
        """Return what the manifest of the new plan says of it."""
        return {"epochs": sizes_of(self.manifest)[1], "parts": [*self.parts, len(self.added)]}


def require_same_options(
    config: SampleConfig, layout: str, manifest: Manifest, what: str, without: str, but: Collection[str] = ()
) -> None:
    """Raise UsageError if an option that changes bytes differs from that of a plan, ``but`` for some.

    Args:
        layout: of the arrays.
        what: the plan, in messages.
        without: what to do in place of using it.
        but: options that may differ.
    """
    recorded = SampleResult.from_manifest(manifest)
    for name, value in {**byte_options(config), "layout": layout}.items():
        theirs = recorded.layout if name == "layout" else manifest.options.get(name)
        if value != theirs and name not in but:
            raise UsageError(
                f"differs from {what}",
                where=name,
                got=str(value),
                expected=str(theirs),
                hint=f"{name}={theirs}; or {without}",
            )


def require_same_tokenizer(result: SampleResult, folder: Folder, what: str, without: str) -> None:
    """Raise InputError unless a folder has the tokenizer of a plan; ``what`` and ``without`` as before."""
    if (result.tokenizer, json.loads(result.tokenizer_info)) != (folder.tokenizer or "", folder.info):
        raise InputError(
            f"{what} is of another tokenizer",
            where=f"tokenized_path={folder.uri}",
            got=folder.tokenizer or json.dumps(folder.info),
            expected=result.tokenizer or result.tokenizer_info,
            hint=f"tokenize all tasks with one tokenizer, and {without}",
        )


def match_tasks(
    sources: Sequence[Mapping[str, Any]], folder: Folder, what: str, without: str
) -> tuple[list[Dataset], list[tuple[Dataset, str]]]:
    """Return the tasks of a folder that the sources of a plan are, in their order, and the other ones with their keys.

    Of several tasks of one content those of the same names are the same. ``what`` and ``without`` are as before.

    Raises:
        InputError: a source is none of the tasks.
    """
    here = defaultdict[str, list[Dataset]](list)
    for task in folder.tasks:
        here[task.key].append(task)
    names, twins = defaultdict[str, set[str]](set), dict[int, Dataset]()
    for source in sources:
        names[source["key"]].add(source["name"])
    for number, source in enumerate(sources):
        mine = here[source["key"]]
        same = [task for task in mine if task.name == source["name"]]
        rest = [task for task in mine if task.name not in names[source["key"]]]
        for twin in [*same, *rest][:1]:
            mine.remove(twin)
            twins[number] = twin
    if missing := [source["name"] for number, source in enumerate(sources) if number not in twins]:
        raise InputError(
            f"{len(missing)} tasks of {what} are not in the tokenized folder, or changed there",
            where=f"tokenized_path={folder.uri}",
            got=listed(missing),
            expected=f"every task of {what} as it was, and others beside them",
            hint=f"give a folder that still has them, or {without}",
        )
    count = Counter(source["key"] for source in sources)
    added = [(task, twin_key(key, number)) for key in sorted(here) for number, task in enumerate(here[key], count[key])]
    return [task for _, task in sorted(twins.items())], added


def listed(names: Sequence[str]) -> str:
    """Name the first of these, and say how many more there are."""
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
