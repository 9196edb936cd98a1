"""A file that was digested is not digested again while nothing changes it, and always when something does."""

import os
import time
from pathlib import Path

import pytest

from pairmill.digest import digest_file
from pairmill.engine.content import Content
from pairmill.errors import InputError
from pairmill.stages.sample.node import carry_out, digested
from pairmill.stages.sample.node.carry_out import SampleFiles
from pairmill.storage import normalise


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is kept; files count as old at once."""
    monkeypatch.setenv("PAIRMILL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digested, "_YOUNG", 0)
    return tmp_path / "cache"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "tokens.npy").write_bytes(b"some tokens")
    time.sleep(0.02)  # longer than a tick of the kernel's clock
    return tmp_path / "tokens.npy"


def content_of(file: Path, *, promised: bool = True) -> dict[str, Content]:
    return {normalise(str(file), "file"): Content(digest_file(file), promised=promised)}


def test_a_file_is_known_until_anything_changes_it(file: Path, tmp_path: Path) -> None:
    contents = content_of(file)
    assert digested.unchanged(digested.marks_of(contents)) == set()
    digested.keep(digested.marks_of(contents).values())
    assert digested.unchanged(digested.marks_of(contents)) == {*contents}
    (uri,) = contents
    other = {uri: Content(digest_file(file).replace("a", "b"), promised=True)}
    assert not digested.unchanged(digested.marks_of(other))
    before = file.stat()
    file.write_bytes(b"same tokens")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file.stat().st_mtime_ns == before.st_mtime_ns
    assert not digested.unchanged(digested.marks_of(contents))
    file.write_bytes(b"some tokens")
    digested.keep(digested.marks_of(contents).values())
    os.link(file, tmp_path / "another.npy")  # the kernel does not say what changed
    assert not digested.unchanged(digested.marks_of(contents))


def test_what_is_not_promised_or_just_written_has_no_mark(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not digested.marks_of(content_of(file, promised=False))
    assert not digested.marks_of({"file:///nowhere/tokens.npy": Content("blake3:0", promised=True)})
    assert not digested.marks_of({uri: Content("0" * 64, promised=True) for uri in content_of(file)})
    monkeypatch.setattr(digested, "_YOUNG", 10**12)
    assert not digested.marks_of(content_of(file))


def test_damage_of_what_is_kept_and_no_place_for_it_are_as_if_nothing_were_kept(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = digested.marks_of(content_of(file))
    digested.keep(marks.values())
    (kept,) = cache.iterdir()
    kept.chmod(0o644)
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    assert not digested.unchanged(marks)
    monkeypatch.setenv("PAIRMILL_CACHE", "")
    digested.keep(marks.values())
    assert not digested.unchanged(marks)


def test_a_known_file_that_changes_while_it_is_copied_is_digested(file: Path, tmp_path: Path) -> None:
    (uri,) = contents = content_of(file)
    dataset = carry_out.tokens.Dataset("task", str(tmp_path), {"tokens": contents[uri]})
    seen = []

    def make(digests: dict[str, str] | None) -> SampleFiles:
        seen.append(dict(digests or {}))
        if len(seen) == 3:
            before = file.stat()
            file.write_bytes(b"same tokens")
            os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        return SampleFiles([], 0)

    for _ in range(2):
        carry_out._of_unchanged_tokens([dataset], make, 1)
    assert seen == [{}, {uri: contents[uri].digest}]
    with pytest.raises(InputError, match="is not what its manifest says"):
        carry_out._of_unchanged_tokens([dataset], make, 1)
