"""Rows as curation meets them, generated: unique ones, copies, edits, templates, labels, refusals.

    python tests/bench/curate_rows.py FOLDER ROWS FILES

150 words a row on average, of a vocabulary with Zipf's frequencies. Every word is a function of the seed, the text and
the place in it, so a copy repeats a row of any other file, and a part of the files is made without the others. Of 100
rows, at every size:

    55  unique, instruction and response
    15  unique, the response a label
     8  copies of unique rows, half of them with other white space
    12  edits of unique rows: 4 % of the words replaced, numbers left alone
     5  templates, 20 families of unequal size: half of them a label and two other words, half other passages
     2  edited copies of ten texts
     3  one of 20 refusals under instructions of their own
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

SEED = 18
KINDS = {"unique": 55, "label": 15, "copy": 8, "edit": 12, "template": 5, "cluster": 2, "refusal": 3}
FAMILIES, CLUSTERS, REFUSALS, LABELS = 20, 10, 20, 12
ITEMS = "items.parquet"
# Rows that are made together: some 5 million words.
_BLOCK = 32_768
_GROUP = 8_192
_COMMON = [
    "the",
    "of",
    "to",
    "and",
    "a",
    "in",
    "is",
    "it",
    "that",
    "for",
    "was",
    "on",
    "are",
    "as",
    "with",
    "be",
    "at",
    "this",
    "have",
    "from",
    "or",
    "by",
    "not",
    "but",
    "what",
    "all",
    "were",
    "when",
    "we",
    "there",
    "can",
    "an",
    "your",
    "which",
    "their",
    "if",
    "do",
    "will",
    "each",
    "how",
    "about",
    "up",
    "out",
    "them",
    "then",
    "she",
    "many",
    "some",
    "so",
    "these",
    "would",
    "other",
    "into",
]
_TABLE = 1 << 16

U64 = NDArray[np.uint64]


def mix(values: U64) -> U64:
    """A hash of each number (splitmix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values ^= values >> np.uint64(30)
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


def hashed(values: U64, salt: int) -> U64:
    """A hash of each number, another one for each salt."""
    return mix(values ^ mix(np.array([SEED << 32 | salt], np.uint64)))


def below(hashes: U64, count: int | U64) -> U64:
    """Numbers below ``count``, of the upper half of hashes."""
    return ((hashes >> np.uint64(32)) * np.asarray(count, np.uint64)) >> np.uint64(32)


class Words:
    """The vocabulary, and tables to draw from it.

    Attributes:
        drawn: words by frequency, uint32 [65,536].
        plain: the same without numbers.
        lengths: of a text of 100 words on average, uint16 [65,536].
    """

    def __init__(self) -> None:
        draw = np.random.default_rng(SEED)
        onsets, vowels, ends = (
            [
                "b",
                "c",
                "d",
                "f",
                "g",
                "h",
                "j",
                "k",
                "l",
                "m",
                "n",
                "p",
                "r",
                "s",
                "t",
                "v",
                "w",
                "st",
                "tr",
                "pl",
                "ch",
            ],
            "aeiou",
            ["", "n", "r", "s", "t", "l"],
        )
        made = dict.fromkeys(_COMMON)
        while len(made) < 20_000:
            parts = draw.integers(1, 4)
            made[
                "".join(f"{draw.choice(onsets)}{draw.choice(list(vowels))}{draw.choice(ends)}" for _ in range(parts))
            ] = None
        words = np.array(list(made), object)
        weights = 1 / (np.arange(len(words)) + 3.0)
        one = draw.choice(len(words), _TABLE, p=weights / weights.sum())
        kind = draw.random(_TABLE)
        spelled = words[one]
        forms = np.where(
            kind < 0.07,
            spelled + ",",
            np.where(kind < 0.13, spelled + ".", np.where(kind < 0.16, spelled + ".\n", spelled)),
        )
        numbers = draw.random(_TABLE) < 0.012
        of_numbers = np.array([str(number) for number in draw.integers(0, 10_000, _TABLE)], object)
        vocabulary, drawn = np.unique(np.where(numbers, of_numbers, forms).astype(str), return_inverse=True)
        _, self.drawn = vocabulary, drawn.astype(np.uint32)
        self.strings = pa.array(vocabulary.tolist(), pa.string())
        self.plain = self.drawn[~numbers]
        self.is_number = np.char.isdigit(vocabulary)
        self.lengths = np.clip(draw.lognormal(np.log(100) - 0.18, 0.6, _TABLE), 12, 1_500).astype(np.uint16)

    def texts(
        self, base: U64, lengths: NDArray[np.int64], own: U64, edited: NDArray[np.bool_], slots: NDArray[np.int64]
    ) -> NDArray[np.uint32]:
        """The words of texts, uint32 [sum of lengths].

        Args:
            base: what the words of each text follow from, [n].
            lengths: words of each text, [n].
            own: what its own words follow from, [n].
            edited: whether 4 % of its words are replaced by own ones, [n].
            slots: its last words that are its own, [n].
        """
        starts = np.cumsum(lengths) - lengths
        place = np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(starts, lengths)
        salt = mix(place.astype(np.uint64))
        found: NDArray[np.uint32] = self.drawn[mix(np.repeat(base, lengths) ^ salt) >> np.uint64(48)]
        theirs = np.repeat(edited | (slots > 0), lengths)
        at = np.flatnonzero(theirs)
        if len(at):
            mine = mix(np.repeat(own, lengths)[at] ^ salt[at])
            in_slot = place[at] >= np.repeat(lengths - slots, lengths)[at]
            replaced = np.repeat(edited, lengths)[at] & ((mine & np.uint64(0xFFFF)) < np.uint64(int(0.04 * 65_536)))
            replaced &= ~self.is_number[found[at]]
            chosen = at[in_slot | replaced]
            found[chosen] = self.plain[below(mix(mine[in_slot | replaced]), len(self.plain))]
        return found

    def joined(self, words: NDArray[np.uint32], lengths: NDArray[np.int64]) -> pa.Array:
        """The texts of these words, with blanks between."""
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(offsets), self.strings.take(pa.array(words)))
        return pc.binary_join(lists, " ")


