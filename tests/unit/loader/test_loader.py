"""Plans over sampled folders, and the loader."""

import gc
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill import log
from pairmill._native import pack_rows
from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.errors import InputError, InternalError, PairmillError, StorageError, UsageError
from pairmill.loader import Batch, Loader, Phase, RowPlan, Windows
from pairmill.loader.batch import PREFIXLM, SCALARS, Pool
from pairmill.loader.plan import Draw, World
from tests.support.data import samples
from tests.support.helpers import PATIENCE, as_somebody, until
from tests.support.peers.hrm import HrmDataset

ROWS = [(3, 4), (2, 6), (5, 2), (1, 3), (4, 4), (2, 2), (6, 3), (3, 3), (1, 7), (2, 5)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return samples.sampled(tmp_path / "sampled", [ROWS * 4, ROWS[::-1] * 4])


def rows(batches: Any) -> list[tuple[int, ...]]:
    return [tuple(row) for batch in batches for row in batch.rows.tolist()]


def all_ranks(plan: RowPlan, ranks: int, batch_tokens: int, count: int | None = None) -> list[list[Batch]]:
    """Global batches, each as the batches of all ranks."""
    loaders = [Loader(plan, batch_tokens=batch_tokens, rank=rank, ranks=ranks, threads=0) for rank in range(ranks)]
    return [list(batches) for batches in zip(*(islice(loader, count) for loader in loaders), strict=True)]


# --- batches --------------------------------------------------------------------------------------------------------


def test_a_batch_says_what_it_is(folder: Path) -> None:
    with Loader(RowPlan(folder, doc_ids=True), batch_tokens=60, ranks=2, rank=1) as loader:
        first, second = islice(loader, 2)
    assert list(first) == [*PREFIXLM, "doc_ids"]
    assert {(array.dtype, array.shape) for array in first.values()} == {(np.dtype(np.int32), (30,))}
    assert list(first.scalars) == list(SCALARS)
    assert (first.step, first.phase, first.source, first.epoch, first.start_row) == (0, 0, "data", 0, 0)
    assert (second.step, second.start_row) == (1, first.global_rows)
    assert first.lr_scale == 1.0
    used = first.scalars["total_seqlen"]
    ends = first["cu_seqlens"][: len(first.rows) + 1]
    assert ends[-1] == used
    for number, (low, high) in enumerate(pairwise(ends)):
        assert (first["doc_ids"][low:high] == number).all()
        assert first["position_ids"][low:high].tolist() == list(range(high - low))
    assert (first["doc_ids"][used:] == len(first.rows)).all()
    assert (first["labels"] != -100).sum() == (first["causal_lens"] + 1)[: len(first.rows)].sum()


@pytest.mark.parametrize("tail", ["drop", "keep"])
@pytest.mark.parametrize("target_only", [True, False])
def test_batches_are_those_of_the_reference_where_nothing_is_odd(folder: Path, tail: Any, target_only: bool) -> None:
    plan = RowPlan(folder, tail=tail, target_only=target_only)
    for rank in range(3):
        reference = HrmDataset(
            folder,
            batch_max_length=14,
            num_replicas=3,
            rank=rank,
            drop_last_batch=tail == "drop",
            target_only=target_only,
        )
        with Loader(plan, batch_tokens=42, ranks=3, rank=rank, threads=2) as loader:
            for _ in range(2):
                ours, theirs = list(loader.epoch()), list(reference)
                assert len(ours) == len(theirs) >= 5
                for mine, (arrays, scalars) in zip(ours, theirs, strict=True):
                    assert mine.scalars == scalars
                    assert all(np.array_equal(mine[name], arrays[name]) for name in PREFIXLM)
            assert list(loader.epoch()) == []


@pytest.mark.parametrize("balance", ["quadratic", "quadratic_work"])
def test_another_balance_has_the_same_rows_in_each_global_batch(folder: Path, balance: Any) -> None:
    lpt = all_ranks(RowPlan(folder), 3, 90)
    other = all_ranks(RowPlan(folder, balance=balance), 3, 90)
    assert [sorted(rows(batches)) for batches in lpt] == [sorted(rows(batches)) for batches in other]
    assert any(rows(one) != rows(two) for one, two in zip(lpt, other, strict=True))


@pytest.mark.parametrize("balance", ["lpt", "quadratic", "quadratic_work"])
@pytest.mark.parametrize("tail", ["drop", "keep", "carry"])
def test_packed_whole_any_number_of_ranks_has_the_same_global_batches(folder: Path, balance: Any, tail: Any) -> None:
    """The ranks' arrays have each row of the global batch once, as a single rank has it."""
    plan = RowPlan(folder, packing="whole", balance=balance, tail=tail)
    alone = all_ranks(plan, 1, 48)
    # The global batches of one rank are the same for both ways to pack.
    assert list(map(rows, alone)) == list(map(rows, all_ranks(RowPlan(folder, balance=balance, tail=tail), 1, 48)))
    for ranks in (2, 3, 16):
        several = all_ranks(plan, ranks, 48)
        assert [sorted(rows(batches)) for batches in several] == [sorted(rows(batches)) for batches in alone]
        for batches, (whole,) in zip(several, alone, strict=True):
            assert [texts(batch) for batch in batches] != [[]] * ranks
            assert sorted(text for batch in batches for text in texts(batch)) == sorted(texts(whole))
            assert {(one.step, one.epoch, one.global_tokens) for one in batches} == {
                (whole.step, whole.epoch, whole.global_tokens)
            }
            assert len({batch["inputs"].shape for batch in batches}) == 1
            loads = [batch.scalars["total_seqlen"] for batch in batches]
            assert max(loads) <= 48 // ranks + max(one + two - 1 for one, two in ROWS)


@pytest.mark.parametrize("balance", ["lpt", "quadratic", "quadratic_work"])
def test_packed_whole_no_row_is_lost_however_they_are_dealt(tmp_path: Path, balance: Any) -> None:
    draw = np.random.default_rng(3)
    made = [np.maximum(1, draw.lognormal(2, 1.0, (400, 2)).astype(int)).tolist()]
    plan = RowPlan(samples.sampled(tmp_path / "a", made), packing="whole", balance=balance, tail="keep")
    for ranks, slots in ((2, 840), (5, 840), (8, 840), (8, 1680), (60, 840)):
        found = [row for batches in all_ranks(plan, ranks, slots) for row in rows(batches)]
        assert sorted(found) == [(0, 0, number) for number in range(400)]


def texts(batch: Batch) -> list[tuple[int, ...]]:
    """The inputs and labels of each row of a batch, and the length of its prefix."""
    ends = batch["cu_seqlens"][: len(batch.rows) + 1].tolist()
    spans = zip(pairwise(ends), batch["prefix_lens"].tolist(), strict=False)
    return [
        (prefix, *batch["inputs"][low:high].tolist(), *batch["labels"][low:high].tolist())
        for (low, high), prefix in spans
    ]


def test_packed_whole_a_long_row_is_longer_than_a_global_batch(folder: Path) -> None:
    longest = max(one + two - 1 for one, two in ROWS)
    assert all_ranks(RowPlan(folder, packing="whole"), longest, 2 * longest)
    with pytest.raises(InputError, match="longer than"):
        RowPlan(folder, packing="whole").check(World(1, longest - 1))
    with pytest.raises(InputError, match="longer than"):
        RowPlan(folder).check(World(longest, 2 * longest))


def test_quadratic_balance_follows_its_rule() -> None:
    lengths = np.random.default_rng(0).integers(2, 40, (200, 2))
    window = np.column_stack([np.arange(200), np.zeros(200, int), lengths[:, 0], np.zeros(200, int), lengths[:, 1]])
    for balance, cost in (
        ("quadratic", lambda i, o: 2 * (i + o - 1) ** 2),
        ("quadratic_work", lambda i, o: 2 * i * i + 2 * i * (o - 1) + (o - 1) ** 2),
    ):
        count, places, ends = pack_rows(window, 4, 500, balance=balance)
        size = window[:count, 2] + window[:count, 4] - 1
        order = np.argsort(size, kind="stable")[::-1]
        spent, load = [0] * 4, [0] * 4
        dealt: list[list[int]] = [[] for _ in range(4)]
        for row in order:
            fits = [rank for rank in range(4) if load[rank] + size[row] <= 500]
            rank = min(fits, key=lambda one: (spent[one], load[one], one))
            spent[rank] += int(cost(*lengths[row]))
            load[rank] += int(size[row])
            dealt[rank].append(int(row))
        assert [places[low:high].tolist() for low, high in pairwise(ends)] == dealt


# --- what is found when the plan is loaded --------------------------------------------------------------------------


def spoil(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    path = folder / f"{name}.npy"
    np.save(path, change(np.load(path)))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: shutil.rmtree(f), "not a sampled folder.*and the path"),
        (lambda f: shutil.rmtree(f / "epoch_1"), "wrong set of epochs.*got epoch_0; expected epoch_0 to epoch_1"),
        (lambda f: (f / "epoch_1/resp_len.npy").unlink(), "epoch_1/resp_len.npy: does not exist"),
        (lambda f: (f / "tokens.npy").unlink(), "tokens.npy: does not exist"),
        (lambda f: (f / "metadata.json").write_text("{"), "metadata.json: not valid JSON"),
        (lambda f: (f / "metadata.json").write_text("{}"), "max_seq_len: wrong value; got None"),
        (lambda f: os.truncate(f / "tokens.npy", 200), "tokens.npy: not a complete .npy file"),
        (lambda f: spoil(f, "epoch_0/inst_len", lambda a: a[:-1]), r"do not belong together.*inst_len int32 \[39\]"),
        (lambda f: spoil(f, "epoch_0/inst_len", lambda a: a * 1.0), "do not belong together.*inst_len float64"),
        (lambda f: spoil(f, "epoch_0/inst_len", lambda a: a.reshape(2, -1)), r"not an array of numbers.*\(2, 20\)"),
        (lambda f: spoil(f, "epoch_1/resp_len", lambda a: a - 2), "epoch_1: 8 of 40 rows have an empty.*row 4 first"),
        (lambda f: spoil(f, "epoch_0/inst_start", lambda a: a - 3), "epoch_0: 1 of 40 rows point outside.*row 0 first"),
        (lambda f: spoil(f, "tokens", lambda a: a[:-1]), "epoch_1: 1 of 40 rows point outside the 543 tokens.*row 39"),
        (lambda f: spoil(f, "tokens", lambda a: a * 1.0), "tokens.npy: not token ids; got dtype float64"),
    ],
)
def test_a_damaged_folder_is_refused_when_it_is_opened(folder: Path, damage: Any, said: str) -> None:
    damage(folder)
    with pytest.raises(InputError, match=f"(?s){said}"):
        RowPlan(folder)


