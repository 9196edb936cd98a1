"""The command line: parsing, --help, exit codes, and what goes to stdout and stderr."""

import dataclasses
import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_type_hints

import pytest

from pairmill import storage
from pairmill.engine.options import default_of, list_item, option
from pairmill.errors import InputError, InternalError, PairmillError, StorageError, UsageError
from pairmill.interface import cli, command
from pairmill.interface.cli import Outcome
from pairmill.report.model import Report
from tests.support.helpers import PATIENCE, REPOSITORY, environment, python
from tests.support.processes import nursery
from tests.support.stages.toy_stage import COMMAND
from tests.support.tools import STAGES


@dataclass(kw_only=True)
class Options:
    """Do a thing."""

    place: str = option(help="where")
    count: int = option(3, help="how many")
    fraction: float = option(0.5, help="how much")
    loud: bool = option(False, help="whether")
    kind: Literal["bpe", "unigram"] = option("bpe", help="which")
    names: list[str] = option(["a", "b"], help="who")
    note: str = option("", help="what else")


def outcome(**changed: Any) -> Outcome:
    values = {
        "stdout": "the result\n",
        "parameters": {"output": "/x", "rows": 5},
        "metrics": {"rows": 5},
        "report": lambda: Report("t"),
        "manifest": lambda: b"{}",
    }
    return Outcome(**{**values, **changed})


def build(*arguments: str) -> Options:
    return cli.build(Options, cli.split(arguments))


def config_class(stage: str) -> type[Any]:
    module = import_module(f"pairmill.stages.{stage}.config")
    name = "".join(part.capitalize() for part in stage.split("_")) + "Config"
    found: type[Any] = getattr(module, name)
    return found


# --- parsing --------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_dataclass() -> None:
    assert build("place=x") == Options(place="x")


def test_values_are_read_by_the_type_of_their_option() -> None:
    found = build(
        "place=5", "count= 65_536 ", "fraction=1e-3", "loud=true", "kind=unigram", "names=x, y ,,z", "note=null"
    )
    assert found == Options(
        place="5", count=65536, fraction=0.001, loud=True, kind="unigram", names=["x", "y", "z"], note="null"
    )


def test_a_value_may_hold_an_equals_sign_and_be_empty() -> None:
    assert build("place=a=b=c").place == "a=b=c"
    assert build("place=").place == ""
    assert build("place=x", "names=").names == []
    assert build("place=x", "names=direct=<|a|>,cot=<|b|>").names == ["direct=<|a|>", "cot=<|b|>"]


LITERAL = [
    "${HOME}",
    "$(HOME)",
    "$HOME",
    "${oc.env:HOME}",
    "${place}",
    "a ${x} b ${y}",
    "${",
    "}",
    "\\",
    "a\\${HOME}",
    "\\${HOME}",
    "\\\\${HOME}",
    "a\\",
    "???",
    "None",
    "null",
    "~",
    "[1;2]",
    "{a: b}",
    "!!python/object:x",
    "é 日 😀",
    " spaces ",
    "'quoted'",
    '"quoted"',
    "# no remark",
    "a\nb",
    "%41",
]


@pytest.mark.parametrize("text", LITERAL)
def test_a_text_means_itself(text: str) -> None:
    assert build(f"place={text}").place == text
    assert cli.build(Options, {"place": text}).place == text


@pytest.mark.parametrize("text", LITERAL)
def test_an_item_of_a_list_means_itself(text: str) -> None:
    assert build("place=x", f"names=first,{text}").names == ["first", text.strip()]
    assert cli.build(Options, {"place": "x", "names": ["first", text]}).names == ["first", text.strip()]


