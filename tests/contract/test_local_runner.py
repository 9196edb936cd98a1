"""The line on this machine: stages as processes, and what a cluster would refuse is refused."""

import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pairmill import log
from pairmill.errors import UsageError
from pairmill.interface import chain
from pairmill.line import run as local
from pairmill.line.runs import Here, RunFailure, StageRun
from pairmill.line.stages import EVERY
from pairmill.line.table import LINE
from tests.support.helpers import environment, python
from tests.support.processes import nursery

# A program that keeps the launcher's contract, and breaks it where it is told to.
PROGRAM = """
import json, os, sys
from pathlib import Path

_, flag, text = sys.argv[1:]
assert flag == "--executor-input", sys.argv
given = json.loads(text)
values = given.get("inputs", {}).get("parameterValues", {})
print("chatter of the program")
if values.get("exit_code"):
    sys.exit(int(values["exit_code"]))
if values.get("mode") == "killed":
    os.kill(os.getpid(), 9)
outputs = given["outputs"]

def put(path, text):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)

result = {"output": values.get("text", "") + "!", "fingerprint": "f", "rows_out": 7}
if values.get("mode") == "forget":
    del result["rows_out"]
for name, value in result.items():
    put(outputs["parameters"][name]["outputFile"], str(value))
fields = {"data": os.environ.get("TOY", "somewhere"), "reused": "false"}
artifacts = {}
for name in ("manifest", "metrics", "report"):
    uri = outputs["artifacts"][name]["artifacts"][0]["uri"]
    put(uri, name)
    artifacts[name] = {"artifacts": [{"name": name, "uri": uri, "metadata": fields}]}
if values.get("mode") != "silent":
    put(outputs["outputFile"], json.dumps({"parameterValues": result, "artifacts": artifacts}))
"""


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program as module ``toys.program``, found by child processes."""
    (tmp_path / "code" / "toys").mkdir(parents=True)
    (tmp_path / "code" / "toys" / "program.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'code'}{os.pathsep}{environment()['PYTHONPATH']}")


def toy(here: Here | None = None, **options: Any) -> StageRun:
    """Run the program as the stage clean."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "PROGRAM", ("toys.program",))
        return (here or Here(1, output=sys.stderr))("clean", **options)


# --- values and results ---------------------------------------------------------------------------------------------


def test_options_and_results_come_through() -> None:
    here = Here(1)
    made = toy(here, text="é $(x) ${HOME} 'q' \"d\"")
    assert made.outputs == {"output": "é $(x) ${HOME} 'q' \"d\"!", "fingerprint": "f", "rows_out": 7}
    (ended,) = here.ended
    assert (ended.stage, ended.exit_code, ended.reused, ended.folder) == ("clean", 0, False, "somewhere")
    assert ended.seconds > 0


def test_programs_see_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY", "seen")
    here = Here(1)
    toy(here)
    assert here.ended[0].folder == "seen"


def test_what_programs_print_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with os.fdopen(os.dup(2), "w") as stderr:
        toy(Here(1, output=stderr))
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "chatter of the program" in captured.err


# --- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1, 2, 3, 4, 5])
def test_a_failing_task_fails_the_run_with_its_exit_code(code: int) -> None:
    with pytest.raises(RunFailure, match=f"task clean failed; got exit code {code}") as caught:
        toy(Here(1), exit_code=code)
    assert caught.value.exit_code == code


def test_a_killed_task_fails_the_run() -> None:
    with pytest.raises(RunFailure) as caught:
        toy(Here(1), mode="killed")
    assert caught.value.exit_code == 5


@pytest.mark.parametrize(
    ("mode", "message"),
    [("forget", "task clean did not write rows_out"), ("silent", "task clean did not write executor output")],
)
def test_a_task_that_forgets_a_declared_output_fails_the_run(
    mode: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # A cluster fails it too.
    log.setup()
    with pytest.raises(RunFailure) as caught:
        toy(Here(1), mode=mode)
    assert caught.value.exit_code == 5
    assert message in capfd.readouterr().err


# --- the table ------------------------------------------------------------------------------------------------------


class Recorded(Here):
    """Runs nothing; keeps which stage was asked for with which options."""

    def __init__(self) -> None:
        super().__init__(1)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, stage: str, /, **options: Any) -> StageRun:
        self.asked.append((stage, options))
        self.ended.append(local.Ended(stage, 0, 0.0))
        given = {f"given_{name}": f"/given/{name}" if options.get(name) else "" for name in local.KINDS}
        return StageRun({"output": f"<{stage}>", "fingerprint": "f", **(given if stage == "fetch" else {})})


