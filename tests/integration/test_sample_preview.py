"""``sample preview`` says what sample then draws, and writes nothing."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pairmill.engine import manifest as manifests
from pairmill.formats.results.sample import SampleResult
from pairmill.stages.sample.run import run
from tests.support import tools
from tests.support.data.tokens_and_mixtures import Bench

EPOCHS = 3
RULES: list[dict[str, Any]] = [
    {"match": "flan__*", "group": "flan", "max_rows": 500, "within": "sqrt"},
    {"prefix": "opus", "max_per_file": 300, "repeat": 2},
    {"prefix": "small", "max_per_file": 1000},
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Four shards of flan, pairs of opus, a small task, and one that no rule matches; lengths differ by task."""
    made = Bench(tmp_path_factory.mktemp("preview"))
    random = np.random.default_rng(1)
    for number in range(4):
        made.put(f"flan__{number}", random.integers(2, 60 + 40 * number, 200 + 100 * number))
    made.put("opus_da", random.integers(2, 20, 900))
    made.put("small", random.integers(2, 200, 30))
    made.put("other", random.integers(2, 90, 50))
    (made.folder / "rules.yaml").write_text(yaml.safe_dump(RULES))
    return made


def preview(bench: Bench, *options: str, code: int = 0) -> str:
    """Run the command; returns stdout, or of a failure the error."""
    given = [f"tokenized_path={bench.tokenized}", f"epochs={EPOCHS}"]
    if not any(option.startswith("prefix_config_path=") for option in options):
        given.append(f"prefix_config_path={bench.folder / 'rules.yaml'}")
    before = tools.digests(bench.folder)
    done = tools.ended(tools.run([sys.executable, "-m", "pairmill", "sample", "preview", *given, *options]), code)
    assert tools.digests(bench.folder) == before
    return done.out if code == 0 else done.message


def drawn(bench: Bench, target: Path, rules: Any) -> SampleResult:
    path = target.parent / f"{target.name}.yaml"
    path.write_text(yaml.safe_dump(rules))
    bench.run(mixture="", prefix_config_path=str(path), output_path=str(target), epochs=EPOCHS)
    manifest = manifests.read(str(target))
    assert manifest is not None
    return SampleResult.from_manifest(manifest)


def test_what_is_expected_is_drawn(bench: Bench, tmp_path: Path) -> None:
    data = json.loads(preview(bench, "format=json"))
    result = drawn(bench, tmp_path / "out", RULES)
    for line in data["tasks"]:
        stats = result.stats[line["name"]]
        tokens = (stats["cov_itoks"] + stats["cov_rtoks"]) / EPOCHS
        assert abs(line["tokens"] - tokens) <= 3 * line["error"] + 1e-6, line["name"]
        assert line["rows"] * EPOCHS == pytest.approx(stats["cov_rows"]), line["name"]
        assert line["unique_rows"] == stats["unique_rows"], line["name"]
        assert line["pool_rows"] == stats["rows"] == len(bench.lengths[line["name"]])
        assert line["exposures"] == pytest.approx(stats["cov_rows"] / stats["unique_rows"])
    groups = {line["name"]: line for line in data["groups"]}
    assert [*groups] == ["flan", "opus", "small", "(no rule)"]
    assert groups["flan"]["tasks"] == 4
    assert groups["flan"]["rows"] == 500
    for key in ("rows", "tokens", "unique_rows", "pool_tokens"):
        assert sum(line[key] for line in data["tasks"]) == pytest.approx(data["total"][key])
        assert sum(line[key] for line in data["groups"]) == pytest.approx(data["total"][key])
    assert sum(line["share"] for line in data["groups"]) == pytest.approx(1)
    assert data["not_binding"] == [{"group": "small", "cap": "max_per_file: 1,000", "tasks": 1, "rows": 30}]
    assert data["without_task"] == []


