"""The sample stage: a tokenized folder and a rule file → a plan, and on a machine that trains the arrays of it.

It is no list of shards: a plan is small, and its arrays are one folder, made in one go or not at all.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from components.sample import analytics, plan
from components.sample.config import Layout, SampleConfig
from components.sample.node import owned
from components.sample.node.folder import NAME, Node
from components.sample.node.layout import PIECE, Arrangement
from components.sample.node.materialize import materialize, metadata
from components.sample.node.owned import Folder
from components.sample.node.space import refuse_unless_fits
from components.sample.plan import Findings, Plan, Source
from components.sample.row_filter import NEVER, TaskRows, rows_of
from pairmill import log, storage
from pairmill.cpu import available_cores
from pairmill.engine import manifest as manifests
from pairmill.engine.content import UNKNOWN, Content, broken, require_unchanged
from pairmill.engine.manifest import MANIFEST, File, InputRef, Ledger, Manifest
from pairmill.engine.metrics import of_rows
from pairmill.engine.options import byte_options, default_of
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, UsageError
from pairmill.formats import tokens
from pairmill.formats.prefixes import Rule, Rules, reference_json
from pairmill.interface.cli import Outcome

if TYPE_CHECKING:
    from pairmill.report.model import Report

VERSION = 3
HISTORY = {
    2: "plans hold rows and digests now",
    3: "one was kept when tokens changed while they were read; it says neither what was cut nor whose tokenizer it was",
}
"""For each version from 2 on, why results of the version before are not used again."""
_TOKENIZE = "tokenize"
_PAGE = 4096
_MOST_WORKERS = 32
"""More threads would wait for the one that digests."""


_Made = tuple[Plan, Manifest]


@dataclass(frozen=True)
class _Sample:
    """A sample that is wanted: what makes it what it is, and where what it is made of stands.

    Args:
        options: those that change bytes.
        inputs: what is read, by content.
        layout: of the arrays.
        home: folder of the plan; empty = none is kept.
        planned: manifest of the plan, if it is made already, whatever its layout.
        tasks: finds the tokens of the tasks, in order; asked only when they are to be read.
        make: makes the plan and its manifest, with so many threads; None where one was given.
        verify: whether arrays that are there are read before they are taken for whole.
    """

    options: dict[str, Any]
    inputs: list[InputRef]
    layout: Layout
    home: str
    planned: Manifest | None
    tasks: Callable[[], list[tokens.Task]]
    make: Callable[[int], _Made] | None
    verify: bool

    @property
    def fingerprint(self) -> str:
        """Content identity of the arrays."""
        return _fingerprint(self.options, self.inputs, self.layout)

    @property
    def expected(self) -> list[File] | None:
        """The files that the plan says; None without a plan, or with one for another layout."""
        if self.planned is None or self.planned.data["layout"] != self.layout:
            return None
        return [File(**file) for file in self.planned.data["sample"]]


def run(config: SampleConfig) -> Outcome:
    """Plan, write what is missing of the plan and the arrays, and say what was sampled."""
    start = time.monotonic()
    workers = config.workers or min(available_cores(), _MOST_WORKERS)
    sample = _of_plan(config) if config.plan else _of_options(config)
    node = Node(config.output_path, sample.fingerprint) if config.output_path else None
    if node is not None:
        node.sweep()
    manifest = _complete(sample, node, workers)
    reused = manifest is not None
    if reused:
        log.event(f"{NAME}: reused, nothing to do", stage=NAME, fingerprint=sample.fingerprint)
    else:
        if sample.home and sample.planned is None:
            from pairmill.engine.runner import say_why_made_again  # a node that carries out a plan needs nothing of it

            say_why_made_again(NAME, VERSION, HISTORY, storage.parent_of(sample.home))
        # Before anything is written: input that cannot be planned leaves not even a folder.
        made = sample.make(workers) if sample.make is not None and sample.planned is None else None
        if node is None:
            manifest = _produce(sample, made, workers)[0]
        else:
            manifest = _write(sample, made, node, config.keep, workers, start)
    assert manifest is not None
    if node is not None:
        node.want()
        size = manifest.ledger.measures["bytes"]
        log.event(f"{NAME}: {node.target} holds {size:,} bytes", folder=str(node.target), bytes=size)
    return _outcome(manifest, sample.home, node, reused, time.monotonic() - start)


def _fingerprint(options: dict[str, Any], inputs: Iterable[InputRef], layout: Layout) -> str:
    refs = [[ref.role, ref.fingerprint] for ref in inputs]
    return manifests.content_key(NAME, VERSION, {**options, "layout": layout}, refs)[:16]


def _of_options(config: SampleConfig) -> _Sample:
    rules = Rules.load(config.prefix_config_path, config.profile, "prefix_config_path")
    folder = tokens.open_folder(
        config.tokenized_path,
        "tokenized_path",
        tolerate_strays=config.profile == "pairmill",
        verify=config.verify,
    )
    layout: Layout = config.layout if config.layout != "auto" else _LAYOUT_OF[config.profile]
    options = byte_options(config)
    inputs = [InputRef("tokenized", folder.fingerprint), InputRef("rules", rules.digest())]
    fingerprint = _fingerprint(options, inputs, layout)
    home = storage.join(storage.normalise(config.root, "root"), NAME, fingerprint) if config.root else ""
    planned = manifests.reusable(home, verify=config.verify) if home else None

    def make(workers: int) -> _Made:
        made, findings = plan.make(_rows(folder, rules, config), config, workers)
        manifest = Manifest(NAME, VERSION, fingerprint, options, inputs, Ledger(), [])
        return made, _describe(made, findings, folder, rules, manifest)

    return _Sample(options, inputs, layout, home, planned, lambda: folder.tasks, make, config.verify)


_LAYOUT_OF: dict[str, Layout] = {"pairmill": "compact", "data_io": "data_io"}


def _of_plan(config: SampleConfig) -> _Sample:
    if manifests.is_fingerprint(config.plan) and not config.root:
        raise UsageError("is empty", where="root", expected="the project folder that has the plan", got=config.plan)
    root = storage.normalise(config.root, "root") if config.root else ""
    below = storage.join(root, NAME, config.plan) if manifests.is_fingerprint(config.plan) else config.plan
    home = storage.normalise(below, "plan")
    manifest = manifests.read_whole(home)
    if manifest is None or manifest.stage != NAME or "sample" not in manifest.data:
        raise InputError(
            "is no plan",
            where=f"plan={home}",
            expected="a folder that the sample stage made below <root>/sample",
            hint="run the stage with root=… first, and give the folder that it names",
        )
    if manifest.version != VERSION:
        raise InputError(
            "is a plan of another version",
            where=home,
            got=str(manifest.version),
            expected=str(VERSION),
            hint="plan again",
        )
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if item.name in manifest.options and value not in {default_of(item), manifest.options[item.name]}:
            raise UsageError(
                "the plan says otherwise",
                where=item.name,
                got=str(value),
                expected=str(manifest.options[item.name]),
                hint="leave it out, or plan again",
            )
    layout: Layout = config.layout if config.layout != "auto" else manifest.data["layout"]
    root = root or storage.parent_of(storage.parent_of(home))
    tasks = partial(_tasks_of_plan, config, manifest, root, layout != manifest.data["layout"])
    return _Sample(manifest.options, manifest.inputs, layout, home, manifest, tasks, None, config.verify)


def _tasks_of_plan(config: SampleConfig, manifest: Manifest, root: str, known: bool) -> list[tokens.Task]:
    """The tasks; ``known``: with what their arrays have to be, where the plan has no digests of what is made."""
    tokenized = next(ref.fingerprint for ref in manifest.inputs if ref.role == "tokenized")
    given = storage.normalise(config.tokenized_path, "tokenized_path") if config.tokenized_path else ""
    folder = given or storage.join(root, _TOKENIZE, tokenized)
    found = manifests.read(folder)
    if found is not None and found.fingerprint != tokenized:
        raise _other_folder(folder, found.fingerprint, tokenized)
    if found is None and not given:
        raise InputError(
            "the tokenized folder of the plan is not there",
            where=folder,
            hint="say where it is: tokenized_path=…",
        )
    names = [source["name"] for source in manifest.data["sources"]]
    if not known:
        return [tokens.Task(name, storage.join(folder, name)) for name in names]
    opened = tokens.open_folder(folder, "tokenized_path", tolerate_strays=True)
    if opened.fingerprint != tokenized:
        raise _other_folder(folder, opened.fingerprint, tokenized)
    by_name = {task.name: task for task in opened.tasks}
    return [by_name[name] for name in names]


def _other_folder(folder: str, got: str, expected: str) -> InputError:
    what = "is another folder than the plan was made of"
    return InputError(what, where=f"tokenized_path={folder}", got=got, expected=expected)


def _rows(folder: tokens.Folder, rules: Rules, config: SampleConfig) -> list[Callable[[], TaskRows]]:
    """What gives the rows of each task, when they are asked for."""

    def read(task: tokens.Task, rule: Rule) -> TaskRows:
        return rows_of(task.name, rule, task.index(), config)

    found: list[Callable[[], TaskRows]] = []
    for task in folder.tasks:
        rule, ambiguous = rules.match(task.name)
        if ambiguous and config.profile == "data_io":
            log.event(f"Warning: Multiple possible prefixes for task {task.name}, pick config {reference_json(rule)}")
        found.append(partial(read, task, rule))
    return found


def _describe(
    made: Plan, findings: list[Findings], folder: tokens.Folder, rules: Rules, manifest: Manifest
) -> Manifest:
    ledger = manifest.ledger
    for one in findings:
        ledger.add(one.ledger)
    if not ledger.rows_in:
        raise InputError(
            "the tokenized folder holds no row", where=f"tokenized_path={folder.uri}", hint="tokenize again"
        )
    if folder.rows is not None and folder.rows != ledger.rows_in:
        raise InputError(
            "the tokenized folder holds other rows than its manifest says",
            where=folder.uri,
            got=str(ledger.rows_in),
            expected=str(folder.rows),
            hint="tokenize again",
        )
    ledger.reconcile(NAME)
    if not ledger.rows_out and manifest.options["profile"] == "pairmill":
        # The reference makes empty files of it.
        raise _nothing_left(ledger, findings, manifest.options, folder)
    stats = {one.name: one.stats for one in findings}
    whole = analytics.total(stats)
    ledger.measures = {
        "epochs": manifest.options["epochs"],
        "tokens_sampled": whole.cov_toks,
        "unique_tokens": whole.unique_toks,
        "response_tokens_sampled": whole.cov_rtoks,
        "truncated_tokens": ledger.measures.get("truncated_tokens", 0),
    }
    manifest.shards = {one.name: one.ledger for one in findings}
    manifest.data = {
        "analytics": analytics.markdown(stats, manifest.shards, manifest.options["profile"]),
        "stats": {name: asdict(one) for name, one in stats.items()},
        "lengths": np.sum([one.lengths for one in findings], axis=0).tolist(),
        "cuts": np.sum([one.cuts for one in findings], axis=0).tolist(),
        "sources": [asdict(source) for source in made.sources],
        "rules": {one.name: asdict(one.rule) for one in findings},
        "prefixes": {one.name: rules.prefix_of(one.name) for one in findings},
        "idle_rules": rules.idle(one.name for one in findings),
        # As text: the trainer gets its keys in the order in which they are written there.
        "tokenizer_info": json.dumps(folder.info, ensure_ascii=False),
        # Loaders refuse to mix folders of two; tokenizer_info does not tell them apart.
        **({"tokenizer": folder.tokenizer} if folder.tokenizer else {}),
    }
    return manifest


def _nothing_left(
    ledger: Ledger, findings: list[Findings], options: dict[str, Any], folder: tokens.Folder
) -> InputError:
    context, least = options["context_size"], min(one.least_context for one in findings)
    if least == NEVER:
        hint = f"no response has min_resp_length={options['min_resp_length']} tokens: lower it"
    elif least > context:
        hint = f"raise context_size={context}: the shortest row needs {least:,}"
    else:
        hint = "the rules take none: raise max_per_file, max_response_tokens_per_file or repeat"
    reasons = sorted(ledger.dropped.items(), key=lambda item: (-item[1], item[0]))
    return InputError(
        "no row is left to sample",
        where=f"tokenized_path={folder.uri}",
        got=f"{ledger.rows_in:,} rows: " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in reasons),
        expected="at least one",
        hint=hint,
    )


def _complete(sample: _Sample, node: Node | None, workers: int) -> Manifest | None:
    """The manifest, if nothing is to be done: the plan is kept where it should be, and the arrays where they should."""
    if sample.home and sample.planned is None:
        return None
    return sample.planned if node is None else _standing(sample, node, workers)


def _standing(sample: _Sample, node: Node, workers: int) -> Manifest | None:
    """The manifest of the arrays on this machine, if they are whole and what the plan says."""
    made = node.finished()
    if made is None or sample.expected not in (None, made.files):
        return None
    return made if node.verified(made, workers, afresh=sample.verify) else None


def _write(sample: _Sample, made: _Made | None, node: Node, keep: int, workers: int, start: float) -> Manifest:
    with owned.errors_name(f"output_path={node.target}"), node.partial() as folder:
        # They may have stood before, or another process made them while this one waited for the lock.
        standing = _standing(sample, node, workers)
        if standing is not None:
            return _complete(sample, node, workers) or _produce(sample, made, workers)[0]

        def room(needed: int, working: int) -> None:
            outdated = node.outdated(keep)
            # A sample that is refused costs no older one.
            refuse_unless_fits(node.target, needed, working, sum(map(_size, outdated)))
            node.retire(outdated)
            refuse_unless_fits(node.target, needed, working)

        manifest, read = _produce(sample, made, workers, folder, room)
        owned.write(folder, MANIFEST, manifest.dump())
        node.facts(folder, seconds=round(time.monotonic() - start, 3), read_bytes=read)
        node.commit(folder)
        return manifest


def _size(folder: Path) -> int:
    """Bytes of a folder's files; of one that another sampler removes at this moment, of those that are left."""
    size = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_size
    return size


