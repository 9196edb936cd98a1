"""Documents, pairs and chats through tokenize, sample and the loader: as rows, as pieces, and as flat files."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from pairmill.engine import runner
from pairmill.errors import InputError, UsageError
from pairmill.formats.slices import Slicing
from pairmill.formats.tokens import ARRAYS, BYTES, INDEX
from pairmill.loader import Loader, MixturePlan, RowPlan, Windows
from pairmill.stages.tokenize import core
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from tests.support import tools
from tests.support.data.results import upload
from tests.support.helpers import writable
from tests.support.peers.hrm import HrmDataset
from tests.support.tools import RowTuple

CONTEXT = 49
TEXT = "日本語 is written with 漢字, and this 🙂 takes four bytes. "
ROWS: dict[str, list[RowTuple]] = {
    "documents.jsonl": [("", "", f"{number} {TEXT * (1 + number % 7)}") for number in range(40)],
    "tagged.parquet": [("synth", "", f"A page {number}.") for number in range(30)],
    "pairs.parquet": [("direct", f"What is {number}?", f"It is {number}.") for number in range(300)],
    "chats.jsonl": [
        ("cot,direct", f"User: hello {number}\n\nAssistant: hi\n\nUser: and {number}?", f"Then {number}. " * 30)
        for number in range(20)
    ],
}
ALL = [row for rows in ROWS.values() for row in rows]


@dataclass(frozen=True)
class Line:
    """What was made of the rows."""

    rows: Path
    tokenizer: Path
    tokenized: Path

    @property
    def encoder(self) -> Tokenizer:
        return Tokenizer.from_file(str(self.tokenizer / "tokenizer.json"))

    def text(self, ids: Any) -> str:
        """Delimiters and tags are seen in it."""
        found: str = self.encoder.decode(list(ids), skip_special_tokens=False)
        return found


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Line:
    base = tmp_path_factory.mktemp("documents")
    for name, values in ROWS.items():
        tools.write_rows(base / "rows" / name, values, **({"row_group_size": 7} if name.endswith("parquet") else {}))
    given = {"rows": base / "rows", "root": base / "root", "workers": 1}
    tokenizer = tools.folder(tools.stage("train_tokenizer", **given, vocab_size=330))
    trained = tools.read_manifest(tokenizer)["ledger"]
    assert (trained["rows_in"], trained["rows_kept"], trained["dropped"]) == (len(ALL), len(ALL), {})
    tokenized = tools.folder(tools.stage("tokenize", **given, tokenizer=tokenizer, windows=True))
    return Line(base / "rows", tokenizer, tokenized)


def rows_of(folder: Path) -> Iterator[tuple[list[int], list[int]]]:
    """Instruction and response span of each row of a task."""
    tokens = np.load(folder / "tokens.npy").tolist()
    for a, b, c, d in zip(*(np.load(folder / f"{name}.npy").tolist() for name in INDEX), strict=True):
        yield tokens[a : a + b], tokens[c : c + d]


def test_the_span_of_a_document_has_no_text_before_it(line: Line) -> None:
    found = {name: list(rows_of(line.tokenized / name)) for name in ROWS}
    for name, values in ROWS.items():
        tags = {"documents.jsonl": "", "tagged.parquet": "<|quad_end|>"}.get(name)
        for (asked, answer), (_, question, text) in zip(found[name], values, strict=True):
            assert line.text(answer) == f"{text}<|box_end|>"
            if tags is not None:
                assert line.text(asked) == f"<|im_start|>{tags}<|im_end|>"
                assert len(asked) == 2 + bool(tags)
            else:
                assert question in line.text(asked)


def test_the_library_encodes_documents_as_the_native_encoder_does(line: Line, tmp_path: Path) -> None:
    settings = json.loads((line.tokenizer / "tokenizer.json").read_text())
    settings["model"]["dropout"] = None
    settings["truncation"] = {"max_length": 10**6, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(settings))
    config = TokenizeConfig(
        rows=[str(line.rows)], tokenizer=str(tmp_path), root=str(tmp_path / "root"), windows=True, workers=1
    )
    made = Path(runner.run(Tokenize(), config).uri)
    ours = {name: path for name, path in tools.digests(line.tokenized).items() if name.endswith(".npy")}
    assert len(ours) == len(ROWS) * (len(ARRAYS) + 2)
    assert {name: path for name, path in tools.digests(made).items() if name.endswith(".npy")} == ours
    assert "dropped_bytes" not in tools.read_manifest(made)["ledger"]["measures"]  # the library does not tell


def test_data_io_refuses_a_row_without_a_condition(line: Line, tmp_path: Path) -> None:
    done = tools.stage(
        "tokenize", rows=line.rows, tokenizer=line.tokenizer, root=tmp_path, profile="data_io", workers=1
    )
    assert done.code == 3
    assert "documents.jsonl row 1: condition '' is unknown" in done.message


def flat(line: Line, name: str, end: int) -> list[int]:
    """The definition: the instruction span unless the instruction is empty, then the response span with another end."""
    made: list[int] = []
    for (asked, answer), (_, question, _) in zip(rows_of(line.tokenized / name), ROWS[name], strict=True):
        made += [*(asked if question else []), *answer[:-1], end]
    return made


def test_flat_files_have_the_tokens_of_the_rows(line: Line) -> None:
    eoa = line.encoder.token_to_id("<|box_end|>")
    folder = line.tokenized / "windows"
    assert json.loads((folder / "windows.json").read_text()) == {"eod": "<|box_end|>", "eod_id": eoa}
    assert sorted(path.name for path in folder.iterdir()) == sorted([*(f"{name}.npy" for name in ROWS), "windows.json"])
    for name in ROWS:
        made = np.load(folder / f"{name}.npy")
        assert (made.dtype, made.tolist()) == (np.dtype("<u4"), flat(line, name, eoa))
        assert name not in {"documents.jsonl", "tagged.parquet"} or line.text(made.tolist()) == "".join(
            f"{text}<|box_end|>" for _, _, text in ROWS[name]
        )
    manifest = tools.read_manifest(line.tokenized)
    assert manifest["options"]["windows"] is True
    assert manifest["options"]["eod"] == "<|box_end|>"
    sizes = {path.name: len(np.load(path)) for path in folder.glob("*.npy")}
    assert manifest["ledger"]["measures"]["window_tokens"] == sum(sizes.values())
    assert f"- **Tokens in flat files**: {sum(sizes.values()):,}" in (line.tokenized / "report.md").read_text()
    # They belong to no task.
    assert {file["task"] for file in manifest["files"] if file["path"].startswith("windows/")} == {""}


def test_windows_of_flat_files_are_windows_of_the_rows_tokens(line: Line) -> None:
    eoa = line.encoder.token_to_id("<|box_end|>")
    folder = line.tokenized / "windows"
    made = Windows.of_files(folder, seq_len=16)
    wanted = [np.array(flat(line, name, eoa), np.uint32) for name in sorted(ROWS)]
    expected = Windows.of_arrays(wanted, seq_len=16, eos_id=eoa)
    assert (made.eos_id, made.windows, made.fields) == (eoa, expected.windows, ("input_ids", "labels", "doc_ids"))
    everything = np.arange(made.windows)
    outs = made.empty(made.windows), expected.empty(made.windows)
    made.fill(everything, outs[0])
    expected.fill(everything, outs[1])
    assert all(np.array_equal(outs[0][name], outs[1][name]) for name in made.fields)
    assert Windows.of_files(folder, seq_len=16, eos_id=None).fields == ("input_ids", "labels")
    assert Windows.of_files(folder, seq_len=16, eos_id=7).eos_id == 7

    # The digest is that of the manifest above, or of the bytes where the folder was copied alone.
    copied = tools.write_text(folder.parent.parent / "copied" / "x", "").parent
    for path in folder.iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    assert Windows.of_files(copied, seq_len=16).digest == made.digest
    damaged = writable(copied / "windows.json")
    damaged.write_text('{"eod": 5}')
    with pytest.raises(InputError, match=r"windows.json: does not name the end of a document"):
        Windows.of_files(copied, seq_len=16)


def test_a_mixture_of_two_tasks_delivers_every_document(line: Line) -> None:
    folder = line.tokenized / "windows"
    sources = [
        Windows.of_files(folder, seq_len=16, pattern=f"{name}.npy", name=name)
        for name in ("documents.jsonl", "pairs.parquet")
    ]
    with Loader(MixturePlan(sources, seed=1), batch_tokens=16, threads=0) as loader:
        seen = Counter[tuple[int, ...]]()
        for batch in loader.epoch():
            ((inputs, labels),) = zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True)
            seen[(int(batch["dataset_idx"][0]), *inputs, *labels)] += 1
    assert sum(seen.values()) == sum(source.windows for source in sources)
    for number, source in enumerate(sources):
        out = source.empty(source.windows)
        source.fill(np.arange(source.windows), out)
        expected = Counter(
            (number, *a, *b) for a, b in zip(out["input_ids"].tolist(), out["labels"].tolist(), strict=True)
        )
        mine = Counter({row: count for row, count in seen.items() if row[0] == number})
        # Draws are dealt to sources by their sizes, plus or minus one or two.
        assert sum((mine - expected).values()) + sum((expected - mine).values()) <= 4 < source.windows / 10


def test_pieces_other_ends_and_defaults(line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(root: str, **options: Any) -> Path:
        given: dict[str, Any] = {"rows": [str(line.rows)], "tokenizer": str(line.tokenizer), "workers": 1}
        return Path(runner.run(Tokenize(), TokenizeConfig(root=str(tmp_path / root), **given, **options)).uri)

    plain = made("plain")
    assert not (plain / "windows").exists()
    assert not {"windows", "eod"} & tools.read_manifest(plain)["options"].keys()
    other = made("other", windows=True, eod="<|im_end|>")
    number = line.encoder.token_to_id("<|im_end|>")
    assert np.load(other / "windows" / "chats.jsonl.npy").tolist() == flat(line, "chats.jsonl", number)
    assert Windows.of_files(other / "windows", seq_len=8).eos_id == number
    names = [f"{name}/{array}.npy" for name in ROWS for array in (*ARRAYS, BYTES)]
    digests = [{name: tools.digests(folder)[name] for name in names} for folder in (plain, other, line.tokenized)]
    assert digests[0] == digests[1] == digests[2]

    monkeypatch.setattr(core, "SLICING", Slicing(500, 0, 800))
    cut = made("cut", windows=True)
    pieces = tools.read_manifest(cut)["data"]["pieces"]
    assert len(pieces["pairs.parquet"]) > 2
    files = [*names, *(f"windows/{name}.npy" for name in ROWS)]
    assert [tools.digests(cut)[name] for name in files] == [tools.digests(line.tokenized)[name] for name in files]


def test_a_task_without_rows_has_no_flat_file(line: Line, tmp_path: Path) -> None:
    tools.write_rows(tmp_path / "rows" / "none.jsonl", [])
    tools.write_rows(tmp_path / "rows" / "one.jsonl", ALL[:1])
    done = tools.stage(
        "tokenize", rows=tmp_path / "rows", tokenizer=line.tokenizer, root=tmp_path / "root", windows=True, workers=1
    )
    folder = tools.folder(done) / "windows"
    assert sorted(path.name for path in folder.iterdir()) == ["one.jsonl.npy", "windows.json"]
    assert len(Windows.of_files(folder, seq_len=4)) > 2


def test_held_out_rows_have_flat_files_apart(line: Line, tmp_path: Path) -> None:
    tools.write_lines(tmp_path / "pages.jsonl", [{"text": f"{number}: {TEXT}"} for number in range(60)])
    source = tools.write_text(tmp_path / "pages.yaml", "name: pages\nfiles: pages.jsonl\ntext: text\n")
    given = {"root": tmp_path / "root", "workers": 1}
    cleaned = tools.folder(tools.stage("clean", **given, sources=source, holdout=0.3))
    tokenize = tools.stage("tokenize", **given, rows=cleaned, tokenizer=line.tokenizer, windows=True)
    folder = tools.folder(tokenize)
    seen = []
    for top in (folder, folder / "holdout"):
        windows = Windows.of_files(top / "windows", seq_len=8, pattern="**/*.npy")
        assert windows.eos_id == line.encoder.token_to_id("<|box_end|>")
        ids = np.load(top / "windows" / "pages.jsonl.npy")
        assert windows.tokens == len(ids)
        seen.append(line.text(ids).split("<|box_end|>")[:-1])
    assert 5 < len(seen[1]) < len(seen[0])
    assert sorted(seen[0] + seen[1]) == sorted(f"{number}: {TEXT}".strip() for number in range(60))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"eod": "<|im_end|>"}, "eod: needs windows; got '<|im_end|>'"),
        ({"windows": True, "profile": "data_io"}, "windows: the reference writes no flat files"),
        (
            {"windows": True, "tokenized": "x"},
            "tokenized: cannot be given with windows; expected tokenized or windows, not both",
        ),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        TokenizeConfig(rows=["x"], tokenizer="x", root="x", **options)
    assert said in str(caught.value)


def test_an_end_that_the_tokenizer_lacks_is_refused(line: Line, tmp_path: Path) -> None:
    config = TokenizeConfig(
        rows=[str(line.rows)], tokenizer=str(line.tokenizer), root=str(tmp_path), windows=True, eod="<end>"
    )
    with pytest.raises(InputError, match=r"lacks delimiter or condition tokens; got <end>; expected"):
        runner.run(Tokenize(), config)


def test_pairs_chats_and_documents_in_one_run_and_a_batch_of_each(line: Line, tmp_path: Path) -> None:
    rules = tools.rules(tmp_path / "rules.yaml", "- prefix: ''\n  long_context: split\n")
    sampled = tmp_path / "sampled"
    done = tools.stage(
        "sample",
        tokenized_path=line.tokenized,
        output_path=sampled,
        prefix_config_path=rules,
        epochs=1,
        context_size=CONTEXT,
    )
    tools.ended(done)
    assert "**Rows Split at the Context:**" in done.out
    manifest = tools.read_manifest(sampled)
    assert manifest["ledger"]["rows_in"] == manifest["ledger"]["rows_kept"] == len(ALL)
    assert manifest["shards"]["documents.jsonl"]["notes"]["split"] > 20
    assert manifest["shards"]["chats.jsonl"]["notes"] == {"split": 20}
    assert manifest["shards"]["pairs.parquet"]["notes"] == {}

    # The order of the sampled tokens is that of rows and pieces, so what a loader gives can be put in order again.
    index = [np.load(sampled / "epoch_0" / f"{name}.npy") for name in INDEX]
    order = np.argsort(index[2]).tolist()
    found: dict[int, tuple[list[int], list[int]]] = {}
    with Loader(RowPlan(sampled, tail="keep"), batch_tokens=480, threads=0) as loader:
        for batch in loader:
            ends = batch["cu_seqlens"][: batch.scalars["numseqs"] + 1].tolist()
            for place, (start, end) in enumerate(pairwise(ends)):
                asked = int(batch["prefix_lens"][place])
                labels = batch["labels"][start:end].tolist()
                assert labels[: asked - 1] == [-100] * (asked - 1)
                inputs = batch["inputs"][start:end].tolist()
                assert inputs[asked:] == labels[asked - 1 : -1]
                found[int(batch.rows[place, 2])] = inputs[:asked], labels[asked - 1 :]
    assert sorted(found) == list(range(len(order)))
    spans = iter(found[row] for row in order)
    for name in [item["name"] for item in tools.read_manifest(sampled)["data"]["sources"]]:
        for asked, answer in rows_of(line.tokenized / name):
            joined: list[int] = []
            while len(joined) < len(answer):
                question, piece = next(spans)
                assert question == asked
                assert len(question) + len(piece) <= CONTEXT
                assert "\ufffd" not in line.text(piece)  # a character that was cut would show
                joined += piece
            assert joined == answer
    assert next(spans, None) is None

    # The trainer that expects the reference's loader gets the same batches.
    theirs = [arrays for arrays, _ in HrmDataset(sampled, batch_max_length=480)]
    with Loader(RowPlan(sampled), batch_tokens=480, threads=0) as loader:
        ours = list(loader)
    assert len(ours) == len(theirs) > 20
    assert all(
        np.array_equal(mine[name], other[name]) for mine, other in zip(ours, theirs, strict=True) for name in other
    )


def test_a_folder_in_a_bucket_is_split_as_on_files(line: Line, s3: str, tmp_path: Path) -> None:
    upload(line.tokenized, f"{s3}/tokenize/{line.tokenized.name}")
    rules = tools.rules(tmp_path / "rules.yaml", "- prefix: ''\n  long_context: split\n")
    made = []
    for tokenized, name in ((str(line.tokenized), "files"), (f"{s3}/tokenize/{line.tokenized.name}", "bucket")):
        options = {"prefix_config_path": rules, "epochs": 1, "context_size": CONTEXT, "root": tmp_path / f"{name}-root"}
        tools.ended(tools.stage("sample", tokenized_path=tokenized, output_path=tmp_path / name, **options))
        made.append(tools.digests(tmp_path / name))
    assert made[0] == made[1]