def test_values_that_are_tried_are_what_the_sample_would_have(bench: Bench, tmp_path: Path) -> None:
    data = json.loads(preview(bench, "what_if=group=flan max_rows=20,200,1000,uncapped", "format=json"))
    steps = data["what_if"]["steps"]
    assert [step["value"] for step in steps] == ["20", "200", "1000", "uncapped"]
    for number, step in enumerate(steps):
        first = {**RULES[0], "max_rows": int(step["value"])} if number < 3 else {"match": "flan__*", "group": "flan"}
        result = drawn(bench, tmp_path / str(number), [first, *RULES[1:]])
        mine = [result.stats[f"flan__{shard}"] for shard in range(4)]
        tokens = sum(stats["cov_itoks"] + stats["cov_rtoks"] for stats in mine) / EPOCHS
        assert abs(step["tokens"] - tokens) <= 3 * step["error"] + 1e-6
        assert step["unique_rows"] == sum(stats["unique_rows"] for stats in mine)
    assert steps[3]["error"] == 0
    assert steps[0]["error"] > 0
    per_task = json.loads(preview(bench, "what_if=group=opus max_per_file=100,uncapped", "format=json"))["what_if"]
    assert [step["rows"] for step in per_task["steps"]] == [200, 1800]
    assert [step["exposures"] for step in per_task["steps"]] == [1, 6]


def test_a_group_without_a_name_is_called_what_its_rule_says_of_names(bench: Bench, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text('- {match: "flan__*", not: "*3", max_rows: 500}')
    for group in ("match flan__* not *3", "'match flan__* not *3'"):
        tried = preview(bench, f"prefix_config_path={rules}", f"what_if=group={group} max_rows=20", "format=json")
        assert [step["rows"] for step in json.loads(tried)["what_if"]["steps"]] == [20]


def test_a_scale_is_printed_with_what_fits(bench: Bench, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("scale: {to: 20_000}\nrules: [{prefix: flan__, max_rows: 10}, {prefix: other, skip: true}]")
    given = f"prefix_config_path={rules}"
    data = json.loads(preview(bench, given, "format=json"))
    scale, groups = data["scale"], {line["name"]: line for line in data["groups"]}
    rest = data["total"]["tokens"] - groups["flan__"]["tokens"]
    assert (scale["floor"], scale["ceiling"]) == pytest.approx((rest, rest + groups["flan__"]["pool_tokens"]))
    assert data["total"]["tokens"] == pytest.approx(20_000, abs=200)
    expected = f"an epoch has 20,000 tokens: it can have {round(scale['floor']):,} to {round(scale['ceiling']):,}."
    assert expected in preview(bench, given)


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ("[{prefix: flan__, max_rows: 5, expect: {rows: '>5'}}]", "rule 1: the rule for 'flan__' .*got 5 rows"),
        ("{rules: [], expect: {tasks: 8}}", "an epoch does not give what it is expected to; got 7 tasks"),
        ("[{prefix: flan__, max_rows: 5, expect: {rows: 5}}]", ""),
    ],
)
def test_what_an_epoch_would_not_have_is_a_warning(bench: Bench, tmp_path: Path, rules: str, said: str) -> None:
    (tmp_path / "rules.yaml").write_text(rules)
    given = [f"tokenized_path={bench.tokenized}", f"prefix_config_path={tmp_path / 'rules.yaml'}"]
    done = tools.run([sys.executable, "-m", "pairmill", "sample", "preview", *given])
    assert done.code == 0, done.err
    warnings = [line for line in done.err.splitlines() if "WARNING" in line]
    assert len(warnings) == bool(said)
    assert all(re.search(said, line) for line in warnings)


def test_the_table_has_groups_tasks_and_the_ladder(bench: Bench) -> None:
    text = preview(bench, "what_if=group=flan max_rows=20,200")
    assert "| flan | max_rows: 500 | max_rows | 4 | 1,400 |" in text
    assert "### Tasks" in text
    assert "| flan__3 | flan | 500 |" in text
    assert "### What if: max_rows of flan" in text
    assert "| 200 | 600 |" in text
    assert "### Caps that do not bind" in text
    lines = list(csv.DictReader(io.StringIO(preview(bench, "format=csv"))))
    assert [line["name"] for line in lines] == sorted(bench.lengths)
    assert float(lines[0]["share"]) > 0


ABSENT = {"match": "nothing*", "expect": {"rows": ">=0"}}


