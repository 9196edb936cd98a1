"""Sources of questions about the world: answered in a word, by a letter, or with an explanation."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from raw.files import card, json_array, json_lines, on_the_hub
from raw.words import SUBSTANCES, choices, problem, prose, sentence, word_problem

_TEXTS = pa.list_(pa.string())
_SCIENCE = ("question", "choices", "answer", "hint", "task", "grade", "subject", "topic", "category", "skill")
_ASKS = ["How many are there?", "Why?", "Is it so?", "How much?", "Prove it.", "Since when?"]
_ASKS += ["Where?", "How could one improve this?", "By how much?", "What follows?", "Show that it is so.", "What else?"]


def natural_reasoning(folder: Path, rng: random.Random, scale: int) -> None:
    """JSON Lines: a question, a short answer that can be missing, and models' long answers, nested."""

    def row(number: int) -> dict[str, Any]:
        return {
            "question": f"{prose(rng, 4)} {_ASKS[number % len(_ASKS)]}",
            "reference_answer": " " if number % 9 == 5 else f"{sentence(rng)} ",
            "responses": [
                {"response_model": f"model-{model}", "response": prose(rng, 20)} for model in range(number % 3)
            ],
        }

    card(folder, "facebook/natural_reasoning", {"default": {"train": "full.jsonl"}})
    json_lines(folder / "full.jsonl", map(row, range(270 * scale)))


def arb(folder: Path, rng: random.Random, scale: int) -> None:
    """Five JSON arrays, one per field."""
    for field in ("law", "math", "physics", "reading", "science"):

        def row(number: int, field: str = field) -> dict[str, Any]:
            question, worked, _ = problem(rng)
            if field == "law":
                worked = "ABCD"[number % 4]
            return {"instruction": f"{sentence(rng)} {question}", "response": worked, "extra": number}

        json_array(folder / f"{field}.json", map(row, range(30 * scale)))


_CHOICES = pa.struct([("text", _TEXTS), ("label", _TEXTS)])


@on_the_hub(
    "openbookqa",
    {"train": 120},
    {"choices": _CHOICES, "humanScore": pa.float32(), "clarity": pa.float32()},
    fixed={"validation": 30, "test": 30},
    config="additional",
    folder="additional",
)
def openbookqa(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: choices in a struct of lists, and a fact to reason from."""
    count = 4 if number % 5 else 3
    return {
        "id": f"{number:04}",
        "question_stem": sentence(rng),
        "choices": {"text": choices(rng, count), "label": list("ABCD"[:count])},
        "answerKey": rng.choice("ABCD"[:count]),
        "fact1": sentence(rng),
        "humanScore": 1.0,
        "clarity": 1.5,
        "turkIdAnonymized": "generated",
    }


@on_the_hub("metaeval/reclor", {"train": 120}, {"answers": _TEXTS, "label": pa.int64()}, fixed={"validation": 30})
def reclor(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: a passage, a question, and a list of answers."""
    return {
        "context": prose(rng, 4),
        "question": f"Which of these follows? {sentence(rng)}",
        "answers": [sentence(rng) for _ in range(4)],
        "label": rng.randrange(4),
        "id_string": f"made_{number}",
    }


@on_the_hub(
    "metaeval/ScienceQA_text_only",
    {"train": 120},
    {"choices": _TEXTS, "answer": pa.int8()},
    fixed={"validation": 40, "test": 40},
)
def scienceqa(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: with and without a lecture, a solution, a hint."""
    count = rng.randint(2, 5)
    listed = [f" {choice}" for choice in choices(rng, count)]
    hint = sentence(rng) if number % 3 == 0 else ""
    rest = ("closed choice", "grade5", "natural science", "physics", "materials", "compare")
    values = (f"{sentence(rng)} ", listed, rng.randrange(count), hint, *rest)
    return dict(zip(_SCIENCE, values, strict=True)) | {
        "lecture": prose(rng, 3) if number % 2 else "",
        "solution": f" {prose(rng, 2)}" if number % 5 else " ",
    }


@on_the_hub("facebook/principia-collection", {"mathematical_object": 80, "numerical": 80})
def principia_collection(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet in two splits that are two kinds of answer; a few answers are empty."""
    statement, _, answer = problem(rng)
    return {"problem_statement": statement, "answer": "" if number % 40 == 13 else answer, "topic": "generated"}


@on_the_hub("TIGER-Lab/WebInstruct-verified", {"train": 270}, {"id": pa.int64()}, fixed={"test": 30})
def webinstruct_verified(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: questions and short answers, a few empty."""
    question, _, answer = problem(rng)
    return {
        "id": number,
        "question": " " if number % 90 == 31 else f"{sentence(rng)} {question}",
        "answer": "" if number % 90 == 72 else answer,
        "answer_type": "Integer",
        "category": "Mathematics",
        "difficulty": "Senior High School",
    }


@on_the_hub("MegaScience/TextbookReasoning", {"train": 240})
def textbookreasoning(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: a long and a short answer each; what asks for a proof has no short one."""
    return {
        "question": f"{sentence(rng)} {_ASKS[number % len(_ASKS)]}",
        "answer": prose(rng, 6),
        "subject": "physics",
        "reference_answer": "" if number % 30 == 10 else word_problem(rng)[1].rpartition(" ")[2],
    }


def scibench(folder: Path, rng: random.Random, scale: int) -> None:
    """JSON arrays of problems; only some have a worked solution, and the unit has its own key."""
    for name, with_solution in (("thermo", False), ("thermo_sol", True), ("waves_sol", True)):
        rows = (science_problem(rng, name, index, with_solution) for index in range(120 * scale))
        json_array(folder / f"{name}.json", rows)


def science_problem(rng: random.Random, book: str, index: int, with_solution: bool) -> dict[str, str]:
    """Return a problem of thermodynamics in the format of scibench."""
    moles, volume, celsius = rng.randint(1, 20) / 2, rng.randint(2, 60) / 4, rng.randint(-40, 180)
    kelvin = celsius + 273.15
    pressure = f"{moles * 0.082057 * kelvin / volume:.3g}"
    row = {
        "problem_text": f"Suppose that ${moles} \\mathrm{{~mol}}$ of {rng.choice(SUBSTANCES)} is held in "
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
        row["solution"] = (
            f"\nWith $T = {kelvin:.2f} \\mathrm{{K}}$ the law $pV = nRT$ gives\n$$\np = \\frac{{{moles} \\times "
            f"0.082057 \\times {kelvin:.2f}}}{{{volume}}} = {pressure} \\mathrm{{~atm}}.\n$$\n"
        )
    return row


def sudoku(folder: Path, rng: random.Random, scale: int) -> None:
    """CSV of puzzles with their solution: a valid grid, shuffled by moves that keep it valid, and then thinned."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "train.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["source", "question", "answer", "rating"])
        for _ in range(600 * scale):
            answer = _grid(rng)
            blanks = set(rng.sample(range(81), rng.randint(40, 55)))
            question = "".join("." if cell in blanks else digit for cell, digit in enumerate(answer))
            writer.writerow(["generated", question, answer, rng.randint(0, 60)])


def _grid(rng: random.Random) -> str:
    def shuffled() -> list[int]:
        return [3 * band + line for band in rng.sample(range(3), 3) for line in rng.sample(range(3), 3)]

    rows, columns, digits = shuffled(), shuffled(), rng.sample("123456789", 9)
    return "".join(digits[(3 * (row % 3) + row // 3 + column) % 9] for row in rows for column in columns)
