"""The servers that stand in for the Hub and for archives: huggingface_hub itself gets from them what it expects."""

import hashlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from tests.support.helpers import PATIENCE, environment
from tests.support.servers.downloads import Files, Framing, Hub

CHUNK = 10 << 20  # what huggingface_hub writes at once: what a cut leaves of a smaller piece is lost
LONG = bytes(range(256)) * 64  # 16 KiB


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub(page_size=2) as server:
        yield server


@pytest.fixture
def files() -> Iterator[Files]:
    with Files() as server:
        yield server


def child(hub: Hub, home: Path, code: str, *arguments: str, token: str = "") -> Any:
    """What a child that talks to the hub prints, as JSON; it finds ``api`` and its arguments."""
    # Not "import *", which takes in the command line, which asks the Hub for a list before anything else.
    head = "import json, sys\nfrom huggingface_hub import HfApi, HfFileSystem, hf_hub_download\n"
    head += "from huggingface_hub.hf_api import RepoFile\napi, arguments = HfApi(), sys.argv[1:]\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code, *arguments],
        env={**environment(), **hub.environment(home, token)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request, no redirect followed: status, headers in lower case, body."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


# --- huggingface_hub against Hub ------------------------------------------------------------------------------------

_LISTS = """
info = api.dataset_info("org/name", files_metadata=True)
listed = list(api.list_repo_tree("org/name", repo_type="dataset", recursive=True, expand=True))
asked = api.get_paths_info("org/name", ["data", "data/b.parquet", "absent"], repo_type="dataset")
refs = api.list_repo_refs("org/name", repo_type="dataset")
print(json.dumps({
    "info": [info.sha, info.gated, info.private, info.card_data.to_dict()],
    "siblings": [[s.rfilename, s.size, s.lfs and s.lfs.sha256] for s in info.siblings],
    "converted": api.dataset_info("org/name", revision="refs/convert/parquet").sha,
    "renamed": api.dataset_info("old/name").id,
    "tree": [[f.path, f.last_commit.oid, f.lfs and f.lfs.size] if isinstance(f, RepoFile) else f.path for f in listed],
    "asked": [entry.path for entry in asked],
    "refs": [[ref.ref, ref.target_commit] for ref in refs.branches + refs.converts + refs.tags],
    "commits": [commit.commit_id for commit in api.list_repo_commits("org/name", repo_type="dataset")],
}))
"""


def test_huggingface_hub_resolves_and_lists(hub: Hub, tmp_path: Path) -> None:
    readme = b"---\nlicense: mit\n---\nText.\n"
    first = hub.add("org/name", {"README.md": readme, "data/a.json": b"{}"}, aliases=["old/name"])
    last = hub.add("org/name", {"README.md": readme, "data/a.json": b"[]", "data/b.parquet": LONG})
    converted = hub.add("org/name", {"default/0.parquet": b"PAR1"}, revision="refs/convert/parquet")
    hub.tag("org/name", "v1", first)
    sha256 = hashlib.sha256(LONG).hexdigest()
    assert child(hub, tmp_path, _LISTS) == {
        "info": [last, False, False, {"license": "mit"}],
        "siblings": [["README.md", 27, None], ["data/a.json", 2, None], ["data/b.parquet", len(LONG), sha256]],
        "converted": converted,
        "renamed": "org/name",
        "tree": ["data", ["README.md", first, None], ["data/a.json", last, None], ["data/b.parquet", last, len(LONG)]],
        "asked": ["data", "data/b.parquet"],
        "refs": [["refs/heads/main", last], ["refs/convert/parquet", converted], ["refs/tags/v1", first]],
        "commits": [last, first],
    }
    assert len(hub.seen("/api/datasets/org/name/tree/main")) == 2  # pages of two


_DOWNLOADS = """
for revision, path in zip(arguments[1::2], arguments[2::2]):
    hf_hub_download("org/name", path, repo_type="dataset", revision=revision, local_dir=arguments[0])
print("null")
"""


def test_huggingface_hub_downloads_from_hub_and_cdn(hub: Hub, tmp_path: Path) -> None:
    main = {"data/b.parquet": LONG, "a é.txt": b"text", "empty": b""}
    hub.add("org/name", main, gated=True)
    hub.add("org/name", {"c.parquet": b"PAR1"}, revision="refs/convert/parquet")
    hub.token("hf_approved", "org/name")
    wanted = [("main", path) for path in main] + [("refs/convert/parquet", "c.parquet")]
    arguments = [word for pair in wanted for word in pair]
    child(hub, tmp_path / "home", _DOWNLOADS, str(tmp_path / "to"), *arguments, token="hf_approved")
    assert {path: (tmp_path / "to" / path).read_bytes() for _, path in wanted} == {**main, "c.parquet": b"PAR1"}
    # LFS files come from the second server, which never sees the token; an empty file is not even asked for.
    methods = [request.method for request in hub.requests if request.server == "hub"]
    assert methods == ["HEAD", "HEAD", "GET", "HEAD", "HEAD"]
    assert [(request.status, request.sent) for request in hub.seen("/cdn/*")] == [(200, len(LONG)), (200, 4)]
    assert ["authorization" in request.headers for request in hub.requests if request.server == "cdn"] == [False] * 2
    assert all("authorization" in request.headers for request in hub.requests if request.server == "hub")


def test_huggingface_hub_resumes_after_a_cut(hub: Hub, tmp_path: Path) -> None:
    content = os.urandom(CHUNK + 2000)
    commit = hub.add("org/name", {"data/b.parquet": content})
    hub.cut("/cdn/*/b.parquet", after=CHUNK + 1000, times=1)
    child(hub, tmp_path / "home", _DOWNLOADS, str(tmp_path / "to"), commit, "data/b.parquet")
    assert (tmp_path / "to" / "data" / "b.parquet").read_bytes() == content
    assert [(request.range, request.status, request.sent) for request in hub.seen("/cdn/*")] == [
        (None, 200, CHUNK + 1000),
        (f"bytes={CHUNK}-", 206, 2000),
    ]


def test_huggingface_hub_waits_when_it_is_told_to(hub: Hub, tmp_path: Path) -> None:
    commit = hub.add("org/name", {"b.parquet": b"PAR1"})
    hub.fail("/cdn/*", 429, retry_after=1, times=1)
    child(hub, tmp_path / "home", _DOWNLOADS, str(tmp_path / "to"), commit, "b.parquet")
    refused, served = hub.seen("/cdn/*")
    assert (refused.status, served.status) == (429, 200)
    assert served.at - refused.at >= 1


_REFUSED = """
names = []
for repository, revision, path in json.loads(arguments[0]):
    for call in (
        lambda: api.dataset_info(repository, revision=revision),
        lambda: hf_hub_download(
            repository, path, repo_type="dataset", revision=revision, local_dir=f"{arguments[1]}/{repository}"
        ),
    ):
        try:
            call()
            names.append("")
        except Exception as error:
            names.append(type(error).__name__)
print(json.dumps(names))
"""


@pytest.mark.parametrize(
    ("token", "gated", "private"),
    [
        ("", ["", "GatedRepoError"], ["RepositoryNotFoundError"] * 2),
        ("hf_other", ["", "GatedRepoError"], ["RepositoryNotFoundError"] * 2),
        ("hf_approved", ["", ""], ["", ""]),
    ],
)
def test_huggingface_hub_knows_refusals(
    hub: Hub, tmp_path: Path, token: str, gated: list[str], private: list[str]
) -> None:
    hub.add("org/gated", {"a": b""}, gated="manual")
    hub.add("org/private", {"a": b""}, private=True)
    hub.add("org/open", {"a": b""})
    hub.token("hf_other")
    hub.token("hf_approved", "org/gated", "org/private")
    asked = [
        *(["org/gated", "main", "a"], ["org/private", "main", "a"], ["org/unknown", "main", "a"]),
        *(["org/open", "unknown", "a"], ["org/open", "0" * 40, "a"], ["org/open", "main", "unknown"]),
    ]
    names = child(hub, tmp_path / "home", _REFUSED, json.dumps(asked), str(tmp_path / "to"), token=token)
    assert names == [
        *(*gated, *private, "RepositoryNotFoundError", "RepositoryNotFoundError"),
        *("RevisionNotFoundError",) * 4,
        *("", "RemoteEntryNotFoundError"),
    ]


_STREAMS = """
files = HfFileSystem()
found = files.glob("datasets/old/name/data/*.parquet")
with files.open(f"hf://datasets/old/name@{arguments[0]}/data/b.parquet") as opened:
    opened.seek(16000)
    print(json.dumps([found, opened.read(4).hex(), len(files.cat_file(found[0]))]))
"""


def test_the_file_system_of_huggingface_hub_reads(hub: Hub, tmp_path: Path) -> None:
    commit = hub.add("org/name", {"data/b.parquet": LONG}, aliases=["old/name"])
    found = ["datasets/old/name/data/b.parquet"]
    assert child(hub, tmp_path, _STREAMS, commit) == [found, LONG[16000:16004].hex(), len(LONG)]
    assert hub.seen("/cdn/*")[0].range == "bytes=16000-16383"


# --- Hub ------------------------------------------------------------------------------------------------------------


def test_a_commit_is_named_as_by_git(hub: Hub) -> None:
    # Recorded from git itself: the same files, person and date.
    files = {"a/b/c.txt": b"1", "a.txt": b"2", "a-b": b"3", "a/z": b"4", "ab/x": b"5", "é/ü": b"7"}
    assert hub.add("org/name", files) == "2596b51ddafef6b50299c51d0d5dbb9c20d00f41"


def test_a_branch_moves_and_commits_stay_until_they_are_removed(hub: Hub) -> None:
    def read(revision: str) -> tuple[int, str, bytes]:
        status, headers, body = ask(f"{hub.url}/datasets/org/name/resolve/{quote(revision, safe='')}/a.txt")
        return status, headers.get("x-repo-commit") or headers["x-error-code"], body if status == 200 else b""

    first = hub.add("org/name", {"a.txt": b"1"})
    assert hub.add("org/name", {"a.txt": b"1"}) == first
    last = hub.add("org/name", {"a.txt": b"2"})
    assert last != first
    assert read("main") == (200, last, b"2")
    assert read(first) == (200, first, b"1")
    hub.tag("org/name", "v/1", first)
    assert read("v/1") == (200, first, b"1")
    hub.remove("org/name", first)
    assert read(first) == read("v/1") == (404, "RevisionNotFound", b"")
    assert read("main") == (200, last, b"2")
    hub.remove("org/name", "main")
    assert read("main") == (404, "RevisionNotFound", b"")
    assert read(last) == (200, last, b"2")
    hub.remove("org/name")
    assert read(last) == (401, "RepoNotFound", b"")


def test_what_lfs_holds_can_be_said(hub: Hub) -> None:
    def held(**options: Any) -> list[str]:
        hub.add("org/name", {"a.parquet": b"1", "b.txt": b"2", "c": str(options).encode()}, **options)
        siblings = json.loads(ask(f"{hub.url}/api/datasets/org/name?blobs=true")[2])["siblings"]
        return [sibling["rfilename"] for sibling in siblings if "lfs" in sibling]

    assert held() == ["a.parquet"]
    assert held(lfs=()) == []
    assert held(lfs={"b.txt"}) == ["b.txt"]
    assert held(lfs=lambda path: path != "c") == ["a.parquet", "b.txt"]


def test_what_lfs_holds_is_told_by_the_hub_and_given_by_a_signed_url_alone(hub: Hub) -> None:
    commit = hub.add("org/name", {"a.parquet": LONG})
    status, headers, _ = ask(f"{hub.url}/datasets/org/name/resolve/main/a.parquet", "HEAD")
    told = [headers[name] for name in ("x-repo-commit", "x-linked-etag", "x-linked-size")]
    assert [status, *told] == [302, commit, f'"{hashlib.sha256(LONG).hexdigest()}"', str(len(LONG))]
    assert ask(headers["location"], Range="bytes=-3")[::2] == (206, LONG[-3:])
    assert ask(headers["location"].partition("?")[0])[0] == 403


def test_a_former_name_and_an_unknown_token_are_answered_as_by_the_hub(hub: Hub) -> None:
    hub.add("org/name", {"a.txt": b"1"}, aliases=["old/name", "name"])
    for former, place in [("name", "tree/main?recursive=1"), ("old/name", "refs"), ("name", "")]:
        status, headers, _ = ask(f"{hub.url}/api/datasets/{former}/{place}".rstrip("/"))
        assert (status, headers["location"]) == (307, f"/api/datasets/org/name/{place}".rstrip("/"))
    status, headers, _ = ask(f"{hub.url}/api/datasets/org/name", Authorization="Bearer hf_unknown")
    assert (status, headers["x-error-message"]) == (401, "Invalid credentials in Authorization header")
    assert ask(f"{hub.url}/api/spaces/org/name")[0] == 404


def test_a_model_is_no_data_set(hub: Hub) -> None:
    commit = hub.add("org/model", {"a.json": b"[1]"}, kind="model", aliases=["old/model"])
    assert json.loads(ask(f"{hub.url}/api/models/org/model/revision/main")[2])["sha"] == commit
    assert ask(f"{hub.url}/org/model/resolve/main/a.json")[2] == b"[1]"
    assert ask(f"{hub.url}/old/model/resolve/main/a.json")[1]["location"] == "/org/model/resolve/main/a.json"
    assert (
        ask(f"{hub.url}/api/datasets/org/model")[0]
        == ask(f"{hub.url}/datasets/org/model/resolve/main/a.json")[0]
        == 401
    )
    hub.add("org/set", {"a.json": b"[1]"})
    assert ask(f"{hub.url}/api/models/org/set")[0] == ask(f"{hub.url}/org/set/resolve/main/a.json")[0] == 401


# --- Files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "status", "told", "body"),
    [
        (None, 200, None, b"0123456789"),
        ("bytes=4-", 206, "bytes 4-9/10", b"456789"),
        ("bytes=4-5", 206, "bytes 4-5/10", b"45"),
        ("bytes=8-20", 206, "bytes 8-9/10", b"89"),
        ("bytes=-3", 206, "bytes 7-9/10", b"789"),
        ("bytes=10-", 416, "bytes */10", b""),
        ("bytes=0-1,3-4", 200, None, b"0123456789"),
        ("lines=1-", 200, None, b"0123456789"),
    ],
)
def test_a_range_of_a_file(files: Files, asked: str | None, status: int, told: str | None, body: bytes) -> None:
    url = files.add("a.tar.gz", b"0123456789")
    answer = ask(url, **({"Range": asked} if asked else {}))
    assert (answer[0], answer[1].get("content-range"), answer[2]) == (status, told, body)