def values_of(**given: Any) -> dict[str, Any]:
    kind = local.parameters.parameters_class("train_config" in given)
    return dataclasses.asdict(local.cli.build(kind, {"root": "/root", **given}))


def test_each_task_reads_an_earlier_one_by_an_option_of_its_stage() -> None:
    names: set[str] = set()
    for task in LINE:
        options = {item.name for item in dataclasses.fields(EVERY[task.stage].config)}
        assert set(task.reads) | set(task.options) <= options, task
        assert set(task.reads.values()) <= names, task
        names.add(task.name)
    assert len(names) == len(LINE)


def test_a_task_gets_its_options_and_the_results_that_it_reads() -> None:
    here = Recorded()
    local.run(values_of(holdout="0.1", seed=3, train_config="net.yaml", output_path="/arrays"), (), here)
    assert [stage for stage, _ in here.asked] == [task.stage for task in LINE]
    asked = dict(here.asked)  # of sample the held-out rows'
    assert asked["curate"].items() >= {"rows": "<clean>", "raw": "<fetch>"}.items()
    assert asked["tokenize"].items() >= {"rows": "<select>", "tokenizer": "<train_tokenizer>"}.items()
    assert asked["sample"].items() >= {"held_out": True, "tokenized_path": "<tokenize>", "seed": 3}.items()
    assert "mixture" not in asked["sample"]
    assert here.asked[7][1]["mixture"] == "<mix>"
    assert "held_out" not in here.asked[7][1]
    wanted = {"sampled": "<sample>", "held_out": "<sample>", "samples_path": "/arrays", "root": "/root"}
    assert asked["train"] == {**wanted, "train_config": "net.yaml", "set": ""}


def test_what_is_given_stands_for_the_results_of_tasks_that_are_left_out() -> None:
    here = Recorded()
    values = values_of(rows="hf://datasets/a/b", tokenizer="hf://a/t")
    local.run(values, ("clean", "train_tokenizer", "select", "mix"), here)
    asked = dict(here.asked)
    assert list(asked) == ["fetch", "curate", "tokenize", "sample"]
    assert asked["fetch"]["rows"] == "hf://datasets/a/b"
    assert asked["curate"]["rows"] == "/given/rows"
    assert asked["tokenize"].items() >= {"rows": "<curate>", "tokenizer": "/given/tokenizer"}.items()
    assert "mixture" not in asked["sample"]

    here = Recorded()
    local.run(values_of(tokenized="/t"), ("clean", "curate", "select", "train_tokenizer", "tokenize"), here)
    assert [stage for stage, _ in here.asked] == ["fetch", "mix", "sample"]
    assert here.asked[1][1]["tokenized_path"] == here.asked[2][1]["tokenized_path"] == "/given/tokenized"
    assert "rows" not in here.asked[1][1]


def test_the_line_needs_no_kfp(tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(('kfp', 'kubernetes')))\n"
        "runpy.run_module('pairmill', run_name='__main__', alter_sys=True)"
    )
    (tmp_path / "raw" / "gsm8k_train").mkdir(parents=True)
    (tmp_path / "raw" / "gsm8k_train" / "train.jsonl").write_text("{\n" * 30)
    done = python("-c", code, "run", f"raw={tmp_path}/raw", f"root={tmp_path}/root")
    assert (done.returncode, done.stdout) == (3, "")
    assert "task clean failed; got exit code 3" in done.stderr


# --- the real pipeline ----------------------------------------------------------------------------------------------


def project(folder: Path) -> list[str]:
    """Raw data of two sources, and the arguments of a run."""
    answers = [
        {"question": f"What is {number} and {number}?", "answer": f"Add.\n#### {2 * number}"} for number in range(60)
    ]
    raw = folder / "raw"
    (raw / "gsm8k_train").mkdir(parents=True)
    (raw / "gsm8k_train" / "train.jsonl").write_text("".join(json.dumps(item) + "\n" for item in answers))
    (raw / "dmmath" / "train-easy").mkdir(parents=True)
    (raw / "dmmath" / "train-easy" / "add.txt").write_text("".join(f"{n} + 1 = ?\n{n + 1}\n" for n in range(80)))
    (folder / "rules.yaml").write_text("- prefix: dmmath__\n  max_per_file: 20\n")
    return [
        f"raw={raw}",
        f"root={folder / 'root'}",
        f"prefix_config_path={folder / 'rules.yaml'}",
        f"output_path={folder / 'sampled'}",
        "vocab_size=400",
        "epochs=2",
    ]


