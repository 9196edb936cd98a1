"""``inspect`` against a loop over rows in plain Python, and what its report says."""

import json
import re
import tracemalloc
from dataclasses import replace
from inspect import signature
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from pairmill.errors import InputError, UsageError
from pairmill.formats.tokens import INDEX
from pairmill.interface import cli
from pairmill.loader import Loader
from pairmill.loader.plan import World
from pairmill.loader.row_plan import RowPlan
from pairmill.report.model import Table
from pairmill.stages.sample.command import COMMANDS
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.inspect.command import inspect
from pairmill.stages.sample.inspect.command import look as made
from pairmill.stages.sample.inspect.config import InspectConfig
from pairmill.stages.sample.inspect.report import _by_share, report_of
from pairmill.stages.sample.inspect.walk import COSTS, Spread, TrainingPreview, preview
from pairmill.stages.sample.run import run
from tests.support.data import samples
from tests.support.helpers import python

Pair = tuple[int, int]
"""Tokens of an instruction and of a response."""


def folder(path: Path, epochs: list[list[Pair]], *, context: int = 4097) -> Path:
    """A sampled folder as data_io makes it: no manifest, and metadata that do not say how many epochs there are."""
    total = 0
    for number, pairs in enumerate(epochs):
        place = path / f"epoch_{number}"
        place.mkdir(parents=True)
        inst, resp = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
        starts = total + np.cumsum(inst + resp) - inst - resp
        total += int((inst + resp).sum())
        for name, values in zip(INDEX, (starts, inst, starts + inst, resp), strict=True):
            np.save(place / f"{name}.npy", values.astype(np.int32))
    np.save(path / "tokens.npy", np.zeros(total, np.uint16))
    about = {
        "max_seq_len": context,
        "total_length": total // len(epochs),
        "vocab_size": None,
        "tokenizer_info": {"vocab_size": 500},
    }
    (path / "metadata.json").write_text(json.dumps(about))
    return path


