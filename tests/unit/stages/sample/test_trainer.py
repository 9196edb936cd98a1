"""The trainer's side: a reader of sampled folders after the description of HRM-Text's loader reads both profiles."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine.options import Profile
from pairmill.formats.tokens import INDEX, INFO
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run

IGNORED = -100


class Reader:
    """metadata.json is checked when it is made; every ``iter`` opens the next epoch, as the trainer's loader does."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        metadata = json.loads((folder / "metadata.json").read_text())
        for key in ("max_seq_len", "total_length"):
            assert type(metadata[key]) is int, key
        assert metadata.get("vocab_size") is None
        self.context = metadata["max_seq_len"] - 1
        self.model = dict(metadata.get("tokenizer_info", {}))
        self.vocab = -(-self.model.pop("vocab_size") // 256) * 256
        self.total = metadata["total_length"]
        self._tokens: np.ndarray[Any, Any] | None = None
        self._next = 0

    def __iter__(self) -> Any:
        if self._tokens is None:
            self._tokens = np.load(self._folder / "tokens.npy", mmap_mode="r")
            assert self._tokens.dtype.kind in "ui"
        columns = [np.load(self._folder / f"epoch_{self._next}" / f"{name}.npy", mmap_mode="r") for name in INDEX]
        self._next += 1
        for column in columns:
            # The trainer's lengths overflow their heap in 16 bits.
            assert column.dtype in {np.dtype(np.int32), np.dtype(np.int64)}
            assert column.shape == columns[0].shape
        for a, b, c, d in zip(*columns, strict=True):
            question, answer = (self._tokens[x : x + y].astype(np.int32) for x, y in ((a, b), (c, d)))
            yield {
                "inputs": np.concatenate([question, answer[:-1]]),
                "labels": np.concatenate([np.full(b - 1, IGNORED, np.int32), answer]),
                "prefix": int(b),
                "causal": int(d) - 1,
            }


@pytest.mark.parametrize("profile", ["pairmill", "data_io"])
@pytest.mark.parametrize("vocab", [200, 65_536, 100_000])
def test_both_profiles_are_what_the_trainer_reads(tmp_path: Path, profile: Profile, vocab: int) -> None:
    draw = np.random.default_rng(1)
    expected = []
    for number in range(3):
        inst, resp = draw.integers(1, 20, 40), draw.integers(2, 20, 40)
        ends = np.cumsum(inst + resp)
        tokens = draw.integers(0, vocab, int(ends[-1]), dtype=np.uint32)
        tokens[0] = vocab - 1
        path = tmp_path / "in" / f"task{number}"
        path.mkdir(parents=True)
        np.save(path / "tokens.npy", tokens)
        for name, values in zip(INDEX, (ends - inst - resp, inst, ends - resp, resp), strict=True):
            np.save(path / f"{name}.npy", values.astype(np.uint64))
        for end, i, r in zip(ends.tolist(), inst.tolist(), resp.tolist(), strict=True):
            row = tokens[end - i - r : end].tolist()
            expected.append((row[:-1], [IGNORED] * (i - 1) + row[i:], i, r - 1))
    (tmp_path / "in" / INFO).write_text(json.dumps({"tokenizer_path": "x", "boq": "<q>", "vocab_size": vocab}))
    (tmp_path / "rules.yaml").write_text("[]\n")
    run(
        SampleConfig(
            tokenized_path=str(tmp_path / "in"),
            output_path=str(tmp_path / "out"),
            prefix_config_path=str(tmp_path / "rules.yaml"),
            epochs=3,
            context_size=65,
            profile=profile,
        )
    )
    reader = Reader(tmp_path / "out")
    assert (reader.context, reader.vocab, reader.model) == (
        64,
        -(-vocab // 256) * 256,
        {"tokenizer_path": "x", "boq": "<q>"},
    )
    assert reader.total == sum(len(row[0]) + 1 for row in expected)
    orders = []
    for _ in range(3):
        batch = [(r["inputs"].tolist(), r["labels"].tolist(), r["prefix"], r["causal"]) for r in reader]
        assert sorted(batch) == sorted(expected)
        orders.append(batch)
    assert orders[0] != orders[1] != orders[2]
    with pytest.raises(FileNotFoundError):
        next(iter(reader))
