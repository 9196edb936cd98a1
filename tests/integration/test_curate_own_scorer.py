"""A scorer of one's own, added as CONTRIBUTING.md says: an operation in one file, and its entry in the registry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from pairmill.errors import UsageError
from pairmill.fields import Checked, setting
from pairmill.formats import rows
from pairmill.rowstage.scorer import Scored, Scorer
from pairmill.stages.curate import core, operations
from pairmill.stages.curate.explain import ExplainConfig, explain
from pairmill.stages.curate.operation import Mode, Rule, ScoredOperation
from pairmill.stages.curate.settings import Settings
from pairmill.stages.curate.show import ShowConfig, show
from tests.support.stages.curating import attributes, curate, decisions, kept, manifest, write

LOUD = ("", "what is it", "AN ANSWER")
QUIET = ("", "who is it", "an answer")


@dataclass(frozen=True)
class Shouting(Scorer):
    """The share of capitals in each response."""

    operation: ClassVar[str] = "shouting"

    def identity(self) -> list[Any]:
        return [1]

    def types(self) -> dict[str, str]:
        return {"r_capitals": "number"}

    @contextmanager
    def opened(self) -> Iterator[Callable[[rows.Batch], Scored]]:
        def score(batch: rows.Batch) -> Scored:
            texts = batch.response.to_pylist()
            return Scored([pa.array([sum(map(str.isupper, text)) / len(text) for text in texts], pa.float64())])

        yield score


@dataclass(frozen=True, kw_only=True)
class ShoutingSettings(Checked):
    """Rows that shout."""

    PER_TASK: ClassVar[tuple[str, ...]] = ("mode", "max")

    mode: Mode = setting("off", help="drop, report or off")
    max: float = setting(0.5, help="greatest share of capitals that is kept", at_least=0, at_most=1)

    def scorers(self, root: str) -> list[Scorer]:
        return [Shouting()]

    def rules(self) -> list[Rule]:
        return [Rule("loud", "r_capitals", max=self.max)]


SHOUTING = ScoredOperation(
    name="shouting", settings=ShoutingSettings, help="rows that shout.", meanings={"loud": "most letters are capitals"}
)


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add what a contributor writes into operations.py."""
    known = operations.OPERATIONS
    monkeypatch.setattr(operations, "OPERATIONS", (*known[:-2], SHOUTING, *known[-2:]))


def test_rows_that_an_own_operation_drops_have_a_reason(tmp_path: Path) -> None:
    given = write(tmp_path / "in", {"a.jsonl": [LOUD, QUIET], "b.jsonl": [QUIET, LOUD]})
    said = (
        "exact: off\nnear: off\nheuristics: off\nshouting: {mode: drop}\noverrides: [{prefix: b, shouting: report}]\n"
    )
    folder = curate(tmp_path / "root", given, said)
    assert [kept(folder, name) for name in ("a.jsonl", "b.jsonl")] == [[QUIET], [QUIET, LOUD]]
    made = manifest(folder)
    assert made.ledger.dropped == {"shouting:loud": 1}
    assert made.data["operations"]["shouting"]["would_go"] == {"loud": 1}
    assert made.data["settings"]["shouting"] == {"mode": "drop", "max": 0.5}
    assert made.data["histograms"]["shouting.r_capitals"]["bounds"] == [None, 0.5]
    assert [one["action"] for one in decisions(folder, "shouting", "b.jsonl")] == ["report"]
    assert attributes(folder, "shouting", "b.jsonl")["r_capitals"].to_pylist()[0] == 0
    assert core.Curate().metrics(made)["shouting_fraction"] == 0.25
    line = "| shouting | drop, report | loud | 2 | 1 | 1 | most letters are capitals"
    assert line in (folder / "report.md").read_text()
    found = explain(ExplainConfig(path=str(folder), row="a.jsonl:0"))
    assert "a.jsonl:0: dropped by shouting, rule loud (in the ledger: shouting:loud)" in found
    assert "loud (most letters are capitals)" in found
    assert "shouting: loud, most letters are capitals. 2 of 2 findings" in show(
        ShowConfig(path=str(folder), rule="loud", rows=[str(given)])
    )


def test_an_own_operation_is_in_the_settings_file_and_its_order_is_that_of_the_registry() -> None:
    shipped = Settings.default_file()
    assert "perplexity, classifiers, judge, shouting, filter, pii" in " ".join(shipped.replace("#", "").split())
    assert "\nshouting:" in shipped
    assert shipped.index("\nclassifiers:") < shipped.index("\nshouting:") < shipped.index("\nfilter:")


def test_an_own_filter_of_its_attribute_is_named_if_it_is_misspelt(tmp_path: Path) -> None:
    given = write(tmp_path / "in", {"a.jsonl": [LOUD, QUIET]})
    said = (
        "shouting: {mode: report}\nfilter: {mode: drop, rules: [{name: x, attribute: shouting.r_capital, max: 0.5}]}\n"
    )
    with pytest.raises(UsageError, match=r"got shouting.r_capital;.*; write shouting.r_capitals"):
        curate(tmp_path / "root", given, said)
