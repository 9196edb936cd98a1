"""Gigabytes of raw data, to show that memory does not grow with files: stock texts, each with a number in front.

Their words are drawn one by one, so they compress about as well as real texts.
"""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raw.files import card, splits
from raw.words import equation

_ROWS = 6000
_PAIRS = 40_000
_SYLLABLES = ["ba", "co", "di", "fe", "gu", "ha", "ki", "lo", "mi", "ne", "po", "ra", "sé", "ti", "vu", "zwo"]


def openmathinstruct2(folder: Path, size: int, files: int) -> None:
    """Parquet of about ``size`` bytes; the last of several files is one row group."""
    write = _babbler(1)
    solutions, questions = (pa.array([write(words) for _ in range(_ROWS)]) for words in (120, 30))
    answers = pa.array([str(number) for number in range(_ROWS)])
    origins = pa.array(["augmented_math", "math", "gsm8k"] * (_ROWS // 3))
    numbers = itertools.count()

    def block() -> pa.Table:
        columns = (pc.binary_join_element_wise(f"{next(numbers)}.", column, " ") for column in (questions, solutions))
        names = ["problem", "generated_solution", "expected_answer", "problem_source"]
        return pa.table([*columns, answers, origins], names)

    def fill(path: Path, size: int, last: bool) -> None:
        with path.open("wb") as file, pq.ParquetWriter(file, block().schema, use_dictionary=["problem_source"]) as out:
            out.write_table(block())
            if last:
                out.write_table(pa.concat_tables(block() for _ in range(max(1, size // file.tell()))))
            while file.tell() < size:
                out.write_table(block())

    card(folder, "nvidia/OpenMathInstruct-2", {"default": splits("train")})
    _split(folder / "data", f"train-{{:05}}-of-{files:05}.parquet", size, files, fill)


def natural_reasoning(folder: Path, size: int, *, compressed: bool) -> None:
    """Write one file of JSON Lines of about ``size`` bytes."""
    write = _babbler(2)

    def line(start: object) -> bytes:
        responses = [{"response_model": "model", "response": write(200)}]
        row = {"question": f"{start}. {write(60)}", "reference_answer": write(15), "responses": responses}
        return json.dumps(row, ensure_ascii=False).encode() + b"\n"

    def packed(data: bytes) -> bytes:
        return gzip.compress(data, 6, mtime=0) if compressed else data

    stock = packed(b"".join(line(number) for number in range(_ROWS)))
    card(folder, "facebook/natural_reasoning", {"default": {"train": "full.jsonl*"}})
    _fill(folder / f"full.jsonl{'.gz' * compressed}", size, ((packed(line(n)), stock) for n in itertools.count()))


def dmmath(folder: Path, size: int, files: int) -> None:
    """Pairs of lines of about ``size`` bytes."""
    rng = random.Random(3)
    stock = "".join("\n".join(equation(rng, 10**9)) + "\n" for _ in range(_PAIRS)).encode()

    def fill(path: Path, size: int, _: bool) -> None:
        _fill(path, size, ((f"What is {number} + 1?\n{number + 1}\n".encode(), stock) for number in itertools.count()))

    _split(folder / "mathematics_dataset-v1.0" / "train-hard", "algebra__linear_{}d.txt", size, files, fill)


FAMILIES: dict[str, tuple[str, Callable[[Path, int, int], None]]] = {
    "parquet": ("openmathinstruct2", openmathinstruct2),
    "jsonl": ("natural_reasoning", lambda folder, size, files: natural_reasoning(folder, size, compressed=False)),
    "jsonl.gz": ("natural_reasoning", lambda folder, size, files: natural_reasoning(folder, size, compressed=True)),
    "text": ("dmmath", dmmath),
}
"""By name: the folder, and the function that fills it, given bytes and number of files (JSON Lines: one file)."""


def _babbler(seed: int) -> Callable[[int], str]:
    """Return a function that makes a text of a number of words."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 4))) for _ in range(20_000)]
    return lambda count: " ".join(rng.choices(words, k=count))


def _split(folder: Path, names: str, size: int, files: int, fill: Callable[[Path, int, bool], None]) -> None:
    """Half of the bytes in one file, the rest in the others."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        part = size if files == 1 else size // 2 if number == 0 else size // 2 // (files - 1)
        fill(folder / names.format(number), part, 0 < number == files - 1)


def _fill(path: Path, size: int, blocks: Iterable[tuple[bytes, bytes]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for block in blocks:
            file.writelines(block)
            if file.tell() >= size:
                break