def test_long_rows_are_refused_with_what_to_do_or_skipped_and_counted(tmp_path: Path) -> None:
    epoch = [(3, 4), (20, 12), (2, 2), (30, 11), (5, 5), *[(2, 3)] * 30]
    folder = samples.sampled(tmp_path / "sampled", [epoch])
    with pytest.raises(InputError, match="epoch_0: 2 of 35 rows are longer than a rank's slots") as caught:
        Loader(RowPlan(folder), batch_tokens=60, ranks=2)
    said = str(caught.value)
    assert "row 1 first, of 31 inputs; the longest has 40" in said
    assert "expected at most 30 (batch_tokens=60 by ranks=2)" in said
    assert "batch_tokens=80 or more" in said
    assert "long_rows='skip'" in said
    got = rows(
        batch for batches in all_ranks(RowPlan(folder, long_rows="skip", tail="keep"), 2, 60) for batch in batches
    )
    assert sorted(got) == [(0, 0, row) for row in range(35) if row not in (1, 3)]
    # With room for all, nothing is skipped.
    got = rows(
        batch for batches in all_ranks(RowPlan(folder, long_rows="skip", tail="keep"), 2, 90) for batch in batches
    )
    assert len(got) == 35


def test_every_rank_gets_a_causal_query(tmp_path: Path) -> None:
    # Longest first gives rank 1 the two rows of one token, and rank 0 both others.
    folder = samples.sampled(tmp_path / "a", [[(9, 1), (2, 3), (2, 3), (5, 1)] * 6])
    assert any(
        one[1]["max_seqlen_causal"] == 0
        for rank in (0, 1)
        for one in HrmDataset(folder, batch_max_length=14, num_replicas=2, rank=rank)
    )
    found = all_ranks(RowPlan(folder, tail="keep"), 2, 28)
    assert all(batch.scalars["max_seqlen_causal"] > 0 for batches in found for batch in batches)
    assert sorted(rows(batch for batches in found for batch in batches)) == [(0, 0, row) for row in range(24)]
    found = all_ranks(RowPlan(folder, tail="keep", one_token_rows="skip"), 2, 28)
    assert sorted(rows(batch for batches in found for batch in batches)) == [
        (0, 0, r) for r in range(24) if r % 4 in (1, 2)
    ]


