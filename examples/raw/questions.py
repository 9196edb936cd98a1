"""Sources of questions about the world: answered in a word, by a letter, or with an explanation."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from raw.files import card, json_array, json_lines, parquet, part, splits
from raw.words import SUBSTANCES, choices, problem, prose, sentence, word_problem

_TEXTS = pa.list_(pa.string())
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


def openbookqa(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: choices in a struct of lists, and a fact to reason from."""

    def row(number: int) -> dict[str, Any]:
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

    numbers = {"humanScore": pa.float32(), "clarity": pa.float32()}
    types = {"choices": pa.struct([("text", _TEXTS), ("label", _TEXTS)]), **numbers}
    names = ("train", "validation", "test")
    card(folder, "openbookqa", {"additional": splits(*names, folder="additional")})
    for split, count in zip(names, (120 * scale, 30, 30), strict=True):
        parquet(part(folder / "additional", split), map(row, range(count)), count, types)


def reclor(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: a passage, a question, and a list of answers."""

    def row(number: int) -> dict[str, Any]:
        return {
            "context": prose(rng, 4),
            "question": f"Which of these follows? {sentence(rng)}",
            "answers": [sentence(rng) for _ in range(4)],
            "label": rng.randrange(4),
            "id_string": f"made_{number}",
        }

    card(folder, "metaeval/reclor", {"default": splits("train", "validation")})
    for split, count in (("train", 120 * scale), ("validation", 30)):
        parquet(part(folder / "data", split), map(row, range(count)), count, {"answers": _TEXTS, "label": pa.int64()})


def scienceqa(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: with and without a lecture, a solution, a hint."""
    names = ("question", "choices", "answer", "hint", "task", "grade", "subject", "topic", "category", "skill")

    def row(number: int) -> dict[str, Any]:
        count = rng.randint(2, 5)
        listed = [f" {choice}" for choice in choices(rng, count)]
        hint = sentence(rng) if number % 3 == 0 else ""
        rest = ("closed choice", "grade5", "natural science", "physics", "materials", "compare")
        values = (f"{sentence(rng)} ", listed, rng.randrange(count), hint, *rest)
        return dict(zip(names, values, strict=True)) | {
            "lecture": prose(rng, 3) if number % 2 else "",
            "solution": f" {prose(rng, 2)}" if number % 5 else " ",
        }

    card(folder, "metaeval/ScienceQA_text_only", {"default": splits("train", "validation", "test")})
    for split, count in (("train", 120 * scale), ("validation", 40), ("test", 40)):
        parquet(part(folder / "data", split), map(row, range(count)), count, {"choices": _TEXTS, "answer": pa.int8()})


def principia_collection(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet in two splits that are two kinds of answer; a few answers are empty."""

    def row(number: int) -> dict[str, Any]:
        statement, _, answer = problem(rng)
        return {"problem_statement": statement, "answer": "" if number % 40 == 13 else answer, "topic": "generated"}

    names = ("mathematical_object", "numerical")
    card(folder, "facebook/principia-collection", {"default": splits(*names)})
    for split in names:
        parquet(part(folder / "data", split), map(row, range(80 * scale)), 80 * scale)


def webinstruct_verified(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: questions and short answers, a few empty."""

    def row(number: int) -> dict[str, Any]:
        question, _, answer = problem(rng)
        return {
            "id": number,
            "question": " " if number % 90 == 31 else f"{sentence(rng)} {question}",
            "answer": "" if number % 90 == 72 else answer,
            "answer_type": "Integer",
            "category": "Mathematics",
            "difficulty": "Senior High School",
        }

    card(folder, "TIGER-Lab/WebInstruct-verified", {"default": splits("train", "test")})
    for split, count in (("train", 270 * scale), ("test", 30)):
        parquet(part(folder / "data", split), map(row, range(count)), count, {"id": pa.int64()})


def textbookreasoning(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: a long and a short answer each; what asks for a proof has no short one."""

    def row(number: int) -> dict[str, Any]:
        return {
            "question": f"{sentence(rng)} {_ASKS[number % len(_ASKS)]}",
            "answer": prose(rng, 6),
            "subject": "physics",
            "reference_answer": "" if number % 30 == 10 else word_problem(rng)[1].rpartition(" ")[2],
        }

    card(folder, "MegaScience/TextbookReasoning", {"default": splits("train")})
    parquet(part(folder / "data", "train"), map(row, range(240 * scale)), 240 * scale)


def scibench(folder: Path, rng: random.Random, scale: int) -> None:
    """JSON arrays of problems; only some have a worked solution, and the unit stands in a key of its own."""
    for name, with_solution in (("thermo", False), ("thermo_sol", True), ("waves_sol", True)):
        rows = (_science_problem(rng, name, index, with_solution) for index in range(120 * scale))
        json_array(folder / f"{name}.json", rows)


def _science_problem(rng: random.Random, book: str, index: int, with_solution: bool) -> dict[str, str]:
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
