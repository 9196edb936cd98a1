"""Steps and the rows in them, as lineage finds them in a plan, against the loader that reads the arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.errors import InputError, UsageError
from pairmill.formats.opened import open_result
from pairmill.lineage import batches as batches_module
from pairmill.lineage.batches import Batching, PlanBatches, Seen
from pairmill.loader import Loader, Phase, RowPlan, kept_batches
from pairmill.loader.row_plan import Tail
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from tests.support.data import dfm
from tests.support.tokenizers import shapes

RULES = """
- {prefix: opus_da_en__, long_context: drop}
- {prefix: synth_repeat30__, repeat: 3, long_context: split}
- {prefix: nemotron_swe__, long_context: split}
- {prefix: "", max_per_file: 60}
"""
EPOCHS, CONTEXT = 3, 600


class Sampled:
    """A plan, the arrays made of it, and the tokenized folder that it was drawn from."""

    def __init__(self, top: Path, tokenized: Path, **options: Any) -> None:
        top.mkdir(parents=True)
        (top / "rules.yaml").write_text(RULES)
        given = {"epochs": EPOCHS, "context_size": CONTEXT, "prefix_config_path": str(top / "rules.yaml"), **options}
        self.tokenized, self.arrays, self.root = tokenized, top / "arrays", top / "root"
        config = SampleConfig(
            tokenized_path=str(tokenized), root=str(self.root), output_path=str(self.arrays), workers=1, **given
        )
        self.plan = str(sample.run(config).parameters["output"])


@pytest.fixture(scope="module")
def tokenized(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenized") / "tokens"
    dfm.write(folder, 24, 1800, tokens=True, even=True, vocab_size=280)
    (folder / "tokenizer.json").write_text(shapes.shaped("qwen"))
    return folder


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory, tokenized: Path) -> Sampled:
    return Sampled(tmp_path_factory.mktemp("plan") / "one", tokenized)


def steps_of(plan: RowPlan, shape: Batching) -> list[list[tuple[int, int, int, int]]]:
    """The rows of each global batch as the loader hands them out: source, epoch, place, rank."""
    ranks = shape.ranks * shape.parts
    result: list[list[tuple[int, int, int, int]]] = []
    for rank in range(ranks):
        loader = Loader(plan, batch_tokens=shape.batch_tokens, rank=rank, ranks=ranks)
        for number, rows in enumerate(batches(loader)):
            if number == len(result):
                result.append([])
            result[number] += [(*row, rank // shape.parts) for row in rows]
        loader.close()
    return result


def batches(loader: Loader) -> Iterator[list[tuple[int, int, int]]]:
    while True:
        before = loader.position
        for batch in loader.epoch():
            yield [tuple(row) for row in batch.rows.tolist()]
        if loader.position == before:
            return


def options_of(shape: Batching) -> dict[str, Any]:
    names = ("packing", "balance", "tail", "long_rows", "one_token_rows")
    return {name: getattr(shape, name) for name in names}


SHAPES = [
    Batching(batch_tokens=6000),
    Batching(batch_tokens=6000, ranks=4, packing="whole"),
    Batching(batch_tokens=6000, ranks=4, packing="ranks"),
    Batching(batch_tokens=6000, ranks=2, packing="whole", tail="carry"),
    Batching(batch_tokens=9000, ranks=3, packing="ranks", tail="carry", balance="quadratic"),
    Batching(batch_tokens=6000, ranks=3, packing="ranks", tail="keep", balance="quadratic_work"),
    Batching(batch_tokens=2000, ranks=5, packing="ranks", long_rows="skip", one_token_rows="skip"),
    Batching(batch_tokens=6000, ranks=2, parts=2, packing="whole", tail="keep", balance="quadratic"),
]


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_every_step_has_the_rows_that_the_loader_hands_out(sampled: Sampled, shape: Batching) -> None:
    expected = steps_of(RowPlan(sampled.arrays, **options_of(shape)), shape)
    made = PlanBatches.open(sampled.plan, shape)
    assert len(expected) > 20
    for step in np.random.default_rng(7).permutation(len(expected)).tolist()[:125]:
        assert sorted(made.batch(step + 1)) == sorted(expected[step])
    with pytest.raises(UsageError, match=f"no such step.*expected 1 to {len(expected):,}"):
        made.batch(len(expected) + 1)


@pytest.mark.parametrize("shape", SHAPES, ids=range(len(SHAPES)))
def test_every_row_was_seen_in_the_step_that_has_it(sampled: Sampled, shape: Batching) -> None:
    made = PlanBatches.open(sampled.plan, shape)
    expected = {
        (epoch, place): Seen(epoch, place, number + 1, rank)
        for number, rows in enumerate(steps_of(RowPlan(sampled.arrays, **options_of(shape)), shape))
        for _, epoch, place, rank in rows
    }
    every = [(epoch, place) for epoch in range(EPOCHS) for place in range(made.rows[0].length(epoch))]
    draw = np.random.default_rng(3)
    some = [every[at] for at in draw.permutation(len(every)).tolist()[:300]] + every[-3:] + every[:3]
    assert list(made.seen(some)) == [expected.get(at, Seen(at[0], at[1], 0, -1)) for at in sorted(set(some))]


def test_a_step_of_several_batches_is_of_one_epoch(sampled: Sampled) -> None:
    shape = Batching(batch_tokens=6000, ranks=2, accumulate=3)
    rows = steps_of(RowPlan(sampled.arrays), shape)
    epochs = [[part for part in rows if part[0][1] == epoch] for epoch in range(EPOCHS)]
    assert any(len(part) % 3 for part in epochs)
    expected = [
        [row for batch in part[at : at + 3] for row in batch] for part in epochs for at in range(0, len(part) - 2, 3)
    ]
    made = PlanBatches.open(sampled.plan, shape)
    assert [sorted(made.batch(step + 1)) for step in range(len(expected))] == [sorted(part) for part in expected]
    left = [row for part in epochs for at in range(len(part) // 3 * 3, len(part)) for row in part[at]]
    assert {item.step for item in made.seen([(epoch, place) for _, epoch, place, _ in left])} == {0}


@pytest.mark.parametrize("layout", ["data_io", "reference"])
def test_rows_have_the_tokens_that_they_are_named_by(tokenized: Path, tmp_path: Path, layout: str) -> None:
    made = Sampled(tmp_path / "other", tokenized, layout=layout)
    traced = PlanBatches.open(made.plan, Batching(batch_tokens=6000, ranks=2), tokenized=str(made.tokenized))
    tokens = open_result(made.arrays)
    source = open_result(made.tokenized)
    pieces = 0
    for step in (1, 7, 30):
        places = traced.batch(step)
        for place, (task, number, piece, *sizes) in zip(places, traced.names(places), strict=True):
            prompt, response = tokens.tokens(epoch=place.epoch)[place.place]
            assert sizes == [len(prompt), len(response)]
            whole, answer = source.tokens(task)[number]
            pieces += piece > 0
            assert (piece > 0) or (prompt.tolist() == whole.tolist()[-len(prompt) :])
            assert response.tolist() in [answer.tolist()[at : at + len(response)] for at in range(len(answer))]
            again = [item for item in traced.passes({task: np.array([number])}) if item.piece == piece]
            assert (place.epoch, place.place) in [(item.epoch, item.place) for item in again]


def test_a_row_is_found_each_time_that_it_was_drawn(sampled: Sampled) -> None:
    traced = PlanBatches.open(sampled.plan, tokenized=str(sampled.tokenized))
    tokens, source = open_result(sampled.arrays), open_result(sampled.tokenized)
    for task in source.tasks:
        numbers = np.arange(0, len(source.tokens(task)), 7)
        passes = list(traced.passes({task: numbers}))
        by_answer: dict[bytes, set[int]] = {}
        for number in numbers.tolist():
            by_answer.setdefault(source.tokens(task)[number][1].tobytes(), set()).add(number)
        for item in passes:
            prompt, response = tokens.tokens(epoch=item.epoch)[item.place]
            assert len(prompt)
            assert response.tolist()[:3] == source.tokens(task)[item.number][1].tolist()[:3] or item.piece
    repeated = next(task for task in source.tasks if task.startswith("synth_repeat30__"))
    times = [item for item in traced.passes({repeated: np.array([0])}) if item.piece == 0]
    assert len(times) == 3 * EPOCHS


def test_several_plans_are_read_in_phases(tokenized: Path, sampled: Sampled, tmp_path: Path) -> None:
    other = Sampled(tmp_path / "two", tokenized, seed=5, epochs=2)
    phases = (Phase("one"), Phase("two", step=25), Phase("one", tokens=400_000), Phase("two", epoch=2))
    shape = Batching(batch_tokens=6000, ranks=2, packing="whole", phases=phases)
    plan = RowPlan({"one": sampled.arrays, "two": other.arrays}, packing="whole", phases=phases)
    expected = steps_of(plan, shape)
    made = PlanBatches({"one": open_result(sampled.plan), "two": open_result(other.plan)}, shape)
    assert [sorted(made.batch(step + 1)) for step in range(len(expected))] == [sorted(part) for part in expected]


def test_what_no_training_did_is_refused(sampled: Sampled, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="longest row does not fit"):
        PlanBatches.open(sampled.plan, Batching(batch_tokens=900, ranks=3)).batch(1)
    with pytest.raises(InputError, match="not a plan of sample"):
        PlanBatches.open(str(sampled.tokenized))


@pytest.mark.parametrize("tail", ["drop", "carry"])
def test_positions_that_a_training_noted_lead_to_the_same(sampled: Sampled, tail: Tail) -> None:
    shape = Batching(batch_tokens=6000, ranks=3, tail=tail)
    loader = Loader(RowPlan(sampled.arrays, tail=tail), batch_tokens=6000, rank=0, ranks=3)
    marks = [loader.position]
    for number, _ in enumerate(batches(loader), 1):
        if number % 7 == 0:
            marks.append(loader.position)
    loader.close()
    whole = PlanBatches.open(sampled.plan, shape)
    noted = PlanBatches.open(sampled.plan, replace(shape, marks=marks))
    last = marks[-1].batches
    assert all(noted.batch(step) == whole.batch(step) for step in range(1, last + 1, 5))
    with pytest.raises(UsageError, match=f"expected 1 to {last:,}"):
        noted.batch(last + 1)
    places = [(epoch, place) for epoch in range(EPOCHS) for place in range(0, whole.rows[0].length(epoch), 37)]
    expected = [item if item.step <= last else Seen(item.epoch, item.place, 0, -1) for item in whole.seen(places)]
    assert list(noted.seen(places)) == expected


def test_a_plan_is_walked_once(sampled: Sampled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAIRMILL_CACHE", str(tmp_path))
    monkeypatch.setattr(kept_batches, "LEAST", 100)
    shape = Batching(batch_tokens=6000, ranks=4)
    first = PlanBatches.open(sampled.plan, shape)
    with pytest.raises(UsageError) as refused:
        first.batch(10**6)
    last = int(refused.value.expected.rpartition(" ")[2])
    wanted = {step: first.batch(step) for step in (1, last // 2, last)}
    monkeypatch.setattr(batches_module, "RowLengths", None)
    # The trainer's arrays have the same rows, so their batches are known too.
    assert RowPlan(sampled.arrays).folders[0].sample == open_result(sampled.plan).manifest.fingerprint  # type: ignore[union-attr]
    again = PlanBatches.open(sampled.plan, shape)
    assert {step: again.batch(step) for step in wanted} == wanted
    place = wanted[last][0]
    assert [*again.seen([place[1:3]])] == [Seen(place.epoch, place.place, last, place.rank)]
    with pytest.raises(TypeError):
        PlanBatches.open(sampled.plan, replace(shape, ranks=2)).batch(1)
