"""A stage that tells its peak memory, with every constant divided that is a number of bytes, whatever it is called.

    python -m tests.support.processes.measured <file for KiB> <divisor> <divisor of slices> <stage> <option>…

A divisor of 1 changes nothing.
"""

import importlib
import pkgutil
import resource
import runpy
import sys
from dataclasses import astuple
from pathlib import Path

from pairmill.formats.slices import Slicing


def divide(stage: str, scale: int, slices: int) -> None:
    """Divide them in all modules of ours that the stage imports."""
    for module in pkgutil.iter_modules(importlib.import_module(f"pairmill.stages.{stage}").__path__):
        importlib.import_module(f"pairmill.stages.{stage}.{module.name}")
    divided = 0
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pairmill":
            for key, value in list(vars(module).items()):
                if type(value) is int and 1 << 20 <= value <= 1 << 29 and value % (1 << 16) == 0:
                    setattr(module, key, value // scale)
                    divided += 1
                elif isinstance(value, Slicing):
                    setattr(module, key, Slicing(*(size // slices for size in astuple(value))))
                    divided += 1
    assert divided > 3


if __name__ == "__main__":
    peak, scale, slices, *sys.argv[1:] = sys.argv[1:]
    if scale != "1":
        divide(sys.argv[1], int(scale), int(slices))
    try:
        runpy.run_module("pairmill", run_name="__main__", alter_sys=True)
    finally:
        Path(peak).write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
