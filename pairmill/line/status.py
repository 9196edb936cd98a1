"""``pairmill status root=…``: what is finished below a root, what it was made of, what is not, and what comes next.

A root of 10,000 results is answered at once: of each the time of its manifest is looked at, and only the manifests of
those that are shown are read, without their tables.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Literal

from pairmill import storage
from pairmill.engine.listing import RECORD, SHARDS, WITHOUT_REPORT, ResultFolder, list_results, list_stages
from pairmill.engine.options import option
from pairmill.errors import InputError
from pairmill.fields import Checked
from pairmill.interface import cli
from pairmill.line.following import next_command
from pairmill.lineage.graph import Lineage, Node
from pairmill.lineage.made_of import Origins
from pairmill.report.model import Bytes, Cell, Report, Table

_DASH = "–"
_SHORT = 8
"""Digits of a fingerprint by which a result is called in a column."""
_SOON = 5.0
"""Seconds after its last result in which a stage still tidies up."""


@dataclass(kw_only=True)
class StatusConfig(Checked):
    """Print what is finished below a root, what it was made of, and what is not finished."""

    root: str = option(help="project folder or URI")
    limit: int = option(10, help="results of each stage that are shown, newest first; 0 = all", at_least=0)
    format: Literal["text", "json"] = option("text", help="text, or json for programs")
    report: str = option("", help="file or URI of a page that shows the same, with the lineage drawn; empty = none")


@dataclass(frozen=True)
class Unfinished:
    """Work below a root that has no result yet.

    Args:
        place: below the root.
        shards: that are done.
        last: when the last of them was; None = not known.
    """

    place: str
    shards: int
    last: datetime | None

    def describe(self) -> str:
        """Return a line for people."""
        when = f", the last {_time(self.last)}" if self.last is not None else ""
        done = f"{self.shards:,} shards are done{when}" if self.shards else "its end is not written"
        return f"{self.place}: {done}; the same command goes on with it"


class Status:
    """What is below a root.

    Args:
        limit: of results of each stage that are shown; 0 = all.

    Raises:
        InputError: nothing of pairmill is below the root.
    """

    def __init__(self, root: str, limit: int = 0) -> None:
        self.root = root
        results = list_results(root)
        self.finished = [item for item in results if item.finished is not None]
        stages = list_stages(root)
        by_stage = {stage: [item for item in self.finished if item.folder == stage] for stage in stages}
        self.shown = [item for items in by_stage.values() for item in items[: limit or None]]
        self.left_out = {stage: len(items) - limit for stage, items in by_stage.items() if 0 < limit < len(items)}
        begun = (item for item in results if item.is_begun)
        self.unfinished = [Unfinished(f"{item.folder}/{item.fingerprint}", 0, None) for item in begun]
        self.unfinished += [work for stage, items in by_stage.items() for work in _shards_since(root, stage, items[:1])]
        self.origins = Origins(self.finished, self.shown)
        if not self.finished and not self.unfinished:
            raise InputError("nothing of pairmill is here", where=f"root={root}", hint="check the path of the project")

    def next(self) -> str:
        """Return the command that goes on with the newest result; empty if nothing follows."""
        for item in self.finished[:1]:
            head = self.origins.head(item)
            return "" if head.is_held_out else next_command(self.root, head.stage, item.uri, head.inputs)
        return ""

    def text(self) -> str:
        """Return it for a terminal."""
        lines = [
            f"{count:,} older results of {stage} are not shown; limit=0 shows all"
            for stage, count in self.left_out.items()
        ]
        lines += [f"not finished: {work.describe()}" for work in self.unfinished]
        lines += [f"next: {command}" for command in [self.next()] if command]
        parts = [self._table().text() if self.shown else "", "".join(f"{line}\n" for line in lines)]
        return "\n".join(filter(None, parts))

    def json(self) -> str:
        """Return it for programs: one object."""
        value = {
            "root": self.root,
            "results": list(map(self._values, self.shown)),
            "not_shown": self.left_out,
            "unfinished": [
                {"place": work.place, "shards": work.shards, "last": work.last and work.last.isoformat()}
                for work in self.unfinished
            ],
            "next": self.next(),
        }
        return json.dumps(value, indent=1, ensure_ascii=False) + "\n"

    def report(self, place: str) -> Report:
        """Return it as a page, with the lineage drawn.

        Args:
            place: URI of the page; below the root it leads to the reports of the results.
        """
        inside = storage.parent_of(place) == self.root
        nodes = [
            Node(
                item.fingerprint,
                f"{item.folder}/{item.fingerprint[:_SHORT]}",
                _rows_of(head.ledger.rows_out),
                [parent.fingerprint for parent in self.origins.parents(item)],
                f"{item.folder}/{item.fingerprint}/report.html" if inside and item.folder not in WITHOUT_REPORT else "",
            )
            for item in sorted(self.shown, key=lambda item: str(item.finished))
            for head in [self.origins.head(item)]
        ]
        size = sum(self.origins.head(item).size for item in self.shown)
        not_shown = [f"{count:,} older results of {stage} are not shown" for stage, count in self.left_out.items()]
        return Report(
            storage.name_of(self.root),
            {"Results": len(self.finished), "Not finished": len(self.unfinished), "Bytes of those shown": Bytes(size)},
            [Lineage("What was made of what", nodes), self._table()],
            verdict=f"next: {command}" if (command := self.next()) else "",
            look_at=[*(f"not finished: {work.describe()}" for work in self.unfinished), *not_shown],
        )

    def _values(self, item: ResultFolder) -> dict[str, Any]:
        head = self.origins.head(item)
        return {
            "stage": head.stage,
            "fingerprint": item.fingerprint,
            "uri": item.uri,
            "rows": head.ledger.rows_out,
            "tokens": head.tokens,
            "bytes": head.size,
            "finished": item.finished and item.finished.isoformat(),
            "made_of": [f"{parent.folder}/{parent.fingerprint}" for parent in self.origins.parents(item)],
        }

    def _table(self) -> Table:
        rows: list[Sequence[Cell]] = []
        for item in self.shown:
            head = self.origins.head(item)
            parents = [f"{parent.folder}/{parent.fingerprint[:_SHORT]}" for parent in self.origins.parents(item)]
            rows.append(
                (
                    f"{item.folder}/{item.fingerprint}",
                    head.ledger.rows_out or _DASH,
                    _DASH if head.tokens is None else head.tokens,
                    Bytes(head.size),
                    _time(item.finished),
                    ", ".join(parents) or _DASH,
                )
            )
        return Table("Results", ("Result", "Rows", "Tokens", "Size", "Finished, UTC", "Made of"), rows)


def _shards_since(root: str, stage: str, newest: Sequence[ResultFolder]) -> Iterator[Unfinished]:
    """Yield the work of a stage since its newest result, if there is some."""
    store, top = storage.store_for(root), storage.join(root, stage, SHARDS)
    since = newest[0].finished.timestamp() + _SOON if newest and newest[0].finished else 0.0
    # A disk says at once when a shard was last begun. In a bucket only a stage without a result is looked at.
    changed = store.modified(top)
    if newest and (changed is None or changed.timestamp() < since):
        return
    times = [when for when in store.dated(top, RECORD).values() if when is not None and when.timestamp() > since]
    if times:
        yield Unfinished(f"{stage}/{SHARDS}", len(times), max(times))


def _rows_of(count: int) -> str:
    return f"{count:,} rows" if count else ""


def _time(when: datetime | None) -> str:
    return _DASH if when is None else when.strftime("%Y-%m-%d %H:%M")


def run(config: StatusConfig) -> str:
    """Look below a root, and write the page if one is wanted; return what is printed."""
    status = Status(storage.normalise(config.root, "root"), config.limit)
    if config.report:
        place = storage.normalise(config.report, "report")
        storage.store_for(place).write(place, status.report(place).html().encode())
    return status.json() if config.format == "json" else status.text()


main = partial(cli.run_command, "status", cli.Command(StatusConfig, run))
