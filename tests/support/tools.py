"""Generated input in the sources' formats, stages as processes, and what a folder holds."""

import csv
import gzip
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.digest import digest_file
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File
from pairmill.line import stages
from tests.support.helpers import PATIENCE, REPOSITORY, SOON, SWITCHED, mount
from tests.support.processes import nursery

STAGES = tuple(stages.STAGES)
LINE = tuple(name for name in STAGES if name not in SWITCHED)
"""Those of a run that selects nothing and has no mixture."""
SHARDED = LINE[:-1]
"""Those whose results are folders of shards' files below the root."""
HOMES = {
    "fetch": "fetch",
    "clean": "clean",
    "train_tokenizer": "tokenizer",
    "curate": "curate",
    "select": "select",
    "tokenize": "tokenize",
    "mix": "mix",
    "sample": "sample",
}
"""Folder below the root by stage."""
MANIFEST, STARTED, RECORD = "_MANIFEST.json", "_STARTED.json", "_RECORD.json"
FIELDS = ("condition", "instruction", "response")

RowTuple = tuple[str, str, str]


@dataclass(frozen=True)
class World:
    """What the four stages made of small generated raw data: one folder each, finished."""

    raw: Path
    rules: Path
    cleaned: Path
    tokenizer: Path
    tokenized: Path


# Programs


@dataclass(frozen=True)
class Done:
    """A stage that ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def lines(self) -> list[dict[str, Any]]:
        """stderr, which is JSON lines where it is no terminal."""
        found = [json.loads(line) for line in self.err.splitlines()]
        assert all(isinstance(line, dict) and {"time", "severity", "message"} <= line.keys() for line in found)
        return found

    @property
    def message(self) -> str:
        """The last line's message."""
        return str(self.lines[-1]["message"])

    def said(self, text: str) -> bool:
        """Whether any line of stderr says this."""
        return any(text in line["message"] for line in self.lines)


def environment(mark: str = "") -> dict[str, str]:
    """The environment of a child process; ``mark`` lets ``marked`` find it and its children."""
    kept = {name: value for name, value in os.environ.items() if name != "PAIRMILL_LOG"}
    return {**kept, "PAIRMILL_TEST_MARK": mark}


def command(name: str, **options: object) -> list[str]:
    """Return a command of ``pairmill`` as its users write it."""
    return [sys.executable, "-m", "pairmill", name, *(f"{key}={value}" for key, value in options.items())]


def run(arguments: Sequence[str], *, fresh: bool = False) -> Done:
    """Run a program to its end.

    Args:
        fresh: whether a module is forked from another nursery, as where the bytes of two runs are compared: all forks
            of one hash alike.
    """
    start = time.monotonic()
    done: subprocess.CompletedProcess[str]
    if arguments[1] == "-m":
        imported = nursery.STAGES if arguments[3] in STAGES else nursery.PIPELINES
        done = nursery.shared(imported, int(fresh)).run(arguments[2], arguments[3:], environment())
    else:
        done = subprocess.run(
            arguments, cwd=REPOSITORY, env=environment(), capture_output=True, timeout=PATIENCE, check=False, text=True
        )
    return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - start)


def stage(name: str, **options: object) -> Done:
    """Run a stage to its end."""
    return run(command(name, **options))


def folder(done: Done) -> Path:
    """The finished folder that a sharded stage printed."""
    assert done.code == 0, done.err
    path = Path(done.out.removesuffix("\n"))
    assert (path / MANIFEST).is_file()
    return path


def ended(done: Done, code: int = 0) -> Done:
    """The same, with the exit code checked."""
    assert done.code == code, f"exit code {done.code}, expected {code}\n{done.err}"
    return done


def marked(mark: str) -> list[int]:
    """Living processes started with this mark in their environment, or by such a process."""
    wanted = f"PAIRMILL_TEST_MARK={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            if state not in {"Z", "X"} and wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return found


