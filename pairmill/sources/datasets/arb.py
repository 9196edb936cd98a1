"""ARB (Hub ``imone/ARB``, five files): graduate problems in mathematics, physics, science, law and reading."""

from collections.abc import Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.errors import InputError
from pairmill.formats.row import Row
from pairmill.sources.fields import text_or_null, texts_of
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Parsed
from pairmill.sources.source import Context, OutputFormat, Source, Unit

_FILES = {
    "math": ("cot", "Solve the math problem."),
    "reading": ("cot", "Solve the reading comprehension problem."),
    "law": ("direct", "Choose the correct option letter."),
    "science": ("cot", "Solve the science problem."),
    "physics": ("cot", "Solve the physics problem."),
}


class Arb(Source):
    """One output per file, with the task's text before the instruction. A unit's tag is its file's stem."""

    name = "arb"
    origin = Hub("imone/ARB", tuple(f"{stem}.json" for stem in _FILES))
    licence = "MIT (the original ARB: CC-BY-4.0)"
    citation = (
        "Sawada, Paleka, Havrilla, Tadepalli, Vidas, Kranias, Nay, Gupta, Komatsuzaki: ARB: Advanced Reasoning "
        "Benchmark for Large Language Models. 2023, arXiv:2307.13692"
    )
    format = OutputFormat(fields=("instruction", "response", "condition"))
    fields = ("instruction", "response")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        result = [stem for stem in _FILES if f"{stem}.json" in files]
        if result and len(result) < len(_FILES):
            missing = ", ".join(f"{stem}.json" for stem in _FILES if stem not in result)
            raise InputError("files are missing", where=self.name, got=f"no {missing}", hint="fetch it")
        return [Unit(f"data/Platypus/arb_{stem}.jsonl", (f"{stem}.json",), tag=stem) for stem in result]

    def parse(self, record: Any, context: Context) -> Parsed:
        (instruction,) = texts_of(record, "instruction", null="None" if context.quirks.null_as_text else None)
        condition, task = _FILES[context.tag]
        return Row(condition, f"{task}\n\n{instruction}", text_or_null(record, "response"))