def test_a_range_of_a_file_that_has_changed_is_the_whole_of_it(files: Files) -> None:
    url = files.add("/a b.gz", b"0123456789")
    _, old, _ = ask(url, "HEAD")
    assert old["content-length"] == "10"
    for name in ("etag", "last-modified"):
        assert ask(url, Range="bytes=4-", If_Range=old[name])[0] == 206
    assert files.add("/a b.gz", b"9876543210") == url
    for name in ("etag", "last-modified"):
        assert ask(url, Range="bytes=4-", If_Range=old[name])[::2] == (200, b"9876543210")
    assert ask(url, Range="bytes=4-", If_Range=f"W/{ask(url)[1]['etag']}")[0] == 200
    files.remove("a b.gz")
    assert ask(url)[0] == 404


def test_a_server_may_know_less(files: Files) -> None:
    url = files.add("a", b"0123456789", ranges=False, etag=False, modified=False)
    status, headers, body = ask(url, Range="bytes=4-")
    assert (status, body) == (200, b"0123456789")
    assert not headers.keys() & {"accept-ranges", "etag", "last-modified"}


@pytest.mark.parametrize(("framing", "told"), [("chunked", "transfer-encoding"), ("close", "connection")])
def test_a_length_may_be_untold(files: Files, framing: Framing, told: str) -> None:
    status, headers, body = ask(files.add("a", LONG, framing=framing), Range="bytes=1-")
    assert (status, body) == (206, LONG[1:])
    assert "content-length" not in headers
    assert told in headers


