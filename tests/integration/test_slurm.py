"""``manifests/slurm`` on a Slurm of this machine: the bytes of one process, whoever is killed."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pairmill.line.table import LINE
from tests.support import tools
from tests.support.data.results import manifests
from tests.support.helpers import PATIENCE, REPOSITORY
from tests.support.processes import slurm
from tests.support.processes.typed_program import TypedProgram

SCRIPTS = REPOSITORY / "manifests" / "slurm"
OPTIONS = {"sources": "gsm8k_train,scibench,sudoku", "vocab_size": 300, "epochs": 1, "context_size": 513}


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    done = tools.run([*tools.command("none")[:1], str(REPOSITORY / "examples/make_raw.py"), str(folder)])
    assert done.code == 0, done.err
    return folder


class Line:
    """The line on a folder of its own, below a Slurm of its own."""

    def __init__(self, folder: Path, raw: Path, programs: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        self.slurm = folder / "slurm"
        environment = {**os.environ, **slurm.install(self.slurm)}
        path = f"{programs}{os.pathsep}{environment['PATH']}"
        self.environment = {**environment, "PATH": path, "TMPDIR": str(folder)}
        self.file = folder / "run.yaml"
        values = {"raw": str(raw), "root": str(self.root), **OPTIONS}
        self.file.write_text("".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items()))

    def submit(self, tasks: int, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.bash(str(SCRIPTS / "line.sh"), str(self.file), str(tasks), "--partition=small", **environment)

    def bash(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        env = {**self.environment, **environment}
        return subprocess.run(
            ["bash", *command], env=env, cwd=REPOSITORY, capture_output=True, text=True, timeout=PATIENCE, check=False
        )

    def tasks(self) -> list[str]:
        """Return the tasks that ended: name, index, restarts, exit code."""
        return (self.slurm / "tasks").read_text().splitlines()

    def log(self, name: str) -> str:
        return "".join(path.read_text() for path in sorted(self.slurm.glob(f"{name}-*.log")))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with ``pairmill``; it hashes in another way than what ``tools.stage`` starts."""
    folder = tmp_path_factory.mktemp("programs")
    with closing(TypedProgram(folder)):
        yield folder


@pytest.fixture
def line(tmp_path: Path, raw: Path, programs: Path) -> Line:
    return Line(tmp_path, raw, programs)


@pytest.fixture(scope="module")
def expected(raw: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What one process makes."""
    root = tmp_path_factory.mktemp("alone")
    tools.ended(tools.stage("run", raw=raw, root=root, **OPTIONS))
    return manifests(str(root))


def test_tasks_that_are_killed_and_queued_again_give_the_bytes_of_one_process(
    line: Line, expected: dict[str, bytes]
) -> None:
    record = f"{line.root}/clean/shards/*/_RECORD.json"
    (line.slurm / "kill").write_text(f"clean 1 TERM {record}\nclean 2 KILL {record}\n")
    done = line.submit(3, STAGES="clean")
    assert done.returncode == 0, done.stderr + line.log("clean")
    assert done.stdout.splitlines()[-2:] == ["clean: job 100", "all: job 101"]
    assert {"clean 1 0 143", "clean 2 0 137"} < set(line.tasks())
    assert sorted(task for task in line.tasks() if task.endswith(" 0")) == [
        *("all None 0 0", "clean 0 0 0", "clean 1 1 0", "clean 2 1 0"),
    ]
    assert "exit code 143: queued again" in line.log("clean")
    assert manifests(str(line.root)) == expected


@pytest.mark.long
@pytest.mark.parametrize("tasks", [2, pytest.param(4, marks=pytest.mark.full)])
def test_the_whole_chain(line: Line, expected: dict[str, bytes], tasks: int) -> None:
    (line.slurm / "kill").write_text(f"tokenize {tasks - 1} KILL {line.root}/tokenize/shards/*/_RECORD.json\n")
    done = line.submit(tasks)
    assert done.returncode == 0, done.stderr
    named = [text.partition(":")[0] for text in done.stdout.splitlines() if ": job " in text]
    assert named == [*(task.stage for task in LINE if task.shared), "all"]
    assert len({task.rpartition(" ")[0].rpartition(" ")[0] for task in line.tasks()}) == tasks * 5 + 1
    assert manifests(str(line.root)) == expected


def test_an_option_that_is_wrong_is_refused_before_anything_is_submitted(line: Line) -> None:
    line.file.write_text(line.file.read_text() + "shards: 7\n")
    done = line.submit(2, STAGES="clean")
    assert done.returncode == 2
    assert f"{line.file}" in done.stderr
    assert "unknown option" in done.stderr
    assert not (line.slurm / "jobs").exists()


def test_a_job_after_one_that_failed_does_not_run(line: Line) -> None:
    script = line.folder / "program.sh"
    script.write_text('case "$*" in *upto=fetch*) exit 0 ;; *upto=clean*) exit 3 ;; esac\n')
    done = line.submit(2, STAGES="clean", PAIRMILL=f"bash {script}")
    assert done.returncode == 0, done.stderr
    assert line.tasks() == ["clean 0 0 3", "clean 1 0 3"] or line.tasks() == ["clean 1 0 3", "clean 0 0 3"]
    assert (line.slurm / "jobs" / "101").read_text() == "1"


def test_what_fails_again_and_again_is_given_up(line: Line) -> None:
    script = line.folder / "program.sh"
    script.write_text('case "$*" in *upto=fetch*) exit 0 ;; esac\nexit 5\n')
    line.submit(1, STAGES="clean", PAIRMILL=f"bash {script}")
    assert line.tasks() == [f"clean 0 {restart} 5" for restart in range(4)]


def test_without_its_arguments_it_says_how_it_is_called(line: Line) -> None:
    done = line.bash(str(SCRIPTS / "line.sh"), str(line.file))
    assert done.returncode == 2
    assert done.stderr.startswith("line.sh run.yaml 16 ")


@pytest.mark.parametrize("name", ["stage.sbatch", "line.sh"])
def test_the_scripts_are_bash(name: str) -> None:
    done = subprocess.run(["bash", "-n", str(SCRIPTS / name)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert os.access(SCRIPTS / "line.sh", os.X_OK)
