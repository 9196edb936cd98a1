"""What is wrong with the input is said in one message, with the right exit code, and nothing half-made is left."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import manifest as manifests
from pairmill.errors import InputError
from tests.support import tools
from tests.support.cases import cases
from tests.support.helpers import writable
from tests.support.processes.kill_points import EVERY
from tests.support.tools import World

USAGE, INPUT, STORAGE = 2, 3, 4


def refused(done: tools.Done, code: int, *said: object, root: Path | None = None) -> str:
    """The message of a run that ended with this code, saying all of this, and left nothing that a reader takes."""
    assert done.code == code, f"exit code {done.code}, expected {code}\n{done.err}"
    assert done.out == ""
    assert "Traceback" not in done.err
    last = done.lines[-1]
    assert last["severity"] == "ERROR"
    assert last["exit_code"] == code
    for text in said:
        assert str(text) in done.message, f"{text!s} is not said in: {done.message}"
    if root is not None and root.exists():
        nothing_to_read(root)
    return done.message


def nothing_to_read(root: Path) -> None:
    """No finished folder below a root, every folder that stands there is refused, and no writer left a part.

    The raw data of one source may be finished though that of another is not: it is whole then.
    """
    for path in root.rglob(tools.MANIFEST):
        assert path.relative_to(root).parts[0] == "raw"
        digests = tools.recorded(tools.read_manifest(path.parent))
        assert digests.items() <= tools.digests(path.parent).items()
    for name in tools.STAGES:
        for folder in tools.unfinished(root, name):
            if any(folder.iterdir()):
                with pytest.raises(InputError, match="not finished"):
                    manifests.read(str(folder))
    assert not tools.partials(root)


def options(world: World, name: str, root: Path, /, **changed: object) -> dict[str, object]:
    """Options with which the stage succeeds, but for those that are changed."""
    good: dict[str, dict[str, object]] = {
        "fetch": {"raw": world.raw},
        "clean": {"raw": world.raw},
        "curate": {"rows": world.cleaned},
        "train_tokenizer": {"rows": world.cleaned, "vocab_size": 400, "prefix_config_path": world.rules},
        "tokenize": {"rows": world.cleaned, "tokenizer": world.tokenizer},
        "select": {"rows": world.cleaned, "select_config": world.rules.with_name("select.yaml")},
        "mix": {"tokenized_path": world.tokenized, "mix_config": world.rules.with_name("mix.yaml")},
        "sample": {
            "tokenized_path": world.tokenized,
            "prefix_config_path": world.rules,
            "epochs": 2,
            "output_path": root / "arrays",
        },
    }
    workers: dict[str, object] = {} if name == "sample" else {"workers": 1}
    return {**good[name], "root": root, **workers, **changed}


def try_(world: World, name: str, root: Path, /, **changed: object) -> tools.Done:
    return tools.stage(name, **options(world, name, root, **changed))


def rows_file(path: Path, *lines: object) -> Path:
    """Two good rows, then these lines."""
    good = [dict(zip(tools.FIELDS, row, strict=True)) for row in tools.rows(2)]
    return tools.write_lines(path, [*good, *lines])


READS_ROWS = ("curate", "train_tokenizer", "tokenize")


@pytest.fixture(scope="module")
def fetched(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished folder of fetch: an index of the world's raw data, which is where it was."""
    return tools.folder(try_(world, "fetch", tmp_path_factory.mktemp("fetched")))


# The command line


@pytest.mark.parametrize(
    ("name", "wrong", "meant"),
    [
        ("fetch", "source", "sources"),
        ("clean", "source", "sources"),
        ("curate", "curate_confg", "curate_config"),
        ("train_tokenizer", "vocabsize", "vocab_size"),
        ("tokenize", "tokeniser", "tokenizer"),
        ("sample", "epoch", "epochs"),
    ],
)
def test_unknown_option(world: World, tmp_path: Path, name: str, wrong: str, meant: str) -> None:
    done = try_(world, name, tmp_path, **{wrong: "x"})
    refused(done, USAGE, f"{wrong}: unknown option", f"did you mean '{meant}'?", root=tmp_path)


@pytest.mark.parametrize(
    ("name", "changed", "said"),
    [
        ("fetch", {"workers": -1}, "workers: out of range; got -1; expected 0 or more"),
        ("fetch", {"sources": "gsm8k"}, "did you mean 'gsm8k_train'?"),
        (
            "fetch",
            {"tokenized": "t", "tokenizer": "k"},
            "tokenizer: cannot be given with tokenized; ",
        ),
        ("fetch", {"sources": "none.yaml"}, "none.yaml"),
        ("fetch", {"update": "sudoko"}, "update: not one of sources=; got sudoko"),
        ("fetch", {"update": "sudoku"}, "update: is taken from raw=, not from a lock; got sudoku"),
        ("clean", {"workers": "two"}, "workers"),
        ("clean", {"workers": -1}, "workers: out of range; got -1; expected 0 or more"),
        ("clean", {"profile": "reference"}, "profile"),
        ("clean", {"max_reject_fraction": 1.5}, "max_reject_fraction: out of range"),
        ("clean", {"sources": "gsm8k"}, "sources: unknown source"),
        ("clean", {"source_options": "gsm8k_train"}, "source_options: not an option of a source"),
        ("train_tokenizer", {"vocab_size": 0}, "vocab_size: out of range"),
        ("train_tokenizer", {"tokenizer_type": "wordpiece"}, "tokenizer_type"),
        ("tokenize", {"conditions": "direct"}, "conditions: not a condition"),
        ("sample", {"epochs": 0}, "epochs: out of range"),
        ("sample", {"seed": -1}, "seed: out of range"),
        ("sample", {"context_size": 2.5}, "context_size"),
        ("sample", {"output_path": "", "root": ""}, "output_path, root is required"),
        ("sample", {"output_path": "/"}, "output_path: is the top of the file system"),
    ],
)
def test_wrong_value(world: World, tmp_path: Path, name: str, changed: dict[str, object], said: str) -> None:
    refused(try_(world, name, tmp_path, **changed), USAGE, said, root=tmp_path)


@pytest.mark.parametrize("name", tools.STAGES)
def test_no_options(name: str) -> None:
    refused(tools.stage(name), USAGE, "is required" if name == "sample" else "required option missing")


@pytest.mark.parametrize("arguments", [["raw"], ["=x"], ["raw=a", "raw=b", "root=c"], ["--executor-input", "{"]])
def test_not_key_and_value(arguments: list[str]) -> None:
    done = tools.run([*tools.command("clean"), *arguments])
    refused(done, USAGE)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("fetch", "raw"),
        ("fetch", "root"),
        ("fetch", "lock"),
        ("clean", "raw"),
        ("clean", "root"),
        ("train_tokenizer", "rows"),
        ("train_tokenizer", "prefix_config_path"),
        ("tokenize", "rows"),
        ("tokenize", "tokenizer"),
        ("sample", "tokenized_path"),
        ("sample", "prefix_config_path"),
        ("sample", "root"),
        ("sample", "output_path"),
    ],
)
def test_scheme_without_backend(world: World, tmp_path: Path, name: str, option: str) -> None:
    for uri in ("ftp://server/x", "nfs://server/x"):
        refused(try_(world, name, tmp_path, **{option: uri}), USAGE, uri, root=tmp_path)