def semaphores(pid: int) -> set[Path]:
    """Named semaphores of a process pool: files in /dev/shm that a process has mapped."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return set()
    # The C library maps them before it gives them their names.
    inodes = {int(line.split()[4]) for line in lines if "/dev/shm/sem." in line}
    with os.scandir("/dev/shm") as entries:
        return {Path(entry.path) for entry in entries if entry.name.startswith("sem.") and entry.inode() in inodes}


def wait_until_gone(mark: str, seconds: float = SOON) -> None:
    """Wait for the last process with this mark to end; fail if one stays."""
    end = time.monotonic() + seconds
    while left := marked(mark):
        assert time.monotonic() < end, f"processes {left} are still alive {seconds} s after their parent was killed"
        time.sleep(0.01)


# Folders


def digests(top: Path) -> dict[str, str]:
    """Digest of every file below a folder, hidden ones included, by relative path."""
    return {path.relative_to(top).as_posix(): digest_file(path) for path in sorted(top.rglob("*")) if path.is_file()}


def recorded(manifest: Mapping[str, Any]) -> dict[str, str]:
    """The digest of every file that a manifest or a record (as JSON) has, by path."""
    return {file["path"]: File.from_json(file).digest for file in manifest["files"]}


def stamps(top: Path) -> dict[str, tuple[int, int, int]]:
    """Inode, size and time of change of every file and folder below one, by relative path."""
    found = {}
    for path in sorted(top.rglob("*")):
        info = path.stat()
        found[path.relative_to(top).as_posix()] = (info.st_ino, info.st_size, info.st_mtime_ns)
    return found


def records(root: Path, name: str) -> dict[str, int]:
    """Time of change of every shard record of a stage, by shard key."""
    shards = root / HOMES[name] / "shards"
    return {path.parent.name: path.stat().st_mtime_ns for path in shards.glob(f"*/{RECORD}")}


def shard_files(shard: Path) -> Path:
    """The folder with the files of a shard, which its record names."""
    return shard / str(read_json(shard / RECORD)["folder"])


def partials(top: Path) -> list[str]:
    """Files and folders left by writers that were interrupted."""
    return sorted(str(path.relative_to(top)) for path in top.rglob(".*.partial"))


def unfinished(root: Path, name: str) -> list[Path]:
    """Result folders of a stage below a root that have no manifest; of fetch those of raw data too."""
    found = [path for path in root.glob(f"{HOMES[name]}/*") if path.name not in {"shards", "downloads"}]
    if name == "fetch":
        found += root.glob("raw/*/*")
    return sorted(path for path in found if path.is_dir() and not (path / MANIFEST).exists())


@contextmanager
def shm_folder() -> Iterator[Path]:
    """A folder of its own in /dev/shm, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="pairmill-test-", dir="/dev/shm"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Disk:
    """A small file system in memory, mounted at ``path``."""

    def __init__(self, path: Path, size: int, *options: str) -> None:
        self.path = path
        path.mkdir(parents=True)
        mount(path, f"size={size}", *options)

    def resize(self, size: int) -> None:
        """Make it larger."""
        mount(self.path, "remount", f"size={size}")

    def read_only(self) -> None:
        """Refuse every write from now on."""
        mount(self.path, "remount", "ro")

    def used(self) -> int:
        """Bytes taken."""
        return shutil.disk_usage(self.path).used

    def remove(self) -> None:
        """Unmount."""
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


# Generated data

_SYLLABLES = ("ba", "co", "di", "fe", "gu", "ha", "ki", "lo", "mi", "ne", "po", "ra", "se", "ti", "vu", "zé")


def words(rng: random.Random, count: int) -> str:
    """Made-up words, the same for the same generator."""
    return " ".join("".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(count))


