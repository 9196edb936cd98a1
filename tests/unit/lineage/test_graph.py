"""The lineage drawn: each result below what it was made of, strands that never cover a stranger's dot."""

import re

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pairmill.lineage.graph import Lineage, Node, _lanes, _sorted


def nodes_of(edges: list[set[int]]) -> list[Node]:
    return [
        Node(str(at), f"n{at}", "", [str(parent) for parent in sorted(parents)]) for at, parents in enumerate(edges)
    ]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sets(st.integers(0, 10), max_size=3), min_size=1, max_size=12))
def test_a_strand_passes_no_dot_of_another_result(edges: list[set[int]]) -> None:
    nodes = nodes_of([{parent for parent in parents if parent < at} for at, parents in enumerate(edges)])
    lanes = _lanes(nodes)
    row = {node.key: at for at, node in enumerate(nodes)}
    for node in nodes:
        for parent in node.parents:
            between = [other.key for other in nodes if row[parent] < row[other.key] < row[node.key]]
            assert all(lanes[key] != lanes[parent] for key in between)


def test_results_come_after_what_they_were_made_of_whatever_their_times() -> None:
    nodes = _sorted([Node("b", "", "", ["a"]), Node("c", "", "", []), Node("a", "", "", ["x"])])
    assert [node.key for node in nodes] == ["c", "a", "b"]


def test_a_page_shows_names_as_text_and_a_strand_for_each_edge() -> None:
    page = Lineage(
        "What", [Node("a", "clean/<a>", "5 rows", []), Node("b", "curate/b", "", ["a", "gone"], "b.html")]
    ).html(2)
    assert "clean/&lt;a&gt; · 5 rows" in page
    assert '<a href="b.html">curate/b</a>' in page
    assert len(re.findall("<polyline", page)) == 1
    assert len(re.findall("<circle", page)) == 2