def test_too_few_rows_with_a_causal_query_are_an_error_at_their_batch(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "a", [[(2, 3)] * 8 + [(3, 1)] * 30 + [(2, 3)] * 8])
    with Loader(RowPlan(folder), batch_tokens=20, ranks=2) as loader:
        batches = iter(loader)
        assert [batch.start_row for batch in islice(batches, 2)] == [0, 4]
        with pytest.raises(InputError, match=r"epoch_0, row 8: .*0 such rows of 6 for 2 ranks.*one_token_rows='skip'"):
            next(batches)
        assert loader.state_dict()["start_row"] == 8
        with pytest.raises(InputError, match="row 8"):
            next(iter(loader))


def test_a_folder_without_any_causal_query_is_refused(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "a", [[(3, 1)] * 30])
    with pytest.raises(InputError, match="30 rows, each with a response of one token"):
        RowPlan(folder)


def test_a_rank_holds_fewer_rows_than_slots(tmp_path: Path) -> None:
    # As many rows as slots leave no place for the last entry of cu_seqlens, and the reference fails.
    folder = samples.sampled(tmp_path / "a", [([(1, 1)] * 8 + [(1, 2)]) * 4])
    with pytest.raises(ValueError, match="negative"):
        next(iter(HrmDataset(folder, batch_max_length=8)))
    found = all_ranks(RowPlan(folder, tail="keep", one_token_rows="skip"), 1, 8)
    assert [batch.scalars["numseqs"] for batches in found for batch in batches] == [4]
    two = samples.sampled(tmp_path / "b", [([(1, 1)] * 6 + [(1, 2)]) * 4])
    assert [batches[0].scalars["numseqs"] for batches in all_ranks(RowPlan(two, tail="keep"), 1, 8)] == [7] * 4


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batch_tokens": 61, "ranks": 2}, "batch_tokens: cannot be divided equally; got 61 tokens for 2 ranks"),
        ({"batch_tokens": 60, "ranks": 0}, "ranks: out of range; got 0; expected at least 1"),
        ({"batch_tokens": 60, "ranks": 2, "rank": 2}, "rank: out of range; got 2; expected 0 to 1"),
        ({"batch_tokens": 60, "threads": -1}, "threads: out of range; got -1; expected at least 0"),
        ({"batch_tokens": 60, "prefetch": 0}, "prefetch: out of range; got 0; expected at least 1"),
        ({"batch_tokens": 10**6}, "the whole epoch is at most one batch"),
        ({"batch_tokens": 2000, "ranks": 50}, r"epoch_0, row 0: the whole epoch is at most one.*40 rows for 50 ranks"),
    ],
)
def test_a_world_that_does_not_suit(folder: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(PairmillError, match=said):
        Loader(RowPlan(folder), **options)


@pytest.mark.parametrize("option", ["balance", "tail", "long_rows", "one_token_rows"])
def test_an_unknown_choice_is_refused(folder: Path, option: str) -> None:
    with pytest.raises(UsageError, match=f"{option}: unknown; got 'x'; expected one of "):
        RowPlan(folder, **{option: "x"})


# --- tails and phases -----------------------------------------------------------------------------------------------


def test_what_a_tail_leaves_is_counted(folder: Path) -> None:
    total = {}
    for tail in ("drop", "keep", "carry"):
        with Loader(RowPlan(folder, tail=tail), batch_tokens=64) as loader:
            got = rows(loader)
            total[tail] = len(got)
            assert len(set(got)) == len(got)
            assert len(got) + sum(loader.left.values()) == 80
            assert (
                loader.left.keys() == {"drop": {("data", 0), ("data", 1)}, "keep": set(), "carry": {("data", 1)}}[tail]
            )
            assert loader.state_dict()["epoch"] == 2
    assert total["keep"] == 80 > total["carry"] > total["drop"]
    with Loader(RowPlan(folder, tail="carry"), batch_tokens=64) as loader:
        mixed = [batch for batch in loader if len(set(batch.rows[:, 1])) == 2]
        assert len(mixed) == 1


def test_an_epoch_at_a_time(folder: Path) -> None:
    for tail, resumed in (("drop", 1), ("carry", 0)):
        plan = RowPlan(folder, tail=tail)
        with Loader(plan, batch_tokens=64) as whole:
            expected = rows(whole)
        with Loader(plan, batch_tokens=64, prefetch=3) as loader:
            first = list(loader.epoch())
            state = loader.state_dict()
            assert {batch.epoch for batch in first} == {0}
            assert state["epoch"] == 1
            assert (state["start_row"] == 0) == bool(resumed)
            second = list(loader.epoch())
            assert rows(first + second) == expected
            assert list(loader.epoch()) == list(loader) == []


def test_phases_switch_at_their_batch_and_return_without_repeating(tmp_path: Path, folder: Path) -> None:
    other = samples.sampled(tmp_path / "other", [[(2, 3), (4, 5)] * 60], seed=5)
    phases = [
        Phase("math"),
        Phase("code", step=3, lr_scale=0.5),
        Phase("math", step=5, lr_scale=0.1),
        Phase("code", tokens=11 * 30),
    ]
    plan = RowPlan({"math": folder, "code": other}, phases=phases, tail="keep")
    for threads in (0, 1, 3):
        with Loader(plan, batch_tokens=30, threads=threads) as loader:
            batches = list(loader)
            assert loader.state_dict()["sources"]["code"] == [1, 0]
        assert [batch.source for batch in batches[:5]] == ["math"] * 3 + ["code"] * 2
        assert [batch.lr_scale for batch in batches[:6]] == [1.0] * 3 + [0.5] * 2 + [0.1]
        last = next(batch for batch in batches if batch.phase == 3)
        before = sum(batch.global_tokens for batch in batches[: last.step])
        assert before >= 330 > before - batches[last.step - 1].global_tokens
        found = rows(batches)
        assert len(set(found)) == len(found)
        # Of each folder a beginning, each row once.
        for source, epochs in enumerate(((40, 40), (120,))):
            order = [(source, epoch, row) for epoch, count in enumerate(epochs) for row in range(count)]
            got = sorted(row for row in found if row[0] == source)
            assert got == order[: len(got)]
            assert len(got) > 20


@pytest.mark.parametrize(
    ("phases", "said"),
    [
        (None, "phases: missing; expected which folder to read when"),
        ([Phase("maths")], r"phases\[0\]: unknown; got 'maths'; expected one of math, code"),
        ([Phase("math"), Phase("", step=2)], r"phases\[1\]: names no folder; expected one of math, code"),
        ([Phase("math"), Phase(weights={"code": 1}, step=2)], r"phases\[1\]: names no folder"),
        ([Phase("math", step=4)], "first phase must start at once"),
        ([Phase("math"), Phase("code", step=9), Phase("math", step=3)], r"phases\[2\]: does not start after"),
    ],
)
def test_wrong_phases(folder: Path, phases: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        RowPlan({"math": folder, "code": folder}, phases=phases)


def test_a_folder_that_ends_before_its_phase_is_an_error(folder: Path) -> None:
    phases = [Phase("math"), Phase("code", step=500)]
    loader = Loader(RowPlan({"math": folder, "code": folder}, phases=phases), batch_tokens=64)
    with pytest.raises(InputError, match=r"phases\[0\]: math: all epochs have been read.*2 epochs, ended after"):
        list(loader)


# --- state ----------------------------------------------------------------------------------------------------------


def test_the_state_is_small_and_says_where(folder: Path) -> None:
    with Loader(RowPlan(folder), batch_tokens=64, prefetch=8) as loader:
        batches = list(islice(loader, 3))
        state = loader.state_dict()
    assert state == {
        "format": 1,
        "plan": loader.plan.digest,
        "phase": 0,
        "epoch": 0,
        "start_row": sum(batch.global_rows for batch in batches),
        "batches": 3,
        "tokens": sum(batch.global_tokens for batch in batches),
        "sources": {"data": [0, sum(batch.global_rows for batch in batches)]},
        "folders": [{"name": "data", "digest": loader.plan.folders[0].digest}],
    }
    assert json.loads(json.dumps(state)) == state


def test_other_data_are_refused_and_the_same_data_elsewhere_are_not(folder: Path, tmp_path: Path) -> None:
    plan = RowPlan(folder)
    with Loader(plan, batch_tokens=64) as loader:
        next(iter(loader))
        state = loader.state_dict()
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    os.utime(copy / "tokens.npy", (1, 1))
    moved = Loader(RowPlan(copy), batch_tokens=64)
    moved.load_state_dict(state)
    spoil(copy, "tokens", lambda array: np.where(np.arange(len(array)) == 7, array + 1, array))
    other = Loader(RowPlan(copy), batch_tokens=64)
    with pytest.raises(InputError, match=r"state: plan: saved with other data.*accept_other_data=True"):
        other.load_state_dict(state)
    other.load_state_dict(state, accept_other_data=True)
    assert next(iter(other)).start_row == state["start_row"]


def test_recorded_digests_stand_for_the_content_and_sizes_are_checked(folder: Path) -> None:
    by_content = RowPlan(folder).digest
    store = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    files = [
        File(str(path.relative_to(folder)), path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in store
    ]
    Manifest("sample", 1, "0" * 16, {}, [], Ledger(), files).finish(str(folder))
    assert RowPlan(folder).digest == by_content
    # Not read again: another token of the same size goes unseen here, which `verify` is for.
    spoil(folder, "tokens", lambda array: array[::-1].copy())
    assert RowPlan(folder).digest == by_content
    spoil(folder, "tokens", lambda array: np.concatenate([array, array]))
    with pytest.raises(
        InputError, match=r"tokens.npy: size differs from the manifest; got 2,304 bytes; expected 1,216"
    ):
        RowPlan(folder)


def test_a_nodes_folder_means_its_current_sample_and_an_unfinished_one_is_refused(folder: Path, tmp_path: Path) -> None:
    node = tmp_path / "node"
    shutil.copytree(folder, node / ("a" * 16))
    (node / "PLAN").write_text("a" * 16 + "\n")
    assert RowPlan(node).digest == RowPlan(folder).digest
    (folder / manifests.STARTED).write_text("{}")
    with pytest.raises(InputError, match="has not finished it"):
        RowPlan(folder)


def test_a_pipe_in_the_place_of_a_nodes_plan_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    node = tmp_path / "node"
    shutil.copytree(folder, node / ("a" * 16))
    os.mkfifo(node / "PLAN")
    with pytest.raises(InputError, match="node"):
        RowPlan(node)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "state: not a saved position; got NoneType"),
        ({}, "state: not a saved position; got None; expected format 1"),
        ({"format": 2}, "state: not a saved position; got 2"),
        ({"sources": {"data": [0]}}, "state: sources: data: not a position"),
        ({"sources": {"data": [0, -1]}}, "not a position"),
        ({"sources": {"data": [0, 1.5]}}, "not a position"),
        ({"sources": {}}, "wrong sources"),
        ({"sources": None}, "wrong sources; got None"),
        ({"batches": "3"}, "not counts"),
        (
            {"sources": {"data": [7, 0]}},
            "position is past the end of the data; got epoch 7, row 0; expected at most epoch 2",
        ),
        (
            {"sources": {"data": [1, 41]}},
            "position is past the end of the data; got epoch 1, row 41; expected at most epoch 2, row 40",
        ),
    ],
)
def test_a_wrong_state_is_refused_and_the_loader_stays_where_it_was(folder: Path, state: Any, said: str) -> None:
    with Loader(RowPlan(folder), batch_tokens=64) as loader:
        next(iter(loader))
        before = loader.state_dict()
        with pytest.raises(UsageError, match=said):
            loader.load_state_dict({**before, **state} if state else state)
        assert loader.state_dict() == before
        assert next(iter(loader)).step == 1


