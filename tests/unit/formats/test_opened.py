"""Finished folders opened by what they are: of each kind, of others, in a bucket, and what is none."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, UsageError
from pairmill.formats.opened import KINDS, RangedTokens, open_result
from pairmill.formats.tokens import Array
from pairmill.interface.command import STAGES
from tests.support.data import samples, tokenized
from tests.support.stages import line


def test_every_stage_has_a_kind() -> None:
    assert set(STAGES) - set(KINDS) == set()


def test_results_of_the_line(tmp_path: Path) -> None:
    made = {name: run().parameters["output"] for name, run in line.stages(tmp_path).items()}
    kinds = {name: open_result(str(place)).kind for name, place in made.items()}
    assert kinds == {
        "fetch": "fetched",
        "clean": "rows",
        "train_tokenizer": "tokenizer",
        "tokenize": "tokenized",
        "sample": kinds["sample"],
    }
    rows, tokens = open_result(str(made["clean"])), open_result(str(made["tokenize"]))
    assert rows.manifest is not None
    assert len(rows) == rows.manifest.ledger.rows_out == sum(len(batch) for batch in rows.rows()) > 1000
    assert rows.tasks == tokens.tasks
    name = next(task for task in rows.tasks if "gsm8k" in task)
    (batch,) = rows.rows(name.rpartition(".")[0])
    assert batch.schema.names == ["condition", "instruction", "response"]
    ids = tokens.tokens(name)
    assert len(ids) == len(batch)
    assert isinstance(ids.tokens, np.memmap)
    assert sum(len(part) for row in range(len(ids)) for part in ids[row]) == len(ids.tokens)

    arrays = open_result(tmp_path / "arrays")
    (plan,) = (tmp_path / "root" / "sample").glob("?" * 16)
    assert (arrays.kind, open_result(plan).kind) == ("sampled", "plan")
    assert arrays.epochs == open_result(plan).epochs == line.EPOCHS
    assert len(arrays) == len(open_result(plan)) == sum(len(arrays.tokens(epoch=epoch)) for epoch in (0, 1))
    assert arrays.tasks == open_result(plan).tasks != []
    with pytest.raises(UsageError, match=r"no such epoch; got 2; expected 0 to 1"):
        arrays.tokens(epoch=2)
    with pytest.raises(UsageError, match=r"a result without rows; got sampled"):
        next(arrays.rows())
    with pytest.raises(UsageError, match=r"no such task; got gsm9k; expected .*gsm8k"):
        tokens.tokens("gsm9k")
    with pytest.raises(TypeError, match="'fetched' has no rows"):
        len(open_result(str(made["fetch"])))


def test_folders_of_others(tmp_path: Path) -> None:
    folder = open_result(tokenized.put_folder(tmp_path / "theirs", {"a": 1, "b": 2}))
    assert (folder.kind, folder.stage, folder.manifest, folder.tasks) == ("tokenized", "", None, ["a", "b"])
    assert len(folder) == 10
    sampled = open_result(samples.sampled(tmp_path / "sampled", [[(3, 4), (2, 2)], [(5, 1)]], seed=3))
    assert (sampled.kind, sampled.epochs, len(sampled)) == ("sampled", 2, 3)
    stored = np.load(tmp_path / "sampled" / "tokens.npy")
    assert [part.tolist() for part in sampled.tokens(epoch=1)[0]] == [stored[11:16].tolist(), stored[16:17].tolist()]
    texts = {name: [f"{name} {n}" for n in range(3)] for name in ("condition", "instruction", "response")}
    (tmp_path / "rows" / "deep").mkdir(parents=True)
    pq.write_table(pa.table({**texts, "more": [1, 2, 3]}), tmp_path / "rows" / "deep" / "a.parquet")
    lines = [json.dumps({name: values[n] for name, values in texts.items()}) for n in range(3)]
    (tmp_path / "rows" / "b.jsonl").write_text("".join(f"{each}\n" for each in lines))
    rows = open_result(tmp_path / "rows")
    assert (rows.kind, rows.tasks, len(rows)) == ("rows", ["b.jsonl", "deep__a.parquet"], 6)
    assert next(rows.rows("deep__a")).to_pydict() == {**texts, "more": [1, 2, 3]}
    assert next(open_result(tmp_path / "rows" / "b.jsonl").rows()).to_pydict() == texts


def test_what_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InputError, match=r"shown=.*: not a finished folder; got notes.txt; .*check the path"):
        open_result(tmp_path, "shown")
    manifests.begin(str(tmp_path / "begun"), "clean", "0" * 16)
    with pytest.raises(InputError, match="has not finished it"):
        open_result(tmp_path / "begun")
    tokenized.put_folder(tmp_path / "root" / "tokenize" / "x", {"a": 1}, tokenizer="7")
    with pytest.raises(InputError, match=r"name one of the folders in it: tokenize/x"):
        open_result(tmp_path / "root")


def test_ranges_of_several_files(tmp_path: Path) -> None:
    parts = [np.arange(5, dtype=np.uint16), np.arange(100, 103, dtype=np.uint16)]
    for number, part in enumerate(parts):
        np.save(tmp_path / f"{number}.npy", part)
    read = RangedTokens([Array.open(str(tmp_path / f"{number}.npy")) for number in range(2)])
    assert len(read) == 8
    assert [read[1:3].tolist(), read[5:8].tolist(), read[4:4].tolist()] == [[1, 2], [100, 101, 102], []]
