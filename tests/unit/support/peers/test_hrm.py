"""What HRM-Text's loader does with odd input, which is not recorded: described in its defects, and kept in parity."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.errors import InputError
from pairmill.loader.folder import Epoch, Metadata
from tests.support.data import samples
from tests.support.peers.hrm import HrmDataset, estimate_batches


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return samples.sampled(tmp_path / "sampled", [[(3, 4), (2, 3), (4, 2)] * 4, [(2, 2)] * 6])


def change(folder: Path, name: str, row: int, value: int) -> None:
    array = np.load(folder / "epoch_0" / f"{name}.npy")
    array[row] = value
    np.save(folder / "epoch_0" / f"{name}.npy", array)


def first(folder: Path, **options: Any) -> tuple[dict[str, Any], dict[str, int]]:
    return next(iter(HrmDataset(folder, **{"batch_max_length": 20, **options})))


def test_an_empty_response_makes_labels_a_slot_short(folder: Path) -> None:
    change(folder, "resp_len", 1, 0)
    arrays, scalars = first(folder)
    assert len(arrays["inputs"]) == len(arrays["position_ids"]) == 20
    assert len(arrays["labels"]) == 19
    assert -1 in arrays["causal_lens"].tolist()
    assert scalars["total_seqlen"] < (arrays["inputs"] != 0).sum()


def test_a_span_outside_the_tokens_is_cut_as_a_slice_is(folder: Path) -> None:
    tokens = len(np.load(folder / "tokens.npy"))
    change(folder, "resp_start", 1, tokens - 1)
    arrays, _ = first(folder)
    assert 0 in arrays["causal_lens"][:3].tolist()
    change(folder, "inst_start", 1, tokens)
    with pytest.raises(ValueError, match="negative dimensions"):
        first(folder)
    arrays, _ = first(folder, target_only=False)
    assert 0 in arrays["prefix_lens"][:3].tolist()
    assert len(arrays["labels"]) == len(arrays["inputs"]) + 1


def test_a_long_row_ends_the_epoch_on_two_ranks_and_is_handed_out_alone_on_one(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "long", [[(2, 3)] * 20 + [(30, 20)] + [(2, 3)] * 20])
    two = list(HrmDataset(folder, batch_max_length=20, num_replicas=2, drop_last_batch=False))
    assert sum(scalars["numseqs"] for _, scalars in two) == 10
    one = [scalars for _, scalars in HrmDataset(folder, batch_max_length=20, drop_last_batch=False)]
    assert sum(scalars["numseqs"] for scalars in one) == 41
    arrays, _ = next(batch for batch in HrmDataset(folder, batch_max_length=20) if batch[1]["max_seqlen_all"] == 49)
    assert [len(array) for array in arrays.values()] == [49, 49, 49, 20, 20, 20]


def test_fewer_rows_than_ranks_give_nothing_and_an_epoch_can_be_empty(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "few", [[(2, 3)] * 2, []])
    dataset = HrmDataset(folder, batch_max_length=20, num_replicas=3, drop_last_batch=False)
    assert list(dataset) == list(dataset) == []
    with pytest.raises(FileNotFoundError, match=r"epoch_2/inst_start\.npy"):
        list(dataset)


def test_an_epoch_is_used_up_by_an_iteration_that_was_left(folder: Path) -> None:
    dataset = HrmDataset(folder, batch_max_length=7)
    next(iter(dataset))
    assert {scalars["max_seqlen_all"] for _, scalars in dataset} == {3}


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        (np.uint32, [2**31 + 5, 7], [5 - 2**31, 7]),
        (np.int64, [2**40 + 3, -1], [3, -1]),
        (np.float64, [3.9, -2.5], [3, -2]),
        (np.uint8, [200, 7], [200, 7]),
    ],
)
def test_tokens_of_any_type_are_cast_without_a_check(tmp_path: Path, dtype: Any, values: Any, expected: Any) -> None:
    folder = samples.sampled(tmp_path / "sampled", [[(2, 2)] * 4])
    tokens = np.load(folder / "tokens.npy").astype(dtype)
    tokens[:2] = values
    np.save(folder / "tokens.npy", tokens)
    arrays, _ = first(folder, batch_max_length=6)
    assert expected in [arrays["inputs"][at : at + 2].tolist() for at in (0, 3)]
    big = tokens.astype(tokens.dtype.newbyteorder(">"))
    np.save(folder / "tokens.npy", big)
    again, _ = first(folder, batch_max_length=6)
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)


def test_metadata_as_the_model_takes_them(folder: Path) -> None:
    metadata = Metadata.read(folder)
    assert (metadata.max_seq_len, metadata.vocab_size) == (6, 512)
    assert metadata.tokenizer_info == {"boq": "<q>"}
    assert metadata.total_steps(3, 10) == 3 * metadata.total_length // 10
    assert estimate_batches(Epoch(folder / "epoch_1"), 6, 2) == round(18 / 12)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"max_seq_len": "x"}, "max_seq_len: wrong value; got 'x'; expected an integer"),
        ({"max_seq_len": 3.5}, "max_seq_len: wrong value; got 3.5"),
        ({"total_length": ...}, "total_length: wrong value; got None"),
        ({"vocab_size": 5}, "vocab_size: wrong value; got 5; expected null"),
        ({"tokenizer_info": {}}, "vocab_size: wrong value; got None; expected an integer"),
        ({"tokenizer_info": 4}, "vocab_size: wrong value; got None"),
    ],
)
def test_wrong_metadata_are_refused(tmp_path: Path, metadata: dict[str, Any], said: str) -> None:
    folder = samples.sampled(tmp_path / "sampled", [[(2, 2)]], **metadata)
    with pytest.raises(InputError, match=said):
        Metadata.read(folder)


def test_integers_in_quotes_or_with_a_point_pass(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "sampled", [[(2, 2)]], max_seq_len="65", total_length=12.0)
    assert (Metadata.read(folder).max_seq_len, Metadata.read(folder).total_length) == (64, 12)
