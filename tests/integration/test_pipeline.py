"""The pipeline as one command on this machine, from raw files of all four sources to arrays that decode."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from pairmill.line import run as local
from tests.support import tools
from tests.support.helpers import REPOSITORY

EPOCHS = 2
FILES = {"gsm8k_train": 1, "scibench": 2, "dmmath": 4, "sudoku": 1}
"""Raw files by source, as ``tools.raw_data`` makes them."""


def pipeline(raw: Path, root: Path, out: Path, rules: Path, /, **changed: object) -> tools.Done:
    options: dict[str, object] = {
        "raw": raw,
        "root": root,
        "output_path": out,
        "prefix_config_path": rules,
        "vocab_size": 500,
        "epochs": EPOCHS,
    }
    return tools.run(tools.command("run", **{**options, **changed}))


def messages(done: tools.Done) -> list[str]:
    """What the stages and the pipeline said; between them stand the stages' results, which are no JSON."""
    return [json.loads(line)["message"] for line in done.err.splitlines() if line.startswith("{")]


def states(done: tools.Done) -> dict[str, tuple[str, Path]]:
    """What the summary on stdout says of each stage: made or reused, and where its folder is."""
    lines = [line.split() for line in done.out.splitlines()]
    return {line[0]: (line[1], Path(line[4])) for line in lines if line and line[0] in tools.LINE}


def cleaned_rows(folder: Path) -> set[tuple[str, str, str]]:
    """The rows that the clean stage wrote."""
    import pyarrow.parquet as pq

    found: set[tuple[str, str, str]] = set()
    for file in tools.read_manifest(folder)["files"]:
        path = folder / file["path"]
        if not file["task"]:
            continue
        if path.suffix == ".jsonl":
            items = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        else:
            items = pq.read_table(path).to_pylist()
        found |= {(item["condition"], item["instruction"], item["response"]) for item in items}
    return found


class Arrays:
    """The sampled folder as a trainer opens it, and its tokens as text."""

    def __init__(self, out: Path, tokenized: Path) -> None:
        self.metadata: dict[str, Any] = json.loads((out / "metadata.json").read_text(encoding="utf-8"))
        info = self.metadata["tokenizer_info"]
        self._tokenizer = Tokenizer.from_file(str(tokenized / "tokenizer.json"))
        self._special = {name: self._tokenizer.token_to_id(info[name]) for name in ("boq", "eoq", "eoa")}
        self._conditions = {self._tokenizer.token_to_id(text): tag for tag, text in info["condition_mapping"].items()}
        self.tokens: NDArray[Any] = np.load(out / "tokens.npy", mmap_mode="r")
        self.epochs = [
            {
                name: np.load(out / f"epoch_{number}" / f"{name}.npy", mmap_mode="r")
                for name in ("inst_start", "inst_len", "resp_start", "resp_len")
            }
            for number in range(EPOCHS)
        ]

    def row(self, epoch: int, row: int) -> tuple[str, str, str]:
        """Condition, instruction and response of a sampled row."""
        index = {name: int(values[row]) for name, values in self.epochs[epoch].items()}
        inst = self.tokens[index["inst_start"] : index["inst_start"] + index["inst_len"]].tolist()
        resp = self.tokens[index["resp_start"] : index["resp_start"] + index["resp_len"]].tolist()
        assert inst[0] == self._special["boq"]
        assert inst[-1] == self._special["eoq"]
        assert resp[-1] == self._special["eoa"]
        tags = []
        while inst[1 + len(tags)] in self._conditions:
            tags.append(self._conditions[inst[1 + len(tags)]])
        text = [self._tokenizer.decode(ids, skip_special_tokens=False) for ids in (inst[1 + len(tags) : -1], resp[:-1])]
        return ",".join(tags), text[0], text[1]


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_raw_to_arrays(tmp_path: Path, shm: Path, profile: str) -> None:
    raw, root, out = tmp_path / "raw", tmp_path / "root", shm / "out"
    tools.raw_data(raw, size=150)
    rules = tools.rules(tmp_path / "rules.yaml", "- prefix: dmmath__\n  max_per_file: 100\n")
    first = tools.ended(pipeline(raw, root, out, rules, profile=profile))
    made = states(first)
    # The reference curates nothing.
    ran = [name for name in tools.LINE if (name, profile) != ("curate", "data_io")]
    assert {name: state for name, (state, _) in made.items()} == dict.fromkeys(ran, "made")
    for _, folder in made.values():
        assert (folder / "report.html").read_text().startswith("<!")
        assert (folder / "report.md").stat().st_size > 100
    assert f"report: {made['sample'][1]}/report.html" in first.out
    assert f"arrays: {out}" in first.out

    # 150 records of gsm8k, 150 + 75 rows of each scibench file, 100 of each of four dmmath modules, 150 puzzles.
    arrays = Arrays(out, made["train_tokenizer"][1])
    wanted = cleaned_rows(made["clean"][1])
    conditions = set()
    for epoch in range(EPOCHS):
        count = len(arrays.epochs[epoch]["inst_start"])
        assert count == 150 + 2 * 225 + 4 * 100 + 150
        for row in np.random.default_rng(epoch).choice(count, 150, replace=False).tolist():
            found = arrays.row(epoch, row)
            assert found in wanted
            conditions.add(found[0])
    assert conditions == {"direct", "cot"}
    assert arrays.metadata["max_seq_len"] == 4097
    manifest = tools.read_manifest(out)
    found_files = tools.digests(out)
    del found_files[tools.MANIFEST]
    assert found_files == tools.recorded(manifest)

    stamps = tools.stamps(root), tools.stamps(shm)
    second = tools.ended(pipeline(raw, root, out, rules, profile=profile))
    assert "every stage was reused" in second.out
    assert states(second) == {name: ("reused", folder) for name, (_, folder) in made.items()}
    assert (tools.stamps(root), tools.stamps(shm)) == stamps


