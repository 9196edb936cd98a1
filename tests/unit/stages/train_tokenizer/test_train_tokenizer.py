"""What train_tokenizer reads of a file, and that its default profile decides the reference's defects."""

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from pairmill import _native, log
from pairmill.encoder import SPLIT
from pairmill.engine import runner
from pairmill.engine.manifest import Ledger
from pairmill.engine.stage import ShardRecord
from pairmill.engine.writer import Writer
from pairmill.errors import InputError, StageFailure, UsageError
from pairmill.formats.slices import Slicing
from pairmill.report.charts import Bars
from pairmill.stages.train_tokenizer import core, runs
from pairmill.stages.train_tokenizer.config import SPECIAL_TOKENS, TrainTokenizerConfig
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from pairmill.stages.train_tokenizer.count import Sample, chosen_texts, held_out
from pairmill.stages.train_tokenizer.report import report_of


def write_rows(path: Path, rows: list[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        columns = [["direct"] * len(rows), *map(list, zip(*rows, strict=True))]
        pq.write_table(pa.table(columns, names=["condition", "instruction", "response"]), path, row_group_size=7)
        return
    lines = [json.dumps({"condition": "direct", "instruction": one, "response": two}) for one, two in rows]
    path.write_text("\n".join(lines) + "\n")


def run(tmp_path: Path, rules: str = "[]", **options: Any) -> runner.Result:
    """Train on the files below ``tmp_path / "rows"``."""
    (tmp_path / "rules.yaml").write_text(rules)
    config = TrainTokenizerConfig(
        rows=[str(tmp_path / "rows")],
        prefix_config_path=str(tmp_path / "rules.yaml"),
        **{"root": str(tmp_path / "root"), "vocab_size": 400, "workers": 1, **options},
    )
    return runner.run(TrainTokenizer(), config)


def train(tmp_path: Path, rows: list[tuple[str, str]], rules: str = "[]", **options: Any) -> tuple[dict[str, Any], Any]:
    write_rows(tmp_path / "rows" / "set__a.jsonl", rows)
    result = run(tmp_path, rules, **options)
    return json.loads(tokenizer_json(result)), result.manifest


def tokenizer_json(result: runner.Result) -> str:
    return (Path(result.uri) / "tokenizer.json").read_text()


ROWS = [(f"question {number} abc", f"answer {number} abc") for number in range(40)]


def test_a_file_within_its_limit_is_read_whole() -> None:
    assert chosen_texts("pairmill", Sample(10, 0, "a"), 10) is None
    assert chosen_texts("data_io", Sample(20, 0, "a"), 10) is None


def test_the_default_sample_counts_rows_and_is_uniform() -> None:
    taken = np.zeros(100)
    for seed in range(400):
        chosen = chosen_texts("pairmill", Sample(20, seed, "set__a.jsonl"), 100)
        assert chosen is not None
        assert chosen.sum(axis=0).tolist() == [20, 20]
        taken += chosen[:, 0]
    # Each row is taken 80 times on average; the standard deviation of a binomial is 8.
    assert taken.min() > 80 - 45
    assert taken.max() < 80 + 45


def test_the_reference_sample_counts_texts_and_leans_to_the_head() -> None:
    chosen = chosen_texts("data_io", Sample(20, 0, "set__a.jsonl"), 100)
    assert chosen is not None
    assert chosen.sum() == 20
    assert chosen.ravel()[:20].sum() >= 12  # about 1 - limit/n of the first places keep their own text


def test_the_sample_depends_on_seed_and_task() -> None:
    first = chosen_texts("pairmill", Sample(20, 0, "a"), 100)
    assert first is not None
    for other in (chosen_texts("pairmill", Sample(20, 1, "a"), 100), chosen_texts("pairmill", Sample(20, 0, "b"), 100)):
        assert other is not None
        assert not np.array_equal(first, other)


def test_rows_over_the_limit_are_counted_as_dropped(tmp_path: Path) -> None:
    rules = "- prefix: set__\n  max_per_file: 2\n"
    _, manifest = train(tmp_path, ROWS, rules, limit_mul_factor=5)
    assert (manifest.ledger.rows_in, manifest.ledger.rows_kept) == (40, 10)
    assert manifest.ledger.dropped == {"over_file_limit": 30}


def test_the_default_alphabet_has_all_bytes_and_the_reference_only_those_seen(tmp_path: Path) -> None:
    whole, _ = train(tmp_path / "pairmill", ROWS)
    seen, _ = train(tmp_path / "data_io", ROWS, profile="data_io")
    letters = set("".join(one + two for one, two in ROWS).replace(" ", "Ġ"))
    singles = {token for token in seen["model"]["vocab"] if len(token) == 1}
    assert singles == letters
    assert len({token for token in whole["model"]["vocab"] if len(token) == 1}) == 256


def test_a_vocabulary_too_small_for_the_alphabet_is_refused(tmp_path: Path) -> None:
    given = {"rows": ["x"], "root": "y"}
    for size, special in ((10, SPECIAL_TOKENS), (286, SPECIAL_TOKENS), (256, ["<s>"])):
        with pytest.raises(UsageError, match=f"vocab_size: is too small; got {size}; expected {256 + len(special)} or"):
            TrainTokenizerConfig(**given, vocab_size=size, special_tokens=special)
    raw, _ = train(tmp_path, ROWS, vocab_size=287)
    assert len(raw["model"]["vocab"]) == 287
    assert TrainTokenizerConfig(**given, vocab_size=256, special_tokens=["a"]).vocab_size == 256


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"profile": "data_io", "vocab_size": 10}, "the alphabet alone makes {size}, vocab_size=10 was asked for"),
        ({"vocab_size": 90_000}, "the rows give {size} tokens only, vocab_size=90000 was asked for"),
    ],
)
def test_another_size_than_was_asked_for_is_said(
    tmp_path: Path, options: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.setup()
    raw, _ = train(tmp_path, ROWS, **options)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    warned = [line["message"] for line in lines if line["severity"] == "WARNING"]
    assert f"train_tokenizer: {said.format(size=len(raw['model']['vocab']))}" in warned


def test_special_tokens_come_first_and_the_library_reads_the_file(tmp_path: Path) -> None:
    raw, _ = train(tmp_path, ROWS)
    tokenizer = Tokenizer.from_str(json.dumps(raw))
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == list(range(31))
    text = "question 7 über 🙂\x04"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_texts_are_cut_to_truncate_len_characters(tmp_path: Path) -> None:
    raw, _ = train(tmp_path, [("é" * 5 + "z" * 50, "é" * 5 + "z" * 50)], profile="data_io", truncate_len=5)
    assert "z" not in raw["model"]["vocab"]


def test_unigram_is_refused_with_its_reason(tmp_path: Path) -> None:
    """The library's trainer gives other bytes in each process, whatever is pinned."""
    with pytest.raises(
        UsageError, match=r"another tokenizer each time.*got unigram; expected bpe; .*tokenizer="
    ) as caught:
        TrainTokenizerConfig(root=str(tmp_path), rows=["rows"], tokenizer_type="unigram")
    assert caught.value.exit_code == 2


def test_rows_without_text_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows" / "a.jsonl", [])
    (tmp_path / "rows" / "a.jsonl").write_text("")
    (tmp_path / "rules.yaml").write_text("[]")
    config = TrainTokenizerConfig(
        root=str(tmp_path / "root"), rows=[str(tmp_path / "rows")], prefix_config_path=str(tmp_path / "rules.yaml")
    )
    with pytest.raises(InputError, match="no text"):
        runner.run(TrainTokenizer(), config)


# --- Parts, runs and workers ----------------------------------------------------------------------------------------


def test_nulls_are_refused_after_a_run_that_takes_them(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    texts = [["direct"] * 2, ["question", "question"], ["answer", None]]
    pq.write_table(pa.table(texts, ["condition", "instruction", "response"]), tmp_path / "rows" / "a.parquet")
    assert run(tmp_path, profile="data_io").manifest.ledger.measures["texts"] == 3
    with pytest.raises(StageFailure, match="response is null"):
        run(tmp_path)


def words(seed: int, rows: int) -> list[tuple[str, str]]:
    """Rows of words of which some are common and most are not."""
    draw = random.Random(seed)

    def word() -> str:
        number = int(draw.paretovariate(0.6)) % 5_000
        return "".join("etaoinsrlé"[int(digit)] for digit in str(number))

    def text() -> str:
        return " ".join(word() for _ in range(draw.randrange(1, 30)))

    return [(text(), text()) for _ in range(rows)]


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
def test_parts_runs_and_workers_change_nothing(profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a__x.parquet": 300, "b__y.parquet": 120, "c__z.jsonl": 50}
    for seed, (name, count) in enumerate(files.items()):
        write_rows(tmp_path / "rows" / name, words(seed, count))
    rules = "- prefix: b__\n  max_per_file: 30\n"
    options: dict[str, Any] = {"rules": rules, "limit_mul_factor": 2, "vocab_size": 2_000, "profile": profile}
    whole = run(tmp_path, **options)
    assert len(whole.manifest.shards) == 3

    monkeypatch.setattr(core, "SLICING", Slicing(6_000, 0))
    monkeypatch.setattr(core, "_FAN_IN", 3)
    monkeypatch.setattr(runs, "MAX_WORDS", 30)
    monkeypatch.setattr(runs, "_BATCH", 64)
    for workers in (1, 2):
        # A worker process has the cap of always: so the runs differ too.
        root = tmp_path / f"root{workers}"
        split = run(tmp_path, root=str(root), workers=workers, **options)
        assert len(split.manifest.shards) > 8
        assert tokenizer_json(split) == tokenizer_json(whole)
        made = list((root / "tokenizer" / "shards").iterdir())
        assert len(made) > len(split.manifest.shards) + 2, "no runs were merged in groups"
        assert split.manifest.ledger.rows_kept == whole.manifest.ledger.rows_kept
        assert split.manifest.ledger.dropped == whole.manifest.ledger.dropped
        for task, sums in split.manifest.data["tasks"].items():
            assert [sums[key] for key in core._TASK] == [whole.manifest.data["tasks"][task][key] for key in core._TASK]
    assert len(list((tmp_path / "root1").rglob("words-00001.parquet"))) > 1, "no shard wrote two runs"


def test_a_rule_that_applies_to_no_task_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_rows(tmp_path / "rows" / "chat__x.parquet", words(1, 50))
    run(tmp_path, rules="- prefix: chta\n  max_per_file: 3\n- prefix: chat\n")
    assert [one.levelname for one in caplog.records if "rules that apply to no task: 'chta'" in one.message] == [
        "WARNING"
    ]


def test_runs_are_merged_a_batch_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "_BATCH", 3)
    draw = random.Random(3)
    expected: Counter[bytes] = Counter()
    uris = []
    for number in range(6):
        counted = {
            bytes(draw.choices(b"ab\0\xff", k=draw.randrange(1, 20))): draw.randrange(1, 9) for _ in range(number**2)
        }
        expected.update(counted)
        counter = _native.WordCounter()
        counter.merge(pa.array(list(counted), pa.binary()), pa.array(list(counted.values()), pa.int64()))
        runs.write(Writer(str(tmp_path)), f"{number}.parquet", [counter.words()])
        uris.append(str(tmp_path / f"{number}.parquet"))
    batches = [(pa.array(one).to_pylist(), counts.tolist()) for one, counts in runs.merged(uris)]
    got = [pair for batch in batches for pair in zip(*batch, strict=True)]
    assert got == sorted(expected.items())
    assert len(batches) > 5
    assert max(len(batch[0]) for batch in batches) <= 3 * len(uris)
    assert list(runs.merged([])) == []


def finish(tmp_path: Path, counts: dict[bytes, int]) -> Any:
    """The merges of a stage of which a shard counted this."""
    write_rows(tmp_path / "rows" / "a.jsonl", ROWS[:1])
    stage, config = TrainTokenizer(), TrainTokenizerConfig(root=str(tmp_path), rows=[str(tmp_path / "rows")])
    plan = stage.plan(config)
    (shard,) = plan.shards
    shards, made = tmp_path / "shards", tmp_path / "made"
    out = Writer(str(shards / shard.key))
    counter = _native.WordCounter()
    counter.merge(pa.array(list(counts)), pa.array(list(counts.values())))
    runs.write(out, "words-00000.parquet", [counter.words()])
    ledger = Ledger(1, 1, 1, measures={"text_bytes": 1})
    record = ShardRecord(shard.name, shard.key, str(shards), ledger=ledger, files=out.files)
    stage.finish(config, plan, [[record], []], Writer(str(made)))
    return json.loads((made / "tokenizer.json").read_text())["model"]["merges"]


def test_a_pair_that_32_bits_cannot_count_is_counted_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for count, said in ((2**31 - 1, False), (2**31, True)):
        merges = finish(tmp_path / str(count), {b"cd": 2**30, b"ab": count})
        assert merges == [["a", "b"], ["c", "d"]]
        assert ("more than 2,147,483,647 times; the 32-bit counts" in caplog.text) is said


def test_more_than_64_bits_can_count_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"too much to train on; expected fewer than 2\^63 bytes .*; read less"):
        finish(tmp_path, {b"ab": 2**62})


# --- What is measured -----------------------------------------------------------------------------------------------


def by_library(texts: list[str], config: dict[str, Any]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), byte_level])
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        show_progress=False, special_tokens=SPECIAL_TOKENS, initial_alphabet=alphabet, min_frequency=2, **config
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def tokens(tokenizer: Tokenizer, rows: list[tuple[str, str]]) -> int:
    return sum(len(tokenizer.encode(text).ids) for row in rows for text in row)


