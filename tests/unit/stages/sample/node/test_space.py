"""The check before the first byte: what files of the kernel say, and the numbers of a refusal."""

import re
from pathlib import Path

import pytest

from pairmill.errors import StorageError
from pairmill.stages.sample.node import space
from pairmill.stages.sample.node.space import Limit, in_memory, memory_limits, require_space

MIB = 1 << 20

MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
24 22 0:22 / /dev rw,nosuid - devtmpfs udev rw
28 24 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw
30 22 0:30 / /mnt/with\\040space rw - tmpfs tmpfs rw
31 28 8:2 /x /dev/shm/disk rw master:1 - ext4 /dev/sdb rw
"""


@pytest.mark.parametrize(
    ("path", "memory"),
    [
        ("/dev/shm/pairmill/x", True),
        ("/dev/shm", True),
        ("/dev/shmoo", False),
        ("/dev/shm/disk/x", False),
        ("/mnt/with space/x", True),
        ("/home", False),
    ],
)
def test_the_mount_that_holds_a_path_says_whether_it_is_memory(path: str, memory: bool) -> None:
    assert in_memory(Path(path), MOUNTS) is memory


def put(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_limits_of_version_2(tmp_path: Path) -> None:
    stat = "anon 5\nfile 900\nshmem 300\ninactive_file 400\nactive_file 200"
    put(tmp_path / "kubepods" / "pod", memory__max=1000, memory__current=950, memory__stat=stat)
    put(tmp_path / "kubepods", memory__max="max", memory__current=999, memory__stat=stat)
    put(tmp_path, cgroup__procs="")
    found = list(memory_limits("0::/kubepods/pod\n", tmp_path))
    assert found == [Limit(1000, 350)]
    put(tmp_path / "kubepods", memory__max=700)
    assert list(memory_limits("0::/kubepods/pod\n", tmp_path)) == [Limit(1000, 350), Limit(700, 399)]


def test_limits_of_version_1(tmp_path: Path) -> None:
    stat = "inactive_file 1\nactive_file 1\ntotal_inactive_file 40\ntotal_active_file 20"
    lines = "9:cpu,cpuacct:/a\n5:memory:/a/b\n1:name=systemd:/a\n0::/\n"
    top = tmp_path / "memory"
    put(top / "a" / "b", memory__limit_in_bytes=1000, memory__usage_in_bytes=160, memory__stat=stat)
    put(top / "a", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=160, memory__stat=stat)
    put(top, memory__limit_in_bytes=800, memory__usage_in_bytes=60, memory__stat=stat)
    assert list(memory_limits(lines, tmp_path)) == [Limit(1000, 100), Limit(800, 0)]
    # In a container the path is that of the host, and what is mounted begins at the container's own group.
    assert list(memory_limits("5:memory:/kubepods/pod/container\n", tmp_path)) == [Limit(800, 0)]


@pytest.mark.parametrize("broken", ["memory.max", "memory.stat", "memory.current"])
def test_files_that_cannot_be_read_are_no_limit(tmp_path: Path, broken: str) -> None:
    put(tmp_path, memory__max=1000, memory__current=1, memory__stat="inactive_file 1\nactive_file 1")
    assert len(list(memory_limits("0::/\n", tmp_path))) == 1
    (tmp_path / broken).write_text("what")
    assert list(memory_limits("0::/\n", tmp_path)) == []
    (tmp_path / broken).unlink()
    assert list(memory_limits("0::/\n", tmp_path)) == []


def test_a_full_file_system_is_refused_with_the_numbers(tmp_path: Path) -> None:
    require_space(tmp_path / "x", 1, 0)
    with pytest.raises(
        StorageError,
        match=r"no space left for the sample; got [\d,]+ bytes free in .*; expected 1,\d{3},.* bytes; nothing",
    ) as caught:
        require_space(tmp_path / "not" / "there" / "x", 1 << 60, 0)
    assert caught.value.exit_code == 4


def test_a_memory_limit_is_refused_with_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "in_memory", lambda _: True)
    monkeypatch.setattr(space, "memory_limits", lambda: iter([Limit(10_000 * MIB, 0), Limit(100 * MIB, 30 * MIB)]))
    require_space(tmp_path / "x", 28 * MIB, 10 * MIB)
    with pytest.raises(StorageError) as caught:
        require_space(tmp_path / "x", 29 * MIB, 10 * MIB)
    said = str(caught.value)
    for number in (100 * MIB, 30 * MIB, 29 * MIB, 42 * MIB):
        assert f" {number:,} " in said, said
    assert caught.value.exit_code == 4
    # What a program holds differs from start to start: what is named is enough for one that holds some MiB more.
    named = re.search(r"set the limit to (\d+) MiB or more", said)
    assert named is not None
    again = Limit(int(named[1]) * MIB, 46 * MIB)
    monkeypatch.setattr(space, "memory_limits", lambda: iter([again]))
    require_space(tmp_path / "x", 29 * MIB, 10 * MIB)
    monkeypatch.setattr(space, "memory_limits", lambda: iter([Limit(100 * MIB, 30 * MIB)]))
    # What is written to a disk can be written back.
    monkeypatch.setattr(space, "in_memory", lambda _: False)
    require_space(tmp_path / "x", 29 * MIB, 10 * MIB)
    with pytest.raises(StorageError):
        require_space(tmp_path / "x", 29 * MIB, 39 * MIB)


def test_what_goes_first_counts_as_free(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        require_space(tmp_path / "x", 1 << 60, 0)
    require_space(tmp_path / "x", 1 << 60, 0, 1 << 60)