# --- threads and memory ---------------------------------------------------------------------------------------------


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("pairmill loader")]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda f: Loader(f, batch_tokens=64),
            r"plan: wrong type; got '.*; expected a RowPlan, .*; write Loader\(RowPlan",
        ),
        (lambda f: Loader(Path(f), batch_tokens=64), r"plan: .*; write Loader\(RowPlan\("),
        (lambda f: Loader(None, batch_tokens=64), "plan: wrong type; got None"),
        (lambda f: Loader(RowPlan, batch_tokens=64), "plan: wrong type"),
        (lambda f: Loader(RowPlan(f), batch_tokens="64"), "batch_tokens: not an integer; got '64'.*batch_tokens=64"),
        (lambda f: Loader(RowPlan(f), batch_tokens=64.0), "batch_tokens: not an integer; got 64.0"),
        (lambda f: Loader(RowPlan(f), batch_tokens=None), "batch_tokens: not an integer"),
        (lambda f: Loader(RowPlan(f), batch_tokens=True), "batch_tokens: not an integer"),
        (lambda f: Loader(RowPlan(f), batch_tokens=2**70), "batch_tokens: out of range"),
        (lambda f: Loader(RowPlan(f), batch_tokens=64, ranks="2"), "ranks: not an integer"),
        (lambda f: Loader(RowPlan(f), batch_tokens=64, ranks=[2]), "ranks: not an integer"),
        (lambda f: Loader(RowPlan(f), batch_tokens=64, rank="0"), "rank: not an integer"),
        (lambda f: Loader(RowPlan(f), batch_tokens=64, rank=2**70), "rank: out of range"),
        (lambda f: Loader(RowPlan(f), batch_tokens=64, threads="2"), "threads: not an integer"),
        (lambda f: Loader(RowPlan(f), batch_tokens=64, prefetch=0.5), "prefetch: not an integer"),
        (lambda f: Loader(RowPlan(f), batch_tokens=64, allocate=5), "allocate: wrong type; got 5"),
        (lambda f: RowPlan(5), "folders: wrong type; got 5; expected a path, or paths by name"),
        (lambda f: RowPlan(None), "folders: wrong type"),
        (lambda f: RowPlan([f, f]), "folders: wrong type"),
        (lambda f: RowPlan({"a": 5}), "folders: a: not a path; got 5"),
        (lambda f: RowPlan({5: f}), "folders: wrong type; got 5; expected a string"),
        (lambda f: RowPlan(""), "folders: data: not a path; got ''"),
        (lambda f: RowPlan("a\0b"), "folders: data: not a path"),
        (lambda f: RowPlan(f, balance=None), "balance: unknown; got None"),
        (lambda f: RowPlan(f, tail=["drop"]), "tail: unknown"),
        (lambda f: RowPlan(f, balance=np.zeros(2)), "balance: unknown"),
        (lambda f: RowPlan(f, target_only="no"), "target_only: not a boolean; got 'no'"),
        (lambda f: RowPlan(f, doc_ids=None), "doc_ids: not a boolean"),
        (lambda f: RowPlan(f, phases=Phase("data")), "phases: not a list.*write phases="),
        (lambda f: RowPlan(f, phases="data"), "phases: not a list"),
        (lambda f: RowPlan(f, phases=["data"]), r"phases\[0\]: wrong type; got 'data'; expected Phase"),
        (lambda f: RowPlan(f, phases=5), "phases: not a list; got 5"),
        (lambda f: RowPlan(f, phases=[Phase(5)]), r"phases\[0\]: source: wrong type"),
        (lambda f: RowPlan(f, phases=[Phase("data", step="5")]), r"phases\[0\]: step: not an integer"),
        (lambda f: RowPlan(f, phases=[Phase("data", tokens=1.5)]), r"phases\[0\]: tokens: not an integer"),
        (lambda f: RowPlan(f, phases=[Phase("data", lr_scale="1")]), r"phases\[0\]: lr_scale: not a number"),
        (lambda f: RowPlan(f, phases=[Phase("data", weights=5)]), r"phases\[0\]: weights: wrong type"),
        (lambda f: RowPlan(f, phases=[Phase("data", temperature="x")]), "temperature: not a number"),
    ],
)
def test_an_argument_of_another_type_is_refused_with_what_to_pass(folder: Path, made: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(str(folder))


def test_numbers_of_numpy_are_numbers(folder: Path) -> None:
    with Loader(RowPlan(folder), batch_tokens=np.int64(64), ranks=np.uint8(2), rank=np.int32(1), threads=0) as loader:
        next(iter(loader))
        assert json.loads(json.dumps(loader.state_dict())) == loader.state_dict()


@pytest.mark.parametrize(
    "changed",
    [
        {"batches": 2**63},
        {"tokens": 2**200},
        {"batches": "1"},
        {"tokens": None},
        {"sources": {"data": [0, 2**80]}},
        {"sources": {"data": "00"}},
        {"sources": {"data": 5}},
        {"sources": {"data": {0: 1}}},
        {"sources": [["data", 0, 0]]},
        {"sources": None},
        {"plan": 5},
        {"format": [1]},
    ],
)
def test_a_state_of_nonsense_is_refused(folder: Path, changed: dict[str, Any]) -> None:
    with Loader(RowPlan(folder), batch_tokens=64, threads=0) as loader:
        state = loader.state_dict()
        with pytest.raises(PairmillError, match=r"^state"):
            loader.load_state_dict({**state, **changed})
        for other in (None, "x", [state], 5):
            with pytest.raises(UsageError, match="state: not a saved position"):
                loader.load_state_dict(other)
        with pytest.raises(UsageError, match="accept_other_data: not a boolean"):
            loader.load_state_dict(state, accept_other_data="yes")
        next(iter(loader))


@pytest.mark.parametrize(
    "place", ["", "tokens.npy", "metadata.json", "epoch_0", "epoch_1/inst_len.npy", "_MANIFEST.json"]
)
def test_what_may_not_be_read_is_an_error_of_ours(folder: Path, place: str) -> None:
    RowPlan(folder)  # what is imported late may not be readable for somebody else either
    if place == "_MANIFEST.json":
        samples.recorded(folder)
    (folder / place).chmod(0)
    with as_somebody(folder), pytest.raises(StorageError, match=re.escape(str(folder / place))) as caught:
        RowPlan(folder)
    assert "storage refused; got Permission denied" in str(caught.value)


HEADER = b"\x93NUMPY\x01\x00"


@pytest.mark.parametrize(
    "data",
    [
        HEADER + b"\x10\x00" + b"{'descr': '<u2'\n",  # TokenError
        HEADER + b"\x08\x00" + b"((((((((",
        HEADER + b"\x10\x00" + b"{'descr': '<u2',",
        HEADER + b"\x46\x00" + b"{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,)}".ljust(70),
        HEADER + b"\x46\x00" + b"{'descr': '<u2', 'fortran_order': False, 'shape': (-5,)}".ljust(70),
        HEADER + b"\x46\x00" + b"{'descr': 'nonsense', 'fortran_order': False, 'shape': (5,)}".ljust(70),
        HEADER + b"\x46\x00" + b"{'descr': [], 'fortran_order': False, 'shape': (5,)}".ljust(70),
        HEADER + b"\x02\x00" + b"\xff\xff",
        b"PK\x03\x04" + bytes(60),
        b"PK\x05\x06" + bytes(18),
        b"\x80\x04N.",
        b"",
        b"\x93NUMPY",
        bytes(1000),
    ],
)
@pytest.mark.parametrize("name", ["tokens.npy", "epoch_0/resp_len.npy"])
def test_a_file_that_is_no_array_is_an_error_of_ours(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    with pytest.raises(InputError, match=re.escape(str(folder / name))):
        RowPlan(folder)
    if name == "tokens.npy":
        with pytest.raises(InputError, match=re.escape(str(folder / name))):
            Windows.of_files(folder, seq_len=4)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_seq_len", 10**400),
        ("total_length", "12.5"),
        ("total_length", "9" * 5000),
        ("epochs", 2**70),
        ("epochs", [2]),
        ("tokenizer_info", {"vocab_size": 10**30}),
        ("tokenizer_info", []),
        ("max_seq_len", True),
    ],
)
def test_metadata_of_nonsense_is_an_error_of_ours(folder: Path, name: str, value: Any) -> None:
    raw = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps({**raw, name: value}))
    with pytest.raises(InputError, match=r"metadata.json: .*wrong value"):
        RowPlan(folder)
    (folder / "metadata.json").write_text(json.dumps({**raw, "max_seq_len": " 12.0"}))
    assert RowPlan(folder).folders[0].metadata.max_seq_len == 11


