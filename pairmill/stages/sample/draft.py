"""A sample to draw: its options and inputs, and what becomes of them.

What only a mixture needs, or a plan that is drawn again, is in :mod:`pairmill.stages.sample.rare`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pairmill import log, storage
from pairmill.engine import inputs, policing, vanished
from pairmill.engine.links import LeftOut, left_out
from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.engine.options import byte_options
from pairmill.errors import InputError
from pairmill.formats import characters
from pairmill.formats.eligible_rows import NEVER, SPLIT, DatasetRows, rows_of
from pairmill.formats.removed_rows import RemovedRows, removed_rows
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import AFTER, BASE, CHOICES, HELD_OUT, PARTS
from pairmill.formats.source_facts import Facts
from pairmill.formats.split import Cutter
from pairmill.formats.tokenized import SAMPLED, Folder
from pairmill.formats.tokenized_path import keep_union, open_tokenized
from pairmill.formats.tokenizer_file import read as read_tokenizer
from pairmill.formats.tokens import BYTES, INDEX, Dataset
from pairmill.mixture.solve_folder import EffectiveRules
from pairmill.rules.book import Rules
from pairmill.rules.rule import Rule, reference_json
from pairmill.stages.sample import analytics
from pairmill.stages.sample.alarms import (
    NO_RULE,
    POLICY,
    alarms_of,
    check_rules,
    refuse_too_many,
    two_rules,
    without_rule,
)
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draw import DatasetToDraw, draw_plan, in_plan_order
from pairmill.stages.sample.node import owned
from pairmill.stages.sample.node.carry_out import CarriedOut, PlannedSample, threads
from pairmill.stages.sample.node.config import OutputFormat
from pairmill.stages.sample.node.folder import NAME
from pairmill.stages.sample.node.plan import VERSION, Addition, PlannedDataset, SamplePlan, fingerprint_of
from pairmill.stages.sample.removed import ref_of, take_out
from pairmill.stages.sample.sampled_rows import DrawnSample, SampledRows
from pairmill.stages.sample.wants import Wants

if TYPE_CHECKING:
    from pairmill.engine.writer import Writer
    from pairmill.stages.sample.rare import BasePlan, Growth, OpenMixture, ParentPlan, Parts, Realised, SeenRows


@dataclass
class Draft:
    """A sample to draw: its options and inputs.

    Attributes:
        config: with a mixture, its options in place of those that were given.
        rules: with a mixture, only what they say of long rows.
        tokenizer: the tokenizer.json, if a rule splits rows.
        mixed: the mixture to carry out, if there is one.
        base: the plan that tasks are added to, if there is one.
        parent: the plan that is extended, if there is one.
        parts: the epochs that the plan is put together of, if it is.
        seen: what a model saw before, if the plan goes on after another.
        written: its arrays on this machine, once the shard has written them.
        denied: tasks that a policy leaves out; ``policy`` is what it decided on all of them.
        left_out: links of the tokenized folder that were left out.
        removed: single rows that a policy takes out, by task.
    """

    config: SampleConfig
    folder: Folder
    rules: Rules
    tokenizer: bytes = b""
    mixed: OpenMixture | None = None
    base: BasePlan | None = None
    parent: ParentPlan | None = None
    parts: Parts | None = None
    seen: SeenRows | None = None
    written: CarriedOut | None = None
    denied: frozenset[str] = frozenset()
    policy: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[LeftOut, ...] = ()
    removed: Mapping[str, RemovedRows] = field(default_factory=dict)

    @classmethod
    def from_config(cls, config: SampleConfig) -> Draft:
        """Open the inputs that the options name."""
        parts = _rare().Parts.open(config) if config.compose else None
        opened = _rare().read_again(config) if config.again else cls._open(config, parts)
        config, folder, rules, mixed = opened
        denied = policing.leave_out_tasks(folder.tasks, f"tokenized_path={folder.uri}")
        if mixed is not None:
            mixed.refuse_denied(denied)
        split = any(rules.match(task.name)[0].long_context == "split" for task in folder.tasks)
        tokenizer = read_tokenizer(folder.tokenizer_file()) if split else b""
        removed = removed_rows(task for task in folder.tasks if task.name not in denied)
        policy = policing.record()
        draft = cls(
            config,
            folder,
            rules,
            tokenizer,
            mixed,
            denied=denied,
            policy=policy,
            left_out=left_out(),
            removed=removed,
            parts=parts,
        )
        if config.base or config.extend:
            draft.base, draft.parent = _rare().open_earlier(config, draft.layout, folder)
            if draft.base is not None:
                draft.base.require_removed(removed)
            if draft.parent is not None:
                draft.parent = draft.parent.choosing(draft.effective.choices_digest)
                if mixed is None:
                    draft.parent.tell_of_rules(rules.digest(), config.prefix_config_path)
        if config.after:
            draft.seen = _rare().SeenRows.from_config(config)
        elif draft.parent is not None and draft.parent.result.after:
            draft.seen = _rare().SeenRows.before(draft.parent.uri, draft.parent.manifest)
        if mixed is None and not config.again and not config.held_out:
            rules.check_tasks(task.name for task in folder.tasks)
        if draft.on_unmatched == "refuse" and (names := draft.unmatched):
            raise without_rule(names, config.prefix_config_path)
        return draft

    @staticmethod
    def _open(config: SampleConfig, parts: Parts | None) -> tuple[SampleConfig, Folder, Rules, OpenMixture | None]:
        mixed = None
        if parts is not None:
            config, rules = parts.applied_to(config), parts.rules
        else:
            rules = Rules.load(config.prefix_config_path, config.profile, "prefix_config_path")
        if config.held_out:
            rules = rules.of_long_rows(inputs.HELD_OUT)
        elif config.mixture:
            mixed = _rare().OpenMixture.open(config.mixture)
            config, rules = mixed.applied_to(config), rules.of_long_rows("")
        strays = config.profile == "pairmill"
        if config.extend and not config.tokenized_path:
            storage.require(storage.normalise(config.extend, "extend"), "a finished plan of sample", "extend")
            config = replace(config, tokenized_path=config.extend)
        folder = open_tokenized(
            config.tokenized_path,
            "tokenized_path",
            tolerate_strays=strays,
            verify=config.verify,
            held_out=config.held_out,
            tasks=config.tasks,
        )
        if config.root:
            keep_union(folder, config.root)
        if mixed is not None:
            mixed.require_same_inputs(folder, rules)
        return config, folder, rules, mixed

    @property
    def inputs(self) -> list[InputRef]:
        refs = [InputRef("tokenized", self.folder.fingerprint), InputRef("rules", self.rules.digest())]
        if self.tokenizer:
            refs.append(InputRef("tokenizer", hashlib.sha256(self.tokenizer).hexdigest()[:16]))
        if self.mixed:
            refs.append(InputRef("mixture", self.mixed.digest))
        if self.base:
            refs.append(InputRef(BASE, self.base.manifest.fingerprint))
        if self.parent:
            refs += self.parent.refs
        if self.parts:
            refs.append(InputRef(PARTS, self.parts.place))
        if self.seen:
            refs.append(InputRef(AFTER, self.seen.place))
        if self.effective.choices_digest:
            refs.append(InputRef(CHOICES, self.effective.choices_digest))
        if self.leaves:
            refs.append(InputRef("unmatched", "leave"))
        if self.left_out:
            refs.append(InputRef("left_out", hashlib.sha256(repr(self.left_out).encode()).hexdigest()[:16]))
        refs += [*policing.ref_of(self.policy), *ref_of(self.removed)]
        return [*refs, InputRef(HELD_OUT, "")] if self.config.held_out else refs

    @cached_property
    def unmatched(self) -> list[str]:
        """The tasks that no rule matches; none without rules, or if rules do not say what is taken."""
        if self.rules.is_empty or self.mixed or self.config.held_out:
            return []
        names = (task.name for task in self.folder.tasks if task.name not in self.denied)
        return [name for name in names if self.rules.label_of(name) is None]

    @property
    def on_unmatched(self) -> str:
        """What becomes of tasks that no rule matches."""
        return self.rules.on_unmatched(self.config.unmatched)

    @property
    def leaves(self) -> bool:
        """Whether tasks that no rule matches are left out."""
        return self.on_unmatched == "leave" and bool(self.unmatched)

    def why_off(self, task: str) -> str:
        """Return the ledger's reason why a task is left out by an option; empty = it is not."""
        if task in self.denied:
            return POLICY
        return NO_RULE if self.leaves and self.rules.label_of(task) is None else ""

    @cached_property
    def effective(self) -> EffectiveRules:
        """What the rules mean for the tasks."""
        config = self.config
        effective = EffectiveRules.open(
            self.rules,
            [task for task in self.folder.tasks if task.name not in self.denied],
            config,
            config.epochs,
            rows=config.rows,
            leave=self.leaves,
            verify=config.verify,
        )
        return replace(effective, seen=self.seen.total) if self.seen is not None else effective

    @cached_property
    def continuing(self) -> bytes:
        """Which tokens a row must not be cut before."""
        return characters.continuing(self.tokenizer, self.folder.uri)

    @property
    def layout(self) -> OutputFormat:
        if self.config.layout != "auto":
            return self.config.layout
        return "data_io" if self.config.profile == "data_io" else "compact"

    @property
    def fingerprint(self) -> str:
        return fingerprint_of(VERSION, byte_options(self.config), self.inputs, self.layout)

    def sample(self, out: Writer | None = None) -> PlannedSample:
        """Draw the sample, and keep its plan in ``out`` when its arrays are made."""
        ours, base = self.config.profile == "pairmill", self.base
        tasks = in_plan_order(self.folder.tasks) if ours else [(task, task.name) for task in self.folder.tasks]
        if base is not None:
            base.require_same_inputs(self.inputs)
            base.require_same_rules({task.name: self._rule_of(task) for task in self.folder.tasks})
            tasks = base.added
        if self.parent is not None:
            tasks = self.parent.tasks
            if self.parent.counted:
                self.parent.kept.count()  # before threads ask
        if self.parts is not None:
            self.parts.refuse_missing(self.folder.tasks, f"tokenized_path={self.folder.uri}")
        elif self.seen is not None:
            self.seen.count()  # before threads ask
        self._refuse_too_many()
        local = out is not None and storage.scheme(out.folder) == "file"
        drawn = draw_plan(
            [self._to_draw(task, key) for task, key in tasks],
            self.config,
            threads(self.config),
            storage.local_path(out.folder) if local and out is not None else None,
            len(base.parts) if base is not None else 0,
        )
        for first, removed in self.parent.removals(self.removed) if self.parent is not None else [(0, self.removed)]:
            drawn = take_out(drawn, removed, self.mixed.key_of if self.mixed is not None else None, first)
        added = [task for task, _ in tasks]
        if self.parent is not None:
            return self._sample_grown(self.parent, drawn, out)
        return self._sample(drawn, added, out) if base is None else self._sample_added(base, drawn, added, out)

    def _refuse_too_many(self) -> None:
        """Raise as :func:`refuse_too_many`."""
        rows = {}
        for task in self.folder.tasks if not self.mixed and not self.parts else ():
            rule = self._rule_of(task)
            if rule.repeat > 1 or rule.rows:
                there = task.counts[0] if rule.max_per_file is None else min(task.counts[0], rule.max_per_file)
                rows[task.name] = max(rule.rows) if rule.rows else there * rule.repeat
        refuse_too_many(self.rules, rows, self.config.prefix_config_path)

    def _sample(self, drawn: DrawnSample, tasks: list[Dataset], out: Writer | None) -> PlannedSample:
        plan = drawn.plan
        return PlannedSample(self._manifest(drawn), lambda: plan, lambda: tasks, keep=lambda: _keep(plan, out))

    def _sample_grown(self, parent: ParentPlan, drawn: DrawnSample, out: Writer | None) -> PlannedSample:
        rules = {item.name: item.rule for item in drawn.datasets}
        grown = parent.grow(drawn, rules, self.layout, threads(self.config))
        manifest = self._manifest(drawn._replace(plan=grown.plan), grown)
        return PlannedSample(
            manifest,
            lambda: grown.plan,
            lambda: grown.datasets,
            keep=lambda: _keep(grown.plan, out),
            shared=grown.shared,
        )

    def _sample_added(
        self, base: BasePlan, drawn: DrawnSample, tasks: list[Dataset], out: Writer | None
    ) -> PlannedSample:
        addition = base.add(drawn.plan, self.config.seed)
        sampled = [*base.sampled({task.name: self._rule_of(task) for task in base.kept}), *drawn.datasets]
        sums = [
            [mine + theirs for mine, theirs in zip(counts, under, strict=True)]
            for counts, under in ((drawn.lengths, base.result.lengths), (drawn.cuts, base.result.cuts))
        ]
        manifest = self._manifest(DrawnSample(drawn.plan, sampled, *sums))
        datasets = [PlannedDataset(item.name, item.length, item.stats.unique_rows) for item in sampled]

        def plan() -> SamplePlan:
            return addition.to(SamplePlan.load(base.uri, base.manifest, threads(self.config)), datasets)

        return PlannedSample(
            manifest,
            plan,
            lambda: [*base.kept, *tasks],
            keep=lambda: _keep(addition, out),
            added=drawn.plan,
            shared=base.token_files,
        )

    def _rule_of(self, task: Dataset) -> Rule:
        if task.name not in self.denied:
            return self.effective.of_task[task.name]
        if self.parent is not None:
            return self.parent.off(task.name)
        # The mixture counts the rows that its rule lets in, and draws none.
        return Rule(max_per_file=0) if self.mixed is None else self.rules.match(task.name)[0]

    def _to_draw(self, task: Dataset, key: str) -> DatasetToDraw:
        rule = self._rule_of(task)
        if self.parts is not None and task.name not in self.denied:
            rule = self.parts.rule_of(task, key, rule)
        ambiguous = self.config.profile == "data_io" and self.rules.match(task.name)[1]
        if ambiguous:
            log.event(f"Warning: Multiple possible prefixes for task {task.name}, pick config {reference_json(rule)}")
        if self.mixed is not None:
            wants = partial(self.mixed.wants_of, task.name, key)
        else:
            wants = partial(Wants.by_rule, rule, self.config.seed, f"task\0{key}")
        if self.parent is not None:
            wants = partial(_continued, self.parent, task.name, rule, wants)
        return DatasetToDraw(task.name, rule, partial(self._rows, task, rule), wants, self._files_of(task, rule))

    def _files_of(self, task: Dataset, rule: Rule) -> tuple[str, list[str]] | None:
        """Return what the planner reads by itself, if it can."""
        if rule.long_context == "split" or storage.scheme(task.uri) != "file":
            return None
        if rule.rows is not None if self.parts else self.seen is not None and task.key in self.seen.keys:
            return None
        if self.parent is not None and self.parent.has_kept(task.name):
            return None
        # Only rows that a loss is measured on take the bytes of their responses along.
        names = (*INDEX, BYTES) if self.config.held_out and task.has_bytes else INDEX
        digests = [task.contents[name].digest if name in task.contents else "" for name in names]
        return storage.local_text(task.uri), digests

    def _rows(self, task: Dataset, rule: Rule) -> DatasetRows:
        numbered = rule.members is not None or (self.mixed is not None and self.mixed.is_bucketed(task.name))
        index = task.index(with_bytes=self.config.held_out)
        if rule.long_context != "split":
            rows = rows_of(task.name, rule, index, self.config, numbered=numbered)
        else:
            with Cutter.open(task.array(), self.continuing) as cutter:
                rows = rows_of(task.name, rule, index, self.config, cutter, numbered=numbered)
        if self.parts is not None:
            if rule.rows is not None:
                self.parts.put_passes(task, rows)
        elif self.seen is not None and task.key in self.seen.keys:
            self.seen.put_passes(task, rows)
        if self.parent is not None and self.parent.has_kept(task.name):
            self.parent.put_kept(task, rows)
        return rows

    def _manifest(self, drawn: DrawnSample, grown: Growth | None = None) -> Manifest:
        sampled = drawn.datasets
        for item in sampled:
            if (reason := self.why_off(item.name)) and "not_sampled" in item.ledger.dropped:
                item.ledger.dropped[reason] = item.ledger.dropped.pop("not_sampled")
        ledgers = {item.name: item.ledger for item in sampled}
        ledger = Ledger.sum(ledgers.values())
        options = byte_options(self.config)
        if not ledger.rows_in:
            raise InputError(
                "the tokenized folder has no rows", where=f"tokenized_path={self.folder.uri}", hint="tokenize again"
            )
        if self.folder.rows not in {None, ledger.rows_in}:
            raise InputError(
                "the tokenized folder does not have the rows that its manifest counts",
                where=f"tokenized_path={self.folder.uri}",
                got=f"{ledger.rows_in:,} rows",
                expected=f"{self.folder.rows:,} rows",
                hint="the folder was changed after it was finished; tokenize again",
            )
        ledger.reconcile(NAME)
        if not ledger.rows_out and self.config.profile == "pairmill":
            # The reference makes empty files.
            raise self._nothing_left(ledger, sampled)
        stats = {item.name: item.stats for item in sampled}
        whole = analytics.total(stats.values())
        ledger.measures = {
            "epochs": self.config.epochs,
            "tokens_sampled": whole.cov_toks,
            "unique_tokens": whole.unique_toks,
            "response_tokens_sampled": whole.cov_rtoks,
            "truncated_tokens": ledger.measures.get("truncated_tokens", 0),
            **{name: ledger.measures[name] for name in SPLIT if name in ledger.measures},
        }
        realised = self._realised(sampled)
        names, mixed = [item.name for item in sampled], self.mixed is not None
        idle = [] if self.config.held_out else self.rules.idle(names, long_rows=mixed)
        result = SampleResult(
            layout=self.layout,
            analytics=analytics.markdown(stats, ledgers, self.config.profile, self.config.context_size, realised),
            stats={name: vars(item) for name, item in stats.items()},
            lengths=drawn.lengths,
            cuts=drawn.cuts,
            sources=self._sources(sampled) if grown is None else grown.sources,
            base=self.base.recorded() if self.base else {},
            parent=grown.recorded if grown is not None else {},
            composed=self.parts.recorded() if self.parts else (),
            after=self.seen.recorded(sampled) if self.seen else {},
            rules={item.name: item.rule.to_manifest() for item in sampled},
            prefixes={item.name: self.rules.label_of(item.name) for item in sampled},
            group_of_task={name: group for name in names if (group := self.rules.group_of(name))},
            idle_rules=[item.label for item in idle],
            hidden_rules={item.label: item.hidden_by for item in idle if item.hidden_by},
            # As text: the trainer gets its keys in the order in which the file has them.
            tokenizer_info=json.dumps(self.folder.info, ensure_ascii=False),
            # Loaders refuse to mix folders of two tokenizers; tokenizer_info does not tell them apart.
            tokenizer=self.folder.tokenizer or "",
            mixture={**realised.dump(), "sources": self._tasks_of_sources()} if realised else {},
            unmatched=[] if self.on_unmatched in ("leave", "take") else self.unmatched,
            two_rules=[] if mixed or self.config.held_out else two_rules(self.rules, names),
            examples={item.name: item.examples for item in sampled if item.examples},
            identified_by=SAMPLED if self.folder.sampled else "",
            policy=self.policy,
            removed={name: [*item.ordinals] for name, item in self.removed.items()},
            facts=Facts().of_tasks((storage.parent_of(task.uri), task.name) for task in self.folder.tasks),
            **self.effective.to_manifest({name: (item.cov_rows, item.cov_toks) for name, item in stats.items()}),
        )
        manifest = Manifest(
            stage=NAME,
            version=VERSION,
            fingerprint=self.fingerprint,
            options=options,
            inputs=self.inputs,
            ledger=ledger,
            files=[],
            shards=ledgers,
            data=result.to_data(),
        )
        manifest.vanished = vanished.table_of(manifest, alarms_of(result, ledgers), self.left_out)
        self.judge(manifest)
        return manifest

    def _sources(self, sampled: list[SampledRows]) -> list[dict[str, Any]]:
        """Return the tasks in the order of the plan, with what tells their content where draws follow it."""
        keys = {task.name: task.key for task in self.folder.tasks} if self.config.profile == "pairmill" else {}
        rows = ((item.name, item.length, item.stats.unique_rows) for item in sampled)
        return [
            {"name": name, "length": length, "rows": count, **({"key": keys[name]} if keys else {})}
            for name, length, count in rows
        ]

    def judge(self, manifest: Manifest) -> None:
        """Raise InputError if a sample is not what rules expect, or has an alarm that fails it."""
        check_rules(self.rules, manifest)
        vanished.refuse(manifest, self.config.fail_on)

    def _tasks_of_sources(self) -> dict[str, list[str]]:
        """Return the tasks of each source of the mixture, for the page over the line; a bucket is not a task."""
        assert self.mixed is not None
        result: dict[str, list[str]] = {}
        for (task, bucket), name in sorted(self.mixed.plan.source_of.items(), key=lambda item: item[0][0]):
            if bucket is None:
                result.setdefault(name, []).append(task)
        return result

    def _realised(self, sampled: list[SampledRows]) -> Realised | None:
        if self.mixed is None:
            return None
        drawn = {key: tokens for item in sampled for key, tokens in item.drawn.items()}
        first = self.parent.first if self.parent is not None else 0
        realised: Realised = _rare().Realised.from_drawn(self.mixed.plan, drawn, first)
        return realised

    def _nothing_left(self, ledger: Ledger, sampled: list[SampledRows]) -> InputError:
        least = min(each.least_context for each in sampled)
        if least == NEVER:
            hint = f"no response has min_resp_length={self.config.min_resp_length} tokens: lower it"
        elif least > self.config.context_size:
            hint = f"raise context_size={self.config.context_size}: the shortest row needs {least:,}"
        else:
            hint = "the rules select none: raise max_per_file, max_response_tokens_per_file or repeat"
            if self.mixed:
                hint = "the mixture draws none: raise its budget"
        reasons = sorted(ledger.dropped.items(), key=lambda item: (-item[1], item[0]))
        dropped = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in reasons)
        return InputError(
            "no row is left to sample",
            where=f"tokenized_path={self.folder.uri}",
            got=f"{ledger.rows_in:,} rows: {dropped}",
            expected="at least one",
            hint=hint,
        )


def _rare() -> ModuleType:
    """Import what few samples are drawn from: a third of the start of a plain one."""
    from pairmill.stages.sample import rare

    return rare


def _continued(parent: ParentPlan, task: str, rule: Rule, wants: Callable[[], Wants]) -> Wants:
    return parent.continued(task, rule, wants())


def _keep(plan: SamplePlan | Addition, out: Writer | None) -> None:
    if out is not None:
        with owned.errors_at(out.folder):  # the arrays that are written meanwhile are elsewhere
            plan.save(out)
