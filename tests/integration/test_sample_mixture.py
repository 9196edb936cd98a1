"""From a tokenized folder through mix and sample to a node and a training loop, as processes that know only folders."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.loader import Loader, RowPlan
from tests.support import tools
from tests.support.data.tokens_and_mixtures import Bench

SETTINGS = """
method: unimax
budget: 90_000
max_epochs: 4
phases:
  - {name: broad, until: 0.6, epochs: 3}
  - {name: last, until: 1.0, epochs: 2, method: weights, weights: {web: 1, code: 0, math: 3}}
"""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("mixture"))
    draw = np.random.default_rng(8)
    for name, rows, most in (("web__a.jsonl", 900, 60), ("web__b.jsonl", 300, 200), ("code__a.jsonl", 400, 90)):
        bench.put(name, draw.integers(2, most, rows))
    bench.put("math__a.jsonl", draw.integers(2, 300, 150))
    bench.rules([{"prefix": "web__a", "max_per_file": 10}])
    (bench.folder / "mix.yaml").write_text(SETTINGS)
    return bench


@pytest.fixture(scope="module")
def made(bench: Bench) -> dict[str, Any]:
    """Folders of the mixture and of a plan of its sample, and a sample that was made without a plan."""
    given = {"tokenized_path": bench.tokenized, "prefix_config_path": bench.folder / "rules.yaml"}
    root, given["epochs"] = bench.folder / "root", 7
    mixture = tools.folder(tools.stage("mix", **given, mix_config=bench.folder / "mix.yaml", root=root))
    given |= {"mixture": mixture}
    tools.ended(tools.stage("sample", **given, output_path=bench.target))
    done = tools.ended(tools.stage("sample", **given, root=root, output_path=""))
    (plan,) = (path for path in (root / "sample").glob("[0-9a-f]*") if path.is_dir())
    return {"root": root, "mixture": mixture, "plan": plan, "said": done.out}


def test_a_node_needs_the_plan_and_the_tokens_alone(bench: Bench, made: dict[str, Any], tmp_path: Path) -> None:
    wanted = tools.digests(bench.target)
    del wanted[tools.MANIFEST]
    node, away = tmp_path / "node", tmp_path / "away"
    shutil.copytree(made["plan"], away / made["plan"].name)  # no mixture is in reach of it
    given = {"plan": away / made["plan"].name, "tokenized_path": bench.tokenized}
    done = tools.ended(tools.stage("sample", **given, output_path=node / "{fingerprint}"))
    assert done.out == made["said"]
    sampled = node / (node / "PLAN").read_text().strip()
    assert wanted.items() <= tools.digests(sampled).items()
    tools.ended(tools.stage("sample", **given, output_path=tmp_path / "wide", layout="data_io"))
    for epoch in range(5):
        here, there = bench.epoch(epoch), bench.epoch(epoch, tmp_path / "wide")
        assert (here.task.tolist(), here.row.tolist()) == (there.task.tolist(), there.row.tolist())
    for folder in (sampled, tmp_path / "wide"):
        about = json.loads((folder / "metadata.json").read_text())
        assert about["phases"] == [{"name": "broad", "epochs": [0, 3]}, {"name": "last", "epochs": [3, 5]}]
        assert about["epochs"] == 5
        with Loader(RowPlan(folder), batch_tokens=2000) as loader:
            assert {(batch.epoch, batch.phase) for batch in loader} == {(0, 0), (1, 0), (2, 0), (3, 1), (4, 1)}


def test_rows_are_those_of_the_plan(bench: Bench, made: dict[str, Any]) -> None:
    plan = json.loads((made["mixture"] / "mixture.json").read_text())
    names = list(bench.lengths)
    for phase in plan["phases"]:
        for number, epoch in enumerate(range(*phase["epochs"])):
            drawn = np.bincount(bench.epoch(epoch).task, minlength=4).tolist()
            for source in plan["sources"]:
                for task in source["tasks"] if source["phase"] == phase["name"] else ():
                    rows = task["rows_per_epoch"]
                    wanted = rows if isinstance(rows, int) else rows[number]
                    assert drawn[names.index(task["task"])] == wanted


def test_planned_and_drawn_shares_are_in_what_is_printed_and_in_both_reports(
    bench: Bench, made: dict[str, Any], tmp_path: Path
) -> None:
    plan = json.loads((made["mixture"] / "mixture.json").read_text())
    (web,) = (one for one in plan["sources"] if (one["name"], one["phase"]) == ("web", "last"))
    page = tmp_path / "inspect.html"
    command = [*tools.command("sample"), "inspect", f"path={bench.target}", "ranks=1", "batch_tokens=4000"]
    shown = tools.ended(tools.run([*command, f"report={page}"])).out
    for text in (made["said"], shown):
        lines = [line for line in text.splitlines() if line.startswith("| last (epoch_3 to epoch_4) | web |")]
        assert len(lines) == 1
        cells = [cell.strip() for cell in lines[0].split("|")[1:-1]]
        drawn = [bench.epoch(epoch) for epoch in (3, 4)]
        tokens = sum(int(one.length[one.task < 2].sum()) for one in drawn)
        share = tokens / sum(int(one.length.sum()) for one in drawn)
        assert cells[3:6] == [f"{tokens:,}", f"{100 * web['share']:.3f}%", f"{100 * share:.3f}%"]
        assert len([line for line in text.splitlines() if line.startswith("| epoch_4 | ")]) >= 3
        assert "Mixture: passes over the sources" in text
    for html in (page, made["plan"] / "report.html"):
        text = html.read_text()
        assert "Mixture: shares planned and drawn" in text
        assert f"{100 * share:.3f}%" in text


def _plan(root: Path, **options: Any) -> Path:
    before = set((root / "sample").glob("[0-9a-f]*"))
    tools.ended(tools.stage("sample", root=root, output_path="", **options))
    (plan,) = set((root / "sample").glob("[0-9a-f]*")) - before or {Path()}
    return plan


def test_a_plan_is_drawn_again_with_another_seed(bench: Bench, made: dict[str, Any], tmp_path: Path) -> None:
    given = {"tokenized_path": bench.tokenized, "epochs": 2, "min_resp_length": 5}
    rules = {"prefix_config_path": bench.folder / "rules.yaml"}
    first, direct = (_plan(tmp_path / "a", **given, **rules, seed=seed) for seed in (4, 9))
    assert _plan(tmp_path / "a", again=f"{first}@4", tokenized_path=bench.tokenized) == Path()
    again = _plan(tmp_path / "b", again=f"{first}@9", tokenized_path=bench.tokenized)
    # The rules' file is not in reach, and all that is written is as if it were.
    wanted = tools.digests(direct)
    assert {name: digest for name, digest in tools.digests(again).items() if name in wanted} == wanted
    assert again.name == direct.name
    assert len(wanted) > 5

    mixed = _plan(made["root"], again=f"{made['plan']}@77", tokenized_path=bench.tokenized)
    old, new = (json.loads((path / tools.MANIFEST).read_text()) for path in (made["plan"], mixed))
    assert new["options"] == {**old["options"], "seed": 77}
    drawn = [np.load(path / "plan" / "epoch_3.npy") for path in (made["plan"], mixed)]
    assert len(drawn[0]) == len(drawn[1])
    assert drawn[0].tolist() != drawn[1].tolist()


@pytest.mark.parametrize(
    ("again", "said"),
    [
        ("{plan}", "again: not a plan and a seed"),
        ("{plan}@x", "again: not a plan and a seed"),
        ("{sampled}@1", "not a plan of sample"),
    ],
)
def test_what_cannot_be_drawn_again_is_refused(bench: Bench, made: dict[str, Any], again: str, said: str) -> None:
    given = again.format(plan=made["plan"], sampled=bench.target)
    done = tools.stage("sample", again=given, root=made["root"], output_path="", tokenized_path=bench.tokenized)
    assert done.code in {2, 3}
    assert said in done.err
