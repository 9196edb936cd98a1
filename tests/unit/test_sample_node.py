"""Samples on a machine that trains: where they go, how long they stay, and the commands that look at them."""

import fcntl
import json
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import contents, writable

from components.sample import space
from components.sample.commands import COMMANDS
from components.sample.config import SampleConfig
from components.sample.core import run
from components.sample.node import Node
from components.sample.prepare import PrepareConfig, prepare
from components.sample.serve import ServeConfig, server
from components.sample.verify import VerifyConfig, verify
from components.sample.wait import WaitConfig, wait
from pairmill import cli
from pairmill.cli import Outcome
from pairmill.errors import InputError, PairmillError, StorageError, UsageError
from pairmill.sampled import folder_of
from pairmill.tokens import INDEX, INFO


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
    (home,) = (world.root / "sample").iterdir()
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
        InputError, match=r"root/tokenize/.*the tokenized folder of the plan is not there.*tokenized_path="
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
    with pytest.raises(
        InputError, match=r"1 of 10 files are not what the plan says; got .*tokens changed since"
    ) as caught:
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
    with pytest.raises(InputError, match="files that its manifest names are gone"):
        world.carry_out(plan)
    assert not world.node.exists() or world.here() == set()


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"seed": 5}, UsageError, "seed: the plan says otherwise; got 5; expected 0"),
        ({"epochs": 7}, UsageError, "epochs: the plan says otherwise; got 7; expected 2"),
        ({"profile": "data_io"}, UsageError, "profile: the plan says otherwise"),
        ({"plan": "0" * 16}, InputError, "is no plan|no result of a stage is there"),
        ({"plan": "nowhere"}, InputError, "is no plan"),
        ({"root": ""}, UsageError, "root: is empty"),
        ({"output_path": "/x/{fingerprint}/y"}, UsageError, "stands elsewhere than as the last part"),
        ({"output_path": "/x/a{fingerprint}"}, UsageError, "stands elsewhere than as the last part"),
        ({"keep": -1}, UsageError, "keep: out of range"),
        ({"plan": "", "tokenized_path": ""}, UsageError, "tokenized_path: required option missing"),
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
    with pytest.raises(InputError, match=r"is another folder than the plan was made of; got f{16}"):
        world.carry_out(plan)


# --- reuse, retention, leftovers ------------------------------------------------------------------------------------


@pytest.mark.alone
def test_a_sample_that_stands_is_reused_and_wanted_again(world: World) -> None:
    one, two = world.plan(seed=1), world.plan(seed=2)
    world.carry_out(one)
    inode = (world.node / one).stat().st_ino
    world.carry_out(two)
    assert (world.node / "PLAN").read_text() == f"{two}\n"
    start = time.monotonic()
    again = world.carry_out(one)
    assert again.reused
    assert time.monotonic() - start < 1
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
    path = world.node / plan / "_MANIFEST.json"
    manifest = json.loads(path.read_bytes())
    manifest["files"][0]["sha256"] = "0" * 64
    path.write_text(json.dumps(manifest))
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
    assert f"{world.node / one} stays, somebody holds it" in caplog.text
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
            path.rename(folder / path.name)
        node.commit(folder)
        inode = (world.node / plan).stat().st_ino
    second.join(20)
    assert len(done) == 1
    assert (world.node / plan).stat().st_ino == inode


# --- commands -------------------------------------------------------------------------------------------------------


def test_every_command_is_known() -> None:
    assert sorted(COMMANDS) == ["inspect", "prepare", "serve", "verify", "wait"]


def test_a_mistyped_command_is_refused_with_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main("sample", SampleConfig, run, ["verfy", "path=x"], COMMANDS) == 2
    said = capsys.readouterr().err
    assert "unknown command; got 'verfy'" in said
    assert "one of inspect, verify, wait, serve, prepare; did you mean 'verify'?" in said


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
    for name in ("metadata.json: missing", "tokens.npy: sha256", "epoch_1/resp_len.npy: sha256"):
        assert name in str(caught.value)
    for path in (world.node / "nothing", world.folder):
        with pytest.raises(InputError, match="holds no finished sample"):
            verify(VerifyConfig(path=str(path)))


def test_a_sample_that_stands_is_read_where_that_is_asked(world: World) -> None:
    plan = world.plan()
    world.carry_out(plan)
    path = world.node / plan / "tokens.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    writable(path).write_bytes(data)
    assert world.carry_out(plan).reused
    assert not world.carry_out(plan, verify=True).reused
    assert world.carry_out(plan, verify=True).reused
    assert path.stat().st_mode & 0o222 == 0
    verify(VerifyConfig(path=str(world.node)))


def test_wait_ends_when_the_sample_stands(world: World) -> None:
    plan, other = world.plan(seed=1), world.plan(seed=2)
    found: list[str] = []
    waiting = threading.Thread(
        target=lambda: found.append(wait(WaitConfig(path=str(world.node), plan=plan, timeout=30)))
    )
    waiting.start()
    world.carry_out(other)
    time.sleep(0.7)
    assert waiting.is_alive()
    world.carry_out(plan)
    waiting.join(10)
    assert found == [f"{world.node / plan}\n"]
    assert wait(WaitConfig(path=str(world.node), timeout=0)) == f"{world.node / plan}\n"
    assert wait(WaitConfig(path=str(world.node / other), timeout=0)) == f"{world.node / other}\n"


def test_wait_says_what_is_missing(world: World) -> None:
    plan, other = world.plan(seed=1), world.plan(seed=2)
    for timeout in (0, 1):
        with pytest.raises(
            InputError, match=rf"not there after {timeout} s; got .* is not there; expected the sample {plan}"
        ):
            wait(WaitConfig(path=str(world.node), plan=plan, timeout=timeout))
    world.carry_out(plan)
    with pytest.raises(InputError, match=rf"got .*{plan} is the sample {plan}; expected the sample {other}"):
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
    with pytest.raises(UsageError, match="uid: is negative"):
        prepare(PrepareConfig(path=str(path), uid=-1))
    assert tmp_path.stat().st_uid == os.getuid()


class Client:
    """Asks a server that runs beside the test."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, page: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{page}", timeout=5) as answer:
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


def test_serve_refuses_what_it_cannot_serve(world: World, client: Client) -> None:
    with pytest.raises(InputError, match="is no folder"):
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
