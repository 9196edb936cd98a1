"""Tokenized folders of the shapes that the Danish teams' corpora have, and their rule files.

Names by family, cut into shards; lengths lognormal with the families' means. Index arrays are real. Token files are
sparse unless asked for (their digest in the manifest is then made up, as nobody reads them all).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pairmill.digest import digest_bytes
from pairmill.engine.manifest import File, Ledger, Manifest, fingerprint_from
from pairmill.formats.tokens import DTYPES, INDEX, INFO, header

_LONGEST = 8_192
_TOKENS, _INDEX = np.dtype(DTYPES["tokens"]), np.dtype(DTYPES[INDEX[0]])


@dataclass(frozen=True)
class Family:
    """Tasks whose names begin alike.

    Args:
        prefix: of the names.
        share: of the tasks.
        prompt: mean tokens of a prompt.
        response: mean tokens of a response.
        cap: rows of a task an epoch, as the old rules say; None = all.
        repeat: times over.
    """

    prefix: str
    share: float
    prompt: int
    response: int
    cap: int | None = None
    repeat: int = 1


FAMILIES = (
    Family("flan__niv2_", 0.14, 180, 40, 5_000),
    Family("flan__t0_", 0.13, 260, 60, 5_000),
    Family("flan__cot_", 0.01, 120, 90),
    Family("flan_factual__", 0.02, 210, 45, 100_000, 2),
    Family("SYNTH__", 0.08, 90, 420, 20_000),
    Family("dmmath__", 0.01, 60, 20, 100_000),
    Family("tasksource__", 0.05, 210, 12, 10_000),
    Family("openmathinstruct2__", 0.02, 110, 330, 2_000_000),
    Family("acereason__", 0.02, 160, 900, 2_000_000),
    Family("openthoughts2__", 0.02, 220, 1_400, 500_000),
    Family("dynaword_summary__", 0.08, 600, 160, 50_000),
    Family("dynaword_denoise__", 0.08, 420, 300, 12_500),
    Family("opus_da_en__", 0.10, 40, 40, 12_500),
    Family("opus_da_de__", 0.06, 40, 40, 12_500),
    Family("synth_high40__", 0.07, 140, 280, 167),
    Family("synth_repeat30__", 0.05, 140, 280, 10_000, 3),
    Family("nemotron_swe__", 0.03, 2_300, 350, 500_000),
    Family("arena_da__", 0.02, 120, 380),
    Family("Platypus__", 0.01, 190, 210, None, 10),
)
"""Together about 460 tokens a row; the teams count 323 to 444."""

DFM9, DFM11 = 11_413, 16_023
"""Tasks that they have."""


def names(tasks: int, first: int = 0) -> Iterator[tuple[str, Family]]:
    """Yield so many names of tasks, at least one of each family, numbered from ``first``, and the family of each."""
    counts = [max(1, int(family.share * tasks)) for family in FAMILIES]
    counts[0] += tasks - sum(counts)
    assert counts[0] > 0, "fewer tasks than families"
    for family, count in zip(FAMILIES, counts, strict=True):
        for number in range(first, first + count):
            yield f"{family.prefix}set{number % 17:02}-{number:05}.parquet", family


def write(
    folder: Path,
    tasks: int,
    rows: int,
    *,
    seed: int = 0,
    first: int = 0,
    even: bool = False,
    tokens: bool = False,
    manifest: bool = True,
    vocab_size: int = 65_536,
) -> int:
    """Write a tokenized folder; return the tokens that it says it has.

    Args:
        folder: is made.
        tasks: how many; at least one of each family.
        rows: of all tasks together.
        seed: of lengths and sizes.
        first: number of each family's first task: folders of other numbers have other names.
        even: whether all tasks have about as many rows; else sizes are lognormal, as the corpora's are.
        tokens: whether token files hold random ids; else they are sparse.
        manifest: whether the folder has the manifest that ours have; else it is one that others made.
        vocab_size: of the tokenizer.
    """
    folder.mkdir(parents=True)
    listed = list(names(tasks, first))
    sizes = _sizes(np.random.default_rng(seed), tasks, rows, even=even)
    files: list[File] = []
    total = 0
    for number, ((name, family), count) in enumerate(zip(listed, sizes.tolist(), strict=True)):
        draw = np.random.default_rng([seed, number])
        inst, resp = _lengths(draw, family.prompt, count), _lengths(draw, family.response, count) + 1
        ends = np.cumsum(inst + resp)
        held = int(ends[-1]) if count else 0
        total += held
        (folder / name).mkdir()
        for array, values in zip(INDEX, (ends - inst - resp, inst, ends - resp, resp), strict=True):
            data = header(_INDEX, count) + values.astype(_INDEX, copy=False).tobytes()
            files.append(_write(folder, f"{name}/{array}.npy", data, name))
        head = header(_TOKENS, held)
        if tokens:
            data = head + draw.integers(0, vocab_size, held, dtype=_TOKENS).tobytes()
            files.append(_write(folder, f"{name}/tokens.npy", data, name))
        else:
            size = len(head) + held * _TOKENS.itemsize
            file = _write(folder, f"{name}/tokens.npy", head, name)
            os.truncate(folder / file.path, size)
            files.append(file._replace(size=size))
    files.append(_write(folder, INFO, json.dumps({"vocab_size": vocab_size}).encode(), ""))
    if manifest:
        ledger = Ledger(rows, rows, rows)
        Manifest("tokenize", 1, fingerprint_from("dfm", tasks, rows, seed), {}, [], ledger, files).finish(str(folder))
    return total


def old_rules() -> list[dict[str, object]]:
    """Return 114 rules in the words that data_io has: those of the families, and those of single sets of some."""
    single = [
        {"prefix": f"{family.prefix}set{number:02}-", "max_per_file": family.cap}
        for number in range(16)
        for family in FAMILIES
        if family.cap is not None and family.repeat == 1
    ]
    ours = [_rule(family.prefix, family) for family in FAMILIES]
    return [*single[: 114 - len(ours)], *ours]


def rule_for_each(tasks: int) -> list[dict[str, object]]:
    """Return a rule for each task, as a generated file has them (above 1 MB for 16,023), longest name first."""
    rules = [_rule(name, family) for name, family in names(tasks)]
    return sorted(rules, key=lambda rule: (-len(str(rule["prefix"])), str(rule["prefix"])))


def write_rules(path: Path, rules: list[dict[str, object]]) -> None:
    """Write rules as YAML, with plain scalars as people write them."""
    lines = []
    for rule in rules:
        for number, (key, value) in enumerate(rule.items()):
            text = "null" if value is None else f'"{value}"' if isinstance(value, str) else str(value)
            lines.append(f"{'- ' if number == 0 else '  '}{key}: {text}\n")
    path.write_text("".join(lines))


def _rule(prefix: str, family: Family) -> dict[str, object]:
    rule: dict[str, object] = {"prefix": prefix, "max_per_file": family.cap}
    return rule if family.repeat == 1 else rule | {"repeat": family.repeat}


def _sizes(draw: np.random.Generator, tasks: int, rows: int, *, even: bool) -> NDArray[np.int64]:
    """Rows of each task, ``rows`` together."""
    weights = np.ones(tasks) if even else draw.lognormal(0, 1.2, tasks)
    ends = np.rint(np.cumsum(weights) / weights.sum() * rows).astype(np.int64)
    sizes: NDArray[np.int64] = np.diff(ends, prepend=0)
    return sizes


def _lengths(draw: np.random.Generator, mean: int, count: int) -> NDArray[np.int64]:
    return np.clip(draw.lognormal(np.log(mean) - 0.32, 0.8, count), 1, _LONGEST).astype(np.int64)


def _write(folder: Path, path: str, data: bytes, task: str) -> File:
    (folder / path).write_bytes(data)
    return File(path, len(data), digest_bytes(data), task)
