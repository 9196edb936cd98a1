"""Sources of mathematics: problems with solutions, with answers, or with both.

Each function writes one source below a folder; rows take turns through the cases that the source's rules tell apart.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from raw.files import card, json_lines, parquet, part, splits, tar_gz
from raw.words import divisor, equation, problem, prose, sentence, sum_problem, word_problem

# fmt: off
_CONFIGS = [
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
]
# fmt: on
_TOPICS = ["algebra", "calculus", "geometry", "number_theory"]
_TASKS = ["area", "derivative", "factor", "integrate_w_steps", "limits_w_steps", "primes", "roots", "series", "solve"]


def gsm8k_train(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: question, and an answer that ends in ``#### <number>``."""
    card(folder, "openai/gsm8k", {"main": splits("train", "test", folder="main")})
    for split, count in (("train", 1500 * scale), ("test", 100)):
        rows = (dict(zip(("question", "answer"), word_problem(rng), strict=True)) for _ in range(count))
        parquet(part(folder / "main", split), rows, count, group=500 * scale)


def math_train(folder: Path, rng: random.Random, scale: int) -> None:
    r"""Parquet by config: a solution with its answer in ``\boxed{…}``, in ``\fbox{…}``, without braces, or in none."""

    def row(config: str, number: int) -> dict[str, Any]:
        question, worked, answer = problem(rng)
        boxed = [
            f"${worked}$ so \\boxed{{{answer}}}.",
            f"First \\boxed{{0}}, no: \\boxed{{\\frac{{{answer}}}{{1}}}}",
            f" {worked} \\fbox{{ {answer} }}\n",
            f"It is \\boxed {answer}.",
            worked,
        ]
        return {
            "problem": question,
            "level": f"Level {number % 5 + 1}",
            "type": config,
            "solution": boxed[number % len(boxed)],
        }

    card(folder, "EleutherAI/hendrycks_math", {name: splits("train", "test", folder=name) for name in _CONFIGS})
    for config in _CONFIGS:
        for split, count in (("train", 40 * scale), ("test", 10)):
            parquet(part(folder / config, split), (row(config, number) for number in range(count)), count)


