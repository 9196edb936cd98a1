"""Sources of instructions of many kinds: conversations, and collections of tasks."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa

from raw.files import on_the_hub, parquet
from raw.words import problem, prose, sentence

# fmt: off
_ROLES = [
    ("user", "assistant"), ("system", "user", "assistant"), ("user", "assistant", "user", "assistant"), ("user",),
    ("assistant", "user"), ("system", "user"),
]
_SUBSETS = [
    "cot_fsopt_data", "cot_zsopt_data", "dialog_fsopt_data", "flan_zsnoopt_data", "niv2_zsopt_data",
    "t0_zsopt_data", "not_used_data",
]
_TASKS = [
    "WANLI", "MOH", "banking77", "cloth", "conll2003/ner_tags", "conll2003/pos_tags",
    "dynasent/dynabench.dynasent.r1.all/r1", "equate", "folio", "fracas", "logiqa", "medmcqa", "moral_stories/full",
    "mutual", "parade", "pragmeval/stac", "prost", "recast/recast_ner", "reclor", "ruletaker", "scicite",
    "sen-making/1", "sms_spam", "tweet_eval/emoji", "tweet_eval/irony", "twentyquestions",
    "vitaminc/tals--vitaminc", "winodict", "generated/not_in_the_list", None,
]
_EXERCISES = [
    "memorization", "creative writing", "rag", "mcq", "math mcq", "math exercise", "constrained writing", "editing",
    "cooking", "generated exercise", None,
]
# fmt: on
_TARGETS = ["entailment.", "B.", "not enough information.", "U.S..", "{who} was there. It rained.", "no"]
_ORIGINS = ["open_r1_math", "am_thinking", "science", "glaive", "nvidia_math", "open_r1_math", "sharegpt"]


_MESSAGES = pa.list_(pa.struct([("content", pa.string()), ("role", pa.string())]))


@on_the_hub("HuggingFaceH4/no_robots", {"train": 180}, {"messages": _MESSAGES}, fixed={"test": 30})
def no_robots(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: messages in turns, some after a system's text, some out of order or alone."""
    roles = _ROLES[number % len(_ROLES)]
    messages = [{"content": prose(rng, rng.randint(1, 4)), "role": role} for role in roles]
    return {
        "prompt": messages[0]["content"],
        "prompt_id": f"{number:032x}",
        "messages": messages,
        "category": "Chat",
    }


_TURNS = pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())]))


@on_the_hub("open-thoughts/OpenThoughts2-1M", {"train": 175}, {"conversations": _TURNS, "id": pa.int64()})
def openthoughts2(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: conversations of two messages; long reasoning in tags, code, and sources that are left out."""
    question, worked, answer = problem(rng)
    response = f"<think>\n{prose(rng, 40)}\n</think>\n\n{worked}\n\n**{answer}**"
    if number % 25 == 4:
        question += " Answer with a Python program."
    elif number % 25 == 11:
        response += f"\n```\nprint({answer})\n```"
    elif number % 25 == 18:
        response = response.replace("</think>", "")
    return {
        "source": _ORIGINS[number % len(_ORIGINS)],
        "conversations": [{"from": "user", "value": question}, {"from": "assistant", "value": response}],
        "question": question,
        "id": number,
    }


def flan(folder: Path, rng: random.Random, scale: int, tasks: int = 24) -> None:
    """Parquet in parts by subset, the rows of many tasks mixed; two tasks have one file name."""
    names = [f"task{number:04}_{rng.choice(('parse', 'rank', 'tell'))}" for number in range(tasks)]
    names += ["wiki:ask/answer", "wiki:ask:answer"]

    def row(number: int) -> dict[str, Any]:
        question, worked, answer = problem(rng)
        return {
            "inputs": f"{sentence(rng)}\n\nQ: {question}\nA:",
            "targets": worked if number % 3 else answer,
            "_template_idx": number % 10,
            "_task_source": "generated",
            "_task_name": names[number % len(names)],
            "_template_type": "zs_opt",
        }

    for subset in _SUBSETS:
        for number in range(2):
            count = len(names) * 4 * scale
            types = {"_template_idx": pa.int64()}
            parquet(folder / subset / f"part.{number}.parquet", map(row, range(count)), count, types)


@on_the_hub("tasksource/tasksource-instruct-v0", {"train": 12 * len(_TASKS)})
def tasksource(rng: random.Random, number: int) -> dict[str, Any]:
    """Parquet: tasks mixed, some not in the list; targets that are labels, sentences and abbreviations."""
    return {
        "inputs": f"{prose(rng, 2)}\nWhich label fits?",
        "targets": rng.choice(_TARGETS).format(who="Ada"),
        "task": _TASKS[number % len(_TASKS)],
    }


def synth(folder: Path, rng: random.Random, scale: int) -> None:
    """Parquet of 14 columns in two files: exercises of every kind, some in other languages, some about the model."""

    def row(number: int) -> dict[str, Any]:
        seed = [f"https://example.org/{number}"] * 17 + ["Pleias self-knowledge", None]
        return {
            "synth_id": f"made-{number}",
            "language": "fr" if number % 12 == 7 else "en",
            "exercise": _EXERCISES[number % len(_EXERCISES)],
            "model": "generated",
            "query": f"{sentence(rng)} What follows?",
            "query_seed_url": seed[number % len(seed)],
            "query_seed_text": prose(rng, 3),
            "additional_seed_url": None,
            "seed_license": "CC0",
            "constraints": f"\n\nUse at most {number % 90 + 10} words.",
            "script": None,
            "synthetic_reasoning": prose(rng, 10),
            "synthetic_answer": prose(rng, 5),
            "words": number % 500,
        }

    for name in ("synth_001", "synth_002"):
        parquet(folder / f"{name}.parquet", map(row, range(220 * scale)), 220 * scale, {"words": pa.int64()})
