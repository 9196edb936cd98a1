"""mix_config.yaml: the shipped file, names of buckets, and which task is in which source."""

from collections.abc import Sequence

import pytest

from pairmill.errors import UsageError
from pairmill.mixture.settings import BucketAttribute, MixSettings
from pairmill.mixture.sources import group
from tests.support.helpers import REPOSITORY

TASKS = ["a__1.jsonl", "a__2.jsonl", "b.parquet", "c__1.jsonl"]


def test_the_shipped_file_has_the_defaults() -> None:
    shipped = (REPOSITORY / "configs/mix_config.yaml").read_text()
    assert shipped == MixSettings.default_file(), "run: pairmill mix settings > configs/mix_config.yaml"
    assert MixSettings.parse(shipped) == MixSettings()
    assert MixSettings().method == "off"


def test_names_of_groups() -> None:
    assert BucketAttribute(attribute="a.b", edges=[0.3, 2, 10]).labels == ["<0.3", "0.3-2", "2-10", ">=10", "none"]
    assert BucketAttribute(attribute="a.b", edges=[1], names=["low", "high"]).labels == ["low", "high", "none"]
    assert BucketAttribute(attribute="a.b", in_=["x", "y"]).labels == ["x", "y", "other", "none"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("edges: [1], names: [low]", "the names do not fit.*2 names for 1 edges"),
        ("in: [x], names: [low]", "the names do not fit"),
        ("in: [x, other]", "not distinct"),
        ("in: [x|y]", r"have a \|"),
        ("in: [x, x]", r"in\[2\]: occurs twice; got 'x'"),
        ("in: [x], edges: [1]", "in: cannot be given with edges; got edges, in"),
    ],
)
def test_groups_that_cannot_be(said: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        MixSettings.parse(f"method: unimax\nbuckets: {{attributes: [{{attribute: a.b, {said}}}]}}\n")


@pytest.mark.parametrize(
    ("said", "sources", "bucketed", "left"),
    [
        ("", {"a": TASKS[:2], "b": [TASKS[2]], "c": [TASKS[3]]}, [], []),
        ("sources: [{name: all, prefixes: ['']}]", {"all": TASKS}, [], []),
        ("sources: [{name: z, match: ['b*', 'c__1*'], not: c*}, {name: y, re: '[ac].*'}]",
         {"z": [TASKS[2]], "y": [*TASKS[:2], TASKS[3]]}, [], []),
        ("buckets: {attributes: [{attribute: a.b, edges: [1]}], match: '[ab]*', not: b*}\nothers: leave",
         {}, TASKS[:2], TASKS[2:]),
        ("sources: [{name: z, prefixes: [b, c]}, {name: y, prefixes: [a]}]", {"z": TASKS[2:], "y": TASKS[:2]}, [], []),
        ("sources: [{name: z, prefixes: [b]}]\nothers: leave", {"z": [TASKS[2]]}, [], [*TASKS[:2], TASKS[3]]),
        ("sources: [{name: z, prefixes: [b]}]\nothers: sources",
         {"z": [TASKS[2]], "a": TASKS[:2], "c": [TASKS[3]]}, [], []),
        ("buckets: {attributes: [{attribute: a.b, edges: [1]}]}", {}, TASKS, []),
        ("buckets: {attributes: [{attribute: a.b, edges: [1]}], prefixes: [a]}\nothers: sources",
         {"b": [TASKS[2]], "c": [TASKS[3]]}, TASKS[:2], []),
        ("sources: [{name: z, prefixes: [b]}]\nbuckets: {attributes: [{attribute: a.b, edges: [1]}]}",
         {"z": [TASKS[2]]}, [*TASKS[:2], TASKS[3]], []),
    ],
)  # fmt: skip
def test_sources_of_tasks(
    said: str, sources: dict[str, Sequence[str]], bucketed: Sequence[str], left: Sequence[str]
) -> None:
    found = group(MixSettings.parse(f"method: unimax\n{said}\n"), TASKS)
    assert [*found.sources.items()] == [*sources.items()]
    assert (found.bucketed, found.left) == (bucketed, left)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("sources: [{name: a, prefixes: [b]}]\nothers: sources", "has the name of yours, 'a'"),
        ("sources: [{name: z, prefixes: [a]}]\nbuckets: {attributes: [{attribute: a.b, edges: [1]}], prefixes: [a__1]}",
         "two sources have the task 'a__1.jsonl'; got 'z' and buckets"),
        ("buckets: {attributes: [{attribute: a.b, edges: [1]}], prefixes: [zz]}\nothers: leave",
         "the buckets have no task"),
        ("sources: [{name: z, prefixes: ['']}]\nbuckets: {attributes: [{attribute: a.b, edges: [1]}]}",
         "no task.*no source has"),
        ("buckets: {attributes: [{attribute: a.b, edges: [1]}], prefixes: [a]}", "2 tasks have no source"),
    ],
)  # fmt: skip
def test_sources_that_cannot_be(said: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        group(MixSettings.parse(f"method: unimax\n{said}\n"), TASKS)


def test_phases_take_from_the_top_what_they_do_not_say() -> None:
    settings = MixSettings.parse(
        "method: exponent\nexponent: 0.5\nmax_epochs: 4\nweights: {a: 1}\nphases:\n"
        "- {name: one, until: 0.5}\n- {name: two, until: 0.75, exponent: 2}\n"
        "- {name: three, until: 0.9, method: unimax}\n"
        "- {name: four, until: 0.95, method: weights}\n- {name: five, until: 1, method: english}\n"
    )
    found = settings.wanted(20)
    assert [one.epochs for one in found] == [10, 5, 3, 1, 1]
    assert [one.share for one in found] == pytest.approx([0.5, 0.25, 0.15, 0.05, 0.05])
    assert [one.recipe.exponent for one in found] == [0.5, 2, None, None, None]
    assert [one.recipe.max_epochs for one in found] == [4, 4, 4, 4, 1]
    assert [dict(one.recipe.weights) for one in found] == [{}, {}, {}, {"a": 1}, {}]