@pytest.mark.parametrize("name", ["count", "fraction", "loud", "kind"])
@pytest.mark.parametrize(
    "text", ["${oc.env:A_SECRET}", " ${oc.env:A_SECRET,5}", "${oc.decode:${oc.env:A_SECRET}}", "???"]
)
def test_nothing_that_a_user_gives_is_resolved(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    executor_input = {"inputs": {"parameterValues": {"place": "x", name: text}}, "outputs": {"outputFile": "/nowhere"}}
    on_kubeflow = ["--executor-input", json.dumps(executor_input)]
    for value, arguments in product(("open sesame", "5", "true", "bpe"), (["place=x", f"{name}={text}"], on_kubeflow)):
        monkeypatch.setenv("A_SECRET", value)  # some of them would be right
        monkeypatch.setattr("pairmill.redact._secrets", list)  # it must not come as far as that
        assert cli.main("toy", Options, lambda options: outcome(stdout=repr(options)), arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        (line,) = (json.loads(line)["message"] for line in captured.err.splitlines())
        assert text.strip() in line
        assert "open sesame" not in line
    with pytest.raises(UsageError, match=name):
        cli.build(Options, {"place": "x", name: {"a": text}})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["place=x", "cuont=4"], "cuont: unknown option; expected one of place, count.*did you mean 'count'?"),
        (["place=x", "zzz=4"], "zzz: unknown option"),
        (["place=x", "PLACE=y"], "PLACE: unknown option"),
        ([], "place: required option missing"),
        (["count=4"], "place: required option missing.*see --help"),
        (["place"], "arguments: not an option; got 'place'; expected key=value"),
        (["=x"], "arguments: not an option"),
        (["--place", "x"], "arguments: not an option; got '--place'; write place=x"),
        (["count=3", "--place", "x y", "loud=true"], "arguments: .*; write place=x y$"),
        (["--max-count"], "arguments: .*; write max_count=…"),
        (["-p", "--place"], "arguments: .*; write p=…"),
        (["--"], "arguments: not an option"),
        (["--place=x"], "--place: unknown option.*did you mean 'place'?"),
        ([""], "arguments: not an option"),
        (["place=x", "place=y"], "place: given twice; got 'x' and 'y'"),
        (["place=x", "count=many"], "count: .*expected integer"),
        (["place=x", "count=1.5"], "count: .*expected integer"),
        (["place=x", "count="], "count: .*expected integer"),
        (["place=x", "count=null"], "count: .*expected integer"),
        (["place=x", "fraction=half"], "fraction: .*expected number"),
        (["place=x", "loud=maybe"], r"loud: .*expected true\|false"),
        (["place=x", "kind=wordpiece"], r"kind: .*expected bpe\|unigram"),
        (["place=x", "kind=BPE"], "kind: "),
        (["place=x", "count=${fraction}"], "count: "),
    ],
)
def test_what_is_wrong_is_a_usage_error_that_says_what_would_be_right(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=f"^{said}") as caught:
        build(*arguments)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    assert cli.main("toy", Options, lambda options: outcome(), arguments) == 2
    assert capsys.readouterr().out == ""


def test_a_run_file_has_options_of_a_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text("place: x\nnames: ['a,b', c]\ncount: 3\n")
    shown: list[Options] = []

    def run(options: Options) -> Outcome:
        shown.append(options)
        return outcome()

    assert cli.main("toy", Options, run, [str(path), "count=4"], {"look": cli.Command(Options, repr)}) == 0
    assert shown == [Options(place="x", names=["a,b", "c"], count=4)]
    path.write_text("place: x\ncuont: 3\n")
    capsys.readouterr()
    assert cli.main("toy", Options, run, [str(path)]) == 2
    assert "toy.yaml line 2, cuont: unknown option" in capsys.readouterr().err
    assert len(shown) == 1


def test_a_comma_in_an_item_is_escaped() -> None:
    assert build("place=x", r"names=/data/a\,b,c").names == ["/data/a,b", "c"]
    assert build("place=x", r"names=\,,a\b,\\").names == [",", r"a\b", "\\\\"]
    assert cli.build(Options, {"place": "x", "names": [r"a\,b", "c,d"]}).names == [r"a\,b", "c,d"]

    @dataclass(kw_only=True)
    class Listed:
        names: list[str] = option(["a,b", "c"], help="n")

    assert cli.build(Listed, {"names": default_of(dataclasses.fields(Listed)[0])}) == Listed()
    assert r"A comma in an item of a list is written \," in cli.help_text("x", Listed)