# --- faults ---------------------------------------------------------------------------------------------------------


def test_a_fault_holds_for_so_many_requests_after_so_many(files: Files) -> None:
    url = files.add("a.gz", b"content")
    other = files.add("b", b"content")
    files.fail("*.gz", 503, skip=1, times=2, retry_after=7, body=b"later")
    files.fail("/a.gz?x=1", 418)
    files.fail("*", 500, method="HEAD", headers={"X-Fault": "1"})
    assert [ask(url)[0] for _ in range(4)] == [200, 503, 503, 200]
    assert ask(other)[0] == 200
    assert ask(f"{url}?x=1")[0] == 418
    assert ask(other, "HEAD")[1]["x-fault"] == "1"
    files.heal()
    assert ask(f"{url}?x=1")[0] == ask(url, "HEAD")[0] == 200
    assert [request.status for request in files.seen("*", "HEAD")] == [500, 200]
    files.requests.clear()
    assert files.seen("*") == []


def test_a_body_is_cut(files: Files) -> None:
    url = files.add("a", LONG)
    files.cut("/a", after=len(LONG), times=1)  # there is nothing to cut from
    assert ask(url)[2] == LONG
    files.heal()
    files.cut("/a", after=5000)
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(url)
    assert cut.value.partial == LONG[:5000]
    with pytest.raises(http.client.IncompleteRead) as cut:
        ask(url, Range="bytes=5000-")
    assert cut.value.partial == LONG[5000:10000]
    assert [request.sent for request in files.requests] == [len(LONG), 5000, 5000]


