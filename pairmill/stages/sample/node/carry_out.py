"""Carries a plan out: makes its arrays in a folder of this machine unless they are there already.

This is what a node runs before a training; ``pairmill sample plan=… output_path=…``.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from pairmill import log, storage
from pairmill.cpu import available_cores
from pairmill.digest import shown
from pairmill.engine import manifest as manifests
from pairmill.engine.content import UNKNOWN, broken, require_unchanged
from pairmill.engine.manifest import MANIFEST, File, Manifest
from pairmill.engine.options import default_of
from pairmill.errors import InputError, UsageError
from pairmill.formats import tokens
from pairmill.formats.results import SampleResult
from pairmill.formats.sample_plan import FOLDER
from pairmill.formats.tokenized_path import find_planned
from pairmill.stages.sample.node import owned
from pairmill.stages.sample.node.config import NodeConfig, OutputFormat
from pairmill.stages.sample.node.folder import FACTS, NAME, Node
from pairmill.stages.sample.node.layout import CHUNK_TOKENS, ArrayLayout
from pairmill.stages.sample.node.materialize import SampleFiles, materialize, metadata
from pairmill.stages.sample.node.owned import OpenFolder
from pairmill.stages.sample.node.plan import VERSION, SamplePlan, fingerprint_of

_PAGE = 4096
_MAX_WORKERS = 32
"""More threads would only wait for the one that digests."""

MakeRoom = Callable[[int, int], None]


@dataclass(frozen=True)
class PlannedSample:
    """A sample to make.

    Args:
        manifest: its manifest, without files and their size.
        plan: loads the plan; called only if the arrays have to be made.
        datasets: finds the tokens of the plan's data sets; called only if the arrays have to be made.
        planned: the plan's own manifest; None if the plan is not stored.
        home: the plan's folder, for messages.
        keep: keeps a new plan; called when the arrays are made, and before their folder gets its name.
    """

    manifest: Manifest
    plan: Callable[[], SamplePlan]
    datasets: Callable[[], list[tokens.Dataset]]
    planned: Manifest | None = None
    home: str = ""
    keep: Callable[[], None] = lambda: None

    @property
    def files(self) -> list[File] | None:
        """Return the files that the plan names; None if no plan names them in this format."""
        planned = SampleResult.from_manifest(self.planned) if self.planned is not None else None
        if planned is None or planned.layout != SampleResult.from_manifest(self.manifest).layout:
            return None
        return [File.from_json(file) for file in planned.sample]

    def make(
        self, folder: OpenFolder | None, workers: int, make_room: MakeRoom = lambda *_: None
    ) -> tuple[Manifest, int]:
        """Make the arrays. Return their manifest, and the number of bytes read.

        Args:
            folder: an empty folder to write to; None = only digest.
            workers: threads.
            make_room: called before anything is written, with the bytes of all files and of memory to work with.

        Raises:
            InputError: the tokens changed since they were planned, or the files differ from the plan.
        """
        datasets, files = self.datasets(), self.files
        working = (workers + 1) * CHUNK_TOKENS * 8
        if files is not None and self.planned is not None:
            arrays = sum(file.size for file in self.planned.files if file.path.startswith(FOLDER))
            make_room(self._pages([file.size for file in files]), working + 2 * arrays)
        plan, manifest = self.plan(), self.manifest
        result = SampleResult.from_manifest(manifest)
        info = json.loads(result.tokenizer_info)
        vocab_size = info.get("vocab_size")
        layout = ArrayLayout(plan, result.layout, vocab_size)
        if files is None:
            make_room(self._pages(layout.sizes()), working)
        options, ledger = manifest.options, manifest.ledger
        ours = options["profile"] == "pairmill"
        more = {"epochs": options["epochs"], "truncated_rows": ledger.notes.get("truncated", 0)}
        if result.mixture:
            # Keys in one order, which a manifest does not keep.
            phases = result.mixture["phases"]
            more["phases"] = [{"name": item["name"], "epochs": item["epochs"]} for item in phases]
        about = metadata(
            info,
            options["context_size"],
            options["epochs"],
            ledger.measures["tokens_sampled"],
            more if ours else {},
        )
        limit = vocab_size if ours and isinstance(vocab_size, int) and not isinstance(vocab_size, bool) else None
        make = partial(materialize, folder, plan, layout, datasets, about=about, limit=limit, workers=workers)
        made = make() if files is not None else _of_unchanged_tokens(datasets, make)
        if files is not None:
            self._refuse_other_files(made.files, files)
        self.keep()
        measures = {**ledger.measures, "bytes": sum(file.size for file in made.files)}
        return replace(manifest, files=made.files, ledger=replace(ledger, measures=measures)), made.read

    def _pages(self, sizes: list[int]) -> int:
        """Return the bytes that files of these sizes, the manifest and two small files take, in whole pages."""
        return sum(-(-size // _PAGE) * _PAGE for size in [*sizes, len(self.manifest.dump()), 1, 1])

    def _refuse_other_files(self, made: list[File], planned: list[File]) -> None:
        wrong = [(item, other) for item, other in zip(made, planned, strict=True) if item != other]
        if wrong:
            item, other = wrong[0]
            raise InputError(
                f"{len(wrong)} of {len(made)} files differ from the plan",
                where=f"{self.home}: {other.path}",
                got=f"{item.size:,} bytes, {shown(item.digest)}",
                expected=f"{other.size:,} bytes, {shown(other.digest)}",
                hint="no file was kept; the tokens changed since the plan was made, or were read incorrectly: "
                "check them, or make a new plan",
            )


def _of_unchanged_tokens(datasets: list[tokens.Dataset], make: Callable[[], SampleFiles]) -> SampleFiles:
    """Make files that no plan has digests of. Raise Changed if the tokens differ from their manifest."""
    uris = {storage.join(item.uri, "tokens.npy"): item.contents.get("tokens", UNKNOWN) for item in datasets}
    # In a bucket each read is pinned by its ETag.
    local = {
        uri: replace(item, stamp=item.stamp or storage.store_for(uri).stamp(uri))
        for uri, item in uris.items()
        if storage.scheme(uri) == "file"
    }
    for error in broken({uri: content for uri, content in local.items() if content.promised}).values():
        raise error
    made = make()
    for uri, content in local.items():
        require_unchanged(uri, content)
    return made


def threads(config: NodeConfig) -> int:
    return config.workers or min(available_cores(), _MAX_WORKERS)


def open_plan(config: NodeConfig) -> PlannedSample:
    """Return the sample of the plan that the options name, in the format that they name.

    Raises:
        UsageError: an option contradicts the plan.
        InputError: there is no such plan, or it is of another version.
    """
    if manifests.is_fingerprint(config.plan) and not config.root:
        raise UsageError(
            "required with the fingerprint of a plan",
            where="root",
            got=f"plan={config.plan}",
            expected="the project folder that contains the plan, or plan=<its folder>",
        )
    root = storage.normalise(config.root, "root") if config.root else ""
    given = storage.join(root, NAME, config.plan) if manifests.is_fingerprint(config.plan) else config.plan
    home = storage.normalise(given, "plan")
    manifest = manifests.read_intact(home)
    if manifest is None or manifest.stage != NAME or "sample" not in manifest.data:
        raise InputError(
            "not a plan",
            where=f"plan={home}",
            expected="a folder that the sample stage made below <root>/sample",
            hint="run the stage with root=… first, and give the folder that it prints",
        )
    if manifest.version != VERSION:
        raise InputError(
            "the plan is of another version",
            where=home,
            got=str(manifest.version),
            expected=str(VERSION),
            hint="make a new plan",
        )
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if item.name in manifest.options and value not in {default_of(item), manifest.options[item.name]}:
            raise UsageError(
                "differs from the plan",
                where=item.name,
                got=str(value),
                expected=str(manifest.options[item.name]),
                hint="leave it out, or make a new plan",
            )
    result = SampleResult.from_manifest(manifest)
    planned: OutputFormat = result.layout
    layout: OutputFormat = config.layout if config.layout != "auto" else planned
    fingerprint = fingerprint_of(manifest.version, manifest.options, manifest.inputs, layout)
    data = replace(result, sample=(), layout=layout).to_data()
    root = root or storage.parent_of(storage.parent_of(home))
    return PlannedSample(
        replace(manifest, fingerprint=fingerprint, data=data),
        partial(SamplePlan.load, home, manifest, threads(config)),
        partial(_datasets, config, manifest, root, digested=layout != planned),
        manifest,
        home,
    )


def _datasets(config: NodeConfig, plan: Manifest, root: str, digested: bool) -> list[tokens.Dataset]:
    """Find the tokens of the plan's data sets; ``digested``: with digests, if the plan has none of the files."""
    tokenized = next(ref.fingerprint for ref in plan.inputs if ref.role == "tokenized")
    names = [source["name"] for source in SampleResult.from_manifest(plan).sources]
    return find_planned(config.tokenized_path, root, tokenized, names, digested=digested)


