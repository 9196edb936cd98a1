"""Near deduplication of random rows: what holds for all of them."""

from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill import _native
from tests.support.stages.near_in_memory import Sketches, deduplicated, resolved, sketches, verified

# Few words, so that rows resemble each other; typing errors, numbers, symbols and other scripts among them.
WORDS = st.sampled_from(
    [
        "letter",
        "leter",
        "lettre",
        "straße",
        "STRASSE",
        "river",
        "3",
        "1,000",
        "+",
        "**",
        "水",
        "मनुष्य",
        "ok",
        "-",
        "e\u0301te",
    ]
)
PROSE = st.lists(WORDS, max_size=40).map(" ".join)
LONG = st.lists(st.sampled_from([f"word{letter}" for letter in "abcdefgh"]), min_size=20, max_size=60).map(" ".join)
TEXTS = PROSE | LONG | st.text(max_size=20)
ALL_SETTINGS = st.builds(
    _native.NearSettings,
    fields=st.sampled_from(["pair", "instruction", "response"]),
    number_guard=st.sampled_from(["both", "instruction", "off"]),
    min_response=st.integers(0, 25),
    min_instruction=st.integers(0, 25),
)


@st.composite
def edited(draw: st.DrawFn) -> list[tuple[str, str]]:
    """Draw rows, most of which are edits of each other."""
    bases = draw(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=4))
    rows = []
    for instruction, response in draw(st.lists(st.sampled_from(bases), min_size=2, max_size=30)):
        words = instruction.split(" ")
        if draw(st.booleans()):
            words[draw(st.integers(0, len(words) - 1))] = draw(WORDS)
        rows.append((" ".join(words), response + draw(st.sampled_from(["", " ok", "."]))))
    return rows


def columns(rows: list[tuple[str, str]]) -> tuple[pa.Array, pa.Array]:
    instruction, response = zip(*rows, strict=True)
    return pa.array(instruction, pa.utf8()), pa.array(response, pa.utf8())


@settings(deadline=None)
@given(edited(), ALL_SETTINGS)
def test_a_verdict_is_the_same_from_both_sides(rows: list[tuple[str, str]], choice: _native.NearSettings) -> None:
    a, b = columns(rows), columns(rows[::-1])
    assert verified(a, b, choice) == verified(b, a, choice)


@settings(deadline=None)
@given(edited(), ALL_SETTINGS)
def test_sketches_give_the_verdict_that_texts_give(rows: list[tuple[str, str]], choice: _native.NearSettings) -> None:
    instruction, response = columns(rows)
    offsets, data, *_ = _native.curate_sketches(instruction, response, choice)
    first = pa.array([0] * (len(rows) - 1))
    verdicts = verified((instruction.take(first), response.take(first)), (instruction[1:], response[1:]), choice)
    for other in range(1, len(rows)):
        made = Sketches(offsets, data, np.array([[0, other]], np.uint32))
        found = resolved(made, choice)
        duplicate, *verdict = verdicts[other - 1]
        if duplicate:
            finding = found.removed[other]
            assert finding.other == 0
            assert [finding.rule, finding.score_i, finding.score_r] == verdict
        else:
            assert not found.removed
        assert found.verifications == 1


@settings(deadline=None)
@given(edited(), ALL_SETTINGS, st.integers(0, 3))
def test_a_removed_row_is_a_duplicate_of_a_kept_row_before_it(
    rows: list[tuple[str, str]], choice: _native.NearSettings, fixed: int
) -> None:
    instruction, response = columns(rows)
    found = deduplicated(instruction, response, choice, fixed=fixed)
    assert all(row >= fixed for row in found.removed)
    for row, finding in found.removed.items():
        assert finding.other < row
        assert finding.other not in found.removed
        a, b = ((instruction[place : place + 1], response[place : place + 1]) for place in (row, finding.other))
        [(duplicate, rule, *_)] = verified(a, b, choice)
        assert (duplicate, rule) == (True, finding.rule)


