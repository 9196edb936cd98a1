"""What the fetch stage is made of: the lock file, archives, downloads that are cut, commits, the Hub's answers."""

import bz2
import gzip
import hashlib
import io
import lzma
import os
import stat
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants

from pairmill import retry, storage
from pairmill.errors import InputError, PairmillError, StorageError
from pairmill.net import http, hub
from pairmill.stages.fetch import archive, lock, scratch
from pairmill.stages.fetch.lock import Pin
from tests.support.servers.downloads import Files, Framing, Hub
from tests.support.stages.fetching import ask_here

LONG = os.urandom(300_000)
COMMIT, OTHER = "a1" * 20, "b2" * 20


@pytest.fixture
def files() -> Iterator[Files]:
    with Files() as server:
        yield server


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would have been waited."""
    found: list[float] = []
    monkeypatch.setattr(retry, "_paused", lambda seconds, stop: found.append(seconds))
    clock = SimpleNamespace(time=time.time, monotonic=lambda: time.monotonic() + sum(found))
    monkeypatch.setattr(retry, "time", clock)
    return found


# --- the lock file --------------------------------------------------------------------------------------------------


def test_pins_are_kept_beside_those_of_other_sources(tmp_path: Path) -> None:
    uri = str(tmp_path / "project" / "sources.lock.yaml")
    assert lock.read(uri) == {}
    first = {"b": Pin("hub:x/y@main", COMMIT), "c": Pin("https://host/f.tar.gz", '"tag: {}"', "0" * 64)}
    lock.write(uri, first)
    lock.write(uri, {"a": Pin("git:https://host/x@é", COMMIT), "b": Pin("hub:x/y@main", OTHER)})
    assert lock.read(uri) == {
        "a": Pin("git:https://host/x@é", COMMIT),
        "b": Pin("hub:x/y@main", OTHER),
        "c": first["c"],
    }
    text = Path(uri).read_text()
    assert text.startswith("# ")
    assert [line.strip() for line in text.splitlines() if line.endswith(":")] == ["sources:", "a:", "b:", "c:"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a lock file"),
        ("[", "not a lock file"),
        ("format: 1\n", "'sources'"),
        ("format: 2\nsources: {}\n", "unknown format"),
        ("format: 1\nsources: [a]\n", "not a lock file"),
        ("format: 1\nsources: {a: {origin: x}}\n", "revision"),
        ("format: 1\nsources: {a: {origin: x, revision: 7}}\n", "is not text"),
        ("format: 1\nsources: {a: {origin: x, revision: y, colour: red}}\n", "colour"),
        ("format: 1\nsources: {a: {origin: 'hub:x/y@main', revision: main}}\n", "'main' is not a commit hash"),
        ("format: 1\nsources: {a: {origin: 'git:x@main', revision: ../../x}}\n", "is not a commit hash"),
        ("format: 1\nsources: {a: {origin: 'https://x', revision: y, sha256: z}}\n", "'z' is not a sha256"),
    ],
)
def test_a_lock_file_that_fetch_did_not_write_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "lock.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        lock.read(str(path))
    assert said in str(caught.value)
    assert str(path) in str(caught.value)


def test_runs_at_the_same_time_lose_no_pin(tmp_path: Path) -> None:
    uri = str(tmp_path / "new" / "lock.yaml")

    def add(number: int) -> None:
        with lock.held(uri):
            known = lock.read(uri)
            time.sleep(0.002)
            lock.write(uri, {f"s{number}": Pin("x", str(len(known)))})

    threads = [threading.Thread(target=add, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(pin.revision) for pin in lock.read(uri).values()) == list(range(20))
    assert os.listdir(tmp_path / "new") == ["lock.yaml"]


def test_a_lock_that_may_only_be_read_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = str(tmp_path / "lock.yaml")
    lock.write(uri, {"a": Pin("x", "y")})
    monkeypatch.setattr(os, "access", lambda *_: False)
    with lock.held(uri):
        assert os.listdir(tmp_path) == ["lock.yaml"]
        assert lock.read(uri) == {"a": Pin("x", "y")}


# --- scratch --------------------------------------------------------------------------------------------------------


def test_a_scratch_folder_is_one_process_s_and_stays_until_it_is_cleared(tmp_path: Path) -> None:
    root = str(tmp_path)
    with scratch.folder(root, "key") as folder:
        (folder / "part").write_text("half")
        scratch.clear(root, ["key"])  # as another process would: it is in use
        assert (folder / "part").read_text() == "half"
    with scratch.folder(root, "key") as folder:
        assert (folder / "part").read_text() == "half"
    with scratch.folder(root, "other"):
        pass
    scratch.clear(root, ["key", "never"])
    assert [path.name for path in folder.parent.iterdir()] == ["other"]
    scratch.clear(root, ["other"])
    assert not list(folder.parent.iterdir())


def test_whoever_waits_for_a_scratch_folder_gets_it_though_it_was_removed(tmp_path: Path) -> None:
    order = []

    def use(number: int) -> None:
        with scratch.folder(str(tmp_path), "key") as folder:
            assert not list(folder.iterdir())
            (folder / "mine").write_text("")
            time.sleep(0.005)
            order.append(number)
            (folder / "mine").unlink()
        scratch.clear(str(tmp_path), ["key"])

    threads = [threading.Thread(target=use, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(order) == list(range(10))


@pytest.mark.parametrize("kind", ["link", "file", "another's"])
def test_downloads_for_a_bucket_grow_in_a_folder_of_this_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    tmp_path.chmod(0o1777)
    with scratch.folder("s3://bucket/root", "key") as folder:
        assert tmp_path in folder.parents
    home = folder.parent.parent
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    home.rename(tmp_path / "elsewhere")
    if kind == "link":
        home.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        home.write_text("")
    elif os.geteuid() == 0:
        home.mkdir()
        os.chown(home, 65534, 65534)
    else:
        return
    with pytest.raises(PairmillError, match=str(home)) as caught, scratch.folder("s3://bucket/root", "key"):
        raise AssertionError
    assert caught.value.exit_code == 4
    assert (tmp_path / "elsewhere" / folder.parent.name / "key").is_dir()


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "x.lock").symlink_to(tmp_path / "made by whoever follows it")
    with pytest.raises(OSError, match="symbolic"), scratch.alone(tmp_path / "x.lock"):
        raise AssertionError
    assert os.listdir(tmp_path) == ["x.lock"]


def test_a_lock_file_may_have_as_long_a_name_as_any(tmp_path: Path) -> None:
    uri = str(tmp_path / ("x" * 250 + ".yaml"))
    with lock.held(uri):
        lock.write(uri, {"a": Pin("x", "y")})
        assert len(os.listdir(tmp_path)) == 2
    assert lock.read(uri) == {"a": Pin("x", "y")}


# --- archives -------------------------------------------------------------------------------------------------------

TREE = {"top/a/one.txt": b"1" * 1000, "top/a/b/two.txt": b"2" * 70_000, "top/c.json": b"{}", "top/a/empty.txt": b""}
Pack = Callable[[dict[str, bytes]], bytes]


def tarred(members: dict[str, bytes] | list[tarfile.TarInfo]) -> bytes:
    """A tar archive of files, or of headers without content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as file:
        if isinstance(members, list):
            for header in members:
                file.addfile(header)
        else:
            for name, content in members.items():
                header = tarfile.TarInfo(name)
                header.size = len(content)
                file.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def zipped(members: dict[str, bytes], *, method: int = zipfile.ZIP_DEFLATED, mode: int = 0o100644) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as file:
        for name, content in members.items():
            header = zipfile.ZipInfo("x")
            header.filename = name  # as it is: ZipInfo would mend it
            header.external_attr = mode << 16
            header.compress_type = method
            file.writestr(header, content)
    return buffer.getvalue()