# Input that is not there


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("fetch", "raw"),
        ("clean", "raw"),
        ("train_tokenizer", "rows"),
        ("tokenize", "rows"),
        ("tokenize", "tokenizer"),
        ("sample", "tokenized_path"),
    ],
)
@pytest.mark.parametrize("kind", ["absent", "empty folder", "other files", "a file"])
def test_missing_input(world: World, tmp_path: Path, name: str, option: str, kind: str) -> None:
    given = tmp_path / "given"
    if kind == "empty folder":
        given.mkdir()
    elif kind == "other files":
        tools.write_text(given / "below" / "notes.txt", "nothing to see")
    elif kind == "a file":
        tools.write_text(given, "nothing to see")
    root = tmp_path / "root"
    message = refused(try_(world, name, root, **{option: given}), INPUT, given, root=root)
    # A file that is no folder is read, and found to be no rows.
    assert option in message or kind == "a file"
    assert not root.exists() or kind == "a file"


def test_absent_rule_file_is_a_wrong_option(world: World, tmp_path: Path) -> None:
    for name in ("train_tokenizer", "sample"):
        done = try_(world, name, tmp_path / "root", prefix_config_path=tmp_path / "none.yaml")
        refused(done, USAGE, f"prefix_config_path={tmp_path / 'none.yaml'}", root=tmp_path / "root")


def test_source_without_its_files(world: World, tmp_path: Path) -> None:
    for source in ("gsm8k_train", "scibench", "dmmath", "sudoku"):
        tools.write_text(tmp_path / "raw" / source / "LICENSE", "")
        for name in ("fetch", "clean"):
            done = try_(world, name, tmp_path / "root", raw=tmp_path / "raw", sources=source)
            refused(
                done, INPUT, f"{tmp_path / 'raw' / source}: no file of {source}; got LICENSE", root=tmp_path / "root"
            )
            assert not (tmp_path / "root").exists()
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw", sources="sudoku,scibench")
    refused(done, INPUT, "no file of scibench", root=tmp_path / "root")  # the first by name
    done = try_(world, "clean", tmp_path / "root", raw=world.raw.parent, sources="sudoku")
    refused(done, INPUT, "sudoku", root=tmp_path / "root")


@pytest.mark.parametrize(
    ("path", "make"),
    [
        ("gsm8k_train/train.jsonl", lambda path: tools.write_text(path, "")),
        ("gsm8k_train/train.jsonl", lambda path: tools.write_text(path, "\n \n\n")),
        ("gsm8k_train/train.parquet", lambda path: tools.write_gsm8k(path, [])),
        ("scibench/thermo.json", lambda path: tools.write_text(path, "[]")),
        ("scibench/thermo.json", lambda path: tools.write_text(path, "")),
        ("dmmath/train-easy/add.txt", lambda path: tools.write_text(path, "")),
        ("sudoku/train.csv", lambda path: tools.write_csv(path, [])),
        ("sudoku/train.csv", lambda path: tools.write_text(path, "")),
    ],
)
def test_raw_files_without_a_record(world: World, tmp_path: Path, path: str, make: Callable[[Path], Path]) -> None:
    make(tmp_path / "raw" / path)
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw")
    refused(done, INPUT, f"the files of {path.split('/')[0]} contain no record", root=tmp_path / "root")


@pytest.mark.parametrize("name", READS_ROWS)
@pytest.mark.parametrize("kind", ["jsonl", "parquet", "both"])
def test_rows_without_a_row(world: World, tmp_path: Path, name: str, kind: str) -> None:
    given = tmp_path / "rows"
    if kind != "parquet":
        tools.write_text(given / "a.jsonl", "")
    if kind != "jsonl":
        tools.write_rows(given / "b.parquet", [])
    message = refused(try_(world, name, tmp_path / "root", rows=given), INPUT, given, root=tmp_path / "root")
    assert "contain no" in message


