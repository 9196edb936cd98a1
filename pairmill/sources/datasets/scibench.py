"""SciBench (``dataset/original/*.json`` of its repository): college science problems with numeric answers and units."""

import re
from collections.abc import Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.formats.row import Row
from pairmill.sources.fields import texts_of
from pairmill.sources.origin import Git
from pairmill.sources.parsed import Drop, Malformed, Parsed
from pairmill.sources.source import Context, Source, Unit


class SciBench(Source):
    """Per problem a worked answer where there is one, and the bare answer.

    The reference forgets the unit of the answer and emits answers that are empty.
    """

    name = "scibench"
    origin = Git("https://github.com/mandyyyyii/scibench", ("dataset/original/*.json",), "main")
    licence = "MIT"
    citation = (
        "Wang, Hu, Lu, Zhu, Zhang, Subramaniam, Loomba, Zhang, Sun, Wang: SciBench: Evaluating College-Level "
        "Scientific Problem-Solving Abilities of Large Language Models. ICML 2024, arXiv:2307.10635"
    )

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        original = [path for path in files if re.match(r"(.*/)?dataset/original/[^/]*\.json$", path)]
        chosen = tuple(original or [path for path in files if "/" not in path and path.endswith(".json")])
        return [Unit("data/Platypus/scibench.jsonl", chosen)]

    def parse(self, record: Any, context: Context) -> Parsed:
        if not isinstance(record, dict):
            return Malformed("not_an_object")
        keys = ("problem_text", "solution", "answer_latex", "answer_number")
        complete = dict.fromkeys(keys, "") | record
        problem, solution, answer, number = (text.strip() for text in texts_of(complete, *keys))
        if answer == f"${number}$":
            answer = number
        worked = [Row("cot", problem, solution)] if solution else []
        if not answer and not context.quirks.write_empty_answers:
            return [*worked, Drop("empty_answer")]
        unit = record.get("unit")
        unit = unit.strip() if isinstance(unit, str) else ""
        if unit and not answer.endswith(unit) and not context.quirks.omit_unit:
            answer = f"{answer} {unit}"
        return [*worked, Row("direct", problem, answer)]