PACKS: dict[str, Pack] = {
    "tar": tarred,
    "gz": lambda members: gzip.compress(tarred(members)),
    "bz2": lambda members: bz2.compress(tarred(members)),
    "xz": lambda members: lzma.compress(tarred(members)),
    "zip": zipped,
    "stored": lambda members: zipped(members, method=zipfile.ZIP_STORED),
}


@pytest.fixture
def unpack(tmp_path: Path) -> Callable[..., dict[str, bytes]]:
    """Unpacks bytes; what it wrote, by name."""

    def work(data: bytes, *patterns: str, strip: int = 0) -> dict[str, bytes]:
        top = tmp_path / "out"

        def create(name: str) -> AbstractContextManager[Path]:
            return storage.store_for(str(top)).create(storage.join(str(top), name))

        count = archive.unpack(io.BytesIO(data), "made.tar", patterns or ("**",), strip, create)
        found = {path.relative_to(top).as_posix(): path.read_bytes() for path in top.rglob("*") if path.is_file()}
        assert len(found) == count
        return found

    return work


Unpack = Callable[..., dict[str, bytes]]


@pytest.mark.parametrize("kind", PACKS)
def test_members_that_match_are_unpacked(unpack: Unpack, kind: str) -> None:
    data = PACKS[kind]({**TREE, "top/a/": b""} if kind in {"zip", "stored"} else TREE)
    assert unpack(data, "a/**/*.txt", strip=1) == {
        "a/one.txt": b"1" * 1000,
        "a/b/two.txt": b"2" * 70_000,
        "a/empty.txt": b"",
    }


def test_nothing_may_match(unpack: Unpack) -> None:
    assert unpack(tarred(TREE), "*.parquet") == {}
    assert unpack(zipped(TREE), "*.parquet") == {}


@pytest.mark.parametrize("kind", ["tar", "zip"])
@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "a\\b", "\\x", "C:/x", "c:x"])
def test_an_archive_that_would_write_outside_its_folder_is_refused(
    unpack: Unpack, tmp_path: Path, kind: str, name: str
) -> None:
    with pytest.raises(InputError, match="would write outside its folder") as caught:
        unpack(PACKS[kind]({"a.json": b"", name: b"!"}), "*.json")  # though it is not wanted
    assert repr(name) in str(caught.value)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.json", "out"]


