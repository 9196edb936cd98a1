"""The lineage of results, drawn: a line for each result, oldest first, and strands from what it was made of."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pairmill.report.html import Html, join, tag
from pairmill.report.model import Block, heading

_HEIGHT: Final = 28
_STEP: Final = 14
"""Pixels between two lines, and between two strands. Texts keep their size, so these are not scaled with the page."""


@dataclass(frozen=True)
class Node:
    """A result.

    Args:
        key: its fingerprint.
        name: for people.
        note: beside the name.
        parents: keys of what it was made of; those that are not drawn are passed over.
        link: address of its report; empty = none.
    """

    key: str
    name: str
    note: str
    parents: Sequence[str]
    link: str = ""


@dataclass(frozen=True)
class Lineage(Block):
    """A graph of results, of which each is below all that it was made of.

    Args:
        nodes: oldest first.
    """

    title: str
    nodes: Sequence[Node]

    def html(self, level: int) -> Html:
        nodes = _sorted(self.nodes)
        lanes = _lanes(nodes)
        rows = {node.key: row for row, node in enumerate(nodes)}
        at = {key: (_STEP * (lane + 0.5), _HEIGHT * (rows[key] + 0.5)) for key, lane in lanes.items()}
        width, height = _STEP * (max(lanes.values(), default=0) + 1), _HEIGHT * len(nodes)
        strands = [
            tag("polyline", points=_points(at[parent], at[node.key]))
            for node in nodes
            for parent in node.parents
            if parent in at
        ]
        dots = [tag("circle", cx=x, cy=y, r=5, class_="c0") for x, y in at.values()]
        drawn = tag(
            "svg",
            *strands,
            *dots,
            width=width,
            height=height,
            style=f"flex:none;width:{width}px;height:{height}px",
            role="img",
            aria_label=f"{self.title}; the table names it",
        )
        lines = [
            tag(
                "li",
                tag("a", node.name, href=node.link) if node.link else node.name,
                f" · {node.note}" if node.note else "",
                style=f"height:{_HEIGHT}px;line-height:{_HEIGHT}px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis",
            )
            for node in nodes
        ]
        names = tag("ol", *lines, style="list-style:none;margin:0;padding:0;min-width:0;font-size:.85rem")
        return join(heading(self.title, level), tag("div", drawn, names, style="display:flex;gap:.5rem"))


def _sorted(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes, each after its parents, otherwise in their order."""
    place = {node.key: number for number, node in enumerate(nodes)}
    waiting = {node.key: {parent for parent in node.parents if parent in place} for node in nodes}
    ready = [place[key] for key, parents in waiting.items() if not parents]
    heapq.heapify(ready)
    result = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        result.append(node)
        for key, parents in waiting.items():
            if node.key in parents:
                parents.remove(node.key)
                if not parents:
                    heapq.heappush(ready, place[key])
    return result


def _lanes(nodes: Sequence[Node]) -> Mapping[str, int]:
    """Return the strand of each node: that of a parent of which it is the last to be drawn, or the first free one."""
    keys = {node.key for node in nodes}
    left = {key: sum(key in node.parents for node in nodes) for key in keys}
    lanes: dict[str, int] = {}
    taken: dict[int, str] = {}
    for node in nodes:
        parents = [parent for parent in dict.fromkeys(node.parents) if parent in keys]
        for parent in parents:
            left[parent] -= 1
            if not left[parent]:
                del taken[lanes[parent]]
        own = [lanes[parent] for parent in parents if not left[parent]]
        lane = min(own) if own else next(number for number in range(len(nodes) + 1) if number not in taken)
        lanes[node.key] = lane
        if left[node.key]:
            taken[lane] = node.key
    return lanes


def _points(start: tuple[float, float], end: tuple[float, float]) -> str:
    bend = end[1] - _HEIGHT / 2
    return " ".join(f"{x:.0f},{y:.0f}" for x, y in (start, (start[0], bend), end))