def _produce(
    sample: _Sample,
    made: _Made | None,
    workers: int,
    folder: Folder | None = None,
    room: Callable[[int, int], None] | None = None,
) -> tuple[Manifest, int]:
    """Make the arrays, and keep the plan if it is new; the bytes read too.

    Args:
        sample: what to make.
        made: the new plan and its manifest; None where one is kept already.
        workers: threads.
        folder: an empty folder to write to; None only digests.
        room: is told, before anything is written, the bytes of all files, and of memory to work with.
    """
    working = (workers + 1) * PIECE * 8
    expected = sample.expected
    tasks = sample.tasks()
    if room is not None and sample.planned is not None and expected is not None:
        arrays = sum(file.size for file in sample.planned.files if file.path.startswith("plan/"))
        room(_pages([file.size for file in expected], sample.planned), working + 2 * arrays)
    if made is not None:
        the_plan, manifest = made
    else:
        assert sample.planned is not None
        sources = [Source(**source) for source in sample.planned.data["sources"]]
        the_plan = plan.load(sample.home, sample.planned, sources, workers)
        manifest = replace(sample.planned, fingerprint=sample.fingerprint)
    info = json.loads(manifest.data["tokenizer_info"])
    size = info.get("vocab_size")
    arrangement = Arrangement(the_plan, sample.layout, size)
    if room is not None and expected is None:
        room(_pages(arrangement.sizes(), manifest), working)
    options, ledger = manifest.options, manifest.ledger
    ours = options["profile"] == "pairmill"
    about = metadata(
        info,
        options["context_size"],
        options["epochs"],
        ledger.measures["tokens_sampled"],
        {"epochs": options["epochs"], "truncated_rows": ledger.notes.get("truncated", 0)} if ours else {},
    )
    limit = size if ours and isinstance(size, int) and not isinstance(size, bool) else None
    if expected is None:
        _refuse_broken(tasks)
    done = materialize(folder, the_plan, arrangement, tasks, about, limit, workers)
    if expected is not None:
        _compare(done.files, expected, sample)
    else:
        for uri, content in _tokens_of(tasks).items():
            require_unchanged(uri, content)
    measures = {**ledger.measures, "bytes": sum(file.size for file in done.files)}
    data = {key: value for key, value in manifest.data.items() if key != "sample"} | {"layout": sample.layout}
    manifest = replace(manifest, files=done.files, ledger=replace(ledger, measures=measures), data=data)
    if sample.home and sample.planned is None:
        _keep(sample.home, the_plan, manifest)
    return manifest, done.read