def test_a_folder_of_clean_is_an_item_of_a_list_in_a_pipeline(tmp_path: Path) -> None:
    from pairmill.stages.clean.core import Clean
    from pairmill.stages.tokenize.core import Tokenize

    assert [stage.output_in_list for stage in (Clean, Tokenize)] == [True, False]
    assert cli.build(Options, {"place": "x", "names": list_item("s3://a,b/c")}).names == ["s3://a,b/c"]


def test_a_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert storage.normalise("~/a/b", "root") == str(tmp_path / "a" / "b")
    assert storage.normalise("~", "root") == str(tmp_path)
    for name in ("./~", "a~", "x/~/y"):
        assert storage.normalise(name, "root") == os.path.abspath(name)
    assert storage.normalise("s3://bucket/~/x", "root") == "s3://bucket/~/x"


def demo_arguments(folder: Path, given: Mapping[str, str]) -> list[str]:
    """The arguments with which ``make demo`` calls Python."""
    (folder / "venv" / "bin").mkdir(parents=True)
    program = folder / "venv" / "bin" / "python"
    program.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    program.chmod(0o755)
    for name in (".installed", ".built"):
        (folder / "venv" / name).touch()
    command = ["make", "--no-print-directory", "demo", f"VENV={folder / 'venv'}"]
    command += [f"{name}={value}" for name, value in given.items()]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    arguments: list[str] = json.loads(done.stdout.splitlines()[-1])
    return arguments


@pytest.mark.parametrize("raw", ["a b", "it's", 'a "b"; exit 1', "~/x"])
def test_make_demo_takes_any_path(raw: str, tmp_path: Path) -> None:
    places = {"RAW": raw, "ROOT": f"{raw}/root", "OUT": f"{raw}/out", "SOURCES": f"{raw},c"}
    wanted = ["-m", "pairmill", "run", f"raw={raw}", f"root={raw}/root", f"output_path={raw}/out", f"sources={raw},c"]
    found = demo_arguments(tmp_path, {**places, "OPTIONS": "seed=1 workers=2"})
    assert found == [*wanted, "epochs=3", "seed=1", "workers=2"]


@pytest.mark.parametrize(
    ("given", "raw", "vocab", "settings"),
    [
        ({}, True, True, True),
        ({"SOURCES": "gsm8k_train"}, True, True, True),
        ({"SOURCES": "own.yaml"}, False, False, False),
        ({"SOURCES": "gsm8k_train,s3://b/own.yml"}, False, False, False),
        ({"ROWS": "rows"}, False, False, False),
        ({"TOKENIZER": "t.json"}, True, False, True),
    ],
)
def test_make_demo_gives_data_of_ones_own_the_full_defaults(
    given: dict[str, str], raw: bool, vocab: bool, settings: bool, tmp_path: Path
) -> None:
    words = demo_arguments(tmp_path, given)
    assert ("raw=build/raw" in words) == raw
    assert ("vocab_size=512" in words) == vocab
    assert any(word.startswith("curate_config=examples/") for word in words) == settings
    assert all(f"{name.lower()}={value}" in words for name, value in given.items())


def test_make_says_that_cargo_is_missing_before_anything_is_installed(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("make", "sh", "find", "cat", "uname"):
        (tools / name).symlink_to(str(shutil.which(name)))
    command = ["make", "develop", f"VENV={tmp_path / 'venv'}", f"PYTHON={sys.executable}"]
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, check=False, env={"PATH": str(tools)}
    )
    assert done.returncode == 2
    assert "cargo is needed" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_numbers_from_kubeflow_come_as_doubles() -> None:
    given = {"place": "x", "count": 8192.0, "fraction": 1, "loud": True, "names": "a,b"}
    assert cli.build(Options, given) == Options(place="x", count=8192, fraction=1.0, loud=True)
    assert type(cli.build(Options, given).count) is int
    for value in (1.5, True, None, [3], {"a": 1}):
        with pytest.raises(UsageError, match="count"):
            cli.build(Options, {"place": "x", "count": value})


