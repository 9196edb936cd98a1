"""Raw data in the real formats of the sources: ``python examples/make_raw.py <folder> [sources=…] [scale=N]``.

Every text is made up from word lists and a seed; nothing is taken from the published data sets. The same seed gives
the same bytes, so a second run of the pipeline finds everything done.

``sources`` are names joined by commas, or ``all``; without it, four are made. ``scale`` multiplies their rows.
``family=parquet|jsonl|jsonl.gz|text bytes=2e9 files=9`` makes one large source of about 2 GB in nine files instead.
``target=problems|documents`` also writes ``<folder>/target.jsonl``: a few rows that selection can aim at.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from raw import documents, instructions, mathematics, questions
from raw.large import FAMILIES
from raw.targets import TARGETS

SEED = 20261121

SOURCES: dict[str, Callable[[Path, random.Random, int], None]] = {
    "gsm8k_train": mathematics.gsm8k_train,
    "scibench": questions.scibench,
    "dmmath": mathematics.dmmath,
    "sudoku": questions.sudoku,
    "SYNTH": instructions.synth,
    "acereason": mathematics.acereason,
    "amps_khan": mathematics.amps_khan,
    "ampsmathematica": mathematics.ampsmathematica,
    "arb": questions.arb,
    "flan": instructions.flan,
    "math_train": mathematics.math_train,
    "natural_reasoning": questions.natural_reasoning,
    "no_robots": instructions.no_robots,
    "numinamath": mathematics.numinamath,
    "omnimath": mathematics.omnimath,
    "openbookqa": questions.openbookqa,
    "openmathinstruct2": mathematics.openmathinstruct2,
    "openthoughts2": instructions.openthoughts2,
    "principia_collection": questions.principia_collection,
    "reclor": questions.reclor,
    "scienceqa": questions.scienceqa,
    "tasksource": instructions.tasksource,
    "textbookreasoning": questions.textbookreasoning,
    "theoremqa": mathematics.theoremqa,
    "webinstruct_verified": questions.webinstruct_verified,
    "c4": documents.c4,
    "bookcorpus": documents.bookcorpus,
    "the_stack": documents.the_stack,
    "cc_news": documents.cc_news,
    "arxiv": documents.arxiv,
}
"""By folder. A source's place is part of its seed: new ones go to the end."""

DEFAULT = ("gsm8k_train", "scibench", "dmmath", "sudoku")


def make(folder: Path, sources: Sequence[str] = DEFAULT, scale: int = 1) -> None:
    """Write sources below ``folder``."""
    for place, (name, source) in enumerate(SOURCES.items()):
        if name in sources:
            source(folder / name, random.Random(SEED + place), scale)


def make_target(folder: Path, name: str, count: int = 120) -> None:
    """Write rows to aim at into ``folder``, beside the sources."""
    TARGETS[name](folder / "target.jsonl", random.Random(SEED + len(SOURCES) + list(TARGETS).index(name)), count)


def make_family(folder: Path, family: str, size: int, files: int = 9) -> None:
    """Write one large source below ``folder``: about ``size`` bytes in this many files."""
    name, fill = FAMILIES[family]
    fill(folder / name, size, files)


def main(arguments: Sequence[str]) -> None:
    """Run the command line."""
    folders = [Path(argument) for argument in arguments if "=" not in argument]
    options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    sources = options.pop("sources", ",".join(DEFAULT)).split(",")
    sources = list(SOURCES) if sources == ["all"] else sources
    scale = int(options.pop("scale", "1"))
    family, size, files = options.pop("family", ""), float(options.pop("bytes", "2e9")), int(options.pop("files", "9"))
    target = options.pop("target", "")
    wrong = options or not set(sources) <= set(SOURCES) or scale < 1 or target not in {"", *TARGETS}
    if len(folders) != 1 or wrong:
        raise SystemExit(f"{__doc__}\nsources: {', '.join(SOURCES)}")
    if target:
        make_target(folders[0], target)
    if family:
        make_family(folders[0], family, int(size), files)
    else:
        make(folders[0], sources, scale)


if __name__ == "__main__":
    main(sys.argv[1:])