def test_tokenized_folder_without_a_row(world: World, tmp_path: Path) -> None:
    foreign = foreign_tokens(world, tmp_path / "tokens")
    for path in [path for path in foreign.iterdir() if path.is_dir()]:
        for array in path.glob("*.npy"):
            np.save(array, np.zeros(0, np.load(array).dtype))
    done = try_(world, "sample", tmp_path / "root", tokenized_path=foreign)
    refused(done, INPUT, foreign, "has no rows", root=tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("root", ["root", ""])
def test_tokenized_folder_of_other_rows_than_its_manifest_counts(world: World, tmp_path: Path, root: str) -> None:
    folder = tmp_path / "tokens"
    shutil.copytree(world.tokenized, folder, copy_function=shutil.copyfile)
    manifest = tools.read_manifest(folder)
    manifest["ledger"]["rows_out"] += 1
    tools.write_manifest(folder, manifest)
    given = {"root": tmp_path / "root" if root else "", "output_path": tmp_path / "out", "tokenized_path": folder}
    done = try_(world, "sample", tmp_path, **given)
    refused(done, INPUT, folder, "does not have the rows that its manifest counts")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokens"]


# Folders that pairmill began or finished


def readers_of(name: str) -> list[tuple[str, str]]:
    """(stage, option) of every stage that reads what this stage makes."""
    return {
        "fetch": [("clean", "raw")],
        "clean": [("curate", "rows"), ("train_tokenizer", "rows"), ("tokenize", "rows")],
        "curate": [("curate", "rows"), ("train_tokenizer", "rows"), ("tokenize", "rows")],
        "train_tokenizer": [("tokenize", "tokenizer")],
        "tokenize": [("sample", "tokenized_path")],
    }[name]


def made_by(world: World, fetched: Path, name: str) -> Path:
    if name == "curate":
        return tools.folder(try_(world, "curate", fetched.parents[1] / "curated"))
    folders = {"clean": world.cleaned, "train_tokenizer": world.tokenizer, "tokenize": world.tokenized}
    return {"fetch": fetched, **folders}[name]


@pytest.mark.parametrize("name", tools.SHARDED)
def test_finished_folder_whose_manifest_is_gone(world: World, fetched: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(made_by(world, fetched, name), folder)
    (folder / tools.MANIFEST).unlink()
    for reader, option in readers_of(name):
        given = [
            folder,
            *(folder / part for part in ("data", "data_clustered", "data_clustered/dmmath") if name == "clean"),
        ]
        given += sorted((folder / "data").glob("*.jsonl")) if name == "clean" else []
        for place in given:
            done = try_(world, reader, tmp_path / "root", **{option: place})
            refused(done, INPUT, folder, "began this folder and has not finished it", "resumes")
            assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", tools.SHARDED)
def test_folder_that_was_only_begun(world: World, fetched: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(made_by(world, fetched, name) / tools.STARTED, folder)
    for reader, option in readers_of(name):
        done = try_(world, reader, tmp_path / "root", **{option: folder})
        refused(done, INPUT, folder, "began this folder and has not finished it")
        assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", tools.SHARDED)
@pytest.mark.parametrize("how", ["deleted", "cut"])
def test_damaged_finished_folder(world: World, fetched: Path, tmp_path: Path, name: str, how: str) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(made_by(world, fetched, name), folder, copy_function=shutil.copyfile)
    victim = {
        "fetch": "sources/sudoku.json",
        "clean": "data/gsm8k_train.jsonl",
        "curate": "data/gsm8k_train.jsonl",
        "train_tokenizer": "tokenizer.json",
        "tokenize": "gsm8k_train.jsonl/inst_len.npy",
    }[name]
    if how == "deleted":
        (folder / victim).unlink()
    else:
        data = (folder / victim).read_bytes()
        (folder / victim).write_bytes(data[: len(data) // 2])
    for reader, option in readers_of(name):
        done = try_(world, reader, tmp_path / "root", **{option: folder})
        message = refused(done, INPUT, folder)
        assert victim.rsplit("/", maxsplit=1)[-1] in message
        assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", ["fetch", "clean"])
def test_manifest_that_is_none(world: World, fetched: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(made_by(world, fetched, name), folder)
    reader, option = readers_of(name)[-1]
    for text in ("", "{}", "[1]", '{"format": 99}', "\xff"):
        (folder / tools.MANIFEST).write_bytes(text.encode("latin-1"))
        done = try_(world, reader, tmp_path / "root", **{option: folder})
        refused(done, INPUT, folder / tools.MANIFEST)
        assert not (tmp_path / "root").exists()


# Raw data that fetch brought


def unpacked(world: World, top: Path) -> tuple[Path, Path]:
    """(root, finished folder) of a run that unpacked two archives below ``top``."""
    raw = tools.raw_archives(top / "raw", 20)
    return top / "root", tools.folder(try_(world, "fetch", top / "root", raw=raw))


def test_result_of_another_stage_is_no_raw_data(world: World, tmp_path: Path) -> None:
    for folder, stage in ((world.cleaned, "clean"), (world.tokenized, "tokenize")):
        done = try_(world, "clean", tmp_path / "root", raw=folder)
        refused(done, INPUT, f"raw={folder}", "not a folder of raw data", f"a result of {stage}")
        assert not (tmp_path / "root").exists()


def test_source_that_was_not_fetched(world: World, tmp_path: Path) -> None:
    _, folder = unpacked(world, tmp_path)
    for sources in ("sudoku", "dmmath,sudoku"):
        done = try_(world, "clean", tmp_path / "other", raw=folder, sources=sources)
        refused(done, INPUT, "sudoku was not fetched", f"raw={folder}", "dmmath, scibench", "run fetch")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("how", ["deleted", "cut", "not finished"])
def test_raw_data_that_changed_since_it_was_fetched(world: World, tmp_path: Path, how: str) -> None:
    root, folder = unpacked(world, tmp_path)
    (victim,) = root.glob("raw/dmmath/*/mathematics_dataset-v1.0/train-easy/add.txt")
    (revision,) = root.glob("raw/dmmath/*")
    if how == "cut":
        writable(victim).write_bytes(victim.read_bytes()[:100])
    elif how == "deleted":
        victim.unlink()
    else:
        (revision / tools.MANIFEST).unlink()
    said = {
        "deleted": "missing or changed",
        "cut": "missing or changed",
        "not finished": "no finished revision of dmmath",
    }[how]
    for raw in (folder, root / "raw") if how != "not finished" else (root / "raw",):
        done = try_(world, "clean", tmp_path / "other", raw=raw)
        message = refused(done, INPUT, said, root / "raw" / "dmmath")
        assert how == "not finished" or "train-easy/add.txt" in message
        assert not (tmp_path / "other").exists()
    # The command that brought it mends it.
    assert tools.folder(try_(world, "fetch", root, raw=tmp_path / "raw")) == folder
    for raw in (folder, root / "raw"):
        done = try_(world, "clean", tmp_path / "other", raw=raw)
        assert tools.read_manifest(tools.folder(done))["ledger"]["rows_in"] == 60


def test_two_revisions_of_raw_data(world: World, tmp_path: Path) -> None:
    root, folder = unpacked(world, tmp_path)
    tools.raw_archives(tmp_path / "raw", 20, seed=5)
    tools.folder(try_(world, "fetch", root, raw=tmp_path / "raw"))
    done = try_(world, "clean", tmp_path / "other", raw=root / "raw")
    refused(done, INPUT, root / "raw" / "dmmath", "several revisions of dmmath", "raw=<root>/fetch/<fingerprint>")
    assert not (tmp_path / "other").exists()
    tools.folder(try_(world, "clean", tmp_path / "other", raw=folder))


GOOD = {"mathematics_dataset-v1.0/train-easy/add.txt": tools.dmmath(2000)}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[: len(data) // 2], "not a complete tar or zip archive"),
        (lambda data: data[:-4], "not a complete tar or zip archive"),
        (lambda data: data[:5000] + bytes(500) + data[5500:], "not a complete tar or zip archive"),
        (lambda data: b"<html>404</html>", "not a complete tar or zip archive"),
        (lambda data: b"", "not a complete tar or zip archive"),
        ({"other/add.txt": "1 + 1?\n2\n"}, "no file of dmmath in it"),
        ({**GOOD, "../train-easy/mul.txt": "1 + 1?\n2\n"}, "the archive would write outside its folder"),
    ],
)
def test_archive_that_cannot_be_unpacked(
    world: World, tmp_path: Path, damage: Callable[[bytes], bytes] | dict[str, str], said: str
) -> None:
    tools.raw_archives(tmp_path / "raw", 20)
    path = tools.write_archive(tmp_path / "raw" / "dmmath" / "mathematics_dataset-v1.0.tar.gz", GOOD)
    if callable(damage):
        path.write_bytes(damage(path.read_bytes()))
    else:
        tools.write_archive(path, damage)
    root = tmp_path / "root"
    for _ in range(2):
        refused(try_(world, "fetch", root, raw=tmp_path / "raw", workers=2), INPUT, f"{path}: {said}", root=root)
    assert not (root / "raw").exists()
    assert not list(tmp_path.rglob("mul.txt"))

    # The other archive was unpacked, and is not a second time.
    tools.write_archive(path, GOOD)
    done = try_(world, "fetch", root, raw=tmp_path / "raw")
    tools.folder(done)
    assert done.said("fetch: 1 of 2 shards reused")


# Raw data


MALFORMED = {
    "invalid_json": '{"question": "what?", "answer": #### 4}',
    "cut": '{"question": "what?", "ans',
    "not_an_object": '["what?", "#### 4"]',
    "null_question": '{"question": null, "answer": "#### 4"}',
    "missing_answer": '{"question": "what?"}',
    "answer_is_no_text": '{"question": "what?", "answer": 4}',
    "no_final_answer": '{"question": "what?", "answer": "four"}',
    "unpaired_surrogate": '{"question": "what \\ud800?", "answer": "#### 4"}',
    "invalid_utf8": '{"question": "what \xff?", "answer": "#### 4"}',
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("reason", MALFORMED)
def test_malformed_raw_line(world: World, tmp_path: Path, reason: str) -> None:
    good = [json.dumps(item) for item in tools.gsm8k(9)]
    lines = [*good[:5], MALFORMED[reason], *good[5:]]
    path = tmp_path / "raw" / "gsm8k_train" / "train.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes("".join(line + "\n" for line in lines).encode("latin-1"))
    expected = {"cut": "invalid_json", "deep": "invalid_json"}.get(reason, reason)
    root = tmp_path / "root"
    done = try_(world, "clean", root, raw=tmp_path / "raw")
    refused(done, INPUT, f"gsm8k_train/train.jsonl row 6: {expected}", "1 of 10 records", root=root)

    done = try_(world, "clean", root, raw=tmp_path / "raw", max_reject_fraction=0.5)
    folder = tools.folder(done)
    ledger = tools.read_manifest(folder)["ledger"]
    assert (ledger["rows_in"], ledger["rows_kept"], ledger["rows_out"]) == (10, 9, 9)
    assert ledger["dropped"] == {expected: 1}
    assert len((folder / "data" / "gsm8k_train.jsonl").read_text().splitlines()) == 9
    (reject,) = (folder / "rejects" / "data" / "gsm8k_train.jsonl.jsonl").read_text().splitlines()
    origin = json.loads(reject)
    assert origin.keys() == {"file", "row", "place", "reason", "record"}
    assert (origin["file"], origin["row"], origin["place"]) == ("gsm8k_train/train.jsonl", 6, "row 6")
    assert origin["reason"] == expected
    # What could not be read cannot be shown; what could is.
    unreadable = expected in {"invalid_json", "invalid_utf8"}
    assert origin["record"] == (None if unreadable else repr(json.loads(MALFORMED[reason])))
    # What was put aside is no data of the next stage.
    rows = try_(world, "tokenize", root, rows=folder)
    assert tools.read_manifest(tools.folder(rows))["ledger"]["rows_in"] == 9
    assert not (tools.folder(rows) / "rejects").exists()


def test_null_in_raw_parquet(world: World, tmp_path: Path) -> None:
    values: list[dict[str, Any]] = tools.gsm8k(20)
    values[7]["answer"] = None
    tools.write_gsm8k(tmp_path / "raw" / "gsm8k_train" / "train.parquet", values)
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw")
    refused(done, INPUT, "gsm8k_train/train.parquet row 8: null_answer", root=tmp_path / "root")


def test_raw_parquet_without_a_column(world: World, tmp_path: Path) -> None:
    path = tools.write_table(tmp_path / "raw" / "gsm8k_train" / "train.parquet", {"question": ["a", "b"], "n": [1, 2]})
    for profile in ("pairmill", "data_io"):
        done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw", profile=profile)
        said = f"{path}: column 'answer' is missing; got question, n; expected question, answer"
        refused(done, INPUT, said, "check that this is the data set of gsm8k_train", root=tmp_path / "root")


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"question": ["a", "b"], "answer": [1, 2]}, "answer_is_no_text"),
        ({"question": [["a"], ["b"]], "answer": ["#### 1", "#### 2"]}, "question_is_no_text"),
    ],
)
def test_raw_parquet_of_other_columns(world: World, tmp_path: Path, columns: dict[str, Any], reason: str) -> None:
    tools.write_table(tmp_path / "raw" / "gsm8k_train" / "train.parquet", columns)
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw")
    refused(done, INPUT, f"gsm8k_train/train.parquet row 1: {reason}", root=tmp_path / "root")


@pytest.mark.parametrize(
    ("path", "data", "said"),
    [
        (
            "dmmath/train-easy/add.txt",
            b"1 + 1?\n2\n2 + 2?\n",
            "dmmath/train-easy/add.txt row 3: question_without_answer",
        ),
        (
            "dmmath/train-easy/add.txt",
            b"1 + 1?\n2\n\n4\n2 + 2?\n4\n",
            "dmmath/train-easy/add.txt row 4: out_of_step_behind_an_empty_line",
        ),
        ("dmmath/train-easy/add.txt", b"1 + 1?\n2\n2 + \xff?\n4\n", "dmmath/train-easy/add.txt row 3: invalid_utf8"),
        ("sudoku/train.csv", b"source,question,answer,rating\nx,1,2,\xff\n", "sudoku/train.csv row 2: invalid_utf8"),
        ("sudoku/train.csv", b"source,question,answer,rating\nx,1,2\n", "sudoku/train.csv row 2: not_four_fields"),
        ("sudoku/train.csv", b"source,question,answer,rating\nx,1,2,3\n", "sudoku/train.csv row 2: not_81_cells"),
        ("sudoku/train.csv", b'source,question,answer,rating\nx,"' + b"1" * 200_000, "train.csv line 2: not valid CSV"),
        ("scibench/thermo.json", b'[{"problem_text": "a"}, {"problem', "thermo.json row 2 (line 1): not valid JSON"),
        ("scibench/thermo.json", b'[{"problem_text": "a"} {}]', "thermo.json row 2 (line 1): not valid JSON"),
        ("scibench/thermo.json", b'[{"problem_text": "a"}] x', "thermo.json row 2 (line 1): not valid JSON"),
        ("scibench/thermo.json", b'[\n"\xff"]', "thermo.json line 2: not valid UTF-8"),
        ("scibench/thermo.json", b"[" * 100_000, "thermo.json row 1 (line 1): not valid JSON"),
        ("scibench/thermo.json", b"[1, 2]", "scibench/thermo.json row 1: not_an_object"),
        ("scibench/thermo.json", b'[{"problem_text": null}]', "scibench/thermo.json row 1: null_problem_text"),
        ("scibench/thermo.json", b'[{"problem_text": "\\udc00", "answer_latex": "1"}]', "row 1: unpaired_surrogate"),
    ],
)
def test_malformed_raw_file(world: World, tmp_path: Path, path: str, data: bytes, said: str) -> None:
    target = tmp_path / "raw" / path
    target.parent.mkdir(parents=True)
    target.write_bytes(data)
    for profile in ("pairmill", "data_io"):
        if profile == "data_io" and "empty_line" in said:
            continue  # the reference takes it for a question
        done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw", profile=profile)
        refused(done, INPUT, said, root=tmp_path / "root")


PUZZLE = ",".join(tools.sudoku(1)[0]).encode() + b"\n"
HEADER = b"source,question,answer,rating\n"


@pytest.mark.parametrize(
    ("path", "data", "kept", "aside"),
    [
        (
            "dmmath/train-easy/add.txt",
            b"1 + 1?\n2\n2 + \xff?\n4\n3 + 3?\n\xff\n4 + 4?\n8\n",
            2,
            {3: "invalid_utf8", 5: "invalid_utf8"},
        ),
        (
            "dmmath/train-easy/add.txt",
            b"1 + 1?\n2\n\n4\n2 + 2?\n4\n",
            1,
            {4: "out_of_step_behind_an_empty_line", 6: "question_without_answer"},
        ),
        (
            "sudoku/train.csv",
            HEADER + PUZZLE + b"x,1,2,\xff\n" + PUZZLE + b"x,1,2\nx,1,2,3\n\n" + PUZZLE,
            3,
            {3: "invalid_utf8", 5: "not_four_fields", 6: "not_81_cells", 7: "not_four_fields"},
        ),
        ("scibench/thermo.json", json.dumps([*tools.scibench(2), 5]).encode(), 2, {3: "not_an_object"}),
    ],
)
def test_bad_records_are_put_aside(
    world: World, tmp_path: Path, path: str, data: bytes, kept: int, aside: dict[int, str]
) -> None:
    """The good ones beside them are kept, if that is what is asked for."""
    target, root = tmp_path / "raw" / path, tmp_path / "root"
    target.parent.mkdir(parents=True)
    target.write_bytes(data)
    source = path.split("/")[0]
    wrong = f"{len(aside)} of {kept + len(aside)} records of {source} are malformed"
    first = {reason: row for row, reason in reversed(aside.items())}
    places = [f"{path} row {row}: {reason}" for reason, row in first.items()]
    done = try_(world, "clean", root, raw=tmp_path / "raw")
    refused(done, INPUT, f"{wrong}, more than 0.001 of them", *places, "raise max_reject_fraction=", root=root)
    if "out_of_step_behind_an_empty_line" not in aside.values():
        # The reference takes none, and then neither do we.
        done = try_(world, "clean", root, raw=tmp_path / "raw", profile="data_io", max_reject_fraction=1)
        assert "max_reject_fraction" not in refused(done, INPUT, wrong, *places, root=root)

    folder = tools.folder(try_(world, "clean", root, raw=tmp_path / "raw", max_reject_fraction=1))
    ledger = tools.read_manifest(folder)["ledger"]
    assert (ledger["rows_in"], ledger["rows_kept"]) == (kept + len(aside), kept)
    assert ledger["dropped"] == {reason: list(aside.values()).count(reason) for reason in aside.values()}
    (rejects,) = (folder / "rejects").rglob("*.jsonl")
    found = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert {one["row"]: one["reason"] for one in found} == aside
    assert {one["file"] for one in found} == {path}


def test_share_of_bad_records_that_is_taken(world: World, tmp_path: Path) -> None:
    """One in a thousand by default."""
    path = tmp_path / "raw" / "gsm8k_train" / "train.jsonl"
    root = tmp_path / "root"
    for count, bad, taken in ((1000, 1, True), (999, 1, False), (2999, 3, False), (3000, 3, True)):
        tools.write_lines(path, [*tools.gsm8k(count - bad), *["{"] * bad])
        done = try_(world, "clean", root, raw=tmp_path / "raw")
        if taken:
            ledger = tools.read_manifest(tools.folder(done))["ledger"]
            assert (ledger["rows_kept"], ledger["dropped"]) == (count - bad, {"invalid_json": bad})
            shutil.rmtree(root)
        else:
            refused(done, INPUT, f"{bad} of {count} records", "more than 0.001", root=root)


def test_empty_lines_at_the_end_do_no_harm(world: World, tmp_path: Path) -> None:
    tools.write_text(tmp_path / "raw" / "dmmath" / "train-easy" / "add.txt", "1 + 1?\n2\n2 + 2?\n4\n\n \n\n")
    folder = tools.folder(try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw"))
    assert tools.read_manifest(folder)["ledger"]["rows_out"] == 2
    assert not (folder / "rejects").exists()


def test_lost_line_puts_nothing_out_of_step(world: World, tmp_path: Path) -> None:
    """Behind it answers would stand as questions and questions as answers: no share of bad records is small enough."""
    lines = tools.dmmath(3000).splitlines(keepends=True)
    del lines[3001]
    path = tools.write_text(tmp_path / "raw" / "dmmath" / "train-easy" / "add.txt", "".join(lines))
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw")
    refused(done, INPUT, path.relative_to(tmp_path / "raw"), root=tmp_path / "root")


def test_stray_quote_swallows_no_rows(world: World, tmp_path: Path) -> None:
    """To a CSV reader everything behind it is one field: thousands of rows must not go as one bad record."""
    path = tools.write_csv(tmp_path / "raw" / "sudoku" / "train.csv", tools.sudoku(3000))
    lines = path.read_text().splitlines(keepends=True)
    lines[1500] = lines[1500].replace(",", ',"', 1)
    path.write_text("".join(lines))
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw")
    refused(done, INPUT, path.relative_to(tmp_path / "raw"), root=tmp_path / "root")


def test_raw_text_that_is_no_utf8_in_parquet(world: World, tmp_path: Path) -> None:
    values = tools.gsm8k(20)
    table = {
        "question": not_utf8([item["question"] for item in values], 7),
        "answer": [item["answer"] for item in values],
    }
    tools.write_table(tmp_path / "raw" / "gsm8k_train" / "train.parquet", table)
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw")
    refused(done, INPUT, "gsm8k_train/train.parquet", "row", root=tmp_path / "root")


def not_utf8(texts: list[str], row: int) -> pa.Array:
    """A string column whose text of this row begins with a byte that no UTF-8 text has."""
    values = [text.encode() for text in texts]
    values[row] = b"\xff" + values[row][1:]
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers())


def test_two_raw_files_of_one_output(world: World, tmp_path: Path) -> None:
    for name in ("a b", "a&b", "a:b"):
        tools.write_text(tmp_path / "raw" / "dmmath" / "train-easy" / f"{name}.txt", tools.dmmath(5))
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw")
    refused(done, INPUT, "two raw files have the same output", "a_b.parquet", root=tmp_path / "root")


@pytest.mark.parametrize(
    ("card", "said"),
    [
        ("---\nconfigs: [\n---\n", "README.md"),
        ("---\nconfigs: 5\n---\n", "README.md"),
        ("---\nconfigs:\n- main\n---\n", "README.md"),
        ("---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n---\n", "README.md"),
        ("---\nconfigs:\n- config_name: main\n  data_files:\n  - split: train\n    path: x-*\n---\n", "no file of"),
    ],
)
def test_data_set_card(world: World, tmp_path: Path, card: str, said: str) -> None:
    tools.write_gsm8k(tmp_path / "raw" / "gsm8k_train" / "train.jsonl", tools.gsm8k(5))
    tools.write_text(tmp_path / "raw" / "gsm8k_train" / "README.md", card)
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw")
    refused(done, INPUT, said, root=tmp_path / "root")


def test_split_in_two_formats(world: World, tmp_path: Path) -> None:
    tools.write_gsm8k(tmp_path / "raw" / "gsm8k_train" / "train.jsonl", tools.gsm8k(5))
    tools.write_gsm8k(tmp_path / "raw" / "gsm8k_train" / "train.parquet", tools.gsm8k(5))
    done = try_(world, "clean", tmp_path / "root", raw=tmp_path / "raw")
    refused(done, INPUT, "several formats", root=tmp_path / "root")


# Rows

ROW = {"condition": "direct", "instruction": "a", "response": "b"}


@pytest.mark.parametrize("name", READS_ROWS)
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"condition": "direct", "instruction": }', "row 3 (line 3): not valid JSON"),
        ('{"condition": "direct", "instruc', "row 3 (line 3): not valid JSON"),
        ('{"condition": "direct", "instruction": NaN}', "row 3 (line 3): not valid JSON"),
        ("[" * 100_000, "row 3 (line 3): not valid JSON"),
        ({**ROW, "instruction": None}, "row 3: instruction is not text; got null"),
        ({**ROW, "condition": None}, "row 3: condition is not text; got null"),
        ({**ROW, "response": 4}, "row 3: response is not text; got int"),
        ({"condition": "direct", "instruction": "a"}, "row 3: response is missing"),
        ('{"condition":"direct","instruction":"a","response":"b","response":"c"}', "row 3: response is given twice"),
        ('"a text"', "row 3: not a JSON object"),
        (["direct", "a"], "row 3: not a JSON object"),
        ('{"condition":"direct","instruction":"\\ud800","response":"b"}', "row 3: an unpaired surrogate"),
    ],
)
def test_malformed_row(world: World, tmp_path: Path, name: str, line: object, said: str) -> None:
    path = rows_file(tmp_path / "rows" / "x.jsonl", line, ROW)
    # As the reference has no such stage, curate hands on what it is given, and reads nothing.
    for profile in ("pairmill",) if name == "curate" else ("pairmill", "data_io"):
        done = try_(world, name, tmp_path / "root", rows=tmp_path / "rows", profile=profile)
        refused(done, INPUT, f"{path} {said}", "x.jsonl: ", root=tmp_path / "root")


