"""A Slurm of this machine: ``sbatch``, ``srun`` and ``scontrol`` in a folder for PATH; tasks are processes."""

import os
import sys
from pathlib import Path

_PROGRAM = Path(__file__).with_name("program.py")


def install(folder: Path) -> dict[str, str]:
    """Make the programs in ``folder``; returns the environment in which they are found, pairmill's beside them."""
    (folder / "bin").mkdir(parents=True)
    for name in ("sbatch", "srun", "scontrol"):
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{_PROGRAM}" {name} "$@"\n')
        script.chmod(0o755)
    programs = [str(folder / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]]
    return {**os.environ, "PATH": os.pathsep.join(programs), "SLURM_DOUBLE": str(folder)}
