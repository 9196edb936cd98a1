"""What the manifest says of a choice: counts by source and group, lengths, divergences, and the best and worst rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from components.select.choose import GROUPS, by_group
from components.select.keys import extremes_of
from components.select.kl import divergences
from components.select.lengths import Lengths
from components.select.model import Model, groups_of
from components.select.settings import Settings
from components.select.shapes import Chosen, Ranking
from components.select.write import Written
from pairmill import storage
from pairmill.engine.inputs import InputFile
from pairmill.engine.manifest import Ledger, content_key
from pairmill.engine.stage import HandKeyed, ShardRecord, ShardResult
from pairmill.engine.writer import Writer
from pairmill.formats import some_rows
from pairmill.formats.row_files import RowFile

if TYPE_CHECKING:
    from components.select.core import Done

VERSION: Final = 1
SUMMARY: Final = "summary.json"
_SHOWN = 2000
"""Characters of a text that the report shows."""
_GROUPS = 1000
"""Groups that the manifest lists, the largest first."""


@dataclass(frozen=True)
class Summarise(HandKeyed[object]):
    """The best and worst rows with their texts, and the divergences of targets.

    Args:
        files: row files by task, not of held-out rows.
        rankings: their names.
        fitted: record of AddUp.
        keyed: records of MakeKeys.
        counted: records of CountChosen; none without log weights.
        chosen: record of choose.
        longest: bytes of the longest row.
    """

    work = "write the report"

    files: Mapping[str, InputFile]
    rankings: tuple[str, ...]
    fitted: ShardRecord
    keyed: tuple[ShardRecord, ...]
    counted: tuple[ShardRecord, ...]
    chosen: ShardRecord
    longest: int

    @classmethod
    def of(
        cls,
        tasks: Sequence[RowFile],
        rankings: Sequence[Ranking],
        settings: Settings,
        done: Done,
        longest: int,
    ) -> Summarise:
        """The shard."""
        files = {task.name: task.file for task in tasks if not task.held_out}
        names = tuple(one.name for one in rankings)
        # A hybrid has the divergences of its target.
        if settings.method == "hybrid":
            names = tuple(one.name for one in settings.dsir.targets)
        key = content_key(
            "select summary",
            VERSION,
            [[task, file.sha256] for task, file in sorted(files.items())],
            names,
            done.fitted.key,
            [one.key for one in done.keyed],
            [one.key for one in done.counted],
            done.chosen.key,
        )
        return cls(
            "summary", key, 0, files, names, done.fitted, tuple(done.keyed), tuple(done.counted), done.chosen, longest
        )

    def run(self, context: object, out: Writer) -> ShardResult:
        extremes = extremes_of(self.keyed)
        wanted: dict[str, set[int]] = {}
        for ranking in extremes:
            for some in ranking.values():
                for _, task, number, _ in some:
                    wanted.setdefault(task, set()).add(number)
        texts: dict[tuple[str, int], list[str]] = {}
        for task, numbers in sorted(wanted.items()):
            file = self.files[task]
            for number, row in some_rows.read(file.uri, numbers, file.content, self.longest).items():
                texts[task, number] = [(row.instruction or "")[:_SHOWN], (row.response or "")[:_SHOWN]]
        said = {
            "rows": [
                {
                    end: [
                        dict(
                            zip(
                                ("value", "task", "ordinal", "instruction", "response"),
                                (value, task, number, *texts[task, number]),
                                strict=True,
                            )
                        )
                        for value, task, number, _ in some
                    ]
                    for end, some in ranking.items()
                }
                for ranking in extremes
            ],
            "divergences": divergences(self.rankings, self.fitted, self.counted) if self.counted else {},
        }
        with out.create(SUMMARY, scratch=True) as local:
            local.write_text(json.dumps(said, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")
        return ShardResult(Ledger())


def data_of(
    tasks: Sequence[RowFile],
    rankings: Sequence[Ranking],
    settings: Settings,
    done: Done,
    summary: ShardRecord,
) -> dict[str, Any]:
    """The manifest's data.

    Args:
        tasks: with held-out ones.
        rankings: in the order in which they took rows.
        settings: of the stage.
        done: records of all rounds but the last.
        summary: record of Summarise.
    """
    uri = summary.uri(SUMMARY)
    said = json.loads(storage.store_for(uri).read(uri))
    chosen, model = done.chosen.read(Chosen), done.fitted.read(Model)
    sources: dict[str, dict[str, Any]] = {}
    before, after = Lengths(), Lengths()
    for task, records in zip(tasks, done.written, strict=True):
        for record in records if not task.held_out else ():
            data = record.read(Written)
            mine = {end: Lengths(**data.lengths[end]) for end in ("before", "after")}
            before.join(mine["before"])
            after.join(mine["after"])
            one = sources.setdefault(task.source, {"rows": 0, "chosen": 0, "characters": 0, "characters_chosen": 0})
            one["rows"] += data.rows
            one["chosen"] += data.chosen
            one["characters"] += mine["before"].response
            one["characters_chosen"] += mine["after"].response
    names = [one.name for one in rankings]
    return {
        "settings": settings.said(),
        "method": settings.method,
        "mode": settings.mode,
        "budget": {
            "unit": "response_tokens" if settings.tokens is not None else "rows",
            "asked": done.budget.tokens if done.budget.tokens is not None else done.budget.rows,
            "taken": chosen.spent,
        },
        "rows": model.rows,
        "candidates": model.candidates,
        "chosen": sum(chosen.rows),
        "outside": chosen.outside,
        "rankings": [
            {"name": name, "share": ranking.share, "rows": count, "tokens": tokens}
            for name, ranking, count, tokens in zip(names, rankings, chosen.rows, chosen.tokens, strict=True)
        ],
        "groups": _groups(done, settings),
        "overlap": {one: dict(zip(names, line, strict=True)) for one, line in zip(names, chosen.overlap, strict=False)},
        "divergences": said["divergences"],
        "sources": dict(sorted(sources.items())),
        "lengths": {"before": asdict(before), "after": asdict(after)},
        "samples": dict(zip(names, said["rows"], strict=True)),
    }


def _groups(done: Done, settings: Settings) -> dict[str, Any]:
    """The largest groups: candidates, part of the budget by the rule alone, quota, taken; and how many there are."""
    if settings.attributes.group_by is None or not settings.uses_score:
        return {}
    groups, taken = groups_of(done.fitted), by_group(done.chosen.uri(GROUPS))
    by_tokens = settings.tokens is not None
    rows: list[dict[str, Any]] = [
        {
            "group": name,
            "candidates": groups.rows[at],
            "asked": taken.asked[at],
            "quota": taken.quotas[at],
            "taken": (taken.tokens if by_tokens else taken.rows)[at],
            "rows": taken.rows[at],
        }
        for at, name in enumerate(groups.names)
    ]
    rows.sort(key=lambda one: (-one["candidates"], one["group"]))
    short = [one for one in rows if one["asked"] > one["quota"] + 1]
    return {
        "by": settings.attributes.group_by,
        "number": len(rows),
        "short": len(short),
        "redistributed": sum(one["asked"] - one["quota"] for one in short),
        "groups": rows[:_GROUPS],
    }


def metrics_of(data: Mapping[str, Any]) -> dict[str, float]:
    """Numbers that Kubeflow compares between runs."""
    found = {"candidates": data["candidates"], "chosen": data["chosen"]}
    if data["rows"]:
        found["chosen_fraction"] = round(data["chosen"] / data["rows"], 6)
    for name, one in data["divergences"].items():
        found[f"kl_reduction_{name}"] = round(one["reduction"], 9)
    for end in ("before", "after"):
        lengths = data["lengths"][end]
        if lengths["rows"]:
            found[f"mean_response_characters_{end}"] = round(lengths["response"] / lengths["rows"], 3)
    return found
