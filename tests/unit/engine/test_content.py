"""Streams that digest what is read of them, in whatever order, and say at the end whether it was the right thing."""

import hashlib
import io
import os
from pathlib import Path

import pytest

from pairmill import storage
from pairmill.engine import content
from pairmill.engine.content import Content
from pairmill.errors import Changed, InputError

DATA = bytes(range(256)) * 20_000


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def uri(tmp_path: Path) -> str:
    (tmp_path / "file").write_bytes(DATA)
    return str(tmp_path / "file")


def _front_to_back(file: io.RawIOBase) -> None:
    while file.read(70_000):
        pass


def _into_a_buffer(file: io.RawIOBase) -> None:
    assert io.BufferedReader(file, 1 << 18).read() == DATA


def _head_first(file: io.RawIOBase) -> None:
    assert file.read(6) == DATA[:6]
    file.seek(0)
    assert file.readall() == DATA
    file.seek(100)
    assert file.read(100) == DATA[100:200]


def _with_a_gap(file: io.RawIOBase) -> None:
    file.read(10)
    file.seek(-1000, io.SEEK_END)
    file.read()
    file.seek(5)
    file.read(10)


def _nothing(file: io.RawIOBase) -> None:
    file.close()


@pytest.mark.parametrize("read", [_front_to_back, _into_a_buffer, _head_first, _with_a_gap, _nothing])
def test_all_bytes_are_compared_however_they_are_read(uri: str, read: object) -> None:
    assert callable(read)
    with content.whole(uri, Content(digest(DATA))) as file:
        read(file)
    with pytest.raises(Changed, match="changed while it was read"), content.whole(uri, Content(digest(b""))) as file:
        read(file)


@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (1000, 3_000_000), (4_000_000, len(DATA)), (7, 7)])
def test_of_a_piece_its_own_bytes_are_compared(uri: str, start: int, stop: int) -> None:
    for right in (True, False):
        one = Content(digest(DATA[start:stop] + b"" * right + b"x" * (not right)))
        try:
            with content.whole(uri, one, start, stop) as file:
                file.seek(start)
                file.read((stop - start) // 2)
                file.read(stop - start)  # more than the piece
        except Changed:
            assert not right
        else:
            assert right


def test_what_a_reader_says_of_a_changed_file_is_not_what_is_wrong_with_it(uri: str) -> None:
    with pytest.raises(Changed), content.whole(uri, Content(digest(b"other"))) as file:  # noqa: PT012
        file.read(10)
        raise InputError("is not JSON")
    with pytest.raises(InputError, match="is not JSON"), content.whole(uri, Content(digest(DATA))) as file:  # noqa: PT012
        file.read(10)
        raise InputError("is not JSON")


def test_who_stops_early_is_not_kept_up(uri: str) -> None:
    with pytest.raises(KeyboardInterrupt), content.whole(uri, Content(digest(b"other"))):
        raise KeyboardInterrupt


def test_the_same_bytes_may_come_again_where_here_and_there_is_read(uri: str) -> None:
    (before,) = storage.store_for(uri).digested([uri])
    os.replace(_beside(uri, DATA), uri)
    with content.pinned(uri, Content(before.digest, before.stamp)) as file:
        assert file.read(10) == DATA[:10]
    with pytest.raises(Changed), content.pinned(uri, Content("", before.stamp)):
        pass
    os.replace(_beside(uri, DATA[::-1]), uri)
    with (
        pytest.raises(Changed, match=r"got blake3 .* expected blake3"),
        content.pinned(uri, Content(before.digest, before.stamp)),
    ):
        pass


def _beside(uri: str, data: bytes) -> Path:
    path = Path(f"{uri}.new")
    path.write_bytes(data)
    return path


def test_a_file_that_is_written_to_all_the_time_has_no_digest(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = iter(range(1000))
    store = storage.store_for(uri)
    monkeypatch.setattr(type(store), "stamp", lambda *_: str(next(stamps)))
    with pytest.raises(Changed, match="changed during each of 5 reads"):
        store.digest(uri)


def test_what_a_manifest_promised_wrongly_is_named(uri: str, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    right, wrong = Content(digest(DATA), promised=True), Content(digest(b""), promised=True)
    other = str(_beside(uri, DATA))
    found = content.broken({uri: right, other: wrong, gone: right})
    assert sorted(found) == sorted([other, gone])
    assert "is not what its manifest says" in str(found[other])
    assert "verify=true" in str(found[other])
    assert {error.exit_code for error in found.values()} == {3}
