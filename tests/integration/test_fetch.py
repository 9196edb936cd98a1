"""fetch against servers that speak as the Hub, as web servers and as a git forge do, and what clean makes of it."""

import gzip
import hashlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import retry
from pairmill.digest import digest_bytes
from pairmill.engine.policing import enforced
from pairmill.engine.workers import WorkerPool
from pairmill.errors import InputError, PairmillError, StageFailure, UsageError
from pairmill.net import hub as hub_client
from pairmill.policy.enforce import Enforcer
from pairmill.policy.policy import Policy
from pairmill.sources.files.raw import places
from pairmill.sources.origin import Folder, Git, HubRows, Manual, Web
from pairmill.sources.origin import Hub as HubFiles
from pairmill.stages.fetch import lock
from pairmill.stages.fetch.lock import Pin
from tests.support import tools
from tests.support.helpers import PATIENCE, until
from tests.support.processes import nursery
from tests.support.servers.downloads import Files, Hub
from tests.support.stages.fetching import ask_here, clean, declare, fetch, fetched, index, lines

PATTERNS = ("data/train-*.jsonl", "data/**/*.parquet")
REPO = HubFiles("o/n", PATTERNS)


def table(count: int, seed: int = 0) -> bytes:
    """Records as Parquet."""
    buffer = io.BytesIO()
    numbers = range(seed, seed + count)
    columns = {"question": [f"What is {n}?" for n in numbers], "answer": [f"It is #### {n}" for n in numbers]}
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


TREE = {
    ".gitattributes": b"*.parquet filter=lfs",
    "README.md": b"---\nlicense: cc0-1.0\n---\nMade.\n",
    "data/train-0.jsonl": lines(30),
    "data/train-1.jsonl": lines(20, 1000),
    "data/more/deep/x.parquet": table(40),
    "data/test-0.jsonl": lines(5),
    "other/train-0.jsonl": lines(5),
}
WANTED = {path: TREE[path] for path in TREE if path == "README.md" or (path.startswith("data/") and "test" not in path)}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hub that this process talks to."""
    with Hub(page_size=3) as server:
        ask_here(monkeypatch, server, tmp_path / "home")
        yield server


@pytest.fixture
def files() -> Iterator[Files]:
    with Files() as server:
        yield server


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses before another try are left out."""
    waited: list[float] = []
    monkeypatch.setattr(retry, "_paused", lambda seconds, stop: waited.append(seconds))
    clock = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + sum(waited))
    monkeypatch.setattr(retry, "time", clock)


def refusal(work: Callable[[], object], code: int = 3) -> str:
    """What the stage says when it refuses."""
    with pytest.raises(PairmillError) as caught:
        work()
    assert caught.value.exit_code == code
    return str(caught.value)


def pins(root: Path) -> dict[str, Pin]:
    return lock.read(str(root / "sources.lock.yaml"))


def manifest(root: Path, source: str = "made") -> tuple[str, dict[str, Any]]:
    """Name and manifest of the one finished raw folder of a source."""
    (found,) = (root / "raw" / source).glob(f"*/{tools.MANIFEST}")
    return found.parent.name, json.loads(found.read_bytes())


def program(hub: Hub, home: Path, *arguments: str, token: str = "") -> tools.Done:
    """fetch as a process that talks to this Hub."""
    start = time.monotonic()
    around = {**tools.environment(), **hub.environment(home, token)}
    done = nursery.shared().run("pairmill", ["fetch", *arguments], around)
    return tools.Done(done.returncode, done.stdout, done.stderr, time.monotonic() - start)


# --- files of the Hub -----------------------------------------------------------------------------------------------


