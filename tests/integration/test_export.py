"""Results in the forms that others read: read back by ``datasets``, and by the forms' public descriptions."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import yaml

from pairmill.engine import manifest as manifests
from pairmill.export import tables
from pairmill.export.command import ExportConfig, run
from tests.support import tools
from tests.support.data import samples
from tests.support.data.samples import arrays
from tests.support.data.tokenized import put_folder
from tests.support.processes.crash_points import crashes
from tests.support.tools import World

Rows = list[tuple[list[int], int]]


def export(result: Path | str, to: str, output: Path, **options: object) -> Path:
    """Export as a user does."""
    done = tools.run(
        [
            *tools.command("export", to=to, output=output, **options)[:4],
            str(result),
            f"to={to}",
            f"output={output}",
            *(f"{key}={value}" for key, value in options.items()),
        ]
    )
    assert done.code == 0, done.err
    assert done.out == f"{output}\n"
    return output


def rows_of(folder: Path) -> Rows:
    """Ids of each row of a task's arrays, and how many are its prompt."""
    names = ("tokens", "inst_start", "inst_len", "resp_start", "resp_len")
    ids, *index = (np.load(folder / f"{name}.npy").astype(int) for name in names)
    return [(ids[a : a + b].tolist() + ids[c : c + d].tolist(), b) for a, b, c, d in zip(*index, strict=True)]


def rows_of_epoch(folder: Path, epoch: int) -> Rows:
    ids, index = arrays(folder, epoch)
    return [(ids[a : a + b].tolist() + ids[c : c + d].tolist(), b) for a, b, c, d in zip(*index, strict=True)]


