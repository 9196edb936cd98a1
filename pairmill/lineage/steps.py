"""The finished folders that a sample was made of, found by the fingerprints that each manifest names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.inputs import HELD_OUT
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.source_names import source_of
from pairmill.errors import InputError
from pairmill.formats.results.raw import CleanResult
from pairmill.formats.results.rows import RowsResult
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.source_facts import ORDER, stages_before
from pairmill.formats.tokenized import UNION


@dataclass(frozen=True)
class Step:
    """A finished stage."""

    stage: str
    manifest: Manifest

    @cached_property
    def ledgers(self) -> dict[str, Ledger]:
        """What became of the rows of each task; of held-out rows nothing."""
        return {_task(name): item for name, item in self.manifest.shards.items() if not name.startswith(HELD_OUT)}

    @cached_property
    def rows(self) -> dict[str, int]:
        """Rows that each task has after the stage; those of a sample are of all its epochs."""
        if self.stage == "clean":
            outputs: Mapping[str, int] = CleanResult.from_manifest(self.manifest).outputs
            return {_task(path): count for path, count in outputs.items() if not path.startswith(HELD_OUT)}
        if self.stage == "sample":
            return {name: item["cov_rows"] for name, item in SampleResult.from_manifest(self.manifest).stats.items()}
        return {name: item.rows_out for name, item in self.ledgers.items()}

    @cached_property
    def tokens(self) -> dict[str, int]:
        """Response tokens of each task; none before there are tokens."""
        if self.stage == "sample":
            return {name: item["cov_rtoks"] for name, item in SampleResult.from_manifest(self.manifest).stats.items()}
        measures = {name: item.measures for name, item in self.ledgers.items()}
        return {name: item["response_tokens"] for name, item in measures.items() if "response_tokens" in item}

    @property
    def means(self) -> Mapping[str, Mapping[str, Sequence[float]]]:
        """Return by attribute and source how many rows have a value and their sum, then the same of the kept rows."""
        return RowsResult.from_manifest(self.manifest).means


def _task(path: str) -> str:
    """Return the name of the task that a path of a cleaned folder is, without the folder that no task is named
    after."""
    name = path.replace("/", "__")
    for folder in ("data__", "data_clustered__"):
        name = name.removeprefix(folder)
    return name


def by_source(counts: Mapping[str, int]) -> dict[str, int]:
    """Return counts by task, added up by source."""
    result: dict[str, int] = {}
    for task, count in counts.items():
        result[source_of(task)] = result.get(source_of(task), 0) + count
    return result


def finished(root: str, stage: str) -> Iterator[Step]:
    """Yield the finished folders of a stage below a root, by name."""
    top = storage.join(root, stage)
    for name in sorted(filter(manifests.is_fingerprint, storage.store_for(top).folders(top))):
        made = manifests.read(storage.join(top, name), refuse_begun=False)
        if made is not None:
            yield Step(stage, made)


def last(root: str) -> Step:
    """Return the one sample of training rows below a root.

    Raises:
        InputError: there is none, or several.
    """
    result = [step for step in finished(root, "sample") if not _is_held_out(step.manifest)]
    if len(result) != 1:
        raise InputError(
            "which sample is meant is not known" if result else "there is no finished sample",
            where=storage.join(root, "sample"),
            got=", ".join(item.manifest.fingerprint for item in result) or "none",
            expected="one",
            hint="name one with sample=<fingerprint>" if result else "run the pipeline first",
        )
    return result[0]


def find(root: str, sample: Manifest) -> list[Step]:
    """Return the stages whose results a sample was made of, in order; those that are not below the root are left out.

    A stage that several folders of one kind were read from (``rows=`` beside sources) has a step for each.
    """
    return above(root, Step("sample", sample))


def above(root: str, end: Step) -> list[Step]:
    """Return a stage and those before it whose results it was made of, as :func:`find`."""
    steps, seen, open_ = [end], set[str](), [end]
    while open_:
        step = open_.pop()
        # What clean read are the published files of each source: no stage of the line made them.
        before = stages_before(step.stage)
        for ref in step.manifest.inputs if before else ():
            if not manifests.is_fingerprint(ref.fingerprint) or ref.fingerprint in seen:
                continue
            seen.add(ref.fingerprint)
            for stage in reversed(before):
                made = manifests.read(storage.join(root, stage, ref.fingerprint), refuse_begun=False)
                if made is not None:
                    result = Step(stage, made)
                    steps.append(result)
                    open_.append(result)
                    break
            else:
                union = manifests.read(storage.join(root, UNION, ref.fingerprint), refuse_begun=False)
                if union is not None:  # no stage, but what it is of was made by stages
                    open_.append(Step(step.stage, union))
    return sorted(steps, key=lambda step: (ORDER.index(step.stage), step.manifest.fingerprint))


def runs(root: str, sample: Manifest) -> list[Step]:
    """Return the finished runs of train below a root that trained on a sample."""
    return [
        step
        for step in finished(root, "train")
        if any(ref.fingerprint == sample.fingerprint for ref in step.manifest.inputs)
    ]


def _is_held_out(manifest: Manifest) -> bool:
    return any(ref.role == "held_out" for ref in manifest.inputs)
