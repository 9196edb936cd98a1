"""``pairmill trace step=``: each row of a step names the record that its text names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pairmill.errors import InputError, UsageError
from pairmill.lineage import trace
from pairmill.lineage.trace_config import TraceConfig
from pairmill.show.lines import plain
from tests.support import tools
from tests.support.data import traced

_ROW = re.compile(r"^rank (\d)  (\d+):(\d+)  (\S+):(\d+)  (\S+)  \(", re.MULTILINE)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> traced.Line:
    folder = tmp_path_factory.mktemp("line")
    rules = str(tools.rules(folder / "rules.yaml", "[]"))
    return traced.make(folder, output_path=str(folder / "arrays"), epochs=2, prefix_config_path=rules)


def show(**options: Any) -> str:
    return plain(trace.show(TraceConfig(**options)))


def test_every_row_of_a_step_names_the_record_that_its_text_names(line: traced.Line) -> None:
    texts, seen = traced.texts(line.select), set()
    for step in (1, 2, 9, 17):
        text = show(step=step, plan=[str(line.sample)], batch_tokens=2048, ranks=2, n=0)
        rows = _ROW.findall(text)
        assert f"step {step}: {len(rows)} rows on 2 ranks, places " in text
        for rank, _, _, task, ordinal, record in rows:
            assert record in traced.marks(texts[f"{task}"][int(ordinal)])
            seen.add((task.partition("__")[0], rank))
    assert len(seen) > 4


def test_a_rank_and_texts(line: traced.Line) -> None:
    options = {"step": 3, "plan": [str(line.sample)], "batch_tokens": 2048, "ranks": 2}
    every, mine = show(**options, n=0), show(**options, n=0, rank=1)
    assert [row for row in _ROW.findall(every) if row[0] == "1"] == _ROW.findall(mine)
    text = show(**options, n=2, text=True)
    (_, _, _, _, _, record), _ = _ROW.findall(text)
    assert f"@{record}@" in text.replace(" ", "")
    assert re.search(r"… and \d+ more rows; n=0 prints all", text)
    arrays = show(step=3, plan=[str(line.root.parent / "arrays")], batch_tokens=2048, ranks=2)
    assert "no records: give the plan, or root=" in arrays
    assert arrays.splitlines()[0] == every.splitlines()[0]


def test_what_says_nothing_is_refused(line: traced.Line, tmp_path: Path) -> None:
    plan = str(line.sample)
    with pytest.raises(UsageError, match=r"how batches were made.*run=<a run of train>, or plan="):
        show(step=1, plan=[plan])
    with pytest.raises(UsageError, match="how batches were made"):
        show(step=1)
    with pytest.raises(UsageError, match="no such rank; got 2; expected 0 to 1"):
        show(step=1, plan=[plan], batch_tokens=2048, ranks=2, rank=2)
    with pytest.raises(UsageError, match="no such step; got 9,999; expected 1 to "):
        show(step=9999, plan=[plan], batch_tokens=2048)
    with pytest.raises(InputError, match="not plans of sample"):
        show(step=1, plan=[str(line.tokenize)], batch_tokens=2048)
    with pytest.raises(InputError, match="not a finished run of train"):
        show(step=1, run=plan)