def test_a_connection_is_reset(files: Files) -> None:
    url = files.add("a", LONG)
    files.cut("/a", after=5000, reset=True)
    with pytest.raises(ConnectionResetError):
        ask(url)


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_body_of_untold_length_is_cut(files: Files, framing: Framing) -> None:
    url = files.add("a", LONG, framing=framing)
    files.cut("/a", after=5000)
    if framing == "close":  # this the client cannot know
        assert ask(url)[2] == LONG[:5000]
        return
    with pytest.raises(http.client.IncompleteRead):
        ask(url)


def test_a_byte_is_flipped(files: Files) -> None:
    url = files.add("a", LONG)
    files.corrupt("/a", at=100, times=2)
    bad = LONG[:100] + bytes([LONG[100] ^ 1]) + LONG[101:]
    assert ask(url)[2] == bad
    assert ask(url, Range="bytes=101-")[2] == LONG[101:]  # which does not use the fault up
    assert ask(url, Range="bytes=90-")[2] == bad[90:]
    assert ask(url)[2] == LONG
    files.corrupt("/a")
    assert sum(left != right for left, right in zip(ask(url)[2], LONG, strict=True)) == 1


def test_a_body_is_shorter_than_it_should_be_and_says_so(files: Files) -> None:
    url = files.add("a", LONG)
    files.truncate("/a", size=100)
    status, headers, body = ask(url)
    assert (status, headers["content-length"], body) == (200, "100", LONG[:100])


