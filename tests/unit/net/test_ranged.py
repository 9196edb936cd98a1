"""A file over https as a seekable reader: the right bytes, in few requests, or an error."""

import io
import random

import pytest

from pairmill.errors import InputError, PairmillError
from pairmill.net import http
from tests.support.servers.downloads import Files

CONTENT = random.Random(1).randbytes(700_000)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "5")
    return Files()


def test_any_seeks_and_reads_give_the_bytes_of_the_file(files: Files) -> None:
    rng, copy = random.Random(2), io.BytesIO(CONTENT)
    with files, http.Ranged(files.add("a", CONTENT)) as file:
        for _ in range(60):
            if rng.random() < 0.6:
                offset, whence = rng.choice([(rng.randrange(800_000), 0), (-rng.randrange(700_000), 2), (7, 1)])
                assert file.seek(offset, whence) == copy.seek(offset, whence)
            size = rng.choice([0, 1, 100, 70_000, 300_000])
            assert _read(file, size) == copy.read(size)
            assert file.tell() == copy.tell() or copy.tell() > len(CONTENT)


def _read(file: http.Ranged, size: int) -> bytes:
    """A raw reader may give less than it is asked for."""
    found = b""
    while len(found) < size and (part := file.read(size - len(found))):
        found += part
    return found


def test_what_is_read_in_order_takes_few_requests_and_the_rest_no_more_than_it_is(files: Files) -> None:
    with files, http.Ranged(files.add("a", CONTENT)) as file:
        reader = io.BufferedReader(file, 1 << 12)
        assert b"".join(iter(lambda: reader.read(5000), b"")) == CONTENT
        assert len(files.requests) <= 6
    with Files() as other, http.Ranged(other.add("a", CONTENT), size=len(CONTENT)) as file:
        file.seek(-8, 2)
        assert len(_read(file, 8)) == 8
        assert sum(request.sent for request in other.requests) == 8


def test_an_empty_file(files: Files) -> None:
    with files, http.Ranged(files.add("a", b"")) as file:
        assert file.read(9) == b""
        assert file.size() == 0


def test_a_server_without_ranges_a_file_that_changes_and_one_of_another_size(files: Files) -> None:
    with files:
        with http.Ranged(files.add("a", CONTENT, ranges=False)) as file, pytest.raises(http.NoRanges):
            file.read(9)
        with http.Ranged(files.add("b", CONTENT)) as file:
            file.read(9)
            files.add("b", CONTENT[::-1])
            file.seek(500_000)
            with pytest.raises(InputError, match="the published version has changed"):
                file.read(9)
        with http.Ranged(files.add("c", CONTENT), size=5) as file, pytest.raises(InputError, match="another size"):
            file.read(9)
        with http.Ranged(f"{files.url}/none") as file, pytest.raises(InputError, match="does not exist"):
            file.read(9)


def test_a_cut_is_asked_for_again_and_an_outage_ends(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    with files, http.Ranged(files.add("a", CONTENT)) as file:
        files.cut("/a", after=100, times=2)
        assert _read(file, 9000) == CONTENT[:9000]
        monkeypatch.setenv("PAIRMILL_STORAGE_PATIENCE", "0.5")
        files.fail("/a", 503)
        file.seek(600_000)
        with pytest.raises(PairmillError, match="no complete answer"):
            file.read(9)
