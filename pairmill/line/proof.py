"""What a contribution of data has to show, in one folder: ``out=`` of :mod:`pairmill.line.compare`.

A change that changes no array (an optimization) shows checksums, and time and memory before and after. Any other shows
analytics before and after, the runs, the verdict, and the place that follows from it: main, or a branch of its own.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from pairmill import storage
from pairmill.digest import split
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File
from pairmill.errors import UsageError
from pairmill.formats.results.sample import SampleResult
from pairmill.interface import cli
from pairmill.line.runs import Ended, RunFailure
from pairmill.stages.compare.plans import Plan
from pairmill.stages.compare.result import ALIKE

_TIMES: Final = 3
"""That the arrays of both are made, in turns; the middle one is told."""
_SUMS: Final = "B3SUMS"
"""The checksums of the arrays, as ``b3sum --check`` reads them."""


class ComparisonOptions(Protocol):
    """The options of a comparison that its proof follows from."""

    out: str
    runs: int
    plans: str
    before: str


def refuse_existing(out: str) -> None:
    """Raise UsageError if the folder is there already: a proof is of one comparison."""
    path = Path(storage.local_path(storage.normalise(out, "out")))
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UsageError("exists already", where="out", got=str(path), expected="a new or empty folder")


def write(values: ComparisonOptions, folder: str, ended: Sequence[Ended]) -> str:
    """Write the proof of a finished comparison; returns the folder.

    Args:
        values: of the comparison, with two plans.
        folder: that the stage compare made.
        ended: its tasks.

    Raises:
        UsageError: there are more plans, or a change of data has no runs.
    """
    plans = _plans(values)
    out = Path(storage.local_path(storage.normalise(values.out, "out")))
    equal = _arrays(plans[0]) == _arrays(plans[1])
    if not equal and not values.runs:
        hint = "leave runs=0 out: a change of data is proved by trainings"
        raise UsageError("the arrays differ, and there are no runs", where="out", got="runs=0", hint=hint)
    out.mkdir(parents=True, exist_ok=True)
    text = _optimization(plans, values, out) if equal else _change(plans, folder, ended, out)
    (out / "README.md").write_text(text)
    return str(out)


def _plans(values: ComparisonOptions) -> list[Plan]:
    named = [item.rpartition("=") for item in cli.split_list(values.plans)]
    if len(named) != 2:
        raise UsageError(
            "a proof is of one change", where="plans", got=f"{len(named)} plans", expected="<base>,<change>"
        )
    titles = [name or fallback for (name, _, _), fallback in zip(named, ("base", "change"), strict=True)]
    return [Plan.open(title, place) for title, (_, _, place) in zip(titles, named, strict=True)]


def _arrays(plan: Plan) -> dict[str, str]:
    """Checksums of the arrays that a plan describes."""
    files = map(File.from_json, SampleResult.from_manifest(plan.manifest).sample)
    return {file.path: file.digest for file in files}


def _optimization(plans: Sequence[Plan], values: ComparisonOptions, out: Path) -> str:
    base, change = plans
    lines = [f"{split(digest)[1]}  {path}" for path, digest in sorted(_arrays(base).items())]
    (out / _SUMS).write_text("\n".join(lines) + "\n")
    measured: dict[str, list[tuple[float, float]]] = {base.name: [], change.name: []}
    programs = {base.name: values.before, change.name: ""}
    for _ in range(_TIMES):
        for plan in plans:
            measured[plan.name].append(_made(plan, programs[plan.name]))
    figures = {
        name: {
            "seconds": statistics.median(item[0] for item in some),
            "peak_mb": statistics.median(item[1] for item in some),
        }
        for name, some in measured.items()
    }
    (out / "measured.json").write_text(json.dumps({"middle": figures, "all": measured}, indent=1) + "\n")
    rows = [f"| {name} | {item['seconds']:.2f} s | {item['peak_mb']:,.0f} MB |" for name, item in figures.items()]
    program = "the program in before=" if values.before else "this program, as before= names no other"
    return "\n".join(
        [
            f"# [Opt] {change.name} against {base.name}",
            "",
            f"All {len(lines)} arrays have the checksums that they had: {_SUMS}. Plans: {base.manifest.fingerprint} "
            f"and {change.manifest.fingerprint}.",
            "",
            "| arrays made by | time | peak memory |",
            "|---|---|---|",
            *rows,
            "",
            f"Middle of {_TIMES} times each, in turns, on {os.cpu_count()} cores; {base.name} by {program}. All are in "
            "measured.json.",
            "",
        ]
    )


def _made(plan: Plan, program: str) -> tuple[float, float]:
    """Measure the seconds and peak megabytes of making the arrays of a plan, by the program of a checkout."""
    where = storage.local_path(storage.normalise(program, "before")) if program else None
    environment = {**os.environ, "PAIRMILL_LOG": "json"} | ({"PYTHONPATH": str(where)} if where else {})
    with tempfile.TemporaryDirectory(prefix="pairmill-proof-") as folder:
        command = [sys.executable, "-m", "pairmill", "sample", f"plan={plan.uri}", f"output_path={folder}/arrays"]
        begun = time.monotonic()
        process = subprocess.Popen(
            command, env=environment, cwd=where, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RunFailure("sample", process.returncode)
        return time.monotonic() - begun, usage.ru_maxrss / 1024


def _change(plans: Sequence[Plan], folder: str, ended: Sequence[Ended], out: Path) -> str:
    base, change = plans
    for title, plan in (("before", base), ("after", change)):
        (out / f"analytics-{title}.md").write_text(SampleResult.from_manifest(plan.manifest).analytics)
    manifest = manifests.read_intact(folder)
    for name in ("compare.json", "table.md", "report.html"):
        (out / name).write_bytes(manifests.read_file(folder, manifest, name))
    result = json.loads((out / "compare.json").read_text())
    (pair,) = result["pairs"]
    tasks = [vars(item) | {"folder": storage.name_of(item.folder)} for item in ended]
    (out / "runs.json").write_text(json.dumps({"runs": result["runs"], "tasks": tasks}, indent=1) + "\n")
    place = place_of(result)
    return "\n".join(
        [
            f"# [Major] {change.name} against {base.name}",
            "",
            pair["sentence"],
            "",
            place,
            "",
            f"- Analytics of plan {base.manifest.fingerprint} before and {change.manifest.fingerprint} after: "
            "analytics-before.md, analytics-after.md.",
            f"- {len(result['runs'])} runs of {len(result['seeds'])} seeds with {result['budget']['tokens']:,} "
            f"{result['budget']['of']} tokens each: runs.json, report.html.",
            "",
            (out / "table.md").read_text(),
        ]
    )


def place_of(result: Mapping[str, Any]) -> str:
    """Say in a sentence what place a change has on the frontier of compute and loss, by its verdict."""
    base, change = result["frontier"]
    (pair,) = result["pairs"]
    ratio = change["flops"] / base["flops"]
    cost = f"{ratio:.2f} times the compute"
    if pair["verdict"] == "better" and ratio <= ALIKE:
        return f"**Place: main.** It is better with {cost}, so the base is no longer on the frontier."
    if pair["verdict"] == "worse" and ratio * ALIKE >= 1:
        return f"**Place: none.** It is worse with {cost}: the base is on the frontier, and it is not."
    if pair["verdict"] in ("better", "worse"):
        return f"**Place: a branch of its own.** It is {pair['verdict']} with {cost}: both are on the frontier."
    return f"**Place: not known.** These runs do not tell the two apart, with {cost}: main stays as it is."
