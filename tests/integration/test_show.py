"""``pairmill show`` of each kind of result, beside what NumPy, the loader and the tokenizers library read there."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from pairmill import stats
from pairmill.errors import InputError, UsageError
from pairmill.formats.opened import open_result
from pairmill.interface import stagecli
from pairmill.loader import Loader, RowPlan
from pairmill.loader.batch import IGNORED
from pairmill.show import command
from pairmill.show.config import ShowConfig
from pairmill.show.lines import line as line_of
from pairmill.show.lines import plain
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from tests.support.data import samples, tokenized
from tests.support.data.results import upload
from tests.support.helpers import REPOSITORY, environment
from tests.support.stages import line

HOSTILE = "a\x1b[2Jb\x9b31mc\u202ed\re\x07\u2028"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("shown")
    places = {name: str(run().parameters["output"]) for name, run in line.stages(base).items()}
    (plan,) = (base / "root" / "sample").glob("?" * 16)
    rules = str(base / "rules.yaml")
    config = SampleConfig(
        tokenized_path=places["tokenize"], root=str(base / "root"), prefix_config_path=rules, epochs=1, seed=7
    )
    other = sample.run(config).parameters["output"]
    return {
        **places,
        "rules": rules,
        "root": str(base / "root"),
        "arrays": str(base / "arrays"),
        "plan": str(plan),
        "other": str(other),
    }


def show(path: str = "", **options: Any) -> str:
    return plain(command.show(ShowConfig(path=path, **options)))


def decoder(made: dict[str, str]) -> Tokenizer:
    return Tokenizer.from_file(f"{made['train_tokenizer']}/tokenizer.json")


def test_rows(made: dict[str, str], tmp_path: Path) -> None:
    rows = open_result(made["clean"])
    task = next(name for name in rows.tasks if "gsm8k" in name)
    record = pa.Table.from_batches(rows.rows(task)).slice(5, 1).to_pylist()[0]
    shown = show(made["clean"], row=[f"{task}:5"])
    assert shown.startswith(
        f"{task}:5\ncondition  {record['condition']}\ninstruction\n{record['instruction']}\nresponse\n"
    )
    assert show(made["clean"]).count("\ninstruction\n") == 3
    assert show(made["clean"], task=task, n=4).count(f"{task}:") == 4
    with pytest.raises(InputError, match=r"no such row; got .*:99999"):
        show(made["clean"], row=[f"{task}:99999"])
    chat = json.dumps({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": HOSTILE}]})
    columns = {"condition": "direct", "instruction": HOSTILE, "response": None, "chat": chat, "score": 0.5}
    groups = [pa.table({name: pa.array([value] * 4) for name, value in columns.items()})] * 3
    pq.write_table(pa.concat_tables(groups), tmp_path / "a.parquet", row_group_size=4)
    shown = show(str(tmp_path), row=["a:9"])
    assert "score  0.5" in shown
    assert "response\n(null)\nmessages\n  user: hi\n  assistant: a␛[2Jb\\u009b31mc\\u202ed␍e␇\\u2028" in shown


def test_tokens_are_those_of_the_arrays(made: dict[str, str]) -> None:
    task = next(name for name in open_result(made["tokenize"]).tasks if "gsm8k" in name)
    arrays = {path.stem: np.load(path) for path in (Path(made["tokenize"]) / task).glob("*.npy")}
    ids = arrays["tokens"][arrays["inst_start"][3] :][: arrays["inst_len"][3] + arrays["resp_len"][3]].tolist()
    shown = show(made["tokenize"], row=[f"{task}:3"], ids=True)
    text = decoder(made).decode(ids, skip_special_tokens=False)
    assert re.sub("⟦|⟧|\ntarget\n", "", shown.split("prompt\n")[1].split("\nids\n")[0]) == text
    table = re.findall(r"^ +(\d+) +(\d+) ([▮·]) ", shown.split("\nids\n")[1], re.MULTILINE)
    assert [int(number) for _, number, _ in table] == ids
    assert [mark for *_, mark in table].count("▮") == arrays["resp_len"][3]
    assert show(root=made["root"], row=[f"{task}:3"], ids=True) == shown


@pytest.mark.parametrize("given", ["plan", "arrays"])
def test_samples_by_epoch_and_place(made: dict[str, str], given: str) -> None:
    stored, index = samples.arrays(Path(made["arrays"]), 1)
    for place in (0, 17, len(index[0]) - 1):
        start, length, answer, size = (int(column[place]) for column in index)
        texts = (stored[start : start + length], stored[answer : answer + size])
        prompt, target = (decoder(made).decode(ids.tolist(), skip_special_tokens=False) for ids in texts)
        shown = show(made[given], row=[f"1:{place}"], root=made["root"])
        assert re.sub("⟦|⟧", "", shown.split("prompt\n")[1]) == f"{prompt}\ntarget\n{target}\n\n"
        task, number = re.match(rf"epoch 1, place {place:,}: (.*):(\d+), ", shown).groups()  # type: ignore[union-attr]
        assert show(made["tokenize"], row=[f"{task}:{number}"]).split("prompt\n")[1] == shown.split("prompt\n")[1]
    ids = show(made["arrays"], row=["1:0"])
    assert "no tokenizer is at hand: root=<project>" in ids
    assert task.partition("__")[0] in {name.partition("__")[0] for name in open_result(made["arrays"]).tasks}
    with pytest.raises(UsageError, match=r"no such epoch.*got 2; expected 0 to 1"):
        show(made[given], row=["2:0"], root=made["root"])
    with pytest.raises(UsageError, match="no such place in the epoch"):
        show(made[given], row=["0:999999"], root=made["root"])


def test_a_plan_that_adds_to_another(made: dict[str, str], tmp_path: Path) -> None:
    rows = [{"condition": "direct", "instruction": f"add {n} and {n}", "response": str(2 * n)} for n in range(90)]
    (tmp_path / "added.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = TokenizeConfig(rows=[str(tmp_path)], tokenizer=made["train_tokenizer"], root=made["root"], workers=1)
    added = stagecli.run(Tokenize(), config).parameters["output"]
    both = f"{made['tokenize']},{added}"
    options: dict[str, Any] = {"root": made["root"], "prefix_config_path": made["rules"], "epochs": line.EPOCHS}
    arrays = str(tmp_path / "arrays")
    config_of_plan = SampleConfig(tokenized_path=both, base=made["plan"], output_path=arrays, **options)
    plan = str(sample.run(config_of_plan).metadata["data"])
    index = samples.arrays(Path(arrays), 1)[1]
    stored = np.concatenate([np.load(Path(arrays) / name) for name in ("tokens.npy", "tokens_1.npy")])
    places = np.load(Path(plan) / "plan" / "places_1.npy")[[0, 40, 89]]
    for place in (0, int(places[0]) + 1, *places.tolist()):
        start, length, answer, size = (int(column[place]) for column in index)
        texts = (stored[start : start + length], stored[answer : answer + size])
        prompt, target = (decoder(made).decode(ids.tolist(), skip_special_tokens=False) for ids in texts)
        shown = show(plan, row=[f"1:{place}"])
        assert re.sub("⟦|⟧", "", shown.split("prompt\n")[1]) == f"{prompt}\ntarget\n{target}\n\n"
        assert (
            show(arrays, row=[f"1:{place}"], tokenizer=made["train_tokenizer"]).split("prompt\n")[1]
            == shown.split("prompt\n")[1]
        )
        assert (f"place {place:,}: added.jsonl:" in shown) == (place in places)
    figures = json.loads(stats.measure(open_result(plan)).json())
    assert figures["measured_rows"] == figures["rows_over_all_epochs"]
    assert figures["lengths"]["prompt"]["100"] == max(int(samples.arrays(Path(arrays), k)[1][1].max()) for k in (0, 1))
    report = (Path(plan) / "report.html").read_text()
    assert "0 of those added, of added.jsonl" in report
    assert "add " in report.split("The first rows of epoch 0")[1]


def test_a_batch_is_the_loaders(made: dict[str, str]) -> None:
    options = {"batch": 3, "batch_tokens": 4096, "ranks": 2, "n": 1}
    shown = show(made["arrays"], root=made["root"], **options)
    for rank in range(2):
        plan = RowPlan(made["arrays"], tail="keep")
        assert repr(plan) == f"<RowPlan: {len(open_result(made['arrays'])):,} rows, 2 epochs of {made['arrays']}>"
        with Loader(plan, batch_tokens=4096, rank=rank, ranks=2, threads=0) as loader:
            batch = next(batch for number, batch in enumerate(loader) if number == 3)
        part = shown.split(f"rank {rank}: ")[1].split("rank ")[0]
        targets = int((batch["labels"] != IGNORED).sum())
        ends = batch["cu_seqlens"][: len(batch.rows) + 1].tolist()
        assert part.startswith(f"{len(batch.rows)} rows, {ends[-1]:,} slots, {targets} targets\n")
        strip, listed = part.split("\n")[1], re.findall(r"^ +([\d,]+)…([\d,]+) +(\d+) +(\d+)  0…", part, re.MULTILINE)
        assert len(strip) == 96
        assert set(strip) <= set("░█·│")
        assert [int(first.replace(",", "")) for first, *_ in listed] == ends[:-1]
        assert sum(int(count) for *_, count in listed) == targets
        assert strip.count("│") <= len(batch.rows) - 1
    with pytest.raises(UsageError, match="no such batch"):
        show(made["arrays"], batch=10_000)
    with pytest.raises(UsageError, match="packed from arrays"):
        show(made["plan"], batch=0)


def test_plans_beside_each_other(made: dict[str, str]) -> None:
    def rows(plan: str) -> dict[str, set[int]]:
        manifest = json.loads((Path(plan) / "_MANIFEST.json").read_bytes())
        starts, result = np.load(Path(plan) / "plan" / "resp_start.npy"), {}
        for source in manifest["data"]["sources"]:
            result[source["name"]], starts = set(starts[: source["rows"]].tolist()), starts[source["rows"] :]
        return result

    first, second = rows(made["plan"]), rows(made["other"])
    shown = show(made["plan"], diff=made["other"])
    counts = {
        name: (len(first[name]), len(second[name]), len(first[name] - second[name]), len(second[name] - first[name]))
        for name in first
    }
    differ = {name: item for name, item in counts.items() if item[2] or item[3]}
    assert differ
    listed = re.findall(r"^ +(\S+) +(\S+) +(\S+) +(\S+)  (\S+)$", shown, re.MULTILINE)
    assert {name: tuple(int(item.replace(",", "")) for item in item_) for *item_, name in listed} == differ
    assert f"all tasks, {len(counts) - len(differ)} of them the same" in shown


def test_tokenizers_beside_each_other(made: dict[str, str], tmp_path: Path) -> None:
    raw = json.loads(Path(made["train_tokenizer"], "tokenizer.json").read_bytes())
    raw["model"]["merges"] = raw["model"]["merges"][:60]
    (tmp_path / "tokenizer.json").write_text(json.dumps(raw))
    text = "What is 90*k and the sum of all? <|im_end|>"
    shown = show(made["train_tokenizer"], diff=str(tmp_path), text=text, ids=True)
    for place in (made["train_tokenizer"], tmp_path):
        library = Tokenizer.from_file(f"{place}/tokenizer.json")
        library.encode_special_tokens = True
        assert f"{len(library.encode(text).ids)} tokens by {place}" in shown
    assert "⟦" not in shown
    assert "0 of 1 texts have the same ids; diff has +" in shown
    shown = show(f"{made['train_tokenizer']}/tokenizer.json", diff=made["train_tokenizer"], rows=[made["clean"]], n=2)
    assert "4 of 4 texts have the same ids; diff has +0.0% tokens" in shown
    with pytest.raises(UsageError, match="no text to encode"):
        show(made["train_tokenizer"])


def test_others_have_a_report_and_foreign_arrays_their_ids(made: dict[str, str], tmp_path: Path) -> None:
    assert show(made["fetch"]).startswith("# fetch\n")
    shown = show(str(samples.sampled(tmp_path / "theirs", [[(3, 2)]], seed=1)))
    assert f"target {np.load(tmp_path / 'theirs' / 'tokens.npy')[3:].tolist()}" in shown
    theirs = tokenized.put_folder(tmp_path / "t", {"a": 1})
    ids = np.load(tmp_path / "t" / "a" / "tokens.npy")[: np.load(tmp_path / "t" / "a" / "inst_len.npy")[0]].tolist()
    assert f"\nprompt {ids}\n" in show(theirs, n=1)
    text = decoder(made).decode(ids, skip_special_tokens=False)
    shown = show(theirs, n=1, tokenizer=made["train_tokenizer"]).split("prompt\n")[1].split("\ntarget\n")[0]
    assert re.sub("⟦|⟧", "", shown) == plain([line_of(text)]).removesuffix("\n")
    with pytest.raises(InputError, match="without its tokenizer"):
        show(theirs, check_server="http://127.0.0.1:9")
    with pytest.raises(UsageError, match="only tokens are compared with a server"):
        show(made["clean"], check_server="http://127.0.0.1:9")


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """Run ``pairmill show`` on a terminal of its own; return all that it was sent."""

    def sent(leader: int) -> Iterator[bytes]:
        while True:
            try:
                data = os.read(leader, 65536)
            except OSError:  # Linux says so at the end of a terminal
                return
            if not data:
                return
            yield data

    leader, follower = pty.openpty()
    variables = {**environment(), "TERM": "xterm-256color", **variables}
    command = [sys.executable, "-m", "pairmill", "show", *arguments]
    process = subprocess.Popen(command, stdout=follower, stderr=follower, env=variables, cwd=REPOSITORY)
    os.close(follower)
    text = b"".join(sent(leader)).decode()
    os.close(leader)
    assert process.wait() == 0, text
    return text


def test_colours_on_a_terminal_and_no_byte_of_data_that_it_obeys(tmp_path: Path) -> None:
    texts = {"condition": "direct", "instruction": HOSTILE, "response": "[red]x[/red]"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(texts) + "\n")
    shown = on_a_terminal(str(tmp_path))
    assert "\x1b[32m[red]x[/red]\x1b[0m" in shown
    assert "a␛[2Jb\\u009b31mc\\u202ed␍e␇\\u2028" in shown
    rest = re.sub(r"\x1b\[[0-9;]*m|\r\n", "", shown)
    assert not [character for character in rest if ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0]
    assert "\x1b[32m" not in on_a_terminal(str(tmp_path), NO_COLOR="1")


@pytest.mark.parametrize("store", ["s3", "gs"])
def test_results_in_a_bucket(made: dict[str, str], store: str, request: pytest.FixtureRequest) -> None:
    bucket = request.getfixturevalue(store)
    task = next(name for name in open_result(made["tokenize"]).tasks if "gsm8k" in name)
    wanted: dict[str, dict[str, Any]] = {
        "clean": {"row": [f"{task}:5"]},
        "tokenize": {"row": [f"{task}:3"], "ids": True},
        "plan": {"row": ["1:17"]},
    }
    places = {name: Path(made[name]).relative_to(made["root"]) for name in wanted}
    there = {name: upload(Path(made[name]), f"{bucket}/work/{place}") for name, place in places.items()}
    for name, uri in there.items():
        assert show(uri, **wanted[name]) == show(made[name], **wanted[name])
        mine, theirs = (json.loads(stats.measure(open_result(place)).json()) for place in (made[name], uri))
        assert {**mine, "path": uri} == theirs