def test_a_plan_and_other_rules_are_compared(bench: Bench, tmp_path: Path) -> None:
    result = drawn(bench, tmp_path / "out", [{"prefix": "flan__", "max_per_file": 10}])
    data = {
        item["name"]: item
        for item in json.loads(preview(bench, f"compare={tmp_path / 'out'}", "format=json"))["compared"]
    }
    opus = result.stats["opus_da"]
    assert data["opus"]["before"] == pytest.approx((opus["cov_itoks"] + opus["cov_rtoks"]) / EPOCHS)
    assert data["flan"]["before"] < data["flan"]["after"]
    other = json.loads(preview(bench, f"compare={tmp_path / 'out.yaml'}", "format=json"))["compared"]
    assert {item["name"]: item["before"] for item in other}["opus"] == pytest.approx(data["opus"]["before"])
    text = preview(bench, f"compare={tmp_path / 'out.yaml'}")
    (tmp_path / "more.yaml").write_text(yaml.safe_dump([*RULES, ABSENT, {"match": "*2", "max_rows": 3}]))
    more = json.loads(preview(bench, f"prefix_config_path={tmp_path / 'more.yaml'}", "format=json"))["without_task"]
    assert more == [{"rule": "match nothing*", "hidden_by": ""}, {"rule": "match *2", "hidden_by": "match flan__*"}]
    assert "### Compared, tokens an epoch" in text
    assert "| (no rule) |" in text


@pytest.mark.parametrize("amounts", [False, True])
def test_the_report_has_what_was_expected_beside_what_was_drawn(bench: Bench, tmp_path: Path, amounts: bool) -> None:
    rules = RULES if amounts else [{"prefix": "flan__", "max_per_file": 70}, *RULES[1:]]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rules))
    config = bench.config(
        root=str(tmp_path / "root"), output_path="", mixture="", prefix_config_path=str(path), epochs=EPOCHS
    )
    plan = Path(str(run(config).parameters["output"]))
    _, _, table = (plan / "report.md").read_text().partition("Expected and drawn, an epoch")
    cells = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in table.splitlines() if line.startswith("| ")}
    given = json.loads(preview(bench, f"prefix_config_path={path}", "format=json"))
    manifest = manifests.read(str(plan))
    assert manifest is not None
    stats = SampleResult.from_manifest(manifest).stats
    assert len(given["groups"]) == 4
    for group in given["groups"]:
        rows, drawn_rows, tokens, drawn_tokens, difference, errors = (
            cell.strip().replace(",", "") for cell in cells[group["name"]]
        )
        tasks = [line["name"] for line in given["tasks"] if line["group"] == group["name"]]
        real = sum(stats[task]["cov_itoks"] + stats[task]["cov_rtoks"] for task in tasks) / EPOCHS
        assert int(rows) == int(drawn_rows) == round(group["rows"])
        assert int(tokens) == round(group["tokens"])
        assert int(drawn_tokens) == round(real)
        assert abs(float(difference) - (real - group["tokens"])) <= 1
        assert abs(real - group["tokens"]) <= 3 * group["error"] + 1
        assert float(errors) == pytest.approx(
            (real - group["tokens"]) / group["error"] if group["error"] else 0, abs=0.06
        )


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["what_if=group=flam max_rows=5"], 2, ["no rule or group is called 'flam'", "did you mean 'flan'"]),
        (["what_if=group=flan max_row=5"], 2, ["unknown key 'max_row'", "max_rows"]),
        (["what_if=group=flan max_rows=5k"], 2, ["max_rows is not a count", "5k"]),
        (["what_if=flan 5"], 2, ["not a group and a key with values", "what_if='group=<name> max_rows="]),
        (["what_if=group=flan share=300%"], 2, ["share"]),
        (["compare=nowhere.yaml"], 2, ["neither a plan nor a file of rules"]),
        (["unmatched=refuse"], 3, ["no rule matches some tasks", "other"]),
        (["format=tex"], 2, ["md|csv|json"]),
        (["what_if=group=opus repeat=90_000_000"], 2, ["an epoch has too many rows"]),
    ],
)
def test_wrong_options_are_refused(bench: Bench, options: list[str], code: int, said: list[str]) -> None:
    error = preview(bench, *options, code=code)
    assert all(text in error for text in said), error


def test_tasks_without_a_rule_may_be_left_out(bench: Bench, tmp_path: Path) -> None:
    data = json.loads(preview(bench, "unmatched=leave", "format=json"))
    assert {line["name"]: line["rows"] for line in data["groups"]}["(no rule)"] == 0
    rules = {"rules": RULES, "unmatched": "leave"}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    same = json.loads(preview(bench, f"prefix_config_path={tmp_path / 'rules.yaml'}", "format=json"))
    assert same == data
