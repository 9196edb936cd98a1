"""The example data by two plans, natural shares and a mixture: compared, and the chart of it. ``make compare`` runs it.

python examples/compare.py <folder of raw files> <root> <python with torch> [chart.svg]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from pairmill.report.points import Pareto, Spot

TOP = Path(__file__).resolve().parent.parent
SETTINGS = TOP / "examples" / "compare_config.yaml"


def planned(raw: str, root: str, *options: str) -> dict[str, str]:
    """Run the line up to a plan; the folders of its stages by name."""
    command = [sys.executable, "-m", "pairmill", "run", f"raw={raw}", f"root={root}", "output_path="]
    command += ["vocab_size=512", "holdout=0.1", "epochs=3", *options]
    done = subprocess.run(command, cwd=TOP, check=True, stdout=subprocess.PIPE, text=True)
    return dict(re.findall(r"^  (\w[\w, ]*?) +(?:made|reused) +[0-9.]+ s  (.+)$", done.stdout, re.MULTILINE))


def chart(result: Path) -> Pareto:
    """Held-out loss over compute, all runs and all the way."""
    results = json.loads(result.read_text())
    spots = [
        Spot(run["plan"], point["flops"], point["loss"], end=point is run["curve"][-1])
        for run in results["runs"]
        for point in run["curve"]
    ]
    return Pareto("Compute against held-out loss", spots, "FLOPs of a training", "nats a token")


def main(raw: str, root: str, python: str, target: str = "") -> None:
    natural = planned(raw, root)
    mixture = planned(raw, root, "mix_config=examples/mix_config.yaml")
    options = {
        "plans": f"natural={natural['sample']},mixture={mixture['sample']}",
        "held_out": natural["sample, held out"],
        "root": root,
        "budget": "40000",
        "train_config": str(SETTINGS),
    }
    command = [python, "-m", "pairmill", "compare", *(f"{name}={value}" for name, value in options.items())]
    done = subprocess.run(command, cwd=TOP, check=True, stdout=subprocess.PIPE, text=True)
    folder = Path(done.stdout.splitlines()[0])
    if target:
        Path(target).write_text(chart(folder / "compare.json").svg())
    sys.stdout.write(f"{(folder / 'table.md').read_text()}\nreport: {folder}/report.html\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
