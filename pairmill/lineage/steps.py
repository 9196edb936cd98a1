"""The finished folders that a sample was made of, found by the fingerprints that each manifest names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import MANIFEST, Ledger, Manifest
from pairmill.errors import InputError
from pairmill.formats.results import CleanResult, RowsResult, SampleResult
from pairmill.formats.source_names import source_of

ORDER: Final = ("clean", "curate", "select", "tokenize", "sample")
"""The stages that rows pass through, by the names of their folders below root. What mix planned, the sample says."""


@dataclass(frozen=True)
class Step:
    """A finished stage.

    Args:
        stage: its name.
        manifest: of its folder.
    """

    stage: str
    manifest: Manifest

    @cached_property
    def ledgers(self) -> dict[str, Ledger]:
        """What became of the rows of each task; of held-out rows nothing."""
        return {_task(name): one for name, one in self.manifest.shards.items() if not name.startswith(HELD_OUT)}

    @cached_property
    def rows(self) -> dict[str, int]:
        """Rows that each task has after the stage; those of a sample are of all its epochs."""
        if self.stage == "clean":
            outputs: Mapping[str, int] = CleanResult.from_manifest(self.manifest).outputs
            return {_task(path): count for path, count in outputs.items() if not path.startswith(HELD_OUT)}
        if self.stage == "sample":
            return {name: one["cov_rows"] for name, one in SampleResult.from_manifest(self.manifest).stats.items()}
        return {name: one.rows_out for name, one in self.ledgers.items()}

    @cached_property
    def tokens(self) -> dict[str, int]:
        """Response tokens of each task; none before there are tokens."""
        if self.stage == "sample":
            return {name: one["cov_rtoks"] for name, one in SampleResult.from_manifest(self.manifest).stats.items()}
        measures = {name: one.measures for name, one in self.ledgers.items()}
        return {name: one["response_tokens"] for name, one in measures.items() if "response_tokens" in one}

    @property
    def means(self) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """Return by attribute and source how many rows have a value and their sum, then the same of the kept rows."""
        return RowsResult.from_manifest(self.manifest).means


def _task(path: str) -> str:
    """The name of the task that a path of a cleaned folder is, without the folder that no task is named after."""
    name = path.replace("/", "__")
    for folder in ("data__", "data_clustered__"):
        name = name.removeprefix(folder)
    return name


def by_source(counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by task, added up by source."""
    found: dict[str, int] = {}
    for task, count in counts.items():
        found[source_of(task)] = found.get(source_of(task), 0) + count
    return found


def last(root: str) -> Manifest:
    """The one sample of training rows below a root.

    Raises:
        InputError: there is none, or several.
    """
    top = storage.join(root, "sample")
    paths = [one.path for one in storage.store_for(top).list(top)]
    names = sorted({path.split("/")[0] for path in paths if path.endswith(f"/{MANIFEST}") and path.count("/") == 1})
    read = [manifests.read(storage.join(top, name)) for name in names if manifests.is_fingerprint(name)]
    found = [one for one in read if one is not None and not _is_held_out(one)]
    if len(found) != 1:
        raise InputError(
            "which sample is meant is not known" if found else "there is no finished sample",
            where=top,
            got=", ".join(one.fingerprint for one in found) or "none",
            expected="one",
            hint="name one with sample=<fingerprint>" if found else "run the pipeline first",
        )
    return found[0]


def find(root: str, sample: Manifest) -> list[Step]:
    """The stages whose results a sample was made of, in order; those that are not below the root are left out.

    A stage that several folders of one kind were read from (``rows=`` beside sources) has a step for each.
    """
    first = Step("sample", sample)
    steps, seen, open_ = [first], set[str](), [first]
    while open_:
        step = open_.pop()
        # What clean read are the published files of each source: no stage of the line made them.
        before = ORDER[: ORDER.index(step.stage)]
        for ref in step.manifest.inputs if before else ():
            if not manifests.is_fingerprint(ref.fingerprint) or ref.fingerprint in seen:
                continue
            seen.add(ref.fingerprint)
            for stage in reversed(before):
                uri = storage.join(root, stage, ref.fingerprint, MANIFEST)
                store = storage.store_for(uri)
                if store.exists(uri):
                    found = Step(stage, Manifest.load(store.read(uri), uri))
                    steps.append(found)
                    open_.append(found)
                    break
    return sorted(steps, key=lambda step: (ORDER.index(step.stage), step.manifest.fingerprint))


def runs(root: str, sample: Manifest) -> list[Manifest]:
    """The finished runs of train below a root that trained on a sample."""
    top = storage.join(root, "train")
    names = [name for name in storage.store_for(top).folders(top) if manifests.is_fingerprint(name)]
    read = [manifests.read(storage.join(top, name)) for name in names]
    return [one for one in read if one is not None and any(ref.fingerprint == sample.fingerprint for ref in one.inputs)]


def _is_held_out(manifest: Manifest) -> bool:
    return any(ref.role == "held_out" for ref in manifest.inputs)
