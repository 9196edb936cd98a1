"""The definition of a storage backend: one suite, run against every backend through the fixture ``place``.

A new object store joins by its scheme in ``REMOTE`` and a fixture of that name, which gives the URI of an empty bucket.
"""

import errno
import fcntl
import io
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from pairmill import _native, storage
from pairmill.digest import digest_bytes
from pairmill.errors import Changed, InputError, PairmillError, StorageError, UsageError
from pairmill.storage import Entry, LocalStore, Span, Store, local
from pairmill.storage.base import Begun, Digested
from tests.support.helpers import SOON, mount, until
from tests.support.processes import code
from tests.support.processes.nursery import Child

ODD = "a b%41#c?é"
ODD_NAMES = ["x[1]*?.npy", ".hidden", "a.partial", "é ü", "100%", "a#b", "q?x=1&y", "a+b", "line\tfeed"]
FILES = ["path", "path with odd characters", "file URI", "file URI with odd characters"]
REMOTE = ["s3", "gs"]


def place_of(kind: str, request: pytest.FixtureRequest) -> str:
    """URI of an empty prefix that nothing else uses."""
    if kind in REMOTE:
        scratch = request.getfixturevalue("tmp_path") / "scratch"
        scratch.mkdir()
        request.getfixturevalue("monkeypatch").setenv("TMPDIR", str(scratch))
        return f"{request.getfixturevalue(kind)}/{ODD}"
    folder = request.getfixturevalue("tmp_path") / (ODD if "odd" in kind else "plain")
    return "file://" + quote(str(folder)) if kind.startswith("file") else str(folder)


@pytest.fixture(params=[*FILES, *REMOTE])
def place(request: pytest.FixtureRequest) -> str:
    return place_of(request.param, request)


# What is of files, or of object stores, only.
of_files = pytest.mark.parametrize("place", FILES, indirect=True)
of_buckets = pytest.mark.parametrize("place", REMOTE, indirect=True)
# What costs processes or a thousand objects: of files the plainest place and the oddest.
of_two_places = pytest.mark.parametrize("place", [FILES[0], FILES[-1], *REMOTE], indirect=True)


@pytest.fixture
def store(place: str) -> Store:
    return storage.store_for(place)


# A writer in a process of its own: arguments are the URI and what to do once its bytes are written.
_WRITER = """
import sys, time
from pairmill import _native, storage
uri, size, byte = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
with storage.store_for(uri).create(uri) as path:
    path.write_bytes(byte * size)
    print("written", flush=True)
    time.sleep(float(sys.argv[4]))
print("committed", flush=True)
"""


def writer(uri: str, byte: str, *, size: int = 1000, hold: float = 0.0) -> Child:
    return code.fork(_WRITER, uri, str(size), byte, str(hold))


