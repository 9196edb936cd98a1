"""Near deduplication against the recorded cases, in memory: verdicts, recall, false removals, cost, documents."""

import json
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill import _native
from tests.support.stages.near_in_memory import Found, deduplicated, verified

SETTINGS = _native.NearSettings()


class Rows:
    """The rows of a folder's files, by name and then by row, which is their rank."""

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("[0-9]_*.parquet"))
        tables = [pq.read_table(file) for file in files]
        table = pa.concat_tables(tables).combine_chunks()
        self.instruction, self.response = (table[name].combine_chunks() for name in ("instruction", "response"))
        self.ids = [f"{file.name}:{row}" for file, part in zip(files, tables, strict=True) for row in range(len(part))]
        self.places = {row_id: place for place, row_id in enumerate(self.ids)}
        assert len(files) > 1
        assert len(self.ids) > 1000

    def deduplicated(self, rows: list[int]) -> Found:
        """Deduplicate some of the rows; the findings have their places among all."""
        return deduplicated(*self.taken(rows))

    def verified(self, pairs: list[dict[str, Any]]) -> list[tuple[bool, str, float, float]]:
        """Compare pairs of row ids."""
        a, b = (self.taken([self.places[pair[side]] for pair in pairs]) for side in "ab")
        return verified(a, b, SETTINGS)

    def taken(self, rows: list[int]) -> tuple[pa.Array, pa.Array]:
        """Return the instructions and responses of some rows."""
        return self.instruction.take(pa.array(rows)), self.response.take(pa.array(rows))


@cache
def rows_of(folder: Path) -> Rows:
    return Rows(folder)


