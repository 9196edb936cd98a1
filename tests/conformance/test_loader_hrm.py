"""The loader of sampled folders against HRM-Text's, recorded."""

import builtins
import hashlib
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill._native import RowIndex, pack_rows
from pairmill.loader.arrays import numbers
from pairmill.loader.batch import PREFIXLM, SCALARS
from pairmill.loader.folder import Epoch, Metadata
from tests.support.peers.hrm import HrmDataset, estimate_batches, global_batches


def recorded(folder: Path) -> list[Path]:
    found = sorted((folder / "conformance/loader/hrm/cases").glob("*.json"))
    assert found
    return found


def sha256(array: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(array, array.dtype.newbyteorder("<"))).hexdigest()


def same_batch(found: Any, expected: dict[str, Any], slots: int, where: str) -> None:
    arrays, scalars = found
    assert list(arrays) == list(PREFIXLM), where
    assert [scalars[name] for name in SCALARS] == expected["scalars"], where
    odd = expected.get("not_standard", {})
    for name, array in arrays.items():
        dtype, shape = odd.get(name, ["int32", [slots]])
        assert (str(array.dtype), list(array.shape)) == (dtype, shape), f"{where} {name}"
    if "sha256" in expected:
        assert {name: sha256(array) for name, array in arrays.items()} == expected["sha256"], where
    else:
        assert (
            hashlib.sha256(b"".join(array.tobytes() for array in arrays.values())).hexdigest() == expected["sha256_all"]
        ), where


def same_error(loaders: list[HrmDataset], expected: dict[str, Any], slots: int, where: str) -> int:
    """An epoch that fails: on that rank, at that step, as that kind of error, and the batches before it are equal."""
    error = expected["error"]
    rank, step = error["rank"], error["step"]
    run = iter(loaders[rank])
    for number in range(step):
        same_batch(next(run), expected["steps"][number]["ranks"][rank], slots, f"{where} step {number} rank {rank}")
    with pytest.raises(getattr(builtins, error["error"])) as caught:
        next(run)
    if "'" in error["message"]:
        assert error["message"].split("'")[1] in str(caught.value), where
    return step


def test_every_recorded_run(shared: Path) -> None:
    batches = 0
    for path in recorded(shared):
        case = json.loads(path.read_bytes())
        folder = shared / "conformance/loader/hrm/folders" / case["folder"]
        slots, ranks = case["batch_max_length"], case["world_size"]

        metadata = Metadata.read(folder)
        for name, value in case["metadata"].items():
            found = list(metadata.tokenizer_info) if name == "tokenizer_info_keys" else getattr(metadata, name)
            assert found == value, f"{path.name} {name}"
        steps = case["total_steps_estimate"]
        assert metadata.total_steps(steps["epochs"], steps["global_batch_size"]) == steps["value"], path.name

        loaders = [
            HrmDataset(
                folder,
                batch_max_length=slots,
                drop_last_batch=case["drop_last_batch"],
                target_only=case["target_only"],
                rank=rank,
                num_replicas=ranks,
            )
            for rank in range(ranks)
        ]
        for expected in case["epochs"]:
            where = f"{path.name} epoch {expected['epoch']}"
            if "error" in expected:
                batches += same_error(loaders, expected, slots, where)
                continue
            epoch = Epoch(folder / f"epoch_{expected['epoch']}")
            assert epoch.rows == expected["num_rows_in_epoch"], where
            assert estimate_batches(epoch, slots, ranks) == expected["estimate_num_batches"], where
            made = list(global_batches(epoch, slots, ranks, drop_last=case["drop_last_batch"]))
            runs = [list(loader) for loader in loaders]
            assert {len(run) for run in runs} == {len(made)} == {expected["num_steps"]}, where
            for number, (step, (start, window, places)) in enumerate(zip(expected["steps"], made, strict=True)):
                assert (start, sum(map(len, places))) == (step["start_row"], step["num_rows"]), where
                for rank, one in enumerate(step["ranks"]):
                    assert window[places[rank], 0].tolist() == one["rows"], where
                    same_batch(runs[rank][number], one, slots, f"{where} step {number} rank {rank}")
                    batches += 1
            if made:
                used = sum(run[number][1]["total_seqlen"] for run in runs for number in range(len(made)))
                assert (used, len(made) * slots * ranks) == (expected["tokens_used"], expected["token_slots"]), where
    assert batches


def rows_of(lengths: list[int]) -> RowIndex:
    """Rows of these lengths: an instruction of one token each."""
    one = numbers(np.ones(len(lengths), np.int64))
    return RowIndex(one, one, one, numbers(np.array(lengths, np.int64)))


def test_every_recorded_allocation(shared: Path) -> None:
    recorded = json.loads((shared / "conformance/loader/hrm/allocation.json").read_bytes())
    looked = 0
    for case in recorded["cases"]:
        lengths = recorded["lengths"][case["lengths"]]
        index, slots, ranks = rows_of(lengths), case["batch_max_length"], case["world_size"]
        start, steps = 0, []
        while start < len(lengths):
            window = index.window(start, slots * ranks)
            count, places, ends = pack_rows(window, ranks, slots)
            start += count
            if count < ranks or (case["drop_last_batch"] and start >= len(lengths)):
                break
            steps.append([window[places[low:high], 0].tolist() for low, high in pairwise(ends)])
        used = sum(lengths[row] for step in steps for rank in step for row in rank)
        assert (used, len(steps) * slots * ranks) == (case["tokens_used"], case["token_slots"]), case["name"]
        if isinstance(case["steps"], int):
            assert len(steps) == case["steps"], case["name"]
        else:
            assert steps == case["steps"], case["name"]
        looked += len(steps)
    assert looked


def test_every_recorded_change_of_world_size(shared: Path) -> None:
    looked = 0
    for case in json.loads((shared / "conformance/loader/hrm/elastic.json").read_bytes()):
        folder = shared / "conformance/loader/hrm/folders" / case["folder"]
        epoch = Epoch(folder / f"epoch_{case['epoch']}")
        assert epoch.rows == case["rows_in_epoch"]
        start = 0
        for step in case["steps"]:
            slots, ranks = step["batch_max_length"], step["world_size"]
            assert start == step["start_row"]
            window = epoch.index.window(start, slots * ranks)
            count, places, ends = pack_rows(window, ranks, slots)
            assert count == step["num_rows"]
            for rank, expected in enumerate(step["ranks"]):
                mine = places[ends[rank] : ends[rank + 1]]
                assert window[mine, 0].tolist() == expected["rows"]
                found = HrmDataset(folder, batch_max_length=slots).batch(window, mine)
                same_batch(found, expected, slots, f"{case['folder']} row {start} rank {rank}")
                looked += 1
            start += count
        assert start == case["rows_delivered"]
    assert looked
