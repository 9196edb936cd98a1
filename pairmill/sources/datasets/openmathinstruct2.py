"""OpenMathInstruct-2 (Hub ``nvidia/OpenMathInstruct-2``): problems, a model's solutions, bare answers."""

import re
from collections.abc import Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.formats.row import Row
from pairmill.sources.fields import texts_or_nulls
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Labelled, Parsed
from pairmill.sources.source import Context, Source, Unit

# Published beside the split train: parts of it, by the number of their rows.
_SUBSET = re.compile(r"(.*/)?train_\d+M\b[^/]*$")
_SEED_SETS = ("math", "gsm8k")  # the answers to these are in other sources


class OpenMathInstruct2(Source):
    """Two outputs: every solution, and the bare answers to the problems that a model made."""

    name = "openmathinstruct2"
    origin = Hub("nvidia/OpenMathInstruct-2", ("data/train-*",))
    licence = "CC-BY-4.0"
    citation = (
        "Toshniwal, Du, Moshkov, Kisacanin, Ayrapetyan, Gitman: OpenMathInstruct-2: Accelerating AI for Math with "
        "Massive Open-Source Instruction Data. ICLR 2025, arXiv:2410.01560"
    )
    output = "data_clustered/openmathinstruct2/{}.parquet"
    labels = ("cot", "direct")
    fields = ("problem", "generated_solution", "expected_answer", "problem_source")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        return super().units([path for path in files if not _SUBSET.match(path)], card, profile, options)

    def parse(self, record: Any, context: Context) -> Parsed:
        problem, solution, answer, origin = texts_or_nulls(record, *self.fields)
        rows = [Labelled("cot", Row("synth,cot", problem, solution))]
        if origin not in _SEED_SETS:
            rows.append(Labelled("direct", Row("synth,direct", problem, answer)))
        return rows