def test_an_options_class_refuses_what_it_finds_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    @dataclass(kw_only=True)
    class Strict:
        count: int = option(1, help="c")
        seen: list[str] = field(default_factory=list)

        def __post_init__(self) -> None:
            if self.count < 0:
                raise UsageError("is negative", where="count")

    assert cli.main("toy", Strict, lambda options: outcome(), ["count=-1"]) == 2
    assert "count: is negative" in capsys.readouterr().err


# --- help -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", STAGES)
def test_help_shows_type_default_and_meaning_of_every_option(stage: str) -> None:
    config = config_class(stage)
    text = cli.help_text(stage, config)
    hints = get_type_hints(config)
    items = dataclasses.fields(config)
    assert len(items) >= 6
    assert text.startswith(f"usage: pairmill {stage} key=value")
    assert (config.__doc__ or "missing").splitlines()[0] in text
    for item in items:
        assert item.metadata["help"].strip(), f"{item.name} has no help"
        found = re.search(rf"^  {item.name}  \((.+)\)\n      (.+)$", text, re.MULTILINE)
        assert found, item.name
        kind, default = found.group(1).split("; ", 1)
        assert kind == cli.type_name(hints[item.name])
        assert found.group(2) == item.metadata["help"]
        if item.metadata.get("takes"):
            assert default == "default: the only one below root that it can be"
        elif item.default is not dataclasses.MISSING:
            assert default == f"default: {item.default}" if item.default != "" else default == "default: empty"
        elif item.default_factory is not dataclasses.MISSING:
            assert default == "default: " + (",".join(item.default_factory()) or "empty")
        else:
            assert default == "required"


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_help_goes_to_stdout_whatever_else_is_given(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("toy", Options, lambda options: outcome(), ["nonsense", flag, "cuont=4"]) == 0
    captured = capsys.readouterr()
    assert captured.out == cli.help_text("toy", Options)
    assert captured.err == ""


def test_help_whose_reader_has_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert cli.main("toy", Options, lambda options: outcome(), ["--help"]) == 0


def test_version_says_which_pairmill_this_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("toy", Options, lambda options: outcome(), ["--version"]) == 0
    captured = capsys.readouterr()
    assert re.fullmatch(r"pairmill \d+\.\d+\.\d+\S*\n", captured.out)
    assert captured.err == ""


def test_an_empty_token_is_refused_by_the_name_of_its_option() -> None:
    given = cli.split(["rows=x", "tokenizer=y", "root=z", "conditions=direct=<a>,cot="])
    with pytest.raises(UsageError, match=r"^conditions: cot: is empty; expected a token"):
        cli.build(config_class("tokenize"), given)


# --- exit codes and streams -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("wrong"), 2, "wrong"),
        (InputError("absent"), 3, "absent"),
        (StorageError("full"), 4, "full"),
        (InternalError("odd"), 5, "odd"),
        (ZeroDivisionError("oops"), 5, "toy: unexpected ZeroDivisionError: oops; this is a defect of pairmill"),
        (FileNotFoundError(2, "No such file", "/x/y"), 3, "/x/y: does not exist"),
        (OSError(28, "No space left on device", "/x/y"), 4, "/x/y: no space left"),
        (PermissionError(13, "Permission denied", "/x/y"), 4, "/x/y: storage refused"),
        (KeyboardInterrupt(), 130, "run the same command to resume"),
    ],
)
def test_every_error_ends_as_one_message_and_an_exit_code(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(options: Options) -> Outcome:
        raise error

    assert cli.main("toy", Options, run, ["place=x"]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = [json.loads(line) for line in captured.err.splitlines()]
    assert lines[-1]["severity"] == "ERROR"
    assert said in lines[-1]["message"]
    assert lines[-1]["exit_code"] == code


def test_stdout_holds_the_result_alone_and_stderr_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("toy", Options, lambda options: outcome(), ["place=x"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "the result\n"
    lines = [json.loads(line) for line in captured.err.splitlines()]
    assert lines
    assert all({"time", "severity", "message"} <= set(line) for line in lines)
    assert lines[-1]["message"] == "toy: done"
    assert (lines[-1]["outputs"], lines[-1]["metrics"]) == ({"output": "/x", "rows": 5}, {"rows": 5})


def test_a_persons_summary_has_short_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAIRMILL_LOG", "human")
    monkeypatch.setattr("pairmill.terminal._console", None)
    metrics = {"loss": 0.21888105120591408, "drop_fraction": 0.0, "rows": 1_234_567}
    assert cli.main("toy", Options, lambda options: outcome(metrics=metrics), ["place=x"]) == 0
    first, figures = capsys.readouterr().err.splitlines()
    assert first == "toy: done in 0.0 s"
    # Where the result is, unless stdout says it.
    assert figures == "  loss 0.2189, drop fraction 0, rows 1,234,567, output /x"


def test_a_result_that_stood_there_is_called_reused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("toy", Options, lambda options: outcome(reused=True), ["place=x"]) == 0
    assert json.loads(capsys.readouterr().err.splitlines()[-1])["message"] == "toy: reused"


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_started_with_a_typing_error_says_what_was_meant(stage: str) -> None:
    required = [
        item.name
        for item in dataclasses.fields(config_class(stage))
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    ]
    arguments = [stage, *(f"{name}=x" for name in required), "rooot=x"]
    done = nursery.shared().run("pairmill", arguments, environment())
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert "rooot: unknown option" in json.loads(line)["message"]
    assert "did you mean 'root'?" in json.loads(line)["message"]


def test_what_to_look_at_is_a_warning_at_the_end_of_every_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAIRMILL_LOG", "json")
    look_at = ["Nothing is kept of a (3 filtered_by_where).", "Malformed records: b (1)."]
    for reused in (False, True):
        made = outcome(report=lambda: Report("t", look_at=look_at), reused=reused)
        assert cli.main("toy", Options, lambda _, made=made: made, ["place=x"]) == 0  # type: ignore[misc]
        first, *warnings = map(json.loads, capsys.readouterr().err.splitlines())
        assert [(line["severity"], line["message"]) for line in warnings] == [
            ("WARNING", f"toy: {line}") for line in look_at
        ]
        assert first["severity"] == "INFO"


def toy(tmp_path: Path) -> list[str]:
    for name in ("source", "marks"):
        (tmp_path / name).mkdir()
    for number in range(3):
        (tmp_path / "source" / f"{number}.txt").write_text("line\n")
    places = [f"{name}={tmp_path / name}" for name in ("source", "marks", "root")]
    return ["-c", COMMAND, *places, "workers=2"]


def test_a_stage_as_a_process_prints_its_folder_and_json_lines(tmp_path: Path) -> None:
    done = python(*toy(tmp_path))
    assert done.returncode == 0, done.stderr
    (uri,) = done.stdout.splitlines()
    assert Path(uri, "_MANIFEST.json").is_file()
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert any(line.get("shards_planned") == 3 and line["shards"] == 3 for line in lines)
    assert lines[-1]["outputs"]["output"] == uri


def test_on_a_terminal_lines_are_for_people_and_stdout_stays_clean(tmp_path: Path) -> None:
    outer, inner = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, *toy(tmp_path)],
        cwd=REPOSITORY,
        env={**environment(), "TERM": "xterm", "COLUMNS": "60"},
        stdout=subprocess.PIPE,
        stderr=inner,
        text=True,
    )
    os.close(inner)
    shown = b""
    while True:
        try:
            data = os.read(outer, 1 << 16)
        except OSError:  # the terminal's other end is closed
            break
        if not data:
            break
        shown += data
    output, _ = process.communicate(timeout=PATIENCE)
    os.close(outer)
    assert process.returncode == 0
    assert Path(output.strip(), "_MANIFEST.json").is_file()
    text = shown.decode()
    assert '{"time"' not in text
    assert "toy: done in" in text
    assert "3/3" in text
    assert "…" not in text  # the folder's URI is there to be copied: it may be folded, not cut


@pytest.mark.parametrize(("choice", "is_json"), [("json", True), ("human", False)])
def test_the_kind_of_log_can_be_chosen(
    choice: str, is_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PAIRMILL_LOG", choice)
    assert cli.main("toy", Options, lambda options: outcome(), ["nonsense"]) == 2
    # The console of an earlier test may stand on another stderr: only the form is looked at.
    assert capsys.readouterr().err.startswith('{"time"') is is_json


def test_a_reader_that_goes_away_is_no_failure(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pairmill.interface import cli\nfrom pairmill.report.model import Report\n"
        "from pairmill.stages.clean.config import CleanConfig\n"
        "out = cli.Outcome('x' * 1_000_000, {}, {}, lambda: Report('t'), lambda: b'')\n"
        "raise SystemExit(cli.main('clean', CleanConfig, lambda config: out, sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "raw=x", "root=y"],
        cwd=REPOSITORY,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait(timeout=PATIENCE) == 0
    assert "Traceback" not in errors
    process.stderr.close()


def test_errors_say_what_where_got_expected_and_next() -> None:
    error = PairmillError("is wrong", where="the place", got="5", expected="6", hint="do this")
    assert str(error) == "the place: is wrong; got 5; expected 6; do this"
    assert str(PairmillError("is wrong")) == "is wrong"


# --- SIGTERM of the first process of a container --------------------------------------------------------------------


TOLD = """
import os, signal, time, weakref
from pairmill.interface import interrupt
interrupt.leave_when_told()
class Thing: pass
thing = Thing()
# Python calls this back from within, and forgets what it raises.
gone = weakref.ref(thing, lambda _: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(0)))
try:
    del thing
    time.sleep(600)
finally:
    print("cleaned up", flush=True)
"""


def test_an_end_that_is_lost_in_a_callback_comes_again() -> None:
    done = python("-c", TOLD)
    assert (done.returncode, done.stdout) == (143, "cleaned up\n"), done.stderr
    assert "Traceback" not in done.stderr


def test_an_exception_in_a_callback_is_still_reported() -> None:
    done = python("-c", TOLD.replace("os.kill(os.getpid(), signal.SIGTERM)", "1 / 0").replace("sleep(600)", "sleep(0)"))
    assert (done.returncode, done.stdout) == (0, "cleaned up\n")
    assert "ZeroDivisionError" in done.stderr


# --- Ctrl-C ---------------------------------------------------------------------------------------------------------

PROGRAMS = [*command.PROGRAMS, "stage compare", "stage search"]


def interrupted(name: str, seconds: float) -> tuple[int, str]:
    """Ctrl-C so long after the program's own first line; its exit code, and stderr without Python's list of imports.

    On a busy machine a line may be read before the program goes on: the first import after it shows that it was done.
    """
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "pairmill", *name.split(), "raw=/none", "root=/none", "rows=/none"],
        cwd=REPOSITORY,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if any(before.rstrip().endswith(" pairmill.interface.start") for before in said[:-1]):
            break
    time.sleep(seconds)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    said += process.stderr.readlines()
    process.stderr.close()
    return process.wait(timeout=PATIENCE), "".join(line for line in said if not line.startswith("import time:"))


@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_while_a_program_starts_ends_it_without_a_traceback(name: str) -> None:
    assert interrupted(name, 0.01) == (130, "")


def test_ctrl_c_in_a_class_that_is_imported_ends_as_any_other(tmp_path: Path) -> None:
    """Dataclasses run texts. Python notes a Ctrl-C in one of them, and would kill itself after our own end."""
    # Twice: what the first one imports runs texts too, after which nothing is noted.
    (tmp_path / "ended.py").write_text(
        "import sys\n"
        "from pairmill.interface import cli\n"
        "for _ in range(2):\n"
        "    code = cli.program('x', None, [], lambda: exec('raise KeyboardInterrupt'))\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-m", "ended"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 130
    lines = [json.loads(line)["message"] for line in done.stderr.splitlines()]
    assert lines == ["x: interrupted; run the same command to resume"] * 2


def test_ctrl_c_at_any_instant_leaves_no_traceback() -> None:
    """Of Python's own start, some 15 ms before the first line of ours, nobody can say what it prints."""
    assert len(PROGRAMS) >= 9
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda at: interrupted("clean", at), [0.001 * 1.45**n for n in range(18)]))
    for code, said in found:
        # 2, 3: it had refused its options or its input before.
        assert code in {130, 2, 3}, said
        assert len(said.splitlines()) <= 1, said
        assert "Traceback" not in said
    assert found[0] == (130, "")