def header(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, target
    return made


@pytest.mark.parametrize(
    "member",
    [
        header("a.txt", tarfile.SYMTYPE, "/etc/passwd"),
        header("a.txt", tarfile.LNKTYPE, "b.txt"),
        header("a.txt", tarfile.FIFOTYPE),
        header("a.txt", tarfile.CHRTYPE),
    ],
)
def test_a_link_or_device_is_refused_only_where_it_is_wanted(unpack: Unpack, member: tarfile.TarInfo) -> None:
    data = tarred([member])
    assert unpack(data, "*.json") == {}
    with pytest.raises(InputError, match="is a link, a device or a sparse file"):
        unpack(data, "*.txt")


def test_a_link_in_a_zip_is_refused_only_where_it_is_wanted(unpack: Unpack) -> None:
    data = zipped({"a.txt": b"/etc/passwd"}, mode=stat.S_IFLNK | 0o777)
    assert unpack(data, "*.json") == {}
    with pytest.raises(InputError, match="is a link, a device or a sparse file"):
        unpack(data, "*.txt")


def test_an_encrypted_member_is_refused_only_where_it_is_wanted(unpack: Unpack) -> None:
    data = bytearray(zipped({"a.txt": b"secret", "b.json": b"{}"}))
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + place] |= 1
    assert unpack(bytes(data), "*.json") == {"b.json": b"{}"}
    with pytest.raises(InputError, match="is encrypted"):
        unpack(bytes(data), "*.txt")


def test_a_compression_that_python_lacks_is_an_input_error(unpack: Unpack) -> None:
    data = bytearray(zipped({"a.txt": b"text"}))
    for mark, place in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.index(mark) + place] = 99
    with pytest.raises(InputError, match="not a complete tar or zip archive"):
        unpack(bytes(data))


def random_tree() -> dict[str, bytes]:
    return {f"top/{number}.txt": os.urandom(700) for number in range(12)}


@pytest.mark.parametrize("kind", PACKS)
@pytest.mark.parametrize("wanted", ["top/*.txt", "top/0.txt"])
def test_a_cut_archive_is_refused_wherever_it_was_cut(unpack: Unpack, kind: str, wanted: str) -> None:
    whole = PACKS[kind](random_tree())
    # Behind the mark of its end a tar has zeros, which are not missed.
    end = 12 * (512 + 1024) if kind == "tar" else len(whole)
    assert len(unpack(whole, "top/*.txt")) == 12
    places = {0, 1, 5, 100, 512, 1024, 1536, 1537, 2048, end // 2, end - 512, end - 100, end - 8, end - 1}
    for place in sorted(places):
        with pytest.raises(InputError, match="not a complete tar or zip archive"):
            unpack(whole[:place], wanted)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zip"])
def test_a_damaged_archive_is_refused_by_its_checksums(unpack: Unpack, kind: str) -> None:
    whole = PACKS[kind]({f"{number}.txt": os.urandom(2000) for number in range(4)})
    for place in range(100, len(whole) * 3 // 4, len(whole) // 20):
        damaged = whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :]
        with pytest.raises(InputError):
            unpack(damaged)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_whatever_byte_of_a_zip_is_damaged_it_is_unpacked_or_refused(tmp_path: Path, method: int) -> None:
    content = {"a/b.txt": b"abc" * 50, "c.txt": b"d" * 100}
    data = zipped(content, method=method)

    @contextmanager
    def create(name: str) -> Iterator[Path]:
        yield tmp_path / "out"

    said = []
    for place in range(4, len(data)):
        for damage in (0xFF, 0x01):
            with tempfile.TemporaryFile() as file:  # of a real one a place before its beginning is an OSError
                file.write(data[:place] + bytes([data[place] ^ damage]) + data[place + 1 :])
                file.seek(0)
                try:
                    archive.unpack(file, "made.zip", ["**"], 0, create)
                except InputError as error:
                    said.append(str(error))
    assert len(said) > 100
    assert all(text.startswith("made.zip") for text in said)
    assert any(
        text.startswith("made.zip: not a complete tar or zip archive, in the member 'c.txt'; got ") for text in said
    )


def test_a_damaged_header_of_a_tar_does_not_end_it_silently(unpack: Unpack) -> None:
    data = bytearray(tarred(random_tree()))
    data[3 * 1536 + 2] ^= 1
    with pytest.raises(InputError, match="bad checksum"):
        unpack(bytes(data), "nothing")


@pytest.mark.parametrize("data", [b"", b"<!doctype html><title>Sign in</title>", b"\0" * 5, b"PK\x03\x04", b"\x1f\x8b"])
def test_what_is_no_archive_is_refused(unpack: Unpack, data: bytes) -> None:
    with pytest.raises(InputError, match="not a complete tar or zip archive"):
        unpack(data)


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_two_members_of_one_name_are_refused_where_they_are_wanted(unpack: Unpack, kind: str) -> None:
    data = PACKS[kind]({"v1/a.txt": b"1", "v2/a.txt": b"2"})
    assert unpack(data, "v2/*") == {"v2/a.txt": b"2"}
    with pytest.raises(InputError, match="two members have the same name"):
        unpack(data, "a.txt", strip=1)


def test_a_tar_that_holds_a_zip_is_a_tar(unpack: Unpack) -> None:
    inner = zipped({"inner.txt": b"1"})
    assert unpack(tarred({"a.txt": b"0", "z.zip": inner})) == {"a.txt": b"0", "z.zip": inner}


# --- downloads ------------------------------------------------------------------------------------------------------


@pytest.fixture
def get(tmp_path: Path) -> Callable[..., bytes]:
    """Downloads to one place; what lies there afterwards."""

    def work(url: str, **options: Any) -> bytes:
        target = tmp_path / "content" / "file"
        http.download(url, target, tmp_path / "version", **options)
        return target.read_bytes()

    return work


Get = Callable[..., bytes]


def begun(tmp_path: Path, data: bytes, version: str = "") -> None:
    """What a killed download has left."""
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "file").write_bytes(data)
    if version:
        (tmp_path / "version").write_text(version)