@dataclass(frozen=True)
class CarriedOut:
    """A sample, or a plan of one; ``where`` is the plan's folder, or that of the arrays if no plan is kept."""

    manifest: Manifest
    where: str
    reused: bool = False


def carry_out(
    config: NodeConfig, fingerprint: str, describe: Callable[[], PlannedSample], files: list[File] | None = None
) -> CarriedOut:
    """Make the sample in ``output_path`` unless it is there, and make it the node's current one.

    Args:
        config: where, and how.
        fingerprint: of the sample.
        describe: returns the sample; called only if it has to be made, and before anything is written.
        files: those that it must have, if they are known.
    """
    node = Node(config.output_path, fingerprint)
    node.sweep()
    manifest, reused = _make_or_reuse(config, node, describe, files)
    node.make_current()
    size = manifest.ledger.measures["bytes"]
    log.event(f"{NAME}: {node.target} holds {size:,} bytes", folder=str(node.target), bytes=size)
    return CarriedOut(manifest, str(node.target), reused)


def _make_or_reuse(
    config: NodeConfig, node: Node, describe: Callable[[], PlannedSample], files: list[File] | None
) -> tuple[Manifest, bool]:
    start, workers = time.monotonic(), threads(config)
    load = partial(node.load_if_intact, workers, expected=files, verify=config.verify)
    if (manifest := load()) is not None:
        return manifest, True
    sample = describe()
    with owned.errors_at(f"output_path={node.target}"), node.partial() as folder:
        # Another run may have made it while this one waited for the lock.
        if (manifest := load()) is not None:
            return manifest, True
        manifest, read = sample.make(folder, workers, partial(node.make_room, keep=config.keep))
        folder.write(MANIFEST, manifest.dump())
        facts = {"seconds": round(time.monotonic() - start, 3), "read_bytes": read}
        node.record(folder, owned.state(folder.handle, FACTS), facts)  # digested as they were written
        node.commit(folder)
    return manifest, False