def test_held_out_rows_are_measured_by_a_vocabulary_that_has_not_seen_them(tmp_path: Path) -> None:
    """Against the library, which trains on the other rows and encodes these."""
    files = {"a.jsonl": words(1, 700), "b.parquet": words(2, 500)}
    for name, rows in files.items():
        write_rows(tmp_path / "rows" / name, rows)
    result = run(tmp_path, vocab_size=1_000)
    data = result.manifest.data
    held = {name: held_out(0, len(rows), 100) for name, rows in files.items()}
    left = [row for name, rows in files.items() for row, out in zip(rows, held[name], strict=True) if not out]
    unseen = by_library([text for row in left for text in row], {"vocab_size": 1_000})
    total = 0
    for name, rows in files.items():
        apart = [row for row, out in zip(rows, held[name], strict=True) if out]
        assert 3 < len(apart) < 12
        total += len(apart)
        assert data["tasks"][name]["held_out_bytes"] == sum(len(text.encode()) for row in apart for text in row)
        assert data["tasks"][name]["held_out_tokens"] == tokens(unseen, apart)
    assert result.manifest.ledger.measures["held_out_rows"] == total
    sums = [sum(task[key] for task in data["tasks"].values()) for key in ("held_out_tokens", "held_out_bytes")]
    assert data["metrics"]["held_out_tokens_per_byte"] == sums[0] / sums[1]


