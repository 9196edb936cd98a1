"""MATH, training split (Hub ``EleutherAI/hendrycks_math``, seven configs): competition problems, solved in full."""

from collections.abc import Sequence
from typing import Any

from pairmill.engine.options import Profile
from pairmill.errors import InputError
from pairmill.formats.row import Row
from pairmill.sources.fields import boxed_answer, text_of, text_or_null
from pairmill.sources.files.card import hub_split
from pairmill.sources.origin import Hub
from pairmill.sources.parsed import Drop, Parsed
from pairmill.sources.source import Context, Source, Unit

_CONFIGS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)


class MathTrain(Source):
    r"""Per problem the solution, and the answer in its last ``\boxed{…}`` where there is one.

    The licence is what the publisher states; the authors' own copy was taken down in January 2025, after a DMCA notice
    by Art of Problem Solving.
    """

    name = "math_train"
    origin = Hub("EleutherAI/hendrycks_math", tuple(f"{config}/train-*" for config in _CONFIGS))
    licence = "MIT"
    citation = (
        "Hendrycks, Burns, Kadavath, Arora, Basart, Tang, Song, Steinhardt: Measuring Mathematical Problem Solving "
        "With the MATH Dataset. 2021, arXiv:2103.03874"
    )
    fields = ("problem", "solution")

    def units(self, files: Sequence[str], card: str, profile: Profile, options: Any) -> list[Unit]:
        result = {}
        for config in _CONFIGS:
            # Without a card the folder alone tells a config: another one's files must not stand in for it.
            own = [path for path in files if config in path.split("/")[:-1]]
            result[config] = hub_split(own, card, "train", config)
        missing = [config for config, paths in result.items() if not paths]
        if missing and len(missing) < len(_CONFIGS):
            raise InputError(
                "configs are missing",
                where=self.name,
                got=f"no training split of {', '.join(missing)}",
                hint="fetch it",
            )
        return [Unit("data/math_train.jsonl", tuple(path for paths in result.values() for path in paths))]

    def parse(self, record: Any, context: Context) -> Parsed:
        problem, solution = text_or_null(record, "problem"), text_of(record, "solution")
        worked = Row("cot", problem, solution.strip())
        answer = boxed_answer(solution, unbraced=not context.quirks.box_of_next_braces)
        return [worked, Row("direct", problem, answer) if answer else Drop("no_boxed_answer")]