@pytest.mark.parametrize("name", READS_ROWS)
def test_row_that_is_no_utf8(world: World, tmp_path: Path, name: str) -> None:
    path = rows_file(tmp_path / "rows" / "x.jsonl", ROW)
    path.write_bytes(path.read_bytes() + b'{"condition":"direct","instruction":"\xff","response":"b"}\n')
    done = try_(world, name, tmp_path / "root", rows=tmp_path / "rows")
    refused(done, INPUT, f"{path} line 4: not valid UTF-8", root=tmp_path / "root")


@pytest.mark.parametrize("name", READS_ROWS)
def test_parquet_text_that_is_no_utf8(world: World, tmp_path: Path, name: str) -> None:
    values = tools.rows(20)
    columns: dict[str, Any] = {field: [row[place] for row in values] for place, field in enumerate(tools.FIELDS)}
    columns["response"] = not_utf8(columns["response"], 7)
    path = tools.write_table(tmp_path / "rows" / "x.parquet", columns)
    done = try_(world, name, tmp_path / "root", rows=tmp_path / "rows")
    refused(done, INPUT, path, "row", root=tmp_path / "root")


@pytest.mark.parametrize("name", READS_ROWS)
@pytest.mark.parametrize("field", ["instruction", "response"])
def test_null_in_parquet_rows(world: World, tmp_path: Path, name: str, field: str) -> None:
    values = tools.rows(30)
    columns: dict[str, Any] = {name: [row[place] for row in values] for place, name in enumerate(tools.FIELDS)}
    columns[field][17] = None
    path = tools.write_table(tmp_path / "rows" / "x.parquet", columns)
    done = try_(world, name, tmp_path / "root", rows=tmp_path / "rows")
    refused(done, INPUT, f"{path} row 18: {field} is null", root=tmp_path / "root")
    if name == "curate":
        return

    # The reference reads a null as an empty text.
    columns[field][17] = ""
    tools.write_table(tmp_path / "empty" / "x.parquet", columns)
    results = [
        tools.folder(try_(world, name, tmp_path / "root", rows=tmp_path / given, profile="data_io"))
        for given in ("rows", "empty")
    ]
    files = ("tokenizer.json",) if name == "train_tokenizer" else ("x.parquet/tokens.npy", "x.parquet/inst_len.npy")
    for file in files:
        assert (results[0] / file).read_bytes() == (results[1] / file).read_bytes()