def test_an_absurd_number_of_epochs_is_refused_at_once(folder: Path) -> None:
    raw = json.loads((folder / "metadata.json").read_text())
    (folder / "metadata.json").write_text(json.dumps({**raw, "epochs": 10**15}))
    with pytest.raises(InputError, match=f"wrong set of epochs.*epoch_0 to epoch_{10**15 - 1}"):
        RowPlan(folder)


def test_tokens_made_shorter_are_noticed_before_they_end_the_process(folder: Path) -> None:
    """At the start of every epoch: reading a mapped file past its new end is SIGBUS."""
    plan = RowPlan(folder)
    size = (folder / "tokens.npy").stat().st_size
    with Loader(plan, batch_tokens=64, threads=0) as loader:
        assert len(list(loader.epoch())) >= 3
        os.truncate(folder / "tokens.npy", size - 64)
        with pytest.raises(InputError, match=r"tokens.npy: truncated while it was in use; got .* expected "):
            next(iter(loader))
    with pytest.raises(InputError, match=r"tokens.npy: truncated while"):
        Loader(plan, batch_tokens=64, threads=0)
    carried = Loader(
        RowPlan(samples.sampled(folder.parent / "b", [ROWS * 4] * 2), tail="carry"), batch_tokens=64, threads=0
    )
    next(iter(carried))
    os.truncate(folder.parent / "b" / "epoch_1" / "resp_len.npy", 150)
    with pytest.raises(InputError, match=r"epoch_1/resp_len.npy: truncated while"):
        list(carried)


