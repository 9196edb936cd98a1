"""evaluate with a benchmark of the Hub, by id and revision: a process that talks to a Hub and to a model's server."""

import json
import subprocess
import time
from pathlib import Path

from tests.support import tools
from tests.support.helpers import PATIENCE
from tests.support.servers.completions import Completions
from tests.support.servers.downloads import Hub


def lines(answers: list[int]) -> bytes:
    rows = [{"question": f"What is {one}?", "answer": f"#### {one}"} for one in answers]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def evaluate(hub: Hub, model: str, top: Path, data: str) -> tools.Done:
    given = {"model": model, "benchmarks": "gsm8k", "data": f"gsm8k={data}", "root": top / "root"}
    start = time.monotonic()
    done = subprocess.run(
        tools.command("evaluate", **given, set="server.model=tiny"),
        cwd=tools.REPOSITORY,
        env={**tools.environment(), **hub.environment(top / "home")},
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        text=True,
    )
    return tools.Done(done.returncode, done.stdout, done.stderr, time.monotonic() - start)


def test_a_benchmark_of_the_hub_stays_at_its_commit(tmp_path: Path) -> None:
    with Hub() as hub, Completions(lambda body: body["prompt"].split()[-1][:-1]) as completions:
        first = hub.add("o/sums", {"test.jsonl": lines([1, 2])})
        made = tools.folder(evaluate(hub, completions.url, tmp_path, "o/sums"))
        results = json.loads((made / "results.json").read_text())["benchmarks"]["gsm8k"]
        assert (results["all"]["n"], results["all"]["figure"]) == (2, 1)
        assert (results["data"]["place"], results["data"]["revision"]) == ("o/sums", first)
        second = hub.add("o/sums", {"test.jsonl": lines([1, 2, 3])})
        assert tools.folder(evaluate(hub, completions.url, tmp_path, "o/sums")) == made
        assert len(completions.asked) == 2
        other = tools.folder(evaluate(hub, completions.url, tmp_path, f"o/sums@{second}"))
        assert json.loads((other / "results.json").read_text())["benchmarks"]["gsm8k"]["all"]["n"] == 3
        failed = tools.ended(evaluate(hub, completions.url, tmp_path, "o/sums@v9"), 3)
        assert "the revision does not exist" in failed.message
