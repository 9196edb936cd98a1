"""Sources of mathematics: problems with solutions, with answers, or with both.

Each function writes one source below a folder, or returns one row of it (`on_the_hub`). Rows take turns through the
cases that the source's rules distinguish.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from raw.files import card, json_lines, on_the_hub, parquet, part, splits, tar_gz
from raw.words import divisor, equation, problem, prose, sentence, sum_problem, word_problem

# fmt: off
_CONFIGS = [
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
]
# fmt: on
_TOPICS = ["algebra", "calculus", "geometry", "number_theory"]
_JUDGED: list[dict[str, Any]] = [
    *[{}] * 8,
    {"question_type": "proof", "answer": "proof"},
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
_REPEATED = "a repeated problem"
_ORIGINS = ["augmented_math", "augmented_gsm8k", "augmented_math", "math", "gsm8k"]
_TASKS = ["area", "derivative", "factor", "integrate_w_steps", "limits_w_steps", "primes", "roots", "series", "solve"]


@on_the_hub("openai/gsm8k", {"train": 1500}, fixed={"test": 100}, config="main", folder="main", group=500)
def gsm8k_train(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: question, and an answer that ends in ``#### <number>``. Three rows in 60 are what curate looks for.

    The first is found in both splits, because its text follows from its number alone; the second is the same with other
    blanks, and the third has a polite phrase before it.
    """
    question, answer = word_problem(rng)
    if number % 20 == 5:
        question, answer = word_problem(random.Random(f"{_REPEATED} {number // 60}"))
        if number % 60 == 25:
            question = question.replace(". ", ".  ")
        elif number % 60 == 45:
            question = f"Please solve this problem. {question}"
    return {"question": question, "answer": answer}


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


@on_the_hub("AI-MO/NuminaMath-1.5", {"train": 210}, {"synthetic": pa.bool_()})
def numinamath(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: judged problems, real and synthetic, with links, prompts to translate, proofs, and holes."""
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
    } | _JUDGED[number % len(_JUDGED)]


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


@on_the_hub("nvidia/OpenMathInstruct-2", {"train": 300})
def openmathinstruct2(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: problems of the seed sets, which give one row, and of a model, which give two."""
    question, worked, answer = problem(rng)
    return {
        "problem": question,
        "generated_solution": f"{worked}\n\n{prose(rng, 8)}\n\nThe answer is \\boxed{{{answer}}}.",
        "expected_answer": answer,
        "problem_source": _ORIGINS[number % len(_ORIGINS)],
    }


@on_the_hub("nvidia/AceReason-1.1-SFT", {"train": 160})
def acereason(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: mathematics and code; the answer after its reasoning, whose tag is not always closed."""
    question, worked, answer = problem(rng)
    end = "" if number % 20 == 3 else "</think>"
    return {
        "category": "code" if number % 4 == 1 else "math",
        "source": "generated",
        "input": question,
        "output": f"<think>\n{prose(rng, 30)}\n{end}\n\n{worked}\n\n\\boxed{{{answer}}}",
    }


def amps_khan(folder: Path, rng: random.Random, scale: int) -> None:
    """Write a JSON object per file: a problem, and hints of which the last says the answer; a few have none."""
    for number in range(140 * scale):
        path = folder / "amps" / "khan" / str(number % 7) / f"{1000 + number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        question, worked, answer = problem(rng)
        hints = [] if number % 35 == 20 else [*worked.splitlines(), f"The answer is ${answer}$. "]
        path.write_text(json.dumps({"problem": question, "hints": hints}, ensure_ascii=False), encoding="utf-8")


def ampsmathematica(folder: Path, rng: random.Random, scale: int) -> None:
    """Write an archive: exercises by topic and task, some empty, beside folders and members that are none of it."""

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


_PICTURE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@on_the_hub("TIGER-Lab/TheoremQA", {"test": 60}, {"Picture": _PICTURE})
def theoremqa(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: the test split, which is all there is; some questions come with a picture."""
    question, _, answer = problem(rng)
    picture = {"bytes": b"\x89PNG\r\n\x1a\n", "path": f"{number}.png"} if number % 4 == 2 else None
    return {
        "Question": f"{sentence(rng)} {question}",
        "Answer": answer,
        "Answer_type": "integer",
        "Picture": picture,
    }
