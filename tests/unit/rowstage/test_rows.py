"""In which order row files are read."""

from pairmill.rowstage.rows import rank_of
from pairmill.rules.match import Matcher, Selector


def test_held_out_rows_rank_first_and_then_the_sources_that_are_preferred() -> None:
    tasks = ["b__x.jsonl", "a__y.jsonl", "holdout/z.jsonl", "web__x.jsonl", "a__x.jsonl", "web__good.jsonl"]
    preferred = Matcher([Selector(prefixes=("web__good",)), Selector(globs=("b__*", "?__y*"), without=("a*",))])
    assert sorted(tasks, key=lambda task: rank_of(task, preferred)) == [
        "holdout/z.jsonl",
        "web__good.jsonl",
        "b__x.jsonl",
        "a__x.jsonl",
        "a__y.jsonl",
        "web__x.jsonl",
    ]
