"""Where the data of benchmarks are, by content: files of this machine or of a bucket, or a commit of a data set."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from pairmill import storage
from pairmill.engine.manifest import InputRef, canonical, content_key, fingerprint_from
from pairmill.errors import InputError, UsageError
from pairmill.evaluation import benchmarks, harness_tasks
from pairmill.evaluation.settings import EvaluateSettings
from pairmill.log import event
from pairmill.net import hub

DROP: Final = "drop"
_READ: Final = (".jsonl", ".parquet")
_LOCKS: Final = ("evaluate", "benchmarks")


@dataclass(frozen=True)
class BenchmarkData:
    """The data of a benchmark.

    Attributes:
        place: a path or URI, or the name of a data set of the Hub.
        revision: its commit there; empty for files.
        digest: of the files, or of what names them.
        size: bytes, where that is known.
        shots: URI of the examples for DROP.
    """

    keyed_as: ClassVar[str] = "Given"

    name: str
    place: str
    revision: str
    digest: str
    size: int = 0
    shots: str = ""

    @classmethod
    def from_content(
        cls, name: str, place: str, revision: str, *content: object, size: int = 0, shots: str = ""
    ) -> Self:
        """Make the data whose digest is that of these JSON-like values."""
        return cls(name, place, revision, content_key(*content), size, shots)

    def identify(self) -> object:
        """Return what a shard that reads the data is keyed by: not their place."""
        return [self.name, self.digest]

    @property
    def ref(self) -> InputRef:
        """It as an input of the stage."""
        return InputRef(f"benchmark {self.name}", self.digest[:16])


def find(names: Sequence[str], places: Mapping[str, str], root: str, settings: EvaluateSettings) -> list[BenchmarkData]:
    """Return the data of these benchmarks.

    Args:
        names: of benchmarks in the registry.
        places: where their data are, by name; a benchmark that is not among them is read from the Hub.
        root: of the project, below which the commits of data sets are kept.
        settings: name the files of the harness's tasks, and the examples for DROP.

    Raises:
        UsageError: a benchmark occurs twice, or has data and is not asked.
        InputError: a place has no file that can be read.
    """
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise UsageError("a benchmark occurs twice", where="benchmarks", got=twice[0])
    unused = [name for name in places if name not in names]
    if unused:
        raise UsageError(
            "data of a benchmark that is not asked", where="data", got=unused[0], expected=", ".join(names)
        )
    asked = [name for name in places if harness_tasks.is_task(name)]
    if asked:
        hint = "set=harness.tasks=<a folder with its task file and data>"
        raise UsageError("the harness reads its own data", where="data", got=asked[0], hint=hint)
    if settings.drop_shots and DROP not in names:
        raise UsageError("examples for a benchmark that is not asked", where="drop_shots", expected="benchmarks=drop")
    made = [
        BenchmarkData.from_content(name, *harness_tasks.locate(settings.harness))
        if harness_tasks.is_task(name)
        else _locate(name, places.get(name, ""), root)
        for name in names
    ]
    return [
        _with_shots(item, settings.drop_shots) if item.name == DROP and settings.drop_shots else item for item in made
    ]


def _with_shots(data: BenchmarkData, shots: str) -> BenchmarkData:
    uri = storage.normalise(shots, "drop_shots")
    digest = hashlib.sha256(storage.store_for(uri).read(uri)).hexdigest()
    known = data.name, data.place, data.revision
    return BenchmarkData.from_content(*known, "shots", data.digest, digest, size=data.size, shots=uri)


def _locate(name: str, place: str, root: str) -> BenchmarkData:
    uri = storage.normalise(place, f"data: {name}") if place else ""
    store = storage.store_for(uri) if uri else None
    if store is not None and store.exists(uri):
        return _of_files(name, uri, [uri])
    if store is not None:
        paths = sorted(item.path for item in store.list(uri))
        paths = [path for path in paths if path.endswith(_READ) and not path.startswith((".", "_"))]
        if paths:
            return _of_files(name, uri, [storage.join(uri, *path.split("/")) for path in paths])
    repository, _, revision = place.partition("@")
    if place and (repository.count("/") != 1 or place.startswith(("/", "."))):
        raise InputError(
            f"no data of the benchmark {name}",
            where=f"data={name}={place}",
            expected="a file, or a folder of .jsonl or .parquet files; or on the Hub owner/name@revision",
            hint="check the path",
        )
    repository = repository or benchmarks.REGISTRY[name].source
    if not repository:
        raise UsageError(
            "the benchmark has no data set on the Hub that can be read",
            where="data",
            got=f"nothing for {name}",
            expected=f"data={name}=<a folder with its files>",
            hint="docs/evaluation.md says how to make it",
        )
    commit = _commit(repository, revision or "main", root)
    return BenchmarkData.from_content(name, repository, commit, "hub", repository, commit)


def _of_files(name: str, uri: str, uris: Sequence[str]) -> BenchmarkData:
    digested = storage.store_for(uri).digested(uris)
    contents = [[storage.name_of(item), file.digest] for item, file in zip(uris, digested, strict=True)]
    return BenchmarkData.from_content(name, uri, "", "files", contents, size=sum(file.size for file in digested))


def _commit(repository: str, revision: str, root: str) -> str:
    """Return the commit that the revision was at first: all processes and later runs mean the same one."""
    uri = storage.join(root, *_LOCKS, f"{repository.replace('/', '--')}-{fingerprint_from(revision)}.json")
    store = storage.store_for(uri)
    if not store.exists(uri):
        data_set = hub.Repository(repository, "dataset", f"write data=<benchmark>={repository}@<a commit>")
        store.commit(uri, canonical({"repository": repository, "commit": hub.commit_of(data_set, revision)}))
    try:
        commit = str(json.loads(store.read(uri))["commit"])
    except (ValueError, KeyError, TypeError) as error:
        hint = "delete it, and the present commit is taken"
        raise InputError("not a note of a data set's commit", where=uri, got=str(error), hint=hint) from error
    event(f"evaluate: {repository} at {commit}; delete {uri} to take the present commit", commit=commit)
    return commit
