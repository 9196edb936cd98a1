"""``pairmill status``: what is below a root, on a disk and in buckets."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pairmill import storage
from pairmill.engine import manifest as manifests
from pairmill.engine.listing import list_results, read_head
from pairmill.engine.manifest import InputRef
from pairmill.line import status
from pairmill.stages.curate import command as curate
from pairmill.stages.tokenize import command as tokenize
from pairmill.stages.train_tokenizer import command as train_tokenizer
from tests.support import tools
from tests.support.data import roots


@pytest.fixture(params=["disk", "s3", "gs"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "a root") if request.param == "disk" else f"{request.getfixturevalue(request.param)}/a root"


def told(root: str, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    assert status.main([f"root={root}", *more]) == 0
    return capsys.readouterr().out


def test_results_what_they_were_made_of_and_what_comes_next(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = roots.line(root)
    text = told(root, capsys)
    rows = {line.split()[0]: line.split() for line in text.splitlines() if "/" in line.split(" ")[0]}
    tokenized = rows[f"tokenize/{'d' * 16}"]
    assert tokenized[1:5] == ["8", "800", "1", "kB"]
    assert tokenized[7:] == ["curate/bbbbbbbb,", "tokenizer/cccccccc"]
    assert rows[f"sample/{'f' * 16}"][7:] == ["tokenize/dddddddd,", "mix/eeeeeeee"]
    assert [*rows] == [uri.removeprefix(f"{root}/") for uri in made.values()]

    value = json.loads(told(root, capsys, "format=json"))
    assert [item["uri"] for item in value["results"]] == [*made.values()]
    assert value["results"][3]["made_of"] == [f"curate/{'b' * 16}", f"tokenizer/{'c' * 16}"]
    assert all(item["finished"] for item in value["results"])
    assert value["next"].startswith("pairmill ")
    assert value["unfinished"] == []


def test_the_newest_are_shown_and_what_is_not_finished(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = str(tmp_path)
    for number in range(4):
        roots.result(root, "clean", f"{number}", age=100 - number)
    manifests.begin(storage.join(root, "curate", "9" * 16), "curate", "9" * 16)
    for number in range(3):
        storage.store_for(root).write(storage.join(root, "clean", "shards", f"{number}", "_RECORD.json"), b"{}")
    text = told(root, capsys, "limit=2")
    assert text.index("clean/3333") < text.index("clean/2222")
    assert "clean/1111" not in text
    assert "2 older results of clean are not shown" in text
    assert f"curate/{'9' * 16}: its end is not written; the same command goes on with it" in text
    assert "clean/shards: 3 shards are done, the last 20" in text
    assert "clean/0000" in told(root, capsys, "limit=0")
    # What was made before the newest result is not work of a run that has not ended.
    roots.made_older(storage.join(root, "clean", "shards"), 1000)
    assert "shards are done" not in told(root, capsys)


def test_two_tokenizers_of_the_same_bytes_are_told_apart_by_what_they_were_trained_on(tmp_path: Path) -> None:
    root = str(tmp_path)
    roots.line(root)
    words = {"tokenizer.json": b"tokenizer abcdef"}
    roots.result(root, "train_tokenizer", "7", [roots.rows_ref("clean", "a")], files=words)
    origins = status.Status(root).origins
    parents = {item.folder: [p.fingerprint[0] for p in origins.parents(item)] for item in list_results(root)}
    assert parents["tokenize"] == ["b", "c"]


def test_a_head_is_what_the_manifest_says(tmp_path: Path) -> None:
    hostile = {'data/"files": [.bin': b"x" * 7, 'a"size": 5,\n"task": ': b"y"}
    folder = roots.result(str(tmp_path), "clean", "a", [InputRef('"ledger": ', "5" * 16)], files=hostile)
    manifest, head = manifests.read(folder), read_head(folder)
    assert manifest is not None
    assert (head.stage, head.inputs, head.ledger, head.options) == (
        manifest.stage,
        manifest.inputs,
        manifest.ledger,
        manifest.options,
    )
    assert head.size == sum(file.size for file in manifest.files)


def test_a_page_below_the_root_leads_to_the_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = roots.line(str(tmp_path))
    told(str(tmp_path), capsys, f"report={tmp_path / 'status.html'}")
    page = (tmp_path / "status.html").read_text()
    for uri in made.values():
        assert f'href="{uri.removeprefix(f"{tmp_path}/")}/report.html"' in page
    told(str(tmp_path), capsys, f"report={tmp_path / 'elsewhere' / 'status.html'}")
    assert "href=" not in (tmp_path / "elsewhere" / "status.html").read_text()


def test_a_folder_of_others_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "data").mkdir()
    assert status.main([f"root={tmp_path}"]) == 3
    assert "nothing of pairmill is here" in capsys.readouterr().err


def test_ten_thousand_results_take_a_tenth_of_a_second(tmp_path: Path) -> None:
    first = Path(roots.result(str(tmp_path), "clean", "a"))
    manifest = (first / manifests.MANIFEST).read_bytes()
    for number in range(10_000):
        folder = tmp_path / "clean" / f"{number:016x}"
        folder.mkdir()
        (folder / manifests.MANIFEST).write_bytes(manifest)
    best = 9.0
    for _ in range(5):
        start = time.process_time()
        text = status.Status(str(tmp_path), 10).text()
        best = min(best, time.process_time() - start)
    assert "9,991 older results of clean are not shown" in text
    # Of an idle machine; a quarter of a second is what a machine under load may take.
    assert best < 0.25, f"{best:.3f} s for {len(os.listdir(tmp_path / 'clean'))} results"


def test_a_line_without_naming_one_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = f"root={tmp_path / 'root'}"
    rows = [("direct", f"How many are {number}?", f"There are {number} of them.") for number in range(60)]
    tools.write_rows(tmp_path / "rows" / "some.jsonl", rows)
    commands: list[str] = []

    def run(main: Callable[[list[str]], int], *options: str) -> str:
        assert main([root, "workers=1", *options]) == 0
        out, err = capsys.readouterr()
        lines = [json.loads(line) for line in err.splitlines()]
        commands.extend(line["next"] for line in lines if "next" in line)
        return out.strip()

    chosen = run(curate.main, f"rows={tmp_path / 'rows'}")
    tokenizer = run(train_tokenizer.main, "vocab_size=400")
    tokenized = run(tokenize.main)
    manifest = manifests.read(tokenized)
    assert manifest is not None
    assert manifest.inputs[0].fingerprint == storage.name_of(chosen)
    assert commands == [
        f"pairmill train_tokenizer rows={chosen} {root}",
        f"pairmill tokenize rows={chosen} tokenizer={tokenizer} {root}",
        f"pairmill sample tokenized_path={tokenized} {root}",
    ]
    # The next command of before does nothing again, and names what comes next all the same.
    assert run(tokenize.main, *commands[1].split()[2:4]) == tokenized
    assert commands[-1] == commands[-2]

    run(curate.main, f"rows={tmp_path / 'rows'}", "write_index=true")
    assert tokenize.main([root, f"tokenizer={tokenizer}"]) == 2
    message = capsys.readouterr().err
    assert message.count(f"pairmill tokenize {root} tokenizer={tokenizer} rows=") >= 2
    assert f"rows={chosen}" in message
