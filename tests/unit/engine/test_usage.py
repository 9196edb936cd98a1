"""What pods took: each leaves a file below the root, and the page of the line adds them up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pairmill.engine import usage
from pairmill.engine.usage import Total, Usage


def pod(name: str, **fields: float) -> Usage:
    values = {"seconds": 10, "cores": 2, "memory_bytes": 3 << 30, "gpus": 0, "cpu_seconds": 5, "peak_bytes": 7}
    return Usage(pod=name, **{**values, **fields})  # type: ignore[arg-type]


def test_a_pod_leaves_what_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    usage.leave(str(tmp_path / "clean" / ("f" * 16)))
    (left,) = usage.read(str(tmp_path), "clean", "f" * 16)
    assert left.seconds > 0
    assert left.cpu_seconds > 0
    assert left.cores >= 1
    assert usage.read(str(tmp_path), "clean", "0" * 16) == []


def test_nothing_is_left_outside_of_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    usage.leave(str(tmp_path / "clean" / ("f" * 16)))
    assert list(tmp_path.iterdir()) == []


def test_storage_that_refuses_fails_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    (tmp_path / "usage").write_text("a file in the place of the folder")
    usage.leave(str(tmp_path / "clean" / ("f" * 16)))
    assert "is not kept" in caplog.text


def test_of_another_folder_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    usage.leave(str(tmp_path / "sampled"))
    assert list(tmp_path.rglob("*.json")) == []


def test_another_file_is_not_counted(tmp_path: Path) -> None:
    folder = tmp_path / "usage/clean" / ("f" * 16)
    folder.mkdir(parents=True)
    (folder / "notes.json").write_text(json.dumps({"seconds": 1}))
    assert usage.read(str(tmp_path), "clean", "f" * 16) == []


def test_pods_are_added_up() -> None:
    total = Total.sum([pod("a"), pod("b", seconds=20, cores=4, gpus=2, peak_bytes=9)])
    assert (total.pods, total.pod_seconds, total.core_seconds) == (2, 30, 10 * 2 + 20 * 4)
    assert (total.gib_seconds, total.gpu_seconds, total.cpu_seconds, total.peak_bytes) == (30 * 3, 40, 10, 9)
    assert Total.sum([]).pod_seconds == 0