def asked(files: Files | Hub, pattern: str = "*") -> list[tuple[str | None, int, int]]:
    return [(request.range, request.status, request.sent) for request in files.seen(pattern, "GET")]


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
@pytest.mark.parametrize("content", [LONG, b""])
def test_a_file_comes_whole(files: Files, get: Get, framing: Framing, content: bytes) -> None:
    assert get(files.add("a", content, framing=framing)) == content
    assert asked(files) == [(None, 200, len(content))]


@pytest.mark.parametrize("size", [None, len(LONG)])
@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_file_goes_on_at_the_byte_where_it_was_cut(
    files: Files, get: Get, pauses: list[float], reset: bool, size: int | None
) -> None:
    url = files.add("a", LONG)
    files.cut("/a", after=100_001, reset=reset, times=1)
    assert get(url, size=size) == LONG
    assert asked(files) == [(None, 200, 100_001), ("bytes=100001-", 206, len(LONG) - 100_001)]
    assert ["if-range" in request.headers for request in files.requests] == [False, size is None]
    assert len(pauses) == 1


def test_a_file_may_be_cut_more_often_than_there_are_tries_as_long_as_it_grows(
    files: Files, get: Get, pauses: list[float]
) -> None:
    url = files.add("a", LONG)
    files.cut("/a", after=len(LONG) // 20)
    assert get(url) == LONG
    assert sum(request.sent for request in files.requests) == len(LONG)
    assert len(pauses) == 19
    assert max(pauses) <= 0.2


def test_a_file_that_is_cut_always_at_the_same_place_is_given_up(files: Files, get: Get, pauses: list[float]) -> None:
    url = files.add("a", LONG, ranges=False)
    files.cut("/a", after=1000)
    with pytest.raises(StorageError, match=r"no complete answer in .* tries within 180 s") as caught:
        get(url)
    assert caught.value.exit_code == 4
    assert url in str(caught.value)
    assert 15 <= len(files.requests) == len(pauses) + 1 <= 30
    assert all(shorter < longer * 1.01 for shorter, longer in zip(pauses[1:6], pauses[3:8], strict=True))
    assert 150 < sum(pauses) < 180


def test_a_killed_download_goes_on_if_it_is_of_the_same_version(files: Files, get: Get, tmp_path: Path) -> None:
    url = files.add("a", LONG)
    begun(tmp_path, LONG[:5000], http.version(url))
    assert get(url) == LONG
    assert asked(files) == [("bytes=5000-", 206, len(LONG) - 5000)]


@pytest.mark.parametrize("version", ["", '"other"', "W/", "Mon, 01 Jan 2024 00:00:00 GMT", "untold", '"cut'])
def test_a_killed_download_begins_anew_if_it_may_be_of_another_version(
    files: Files, get: Get, tmp_path: Path, version: str
) -> None:
    url = files.add("a", LONG)
    begun(tmp_path, b"x" * 5000, version)
    assert get(url) == LONG
    assert asked(files)[0][1:] == (200, len(LONG))


def test_a_server_without_etags_is_asked_by_date(files: Files, get: Get, tmp_path: Path) -> None:
    url = files.add("a", LONG, etag=False)
    begun(tmp_path, LONG[:5000], http.version(url))
    assert get(url) == LONG
    assert asked(files) == [("bytes=5000-", 206, len(LONG) - 5000)]


@pytest.mark.parametrize("marks", [{"etag": False, "modified": False}, {"etag": 'W/"weak"', "modified": False}])
def test_a_server_without_a_strong_mark_is_asked_for_all_of_it(
    files: Files, get: Get, pauses: list[float], marks: dict[str, Any]
) -> None:
    url = files.add("a", LONG, **marks)
    files.cut("/a", after=1000, times=1)
    assert get(url) == LONG
    assert asked(files) == [(None, 200, 1000), (None, 200, len(LONG))]


def test_a_server_without_ranges_sends_all_of_it(files: Files, get: Get, pauses: list[float]) -> None:
    url = files.add("a", LONG, ranges=False)
    files.cut("/a", after=1000, times=1)
    assert get(url) == LONG
    assert asked(files) == [(None, 200, 1000), ("bytes=1000-", 200, len(LONG))]


def test_a_cut_file_of_untold_length_goes_on(files: Files, get: Get, pauses: list[float]) -> None:
    url = files.add("a", LONG, framing="chunked")
    files.cut("/a", after=100_000, times=1)
    assert get(url) == LONG
    assert asked(files)[1][1] == 206


def test_what_is_there_whole_is_not_sent_again(files: Files, get: Get, tmp_path: Path) -> None:
    url = files.add("a", LONG)
    begun(tmp_path, LONG, http.version(url))
    assert get(url) == LONG
    assert asked(files) == [(f"bytes={len(LONG)}-", 416, 0)]
    files.requests.clear()
    assert get(url, size=len(LONG)) == LONG
    assert not files.requests


@pytest.mark.parametrize("size", [None, len(LONG)])
def test_what_is_longer_than_it_may_be_begins_anew(
    files: Files, get: Get, tmp_path: Path, pauses: list[float], size: int | None
) -> None:
    url = files.add("a", LONG)
    begun(tmp_path, LONG + b"!", http.version(url))
    assert get(url, size=size) == LONG
    assert [status for _, status, _ in asked(files)] == [416, 200]


def test_another_part_than_was_asked_for_is_not_taken(
    files: Files, get: Get, tmp_path: Path, pauses: list[float]
) -> None:
    url = files.add("a", LONG)
    begun(tmp_path, LONG[:5000], http.version(url))
    files.fail("/a", 206, headers={"Content-Range": f"bytes 0-9/{len(LONG)}"}, body=LONG[:10], times=1, method="GET")
    assert get(url) == LONG
    assert [status for _, status, _ in asked(files)] == [206, 200]


def test_what_others_made_of_a_file_is_left_alone(files: Files, get: Get, tmp_path: Path) -> None:
    url = files.add("a", LONG)
    get(url)
    os.link(tmp_path / "content" / "file", tmp_path / "made")
    files.add("a", b"new")
    assert get(url) == b"new"
    assert (tmp_path / "made").read_bytes() == LONG


def test_another_version_than_the_expected_one_is_refused(files: Files, get: Get, tmp_path: Path) -> None:
    url = files.add("a", LONG)
    known = http.version(url)
    assert get(url, expected=known) == LONG
    files.add("a", LONG[::-1])
    with pytest.raises(InputError, match=r"the published version has changed.*do this"):
        get(url, expected=known, hint="do this")
    assert (tmp_path / "content" / "file").read_bytes() == LONG


@pytest.mark.parametrize(
    ("marks", "known"),
    [
        ({"etag": '"tag"'}, '"tag"'),
        ({"etag": False, "modified": "Mon, 01 Jan 2024 00:00:00 GMT"}, "Mon, 01 Jan 2024 00:00:00 GMT"),
        ({"etag": False, "modified": False}, "untold"),
    ],
)
def test_a_version_is_what_the_server_tells(files: Files, get: Get, marks: dict[str, Any], known: str) -> None:
    url = files.add("a", LONG, **marks)
    assert http.version(url) == known
    assert get(url, expected=known) == LONG


def test_a_long_download_says_how_far_it_is(
    files: Files, get: Get, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http, "_SAY_SECONDS", 0.0)
    caplog.set_level("INFO", "pairmill")
    cases: list[tuple[Framing, bytes, str]] = [("length", LONG, "300,000"), ("chunked", LONG[::-1], "?")]
    for framing, content, total in cases:
        url = files.add("a", content, framing=framing)
        get(url)
        assert f"{url}: 300,000 of {total} bytes" in caplog.messages


def test_a_server_that_asks_for_time_gets_it(files: Files, get: Get) -> None:
    url = files.add("a", LONG)
    files.fail("/a", 429, retry_after=1, times=1)
    assert get(url) == LONG
    refused, served = files.requests
    assert 1 <= served.at - refused.at < 2


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "17"}, 17),
        ({"RateLimit": '"api";r=0;t=55'}, 55),
        ({"RateLimit": '"api";r=9;t=55'}, None),
        ({"Retry-After": "soon"}, None),
    ],
)
def test_a_server_says_in_several_ways_how_long(
    files: Files, get: Get, pauses: list[float], headers: dict[str, str], seconds: int | None
) -> None:
    url = files.add("a", LONG)
    files.fail("/a", 429, headers=headers, times=1)
    assert get(url) == LONG
    assert pauses == [seconds] if seconds else pauses[0] <= 0.2


