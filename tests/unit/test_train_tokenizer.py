"""What train_tokenizer reads of a file, and that its default profile decides the reference's defects."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from components.train_tokenizer.config import SPECIAL_TOKENS, TrainTokenizerConfig
from components.train_tokenizer.core import TrainTokenizer, _chosen_texts
from pairmill import runner
from pairmill.errors import InputError


def write_rows(path: Path, rows: list[tuple[str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"condition": "direct", "instruction": one, "response": two}) for one, two in rows]
    path.write_text("\n".join(lines) + "\n")


def train(tmp_path: Path, rows: list[tuple[str, str]], rules: str = "[]", **options: Any) -> tuple[dict[str, Any], Any]:
    write_rows(tmp_path / "rows" / "set__a.jsonl", rows)
    (tmp_path / "rules.yaml").write_text(rules)
    config = TrainTokenizerConfig(
        root=str(tmp_path / "root"),
        rows=[str(tmp_path / "rows")],
        prefix_config_path=str(tmp_path / "rules.yaml"),
        workers=1,
        **{"vocab_size": 400, **options},
    )
    result = runner.run(TrainTokenizer(), config)
    text = (Path(result.uri) / "tokenizer.json").read_text()
    return json.loads(text), result.manifest


ROWS = [(f"question {number} abc", f"answer {number} abc") for number in range(40)]


def test_a_file_within_its_limit_is_read_whole() -> None:
    assert _chosen_texts("pairmill", 0, "a", 10, 10) is None
    assert _chosen_texts("data_io", 0, "a", 10, 20) is None


def test_the_default_sample_counts_rows_and_is_uniform() -> None:
    taken = np.zeros(100)
    for seed in range(400):
        chosen = _chosen_texts("pairmill", seed, "set__a.jsonl", 100, 20)
        assert chosen is not None
        assert chosen.sum(axis=0).tolist() == [20, 20]
        taken += chosen[:, 0]
    # Each row is taken 80 times on average; the standard deviation of a binomial is 8.
    assert taken.min() > 80 - 45
    assert taken.max() < 80 + 45


def test_the_reference_sample_counts_texts_and_leans_to_the_head() -> None:
    chosen = _chosen_texts("data_io", 0, "set__a.jsonl", 100, 20)
    assert chosen is not None
    assert chosen.sum() == 20
    assert chosen.ravel()[:20].sum() >= 12  # about 1 - limit/n of the first places keep their own text


def test_the_sample_depends_on_seed_and_task() -> None:
    first = _chosen_texts("pairmill", 0, "a", 100, 20)
    assert first is not None
    for other in (_chosen_texts("pairmill", 1, "a", 100, 20), _chosen_texts("pairmill", 0, "b", 100, 20)):
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


def test_special_tokens_come_first_and_the_library_reads_the_file(tmp_path: Path) -> None:
    raw, _ = train(tmp_path, ROWS)
    tokenizer = Tokenizer.from_str(json.dumps(raw))
    assert [tokenizer.token_to_id(token) for token in SPECIAL_TOKENS] == list(range(31))
    text = "question 7 über 🙂\x04"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_texts_are_cut_to_truncate_len_characters(tmp_path: Path) -> None:
    raw, _ = train(tmp_path, [("é" * 5 + "z" * 50, "é" * 5 + "z" * 50)], profile="data_io", truncate_len=5)
    assert "z" not in raw["model"]["vocab"]


def test_unigram_goes_through_the_library_with_the_same_pieces(tmp_path: Path) -> None:
    raw, manifest = train(tmp_path, ROWS, tokenizer_type="unigram", vocab_size=120)
    assert raw["model"]["type"] == "Unigram"
    assert raw["decoder"] == {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    assert raw["pre_tokenizer"]["pretokenizers"][0]["behavior"] == "Isolated"
    tokenizer = Tokenizer.from_str(json.dumps(raw))
    assert tokenizer.decode(tokenizer.encode("question 7 abc").ids) == "question 7 abc"
    assert manifest.data["vocab_size"] == tokenizer.get_vocab_size()


def test_rows_without_text_are_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows" / "a.jsonl", [])
    (tmp_path / "rows" / "a.jsonl").write_text("")
    (tmp_path / "rules.yaml").write_text("[]")
    config = TrainTokenizerConfig(
        root=str(tmp_path / "root"), rows=[str(tmp_path / "rows")], prefix_config_path=str(tmp_path / "rules.yaml")
    )
    with pytest.raises(InputError, match="no text"):
        runner.run(TrainTokenizer(), config)