def block(words: Words, first: int, count: int, total: int) -> pa.Table:
    """The rows [first, first + count) of ``total``."""
    row = np.arange(first, first + count, dtype=np.uint64)
    bounds = np.cumsum(list(KINDS.values()))
    kind = np.searchsorted(bounds, (row % np.uint64(100)).astype(np.int64), side="right")
    names = list(KINDS)
    is_ = {name: kind == at for at, name in enumerate(names)}
    own = hashed(row, 1)

    # What the words follow from: the row itself, a unique row, or a family.
    base = row.copy()
    again = is_["copy"] | is_["edit"]
    hundreds = below(hashed(row, 2), max(1, total // 100)) * np.uint64(100)
    base[again] = (hundreds + below(hashed(row, 3), KINDS["unique"]))[again]
    # Family number n has a share of 1 / (n + 1).
    shares = np.cumsum(1 / (np.arange(FAMILIES) + 1.0))
    family = np.searchsorted(shares / shares[-1], hashed(row, 4) / 2.0**64, side="right").astype(np.uint64)
    for name, number in (("template", family), ("cluster", below(hashed(row, 5), CLUSTERS))):
        base[is_[name]] = (np.uint64(1 << 40) + np.uint64(names.index(name) << 20) + number)[is_[name]]
    text = hashed(base, 6)

    labelled = is_["label"] | (is_["template"] & (family % np.uint64(2) == 0))
    passages = is_["template"] & ~labelled
    length = words.lengths[hashed(text, 7) >> np.uint64(48)].astype(np.int64)
    instruction = np.maximum(length * 51 // 100, 16)
    response = words.lengths[hashed(text, 8) >> np.uint64(48)].astype(np.int64) * 106 // 100
    instruction[labelled] = length[labelled] * 14 // 10
    response = np.maximum(response, 24)
    # A family is one shell; what differs is at its end.
    instruction[is_["template"]] = 60
    response[passages] = 130

    slots = np.zeros(count, np.int64)
    slots[is_["template"]] = np.where(labelled, 2, 14)[is_["template"]]
    edited = is_["edit"] | is_["cluster"]
    asked = words.joined(words.texts(hashed(text, 9), instruction, own, edited, slots), instruction)
    slots[passages] = 80
    slots[is_["template"] & labelled] = 0
    said = hashed(text, 10)
    refused = is_["refusal"]
    said[refused] = hashed(below(hashed(row, 11), REFUSALS), 12)[refused]
    response[refused] = 30
    response[labelled] = 1
    pool = [f"label {word}" for word in _COMMON[:LABELS]]
    answered = words.joined(words.texts(said, response, hashed(own, 13), edited, slots), response)
    labels = pa.array(pool).take(pa.array(below(hashed(own, 14), LABELS).astype(np.int64)))
    answered = pc.if_else(pa.array(labelled), labels, answered)
    spaced = is_["copy"] & (own & np.uint64(1) == 1)
    asked = pc.if_else(pa.array(spaced), pc.replace_substring(asked, ", ", ",  "), asked)
    condition = pa.array(["direct", "synth,cot"]).take(pa.array((row % np.uint64(2)).astype(np.int64)))
    return pa.table({"condition": condition, "instruction": asked, "response": answered})


def make(folder: Path, rows: int, files: int) -> None:
    """Write ``rows`` rows as ``files`` Parquet files of about the same size."""
    folder.mkdir(parents=True, exist_ok=True)
    words = Words()
    for file in range(files):
        start, stop = rows * file // files, rows * (file + 1) // files
        path = folder / f"part-{file:05}.parquet"
        schema = pa.schema([(name, pa.string()) for name in ("condition", "instruction", "response")])
        with pq.ParquetWriter(path, schema, use_dictionary=["condition"]) as writer:
            for first in range(start, stop, _BLOCK):
                table = block(words, first, min(_BLOCK, stop - first), rows)
                writer.write_table(table, row_group_size=_GROUP)


def make_items(path: Path, items: int, rows: int) -> None:
    """Write items of a benchmark, {item, question, answer}: one in 20 is the text of a unique row of ``rows`` rows."""
    words = Words()
    number = np.arange(items, dtype=np.uint64)
    base = np.uint64(1 << 50) + number
    leaked = number % np.uint64(20) == 0
    hundreds = below(hashed(number, 20), max(1, rows // 100)) * np.uint64(100)
    base[leaked] = (hundreds + below(hashed(number, 21), KINDS["unique"]))[leaked]
    text = hashed(base, 6)
    length = words.lengths[hashed(text, 7) >> np.uint64(48)].astype(np.int64)
    question = np.maximum(length * 51 // 100, 16)
    answer = np.maximum(words.lengths[hashed(text, 8) >> np.uint64(48)].astype(np.int64) * 106 // 100, 24)
    none = np.zeros(items, np.int64)
    never = np.zeros(items, np.bool_)
    table = pa.table(
        {
            "item": [str(one) for one in range(items)],
            "question": words.joined(words.texts(hashed(text, 9), question, number, never, none), question),
            "answer": words.joined(words.texts(hashed(text, 10), answer, number, never, none), answer),
        }
    )
    pq.write_table(table, path)


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
