"""What a run of the whole line is given: raw files, descriptions of sources, settings, options. All of it is tiny."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import tools

Options = dict[str, dict[str, str]]

QUIZ = """\
name: quiz
files: quiz/*.jsonl
condition: direct
instruction: question
response: answer
attributes: {score: score}
"""
TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
CHATS = """\
name: chats
files: chats/*.jsonl
condition: synth
turns: messages
"""
CARDS = {
    "quiz.yaml": (
        QUIZ,
        f"{QUIZ}format: parquet\n",
        f"{QUIZ}where: score > 0.3\n",
        f"{QUIZ}licence: MIT\n",
        f"{QUIZ}json: lenient\n",
    ),
    "chats.yaml": (CHATS, f"{CHATS}template: {json.dumps(TEMPLATE)}\n", f"{CHATS}answers: last\n"),
}
DSIR = "dsir: {targets: [{name: some, rows: <given>/target}]}"
SETTINGS = {
    "curate.yaml": (
        "near: off\n",
        "exact: {instruction: drop}\n",
        "exact: {instruction: drop, response: drop}\n",
        "exact: report\nnear: {min_response: 1, min_instruction: 1}\n",
        "exact: off\nheuristics: {mode: drop, profile: gopher}\n",
        "report_all: true\n",
        "prefer: longest_response\nsource_priority: [quiz]\n",
        "pii: redact\nheuristics: off\n",
        "near: {fields: instruction, max_similar: 2, mode: drop}\n",
    ),
    "select.yaml": (
        "method: off\n",
        f"method: dsir\nshare: 0.6\n{DSIR}\n",
        f"method: dsir\nrows: 12\nallow_unfilled: true\n{DSIR}\n",
        "method: attributes\nshare: 0.7\nattributes: {score: [{attribute: heuristics.i_words, weight: 1}]}\n",
        "method: attributes\nrows: 9\nallow_unfilled: true\n"
        "attributes: {choose: sample, score: [{attribute: heuristics.i_words, weight: 1}]}\n",
    ),
    "mix.yaml": (
        "method: off\n",
        "method: unimax\n",
        "method: exponent\nexponent: 0.5\nmax_epochs: 8\nallow_unfilled: true\n",
        "method: unimax\nbudget: 300\nmax_epochs: 2\nallow_unfilled: true\n",
    ),
    "rules.yaml": (
        "[]\n",
        "- prefix: dmmath__\n  max_per_file: 4\n",
        "- prefix: quiz\n  repeat: 2\n- prefix: chats\n  long_context: split\n",
        "- prefix: gsm8k_train\n  long_context: drop\n  max_response_tokens_per_file: 90\n",
    ),
}
"""Texts of the files that options name; ``<given>`` is the folder that they are in."""

SOURCES = ("quiz.yaml", "chats.yaml", "gsm8k_train", "dmmath")
"""Names of sources, and files that describe one."""

PLANNING = ("mix", "sample")
CHOICES: dict[tuple[tuple[str, ...], str], tuple[str, ...]] = {
    (("fetch", "clean"), "limit"): ("0", "5"),
    (("clean",), "holdout"): ("", "0.2", "2"),
    (("clean",), "max_reject_fraction"): ("0.001", "1"),
    (("clean",), "turns"): ("", "last"),
    (("curate",), "write_index"): ("false", "true"),
    (("select",), "seed"): ("0", "1"),
    (("train_tokenizer",), "vocab_size"): ("300", "330"),
    (("train_tokenizer",), "truncate_len"): ("10000", "12"),
    (("train_tokenizer",), "evaluate"): ("true", "false"),
    (("train_tokenizer",), "limit_mul_factor"): ("10", "1"),
    (("tokenize",), "windows"): ("false", "true"),
    (PLANNING, "epochs"): ("1", "3"),
    (PLANNING, "seed"): ("0", "1"),
    (PLANNING, "context_size"): ("4097", "48"),
    (PLANNING, "min_resp_length"): ("2", "9"),
}
"""By the stages that take an option, and its name: values, the first of which a run begins with."""


def _quiz(path: Path, rows: int, seed: int) -> None:
    rng = random.Random(seed)
    made: list[dict[str, object]] = []
    for _ in range(rows):
        if made and rng.random() < 0.3:  # an equal row, or another answer to the same question
            made.append({**rng.choice(made), **({"answer": tools.words(rng, 9)} if rng.random() < 0.5 else {})})
        else:
            made.append({"question": tools.words(rng, 14), "answer": tools.words(rng, 9), "score": rng.random()})
    tools.write_lines(path, made)


def _chats(path: Path, rows: int, seed: int) -> None:
    rng = random.Random(seed)
    roles = ("user", "assistant") * 2
    chats = [{"messages": [{"role": role, "content": tools.words(rng, 5)} for role in roles]} for _ in range(rows)]
    tools.write_lines(path, chats)


def _archive(path: Path, rows: int, seed: int) -> None:
    texts = {name: tools.dmmath(rows, seed + number) for number, name in enumerate(("add", "sub"))}
    tools.write_archive(path, {f"mathematics_dataset-v1.0/train-easy/{name}.txt": one for name, one in texts.items()})


RAW: dict[str, Callable[[Path, int, int], object]] = {
    "quiz/a.jsonl": _quiz,
    "quiz/b.jsonl": _quiz,
    "chats/a.jsonl": _chats,
    "raw/gsm8k_train/main/train-00000-of-00001.parquet": lambda path, rows, seed: tools.write_gsm8k(
        path, tools.gsm8k(rows, seed)
    ),
    "raw/dmmath/mathematics_dataset-v1.0.tar.gz": _archive,
    "target/some.jsonl": lambda path, rows, seed: tools.write_rows(path, tools.rows(rows, seed)),
}
"""What writes each file, given a number of rows and a seed."""


@dataclass
class Scene:
    """Files in a folder, and options.

    Args:
        given: the folder.
        sources: names and files of descriptions.
    """

    given: Path
    options: Options = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=lambda: list(SOURCES))

    def begin(self, rows: int) -> None:
        """Write all files, with the first choice of everything."""
        for number, path in enumerate(RAW):
            self.make(path, rows, number)
        for path, texts in {**CARDS, **SETTINGS}.items():
            self.say(path, texts[0])
        for (stages, name), values in CHOICES.items():
            for stage in stages:
                self.options.setdefault(stage, {})[name] = values[0]

    def make(self, path: str, rows: int, seed: int) -> None:
        """Write a file of RAW."""
        RAW[path](self.given / path, rows, seed)

    def say(self, path: str, text: str) -> None:
        """Write a text of SETTINGS or CARDS."""
        self._said[path] = text
        tools.write_text(self.given / path, text.replace("<given>", str(self.given)))

    def move(self, given: Path) -> None:
        """Give all files another place."""
        self.given = self.given.rename(given)
        for path, text in self._said.items():
            self.say(path, text)

    def stages(self, root: Path) -> list[tuple[str, dict[str, str]]]:
        """The line below a root, for a job."""
        given, own = self.given, self.options
        sources = ",".join(str(given / one) if one.endswith(".yaml") else one for one in self.sources)
        rules = {"prefix_config_path": str(given / "rules.yaml")}
        rows = {"rows": "{select}"}
        line = {
            "fetch": {"raw": str(given / "raw"), "sources": sources, "workers": "1"},
            "clean": {"raw": "{fetch}", "sources": sources},
            "curate": {"rows": "{clean}", "raw": "{fetch}", "curate_config": str(given / "curate.yaml")},
            "select": {"rows": "{curate}", "select_config": str(given / "select.yaml")},
            "train_tokenizer": {**rows, **rules},
            "tokenize": {**rows, "tokenizer": "{train_tokenizer}"},
            "mix": {**rows, **rules, "tokenized_path": "{tokenize}", "mix_config": str(given / "mix.yaml")},
            "sample": {
                **rules, "tokenized_path": "{tokenize}", "mixture": "{mix}", "output_path": str(root / "arrays")
            },
        }  # fmt: skip
        return [(name, {"root": str(root), **options, **own.get(name, {})}) for name, options in line.items()]

    def digest(self) -> str:
        """A name for all that a run is given."""
        state = hashlib.sha256(json.dumps([self.options, self.sources]).encode())
        for path in sorted(self.given.rglob("*")):
            if path.is_file():
                state.update(f"\n{path.relative_to(self.given)} {path.stat().st_size}\n".encode() + path.read_bytes())
        return state.hexdigest()