def forked(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return nursery.shared(nursery.PIPELINES).run("pairmill", ["run", *arguments], environment())


def test_the_pipeline_runs_from_raw_data_to_epochs_and_then_reuses_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path /= "my data, and more"
    # A comma separates the items of lists, and clean's folder becomes an item of two.
    arguments = [item.replace(str(tmp_path), "~/my data, and more") for item in project(tmp_path)]
    # Stages as processes of their own, as its users have them.
    done = python("-m", "pairmill", "run", *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for stage in ("clean", "train_tokenizer", "tokenize", "sample"):
        assert [line for line in lines if line.split()[:2] == [stage, "made"]], done.stdout
    rounds = re.findall(r'"message": "(\w+) (\d+)/(\d+) [a-z ]+: \d+/\d+ shards in ', done.stderr)
    assert {stage for stage, *_ in rounds} >= {"clean", "curate", "train_tokenizer", "tokenize", "sample"}
    assert all(1 <= int(number) <= int(count) for _, number, count in rounds), rounds
    # Its report is its last round.
    assert [number == count for stage, number, count in rounds if stage == "curate"][-1]
    assert (tmp_path / "sampled" / "epoch_1" / "inst_start.npy").is_file()
    assert not (tmp_path / "sampled" / "epoch_2").exists()
    (report,) = [line.split(maxsplit=1)[1] for line in lines if line.strip().startswith("report:")]
    assert Path(report).is_file()
    again = forked(*arguments)
    assert again.returncode == 0, again.stderr
    assert "every stage was reused" in again.stdout
    assert " made " not in again.stdout


def test_the_pipeline_ends_with_the_exit_code_of_the_stage_that_failed(tmp_path: Path) -> None:
    arguments = project(tmp_path)
    with (tmp_path / "raw" / "gsm8k_train" / "train.jsonl").open("a") as file:
        file.write("{\n" * 30)
    done = forked(*arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert "30 of 90 records of gsm8k_train are malformed" in done.stderr
    assert "task clean failed" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "root" / "tokenizer").exists()


def test_rules_are_absolute_where_they_are_given_and_the_default_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages start in the same folder; only of a default do they take it that it is absent."""
    seen: list[str] = []

    def run(values: dict[str, Any], *_: Any) -> None:
        seen.append(values["prefix_config_path"])
        raise UsageError("enough")

    monkeypatch.setattr(local, "run", run)
    monkeypatch.chdir(tmp_path)
    project(tmp_path)
    for given in ([], ["prefix_config_path=rules.yaml"]):
        assert local.main(["raw=raw", "root=root", *given]) == 2
    assert seen == ["prefix_config.yaml", str(tmp_path / "rules.yaml")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["raw=x"], "root: required option missing"),
        (["raw=x", "root=y", "epoch=3"], "did you mean 'epochs'?"),
        (["raw=x", "root=nfs://server/x"], "nfs://"),
        (["raw=x", "root=y", "epochs=many"], "epochs"),
        # Not by the last stage, after all others have done their work.
        (["raw=x", "root=y", "epochs=0"], "epochs: out of range"),
        (["raw=x", "root=y", "vocab_size=3"], "vocab_size: is too small"),
        (["raw=x", "root=y", "profile=nonsense"], "profile: "),
    ],
)
def test_the_pipelines_options_are_checked_like_those_of_a_stage(arguments: list[str], said: str) -> None:
    done = forked(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in json.loads(done.stderr.splitlines()[-1])["message"]


def test_help_shows_every_parameter_of_the_pipeline() -> None:
    from pairmill.line.parameters import Parameters

    done = forked("--help")
    assert (done.returncode, done.stderr) == (0, "")
    names = [item.name for item in dataclasses.fields(Parameters)]
    assert len(names) >= 10
    for name in names:
        assert f"\n  {name}  (" in done.stdout
    assert "\n      \n" not in done.stdout  # an option without a meaning


@pytest.mark.parametrize("module", ["compile", "run"])
def test_help_names_the_command_that_was_asked(module: str) -> None:
    done = python("-m", "pairmill", module, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"usage: pairmill {module} key=value")
