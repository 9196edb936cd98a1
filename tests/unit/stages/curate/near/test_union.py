"""Components of a graph whose edges come in blocks, against the definition."""

import numpy as np
import pytest

from pairmill.stages.curate.near import ranks
from pairmill.stages.curate.near.union import Components, Marked


def components(nodes: int, edges: list[tuple[int, int]]) -> list[int]:
    """The smallest member of each node's component, by walking."""
    near: list[set[int]] = [set() for _ in range(nodes)]
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)
    labels = [-1] * nodes
    for node in range(nodes):
        left = [node] if labels[node] < 0 else []
        while left:
            one = left.pop()
            if labels[one] < 0:
                labels[one] = node
                left += near[one]
    return labels


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_random_graphs_have_the_components_of_the_definition(seed: int, block: int) -> None:
    random = np.random.default_rng(seed)
    nodes = int(random.integers(1, 200))
    edges = random.integers(0, nodes, (int(random.integers(0, 300)), 2))
    joined = Components(nodes)
    for start in range(0, len(edges), block):
        joined.join(edges[start : start + block, 0], edges[start : start + block, 1])
    assert joined.labels().tolist() == components(nodes, [(int(a), int(b)) for a, b in edges])


@pytest.mark.parametrize("order", [1, -1])
def test_a_long_chain_is_one_component(order: int) -> None:
    joined = Components(20_000)
    chain = np.arange(20_000)[::order]
    joined.join(chain[:-1], chain[1:])
    assert not joined.labels().any()


def test_a_set_ranks_its_numbers() -> None:
    random = np.random.default_rng(1)
    numbers = random.integers(0, 10_001, 3_000)
    marked = Marked(10_001)
    marked.add(numbers[:2_000])
    marked.add(numbers[1_000:])
    distinct = np.unique(numbers)
    assert len(marked) == len(distinct)
    assert marked.rank(distinct).tolist() == list(range(len(distinct)))
    for start, stop in [(0, 10_001), (0, 0), (63, 64), (64, 130), (9_995, 10_001), (5_003, 5_004)]:
        expected = distinct[(distinct >= start) & (distinct < stop)]
        assert marked.between(start, stop).tolist() == expected.tolist()


def test_ranks_are_numbers_unless_longer_responses_are_better() -> None:
    numbers = np.array([5, 6, 7, 8])
    tokens = np.array([100, 10, 1_000, 10], np.uint32)
    assert ranks.ranks(numbers).tolist() == [5, 6, 7, 8]
    longest = ranks.ranks(numbers, tokens, fixed=6)
    assert np.argsort(longest, kind="stable").tolist() == [0, 2, 1, 3]
    assert ranks.numbers(longest).tolist() == [5, 6, 7, 8]
    assert (longest[1:] > 6).all(), "rows that are not fixed rank after all that are"


def test_a_response_of_very_many_tokens_ranks_first() -> None:
    longest = ranks.ranks(np.array([1, 2]), np.array([2**24, 2**32 - 1], np.uint32))
    assert longest[0] < longest[1], "beyond 16 million tokens the number counts"
