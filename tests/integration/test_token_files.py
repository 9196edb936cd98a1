"""Token files of other programs through tokenize, sample and the loader, beside rows of text."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pairmill.encoder import Encoder
from pairmill.engine import runner, shards
from pairmill.engine.manifest import Ledger, Manifest
from pairmill.engine.rounds import rounds_of
from pairmill.errors import InputError, StageFailure, UsageError
from pairmill.formats.slices import Slicing
from pairmill.formats.token_files import Samples
from pairmill.formats.tokens import ARRAYS
from pairmill.loader import Loader, RowPlan
from pairmill.stages.tokenize import core, token_inputs
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.tokenize.token_inputs import Rows
from tests.support import tools
from tests.support.data.megatron import indexed
from tests.support.data.results import upload
from tests.support.helpers import writable
from tests.support.tools import World

# A chat of two turns, a sample without an answer, an empty one, and one that is all answer.
IDS = [[40, 41, 42, 43, 44, 45, 46], [50, 51], [], [60, 61, 62]]
LABELS = [[-100, -100, 42, 43, -100, 45, 46], [-100, -100], [], [60, 61, 62]]
DOCUMENTS = [[[70, 71, 72]], [[73], [74, 75]], [], [[76]]]


def tokenize(world: World, root: Path, **options: Any) -> tuple[Path, Manifest]:
    config = TokenizeConfig(root=str(root), tokenizer=str(world.tokenizer), workers=1, **options)
    result = runner.run(Tokenize(), config)
    return Path(result.uri), result.manifest


def spans(folder: Path) -> list[tuple[list[int], list[int]]]:
    """Instruction and response of each row of a task."""
    made = {name: np.load(folder / f"{name}.npy") for name in ARRAYS}
    assert [str(made[name].dtype) for name in ARRAYS] == ["uint32"] + ["uint64"] * 4
    assert len(made["tokens"]) == made["inst_len"].sum() + made["resp_len"].sum()
    found = []
    for number in range(len(made["inst_len"])):
        at = {name: int(made[name][number]) for name in ARRAYS[1:]}
        assert at["resp_start"] == at["inst_start"] + at["inst_len"]
        found.append(
            (
                made["tokens"][at["inst_start"] : at["resp_start"]].tolist(),
                made["tokens"][at["resp_start"] : at["resp_start"] + at["resp_len"]].tolist(),
            )
        )
    return found


def files(top: Path) -> Path:
    tools.write_table(top / "chat.parquet", {"input_ids": IDS, "labels": LABELS})
    indexed(top / "web_text_document", DOCUMENTS)
    return top


def head(world: World) -> list[int]:
    """What comes before an answer that begins its sample: BOQ and EOQ."""
    encoder = Encoder.from_file(world.tokenizer / "tokenizer.json")
    found = [encoder.token_to_id(token) for token in ("<|im_start|>", "<|im_end|>")]
    return [number for number in found if number is not None]


def test_each_answer_and_each_document_is_a_row(world: World, tmp_path: Path) -> None:
    folder, manifest = tokenize(world, tmp_path / "root", tokens=[str(files(tmp_path / "in"))])
    begin = head(world)
    assert spans(folder / "chat.parquet") == [
        ([40, 41], [42, 43]),
        ([40, 41, 42, 43, 44], [45, 46]),
        (begin, [60, 61, 62]),
    ]
    assert spans(folder / "web_text_document.bin") == [(begin, [70, 71, 72]), (begin, [73, 74, 75]), (begin, [76])]
    ledger = manifest.ledger
    assert (ledger.rows_in, ledger.rows_kept, ledger.rows_out) == (8, 5, 6)
    assert ledger.dropped == {"no_token": 2, "no_token_trained_on": 1}
    assert ledger.notes == {"several_answers": 1}
    assert ledger.measures == {"tokens": 29, "response_tokens": 14, "text_bytes": 0, "given_tokens": 29}
    assert [ref.role for ref in manifest.inputs] == ["tokens", "tokenizer"]
    assert "2 no token, 1 no token trained on; 29 tokens." in (folder / "report.md").read_text()


def test_a_flat_file_has_each_sample_once(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = str(files(tmp_path / "in"))
    folder, manifest = tokenize(world, tmp_path / "root", tokens=[given], windows=True, eod="<|PAD|>")
    end = Encoder.from_file(world.tokenizer / "tokenizer.json").token_to_id("<|PAD|>")
    assert end is not None
    chat = np.load(folder / "windows" / "chat.parquet.npy").tolist()
    assert chat == [*IDS[0], end, *IDS[3], end]
    web = np.load(folder / "windows" / "web_text_document.bin.npy").tolist()
    assert web == [70, 71, 72, end, 73, 74, 75, end, 76, end]
    assert manifest.ledger.measures["window_tokens"] == len(chat) + len(web)
    monkeypatch.setattr(core, "SLICING", Slicing(4, 0, 8))
    cut, parts = tokenize(world, tmp_path / "cut", tokens=[given], windows=True, eod="<|PAD|>")
    assert "web_text_document.bin" in parts.data["pieces"]
    assert np.load(cut / "windows" / "web_text_document.bin.npy").tolist() == web
    indexed(tmp_path / "in" / "web_text_document", [[[1, end]]])
    again, _ = tokenize(world, tmp_path / "root", tokens=[given], windows=True, eod="<|PAD|>")
    assert np.load(again / "windows" / "web_text_document.bin.npy").tolist() == [1, end]


def test_token_files_go_with_rows_to_the_loader(world: World, tmp_path: Path, shm: Path) -> None:
    given_ = str(files(tmp_path / "in"))
    rows, _ = tokenize(world, tmp_path / "root", rows=[str(world.cleaned)])
    assert rows.name == world.tokenized.name
    both, manifest = tokenize(world, tmp_path / "root", rows=[str(world.cleaned)], tokens=[given_])
    before = tools.read_manifest(world.tokenized)["ledger"]
    assert manifest.ledger.rows_out == before["rows_out"] + 6
    digests = tools.digests(both)
    others = (tools.MANIFEST, tools.STARTED, "report.html", "report.md")
    assert all(digests[path] == one for path, one in tools.digests(world.tokenized).items() if path not in others)
    assert manifest.ledger.measures["given_tokens"] == 29
    assert f"{(manifest.ledger.measures['tokens'] - 29) / manifest.ledger.measures['text_bytes']:.4f}" in (
        (both / "report.md").read_text()
    )

    rules = tools.rules(tmp_path / "rules.yaml", "- prefix: chat\n- prefix: web\n- prefix: ''\n  max_per_file: 1\n")
    tools.ended(
        tools.stage(
            "sample",
            tokenized_path=both,
            output_path=shm / "out",
            epochs=1,
            prefix_config_path=rules,
            min_resp_length=1,
        )
    )
    with Loader(RowPlan(shm / "out", tail="keep"), batch_tokens=1024, rank=0, ranks=1, threads=0) as loader:
        batch = next(iter(loader))
    found = []
    starts = batch["cu_seqlens"][: batch.scalars["numseqs"] + 1].tolist()
    for number, (begin, end) in enumerate(pairwise(starts)):
        prefix = int(batch["prefix_lens"][number])
        inputs, labels = batch["inputs"][begin:end].tolist(), batch["labels"][begin:end].tolist()
        assert set(labels[: prefix - 1]) <= {-100}
        found.append((inputs[:prefix], labels[prefix - 1 :]))
    begin_ = head(world)
    assert all(row in found for row in spans(both / "chat.parquet") + spans(both / "web_text_document.bin"))
    assert found.count((begin_, [70, 71, 72])) == 1
    assert len(found) > 6


def many(count: int, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    draw = random.Random(seed)
    ids = [[draw.randrange(400) for _ in range(draw.randrange(20))] for _ in range(count)]
    return ids, [[number if draw.random() < 0.5 else -100 for number in sample] for sample in ids]


def test_large_files_in_pieces_give_the_task_of_the_whole_file(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids, labels = many(900, 1)
    tools.write_table(tmp_path / "in" / "a.parquet", {"input_ids": ids, "labels": labels}, row_group_size=50)
    indexed(tmp_path / "in" / "b", [[one] for one in ids])
    _, manifest = tokenize(world, tmp_path / "whole", tokens=[str(tmp_path / "in")])
    assert "pieces" not in manifest.data

    monkeypatch.setattr(core, "SLICING", Slicing(4_000, 0, 8_000))
    monkeypatch.setattr(token_inputs, "_BLOCK_BYTES", 500)
    cut, parts = tokenize(world, tmp_path / "cut", tokens=[str(tmp_path / "in")])
    assert {task: len(names) > 3 for task, names in parts.data["pieces"].items()} == {"a.parquet": True, "b.bin": True}
    assert parts.ledger == manifest.ledger
    assert parts.tasks() == manifest.tasks()
    assert len(spans(cut / "b.bin")) == sum(map(bool, ids))


def test_stretches_of_labels_are_the_answers() -> None:
    """Joined in any way, instructions and answers are the sample up to its last answer, and answers are the labels."""
    rows = 0
    for seed in range(40):
        ids, labels = many(30, seed)
        flat = np.array([number for sample in ids for number in sample], np.int32)
        trained = np.array([label != -100 for sample in labels for label in sample], np.bool_)
        samples = Samples(0, flat, np.cumsum([0, *map(len, ids)], dtype=np.int64), trained)
        found = Rows.from_samples(samples)
        made = list(found.spans(flat, np.array([7, 8], np.uint32)))
        tokens = np.concatenate([values for values, _, _ in made]).tolist() if made else []
        inst = np.concatenate([lengths for _, lengths, _ in made]).tolist() if made else []
        resp = np.concatenate([lengths for _, _, lengths in made]).tolist() if made else []
        expected, answers = [], []
        for sample, marks in zip(ids, labels, strict=True):
            for end in range(1, len(sample) + 1):
                if marks[end - 1] != -100 and (end == len(sample) or marks[end] == -100):
                    first = end - 1
                    while first and marks[first - 1] != -100:
                        first -= 1
                    expected.append((sample[:first] or [7, 8], sample[first:end]))
                    answers += sample[first:end]
        place, got = 0, []
        for before, after in zip(inst, resp, strict=True):
            got.append((tokens[place : place + before], tokens[place + before : place + before + after]))
            place += before + after
        assert got == expected
        assert answers == flat[trained].tolist()
        ledger = Ledger()
        found.count(samples, ledger)
        ledger.reconcile("here")
        assert (ledger.rows_in, ledger.rows_out) == (30, len(expected))
        rows += len(expected)
    assert rows > 2_000


def test_an_id_beyond_the_vocabulary_is_named(world: World, tmp_path: Path) -> None:
    tools.write_table(tmp_path / "in" / "a.parquet", {"input_ids": [[1], [2, 3, 400]]})
    indexed(tmp_path / "in" / "b", [[[1]], [[2], [65_000]]])
    with pytest.raises(StageFailure) as caught:
        tokenize(world, tmp_path / "root", tokens=[str(tmp_path / "in")])
    said = str(caught.value)
    assert (
        "a.parquet row 2, token 3: a token is outside the vocabulary; got 400; expected 0 to 399, the tokens of" in said
    )
    assert "b.bin document 2, token 2: a token is outside the vocabulary; got 65000; expected 0 to 399" in said
    tools.write_table(tmp_path / "in" / "a.parquet", {"input_ids": [[1, -1]]})
    with pytest.raises(StageFailure, match="row 1, token 2: a token is outside the vocabulary; got -1"):
        tokenize(world, tmp_path / "root", tokens=[str(tmp_path / "in" / "a.parquet")])


def test_answers_at_every_second_token_are_refused(world: World, tmp_path: Path) -> None:
    ids = [[5] * 4000]
    uri = str(tools.write_table(tmp_path / "a.parquet", {"input_ids": ids, "loss_mask": [[0, 1] * 2000]}))
    with pytest.raises(
        StageFailure,
        match=r"row 1: the rows of one sample are longer than max_record_bytes; got 16,008,000 bytes for 2,000",
    ):
        tokenize(world, tmp_path / "root", tokens=[uri], max_record_bytes=1_000_000)
    folder, _ = tokenize(world, tmp_path / "root", tokens=[uri])
    assert len(spans(folder / "a.parquet")) == 2_000


@pytest.mark.parametrize("given_", ["x/a.bin", "x/a.idx", "x/a", "x"])
def test_a_pair_may_be_named_in_four_ways(world: World, tmp_path: Path, given_: str) -> None:
    indexed(tmp_path / "x" / "a", DOCUMENTS)
    folder, _ = tokenize(world, tmp_path / "root", tokens=[str(tmp_path / given_)])
    assert [path.name for path in folder.iterdir() if path.is_dir()] == ["a.bin"]


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("a.idx", r"a\.bin: a \.bin file without its partner; expected a\.idx beside it.*Windows\.of_files"),
        ("a.bin", r"a\.idx: a \.idx file without its partner; expected a\.bin beside it"),
    ],
)
def test_half_a_pair_is_refused(world: World, tmp_path: Path, lost: str, said: str) -> None:
    indexed(tmp_path / "in" / "a", DOCUMENTS)
    (tmp_path / "in" / lost).unlink()
    with pytest.raises(InputError, match=said):
        tokenize(world, tmp_path / "root", tokens=[str(tmp_path / "in")])


def test_a_change_of_either_file_is_noticed(world: World, tmp_path: Path) -> None:
    path = indexed(tmp_path / "in" / "a", DOCUMENTS)
    before, _ = tokenize(world, tmp_path / "root", tokens=[str(path)])
    indexed(tmp_path / "in" / "a", [[[70, 71, 72]], [[73], [74, 75, 76]]])
    after, _ = tokenize(world, tmp_path / "root", tokens=[str(path)])
    assert spans(after / "a.bin") != spans(before / "a.bin")
    # The index alone: other documents of the same tokens.
    indexed(tmp_path / "in" / "a", [[[70, 71, 72], [73], [74, 75, 76]]])
    assert len(spans(tokenize(world, tmp_path / "root", tokens=[str(path)])[0] / "a.bin")) == 1

    config = TokenizeConfig(root=str(tmp_path / "new"), tokenizer=str(world.tokenizer), workers=1, tokens=[str(path)])
    stage = Tokenize()
    plan = stage.plan(config)
    for name in ("a.bin", "a.idx"):
        data = (tmp_path / "in" / name).read_bytes()
        writable(tmp_path / "in" / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        (shard,) = next(rounds_of(stage, config, plan))
        with pytest.raises(InputError, match=f"{name}.*: changed while it was read"):
            shards.run_shard(stage.name, shard, plan.context, str(tmp_path / "new"))()
        (tmp_path / "in" / name).write_bytes(data)


def test_a_bucket_gives_the_same_arrays(world: World, tmp_path: Path, s3: str) -> None:
    here, manifest = tokenize(world, tmp_path / "files", tokens=[str(files(tmp_path / "in"))])
    upload(tmp_path / "in", f"{s3}/in")
    there, _ = tokenize(world, tmp_path / "bucket", tokens=[f"{s3}/in"])
    assert there.name == here.name
    assert tools.digests(there) == tools.digests(here)
    pair, _ = tokenize(world, tmp_path / "bucket", tokens=[f"{s3}/in/web_text_document"])
    assert spans(pair / "web_text_document.bin") == spans(here / "web_text_document.bin")
    assert manifest.ledger.rows_out == 6


def test_what_a_shard_reads_of_the_options_is_in_its_key(world: World, tmp_path: Path) -> None:
    """tests/contract/test_keys.py cannot: it changes the profile too."""
    given = str(files(tmp_path / "in"))
    known: set[str] = set()
    changes: list[dict[str, Any]] = [{}, {"boq": "<|PAD|>"}, {"eoq": "<|PAD|>"}, {"windows": True}]
    for options in [*changes, {"windows": True, "eod": "<|PAD|>"}]:
        config = TokenizeConfig(root=str(tmp_path), tokenizer=str(world.tokenizer), tokens=[given], **options)
        keys = {shard.key for shard in runner.first_round(Tokenize(), config)}
        assert len(keys) == 2
        assert keys.isdisjoint(known)
        known |= keys


def test_what_does_not_go_together_is_refused(world: World, tmp_path: Path) -> None:
    def config(**options: Any) -> TokenizeConfig:
        return TokenizeConfig(root=str(tmp_path), tokenizer=str(world.tokenizer), **options)

    with pytest.raises(UsageError, match=r"^one or more of rows, tokens, tokenized is required"):
        config()
    with pytest.raises(UsageError, match=r"^tokens: the reference has no such option"):
        config(tokens=["x"], profile="data_io")
    tools.write_table(tmp_path / "in" / "a.parquet", {"input_ids": [[], [1]], "labels": [[], [-100]]})
    with pytest.raises(InputError, match=r"tokens=\S+: the row files contain no row; no sample has a token"):
        tokenize(world, tmp_path / "root", tokens=[str(tmp_path / "in")])
    tools.write_rows(tmp_path / "rows" / "a.parquet", tools.rows(3))
    with pytest.raises(InputError, match=r"rows, tokens: two files give the task name 'a\.parquet'; got "):
        tokenize(world, tmp_path / "root", rows=[str(tmp_path / "rows")], tokens=[str(tmp_path / "in")])
    with pytest.raises(StageFailure, match="these are rows: give them as rows="):
        tokenize(world, tmp_path / "root", tokens=[str(tmp_path / "rows")])


def test_memory_is_bounded_for_a_file_of_long_documents(world: World, tmp_path: Path) -> None:
    """Tokens come in blocks of 4 MiB, whatever the documents are."""
    ids = np.tile(np.arange(300, dtype=np.int32), 12_000)
    offsets = pa.array(np.arange(0, len(ids) + 1, 60_000, dtype=np.int32))
    lists = pa.ListArray.from_arrays(offsets, pa.array(ids))
    samples = Samples(0, ids, np.asarray(offsets).astype(np.int64))
    sizes = [len(values) for values, _, _ in Rows.from_samples(samples).spans(ids, np.array([1, 2], np.uint32))]
    assert max(sizes) <= (4 << 20) // 4
    uri = str(tools.write_table(tmp_path / "a.parquet", {"input_ids": lists}))
    folder, manifest = tokenize(world, tmp_path / "root", tokens=[uri])
    assert manifest.ledger.measures["response_tokens"] == len(ids) == 3_600_000
    assert manifest.ledger.rows_out == 60
    first = np.load(folder / "a.parquet" / "tokens.npy", mmap_mode="r")[2 : 2 + 60_000]
    assert np.array_equal(first, ids[:60_000])
