"""Small raw data in the real formats of four sources: ``python examples/make_raw.py <folder>``.

Every text is made up here from word lists and a seed; nothing is taken from the published data sets. The same seed
gives the same bytes, so a second run of the pipeline finds everything done.
"""

from __future__ import annotations

import csv
import json
import random
import sys
from pathlib import Path

SEED = 20261121

_NAMES = [
    "Ada",
    "Bo",
    "Chidi",
    "Dana",
    "Emre",
    "Farah",
    "Goran",
    "Hana",
    "Ines",
    "Jonas",
    "Kofi",
    "Lena",
    "Mateo",
    "Nadia",
    "Oskar",
    "Priya",
    "Quinn",
    "Rosa",
    "Sven",
    "Tao",
]
_THINGS = [
    "apples",
    "bolts",
    "candles",
    "daisies",
    "envelopes",
    "feathers",
    "gears",
    "hats",
    "jars",
    "kites",
    "lamps",
    "marbles",
    "needles",
    "oranges",
]
_PLACES = [
    "the harbour",
    "a village fair",
    "the workshop",
    "the old library",
    "a night market",
    "the station",
    "her uncle's farm",
]
_SUBSTANCES = [
    "argon",
    "benzene",
    "copper",
    "ethanol",
    "graphite",
    "helium",
    "methane",
    "neon",
    "nitrogen",
    "sodium",
    "sulfur",
    "water",
]
_CARD = """---
configs:
- config_name: main
  data_files:
  - split: train
    path: main/train-*
  - split: test
    path: main/test-*
---
# Generated example in the format of openai/gsm8k; not the published data set
"""


def make(folder: Path) -> None:
    """Write all four sources below ``folder``."""
    _gsm8k(folder / "gsm8k_train", random.Random(SEED))
    _scibench(folder / "scibench", random.Random(SEED + 1))
    _dmmath(folder / "dmmath" / "mathematics_dataset-v1.0", random.Random(SEED + 2))
    _sudoku(folder / "sudoku", random.Random(SEED + 3))


def _gsm8k(folder: Path, rng: random.Random) -> None:
    """Parquet with a data set card, as on the Hub: question, and an answer that ends in ``#### <number>``."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (folder / "main").mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(_CARD, encoding="utf-8")
    for split, count in (("train", 1500), ("test", 100)):
        questions, answers = zip(*(_word_problem(rng) for _ in range(count)), strict=True)
        table = pa.table({"question": questions, "answer": answers})
        pq.write_table(table, folder / "main" / f"{split}-00000-of-00001.parquet", row_group_size=500)


def _word_problem(rng: random.Random) -> tuple[str, str]:
    who, other = rng.sample(_NAMES, 2)
    thing, place = rng.choice(_THINGS), rng.choice(_PLACES)
    start, more, share = rng.randint(5, 90), rng.randint(2, 40), rng.randint(2, 9)
    total = start + more
    given = total // share
    question = (
        f"{who} brings {start} {thing} to {place} and finds {more} more. Then {who} gives one {thing[:-1]} out of "
        f"every {share} to {other}. How many {thing} are left?"
    )
    answer = (
        f"{who} has {start}+{more}=<<{start}+{more}={total}>>{total} {thing}.\n"
        f"{other} gets {total}//{share}=<<{total}//{share}={given}>>{given} of them.\n"
        f"So {total}-{given}=<<{total}-{given}={total - given}>>{total - given} {thing} are left.\n#### {total - given}"
    )
    return question, answer


def _scibench(folder: Path, rng: random.Random) -> None:
    """JSON arrays of problems; only some have a worked solution, and the unit stands in a key of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, with_solution in (("thermo", False), ("thermo_sol", True), ("waves_sol", True)):
        problems = [_science_problem(rng, name, index, with_solution) for index in range(120)]
        (folder / f"{name}.json").write_text(json.dumps(problems, indent=1, ensure_ascii=False), encoding="utf-8")


