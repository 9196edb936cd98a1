"""Records are removed from a line of documents, chats, pairs and tables whose texts name their records: no later result
of a stage, epoch, batch or flat file has one, and every other row is as it was."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from pairmill.engine.stage import Stage
from pairmill.formats.opened import open_result
from pairmill.formats.plan_rows import PlanRows
from pairmill.interface import stagecli
from pairmill.lineage import trace
from pairmill.lineage.trace_config import TraceConfig
from pairmill.loader import Loader, RowPlan
from pairmill.policy.warn import warn_of_removed
from pairmill.removal import command
from pairmill.removal.command import RemoveConfig
from pairmill.show.lines import plain
from pairmill.stages.clean.core import Clean
from pairmill.stages.curate.core import Curate
from pairmill.stages.sample import run as sample
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.select.core import Select
from pairmill.stages.tokenize.core import Tokenize
from tests.support import tools
from tests.support.data import traced
from tests.support.data.traced import MARK, Line
from tests.support.processes.crash_points import crashes

CONTEXT = 60
RULES = """
- {prefix: pairs, long_context: split, repeat: 2}
- {prefix: pages, long_context: split}
- {prefix: chats, long_context: drop, max_per_file: 25}
- {prefix: table, long_context: truncate}
"""


class Removed:
    """The line, and what is removed from it: records that no other repeats."""

    def __init__(self, top: Path) -> None:
        self.line: Line = traced.make(top, count=25, epochs=2, context_size=CONTEXT)
        named = Counter(
            mark for some in traced.texts(self.line.clean).values() for text in some for mark in {*marks(text)}
        )
        lines = [path.read_text().splitlines() for path in sorted(self.line.raw.glob("*/*.jsonl"))]
        often = Counter(mark for some in lines for text in some for mark in {*marks(text)})
        once = sorted(mark for mark in named if often[mark] == 1)
        self.gone = {*random.Random(1).sample(once, 20)}
        self.list = tools.write_text(top / "gone.txt", "".join(f"{mark}\n" for mark in sorted(self.gone)))
        self.rules = tools.write_text(top / "rules.yaml", RULES)
        self.old = self.plan("old", self.line.tokenize)
        command.run(RemoveConfig(records=str(self.list), root=str(self.line.root), apply=True, why="asked"))
        self.policy = str(self.line.root / "policy.yaml")

    def stage(self, stage: Stage[Any, Any], **options: Any) -> Path:
        config = stage.config(root=str(self.line.root), workers=1, policy=self.policy, **options)
        return Path(str(stagecli.run(stage, config).parameters["output"]))

    def plan(self, arrays: str, tokenized: Path, extend: str = "", **options: Any) -> Path:
        config = SampleConfig(
            tokenized_path=str(tokenized),
            root=str(self.line.root),
            prefix_config_path=str(self.rules),
            context_size=CONTEXT,
            epochs=4 if extend else 2,
            extend=extend,
            output_path=str(self.line.root.parent / arrays),
            **options,
        )
        return self.line.root / "sample" / str(sample.run(config).parameters["fingerprint"])

    def marks_in(self, arrays: str, tail: str, first: int = 0) -> set[str]:
        """The removed records that batches from an epoch on name."""
        tokenizer = Tokenizer.from_file(str(self.line.tokenize / "tokenizer.json"))
        result: set[str] = set()
        with Loader(RowPlan(self.line.root.parent / arrays, tail=tail), batch_tokens=300) as loader:  # type: ignore[arg-type]
            for batch in loader:
                if batch.rows[:, 1].min() >= first:
                    text = tokenizer.decode(batch.arrays["inputs"].ravel().tolist(), skip_special_tokens=False)
                    result |= self.gone & {*marks(text)}
        return result


def marks(text: str) -> list[str]:
    return MARK.findall(text)


def rows_of(plan: Path) -> dict[str, list[list[tuple[int, ...]]]]:
    """By task and epoch the rows of a plan in order, as where they begin and end in the task's tokens."""
    opened = open_result(plan)
    rows, result = PlanRows(opened), dict[str, list[list[tuple[int, ...]]]]()
    index = {name: opened.plan_array(name) for name in ("inst_start", "inst_len", "resp_start", "resp_len")}
    del rows
    assert opened.manifest is not None
    sources = [(item["name"], item["rows"]) for item in opened.manifest.data["sources"]]
    task = np.repeat([number for number, _ in enumerate(sources)], [count for _, count in sources])
    for epoch in range(opened.epochs):
        for place in opened.plan_array(f"epoch_{epoch}").tolist():
            some = result.setdefault(sources[task[place]][0], [[] for _ in range(opened.epochs)])
            some[epoch].append(tuple(int(values[place]) for values in index.values()))
    return result


@pytest.fixture(scope="module")
def removed(tmp_path_factory: pytest.TempPathFactory) -> Removed:
    return Removed(tmp_path_factory.mktemp("removed"))