def wanted(rows: Rows) -> list[dict[str, list[int]]]:
    return [
        {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": [-100] * prompt + ids[prompt:]}
        for ids, prompt in rows
    ]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def load(folder: Path, name: str | None = None) -> Any:
    return datasets.load_dataset(str(folder), name)


def test_a_tokenized_folder_for_datasets(world: World, tmp_path: Path) -> None:
    tasks = sorted(path.parent for path in world.tokenized.glob("*/tokens.npy"))
    expected = wanted([row for task in tasks for row in rows_of(task)])
    made = export(world.tokenized, "datasets", tmp_path / "parquet", part_tokens=700)
    assert len(list((made / "data" / "train").iterdir())) > len(tasks)
    assert list(load(made)["train"]) == expected
    one = load(made, "gsm8k_train")["train"]
    assert list(one) == wanted(rows_of(world.tokenized / "gsm8k_train.jsonl"))
    mapped = datasets.load_from_disk(str(export(world.tokenized, "arrow", tmp_path / "arrow")))
    assert list(mapped["train"]) == expected
    manifest = manifests.read(str(made))
    assert manifest is not None
    assert manifest.ledger.rows_in == manifest.ledger.rows_out == len(expected)
    assert manifest.ledger.measures["tokens"] == sum(len(row["input_ids"]) for row in expected)
    assert tools.run(tools.command("verify", path=made)).code == 0


def test_held_out_rows_are_a_split(tmp_path: Path) -> None:
    folder = tmp_path / "tokenized"
    put_folder(folder, {"a.jsonl": 1, "b [x].jsonl": 2})
    put_folder(folder / "holdout", {"a.jsonl": 3})
    made = load(export(folder, "datasets", tmp_path / "made"))
    assert list(made["train"]) == wanted(rows_of(folder / "a.jsonl") + rows_of(folder / "b [x].jsonl"))
    assert list(made["held_out"]) == wanted(rows_of(folder / "holdout" / "a.jsonl"))


def test_epochs_of_a_sample_are_splits_in_the_order_of_training(tmp_path: Path) -> None:
    lengths = [[(3, 2), (1, 5), (4, 4)] * 40, [(2, 2), (7, 1)] * 30]
    folder = samples.sampled(tmp_path / "sampled", lengths)
    made = load(export(folder, "datasets", tmp_path / "made", part_tokens=50))
    assert [*made] == ["epoch_0", "epoch_1"]
    for epoch in (0, 1):
        assert list(made[f"epoch_{epoch}"]) == wanted(rows_of_epoch(folder, epoch))


def test_a_plan_is_exported_without_its_arrays(world: World, tmp_path: Path) -> None:
    root, node = tmp_path / "root", tmp_path / "node"
    tokenized = root / "tokenize" / world.tokenized.name
    shutil.copytree(world.tokenized, tokenized)
    given = {"prefix_config_path": world.rules, "epochs": 2, "tokenized_path": tokenized, "root": root}
    assert tools.stage("sample", **given, output_path=node).code == 0
    (plan,) = (path.parent for path in root.glob("sample/*/_MANIFEST.json"))
    made = load(export(plan, "datasets", tmp_path / "made"))
    assert [list(made[f"epoch_{epoch}"]) for epoch in (0, 1)] == [
        wanted(rows_of_epoch(node, epoch)) for epoch in (0, 1)
    ]


def test_megatron_files_are_what_the_format_says(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "sampled", [[(3, 2), (1, 5), (4, 4)] * 40])
    made = export(folder, "megatron", tmp_path / "made")
    index, ids = ((made / "epoch_0" / f"epoch_0.{end}").read_bytes() for end in ("idx", "bin"))
    magic, version, code, sequences, entries = struct.unpack_from("<9sQBQQ", index)
    rows = rows_of_epoch(folder, 0)
    assert (magic, version, code, sequences, entries) == (b"MMIDIDX\0\0", 1, 8, len(rows), len(rows) + 1)
    at = 34
    lengths = np.frombuffer(index, "<i4", sequences, at)
    places = np.frombuffer(index, "<i8", sequences, at + 4 * sequences)
    documents = np.frombuffer(index, "<i8", entries, at + 12 * sequences)
    assert len(index) == at + 12 * sequences + 8 * entries
    assert documents.tolist() == list(range(entries))
    for (wanted_ids, _), length, place in zip(rows, lengths.tolist(), places.tolist(), strict=True):
        assert np.frombuffer(ids, "<u2", length, place).tolist() == wanted_ids
    assert (made / "epoch_0.txt").read_text() == f"{sum(lengths)} epoch_0/epoch_0\n"


def test_pairmill_reads_megatron_files_that_it_wrote(world: World, tmp_path: Path) -> None:
    made = export(world.tokenized, "megatron", tmp_path / "made")
    done = tools.stage("tokenize", tokens=made, tokenizer=world.tokenizer, root=tmp_path, workers=1)
    again = tools.folder(done)
    mine = {path.parent.name: np.load(path) for path in again.glob("*/tokens.npy")}
    assert len(mine) == len(list(world.tokenized.glob("*/tokens.npy")))
    for name, values in mine.items():
        task = name.removesuffix(".bin").removeprefix("train__")
        (before,) = world.tokenized.glob(f"{task}.*/tokens.npy")
        rows = rows_of(again / name)
        assert [ids[prompt:] for ids, prompt in rows] == [ids for ids, _ in rows_of(before.parent)]
        assert len(values) == sum(len(ids) for ids, _ in rows)


def test_flat_files_say_where_they_are_and_what_is_trained_on(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "sampled", [[(3, 2), (1, 5)] * 9])
    made = export(folder, "flat", tmp_path / "made")
    told = yaml.safe_load((made / "epoch_0" / "metadata.yaml").read_text())
    (path,) = Path("/").glob(f"{told['tokenized_info']['file_prefix']}*.bin".lstrip("/"))
    ids, mask = np.fromfile(path, told["tokenized_info"]["dtype"]), np.fromfile(made / "epoch_0/masks/epoch_0.bin", "?")
    rows = rows_of_epoch(folder, 0)
    assert ids.tolist() == [number for row, _ in rows for number in row]
    assert mask.tolist() == [place >= prompt for row, prompt in rows for place in range(len(row))]


def test_rows_as_chats_and_as_pairs(world: World, tmp_path: Path) -> None:
    given = [json.loads(line) for line in (world.cleaned / "data" / "gsm8k_train.jsonl").open()]
    made = list(load(export(world.cleaned, "datasets", tmp_path / "made"), "gsm8k_train")["train"])
    assert len(made) == len(given)
    for row, before in zip(made, given, strict=True):
        assert [turn["role"] for turn in row["messages"]] == ["user", "assistant"]
        assert [turn["content"] for turn in row["messages"]] == [before["instruction"], before["response"]]
        assert row["condition"] == before["condition"]
    pairs = load(export(world.cleaned, "datasets", tmp_path / "pairs", columns="pair"), "gsm8k_train")
    assert [(row["prompt"], row["completion"], row["condition"]) for row in pairs["train"]] == [
        (row["instruction"], row["response"], row["condition"]) for row in given
    ]
    turns = load(export(world.cleaned, "trl", tmp_path / "trl"), "gsm8k_train")["train"]
    assert [row["completion"] for row in turns] == [row["messages"][-1:] for row in made]


def test_large_files_are_several(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LARGEST", 1)
    folder = tmp_path / "rows"
    tools.write_rows(folder / "some.jsonl", [("direct", f"{number} {'q' * 5_000}", "a") for number in range(900)])
    run(ExportConfig(result=str(folder), to="datasets", output=str(tmp_path / "made")))
    assert len(list((tmp_path / "made" / "data" / "train").iterdir())) >= 3
    rows = load(tmp_path / "made")["train"]
    assert [row["messages"][0]["content"].split()[0] for row in rows] == [str(number) for number in range(900)]


def test_documents_are_no_chats_and_are_counted(tmp_path: Path) -> None:
    tools.write_rows(tmp_path / "rows" / "some.jsonl", [("direct", "q", "a")] * 3 + [("", "", "a text")] * 2)
    made = export(tmp_path / "rows", "datasets", tmp_path / "made")
    manifest = manifests.read(str(made))
    assert manifest is not None
    assert (manifest.ledger.rows_in, manifest.ledger.rows_out, manifest.ledger.dropped) == (5, 3, {"document": 2})


def test_killed_at_each_instant_it_goes_on_and_has_the_same_bytes(tmp_path: Path) -> None:
    folder = tmp_path / "tokenized"
    put_folder(folder, {"a.jsonl": 1, "b.jsonl": 2})
    config = ExportConfig(result=str(folder), to="datasets", output=str(tmp_path / "whole"))
    run(config)
    expected = tools.digests(tmp_path / "whole")
    kills = 0
    again = ExportConfig(**{**vars(config), "output": str(tmp_path / "made")})
    for number in crashes(lambda: run(again), tmp_path):
        kills = number
        finished = manifests.exists(again.output)
        assert not finished or tools.digests(Path(again.output)).items() >= expected.items()
    assert kills >= 10  # a part that is finished is not written again
    assert {k: v for k, v in tools.digests(tmp_path / "made").items() if not k.startswith(".")} == expected


@pytest.mark.parametrize(
    ("to", "code", "message"),
    [
        ("parquet", 2, "datasets|arrow|megatron"),
        ("verl", 3, "describe the source with use: prompts"),
        ("megatron", 2, "expected to=datasets, to=arrow, to=trl"),
    ],
)
def test_refusals_of_rows(tmp_path: Path, to: str, code: int, message: str) -> None:
    tools.write_rows(tmp_path / "rows" / "some.jsonl", [("direct", "q", "a")] * 3)
    done = tools.run(tools.command("export", result=tmp_path / "rows", to=to, output=tmp_path / "made"))
    assert done.code == code, done.err
    assert message in done.message
    assert not (tmp_path / "made").exists()


def test_a_folder_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    put_folder(tmp_path / "tokenized", {"a.jsonl": 1})
    made = export(tmp_path / "tokenized", "datasets", tmp_path / "made")
    again = tools.stamps(made)
    export(tmp_path / "tokenized", "datasets", tmp_path / "made")
    assert tools.stamps(made) == again
    done = tools.run(tools.command("export", result=tmp_path / "tokenized", to="arrow", output=made))
    assert (done.code, tools.stamps(made)) == (2, again)
    assert "has something else in it" in done.message


def test_a_changed_byte_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "tokenized"
    put_folder(folder, {"a.jsonl": 1}, tokenizer="0" * 16)
    path = folder / "a.jsonl" / "tokens.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    done = tools.run(tools.command("export", result=folder, to="datasets", output=tmp_path / "made"))
    assert done.code == 3, done.err
    assert not (tmp_path / "made" / "_MANIFEST.json").exists()
