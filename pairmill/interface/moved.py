"""The answer to commands of earlier versions: ``pairmill clean`` names ``pairmill clean``."""

import sys
from typing import Final

_PROGRAMS: Final = {"local": "run"}
"""Programs of ``pipelines`` that have another name now."""


def refuse_old_command() -> None:
    """End the process with exit code 2 and the new command, if it was started as ``python -m`` one of the old ones."""
    options = sys.orig_argv[1:]
    module = options[options.index("-m") + 1] if "-m" in options[:-1] else ""
    package, _, program = module.partition(".")
    program = program.removesuffix(".__main__")
    if package not in {"components", "pipelines"} or not program or "." in program:
        return
    if package == "components" and program in {"compare", "search"}:
        program = f"stage {program}"
    arguments = options[options.index("-m") + 2 :]
    command = " ".join(["pairmill", _PROGRAMS.get(program, program), *arguments])
    sys.stderr.write(f"python -m {module} is now a command; write: {command}\n")
    raise SystemExit(2)