def test_no_stage_passes_on_a_row_of_a_removed_record_and_each_keeps_all_others(removed: Removed) -> None:
    line, gone = removed.line, removed.gone
    settings = {
        name: str(tools.write_text(line.root / f"{name}.yaml", text))
        for name, text in (("curate", traced.CURATE), ("select", json.dumps(traced.SELECT)))
    }
    options: dict[str, Any] = {"sources": [str(line.raw / f"{name}.yaml") for name in traced.SOURCES]}
    cleaned = removed.stage(Clean(), holdout="0.1", max_reject_fraction=0.5, **options)
    curated = removed.stage(Curate(), rows=[str(line.clean)], curate_config=settings["curate"])
    selected = removed.stage(Select(), rows=[str(line.curate)], select_config=settings["select"])
    (tokenizer,) = (line.root / "tokenizer").glob("[0-9a-f]*")
    tokenized = removed.stage(Tokenize(), rows=[str(line.select)], tokenizer=str(tokenizer), windows=True)
    between = sorted((line.root / "take_out").glob("[0-9a-f]*"))
    assert len(between) == 3  # of what curate, select and tokenize were given
    for folder in (cleaned, curated, selected, *between):
        assert not gone & {mark for some in traced.texts(folder).values() for text in some for mark in marks(text)}
    kept = {json.dumps(sorted(left(folder, gone).items())) for folder in (line.clean, line.curate, line.select)}
    assert kept == {json.dumps(sorted(traced.texts(folder).items())) for folder in between}
    assert sorted(traced.texts(line.clean)) == sorted(traced.texts(curated))
    codec = Tokenizer.from_file(str(tokenized / "tokenizer.json"))
    for file in (tokenized / "windows").glob("*.npy"):
        assert not gone & {*marks(codec.decode(np.load(file).tolist(), skip_special_tokens=False))}
    held = {mark for text in codec_texts(codec, line.tokenize) for mark in marks(text)}
    now = {mark for text in codec_texts(codec, tokenized) for mark in marks(text)}
    assert held & gone
    assert now == held - gone
    removed.plan("whole", tokenized, policy=removed.policy)
    assert not removed.marks_in("whole", "keep")


def left(folder: Path, gone: set[str]) -> dict[str, list[str]]:
    """The texts of a folder without rows of removed records; a plain loop."""
    return {task: [text for text in some if not gone & {*marks(text)}] for task, some in traced.texts(folder).items()}


def codec_texts(codec: Tokenizer, folder: Path) -> Iterator[str]:
    opened = open_result(folder)
    for task in opened.tasks:
        rows = opened.tokens(task)
        yield from (
            codec.decode(np.concatenate(rows[at]).tolist(), skip_special_tokens=False) for at in range(len(rows))
        )


@pytest.mark.parametrize("tail", ["keep", "carry"])
def test_no_batch_has_one_and_every_other_draw_is_as_it_was(removed: Removed, tail: str) -> None:
    tokenized, policy = removed.line.tokenize, removed.policy
    new = removed.plan("new", tokenized, policy=policy)
    grown = removed.plan("grown", tokenized, extend=str(removed.old), policy=policy)
    seen = removed.marks_in("old", tail)
    assert len(seen) > 5
    assert removed.marks_in("grown", tail) == seen
    assert not removed.marks_in("new", tail) | removed.marks_in("grown", tail, 2)
    before, after, later = rows_of(removed.old), rows_of(new), rows_of(grown)
    for task, epochs in before.items():
        assert later[task][:2] == epochs
        for was, now in zip(epochs, after.get(task, [[]] * 2), strict=True):
            kept = {*now}
            assert [row for row in was if row in kept] == now
            assert len(was) - len(now) <= len(removed.gone)


def test_trace_and_those_who_use_an_old_result_are_told(removed: Removed, caplog: pytest.LogCaptureFixture) -> None:
    for record in sorted(removed.gone)[:5]:
        text = plain(trace.show(TraceConfig(record=record, root=str(removed.line.root))))
        assert "removed on 20" in text
        assert ", gdpr: asked" in text
    other = next(
        mark for some in left(removed.line.clean, removed.gone).values() for text in some for mark in marks(text)
    )
    assert "removed on" not in plain(trace.show(TraceConfig(record=other, root=str(removed.line.root))))
    new = removed.plan("new", removed.line.tokenize, policy=removed.policy)
    for place, count in ((removed.line.clean, 1), (removed.line.tokenize, 1), (removed.old, 1), (new, 0)):
        caplog.clear()
        warn_of_removed(open_result(place))
        assert caplog.text.count("rows of records that were removed on") == count


def test_killed_at_instants_rows_are_taken_out_all_the_same(removed: Removed) -> None:
    (tokenizer,) = (removed.line.root / "tokenizer").glob("[0-9a-f]*")
    options = {"rows": [str(removed.line.select)], "tokenizer": str(tokenizer), "min_response_tokens": 1}
    whole = removed.stage(Tokenize(), **options)
    root = removed.line.root.parent / "again"
    config = Tokenize.config(root=str(root), workers=1, policy=removed.policy, **options)
    kills = 0
    for kills in crashes(lambda: stagecli.run(Tokenize(), config), root, stride=41):  # noqa: B007
        pass
    assert kills > 100
    (made,) = (root / "tokenize").glob("[0-9a-f]*")
    assert tools.digests(made) == tools.digests(whole)
