"""States that go on under other plans: children of the plan that they were saved under, more sources, sidecar files."""

import hashlib
import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill import log
from pairmill.engine.manifest import content_key
from pairmill.errors import InputError, UsageError
from pairmill.loader import Loader, MixturePlan, Phase, RowPlan, Windows
from pairmill.loader.folder import Epoch
from tests.support.data import samples
from tests.support.data.extended_samples import Family, fingerprint
from tests.support.peers.hrm import global_batches


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    family = Family(tmp_path_factory.mktemp("family"))
    family.add("parent", [0, 1, 2])
    family.add("child", [0, 1, 2, 3, 4], "parent", 3)
    family.add("grandchild", [0, 1, 2, 3, 4, 5], "child", 5)
    family.add("anew", [0, 1, 7, 8], "parent", 2)
    family.add("sibling", [0, 1, 2, 9], "parent", 3)
    family.add("stranger", [20, 21])
    return family


def digest(batches: Any) -> str:
    """SHA-256 of all arrays of batches, and of which rows they have."""
    result = hashlib.sha256()
    for batch in batches:
        for array in (*batch.values(), batch.rows):
            result.update(np.ascontiguousarray(array).tobytes())
    return result.hexdigest()


def loader(folder: Path, batch_tokens: int = 480, **options: Any) -> Loader:
    ranks = {name: options.pop(name) for name in ("rank", "ranks") if name in options}
    return Loader(RowPlan(folder, **options), batch_tokens=batch_tokens, threads=0, **ranks)


def state_after(folder: Path, batches: int | None, **options: Any) -> dict[str, Any]:
    with loader(folder, **options) as read:
        for _ in islice(read, batches):
            pass
        state: dict[str, Any] = json.loads(json.dumps(read.state_dict(), sort_keys=True))
        return state


# --- parents --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["drop", "keep", "carry"])
@pytest.mark.parametrize("packing", ["ranks", "whole"])
@pytest.mark.parametrize("batches", [5, 22, None])
def test_a_child_goes_on_as_if_it_had_been_read_from_the_beginning(
    family: Family, tail: Any, packing: Any, batches: int | None
) -> None:
    options = {"tail": tail, "packing": packing, "ranks": 2, "rank": 1}
    state = state_after(family.folder / "parent", batches, **options)
    for name in ("child", "grandchild"):
        whole = list(loader(family.folder / name, **options))
        went_on = loader(family.folder / name, **options)
        went_on.load_state_dict(state)
        assert went_on.position.batches == state["batches"]
        assert digest(went_on) == digest(whole[state["batches"] :])


def test_with_other_ranks_and_batches_each_row_comes_once(family: Family) -> None:
    rows: list[tuple[int, int]] = []
    state = None
    for name, ranks, tokens, batches in (("parent", 2, 480, 9), ("child", 3, 300, 40), ("grandchild", 1, 900, None)):
        read = [loader(family.folder / name, tokens, tail="carry", ranks=ranks, rank=rank) for rank in range(ranks)]
        for item in read:
            if state is not None:
                item.load_state_dict(state)
            rows += [(epoch, row) for batch in islice(item, batches) for _, epoch, row in batch.rows.tolist()]
        state = read[0].state_dict()
    assert len(rows) == len(set(rows)) == 6 * 400 - sum(read[0].left.values())


def test_the_rows_that_the_end_of_a_parent_left_begin_the_next_epoch(family: Family) -> None:
    state = state_after(family.folder / "parent", None, tail="carry")
    assert (state["epoch"], state["start_row"]) == (3, 0)
    (before,) = state["carried"].values()
    again = loader(family.folder / "parent", tail="carry")
    again.load_state_dict(state)
    assert list(again) == []
    assert again.state_dict() == state
    child = loader(family.folder / "child", tail="carry")
    child.load_state_dict(state)
    first = next(iter(child))
    assert (first.epoch, first.start_row) == tuple(before)
    dropped = loader(family.folder / "child", tail="drop")
    dropped.load_state_dict(state)
    assert next(iter(dropped)).epoch == 3


