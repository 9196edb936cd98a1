"""Sampled folders without a manifest: what ``verify`` finds in them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pairmill.errors import InputError
from pairmill.stages.sample.node.verify import VerifyConfig, verify
from tests.support.data.samples import sampled

ROWS = [[(3, 4), (2, 2), (5, 1)], [(1, 2), (2, 9), (3, 4)]]


def folder(top: Path) -> Path:
    tokens = sum(sum(pair) for rows in ROWS for pair in rows)
    return sampled(top / "sampled", ROWS, total_length=round(tokens / 2), max_seq_len=11)


def test_a_whole_folder_is_said_to_be(tmp_path: Path) -> None:
    path = folder(tmp_path)
    assert verify(VerifyConfig(path=str(path))) == f"{path}\n"


def change(path: Path, at: int, value: int) -> None:
    array = np.load(path)
    array[at] = value
    np.save(path, array)


def metadata(path: Path, **values: object) -> None:
    raw = json.loads((path / "metadata.json").read_bytes())
    (path / "metadata.json").write_text(json.dumps({**raw, **values}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda path: change(path / "tokens.npy", 7, 500),
            "token 7 is not an id of the vocabulary.*got 500; expected 0 to 499",
        ),
        (lambda path: change(path / "epoch_1" / "resp_start.npy", 1, 10_000), "point outside the"),
        (lambda path: change(path / "epoch_0" / "resp_len.npy", 0, 0), "empty instruction or response"),
        (lambda path: change(path / "epoch_0" / "resp_len.npy", 0, 3), "total_length is not the tokens of an epoch"),
        (lambda path: metadata(path, total_length=38), "got 38; expected 19"),
        (lambda path: metadata(path, max_seq_len=10), "a row is longer than max_seq_len.*got 11 tokens"),
        (lambda path: metadata(path, epochs=3), "wrong set of epochs"),
        (lambda path: (path / "epoch_1" / "inst_len.npy").unlink(), "inst_len.npy: does not exist"),
        (lambda path: np.save(path / "tokens.npy", np.load(path / "tokens.npy").astype(np.uint8)), "does not hold"),
        (lambda path: [cut(file) for file in (path / "epoch_1").iterdir()], "epochs differ in their rows.*got 3, 2"),
        (lambda path: cut(path / "epoch_1" / "inst_len.npy"), "index arrays do not belong together"),
    ],
)
def test_what_does_not_belong_together_is_named(tmp_path: Path, damage: Callable[[Path], object], said: str) -> None:
    path = folder(tmp_path)
    damage(path)
    with pytest.raises(InputError, match=said) as caught:
        verify(VerifyConfig(path=str(path)))
    assert caught.value.exit_code == 3


def cut(path: Path) -> None:
    np.save(path, np.load(path)[:-1])


def test_nothing_there_is_no_sample(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no finished sample"):
        verify(VerifyConfig(path=str(tmp_path)))
