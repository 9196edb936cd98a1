"""The line on buckets: through the local runner, and shared out over pods under the launcher's contract, where workers
are killed and the way to the store is disturbed. Results are those of a run on files.

``PAIRMILL_DISTURBED_RUNS`` says how many disturbed runs are made; `make test` makes a few.
"""

import json
import os
import random
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pairmill import storage
from pairmill.kubeflow.compile import CompileConfig
from pairmill.kubeflow.compile import run as compile_one
from tests.support import tools
from tests.support.data.results import manifests, upload
from tests.support.helpers import REPOSITORY, missing
from tests.support.kubernetes.emulator import Attempt, Backend, Folder, Forked, load
from tests.support.objectstores.proxy import EVERYTHING, FaultProxy
from tests.support.objectstores.servers import GcsServer, S3Server, Server
from tests.support.processes.nursery import STORES
from tests.support.tools import STAGES

SETTINGS = REPOSITORY / "tests" / "support" / "settings"
OPTIONS = {
    "vocab_size": 400,
    "epochs": 2,
    "select_config": str(SETTINGS / "select.yaml"),
    "mix_config": str(SETTINGS / "mix.yaml"),
}
RUNS = int(os.environ.get("PAIRMILL_DISTURBED_RUNS", "1"))
ATTEMPTS = 3
"""Of a task, by the compiled pipeline."""


@dataclass(frozen=True)
class Expected:
    """Raw files, and what a run on files makes of them: bytes of each stage's manifest."""

    raw: Path
    manifests: dict[str, bytes]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    base = tmp_path_factory.mktemp("files")
    tools.raw_data(base / "raw", size=60)
    done = tools.stage("run", raw=base / "raw", root=base / "root", **OPTIONS)
    assert done.code == 0, done.err
    return Expected(base / "raw", manifests(str(base / "root")))


def refuse_partial(root: str, seen: set[str]) -> int:
    """Every finished folder that was not seen before holds what its manifest says; returns how many these are."""
    store = storage.store_for(root)
    paths = [entry.path for entry in store.list(root) if entry.path.endswith("/_MANIFEST.json")]
    done = {path.removesuffix("/_MANIFEST.json") for path in paths} - seen
    for folder in done:
        files = json.loads(store.read(f"{root}/{folder}/_MANIFEST.json"))["files"]
        # What was written before the manifest is there by its name, whatever an older listing says.
        sizes = {file["path"]: store.size(f"{root}/{folder}/{file['path']}") for file in files}
        assert sizes == {file["path"]: file["size"] for file in files}, folder
    seen |= done
    return len(done)


def digested(root: str) -> int:
    """Compares every file that a manifest names with its digest; returns how many there are."""
    store = storage.store_for(root)
    count = 0
    for path, data in manifests(root).items():
        folder = f"{root}/{path.removesuffix('/_MANIFEST.json')}"
        files = json.loads(data)["files"]
        found = store.digests([f"{folder}/{file['path']}" for file in files])
        assert list(found) == [f"blake3:{file['blake3']}" for file in files]
        listed = {entry.path for entry in store.list(folder)}
        assert listed == {"_STARTED.json", "_MANIFEST.json", *(file["path"] for file in files)}
        count += len(files)
    return count


