"""Common mistakes: ``pairmill run`` refuses each before any work, in one line that says what to write."""

import importlib.util
import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from tests.support.helpers import environment, mount
from tests.support.processes import nursery
from tests.support.tokenizers import families


def project(folder: Path) -> dict[str, str]:
    """Raw files, rules and a run file that works."""
    raw = folder / "raw"
    (raw / "gsm8k_train").mkdir(parents=True)
    lines = (json.dumps({"question": f"What is {n}?", "answer": f"Add.\n#### {n}"}) + "\n" for n in range(60))
    (raw / "gsm8k_train" / "train.jsonl").write_text("".join(lines))
    (folder / "rules.yaml").write_text("- prefix: gsm8k\n  max_per_file: 20\n")
    return {"raw": str(raw), "root": str(folder / "root"), "output_path": str(folder / "out"), "vocab_size": "400"}


def run(*arguments: str, variables: Mapping[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    return nursery.shared(nursery.PIPELINES).run(
        "pairmill", ["run", *arguments], {**environment(), **(variables or {})}
    )


def message(done: "subprocess.CompletedProcess[str]") -> str:
    said: str = json.loads(done.stderr.splitlines()[-1])["message"]
    return said


def settings(name: str, text: str) -> Callable[[Path], dict[str, str]]:
    """A file of settings."""

    def make(folder: Path) -> dict[str, str]:
        (folder / f"{name}.yaml").write_text(text)
        return {name: str(folder / f"{name}.yaml")}

    return make


def tokenizer(folder: Path) -> dict[str, str]:
    (folder / "tokenizer.json").write_text(families.made("gpt2"))
    return {"tokenizer": str(folder / "tokenizer.json"), "template": "llama3"}


def template_file(folder: Path) -> dict[str, str]:
    (folder / "chat.jinja").write_text("{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>{% endfor %}")
    return {"template": str(folder / "chat.jinja")}


def foreign(folder: Path) -> dict[str, str]:
    (folder / "out").mkdir()
    (folder / "out" / "thesis.txt").write_text("mine")
    return {}


def empty(folder: Path) -> dict[str, str]:
    (folder / "nothing").mkdir()
    return {"raw": str(folder / "nothing")}


def without_files(folder: Path) -> dict[str, str]:
    (folder / "raw" / "gsm8k_train" / "train.jsonl").rename(folder / "raw" / "gsm8k_train" / "train.doc")
    return {}


def described(text: str) -> Callable[[Path], dict[str, str]]:
    def make(folder: Path) -> dict[str, str]:
        (folder / "mine.yaml").write_text(text)
        return {"sources": str(folder / "mine.yaml")}

    return make


def root_is_a_file(folder: Path) -> dict[str, str]:
    (folder / "taken").write_text("")
    return {"root": str(folder / "taken" / "root")}


def everything(folder: Path) -> dict[str, str]:
    text = "name: mine\ncondition: direct\nfiles: '**/*.jsonl'\ninstruction: question\nresponse: answer\n"
    return {**described(text)(folder), "output_path": "/dev/shm/pairmill-refused"}


USAGE, INPUT, STORAGE = 2, 3, 4
Change = Mapping[str, str] | Callable[[Path], dict[str, str]]

MISTAKES: dict[str, tuple[Change, int, tuple[str, ...]]] = {
    "a typo in a key": ({"epoch": "3"}, USAGE, ("epoch: unknown option", "did you mean 'epochs'?")),
    "a typo in a value": ({"profile": "pairmil"}, USAGE, ("profile: ", "'pairmil'", "pairmill")),
    "a word for a number": ({"epochs": "three"}, USAGE, ("epochs: ", "'three'", "integer")),
    "no epochs": ({"epochs": "0"}, USAGE, ("epochs: out of range", "1 to 10000")),
    "a wrong path": ({"raw": "{folder}/rwa"}, INPUT, ("raw={folder}/rwa", "check the path")),
    "an empty folder": (empty, INPUT, ("raw={folder}/nothing", "one folder per source")),
    "an unknown source": ({"sources": "gsm8k"}, USAGE, ("sources: unknown source", "did you mean 'gsm8k_train'?")),
    "a source without files": (without_files, INPUT, ("no file of gsm8k_train", "train.doc", "sources=")),
    "rules that are not there": ({"prefix_config_path": "{folder}/r.yaml"}, USAGE, ("prefix_config_path={folder}/r.",)),
    "rules about no task": (
        settings("prefix_config_path", "- prefix: gms8k\n"),
        USAGE,
        ("prefix_config_path=", "gms8k", "write - prefix: gsm8k_train.jsonl"),
    ),
    "no YAML": (settings("curate_config", "near: {mode: drop\n"), USAGE, ("curate_config.yaml line", "not valid YAML")),
    "a list for a mapping": (
        settings("curate_config", "near: [drop]\n"),
        USAGE,
        ("curate_config.yaml line 1, near", "a list", "expected"),
    ),
    "a typo in a setting": (
        settings("select_config", "metod: dsir\n"),
        USAGE,
        ("select_config.yaml line 1: unknown key 'metod'", "did you mean 'method'?"),
    ),
    "a benchmark that is not there": (
        settings(
            "curate_config",
            "decontaminate: {mode: drop, benchmarks: [{name: mine, uri: /nowhere/bench.jsonl, question: q}]}\n",
        ),
        INPUT,
        ("/nowhere/bench.jsonl", "benchmark mine does not exist", "check the path"),
    ),
    "a model that is not there": (
        settings("curate_config", "language: {mode: drop, model: /nowhere/lid.bin, keep: [en]}\n"),
        INPUT,
        ("language.model=/nowhere/lid.bin", "the model is missing", "check the path"),
    ),
    "a target that is not there": (
        settings(
            "select_config",
            "method: dsir\nshare: 0.5\ndsir: {targets: [{name: mine, rows: /nowhere/rows.jsonl}]}\n",
        ),
        INPUT,
        ("dsir.targets mine", "/nowhere/rows.jsonl"),
    ),
    "a tokenizer that is not there": ({"tokenizer": "{folder}/t.json"}, INPUT, ("tokenizer", "{folder}/t.json")),
    "a tokenizer of another family": (tokenizer, INPUT, ("tokenizer.json", "<|begin_of_text|>")),
    "a template that a trained tokenizer cannot write": (
        {"template": "llama3"},
        USAGE,
        ("template: ", "<|begin_of_text|>", "tokenizer=, or leave template= out"),
    ),
    "a template without tokens": (template_file, INPUT, ("tokenizer", "<|turn>")),
    "a foreign output folder": (foreign, USAGE, ("output_path={folder}/out", "choose another output_path")),
    "results among the raw files": (
        {"root": "{folder}/raw/project"},
        USAGE,
        ("root: is inside the raw files", "write root={folder}/project"),
    ),
    "results where a source of one's own reads everything": (
        everything,
        USAGE,
        ("root: is inside the raw files", "write root="),
    ),
    "a file where the root would be": (root_is_a_file, STORAGE, ("root={folder}/taken/root", "write root=")),
    "a root that nobody can write": ({"root": "/proc/1/pairmill"}, STORAGE, ("root=/proc/1/pairmill", "write root=")),
    "an output that nobody can write": (
        {"output_path": "/proc/1/out"},
        STORAGE,
        ("output_path=/proc/1/out", "write output_path="),
    ),
    "two keys that exclude each other": (
        {"tokenized": "{folder}/x", "sources": "gsm8k_train"},
        USAGE,
        ("sources: cannot be given with tokenized", "write it alone, or leave it out"),
    ),
    "a policy that is not there": ({"policy": "{folder}/policy.yaml"}, USAGE, ("policy={folder}/policy.yaml",)),
    "a source of one's own without its file": (
        described("name: mine\ncondition: direct\nfiles: mine/*.jsonl\ninstruction: q\nresponse: a\n"),
        INPUT,
        ("mine", "expected"),
    ),
    "a store that nobody serves": ({"root": "nfs://server/x"}, USAGE, ("root: ", "nfs://")),
    "an extra that is not installed": ({"train_config": "default"}, USAGE, ("train_config", "torch", "pip install")),
    "a mixture that is not there": (
        lambda folder: {**settings("mix_config", "method: unimax\n")(folder), "compare": "/nowhere/mix"},
        INPUT,
        ("compare=/nowhere/mix", "mixture.json"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_before_any_work_in_one_line(mistake: str, tmp_path: Path) -> None:
    change, code, words = MISTAKES[mistake]
    if "torch" in words and importlib.util.find_spec("torch") is not None:
        pytest.skip("torch is installed")
    options = project(tmp_path)
    changed = (
        change(tmp_path)
        if callable(change)
        else {name: text.replace("{folder}", str(tmp_path)) for name, text in change.items()}
    )
    options |= changed
    for name in {"tokenized": ("raw",), "tokenizer": ("vocab_size",)}.get(next(iter(changed), ""), ()):
        del options[name]
    done = run(*(f"{name}={text}" for name, text in options.items()))
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    said = message(done)
    assert "\n" not in said
    assert "defect" not in said
    for word in words:
        assert word.replace("{folder}", str(tmp_path)) in said
    assert not (tmp_path / "root").exists()
    assert not (tmp_path / "raw" / "project").exists()


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    options = project(tmp_path) | {"raw": "/nowhere/raw", "root": "/proc/1/x", "tokenizer": "/nowhere/t.json"}
    del options["vocab_size"]
    foreign(tmp_path)
    done = run(*(f"{name}={text}" for name, text in options.items()))
    assert done.returncode == STORAGE, done.stderr
    head, *lines = message(done).splitlines()
    assert head == "4 things to mend:"
    assert all(
        any(word in line for line in lines) for word in ("raw=/nowhere", "root=/proc", "/nowhere/t.json", "/out")
    )


def test_options_that_cannot_be_read_are_told_with_those_that_no_stage_takes(tmp_path: Path) -> None:
    options = project(tmp_path) | {"epoch": "3", "seed": "-1", "windows": "perhaps"}
    done = run(*(f"{name}={text}" for name, text in options.items()))
    assert done.returncode == USAGE
    assert [line.split(":")[0].strip() for line in message(done).splitlines()[1:]] == ["epoch", "windows", "seed"]


def test_a_disk_that_is_too_small_is_refused(tmp_path: Path) -> None:
    options = project(tmp_path)
    with (tmp_path / "raw" / "gsm8k_train" / "train.jsonl").open("a") as file:
        line = json.dumps({"question": "What? " * 1000, "answer": "Add.\n#### 1"}) + "\n"
        file.writelines(line for _ in range(3000))
    small = tmp_path / "small"
    small.mkdir()
    mount(small, "size=1m")
    try:
        for option in ("root", "output_path"):
            done = run(*(f"{name}={text}" for name, text in {**options, option: f"{small}/x"}.items()))
            assert done.returncode == STORAGE, done.stderr
            assert f"{option}={small}/x" in message(done)
            assert "no space left" in message(done)
            assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_bucket_without_credentials_is_refused(tmp_path: Path) -> None:
    options = project(tmp_path) | {"root": "s3://somebody/else"}
    variables = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "HOME": str(tmp_path)}
    done = run(*(f"{name}={text}" for name, text in options.items()), variables=variables)
    assert done.returncode == STORAGE, done.stderr
    assert message(done).startswith("root=s3://somebody/else: ")
    assert "\n" not in message(done)


# --- the run file -----------------------------------------------------------------------------------------------------


def test_a_run_file_is_overridden_by_the_command_line_and_makes_the_same_again(tmp_path: Path) -> None:
    options: dict[str, object] = {**project(tmp_path), "sources": ["gsm8k_train"], "epochs": 4, "holdout": None}
    options["prefix_config_path"] = str(tmp_path / "rules.yaml")
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(options))
    done = run(str(tmp_path / "run.yaml"), "epochs=2")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "out").glob("epoch_*")} == {"epoch_0", "epoch_1"}
    (again,) = [line.split("pairmill run ")[1] for line in done.stdout.splitlines() if line.startswith("  again:")]
    assert yaml.safe_load(Path(again).read_text())["epochs"] == 2
    done = run(again)
    assert done.returncode == 0, done.stderr
    assert "every stage was reused" in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("root: r\nepoch: 3\n", ("run.yaml line 2, epoch: unknown option", "did you mean 'epochs'?")),
        ("root: r\n\nepochs: [1, 2]\n", ("run.yaml line 3, epochs: not a single value", "a list")),
        ("root: r\nraw: /nowhere/raw\n", ("run.yaml line 2, raw=/nowhere/raw",)),
        (
            "root: r\ncurate_config:\n  near: {mode: drop}\n",
            ("run.yaml line 3, curate_config", "curate_config: curate_config.yaml"),
        ),
        ("- root: r\n", ("run.yaml line 1: not a mapping",)),
        ("root: r\nroot: s\n", ("run.yaml line 2, root", "occurs twice")),
        ("root: [\n", ("run.yaml line 2", "not valid YAML")),
        ("epochs: 0\nroot: r\n", ("run.yaml line 1, epochs: out of range",)),
    ],
)
def test_a_mistake_in_a_run_file_is_told_with_its_line(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(text)
    done = run(str(tmp_path / "run.yaml"))
    assert done.returncode in (USAGE, INPUT), done.stderr
    for word in words:
        assert word in message(done)


def test_a_run_file_that_is_not_there_is_refused() -> None:
    done = run("/nowhere/run.yaml", "epochs=3")
    assert done.returncode == USAGE
    assert message(done) == "run file=/nowhere/run.yaml: the file does not exist; check the path"
