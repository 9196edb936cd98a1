"""The stages behind clean with profile=data_io against what the reference programs made of the same input."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Run = Callable[..., str]


@pytest.mark.parametrize(
    ("rows", "recorded", "tasks"),
    [
        ("conformance/clean/expected/data,conformance/clean/expected/data_clustered", "clean_expected.json", 78),
        ("data/corpus", "corpus.json", 4),
    ],
)
def test_tokenize_gives_the_recorded_arrays(
    shared: Path, stage: Run, tmp_path: Path, rows: str, recorded: str, tasks: int
) -> None:
    expected = json.loads((shared / "conformance/tokenize" / recorded).read_text())
    folders = ",".join(f"{shared}/{part}" for part in rows.split(","))
    tokenizer = shared / "data/tokenizer/tokenizer.json"
    out = Path(
        stage("tokenize", f"rows={folders}", f"tokenizer={tokenizer}", f"root={tmp_path}", "profile=data_io").strip()
    )
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == sorted(expected)
    assert len(expected) == tasks
    for task, arrays in expected.items():
        assert len(arrays) == 5
        for name, want in arrays.items():
            array = np.load(out / task / f"{name}.npy")
            got = {"dtype": str(array.dtype), "len": len(array), "sha256": hashlib.sha256(array.tobytes()).hexdigest()}
            assert got == want, f"{task}/{name}"
    info = (out / "tokenizer_info.json").read_text()
    assert json.loads(info)["tokenizer_path"] == str(tokenizer)
    assert json.loads(info)["vocab_size"] == 65536
    assert list(json.loads(info)) == ["tokenizer_path", "boq", "eoq", "eoa", "condition_mapping", "vocab_size"]
    assert " " not in info.replace(str(tokenizer), "")


@pytest.mark.parametrize(
    ("pattern", "size", "recorded"),
    [("part-0.parquet", 16384, "part-0.v16384.json"), ("part-*.parquet", 65536, "all.v65536.json")],
)
def test_train_tokenizer_gives_the_recorded_file(
    shared: Path, stage: Run, tmp_path: Path, pattern: str, size: int, recorded: str
) -> None:
    files = ",".join(str(path) for path in sorted((shared / "data/corpus").glob(pattern)))
    out = Path(
        stage("train_tokenizer", f"rows={files}", f"root={tmp_path}", f"vocab_size={size}", "profile=data_io").strip()
    )
    made = (out / "tokenizer.json").read_bytes()
    assert made == (shared / "conformance/train_tokenizer" / recorded).read_bytes()
    assert (out / "config.json").read_bytes() == b'{"model_type": "qwen3"}'


CASES = ("defaults", "capped", "short_context", "one_epoch", "many_epochs")


def test_all_sample_cases_are_tried(shared: Path) -> None:
    assert sorted(
        case["case"] for case in json.loads((shared / "conformance/sample/cases.json").read_text())
    ) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_sample_gives_the_recorded_files_and_analytics(shared: Path, stage: Run, tmp_path: Path, name: str) -> None:
    folder = shared / "conformance/sample"
    (case,) = (case for case in json.loads((folder / "cases.json").read_text()) if case["case"] == name)
    out = tmp_path / "sampled"
    stdout = stage(
        "sample",
        f"tokenized_path={folder}/tokenized",
        f"output_path={out}",
        f"prefix_config_path={folder}/{case['prefix_config']}",
        "profile=data_io",
        *case["args"],
    )
    assert stdout == (folder / case["analytics"]).read_text()
    made = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()} - {"_MANIFEST.json"}
    assert made == set(case["sha256"])
    for path, want in case["sha256"].items():
        assert hashlib.sha256((out / path).read_bytes()).hexdigest() == want, path


@pytest.mark.parametrize("name", CASES)
def test_a_plan_holds_the_same_rows_in_either_layout(shared: Path, stage: Run, tmp_path: Path, name: str) -> None:
    folder = shared / "conformance/sample"
    (case,) = (case for case in json.loads((folder / "cases.json").read_text()) if case["case"] == name)
    given = (f"tokenized_path={folder}/tokenized", f"root={tmp_path}/root", "profile=data_io")
    stage("sample", *given, "output_path=", f"prefix_config_path={folder}/{case['prefix_config']}", *case["args"])
    (plan,) = (tmp_path / "root" / "sample").glob("[0-9a-f]*")
    out = {layout: tmp_path / layout for layout in ("data_io", "compact")}
    for layout, path in out.items():
        stage("sample", *given, f"plan={plan}", f"layout={layout}", f"output_path={path}")
    for path, want in case["sha256"].items():
        assert hashlib.sha256((out["data_io"] / path).read_bytes()).hexdigest() == want, path
    tokens = {layout: np.load(path / "tokens.npy", mmap_mode="r") for layout, path in out.items()}
    assert tokens["compact"].dtype == np.uint16
    assert len(tokens["compact"]) <= len(tokens["data_io"])
    epochs = sorted(path.name for path in out["data_io"].glob("epoch_*"))
    assert len(epochs) >= 1
    rows = 0
    for epoch in epochs:
        index = {
            layout: [
                np.load(path / epoch / f"{part}.npy") for part in ("inst_start", "inst_len", "resp_start", "resp_len")
            ]
            for layout, path in out.items()
        }
        assert all(column.dtype == np.int32 for column in index["compact"])
        for one, other in zip(*(zip(*columns, strict=True) for columns in index.values()), strict=True):
            assert (one[1], one[3]) == (other[1], other[3])
            for part in (0, 2):
                spans = [
                    values[span[part] : span[part] + span[part + 1]]
                    for values, span in zip(tokens.values(), (one, other), strict=True)
                ]
                assert np.array_equal(*spans)
            rows += 1
    assert rows > 500