def drawn(rows: int, seed: int, most: int = 100, least: int = 2) -> list[Pair]:
    draw = np.random.default_rng(seed)
    inst = np.clip(draw.lognormal(2, 0.8, rows), 1, most // 2).astype(int)
    resp = np.clip(draw.lognormal(2, 0.8, rows), least, most // 2).astype(int)
    return list(zip(inst.tolist(), resp.tolist(), strict=True))


# --- the same in plain Python: A4 and A6 of HRM-Text's loader ---------------------------------------------------------


def work(pair: Pair) -> float:
    prefix, queries = pair[0], pair[1] - 1
    return float(prefix**2 + prefix * queries + queries**2 / 2)


def length(pair: Pair) -> int:
    return pair[0] + pair[1] - 1


COST = dict(zip(COSTS, (length, lambda pair: length(pair) ** 2, work), strict=True))


def lpt(pairs: list[Pair], ranks: int, slots: int) -> list[list[Pair]] | None:
    """Rows of each rank; None if they do not fit."""
    heap = [(0, rank) for rank in range(ranks)]
    mine: list[list[Pair]] = [[] for _ in range(ranks)]
    for place in sorted(range(len(pairs)), key=lambda place: (length(pairs[place]), place), reverse=True):
        load, rank = heap[0]
        load += length(pairs[place])
        if load > slots:
            return None
        mine[rank].append(pairs[place])
        here = 0
        while (child := 2 * here + 1) < ranks:
            if child + 1 < ranks and heap[child + 1][0] < heap[child][0]:
                child += 1
            if load <= heap[child][0]:
                break
            heap[here] = heap[child]
            here = child
        heap[here] = (load, rank)
    return mine


def by_cost(pairs: list[Pair], ranks: int, slots: int, cost: Any) -> list[list[Pair]]:
    mine: list[list[Pair]] = [[] for _ in range(ranks)]
    for place in sorted(range(len(pairs)), key=lambda place: (length(pairs[place]), place), reverse=True):
        roomy = [
            (sum(map(cost, one)), sum(map(length, one)), rank)
            for rank, one in enumerate(mine)
            if sum(map(length, one)) + length(pairs[place]) <= slots
        ]
        if not roomy:
            return lpt(pairs, ranks, slots) or []
        mine[min(roomy)[2]].append(pairs[place])
    return mine


DEAL: dict[str, Any] = {
    "lpt": lpt,
    "quadratic": lambda *given: by_cost(*given, COST["length²"]),
    "quadratic_work": lambda *given: by_cost(*given, work),
}


def batches(pairs: list[Pair], ranks: int, slots: int, *, keep: bool = False) -> list[list[Pair]]:
    """Global batches of an epoch; no row may be longer than the slots."""
    found, start = [], 0
    while start < len(pairs):
        count = 1
        while start + count < len(pairs) and lpt(pairs[start : start + count + 1], ranks, slots):
            count += 1
        at_end = start + count == len(pairs)
        if count >= ranks and (keep or not at_end):
            found.append(pairs[start : start + count])
        start += count
    return found


def look(path: Path, ranks: int, batch_tokens: int, **options: Any) -> TrainingPreview:
    return preview(RowPlan(path, **options), World(ranks, batch_tokens))


@pytest.mark.parametrize(("ranks", "slots", "tail"), [(4, 300, "drop"), (1, 500, "drop"), (3, 128, "keep")])
def test_figures_are_those_of_a_loop_over_rows(tmp_path: Path, ranks: int, slots: int, tail: str) -> None:
    epochs = [drawn(900, 1), drawn(833, 2)]
    outlook = look(folder(tmp_path / "x", epochs), ranks, ranks * slots, tail=tail)
    expected = [batches(pairs, ranks, slots, keep=tail == "keep") for pairs in epochs]
    every = [batch for epoch in expected for batch in epoch]
    assert len(every) > 10
    for pairs, epoch, found in zip(epochs, expected, outlook.epochs, strict=True):
        given = [pair for batch in epoch for pair in batch]
        left = pairs[len(given) :]
        assert found.batches == len(epoch)
        assert (found.rows, found.rows_left, found.rows_skipped) == (len(given), len(left), 0)
        assert (found.inputs, found.inputs_left) == (sum(map(length, given)), sum(map(length, left)))
        assert found.targets == sum(pair[1] for pair in given)
        assert outlook.slots(found) == len(epoch) * ranks * slots
    assert outlook.total.batches == len(every)
    assert outlook.used == [sum(map(length, batch)) for batch in every]
    assert (outlook.rows, outlook.long, outlook.one_token, outlook.failed) == (1733, 0, 0, {})

    for balance, deal in DEAL.items():
        dealt = [deal(batch, ranks, slots) for batch in every]
        for name, cost in COST.items():
            sums = [[sum(map(cost, one)) for one in batch] for batch in dealt]
            burden = outlook.imbalance[balance]  # type: ignore[index]
            overall = sum(map(max, sums)) / sum(sum(one) / ranks for one in sums)
            assert burden.overall[name] == pytest.approx(overall, rel=1e-12), (balance, name)
            assert burden.worst[name] == pytest.approx(max(max(one) / sum(one) * ranks for one in sums), rel=1e-12)
    dealt = [lpt(batch, ranks, slots) or [] for batch in every]
    for spread, sizes in (
        (outlook.rank_rows, [len(one) for batch in dealt for one in batch]),
        (outlook.rank_inputs, [sum(map(length, one)) for batch in dealt for one in batch]),
    ):
        middle = sorted(sizes)[(len(sizes) - 1) // 2]
        assert [spread.at(share) for share in (0, 0.5, 1)] == [min(sizes), middle, max(sizes)]

    lengths = [length(pair) for pairs in epochs for pair in pairs]
    assert outlook.lengths.sum() == 1733
    assert outlook.lengths[5] == sum(16 < one <= 32 for one in lengths)
    assert [row.inputs for row in outlook.longest] == sorted(lengths, reverse=True)[:10]
    for row in outlook.longest:
        assert epochs[row.epoch][row.row] == (row.inst_len, row.resp_len)


def test_the_chosen_balance_is_what_ranks_and_verdict_are_about(tmp_path: Path) -> None:
    path = folder(tmp_path / "x", [drawn(900, 3)])
    one, other = (look(path, 4, 1200, balance=balance) for balance in ("lpt", "quadratic_work"))
    assert next(iter(one.imbalance)) == "lpt"
    assert next(iter(other.imbalance)) == "quadratic_work"
    assert {name: burden.overall for name, burden in one.imbalance.items()} == {
        name: burden.overall for name, burden in other.imbalance.items()
    }
    assert one.rank_inputs.at(0) > other.rank_inputs.at(0)
    lowered = inspect(InspectConfig(path=str(path), ranks=4, batch_tokens=1200))
    burden = one.imbalance["quadratic_work"].overall["attention work"]
    assert f": balance=quadratic_work lowers it to {burden:.2f}.\n" in lowered
    assert "lowers it" not in inspect(
        InspectConfig(path=str(path), ranks=4, batch_tokens=1200, balance="quadratic_work")
    )


def test_rows_carried_over_are_counted_once(tmp_path: Path) -> None:
    """The last epochs have less than a batch, so that one batch ends in the third and what is left lies in the last."""
    epochs = [drawn(300, 4), drawn(5, 5), drawn(9, 6), drawn(3, 7)]
    path = folder(tmp_path / "x", epochs)
    outlook = look(path, 4, 1200, tail="carry")
    for pairs, found in zip(epochs, outlook.epochs, strict=True):
        assert found.rows_left <= len(pairs)
    total = outlook.total
    assert (total.rows + total.rows_left, total.rows_skipped) == (317, 0)
    assert total.inputs + total.inputs_left == sum(length(pair) for pairs in epochs for pair in pairs)
    stream = [pair for pairs in epochs for pair in pairs]
    expected = batches(stream, 4, 300)
    assert outlook.used == [sum(map(length, batch)) for batch in expected]
    assert total.rows_left == len(stream) - sum(map(len, expected)) > 3


def test_skipped_rows_are_counted_by_why(tmp_path: Path) -> None:
    pairs = drawn(300, 8)
    pairs[5], pairs[50], pairs[299] = (200, 150), (100, 1), (400, 400)
    pairs[7:10] = [(20, 1)] * 3
    path = folder(tmp_path / "x", [pairs])
    skipped = look(path, 4, 1200, long_rows="skip", one_token_rows="skip")
    assert skipped.epochs[0].rows_skipped == 6
    assert (skipped.long, skipped.one_token) == (2, 4)
    rest = [pair for pair in pairs if length(pair) <= 300 and pair[1] > 1]
    assert skipped.used == [sum(map(length, batch)) for batch in batches(rest, 4, 300)]
    assert skipped.epochs[0].rows + skipped.epochs[0].rows_left == len(rest)
    assert [(row.row, row.inst_len, row.resp_len) for row in skipped.longest[:3]] == [
        (299, 400, 400),
        (5, 200, 150),
        (50, 100, 1),
    ]
    said = inspect(InspectConfig(path=str(path), ranks=4, batch_tokens=1200, long_rows="skip", one_token_rows="skip"))
    assert "6 of 300 rows are skipped: 2 are longer than a rank's slots and 4 have a response of one token." in said
    said = inspect(InspectConfig(path=str(path), ranks=4, batch_tokens=1200, long_rows="skip"))
    assert "2 of 300 rows are skipped: 2 are longer than a rank's slots." in said


def test_a_row_of_every_epoch_is_one_of_the_longest_once(tmp_path: Path) -> None:
    path = folder(tmp_path / "x", [drawn(200, 9)])
    for number in (1, 2):
        (path / f"epoch_{number}").mkdir()
        for name in INDEX:
            array = np.load(path / "epoch_0" / f"{name}.npy")
            np.save(path / f"epoch_{number}" / f"{name}.npy", np.roll(array, number))
    longest = look(path, 2, 600).longest
    assert len(longest) == 10
    assert {row.epoch for row in longest} == {0}
    assert len({row.row for row in longest}) == 10


def test_a_balance_that_cannot_deal_is_said_and_the_others_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(tmp_path / "x", [drawn(200, 10)])
    whole = RowPlan.draw

    def draw(plan: RowPlan, position: Any, world: World) -> Any:
        if plan.balance == "quadratic" and position.batches == 2:
            raise InputError("cannot be")
        return whole(plan, position, world)

    monkeypatch.setattr(RowPlan, "draw", draw)
    assert list(look(path, 2, 600).imbalance) == ["lpt", "quadratic_work"]
    said = inspect(InspectConfig(path=str(path), ranks=2, batch_tokens=600))
    assert "look at: balance=quadratic cannot pack these rows: cannot be" in said


def test_memory_does_not_grow_with_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairmill.stages.sample.inspect.walk._CHUNK", 1 << 16)
    peaks = []
    for rows in (20_000, 80_000):
        path = folder(tmp_path / str(rows), [drawn(rows, 11)])
        plan = RowPlan(path)
        tracemalloc.start()
        preview(plan, World(2, 8192))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 80_000


# --- the report -----------------------------------------------------------------------------------------------------


def test_the_report_says_what_is_unusual(tmp_path: Path) -> None:
    pairs = drawn(500, 12)
    pairs[3] = (150, 140)
    pairs[4] = (10, 1)
    path = folder(tmp_path / "x", [pairs, pairs], context=257)
    config = InspectConfig(path=str(path), ranks=4, batch_tokens=1200)
    plan = RowPlan(path)
    outlook = preview(plan, World(4, 1200))
    report = report_of(outlook, plan.folders[0].metadata, config)
    total = outlook.total
    assert report.verdict.startswith(f"{total.batches} steps: ")
    said = "\n".join(report.look_at)
    assert "The longest row has 289 inputs, and the model's positions end at 256" in said
    assert re.search(rf"{total.rows_left} rows with \d+\.\d% of the tokens are left over: tail=carry", said)
    assert re.search(r"\d+\.\d% of the slots are padding: the longest row takes 96.3% of a rank's", said)
    estimate = sum(map(sum, pairs)) * 2 // 1200
    assert estimate > total.batches
    assert f"learning rate for {estimate} steps, {estimate - total.batches} more " in said
    assert "2 of 1,000 rows have a response of one token" in said
    assert report.figures["Steps, HRM-Text's estimate"] == estimate
    assert report.figures["Steps"] == total.batches
    page = report.html()
    assert len(page) < 100_000
    assert "<script" not in page
    for heading in ("Slots and tokens by epoch", "Rows over all epochs by length", "Longest rows", "A rank's batch"):
        assert f">{heading}</h2>" in page
    assert page.count("<svg") == 2


def test_an_even_folder_has_nothing_to_look_at(tmp_path: Path) -> None:
    path = folder(tmp_path / "x", [[(129, 128)] * 4_000])
    text = inspect(InspectConfig(path=str(path), ranks=2, batch_tokens=2 * 512))
    assert "look at" not in text
    assert (
        "999 steps: 100% of their slots are used, 0.1% of the rows are left over; "
        "the busiest rank has 1.00 times the mean attention work.\n"
    ) in text
    alone = inspect(InspectConfig(path=str(path), ranks=1, batch_tokens=512))
    assert "busiest rank" not in alone
    assert "Balance of the ranks" not in alone


def test_shares_are_counted_between_round_numbers() -> None:
    shares = np.array([0.5, *[0.9951] * 40, *[0.9975] * 30, *[1.0] * 29])
    found = _by_share(shares)
    assert sum(count for _, count in found) == 100
    labels = [label for label, _ in found]
    assert labels[0].startswith("< ")
    assert all(first < second for first, second in pairwise(labels[1:]))
    assert [count for _, count in found if count] == [1, 40, 30, 29]
    assert _by_share(np.ones(3)) == [("≥ 99.99%", 3)]


def test_a_spread_finds_numbers_by_rank() -> None:
    spread = Spread(10)
    spread.add(np.array([3, 3, 7]))
    spread.add(np.array([9]))
    assert [spread.at(share) for share in (0, 0.5, 0.75, 1)] == [3, 3, 7, 9]


# --- the command ----------------------------------------------------------------------------------------------------


def command(*arguments: str) -> int:
    return cli.main("sample", SampleConfig, run, ["inspect", *arguments], COMMANDS)


def test_batches_that_are_packed_whole_are_those_of_the_loader(tmp_path: Path) -> None:
    path = folder(tmp_path, [drawn(300, 1), drawn(250, 2), [*drawn(3, 4, 60), (30, 60), *drawn(90, 3)]])
    for ranks, tokens, tail, options in ((4, 600, "carry", {}), (2, 90, "keep", {"long_rows": "skip"})):
        plan = RowPlan(path, packing="whole", tail=tail, **options)
        rank = Loader(plan, batch_tokens=tokens, ranks=ranks, threads=0)
        count = sum(1 for _ in rank)
        given = InspectConfig(path=str(path), ranks=ranks, batch_tokens=tokens, packing="whole", tail=tail, **options)
        walked = preview(plan, World(ranks, tokens)).total
        assert walked.batches == count > 10
        assert walked.rows + walked.rows_left + walked.rows_skipped == 644
        assert f"{count:,} steps: " in inspect(given)
        rank = Loader(plan, batch_tokens=tokens, ranks=ranks, threads=0)
        for _ in islice(rank, 7):
            pass
        state = tmp_path / "state.json"
        state.write_text(json.dumps(rank.state_dict()))
        left = made(replace(given, state=str(state)))
        assert left.figures["Micro-batches left"] == count - 7


def test_the_command_writes_a_summary_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder(tmp_path / "x", [drawn(300, 13)])
    page = tmp_path / "new" / "report.html"
    assert command(f"path={path}", "ranks=4", "batch_tokens=1200", f"report={page}") == 0
    out, err = capsys.readouterr()
    assert out.startswith("# inspect\n\n")
    assert "| lpt (chosen) |" in out
    assert page.read_text().startswith("<!doctype html>")
    lines = [json.loads(line) for line in err.splitlines()]
    assert [line["message"].partition(" in ")[0] for line in lines] == ["inspect: 1/1 epochs", f"report: {page}"]
    assert lines[0]["epochs"] == lines[0]["epochs_planned"] == 1
    assert command(f"path={path}", "ranks=4", "batch_tokens=1200") == 0
    assert capsys.readouterr().out == out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "path: required option missing"),
        (["rank=4"], 2, "rank: unknown option; expected one of path, ranks, .*; did you mean 'ranks'"),
        (["ranks=0"], 2, "ranks: out of range; got 0"),
        (["ranks=7"], 2, "batch_tokens: cannot be divided equally; got 196,608 tokens for 7 ranks"),
        (["balance=even"], 2, "balance: .*expected lpt|quadratic|quadratic_work"),
        (["tail=cut"], 2, "tail: .*expected drop|keep|carry"),
        (["long_rows=keep"], 2, "long_rows: .*expected refuse|skip"),
        (["one_token_rows=refuse"], 2, "one_token_rows: .*expected keep|skip"),
        (["report=/"], 2, "report: is a folder; got /; expected a file"),
        (["path=/nowhere"], 3, "/nowhere: not a sampled folder"),
        (["ranks=4", "batch_tokens=80"], 3, r"rows are longer than a rank's slots; .*batch_tokens=\d+ or more"),
        (["ranks=4", "batch_tokens=65536"], 3, "the whole epoch is at most one batch"),
    ],
)
def test_what_cannot_be_is_said_as_the_loader_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    path = folder(tmp_path / "x", [drawn(300, 14)])
    if arguments and not arguments[0].startswith("path="):
        arguments = [f"path={path}", *arguments]
    assert command(*arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    message = json.loads(err.splitlines()[-1])["message"]
    assert all(re.search(one, message) for one in said.split("|")), message


def test_options_take_what_a_plan_takes() -> None:
    """They are named a second time so that they are read without the loader, and at the start of no other command."""
    ours, plans = get_type_hints(InspectConfig), get_type_hints(RowPlan.__init__)
    defaults = signature(RowPlan).parameters
    for name in ("balance", "tail", "long_rows", "one_token_rows"):
        assert get_args(ours[name]) == get_args(plans[name]), name
        assert getattr(InspectConfig(path="x"), name) == defaults[name].default, name
    heavy = {"pairmill.stages.sample.inspect.walk", "pairmill.loader", "pairmill.report.model"}
    for module, loaded in (("sample.command", False), ("sample.inspect.config", True)):
        done = python("-c", f"import sys, pairmill.stages.{module}; print(*sorted(sys.modules))")
        names = set(done.stdout.split())
        assert ("pairmill.stages.sample.inspect.config" in names) == loaded
        assert f"pairmill.stages.{module}" in names
        assert not names & heavy


def test_inspect_imports_nothing_heavy(tmp_path: Path) -> None:
    """What the process has loaded when it ends: the sampler's image has no more than its extra."""
    path = folder(tmp_path / "x", [drawn(300, 15)])
    program = (
        "import sys; from pairmill.stages.sample.inspect.config import InspectConfig; "
        "from pairmill.stages.sample.inspect.command import inspect; "
        "inspect(InspectConfig(path=sys.argv[1], ranks=4, batch_tokens=1200)); print(*sys.modules)"
    )
    done = python("-c", program, str(path))
    assert done.returncode == 0, done.stderr
    names = {name.partition(".")[0] for name in done.stdout.split()}
    assert {"numpy", "pairmill"} <= names
    assert not names & {"pyarrow", "kfp", "datasets", "tokenizers", "torch", "pandas", "httpx", "huggingface_hub"}


# --- what is left ---------------------------------------------------------------------------------------------------


def test_what_a_state_has_left_is_counted(tmp_path: Path) -> None:
    folder = samples.sampled(tmp_path / "sampled", [[(3, 4)] * 100, [(2, 6)] * 120])
    with Loader(RowPlan(folder), batch_tokens=60, ranks=2, threads=0) as loader:
        batches = list(loader)
        loader.load_state_dict(loader.plan.state(loader.plan.begin()))
        list(islice(loader, 4))
        state, left = loader.state_dict(), loader.steps_left(accumulate=3)
    saved = tmp_path / "state.json"
    record = tmp_path / "_RECORD.json"
    beside = tmp_path / "checkpoint_state_step_2.json"
    saved.write_text(json.dumps(state))
    record.write_text(json.dumps({"says": {"feed": state, "step": 4}}))
    sidecar = {"step": 2, "epoch": 1, "batch_in_epoch": 4, "local_batch_size": 30, "gradient_accumulation_steps": 2}
    beside.write_text(json.dumps(sidecar))
    for file, step in ((saved, 1), (record, 1), (beside, 2)):
        config = InspectConfig(path=str(folder), ranks=2, batch_tokens=60, state=str(file), accumulate=3)
        report = made(config)
        assert report.figures["Micro-batches left"] == left.micro_batches == len(batches) - 4
        assert (report.figures["Steps left"], report.figures["Micro-batches left over"]) == (left.steps, left.left_over)
        assert report.figures["Steps at the end"] == step + left.steps
        assert report.figures["Row"] == f"{state['start_row']} of 100 of epoch 0"
    (whole,) = made(InspectConfig(path=str(folder), ranks=2, batch_tokens=60, accumulate=3)).sections
    assert isinstance(whole, Table)
    counts = [sum(batch.epoch == epoch for batch in batches) for epoch in (0, 1)]
    assert whole.rows == [(f"epoch_{epoch}", count, count // 3, count % 3) for epoch, count in enumerate(counts)]
    for text in ("{", "[]", '{"says": {}}'):
        saved.write_text(text)
        with pytest.raises(UsageError, match="not a saved position"):
            made(InspectConfig(path=str(folder), state=str(saved)))
