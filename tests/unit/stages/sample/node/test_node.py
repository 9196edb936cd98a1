"""Samples on a machine that trains: where they go, how long they stay, and the commands that look at them."""

import errno
import fcntl
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, PairmillError, StorageError, UsageError
from pairmill.formats.sample_folder import folder_of
from pairmill.formats.tokens import INDEX, INFO
from pairmill.interface import cli
from pairmill.interface.cli import Outcome
from pairmill.stages.sample.command import COMMANDS
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.node import carry_out, owned, space
from pairmill.stages.sample.node import folder as module
from pairmill.stages.sample.node.folder import Node, _size
from pairmill.stages.sample.node.plan import SamplePlan
from pairmill.stages.sample.node.prepare import PrepareConfig, prepare
from pairmill.stages.sample.node.serve import ServeConfig, server
from pairmill.stages.sample.node.verify import VerifyConfig, verify
from pairmill.stages.sample.node.wait import WaitConfig, wait
from pairmill.stages.sample.run import run
from tests.support import tools
from tests.support.helpers import PATIENCE, REPOSITORY, contents, missing, writable


class World:
    """A project with a tokenized folder, plans of it, and a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenized = folder / "given"
        self.root = folder / "root"
        self.node = folder / "shm" / "pairmill"
        for number in range(3):
            path = self.tokenized / f"set{number}__x"
            path.mkdir(parents=True)
            draw = np.random.default_rng(number)
            inst, resp = draw.integers(2, 9, 50), draw.integers(2, 9, 50)
            ends = np.cumsum(inst + resp)
            for name, values in zip(INDEX, (ends - inst - resp, inst, ends - resp, resp), strict=True):
                np.save(path / f"{name}.npy", values.astype(np.uint64))
            np.save(path / "tokens.npy", draw.integers(0, 500, int(ends[-1]), dtype=np.uint32))
        (self.tokenized / INFO).write_text(json.dumps({"vocab_size": 500, "boq": "q"}))
        (folder / "rules.yaml").write_text("- prefix: set1\n  max_per_file: 7\n")

    def sample(self, **options: Any) -> Outcome:
        given = {
            "tokenized_path": str(self.tokenized),
            "prefix_config_path": str(self.folder / "rules.yaml"),
            "output_path": f"{self.node}/{{fingerprint}}",
            "root": str(self.root),
            "epochs": 2,
        }
        return run(SampleConfig(**{**given, **options}))

    def plan(self, **options: Any) -> str:
        return str(self.sample(output_path="", **options).parameters["fingerprint"])

    def carry_out(self, plan: str, **options: Any) -> Outcome:
        return self.sample(**{"plan": plan, "prefix_config_path": "nowhere", "epochs": 10, **options})

    def here(self) -> set[str]:
        return {path.name for path in self.node.iterdir()}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# --- plans ----------------------------------------------------------------------------------------------------------


def test_a_plan_carried_out_is_what_the_options_give_in_one_go(world: World) -> None:
    plan = world.plan()
    one_go = world.sample(output_path=str(world.folder / "one"), root="")
    assert one_go.parameters["fingerprint"] == plan
    made = world.carry_out(plan)
    assert not made.reused
    (home,) = (world.root / "sample").glob("[0-9a-f]*")
    planned = json.loads((home / "_MANIFEST.json").read_bytes())["data"]["sample"]
    found = contents(world.node / plan)
    facts = json.loads(found.pop("_NODE.json"))
    assert facts["seconds"] >= 0
    assert facts["read_bytes"] > 0
    assert found == contents(world.folder / "one")
    assert {file["path"] for file in planned} == found.keys() - {"_MANIFEST.json"}
    assert (world.node / "PLAN").read_text() == f"{plan}\n"
    assert made.stdout == one_go.stdout


def test_a_plan_is_given_by_its_folder_too_and_finds_its_tokens_below_the_root(world: World) -> None:
    plan = world.plan()
    folder = f"{world.root}/sample/{plan}"
    with pytest.raises(
        InputError, match=r"root/tokenize/.*the tokenized folder of the plan is missing.*tokenized_path="
    ):
        world.carry_out(folder, root="", tokenized_path="")
    assert not world.node.exists() or not world.here()
    world.carry_out(folder, root="")
    assert world.here() == {plan, "PLAN"}


@pytest.mark.parametrize("layout", ["compact", "data_io"])
def test_a_plan_in_another_layout_is_another_sample_of_the_same_rows(world: World, layout: str) -> None:
    other = "data_io" if layout == "compact" else "compact"
    plan = world.plan(layout=layout)
    world.carry_out(plan)
    made = world.carry_out(plan, layout=other)
    name = str(made.parameters["fingerprint"])
    assert name != plan
    assert name == world.sample(layout=other, output_path=str(world.folder / "x")).parameters["fingerprint"]

    def rows(folder: Path, epoch: int) -> list[Any]:
        tokens = np.load(folder / "tokens.npy")
        columns = [np.load(folder / f"epoch_{epoch}" / f"{part}.npy").tolist() for part in INDEX]
        return [tokens[a : a + b].tolist() + tokens[c : c + d].tolist() for a, b, c, d in zip(*columns, strict=True)]

    for epoch in range(2):
        assert rows(world.node / plan, epoch) == rows(world.node / name, epoch)
        assert len(rows(world.node / plan, epoch)) == 107


def test_changed_tokens_are_found_and_nothing_is_kept(world: World) -> None:
    plan = world.plan()
    path = world.tokenized / "set0__x" / "tokens.npy"
    tokens = np.load(path)
    tokens[3] ^= 1
    np.save(path, tokens)
    with pytest.raises(InputError, match=r"1 of 10 files differ from the plan; got .*tokens changed since") as caught:
        world.carry_out(plan)
    assert caught.value.exit_code == 3
    assert world.here() == set()


def test_a_damaged_plan_is_refused(world: World) -> None:
    plan = world.plan()
    path = world.root / "sample" / plan / "plan" / "epoch_1.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    writable(path).write_bytes(data)
    with pytest.raises(InputError, match=r"plan/epoch_1.npy: is not what its manifest says"):
        world.carry_out(plan)
    path.unlink()
    with pytest.raises(InputError, match="files that its manifest names are missing or changed"):
        world.carry_out(plan)
    assert not world.node.exists() or world.here() == set()


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"seed": 5}, UsageError, "seed: differs from the plan; got 5; expected 0"),
        ({"epochs": 7}, UsageError, "epochs: differs from the plan; got 7; expected 2"),
        ({"profile": "data_io"}, UsageError, "profile: differs from the plan"),
        ({"plan": "0" * 16}, InputError, "not a plan|the result of the stage is missing"),
        ({"plan": "nowhere"}, InputError, "not a plan"),
        ({"root": ""}, UsageError, "root: required with the fingerprint of a plan"),
        (
            {"output_path": "/x/{fingerprint}/y"},
            UsageError,
            "output_path: .*expected {fingerprint} as the last part",
        ),
        (
            {"output_path": "/x/a{fingerprint}"},
            UsageError,
            "output_path: .*expected {fingerprint} as the last part",
        ),
        ({"keep": -1}, UsageError, "keep: out of range"),
        ({"plan": "", "tokenized_path": ""}, UsageError, "tokenized_path, plan, again, compose, extend is required"),
    ],
)
def test_what_does_not_fit_a_plan_is_refused(
    world: World, options: dict[str, Any], kind: type[PairmillError], said: str
) -> None:
    plan = world.plan()
    with pytest.raises(kind, match=said):
        world.carry_out(**{"plan": plan, **options})


def test_another_tokenized_folder_of_ours_is_refused(world: World) -> None:
    plan = world.plan()
    (world.tokenized / "_MANIFEST.json").write_bytes(
        json.dumps(
            {
                "format": 1,
                "stage": "tokenize",
                "version": 1,
                "fingerprint": "f" * 16,
                "options": {},
                "inputs": [],
                "ledger": {},
                "files": [],
                "shards": {},
                "data": {},
            }
        ).encode()
    )
    with pytest.raises(InputError, match=r"the plan was made from another folder; got f{16}"):
        world.carry_out(plan)


# --- reuse, retention, leftovers ------------------------------------------------------------------------------------


def test_a_sample_that_stands_is_reused_and_wanted_again(world: World) -> None:
    one, two = world.plan(seed=1), world.plan(seed=2)
    world.carry_out(one)
    inode = (world.node / one).stat().st_ino
    world.carry_out(two)
    assert (world.node / "PLAN").read_text() == f"{two}\n"
    start = time.process_time()
    again = world.carry_out(one)
    assert again.reused
    assert time.process_time() - start < 1
    assert (world.node / one).stat().st_ino == inode
    assert (world.node / "PLAN").read_text() == f"{one}\n"
    assert world.here() == {one, two, "PLAN"}


def test_a_sample_that_stands_needs_no_tokens(world: World) -> None:
    plan = world.plan()
    world.carry_out(plan)
    world.tokenized.rename(world.folder / "archived")
    assert world.carry_out(plan).reused
    assert world.carry_out(plan, tokenized_path="").reused


def test_a_sample_that_is_not_the_plans_is_made_again(world: World) -> None:
    plan = world.plan()
    world.carry_out(plan)
    manifest = tools.read_manifest(world.node / plan)
    manifest["files"][0]["blake3"] = "0" * 64
    tools.write_manifest(world.node / plan, manifest)
    assert not world.carry_out(plan).reused
    assert world.carry_out(plan).reused


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_older_samples_stay_by_when_they_were_wanted(world: World, keep: int) -> None:
    plans = [world.plan(seed=seed) for seed in range(4)]
    for plan in plans[:3]:
        world.carry_out(plan, keep=9)
    world.carry_out(plans[0], keep=9)  # wanted again: now the second is the oldest
    world.carry_out(plans[3], keep=keep)
    assert world.here() == {"PLAN", plans[3], *[plans[0], plans[2], plans[1]][:keep]}


def test_a_sample_that_is_refused_costs_no_older_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = world.plan(seed=1), world.plan(seed=2)
    world.carry_out(one)
    monkeypatch.setattr(space, "in_memory", lambda _: True)
    monkeypatch.setattr(space, "memory_limits", lambda: iter([space.Limit(1 << 20, 0)]))
    with pytest.raises(StorageError, match="memory limit"):
        world.carry_out(two, keep=0)
    assert world.here() == {one, "PLAN"}
    monkeypatch.undo()
    free = os.statvfs(world.node)
    whole = os.statvfs_result((*free[:4], 1, *free[5:]))  # room for one page: too little, whatever goes
    monkeypatch.setattr(space.os, "statvfs", lambda _: whole)
    with pytest.raises(StorageError, match="no space left"):
        world.carry_out(two, keep=0)
    assert world.here() == {one, "PLAN"}


def test_what_pairmill_did_not_write_stays(world: World) -> None:
    plan = world.plan()
    names = {"notes", "0123456789abcdef", "fedcba9876543210", ".x.partial", ".hidden.0123456789abcdef.partial"}
    for name in names:
        (world.node / name).mkdir(parents=True)
    (world.node / "fedcba9876543210" / "_MANIFEST.json").write_text('{"stage": "clean", "fingerprint": "x"}')
    (world.node / "1111222233334444").symlink_to(world.folder / "given")
    world.carry_out(plan, keep=0)
    assert world.here() == names | {plan, "PLAN", "1111222233334444"}


def test_a_sample_that_somebody_holds_is_not_retired(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pairmill")
    one, two, three = (world.plan(seed=seed) for seed in range(3))
    world.carry_out(one)
    handle = os.open(world.node / one, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_SH)
    world.carry_out(two, keep=0)
    assert world.here() == {one, two, "PLAN"}
    assert f"kept {world.node / one}, which is in use" in caplog.text
    os.close(handle)
    world.carry_out(three, keep=0)
    assert world.here() == {three, "PLAN"}


def test_what_killed_runs_left_goes_and_what_is_being_written_stays(world: World) -> None:
    plan = world.plan()
    dead, alive = (world.node / f".{digit * 16}.{digit * 16}.partial" for digit in "ab")
    for path in (dead, alive):
        path.mkdir(parents=True)
        (path / "tokens.npy").write_bytes(b"x")
    handle = os.open(alive, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    world.carry_out(plan)
    assert world.here() == {plan, "PLAN", alive.name}
    os.close(handle)


def test_a_second_pod_waits_for_the_first_and_takes_what_it_made(world: World) -> None:
    plan = world.plan()
    node = Node(f"{world.node}/{{fingerprint}}", plan)
    done: list[Outcome] = []
    second = threading.Thread(target=lambda: done.append(world.carry_out(plan)))
    with node.partial() as folder:
        second.start()
        time.sleep(0.3)
        assert second.is_alive()
        elsewhere = world.folder / "elsewhere"
        world.carry_out(plan, output_path=str(elsewhere))
        for path in elsewhere.iterdir():
            path.rename(folder.path / path.name)
        node.commit(folder)
        inode = (world.node / plan).stat().st_ino
    second.join(PATIENCE)
    assert len(done) == 1
    assert (world.node / plan).stat().st_ino == inode


# --- a place that everybody writes to ------------------------------------------------------------------------------

SOMEBODY = 12_345
"""Neither us nor root."""


class Place(World):
    """A world whose node is a folder that everybody writes to, without a sticky bit: as protected_symlinks=0 leaves."""

    def __init__(self, folder: Path, shared: bool) -> None:
        super().__init__(folder)
        self.node.mkdir(parents=True)
        self.node.chmod(0o777)
        self.shared = shared
        self.output = f"{self.node}/{{fingerprint}}" if shared else str(self.node / "sampled")
        self.fingerprint = self.plan()
        self.target = self.node / (self.fingerprint if shared else "sampled")
        self.known = f".{self.target.name}.{self.fingerprint}"
        """How the names of what a run makes began, or begin."""

    def run(self, **options: Any) -> Outcome:
        return self.sample(output_path=self.output, **options)

    def holds(self) -> None:
        """Assert that the sample is complete, ours, and that nobody else can write to it."""
        verify(VerifyConfig(path=str(self.target)))
        for path in [self.target, *self.target.rglob("*")]:
            state = path.lstat()
            assert not path.is_symlink()
            assert state.st_uid == os.geteuid()
            assert not state.st_mode & (0o222 if path.suffix == ".npy" else 0o022)


@pytest.fixture(params=[True, False], ids=["shared", "plain"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    if os.geteuid():
        pytest.skip("only root can make what belongs to others")
    return Place(tmp_path, request.param)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder elsewhere, which no run has any business with."""
    path = tmp_path / "victim"
    path.mkdir()
    (path / "thesis.txt").write_text("ours")
    (path / "deep").mkdir()
    (path / "deep" / "more.txt").write_text("ours")
    return path


