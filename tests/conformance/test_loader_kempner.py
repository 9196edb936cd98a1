"""Parity mode B of the loader against what KempnerForge recorded. Whatever cases lie there are tried, each kind once
at least: another set of the same form takes their place without a change here."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from pairmill import _native
from tests.support.peers.kempner.config import DataConfig, DatasetSource, TrainingPhase, load_config
from tests.support.peers.kempner.data import (
    HuggingFaceDataset,
    MemoryMappedDataset,
    MixtureDataset,
    StreamingHuggingFaceDataset,
)
from tests.support.peers.kempner.loader import StatefulDataLoader
from tests.support.peers.kempner.samplers import DistributedSampler, MixtureSampler

Entry = dict[str, Any]


@pytest.fixture(scope="module")
def kempner(shared: Path) -> Path:
    return shared / "conformance/loader/kempner"


def recorded(kempner: Path, name: str) -> list[Entry]:
    entries: list[Entry] = json.loads((kempner / f"{name}.json").read_text())
    assert entries, f"nothing is recorded in {name}.json"
    return entries


def sha256(array: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def assert_sequence(given: Any, entry: Entry) -> None:
    values = np.asarray(given, np.int64)
    if "indices" in entry:
        assert values.tolist() == entry["indices"]
    else:
        assert len(values) == entry["count"]
        assert values[:20].tolist() == entry["first"]
        assert sha256(values) == entry["sha256_i64"]


def assert_sample(sample: Entry, expected: Entry) -> None:
    """Each array in full or as its sum, int64 either way."""
    assert list(sample) == list(expected)
    for name, wanted in expected.items():
        assert sample[name].dtype == np.dtype(np.int64)
        assert sample[name].ndim == 1
        given = sha256(sample[name]) if isinstance(wanted, str) else sample[name].tolist()
        assert given == wanted


def failure(attempt: Callable[[], object]) -> Exception:
    try:
        attempt()
    except Exception as error:
        return error
    pytest.fail("nothing was raised")


def assert_error(error: BaseException, entry: Entry, kind: str = "error") -> None:
    assert type(error).__name__ == entry[kind], repr(error)
    if "message" in entry:
        assert str(error) == entry["message"]


def test_permutations(kempner: Path) -> None:
    kinds: Counter[str] = Counter()
    random = _native.Mt19937(0)
    for entry in recorded(kempner, "randperm"):
        if entry["call"] == 0:
            random = _native.Mt19937(entry["seed"] & 0xFFFF_FFFF)
            # The sampler makes the generator's seed of the one given.
            assert_sequence(list(DistributedSampler(entry["n"], 1, 0, seed=entry["seed"])), entry)
        assert_sequence(random.randperm(entry["n"]), entry)
        kinds["first" if entry["call"] == 0 else "successive"] += 1
    assert set(kinds) == {"first", "successive"}


def test_distributed_sampler(kempner: Path) -> None:
    kinds: Counter[str] = Counter()
    for entry in recorded(kempner, "distributed_sampler"):
        names = ("num_replicas", "rank", "shuffle", "seed", "drop_last")
        sampler = DistributedSampler(entry["n"], **{name: entry[name] for name in names})
        sampler.set_epoch(entry["epoch"])
        sampler.set_skip(entry["skip"])
        if "error" in entry:
            assert_error(failure(partial(list, sampler)), entry)
            kinds["errors"] += 1
            continue
        assert_sequence(list(sampler), entry)
        assert len(sampler) == entry["len"]
        assert sampler.state_dict() == entry["state"]
        kinds["passes"] += 1
        if "second_pass_count" in entry:
            assert len(list(sampler)) == entry["second_pass_count"]
            kinds["second passes"] += 1
    assert set(kinds) == {"passes", "second passes", "errors"}


def mixture_sampler(entry: Entry) -> MixtureSampler:
    names = ("sizes", "weights", "num_replicas", "rank", "shuffle", "seed", "drop_last", "temperature")
    sampler = MixtureSampler(**{name: entry[name] for name in names if name in entry})
    if "update_weights" in entry:
        sampler.update_weights(*entry["update_weights"])
    return sampler


def drawn_of(entry: Entry) -> list[int]:
    return list(mixture_sampler(entry))


def test_mixture_sampler(kempner: Path) -> None:
    kinds: Counter[str] = Counter()
    for entry in recorded(kempner, "mixture_sampler"):
        kinds["update_weights"] += "update_weights" in entry
        if "error" in entry:
            assert_error(failure(partial(drawn_of, entry)), entry)
            kinds["errors"] += 1
            continue
        sampler = mixture_sampler(entry)
        sampler.set_epoch(entry["epoch"])
        sampler.set_skip(entry["skip"])
        assert sampler.probs == pytest.approx(entry["probs"], rel=0, abs=1e-12)
        assert sampler.target_counts == entry["target_counts"]
        assert sampler.num_samples == len(sampler) == entry["num_samples"]
        drawn = list(sampler)
        assert_sequence(drawn, entry)
        assert len(drawn) == entry["drawn"]
        sources = np.searchsorted(np.cumsum(entry["sizes"]), drawn, side="right")
        count = len(entry["sizes"])
        assert np.bincount(sources, minlength=count).tolist() == entry["per_source"]
        distinct = np.searchsorted(np.cumsum(entry["sizes"]), sorted(set(drawn)), side="right")
        assert np.bincount(distinct, minlength=count).tolist() == entry["distinct_per_source"]
        assert sampler.state_dict() == entry["state"]
        kinds["passes"] += 1
    assert all(kinds[kind] for kind in ("passes", "errors", "update_weights"))


def mapped(entry: Entry, folder: Path, pattern: str) -> MemoryMappedDataset:
    packing = {"pack_sequences": entry["pack_sequences"], "eos_token_id": entry["eos_token_id"]}
    return MemoryMappedDataset(folder, entry["seq_len_argument"], pattern, **packing)


def test_memory_mapped_files(kempner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: Counter[str] = Counter()
    for entry in recorded(kempner, "mmap"):
        folder = kempner / entry["folder"]
        # Messages name the folder as it was given.
        monkeypatch.chdir(folder.parent)
        if "error" in entry:
            name, pattern = Path(folder.name), entry["file_pattern"]
            assert_error(failure(partial(mapped, entry, name, pattern)), entry)
            kinds["errors"] += 1
            continue
        dataset = mapped(entry, Path(folder.name), entry["file_pattern"])
        assert [path.name for path in dataset.files] == entry["files"]
        assert [str(dtype) for dtype in dataset.file_dtypes] == entry["file_dtypes"]
        assert dataset.cumulative_samples == entry["cumulative_samples"]
        assert len(dataset) == entry["len"] == len(entry["samples"])
        assert dataset.state_dict() == entry["state"]
        for index, expected in enumerate(entry["samples"]):
            sample = dataset[index]
            assert_sample(sample, expected)
            assert {array.shape for array in sample.values()} == {tuple(entry["shape"])}
        if "sample_0" in entry:
            assert_sample(dataset[0], entry["sample_0"])
        for index in (-1, len(dataset)):
            with pytest.raises(IndexError):
                dataset[index]
        kinds["packed" if entry["pack_sequences"] else "plain"] += 1
        kinds["samples"] += len(dataset)
        kinds["raw"] += entry["files"][0].endswith(".bin")
    assert all(kinds[kind] for kind in ("packed", "plain", "samples", "raw", "errors"))


def test_batches_of_a_mixture_of_files(kempner: Path) -> None:
    batches = 0
    for entry in recorded(kempner, "mmap_mixture_batches"):
        dataset = MixtureDataset([mapped(entry, kempner / folder, pattern) for folder, pattern in entry["sources"]])
        assert dataset.cumulative_sizes == entry["cumulative_sizes"]
        assert dataset.state_dict() == entry["dataset_state"]
        sizes = [len(source) for source in dataset.datasets]
        names = ("num_replicas", "rank", "seed")
        sampler = MixtureSampler(sizes, entry["weights"], **{name: entry[name] for name in names})
        made = list(StatefulDataLoader(dataset, entry["batch_size"], sampler))
        assert len(made) == len(entry["batches"])
        for batch, expected in zip(made, entry["batches"], strict=True):
            given = {
                name: {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": sha256(array)}
                for name, array in batch.items()
            }
            assert given == expected
            assert list(given) == list(expected)
            batches += 1
    assert batches


def loader(config: Entry) -> StatefulDataLoader:
    """Samples whose value is their index. Workers change no batch; there are none here."""
    names = ("num_replicas", "rank", "seed")
    given = {name: config[name] for name in names}
    sampler: DistributedSampler | MixtureSampler
    if "sizes" in config:
        sampler = MixtureSampler(config["sizes"], config["weights"], **given)
        return StatefulDataLoader(range(sum(config["sizes"])), config["batch_size"], sampler)
    sampler = DistributedSampler(config["n"], **given)
    return StatefulDataLoader(range(config["n"]), config["batch_size"], sampler)


def delivered(of: StatefulDataLoader, times: int) -> list[Any]:
    batches: list[Any] = []
    for _ in range(times):
        try:
            batches.append(next(of).tolist())
        except StopIteration:
            return [*batches, "end"]
    return batches


def test_stateful_loader(kempner: Path) -> None:
    kinds: Counter[str] = Counter()
    for scenario in recorded(kempner, "stateful_loader"):
        current = None
        for number, operation in enumerate(scenario["ops"]):
            where = f"{scenario['scenario']}, operation {number}"
            kinds[operation["op"]] += 1
            if operation["op"] == "new":
                current = loader(operation["config"])
                assert len(current) == operation["batches_per_epoch"], where
                continue
            assert current is not None
            if operation["op"] == "iter":
                assert iter(current) is current
            elif operation["op"] == "next":
                assert delivered(current, operation["times"]) == operation["batches"], where
            elif operation["op"] == "state":
                assert current.state_dict() == operation["state"], where
            elif operation["op"] == "load":
                current.load_state_dict(operation["state"])
            elif operation["op"] == "update_weights":
                assert isinstance(current.sampler, MixtureSampler)
                current.sampler.update_weights(operation["weights"], operation["temperature"])
            else:
                pytest.fail(f"{where}: unknown: {operation['op']}")
    assert set(kinds) == {"new", "iter", "next", "state", "load", "update_weights"}


def rows(folder: Path) -> list[Entry]:
    """The documents by id, which is the order of the files."""
    found = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    assert [row["id"] for row in found] == list(range(len(found)))
    return found


def toy(text: str) -> list[int]:
    return [int(token) for token in text.split()]


class Recorded:
    """A stream in the orders that the datasets library gave, by seed."""

    def __init__(self, documents: list[Entry], seed: int, epochs: list[Entry], buffer: int) -> None:
        self.orders = {seed + entry["epoch"]: [documents[number] for number in entry["doc_order"]] for entry in epochs}
        self.buffer = buffer

    def shuffle(self, *, seed: int, buffer_size: int) -> list[Entry]:
        assert buffer_size == self.buffer
        return self.orders[seed]


def test_texts(kempner: Path) -> None:
    kinds: Counter[str] = Counter()
    for entry in recorded(kempner, "hf"):
        documents = rows(kempner / entry["folder"])
        eos = None if entry["tokenizer"] == "none" else int(entry["tokenizer"].removeprefix("eos"))
        options: Entry = {"eos_token_id": eos, "pack_sequences": entry["pack_sequences"]}
        kinds[entry["kind"]] += 1
        kinds["packed"] += entry["pack_sequences"]
        if entry["kind"] == "eager":
            dataset = HuggingFaceDataset(documents, toy, entry["seq_len"], **options)
            assert len(dataset) == entry["len"] == len(entry["samples"])
            assert dataset.state_dict() == entry["state"]
            for index, expected in enumerate(entry["samples"]):
                assert_sample(dataset[index], expected)
                kinds["samples"] += 1
            continue
        assert entry["kind"] == "streaming"
        source = Recorded(documents, entry["seed"], entry["epochs"], entry["shuffle_buffer_size"])
        options |= {name: entry[name] for name in ("world_size", "rank", "seed", "shuffle_buffer_size")}

        stream = StreamingHuggingFaceDataset(source, toy, entry["seq_len"], **options)
        state = {"epoch": 0, "rank_docs_consumed": 0}
        # What comes after each state that was recorded on the way, if nothing interrupts it.
        follows: list[tuple[Entry, list[Entry]]] = []
        for epoch in entry["epochs"]:
            assert stream.state_dict() == state
            assert state["epoch"] == epoch["epoch"]
            states = [state, *epoch["state_after_chunk"]]
            follows += [(one, epoch["chunks"][at:]) for at, one in enumerate(states)]
            steps = zip(stream, epoch["chunks"], epoch["state_after_chunk"], strict=True)
            for sample, expected, state in steps:
                assert_sample(sample, expected)
                assert stream.state_dict() == state
                kinds["chunks"] += 1
            state = epoch["state_after_epoch"]
            assert stream.state_dict() == state

        # From any state, of any epoch whose order is known; one of them is recorded, or several.
        several = entry.get("resume", [])
        for resume in several if isinstance(several, list) else [several]:
            resumed = StreamingHuggingFaceDataset(source, toy, entry["seq_len"], **options)
            resumed.load_state_dict(resume["state"])
            assert resumed.state_dict() == resume["state"]
            for sample, expected in zip(resumed, resume["chunks"], strict=True):
                assert_sample(sample, expected)
            if "exact" in resume:
                assert resume["exact"] is ((resume["state"], resume["chunks"]) in follows)
            kinds["resumed"] += 1
    assert all(kinds[kind] for kind in ("eager", "streaming", "packed", "samples", "chunks", "resumed"))


def configured(entry: Entry) -> Entry:
    """What the object or the command line came to."""
    if entry["object"] == "command_line":
        made = load_config(cli_args=entry["args"])
        return {**asdict(made.data), "effective_data_seed": made.train.effective_data_seed}
    arguments = dict(entry["args"])
    for name, kind in (("datasets", DatasetSource), ("phases", TrainingPhase)):
        if name in arguments:
            arguments[name] = [kind(**item) for item in arguments[name]]
    kinds = {"DatasetSource": DatasetSource, "TrainingPhase": TrainingPhase, "DataConfig": DataConfig}
    return asdict(kinds[entry["object"]](**arguments))


def test_configuration(kempner: Path) -> None:
    kinds: Counter[str] = Counter()
    for entry in recorded(kempner, "config"):
        kinds[entry["object"]] += 1
        if entry["result"] != "ok":
            assert_error(failure(partial(configured, entry)), entry, "result")
            kinds["refused"] += 1
            continue
        made = configured(entry)
        for name, value in entry.get("values", {}).items():
            assert made[name] == value, entry
            assert type(made[name]) is type(value), entry
        kinds["accepted"] += 1
    assert set(kinds) == {"DatasetSource", "TrainingPhase", "DataConfig", "command_line", "accepted", "refused"}
