"""layout=reference: epochs point into the tokenized folder, and pairmill's loader reads the tokens there."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill import storage
from pairmill.errors import InputError, StorageError, UsageError
from pairmill.formats.tokens import INDEX
from pairmill.loader import Loader, RowPlan
from pairmill.loader.folder import SampledFolder
from pairmill.stages.sample.node.verify import VerifyConfig, verify
from tests.unit.stages.sample.node.test_node import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def made(world: World, layout: str, **options: Any) -> Path:
    plan = world.plan(**options)
    return world.node / str(world.carry_out(plan, layout=layout, keep=9).parameters["fingerprint"])


def test_the_loader_gives_the_batches_of_a_sample_with_tokens(world: World) -> None:
    # Of another type and byte order too, as other tools write them.
    path = world.tokenized / "set2__x" / "tokens.npy"
    np.save(path, np.load(path).astype("<u2"))
    folders = [made(world, layout) for layout in ("compact", "reference")]
    assert not (folders[1] / "tokens.npy").exists()
    size = sum(file.stat().st_size for file in folders[1].rglob("*.npy"))
    assert size == sum(file.stat().st_size for file in folders[0].rglob("epoch_*/*.npy"))
    batches = []
    for folder in folders:
        loader = Loader(RowPlan(folder), batch_tokens=256, threads=0)
        batches.append([{name: array.copy() for name, array in batch.arrays.items()} for batch in loader])
    assert len(batches[0]) > 3
    for one, other in zip(*batches, strict=True):
        assert one.keys() == other.keys()
        assert all(np.array_equal(one[name], other[name]) for name in one)
    assert SampledFolder(folders[1]).token_count > SampledFolder(folders[0]).token_count


def test_rows_are_at_their_places_in_the_files(world: World) -> None:
    folder = made(world, "reference")
    files = json.loads((folder / "token_files.json").read_bytes())["files"]
    tokens = np.concatenate([np.load(file["path"]) for file in files])
    compact = made(world, "compact")
    for epoch in range(2):
        texts = []
        for place, all_tokens in ((folder, tokens), (compact, np.load(compact / "tokens.npy"))):
            columns = [np.load(place / f"epoch_{epoch}" / f"{name}.npy").tolist() for name in INDEX]
            rows = zip(*columns, strict=True)
            texts.append([(all_tokens[a : a + b].tolist(), all_tokens[c : c + d].tolist()) for a, b, c, d in rows])
        assert texts[0] == texts[1]


def test_a_plan_of_it_is_carried_out_wherever_the_tokens_are(world: World) -> None:
    plan = world.plan(layout="reference")
    assert not world.carry_out(plan).reused
    assert world.carry_out(plan).reused
    moved = world.tokenized.rename(world.folder / "elsewhere")
    hint = "layout=compact"
    with pytest.raises(InputError, match="are not there, or changed") as caught:
        SampledFolder(world.node / plan)
    assert hint in str(caught.value)
    (world.node / plan / "token_files.json").unlink()
    assert not world.carry_out(plan, tokenized_path=str(moved)).reused
    there = SampledFolder(world.node / plan).digest
    moved.rename(world.tokenized)
    (world.node / plan / "token_files.json").unlink()
    assert not world.carry_out(plan).reused
    assert SampledFolder(world.node / plan).digest == there


def test_what_changed_in_place_is_found(world: World) -> None:
    folder = made(world, "reference")
    assert verify(VerifyConfig(path=str(folder))) == f"{folder}\n"
    victim = world.tokenized / "set0__x" / "tokens.npy"
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    with pytest.raises(InputError, match="points into changed") as caught:
        verify(VerifyConfig(path=str(folder)))
    assert str(victim) in str(caught.value)
    opened = SampledFolder(folder)
    victim.write_bytes(data[:-4])
    with pytest.raises(InputError, match="are not there, or changed"):
        SampledFolder(folder)
    for path in world.tokenized.glob("*/tokens.npy"):
        path.unlink()
    window = np.array([[0, 0, 3, 3, 4]])
    with pytest.raises((InputError, StorageError), match=r"tokens\.npy"):
        opened.fill(window, np.zeros(1, np.uint32), True, np.empty((6, 16), np.int32))


def test_tokens_in_a_bucket_are_not_pointed_into(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage.LocalStore, "file", lambda *_: None)
    with pytest.raises(UsageError, match=r"layout=reference.*layout=compact"):
        made(world, "reference")
