"""The programs. A job runs to its end before ``sbatch`` returns: what depends on it begins afterwards.

``$SLURM_DOUBLE/jobs/<number>`` has the exit code of each job, ``$SLURM_DOUBLE/tasks`` a line for each task that ended:
job name, index, restarts, exit code. ``$SLURM_DOUBLE/kill`` may have lines ``<job name> <index> <signal> <file>``: the
program of that task, when it runs for the first time, gets the signal once a file of that pattern exists: TERM goes to
the batch shell, as ``--signal=B:TERM`` sends it, and KILL to the program.
"""

import glob
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HOME = Path(os.environ["SLURM_DOUBLE"])


def options_of(arguments: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options, those of the script's comments included, and the script with its arguments."""
    given = {}
    while arguments and arguments[0].startswith("--"):
        name, _, value = arguments.pop(0)[2:].partition("=")
        given[name] = value
    text = Path(arguments[0]).read_text()
    written = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text, re.MULTILINE))
    return {**written, **given}, arguments


def sbatch(arguments: list[str]) -> int:
    given, script = options_of(arguments)
    (HOME / "jobs").mkdir(exist_ok=True)
    job = 100 + len(list((HOME / "jobs").iterdir()))
    wanted = given.get("dependency", "").removeprefix("afterok:")
    if wanted and (HOME / "jobs" / wanted).read_text() != "0":
        assert given["kill-on-invalid-dep"] == "yes", "the job would wait for ever"
        (HOME / "jobs" / str(job)).write_text("1")
        print(job)
        return 0
    first, _, last = given.get("array", "").partition("-")
    indices = [*range(int(first), int(last or first) + 1)] if first else [None]
    with ThreadPoolExecutor(len(indices)) as pool:
        codes = [*pool.map(lambda index: task(given, script, job, index, indices), indices)]
    (HOME / "jobs" / str(job)).write_text(str(max(codes)))
    print(job)
    return 0


def task(given: dict[str, str], script: list[str], job: int, index: int | None, indices: list[int | None]) -> int:
    name, number = given["job-name"], job * 1000 + (index or 0)
    own = {"SLURM_JOB_ID": str(number), "SLURM_JOB_NAME": name}
    if index is not None:
        array = {"JOB_ID": job, "TASK_ID": index, "TASK_COUNT": len(indices), "TASK_STEP": 1}
        array |= {"TASK_MIN": indices[0], "TASK_MAX": indices[-1]}
        own |= {f"SLURM_ARRAY_{key}": str(value) for key, value in array.items()}
    asked = HOME / f"requeue-{number}"
    for restart in range(100):
        more = {"SLURM_RESTART_COUNT": str(restart)} if restart else {}
        with (HOME / f"{name}-{job}_{index}.log").open("ab") as log:
            code = subprocess.run(
                ["bash", *script], env={**os.environ, **own, **more}, stdout=log, stderr=log
            ).returncode
        with (HOME / "tasks").open("a") as ended:
            ended.write(f"{name} {index} {restart} {code}\n")
        if not asked.exists():
            return code
        assert "requeue" in given, "a job that may not be queued again"
        asked.unlink()
    raise AssertionError(f"{name}: queued again without end")


def srun(arguments: list[str]) -> int:
    program = subprocess.Popen(arguments, start_new_session=True)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(program.pid, signal.SIGTERM))
    me = (os.environ["SLURM_JOB_NAME"], os.environ.get("SLURM_ARRAY_TASK_ID", ""))
    plans = [line.split() for line in (HOME / "kill").read_text().splitlines()] if (HOME / "kill").exists() else []
    for name, index, number, pattern in plans:
        if (name, index) != me or "SLURM_RESTART_COUNT" in os.environ:
            continue
        while not glob.glob(pattern) and program.poll() is None:
            time.sleep(0.001)  # a program that was forked ends soon after its last record
        if number == "TERM":
            os.kill(os.getppid(), signal.SIGTERM)
        else:
            os.killpg(program.pid, signal.SIGKILL)
    code = program.wait()
    return code if code >= 0 else 128 - code


def scontrol(arguments: list[str]) -> int:
    assert arguments[0] == "requeue", arguments
    (HOME / f"requeue-{arguments[1]}").touch()
    return 0


if __name__ == "__main__":
    sys.exit({"sbatch": sbatch, "srun": srun, "scontrol": scontrol}[sys.argv[1]](sys.argv[2:]))
