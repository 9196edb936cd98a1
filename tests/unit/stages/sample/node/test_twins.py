"""Files that another sample of a node has are linked: never what was changed, and never needed."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pairmill.stages.sample.node import twins
from pairmill.stages.sample.node.verify import VerifyConfig, verify
from tests.support.helpers import contents, writable
from tests.unit.stages.sample.node.test_node import World

EVERY = ("tokens.npy", "epoch_0/inst_len.npy", "epoch_1/resp_start.npy")


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A project whose samples take all rows: with another seed only the order differs."""
    made = World(tmp_path)
    (tmp_path / "rules.yaml").write_text("[]\n")
    return made


def shared(one: Path, other: Path) -> list[str]:
    return [name for name in EVERY if (one / name).samefile(other / name)]


def facts(folder: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((folder / "_NODE.json").read_bytes())
    return result


def test_tokens_of_another_seed_are_linked_and_outlive_the_older_sample(world: World) -> None:
    first, second = (world.plan(seed=seed) for seed in range(2))
    world.carry_out(first)
    world.carry_out(second)
    one, two = world.node / first, world.node / second
    assert shared(one, two) == ["tokens.npy"]
    assert facts(two)["read_bytes"] == 0
    # Neither is digested again because the other has a name of its inode.
    before = facts(one), facts(two)
    assert world.carry_out(first).reused
    assert world.carry_out(second).reused
    assert (facts(one), facts(two)) == before
    alone = world.sample(seed=1, root="", output_path=str(world.folder / "alone"))
    assert not alone.reused
    world.carry_out(world.plan(epochs=3), epochs=3, keep=0)
    assert not one.exists()
    assert not two.exists()
    world.carry_out(second, keep=0)
    assert verify(VerifyConfig(path=str(two))) == f"{two}\n"
    held = contents(two)
    held.pop("_NODE.json")
    assert held == contents(world.folder / "alone")


def test_a_sample_that_another_layout_made_gives_what_is_equal(world: World) -> None:
    plan = world.plan()
    world.carry_out(plan)
    # The same files under another fingerprint, without a byte of the tokens.
    again = world.plan(min_resp_length=1)
    world.tokenized.rename(world.folder / "archived")
    made = world.carry_out(again)
    assert not made.reused
    assert shared(world.node / plan, world.node / again) == list(EVERY)


@pytest.mark.parametrize("damage", ["a byte", "a byte and its time"])
def test_a_file_that_was_changed_is_not_linked(world: World, damage: str) -> None:
    first, second = (world.plan(seed=seed) for seed in range(2))
    world.carry_out(first)
    victim = writable(world.node / first / "tokens.npy")
    before = victim.stat()
    data = bytearray(victim.read_bytes())
    data[-1] ^= 1
    victim.write_bytes(data)
    victim.chmod(0o444)
    if damage == "a byte and its time":
        os.utime(victim, ns=(before.st_atime_ns, before.st_mtime_ns))
    world.carry_out(second)
    assert shared(world.node / first, world.node / second) == []
    assert verify(VerifyConfig(path=str(world.node / second)))


def test_what_others_can_write_to_is_not_linked(world: World) -> None:
    first, second = (world.plan(seed=seed) for seed in range(2))
    world.carry_out(first)
    (world.node / first / "tokens.npy").chmod(0o666)
    world.carry_out(second)
    assert shared(world.node / first, world.node / second) == []


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EPERM])
def test_where_nothing_can_be_linked_it_is_written(world: World, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (world.plan(seed=seed) for seed in range(2))
    world.carry_out(first)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(twins.os, "link", refuse)
    world.carry_out(second)
    assert shared(world.node / first, world.node / second) == []
    assert verify(VerifyConfig(path=str(world.node / second)))
