"""Killed before, inside or after any write, the stage goes on to the same bytes, and asks nothing twice."""

import json
import shutil
from pathlib import Path

import pytest

from pairmill.engine import runner
from pairmill.stages.evaluate import asking
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.evaluate.models import server
from tests.support.processes.crash_points import STRIDE, crashes
from tests.support.servers.completions import Completions

QUESTIONS = 5


def test_a_kill_at_any_instant_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "PIECE", 2)
    data, root = tmp_path / "gsm8k.jsonl", tmp_path / "root"
    rows = [{"question": f"What is {one} plus 2?", "answer": f"#### {one + 2}"} for one in range(QUESTIONS)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    with Completions(lambda body: r"\boxed{4}") as completions:

        def evaluate() -> dict[str, str]:
            server._connection.cache_clear()  # a forked child must not write to its parent's connection
            config = EvaluateConfig(
                model=completions.url,
                benchmarks=["gsm8k"],
                data=[f"gsm8k={data}"],
                set=["server.model=tiny", "server.at_once=1"],
                root=str(root),
            )
            return {file.path: file.digest for file in runner.run(Evaluate(), config).manifest.files}

        whole = evaluate()
        assert {"results.json", "report.html", "report.md", "questions/gsm8k.jsonl"} == whole.keys()
        shutil.rmtree(root)
        completions.asked.clear()
        instant = 0
        for instant in crashes(evaluate, root, stride=STRIDE):
            assert evaluate() == whole, f"killed at instant {instant}"
            # A piece that was asked and not committed is asked again, no other one.
            assert QUESTIONS <= len(completions.asked) <= QUESTIONS + 2
            completions.asked.clear()
            shutil.rmtree(root)
        assert instant > 20