def test_a_folder_that_is_replaced_or_removed_is_read_to_its_end(folder: Path) -> None:
    """What is mapped stays: the sampler may retire a folder that a trainer still reads."""
    expected = [batch.rows.tolist() for batch in Loader(RowPlan(folder), batch_tokens=64, threads=0)]
    with Loader(RowPlan(folder), batch_tokens=64, threads=0) as loader:
        found = [next(iter(loader)).rows.tolist()]
        shutil.move(folder, folder.parent / "moved")
        shutil.copytree(folder.parent / "moved", folder)
        (folder / "tokens.npy").write_bytes(b"short")
        (folder / "epoch_1" / "inst_len.npy").unlink()
        found += [batch.rows.tolist() for batch in loader]
    assert found == expected


def told(folder: Path, digest: str = "", **info: Any) -> Path:
    """What a folder says of its tokenizer."""
    raw = json.loads((folder / "metadata.json").read_text())
    raw["tokenizer_info"] |= info
    (folder / "metadata.json").write_text(json.dumps(raw))
    if digest:
        files = [File("metadata.json", (folder / "metadata.json").stat().st_size, "0" * 64)]
        data = {"tokenizer": digest}
        Manifest("sample", 1, "0" * 16, {}, [], Ledger(), files, data=data).finish(str(folder))
    return folder