def test_null_condition(world: World, tmp_path: Path) -> None:
    columns: dict[str, Any] = {"condition": ["direct", None], "instruction": ["a", "b"], "response": ["c", "d"]}
    path = tools.write_table(tmp_path / "rows" / "x.parquet", columns)
    for profile, said in (("pairmill", "condition is null"), ("data_io", "condition '' is unknown")):
        done = try_(world, "tokenize", tmp_path / "root", rows=tmp_path / "rows", profile=profile)
        refused(done, INPUT, f"{path} row 2: {said}", root=tmp_path / "root")


@pytest.mark.parametrize("condition", ["cott", "", "direct,", "direct, cot", "Direct"])
@pytest.mark.parametrize("extension", ["jsonl", "parquet"])
def test_unknown_condition(world: World, tmp_path: Path, condition: str, extension: str) -> None:
    values = tools.rows(30)
    values[21] = (condition, "a", "b")
    path = tools.write_rows(tmp_path / "rows" / f"x.{extension}", values)
    profile = "pairmill" if condition else "data_io"  # it means no tag elsewhere
    done = try_(world, "tokenize", tmp_path / "root", rows=tmp_path / "rows", profile=profile)
    tag = next(tag for tag in condition.split(",") if tag not in {"direct", "cot"})
    said = f"{path} row 22: condition {tag!r} is unknown"
    refused(done, INPUT, said, "expected cot, direct, noisy, synth", root=tmp_path / "root")


