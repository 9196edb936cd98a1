"""Results on the Hub's stand-in and in folders: what is there, what is refused, kills, and the way back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from huggingface_hub import constants

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.errors import InputError, PairmillError
from pairmill.export.command import ExportConfig
from pairmill.export.command import run as export
from pairmill.formats.tokenized_path import open_tokenized
from pairmill.publish import command
from pairmill.publish.command import PublishConfig, run, status
from tests.support import tools
from tests.support.data.cleaned_folder import ABOUT, put_rows
from tests.support.objectstores.servers import Server
from tests.support.processes.crash_points import crashes
from tests.support.processes.kill_points import EVERY
from tests.support.servers.hub_writes import WritableHub
from tests.support.stages import fetching
from tests.support.tools import World

TO = "hf://me/mine"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WritableHub]:
    with WritableHub() as server:
        fetching.ask_here(monkeypatch, server, tmp_path)
        monkeypatch.setenv("HF_TOKEN", server.token("secret"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield server


@pytest.fixture
def result(tmp_path: Path) -> Path:
    return put_rows(tmp_path / "result", {"some": 7, "other": 3}, **{"report.md": b"# report\n"})


def publish(result: Path, to: str = TO, **options: Any) -> str:
    return run(PublishConfig(result=str(result), to=to, **{"confirm": True, **options}))


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_dry_run_writes_nothing(
    hub: WritableHub, result: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert publish(result, confirm=False).endswith("add confirm=true.\n")
    printed = capsys.readouterr().out
    assert "data/some.parquet" in printed
    assert "some: CC-BY-4.0, 7 rows" in printed
    assert not [request for request in hub.requests if request.method in ("POST", "PUT")]
    assert "more than" not in printed
    monkeypatch.setattr(command, "_LARGE", 1)
    publish(result, confirm=False)
    assert f"pairmill export {result} to=datasets output=… writes smaller ones" in capsys.readouterr().out


def test_what_was_published_is_an_input_with_the_same_fingerprint(
    hub: WritableHub, result: Path, tmp_path: Path
) -> None:
    address = publish(result).strip()
    there = hub.holds("me/mine")
    assert address == f"hf://datasets/me/mine@{hub._repositories['me/mine'].refs['main']}"
    assert {path: there[path] for path in contents(result) if path != "_MANIFEST.json"} == {
        path: data for path, data in contents(result).items() if path != "_MANIFEST.json"
    }
    commits = hub.commits("me/mine")
    assert publish(result).strip() == address
    assert hub.commits("me/mine") == commits
    front = yaml.safe_load(there["README.md"].decode().split("---\n")[1])
    assert front["license"] == "cc-by-4.0"
    assert [item["config_name"] for item in front["configs"]] == ["other", "some"]
    assert (
        json.loads(there["_MANIFEST.json"])["fingerprint"]
        == json.loads((result / "_MANIFEST.json").read_bytes())["fingerprint"]
    )


def test_the_way_back(hub: WritableHub, result: Path, tmp_path: Path) -> None:
    publish(result)
    environment = {**os.environ, **hub.environment(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-m", "pairmill", "fetch", "rows=hf://datasets/me/mine", f"root={tmp_path}/root", "workers=1"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    back = manifests.read(done.stdout.strip())
    mine = manifests.read(str(result))
    assert back is not None
    assert mine is not None
    assert back.fingerprint == mine.fingerprint
    assert tools.run(tools.command("verify", path=done.stdout.strip())).code == 0
    code = "import datasets\nprint(datasets.load_dataset('me/mine', 'some')['train'].to_list())"
    loaded = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert loaded.stdout.strip() == str(pq.read_table(result / "data" / "some.parquet").to_pylist()), loaded.stderr


def test_token_arrays_come_back_too(hub: WritableHub, world: World, tmp_path: Path) -> None:
    publish(world.tokenized, allow=["licence", "gated"])
    environment = {**os.environ, **hub.environment(tmp_path / "home")}
    words = ["fetch", "tokenized=hf://datasets/me/mine", f"root={tmp_path}/root", "workers=1"]
    command = [sys.executable, "-m", "pairmill", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    back, mine = (open_tokenized(str(place), "tokenized") for place in (done.stdout.strip(), world.tokenized))
    assert back.fingerprint == mine.fingerprint
    assert [(task.name, task.key) for task in back.tasks] == [(task.name, task.key) for task in mine.tasks]


def test_killed_at_each_call_it_goes_on(hub: WritableHub, result: Path) -> None:
    number, stride, kills = 1, 1 if EVERY else 2, 0
    while True:
        left, child = number, os.fork()
        if not child:
            try:
                publish(result)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)

        def kill() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(child, signal.SIGKILL)  # noqa: B023

        hub.at_write = kill
        _, ended = os.waitpid(child, 0)
        if not os.WIFSIGNALED(ended):
            assert os.waitstatus_to_exitcode(ended) == 0
            break
        kills, number = kills + 1, number + stride
        there = hub.holds("me/mine") if "me/mine" in hub._repositories else {}
        if "_MANIFEST.json" in there:
            assert there.keys() >= contents(result).keys()
    hub.at_write = lambda: None
    assert kills >= 4
    assert status(PublishConfig(result=str(result), to=TO)).count("8 files are what") == 1
    assert len(hub.sent) == len(set(hub.sent))  # nothing that is there is sent again


def test_a_tampered_remote_file_is_seen_and_mended(hub: WritableHub, result: Path) -> None:
    publish(result)
    good = hub.holds("me/mine")["data/some.parquet"]
    hub.tamper("me/mine", "data/some.parquet", good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(InputError, match=r"1 of 8 files are missing there, or differ.*data/some\.parquet"):
        status(PublishConfig(result=str(result), to=TO))
    publish(result)
    assert hub.holds("me/mine")["data/some.parquet"] == good


def test_files_of_others_are_not_removed_unasked(hub: WritableHub, result: Path) -> None:
    hub.add("me/mine", {"notes.txt": b"mine"})
    hub.token("secret", "me/mine")
    with pytest.raises(InputError, match=r"1 files are there and are not part of this: notes\.txt; replace=true"):
        publish(result)
    assert hub.holds("me/mine") == {"notes.txt": b"mine"}
    publish(result, replace=True)
    assert "notes.txt" not in hub.holds("me/mine")


@pytest.mark.parametrize(
    ("about", "extra", "message"),
    [
        ({}, {}, "licence: no licence is known of some, other"),
        ({"licence": "other"}, {}, "allow=licence"),
        ({**ABOUT, "language": "mixed"}, {}, "not a language tag: mixed of .*or multilingual"),
        (ABOUT, {"holdout__data__some.jsonl": b"{}\n"}, "held_out: 1 files of held-out rows; without=held_out"),
        (ABOUT, {"info.json": b'{"path": "/home/me/tokenizer.json"}'}, "info.json has /home/me/tokenizer.json"),
        ({**ABOUT, "origin": "hub:owner/closed@main"}, {}, "gated: owner/closed, the origin of .*, is gated: auto"),
    ],
)
def test_refusals(
    hub: WritableHub, tmp_path: Path, about: dict[str, Any], extra: dict[str, bytes], message: str
) -> None:
    hub.add("owner/closed", {"README.md": b""}, gated="auto")
    result = put_rows(tmp_path / "result", {"some": 7, "other": 3}, about, **extra)
    with pytest.raises(InputError, match=message) as caught:
        publish(result)
    assert caught.value.exit_code == 3
    assert "me/mine" not in hub._repositories


def test_a_policy_refuses_what_it_denies(hub: WritableHub, result: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "clauses:\n- {match: other, decision: deny, reason: licence, why: no consent, date: 2026-01-01}\n"
    )
    with pytest.raises(InputError, match=r"policy: other\.parquet: .*no consent"):
        publish(result, policy=str(policy))


def test_without_its_held_out_rows_it_is_another_result(hub: WritableHub, tmp_path: Path) -> None:
    extra: dict[str, bytes] = {"holdout__data__some.jsonl": b"{}\n"}
    result = put_rows(tmp_path / "result", {"some": 7}, **extra)
    publish(result, without=["held_out"])
    there = hub.holds("me/mine")
    made = json.loads(there["_MANIFEST.json"])
    assert [file["path"] for file in made["files"]] == ["data/some.parquet"]
    assert made["fingerprint"] != json.loads((result / "_MANIFEST.json").read_bytes())["fingerprint"]
    assert not [path for path in there if "holdout" in path]


def test_changed_since_it_was_made_it_is_not_published(hub: WritableHub, result: Path) -> None:
    path = result / "data" / "some.parquet"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(PairmillError, match="is not what the manifest promises"):
        publish(result)


def test_a_folder_killed_at_each_write_of_the_store(result: Path, tmp_path: Path) -> None:
    to, kills = tmp_path / "public", 0
    for number in crashes(lambda: publish(result, str(to)), tmp_path):
        kills = number
        if (to / "_MANIFEST.json").exists():
            assert contents(to).keys() >= contents(result).keys()
    assert kills >= 5  # what is there is not written again
    assert tools.run(tools.command("verify", path=to)).code == 0
    (to / "report.md").unlink()
    (to / "report.md").write_bytes(b"# Report\n")
    with pytest.raises(InputError, match="1 of 8 files"):
        status(PublishConfig(result=str(result), to=str(to)))


@pytest.mark.parametrize("kind", ["s3", "gs"])
def test_to_a_bucket_and_back(kind: str, request: pytest.FixtureRequest, world: World, tmp_path: Path) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server" if kind == "s3" else "gcs_server")
    request.getfixturevalue("use")(server.environment())
    options = {"tokenized_path": world.tokenized, "prefix_config_path": world.rules, "epochs": 2, "root": tmp_path}
    made = tools.stage("sample", **options)
    assert made.code == 0, made.err
    (sample,) = (path.parent for path in tmp_path.glob("sample/*/_MANIFEST.json"))
    for place in (world.tokenized, sample):
        to = f"{server.bucket()}/public/it"
        config = PublishConfig(result=str(place), to=to)
        publish(place, to, allow=["licence", "gated"])
        store = storage.store_for(to)
        there = {entry.path: store.read(storage.join(to, *entry.path.split("/"))) for entry in store.list(to)}
        mine = {path: data for path, data in contents(place).items() if not path.startswith("_")}
        assert {path: there[path] for path in mine} == mine
        assert tools.run(tools.command("verify", path=to)).code == 0
        victim = max(mine, key=lambda path: len(mine[path]))
        uri = storage.join(to, *victim.split("/"))
        store.write(uri, mine[victim][:-1] + bytes([mine[victim][-1] ^ 1]))
        with pytest.raises(InputError, match="are missing there, or differ"):
            status(config)
        publish(place, to, allow=["licence", "gated"])
        assert store.read(uri) == mine[victim]
    arrays = {}
    for plan in (str(sample), to):
        output = tmp_path / f"at{len(arrays)}"
        done = tools.stage("sample", plan=plan, tokenized_path=world.tokenized, root=tmp_path, output_path=output)
        assert done.code == 0, done.err
        arrays[plan] = contents(output)
    assert arrays[str(sample)] == arrays[to]


def test_an_export_is_published_with_its_subsets(hub: WritableHub, result: Path, tmp_path: Path) -> None:
    export(ExportConfig(result=str(result), to="datasets", output=str(tmp_path / "made")))
    publish(tmp_path / "made")
    front = yaml.safe_load(hub.holds("me/mine")["README.md"].decode().split("---\n")[1])
    assert [item["config_name"] for item in front["configs"]] == ["default", "other", "some"]
    assert front["license"] == "cc-by-4.0"


@pytest.mark.parametrize("to", ["hf://mine", "hf://me/mine@" + "0" * 40, "hf://me/mine/path"])
def test_an_address_that_cannot_be_written(result: Path, to: str) -> None:
    with pytest.raises(PairmillError) as caught:
        publish(result, to)
    assert caught.value.exit_code == 2


def test_two_thousand_files(hub: WritableHub, tmp_path: Path) -> None:
    extra = {f"decisions__{number:05}.jsonl": b"{}\n" + str(number).encode() for number in range(2_000)}
    result = put_rows(tmp_path / "result", {"some": 1}, **extra)
    publish(result)
    assert len(hub.holds("me/mine")) == 2_000 + 1 + 5 + 1
    commits = hub.commits("me/mine")
    publish(result)
    assert hub.commits("me/mine") == commits < 15