def gsm8k(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Records of question and worked answer."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        left, right = rng.randint(1, 999), rng.randint(1, 999)
        found.append(
            {
                "question": f"{words(rng, 12)} has {left} and gets {right}. How many?",
                "answer": f"{words(rng, 8)} <<{left}+{right}={left + right}>>\n#### {left + right}",
            }
        )
    return found


def scibench(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Problems, every second with a worked solution."""
    rng = random.Random(seed)
    found = []
    for index in range(count):
        number = f"{rng.uniform(0, 100):.3f}"
        problem = {
            "problem_text": f"{words(rng, 15)} $x={index}$?",
            "answer_latex": f" {number} ",
            "answer_number": number,
            "unit": "$\\mathrm{atm}$",
            "source": "made",
            "problemid": f"e{index}",
            "comment": " ",
        }
        if index % 2:
            problem["solution"] = f"\n{words(rng, 20)}\n$$ {number} $$"
        found.append(problem)
    return found


def dmmath(count: int, seed: int = 0) -> str:
    """Question and answer lines."""
    rng = random.Random(seed)
    lines = []
    for _ in range(count):
        left, right = rng.randint(-(10**6), 10**6), rng.randint(0, 10**6)
        lines.append(f"What is {left} + {right}?\n{left + right}\n")
    return "".join(lines)


def sudoku(count: int, seed: int = 0) -> list[tuple[str, str, str, str]]:
    """Puzzles of 81 cells with a filled grid."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        answer = "".join(rng.choices("123456789", k=81))
        question = "".join("." if rng.random() < 0.6 else digit for digit in answer)
        found.append(("made", question, answer, str(rng.randint(0, 60))))
    return found


def rows(count: int, seed: int = 0, length: int = 12) -> list[RowTuple]:
    """Cleaned rows: condition, instruction, response."""
    rng = random.Random(seed)
    conditions = ("direct", "cot", "noisy", "synth", "direct,cot")
    return [
        (rng.choice(conditions), words(rng, length), f"{words(rng, 5)} {rng.randint(0, 9999)}") for _ in range(count)
    ]


def write_lines(path: Path, records: Sequence[object]) -> Path:
    """JSON Lines of any values; a text is written as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in records]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_table(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    """A Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, **options)
    return path


def write_rows(path: Path, values: Sequence[RowTuple], **options: Any) -> Path:
    """Rows as the extension says."""
    if path.suffix == ".jsonl":
        return write_lines(path, [dict(zip(FIELDS, row, strict=True)) for row in values])
    columns = zip(*values, strict=True) if values else ([], [], [])
    return write_table(
        path, {name: pa.array(column, pa.string()) for name, column in zip(FIELDS, columns, strict=True)}, **options
    )


def write_gsm8k(path: Path, values: Sequence[dict[str, Any]], **options: Any) -> Path:
    """Raw records as the extension says."""
    if path.suffix == ".jsonl":
        return write_lines(path, values)
    return write_table(path, {name: [item[name] for item in values] for name in ("question", "answer")}, **options)


def write_csv(path: Path, values: Sequence[Sequence[str]]) -> Path:
    """A CSV file with the header of sudoku-extreme."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([("source", "question", "answer", "rating"), *values])
    return path


def write_text(path: Path, text: str) -> Path:
    """A text file, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def write_archive(path: Path, members: dict[str, str]) -> Path:
    """A .tar.gz, the same bytes for the same members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, text in members.items():
            data = text.encode()
            header = tarfile.TarInfo(name)
            header.size = len(data)
            archive.addfile(header, io.BytesIO(data))
    path.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return path


def raw_archives(top: Path, size: int, seed: int = 0) -> Path:
    """Two sources as the archives that are published, which fetch unpacks: dmmath and scibench."""
    dm = "mathematics_dataset-v1.0"
    modules = ("train-easy/add", "train-medium/add", "interpolate/add")
    texts = {f"{dm}/{name}.txt": dmmath(size, seed + number) for number, name in enumerate(modules)}
    write_archive(top / "dmmath" / f"{dm}.tar.gz", texts)
    thermo = json.dumps(scibench(size, seed + 10), indent=1)
    members = {"scibench-main/dataset/original/thermo.json": thermo, "scibench-main/README.md": "read me"}
    write_archive(top / "scibench" / "scibench-main.tar.gz", members)
    return top


def raw_data(top: Path, size: int, seed: int = 0) -> None:
    """All four sources: eight raw files of some ``size`` records each, which clean makes seven files of."""
    write_gsm8k(top / "gsm8k_train" / "main" / "train-00000-of-00001.parquet", gsm8k(size, seed), row_group_size=500)
    for number, name in enumerate(("thermo", "waves")):
        write_text(top / "scibench" / f"{name}.json", json.dumps(scibench(size, seed + 10 + number), indent=1))
    dm = top / "dmmath" / "mathematics_dataset-v1.0"
    for number, module in enumerate(("train-easy/add", "train-easy/sub", "train-medium/add", "train-hard/gcd")):
        write_text(dm / f"{module}.txt", dmmath(size, seed + 20 + number))
    write_csv(top / "sudoku" / "train.csv", sudoku(size, seed + 30))


def rules(path: Path, text: str = "") -> Path:
    """A rule file; by default one that works in every profile."""
    return write_text(path, text or "- prefix: dmmath__\n  max_per_file: 500\n- prefix: sudoku_extreme__\n")


def read_json(path: Path) -> dict[str, Any]:
    """An object in a file."""
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def read_manifest(top: Path) -> dict[str, Any]:
    """The manifest of a finished folder."""
    return read_json(top / MANIFEST)


def write_manifest(top: Path, manifest: dict[str, Any]) -> None:
    """Put a manifest that was read and changed into a folder, as if pairmill had written it."""
    raw = {key: value for key, value in manifest.items() if key != "sha256"}
    (top / MANIFEST).write_bytes(manifests.seal(json.dumps(raw).encode()))


def remove(top: Path) -> None:
    """Remove a folder, so that large ones do not pile up."""
    shutil.rmtree(top)