def test_other_files_are_committed(world: World, tmp_path: Path) -> None:
    tools.write_rows(tmp_path / "rows" / "good.parquet", tools.rows(20))
    bad = rows_file(tmp_path / "rows" / "bad.jsonl", {**ROW, "condition": "x"})
    worse = rows_file(tmp_path / "rows" / "worse.jsonl", "{")
    root = tmp_path / "root"
    done = try_(world, "tokenize", root, rows=tmp_path / "rows", workers=2)
    refused(done, INPUT, "2 of 3 shards failed", f"{bad} row 3", f"{worse} row 3", root=root)
    assert len(tools.records(root, "tokenize")) == 1
    for path in (bad, worse):
        rows_file(path, ROW)
    done = try_(world, "tokenize", root, rows=tmp_path / "rows")
    assert done.said("1 of 3 shards reused")
    assert tools.read_manifest(tools.folder(done))["ledger"]["rows_in"] == 26


CUTS = (0, 1, 4, 8, 0.1, 0.5, 0.9, -200, -9, -8, -5, -1)


def cut(data: bytes, place: float) -> bytes:
    """The first bytes: a number of them, a fraction, or all but a number."""
    return data[: int(place * len(data)) if isinstance(place, float) else place]


@pytest.mark.parametrize("name", ["clean", *READS_ROWS])
def test_cut_parquet(world: World, tmp_path: Path, name: str) -> None:
    if name == "clean":
        path = tools.write_gsm8k(tmp_path / "given" / "gsm8k_train" / "train.parquet", tools.gsm8k(300))
        changed: dict[str, object] = {"raw": tmp_path / "given"}
    else:
        path = tools.write_rows(tmp_path / "given" / "x.parquet", tools.rows(300), row_group_size=100)
        changed = {"rows": tmp_path / "given"}
    data = path.read_bytes()
    for place in CUTS:
        path.write_bytes(cut(data, place))
        done = try_(world, name, tmp_path / "root", **changed)
        refused(done, INPUT, f"{path}: not a readable Parquet file", root=tmp_path / "root")
    path.write_bytes(data)
    assert try_(world, name, tmp_path / "root", **changed).code == 0


@pytest.mark.parametrize("name", ["clean", *READS_ROWS])
def test_parquet_with_a_hole(world: World, tmp_path: Path, name: str) -> None:
    """The footer is there, pages are not: a copy that was interrupted and went on at the wrong place."""
    if name == "clean":
        path = tools.write_gsm8k(tmp_path / "given" / "gsm8k_train" / "train.parquet", tools.gsm8k(3000))
        changed: dict[str, object] = {"raw": tmp_path / "given"}
    else:
        path = tools.write_rows(tmp_path / "given" / "x.parquet", tools.rows(3000), row_group_size=1000)
        changed = {"rows": tmp_path / "given"}
    data = path.read_bytes()
    for start in (4, len(data) // 2):
        path.write_bytes(data[:start] + bytes(4000) + data[start + 4000 :])
        done = try_(world, name, tmp_path / "root", **changed)
        refused(done, INPUT, f"{path} row ", "is damaged", root=tmp_path / "root")


def damaged_footers(path: Path) -> list[bytes]:
    """The file with one byte of its footer changed so that pyarrow reads fewer rows than the footer says, silently."""
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    # 50, the rows of a group, as Thrift writes it
    places = [place for place in range(footer, len(data) - 8) if data[place] == 100]
    found = []
    for place, other in ((place, other) for place in places for other in (1, 4, 41, 63, 76, 99, 115)):
        changed = data[:place] + bytes([other]) + data[place + 1 :]
        try:
            with pq.ParquetFile(pa.BufferReader(changed), pre_buffer=False) as file:
                groups = range(file.metadata.num_row_groups)
                batches = (file.iter_batches(row_groups=[group]) for group in groups)
                read = sum(len(batch) for group in batches for batch in group)
                said = file.metadata.num_rows
        except (pa.ArrowException, OSError):
            continue
        if read < said == 200:
            found.append(changed)
    return found


@pytest.mark.parametrize("name", ["clean", *READS_ROWS])
def test_parquet_that_holds_fewer_rows_than_it_says(world: World, tmp_path: Path, name: str) -> None:
    if name == "clean":
        path = tools.write_gsm8k(
            tmp_path / "given" / "gsm8k_train" / "train.parquet", tools.gsm8k(200), row_group_size=50
        )
        changed: dict[str, object] = {"raw": tmp_path / "given"}
    else:
        path = tools.write_rows(tmp_path / "given" / "x.parquet", tools.rows(200), row_group_size=50)
        changed = {"rows": tmp_path / "given"}
    damaged = damaged_footers(path)
    assert len(damaged) >= 4
    for data in damaged[:: len(damaged) // 4]:
        path.write_bytes(data)
        refused(try_(world, name, tmp_path / "root", **changed), INPUT, path, root=tmp_path / "root")


@pytest.mark.parametrize("name", ["clean", *READS_ROWS])
def test_parquet_whose_column_names_are_no_utf8(world: World, tmp_path: Path, name: str) -> None:
    if name == "clean":
        path = tools.write_gsm8k(tmp_path / "given" / "gsm8k_train" / "train.parquet", tools.gsm8k(20))
        changed: dict[str, object] = {"raw": tmp_path / "given"}
    else:
        path = tools.write_rows(tmp_path / "given" / "x.parquet", tools.rows(20))
        changed = {"rows": tmp_path / "given"}
    path.write_bytes(path.read_bytes().replace(b"question", b"\xffuestion").replace(b"response", b"\xffesponse"))
    refused(try_(world, name, tmp_path / "root", **changed), INPUT, path, root=tmp_path / "root")


@pytest.mark.parametrize("name", READS_ROWS)
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"condition": ["a"], "instruction": ["b"]}, "column 'response' is missing"),
        ({"condition": ["a"], "instruction": ["b"], "response": [4]}, "column 'response' is not text; got int64"),
        ({"condition": ["a"], "instruction": [["b"]], "response": ["c"]}, "column 'instruction' is not text"),
        ({"condition": [b"a"], "instruction": ["b"], "response": ["c"]}, "column 'condition' is not text; got binary"),
    ],
)
def test_parquet_of_other_columns(
    world: World, tmp_path: Path, name: str, columns: dict[str, list[Any]], said: str
) -> None:
    path = tools.write_table(tmp_path / "rows" / "x.parquet", columns)
    done = try_(world, name, tmp_path / "root", rows=tmp_path / "rows")
    refused(done, INPUT, f"{path}: {said}", root=tmp_path / "root")


