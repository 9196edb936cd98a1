"""``pairmill stats`` of each kind of result, beside what NumPy and Arrow count in its files."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pairmill import stats
from pairmill.engine.source_names import source_of
from pairmill.formats.opened import open_result
from pairmill.interface.command import run
from tests.support.data import samples, tokenized
from tests.support.stages import line


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("counted")
    places = {name: str(run_().parameters["output"]) for name, run_ in line.stages(base).items()}
    (plan,) = (base / "root" / "sample").glob("?" * 16)
    return {**places, "plan": str(plan), "arrays": str(base / "arrays")}


def counted(capsys: pytest.CaptureFixture[str], path: str) -> dict:  # type: ignore[type-arg]
    assert run(["stats", path, "format=json"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert sum(value["rows_by_length"].values()) == value["measured_rows"]
    return value  # type: ignore[no-any-return]


def test_tokenized(made: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    value = counted(capsys, made["tokenize"])
    arrays = {
        path.parent.name: {name: np.load(path.with_name(f"{name}.npy")) for name in ("tokens", "inst_len", "resp_len")}
        for path in Path(made["tokenize"]).glob("*/tokens.npy")
    }
    assert value["rows"] == value["measured_rows"] == sum(len(item["inst_len"]) for item in arrays.values())
    assert value["tokens"] == sum(len(item["tokens"]) for item in arrays.values())
    assert value["response_tokens"] == sum(int(item["resp_len"].sum()) for item in arrays.values())
    both = np.concatenate([item["inst_len"] + item["resp_len"] for item in arrays.values()])
    wanted = np.percentile(both, stats.PERCENTILES, method="inverted_cdf")
    assert list(value["lengths"]["both"].values()) == wanted.tolist()
    for source in value["sources"]:
        mine = [item for name, item in arrays.items() if source_of(name) == source["name"]]
        assert source["tokens"] == sum(len(item["tokens"]) for item in mine)
        assert source["response_tokens"] == sum(int(item["resp_len"].sum()) for item in mine)
    assert sum(source["rows"] for source in value["sources"]) == value["rows"]


@pytest.mark.parametrize("given", ["plan", "arrays"])
def test_samples(made: dict[str, str], given: str, capsys: pytest.CaptureFixture[str]) -> None:
    value = counted(capsys, made[given])
    index = [samples.arrays(Path(made["arrays"]), epoch)[1] for epoch in range(line.EPOCHS)]
    prompt, response = (np.concatenate([columns[at] for columns in index]) for at in (1, 3))
    assert value["rows_over_all_epochs"] == value["measured_rows"] == len(prompt)
    assert value["tokens_over_all_epochs"] == prompt.sum() + response.sum()
    assert value["response_tokens"] == response.sum() == sum(item["response_tokens"] for item in value["sources"])
    wanted = np.percentile(prompt, stats.PERCENTILES, method="inverted_cdf")
    assert list(value["lengths"]["prompt"].values()) == wanted.tolist()


def test_rows(made: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    value = counted(capsys, made["clean"])
    table = pa.Table.from_batches(open_result(made["clean"]).rows()).to_pydict()
    assert value["rows"] == value["measured_rows"] == len(table["response"])
    assert list(table) == ["condition", "instruction", "response"]
    assert value["lengths"]["response"]["100"] == max(len(text.encode()) for text in table["response"])
    assert value["unit"] == "bytes of text"


def test_many_rows_are_measured_in_part(
    made: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = counted(capsys, made["tokenize"])
    monkeypatch.setattr(stats, "_ROWS", 200)
    monkeypatch.setattr(stats, "_PARTS", 3)
    part = counted(capsys, made["tokenize"])
    assert 0 < part["measured_rows"] <= 200
    assert {**part, "lengths": 0, "measured_rows": 0, "rows_by_length": 0} == {
        **whole,
        "lengths": 0,
        "measured_rows": 0,
        "rows_by_length": 0,
    }


def test_others_and_folders_of_others(made: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert counted(capsys, made["train_tokenizer"])["vocab_size"] == 500
    assert counted(capsys, made["fetch"])["sources"] == []
    theirs = counted(capsys, tokenized.put_folder(tmp_path / "t", {"a": 1, "b": 2}))
    assert (theirs["rows"], theirs["measured_rows"]) == (10, 10)
    arrays = counted(capsys, str(samples.sampled(tmp_path / "s", [[(3, 4), (2, 2)], [(5, 1)]])))
    assert (arrays["epochs"], arrays["rows_over_all_epochs"], arrays["tokens_over_all_epochs"]) == (2, 3, 17)
    assert run(["stats", str(tmp_path / "t")]) == 0
    text = capsys.readouterr().out
    assert "Rows        10\n" in text
    assert "\nSource  Rows  Share" in text
    (tmp_path / "rows").mkdir()
    row = {"condition": "direct", "instruction": "a", "response": "b"}
    (tmp_path / "rows" / "\x1b[2Jx.jsonl").write_text(json.dumps(row) + "\n")
    assert run(["stats", str(tmp_path / "rows")]) == 0
    assert "\x1b" not in capsys.readouterr().out