def test_a_parent_in_another_layout_and_a_state_of_before_are_known(family: Family) -> None:
    state = state_after(family.folder / "parent", 5)
    (saved,) = state["folders"]
    other = {**saved, "digest": "0" * 64, "sample": fingerprint("parent", "data_io")}
    elsewhere = {**state, "plan": content_key("rows", [("data", other["digest"])]), "folders": [other]}
    old = {name: value for name, value in state.items() if name != "folders"}
    for item in (state, elsewhere, old):
        child = loader(family.folder / "grandchild")
        child.load_state_dict(item)
        assert child.state_dict()["sources"] == state["sources"]
    child = loader(family.folder / "child")
    with pytest.raises(InputError, match="state: plan: saved with other data"):
        child.load_state_dict({**state, "plan": "0" * 64})


def test_an_epoch_that_was_drawn_anew(family: Family, capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    anew = loader(family.folder / "anew")
    steps = [batch.epoch for batch in loader(family.folder / "parent")]
    anew.load_state_dict(state_after(family.folder / "parent", steps.index(1) + 3))
    assert anew.progress.epoch == 1
    within = state_after(family.folder / "parent", steps.index(2) + 3)
    with pytest.raises(
        InputError,
        match=r"sources: data: the training is in an epoch that this plan drew anew, from epoch 2 on; "
        r"got epoch 2, row \d+ of 400; expected at most epoch 2, row 0; extend with from_epoch=3 or more; or accept",
    ):
        anew.load_state_dict(within)
    assert anew.progress.epoch == 1
    anew.load_state_dict(within, accept_other_data=True)
    assert anew.state_dict()["sources"] == {"data": [2, 0]}
    anew.load_state_dict(state_after(family.folder / "parent", None))
    assert anew.state_dict()["sources"] == {"data": [2, 0]}
    assert "begins its epoch 2, although 3 epochs and 0 rows were read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("saved", "here", "what"),
    [
        (
            "stranger",
            "child",
            r"state: plan: saved with other data; got {saved}; expected {here}, which extends {parent}",
        ),
        ("sibling", "child", r"saved under another plan that extends {parent}; got {saved}.*sample extend={saved}"),
        ("child", "parent", r"saved under a plan that extends this one; got {saved}; expected {here}; read that plan"),
        ("parent", "stranger", r"saved with other data; got {saved}; expected {here}; use the data"),
    ],
)
def test_a_state_of_another_plan_is_refused_and_says_what_that_is(
    family: Family, saved: str, here: str, what: str
) -> None:
    names = {"saved": fingerprint(saved), "here": fingerprint(here), "parent": fingerprint("parent")}
    read = loader(family.folder / here)
    with pytest.raises(InputError, match=what.format(**names)):
        read.load_state_dict(state_after(family.folder / saved, 3))


