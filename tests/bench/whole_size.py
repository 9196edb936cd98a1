"""The largest users' size once: 16,023 tasks, 284 million rows, 10 epochs; plan only, then with tasks and epochs more.

``PYTHONPATH=. python tests/bench/whole_size.py <folder with 40 GB> [tasks=16023] [rows=284000000] [epochs=10]
[memory=1024]``. With ``DATA_IO=<a checkout of data_io>`` its own sampler runs too, without its copy of the tokens: ours
makes none either, and a tenth of the rows then needs 20 GB. Index arrays are real (9 GB), token files sparse. The plan
is of ``layout=reference``, so no token is read, and the arrays of an epoch go to the folder too. Prints seconds, CPU
seconds and peak memory of each process, and ends with exit code 1 if memory is above ``memory`` MiB, or adding a task
takes more than a tenth of the time.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from bench_sample import Made, run

from tests.support.data import dfm

_WITHOUT_TOKENS = """
import sys
sys.path.insert(0, sys.argv.pop(1))
import sample_tokenized
def place(tasks, *_):
    start = 0
    for task in tasks:
        task.mmap_base_offset = start
        start += int(task.indices.inst_len.sum() + task.indices.resp_len.sum())
sample_tokenized.concat_tokens = place
sample_tokenized.main()
"""
"""Runs data_io's sampler; a task's tokens get their place and are not copied to it."""


def main(place: str, *options: str) -> int:
    """Measure all of it in this folder, which is removed at the end; return the exit code."""
    given = {"tasks": dfm.DFM11, "rows": 284_000_000, "epochs": 10, "memory": 1024}
    given |= {name: int(value) for name, _, value in (option.partition("=") for option in options)}
    folder = Path(place) / "whole-size"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        start = time.perf_counter()
        total = dfm.write(folder / "base", given["tasks"], given["rows"])
        dfm.write(folder / "new", len(dfm.FAMILIES) * 10, given["rows"] // 1000, seed=1, first=dfm.DFM11)
        dfm.write_rules(folder / "rules.yaml", dfm.old_rules())
        print(
            f"{given['tasks']:,} tasks, {given['rows']:,} rows, {total:,} tokens: {time.perf_counter() - start:.0f} s"
        )
        rules, root = f"prefix_config_path={folder / 'rules.yaml'}", f"root={folder / 'root'}"
        same = [rules, root, "layout=reference", f"epochs={given['epochs']}", "output_path="]
        whole = _made("plan", folder, f"tokenized_path={folder / 'base'}", *same)
        if reference := os.environ.get("DATA_IO"):
            # It takes every folder for a task, and its buffer holds no epoch of more rows than the folder has.
            once = [{key: rule[key] for key in rule if key != "repeat"} for rule in dfm.old_rules()]
            dfm.write_rules(folder / "once.yaml", once)
            out = folder / "data_io"
            places = [
                f"tokenized_path={folder / 'base'}",
                f"prefix_config_path={folder / 'once.yaml'}",
                f"output_path={out}",
            ]
            command = [sys.executable, "-c", _WITHOUT_TOKENS, reference, *places, f"epochs={given['epochs']}"]
            _print("data_io, without tokens", run(command, out))
            shutil.rmtree(out)
        plan = next((folder / "root" / "sample").glob("[0-9a-f]*"))
        both = f"tokenized_path={folder / 'base'},new={folder / 'new'}"
        more = _made("the same and 190 small tasks", folder, both, *same, f"base={plan}")
        further = [item.replace(f"epochs={given['epochs']}", f"epochs={given['epochs'] + 2}") for item in same]
        further.append(f"extend={plan}")
        _made("the same and two epochs more", folder, f"tokenized_path={folder / 'base'}", *further)
        return int(max(whole.peak, more.peak) > given["memory"] or more.cpu > whole.cpu / 10)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _made(title: str, folder: Path, *options: str) -> Made:
    made = run([sys.executable, "-m", "pairmill", "sample", *options], folder / "none")
    _print(title, made)
    return made


def _print(title: str, made: Made) -> None:
    print(f"{title}: {made.seconds:.1f} s, {made.cpu:.1f} CPU seconds, {made.peak:.0f} MiB", flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
