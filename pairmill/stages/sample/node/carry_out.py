"""Carries a plan out: makes its arrays in a folder of this machine unless they are there already.

This is what a node runs before a training; ``pairmill sample plan=… output_path=…``.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from typing import Any, NamedTuple

from pairmill import log, storage
from pairmill.cpu import available_cores
from pairmill.digest import digest_files, is_blake3, shown
from pairmill.engine import manifest as manifests
from pairmill.engine.content import UNKNOWN, Content, broken
from pairmill.engine.manifest import MANIFEST, File, Manifest
from pairmill.engine.options import default_of
from pairmill.errors import InputError, UsageError, from_os_error
from pairmill.formats import tokens
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.sample_plan import FOLDER
from pairmill.formats.token_listing import lasting, named
from pairmill.formats.tokenized_path import find_planned
from pairmill.stages.sample.node import owned
from pairmill.stages.sample.node.config import NodeConfig, OutputFormat
from pairmill.stages.sample.node.digested import keep, marks_of, unchanged
from pairmill.stages.sample.node.facts import FACTS
from pairmill.stages.sample.node.folder import NAME, Node
from pairmill.stages.sample.node.layout import (
    ROW_BYTES,
    ROW_BYTES_APART,
    ArrayLayout,
    CopiedTokens,
    index_dtypes,
    token_dtype,
    token_file,
)
from pairmill.stages.sample.node.materialize import (
    CHUNK_TOKENS,
    METADATA,
    TOKENS,
    SampleFiles,
    digest_rows,
    list_parts,
    list_tasks,
    materialize,
    metadata,
    write_metadata,
)
from pairmill.stages.sample.node.owned import OpenFolder
from pairmill.stages.sample.node.plan import VERSION, SamplePlan, fingerprint_of, planned_datasets
from pairmill.stages.sample.node.plan_arrays import HEADER_BYTES

_PAGE = 4096
_MAX_WORKERS = 32
"""More threads would only wait for the one that digests."""

MakeRoom = Callable[[int, int], None]
LinkFiles = Callable[[OpenFolder, list[File]], list[File]]


class PlannedSample(NamedTuple):
    """A sample to make.

    Args:
        manifest: its manifest, without files and their size.
        plan: loads the plan; called only if the arrays have to be made.
        datasets: finds the tokens of the plan's data sets; called only if the arrays have to be made.
        planned: the plan's own manifest; None if the plan is not stored.
        home: the plan's folder, for messages.
        keep: keeps a new plan; called when the arrays are made, and before their folder gets its name.
        added: of a new plan that adds to another, what it adds.
        shared: the files that it has of its base, or of the plan that it extends.
    """

    manifest: Manifest
    plan: Callable[[], SamplePlan]
    datasets: Callable[[], list[tokens.Dataset]]
    planned: Manifest | None = None
    home: str = ""
    keep: Callable[[], None] = lambda: None
    added: SamplePlan | None = None
    shared: Sequence[File] = ()

    @property
    def files(self) -> list[File] | None:
        """Return the files that the plan knows; None if there is no plan in this format."""
        planned = SampleResult.from_manifest(self.planned) if self.planned is not None else None
        if planned is None or planned.layout != SampleResult.from_manifest(self.manifest).layout:
            return None
        return lasting(File.from_json(file) for file in planned.sample)

    def make(
        self,
        folder: OpenFolder | None,
        workers: int,
        make_room: MakeRoom = lambda *_: None,
        link: LinkFiles = lambda *_: [],
    ) -> tuple[Manifest, int]:
        """Make the arrays. Return their manifest, and the number of bytes read.

        Args:
            folder: an empty folder to write to; None = only digest.
            make_room: called before anything is written, with the bytes of all files and of memory to work with.
            link: links files that other samples have into the folder, and returns those; called if the plan names them.

        Raises:
            InputError: the tokens changed since they were planned, or the files differ from the plan.
        """
        files, result = self.files, SampleResult.from_manifest(self.manifest)
        needed = [file for file in files or self.shared if file.path != METADATA]
        if folder is None:
            linked = [*self.shared] if self.added is None else []
        else:
            linked = link(folder, needed) if needed else []
        wanted = [file for file in files or () if file not in linked]
        if self.added is not None and folder is None:
            made = self._digest_added(self.added, workers)
        elif (
            files is not None
            and result.layout != "reference"
            and len(result.parts) == 1
            and all(file.path == METADATA for file in wanted)
        ):
            make_room(self._pages([file.size for file in wanted]), 0)
            arrays = [*linked, write_metadata(folder, self._about())]
            made = SampleFiles(sorted(arrays, key=lambda file: file.path), 0)
        else:
            made = self._make_arrays(folder, workers, make_room, linked)
        if files is not None:
            self._refuse_other_files(named(made.files, files), files)
        shared = {file.path for file in self.shared}
        self._refuse_other_files([file for file in made.files if file.path in shared], [*self.shared])
        self.keep()
        ledger = self.manifest.ledger
        size = sum(file.size for file in made.files)
        if self.added is not None and folder is None:
            size += self._bytes_of_epochs(self.added)
        measures = {**ledger.measures, "bytes": size}
        return replace(self.manifest, files=made.files, ledger=replace(ledger, measures=measures)), made.read

    def _make_arrays(
        self, folder: OpenFolder | None, workers: int, make_room: MakeRoom, linked: list[File]
    ) -> SampleFiles:
        files, result = self.files, SampleResult.from_manifest(self.manifest)
        there = {file.path for file in linked}
        parts = result.parts if result.layout == "compact" else [len(result.sources)]
        copied = [token_file(number) not in there for number in range(len(parts))]
        datasets = self.datasets() if any(copied) else []
        rows = sum(item["rows"] for item in result.sources)
        working = (workers + 1) * CHUNK_TOKENS * 8 + rows * (
            ROW_BYTES if result.layout == "compact" else ROW_BYTES_APART
        )
        sized = files is not None and not result.base
        if files is not None and self.planned is not None and sized:
            arrays = sum(file.size for file in self.planned.files if file.path.startswith(FOLDER))
            make_room(self._pages([file.size for file in files if file not in linked]), working + 2 * arrays)
        layout = ArrayLayout(self.plan(), result.layout, self._vocab_size)
        if not sized:
            make_room(self._pages([size for path, size in layout.sizes().items() if path not in there]), working)
        make = partial(
            materialize, folder, layout, datasets, linked, about=self._about(), limit=self._limit, workers=workers
        )
        if files is not None or not layout.has_tokens:
            return make()
        ends = [*accumulate(parts, initial=0)]
        read = [datasets[ends[number] : ends[number + 1]] for number, needed in enumerate(copied) if needed]
        return _of_unchanged_tokens([*chain(*read)], lambda digests: make(digests=digests), workers)

    def _digest_added(self, added: SamplePlan, workers: int) -> SampleFiles:
        """Digest the files that a new plan with a base knows: all but those of epochs, which are of all rows."""
        about, datasets = write_metadata(None, self._about()), self.datasets()
        result = SampleResult.from_manifest(self.manifest)
        if result.layout != "compact":
            return SampleFiles([about, list_tasks(None, planned_datasets(result), datasets)], 0)
        dtype = token_dtype(self._vocab_size, result.layout)
        copied = CopiedTokens.from_rows(len(result.parts) - 1, added, dtype)
        mine = datasets[-len(added.datasets) :]
        made = _of_unchanged_tokens(mine, partial(digest_rows, copied, mine, self._limit, workers), workers)
        parts = [*self.shared, *made.files]
        files = [*parts, about, list_parts(None, dtype, parts)]
        return SampleFiles(sorted(files, key=lambda file: file.path), made.read)

    def _bytes_of_epochs(self, added: SamplePlan) -> int:
        """Return the bytes that the index arrays of a plan with a base will have."""
        result = SampleResult.from_manifest(self.manifest)
        lengths = [item["length"] for item in result.sources]
        if result.layout == "compact":
            lengths = [item["unique_toks"] for item in result.stats.values()]
        widths = [dtype.itemsize for dtype in index_dtypes(sum(lengths), 0)]
        counts = [under + len(order) for under, order in zip(result.base["epochs"], added.epochs, strict=True)]
        return sum(HEADER_BYTES + count * width for count in counts for width in widths)

    @property
    def _vocab_size(self) -> object:
        return json.loads(SampleResult.from_manifest(self.manifest).tokenizer_info).get("vocab_size")

    @property
    def _limit(self) -> int | None:
        size = self._vocab_size
        return size if self.manifest.options["profile"] == "pairmill" and type(size) is int else None

    def _about(self) -> bytes:
        """Return the bytes of metadata.json."""
        result, options, ledger = SampleResult.from_manifest(self.manifest), self.manifest.options, self.manifest.ledger
        more: dict[str, Any] = {}
        if options["profile"] == "pairmill":
            more = {"epochs": options["epochs"], "truncated_rows": ledger.notes.get("truncated", 0)}
            if result.mixture:
                # Keys in one order, which a manifest does not keep.
                phases = result.mixture["phases"]
                more["phases"] = [{"name": item["name"], "epochs": item["epochs"]} for item in phases]
        info, sampled = json.loads(result.tokenizer_info), ledger.measures["tokens_sampled"]
        return metadata(info, options["context_size"], options["epochs"], sampled, more)

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


def _of_unchanged_tokens(
    datasets: list[tokens.Dataset], make: Callable[[dict[str, str] | None], SampleFiles], workers: int
) -> SampleFiles:
    """Make files that no plan has digests of. Raise Changed if the tokens differ from their manifest."""
    contents = {storage.join(item.uri, TOKENS): item.contents.get("tokens", UNKNOWN) for item in datasets}
    # In a bucket each read is pinned by its ETag.
    local = {uri: item for uri, item in contents.items() if storage.scheme(uri) == "file"}
    if not local:
        return make(None)
    store = storage.store_for(next(iter(local)))
    stamps, marks = store.stamps([*local]), marks_of(local)
    known = unchanged(marks)
    digests = {uri: local[uri].digest for uri in known}
    try:
        made = make(digests)
    except InputError:
        # What is damaged may not even be read: then that is the reason.
        _require_promised(local, {}, workers)
        raise
    now = marks_of({uri: local[uri] for uri in known})
    digests = {uri: digest for uri, digest in digests.items() if now.get(uri) == marks.get(uri) or uri not in known}
    _require_promised(local, digests, workers)
    for (uri, content), before, after in zip(local.items(), stamps, store.stamps([*local]), strict=True):
        if after != (content.stamp or before):
            content.require(uri, store.digest(uri, content.digest))
    keep(mark for uri, mark in marks.items() if uri not in known)
    return made


def _require_promised(contents: dict[str, Content], digests: dict[str, str], workers: int) -> None:
    """Raise Changed unless files are what manifests promise; ``digests``: of those that have been read."""
    promised = {uri: content for uri, content in contents.items() if content.promised}
    left = {uri: content for uri, content in promised.items() if uri not in digests}
    ours = [uri for uri, content in left.items() if is_blake3(content.digest)]
    store = storage.store_for(next(iter(contents)))
    try:
        # In one call: there may be tens of thousands.
        made = digest_files([str(store.file(uri)) for uri in ours], workers) if ours else []
    except OSError as error:
        raise from_os_error(error, str(error.filename)) from error
    for uri, digest in {**digests, **dict(zip(ours, made, strict=True))}.items():
        promised[uri].require(uri, digest)
    for problem in broken({uri: content for uri, content in left.items() if not is_blake3(content.digest)}).values():
        raise problem


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
    data = replace(result, sample=(), rows=(), layout=layout).to_data()
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


class CarriedOut(NamedTuple):
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
        make_room, link = partial(node.make_room, keep=config.keep), partial(node.link, workers=workers)
        manifest, read = sample.make(folder, workers, make_room, link)
        folder.write(MANIFEST, manifest.dump())
        facts = {"seconds": round(time.monotonic() - start, 3), "read_bytes": read}
        node.record(folder, owned.state(folder.handle, FACTS), facts)  # digested as they were written
        node.commit(folder)
    return manifest, False