def test_a_plan_that_is_read_after_another_begins(family: Family, capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    after = family.add("after", [11, 12], after=("parent", 3, 0))
    whole = digest(loader(after))
    ended = state_after(family.folder / "parent", None)
    (saved,) = ended["folders"]
    other = {**saved, "digest": "0" * 64, "sample": fingerprint("parent", "data_io")}
    elsewhere = {**ended, "plan": content_key("rows", [("data", other["digest"])]), "folders": [other]}
    for state, level in ((ended, "INFO"), (elsewhere, "INFO"), (state_after(family.folder / "parent", 5), "WARNING")):
        read = loader(after)
        read.load_state_dict(state)
        assert read.state_dict()["sources"] == {"data": [0, 0]}
        assert read.position.batches == state["batches"]
        assert digest(read) == whole
        line = next(line for line in capsys.readouterr().err.splitlines() if "begins after" in line)
        assert json.loads(line)["severity"] == level
        assert "the plan counts what was read up to epoch 3, row 0" in line
    with pytest.raises(InputError, match="saved with other data"):
        loader(after).load_state_dict(state_after(family.folder / "stranger", 3))


# --- more sources ---------------------------------------------------------------------------------------------------


def test_sources_that_a_state_does_not_name_begin(family: Family) -> None:
    alone = RowPlan({"broad": family.folder / "parent"}, phases=[Phase("broad")])
    with Loader(alone, batch_tokens=480) as read:
        before = list(islice(read, 25))
        state = read.state_dict()
    folders = {"broad": family.folder / "child", "new": family.folder / "stranger"}
    plan = RowPlan(folders, phases=[Phase("broad"), Phase("new", step=30), Phase("broad", step=40)])
    with Loader(plan, batch_tokens=480) as whole, Loader(plan, batch_tokens=480) as went_on:
        went_on.load_state_dict(state)
        assert digest(went_on) == digest(list(whole)[len(before) :])
    both = Loader(plan, batch_tokens=480).state_dict()
    with pytest.raises(InputError, match=r"saved with a source that this plan does not have; got new; .*data"):
        Loader(alone, batch_tokens=480).load_state_dict(both)


def test_more_windows_begin_if_other_data_are_accepted(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "tokens.npy", np.arange(100, dtype=np.uint16))
    one, two = (Windows.of_files(tmp_path / name, seq_len=4, name=name) for name in "ab")
    with Loader(MixturePlan([one]), batch_tokens=8) as read:
        next(iter(read))
        state = read.state_dict()
    with Loader(MixturePlan([one, two]), batch_tokens=8) as both:
        with pytest.raises(InputError, match="saved with other data"):
            both.load_state_dict(state)
        both.load_state_dict(state, accept_other_data=True)
        assert both.state_dict()["sources"] == {"a": [0, 2], "b": [0, 0]}


# --- progress and steps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["drop", "keep", "carry"])
@pytest.mark.parametrize("packing", ["ranks", "whole"])
def test_steps_left_are_those_of_the_loader(family: Family, tail: Any, packing: Any) -> None:
    read = loader(family.folder / "child", tail=tail, packing=packing, ranks=2)
    for _ in islice(read, 13):
        pass
    state = read.state_dict()
    for tokens, ranks, accumulate in ((0, 0, 1), (300, 3, 4), (1000, 1, 3)):
        left = read.steps_left(tokens, ranks, accumulate)
        other = loader(
            family.folder / "child", tokens or 480, tail=tail, packing=packing, ranks=ranks or 2, rank=(ranks or 2) - 1
        )
        other.load_state_dict(state)
        counts: dict[tuple[str, int], int] = {}
        for batch in other:
            counts[batch.source, batch.epoch] = counts.get((batch.source, batch.epoch), 0) + 1
        assert dict(left.epochs) == counts
        assert left.micro_batches == sum(counts.values())
        assert left.steps == sum(count // accumulate for count in counts.values())
        assert left.steps * accumulate + left.left_over == left.micro_batches
    assert read.state_dict() == state


def test_progress_is_in_rows_of_the_epoch(family: Family) -> None:
    read = loader(family.folder / "parent")
    assert read.progress.epochs == 0
    steps = [batch.start_row for batch in read.epoch()]
    state = {**read.state_dict(), "sources": {"data": [1, steps[3]]}}
    read.load_state_dict(state)
    assert (read.progress.epoch, read.progress.row, read.progress.rows) == (1, steps[3], 400)
    assert read.progress.epochs == 1 + steps[3] / 400
    assert list(read)
    assert read.progress.epochs == 3.0


def test_windows_have_neither_steps_nor_progress(tmp_path: Path) -> None:
    np.save(tmp_path / "tokens.npy", np.arange(100, dtype=np.uint16))
    read = Loader(MixturePlan([Windows.of_files(tmp_path, seq_len=4)]), batch_tokens=8)
    for look in (read.steps_left, lambda: read.progress):
        with pytest.raises(UsageError, match=r"plan: wrong type.*windows and streams have neither epochs nor an end"):
            look()
    with pytest.raises(UsageError, match="accumulate: out of range; got 0"):
        read.steps_left(accumulate=0)


# --- sidecar files --------------------------------------------------------------------------------------------------


def sidecar(folder: Path, epoch: int, batches: int, **changed: Any) -> dict[str, Any]:
    """What a trainer derived from HRM-Text saves after so many micro-batches of an epoch, by the reference's loader."""
    read = global_batches(Epoch(folder / f"epoch_{epoch}"), 120, 4, drop_last=True)
    start = after = 0
    for _, window, places in islice(read, batches):
        rows = np.sort(window[np.concatenate(places), 0])
        start, after = int(rows[0]), int(rows[-1]) + 1
    return {
        "tag": "ephemeral_step_77",
        "step": 77,
        "epoch": epoch + 1,
        "batch_in_epoch": batches,
        "batch_in_epoch_exact": True,
        "gradient_accumulation_steps": 2,
        "global_batch_size": 960,
        "local_batch_size": 120,
        "data_path": "data/sampled",
        "seed": 0,
        "global_row_start_in_epoch": start,
        "global_row_cursor_in_epoch": after,
        "global_numseq": after - start,
        "global_batch_totlen": int(samples.lengths(folder, epoch)[start:after].sum()),
        **changed,
    }


def test_a_sidecar_with_the_same_ranks_counts_batches(family: Family, capsys: pytest.CaptureFixture[str]) -> None:
    log.setup()
    folder = family.folder / "parent"
    whole = list(loader(folder, ranks=4))
    first = next(number for number, batch in enumerate(whole) if batch.epoch == 1)
    state = sidecar(folder, 1, 6)
    read = loader(folder, ranks=4)
    read.load_state_dict(state)
    assert read.position.batches == 154
    assert digest(read) == digest(whole[first + 6 :])
    assert "after 6 micro-batches, exactly" in capsys.readouterr().err
    read.load_state_dict({**state, "batch_in_epoch": 0, "global_row_cursor_in_epoch": 0, "global_numseq": 0})
    assert (read.progress.epoch, read.progress.row) == (1, 0)
    for name in ("parent", "child"):  # the alias of a finished epoch
        read = loader(family.folder / name, ranks=4)
        read.load_state_dict({"tag": "epoch_2", "step": 9, "epoch": 2, "batch_in_epoch": 0})
        assert (read.progress.epoch, read.progress.row) == (2, 0)


@pytest.mark.parametrize(
    ("changed", "options", "why"),
    [
        ({}, {"ranks": 2}, "120 slots a rank, here 240; 4 ranks, here 2"),
        ({"world_size": 8, "global_batch_size": 1920}, {"ranks": 4}, "8 ranks, here 4"),
        ({"batch_in_epoch_exact": False}, {"ranks": 4}, "the run went on by a row before"),
        ({}, {"ranks": 4, "packing": "whole"}, "batches are packed otherwise"),
        ({}, {"ranks": 4, "long_rows": "skip"}, "rows are skipped"),
    ],
)
def test_a_sidecar_of_other_batches_goes_on_at_its_row(
    family: Family, changed: Any, options: Any, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    log.setup()
    folder = family.folder / "parent"
    state = sidecar(folder, 1, 6, **changed)
    read = loader(folder, **options)
    read.load_state_dict(state)
    assert (read.progress.epoch, read.progress.row) == (1, state["global_row_cursor_in_epoch"])
    assert f"by its row, inexact: {why}" in capsys.readouterr().err
    del state["global_row_cursor_in_epoch"]
    with pytest.raises(UsageError, match="lacks the row to go on from"):
        read.load_state_dict(state)


def test_a_sidecar_of_other_data_is_refused(family: Family) -> None:
    state = sidecar(family.folder / "parent", 1, 6)
    for ranks in (4, 2):
        read = loader(family.folder / "stranger", ranks=ranks)
        with pytest.raises(InputError, match=r"state: saved with other data; got \d+ rows of [\d,]+ tokens from row"):
            read.load_state_dict(state)
    read = loader(family.folder / "stranger", ranks=2)
    read.load_state_dict(state, accept_other_data=True)
    assert read.progress.row == state["global_row_cursor_in_epoch"]
    bare = {name: value for name, value in state.items() if name not in {"global_numseq", "global_batch_totlen"}}
    read = loader(family.folder / "parent", ranks=4)
    with pytest.raises(InputError, match=r"saved with other data; got 7 micro-batches, which end at row"):
        read.load_state_dict({**bare, "batch_in_epoch": 7})
    with pytest.raises(UsageError, match="no such batch; got 998"):
        read.load_state_dict({**bare, "batch_in_epoch": 999})
    for wrong, what in (
        ({"epoch": 0}, "state: epoch: out of range"),
        ({"step": "x"}, "state: step: not an integer"),
        ({"batch_in_epoch": None}, "state: batch_in_epoch: not an integer"),
        ({"epoch": 9}, "position is past the end of the data"),
    ):
        with pytest.raises(UsageError, match=what):
            read.load_state_dict({**bare, **wrong})
    two = RowPlan(
        {"a": family.folder / "parent", "b": family.folder / "child"}, phases=[Phase("a"), Phase("b", step=3)]
    )
    with pytest.raises(UsageError, match="state: names no folder; got 2 folders"):
        Loader(two, batch_tokens=480).load_state_dict(state)
