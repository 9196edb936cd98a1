"""``pairmill prune``: what goes and what stays, on a disk and in buckets, also when it is killed at any call."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.listing import RECORD, list_results
from pairmill.engine.manifest import MANIFEST, STARTED, InputRef
from pairmill.errors import InputError, StorageError, UsageError
from pairmill.lineage import prune
from pairmill.lineage.prune import Pruning
from pairmill.storage import LocalStore
from tests.support.data import roots
from tests.support.helpers import environment
from tests.support.processes.kill_points import EVERY

OLD, NEW = "abcdef", "123456"
LATER = 10 * roots.DAY


def shard(root: str, stage: str, key: str, *, of: str = "", record: bool = True) -> None:
    """Write a shard, whose file has the bytes of the result ``of``."""
    home = storage.join(root, stage, "shards", key * 64)
    store = storage.store_for(root)
    store.write(storage.join(home, "attempt", "rows.bin"), b"rows")
    manifest = manifests.read(storage.join(root, stage, of * 16)) if of else None
    files = [file.to_json() for file in manifest.files] if manifest is not None else []
    if record:
        store.write(storage.join(home, RECORD), json.dumps({"files": files}).encode())


def fill(root: str) -> None:
    """Write a root: an old line and a new one, work of both, work that was killed, and what pairmill does not know."""
    roots.line(root, OLD, age=5 * roots.DAY)
    shard(root, "clean", "a", of="a")
    shard(root, "clean", "b")  # of a round that only later rounds read
    time.sleep(1.1)  # a bucket says when objects were written to the second
    roots.line(root, NEW, age=2 * roots.DAY)
    shard(root, "clean", "1", of="1")
    roots.made_older(storage.join(root, "clean", "shards", "1" * 64), 3 * roots.DAY)
    roots.made_older(storage.join(root, "clean", "shards", "a" * 64), 6 * roots.DAY)
    roots.made_older(storage.join(root, "clean", "shards", "b" * 64), 6 * roots.DAY)
    for stage in ("clean", "tokenize"):  # of one that has no shards any more
        storage.store_for(root).write(storage.join(root, stage, "blocks", "5" * 16, "6" * 32), b"records")
    shard(root, "curate", "d", record=False)
    roots.made_older(storage.join(root, "curate", "shards"), 3 * roots.DAY)
    begun = storage.join(root, "curate", "9" * 16)
    manifests.begin(begun, "curate", "9" * 16)
    storage.store_for(root).write(storage.join(begun, "half.bin"), b"half")
    roots.made_older(begun, 3 * roots.DAY)
    for place in ("notes.txt", "clean/README", "raw/a/b.jsonl", f"clean/{'0' * 16}/data.jsonl", "line/index.html"):
        storage.store_for(root).write(storage.join(root, *place.split("/")), b"mine")
        roots.made_older(storage.join(root, *place.split("/")), LATER)


@pytest.fixture(params=["disk", "s3", "gs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    place = str(tmp_path / "a root") if request.param == "disk" else f"{request.getfixturevalue(request.param)}/a root"
    fill(place)
    return place


def pruning(root: str, *keep: str) -> Pruning:
    return Pruning(root, keep, roots.DAY, time.time() + (0 if storage.scheme(root) == "file" else LATER))


def places(plan: Pruning) -> set[str]:
    return {item.place for item in plan.leaving}


def paths(root: str) -> set[str]:
    return {entry.path for entry in storage.store_for(root).list(root)}


GOING = {
    f"{stage}/{mark * 16}"
    for stage, mark in zip(("clean", "curate", "tokenizer", "tokenize", "mix", "sample"), OLD, strict=True)
}
MORE = {f"curate/{'9' * 16}", f"curate/shards/{'d' * 64}", f"clean/shards/{'a' * 64}", f"clean/shards/{'b' * 64}"}
MORE |= {"clean/blocks", "tokenize/blocks"}


def test_what_goes_is_what_nothing_refers_to(root: str) -> None:
    before, plan = paths(root), pruning(root)
    assert places(plan) == GOING | MORE
    text = plan.text(removed=False)
    assert "nothing was removed; confirm=true removes it" in text
    assert paths(root) == before
    plan.remove()
    assert paths(root) == {path for path in before if not any(path.startswith(f"{place}/") for place in GOING | MORE)}
    assert places(pruning(root)) == set()
    check(root, before)


def test_what_is_kept_keeps_what_it_was_made_of(root: str) -> None:
    # A mixture and a tokenizer are named by content.
    assert places(pruning(root, "f" * 16)) & GOING == set()
    assert places(pruning(root, "d" * 16)) & GOING == {f"mix/{'e' * 16}", f"sample/{'f' * 16}"}
    with pytest.raises(UsageError, match="keep: no such result; got abc"):
        pruning(root, "abc")


class Killed(BaseException):
    """In place of a signal: from here on no call of this process reaches the store."""


@contextmanager
def killed_after(root: str, calls: int) -> Iterator[list[int]]:
    """Let as many calls that change the store through."""
    kind, lock, passed = type(storage.store_for(root)), threading.Lock(), [0]
    methods = {name: getattr(kind, name) for name in ("delete", "write", "commit", "drop_leftovers", "drop_empty")}

    def limited(method: Any) -> Any:
        def call(*given: Any) -> Any:
            with lock:
                if passed[0] == calls:
                    raise Killed
                passed[0] += 1
                return method(*given)

        return call

    for name, method in methods.items():
        setattr(kind, name, limited(method))
    try:
        yield passed
    finally:
        for name, method in methods.items():
            setattr(kind, name, method)


def check(root: str, before: set[str]) -> None:
    """Nothing that something refers to is gone, and nothing looks finished that is not whole."""
    now, store = paths(root), storage.store_for(root)
    finished = {item.fingerprint: item for item in list_results(root) if item.finished is not None}
    known = {path.split("/")[1] for path in before if path.endswith(f"/{MANIFEST}")}
    for item in finished.values():
        manifest = manifests.read(item.uri)
        assert manifest is not None
        assert manifests.find_damage(item.uri, manifest.files) == []
        for ref in manifest.inputs:
            assert ref.fingerprint not in known or ref.fingerprint in finished, f"{item} has lost {ref}"
        if item.folder == "sample":
            assert (OLD if item.fingerprint[0] in OLD else NEW)[4] * 16 in finished
        if item.folder == "tokenize":
            assert (OLD if item.fingerprint[0] in OLD else NEW)[2] * 16 in finished
    for path in now:
        stage, name = path.split("/")[:2] if "/" in path else ("", "")
        if f"{stage}/{name}/{MANIFEST}" in before and name not in finished:
            assert f"{stage}/{name}/{STARTED}" in now, f"{path} looks like somebody's own file"
        if path.endswith(RECORD):
            assert path.replace(RECORD, "attempt/rows.bin") in now
    lost = before - now
    assert not [path for path in lost if not any(path.startswith(f"{place}/") for place in GOING | MORE)]
    assert store.read(storage.join(root, "notes.txt")) == b"mine"


def test_killed_at_any_call_and_run_again(root: str) -> None:
    # In a bucket every third call, but for make test-long.
    before, runs, calls = paths(root), 0, 1 if EVERY or storage.scheme(root) == "file" else 3
    while True:
        plan = pruning(root)
        with killed_after(root, calls) as passed:
            try:
                plan.remove()
                break
            except Killed:
                assert passed == [calls]
        runs += 1
        check(root, before)
        assert runs < 100
    assert runs > 20 // calls
    assert places(pruning(root)) == set()
    check(root, before)


def test_killed_at_any_call_of_one_run(tmp_path: Path) -> None:
    fill(str(tmp_path / "root"))
    before, calls = paths(str(tmp_path / "root")), 0
    while True:
        copy = tmp_path / "copy"
        subprocess.run(["cp", "-a", str(tmp_path / "root"), str(copy)], check=True)
        with killed_after(str(copy), calls):
            try:
                pruning(str(copy)).remove()
                break
            except Killed:
                check(str(copy), before)
        pruning(str(copy)).remove()
        check(str(copy), before)
        assert places(pruning(str(copy))) == set()
        shutil.rmtree(copy)
        calls += 1
    assert calls > 30


def test_a_result_without_its_mark_never_looks_like_somebodys_folder(tmp_path: Path) -> None:
    root = str(tmp_path)
    fill(root)
    (tmp_path / "clean" / ("a" * 16) / STARTED).unlink()
    before = paths(root)
    for calls in range(20):
        with killed_after(root, calls):
            try:
                pruning(root).remove()
            except Killed:
                check(root, before | {f"clean/{'a' * 16}/{STARTED}"})


def test_a_stage_that_may_be_running_keeps_its_work_and_what_it_may_read(tmp_path: Path) -> None:
    root = str(tmp_path)
    fill(root)
    shard(root, "tokenize", "e", record=False)
    stays = {f"clean/shards/{'a' * 64}", f"clean/shards/{'b' * 64}", "clean/blocks", "tokenize/blocks"}
    assert places(pruning(root)) == {f"mix/{'e' * 16}", f"sample/{'f' * 16}", *MORE} - stays


def test_what_others_name_stays(tmp_path: Path) -> None:
    root = str(tmp_path)
    fill(root)
    roots.result(root, "of_mine", "7", [InputRef("rows", "b" * 16, "curate")], age=20 * roots.DAY)
    assert places(pruning(root)) & GOING == {
        f"{place}/{OLD[at] * 16}" for at, place in ((2, "tokenizer"), (3, "tokenize"), (4, "mix"), (5, "sample"))
    }
    roots.result(root, "train", "8", [InputRef("sampled", "f" * 16)], age=20 * roots.DAY)
    roots.result(root, "train", "5", age=10 * roots.DAY)
    assert places(pruning(root)) & GOING == set()


def test_what_was_made_lately_stays(tmp_path: Path) -> None:
    root = str(tmp_path)
    roots.line(root, OLD, age=600)
    roots.line(root, NEW)
    assert Pruning(root, older=3600).text(removed=False) == "nothing can go\n"
    assert len(Pruning(root, older=60).leaving) == 6


def test_a_manifest_that_cannot_be_read_ends_it(tmp_path: Path) -> None:
    roots.line(str(tmp_path))
    (tmp_path / "clean" / ("a" * 16) / MANIFEST).chmod(0o644)
    (tmp_path / "clean" / ("a" * 16) / MANIFEST).write_text("{")
    with pytest.raises(InputError, match="not a pairmill manifest"):
        pruning(str(tmp_path))


def test_a_result_that_comes_meanwhile_ends_it(tmp_path: Path) -> None:
    root = str(tmp_path)
    fill(root)
    before, plan = paths(root), pruning(root)
    late = roots.result(root, "sample", "8", [InputRef("tokenized", "d" * 16)])
    with pytest.raises(InputError, match="a result came or went meanwhile"):
        plan.remove()
    assert paths(root) > before
    plan = pruning(root)
    assert f"tokenize/{'d' * 16}" not in places(plan)
    assert manifests.exists(late)


def test_partial_files_of_dead_writers_go_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    root, target = str(tmp_path), tmp_path / "clean" / "x.bin"
    roots.line(root)
    code = (
        "import sys, time; from pairmill import storage\n"
        "with storage.store_for(sys.argv[1]).create(sys.argv[1]) as path:\n"
        "    path.write_bytes(b'x' * 1000); print(flush=True); time.sleep(100)"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, f"{target}{number}"], env=environment(), stdout=subprocess.PIPE)
        for number in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    writers[0].kill()
    writers[0].wait()
    for path in target.parent.glob(".*.partial"):
        os.utime(path, (1, 1))
    plan = pruning(root)
    assert [item.kind for item in plan.leaving] == [prune.PARTIAL] * 2
    assert plan.freed(plan.leaving) == 2000
    plan.remove()
    assert [path.name[:5] for path in target.parent.glob(".*.partial")] == [".x.bin1."[:5]]
    assert [path.name[:8] for path in target.parent.glob(".*.partial")] == [".x.bin1."]
    writers[1].kill()
    writers[1].wait()
    pruning(root).remove()
    assert not list(target.parent.glob(".*.partial"))


def test_parts_of_a_killed_upload_go(s3: str) -> None:
    roots.line(s3)
    store, (bucket, key) = storage.store_for(s3), storage.uris.bucket_and_key(f"{s3}/clean/large")
    client = store._client  # type: ignore[attr-defined]
    upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
    client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"x" * 1000)
    assert places(Pruning(s3)) == set()
    plan = pruning(s3)
    assert places(plan) == {"clean/large"}
    plan.remove()
    assert not store.leftovers(s3)


def test_a_store_that_does_not_list_uploads_is_pruned_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(str(tmp_path))

    def refuse(*_: object) -> None:
        raise StorageError("storage refused", got="403 AccessDenied")

    monkeypatch.setattr(LocalStore, "leftovers", refuse)
    assert places(pruning(str(tmp_path))) == GOING | MORE


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(str(tmp_path))
    assert prune.main([f"root={tmp_path}", f"keep={'e' * 16}"]) == 0
    out = capsys.readouterr().out
    assert f"sample/{'f' * 16}" in out
    assert "mix/" not in out
    assert prune.main([f"root={tmp_path}", "confirm=true"]) == 0
    assert capsys.readouterr().out.endswith("removed\n")
    assert prune.main([f"root={tmp_path}", "confirm=true"]) == 0
    assert capsys.readouterr().out == "nothing can go\n"
    assert prune.main([f"root={tmp_path}", "older=0.5"]) == 2
    assert prune.main([f"root={tmp_path / 'nothing'}"]) == 3
