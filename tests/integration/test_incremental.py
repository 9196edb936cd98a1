"""What was done is not done again, what changed is, and what is finished is never touched."""

import io
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pairmill.digest import digest_bytes
from pairmill.engine.manifest import File
from tests.support import tools
from tests.support.cases import cases
from tests.support.helpers import until, writable
from tests.support.tools import World

ROW_FILES = ("a.jsonl", "b.parquet", "deep/c.jsonl", "deep/d.parquet")


class Project:
    """Own input that may be changed, and a root, for one sharded stage."""

    def __init__(self, name: str, world: World, top: Path) -> None:
        self.name, self.world, self.top = name, world, top
        self.given = top / "given"
        if name == "fetch":
            tools.raw_archives(self.given, 120)
        elif name == "clean":
            shutil.copytree(world.raw, self.given)
        else:
            for number, path in enumerate(ROW_FILES):
                tools.write_rows(self.given / path, tools.rows(150, seed=number))

    def options(self) -> dict[str, object]:
        options: dict[str, dict[str, object]] = {
            "fetch": {"raw": self.given},
            "clean": {"raw": self.given},
            "curate": {"rows": self.given},
            "train_tokenizer": {"rows": self.given, "vocab_size": 400, "prefix_config_path": self.world.rules},
            "tokenize": {"rows": self.given, "tokenizer": self.world.tokenizer},
        }
        return options[self.name]

    def command(self, root: str = "root", **changed: object) -> list[str]:
        return tools.command(self.name, **{**self.options(), "root": self.top / root, "workers": 1, **changed})

    def run(self, root: str = "root", **changed: object) -> tools.Done:
        return tools.ended(tools.run(self.command(root, **changed)))

    def from_nothing(self, root: str = "fresh", **changed: object) -> Path:
        """What a process that hashes in another way makes below another root."""
        return tools.folder(tools.run(self.command(root, **changed), fresh=True))

    def records(self) -> dict[str, int]:
        return tools.records(self.top / "root", self.name)

    def change(self) -> str:
        """Change the content of one file; returns its task."""
        if self.name == "fetch":
            tools.raw_archives(self.top / "other", 120, seed=99)
            shutil.copytree(self.top / "other" / "dmmath", self.given / "dmmath", dirs_exist_ok=True)
            return "dmmath"
        if self.name == "clean":
            path = self.given / "dmmath" / "mathematics_dataset-v1.0" / "train-easy" / "add.txt"
            path.write_text(tools.dmmath(120, seed=99))
            return "dmmath__train-easy__add.parquet"
        tools.write_rows(self.given / "b.parquet", tools.rows(150, seed=99))
        return "b.parquet"

    def vanish(self) -> str:
        """Remove one file; returns its task."""
        if self.name == "fetch":
            shutil.rmtree(self.given / "dmmath")
            return "dmmath"
        if self.name == "clean":
            (self.given / "dmmath" / "mathematics_dataset-v1.0" / "train-easy" / "add.txt").unlink()
            return "dmmath__train-easy__add.parquet"
        (self.given / "b.parquet").unlink()
        return "b.parquet"


@pytest.fixture(params=cases(tools.SHARDED, "curate", "train_tokenizer"))
def project(request: pytest.FixtureRequest, world: World, tmp_path: Path) -> Project:
    return Project(request.param, world, tmp_path)


def test_second_run_does_nothing(project: Project) -> None:
    first = project.run()
    # Only content counts: a file that was copied again is another one, and of another time.
    for number, path in enumerate(sorted(path for path in project.given.rglob("*") if path.is_file())):
        path.write_bytes(path.read_bytes())
        os.utime(path, (1_000_000_000 + number, 1_000_000_000 + number))
    before = tools.stamps(project.top)
    for workers in (1, 2):
        second = project.run(workers=workers)
        assert second.out == first.out
        assert second.said(f"{project.name}: reused, nothing to do")
        assert tools.stamps(project.top) == before