def wait_for_bytes(process: Child) -> Child:
    """The writer, once its bytes are written."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"written\n"
    return process


def kill(process: Child) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


@pytest.fixture
def held(place: str) -> Iterator[Child]:
    """A living writer of ``<place>/object`` that has written its bytes and not committed them."""
    process = wait_for_bytes(writer(storage.join(place, "object"), "w", hold=120))
    yield process
    kill(process)


def leftovers(place: str) -> list[str]:
    """Names of what writers have begun: files that a listing hides, or what is to be sent to an object store."""
    folder = storage.local_path(place) if storage.scheme(place) == "file" else Path(os.environ["TMPDIR"])
    return sorted(path.name for path in folder.rglob("*.partial")) if folder.exists() else []


# --- writing --------------------------------------------------------------------------------------------------------


def test_an_object_is_not_there_before_its_block_ends(place: str, store: Store) -> None:
    uri = storage.join(place, "folder", "object")
    with store.create(uri) as path:
        path.write_bytes(b"bytes")
        assert not store.exists(uri)
        assert store.list(place) == []
    assert store.exists(uri)
    assert store.read(uri) == b"bytes"
    assert leftovers(place) == []


def _fail_while_writing(store: Store, uri: str, error: BaseException) -> None:
    with store.create(uri) as path:
        path.write_bytes(b"half")
        raise error


@pytest.mark.parametrize("error", [RuntimeError("x"), KeyboardInterrupt(), SystemExit(3)])
def test_nothing_is_there_after_an_exception(place: str, store: Store, error: BaseException) -> None:
    uri = storage.join(place, "object")
    with pytest.raises(type(error)):
        _fail_while_writing(store, uri, error)
    assert not store.exists(uri)
    assert store.list(place) == []
    assert leftovers(place) == []


def test_an_exception_leaves_the_object_that_stood_there(place: str, store: Store) -> None:
    uri = storage.join(place, "object")
    store.write(uri, b"old")
    with pytest.raises(RuntimeError):
        _fail_while_writing(store, uri, RuntimeError("x"))
    assert store.read(uri) == b"old"
    assert leftovers(place) == []


def test_an_object_is_replaced_in_one_step(place: str, store: Store) -> None:
    uri = storage.join(place, "object")
    store.write(uri, b"old")
    with store.open(uri) as reader:
        with store.create(uri) as path:
            path.write_bytes(b"newer")
            assert store.read(uri) == b"old"
        assert store.read(uri) == b"newer"
        assert reader.read() == b"old"  # who reads already reads on undisturbed


def test_an_object_is_never_absent_nor_mixed_while_it_is_replaced_over_and_over(place: str, store: Store) -> None:
    uri = storage.join(place, "object")
    store.write(uri, b"0" * 10_000)
    replacing = (
        "import sys\nfrom pairmill import storage\nuri = sys.argv[1]\n"
        "for turn in range(60):\n    storage.store_for(uri).write(uri, str(turn % 10).encode() * 10_000)"
    )
    process = code.fork(replacing, uri)
    reads = 0
    while process.poll() is None or not reads:
        data = store.read(uri)
        assert len(data) == 10_000
        assert len(set(data)) == 1
        reads += 1
    assert code.end(process) == ("", 0)
    assert store.read(uri) == b"9" * 10_000


@of_two_places
def test_two_writers_of_one_object_both_succeed_and_it_is_whole(place: str, store: Store) -> None:
    uri = storage.join(place, "object")
    size = 3_000_000
    both = [writer(uri, "a", size=size, hold=0.3), writer(uri, "b", size=size, hold=0.3)]
    for process in both:
        assert code.end(process) == ("written\ncommitted\n", 0)
    data = store.read(uri)
    assert data in {b"a" * size, b"b" * size}
    assert store.list(place) == [Entry("object", size)]
    assert leftovers(place) == []


@of_two_places
def test_what_a_living_writer_has_begun_is_neither_listed_nor_disturbed(place: str, store: Store, held: Child) -> None:
    uri = storage.join(place, "object")
    assert store.list(place) == []
    begun = leftovers(place)
    assert len(begun) == 1
    store.write(uri, b"another writer")
    assert leftovers(place) == begun
    assert store.read(uri) == b"another writer"
    assert store.list(place) == [Entry("object", 14)]


@of_two_places
def test_what_a_killed_writer_left_is_never_listed_and_goes_with_the_next_writing(
    place: str, store: Store, held: Child
) -> None:
    uri = storage.join(place, "object")
    held.kill()
    held.wait()
    assert len(leftovers(place)) == 1
    assert store.list(place) == []
    assert not store.exists(uri)
    assert code.end(writer(uri, "a", size=5)) == ("written\ncommitted\n", 0)
    assert leftovers(place) == []
    assert store.list(place) == [Entry("object", 5)]


@of_files
def test_what_a_killed_writer_left_of_another_name_stays(place: str, store: Store, held: Child) -> None:
    held.kill()
    held.wait()
    store.write(storage.join(place, "other"), b"")
    assert len(leftovers(place)) == 1


@of_files
def test_a_copy_removes_what_a_killed_writer_left(place: str, store: Store, held: Child) -> None:
    held.kill()
    held.wait()
    store.write(storage.join(place, "source"), b"bytes")
    store.copy(storage.join(place, "source"), storage.join(place, "object"))
    assert leftovers(place) == []
    assert store.read(storage.join(place, "object")) == b"bytes"


def test_odd_object_names_are_names(place: str, store: Store) -> None:
    for name in ODD_NAMES:
        uri = storage.join(place, "f", name)
        store.write(uri, b"1")
        store.write(uri, b"22")
        assert store.read(uri) == b"22"
        assert store.list(storage.join(place, "f")) == [Entry(name, 2)]
        assert storage.name_of(uri) == name
        assert storage.parent_of(uri) == storage.join(place, "f")
        store.delete(uri)


@of_files
def test_a_committed_object_may_be_read_by_others_as_the_umask_says(place: str, store: Store) -> None:
    old = os.umask(0o027)
    try:
        store.write(storage.join(place, "object"), b"")
    finally:
        os.umask(old)
    assert storage.local_path(storage.join(place, "object")).stat().st_mode & 0o777 == 0o640


# --- committing -----------------------------------------------------------------------------------------------------


def test_what_is_committed_first_stays_and_all_are_told(place: str, store: Store) -> None:
    uri = storage.join(place, "folder", "record")
    assert store.commit(uri, b"first") == b"first"
    assert store.commit(uri, b"second") == b"first"
    assert store.commit(uri, b"first") == b"first"
    assert store.read(uri) == b"first"
    store.delete(uri)
    assert store.commit(uri, b"") == b""
    assert store.commit(uri, b"third") == b""
    assert store.list(place) == [Entry("folder/record", 0)]
    assert leftovers(place) == []


@of_two_places
def test_of_several_that_commit_at_once_one_wins_and_all_know_it(place: str, store: Store) -> None:
    committing = (
        "import os, sys\nfrom pairmill import storage\nplace, name, gate = sys.argv[1:]\nos.read(int(gate), 1)\n"
        "store = storage.store_for(place)\n"
        "for number in range(20):\n"
        "    stands = store.commit(storage.join(place, str(number)), name.encode() * 1000)\n"
        "    assert len(set(stands)) == 1\n"
        "    print(stands[:1].decode(), end='')"
    )
    gate, opened = os.pipe()
    processes = [code.fork(committing, place, name, others=[gate]) for name in "abc"]
    os.close(gate)
    os.write(opened, b"abc")
    os.close(opened)
    told = set()
    for process in processes:
        output, returncode = code.end(process)
        assert returncode == 0, output
        told.add(output)
    stands = "".join(store.read(storage.join(place, str(number)))[:1].decode() for number in range(20))
    assert told == {stands}
    assert leftovers(place) == []


# --- listing --------------------------------------------------------------------------------------------------------


def test_an_absent_prefix_lists_nothing(place: str, store: Store) -> None:
    assert store.list(storage.join(place, "nothing", "here")) == []


def test_a_listing_is_recursive_sorted_by_code_point_and_has_sizes(place: str, store: Store) -> None:
    names = ["b", "a/z", "a/b/c", "a.txt", "B", "é", "a-b", "a/.hidden", "10", "9"]
    for size, name in enumerate(names):
        store.write(storage.join(place, name), b"x" * size)
    assert store.list(place) == [Entry(name, names.index(name)) for name in sorted(names)]
    assert store.list(storage.join(place, "a")) == [
        Entry(name, names.index(f"a/{name}")) for name in [".hidden", "b/c", "z"]
    ]


def test_a_sibling_whose_name_goes_on_is_not_below_the_prefix(place: str, store: Store) -> None:
    for name in ("a/1", "ab/2", "a.b/3", "a-", "a"):
        if name != "a":
            store.write(storage.join(place, name), b"")
    assert [entry.path for entry in store.list(storage.join(place, "a"))] == ["1"]
    assert [entry.path for entry in store.list(storage.join(place, "ab"))] == ["2"]


def test_a_prefix_with_and_without_slash_at_its_end_lists_the_same(place: str, store: Store) -> None:
    store.write(storage.join(place, "a", "1"), b"")
    folder = storage.join(place, "a")
    assert store.list(folder + "/") == store.list(folder) == [Entry("1", 0)]


def test_the_folders_right_below_a_prefix_are_named(place: str, store: Store) -> None:
    assert store.folders(place) == []
    for path in ("b/x", "b/deep/y", "B/x", "a é%/x", "a/x", "ab", "x/y/z/deep"):
        store.write(storage.join(place, *path.split("/")), b"")
    assert store.folders(place) == ["B", "a", "a é%", "b", "x"]
    assert store.folders(place + "/") == store.folders(place)
    assert store.folders(storage.join(place, "b")) == ["deep"]
    assert store.folders(storage.join(place, "ab")) == []
    assert store.few_folders(place) == store.folders(place)


@of_two_places
def test_more_than_a_thousand_objects_are_listed(place: str, store: Store) -> None:
    # Object stores answer in pages of 1,000.
    for number in range(1_050):
        store.write(storage.join(place, f"{number % 7}{number}", f"{number:05}"), b"")
    listed = [entry.path for entry in store.list(place)]
    assert len(listed) == 1_050
    assert listed == sorted(f"{number % 7}{number}/{number:05}" for number in range(1_050))
    assert store.folders(place) == [path.split("/")[0] for path in listed]
    # The server of gs:// has them all on a page.
    assert store.few_folders(place) == (None if storage.scheme(place) == "s3" else store.folders(place))


# --- reading --------------------------------------------------------------------------------------------------------


def test_bytes_come_back_as_they_were_written(place: str, store: Store) -> None:
    data = bytes(range(256)) * 40
    uri = storage.join(place, "object")
    store.write(uri, data)
    assert store.read(uri) == data
    assert store.size(uri) == len(data)
    assert store.digest(uri) == digest_bytes(data)


def test_an_empty_object_is_an_object(place: str, store: Store) -> None:
    uri = storage.join(place, "object")
    store.write(uri, b"")
    assert store.exists(uri)
    assert (store.read(uri), store.size(uri), store.read_range(uri, 0, 10)) == (b"", 0, b"")
    assert store.digest(uri) == digest_bytes(b"")
    assert store.list(place) == [Entry("object", 0)]


def test_digests_of_many_are_in_their_order(place: str, store: Store) -> None:
    uris = [storage.join(place, f"{number}") for number in range(40)]
    for number, uri in enumerate(uris):
        store.write(uri, bytes(number) * 1000)
    assert list(store.digests(uris)) == [digest_bytes(bytes(number) * 1000) for number in range(40)]
    assert list(store.digests([])) == []
    with pytest.raises(InputError):
        store.digests([*uris, storage.join(place, "none")])


def test_a_range_ends_where_the_object_ends(place: str, store: Store) -> None:
    uri, data = storage.join(place, "object"), b"0123456789"
    store.write(uri, data)
    for begin, length in [(0, 3), (4, 100), (10, 5), (50, 5), (3, 0), (0, 10)]:
        assert store.read_range(uri, begin, length) == data[begin : begin + length]


def test_a_stamp_belongs_to_the_bytes(place: str, store: Store) -> None:
    uri, copy = storage.join(place, "object"), storage.join(place, "copy")
    store.write(uri, b"right" * 100)
    stamp = store.stamp(uri)
    (listed,) = store.list(place)
    (digested,) = store.digested([uri])
    assert listed.stamp == digested.stamp == stamp
    assert (digested.digest, digested.size) == (digest_bytes(b"right" * 100), 500)
    store.copy(uri, copy)
    assert store.stamp(uri) == stamp, "another name of an object says nothing of its bytes"
    with store.pinned(uri, stamp) as file:
        file.seek(250)
        assert file.read() == b"right" * 50
    store.write(uri, b"wrong" * 100)
    assert store.stamp(uri) != stamp
    with pytest.raises(Changed, match="changed while it was read") as caught, store.pinned(uri, stamp):
        pass
    assert caught.value.exit_code == 3
    assert uri in str(caught.value)
    store.delete(uri)
    with pytest.raises(InputError, match="does not exist"):
        store.stamp(uri)


@of_files
def test_a_file_that_is_written_to_is_noticed_when_its_reader_ends(place: str, store: Store) -> None:
    uri = storage.join(place, "object")
    store.write(uri, b"right" * 100)
    with pytest.raises(Changed), store.pinned(uri, store.stamp(uri)) as file:  # noqa: PT012
        assert file.read(5) == b"right"
        storage.local_path(uri).write_bytes(b"wrong" * 100)
    # Within a tick of the clock two changes leave one time: a stamp is that of an older one.
    for byte in range(20):
        storage.local_path(uri).write_bytes(bytes([byte]) * 100)
        stamp = store.stamp(uri)
        storage.local_path(uri).write_bytes(bytes([byte + 1]) * 100)
        assert store.stamp(uri) != stamp


@of_files
def test_a_file_that_is_final_is_read_only_and_is_replaced_copied_and_deleted(place: str, store: Store) -> None:
    uri, copy = storage.join(place, "object"), storage.join(place, "folder", "copy")
    for byte in b"ab":
        with store.create(uri, final=True) as path:
            path.write_bytes(bytes([byte]))
        assert storage.local_path(uri).stat().st_mode & 0o777 == 0o444
        store.copy(uri, copy)
        assert store.read(copy) == bytes([byte])
    assert storage.local_path(copy).stat().st_mode & 0o222 == 0
    store.write(uri, b"c")
    assert store.read(copy) == b"b"
    store.delete(copy)
    shutil.rmtree(storage.local_path(place))


def test_an_open_object_can_be_read_from_anywhere(place: str, store: Store) -> None:
    uri = storage.join(place, "object")
    store.write(uri, b"first\nsecond\nthird")
    with store.open(uri) as file:
        assert file.seekable()
        assert file.seek(-5, io.SEEK_END) == 13
        assert file.read() == b"third"
        assert file.seek(6) == 6
        assert file.readline() == b"second\n"
        assert file.tell() == 13
        assert file.read(2) == b"th"


def test_an_absent_object_is_an_input_error_that_names_it(place: str, store: Store) -> None:
    uri = storage.join(place, "nothing")
    store.write(storage.join(place, "other"), b"")
    for read in (store.read, store.size, store.open, store.digest, lambda uri: store.read_range(uri, 0, 1)):
        with pytest.raises(InputError, match="nothing") as caught:
            read(uri)
        assert caught.value.exit_code == 3
    with pytest.raises(InputError):
        store.copy(uri, storage.join(place, "target"))
    assert not store.exists(uri)
    assert store.list(place) == [Entry("other", 0)]
    assert leftovers(place) == []


def test_a_prefix_is_no_object(place: str, store: Store) -> None:
    store.write(storage.join(place, "a", "b"), b"")
    uri = storage.join(place, "a")
    assert not store.exists(uri)
    for read in (store.size, store.read, store.digest):
        with pytest.raises(PairmillError):
            read(uri)


# --- copying and deleting -------------------------------------------------------------------------------------------


def test_a_copy_holds_the_same_bytes_and_leaves_the_source(place: str, store: Store) -> None:
    source, target = storage.join(place, "source"), storage.join(place, "deep", "down", "target")
    store.write(source, b"bytes")
    store.copy(source, target)
    assert store.read(source) == store.read(target) == b"bytes"
    assert leftovers(place) == []


def test_a_copy_replaces_what_stands_there(place: str, store: Store) -> None:
    source, target = storage.join(place, "source"), storage.join(place, "target")
    store.write(source, b"new")
    store.write(target, b"something older")
    store.copy(source, target)
    assert store.read(target) == b"new"
    assert leftovers(place) == []


def test_a_copy_onto_the_same_content_changes_nothing(place: str, store: Store) -> None:
    source, target = storage.join(place, "source"), storage.join(place, "target")
    store.write(source, b"bytes")
    for _ in range(3):
        store.copy(source, target)
    store.copy(target, source)
    store.copy(source, source)
    assert store.list(place) == [Entry("source", 5), Entry("target", 5)]
    assert store.read(source) == store.read(target) == b"bytes"
    assert leftovers(place) == []


def test_replacing_the_source_leaves_the_copy_and_the_other_way_round(place: str, store: Store) -> None:
    source, target = storage.join(place, "source"), storage.join(place, "target")
    store.write(source, b"one")
    store.copy(source, target)
    store.write(source, b"two")
    assert store.read(target) == b"one"
    store.write(target, b"three")
    assert store.read(source) == b"two"
    store.delete(source)
    assert store.read(target) == b"three"


def test_a_copy_stays_when_its_source_is_deleted(place: str, store: Store) -> None:
    source, target = storage.join(place, "source"), storage.join(place, "target")
    store.write(source, b"one")
    store.copy(source, target)
    store.delete(source)
    assert store.list(place) == [Entry("target", 3)]


@of_two_places
def test_two_processes_copying_to_one_name_both_succeed(place: str, store: Store) -> None:
    source, target = storage.join(place, "source"), storage.join(place, "target")
    store.write(source, b"bytes" * 1000)
    copying = (
        "import sys\nfrom pairmill import storage\n"
        "for _ in range(int(sys.argv[3])):\n    storage.store_for(sys.argv[1]).copy(sys.argv[1], sys.argv[2])"
    )
    # To an object store a copy is one request; that of a file takes steps, which a few hundred of them interleave.
    many = "60" if place.startswith(("s3:", "gs:")) else "400"
    for process in [code.fork(copying, source, target, many), code.fork(copying, source, target, many)]:
        assert code.end(process) == ("", 0)
    assert store.read(target) == b"bytes" * 1000
    assert leftovers(place) == []


# --- joining --------------------------------------------------------------------------------------------------------


def test_bytes_and_spans_of_objects_are_joined_in_their_order(place: str, store: Store) -> None:
    large, small = random.Random(3).randbytes(12 << 20), b"0123456789"
    first, second, target = (storage.join(place, name) for name in ("first", "second", "target"))
    store.write(first, large)
    store.write(second, small)
    store.write(target, b"something older")
    pieces: list[bytes | Span] = [
        b"head",
        Span(first, 100, len(large)),
        Span(second, 3, 5),
        b"between",
        Span(first, 0, 6 << 20),
        Span(second, 0, 10),
    ]
    expected = b"head" + large[100:] + small[3:5] + b"between" + large[: 6 << 20] + small
    made = store.join(target, pieces, final=True)
    assert store.read(target) == expected
    assert made == Digested(digest_bytes(expected), len(expected))
    assert leftovers(place) == []
    assert store.join(target, [b"only ", b"bytes"]).size == 10
    assert store.read(target) == b"only bytes"


@pytest.mark.parametrize("size", [10, 12 << 20])
def test_what_cannot_be_joined_is_an_error_and_nothing_is_there(place: str, store: Store, size: int) -> None:
    source, target = storage.join(place, "source"), storage.join(place, "target")
    store.write(source, bytes(size))
    with pytest.raises(InputError, match="nothing"):
        store.join(target, [Span(source, 0, size), Span(storage.join(place, "nothing"), 0, 6 << 20)])
    with pytest.raises(StorageError):
        store.join(target, [b"head", Span(source, 0, size + 1)])
    assert not store.exists(target)
    assert leftovers(place) == []


def test_what_was_begun_is_gone_on_with_if_it_is_the_beginning(
    place: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_SYNCED", 3 << 20)
    data = random.Random(4).randbytes(7 << 20)
    first, second, target = (storage.join(place, name) for name in ("first", "second", "target"))
    store.write(first, data)
    store.write(second, data[::-1])
    spans = [Span(first, 5, len(data)), Span(second, 0, 3), Span(second, 1 << 19, 4 << 20)]
    expected = b"head" + data[5:] + data[::-1][:3] + data[::-1][1 << 19 : 4 << 20]

    def begin(place_of_spans: int = 4) -> Begun | None:
        beginning = store.begin_join(place, place_of_spans)
        if beginning is None:
            return None
        for span in spans[:2]:
            beginning.append(span, threading.Event())
        assert len(leftovers(place)) == 1
        return beginning.leave()

    def join(begun: Begun | None, *pieces: bytes | Span, expected: bytes = expected) -> int:
        """Join, and return the number of the bytes that were there before."""
        copied, copy = [], _native.copy_digested

        def count(source: int, target: int, start: int, stop: int, at: int) -> tuple[int, int, bytes]:
            copied.append(stop - start)
            return copy(source, target, start, stop, at)

        with monkeypatch.context() as patched:
            patched.setattr(local, "copy_digested", count)
            made = store.join(target, pieces or [b"head", *spans], begun=begun)
        assert made == Digested(digest_bytes(expected), len(expected))
        assert store.read(target) == expected
        store.forget_attempts(place)
        assert leftovers(place) == []
        return len(expected) - 4 - sum(copied) if isinstance(store, LocalStore) else 0

    begun = begin()
    assert (begun is not None) == isinstance(store, LocalStore)
    assert join(begun) == (len(data) - 5 + 3 if begun else 0)
    if begun is None:
        return
    # What comes first is of another length, is something else, was replaced meanwhile, or was taken for a leftover.
    assert join(begin(5)) == 0
    assert join(begin(), b"head", spans[1], spans[0], expected=b"head" + data[::-1][:3] + data[5:]) == 0
    begun = begin()
    store.write(first, data)
    assert join(begun) == 0
    begun = begin()
    store.forget_attempts(place)
    assert leftovers(place) == []
    assert join(begun) == 0


@of_files
def test_files_what_was_begun_and_is_not_wanted_is_removed(place: str, store: Store) -> None:
    source = storage.join(place, "source")
    store.write(source, bytes(10))
    beginning = store.begin_join(place, 4)
    assert beginning is not None
    with pytest.raises(StorageError, match="ends too early"):
        beginning.append(Span(source, 0, 11), threading.Event())
    store.forget_attempts(place)  # somebody works on it
    assert len(leftovers(place)) == 1
    beginning.close()
    assert leftovers(place) == []


@of_files
def test_files_that_change_while_they_are_joined_are_an_error(
    place: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = storage.join(place, "source"), storage.join(place, "target")
    store.write(source, bytes(2 << 20))
    copy = _native.copy_digested

    def changed(*given: Any) -> tuple[int, int, bytes]:
        with local.local_path(source).open("r+b") as file:
            file.write(b"x")
        return copy(*given)

    monkeypatch.setattr(local, "copy_digested", changed)
    with pytest.raises(Changed, match="changed while it was read"):
        store.join(target, [Span(source, 0, 2 << 20)])
    assert not store.exists(target)
    assert leftovers(place) == []


@of_files
def test_files_an_error_of_the_disk_is_raised_by_what_is_joined(
    place: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = storage.join(place, "source"), storage.join(place, "target")
    store.write(source, bytes(6 << 20))
    monkeypatch.setattr(local, "_SYNCED", 1 << 20)
    assert store.join(target, [Span(source, 0, 6 << 20)]).size == 6 << 20
    store.delete(target)

    def fail(_: int) -> None:
        # The kernel tells of a failed write once: whoever swallows it has lost it.
        monkeypatch.undo()
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(local, "_SYNCED", 1 << 20)
    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        store.join(target, [Span(source, 0, 6 << 20)])
    assert not store.exists(target)
    assert leftovers(place) == []


def test_files_what_is_joined_onto_a_full_disk_is_a_storage_error_and_nothing_is_left(
    tmp_path: Path, small_disk: Path
) -> None:
    source = str(tmp_path / "source")
    storage.store_for(source).write(source, bytes(6 << 20))
    with pytest.raises(StorageError, match="no space left"):
        storage.store_for(source).join(str(small_disk / "target"), [Span(source, 0, 6 << 20)])
    assert leftovers(str(small_disk)) == []
    assert storage.store_for(source).list(str(small_disk)) == []


def test_a_deleted_object_is_gone_and_deleting_again_is_fine(place: str, store: Store) -> None:
    uri = storage.join(place, "object")
    store.write(uri, b"")
    store.delete(uri)
    assert not store.exists(uri)
    assert store.list(place) == []
    store.delete(uri)
    store.delete(storage.join(place, "no", "such", "folder"))


# --- URIs -----------------------------------------------------------------------------------------------------------


def test_an_unsafe_part_is_refused(place: str) -> None:
    for part in ("/etc/passwd", "..", "a/../b", ".", "a//b", "", "a/", "x\0y", "../x"):
        with pytest.raises(StorageError, match="unsafe path"):
            storage.join(place, part)


def test_joined_parts_stay_below_their_uri(place: str) -> None:
    assert storage.join(place + "/", "a", "b/c") == storage.join(place, "a/b/c")


@of_files
def test_a_joined_part_is_a_path_below(place: str) -> None:
    assert storage.local_path(storage.join(place, "a b#%41é")) == storage.local_path(place) / "a b#%41é"


@of_buckets
def test_a_joined_part_is_a_key_as_it_is(place: str) -> None:
    assert storage.join(place, "a b#%41é") == f"{place}/a b#%41é"
    assert storage.name_of(f"{place}/a%20b") == "a%20b"


@of_files
def test_a_normalised_uri_is_absolute_without_a_slash_at_its_end_and_stays_so(place: str) -> None:
    uri = storage.normalise(place + "/x/../y/", "root")
    assert storage.local_path(uri) == storage.local_path(place) / "y"
    assert storage.normalise(uri, "root") == uri


@of_buckets
def test_a_normalised_uri_of_a_bucket_has_no_slash_at_its_end(place: str) -> None:
    assert storage.normalise(f"{place}/x//".removesuffix("/"), "root") == f"{place}/x"
    bucket = place.split("/")[2]
    scheme = storage.scheme(place)
    assert storage.normalise(f"{scheme.upper()}://{bucket}/", "root") == f"{scheme}://{bucket}"
    for wrong in ("", "/x", f"{bucket}/a//b", f"{bucket}/../b", f"{bucket}/./b"):
        with pytest.raises(UsageError, match="not a valid URI of an object"):
            storage.normalise(f"{scheme}://{wrong}", "root")


def test_require_names_what_was_expected(place: str, store: Store) -> None:
    with pytest.raises(InputError, match="the raw files"):
        storage.require(storage.join(place, "raw"), "the raw files")
    store.write(storage.join(place, "raw", "x"), b"")
    storage.require(storage.join(place, "raw"), "the raw files")
    storage.require(storage.join(place, "raw", "x"), "a file")


def test_a_scheme_without_backend_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="ftp://"):
        storage.store_for("ftp://host/x")
    with pytest.raises(UsageError, match="root: is empty"):
        storage.normalise("", "root")
    with pytest.raises(UsageError, match="not a valid local URI"):
        storage.local_path("file://another-host/x")


# --- the file backend alone -----------------------------------------------------------------------------------------


def test_files_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "real").write_bytes(b"1")
    (folder / "to a folder").symlink_to(outside)
    (folder / "to a file").symlink_to(outside / "secret")
    (folder / "to nothing").symlink_to(tmp_path / "nothing")
    (folder / "to itself").symlink_to(folder)
    assert storage.store_for(str(folder)).list(str(folder)) == [Entry("real", 1)]
    entries, links = storage.store_for(str(folder)).list_with_links(str(folder))
    assert (entries, links) == ([Entry("real", 1)], ["to a file", "to a folder/", "to itself/", "to nothing"])
    followed, none = storage.store_for(str(folder)).list_with_links(str(folder), follow=True)
    # A link to a folder above itself has no end, and one to nothing leads nowhere.
    assert [entry.path for entry in followed] == ["real", "to a file", "to a folder/secret"]
    assert none == []


def test_files_a_folder_without_an_object_is_none(tmp_path: Path) -> None:
    store = storage.store_for(str(tmp_path))
    (tmp_path / "empty" / "deeper").mkdir(parents=True)
    (tmp_path / "partial").mkdir()
    (tmp_path / "partial" / ".a.x.partial").touch()
    (tmp_path / "link").symlink_to(tmp_path / "full")
    store.write(str(tmp_path / "full" / "deeper" / "x"), b"")
    (tmp_path / "of links").mkdir()
    (tmp_path / "of links" / "x").symlink_to(tmp_path / "full" / "deeper" / "x")
    assert store.folders(str(tmp_path)) == ["full"]


def test_files_a_copy_that_was_killed_before_its_rename_does_no_harm(tmp_path: Path) -> None:
    # What remains is a second name of the source's inode: the next copy must neither keep it nor lose the source.
    store = storage.store_for(str(tmp_path))
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"bytes")
    os.link(source, tmp_path / ".target.0a1b2c3d.partial")
    assert store.list(str(tmp_path)) == [Entry("source", 5)]
    store.copy(str(source), str(target))
    assert sorted(os.listdir(tmp_path)) == ["source", "target"]
    assert target.read_bytes() == source.read_bytes() == b"bytes"


# Children of one process that see no locks of each other, as nodes where locks are local. The arguments are a URI and
# whether each is a machine of its own. Each writes, looks at what it wrote and commits, all at the same time.
_NODES = """
import fcntl, os, sys, time, types
fcntl.flock = lambda *_: None
from pathlib import Path
from typing import Any
from pairmill import _native, storage
uri, apart = sys.argv[1], sys.argv[2] == "apart"
children = []
for number in range(15):
    child = os.fork()
    if not child:
        name = os.uname()
        if apart:
            os.uname = lambda: types.SimpleNamespace(nodename=f"node-{number}", sysname=name.sysname)
        try:
            time.sleep(0.01 * number)
            with storage.store_for(uri).create(uri) as path:
                path.write_bytes(b"%02d" % number * 50_000)
                time.sleep(0.3)
                with path.open("rb") as file:
                    file.read()
            storage.store_for(uri).commit(uri + "-record", b"%02d" % number)
            storage.store_for(uri).copy(uri, uri + "-copy")
        except BaseException as error:
            print(f"{number}: {error}", flush=True)
            os._exit(getattr(error, "exit_code", 1))
        os._exit(0)
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
"""


@pytest.mark.parametrize("machines", ["apart", "one"])
def test_files_writers_that_see_no_locks_of_each_other_all_succeed(tmp_path: Path, machines: str) -> None:
    uri = str(tmp_path / "object")
    assert code.end(code.fork(_NODES, uri, machines)) == (f"{[0] * 15}\n", 0)
    written = Path(uri).read_bytes()
    assert (len(written), len(set(written[::2]) | {written[0]})) == (100_000, 1)
    assert Path(uri + "-copy").stat().st_size == 100_000
    assert leftovers(str(tmp_path)) == []


def test_what_another_removed_before_it_was_committed_is_not_lost(place: str, store: Store) -> None:
    uri = storage.join(place, "object")
    for content in (b"bytes", b"x" * 9_000_000):
        with store.create(uri) as path:
            path.write_bytes(content)
            path.unlink()
        assert store.read(uri) == content
    with store.create(uri) as path:
        path.unlink()
        path.write_bytes(b"made anew")
    assert store.read(uri) == b"made anew"
    assert leftovers(place) == []


def test_files_what_is_removed_whenever_it_is_written_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri = storage.store_for(str(tmp_path)), str(tmp_path / "object")
    (tmp_path / "source").write_bytes(b"bytes")

    def swept(source: "os.PathLike[str]", target: object) -> None:
        os.unlink(source)
        raise FileNotFoundError(2, "No such file or directory", str(source))

    monkeypatch.setattr(os, "replace", swept)
    for work in (lambda: store.write(uri, b"bytes"), lambda: store.copy(str(tmp_path / "source"), uri)):
        with pytest.raises(StorageError, match="was removed while it was written"):
            work()
    assert os.listdir(tmp_path) == ["source"]


def test_what_was_removed_before_it_could_be_looked_at_is_a_storage_error(place: str, store: Store) -> None:
    uri = storage.join(place, "object")

    def look() -> None:
        with store.create(uri) as path:
            path.write_bytes(b"bytes")
            path.unlink()
            path.read_bytes()

    with pytest.raises(StorageError, match="was removed while it was written"):
        look()
    assert not store.exists(uri)
    # Nobody knows whether it was written to another file of this name, which went as well.
    with pytest.raises(StorageError, match="was removed while it was written"), store.create(uri) as path:
        path.unlink()
    assert not store.exists(uri)


def test_files_what_another_machine_left_goes_when_nobody_has_written_it_for_a_day(tmp_path: Path) -> None:
    uri = str(tmp_path / "object")
    other = "import os, types\nos.uname = lambda: types.SimpleNamespace(nodename='another')\n"
    kill(wait_for_bytes(code.fork(other + _WRITER, uri, "1000", "w", "120")))
    (left,) = tmp_path.iterdir()
    store = storage.store_for(uri)
    store.write(uri, b"")
    os.utime(left, (0, time.time() - 23 * 3600))
    store.write(uri, b"")
    assert left.exists()
    os.utime(left, (0, time.time() - 25 * 3600))
    with left.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        store.write(uri, b"")
        assert left.exists()
    store.write(str(tmp_path / "beside"), b"")
    assert sorted(os.listdir(tmp_path)) == ["beside", "object"]


def test_files_a_file_system_without_locks_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    left = tmp_path / ".object.0a1b2c3d.partial"
    left.write_bytes(b"")
    store, uri = storage.store_for(str(tmp_path)), str(tmp_path / "object")
    store.write(uri, b"bytes")
    assert left.exists()
    os.utime(left, (0, 0))
    assert store.commit(uri, b"other") == b"bytes"
    assert os.listdir(tmp_path) == ["object"]


@pytest.mark.parametrize(
    "name", [letter * (length // len(letter.encode())) for length in (238, 255) for letter in "xé"]
)
def test_files_names_as_long_as_they_may_be_are_names(tmp_path: Path, name: str) -> None:
    store, uri, other = storage.store_for(str(tmp_path)), str(tmp_path / name), str(tmp_path / (name[:-1] + "o"))
    process = wait_for_bytes(writer(uri, "w", hold=120))
    assert store.list(str(tmp_path)) == []
    kill(process)
    store.write(other, b"22")
    assert len(leftovers(str(tmp_path))) == 1
    store.copy(other, uri)
    assert store.commit(uri, b"") == b"22"
    assert leftovers(str(tmp_path)) == []
    assert store.list(str(tmp_path)) == sorted([Entry(name, 2), Entry(name[:-1] + "o", 2)], key=lambda one: one.path)


def test_files_the_leftovers_of_a_name_that_goes_on_are_not_a_shorter_ones(tmp_path: Path) -> None:
    kill(wait_for_bytes(writer(str(tmp_path / "a.b"), "w", hold=120)))
    store = storage.store_for(str(tmp_path))
    store.write(str(tmp_path / "a"), b"")
    assert len(leftovers(str(tmp_path))) == 1
    store.write(str(tmp_path / "a.b"), b"")
    assert leftovers(str(tmp_path)) == []


def test_files_what_cannot_be_removed_hides_no_other_error_and_goes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri = storage.store_for(str(tmp_path)), str(tmp_path / "object")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", refuse)
        with pytest.raises(RuntimeError, match="the first"):
            _fail_while_writing(store, uri, RuntimeError("the first"))
        assert store.commit(str(tmp_path / "record"), b"stands") == b"stands"
        store.write(str(tmp_path / "other"), b"")
    assert len(leftovers(str(tmp_path))) == 2
    store.write(uri, b"")
    assert store.commit(str(tmp_path / "record"), b"later") == b"stands"
    assert leftovers(str(tmp_path)) == []


def test_an_error_of_removing_that_passes_leaves_nothing(
    place: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    true, refused = Path.unlink, iter([True])

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name.endswith(".partial") and next(refused, False):
            raise OSError(5, "Input/output error")
        true(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(RuntimeError, match="the first"):
        _fail_while_writing(store, storage.join(place, "object"), RuntimeError("the first"))
    assert next(refused, None) is None
    assert leftovers(place) == []


@of_two_places
def test_what_neighbours_put_beside_it_neither_holds_up_nor_misleads_a_writer(place: str, store: Store) -> None:
    remote = storage.scheme(place) != "file"
    folder = Path(os.environ["TMPDIR"]) if remote else storage.local_path(place)
    folder.mkdir(exist_ok=True)
    head = "pairmill-" if remote else ".object."
    kept = folder.parent / "kept"
    kept.mkdir()
    (kept / "file").write_bytes(b"kept")
    os.mkfifo(folder / f"{head}0a1b2c3d.partial")
    (folder / f"{head}1a1b2c3d.partial").symlink_to(kept)
    (folder / f"{head}2a1b2c3d.partial").symlink_to(kept / "file")
    (folder / f"{head}3a1b2c3d.partial").symlink_to("nothing")
    theirs = folder / f"{head}4a1b2c3d.partial"
    theirs.write_bytes(b"")
    if os.geteuid() == 0:
        os.chown(theirs, 65534, 65534)
    before = leftovers(place)
    assert code.end(writer(storage.join(place, "object"), "w")) == ("written\ncommitted\n", 0)
    assert store.read(storage.join(place, "object")) == b"w" * 1000
    assert leftovers(place) == (before if os.geteuid() == 0 else before[:-1])
    assert (kept / "file").read_bytes() == b"kept"


def test_files_a_copy_across_file_systems_is_made(tmp_path: Path, small_disk: Path) -> None:
    store = storage.store_for(str(tmp_path))
    (tmp_path / "source").write_bytes(b"bytes")
    store.copy(str(tmp_path / "source"), str(small_disk / "target"))
    assert (small_disk / "target").read_bytes() == b"bytes"
    assert leftovers(str(small_disk)) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount(folder, "size=1m")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_files_a_full_disk_is_a_storage_error_and_nothing_is_left(small_disk: Path) -> None:
    store = storage.store_for(str(small_disk))
    uri = storage.join(str(small_disk), "folder/object")
    with pytest.raises(OSError, match="No space left"), store.create(uri) as path:
        path.write_bytes(b"x" * (2 << 20))
    assert store.list(str(small_disk)) == []
    assert leftovers(str(small_disk)) == []
    with pytest.raises(StorageError, match="no space left") as caught:
        store.write(uri, b"x" * (2 << 20))
    assert caught.value.exit_code == 4
    assert leftovers(str(small_disk)) == []


def test_files_a_copy_onto_a_full_disk_is_a_storage_error_and_nothing_is_left(tmp_path: Path, small_disk: Path) -> None:
    store = storage.store_for(str(tmp_path))
    (tmp_path / "source").write_bytes(b"x" * (2 << 20))
    with pytest.raises(StorageError, match="no space left"):
        store.copy(str(tmp_path / "source"), str(small_disk / "target"))
    assert store.list(str(small_disk)) == []
    assert leftovers(str(small_disk)) == []


def test_files_a_target_that_is_a_folder_is_a_storage_error_and_nothing_is_left(tmp_path: Path) -> None:
    store = storage.store_for(str(tmp_path))
    (tmp_path / "source").write_bytes(b"x")
    (tmp_path / "target").mkdir()
    with pytest.raises(StorageError):
        store.copy(str(tmp_path / "source"), str(tmp_path / "target"))
    assert leftovers(str(tmp_path)) == []
    with pytest.raises(StorageError):
        store.write(str(tmp_path / "target"), b"x")
    assert leftovers(str(tmp_path)) == []


def test_files_a_folder_that_is_a_file_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(StorageError) as caught:
        storage.store_for(str(tmp_path)).write(str(tmp_path / "file" / "object"), b"x")
    assert caught.value.exit_code == 4


def test_files_descriptors_are_closed(tmp_path: Path) -> None:
    store = storage.store_for(str(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        store.write(str(tmp_path / "object"), b"x")
        store.copy(str(tmp_path / "object"), str(tmp_path / "copy"))
        with pytest.raises(RuntimeError):
            _fail_while_writing(store, str(tmp_path / f"{number}"), RuntimeError("x"))
        store.digest(str(tmp_path / "object"))
    until(lambda: len(os.listdir("/proc/self/fd")) <= before, "descriptors leak", seconds=SOON)


def test_a_backend_says_what_reading_elsewhere_costs(store: Store) -> None:
    assert 4096 <= store.seek_cost <= 64 << 20


# --- attempts -------------------------------------------------------------------------------------------------------


def test_attempts_are_apart_and_what_is_settled_stays(place: str, store: Store) -> None:
    with store.attempt(place) as one, store.attempt(place) as two:
        for uri, data in ((one, b"one"), (two, b"two")):
            store.write(storage.join(uri, "folder", "object"), data)
        settled = store.settle(one, "0" * 16)
        assert storage.parent_of(settled) == place.rstrip("/")
        assert store.read(storage.join(two, "folder", "object")) == b"two"
    assert store.read(storage.join(settled, "folder", "object")) == b"one"
    with store.attempt(place) as again:
        store.write(storage.join(again, "folder", "object"), b"one")
        settled = store.settle(again, "0" * 16)
    assert store.read(storage.join(settled, "folder", "object")) == b"one"


@of_files
def test_of_a_folder_nothing_is_left_but_what_was_settled(place: str, store: Store) -> None:
    with store.attempt(place) as lost, store.attempt(place) as kept:
        for uri in (lost, kept):
            store.write(storage.join(uri, "object"), b"bytes")
        assert store.list(place) == []
        store.forget_attempts(place)  # somebody works on both
        store.settle(kept, "0" * 16)
    assert [path.name for path in storage.local_path(place).iterdir()] == ["0" * 16]
    left = storage.local_path(place) / ".attempt.00000000-1-killed.partial"
    shutil.copytree(storage.local_path(place) / ("0" * 16), left)
    os.utime(left, (0, 0))
    store.forget_attempts(place)
    assert not left.exists()


# --- what is below a root -------------------------------------------------------------------------------------------


def test_folders_are_dated_by_one_of_their_objects(place: str, store: Store) -> None:
    assert store.dated(place, "record") == {}
    assert store.modified(storage.join(place, "b", "record")) is None
    before = time.time()
    for path in ("b/record", "a/record", "c/else/record", "record"):
        store.write(storage.join(place, *path.split("/")), b"x")
    dated = store.dated(place, "record")
    assert [*dated] == ["a", "b", "c"]
    assert dated["c"] is None
    at = dated["a"]
    assert at is not None
    # Some stores say it to the second.
    assert before - 1.5 < at.timestamp() < time.time() + 1.5
    assert store.modified(storage.join(place, "a", "record")) == at
    written = {entry.path: entry.written for entry in store.list(place)}
    assert abs(written["a/record"] - at.timestamp()) < 1


@of_files
def test_what_a_writer_has_begun_is_a_leftover_until_it_is_dropped(place: str, store: Store, held: Child) -> None:
    (left,) = store.leftovers(place)
    assert (left.size, store.list(place)) == (1000, [])
    store.drop_leftovers(place, [left])
    assert store.leftovers(place) == [left]
    held.kill()
    held.wait()
    store.drop_leftovers(place, [left])
    assert store.leftovers(place) == []


@of_files
def test_only_empty_folders_are_dropped(place: str, store: Store) -> None:
    store.write(storage.join(place, "a", "b", "object"), b"x")
    store.drop_empty([storage.join(place, "a")])
    assert [entry.path for entry in store.list(place)] == ["a/b/object"]
    store.delete(storage.join(place, "a", "b", "object"))
    store.drop_empty([storage.join(place, "a"), storage.join(place, "never")])
    assert not storage.local_path(storage.join(place, "a")).exists()
