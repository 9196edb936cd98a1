"""Every attribute that documents and shipped settings name is one that the program makes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pairmill.stages.curate.scores.classifiers import FastTextScorer
from pairmill.stages.curate.scores.heuristics import HeuristicsSettings
from pairmill.stages.curate.scores.language import LanguageScorer
from pairmill.stages.curate.scores.perplexity import PerplexityScorer
from pairmill.stages.curate.settings import Settings
from tests.support.helpers import REPOSITORY

_NAMED = re.compile(r"(?:attribute|group_by): ?[\"']?(\w+\.[\w-]+)|`(\w+\.[irpj]_\w+)`")
_OPEN = ("source", "sidecar", "judge")
"""What a data set, a user or a judge names."""


def files() -> list[Path]:
    """Documents and settings that a user reads."""
    found = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("*.yaml")]
    for folder, names in (("docs", "*.md"), ("components", "README.md"), ("examples", "*.yaml")):
        found += [path for path in (REPOSITORY / folder).rglob(names) if "decisions" not in path.parts]
    return sorted(path for path in found if path.name != "CHANGELOG.md")


def named() -> dict[str, list[str]]:
    """Attributes, and the files that name them."""
    found: dict[str, list[str]] = {}
    for path in files():
        for match in _NAMED.finditer(path.read_text(encoding="utf-8")):
            found.setdefault(match[1] or match[2], []).append(str(path.relative_to(REPOSITORY)))
    return found


def classifiers() -> list[Any]:
    """Those that the guide defines."""
    blocks = re.findall(r"```yaml\n(.*?)```", (REPOSITORY / "docs/curation.md").read_text(encoding="utf-8"), re.DOTALL)
    (said,) = (block for block in blocks if "classifiers:" in block)
    return list(Settings.parse(said).classifiers)


def types_of(scorer: type[Any], **given: Any) -> list[str]:
    """The columns of a scorer; types do not follow from its model."""
    made = object.__new__(scorer)
    for name, value in given.items():
        object.__setattr__(made, name, value)
    return list(made.types())


@pytest.fixture(scope="module")
def made() -> set[str]:
    """The attributes that the program makes with the settings that the documents show."""
    variants = [HeuristicsSettings(profile=name) for name in ("pairs", "gopher", "seed_web")]
    (heuristics,) = variants[0].scorers("", variants)
    found = {"row.condition", *(f"heuristics.{name}" for name in heuristics.types())}
    found |= {f"language.{name}" for name in types_of(LanguageScorer)}
    found |= {f"perplexity.{name}" for name in types_of(PerplexityScorer, fields=("instruction", "response"))}
    for one in classifiers():
        found |= {f"{one.name}.{name}" for name in types_of(FastTextScorer, settings=one)}
    return found


def test_attributes_that_are_named_exist(made: set[str]) -> None:
    found = {name: where for name, where in named().items() if name.partition(".")[0] not in _OPEN}
    assert {"quality.r_quality_good", "topic.topic"} <= set(found)
    assert {name: where for name, where in found.items() if name not in made} == {}
