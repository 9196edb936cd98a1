"""Tokenize as a whole: files in pieces, Ctrl-C, what a process loads, and errors that only Rust can name the row of."""

import errno
import json
import os
import pickle
import resource
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import _native
from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.engine.stage import ShardResult
from pairmill.engine.writer import Writer
from pairmill.errors import InternalError
from pairmill.formats.slices import Slicing
from pairmill.formats.tokens import ARRAYS, BYTES, INDEX
from pairmill.stages.tokenize import core, encode
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.tokenize.merge import MergeArrays
from pairmill.storage import local
from tests.support import tools
from tests.support.helpers import PATIENCE, python, until
from tests.support.objectstores.counted import counted
from tests.support.tools import World


def tokenize(world: World, rows: Path, root: Path | str, **options: Any) -> tuple[Path, Manifest]:
    given = {"root": str(root), "rows": [str(rows)], "tokenizer": str(world.tokenizer), **options}
    config = TokenizeConfig(**given)
    result = runner.run(Tokenize(), config)
    return Path(result.uri), result.manifest


def arrays(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {name: np.load(folder / f"{name}.npy") for name in ARRAYS}


def test_a_file_in_pieces_gives_the_task_of_the_whole_file(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = tools.rows(3000, seed=1)
    tools.write_rows(tmp_path / "rows" / "large.parquet", large, row_group_size=70)
    tools.write_rows(tmp_path / "rows" / "one_group.parquet", tools.rows(3000, seed=2))
    tools.write_rows(tmp_path / "rows" / "small.parquet", tools.rows(20, seed=3), row_group_size=7)
    tools.write_rows(tmp_path / "rows" / "x.jsonl", tools.rows(3000, seed=4))
    whole, manifest = tokenize(world, tmp_path / "rows", tmp_path / "whole", workers=1)
    assert "pieces" not in manifest.data

    monkeypatch.setattr(core, "SLICING", Slicing(20_000, 0, 40_000))
    cut, cut_manifest = tokenize(world, tmp_path / "rows", tmp_path / "cut", workers=1)
    (pieces,) = cut_manifest.data["pieces"].values()
    assert list(cut_manifest.data["pieces"]) == ["large.parquet"]
    assert len(pieces) > 5
    assert len(cut_manifest.shards) == len(pieces) + 3
    # All that differs is which shards there were, and the name, which follows from them.
    assert cut.name != whole.name
    assert (cut_manifest.ledger, cut_manifest.tasks()) == (manifest.ledger, manifest.tasks())
    manifests = (tools.MANIFEST, tools.STARTED, "report.html", "report.md")
    assert less(tools.digests(cut), *manifests) == less(tools.digests(whole), *manifests)
    made = arrays(cut / "large.parquet")
    assert len(made["inst_start"]) == 3000
    assert all(made[name].dtype == np.uint64 for name in INDEX)
    kept = np.load(cut / "large.parquet" / f"{BYTES}.npy")
    assert kept.dtype == np.uint64
    assert kept.tolist() == [len(response.encode()) for _, _, response in large]

    for workers in (2, 4):
        again, _ = tokenize(world, tmp_path / "rows", tmp_path / f"{workers}", workers=workers)
        assert tools.digests(again) == tools.digests(cut)
        assert not [*(tmp_path / f"{workers}").rglob("*.partial")]


def test_a_large_file_is_joined_while_it_is_encoded(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "SLICING", Slicing(20_000, 0, 40_000))
    tools.write_rows(tmp_path / "rows" / "large.parquet", tools.rows(3000, seed=1), row_group_size=70)
    expected, _ = tokenize(world, tmp_path / "rows", tmp_path / "alone", workers=1)
    copy, copied = _native.copy_digested, dict[str, int]()

    def count(source: int, target: int, start: int, stop: int, place: int) -> tuple[int, int, bytes]:
        path = Path(os.readlink(f"/proc/self/fd/{target}"))
        kind = path.name.split(".")[1]
        copied[kind] = copied.get(kind, 0) + 1
        if full and copied[kind] == full and kind == "attempt":
            raise OSError(errno.ENOSPC, "No space left on device")
        return copy(source, target, start, stop, place)

    monkeypatch.setattr(local, "copy_digested", count)
    for full, others in ((0, set()), (9, {"inst_len", "resp_bytes", "resp_len", "tokens"})):
        copied.clear()
        made, _ = tokenize(world, tmp_path / "rows", tmp_path / f"ahead {full}", workers=2)
        assert tools.digests(made) == tools.digests(expected)
        assert copied.keys() == {"attempt", *others}
        assert copied["attempt"] == full or len(list((made / "large.parquet").iterdir())) == 6
        assert not [*(tmp_path / f"ahead {full}").rglob("*.partial")]


def test_a_piece_more_costs_a_store_few_requests(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools.write_rows(tmp_path / "rows" / "large.parquet", tools.rows(600, seed=1), row_group_size=70)
    joined: list[tuple[int, Counter[str]]] = []

    with counted(tmp_path) as store:

        class Counting(MergeArrays):
            def run(self, context: object, out: Writer) -> ShardResult:
                before = Counter(store.requests)
                result = super().run(context, out)
                joined.append((len(self.pieces), store.requests - before))
                return result

        monkeypatch.setattr(core, "MergeArrays", Counting)
        for size in (1, 15_000):
            monkeypatch.setattr(core, "SLICING", Slicing(size, 0, 1))
            tokenize(world, tmp_path / "rows", f"s3://bucket/{size}", workers=1)
    (many, dear), (few, cheap) = joined
    assert many > few > 1
    # A request for each array of a piece, and one or two before it; none to find out how long it is.
    assert (dear - cheap).total() <= 16 * (many - few)


def test_what_changed_is_encoded_again(world: World, tmp_path: Path) -> None:
    given, root = tmp_path / "rows", tmp_path / "root"
    paths = ("a.jsonl", "b.parquet", "deep/c.jsonl", "deep/d.parquet")
    values = [tools.rows(50, seed=number) for number in range(len(paths))]
    for path, some in zip(paths, values, strict=True):
        tools.write_rows(given / path, some)
    first, manifest = tokenize(world, given, root, workers=1)
    wanted = tools.digests(first)

    # One row of one file.
    condition, instruction, response = values[3][17]
    values[3][17] = (condition, instruction, response[:-1] + "x")
    tools.write_rows(given / paths[3], values[3])
    before, outside = tools.records(root, "tokenize"), [tools.stamps(top) for top in (given, world.tokenizer)]
    _, changed = tokenize(world, given, root, workers=1)
    after = tools.records(root, "tokenize")
    assert len(after) == len(before) + 1
    assert before.items() <= after.items()
    tasks, others = manifest.tasks(), changed.tasks()
    assert [task for task in tasks if tasks[task] != others[task]] == ["deep__d.parquet"]

    # Everything. Of the tokenizer only its file counts, even where the ids cannot differ.
    other = tmp_path / "other" / "tokenizer.json"
    text = json.loads((world.tokenizer / "tokenizer.json").read_text())
    tools.write_text(other, json.dumps(text))
    mapping = ["direct=<|object_ref_end|>", "cot=<|object_ref_start|>", "noisy=<|quad_start|>", "synth=<|quad_end|>"]
    fingerprints = {manifest.fingerprint, changed.fingerprint}
    for options in ({"tokenizer": str(other)}, {"conditions": mapping}, {"eoa": "<|im_end|>"}):
        before = tools.records(root, "tokenize")
        _, all_new = tokenize(world, given, root, workers=1, **options)
        after = tools.records(root, "tokenize")
        assert len(after) == len(before) + len(paths)
        assert before.items() <= after.items()
        fingerprints.add(all_new.fingerprint)
    assert len(fingerprints) == 5

    # What stood there before stands there, the other folders of results too.
    assert tools.digests(first) == wanted
    assert [tools.stamps(top) for top in (given, world.tokenizer)] == outside


def less(found: dict[str, str], *paths: str) -> dict[str, str]:
    return {path: digest for path, digest in found.items() if path not in paths}


def test_a_damaged_large_file_fails_alone(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the pieces are listed a file is opened for the first time."""
    monkeypatch.setattr(core, "SLICING", Slicing(32 << 20, 0, 64 << 20))
    path = tools.write_rows(tmp_path / "rows" / "bad.parquet", tools.rows(50))
    path.write_bytes(path.read_bytes()[:-20])
    tools.write_rows(tmp_path / "rows" / "good.parquet", tools.rows(50))
    with pytest.raises(runner.StageFailure, match=r"1 of 2 shards failed.*\n.*bad.parquet: not a readable Parquet"):
        tokenize(world, tmp_path / "rows", tmp_path / "root", workers=1)
    assert len(tools.records(tmp_path / "root", "tokenize")) == 1


# One word, within which nothing looks for signals: seconds of merging.
_ENDLESS = "ab" * 15_000_000


def processor_seconds(process: int) -> float:
    """User and system time that a running process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.serial
@pytest.mark.parametrize("what", ["one text", "many rows"])
def test_ctrl_c_ends_a_run_within_a_second(world: World, tmp_path: Path, what: str) -> None:
    if what == "one text":
        text, count = pa.scalar(_ENDLESS), 1
    else:
        text, count = pa.scalar("ab" * 600), 400_000
    column = pa.repeat(text, count)
    (tmp_path / "rows").mkdir()
    table = pa.table({"condition": pa.repeat("direct", count), "instruction": column, "response": column})
    pq.write_table(table, tmp_path / "rows" / "x.parquet")
    root = tmp_path / "root"
    process = subprocess.Popen(
        tools.command("tokenize", rows=tmp_path / "rows", tokenizer=world.tokenizer, root=root, workers=1),
        cwd=tools.REPOSITORY,
        env=tools.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: list(root.rglob(".resp_len.npy.*.partial")), "the shard has begun")
    time.sleep(0.5)
    assert process.poll() is None
    # Processor time, which a busy machine does not stretch.
    spent = processor_seconds(process.pid) + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    took = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2]) - spent
    assert (process.returncode, out) == (130, ""), err
    assert json.loads(err.splitlines()[-1])["message"] == "tokenize: interrupted; run the same command to resume"
    assert took < 1
    assert [path for path in root.rglob("*") if path.is_file()] == []


_MODULES = """
import pickle, sys
from pathlib import Path
from pairmill.engine.shards import run_shard
context, shard = pickle.loads(Path(sys.argv[1]).read_bytes())
record = run_shard("tokenize", shard, context, sys.argv[2])()
print(record.ledger.rows_in, *sorted({"pandas", "pyarrow.compute", "rich", "tokenizers"} & sys.modules.keys()))
"""


def test_a_worker_builds_the_native_encoder_alone(world: World, tmp_path: Path) -> None:
    for name in ("x.parquet", "y.jsonl"):
        tools.write_rows(tmp_path / "rows" / name, tools.rows(30))
    config = TokenizeConfig(
        root=str(tmp_path / "root"), rows=[str(tmp_path / "rows")], tokenizer=str(world.tokenizer), workers=1
    )
    stage = Tokenize()
    plan = stage.plan(config)
    shards = runner.first_round(stage, config)
    for shard in shards:
        (tmp_path / "given").write_bytes(pickle.dumps((plan.context, shard)))
        done = python("-c", _MODULES, str(tmp_path / "given"), str(tmp_path / "shards"))
        assert (done.returncode, done.stdout) == (0, "30\n"), done.stderr
    tokenize(world, tmp_path / "rows", tmp_path / "root", workers=1)
    for shard in shards:
        for name in ARRAYS:
            alone, whole = (
                tools.shard_files(top / "shards" / shard.key) / f"{name}.npy"
                for top in (tmp_path, tmp_path / "root" / "tokenize")
            )
            assert alone.read_bytes() == whole.read_bytes()


_REUSE = """
import sys
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.tokenize.merge import MergeArrays
from pairmill.interface.stagecli import main
code = main(Tokenize(), sys.argv[1:])
print(*sorted({"pandas", "rich", "tokenizers"} & sys.modules.keys()))
raise SystemExit(code)
"""


def test_what_is_reused_loads_no_tokenizer(world: World) -> None:
    rows, root = world.cleaned, world.tokenized.parent.parent
    options = {"rows": rows, "tokenizer": world.tokenizer, "root": root, "workers": 1}
    done = python("-c", _REUSE, *(f"{name}={value}" for name, value in options.items()))
    assert (done.returncode, done.stdout) == (0, f"{world.tokenized}\n\n"), done.stderr
    assert "reused, nothing to do" in done.stderr


def test_a_panic_names_file_and_row(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rust's side, that a panic becomes this exception, is tested there: no input is known that panics."""
    path = tools.write_rows(tmp_path / "rows" / "x.parquet", tools.rows(500), row_group_size=200)
    real = encode.spans

    def panic(encoder: Any, layout: Any, batch: Any, start: int) -> Any:
        if batch.start + len(batch) > 450:
            raise _native.RowPanic(450 - batch.start, "row is bad at rust/core/src/x.rs:1:2")
        return real(encoder, layout, batch, start)

    monkeypatch.setattr(encode, "spans", panic)
    with pytest.raises(runner.StageFailure) as caught:
        tokenize(world, tmp_path / "rows", tmp_path / "root", workers=1)
    ((_, error),) = caught.value.failures
    assert isinstance(error, InternalError)
    assert str(error) == (
        f"{path} row 451: the encoder panicked; got row is bad at rust/core/src/x.rs:1:2; "
        "this is a defect of pairmill, please report it with the row"
    )