def test_the_ledger_runs_through(tmp_path: Path) -> None:
    raw, root, out = tmp_path / "raw", tmp_path / "root", tmp_path / "out"
    tools.raw_data(raw, size=60)
    done = tools.ended(pipeline(raw, root, out, tools.rules(tmp_path / "rules.yaml")))
    found = {name: tools.read_manifest(folder) for name, (_, folder) in states(done).items()}
    ledgers = {name: manifest["ledger"] for name, manifest in found.items()}
    assert ledgers.keys() == set(tools.LINE)
    fetched = found["fetch"]["data"]["sources"]
    assert {name: one["files"] for name, one in fetched.items()} == FILES
    given = [path.stat().st_size for path in raw.rglob("*") if path.is_file()]
    assert sum(one["bytes"] for one in fetched.values()) == sum(given)
    assert ledgers["clean"]["rows_in"] == 60 * 8
    for name in ("train_tokenizer", "tokenize"):
        assert ledgers[name]["rows_in"] == ledgers["clean"]["rows_out"]
    assert ledgers["sample"]["rows_in"] == ledgers["tokenize"]["rows_out"]
    for ledger in ledgers.values():
        assert ledger["rows_in"] == ledger["rows_kept"] + sum(ledger["dropped"].values())


def test_broken_input_fails_the_run(tmp_path: Path) -> None:
    raw, root, out = tmp_path / "raw", tmp_path / "root", tmp_path / "out"
    tools.raw_data(raw, size=60)
    rules = tools.rules(tmp_path / "rules.yaml")
    victim = raw / "gsm8k_train" / "main" / "train-00000-of-00001.parquet"
    data = victim.read_bytes()
    victim.write_bytes(data[: len(data) // 2])
    done = tools.ended(pipeline(raw, root, out, rules), 3)
    assert done.out == ""
    assert "Traceback" not in done.err
    assert any(f"{victim}: not a readable Parquet file" in message for message in messages(done))
    assert "task clean failed; got exit code 3" in messages(done)[-1]
    assert not out.exists()
    # That the raw data is there, as it is, was all that fetch had to find.
    assert [path.parent.parent for path in root.rglob(tools.MANIFEST)] == [root / "fetch"]

    # Mended, the same command goes on where it stopped.
    victim.write_bytes(data)
    done = tools.ended(pipeline(raw, root, out, rules))
    assert "clean: 6 of 7 shards reused" in messages(done)
    assert {state for state, _ in states(done).values()} == {"made"}


EXERCISES = REPOSITORY / "examples" / "sources" / "exercises"


@pytest.mark.parametrize(
    ("sources", "code", "said"),
    [
        ("gsm8k", 2, "sources: unknown source; got gsm8k"),
        (f"{EXERCISES}.yaml", 3, f"{EXERCISES}: is missing or empty"),
    ],
)
def test_what_fetch_would_refuse_is_refused_before_it(tmp_path: Path, sources: str, code: int, said: str) -> None:
    raw, root, out = tmp_path / "raw", tmp_path / "root", tmp_path / "out"
    tools.raw_data(raw, size=10)
    rules = tools.rules(tmp_path / "rules.yaml")
    done = tools.ended(pipeline(raw, root, out, rules, sources=sources), code)
    assert done.out == ""
    assert "Traceback" not in done.err
    assert messages(done)[-1].startswith(said)
    assert not out.exists()
    assert not root.exists()


def test_archives_are_unpacked_on_the_way(tmp_path: Path) -> None:
    raw, root, out = tmp_path / "raw", tmp_path / "root", tmp_path / "out"
    tools.raw_archives(raw, size=100)
    rules = tools.rules(tmp_path / "rules.yaml", "- prefix: dmmath__\n")
    first = states(tools.ended(pipeline(raw, root, out, rules)))
    clean = tools.read_manifest(first["clean"][1])
    assert clean["ledger"]["rows_in"] == 300
    tasks = {file["task"] for file in clean["files"] if file["task"]}
    assert tasks == {"dmmath__train-easy__add.parquet", "dmmath__train-medium__add.parquet", "Platypus__scibench.jsonl"}

    # What was unpacked may go: the stages after it have what they made of it, and fetch brings it again.
    before = tools.digests(root / "raw")
    for source in ("dmmath", "scibench"):
        tools.remove(root / "raw" / source)
    second = tools.ended(pipeline(raw, root, out, rules))
    after = states(second)
    assert {name: state for name, (state, _) in after.items()} == {
        **dict.fromkeys(tools.LINE, "reused"),
        "fetch": "made",
    }
    assert {name: folder for name, (_, folder) in after.items()} == {
        name: folder for name, (_, folder) in first.items()
    }
    assert tools.digests(root / "raw") == before


def test_later_stage_fails_the_run(tmp_path: Path) -> None:
    raw, root, out = tmp_path / "raw", tmp_path / "root", tmp_path / "out"
    tools.raw_data(raw, size=60)
    done = tools.ended(pipeline(raw, root, out, tools.rules(tmp_path / "rules.yaml"), min_resp_length=4000), 3)
    assert done.out == ""
    assert "Traceback" not in done.err
    assert "task sample failed; got exit code 3" in messages(done)[-1]
    assert not out.exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"epoch": 3}, "did you mean 'epochs'?"),
        ({"raw": "nfs://server/raw"}, "nfs://server/raw"),
        ({"root": "ftp://server/root"}, "ftp://server/root"),
        ({"epochs": "many"}, "epochs"),
    ],
)
def test_wrong_options(tmp_path: Path, changed: dict[str, object], said: str) -> None:
    rules = tools.rules(tmp_path / "rules.yaml")
    done = tools.ended(pipeline(tmp_path / "raw", tmp_path / "root", tmp_path / "out", rules, **changed), 2)
    assert done.out == ""
    assert said in messages(done)[-1]
    assert "Traceback" not in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rules.yaml"]


@pytest.mark.parametrize("held_out", [False, True])
def test_other_files_at_output_path_are_refused_before_the_first_stage(
    tmp_path: Path, shm: Path, capsys: pytest.CaptureFixture[str], held_out: bool
) -> None:
    root, out = tmp_path / "root", shm / "out"
    tools.raw_data(tmp_path / "raw", size=10)
    foreign = out.with_name("out-holdout") if held_out else out
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    options = [f"raw={tmp_path / 'raw'}", f"root={root}", f"output_path={out}", *["holdout=0.1"] * held_out]
    assert local.main(options) == 2
    assert f"output_path={foreign}: pairmill did not write what is there" in capsys.readouterr().err
    assert not root.exists()
    assert tools.digests(foreign).keys() == {"thesis.txt"}