def _science_problem(rng: random.Random, book: str, index: int, with_solution: bool) -> dict[str, str]:
    moles, volume, celsius = rng.randint(1, 20) / 2, rng.randint(2, 60) / 4, rng.randint(-40, 180)
    kelvin = celsius + 273.15
    pressure = f"{moles * 0.082057 * kelvin / volume:.3g}"
    problem = {
        "problem_text": f"Suppose that ${moles} \\mathrm{{~mol}}$ of {rng.choice(_SUBSTANCES)} is held in "
        f"${volume} \\mathrm{{dm}}^3$ at ${celsius}^{{\\circ}} \\mathrm{{C}}$. "
        "Predict the pressure of the perfect gas.",
        "answer_latex": f" {pressure}",
        "answer_number": pressure,
        "unit": "$\\mathrm{atm}$",
        "source": book,
        "problemid": f"e{index // 10 + 1}.{index % 10 + 1}",
        "comment": " ",
    }
    if with_solution:
        problem["solution"] = (
            f"\nWith $T = {kelvin:.2f} \\mathrm{{K}}$ the law $pV = nRT$ gives\n$$\np = \\frac{{{moles} \\times "
            f"0.082057 \\times {kelvin:.2f}}}{{{volume}}} = {pressure} \\mathrm{{~atm}}.\n$$\n"
        )
    return problem


def _dmmath(folder: Path, rng: random.Random) -> None:
    """Text files of alternating question and answer lines, one per module and difficulty."""
    modules = {"arithmetic__add_or_sub": _sum_problem, "algebra__linear_1d": _equation, "numbers__gcd": _divisor}
    for subset, most in (
        ("train-easy", 10**3),
        ("train-medium", 10**6),
        ("train-hard", 10**12),
        ("interpolate", 10**6),
    ):
        (folder / subset).mkdir(parents=True, exist_ok=True)
        for module, problem in modules.items():
            lines = [line for _ in range(400) for line in problem(rng, most)]
            (folder / subset / f"{module}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _sum_problem(rng: random.Random, most: int) -> tuple[str, str]:
    left, right = rng.randint(-most, most), rng.randint(0, most)
    return f"What is {left} + {right}?", str(left + right)


def _equation(rng: random.Random, most: int) -> tuple[str, str]:
    factor, root, shift = rng.randint(2, 99), rng.randint(-most, most), rng.randint(0, most)
    name = rng.choice("abcdknrtwxyz")
    return f"Solve {factor}*{name} + {shift} = {factor * root + shift} for {name}.", str(root)


def _divisor(rng: random.Random, most: int) -> tuple[str, str]:
    import math

    common = rng.randint(1, 99)
    left, right = common * rng.randint(1, most), common * rng.randint(1, most)
    return f"Calculate the greatest common divisor of {left} and {right}.", str(math.gcd(left, right))


def _sudoku(folder: Path, rng: random.Random) -> None:
    """CSV of puzzles with their solution: a valid grid, shuffled by moves that keep it valid, and then thinned."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["source", "question", "answer", "rating"])
        for _ in range(600):
            answer = _grid(rng)
            blanks = set(rng.sample(range(81), rng.randint(40, 55)))
            question = "".join("." if cell in blanks else digit for cell, digit in enumerate(answer))
            writer.writerow(["generated", question, answer, rng.randint(0, 60)])


def _grid(rng: random.Random) -> str:
    def shuffled() -> list[int]:
        return [3 * band + line for band in rng.sample(range(3), 3) for line in rng.sample(range(3), 3)]

    rows, columns, digits = shuffled(), shuffled(), rng.sample("123456789", 9)
    return "".join(digits[(3 * (row % 3) + row // 3 + column) % 9] for row in rows for column in columns)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit("usage: python examples/make_raw.py <folder>")
    make(Path(sys.argv[1]))