@pytest.mark.parametrize("name", READS_ROWS)
def test_parquet_with_a_column_twice(world: World, tmp_path: Path, name: str) -> None:
    arrays = [pa.array([text]) for text in ("direct", "a", "b", "c")]
    table = pa.Table.from_arrays(arrays, names=["condition", "instruction", "response", "response"])
    (tmp_path / "rows").mkdir()
    pq.write_table(table, tmp_path / "rows" / "x.parquet")
    done = try_(world, name, tmp_path / "root", rows=tmp_path / "rows")
    refused(done, INPUT, tmp_path / "rows" / "x.parquet", "response", root=tmp_path / "root")


@pytest.mark.parametrize("name", READS_ROWS)
def test_two_files_of_one_task_name(world: World, tmp_path: Path, name: str) -> None:
    one = tools.write_rows(tmp_path / "rows" / "a" / "b.jsonl", tools.rows(3))
    two = tools.write_rows(tmp_path / "rows" / "a__b.jsonl", tools.rows(3, seed=1))
    done = try_(world, name, tmp_path / "root", rows=tmp_path / "rows")
    refused(done, INPUT, "task name 'a__b.jsonl'", one, two, root=tmp_path / "root")
    for folder in ("left", "right"):
        tools.write_rows(tmp_path / folder / "b.jsonl", tools.rows(3))
    done = try_(world, name, tmp_path / "root", rows=f"{tmp_path / 'left'},{tmp_path / 'right'}")
    refused(done, INPUT, "task name 'b.jsonl'", root=tmp_path / "root")


# Tokenizers


def test_tokenizer_without_special_tokens(world: World, tmp_path: Path) -> None:
    done = try_(world, "train_tokenizer", tmp_path / "root", special_tokens="<|PAD|>,<|im_start|>")
    trained = tools.folder(done)
    done = try_(world, "tokenize", tmp_path / "other", tokenizer=trained)
    refused(done, INPUT, trained / "tokenizer.json", "<|im_end|>", "<|quad_end|>", root=tmp_path / "other")
    assert "<|im_start|>" not in done.message.split("expected")[0]
    done = try_(world, "tokenize", tmp_path / "other", eoa="<|no such|>")
    refused(done, INPUT, "got <|no such|>;", root=tmp_path / "other")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no JSON",
        b"{}",
        b"[]",
        b'{"version": "1.0", "model": {"type": "BPE"}}',
        b'{"a": "\xff"}',
        b"\x89PNG\r\n",
        "half",
    ],
)
def test_tokenizer_that_is_none(world: World, tmp_path: Path, data: bytes | str) -> None:
    path = tmp_path / "tokenizer.json"
    whole = (world.tokenizer / "tokenizer.json").read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if isinstance(data, str) else data)
    for given in (path, tmp_path):
        done = try_(world, "tokenize", tmp_path / "root", tokenizer=given)
        refused(done, INPUT, path, root=tmp_path / "root")


# Space and permission


def command_of(world: World, name: str, root: Path, out: Path, raw: Path, workers: int) -> list[str]:
    changed: dict[str, object] = {"workers": workers} if name != "sample" else {"output_path": out, "epochs": 60}
    if name == "fetch":
        changed["raw"] = raw
    return tools.command(name, **options(world, name, root, **changed))


def result_of(done: tools.Done, name: str, root: Path, out: Path) -> dict[str, str]:
    """Digests of what a run made: of fetch the raw data too, less their manifests, which tell the time."""
    found = tools.digests(out if name == "sample" else tools.folder(done))
    if name == "fetch":
        found |= {path: one for path, one in tools.digests(root / "raw").items() if not path.endswith(tools.MANIFEST)}
    return found