@pytest.mark.parametrize("suffix", [".partial", ".lock"])
@pytest.mark.parametrize("kind", ["link", "folder", "file", "fifo"])
def test_what_others_put_under_a_name_that_a_run_could_take_is_left_alone_and_named(
    place: Place, victim: Path, kind: str, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pairmill")
    planted = place.node / f"{place.known}{suffix}"
    if kind == "link":
        planted.symlink_to(victim)
    elif kind == "folder":
        planted.mkdir(mode=0o777)
        (planted / "tokens.npy").write_bytes(b"theirs")
    elif kind == "file":
        planted.write_text("theirs")
    else:
        os.mkfifo(planted)
    os.chown(planted, SOMEBODY, SOMEBODY, follow_symlinks=False)
    before = planted.lstat()
    assert not place.run().reused
    place.holds()
    assert contents(victim) == {"thesis.txt": b"ours", "deep/more.txt": b"ours"}
    assert planted.lstat().st_ino == before.st_ino
    assert place.here() == {place.target.name, planted.name, *(["PLAN"] if place.shared else [])}
    assert f"{planted} is left alone" in caplog.text
    assert f"uid {SOMEBODY}" in caplog.text


def test_a_second_name_of_a_file_of_ours_is_not_written_to_as_a_lock(place: Place, victim: Path) -> None:
    (place.node / f"{place.known}.lock").hardlink_to(victim / "thesis.txt")
    with Node(place.output, place.fingerprint).partial():
        pass
    place.run()
    place.holds()
    assert contents(victim) == {"thesis.txt": b"ours", "deep/more.txt": b"ours"}


def test_a_folder_of_somebody_that_is_locked_and_let_go_never_becomes_the_sample(place: Place) -> None:
    planted = place.node / f"{place.known}.partial"
    planted.mkdir(mode=0o777)
    os.chown(planted, SOMEBODY, SOMEBODY)
    handle = os.open(planted, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    writing = threading.Thread(target=place.run, daemon=True)
    writing.start()
    writing.join(PATIENCE)  # nobody waits for it
    os.close(handle)
    assert not writing.is_alive()
    place.holds()
    assert planted.exists()


def test_what_is_being_written_has_a_name_that_nobody_knows_and_lets_nobody_in(place: Place) -> None:
    names = set()
    for _ in range(3):
        node = Node(place.output, place.fingerprint)
        with node.partial() as folder:
            names.add(folder.path.name)
            state = os.fstat(folder.handle)
            assert (state.st_uid, state.st_mode & 0o777) == (os.geteuid(), 0o700)
        assert place.here() == set()
    assert len(names) == 3


@pytest.mark.parametrize("instead", ["link", "folder", "nothing"])
def test_a_hidden_folder_that_changes_places_with_another_costs_nothing_behind_it(
    place: Place, victim: Path, instead: str
) -> None:
    node = Node(place.output, place.fingerprint)

    def write() -> None:
        with node.partial() as folder:
            os.close(folder.create("tokens.npy"))
            folder.path.rename(place.node / "aside")
            if instead == "link":
                folder.path.symlink_to(victim)
            elif instead == "folder":
                folder.path.mkdir()
                (folder.path / "tokens.npy").write_bytes(b"theirs")
            os.close(folder.create("metadata.json"))
            node.commit(folder)

    with pytest.raises(StorageError, match="another process replaced the folder"):
        write()
    assert sorted(path.name for path in (place.node / "aside").iterdir()) == ["metadata.json", "tokens.npy"]
    assert contents(victim) == {"thesis.txt": b"ours", "deep/more.txt": b"ours"}
    assert not place.run().reused
    place.holds()


def test_a_link_in_a_sample_or_what_a_killed_run_left_is_not_followed_when_it_goes(place: Place, victim: Path) -> None:
    left = place.node / f".{place.target.name}.{'a' * 16}.partial"
    left.mkdir()
    (left / "link").symlink_to(victim)
    place.run()
    assert not left.exists()
    (place.target / "link").symlink_to(victim)
    (place.target / "tokens.npy").unlink()
    assert not place.run().reused
    place.holds()
    assert contents(victim) == {"thesis.txt": b"ours", "deep/more.txt": b"ours"}


def test_a_sample_of_another_user_is_not_reused_and_its_owner_is_named(place: Place) -> None:
    place.run()
    os.chown(place.target, SOMEBODY, SOMEBODY)
    before = contents(place.target)
    for fingerprint in (place.fingerprint, place.plan(seed=9)):
        if place.shared and fingerprint != place.fingerprint:
            continue  # another folder
        with pytest.raises(StorageError) as caught:
            place.run(seed=0 if fingerprint == place.fingerprint else 9)
        assert caught.value.exit_code == 4
        assert f"output_path={place.target}" in str(caught.value)
        assert f"uid {SOMEBODY}" in str(caught.value)
        assert "choose an output_path of your own" in str(caught.value)
    assert contents(place.target) == before


@pytest.mark.parametrize("what", ["folder", "file", "inner folder", "owner", "link"])
def test_a_sample_that_others_can_change_is_made_again(place: Place, what: str, tmp_path: Path) -> None:
    place.run()
    assert place.run().reused
    target, inode = place.target, place.target.stat().st_ino
    if what == "folder":
        target.chmod(0o777)
    elif what == "file":
        (target / "epoch_1" / "inst_len.npy").chmod(0o666)
    elif what == "inner folder":
        (target / "epoch_0").chmod(0o775)
    elif what == "owner":
        os.chown(target / "tokens.npy", SOMEBODY, -1)
    else:
        (target / "tokens.npy").rename(tmp_path / "tokens.npy")
        (target / "tokens.npy").symlink_to(tmp_path / "tokens.npy")
    assert not place.run().reused
    place.holds()
    assert place.run().reused
    assert target.stat().st_ino != inode


def test_bytes_that_changed_under_an_old_time_are_found_before_the_sample_is_reused(place: Place) -> None:
    first = place.run()
    for name in ("tokens.npy", "epoch_1/resp_len.npy"):
        path = place.target / name
        before, state = path.read_bytes(), path.stat()
        path.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
        made = place.run()
        assert not made.reused
        assert made.stdout == first.stdout
        assert path.read_bytes() == before
    assert place.run().reused


def test_a_sample_that_this_start_of_the_machine_did_not_write_is_read_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pairmill")
    plan = world.plan()
    world.carry_out(plan)
    read: list[str] = []
    unlike = owned.of_other_digest
    monkeypatch.setattr(owned, "of_other_digest", lambda *given: (read.append("all"), unlike(*given))[1])
    assert world.carry_out(plan).reused
    assert read == []
    monkeypatch.setattr(owned, "boot_id", lambda: "another start")
    for _ in range(3):
        assert world.carry_out(plan).reused
    assert read == ["all"]
    assert "bytes match the manifest" in caplog.text
    # Copied from somewhere with its note, it is not what the note says.
    (world.node / plan).rename(world.node / "moved")
    subprocess.run(["cp", "-a", world.node / "moved", world.node / plan], check=True)
    assert world.carry_out(plan).reused
    assert read == ["all"] * 2
    node, manifest = Node(f"{world.node}/{{fingerprint}}", plan), manifests.read(str(world.node / plan))
    assert manifest is not None
    assert node.load_if_intact(2, expected=None, verify=True) == manifest
    assert read == ["all"] * 3
    monkeypatch.setattr(owned, "boot_id", lambda: "")
    assert world.carry_out(plan).reused
    assert world.carry_out(plan).reused
    assert read == ["all"] * 5, "without an identity of the start nothing is taken on trust"


def test_a_lock_that_is_waited_for_is_said_with_its_holder_and_has_a_limit(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "pairmill")
    monkeypatch.setattr(module, "LOCK_SECONDS", 0.5)
    holder = f"process {os.getpid()} on {socket.gethostname()}"
    with Node(place.output, place.fingerprint).partial():
        start = time.monotonic()
        with pytest.raises(StorageError) as caught:
            place.run()
        assert 0.5 <= time.monotonic() - start < 60
    assert caught.value.exit_code == 4
    assert f"held by {holder}" in str(caught.value)
    assert "then run the same command" in str(caught.value)
    assert f"waiting for {holder}, which writes {place.target}" in caplog.text
    assert not place.run().reused


@pytest.mark.parametrize(
    ("owner", "mode", "said"), [(0, 0o777, True), (SOMEBODY, 0o755, True), (0, 0o1777, False), (0, 0o755, False)]
)
def test_a_folder_of_a_node_in_which_others_can_rename_is_said(
    world: World, owner: int, mode: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world.node.mkdir(parents=True)
    world.node.chmod(mode)
    os.chown(world.node, owner, owner)
    world.sample(root="")
    assert ("others can replace the sample" in caplog.text) is said


def test_a_link_of_somebody_in_the_way_is_refused_and_our_own_is_followed(place: Place, victim: Path) -> None:
    ours, theirs = place.node / "ours", place.node / "theirs"
    for link in (ours, theirs):
        link.symlink_to(victim)
    os.chown(theirs, SOMEBODY, SOMEBODY, follow_symlinks=False)
    for output in (f"{theirs}/sampled", f"{theirs}/deep/{{fingerprint}}"):
        with pytest.raises(StorageError, match=rf"theirs: is a link that uid {SOMEBODY} made in a folder"):
            place.sample(output_path=output)
    with pytest.raises(StorageError, match="theirs: is a link that"):
        prepare(PrepareConfig(path=str(theirs / "deep")))
    assert contents(victim) == {"thesis.txt": b"ours", "deep/more.txt": b"ours"}
    place.sample(output_path=f"{ours}/sampled")
    assert verify(VerifyConfig(path=str(victim / "sampled")))


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_another_sampler_that_commits_in_between_fails_nobody(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, after: bool
) -> None:
    above = tmp_path / "above"
    out = above / "out"
    if there:
        world.sample(output_path=str(out), epochs=1)
    put = Node._put
    others: list[Outcome] = []

    def meanwhile() -> None:
        others.append(world.sample(output_path=str(out), epochs=3))

    def putting(self: Node, *given: Any) -> None:
        monkeypatch.setattr(Node, "_put", put)
        if not after:
            meanwhile()
        put(self, *given)
        if after:
            meanwhile()

    monkeypatch.setattr(Node, "_put", putting)
    world.sample(output_path=str(out), epochs=2)
    assert len(others) == 1
    made = manifests.read(str(out))
    assert made is not None
    assert made.options["epochs"] == (3 if after else 2)
    verify(VerifyConfig(path=str(out)))
    assert [path.name for path in above.iterdir()] == ["out"]


def test_two_samplers_that_retire_one_folder_at_the_same_time_both_go_on(world: World) -> None:
    plan, other = world.plan(seed=1), world.plan(seed=2)
    failed: list[BaseException] = []

    def retire(start: threading.Barrier) -> None:
        node = Node(f"{world.node}/{{fingerprint}}", other)
        try:
            start.wait()
            outdated = node.outdated(0)
            for path in outdated:
                _size(path)
            node.retire(outdated)
        except BaseException as error:
            failed.append(error)

    world.carry_out(plan)
    for number in range(8):
        subprocess.run(["cp", "-a", world.node / plan, world.folder / "copy"], check=True)
        start = threading.Barrier(3)
        threads = [threading.Thread(target=retire, args=(start,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert world.here() == {"PLAN"}, number
        (world.folder / "copy").rename(world.node / plan)
    assert failed == []
    with pytest.raises(StorageError, match="another sampler, which carries out another plan, removed the sample"):
        Node(f"{world.node}/{{fingerprint}}", other).make_current()
    # One that is gone between looking and removing.
    node = Node(f"{world.node}/{{fingerprint}}", other)
    outdated = node.outdated(0)
    shutil.rmtree(world.node / plan)
    node.retire(outdated)


# --- durability -----------------------------------------------------------------------------------------------------


class Calls:
    """What a run tells the kernel to make durable, and what it renames, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[tuple[str, str]] = []
        fsync, rename = os.fsync, os.rename

        def synced(handle: int) -> None:
            self.made.append(("fsync", os.readlink(f"/proc/self/fd/{handle}")))
            fsync(handle)

        def renamed(source: str, target: str, **where: int) -> None:
            rename(source, target, **where)
            folder = os.readlink(f"/proc/self/fd/{where['dst_dir_fd']}")
            self.made.append(("rename", f"{folder}/{target}"))

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "rename", renamed)


@pytest.mark.parametrize("shared", [True, False])
def test_a_sample_on_a_disk_is_durable_before_it_has_its_name(
    world: World, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "in_memory", lambda _: False)
    calls = Calls(monkeypatch)
    made = world.sample(root="", output_path=f"{world.node}/{'{fingerprint}' if shared else 'sampled'}")
    target = world.node / (str(made.parameters["fingerprint"]) if shared else "sampled")
    there = calls.made.index(("rename", str(target)))
    before, after = calls.made[:there], calls.made[there + 1 :]
    hidden = {Path(path) for call, path in before if call == "fsync" and ".partial" in path}
    (top,) = {path for path in hidden if path.name.endswith(".partial") and path.parent == world.node}
    synced = {path.relative_to(top).as_posix() for path in hidden}
    files = {path.relative_to(target).as_posix() for path in target.rglob("*")} - {"_MANIFEST.json", "_NODE.json"}
    assert synced >= files | {"."}
    assert len([path for path in synced if "_MANIFEST.json" in path]) == 1
    assert before[-1] == ("fsync", str(top)), "its folder last"
    assert after[0] == ("fsync", str(world.node)), "and then its name"
    if shared:
        assert after[-2:] == [("rename", str(world.node / "PLAN")), ("fsync", str(world.node))]


def test_a_sample_in_memory_waits_for_no_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "in_memory", lambda _: True)
    calls = Calls(monkeypatch)
    world.sample(root="")
    assert [path for call, path in calls.made if call == "fsync"] == []


# --- a second user, a full disk -------------------------------------------------------------------------------------


def as_user(uid: int, action: Callable[[], object]) -> BaseException | None:
    """Do something as another user, in a process of its own; the error that it ended with."""
    if os.geteuid():
        pytest.skip("only root can become another user")
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        error: BaseException | None = None
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            action()
        except BaseException as caught:
            error = caught
        os.write(writer, pickle.dumps(error))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found: BaseException | None = pickle.loads(pipe.read())
    os.waitpid(child, 0)
    return found


@pytest.fixture
def open_world() -> Iterator[World]:
    """A world that every user of the machine can read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield World(Path(folder))


def test_a_second_user_of_a_node_takes_what_root_made(open_world: World) -> None:
    world = open_world
    plan, other = world.plan(), world.plan(seed=4)
    world.carry_out(plan)
    before = (world.node / "PLAN").stat().st_ino
    assert as_user(SOMEBODY, lambda: world.carry_out(plan)) is None
    assert (world.node / "PLAN").stat().st_ino == before
    error = as_user(SOMEBODY, lambda: world.carry_out(other))
    assert isinstance(error, StorageError)
    assert f"{world.node}: no permission to write; got a folder of root (uid 0), mode 755" in str(error)
    assert "choose an output_path of your own" in str(error)
    # One that is there, and is not the wanted one.
    world.carry_out(other)
    error = as_user(SOMEBODY, lambda: world.carry_out(plan))
    assert isinstance(error, StorageError)
    assert "PLAN names another sample, and cannot be written" in str(error)
    assert "a folder of root (uid 0)" in str(error)
    assert "choose an output_path of your own" in str(error)


def test_the_usual_place_that_is_another_users_is_refused_with_its_owner(open_world: World) -> None:
    world = open_world
    place = world.folder / "tmp"
    place.mkdir()
    place.chmod(0o1777)
    options = {"output_path": str(place / "sampled"), "root": ""}
    assert as_user(SOMEBODY, lambda: world.sample(**options)) is None
    for seed in (0, 3):
        error = as_user(SOMEBODY + 1, lambda seed=seed: world.sample(seed=seed, **options))  # type: ignore[misc]
        assert isinstance(error, StorageError)
        assert error.exit_code == 4
        assert f"got a folder of uid {SOMEBODY}" in str(error)
        assert "choose an output_path of your own" in str(error)
    assert [path.name for path in place.iterdir()] == ["sampled"]
    (place / "sampled").chmod(0o700)
    error = as_user(SOMEBODY + 1, lambda: world.sample(**options))
    assert f"got a folder of uid {SOMEBODY}" in str(error)


@pytest.mark.parametrize("planned_only", [True, False])
def test_a_full_disk_at_root_is_said_of_root(world: World, planned_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(SamplePlan, "save", full)
    with pytest.raises(StorageError, match="no space left") as caught:
        world.sample(output_path="" if planned_only else f"{world.node}/sampled")
    assert str(world.root) in caught.value.where
    assert "output_path" not in str(caught.value)
    monkeypatch.undo()
    monkeypatch.setattr(carry_out, "materialize", full)
    with pytest.raises(StorageError, match="no space left") as caught:
        world.sample(root="", output_path=f"{world.node}/sampled")
    assert caught.value.where == f"output_path={world.node}/sampled"


# --- commands -------------------------------------------------------------------------------------------------------


def test_every_command_is_known() -> None:
    assert sorted(COMMANDS) == [
        "exposure",
        "inspect",
        "inventory",
        "map",
        "prepare",
        "preview",
        "serve",
        "verify",
        "wait",
    ]


def test_a_mistyped_command_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("sample", SampleConfig, run, ["verfy", "path=x"], COMMANDS) == 2
    said = capsys.readouterr().err
    assert "unknown command; got 'verfy'" in said
    assert (
        "one of preview, inspect, inventory, map, exposure, verify, wait, serve, prepare; did you mean 'verify'?"
        in said
    )


def test_verify_reads_every_byte(world: World) -> None:
    plan = world.plan()
    world.carry_out(plan)
    assert verify(VerifyConfig(path=str(world.node))) == f"{world.node / plan}\n"
    for name in ("tokens.npy", "epoch_1/resp_len.npy"):
        path = world.node / plan / name
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        writable(path).write_bytes(data)
    (world.node / plan / "metadata.json").unlink()
    with pytest.raises(InputError) as caught:
        verify(VerifyConfig(path=str(world.node / plan)))
    assert caught.value.exit_code == 3
    assert "3 of 10 files" in str(caught.value)
    for name in ("metadata.json: missing", "tokens.npy: blake3", "epoch_1/resp_len.npy: blake3"):
        assert name in str(caught.value)
    for path in (world.node / "nothing", world.folder):
        with pytest.raises(InputError, match="no finished sample"):
            verify(VerifyConfig(path=str(path)))


def test_a_sample_that_stands_is_read_where_that_is_asked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = world.plan()
    world.carry_out(plan)
    path = world.node / plan / "tokens.npy"
    looked: list[int] = []
    unlike = owned.of_other_digest
    monkeypatch.setattr(owned, "of_other_digest", lambda *given: looked.append(1) or unlike(*given))
    assert world.carry_out(plan).reused
    assert not looked
    assert world.carry_out(plan, verify=True).reused
    assert len(looked) == 1
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    writable(path).write_bytes(data)
    assert not world.carry_out(plan, verify=True).reused
    assert path.stat().st_mode & 0o222 == 0
    verify(VerifyConfig(path=str(world.node)))


def test_wait_ends_when_the_sample_stands(world: World) -> None:
    plan, other = world.plan(seed=1), world.plan(seed=2)
    found: list[str] = []
    waiting = threading.Thread(
        target=lambda: found.append(wait(WaitConfig(path=str(world.node), plan=plan, timeout=int(PATIENCE))))
    )
    waiting.start()
    world.carry_out(other)
    time.sleep(0.7)
    assert waiting.is_alive()
    world.carry_out(plan)
    waiting.join(PATIENCE)
    assert found == [f"{world.node / plan}\n"]
    assert wait(WaitConfig(path=str(world.node), timeout=0)) == f"{world.node / plan}\n"
    assert wait(WaitConfig(path=str(world.node / other), timeout=0)) == f"{world.node / other}\n"


def test_wait_says_what_is_missing(world: World) -> None:
    plan, other = world.plan(seed=1), world.plan(seed=2)
    for timeout in (0, 1):
        with pytest.raises(
            InputError,
            match=rf"no complete sample after {timeout} s; got .* has no finished sample; expected the sample {plan}",
        ):
            wait(WaitConfig(path=str(world.node), plan=plan, timeout=timeout))
    world.carry_out(plan)
    with pytest.raises(InputError, match=rf"got .*{plan} has another sample, {plan}; expected the sample {other}"):
        wait(WaitConfig(path=str(world.node / plan), plan=other, timeout=0))
    (world.node / plan / "tokens.npy").unlink()
    with pytest.raises(InputError, match=r"got tokens.npy: missing; expected the sample that PLAN names"):
        wait(WaitConfig(path=str(world.node), timeout=0))
    for bad in ({"plan": "x"}, {"timeout": -1}):
        with pytest.raises(UsageError):
            wait(WaitConfig(path=str(world.node), **bad))  # type: ignore[arg-type]


def test_prepare_hands_a_folder_over(tmp_path: Path) -> None:
    path = tmp_path / "pairmill"
    assert prepare(PrepareConfig(path=str(path), uid=65532, gid=4)) == ""
    assert (path.stat().st_uid, path.stat().st_gid) == (65532, 4)
    inside = path / "x"
    inside.mkdir()
    prepare(PrepareConfig(path=str(path), uid=7, gid=7))
    assert (path.stat().st_uid, inside.stat().st_uid) == (7, os.getuid())
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    with pytest.raises(StorageError, match="is a symbolic link"):
        prepare(PrepareConfig(path=str(link)))
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        prepare(PrepareConfig(path=str(tmp_path / "file")))
    with pytest.raises(UsageError, match="uid: out of range"):
        prepare(PrepareConfig(path=str(path), uid=-1))
    assert tmp_path.stat().st_uid == os.getuid()


def test_prepare_leaves_the_folder_to_its_owner_alone_with_the_power_to_chown_and_no_other(tmp_path: Path) -> None:
    cases = [(0, 0o777), (65532, 0o777), (65532, 0o755), (SOMEBODY, 0o1777), (SOMEBODY, 0o700)]
    paths = [tmp_path / f"{owner}-{mode:o}" for owner, mode in cases]
    for path, (owner, mode) in zip(paths, cases, strict=True):
        path.mkdir()
        path.chmod(mode)
        os.chown(path, owner, owner)
    power = ["setpriv", "--bounding-set=-all,+chown", "--inh-caps=-all", "--no-new-privs"]
    program = """
import sys
from pairmill.stages.sample.node.prepare import PrepareConfig, prepare
for path in sys.argv[1:]:
    prepare(PrepareConfig(path=path))
"""
    done = subprocess.run(
        [*power, sys.executable, "-c", program, *paths], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for path in paths:
        state = path.stat()
        assert (state.st_uid, state.st_gid, state.st_mode & 0o7777) == (65532, 65532, 0o755), path


def test_prepare_names_whose_link_it_is_and_leaves_its_target(tmp_path: Path, victim: Path) -> None:
    before = victim.stat()
    link = tmp_path / "pairmill"
    link.symlink_to(victim)
    os.chown(link, SOMEBODY, SOMEBODY, follow_symlinks=False)
    with pytest.raises(StorageError, match=rf"pairmill: is a symbolic link; got a link of uid {SOMEBODY}"):
        prepare(PrepareConfig(path=str(link)))
    assert victim.stat() == before


@pytest.mark.parametrize(("kind", "code"), [("bind", 4), ("tmpfs", 0)])
def test_prepare_refuses_a_folder_that_the_kubelet_found_for_it(
    tmp_path: Path, victim: Path, kind: str, code: int
) -> None:
    """From inside a container what a link on the node leads to is a mounted folder like any other."""
    before = victim.stat()
    path = tmp_path / "pairmill"
    path.mkdir()
    mounting = f"mount --bind {victim} {path}" if kind == "bind" else f"mount -t tmpfs none {path}"
    program = f"{mounting} && exec {sys.executable} -m pairmill sample prepare path={path}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        missing(f"mounting in a namespace of its own ({done.stderr.strip()})")
    assert done.returncode == code, done.stderr
    if code:
        assert "is a mount itself" in done.stderr
        assert f"a mount of the folder above, {tmp_path}" in done.stderr
    assert victim.stat() == before


class Client:
    """Asks a server that runs beside the test."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, page: str, host: str = "127.0.0.1") -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{host}:{self.port}{page}", timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    world.node.mkdir(parents=True)
    with server(ServeConfig(path=str(world.node), port=0)) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield Client(running.server_address[1])
        running.shutdown()


def test_serve_says_what_the_node_has(world: World, client: Client) -> None:
    assert client.get("/healthz") == (200, "ok\n")
    assert client.get("/ready")[0] == 503
    assert "pairmill_sample_ready 0\n" in client.get("/metrics")[1]
    plan = world.plan()
    made = world.carry_out(plan)
    assert client.get("/ready") == (200, "ready\n")
    assert client.get("/plan") == (200, f"{plan}\n")
    status, page = client.get("/metrics?x=1")
    values = dict(line.rsplit(" ", 1) for line in page.splitlines() if not line.startswith("#"))
    assert status == 200
    assert values["pairmill_sample_ready"] == "1"
    (info,) = (name for name in values if name.startswith("pairmill_sample_info{"))
    assert f'fingerprint="{plan}"' in info
    assert int(values["pairmill_sample_bytes"]) == made.metrics["bytes"]
    assert int(values["pairmill_sample_rows"]) == made.metrics["rows_out"]
    assert int(values["pairmill_sample_unique_rows"]) == made.metrics["rows_kept"]
    assert int(values["pairmill_sample_tokens"]) == made.metrics["tokens"]
    assert int(values["pairmill_sample_epochs"]) == 2
    assert float(values["pairmill_sample_seconds"]) >= 0
    assert int(values["pairmill_sample_read_bytes"]) > 0
    assert int(values["pairmill_node_free_bytes"]) > 0
    assert page.count("# TYPE") == page.count("# HELP") == len(values)
    # The same bytes have the same digest, in whatever folder.
    world.node.rename(world.folder / "moved")
    assert client.get("/ready")[0] == 503
    (world.folder / "moved").rename(world.node)
    (world.node / plan / "tokens.npy").unlink()
    assert client.get("/ready") == (503, "tokens.npy: missing\n")
    assert client.get("/nothing")[0] == 404


def has_ipv6() -> bool:
    """Whether this machine has the address ::1."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def test_serve_listens_on_ipv6_too(client: Client) -> None:
    if not has_ipv6():
        missing("an address of IPv6")
    for host in ("127.0.0.1", "[::1]"):
        assert client.get("/healthz", host) == (200, "ok\n")


@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT])
def test_serve_listens_on_ipv4_where_ipv6_is_switched_off(
    world: World, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.node.mkdir(parents=True)
    create = socket.create_server

    def created(address: tuple[str, int], **options: Any) -> socket.socket:
        if options.get("family") == socket.AF_INET6:
            raise OSError(number, os.strerror(number))
        return create(address, **options)

    monkeypatch.setattr(socket, "create_server", created)
    with server(ServeConfig(path=str(world.node), port=0)) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        assert Client(running.server_address[1]).get("/healthz") == (200, "ok\n")
        running.shutdown()


def test_serve_refuses_what_it_cannot_serve(world: World, client: Client) -> None:
    with pytest.raises(InputError, match="not a folder"):
        server(ServeConfig(path=str(world.folder / "nothing")))
    for port in (client.port, 70_000, -1):
        with pytest.raises(UsageError, match="cannot listen"):
            server(ServeConfig(path=str(world.node), port=port))


def test_a_path_means_a_sample_or_a_nodes_folder(world: World) -> None:
    assert folder_of(str(world.node), "path", "0" * 16) == world.node / ("0" * 16)
    assert folder_of(str(world.node), "path") == world.node
    world.node.mkdir(parents=True)
    (world.node / "PLAN").write_text("../../etc\n")
    assert folder_of(str(world.node), "path") == world.node
    (world.node / "PLAN").write_bytes(b"\xff\xfe")
    assert folder_of(str(world.node), "path") == world.node
