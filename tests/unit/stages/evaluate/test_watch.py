"""Checkpoints are asked as they appear: each once, whenever the watcher is killed; tables of runs join by tokens."""

import csv
import io
import json
import shutil
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.csv
import pytest

from pairmill.digest import digest_bytes
from pairmill.engine import runner
from pairmill.engine.manifest import File, canonical
from pairmill.errors import InputError, PairmillError, UsageError
from pairmill.nets.settings import ModelSettings
from pairmill.nets.trained import Trained
from pairmill.stages.evaluate import command
from pairmill.stages.evaluate import watch as watch_module
from pairmill.stages.evaluate.config import WatchConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.evaluate.curves import HEAD, TableConfig, table
from pairmill.stages.evaluate.models import server
from pairmill.stages.evaluate.watch import NoRun, TakenCheckpoint, Watcher, find_run, watch
from tests.support.processes.crash_points import STRIDE, crashes
from tests.support.servers.completions import Completions

RUN = "5" * 64


def save(run: Path, step: int, *, last: int = 8, weights: str = "", seconds: float = 0.0) -> Path:
    """A complete checkpoint, as train writes one."""
    folder = run / "checkpoints" / f"{step:08}"
    folder.mkdir(parents=True)
    data = (weights or f"weights of {step}").encode()
    (folder / "part-0of1.safetensors").write_bytes(data)
    trained = Trained(asdict(ModelSettings()), 512, 64, {}, steps=step)
    says = {"steps": last, "epochs": 2, "watch": {"tokens": 100 * step, "seconds": seconds}}
    raw = {
        "files": [File("part-0of1.safetensors", len(data), digest_bytes(data)).to_json()],
        "tensors": {},
        "says": {**says, "trained": trained.to_json()},
    }
    (folder / "_RECORD.json").write_bytes(canonical(raw))
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for step in (2, 4, 6):
        save(root / "train/shards" / RUN, step)
    rows = [{"question": f"What is {one} plus 2?", "answer": f"#### {one + 2}"} for one in range(4)]
    (tmp_path / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def options(root: Path, **more: Any) -> WatchConfig:
    given = {"run": str(root), "every": 4, "wait": False, "benchmarks": ["gsm8k"], **more}
    return WatchConfig(root=str(root), data=[f"gsm8k={root.parent / 'gsm8k.jsonl'}"], **given)


class Asking:
    """Asks a server in place of the checkpoint; notes the steps."""

    def __init__(self, url: str) -> None:
        self.url, self.steps = url, list[int]()

    def __call__(self, config: WatchConfig, asked: TakenCheckpoint) -> str:
        server._connection.cache_clear()  # a forked child must not write to its parent's connection
        self.steps.append(asked.step)
        assert (Path(asked.folder.removeprefix("file://")) / "part-0of1.safetensors").exists()
        said = ["server.model=tiny", "server.at_once=1", f"server.revision='{asked.checkpoint.content[:16]}'"]
        return runner.run(Evaluate(), config.asked_of(self.url, set=said)).uri


def watched(root: Path, asking: Asking, **more: Any) -> Watcher:
    config = options(root, **more)
    watcher = Watcher(config, find_run(config.run), asking)
    watcher.work()
    return watcher


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_checkpoints_that_are_due_are_asked_once(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Completions(lambda body: r"\boxed{4}") as completions:
        asking = Asking(completions.url)
        watched(project, asking)
        assert asking.steps == [4]  # the first of each four steps; 6 is neither, nor the last
        save(project / "train/shards" / RUN, 8)
        (project / "train/shards" / RUN / "checkpoints/00000009").mkdir()  # not complete
        watcher = watched(project, asking)
        assert asking.steps == [4, 8]
        watched(project, asking)
        assert asking.steps == [4, 8]
        # Saved again with other clocks it is the same; with other weights it is not.
        shutil.rmtree(project / "train/shards" / RUN / "checkpoints/00000008")
        save(project / "train/shards" / RUN, 8, seconds=3.0)
        watched(project, asking)
        assert asking.steps == [4, 8]
        shutil.rmtree(project / "train/shards" / RUN / "checkpoints/00000008")
        save(project / "train/shards" / RUN, 8, weights="others")
        watched(project, asking)
        assert asking.steps == [4, 8, 8]
    folder = Path(watcher.place.removeprefix("file://"))
    assert not list((folder / "checkpoints").iterdir())  # what was taken is given back
    assert command.main([f"table={project}", "format=csv"]) == 0
    found = lines(capsys.readouterr().out)
    assert tuple(found[0]) == HEAD
    figures = [row for row in found if row["metric"] == "gsm8k"]
    assert [(row["run"], row["step"], row["tokens"], row["epoch_fraction"]) for row in figures] == [
        (RUN[:16], "4", "400", "1.0"),
        (RUN[:16], "8", "800", "2.0"),
    ]
    assert [(row["value"], row["n"]) for row in figures] == [("0.25", "4")] * 2
    assert float(figures[0]["low"]) < 0.25 < float(figures[0]["high"])
    assert (folder / "table.csv").read_text() == table(TableConfig(runs=[str(project)], format="csv"))


def test_a_run_that_ends_ends_the_watcher(project: Path) -> None:
    save(project / "train/shards" / RUN, 8)
    with Completions(lambda body: "") as completions:
        asking = Asking(completions.url)
        watched(project, asking, wait=True, every=1000)
    assert asking.steps == [8]


def test_a_run_that_is_not_there_or_stops_is_waited_for_as_long_as_was_asked(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root, paused = tmp_path / "later", list[float]()

    def begin(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 2:
            save(root / "train/shards" / RUN, 4)

    hours = iter(range(100))  # a quarter of one a look
    clock = SimpleNamespace(sleep=begin, monotonic=lambda: 900.0 * next(hours))
    monkeypatch.setattr(watch_module, "time", clock)
    with pytest.raises(NoRun, match="idle_hours=1 waits an hour for it"):
        watch(options(root, wait=True))
    assert paused == []
    with Completions(lambda body: "") as completions:
        asking = Asking(completions.url)
        monkeypatch.setattr(watch_module, "ask_by_process", asking)
        with caplog.at_level("WARNING"):
            shown = watch(options(root, wait=True, idle_hours=1.0))
    assert asking.steps == [4]
    assert len(paused) > 3
    assert "ended without the last step" in caplog.text
    assert shown.splitlines()[1].split()[:2] == [RUN[:16], "4"]


def test_a_kill_at_any_instant_loses_and_repeats_nothing(project: Path) -> None:
    save(project / "train/shards" / RUN, 8)
    with Completions(lambda body: r"\boxed{4}") as completions:
        asking = Asking(completions.url)

        def work() -> dict[str, bytes]:
            folder = Path(watched(project, asking).place.removeprefix("file://"))
            paths = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")]
            return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

        whole = work()
        assert whole.keys() == {"results/00000004.json", "results/00000008.json", "table.csv"}
        shutil.rmtree(project / "evaluate")
        completions.asked.clear()
        instant = 0
        for instant in crashes(work, project, stride=STRIDE):
            assert work() == whole, f"killed at instant {instant}"
            # Four questions a checkpoint: a piece that was asked and not committed is asked again, no other one.
            assert 8 <= len(completions.asked) <= 12
            completions.asked.clear()
            shutil.rmtree(project / "evaluate")
        assert instant > 40


def test_a_checkpoint_that_is_deleted_before_it_is_taken_is_named(
    project: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = options(project)
    watcher = Watcher(config, find_run(config.run), Asking(""))

    def vanish(found: Any) -> None:
        raise InputError("no such object", where=found.uri)

    monkeypatch.setattr(watcher, "_link", vanish)
    with caplog.at_level("WARNING"):
        watcher.take()
        watcher.take()
    assert caplog.text.count("step 4 was deleted before it was taken; raise checkpoints.keep") == 1
    assert watcher.due() == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["every=0"], 2, "every: out of range; got 0; expected 1 or more"),
        (["every=4", "share=1/2"], 2, "share: not with watch="),
        (["every=4", "model=x"], 2, "model: not with watch="),
        (["every=4", "benchmarks=gsm9k"], 2, "did you mean 'gsm8k'"),
        (["every=4", "serve=vllm"], 2, "a command with {port}"),
        (["every=4", "idle_hours=-1"], 2, "idle_hours: out of range; got -1"),
        ([], 2, "every: required option missing"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    project: Path, arguments: list[str], code: int, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = [f"watch={project}", f"root={project}"]
    given += [] if any("benchmarks" in one for one in arguments) else ["benchmarks=gsm8k"]
    assert command.main([*given, *arguments]) == code
    assert message in capfd.readouterr().err


def test_a_root_without_a_run_or_with_several_is_refused(project: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no run of train.*start the training first"):
        find_run(str(tmp_path))
    save(project / "train/shards" / ("6" * 64), 2)
    with pytest.raises(InputError, match=r"several runs.*5555555555555555, 6666666666666666"):
        find_run(str(project))
    run = project / "train/shards" / RUN
    assert find_run(str(run)) == find_run(str(run / "checkpoints")) == f"{run}/checkpoints"


def figures(place: Path, run: str, asked: str, steps: dict[int, dict[str, float]]) -> str:
    folder = place / f"{run}-{asked}"
    (folder / "results").mkdir(parents=True)
    for step, values in steps.items():
        metrics = [[name, value, 10, None, None, "figure"] for name, value in values.items()]
        raw = {"tokens": 10 * step, "epoch_fraction": None, "metrics": metrics}
        (folder / "results" / f"{step:08}.json").write_text(json.dumps(raw))
    return str(folder)


def test_runs_join_by_tokens_and_averages_are_of_complete_rows(tmp_path: Path) -> None:
    one = figures(tmp_path, "aaaa", "1", {4: {"gsm8k": 0.5, "math": 0.25, "arc": 1.0}, 8: {"gsm8k": 0.75}})
    other = figures(tmp_path, "bbbb", "1", {6: {"gsm8k": 0.1, "math": 0.3}})
    text = table(TableConfig(runs=[one, other], averages=["both:gsm8k+arc"]))
    head, *rows, note = text.splitlines()
    assert head.split() == ["run", "step", "tokens", "epoch", "gsm8k", "math", "arc", "both", "average"]
    assert [row.split() for row in rows] == [
        ["aaaa", "4", "40", "—", "50.0", "25.0", "100.0", "75.0", "37.5"],
        ["bbbb", "6", "60", "—", "10.0", "30.0", "—", "—", "20.0"],
        ["aaaa", "8", "80", "—", "75.0", "—", "—", "—", "—"],
    ]
    assert note == "The average is without arc, which not every run has."
    found = lines(table(TableConfig(runs=[one, other], format="csv")))
    assert [row["value"] for row in found if row["metric"] == "average"] == ["0.375", "0.2"]
    # As strangers read it: figures are numbers, an interval that is not known is null, and runs join by tokens.
    read = pyarrow.csv.read_csv(io.BytesIO(table(TableConfig(runs=[one, other], format="csv")).encode()))
    assert read.column_names == list(HEAD)
    kinds = {field.name: str(field.type) for field in read.schema}
    assert [kinds[name] for name in ("run", "step", "tokens", "metric", "value", "n")] == [
        *("string", "int64", "int64", "string", "double", "int64")
    ]
    frame = read.to_pandas()
    curves = frame[frame.metric == "gsm8k"].pivot_table(index="tokens", columns="run", values="value")
    assert curves["aaaa"].dropna().to_dict() == {40: 0.5, 80: 0.75}
    assert curves["bbbb"].dropna().to_dict() == {60: 0.1}
    again = figures(tmp_path, "aaaa", "2", {4: {"gsm8k": 0.0}})
    assert {row["run"] for row in lines(table(TableConfig(runs=[one, again], format="csv")))} == {"aaaa-1", "aaaa-2"}


@pytest.mark.parametrize("average", ["both", "both:", ":gsm8k", "both:gsm8k+", "both:gsm8k+mmlu"])
def test_averages_that_are_none_are_refused(tmp_path: Path, average: str) -> None:
    place = figures(tmp_path, "aaaa", "1", {4: {"gsm8k": 0.5}})
    with pytest.raises(UsageError, match=r"not an average|no such metric"):
        table(TableConfig(runs=[place], averages=[average]))
    with pytest.raises(PairmillError, match="no figures of a watched run"):
        table(TableConfig(runs=[str(tmp_path / "absent")]))
