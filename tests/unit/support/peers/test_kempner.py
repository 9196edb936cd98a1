"""What docstrings of the parity mode promise and no recorded case shows."""

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import lazy
from tests.support.peers.kempner.config import DatasetSource, load_config
from tests.support.peers.kempner.data import (
    HuggingFaceDataset,
    MemoryMappedDataset,
    MixtureDataset,
    StreamingHuggingFaceDataset,
)
from tests.support.peers.kempner.loader import StatefulDataLoader, collate
from tests.support.peers.kempner.samplers import DistributedSampler, MixtureSampler

datasets = lazy.Module("datasets")


def encode(text: str) -> list[int]:
    return [int(word) for word in text.split()]


class TestConfig:
    def test_arguments_win_over_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "c.toml"
        path.write_text(
            "[data]\nnum_workers = 3\nhf_dataset_name = 'x'\nanneal_weights = {a = 1}\n"
            "[[data.datasets]]\npath = 'p'\n[[data.datasets]]\nhf_name = 'h'\n"
            "[[data.phases]]\nstart_step = 5\ndataset_weights = {p = 2}\n"
            "[train]\nseed = 7\nmax_steps = 9\n[eval]\nsteps = 4\nother = 1\n[model]\ndim = 3\n"
        )
        made = load_config(
            path, ["--data.hf_dataset_name=none", "--train.batch_size=2", "--model.dim=5", "x", "--eval.enabled"]
        )
        assert (made.data.num_workers, made.data.hf_dataset_name) == (3, None)
        assert made.data.anneal_weights == {"a": 1.0}
        assert [source.label for source in made.data.datasets] == ["p", "h"]
        assert made.data.phases[0].dataset_weights == {"p": 2.0}
        assert (made.train.batch_size, made.train.seq_len, made.train.effective_data_seed) == (2, 2048, 7)
        assert (made.eval.enabled, made.eval.steps, made.eval.hf_dataset_split) == (True, 4, "validation")

    def test_a_list_of_the_command_line_replaces_that_of_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "c.toml"
        path.write_text("[[data.datasets]]\npath = 'p'\n")
        made = load_config(path, ["--data.datasets=[{'hf_name': 'h', 'name': 'n'}]"])
        assert made.data.datasets == [DatasetSource(hf_name="h", name="n")]
        assert made.data.datasets[0].label == "n"

    @pytest.mark.parametrize(
        "argument", ["--data.num_workers=many", "--data.datasets=nothing", "--data.phases=[{'x': 1}]"]
    )
    def test_what_cannot_be_read_is_refused(self, argument: str) -> None:
        with pytest.raises(ValueError, match=r"malformed|Unknown config keys in TrainingPhase"):
            load_config(cli_args=[argument])


class TestFiles:
    @pytest.mark.parametrize("dtype", ["float64", ">i4", "bool"])
    def test_any_dtype_of_npy_is_cast(self, tmp_path: Path, dtype: str) -> None:
        values = np.array([0, 1, 1.5, 2, 7, 0]).astype(dtype)
        np.save(tmp_path / "x.npy", values)
        dataset = MemoryMappedDataset(tmp_path, 3)
        assert dataset.file_dtypes == [np.dtype(dtype)]
        expected = values.astype(np.int64).tolist()
        assert dataset[1]["input_ids"].tolist() == expected[3:5]
        assert dataset[1]["labels"].tolist() == expected[4:6]

    def test_ids_that_are_none_pass(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.array([-1, -2]))
        assert MemoryMappedDataset(tmp_path, 2)[0]["labels"].tolist() == [-2]

    def test_the_epoch_alone_is_read_back(self, tmp_path: Path) -> None:
        np.save(tmp_path / "x.npy", np.arange(9))
        mixture = MixtureDataset([MemoryMappedDataset(tmp_path, 3), MemoryMappedDataset(tmp_path, 4)])
        mixture.load_state_dict({"dataset_0": {"epoch": 4}, "dataset_1": {"epoch": 5, "total_samples": 99}})
        expected = {"dataset_0": {"epoch": 4, "total_samples": 3}, "dataset_1": {"epoch": 5, "total_samples": 2}}
        assert mixture.state_dict() == expected
        assert [mixture[index]["dataset_idx"] for index in range(5)] == [0, 0, 0, 1, 1]
        for index in (-1, 5):
            with pytest.raises(IndexError):
                mixture[index]


class TestTexts:
    @cached_property
    def texts(self) -> Any:
        return datasets.Dataset.from_dict({"text": ["1 2 3", "", "4 5", "6"]})

    def test_a_tokenizer_without_an_end_uses_0(self) -> None:
        dataset = HuggingFaceDataset(self.texts, encode, 4, eos_token_id=None)
        assert [dataset[index]["input_ids"].tolist() for index in range(len(dataset))] == [[1, 2, 3, 0]]
        dataset.load_state_dict({"epoch": 2, "sample_idx": 3})
        assert dataset.state_dict() == {"epoch": 2, "sample_idx": 3, "total_sequences": 1}

    def test_ranks_give_different_numbers_of_samples(self) -> None:
        stream = self.texts.to_iterable_dataset()
        counts = []
        for rank in range(2):
            mine = StreamingHuggingFaceDataset(stream, encode, 2, eos_token_id=0, rank=rank, world_size=2)
            counts.append(len(list(mine)))
            assert mine.state_dict() == {"epoch": 1, "rank_docs_consumed": 0}
        everything = list(StreamingHuggingFaceDataset(stream, encode, 2, eos_token_id=0))
        assert len(everything) == 3
        assert sum(counts) < 3


class TestLoader:
    def sampler(self, **options: Any) -> DistributedSampler:
        return DistributedSampler(7, 1, 0, shuffle=False, **options)

    def test_a_last_batch_that_is_not_full(self) -> None:
        assert [batch.tolist() for batch in StatefulDataLoader(range(7), 3, self.sampler())] == [[0, 1, 2], [3, 4, 5]]
        whole = StatefulDataLoader(range(7), 3, self.sampler(), drop_last=False)
        assert len(whole) == 3
        assert [batch.tolist() for batch in whole][-1] == [6]

    def test_collation(self) -> None:
        made = collate([{"a": np.arange(2), "b": 1}, {"a": np.arange(2), "b": 2}])
        assert {name: array.tolist() for name, array in made.items()} == {"a": [[0, 1], [0, 1]], "b": [1, 2]}
        assert {array.dtype for array in made.values()} == {np.dtype(np.int64)}

    def test_a_set_too_large_to_compare_is_refused(self) -> None:
        with pytest.raises(ValueError, match="expected fewer than 214748364"):
            DistributedSampler(2**32 // 20, 1, 0).indices()

    def test_a_mixture_of_no_samples(self) -> None:
        sampler = MixtureSampler([0, 0], [1, 1], 2, 0)
        assert (len(sampler), list(sampler)) == (0, [])
