"""kill -9 at any instant of fetch: the rerun ends with the same digests, and asks for no byte that had come."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from pairmill.digest import digest_file
from tests.integration.test_fetch import packed, table
from tests.support import tools
from tests.support.helpers import PATIENCE, until
from tests.support.processes import nursery
from tests.support.servers.downloads import Files, Hub, Request
from tests.support.stages.fetching import lines

KILLS = int(os.environ.get("PAIRMILL_FETCH_KILLS", "4"))
"""Of two worker processes; `make test-long` does more."""
Process = nursery.Child
PHASES = ("nothing", "bytes", "a record", "raw folder begun", "finished")
NOTHING, BYTES, RECORD, BEGUN, FINISHED = range(5)


@dataclass
class Case:
    """A run that can be killed.

    Args:
        server: what the stage downloads from.
        start: starts the stage in a process group of its own.
        served: the requests that bytes of a raw file answered, by the file's path.
        sizes: bytes by path.
    """

    server: Hub | Files
    start: Callable[[Path, str], Process]
    served: Callable[[str], list[Request]]
    sizes: dict[str, int]

    def sent(self) -> int:
        return sum(request.sent for path in self.sizes for request in self.served(path))


def phase(root: Path, before: int = 0) -> int:
    """How far a run has got; ``before`` shard records stood there when it began."""
    if any((root / "fetch").glob(f"*/{tools.MANIFEST}")):
        return FINISHED
    if any((root / "raw").glob(f"*/*/{tools.STARTED}")):
        return BEGUN
    if len(list((root / "fetch" / "shards").glob(f"*/{tools.RECORD}"))) > before:
        return RECORD
    return BYTES if came(root) else NOTHING


def came(root: Path) -> dict[str, int]:
    """Bytes that lie in scratch folders, by path of the raw file."""
    found = {}
    for folder in (root / "fetch" / "downloads").glob("*/content"):
        for path in folder.rglob("*"):
            if path.is_file() and path.stat().st_size:
                found[path.relative_to(folder).as_posix()] = path.stat().st_size
    return found


def spawn(
    module: str,
    arguments: Sequence[str],
    environment: dict[str, str],
    log: Path,
    imported: Sequence[str] = nursery.STAGES,
) -> Process:
    with log.open("ab") as file:
        return nursery.shared(imported).start(module, arguments, environment, (file.fileno(), file.fileno()))


def kill(case: Case, root: Path, aim: int, rng: random.Random, mark: str) -> int:
    """Kill a run, its workers with it, at some instant after it got to the phase ``aim``; the phase that it was in.

    Until then it gets no further, however fast or slow the machine is: the server stops in the midst of what it sends,
    of the largest file alone where another is to be finished.
    """
    before = len(list((root / "fetch" / "shards").glob(f"*/{tools.RECORD}")))
    had, asked = came(root), len(case.server.requests)
    *others, largest = sorted(case.sizes, key=lambda path: case.sizes[path])
    stopped = {NOTHING: [*others, largest], BYTES: [*others, largest], RECORD: [largest] if others else []}
    for path in stopped.get(aim, []):
        case.server.stall(f"*/{path}", PATIENCE, after=rng.randrange(30_000, 150_000))
    process = case.start(root, mark)

    def reached() -> bool:
        if aim == NOTHING:
            return len(case.server.requests) > asked
        return phase(root, before) >= aim and (aim != BYTES or came(root) != had)

    until(lambda: process.poll() is not None or reached(), f"a run that gets to {PHASES[aim]}")
    time.sleep(rng.uniform(0, 0.2 if aim < BEGUN else 0.01))
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    tools.wait_until_gone(mark)
    case.server.heal()
    return phase(root, before)


def kill_again_and_again(case: Case, tmp_path: Path, kills: int, rng: random.Random) -> None:
    """Kill runs, several below each root, and let the last one below a root end; check what that leaves."""
    assert case.start(tmp_path / "reference", "").wait(PATIENCE) == 0
    wanted = raw_digests(tmp_path / "reference")
    hits: Counter[int] = Counter()
    saved: list[int] = []
    roots = sent = 0
    while hits.total() < kills:
        roots += 1
        root = tmp_path / f"root{roots}"
        before = case.sent()
        got, last, left = NOTHING, False, rng.randint(3, 7)
        while not last:
            had, asked = came(root), {path: len(case.served(path)) for path in case.sizes}
            last = left == 0 or got == FINISHED or hits.total() == kills
            if last:
                assert case.start(root, "").wait(PATIENCE) == 0
            else:
                aim = (BYTES, BYTES, NOTHING, RECORD, BYTES, BEGUN)[hits.total() % 6]
                got = kill(case, root, aim, rng, f"{root}-{hits.total()}")
                hits[got] += 1
                left -= 1
            saved += went_on(case, had, asked)
        assert raw_digests(root) == wanted
        assert not tools.partials(root)
        assert not list((root / "fetch" / "downloads").iterdir())
        assert not list(root.rglob("*.lock"))
        sent += case.sent() - before
    size = sum(case.sizes.values())
    spread = ", ".join(f"{name} {hits[number]}" for number, name in enumerate(PHASES))
    print(
        f"\n{hits.total()} kills below {roots} roots, by what was there: {spread}; {len(saved)} downloads "
        f"went on behind {sum(saved):,} bytes; {sent:,} sent for {roots} x {size:,}"
    )
    assert hits[BYTES] + hits[RECORD] + hits[BEGUN] >= kills // 2
    assert len(saved) >= kills // 4
    # More than once was sent only what was under way at a kill.
    assert sent - roots * size < hits.total() * size / 5


def went_on(case: Case, had: dict[str, int], asked: dict[str, int]) -> list[int]:
    """Check that a run asked for each file from the byte that was there; the bytes that it did not ask for again."""
    saved = []
    for path, size in had.items():
        new = case.served(path)[asked[path] :]
        if new and size < case.sizes[path]:
            assert new[0].range == f"bytes={size}-", path
            assert new[0].status == 206
            saved.append(size)
    return saved


def raw_digests(root: Path) -> dict[str, str]:
    """Digest of every raw file, which are those of the manifests."""
    found = {}
    for path in (root / "raw").glob(f"*/*/{tools.MANIFEST}"):
        for name, digest in tools.recorded(tools.read_manifest(path.parent)).items():
            assert digest_file(path.parent / name, like=digest) == digest
            found[f"{path.parent.parent.name} {name}"] = digest
    return found


@pytest.fixture
def environment() -> dict[str, str]:
    return {**tools.environment(), "PYTHONPATH": str(tools.REPOSITORY)}


@pytest.mark.long
def test_files_of_the_hub(tmp_path: Path, environment: dict[str, str]) -> None:
    content = random.Random(0).randbytes(1_200_000)
    puzzles = ("source,question,answer,rating\n" + f"a,{'.' * 81},{'1' * 81},3\n" * 4000).encode()
    with Hub() as hub:
        parts = {f"main/train-{n:05}-of-00002.parquet": content[: 1_200_000 - n] for n in range(2)}
        card = b"---\nlicense: mit\n---\n"
        hub.add("openai/gsm8k", {"README.md": card, **parts})
        hub.add("sapientinc/sudoku-extreme", {"train.csv": puzzles}, lfs=[])

        def start(root: Path, mark: str) -> Process:
            module, *arguments = tools.command("fetch", root=root, sources="gsm8k_train,sudoku", workers=2)[2:]
            marked = {"PAIRMILL_TEST_MARK": mark, **hub.environment(tmp_path / "home")}
            return spawn(module, arguments, {**environment, **marked}, tmp_path / "log")

        def served(path: str) -> list[Request]:
            return [request for request in hub.seen(f"*/{path}") if request.status in {200, 206}]

        files = {"README.md": card, "train.csv": puzzles, **parts}
        sizes = {path: len(part) for path, part in files.items()}
        kill_again_and_again(Case(hub, start, served, sizes), tmp_path, KILLS, random.Random("hub"))


@pytest.mark.long
def test_an_archive_over_https(tmp_path: Path, environment: dict[str, str]) -> None:
    rng = random.Random(1)
    members = {f"v1/train/{n}.jsonl": lines(40, n) + rng.randbytes(20_000).hex().encode() for n in range(80)}
    data = packed({**members, "v1/other": rng.randbytes(100_000)})
    with Files() as files:
        url = files.add("set.tar.gz", data)

        def start(root: Path, mark: str) -> Process:
            imported = (*nursery.STAGES, "tests.support.stages.fetching")
            marked = {**environment, "PAIRMILL_TEST_MARK": mark}
            return spawn("tests.support.processes.archive", [str(root), url], marked, tmp_path / "log", imported)

        def served(path: str) -> list[Request]:
            return [request for request in files.seen(f"/{path}", "GET") if request.status in {200, 206}]

        kill_again_and_again(Case(files, start, served, {"set.tar.gz": len(data)}), tmp_path, 6, random.Random("web"))
    assert len(raw_digests(tmp_path / "root1")) == 80


def test_rows_through_datasets(tmp_path: Path, environment: dict[str, str]) -> None:
    described = tmp_path / "made.yaml"
    described.write_text(
        "name: made_rows\nhub: o/n\nvia: datasets\ncondition: direct\ninstruction: question\nresponse: answer\n"
    )
    rng = random.Random("rows")
    with Hub() as hub:
        hub.add("o/n", {"train.parquet": table(50_000)})
        hub.throttle("/cdn/*", 2_000_000)

        def start(root: Path, mark: str) -> Process:
            module, *arguments = tools.command("fetch", root=root, sources=described, workers=1)[2:]
            marked = {"PAIRMILL_TEST_MARK": mark, **hub.environment(tmp_path / "home")}
            return spawn(module, arguments, {**environment, **marked}, tmp_path / "log")

        began = time.monotonic()
        assert start(tmp_path / "reference", "").wait(PATIENCE) == 0
        usual = time.monotonic() - began
        root = tmp_path / "root"
        for number in range(3):
            process = start(root, f"{root}-{number}")
            time.sleep(usual * rng.uniform(0.2, 0.5))  # the first run also starts what the others are forked from
            with suppress(ProcessLookupError):  # on a busy machine the first run took so long that this one has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            tools.wait_until_gone(f"{root}-{number}")
        assert start(root, "").wait(PATIENCE) == 0
    wanted = raw_digests(tmp_path / "reference")
    assert list(wanted) == ["made_rows train-00000.parquet"]
    assert raw_digests(root) == wanted
    assert not tools.partials(root)
    assert digest_file(next(root.rglob("raw/*/*/train-00000.parquet"))) in wanted.values()