def test_the_report_sums_tasks_to_sources(tmp_path: Path) -> None:
    for seed, name in enumerate(("b__x/1.parquet", "b__y.jsonl", "a.jsonl", "none.jsonl")):
        write_rows(tmp_path / "rows" / name, words(seed, 300) if name != "none.jsonl" else ROWS[:3])
    result = run(tmp_path)
    tasks = result.manifest.data["tasks"]
    assert list(tasks) == ["a.jsonl", "b__x__1.parquet", "b__y.jsonl", "none.jsonl"]

    def sums(key: str) -> list[int]:
        return [tasks["a.jsonl"][key], tasks["b__x__1.parquet"][key] + tasks["b__y.jsonl"][key]]

    of_a, of_b = (size / count for size, count in zip(sums("held_out_bytes"), sums("held_out_tokens"), strict=True))
    bars = {block.title: block.bars for block in report_of(result.manifest).sections if isinstance(block, Bars)}
    assert sorted(bars["Held-out rows by source"]) == [("a", of_a), ("b", of_b)]
    small = tasks["none.jsonl"]["text_bytes"]
    assert bars["Text by source"] == [("b", sums("text_bytes")[1]), ("a", sums("text_bytes")[0]), ("none", small)]


def test_the_growth_ends_with_what_the_tokenizer_makes_of_the_text(tmp_path: Path) -> None:
    rows = words(1, 600)
    raw, manifest = train(tmp_path, rows, vocab_size=600)
    size = sum(len(text.encode()) for row in rows for text in row)
    made = tokens(Tokenizer.from_str(json.dumps(raw)), rows)
    growth = manifest.data["growth"]
    assert growth[-1] == (600, size / made)
    assert manifest.data["metrics"]["tokens_per_byte"] == made / size
    assert [point[0] for point in growth] == [287, 512, 600]
    assert growth[0][1] == 1
    smaller = by_library([text for row in rows for text in row], {"vocab_size": 512})
    assert growth[1][1] == size / tokens(smaller, rows)