def test_one_changed_file(project: Project) -> None:
    old = tools.folder(project.run())
    before, stamps, wanted = project.records(), tools.stamps(old), tools.digests(old)
    task = project.change()
    done = project.run()
    new = tools.folder(done)
    after = project.records()
    assert new != old
    if project.name == "curate":
        # What looks at another file alone is used again; what compares the rows of all files is not.
        assert done.said(" shards reused")
        assert 5 < len(after) - len(before) < len(before) - 5
    else:
        assert done.said(f"{len(before) - 1} of {len(before)} shards reused")
        assert len(after) == len(before) + 1
    assert {key: after[key] for key in before} == before
    # The finished folder of before is as it was.
    assert tools.stamps(old) == stamps
    assert tools.digests(old) == wanted
    if project.name == "fetch":
        found = tools.digests(new)
        changed = {path for path in found.keys() | wanted.keys() if found.get(path) != wanted.get(path)}
        assert {path for path in changed if path.startswith("sources/")} == {f"sources/{task}.json"}
    elif project.name != "train_tokenizer":
        files = {file["task"]: [] for file in tools.read_manifest(new)["files"] if file["task"]}
        for folder in (old, new):
            for file in tools.read_manifest(folder)["files"]:
                if file["task"]:
                    files[file["task"]].append(File.from_json(file).digest)
        halves = {name: (found[: len(found) // 2], found[len(found) // 2 :]) for name, found in files.items()}
        assert [name for name, (left, right) in halves.items() if left != right] == [task]
    # A run from nothing gives the same.
    assert tools.digests(project.from_nothing()) == tools.digests(new)


def test_change_taken_back(project: Project) -> None:
    old = tools.folder(project.run())
    shutil.copytree(project.given, project.top / "kept")
    project.change()
    assert tools.folder(project.run()) != old
    shutil.rmtree(project.given)
    (project.top / "kept").rename(project.given)
    again = project.run()
    assert tools.folder(again) == old
    assert again.said("reused, nothing to do")


def test_vanished_file(project: Project) -> None:
    old = tools.folder(project.run())
    before = project.records()
    task = project.vanish()
    new = tools.folder(project.run())
    shards = [tools.read_manifest(folder)["shards"] for folder in (old, new)]
    if project.name == "curate":
        assert before.items() < project.records().items()
        assert len(shards[0]) > len(shards[1])
    else:
        assert project.records() == before
        assert len(shards[0]) == len(shards[1]) + 1
    stem = task.removesuffix(".parquet")
    assert not [path for path in tools.digests(new) if any(part.startswith(stem) for part in path.split("/"))]
    assert task not in (new / "report.md").read_text()
    assert tools.digests(project.from_nothing()) == tools.digests(new)


@pytest.mark.parametrize("name", ["train_tokenizer", "tokenize"])
def test_renamed_file_is_reused(name: str, world: World, tmp_path: Path) -> None:
    project = Project(name, world, tmp_path)
    old = tools.folder(project.run())
    before = project.records()
    (project.given / "a.jsonl").rename(project.given / "z.jsonl")
    done = project.run()
    new = tools.folder(done)
    assert done.said("4 of 4 shards reused")
    assert project.records() == before
    if name == "tokenize":
        assert tools.digests(new / "z.jsonl") == tools.digests(old / "a.jsonl")
        assert not (new / "a.jsonl").exists()
    assert tools.digests(project.from_nothing()) == tools.digests(new)


def test_workers_and_root_do_not_matter(project: Project) -> None:
    one, two = tools.folder(project.run("one")), project.from_nothing("deep/two", workers=2)
    assert one.name == two.name
    assert tools.digests(one) == tools.digests(two)
    moved = project.top / "moved"
    project.given.rename(moved)
    project.given = moved
    three = tools.folder(project.run("three"))
    assert tools.digests(three) == tools.digests(one)


def test_damaged_result_is_mended(project: Project) -> None:
    folder = tools.folder(project.run())
    wanted = tools.digests(folder)
    victims = [file["path"] for file in tools.read_manifest(folder)["files"]]
    for victim in (victims[0], victims[-1], "report.md"):
        (folder / victim).unlink()
        done = project.run()
        assert done.said("making them again")
        assert tools.digests(tools.folder(done)) == wanted
    # Finished files and shard files may be one and the same: cutting the one cuts the other.
    os.truncate(writable(folder / victims[0]), 10)
    assert tools.digests(tools.folder(project.run())) == wanted
    assert project.run().said("reused, nothing to do")


def test_options_that_change_bytes_make_another_folder(world: World, tmp_path: Path) -> None:
    project = Project("train_tokenizer", world, tmp_path)
    small = tools.folder(project.run())
    before, stamps = project.records(), tools.stamps(small)
    large = project.run(vocab_size=450)
    assert large.said("4 of 4 shards reused")
    assert tools.folder(large) != small
    assert project.records() == before
    assert tools.stamps(small) == stamps


# fetch


def test_raw_data_that_is_gone_or_cut_is_brought_again(world: World, tmp_path: Path) -> None:
    project = Project("fetch", world, tmp_path)
    folder, raw = tools.folder(project.run()), tmp_path / "root" / "raw"
    wanted = tools.digests(raw), tools.digests(folder)
    (victim,) = raw.glob("dmmath/*/mathematics_dataset-v1.0/train-easy/add.txt")
    stamps = tools.stamps(raw / "scibench")
    for damage in (victim.unlink, lambda: os.truncate(writable(victim), 10), lambda: tools.remove(raw / "dmmath")):
        damage()
        done = project.run()
        assert done.said("fetch: raw data of dmmath is missing or changed; fetching it again")
        assert tools.folder(done) == folder
        # The time at which it was fetched stands in the manifest of the raw data.
        assert less_manifests(tools.digests(raw)) == less_manifests(wanted[0])
        assert tools.digests(folder) == wanted[1]
        assert tools.stamps(raw / "scibench") == stamps
        assert project.run().said("fetch: reused, nothing to do")


def less_manifests(found: dict[str, str]) -> dict[str, str]:
    return {path: digest for path, digest in found.items() if not path.endswith(tools.MANIFEST)}


def test_raw_data_that_is_given_is_left_where_it_stands(world: World, tmp_path: Path) -> None:
    shutil.copytree(world.raw, tmp_path / "raw")
    before = tools.stamps(tmp_path / "raw")

    def fetch() -> Path:
        return tools.folder(tools.stage("fetch", raw=tmp_path / "raw", root=tmp_path / "root", workers=1))

    old = fetch()
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["fetch"]
    cleaned = tools.folder(tools.stage("clean", raw=old, root=tmp_path / "root", workers=1))
    # With or without an index, the same raw files give the same rows.
    direct = tools.folder(tools.stage("clean", raw=tmp_path / "raw", root=tmp_path / "direct", workers=1))
    assert rows_of(direct) == rows_of(cleaned)
    assert tools.stamps(tmp_path / "raw") == before

    path = tmp_path / "raw" / "scibench" / "waves.json"
    path.write_text(json.dumps(tools.scibench(50, seed=99)))
    new = fetch()
    assert new != old
    done = tools.stage("clean", raw=new, root=tmp_path / "root", workers=1)
    assert done.said("6 of 7 shards reused")
    assert tools.folder(done) != cleaned


def rows_of(cleaned: Path) -> dict[str, str]:
    """Digests of the files of rows."""
    return {path: digest for path, digest in tools.digests(cleaned).items() if path.startswith("data")}


# sample


def sample(world: World, out: Path, root: object = "", **changed: object) -> tools.Done:
    options: dict[str, object] = {
        "tokenized_path": world.tokenized,
        "prefix_config_path": world.rules,
        "output_path": out,
        "root": root,
        "epochs": 3,
    }
    return tools.ended(tools.stage("sample", **{**options, **changed}))


def test_sample_is_reused(world: World, tmp_path: Path, shm: Path) -> None:
    first = sample(world, shm / "out", tmp_path)
    before = tools.stamps(shm), tools.stamps(tmp_path)
    second = sample(world, shm / "out", tmp_path)
    assert second.said("sample: reused, nothing to do")
    assert second.out == first.out
    assert (tools.stamps(shm), tools.stamps(tmp_path)) == before


def test_sample_missing_half_is_made(world: World, tmp_path: Path, shm: Path) -> None:
    """A node that was rebooted has no arrays, a project that was moved has no report."""
    first = sample(world, shm / "out", tmp_path / "root")
    wanted = tools.digests(shm / "out"), tools.digests(tmp_path / "root")
    tools.remove(shm / "out")
    again = sample(world, shm / "out", tmp_path / "root")
    assert again.out == first.out
    assert again.said("sample: done")  # its plan alone was reused
    assert (tools.digests(shm / "out"), tools.digests(tmp_path / "root")) == wanted
    tools.remove(tmp_path / "root")
    before = tools.stamps(shm)
    sample(world, shm / "out", tmp_path / "root")
    assert (tools.digests(shm / "out"), tools.digests(tmp_path / "root")) == wanted
    assert tools.stamps(shm) == before
    (shm / "out" / "epoch_1" / "inst_len.npy").unlink()
    sample(world, shm / "out", tmp_path / "root")
    assert (tools.digests(shm / "out"), tools.digests(tmp_path / "root")) == wanted


class Poller(threading.Thread):
    """Reads the folder again and again, as a trainer would find it, and remembers what does not fit together."""

    def __init__(self, target: Path) -> None:
        super().__init__(daemon=True)
        self._target = target
        self._over = threading.Event()
        self.seen: dict[str, int] = {}
        self.absent = 0
        self.wrong: list[str] = []
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._look()
        except BaseException as error:
            self.error = error

    def stop(self) -> None:
        self._over.set()
        self.join()
        if self.error:
            raise self.error

    def _look(self) -> None:
        """Read one folder through a handle on it: it may be replaced by another meanwhile, or be removed."""
        try:
            handle = os.open(self._target, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            self.absent += 1
            return
        try:
            metadata = self._read(handle, "metadata.json")
            manifest = json.loads(self._read(handle, tools.MANIFEST))
            digests = tools.recorded(manifest)
            if digest_bytes(metadata) != digests["metadata.json"]:
                self.wrong.append(f"metadata.json of {manifest['fingerprint']}")
            for path, digest in digests.items():
                if digest_bytes(self._read(handle, path)) != digest:
                    self.wrong.append(f"{path} of {manifest['fingerprint']}")
            self.seen[manifest["fingerprint"]] = self.seen.get(manifest["fingerprint"], 0) + 1
        except FileNotFoundError as error:
            # A folder that was put aside is emptied; one that stands at the target is whole.
            with os.scandir(self._target.parent) as entries:
                here = {entry.name: entry.inode() for entry in entries}
            if here.get(self._target.name) == os.fstat(handle).st_ino:
                self.wrong.append(f"incomplete: {error}")
        finally:
            os.close(handle)

    @staticmethod
    def _read(handle: int, path: str) -> bytes:
        with io.FileIO(os.open(path, os.O_RDONLY, dir_fd=handle)) as file:
            return file.readall()


def test_sample_replaces_the_folder_as_one_step(world: World, shm: Path) -> None:
    out = shm / "out"
    sample(world, out)
    poller = Poller(out)
    poller.start()
    fingerprints = []
    for seed in (1, 2, 3, 4, 5, 6):
        sample(world, out, seed=seed, epochs=3 + seed % 2)
        fingerprints.append(tools.read_manifest(out)["fingerprint"])
        until(lambda: fingerprints[-1] in poller.seen or not poller.is_alive(), "the new folder is read")
    poller.stop()
    assert not poller.wrong
    assert set(fingerprints) <= poller.seen.keys()
    assert len(set(fingerprints)) == 6
    print(f"\nread {sum(poller.seen.values())} times, found nothing {poller.absent} times")
    # Fewer epochs than before leave no epoch of before.
    sample(world, out, epochs=1)
    assert sorted(path.name for path in out.iterdir()) == sorted(
        [tools.MANIFEST, "epoch_0", "metadata.json", "tokens.npy"]
    )
    assert [path.name for path in shm.iterdir()] == ["out"]


def test_mapped_arrays_outlive_their_folder(world: World, shm: Path) -> None:
    out = shm / "out"
    sample(world, out)
    mapped = np.load(out / "tokens.npy", mmap_mode="r")
    before = mapped.sum(), mapped.shape
    sample(world, out, epochs=1, seed=8)
    assert (mapped.sum(), mapped.shape) == before


def together(*commands: list[str]) -> list[tools.Done]:
    """Start programs at once and wait for all."""
    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(tools.run, commands))


def sampler(world: World, out: Path, root: Path, seed: int) -> list[str]:
    return tools.command(
        "sample",
        tokenized_path=world.tokenized,
        prefix_config_path=world.rules,
        output_path=out,
        root=root,
        epochs=20,
        seed=seed,
    )


def test_two_equal_samplers_at_once(world: World, tmp_path: Path, shm: Path) -> None:
    tools.ended(tools.run(sampler(world, shm / "reference", tmp_path / "reference", 5), fresh=True))
    wanted, wanted_root = tools.digests(shm / "reference"), tools.digests(tmp_path / "reference")
    for attempt in range(6):
        out = shm / f"out{attempt}"
        if attempt % 2:
            sample(world, out, seed=9)  # something to replace
        command = sampler(world, out, tmp_path / f"root{attempt}", 5)
        for done in together(command, command):
            tools.ended(done)
            assert "Traceback" not in done.err
        assert tools.digests(out) == wanted
        assert tools.digests(tmp_path / f"root{attempt}") == wanted_root
        assert not list(shm.glob(".*"))


def test_two_different_samplers_at_once(world: World, tmp_path: Path, shm: Path) -> None:
    """Whoever comes last is there, whole; neither fails."""
    out = shm / "out"
    for attempt in range(8):
        results = together(*(sampler(world, out, tmp_path / "root", 2 * attempt + half) for half in (0, 1)))
        for done in results:
            tools.ended(done)
            assert "Traceback" not in done.err
        manifest = tools.read_manifest(out)
        found = tools.digests(out)
        del found[tools.MANIFEST]
        assert found == tools.recorded(manifest)
        assert not list(shm.glob(".*"))


@pytest.mark.parametrize("name", cases(tools.SHARDED, "curate", "train_tokenizer"))
def test_two_equal_runs_at_once(name: str, world: World, tmp_path: Path) -> None:
    project = Project(name, world, tmp_path)
    wanted = tools.digests(project.from_nothing())
    command = project.command(workers=2 if name == "clean" else 1)
    for done in together(command, command):
        assert tools.digests(tools.folder(done)) == wanted
        assert "Traceback" not in done.err
    assert not tools.partials(tmp_path)