@pytest.fixture(params=["s3", "gs"])
def server(request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue("s3_server" if request.param == "s3" else "gcs_server")
    request.getfixturevalue("use")(found.environment())
    return found


# --- this machine ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def projects() -> dict[str, tuple[str, str]]:
    """Raw data and root on each server, by its scheme: what one test has made there, another one damages and mends."""
    return {}


@pytest.fixture
def project(server: Server, expected: Expected, projects: dict[str, tuple[str, str]]) -> tuple[str, str]:
    """Raw data and a root in a bucket, below which the line has run."""
    if server.scheme not in projects:
        bucket = server.bucket()
        raw, root = upload(expected.raw, f"{bucket}/raw"), f"{bucket}/project"
        done = tools.stage("run", raw=raw, root=root, **OPTIONS)
        assert done.code == 0, done.err
        projects[server.scheme] = raw, root
    return projects[server.scheme]


def test_the_line_on_a_bucket_gives_what_it_gives_on_files(project: tuple[str, str], expected: Expected) -> None:
    raw, root = project
    assert manifests(root) == expected.manifests
    assert digested(root) > 30
    before = [(entry.path, entry.size) for entry in storage.store_for(root).list(root)]
    again = tools.stage("run", raw=raw, root=root, **OPTIONS)
    assert again.code == 0, again.err
    assert "every stage was reused" in again.out
    assert [(entry.path, entry.size) for entry in storage.store_for(root).list(root)] == before


def test_results_that_were_deleted_are_made_again_and_what_they_were_made_of_is_reused(
    project: tuple[str, str], expected: Expected
) -> None:
    raw, root = project
    store = storage.store_for(root)
    (folder,) = {path.rsplit("/", 1)[0] for path in expected.manifests if path.startswith("clean/")}
    (record, *_) = [entry.path for entry in store.list(f"{root}/clean/shards") if entry.path.endswith("_RECORD.json")]
    store.delete(f"{root}/clean/shards/{record}")
    gone = f"{root}/{folder}/data/gsm8k_train.jsonl"
    store.delete(gone)
    # A stage that is given this URI, by Kubeflow's cache or by hand, says that it is damaged and what to do.
    tokenizer = next(path for path in expected.manifests if path.startswith("tokenizer/")).rsplit("/", 1)[0]
    done = tools.stage("tokenize", rows=f"{root}/{folder}", tokenizer=f"{root}/{tokenizer}", root=root)
    assert done.code == 3
    assert "data/gsm8k_train.jsonl: missing; run the stage that made it again" in done.message
    assert "with the cache off" in done.message
    done = tools.stage("run", raw=raw, root=root, **OPTIONS)
    assert done.code == 0, done.err
    assert "1 of its files are missing or changed" in done.err
    assert manifests(root) == expected.manifests
    assert digested(root) > 30


# --- pods -----------------------------------------------------------------------------------------------------------


@dataclass
class Line:
    """The compiled pipeline under the launcher's contract, on a bucket."""

    backend: Backend
    raw: str
    root: str
    folder: Path
    killed: list[str] = field(default_factory=list)

    def run(self, workers: int) -> Any:
        arguments = {"raw": self.raw, "root": self.root, "prefix_config_path": "prefix_config.yaml", **OPTIONS}
        compile_one(CompileConfig(output=str(self.folder / "pipeline.yaml"), workers=workers))
        return self.backend.run(load(self.folder / "pipeline.yaml"), arguments)


def line(server: Server, expected: Expected, folder: Path, environment: dict[str, str]) -> Line:
    if os.geteuid():
        missing("mounts of a process's own")
    bucket = server.bucket()
    secret = {name.removesuffix("_S3"): value for name, value in environment.items()}
    # A second of back-off takes 10 ms here, and pauses before a request is made again a quarter of their time.
    backend = Backend(
        Folder(folder / "artifacts"),
        Forked(STORES, env={"PAIRMILL_STORAGE_PATIENCE": "40"}),
        folder / "pods",
        secrets={"pairmill-storage": secret},
        second=0.01,
        pods=4,
    )
    return Line(backend, upload(expected.raw, f"{bucket}/raw"), f"{bucket}/project", folder)


@pytest.mark.long
@pytest.mark.parametrize(
    ("server", "workers"),
    [
        # In CI S3 is there through faults and kills, below.
        pytest.param("s3", 1, marks=pytest.mark.full),
        pytest.param("s3", 2, marks=pytest.mark.full),
        ("gs", 2),
        pytest.param("gs", 4, marks=pytest.mark.full),
    ],
    indirect=["server"],
)
def test_any_number_of_workers_gives_equal_manifests(
    server: Server, expected: Expected, tmp_path: Path, workers: int
) -> None:
    made = line(server, expected, tmp_path, server.environment())
    run = made.run(workers)
    assert run.state == "SUCCEEDED", run.failures()
    assert manifests(made.root) == expected.manifests
    assert digested(made.root) > 30
    tasks = [attempt.task for attempt in run.attempts]
    assert len(tasks) == len(STAGES) + 5 * (workers - 1)
    for stage in ("clean", "curate", "select", "train-tokenizer", "tokenize"):
        assert sum(one.startswith(f"{stage}-share") for one in tasks) == workers - 1


@pytest.fixture
def watch() -> Iterator[Any]:
    """Looks over and over whether a folder that was finished lacks anything; ``digested`` looks at the end."""
    stop = threading.Event()
    seen: set[str] = set()
    looks: list[int] = []
    problems: list[BaseException] = []
    threads: list[threading.Thread] = []

    def look(root: str) -> None:
        while not stop.wait(0.3):
            try:
                looks.append(refuse_partial(root, seen))
            except BaseException as error:
                problems.append(error)
                return

    def start(root: str) -> None:
        threads.append(threading.Thread(target=look, args=(root,)))
        threads[-1].start()

    yield start
    stop.set()
    for thread in threads:
        thread.join()
    assert not problems, problems[0]
    assert sum(looks) > 0


@pytest.mark.parametrize("seed", range(RUNS))
def test_killed_workers_and_a_disturbed_store_change_nothing(
    s3_server: S3Server, gcs_server: GcsServer, use: Any, expected: Expected, tmp_path: Path, watch: Any, seed: int
) -> None:
    chance = random.Random(seed)
    server: Server = chance.choice([s3_server, gcs_server]) if RUNS > 2 else [s3_server, gcs_server][seed % 2]
    use(server.environment())
    # Nobody asks for a pause of a second: thousands of requests would add up to minutes.
    faults = [replace(fault, retry_after="") for fault in EVERYTHING]
    with FaultProxy(server, seed=seed, faults=faults) as proxy:
        made = line(server, expected, tmp_path, proxy.environment())
        lock = threading.Lock()

        def kill(attempt: Attempt) -> None:
            with lock:
                chosen = attempt.index < ATTEMPTS - 1 and chance.random() < 0.5
                wait = chance.uniform(0.05, 1.5)
            if chosen and attempt.running is not None:
                made.killed.append(attempt.node)
                threading.Timer(wait, attempt.running.kill).start()

        made.backend.started = kill
        watch(made.root)
        run = made.run(chance.choice([2, 3]))
    assert run.state == "SUCCEEDED", run.failures()
    assert manifests(made.root) == expected.manifests
    assert digested(made.root) > 30
    wrong = [one for one in run.attempts if one.exit_code not in {0, -9}]
    assert not wrong, [(one.node, one.exit_code, one.log.decode()[-2000:]) for one in wrong]
    assert made.killed
    assert len(proxy.injected) > 5
