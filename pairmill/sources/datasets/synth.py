"""SYNTH (Hub ``PleIAs/SYNTH``): synthetic English questions and answers that start from Wikipedia articles."""

from collections.abc import Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.formats.row import Row
from pairmill.sources.fields import texts_or_nulls
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Drop, Parsed
from pairmill.sources.source import Context, OutputFormat, Source, Unit

_CONDITIONS = {
    "creative writing": "synth,cot",
    "rag": "synth,cot",
    "memorization": "synth,cot",
    "constrained writing": "synth,cot",
    "editing": "synth,cot",
    "math mcq": "synth,direct",
    "mcq": "synth,direct",
    "math exercise": "synth,noisy,cot",
}


class Synth(Source):
    """One output per file. The exercise says the condition; the model's reasoning is not used.

    The reference gives an exercise that it does not know an empty condition, which its tokenizer cannot take.
    """

    name = "SYNTH"
    origin = Hub("PleIAs/SYNTH", ("*.parquet",))
    licence = "CC-BY-4.0"
    citation = "Langlais and others (Pleias): SYNTH: the new data frontier. 2025, Pleias blog"
    format = OutputFormat(fields=("instruction", "condition", "response"), large=True)
    fields = ("language", "exercise", "query", "query_seed_url", "constraints", "synthetic_answer")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        parts = [path for path in files if "/" not in path and path.endswith(".parquet")]
        return [Unit(f"data_clustered/SYNTH/{path}", (path,)) for path in parts]

    def parse(self, record: Any, context: Context) -> Parsed:
        language, exercise, query, seed, constraints, answer = texts_or_nulls(record, *self.fields)
        # In the reference's query a comparison with null is null, and what is null is not selected.
        if language != "en":
            return Drop("not_english")
        if seed is None or exercise is None:
            return Drop("no_seed_url" if seed is None else "no_exercise")
        if "Pleias self-knowledge" in seed:
            return Drop("self_knowledge")
        if exercise == "cooking":
            return Drop("cooking")
        if exercise not in _CONDITIONS and not context.quirks.empty_conditions:
            return Drop("unknown_exercise")
        if exercise == "rag":
            query = None if query is None or constraints is None else query + constraints
        return Row(_CONDITIONS.get(exercise, ""), query, answer)