@pytest.mark.serial
def test_an_answer_is_slow(files: Files) -> None:
    def seconds() -> float:
        begun = time.monotonic()
        assert ask(url)[2] == LONG
        return time.monotonic() - begun

    url = files.add("a", LONG)
    files.stall("/a", 0.3, times=1)
    files.stall("/a", 0.3, after=5000, skip=1, times=1)
    files.throttle("/a", len(LONG) / 0.3, skip=2, times=1)
    slow = [seconds() for _ in range(4)]
    assert min(slow[:3]) >= 0.25
    assert slow[3] < min(slow[:3])


def test_closing_ends_what_stalls() -> None:
    before = threading.active_count()
    with Hub() as hub, Files() as files:
        url = files.add("a", LONG)
        files.stall("/a", 600, after=5000)
        parts = urlsplit(url)
        waiting = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=PATIENCE)
        waiting.request("GET", "/a")
        answer = waiting.getresponse()
        assert answer.read(5000) == LONG[:5000]
        idle = http.client.HTTPConnection("127.0.0.1", urlsplit(hub.url).port, timeout=PATIENCE)
        idle.request("GET", "/api/datasets/a/b")
        assert idle.getresponse().read()
        begun = time.monotonic()
    assert time.monotonic() - begun < 60
    assert threading.active_count() == before
    with pytest.raises(http.client.IncompleteRead):
        answer.read()
    waiting.close()
    idle.close()


def test_what_goes_wrong_in_a_server_fails_the_test() -> None:
    hub = Hub().__enter__()
    hub.add("org/name", {"a": b""})
    assert ask(f"{hub.url}/api/datasets/org/name/tree/main?limit=many")[0] == 500
    with pytest.raises(ValueError, match="invalid literal"):
        hub.__exit__(None, None, None)
