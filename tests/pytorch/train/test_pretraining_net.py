"""The Pretraining Pipeline's own run ends in a Llama-style net: the command of its page, on a part of the files."""

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.processes import nursery
from tests.support.processes.nursery import TRAINING

ROOT = Path(__file__).resolve().parents[3]
SOURCES = {"c4", "bookcorpus", "the_stack", "cc_news", "arxiv"}


def test_the_net_of_five_sources_has_a_perplexity_for_each(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    folder, named = tmp_path / "build" / "pretraining", f"sources={','.join(sorted(SOURCES))}"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PAIRMILL_LOG": "json"}

    def run(*arguments: str) -> str:
        done = nursery.shared(TRAINING).run("pairmill", arguments, env, folder=str(tmp_path))
        assert done.returncode == 0, done.stderr
        return done.stdout

    made = [sys.executable, "examples/make_raw.py", folder / "raw", named]
    subprocess.run(made, cwd=tmp_path, env=env, check=True)
    places = [f"raw={folder}/raw", f"root={folder}", f"output_path={folder}/sampled"]
    options = ["limit=60", "holdout=2", "vocab_size=512", "context_size=257", "epochs=2"]
    run("run", named, *places, *options)

    page = (ROOT / "docs/pretraining_pipeline.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"<!-- training -->\n```sh\npairmill (.*?)\n```", page, re.DOTALL)
    short = (
        "set=training.steps=6,schedule.warmup_steps=1,training.threads=1,watch.every_steps=1,evaluation.every_steps=3"
    )
    result = Path(run(*command.replace("\\\n", " ").split(), short).strip())

    lines = [json.loads(line) for line in (result / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if line["kind"] == "step"]
    assert len(losses) == 6
    assert losses[-1] < losses[0]
    assert abs(losses[0] - math.log(512)) < 1, "a net that knows nothing yet"
    last = [line for line in lines if line["kind"] == "heldout"][-1]
    for kind in ("heldout_loss", "heldout_perplexity"):
        assert kind in last
    assert {name.partition("/")[2] for name in last if name.startswith("heldout_loss/")} == SOURCES
    assert json.loads((result / "config.json").read_text())["model"]["net"] == "llama"
    assert "heldout" in (result / "report.html").read_text().lower().replace("-", "").replace(" ", "")
