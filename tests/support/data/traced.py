"""A whole line in which every text names the record that it is of: by its raw file and line."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pairmill.engine import runner
from pairmill.formats.opened import open_result
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from pairmill.stages.train_tokenizer.config import TrainTokenizerConfig
from pairmill.stages.train_tokenizer.core import TrainTokenizer
from tests.support.stages import curating, selecting

MARK: Final = re.compile(r"@([a-z]+/[a-z0-9.]+:[0-9]+)@")
SOURCES: Final[Mapping[str, str]] = {
    "pairs": "condition: direct\ninstruction: q\nresponse: a\n",
    "pages": "text: text\n",
    "chats": "condition: direct\nturns: messages\n",
    "table": "condition: direct\ninstruction: q\nresponse: a\nformat: parquet\n",
}
"""Descriptions of pairs, documents, chats of which each answer is a row, and pairs in a Parquet file."""
CURATE: Final = "exact: {mode: drop}\nheuristics: {mode: report}\n"
SELECT: Final[Mapping[str, Any]] = {
    "method": "attributes",
    "share": 0.7,
    "attributes": {"score": [{"attribute": "heuristics.r_words", "weight": 1.0}]},
}


@dataclass(frozen=True)
class Line:
    """Folders of a line, and the project that they are in."""

    raw: Path
    root: Path
    clean: Path
    curate: Path
    select: Path
    tokenize: Path
    sample: Path


def records(source: str, file: str, count: int, rng: random.Random) -> list[dict[str, Any]]:
    """Records of a raw file; some are malformed, repeat one that came before, or have an empty answer."""
    made: list[dict[str, Any]] = []
    for number in range(1, count + 1):
        mark = f"@{source}/{file}:{number}@"
        words = " ".join(rng.choice(["alpha", "beta", "gamma", "delta", "omega"]) for _ in range(rng.randrange(4, 30)))
        text = f"{mark} {words}"
        drawn = rng.random()
        if made and drawn < 0.1:
            made.append(rng.choice(made))  # its mark is that of the row it repeats
        elif drawn < 0.15:
            made.append({"unlike": text})
        elif source == "pages":
            made.append({"text": "" if drawn < 0.2 else text})
        elif source == "chats":
            turns = [(f"ask {turn} {text}", f"say {turn} {text}") for turn in range(rng.randrange(1, 4))]
            pairs = [[{"role": "user", "content": ask}, {"role": "assistant", "content": say}] for ask, say in turns]
            made.append({"messages": [message for pair in pairs for message in pair]})
        else:
            answer = "" if drawn < 0.2 else text
            made.append({"q": f"ask {text}", "a": answer})
    return made


def make(base: Path, files: int = 2, count: int = 60, seed: int = 0, **options: Any) -> Line:
    """Run the line in this process.

    Args:
        base: a folder for all.
        files: raw files of each source.
        count: records of each file.
        seed: of all draws.
        options: of sample.
    """
    rng = random.Random(seed)
    raw, root = base / "raw", base / "root"
    raw.mkdir(parents=True)
    for source, text in SOURCES.items():
        (raw / f"{source}.yaml").write_text(f"name: {source}\nfiles: '{source}/*.jsonl'\n{text}", "utf-8")
        (raw / source).mkdir()
        for number in range(files):
            lines = [json.dumps(item) for item in records(source, f"{number}.jsonl", count, rng)]
            (raw / source / f"{number}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    places = [str(raw / f"{source}.yaml") for source in SOURCES]
    cleaned = run(Clean(), CleanConfig(sources=places, root=str(root), holdout="0.1", max_reject_fraction=0.5))
    curated = curating.curate(root, cleaned, CURATE)
    selected = selecting.select(root, curated, SELECT)
    tokenizer = run(TrainTokenizer(), TrainTokenizerConfig(rows=[str(selected)], root=str(root), vocab_size=400))
    tokenized = run(Tokenize(), TokenizeConfig(rows=[str(selected)], tokenizer=str(tokenizer), root=str(root)))
    outcome = sample.run(SampleConfig(tokenized_path=str(tokenized), root=str(root), **options))
    return Line(raw, root, cleaned, curated, selected, tokenized, Path(str(outcome.parameters["output"])))


def run(stage: Any, config: Any) -> Path:
    """Run a stage in this process; return its folder."""
    return Path(runner.run(stage, replace(config, workers=1)).uri)


def texts(folder: Path) -> dict[str, list[str]]:
    """Return the texts of all rows of a folder of rows, by task; held-out rows too."""
    result = open_result(folder)
    return {
        task: [" ".join(map(str, row.values())) for batch in result.rows(task) for row in batch.to_pylist()]
        for task in result.files
    }


def marks(text: str) -> Sequence[str]:
    """Return the records that a text names."""
    return MARK.findall(text)