def test_a_server_says_until_when(files: Files, get: Get, pauses: list[float]) -> None:
    url = files.add("a", LONG)
    files.fail("/a", 503, headers={"Retry-After": formatdate(time.time() + 30, usegmt=True)}, times=1)
    assert get(url) == LONG
    assert 28 <= pauses[0] <= 30


def test_a_server_that_asks_for_an_hour_is_left_alone(files: Files, get: Get, pauses: list[float]) -> None:
    url = files.add("a", LONG)
    files.fail("/a", 429, retry_after=3600)
    with pytest.raises(StorageError, match="asks for too long a pause; got status 429, 3600 s"):
        get(url)
    assert not pauses


@pytest.mark.parametrize("status", sorted(retry.TRANSIENT))
def test_a_burst_of_errors_passes(files: Files, get: Get, pauses: list[float], status: int) -> None:
    url = files.add("a", LONG)
    files.fail("/a", status, times=4)
    assert get(url) == LONG
    assert len(pauses) == 4
    assert 0.1 <= pauses[0] <= 0.2
    assert 0.8 <= pauses[3] <= 1.6


@pytest.mark.parametrize("slow", [0, 2])
def test_a_server_that_goes_silent_is_asked_again(
    files: Files, get: Get, pauses: list[float], monkeypatch: pytest.MonkeyPatch, slow: int
) -> None:
    monkeypatch.setattr(http, "TIMEOUT", 0.2)
    url = files.add("a", LONG)
    files.stall("/a", 30, after=65_536, times=1)
    files.stall("/a", 30, times=1, skip=1)
    files.stall("/a", 0.3, times=slow, skip=1)  # on a machine that has much to do
    assert get(url) == LONG
    first, *others = [request.range for request in files.requests]
    assert first is None
    assert len(others) >= 2 + slow
    starts = [int((one or "").removeprefix("bytes=").removesuffix("-")) for one in others]
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "needs a login"),
        (403, "access denied"),
        (404, "does not exist"),
        (410, "no longer exists"),
        (418, "the server refused the request"),
    ],
)
def test_a_refusal_is_an_input_error_at_once(files: Files, get: Get, status: int, said: str) -> None:
    url = files.add("a", LONG)
    files.fail("/a", status)
    for ask in (get, http.version):
        with pytest.raises(InputError, match=f"{said}; got status {status}; check whether it was moved"):
            ask(url)
    assert len(files.requests) == 2


