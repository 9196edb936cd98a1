"""Mixtures of windows, and streams of texts, through the loader."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.errors import InputError, UsageError
from pairmill.loader import Batch, Loader, MixturePlan, Phase, StreamPlan, TextStream, Windows
from pairmill.loader.mixture import probabilities
from tests.support import lazy
from tests.support.helpers import REPOSITORY

datasets = lazy.Module("datasets")

SEQ = 8


def windows(name: str, count: int, seed: int = 0, **options: Any) -> Windows:
    tokens = np.random.default_rng(seed).integers(0, 90, count * SEQ + 1).astype(np.uint16)
    return Windows.of_arrays([tokens], seq_len=SEQ, name=name, **options)


def drawn(plan: Any, count: int, *, ranks: int = 1, samples: int = 1, state: Any = None) -> list[tuple[int, ...]]:
    """Samples of the next global batches in the order of their draws, from real loaders of all ranks."""
    loaders = [
        Loader(plan, batch_tokens=ranks * samples * SEQ, rank=rank, ranks=ranks, threads=rank % 2)
        for rank in range(ranks)
    ]
    for loader in loaders:
        if state:
            loader.load_state_dict(state)
    found: list[tuple[int, ...]] = []
    for _ in range(count):
        batches = [next(iter(loader)) for loader in loaders]
        rows = [batch.rows.tolist() for batch in batches]
        found += [tuple(rows[k % ranks][k // ranks]) for k in range(ranks * samples)]
    drawn.state = loaders[0].state_dict()  # type: ignore[attr-defined]
    assert all(loader.state_dict() == loaders[0].state_dict() for loader in loaders)
    for loader in loaders:
        loader.close()
    return found


def test_a_batch_holds_the_windows_that_its_rows_name() -> None:
    sources = [windows("a", 5, 1, eos_id=3), windows("b", 9, 2, eos_id=3)]
    with Loader(MixturePlan(sources), batch_tokens=6 * SEQ) as loader:
        for batch in islice(loader, 20):
            assert list(batch) == ["input_ids", "labels", "doc_ids", "dataset_idx"]
            assert {array.dtype for array in batch.values()} == {np.dtype(np.int64)}
            assert batch["dataset_idx"].tolist() == batch.rows[:, 0].tolist()
            for place, (source, _, index) in enumerate(batch.rows.tolist()):
                expected = sources[source].empty(1)
                sources[source].fill(np.array([index]), expected)
                for name, array in expected.items():
                    assert np.array_equal(batch[name][place], array[0])


def test_no_sample_repeats_before_its_pass_is_complete_and_weight_0_is_never_drawn() -> None:
    sizes = {"one": 1, "two": 2, "some": 23, "many": 400, "never": 50}
    plan = MixturePlan(
        [windows(name, size) for name, size in sizes.items()],
        weights={"one": 1, "two": 1, "some": 5, "many": 13, "never": 0},
        temperature=2.5,
    )
    found = drawn(plan, 1500, ranks=2, samples=2)
    for source, (name, size) in enumerate(sizes.items()):
        mine = [row[1:] for row in found if row[0] == source]
        passes = [mine[start : start + size] for start in range(0, len(mine), size)]
        for number, one in enumerate(passes):
            assert {row[0] for row in one} == {number}
            assert len({row[1] for row in one}) == len(one), name
        if name == "never":
            assert not mine
        else:
            expected = probabilities([1, 1, 5, 13, 0], 2.5)[source] * len(found)
            assert abs(len(mine) - expected) <= 2 * (len(found) / 1024 + 1), name
    full = [row[2] for row in found if row[0] == 2]
    assert full[:23] != full[23:46] != sorted(full[23:46])


def test_the_order_of_a_source_depends_on_nothing_but_seed_and_name() -> None:
    def order(plan: MixturePlan, name: str, count: int) -> list[int]:
        source = plan.names.index(name)
        return [row[2] for row in drawn(plan, 200, samples=4) if row[0] == source][:count]

    alone = order(MixturePlan([windows("a", 30)]), "a", 90)
    other = MixturePlan([windows("b", 7), windows("a", 30), windows("c", 100)], weights={"b": 5, "a": 3, "c": 1})
    assert order(other, "a", 90) == alone
    assert order(MixturePlan([windows("a", 30)], seed=1), "a", 90) != alone
    assert order(MixturePlan([windows("x", 30)]), "x", 90) != alone


def test_draws_do_not_depend_on_ranks_threads_or_batches_and_resume_anywhere() -> None:
    plan = MixturePlan([windows("a", 11), windows("b", 60), windows("c", 3)], weights={"a": 1, "b": 4, "c": 0.5})
    expected = drawn(plan, 600)
    draw = random.Random(5)
    for _ in range(20):
        found: list[tuple[int, ...]] = []
        state = None
        while len(found) < 500:
            ranks, samples = draw.choice((1, 2, 3, 5)), draw.choice((1, 2, 4))
            found += drawn(plan, draw.randint(1, 9), ranks=ranks, samples=samples, state=state)
            state = json.loads(json.dumps(drawn.state))  # type: ignore[attr-defined]
        assert found[:500] == expected[:500]
        assert state["batches"] > 0
        assert state["tokens"] == len(found) * SEQ
        assert (state["epoch"], state["start_row"]) == divmod(len(found), 74)


def test_phases_change_weights_at_their_batch_and_every_source_goes_on_where_it_was() -> None:
    phases = [
        Phase(weights={"b": 0}),
        Phase(step=10, weights={"a": 0}, lr_scale=0.5),
        Phase(tokens=30 * 4 * SEQ, lr_scale=0.25, temperature=100),
    ]
    plan = MixturePlan([windows("a", 500), windows("b", 500)], weights={"a": 3, "b": 1}, phases=phases)
    with Loader(plan, batch_tokens=4 * SEQ) as loader:
        batches = list(islice(loader, 400))
    assert [batch.lr_scale for batch in batches[:40]] == [1.0] * 10 + [0.5] * 20 + [0.25] * 10
    assert [{row[0] for row in batch.rows.tolist()} for batch in batches[:30]] == [{0}] * 10 + [{1}] * 20
    rows = [tuple(row) for batch in batches for row in batch.rows.tolist()]
    assert len(set(rows)) == len(rows)
    late = Counter(row[0] for row in rows[120:])
    assert abs(late[0] - late[1]) < 0.05 * len(rows)


def test_weights_by_default_give_every_window_as_often() -> None:
    counts = Counter(row[0] for row in drawn(MixturePlan([windows("a", 100), windows("b", 300)]), 1024, samples=4))
    assert abs(counts[1] - 3072) <= 8
    assert len(set(drawn(MixturePlan([windows("a", 100)]), 100))) == 100


@pytest.mark.parametrize(
    ("weights", "temperature", "expected"),
    [
        ([1, 3], 1, [0.25, 0.75]),
        ([1, 4], 2, [1 / 3, 2 / 3]),
        ([1, 0, 0], 5, [1, 0, 0]),
        ([1e-300, 1e300], 1e9, [0.5, 0.5]),
        ([0, 7], 0.01, [0, 1]),
    ],
)
def test_probabilities(weights: list[float], temperature: float, expected: list[float]) -> None:
    assert probabilities(weights, temperature) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": {"x": 1}}, "weights: unknown; got 'x'; expected one of a, b"),
        ({"weights": {"a": -1, "b": 2}}, "weights: invalid"),
        ({"weights": {"a": 0}}, "weights: invalid"),
        ({"weights": {"a": float("nan")}}, "weights: invalid"),
        ({"temperature": 0}, "temperature: out of range; got 0"),
        ({"phases": []}, "phases: missing"),
        ({"phases": [Phase(step=3)]}, r"phases\[0\]: first phase must start at once"),
        ({"phases": [Phase(weights={"c": 1})]}, r"phases\[0\]: unknown; got 'c'"),
        ({"phases": [Phase("a")]}, "a mixture has weights, not a folder"),
        ({"phases": [Phase(), Phase(step=5), Phase(step=5)]}, r"phases\[2\]: does not start after the phase before"),
        ({"phases": [Phase(), Phase(step=5, tokens=5)]}, r"phases\[1\]: ambiguous start"),
        ({"phases": [Phase(lr_scale=-1)]}, r"phases\[0\]: lr_scale: out of range"),
    ],
)
def test_wrong_options_of_a_mixture(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        MixturePlan([windows("a", 5), windows("b", 5)], **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sources": 5}, "sources: not a list; got 5; expected Windows"),
        ({"sources": "x"}, "sources: not a list"),
        ({"sources": ["x"]}, r"sources\[0\]: wrong type"),
        ({"weights": [1, 2]}, "weights: wrong type; got .*; expected numbers by name"),
        ({"weights": {"a": "3"}}, "weights: a: not a number; got '3'"),
        ({"weights": {5: 1}}, "weights: wrong type"),
        ({"temperature": "1"}, "temperature: not a number"),
        ({"temperature": None}, "temperature: not a number"),
        ({"seed": "1"}, "seed: not an integer"),
        ({"seed": 0.5}, "seed: not an integer"),
        ({"phases": Phase()}, "phases: not a list"),
        ({"phases": [Phase(weights={"a": None})]}, r"phases\[0\]: weights: a: not a number"),
    ],
)
def test_options_of_another_type(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        MixturePlan(**{"sources": [windows("a", 5)], **options})
    with pytest.raises(UsageError, match=r"sources: not a list.*write sources="):
        MixturePlan(windows("a", 5))


def test_a_stream_plan_takes_a_stream() -> None:
    for stream in ("name", None, windows("a", 5)):
        with pytest.raises(UsageError, match=r"stream: wrong type; .*write StreamPlan\(TextStream"):
            StreamPlan(stream, name="x")


@pytest.mark.parametrize("cursor", [[0, 5], [2**62, 4], [2**63 - 1, 0], [2**70, 0], [0, -1]])
def test_a_state_that_no_mixture_reaches_is_refused(cursor: list[int]) -> None:
    with Loader(MixturePlan([windows("a", 5)]), batch_tokens=8, threads=0) as loader:
        state = loader.state_dict()
        with pytest.raises(UsageError, match=r"^state: sources: a: "):
            loader.load_state_dict({**state, "sources": {"a": cursor}})


def test_sources_must_go_together() -> None:
    with pytest.raises(UsageError, match="names must be distinct; got a, a"):
        MixturePlan([windows("a", 5), windows("a", 6)])
    with pytest.raises(UsageError, match="names must be distinct; got none"):
        MixturePlan([])
    with pytest.raises(UsageError, match=r"incompatible.*doc_ids"):
        MixturePlan([windows("a", 5), windows("b", 6, eos_id=1)])
    with pytest.raises(
        UsageError, match="not a whole number of windows; got 12 tokens for 1 ranks; expected a multiple of 8"
    ):
        Loader(MixturePlan([windows("a", 5)]), batch_tokens=12)


def test_a_state_of_other_windows_another_seed_or_other_sources_is_refused() -> None:
    plan = MixturePlan([windows("a", 5), windows("b", 9)])
    with Loader(plan, batch_tokens=SEQ) as loader:
        next(iter(loader))
        state = loader.state_dict()
    for other in (
        MixturePlan([windows("a", 5, 1), windows("b", 9)]),
        MixturePlan([windows("a", 5), windows("b", 9)], seed=1),
    ):
        with pytest.raises(InputError, match="state: plan: saved with other data"):
            Loader(other, batch_tokens=SEQ).load_state_dict(state)
    other_names = Loader(MixturePlan([windows("a", 5), windows("c", 9)]), batch_tokens=SEQ)
    with pytest.raises(UsageError, match="state: sources: wrong sources; got a, b; expected a, c"):
        other_names.load_state_dict(state, accept_other_data=True)


# --- texts ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path: Path) -> Iterator[Any]:
    draw = random.Random(3)
    path = tmp_path / "texts.jsonl"
    lines = [" ".join(str(draw.randint(1, 80)) for _ in range(draw.randint(0, 25))) for _ in range(60)]
    path.write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    return datasets.load_dataset("json", data_files=str(path), split="train", streaming=True)


def ids(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def test_a_stream_resumes_exactly_on_any_ranks(texts: Any) -> None:
    def plan() -> StreamPlan:
        return StreamPlan(TextStream(texts, ids, eos_id=0, seq_len=SEQ, seed=4, buffer=10), name="texts", packed=True)

    def chunks(plan: StreamPlan, count: int, ranks: int, state: Any) -> tuple[list[tuple[int, ...]], Any]:
        loaders = [
            Loader(plan, batch_tokens=ranks * SEQ, rank=rank, ranks=ranks, threads=rank % 2) for rank in range(ranks)
        ]
        found: list[tuple[int, ...]] = []
        for loader in loaders:
            if state:
                loader.load_state_dict(json.loads(json.dumps(state)))
        for _ in range(count):
            for loader in loaders:
                batch: Batch = next(iter(loader))
                found.append(tuple(batch["input_ids"][0].tolist()))
        for loader in loaders:
            loader.close()
        return found, loaders[0].state_dict()

    expected, _ = chunks(plan(), 150, 1, None)
    reference = [tuple(tokens[:-1].tolist()) for tokens, _ in islice(plan().stream.chunks(), 150)]
    assert expected == reference
    draw = random.Random(6)
    found: list[tuple[int, ...]] = []
    state = None
    while len(found) < 150:
        more, state = chunks(plan(), draw.randint(1, 8), draw.choice((1, 2, 3)), state)
        found += more
    assert found[:150] == expected
    assert state["epoch"] > 0
    with Loader(plan(), batch_tokens=2 * SEQ) as loader:
        batch = next(iter(loader))
    assert list(batch) == ["input_ids", "labels", "doc_ids", "dataset_idx"]
    assert (batch["labels"][batch["input_ids"] == 0] == -100).all()
    assert (batch["labels"] == -100).any()


def test_the_lines_of_the_document(tmp_path: Path, texts: Any) -> None:
    document = (REPOSITORY / "docs/loader.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", document.split("\n## Windows, mixtures")[1], re.DOTALL)
    mixture, tokenized, stream = blocks[:3]
    for name in ("web", "code"):
        (tmp_path / name).mkdir()
    tokens = np.random.default_rng(0).integers(0, 90, 50_000).astype(np.uint16)
    tokens.tofile(tmp_path / "web" / "a.bin")
    np.save(tmp_path / "code" / "a.npy", tokens)
    found: dict[str, Any] = {"dataset": texts, "tokenizer": ids}
    exec(mixture.replace('"tokens/', f'"{tmp_path}/'), found)
    batch = next(iter(found["loader"]))
    assert {name: array.shape for name, array in batch.items()} == {
        "input_ids": (8, 2048),
        "labels": (8, 2048),
        "doc_ids": (8, 2048),
        "dataset_idx": (8,),
    }
    found["loader"].close()
    (tmp_path / "windows").mkdir()
    for name in ("web.parquet", "books.jsonl"):
        np.save(tmp_path / "windows" / f"{name}.npy", tokens.astype(np.uint32))
    (tmp_path / "windows" / "windows.json").write_text('{"eod":"<end>","eod_id":5}')
    exec(re.sub('folder = ".*"', f'folder = "{tmp_path}/windows"', tokenized), found)
    assert [(source.name, source.eos_id, len(source)) for source in found["plan"].sources] == [
        ("web", 5, 25),
        ("books", 5, 25),
    ]
    exec(stream.replace("2048", "8"), found)
    assert next(iter(found["loader"]))["input_ids"].shape == (8, 8)
    found["loader"].close()
