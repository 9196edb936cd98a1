"""A watcher that serves is killed at any instant: no server is left, nothing is lost, nothing is repeated."""

import json
import os
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from pairmill.encoder import PRE_TOKENIZER
from pairmill.engine import runner
from pairmill.interface import cli
from pairmill.stages.evaluate import served, watch
from pairmill.stages.evaluate.config import EvaluateConfig, WatchConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.evaluate.models import server
from tests.support.helpers import alive, until
from tests.support.processes.crash_points import STRIDE, crashes
from tests.unit.stages.evaluate.test_watch import RUN, save

SERVER = """
import json, os, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
port, model, notes = sys.argv[1:]
def note(kind, text):
    with open(f"{notes}/{kind}", "a") as file:
        file.write(text + "\\n")
note("processes", f"{os.getpid()} {os.getppid()}")
if not os.path.exists(f"{model}/name"):
    time.sleep(1000)  # one that loads its model for long
name = open(f"{model}/name").read()
class Handler(BaseHTTPRequestHandler):
    def answer(self, code, made):
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(made).encode())
    def do_GET(self):
        self.answer(200, {"data": [{"id": name}]})
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/completions"):
            return self.answer(404, {})
        note("asked", json.dumps([name, body["prompt"]]))
        self.answer(200, {"choices": [{"text": "\\\\boxed{4}", "finish_reason": "stop"}]})
ThreadingHTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()
"""


def tokenizer() -> str:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={text: at for at, text in enumerate(alphabet)}, merges=[]))
    made.decoder = decoders.ByteLevel()
    return json.dumps({**json.loads(made.to_str()), "pre_tokenizer": PRE_TOKENIZER})


class Notes:
    """What servers noted: their processes with those that guard them, and what they were asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def _lines(self, kind: str) -> list[str]:
        path = self.folder / kind
        return path.read_text().splitlines() if path.exists() else []

    def ended(self) -> bool:
        return not any(alive(int(pid)) for line in self._lines("processes") for pid in line.split())

    def begun(self) -> int:
        return len(self._lines("processes"))

    def questions(self) -> Counter[str]:
        return Counter(self._lines("asked"))

    def clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    (tmp_path / "serve.py").write_text(SERVER)
    return Notes(tmp_path / "notes")


def command(notes: Notes) -> str:
    return f"{sys.executable} -S {notes.folder.parent}/serve.py {{port}} {{model}} {notes.folder}"


def test_a_kill_while_serving_leaves_no_server_and_repeats_nothing(
    tmp_path: Path, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    for step in (4, 8):
        save(root / "train/shards" / RUN, step)
    rows = [
        {"question": f"What is {number} plus 2?", "answer": f"#### {number + 2}"} for number in range(65)
    ]  # two pieces
    (tmp_path / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def start(program: str, *arguments: str) -> str:
        """Do in this process, which is what is killed, what the watcher has processes for."""
        if program == "train":
            given = cli.split(arguments[1:])
            Path(given["output"]).mkdir()
            (Path(given["output"]) / "tokenizer.json").write_text(tokenizer())
            (Path(given["output"]) / "name").write_text(Path(given["run"]).name)
            return ""
        server._connection.cache_clear()  # that of the process that was forked
        return runner.run(Evaluate(), cli.build(EvaluateConfig, cli.split(arguments))).uri

    monkeypatch.setattr(watch, "start", start)
    config = WatchConfig(
        root=str(root),
        run=str(root),
        every=4,
        benchmarks=["gsm8k"],
        data=[f"gsm8k={tmp_path / 'gsm8k.jsonl'}"],
        set=["server.at_once=1"],
        serve=command(notes),
    )

    def work() -> dict[str, bytes]:
        watcher = watch.Watcher(config, watch.find_run(config.run))
        watcher.work()
        folder = Path(watcher.place.removeprefix("file://"))
        paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

    whole = work()
    assert whole.keys() == {"results/00000004.json", "results/00000008.json", "table.csv"}
    every = notes.questions()
    assert len(every) == every.total() == 2 * len(rows)
    assert notes.begun() == 2
    until(notes.ended, "servers end with their evaluations")

    def begin_anew() -> None:
        shutil.rmtree(root / "evaluate")
        notes.clear()

    begin_anew()
    served_when_killed = 0
    for instant in crashes(work, root, stride=2 * STRIDE + 1):
        until(notes.ended, f"no server is left after a kill at instant {instant}")
        served_when_killed += notes.begun() > 0
        assert work() == whole, f"killed at instant {instant}"
        until(notes.ended, "servers end with their evaluations")
        # Nothing is lost, and of all pieces only the one that was not committed is asked again.
        asked = notes.questions()
        assert asked.keys() == every.keys()
        assert asked.total() <= every.total() + 64
        begin_anew()
    assert served_when_killed > 0


def test_a_kill_while_a_server_begins_leaves_none(tmp_path: Path, notes: Notes) -> None:
    child = os.fork()
    if not child:
        with served.running(command(notes), str(tmp_path)):  # it has no name there: it never answers
            os._exit(1)
    until(lambda: notes.begun() and notes.folder, "the server begins")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    until(notes.ended, "no server is left")