def lines(path: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert found
    return found


@pytest.fixture
def dedup(shared: Path) -> Path:
    return shared / "conformance/curate/dedup"


@pytest.fixture
def documents(shared: Path) -> Path:
    return shared / "conformance/curate/documents"


def test_two_rows_have_the_recorded_verdict_rule_and_scores(dedup: Path) -> None:
    pairs = lines(dedup / "pairs.jsonl")
    found = rows_of(dedup).verified(pairs)
    assert [verdict[:2] for verdict in found] == [(pair["duplicate"], pair["rule"]) for pair in pairs]
    for field, place in (("instruction", 2), ("response", 3)):
        assert [verdict[place] for verdict in found] == pytest.approx([pair[field] for pair in pairs], abs=1e-9)


@cache
def of_the_suite(dedup: Path) -> tuple[dict[int, int], Found]:
    """Return the kept row of each row that exact or near deduplication removes, and what near found."""
    rows, truth = rows_of(dedup), pq.read_table(dedup / "truth.parquet").to_pylist()
    first: dict[str, int] = {}
    exact = {
        place: kept for place, row in enumerate(truth) if (kept := first.setdefault(row["exact_pair"], place)) != place
    }
    left = [place for place in range(len(truth)) if place not in exact]
    found = rows.deduplicated(left)
    return exact | {left[row]: left[finding.other] for row, finding in found.removed.items()}, found


def groups_of(dedup: Path) -> dict[int, tuple[str, list[int]]]:
    """Return the kind and the rows of each group of copies."""
    groups: dict[int, tuple[str, list[int]]] = {}
    for place, row in enumerate(pq.read_table(dedup / "truth.parquet").to_pylist()):
        assert row["row_id"] == rows_of(dedup).ids[place]
        groups.setdefault(row["group"], (row["kind"], []))[1].append(place)
    return groups


def test_the_suite_loses_its_copies_and_nothing_else(dedup: Path) -> None:
    removed, _ = of_the_suite(dedup)
    groups = groups_of(dedup)
    removable, found, false = Counter[str](), Counter[str](), Counter[str]()
    for kind, members in groups.values():
        gone = sum(member in removed for member in members)
        removable[kind] += len(members) - 1
        found[kind] += min(gone, len(members) - 1)
        false[kind] += gone == len(members)
    for kind in ("exact", "light"):
        assert found[kind] == removable[kind] > 0
    near = [kind for kind, count in removable.items() if count and kind not in ("exact", "light")]
    assert sum(found[kind] for kind in near) >= 0.999 * sum(removable[kind] for kind in near) > 0
    assert sum(false.values()) <= 0.001 * len(groups)
    reference = json.loads((dedup / "scores.json").read_text(encoding="utf-8"))
    for kind, scores in reference["reference"]["per_kind"].items():
        assert found[kind] >= scores["removed"], kind
        assert false[kind] <= scores["false_removed"], kind


def test_a_removed_row_of_the_suite_is_a_duplicate_of_the_kept_row_that_it_names(dedup: Path) -> None:
    removed, found = of_the_suite(dedup)
    group_of = {member: group for group, (_, members) in groups_of(dedup).items() for member in members}
    outside = [row for row, other in removed.items() if other in removed or group_of[row] != group_of[other]]
    # The reference too removes these: word problems with equal numbers (README, "Pair deduplication").
    assert len(outside) <= 3
    assert not [row for row in outside if removed[row] in removed]
    for kind, members in groups_of(dedup).values():
        assert members[0] not in removed or all(member in removed for member in members), kind
    ids = rows_of(dedup).ids
    pairs = [{"a": ids[row], "b": ids[other]} for row, other in removed.items()]
    assert all(duplicate for duplicate, *_ in rows_of(dedup).verified(pairs))
    assert found.removed


def test_the_suite_takes_at_most_three_verifications_a_row(dedup: Path) -> None:
    _, found = of_the_suite(dedup)
    assert found.verifications <= 3 * len(rows_of(dedup).ids)


def columns(path: Path, rows: int | None = None) -> tuple[pa.Array, pa.Array]:
    table = pq.read_table(path).slice(0, rows).combine_chunks()
    return table["instruction"].combine_chunks(), table["response"].combine_chunks()


def test_a_text_copied_six_hundred_times_stays_once(dedup: Path) -> None:
    instruction, response = columns(dedup / "copies.parquet")
    found = deduplicated(instruction, response)
    assert len(found.removed) >= 0.99 * (len(instruction) - 1)
    assert 0 not in found.removed


def test_rows_of_one_template_stay_at_a_cost_that_grows_as_they_do(dedup: Path) -> None:
    instruction, response = columns(dedup / "template.parquet")
    whole = deduplicated(instruction, response)
    half = deduplicated(*columns(dedup / "template.parquet", 2000))
    assert not whole.removed
    assert whole.verifications <= 15 * len(instruction)
    assert whole.verifications <= 2.2 * half.verifications


def test_two_documents_have_the_recorded_shares(documents: Path) -> None:
    pairs = lines(documents / "pairs.jsonl")
    found = rows_of(documents).verified(pairs)
    for field, place in (("containment", 2), ("jaccard", 3)):
        assert [verdict[place] for verdict in found] == pytest.approx([pair[field] for pair in pairs], abs=1e-9)
    assert [verdict[0] for verdict in found] == [pair["jaccard"] >= 0.8 for pair in pairs]


def test_documents_are_removed_as_recorded(documents: Path) -> None:
    rows = rows_of(documents)
    found = rows.deduplicated(list(range(len(rows.ids))))
    truth = lines(documents / "truth.jsonl")
    assert [row["row"] for row in truth] == rows.ids
    removed = {rows.ids[row]: rows.ids[finding.other] for row, finding in found.removed.items()}
    expected = {row["row"]: row["duplicate_of"] for row in truth if row["duplicate_of"]}
    assert removed.keys() <= expected.keys()
    jaccard = {frozenset((pair["a"], pair["b"])): pair["jaccard"] for pair in lines(documents / "pairs.jsonl")}
    by_share = defaultdict[bool, list[bool]](list)
    for row, other in expected.items():
        by_share[jaccard[frozenset((row, other))] >= 0.85].append(removed.get(row) == other)
    assert np.mean(by_share[True]) >= 0.99
    assert np.mean(by_share[False]) >= 0.97


def test_every_document_that_is_part_of_another_is_reported(documents: Path) -> None:
    rows = rows_of(documents)
    found = rows.deduplicated(list(range(len(rows.ids))))
    parts = {frozenset((rows.ids[part.row], rows.ids[part.other])) for part in found.contained}
    expected = {
        frozenset((pair["a"], pair["b"]))
        for pair in lines(documents / "pairs.jsonl")
        if pair["containment"] >= 0.9 and pair["jaccard"] < 0.8
    }
    assert parts == expected
    grams = {row["row"]: row["grams"] for row in lines(documents / "truth.jsonl")}
    assert all(grams[rows.ids[part.row]] < grams[rows.ids[part.other]] for part in found.contained)


def test_rows_meet_as_often_as_the_formula_says(shared: Path) -> None:
    recorded = json.loads((shared / "conformance/curate/minhash/s_curve.json").read_text(encoding="utf-8"))
    draws, tokens = np.random.default_rng(0), 152
    assert "32x4" in recorded
    for name, choice in recorded.items():
        bands, rows = map(int, name.split("x"))
        curve = choice["curve"]
        settings = _native.NearSettings(bands=bands, rows=rows, fields="instruction", min_instruction=0)
        for share in (0.5, 0.7):
            # Texts of distinct words: as many leading words in common as give this Jaccard index of 3-grams.
            common = round(2 * share * (tokens - 2) / (1 + share))
            exact = common / (2 * (tokens - 2) - common)
            assert abs(exact - share) < 0.005
            words = np.char.mod("w%d", draws.permutation(10**6)[: 400 * 2 * tokens].reshape(400, 2, tokens))
            words[:, 1, : common + 2] = words[:, 0, : common + 2]
            texts = [" ".join(text) for pair in words for text in pair]
            _, _, keys, key_rows, _ = _native.curate_sketches(pa.array(texts), pa.array([""] * len(texts)), settings)
            of_row = np.split(keys, np.flatnonzero(np.diff(key_rows)) + 1)
            met = np.mean([bool(np.isin(a, b).any()) for a, b in zip(of_row[::2], of_row[1::2], strict=True)])
            expected = 1 - (1 - exact**rows) ** bands
            assert abs(expected - curve[f"{share:.2f}"]) < 0.05
            assert abs(met - expected) <= 3.5 * np.sqrt(expected * (1 - expected) / 400) + 0.005, (name, share)
