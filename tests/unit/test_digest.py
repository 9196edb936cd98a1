from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from pairmill.digest import Digest, digest_bytes, digest_file, digest_files, shown

_PATTERN = bytes(range(251)) * 5
# Of the official test vectors of BLAKE3, whose input is this pattern.
_VECTORS = {
    0: "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
    1: "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
    1024: "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7",
}
_PIECE = 16 << 20


@pytest.mark.parametrize("size", _VECTORS)
def test_digests_are_those_of_the_test_vectors(size: int, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(_PATTERN[:size])

    assert digest_bytes(_PATTERN[:size]) == digest_file(tmp_path / "file") == f"blake3:{_VECTORS[size]}"


def test_threads_and_the_order_of_files_change_no_digest(tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(0, 256, 3 * _PIECE + 5, np.uint8).tobytes()
    sizes = [0, 1, _PIECE - 1, _PIECE, _PIECE + 1, 2 * _PIECE + 1025, len(data)]
    paths = [tmp_path / f"{size}.bin" for size in sizes]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(data[:size])

    expected = [digest_bytes(data[:size]) for size in sizes]

    assert digest_files(paths, 1) == digest_files(paths, 3) == expected
    assert digest_files(paths[::-1]) == expected[::-1]
    assert digest_files([]) == []


def test_bytes_that_pass_in_parts_of_any_type() -> None:
    values = np.arange(70_000, dtype=np.uint32)
    digest = Digest()
    for part in (values[:10], values[10:10], values[10:].data, b"", bytearray(b"end"), memoryview(b"!")):
        digest.update(part)

    assert digest.text() == digest_bytes(values.tobytes() + b"end!")


def test_a_digest_without_an_algorithm_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    known = hashlib.sha256(b"abc").hexdigest()

    assert Digest(b"abc", like=known).text() == digest_file(tmp_path / "file", like=known) == known
    assert shown(known) == f"sha256 {known[:16]}…"
    assert shown(digest_bytes(b"abc")) == "blake3 6437b3ac38465133…"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.bin"):
        digest_files([tmp_path / "none.bin"])