def test_a_redirect_is_followed_but_not_in_circles(files: Files, get: Get) -> None:
    url = files.add("a", LONG)
    files.fail("/b", 302, headers={"Location": url})
    assert get(f"{files.url}/b") == LONG
    files.fail("/c", 302, headers={"Location": "/c"})
    with pytest.raises(InputError, match="not a valid address"):
        get(f"{files.url}/c")


@pytest.mark.parametrize("url", ["ftp://host/file", "host/file", "http://[::1"])
def test_an_address_that_cannot_be_asked_is_an_input_error(get: Get, url: str) -> None:
    with pytest.raises(InputError, match="not a valid address"):
        get(url)


def test_a_server_that_is_not_there_is_a_storage_error(files: Files, get: Get, pauses: list[float]) -> None:
    url = files.add("a", LONG)
    files.close()
    with pytest.raises(StorageError, match=r"no complete answer in .* tries within 180 s"):
        get(url)
    assert 15 <= len(pauses) + 1 <= 30


# --- commits of git repositories ------------------------------------------------------------------------------------


def advertised(**refs: str) -> bytes:
    """What a git server says first. Source: git-scm.com/docs/http-protocol."""
    packets = ["# service=git-upload-pack\n", None]
    for number, (name, commit) in enumerate(refs.items()):
        capabilities = "\0multi_ack symref=HEAD:refs/heads/main agent=git/2.50" if number == 0 else ""
        packets.append(f"{commit} {name}{capabilities}\n")
    packets.append(None)
    return "".join(f"{len(one) + 4:04x}{one}" if one is not None else "0000" for one in packets).encode()


REFS = {
    "HEAD": "1" * 40,
    "refs/heads/dev": "2" * 40,
    "refs/heads/main": "1" * 40,
    "refs/heads/v1": "3" * 40,
    "refs/pull/7/head": "4" * 40,
    "refs/tags/light": "5" * 40,
    "refs/tags/v1": "6" * 40,
    "refs/tags/v1^{}": "7" * 40,
}


@pytest.mark.parametrize(
    ("revision", "digit"),
    [("HEAD", "1"), ("main", "1"), ("dev", "2"), ("light", "5"), ("v1", "7"), ("refs/pull/7/head", "4")],
)
def test_a_branch_or_tag_becomes_a_commit(files: Files, revision: str, digit: str) -> None:
    files.add("/owner/name.git/info/refs", advertised(**REFS))
    assert http.commit_of(f"{files.url}/owner/name", revision) == digit * 40
    assert [request.query for request in files.requests] == ["service=git-upload-pack"]


def test_a_commit_is_a_commit() -> None:
    assert http.commit_of("https://nowhere.invalid/x", COMMIT) == COMMIT


def test_an_unknown_branch_is_refused_with_those_that_are_known(files: Files) -> None:
    files.add("/owner/name.git/info/refs", advertised(**REFS))
    with pytest.raises(InputError, match="the branch or tag does not exist; got mian; expected dev, main, v1"):
        http.commit_of(f"{files.url}/owner/name", "mian")


def test_no_repository_is_an_input_error(files: Files) -> None:
    for status in (401, 404):
        files.fail("/gone.git/*", status, times=1)
        with pytest.raises(InputError, match=f"the repository does not exist, or is private; got status {status}"):
            http.commit_of(f"{files.url}/gone", "main")
    files.add("/page.git/info/refs", b"<html>")
    with pytest.raises(InputError, match="the answer is not that of a git server; got b'<html>'"):
        http.commit_of(f"{files.url}/page", "main")


# --- the Hub --------------------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A Hub that the client of this process talks to."""
    with Hub(page_size=3) as made:
        ask_here(monkeypatch, made, tmp_path)
        yield made


def data_set(name: str) -> hub.Repository:
    return hub.Repository(name, "dataset", "ask for another")


@pytest.fixture
def bring(tmp_path: Path) -> Callable[[str, str, str], bytes]:
    """Downloads a file of a data set; its bytes."""

    def work(repo: str, commit: str, path: str) -> bytes:
        target = tmp_path / "content" / path
        sha256 = hub.download(
            data_set(repo), commit, hub.files(data_set(repo), commit)[path], target, tmp_path / "version"
        )
        assert sha256 == hashlib.sha256(target.read_bytes()).hexdigest()
        return target.read_bytes()

    return work