@settings(deadline=None)
@given(edited(), ALL_SETTINGS, st.randoms())
def test_the_order_in_which_keys_and_edges_come_does_not_matter(
    rows: list[tuple[str, str]], choice: _native.NearSettings, random: Random
) -> None:
    instruction, response = columns(rows)
    _, _, keys, key_rows, _ = _native.curate_sketches(instruction, response, choice)
    ids = key_rows.astype(np.uint64)
    mixed = np.array(random.sample(range(len(keys)), len(keys)), np.int64)
    for one, other in zip(
        _native.curate_near_buckets(keys, ids, 1), _native.curate_near_buckets(keys[mixed], ids[mixed], 1), strict=True
    ):
        assert one.tolist() == other.tolist()
    made = sketches(instruction, response, choice)
    mixed = np.array(random.sample(range(len(made.edges)), len(made.edges)), np.int64)
    edges = np.ascontiguousarray(made.edges[mixed][:, ::-1])
    assert resolved(made, choice) == resolved(Sketches(made.offsets, made.data, edges), choice)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=80), min_size=1, max_size=4), edited(), st.data())
def test_bytes_that_are_not_a_sketch_are_an_error(
    hostile: list[bytes], rows: list[tuple[str, str]], data: st.DataObject
) -> None:
    choice = _native.NearSettings()
    offsets, sketch, *_ = _native.curate_sketches(*columns(rows), choice)
    cut = bytearray(sketch[: int(offsets[1])].tobytes())
    cut[data.draw(st.integers(0, len(cut) - 1))] = data.draw(st.integers(0, 255))
    parts = [*hostile, bytes(cut)[: data.draw(st.integers(0, len(cut)))], sketch[: int(offsets[1])].tobytes()]
    ends = np.cumsum([0, *map(len, parts)]).astype(np.uint64)
    joined = np.frombuffer(b"".join(parts), np.uint8)
    count = len(parts)
    with pytest.raises(ValueError, match="not a valid sketch"):
        _native.curate_near_refine(
            ends, joined, np.arange(count, dtype=np.uint32), np.array([0, count], np.uint64), choice
        )
    edges = np.array([[0, count - 1]], np.uint32)
    order = np.arange(count, dtype=np.uint32)
    with pytest.raises(ValueError, match="not a valid sketch"):
        _native.curate_near_resolve(ends, joined, order, np.zeros(count, np.bool_), edges, choice)


def test_arrays_that_do_not_fit_are_an_error() -> None:
    choice = _native.NearSettings()
    offsets, data, keys, _, _ = _native.curate_sketches(pa.array(["a b", "c d"]), pa.array(["e", "f"]), choice)
    order, fixed = np.arange(2, dtype=np.uint32), np.zeros(2, np.bool_)
    edges = np.array([[0, 1]], np.uint32)
    with pytest.raises(ValueError, match="as many of each"):
        _native.curate_near_buckets(keys, np.zeros(len(keys) + 1, np.uint64), 0)
    with pytest.raises(ValueError, match="ascending offsets"):
        _native.curate_near_resolve(offsets[::-1].copy(), data, order, fixed, edges, choice)
    with pytest.raises(ValueError, match="order: got row 1 twice"):
        _native.curate_near_resolve(offsets, data, np.ones(2, np.uint32), fixed, edges, choice)
    with pytest.raises(ValueError, match="edges: got rows 0 and 2"):
        _native.curate_near_resolve(offsets, data, order, fixed, edges * 2, choice)
    with pytest.raises(ValueError, match="family_offsets"):
        _native.curate_near_refine(offsets, data, order, np.array([0, 3], np.uint64), choice)
    with pytest.raises(ValueError, match="members: got row 2; expected one of 2"):
        _native.curate_near_refine(offsets, data, order * 2, np.array([0, 2], np.uint64), choice)
    with pytest.raises(ValueError, match='number_guard: got "all"'):
        _native.NearSettings(number_guard="all")
    with pytest.raises(ValueError, match="bands: got 0"):
        _native.NearSettings(bands=0)