def _tokens_of(tasks: list[tokens.Task]) -> dict[str, Content]:
    """What is known of the tokens that are read, by URI. In a bucket each reading is pinned by its ETag."""
    found = {storage.join(task.uri, "tokens.npy"): task.contents.get("tokens", UNKNOWN) for task in tasks}
    return {uri: content for uri, content in found.items() if storage.scheme(uri) == "file"}


def _refuse_broken(tasks: list[tokens.Task]) -> None:
    """Raise Changed if tokens are not what the manifest of their folder says; without a plan nothing else shows it."""
    wrong = broken({uri: content for uri, content in _tokens_of(tasks).items() if content.promised})
    for error in wrong.values():
        raise error


def _pages(sizes: list[int], manifest: Manifest) -> int:
    """Bytes that files of these sizes, a manifest like this one, and two small files take, in whole pages."""
    return sum(-(-size // _PAGE) * _PAGE for size in [*sizes, len(manifest.dump()), 1, 1])


def _compare(made: list[File], expected: list[File], sample: _Sample) -> None:
    wrong = [(one, other) for one, other in zip(made, expected, strict=True) if one != other]
    if wrong:
        one, other = wrong[0]
        raise InputError(
            f"{len(wrong)} of {len(made)} files are not what the plan says",
            where=f"{sample.home}: {other.path}",
            got=f"{one.size:,} bytes, sha256 {one.sha256[:16]}…",
            expected=f"{other.size:,} bytes, sha256 {other.sha256[:16]}…",
            hint="nothing was kept; the tokens changed since, or were read wrong: check them, or plan again",
        )


def _keep(home: str, made: Plan, manifest: Manifest) -> None:
    """Write the plan. Its bytes are the same whether or not the arrays were made on this machine."""
    # What goes wrong here is about this place, whatever else is being written meanwhile.
    with owned.errors_name(home):
        manifests.begin(home, NAME, manifest.fingerprint)
        out = Writer(home)
        plan.save(made, out)
        out.write("report.md", manifest.data["analytics"].encode())
        out.write("report.html", _report(manifest).html().encode())
        out.flush()
        data = {**manifest.data, "sample": [asdict(file) for file in manifest.files]}
        manifests.finish(home, replace(manifest, files=out.files, data=data))


def _report(manifest: Manifest) -> Report:
    # Nodes make none, and start faster without.
    from components.sample.report import report_of

    return report_of(manifest)


def _outcome(manifest: Manifest, home: str, node: Node | None, reused: bool, seconds: float) -> Outcome:
    ledger = manifest.ledger
    where = home or str(node.target if node else "")
    rows = ledger.rows_out
    measures = ledger.measures
    metrics = {
        **of_rows(ledger),
        "truncated_rows": ledger.notes.get("truncated", 0),
        # A sample of an older pairmill did not count them.
        "truncated_tokens": measures.get("truncated_tokens", 0),
        "tokens": measures["tokens_sampled"],
        "response_tokens": measures["response_tokens_sampled"],
        "unique_tokens": measures["unique_tokens"],
        "epochs": measures["epochs"],
        "tasks": len(manifest.shards),
        "bytes": measures["bytes"],
    }
    return Outcome(
        stdout=manifest.data["analytics"],
        parameters={"output": where, "fingerprint": manifest.fingerprint, "rows_out": rows},
        metrics=metrics,
        report=lambda: _report(manifest),
        manifest=manifest.dump(),
        metadata={"data": where, "fingerprint": manifest.fingerprint, "rows_out": rows},
        reused=reused,
        seconds=seconds,
    )