Bring = Callable[[str, str, str], bytes]


def test_a_branch_of_the_hub_becomes_a_commit_with_its_files(server: Hub) -> None:
    commit = server.add("o/n", {"a.json": b"{}", **{f"d/{number}.parquet": LONG for number in range(5)}})
    converted = server.add("o/n", {"x.parquet": LONG}, revision="refs/convert/parquet")
    assert hub.commit_of(data_set("o/n"), "main") == commit
    assert hub.commit_of(data_set("o/n"), "refs/convert/parquet") == converted
    files = hub.files(data_set("o/n"), commit)
    assert sorted(files) == ["a.json", *(f"d/{number}.parquet" for number in range(5))]
    assert files["a.json"] == hub.RemoteFile("a.json", 2, hashlib.sha1(b"blob 2\0{}").hexdigest())
    assert files["d/0.parquet"].sha256 == hashlib.sha256(LONG).hexdigest()
    assert len(server.seen("/api/*/tree/*")) == 3  # pages


@pytest.mark.parametrize("path", ["a b/é%.parquet", "a b/é%.json", "empty.json"])
def test_a_file_of_the_hub_comes_whole(server: Hub, bring: Bring, path: str) -> None:
    content = b"" if path == "empty.json" else LONG
    assert bring("o/n", server.add("o/n", {path: content}), path) == content


@pytest.mark.parametrize("path", ["big.parquet", "small.json"])
def test_other_bytes_of_the_right_length_are_fetched_once_more(
    server: Hub, bring: Bring, tmp_path: Path, path: str
) -> None:
    commit = server.add("o/n", {path: LONG})
    server.corrupt(f"*/{path}", at=7, times=1)
    assert bring("o/n", commit, path) == LONG
    server.corrupt(f"*/{path}", at=7)
    (tmp_path / "content" / path).unlink()
    with pytest.raises(InputError, match=r"the downloaded bytes are not those that the Hub lists.*expected") as caught:
        bring("o/n", commit, path)
    assert f"o/n {path} at {commit}" in str(caught.value)
    assert sum(request.sent == len(LONG) for request in server.requests) == 4


def test_a_short_body_that_calls_itself_whole_is_fetched_once_more(
    server: Hub, bring: Bring, pauses: list[float]
) -> None:
    commit = server.add("o/n", {"a.parquet": LONG})
    server.truncate("/cdn/*", size=1000, times=1)
    assert bring("o/n", commit, "a.parquet") == LONG


def test_a_damaged_beginning_is_found_when_the_rest_has_come(server: Hub, bring: Bring, tmp_path: Path) -> None:
    commit = server.add("o/n", {"file": LONG}, lfs=["file"])
    begun(tmp_path, b"x" + LONG[1:5000])
    assert bring("o/n", commit, "file") == LONG
    assert asked(server, "/cdn/*") == [("bytes=5000-", 206, len(LONG) - 5000), (None, 200, len(LONG))]


@pytest.mark.parametrize("digest", [hashlib.sha1(LONG), hashlib.sha256(LONG)])
def test_a_mirror_may_state_another_digest_of_a_small_file(server: Hub, tmp_path: Path, digest: Any) -> None:
    commit = server.add("o/n", {"file": LONG}, lfs=[])
    file = hub.RemoteFile("file", len(LONG), digest.hexdigest())
    hub.download(data_set("o/n"), commit, file, tmp_path / "file", tmp_path / "version")
    assert (tmp_path / "file").read_bytes() == LONG


@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_file_of_the_hub_goes_on(server: Hub, bring: Bring, pauses: list[float], reset: bool) -> None:
    commit = server.add("o/n", {"a.parquet": LONG, "b.json": LONG})
    server.cut("/cdn/*", after=100_000, reset=reset, times=1)
    server.cut("*/b.json", after=100_000, reset=reset, times=1)
    for path in ("a.parquet", "b.json"):
        assert bring("o/n", commit, path) == LONG
        whole, rest = [one for one in asked(server, f"*/{path}") if one[1] < 300]
        assert (whole, rest) == ((None, 200, 100_000), ("bytes=100000-", 206, len(LONG) - 100_000))


def test_the_hub_gets_the_time_that_it_asks_for(server: Hub, bring: Bring, pauses: list[float]) -> None:
    commit = server.add("o/n", {"a.parquet": LONG})
    server.fail("/api/*/revision/*", 429, retry_after=11, times=1)
    server.fail("/api/*/tree/*", 429, headers={"RateLimit": '"api";r=0;t=22'}, times=1)
    server.fail("*/resolve/*", 429, retry_after=33, times=1)
    server.fail("/cdn/*", 503, retry_after=44, times=1)
    assert hub.commit_of(data_set("o/n"), "main") == commit
    assert bring("o/n", commit, "a.parquet") == LONG
    assert pauses == [11, 22, 33, 44]


def test_a_burst_of_errors_of_the_hub_passes(server: Hub, bring: Bring, pauses: list[float]) -> None:
    commit = server.add("o/n", {"a.parquet": LONG})
    for pattern in ("/api/*/revision/*", "/api/*/tree/*", "*/resolve/*", "/cdn/*"):
        server.fail(pattern, 502, times=3)
    assert hub.commit_of(data_set("o/n"), "main") == commit
    assert bring("o/n", commit, "a.parquet") == LONG
    assert len(pauses) == 12