def test_only_the_files_that_a_source_needs_come_with_digests_and_where_they_are_from(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, REPO)
    commit = hub.add("o/n", TREE)
    before = time.time()
    result = fetch(tmp_path)
    assert fetched(result) == WANTED
    asked = hub.seen("*/resolve/*")
    assert sorted(request.path.split(commit + "/")[1] for request in asked) == sorted(WANTED)
    assert [request.path.rsplit("/", 1)[1] for request in hub.seen("/cdn/*")] == ["x.parquet"]

    revision, raw = manifest(tmp_path)
    assert revision == commit == pins(tmp_path)["made"].revision
    assert {file["path"]: (file["size"], f"blake3:{file['blake3']}") for file in raw["files"]} == {
        path: (len(content), digest_bytes(content)) for path, content in WANTED.items()
    }
    about = {"licence": "CC0-1.0", "citation": "Nobody: Made. 2026", "origin": "hub:o/n@main", "revision": commit}
    assert raw["data"]["about"] == about
    when = time.mktime(time.strptime(raw["data"]["fetched"], "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    assert before - 1 <= when <= time.time()
    assert result.manifest.data["sources"]["made"] == {
        **about,
        "files": len(WANTED),
        "bytes": sum(map(len, WANTED.values())),
    }
    report = (Path(result.uri) / "report.md").read_text()
    assert all(text in report for text in (commit, "CC0-1.0", "Nobody: Made. 2026", "hub:o/n@main"))
    assert not list((tmp_path / "fetch" / "downloads").iterdir())


def test_a_second_run_asks_nothing(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    declare(monkeypatch, HubFiles("o/m", ("*.jsonl",)), "second")
    hub.add("o/n", TREE)
    hub.add("o/m", {"a.jsonl": lines(3)})
    first = fetch(tmp_path)
    hub.requests.clear()
    again = fetch(tmp_path)
    assert (again.uri, again.reused) == (first.uri, True)
    assert not hub.requests
    # Another selection is another folder, of the same raw data.
    both = fetch(tmp_path, "second", "made")
    assert both.uri != first.uri
    assert not hub.seen("*o/n*")
    assert fetched(both) == WANTED
    assert fetched(both, "second") == {"a.jsonl": lines(3)}
    assert list(both.manifest.data["sources"]) == ["second", "made"]


def test_the_lock_holds_a_revision_until_it_is_moved(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    old = hub.add("o/n", TREE)
    first = fetch(tmp_path / "a")
    new = hub.add("o/n", {**TREE, "data/train-0.jsonl": lines(31)})
    text = (tmp_path / "a" / "sources.lock.yaml").read_text()

    # Elsewhere, by the same lock file, which stays as it is.
    locked = tmp_path / "sources.lock.yaml"
    locked.write_text(text)
    elsewhere = fetch(tmp_path / "b", lock=str(locked))
    assert fetched(elsewhere) == WANTED
    assert locked.read_text() == text
    assert not (tmp_path / "b" / "sources.lock.yaml").exists()
    assert Path(elsewhere.uri).name == Path(first.uri).name

    moved = fetch(tmp_path / "a", update=["made"])
    assert fetched(moved) == {**WANTED, "data/train-0.jsonl": lines(31)}
    assert pins(tmp_path / "a")["made"] == Pin("hub:o/n@main", new)
    assert sorted(path.name for path in (tmp_path / "a" / "raw" / "made").iterdir()) == sorted([old, new])
    assert fetched(first) == WANTED
    hub.requests.clear()
    assert fetch(tmp_path / "a", update=["all"]).uri == moved.uri
    assert [request.path.split("/")[-2:] for request in hub.requests] == [["revision", "main"]]


def test_files_that_two_revisions_share_come_once(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    hub.add("o/n", TREE)
    fetch(tmp_path)
    hub.add("o/n", {**TREE, "data/train-0.jsonl": lines(31)})
    hub.requests.clear()
    fetch(tmp_path, update=["made"])
    assert [request.path.rsplit("/", 1)[1] for request in hub.seen("*/resolve/*")] == ["train-0.jsonl"]


def test_options_that_make_no_sense_are_refused(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    (tmp_path / "raw" / "made").mkdir(parents=True)
    (tmp_path / "raw" / "made" / "a.jsonl").write_bytes(lines(3))
    root = tmp_path / "root"
    for options, said in (
        ({"update": ["mode"]}, "update: not one of sources=; got mode"),
        ({"update": ["made"], "raw": str(tmp_path / "raw")}, "update: is taken from raw=, not from a lock; got made"),
        ({"raw": "nfs://server/raw"}, "no storage backend"),
        ({"lock": "ftp://server/lock.yaml"}, "no storage backend"),
    ):
        with pytest.raises(UsageError) as caught:
            fetch(root, **options)
        assert said in str(caught.value)
    with pytest.raises(UsageError, match="unknown source"):
        fetch(root, "mode")
    assert "is missing or empty" in refusal(lambda: fetch(root, raw=str(tmp_path / "none")))
    assert not root.exists()
    assert not hub.requests


def test_a_lock_of_another_origin_is_refused(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    hub.add("o/n", TREE)
    fetch(tmp_path)
    commit = hub.add("o/n", {"data/train-0.jsonl": lines(3)}, revision="v2")
    declare(monkeypatch, HubFiles("o/n", PATTERNS, "v2"))
    text = refusal(lambda: fetch(tmp_path))
    assert "made is locked to another origin; got hub:o/n@main; expected hub:o/n@v2; update=made" in text
    assert fetched(fetch(tmp_path, update=["made"])) == {"data/train-0.jsonl": lines(3)}
    assert pins(tmp_path)["made"] == Pin("hub:o/n@v2", commit)


def test_a_revision_that_was_removed_says_how_to_go_on(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, REPO)
    old = hub.add("o/n", TREE)
    fetch(tmp_path / "a")
    new = hub.add("o/n", {**TREE, "data/train-0.jsonl": lines(31)})
    hub.remove("o/n", old)
    again = lambda **options: fetch(tmp_path / "b", lock=str(tmp_path / "a" / "sources.lock.yaml"), **options)  # noqa: E731
    assert "o/n: the revision does not exist; update=made locks" in refusal(again)
    assert fetch(tmp_path / "a").reused  # what was fetched is there
    again(update=["made"])
    assert pins(tmp_path / "a")["made"].revision == new


def test_no_file_at_a_revision_is_refused(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    hub.add("o/n", {"train.csv": b"a,b\n", "README.md": b""})
    text = refusal(lambda: fetch(tmp_path))
    assert "no file of made at this revision; got README.md, train.csv; expected data/train-*.jsonl, data/**/*" in text


@pytest.mark.parametrize("name", ["_MANIFEST.json", "_RECORD.json", "_STARTED.json"])
def test_a_file_that_is_called_as_one_of_ours_is_refused(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    declare(monkeypatch, HubFiles("o/n", ("*.json",)))
    hub.add("o/n", {name: b"{}"})
    assert f"has a name that cannot be kept; got '{name}'" in refusal(lambda: fetch(tmp_path))


def test_a_file_that_leads_out_of_its_folder_is_refused(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, HubFiles("o/n", ("**/*.json",)))
    hub.add("o/n", {"../../../a.json": b"{}"})
    assert "cannot be kept; got '../../../a.json'" in refusal(lambda: fetch(tmp_path / "root"))
    assert not list(tmp_path.glob("**/a.json"))


def test_bytes_that_stay_wrong_fail_one_shard_and_the_next_run_brings_that_alone(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, REPO)
    commit = hub.add("o/n", TREE)
    hub.corrupt("/cdn/*")
    hub.truncate("*/train-1.jsonl", size=10, times=1)
    with pytest.raises(StageFailure) as caught:
        fetch(tmp_path)
    assert caught.value.exit_code == 3
    (failed,) = caught.value.failures
    assert failed[0] == "made data/more/deep/x.parquet"
    assert re.search("the downloaded bytes are not those that the Hub lists; got sha256 .*, expected ", str(failed[1]))
    assert [request.status for request in hub.seen("/cdn/*")] == [200, 200]
    assert not (tmp_path / "raw").exists()
    hub.heal()
    hub.requests.clear()
    assert fetched(fetch(tmp_path)) == WANTED
    assert [request.path for request in hub.seen("*/resolve/*")] == [
        f"/datasets/o/n/resolve/{commit}/data/more/deep/x.parquet"
    ]


def test_raw_data_of_another_declaration_is_not_taken(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, HubFiles("o/n", ("data/train-0.jsonl",)))
    hub.add("o/n", TREE)
    narrow = fetch(tmp_path)
    assert len(fetched(narrow)) == 2
    declare(monkeypatch, REPO)
    hub.requests.clear()
    wide = fetch(tmp_path)
    assert fetched(wide) == WANTED
    assert {request.path.rsplit("/", 1)[1] for request in hub.seen("*/resolve/*")} == {"train-1.jsonl", "x.parquet"}
    # The older index still holds: no file of it was touched.
    assert len(clean(tmp_path / "c", narrow.uri)["data/made.jsonl"].splitlines()) == 30
    assert len(clean(tmp_path / "c", wide.uri)["data/made.jsonl"].splitlines()) == 90
    # And back again.
    declare(monkeypatch, HubFiles("o/n", ("data/train-0.jsonl",)))
    assert len(fetched(fetch(tmp_path))) == 2
    assert len(manifest(tmp_path)[1]["files"]) == 2


def test_raw_data_that_was_removed_or_damaged_is_brought_again(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, REPO)
    commit = hub.add("o/n", TREE)
    first = fetch(tmp_path)
    hub.requests.clear()
    folder = tmp_path / "raw" / "made" / commit

    def again() -> list[str]:
        hub.requests.clear()
        result = fetch(tmp_path)
        assert (result.uri, result.reused) == (first.uri, False)
        assert fetched(result) == WANTED
        assert fetch(tmp_path).reused
        return [request.path.rsplit("/", 1)[1] for request in hub.seen("*/resolve/*")]

    tools.remove(folder)
    assert again() == []  # from the cache
    tools.remove(tmp_path / "fetch" / "shards")
    (folder / "data" / "train-0.jsonl").unlink()
    assert sorted(again()) == sorted(Path(path).name for path in WANTED)
    (folder / tools.MANIFEST).unlink()
    assert again() == []
    (folder / tools.MANIFEST).write_text("{")
    assert again() == []


# --- fetch as a process ---------------------------------------------------------------------------------------------


def gsm8k(count: int) -> dict[str, bytes]:
    return {
        "README.md": b"---\nlicense: mit\n---\n",
        "main/train-00000-of-00002.parquet": table(count),
        "main/train-00001-of-00002.parquet": table(count, count),
        "main/test-00000-of-00001.parquet": table(3),
    }


SUDOKU = {"train.csv": ("source,question,answer,rating\n" + f"a,{'.' * 81},{'1' * 81},3\n" * 50).encode()}


def test_two_sources_come_to_another_endpoint_s_client_at_the_same_time(tmp_path: Path) -> None:
    with Hub() as first, Hub() as second:
        first.add("openai/gsm8k", gsm8k(5))
        commit = second.add("openai/gsm8k", gsm8k(500))
        second.add("sapientinc/sudoku-extreme", SUDOKU, lfs=["train.csv"])
        arguments = [f"root={tmp_path / 'root'}", "sources=gsm8k_train,sudoku", "workers=4"]
        done = program(second, tmp_path / "home", *arguments)
        folder = tools.folder(done)
        assert commit in (tmp_path / "root" / "sources.lock.yaml").read_text()
        assert not first.requests
        assert max(line.get("shards", 0) for line in done.lines) == 4
        second.requests.clear()
        assert tools.folder(program(second, tmp_path / "home", *arguments)) == folder
        assert not second.requests
    assert {len(path.read_bytes()) for path in (tmp_path / "root" / "raw").rglob("*.csv")} == {len(SUDOKU["train.csv"])}


def test_a_gated_data_set_needs_a_token_which_nobody_sees(tmp_path: Path) -> None:
    with Hub() as hub:
        commit = hub.add("openai/gsm8k", gsm8k(20), gated=True)
        stranger, approved = hub.token("hf_stranger0123456789"), hub.token("hf_approved0123456789", "openai/gsm8k")
        root, home = tmp_path / "root", tmp_path / "home"
        arguments = [f"root={root}", "sources=gsm8k_train", "workers=1"]
        said = []
        for token, expected in (("", "HF_TOKEN is not set"), (stranger, "the account of HF_TOKEN has no access")):
            done = tools.ended(program(hub, home, *arguments, token=token), 3)
            assert f"openai/gsm8k README.md: the data set is gated; got {expected}; accept its terms" in done.message
            said.append(done.out + done.err)
        done = program(hub, home, *arguments, token=approved)
        tools.folder(done)
        said.append(done.out + done.err)
        assert (root / "raw" / "gsm8k_train" / commit / "main" / "train-00001-of-00002.parquet").exists()
        assert all(request.headers.get("authorization") != "" for request in hub.requests)
        assert not any("authorization" in request.headers for request in hub.requests if request.server == "cdn")
    written = [path.read_bytes() for path in [*root.rglob("*"), *home.rglob("*")] if path.is_file()]
    assert len(written) > 10
    assert not [data for data in [*written, *(text.encode() for text in said)] if b"hf_" in data]


def test_a_cut_a_refusal_and_a_wait_are_gone_over_by_the_process_itself(tmp_path: Path) -> None:
    with Hub() as hub:
        hub.add("openai/gsm8k", gsm8k(2000))
        hub.cut("/cdn/*/train-00000*", after=10_000, reset=True, times=1)
        hub.fail("/cdn/*/train-00001*", 429, retry_after=1, times=1)
        hub.fail("/api/*", 503, times=1)
        done = program(hub, tmp_path / "home", f"root={tmp_path / 'root'}", "sources=gsm8k_train", "workers=2")
        tools.folder(done)
        _, rest = hub.seen("/cdn/*/train-00000*")
        assert rest.range == "bytes=10000-"
        refused, served = hub.seen("/cdn/*/train-00001*")
        assert 1 <= served.at - refused.at < 5
    assert done.said("status 503; trying again in")
    assert done.said("status 429; trying again in 1.0 s")


def test_two_runs_at_once_both_end_well(tmp_path: Path) -> None:
    with Hub() as hub:
        hub.add("openai/gsm8k", gsm8k(3000))
        hub.add("sapientinc/sudoku-extreme", SUDOKU, lfs=["train.csv"])
        hub.throttle("/cdn/*", 60_000)
        size = sum(map(len, gsm8k(3000).values()))
        arguments = [f"root={tmp_path / 'root'}", "sources=gsm8k_train,sudoku", "workers=2"]
        results: list[tools.Done] = []
        threads = [
            threading.Thread(target=lambda: results.append(program(hub, tmp_path / "home", *arguments)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
            time.sleep(0.3)
        for thread in threads:
            thread.join()
        sent = sum(request.sent for request in hub.seen("/cdn/*"))
    one, two = (tools.folder(done) for done in results)
    assert one == two
    raw = tmp_path / "root" / "raw"
    for source in ("gsm8k_train", "sudoku"):
        _, found = manifest(tmp_path / "root", source)
        (folder,) = (raw / source).iterdir()
        for file in found["files"]:
            assert digest_bytes((folder / file["path"]).read_bytes()) == f"blake3:{file['blake3']}"
    assert not tools.partials(tmp_path / "root")
    assert not list((tmp_path / "root" / "fetch" / "downloads").iterdir())
    print(f"\ntwo runs at once: {sent} bytes sent for {size} of data")
    assert sent < 2.1 * size


def test_small_files_come_at_once_without_a_further_process(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spawn(*_: object) -> None:
        raise AssertionError("a process takes a second to start")

    monkeypatch.setattr(WorkerPool, "_spawn", spawn)
    declare(monkeypatch, HubFiles("o/n", ("*.jsonl",)))
    files = {f"{number}.jsonl": b"%d\n" % number for number in range(4)}
    hub.add("o/n", files)
    together = threading.Barrier(len(files))
    real = hub_client.download

    def download(*arguments: Any) -> str:
        together.wait(PATIENCE)
        return real(*arguments)

    monkeypatch.setattr(hub_client, "download", download)
    assert fetched(fetch(tmp_path, workers=4)) == files


def test_an_interrupt_does_not_wait_for_a_server(tmp_path: Path) -> None:
    with Hub() as hub:
        hub.add("openai/gsm8k", gsm8k(10))
        hub.stall("*.parquet", 10 * PATIENCE)
        around = {**tools.environment(), **hub.environment(tmp_path / "home")}
        command = tools.command("fetch", root=tmp_path / "root", sources="gsm8k_train")
        process = subprocess.Popen(command, cwd=tools.REPOSITORY, env=around, stderr=subprocess.PIPE, text=True)
        until(lambda: hub.seen("*/resolve/*.parquet"), "a request for a file")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert json.loads(err.splitlines()[-1])["message"] == "fetch: interrupted; run the same command to resume"


def test_a_full_disk_ends_a_download_that_goes_on_when_there_is_room(
    tmp_path: Path, small_disk: Callable[[int], tools.Disk]
) -> None:
    disk = small_disk(1 << 20)
    content = "".join(f"a,{'.' * 81},{'1' * 81},{number}\n" for number in range(20_000)).encode()
    with Hub() as hub:
        hub.add("sapientinc/sudoku-extreme", {"train.csv": content}, lfs=["train.csv"])
        arguments = [f"root={disk.path / 'root'}", "sources=sudoku", "workers=1"]
        done = tools.ended(program(hub, tmp_path / "home", *arguments), 4)
        assert "no space left" in done.message
        had = (disk.path / "root" / "fetch" / "downloads").rglob("train.csv")
        size = next(had).stat().st_size
        assert size > 500_000
        disk.resize(16 << 20)
        tools.folder(program(hub, tmp_path / "home", *arguments))
        assert hub.seen("/cdn/*")[-1].range == f"bytes={size}-"
    _, found = manifest(disk.path / "root", "sudoku")
    assert f"blake3:{found['files'][0]['blake3']}" == digest_bytes(content)


# --- rows through datasets ------------------------------------------------------------------------------------------

_STREAM = """
import json, sys, time
from contextlib import contextmanager
from pathlib import Path
from pairmill.sources.origin import HubRows
from pairmill.stages.fetch import hub_rows
from pairmill.net import hub
from pairmill.errors import PairmillError
time.sleep = lambda seconds: None
hub_rows._PART_BYTES, hub_rows._GROUP_BYTES, hub_rows._BATCH_ROWS = 40_000, 10_000, 100
@contextmanager
def create(name):
    yield Path(sys.argv[1]) / name
said = []
for repo, commit, split, config, fields in json.loads(sys.argv[2]):
    try:
        where = hub.Repository(repo, "dataset", "")
        hub_rows.stream(HubRows(repo, (split,), config), commit, split, where, fields, create)
        said.append([0, ""])
    except PairmillError as error:
        said.append([error.exit_code, str(error)])
print(json.dumps(said))
"""


def stream(hub: Hub, tmp_path: Path, *cases: tuple[str, str, str, str, list[str]]) -> list[tuple[int, str]]:
    """Stream splits in a process of their own: exit codes, and what it said."""
    (tmp_path / "to").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", _STREAM, str(tmp_path / "to"), json.dumps(cases)],
        cwd=tools.REPOSITORY,
        env={**tools.environment(), **hub.environment(tmp_path / "home")},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        text=True,
    )
    assert not done.stderr, done.stderr
    return [(code, text) for code, text in json.loads(done.stdout)]


def test_rows_are_streamed_to_parquet_in_parts(tmp_path: Path) -> None:
    with Hub() as hub:
        shards = {f"data/train-{n:05}-of-00002.jsonl": lines(2000, 5000 * n) for n in range(2)}
        commit = hub.add("o/n", {**shards, "data/test-00000-of-00001.jsonl": lines(3)})
        hub.add("o/n", {"data/train-00000-of-00001.jsonl": lines(1)})
        hub.cut("*/data/train-00000*", after=10_000, times=1)
        hub.fail("*/data/train-00001*", 503, times=2)
        assert stream(hub, tmp_path, ("o/n", commit, "train", "default", [])) == [(0, "")]
    parts = sorted(path.name for path in (tmp_path / "to").iterdir())
    assert parts[:2] == ["train-00000.parquet", "train-00001.parquet"]
    assert len(parts) >= 3
    read = [pq.read_table(tmp_path / "to" / part) for part in parts]
    assert len({part.schema for part in read}) == 1
    rows = pa.concat_tables(read).to_pylist()
    assert rows == [json.loads(line) for content in shards.values() for line in content.splitlines()]
    assert pq.ParquetFile(tmp_path / "to" / parts[0]).num_row_groups in range(2, 8)


def test_rows_that_cannot_be_streamed_say_why(tmp_path: Path) -> None:
    two = b"---\nconfigs:\n- {config_name: a, data_files: a.jsonl}\n- {config_name: b, data_files: b.jsonl}\n---\n"
    kinds = lines(300) + b'{"question": [1], "answer": "1"}\n'
    with Hub() as hub:
        commit = hub.add("o/n", {"README.md": two, "a.jsonl": lines(3), "b.jsonl": lines(3)})
        mixed = hub.add("o/mixed", {"train.jsonl": kinds})
        broken = hub.add("o/broken", {"train.jsonl": lines(300) + b'{"question": '})
        gated = hub.add("o/gated", {"train.jsonl": lines(3)}, gated=True)
        hub.fail("*/resolve/*/b.jsonl", 500)
        found = stream(
            hub,
            tmp_path,
            ("o/n", commit, "tarin", "a", []),
            ("o/n", commit, "train", "default", []),
            ("o/mixed", mixed, "train", "default", ["question"]),
            ("o/mixed", mixed, "train", "default", ["answer"]),
            ("o/broken", broken, "train", "default", []),
            ("o/gated", gated, "train", "default", []),
            ("o/n", commit, "train", "b", []),
        )
    assert [code for code, _ in found] == [3, 3, 3, 0, 3, 3, 4]
    expected = (
        "o/n a tarin: datasets cannot read it; got ValueError: Bad split: tarin. Available splits: ['train']",
        "Config name is missing. Please pick one among the available configs: ['a', 'b']",
        "o/mixed default train: datasets turns a column of several types into JSON texts",
        "",
        "o/broken default train: datasets cannot read it; got ",
        "is a gated dataset",
        "status 500; run the same command later",
    )
    for (_, said), text in zip(found, expected, strict=True):
        assert text in said


def test_a_yaml_source_through_datasets_is_fetched_and_cleaned(tmp_path: Path) -> None:
    described = tmp_path / "made.yaml"
    described.write_text(
        "name: made_rows\nhub: o/n\nvia: datasets\nsplit: [train, validation]\ncondition: direct\n"
        "instruction: question\nresponse: answer\nlicence: CC0-1.0\n"
    )
    with Hub() as hub:
        commit = hub.add("o/n", {"train.jsonl": lines(30), "dev.csv": b"question,answer\nq,a\n"})
        commit = hub.add("o/n", {"train.jsonl": lines(30), "dev.jsonl": lines(2, 90)})
        root = tmp_path / "root"
        done = program(hub, tmp_path / "home", f"root={root}", f"sources={described}", "workers=2")
        raw = tools.folder(done)
        assert f"revision: {commit}" in (root / "sources.lock.yaml").read_text()
        assert sorted(path.name for path in (root / "raw" / "made_rows" / commit).glob("*.parquet")) == [
            "train-00000.parquet",
            "validation-00000.parquet",
        ]
        hub.requests.clear()
        tools.folder(program(hub, tmp_path / "home", f"root={root}", f"sources={described}"))
        assert not hub.requests
    folder = tools.folder(tools.stage("clean", raw=raw, root=root, sources=described, workers=1))
    rows = [json.loads(line) for line in (folder / "data" / "made_rows.jsonl").read_text().splitlines()]
    assert [row["instruction"] for row in rows[::31]] == ["What is 0 + 0?", "What is 90 + 1?"]
    assert len(rows) == 32


def test_files_of_any_kind_are_fetched_as_documents(tmp_path: Path) -> None:
    described = tmp_path / "books.yaml"
    described.write_text("name: books\nhub: o/n\nfiles: ['books/*.txt', '**/*.md']\neach: file\ntext: text\n")
    books = {"books/b.txt": b"Once.", "books/a.txt": b"Twice.", "notes/x/y.md": b"# Y", "books/.key.txt": b"secret"}
    with Hub() as hub:
        hub.add("o/n", books | {"README.md": b"# Card", "books/c.bin": b"\xff"})
        root = tmp_path / "root"
        raw = tools.folder(program(hub, tmp_path / "home", f"root={root}", f"sources={described}"))
        assert not hub.seen("c.bin")
    folder = tools.folder(tools.stage("clean", raw=raw, root=root, sources=described, workers=1))
    rows = [json.loads(line) for line in (folder / "data" / "books.jsonl").read_text().splitlines()]
    assert [row["response"] for row in rows] == ["Twice.", "Once.", "# Card", "# Y"]


def test_columns_that_are_read_through_datasets_are_checked_in_an_old_project_too(tmp_path: Path) -> None:
    records = [{"question": "q", "good": "g", "answer": "a"}] * 30 + [{"question": "q", "good": "g", "answer": [1]}]
    described, root = tmp_path / "made.yaml", tmp_path / "root"
    with Hub() as hub:
        hub.add("o/n", {"train.jsonl": "".join(json.dumps(one) + "\n" for one in records).encode()})
        for column, code in (("good", 0), ("answer", 3)):
            described.write_text(
                "name: made_rows\nhub: o/n\nvia: datasets\ncondition: direct\ninstruction: question\n"
                f"response: {column}\n"
            )
            done = program(hub, tmp_path / "home", f"root={root}", f"sources={described}", "workers=1")
            assert done.code == code, done.err
    assert "datasets turns a column of several types" in done.err
    # Nor does clean read them from the raw folder, or from the index, of before.
    (older,) = (root / "fetch").glob(f"*/{tools.MANIFEST}")
    for place in (older.parent, root / "raw"):
        with pytest.raises(StageFailure, match=r"datasets turns a column of several types.*got answer"):
            clean(root, place, str(described))
        described.write_text(described.read_text().replace("answer", "good"))
        assert len(clean(root, place, str(described))["data/made_rows.jsonl"].splitlines()) == 31
        described.write_text(described.read_text().replace("good", "answer"))
    # As files of others they are read as they are; that says nothing of those that came through datasets.
    part = next((root / "raw").rglob("train*.parquet")).read_bytes()
    plain = give(tmp_path / "plain" / "made_rows", {"train-00000.parquet": part})
    through = described.read_text()
    described.write_text(through.replace("via: datasets\n", ""))
    assert b'\\"a\\"' in clean(root, plain, str(described))["data/made_rows.jsonl"]
    described.write_text(through)
    with pytest.raises(StageFailure, match="datasets turns a column of several types"):
        clean(root, plain, str(described))


# --- files over https -----------------------------------------------------------------------------------------------


def packed(members: dict[str, bytes], kind: str = "tar.gz") -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as made:
            for name, content in members.items():
                made.writestr(name, content)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        for name, content in members.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            file.addfile(header, io.BytesIO(content))
    return gzip.compress(buffer.getvalue(), mtime=0)


MEMBERS = {"v1/train/a.jsonl": lines(10), "v1/train/b.jsonl": lines(10, 50), "v1/test/a.jsonl": lines(3), "v1/x": b""}
TRAIN = {path: MEMBERS[path] for path in list(MEMBERS)[:2]}


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_an_archive_is_unpacked_by_patterns(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    data = packed(MEMBERS, kind)
    url = files.add(f"some/v1.{kind}", data)
    declare(monkeypatch, Web(url, ("**/train/*.jsonl",)))
    files.cut("/some/*", after=100, times=1)
    result = fetch(tmp_path)
    assert fetched(result) == TRAIN
    digest = hashlib.sha256(data).hexdigest()
    assert pins(tmp_path)["made"] == Pin(url, f'"{hashlib.md5(data).hexdigest()}"', digest)
    assert index(result)["about"]["revision"] == f"sha256 {digest}"
    revision, raw = manifest(tmp_path)
    assert revision == digest[:16]
    assert [file["path"] for file in raw["files"]] == sorted(TRAIN)
    assert [(request.method, request.range) for request in files.requests] == [
        ("HEAD", None),
        ("GET", None),
        ("GET", "bytes=100-"),
    ]
    files.requests.clear()
    assert fetch(tmp_path).reused
    assert not files.requests
    assert not list((tmp_path / "fetch" / "downloads").iterdir())


def test_a_file_is_kept_as_it_is(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = files.add("/set/é train.jsonl", lines(9), framing="chunked")
    declare(monkeypatch, Web(url + "?download=1"))
    assert fetched(fetch(tmp_path)) == {"é train.jsonl": lines(9)}


def test_a_file_that_was_replaced_is_no_longer_published(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = files.add("set.tar.gz", packed(MEMBERS))
    declare(monkeypatch, Web(url, ("**/train/*.jsonl",)))
    fetch(tmp_path / "a")
    locked = str(tmp_path / "a" / "sources.lock.yaml")
    text = Path(locked).read_text()
    new = {**MEMBERS, "v1/train/a.jsonl": lines(11)}
    files.add("set.tar.gz", packed(new))
    files.requests.clear()
    said = refusal(lambda: fetch(tmp_path / "b", lock=locked))
    assert f"{url}: the file that made is locked to is no longer published; got sha256 " in said
    assert "; update=made takes what is published now; raw= what you have" in said
    assert len(files.requests) == 1  # it changed, so it is not damaged: no second try
    assert Path(locked).read_text() == text
    assert fetch(tmp_path / "a").reused
    moved = fetch(tmp_path / "b", lock=locked, update=["made"])
    assert fetched(moved) == {path: new[path] for path in TRAIN}
    assert lock.read(locked)["made"].sha256 == hashlib.sha256(packed(new)).hexdigest()


def test_the_same_bytes_may_be_called_otherwise(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = files.add("set.tar.gz", packed(MEMBERS))
    declare(monkeypatch, Web(url, ("**/train/*.jsonl",)))
    fetch(tmp_path / "a")
    locked = tmp_path / "a" / "sources.lock.yaml"
    text = locked.read_text()
    files.add("set.tar.gz", packed(MEMBERS), etag='"moved"')
    assert fetched(fetch(tmp_path / "b", lock=str(locked))) == TRAIN
    assert locked.read_text() == text
    # Moved to what is the same, the lock keeps what it knows.
    for _ in range(2):
        fetch(tmp_path / "b", lock=str(locked), update=["made"])
        pin = lock.read(str(locked))["made"]
        assert pin == Pin(url, '"moved"', hashlib.sha256(packed(MEMBERS)).hexdigest())


def test_an_archive_is_known_by_its_bytes_and_not_by_what_its_server_calls_them(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = {**MEMBERS, "v1/train/a.jsonl": lines(11)}
    found = []
    for number, (members, etag) in enumerate(((MEMBERS, "one"), (MEMBERS, "other"), (new, "one"))):
        declare(monkeypatch, Web(files.add("set.tar.gz", packed(members), etag=f'"{etag}"'), ("**/train/*.jsonl",)))
        result = fetch(tmp_path / str(number))
        assert fetch(tmp_path / str(number)).uri == result.uri
        found.append(tools.digests(Path(result.uri)) | {"": result.manifest.fingerprint})
    assert found[0] == found[1]
    assert found[0][""] != found[2][""]


@pytest.mark.parametrize("unpack", [("**/train/*.jsonl",), ()])
def test_update_moves_a_file_of_which_the_server_tells_no_version(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unpack: tuple[str, ...]
) -> None:
    name, untold = "set.tar.gz" if unpack else "set.jsonl", {"etag": False, "modified": False}

    def content(count: int) -> bytes:
        return packed({"v1/train/a.jsonl": lines(count)}) if unpack else lines(count)

    url = files.add(name, content(10), **untold)
    declare(monkeypatch, Web(url, unpack))
    first = fetch(tmp_path)
    (path,) = fetched(first)
    assert fetched(first) == {path: lines(10)}
    files.add(name, content(11), **untold)
    assert fetch(tmp_path).reused
    moved = fetch(tmp_path, update=["made"])
    assert fetched(moved) == {path: lines(11)}
    assert pins(tmp_path)["made"].sha256 == hashlib.sha256(content(11)).hexdigest()
    # From then on the lock is obeyed again, by the digest.
    assert fetch(tmp_path).uri == moved.uri
    files.add(name, content(12), **untold)
    assert "is no longer published" in refusal(lambda: fetch(tmp_path / "b", lock=str(tmp_path / "sources.lock.yaml")))
    assert fetched(fetch(tmp_path, update=["made"])) == {path: lines(12)}


def test_a_file_that_is_replaced_before_it_was_ever_fetched_is_noticed(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = files.add("set.tar.gz", packed(MEMBERS))
    declare(monkeypatch, Web(url, ("**/train/*.jsonl",)))
    files.fail("/set.tar.gz", 404, method="GET", times=1)
    assert "does not exist; got status 404; update=made takes" in refusal(lambda: fetch(tmp_path))
    assert pins(tmp_path)["made"].sha256 == ""
    files.add("set.tar.gz", packed({**MEMBERS, "v1/train/a.jsonl": lines(11)}))
    said = refusal(lambda: fetch(tmp_path))
    assert "the published version has changed; got " in said
    assert "update=made" in said
    assert pins(tmp_path)["made"].sha256 == ""
    fetch(tmp_path, update=["made"])
    assert pins(tmp_path)["made"].sha256


def test_damaged_bytes_are_fetched_once_more_where_the_digest_is_known(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = packed(MEMBERS)
    url = files.add("set.tar.gz", data)
    declare(monkeypatch, Web(url, ("**/train/*.jsonl",)))
    # At first nobody knows the digest, but the archive has checksums of its own, and is not kept.
    files.corrupt("/set.tar.gz", times=1)
    assert "not a complete tar or zip archive" in refusal(lambda: fetch(tmp_path / "a"))
    assert fetched(fetch(tmp_path / "a")) == TRAIN
    locked = str(tmp_path / "a" / "sources.lock.yaml")
    files.corrupt("/set.tar.gz", at=12, times=1)
    assert fetched(fetch(tmp_path / "b", lock=locked)) == TRAIN
    files.corrupt("/set.tar.gz", at=12)
    files.requests.clear()
    said = refusal(lambda: fetch(tmp_path / "c", lock=locked))
    assert f"expected sha256 {hashlib.sha256(data).hexdigest()}" in said
    assert len(files.requests) == 2


def test_an_archive_without_a_wanted_file_is_refused(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, Web(files.add("set.zip", packed({"a.txt": b""}, "zip")), ("**/train/*.jsonl",)))
    assert "set.zip: no file of made in it; expected **/train/*.jsonl" in refusal(lambda: fetch(tmp_path))


def test_nothing_of_a_hostile_archive_is_kept(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed({"a.jsonl": lines(3), "../../../../../evil.jsonl": lines(3)})
    declare(monkeypatch, Web(files.add("set.tar.gz", data), ("*.jsonl",)))
    said = refusal(lambda: fetch(tmp_path / "root"))
    assert "would write outside its folder; got '../../../../../evil.jsonl'" in said
    assert not list(tmp_path.rglob("evil*"))
    assert not (tmp_path / "root" / "raw").exists()


def test_a_server_that_stays_broken_leaves_what_came(
    files: Files, hasty: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = packed({**MEMBERS, "v1/train/c.jsonl": os.urandom(100_000)})
    declare(monkeypatch, Web(files.add("set.tar.gz", data), ("**/train/*.jsonl",)))
    files.cut("/set.tar.gz", after=60_000, times=1)
    files.fail("/set.tar.gz", 503, skip=2)
    said = refusal(lambda: fetch(tmp_path), 4)
    assert "tries within 180 s; got status 503; check that the service is up" in said
    files.heal()
    files.requests.clear()
    fetch(tmp_path)
    assert [(request.range, request.sent) for request in files.requests] == [("bytes=60000-", len(data) - 60_000)]


# --- files of git repositories --------------------------------------------------------------------------------------


class Forge:
    """A git forge: what a repository's branches are, and archives of its commits."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._refs: dict[str, str] = {}
        self.repository = f"{files.url}/owner/name"

    def push(self, members: dict[str, bytes], *refs: str) -> str:
        """Commit these files, and let refs name that commit; the commit."""
        commit = hashlib.sha1(repr(members).encode()).hexdigest()
        top = f"name-{commit}/"
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": commit}) as file:
            folder = tarfile.TarInfo(top)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o775
            file.addfile(folder)
            for name, content in members.items():
                header = tarfile.TarInfo(top + name)
                header.size = len(content)
                file.addfile(header, io.BytesIO(content))
            link = tarfile.TarInfo(top + "latest")
            link.type, link.linkname = tarfile.SYMTYPE, "v1"
            file.addfile(link)
        data = gzip.compress(buffer.getvalue(), mtime=0)
        # As GitHub sends them: made while it sends, of untold length.
        self._files.add(
            f"/owner/name/archive/{commit}.tar.gz", data, framing="chunked", ranges=False, etag=False, modified=False
        )
        self._refs |= dict.fromkeys(refs, commit)
        packets = ["001e# service=git-upload-pack\n0000"]
        for number, (ref, oid) in enumerate(sorted(self._refs.items())):
            line = f"{oid} {ref}" + ("\0side-band-64k agent=git/2.50\n" if number == 0 else "\n")
            packets.append(f"{len(line) + 4:04x}{line}")
        self._files.add("/owner/name.git/info/refs", "".join([*packets, "0000"]).encode())
        return commit


FOLDER = {"data/a.jsonl": lines(10), "data/deep/b.jsonl": lines(3), "src/code.py": b"", "top.jsonl": lines(1)}


def test_files_of_a_git_repository_come_from_its_archive(
    files: Files, hasty: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = Forge(files)
    first = forge.push(FOLDER, "HEAD", "refs/heads/main")
    source = Git(forge.repository, ("data/*.jsonl",), "main")
    declare(monkeypatch, source)
    files.cut("/owner/name/archive/*", after=200, times=1)
    result = fetch(tmp_path)
    assert fetched(result) == {"data/a.jsonl": lines(10)}
    assert manifest(tmp_path)[0] == first
    assert pins(tmp_path)["made"] == Pin(f"git:{forge.repository}@main", first)
    assert index(result)["about"]["revision"] == first

    second = forge.push({**FOLDER, "data/a.jsonl": lines(11)}, "HEAD", "refs/heads/main")
    files.requests.clear()
    assert fetch(tmp_path).reused
    assert not files.requests
    assert fetched(fetch(tmp_path, update=["made"])) == {"data/a.jsonl": lines(11)}
    assert pins(tmp_path)["made"].revision == second

    declare(monkeypatch, Git(forge.repository, ("data/*.jsonl",), "mian"))
    said = refusal(lambda: fetch(tmp_path / "b"))
    assert f"{forge.repository}: the branch or tag does not exist; got mian; expected main" in said


def test_a_commit_whose_archive_is_gone_says_how_to_go_on(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forge = Forge(files)
    commit = forge.push(FOLDER, "HEAD")
    declare(monkeypatch, Git(forge.repository, ("data/*.jsonl",)))
    files.remove(f"/owner/name/archive/{commit}.tar.gz")
    said = refusal(lambda: fetch(tmp_path))
    assert f"{commit}.tar.gz: does not exist; got status 404; update=made takes what is published now" in said


# --- what is there already ------------------------------------------------------------------------------------------


def give(folder: Path, content: dict[str, bytes]) -> Path:
    """Write raw files of a source; the folder above."""
    for path, data in content.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder.parent


def test_given_files_are_taken_where_they_stand(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    raw = give(tmp_path / "raw" / "made", WANTED)
    result = fetch(tmp_path / "root", raw=str(raw))
    assert not hub.requests
    entry = index(result)
    assert (entry["path"], entry["about"]["revision"]) == ("", "as given")
    assert places(result.uri) == {"made": str(raw / "made")}
    assert fetched(result) == WANTED
    assert not (tmp_path / "root" / "raw").exists()
    assert not (tmp_path / "root" / "sources.lock.yaml").exists()
    assert fetch(tmp_path / "root", raw=str(raw)).reused
    # In another place they are read there, and the folder stays what it is.
    (tmp_path / "moved").mkdir()
    raw.rename(tmp_path / "moved" / "raw")
    moved = fetch(tmp_path / "root", raw=str(tmp_path / "moved" / "raw"))
    assert moved.reused
    assert fetched(moved) == WANTED
    plain = clean(tmp_path / "c", tmp_path / "moved" / "raw")
    assert clean(tmp_path / "c", moved.uri) == plain


def test_what_another_project_fetched_can_be_given(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    commit = hub.add("o/n", TREE)
    first = fetch(tmp_path / "a")
    hub.requests.clear()
    second = fetch(tmp_path / "b", raw=str(tmp_path / "a" / "raw"))
    assert not hub.requests
    assert fetched(second) == WANTED
    assert index(second)["about"] == index(first)["about"]
    assert places(second.uri) == {"made": str(tmp_path / "a" / "raw" / "made" / commit)}
    (tmp_path / "a" / "raw" / "made" / commit / tools.MANIFEST).unlink()
    assert "no finished revision of made" in refusal(lambda: fetch(tmp_path / "b", raw=str(tmp_path / "a" / "raw")))


def test_given_files_that_change_are_noticed(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    raw = give(tmp_path / "raw" / "made", WANTED)
    result = fetch(tmp_path / "root", raw=str(raw))
    (raw / "made" / "data" / "train-0.jsonl").write_bytes(lines(3))
    said = refusal(lambda: clean(tmp_path / "c", result.uri))
    assert "1 raw files of made are missing or changed since they were fetched; got data/train-0.jsonl: " in said
    again = fetch(tmp_path / "root", raw=str(raw))
    assert again.uri != result.uri
    assert len(clean(tmp_path / "c", again.uri)["data/made.jsonl"].splitlines()) == 63


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
def test_a_given_archive_is_unpacked(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    declare(monkeypatch, Web(f"{files.url}/gone.{kind}", ("**/train/*.jsonl",)))
    data = packed(MEMBERS, kind)
    raw = give(tmp_path / "raw" / "made", {f"any.{kind}": data})
    result = fetch(tmp_path / "root", raw=str(raw))
    assert fetched(result) == TRAIN
    assert manifest(tmp_path / "root")[0] == hashlib.sha256(data).hexdigest()[:16]
    assert fetch(tmp_path / "root", raw=str(raw)).reused
    assert not files.requests
    (raw / "made" / f"any.{kind}").write_bytes(data[:-30])
    assert "not a complete tar or zip archive" in refusal(lambda: fetch(tmp_path / "root", raw=str(raw)))


def test_a_given_folder_without_the_files_is_refused(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, Web(f"{files.url}/set.zip", ("**/train/*.jsonl",)))
    raw = give(tmp_path / "raw" / "made", {"notes.txt": b"", "a.zip": b"", "b.zip": b""})
    said = refusal(lambda: fetch(tmp_path / "root", raw=str(raw)))
    assert f"{raw / 'made'}: no file of made; got a.zip, b.zip, notes.txt; expected **/train/*.jsonl" in said


BEHIND = Manual("https://host/page", "set.tar.gz", "gdown 1hQ -O set.tar.gz")


def test_what_people_have_to_download_is_said_with_the_command(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, BEHIND)
    declare(monkeypatch, REPO, "other")
    hub.add("o/n", TREE)
    said = refusal(lambda: fetch(tmp_path / "root", "made", "other"))
    assert said.startswith("made: has to be downloaded by hand; put it into <folder>/<source>/ and give raw=<folder>")
    assert said.endswith("\n  made: gdown 1hQ -O set.tar.gz\n    (https://host/page)")
    assert not hub.requests
    # Everything is more than can be fetched: the message names the rest.
    said = refusal(lambda: fetch(tmp_path / "root", "all"))
    assert "made: gdown 1hQ -O set.tar.gz" in said
    rest = re.search(r"go on with sources=([^:]+):", said)
    assert rest is not None
    assert {"other", "gsm8k_train", "dmmath"} <= set(rest.group(1).split(","))
    assert "made" not in rest.group(1).split(",")

    raw = give(tmp_path / "raw" / "made", {"a.jsonl": lines(7)})
    result = fetch(tmp_path / "root", "made", "other", raw=str(raw))
    assert fetched(result) == {"a.jsonl": lines(7)}
    assert fetched(result, "other") == WANTED
    assert list(pins(tmp_path / "root")) == ["other"]


def test_a_source_of_given_files_needs_no_raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = give(tmp_path / "mine", {"a.jsonl": lines(7), "b.txt": b""}) / "mine"
    declare(monkeypatch, Folder(str(folder), ("*.jsonl",)))
    result = fetch(tmp_path / "root")
    assert fetched(result) == {"a.jsonl": lines(7)}
    assert len(clean(tmp_path / "root", result.uri)["data/made.jsonl"].splitlines()) == 7
    tools.remove(folder)
    assert "is missing or empty; expected the files of made" in refusal(lambda: fetch(tmp_path / "root"))


# --- what clean makes of it -----------------------------------------------------------------------------------------


def test_clean_makes_the_same_of_the_index_of_the_raw_folders_and_of_plain_files(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, REPO)
    commit = hub.add("o/n", TREE)
    result = fetch(tmp_path / "root")
    plain = give(tmp_path / "plain" / "made", WANTED)
    wanted = clean(tmp_path / "1", plain)
    assert len(wanted["data/made.jsonl"].splitlines()) == 90
    assert clean(tmp_path / "2", result.uri) == wanted
    assert clean(tmp_path / "3", tmp_path / "root" / "raw") == wanted
    # The project may be moved.
    (tmp_path / "root").rename(tmp_path / "elsewhere")
    index_there = tmp_path / "elsewhere" / Path(result.uri).relative_to(tmp_path / "root")
    assert clean(tmp_path / "4", index_there) == wanted
    # The same raw data is the same work, wherever it stands.
    assert [path.name for path in (tmp_path / "2" / "clean").iterdir() if path.name != "shards"] == [
        path.name for path in (tmp_path / "4" / "clean").iterdir() if path.name != "shards"
    ]

    folder = tmp_path / "elsewhere" / "raw" / "made" / commit
    whole = (folder / tools.MANIFEST).read_bytes()
    (folder / tools.MANIFEST).unlink()
    said = refusal(lambda: clean(tmp_path / "5", tmp_path / "elsewhere" / "raw"))
    assert "no finished revision of made" in said
    (folder / tools.MANIFEST).write_bytes(whole)
    (folder / "data" / "train-0.jsonl").unlink()
    assert "missing or changed" in refusal(lambda: clean(tmp_path / "5", index_there))
    assert "missing or changed" in refusal(lambda: clean(tmp_path / "5", tmp_path / "elsewhere" / "raw"))


def test_rows_of_hub_and_rows_are_declared_apart(monkeypatch: pytest.MonkeyPatch, hub: Hub, tmp_path: Path) -> None:
    declare(monkeypatch, REPO)
    hub.add("o/n", TREE)
    fetch(tmp_path)
    declare(monkeypatch, HubRows("o/n", ("train",)))
    assert "got hub:o/n@main; expected hub rows:o/n/default@main" in refusal(lambda: fetch(tmp_path))


def test_what_is_no_result_of_fetch_is_no_raw_data(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(monkeypatch, REPO)
    hub.add("o/n", TREE)
    result = fetch(tmp_path)
    with pytest.raises(InputError, match="gsm8k_train was not fetched"):
        clean(tmp_path / "c", result.uri, "gsm8k_train")
    Path(result.uri, tools.MANIFEST).unlink()
    assert "not finished" in refusal(lambda: clean(tmp_path / "c", result.uri))


def test_a_policy_leaves_out_single_files_and_no_byte_of_them_is_asked_for(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(monkeypatch, REPO)
    hub.add("o/n", TREE)
    text = "clauses:\n- {match: made/*.parquet, decision: deny, reason: robots, why: x, date: 2026-08-01}\n"
    policy = tools.write_text(tmp_path / "policy.yaml", text)
    with enforced(Enforcer(Policy.load(str(policy)), root=str(tmp_path))):
        part = fetch(tmp_path)
    assert fetched(part) == {path: data for path, data in WANTED.items() if not path.endswith(".parquet")}
    assert not [request for request in hub.seen("*/resolve/*") if request.path.endswith(".parquet")]
    assert part.manifest.data["policy"]["left_out"] == [f"made/{path}" for path in WANTED if path.endswith(".parquet")]
    # Without it the rest comes.
    assert fetched(fetch(tmp_path)) == WANTED