def numinamath(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: judged problems, real and synthetic, with links, prompts to translate, proofs, and holes."""
    proof = {"question_type": "proof", "answer": "proof"}
    cases: list[dict[str, Any]] = [
        *[{}] * 8,
        proof,
        {"answer": " Proof "},
        {"answer": " "},
        {"synthetic": True},
        {"synthetic": None, "question_type": None},
        {"problem_is_valid": "Problem not solved"},
        {"solution_is_valid": None},
        {"solution": None},
        {"answer": None},
        {"problem": "See http://example.org/problem."},
        {"solution": "Translate the text above into English, keep the line breaks."},
        {"problem": " "},
        {"solution": "\n"},
    ]

    def row(number: int) -> dict[str, Any]:
        question, worked, answer = problem(rng)
        return {
            "problem": question,
            "solution": f"{worked}\n{prose(rng, 4)}\n",
            "answer": answer,
            "problem_type": "Algebra",
            "question_type": "math-word-problem",
            "problem_is_valid": "Yes",
            "solution_is_valid": "Yes",
            "source": "olympiads",
            "synthetic": False,
        } | cases[number % len(cases)]

    card(folder, "AI-MO/NuminaMath-1.5", {"default": splits("train")})
    count = 210 * scale
    parquet(part(folder / "data", "train"), map(row, range(count)), count, {"synthetic": pa.bool_()})


def omnimath(folder: Path, rng: random.Random, scale: int) -> None:
    """JSON Lines: the test split, which is all there is."""

    def row(number: int) -> dict[str, Any]:
        question, worked, answer = problem(rng)
        solution = " " if number % 20 == 7 else f" {worked}\n"
        return {
            "domain": ["Mathematics -> Algebra"],
            "difficulty": 4.5 + number % 5,
            "problem": question,
            "solution": solution,
            "answer": answer,
            "source": "generated",
        }

    card(folder, "KbsdJames/Omni-MATH", {"default": {"test": "test.jsonl"}})
    json_lines(folder / "test.jsonl", map(row, range(100 * scale)))


def openmathinstruct2(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: problems of the seed sets, which give one row, and of a model, which give two."""
    origins = ["augmented_math", "augmented_gsm8k", "augmented_math", "math", "gsm8k"]

    def row(number: int) -> dict[str, Any]:
        question, worked, answer = problem(rng)
        return {
            "problem": question,
            "generated_solution": f"{worked}\n\n{prose(rng, 8)}\n\nThe answer is \\boxed{{{answer}}}.",
            "expected_answer": answer,
            "problem_source": origins[number % len(origins)],
        }

    card(folder, "nvidia/OpenMathInstruct-2", {"default": splits("train")})
    count = 300 * scale
    parquet(part(folder / "data", "train"), map(row, range(count)), count)


def acereason(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: mathematics and code; the answer behind its reasoning, whose tag is not always closed."""

    def row(number: int) -> dict[str, Any]:
        question, worked, answer = problem(rng)
        end = "" if number % 20 == 3 else "</think>"
        return {
            "category": "code" if number % 4 == 1 else "math",
            "source": "generated",
            "input": question,
            "output": f"<think>\n{prose(rng, 30)}\n{end}\n\n{worked}\n\n\\boxed{{{answer}}}",
        }

    card(folder, "nvidia/AceReason-1.1-SFT", {"default": splits("train")})
    count = 160 * scale
    parquet(part(folder / "data", "train"), map(row, range(count)), count)


def amps_khan(folder: Path, rng: random.Random, scale: int) -> None:
    """A JSON object per file: a problem, and hints of which the last says the answer; a few have none."""
    for number in range(140 * scale):
        path = folder / "amps" / "khan" / str(number % 7) / f"{1000 + number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        question, worked, answer = problem(rng)
        hints = [] if number % 35 == 20 else [*worked.splitlines(), f"The answer is ${answer}$. "]
        path.write_text(json.dumps({"problem": question, "hints": hints}, ensure_ascii=False), encoding="utf-8")


def ampsmathematica(folder: Path, rng: random.Random, scale: int) -> None:
    """An archive: exercises by topic and task, some empty, beside folders and members that are none of it."""

    def members() -> Iterator[tuple[str, bytes]]:
        yield "amps/", b""
        yield "amps/README.txt", b"Generated example."
        yield "amps/khan/0/1000.json", b"{}"
        number = 0
        for _ in range(10 * scale):
            for topic in _TOPICS:
                for task in _TASKS:
                    question, worked, answer = problem(rng)
                    text = f"Problem:\n{question}\nAnswer:\n{worked if task.endswith('w_steps') else answer}\n"
                    if number % 60 == 11:
                        text = f"Problem:\n{question}\nAnswer:\n"
                    elif number % 60 == 23:
                        text = f"Problem: \nAnswer: {answer}"
                    yield f"amps/mathematica/{topic}/{task}/{number}.txt", text.encode()
                    number += 1
        # Two pairs of topic and task that make one name.
        yield "amps/mathematica/algebra_linear/solve/0.txt", b"Problem: 2*x = 4. Answer: 2"
        yield "amps/mathematica/algebra/linear_solve/0.txt", b"Problem: 3*x = 9. Answer: 3"

    tar_gz(folder / "amps.tar.gz", members())


def dmmath(folder: Path, rng: random.Random, scale: int) -> None:
    """Text files of alternating question and answer lines, one per module and difficulty."""
    modules = {"arithmetic__add_or_sub": sum_problem, "algebra__linear_1d": equation, "numbers__gcd": divisor}
    for subset, most in (
        ("train-easy", 10**3),
        ("train-medium", 10**6),
        ("train-hard", 10**12),
        ("interpolate", 10**6),
    ):
        below = folder / "mathematics_dataset-v1.0" / subset
        below.mkdir(parents=True, exist_ok=True)
        for module, make in modules.items():
            with (below / f"{module}.txt").open("w", encoding="utf-8") as file:
                file.writelines("\n".join(make(rng, most)) + "\n" for _ in range(400 * scale))


def theoremqa(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet: the test split, which is all there is; some questions come with a picture."""

    def row(number: int) -> dict[str, Any]:
        question, _, answer = problem(rng)
        picture = {"bytes": b"\x89PNG\r\n\x1a\n", "path": f"{number}.png"} if number % 4 == 2 else None
        return {
            "Question": f"{sentence(rng)} {question}",
            "Answer": answer,
            "Answer_type": "integer",
            "Picture": picture,
        }

    card(folder, "TIGER-Lab/TheoremQA", {"default": splits("test")})
    types = {"Picture": pa.struct([("bytes", pa.binary()), ("path", pa.string())])}
    parquet(part(folder / "data", "test"), map(row, range(60 * scale)), 60 * scale, types)