@pytest.mark.parametrize("slow", [False, True])
def test_a_silent_hub_is_asked_again(
    server: Hub, bring: Bring, pauses: list[float], monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    monkeypatch.setattr(http, "TIMEOUT", 0.2)
    commit = server.add("o/n", {"a.parquet": LONG})
    patterns = ("/api/*/revision/*", "/api/*/tree/*", "*/resolve/*", "/cdn/*")
    for pattern in patterns:
        server.stall(pattern, 30, times=1)
        # On a machine that has much to do, other answers come too late as well.
        server.stall(pattern, 3, times=int(slow))
    assert hub.commit_of(data_set("o/n"), "main") == commit
    assert bring("o/n", commit, "a.parquet") == LONG
    assert len(pauses) >= len(patterns) * (1 + slow)
    assert all(len(server.seen(pattern)) >= 2 + slow for pattern in patterns)


def refused(server: Hub, token: str, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> str:
    if token:
        monkeypatch.setenv("HF_TOKEN", server.token(token))
    with pytest.raises(PairmillError) as caught:
        work()
    assert caught.value.exit_code == 3
    assert not token or token not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("token", "said"), [("", "HF_TOKEN is not set"), ("hf_known", "has no access")])
def test_a_gated_data_set_is_listed_but_not_given(
    server: Hub, bring: Bring, monkeypatch: pytest.MonkeyPatch, token: str, said: str
) -> None:
    commit = server.add("o/n", {"a.parquet": LONG}, gated=True)
    text = refused(server, token, monkeypatch, lambda: bring("o/n", commit, "a.parquet"))
    assert text.startswith("o/n a.parquet: the data set is gated; got ")
    assert said in text
    assert "accept its terms on the Hub's page of o/n" in text


@pytest.mark.parametrize(("token", "said"), [("", "HF_TOKEN is not set"), ("hf_known", "has no access")])
def test_a_private_data_set_is_as_one_that_is_not_there(
    server: Hub, monkeypatch: pytest.MonkeyPatch, token: str, said: str
) -> None:
    server.add("o/private", {"a.parquet": LONG}, private=True)
    for repo in ("o/private", "o/none"):
        text = refused(server, token, monkeypatch, lambda repo=repo: hub.commit_of(data_set(repo), "main"))
        assert text.startswith(f"{repo}: the data set does not exist, or is private; got ")
        assert said in text


def test_a_login_is_taken_to_the_hub_alone(server: Hub, bring: Bring, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = server.add("o/n", {"a.parquet": LONG}, gated=True, private=True)
    monkeypatch.setenv("HF_TOKEN", server.token("hf_approved", "o/n"))
    assert bring("o/n", commit, "a.parquet") == LONG
    assert {request.server: request.headers.get("authorization") for request in server.requests} == {
        "hub": "Bearer hf_approved",
        "cdn": None,
    }


def test_a_token_that_the_hub_does_not_know_is_said(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    server.add("o/n", {"a.parquet": LONG})
    monkeypatch.setenv("HF_TOKEN", "hf_mistyped")
    text = refused(server, "", monkeypatch, lambda: hub.commit_of(data_set("o/n"), "main"))
    assert "o/n: access denied; got status 401; check HF_TOKEN" in text


def test_a_revision_that_is_gone_says_how_to_go_on(server: Hub, bring: Bring, monkeypatch: pytest.MonkeyPatch) -> None:
    old = server.add("o/n", {"a.parquet": LONG})
    server.add("o/n", {"a.parquet": LONG[::-1]})
    file = hub.files(data_set("o/n"), old)["a.parquet"]
    server.remove("o/n", old)
    asked = [
        lambda: hub.commit_of(data_set("o/n"), "no-branch"),
        lambda: hub.files(data_set("o/n"), old),
        lambda: hub.download(data_set("o/n"), old, file, Path("x"), Path("y")),
    ]
    for work in asked:
        text = refused(server, "", monkeypatch, work)
        assert "the revision does not exist; ask for another" in text


def test_a_file_that_is_gone_is_an_input_error(server: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = server.add("o/n", {"a.parquet": LONG})
    file = hub.RemoteFile("b.parquet", 3, "")
    work = lambda: hub.download(data_set("o/n"), commit, file, tmp_path / "b", tmp_path / "version")  # noqa: E731
    assert "o/n b.parquet: the file does not exist at this revision" in refused(server, "", monkeypatch, work)


def test_a_name_that_is_none_is_an_input_error(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    text = refused(server, "", monkeypatch, lambda: hub.commit_of(data_set("https://huggingface.co/o/n"), "main"))
    assert "not a valid name of a data set" in text


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"id": "o/n", "sha": "main"}', b'{"id": "o/n"}'])
def test_an_endpoint_that_is_no_hub_is_said(server: Hub, body: bytes) -> None:
    server.fail("/api/*", 200, body=body)
    with pytest.raises(PairmillError, match=r"the Hub does not answer|the Hub gave no commit"):
        hub.commit_of(data_set("o/n"), "main")


def test_offline_is_offline(server: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(StorageError, match="HF_HUB_OFFLINE; unset it"):
        hub.commit_of(data_set("o/n"), "main")
    assert not server.requests