@pytest.mark.parametrize(
    ("one", "two", "refused"),
    [
        ({"vocab_size": 500}, {"vocab_size": 512}, "they differ in vocab_size"),
        ({"boq": "<q>"}, {"boq": "<a>"}, "they differ in boq"),
        ({"condition_mapping": {"a": "b"}}, {"condition_mapping": {"a": "c"}}, "they differ in condition_mapping"),
        ({"digest": "a" * 16}, {"digest": "b" * 16}, f"one: sha256 {'a' * 16}.*two: sha256 {'b' * 16}"),
        ({"digest": "a" * 16, "tokenizer_path": "/x"}, {"digest": "a" * 16, "tokenizer_path": "/y"}, ""),
        ({"digest": "a" * 16}, {}, ""),
        ({"digest": "a" * 16, "vocab_size": 400}, {"vocab_size": 500}, "they differ in vocab_size"),
        ({"tokenizer_path": "/x"}, {}, ""),
        ({}, {"more": 5}, ""),
    ],
)
def test_a_plan_over_folders_of_two_tokenizers_is_refused_naming_both(
    tmp_path: Path, one: dict[str, Any], two: dict[str, Any], refused: str
) -> None:
    folders = {
        "one": told(samples.sampled(tmp_path / "a", [ROWS]), **one),
        "two": told(samples.sampled(tmp_path / "b", [ROWS]), **two),
    }
    phases = [Phase("one"), Phase("two", step=2)]
    if not refused:
        assert RowPlan(folders, phases=phases).names == ("one", "two")
        return
    with pytest.raises(InputError, match="folders: made with different tokenizers") as caught:
        RowPlan(folders, phases=phases)
    assert re.search(f"one \\({tmp_path / 'a'}\\): .*two \\({tmp_path / 'b'}\\): ", str(caught.value))
    assert re.search(refused.replace("one:", r"one \(.*\):").replace("two:", r"two \(.*\):"), str(caught.value))


def test_folders_whose_tokenizers_may_differ_are_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    folders = {
        name: told(samples.sampled(tmp_path / name, [ROWS]), tokenizer_path=f"/{name}/tokenizer.json") for name in "ab"
    }
    RowPlan(folders, phases=[Phase("a"), Phase("b", step=2)])
    assert "name different tokenizers, /a/tokenizer.json and /b/tokenizer.json" in capsys.readouterr().err


def test_an_error_comes_at_its_batch_and_the_threads_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = RowPlan(folder)
    fill = plan.fill_ahead

    def failing(draws: Sequence[Draw], *arguments: Any) -> list[Batch]:
        if any(draw.after.batches == 4 for draw in draws):
            raise OSError("a page is gone")
        return fill(draws, *arguments)

    monkeypatch.setattr(plan, "fill_ahead", failing)
    for threads in (0, 1, 4):
        with Loader(plan, batch_tokens=64, threads=threads) as loader:
            assert [batch.step for batch in islice(loader, 3)] == [0, 1, 2]
            with pytest.raises(StorageError, match="loader, after 3 batches: storage failed; got a page is gone"):
                next(iter(loader))
            assert loader.state_dict()["batches"] == 3
            assert not ours()


class Panic(BaseException):
    """As native code's: not an Exception, so that no handler catches it by accident."""


@pytest.mark.parametrize(
    ("place", "threads"), [("draw_ahead", 0), ("fill_ahead", 0), ("draw_ahead", 2), ("fill_ahead", 2), ("allocate", 1)]
)
@pytest.mark.parametrize(
    ("kind", "becomes"),
    [
        (KeyboardInterrupt, KeyboardInterrupt),
        (SystemExit, SystemExit),
        (Panic, InternalError),
        (MemoryError, StorageError),
        (ValueError, InternalError),
        (OverflowError, InternalError),
        (partial(PermissionError, 13, "Permission denied"), StorageError),
        (InputError, InputError),
    ],
)
def test_any_error_of_a_batch_reaches_the_thread_that_waits_for_it(
    folder: Path, kind: Any, becomes: type[BaseException], threads: int, place: str, monkeypatch: Any
) -> None:
    plan, error = RowPlan(folder), kind("what happened")
    at = getattr(plan, place, bytearray)
    calls = count(1)

    def failing(*arguments: Any) -> Any:
        if next(calls) == 3:
            raise error
        return at(*arguments)

    if place != "allocate":
        monkeypatch.setattr(plan, place, failing)
    allocate = failing if place == "allocate" else bytearray
    with Loader(plan, batch_tokens=64, threads=threads, allocate=allocate) as loader:
        kept: list[Batch] = []
        found: list[BaseException] = []

        def consume() -> None:
            try:
                kept.extend(loader)
            except BaseException as caught:
                found.append(caught)

        consumer = threading.Thread(target=consume, daemon=True)
        consumer.start()
        consumer.join(PATIENCE)
        assert not consumer.is_alive(), "the consumer waits for ever"
        (raised,) = found
        assert isinstance(raised, becomes), repr(raised)
        assert raised is error or raised.__cause__ is error
        assert len(kept) <= 3 * 2
        if isinstance(raised, PairmillError) and raised is not error:
            assert str(raised).startswith(f"loader, after {len(kept)} batches: ") or "what happened: " in str(raised)
        if threads:
            with pytest.raises(becomes):
                next(iter(loader))
    assert not ours()