def test_without_evaluation_the_tokenizer_is_the_same_and_its_shards_are_reused(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows" / "a.jsonl", words(1, 200))
    with_it = run(tmp_path)
    records = sorted((tmp_path / "root" / "tokenizer" / "shards").iterdir())
    without = run(tmp_path, evaluate=False)
    assert with_it.uri != without.uri
    assert tokenizer_json(with_it) == tokenizer_json(without)
    assert sorted((tmp_path / "root" / "tokenizer" / "shards").iterdir()) == records
    assert "held_out_tokens_per_byte" in with_it.manifest.data["metrics"]
    assert "held_out_tokens_per_byte" not in without.manifest.data["metrics"]
    assert "**Tokens per byte, held out**: not measured" in (Path(without.uri) / "report.md").read_text()


def test_rows_held_out_are_one_in_so_many_wherever_a_batch_begins() -> None:
    whole = held_out(0, 100_000, 100)
    assert 950 < whole.sum() < 1_050
    assert np.array_equal(np.concatenate([held_out(start, 625, 100) for start in range(0, 100_000, 625)]), whole)
    gaps = np.diff(np.flatnonzero(whole))
    assert gaps.max() < 1_000


def test_tokenizer_json_is_what_json_writes(tmp_path: Path) -> None:
    special = ['<"\\\n\u2028>', *SPECIAL_TOKENS]
    for size in (288, 300, 400):
        write_rows(tmp_path / "rows" / "a.jsonl", [('a "b" \\ é', 'a "b" \\ é')] * 3)
        text = tokenizer_json(run(tmp_path, vocab_size=size, special_tokens=special))
        assert text == json.dumps(json.loads(text), indent=2, ensure_ascii=False)
        assert json.loads(text)["added_tokens"][0]["content"] == special[0]


def test_the_longest_tokens_can_be_read(tmp_path: Path) -> None:
    _, manifest = train(tmp_path, [(" été\n" * 3 + "日" * 20, "日" * 20)] * 3, vocab_size=10_000)
    longest = dict(manifest.data["longest"])
    assert longest["'日日日日日日日日日日日日日日日日日日日日'"] == 60
    assert longest["' été'"] == 6
    assert list(longest.values()) == sorted(longest.values(), reverse=True)
    assert not [text for text in longest if "im_start" in text]
