"""What Kubeflow compares between runs: of every stage the same few numbers, which reconcile from stage to stage."""

from pathlib import Path

import pytest

from tests.support.stages import line

ROWS = {"rows_in", "rows_kept", "rows_out", "drop_fraction"}
NAMES = {
    "fetch": {"sources", "files", "bytes"},
    "clean": ROWS | {"sources", "malformed", "tasks", "bytes"},
    "train_tokenizer": ROWS
    | {"text_bytes", "tokens_per_byte", "held_out_tokens_per_byte", "vocab_size", "distinct_words", "tasks", "bytes"},
    "tokenize": ROWS
    | {"text_bytes", "tokens", "response_tokens", "tokens_per_byte", "dropped_bytes", "vocab_size", "tasks", "bytes"},
    "sample": ROWS
    | {"tokens", "response_tokens", "unique_tokens", "truncated_rows", "truncated_tokens", "epochs", "tasks", "bytes"}
    | {"split_rows", "split_pieces", "split_tokens", "padded_tokens_unpacked"},
}


def test_every_stage_has_its_metrics_and_they_reconcile(tmp_path: Path) -> None:
    stages = line.stages(tmp_path)
    outcomes = {name: run() for name, run in stages.items()}
    found = {name: dict(outcome.metrics) for name, outcome in outcomes.items()}
    assert {name: set(one) for name, one in found.items()} == NAMES
    for name, one in found.items():
        assert all(type(value) in (int, float) for value in one.values()), name
        if name != "fetch":
            dropped = sum(line.ledger(outcomes[name])["dropped"].values())
            assert one["rows_in"] - dropped == one["rows_kept"], name
            assert one["drop_fraction"] == pytest.approx(dropped / one["rows_in"], abs=1e-6), name
    fetch, clean, train, tokenize, sample = found.values()

    raw = [path.stat().st_size for path in (tmp_path / "raw").rglob("*") if path.is_file()]
    assert (fetch["sources"], fetch["files"], fetch["bytes"]) == (4, 8, sum(raw))
    assert (clean["sources"], clean["malformed"]) == (4, line.ODD)
    assert clean["rows_in"] == 8 * line.RECORDS
    assert clean["rows_in"] - clean["rows_kept"] == line.ODD
    limited = 4 * (line.RECORDS - line.LIMIT)
    for name, before, left_out in (
        ("train_tokenizer", "clean", limited),
        ("tokenize", "clean", 0),
        ("sample", "tokenize", 0),  # what one epoch leaves out, the next one takes
    ):
        assert found[name]["rows_in"] == found[before]["rows_out"], name
        assert found[name]["rows_in"] - found[name]["rows_kept"] == left_out, name
        assert found[name]["tasks"] == clean["tasks"] == 7, name
    assert sample["rows_out"] == line.EPOCHS * (tokenize["rows_out"] - limited)
    assert sample["epochs"] == line.EPOCHS

    assert tokenize["tokens_per_byte"] == pytest.approx(tokenize["tokens"] / tokenize["text_bytes"], abs=1e-6)
    assert train["text_bytes"] < tokenize["text_bytes"]
    assert train["tokens_per_byte"] < tokenize["tokens_per_byte"]  # it has no delimiters
    assert train["vocab_size"] == tokenize["vocab_size"] == 500
    # Every row is sampled, and some but not all of them in both epochs.
    assert sample["unique_tokens"] == tokenize["tokens"] < sample["tokens"] < line.EPOCHS * tokenize["tokens"]

    # Used again, a result shows what it showed when it was made.
    again = {name: run() for name, run in stages.items()}
    assert all(outcome.reused for outcome in again.values())
    assert {name: dict(outcome.metrics) for name, outcome in again.items()} == found
    assert all(again[name].report().html() == outcome.report().html() for name, outcome in outcomes.items())