def test_a_thread_that_ends_in_between_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader(RowPlan(folder), batch_tokens=64, threads=1, prefetch=2)
    next(iter(loader))
    assert loader._prefetcher is not None
    monkeypatch.setattr(loader._prefetcher, "_make", None)  # nothing that the thread expects
    found: list[BaseException] = []

    def consume() -> None:
        try:
            list(loader)
        except BaseException as caught:
            found.append(caught)

    consumer = threading.Thread(target=consume, daemon=True)
    consumer.start()
    consumer.join(PATIENCE)
    assert not consumer.is_alive(), "the consumer waits for ever"
    assert [type(error) for error in found] == [InternalError]


def test_close_joins_and_a_closed_loader_says_so(folder: Path) -> None:
    loader = Loader(RowPlan(folder), batch_tokens=64, threads=3)
    batch = next(iter(loader))
    assert len(ours()) == 3
    loader.close()
    assert not ours()
    assert batch["inputs"].any()
    with pytest.raises(UsageError, match="loader: closed"):
        next(iter(loader))
    loader.close()


def test_a_forgotten_loader_ends_its_threads(folder: Path) -> None:
    loader = Loader(RowPlan(folder), batch_tokens=64, threads=2)
    next(iter(loader))
    assert ours()
    del loader
    gc.collect()
    until(lambda: not ours(), "threads outlive their loader")


def test_a_forked_process_goes_on_by_itself(folder: Path) -> None:
    plan = RowPlan(folder)
    with Loader(plan, batch_tokens=64) as loader:
        expected = rows(loader)
    with Loader(plan, batch_tokens=64, threads=2) as loader:
        first = rows(islice(loader, 2))
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os.write(write, json.dumps(rows(loader)).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            rest = [tuple(row) for row in json.load(pipe)]
        assert os.waitpid(child, 0)[1] == 0
        assert first + rest == expected
        assert first + rows(loader) == expected


def test_memory_is_used_again_once_nothing_refers_to_it(folder: Path) -> None:
    with Loader(RowPlan(folder), batch_tokens=64, prefetch=1) as loader:
        kept = next(iter(loader))["labels"][3:9]
        copy = kept.copy()
        places = {batch["inputs"].__array_interface__["data"][0] for batch in loader}
        assert np.array_equal(kept, copy)
        low = kept.__array_interface__["data"][0]
        assert all(not place <= low < place + 6 * 64 * 4 for place in places)
        assert len(places) <= 4


def test_a_pool_takes_memory_that_is_given_to_it() -> None:
    made = []

    def allocate(size: int) -> bytearray:
        made.append(bytearray(size))
        return made[-1]

    pool = Pool(64, 1, allocate)
    first = pool.take()
    view = first.view(np.int32)[2:5]
    del first
    second = pool.take()
    assert len(made) == 2
    view[:] = 7
    assert made[0][8:12] == b"\7\0\0\0"
    del view
    third = pool.take()
    assert len(made) == 2
    del second, third
    pool.take()
    assert len(made) == 2


def test_a_plan_is_for_any_world(folder: Path) -> None:
    plan = RowPlan(folder)
    start = plan.begin()
    assert plan.draw(start, World(2, 60)) is not None
    assert plan.draw(start, World(3, 90)) is not None
    assert plan.draw(start, World(2, 60)).rows == plan.draw(start, World(2, 60)).rows  # type: ignore[union-attr]


def test_what_the_last_epochs_leave_is_counted_once(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "a", [[(3, 4)] * count for count in (300, 5, 9, 3)])
    with Loader(RowPlan(folder, tail="carry"), batch_tokens=400) as loader:
        got = rows(loader)
        assert len(got) + sum(loader.left.values()) == 317
        assert sum(loader.left.values()) > 3
        assert loader.state_dict()["epoch"] == 4


def test_a_row_of_one_token_that_fills_a_rank_is_a_long_row(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "a", [[(3, 4)] * 50 + [(29, 1)] + [(3, 4)] * 50])
    with pytest.raises(
        InputError, match=r"row 50 first, of 29 inputs and a response of one token, which takes 2 slots"
    ):
        Loader(RowPlan(folder), batch_tokens=60, ranks=2)
    with pytest.raises(InputError, match=r"batch_tokens=62 or more"):
        Loader(RowPlan(folder), batch_tokens=60, ranks=2)
    for plan in (RowPlan(folder, long_rows="skip"), RowPlan(folder, one_token_rows="skip")):
        with Loader(plan, batch_tokens=60, ranks=2) as loader:
            assert (0, 0, 50) not in rows(loader)
    assert len(rows(batch for batches in all_ranks(RowPlan(folder, tail="keep"), 2, 80) for batch in batches)) == 101


def test_a_later_epoch_without_a_batch_is_found_at_once(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "a", [[(3, 4)] * 100, [(3, 4)] * 10])
    with pytest.raises(InputError, match=r"epoch_1, row 0: the whole epoch is at most one batch.*10 rows for 1 ranks"):
        Loader(RowPlan(folder), batch_tokens=100)
    with Loader(RowPlan(folder, tail="keep"), batch_tokens=100) as loader:
        assert len(rows(loader)) == 110


def test_a_last_batch_that_cannot_be_dealt_is_left_and_counted(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "a", [[(2, 3)] * 40 + [(3, 1)] * 5])
    for tail in ("drop", "keep", "carry"):
        with Loader(RowPlan(folder, tail=tail), batch_tokens=20, ranks=2) as loader:
            got = rows(batch for batches in all_ranks(RowPlan(folder, tail=tail), 2, 20) for batch in batches)
            list(loader)
            assert len(got) + loader.left["data", 0] == 45
            assert len(got) >= 36
