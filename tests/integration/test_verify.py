"""``pairmill verify``: digests that other programs check, and those of older versions."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from pairmill import verify
from pairmill.digest import split
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from tests.support.data import dfm


def finished(folder: Path, names: tuple[str, ...] = ("a.npy", "below/b c.bin")) -> Path:
    out = Writer(str(folder))
    for name in names:
        out.write(name, os.urandom(3000))
    Manifest("toy", 1, "0" * 16, {}, [], Ledger(), out.files).finish(str(folder))
    return folder


def as_of_old(folder: Path) -> None:
    """Give the manifest the digests that pairmill wrote before: sha256."""
    manifest = manifests.read(str(folder))
    assert manifest is not None
    old = [
        File(file.path, file.size, hashlib.sha256((folder / file.path).read_bytes()).hexdigest(), file.task)
        for file in manifest.files
    ]
    (folder / manifests.MANIFEST).unlink()
    Manifest("toy", 1, "0" * 16, {}, [], Ledger(), old).finish(str(folder))


def test_manifests_say_which_digest_they_hold_and_old_ones_verify(tmp_path: Path) -> None:
    folder = finished(tmp_path / "new")
    (tmp_path / "new" / "a.npy").chmod(0o644)
    files = json.loads((folder / manifests.MANIFEST).read_text())["files"]
    assert [sorted(file) for file in files] == [["blake3", "path", "size", "task"]] * 2
    as_of_old(folder)
    files = json.loads((folder / manifests.MANIFEST).read_text())["files"]
    assert [sorted(file) for file in files] == [["path", "sha256", "size", "task"]] * 2

    assert verify.verify(str(folder)) == f"{folder}\n"
    with pytest.raises(InputError, match=r"other digests than those of b3sum; got sha256 "):
        verify.sums_of(str(folder))
    with (folder / "a.npy").open("r+b") as file:
        file.write(b"other")
    with pytest.raises(InputError, match=r"a\.npy: sha256 .*, expected sha256 "):
        verify.verify(str(folder))


@pytest.mark.skipif(shutil.which("b3sum") is None, reason="no b3sum")
def test_b3sum_checks_what_verify_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished(tmp_path / "one")
    finished(tmp_path / "two", ("back\\slash", "new\nline"))
    dfm.write(tmp_path / "three", 40, 300, tokens=True)

    assert verify.main([str(tmp_path), "sums=b3sum"]) == 0

    (tmp_path / "sums").write_text(capsys.readouterr().out)
    done = subprocess.run(["b3sum", "--check", "sums"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": OK\n") == 2 + 2 + 40 * 5 + 1


def test_each_line_has_the_digest_of_the_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = finished(tmp_path / "one", ("a.npy", "back\\slash"))
    manifest = manifests.read(str(folder))
    assert manifest is not None
    first, second = (split(file.digest)[1] for file in manifest.files)

    assert verify.main(["sums=b3sum", f"path={folder}"]) == 0
    assert capsys.readouterr().out == f"{first}  a.npy\n\\{second}  back\\\\slash\n"
    assert verify.main(["sums=md5sum", str(folder)]) == 2
    assert "expected b3sum" in capsys.readouterr().err