@pytest.mark.parametrize("name", cases(tools.LINE, "curate", "train_tokenizer", "tokenize"))
def test_full_disk(world: World, tmp_path: Path, name: str, small_disk: Callable[[int], tools.Disk]) -> None:
    """Sizes from next to nothing to almost enough, so that space ends in every phase; `make test-long` has more."""
    raw = tools.raw_archives(tmp_path / "raw", 2000)
    plenty = small_disk(64 << 20)
    root = plenty.path / "root" if name != "sample" else tmp_path / "root"
    command = command_of(world, name, root, plenty.path / "out", raw, workers=2)
    done = tools.ended(tools.run(command, fresh=True))
    wanted, needed = result_of(done, name, root, plenty.path / "out"), plenty.used()
    assert needed > 100_000
    for part in (0.02, 0.3, 0.6, 0.9, 0.97) if EVERY else (0.6, 0.97):
        disk = small_disk(max(1, int(needed * part) // 4096) * 4096)
        root = disk.path / "root" if name != "sample" else tmp_path / f"root{part}"
        out = disk.path / "out"
        command = command_of(world, name, root, out, raw, workers=2 if part == 0.6 else 1)
        advice = "nothing was written; free" if name == "sample" else "free space"
        refused(tools.run(command), STORAGE, "no space left", advice, root=root)
        if name == "sample":
            assert list(disk.path.iterdir()) == []
            assert not root.exists()
        disk.resize(64 << 20)
        done = tools.ended(tools.run(command))
        assert result_of(done, name, root, out) == wanted
        assert not tools.partials(disk.path)


def test_full_disk_keeps_an_older_sample(world: World, tmp_path: Path, small_disk: Callable[[int], tools.Disk]) -> None:
    disk = small_disk(64 << 20)
    out = disk.path / "out"
    tools.ended(try_(world, "sample", tmp_path, root="", output_path=out, epochs=30))
    before = tools.stamps(disk.path)
    disk.resize(disk.used() + 65536)
    done = try_(world, "sample", tmp_path, root="", output_path=out, epochs=31)
    refused(done, STORAGE, "no space left")
    assert tools.stamps(disk.path) == before


@pytest.mark.parametrize("name", tools.STAGES)
def test_read_only_root(world: World, tmp_path: Path, name: str, small_disk: Callable[[int], tools.Disk]) -> None:
    disk = small_disk(1 << 20)
    disk.read_only()
    out = tmp_path / "out"
    changed: dict[str, object] = {"output_path": out} if name == "sample" else {}
    done = try_(world, name, disk.path / "root", **changed)
    refused(done, STORAGE, disk.path)
    if name == "sample":
        assert not out.exists()
        done = try_(world, name, tmp_path / "root", output_path=disk.path / "out")
        refused(done, STORAGE, disk.path)
        assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("name", tools.STAGES)
def test_root_below_a_file(world: World, tmp_path: Path, name: str) -> None:
    tools.write_text(tmp_path / "file", "mine")
    changed: dict[str, object] = {"output_path": ""} if name == "sample" else {}
    done = try_(world, name, tmp_path / "file" / "root", **changed)
    refused(done, STORAGE, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


# sample


@pytest.mark.parametrize("kind", ["folder", "file", "link", "stage"])
def test_foreign_output_path(world: World, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "folder":
        tools.write_text(out / "precious.txt", "mine")
    elif kind == "file":
        tools.write_text(out, "mine")
    elif kind == "link":
        tools.write_text(tmp_path / "elsewhere" / "precious.txt", "mine")
        out.symlink_to(tmp_path / "elsewhere")
    else:
        shutil.copytree(world.cleaned, out)
    before = tools.stamps(tmp_path)
    done = try_(world, "sample", tmp_path, root="", output_path=out)
    refused(done, USAGE, f"output_path={out}", "choose another output_path")
    assert tools.stamps(tmp_path) == before


def test_empty_output_folder_is_taken(world: World, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    tools.ended(try_(world, "sample", tmp_path / "root", output_path=tmp_path / "out"))
    assert (tmp_path / "out" / "metadata.json").is_file()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prefix: x", "not a list of rules"),
        ("- prefix: [", "not valid YAML"),
        ("- \x07", "not valid YAML"),
        ("- x", "rule 1: the rule has no prefix"),
        ("- repeat: 2", "rule 1: the rule has no prefix"),
        ("- prefix: a\n- prefix: 5", "rule 2: prefix is not a text"),
        ("- prefix: a\n  repaet: 2", "did you mean 'repeat'?"),
        ("- prefix: a\n  repeat: 1.5", "rule 1: repeat is not a count"),
        ("- prefix: a\n  repeat: null", "rule 1: repeat is not a count"),
        ("- prefix: a\n  max_per_file: -1", "rule 1: max_per_file is not a count"),
        ("- prefix: a\n  long_context: cut", "rule 1: long_context is not valid"),
        ("- prefix: flan__\n- prefix: flan__cot_", "rule 2: the rule for 'flan__cot_' can never apply"),
    ],
)
def test_wrong_rules(world: World, tmp_path: Path, text: str, said: str) -> None:
    path = tools.write_text(tmp_path / "rules.yaml", text)
    done = try_(world, "sample", tmp_path / "root", prefix_config_path=path)
    refused(done, USAGE, path, said)
    assert not (tmp_path / "root").exists()


def test_rules_that_are_no_text(world: World, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_bytes(b"- prefix: \xff\n")
    for name in ("train_tokenizer", "sample"):
        refused(try_(world, name, tmp_path / "root", prefix_config_path=path), USAGE, path, "not valid YAML")


def foreign_tokens(world: World, target: Path) -> Path:
    """The tokenized folder as others would have made it."""
    target.mkdir(parents=True)
    for path in world.tokenized.iterdir():
        if path.is_dir():
            shutil.copytree(path, target / path.name, copy_function=shutil.copyfile)
    shutil.copyfile(world.tokenized / "tokenizer_info.json", target / "tokenizer_info.json")
    return target


def test_stray_folder(world: World, tmp_path: Path) -> None:
    foreign = foreign_tokens(world, tmp_path / "tokens")
    tools.write_text(foreign / "notes" / "readme.txt", "x")
    done = try_(world, "sample", tmp_path / "root", tokenized_path=foreign, profile="data_io", output_path="")
    refused(done, INPUT, foreign / "notes", "missing", root=tmp_path / "root")
    tools.ended(try_(world, "sample", tmp_path / "root", tokenized_path=foreign))
    # Half a task is no stray folder.
    (foreign / "gsm8k_train.jsonl" / "resp_len.npy").unlink()
    done = try_(world, "sample", tmp_path / "other", tokenized_path=foreign)
    refused(done, INPUT, foreign / "gsm8k_train.jsonl", "resp_len.npy")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("array", ["tokens", "inst_len"])
@pytest.mark.parametrize("place", [0, 5, 64, 100, 0.5, -8, -1])
def test_cut_array(world: World, tmp_path: Path, array: str, place: float) -> None:
    foreign = foreign_tokens(world, tmp_path / "tokens")
    path = foreign / "gsm8k_train.jsonl" / f"{array}.npy"
    path.write_bytes(cut(path.read_bytes(), place))
    done = try_(world, "sample", tmp_path / "root", tokenized_path=foreign)
    refused(done, INPUT, path)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("array", "change", "said"),
    [
        ("inst_len", lambda values: values[:-1], "differ in length"),
        ("tokens", lambda values: values[:-1], "ends after the last token"),
        ("tokens", lambda values: np.append(values, values), "has another length"),
        ("resp_start", lambda values: values + np.uint64(10**6), "points outside the tokens"),
        ("resp_len", lambda values: values + np.uint64(2**63), "points outside the tokens"),
        ("inst_start", lambda values: values.astype(np.float64), "dtype float64"),
        ("inst_start", lambda values: values[:, None], "shape (120, 1)"),
    ],
)
def test_arrays_that_disagree(
    world: World, tmp_path: Path, array: str, change: Callable[[Any], Any], said: str
) -> None:
    foreign = foreign_tokens(world, tmp_path / "tokens")
    path = foreign / "gsm8k_train.jsonl" / f"{array}.npy"
    np.save(path, change(np.load(path)))
    done = try_(world, "sample", tmp_path / "root", tokenized_path=foreign)
    refused(done, INPUT, foreign / "gsm8k_train.jsonl", said)
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("text", ["", "[]", "{", "null", "\xff"])
def test_tokenizer_info_that_is_none(world: World, tmp_path: Path, text: str) -> None:
    foreign = foreign_tokens(world, tmp_path / "tokens")
    (foreign / "tokenizer_info.json").write_bytes(text.encode("latin-1"))
    done = try_(world, "sample", tmp_path / "root", tokenized_path=foreign)
    refused(done, INPUT, foreign / "tokenizer_info.json", root=tmp_path / "root")


def test_token_outside_the_vocabulary(world: World, tmp_path: Path) -> None:
    foreign = foreign_tokens(world, tmp_path / "tokens")
    path = foreign / "gsm8k_train.jsonl" / "tokens.npy"
    values = np.load(path)
    values[500] = 400
    np.save(path, values)
    done = try_(world, "sample", tmp_path / "root", tokenized_path=foreign)
    refused(done, INPUT, foreign / "gsm8k_train.jsonl", "outside the vocabulary", "got 400", "below 400")
    assert list((tmp_path / "root").iterdir()) == []


def test_more_rows_than_the_reference_holds(world: World, tmp_path: Path) -> None:
    rules = tools.rules(tmp_path / "rules.yaml", "- prefix: gsm8k_train.jsonl\n  repeat: 3\n")
    root, out = tmp_path / "root", tmp_path / "out"
    given: dict[str, object] = {"prefix_config_path": rules, "output_path": out}
    done = try_(world, "sample", root, **given, profile="data_io")
    refused(done, INPUT, "epoch 0: the rules ask for more rows", "lower repeat", root=root)
    assert not out.exists()
    tools.ended(try_(world, "sample", root, **given))
    assert len(np.load(out / "epoch_0" / "inst_len.npy")) > 3 * 120


@pytest.mark.parametrize("name", ["clean", "tokenize", "mix"])
def test_a_root_that_cannot_be_made_is_refused_before_any_shard(world: World, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    root = tmp_path / "file" / "project"
    done = try_(world, name, root, workers=2)
    message = refused(done, STORAGE, f"root={root}: cannot be written", "Not a directory", "write root=")
    assert "shards failed" not in message
