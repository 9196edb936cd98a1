"""Rules with groups, shares, scales and single rows, through the sampler."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, Ledger, Manifest
from pairmill.errors import UsageError
from pairmill.formats.attributes import path_of
from pairmill.formats.results.sample import SampleResult
from tests.support import tools
from tests.support.data import dfm
from tests.support.data.tokens_and_mixtures import Bench

EPOCHS = 3


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Four shards of flan, pairs of opus, and a small precious task; lengths differ by task."""
    made = Bench(tmp_path_factory.mktemp("groups"))
    random = np.random.default_rng(0)
    for number in range(4):
        made.put(f"flan__{number}", random.integers(2, 60, 400))
    made.put("opus_da", random.integers(2, 20, 900))
    made.put("small", random.integers(2, 200, 30))
    return made


def sampled(bench: Bench, target: Path, rules: Any, **options: Any) -> SampleResult:
    """Sample by these rules; return what the manifest says."""
    path = target.parent / f"{target.name}.yaml"
    path.write_text(yaml.safe_dump(rules))
    given = {"mixture": "", "prefix_config_path": str(path), "output_path": str(target), "epochs": EPOCHS}
    bench.run(**given, **options)
    manifest = manifests.read(str(target))
    assert manifest is not None
    return SampleResult.from_manifest(manifest)


def tokens_of(result: SampleResult, *tasks: str) -> float:
    """Tokens of tasks in an epoch, on average."""
    return sum(result.stats[task]["cov_itoks"] + result.stats[task]["cov_rtoks"] for task in tasks) / EPOCHS


FLAN = tuple(f"flan__{number}" for number in range(4))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ([{"prefix": "flan__", "max_per_file": 125}], [{"prefix": "flan__", "max_rows": 500}]),
        (
            [{"prefix": "flan__", "max_per_file": 100, "repeat": 2}, {"prefix": "s", "repeat": 10}],
            [{"match": "flan__*", "fraction": 0.25, "repeat": 2}, {"match": "{small,tiny}", "repeat": 10}],
        ),
        ([{"prefix": "flan__", "repeat": 2}], [{"match": ["flan__[0-9]"], "passes": 2}]),
        ([{"prefix": "opus", "max_per_file": 90}], [{"prefix": "opus", "per_task": {"fraction": 0.1}}]),
        (
            [{"prefix": "opus", "max_per_file": 90}, {"prefix": "flan__", "max_per_file": 0}],
            [{"prefix": "opus", "max_rows": 90}, {"prefix": "flan__", "skip": True}],
        ),
    ],
)
def test_old_and_new_words_that_mean_the_same_give_equal_arrays(
    bench: Bench, tmp_path: Path, old: Any, new: Any
) -> None:
    sampled(bench, tmp_path / "old", old)
    sampled(bench, tmp_path / "new", new)
    digests = [tools.digests(tmp_path / name) for name in ("old", "new")]
    for found in digests:
        del found[tools.MANIFEST]
    assert any(name.startswith("epoch_") for name in digests[0])
    assert digests[0] == digests[1]


def test_a_share_of_what_is_drawn(bench: Bench, tmp_path: Path) -> None:
    rules = [
        {"prefix": "flan__", "group": "flan", "share": "33% of epoch", "within": "sqrt", "weights": {"*__0": 0.5}},
        {"prefix": "small", "tokens": "0.25 of flan", "passes": 20},
    ]
    result = sampled(bench, tmp_path / "out", rules)
    whole = tokens_of(result, *result.stats)
    flan, small = tokens_of(result, *FLAN), tokens_of(result, "small")
    errors = [result.expected[task][2] for task in FLAN]
    error = float(np.sqrt(np.square(errors).sum())) / whole
    assert abs(flan / whole - 0.33) < max(5e-4, 4 * error)
    half, *full = (result.stats[task]["cov_rows"] for task in FLAN)
    assert half / np.mean(full) == pytest.approx(0.5, rel=0.05)
    groups = {group["name"]: group for group in result.groups}
    assert small == pytest.approx(flan / 4, abs=4 * groups["small"]["error"])
    assert groups["small"]["tokens"] == pytest.approx(groups["flan"]["tokens"] / 4, rel=0.02)
    assert groups["flan"]["wanted"] == "share: 33% of epoch"
    assert groups["flan"]["tokens"] == pytest.approx(
        groups["flan"]["drawn_tokens"], abs=4 * groups["flan"]["error"] + 1
    )
    assert groups["flan"]["drawn_rows"] == sum(result.stats[task]["cov_rows"] for task in FLAN) / EPOCHS


def test_weights_for_no_task_are_told(bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = {"*__0": 0.5, "*__9": 2, "flan__0": 3}  # the last one is hidden by the first
    sampled(bench, tmp_path / "out", [{"prefix": "flan__", "max_rows": 40, "weights": weights}])
    assert "out.yaml rule 1: weights that are for no task of the group: *__9, flan__0" in caplog.text


def test_a_scale_hits_its_target(bench: Bench, tmp_path: Path) -> None:
    rules = {
        "scale": {"to": 20_000},
        "rules": [{"prefix": "flan__", "max_rows": 1000}, {"prefix": "", "max_per_file": 50}],
    }
    result = sampled(bench, tmp_path / "out", rules)
    expected = sum(tokens for _, tokens, _ in result.expected.values())
    assert abs(expected - 20_000) < 200
    error = float(np.sqrt(sum(error**2 for *_, error in result.expected.values())))
    assert abs(tokens_of(result, *result.stats) - 20_000) < 4 * error + 200
    assert result.scale["floor"] == 0
    assert result.scale["to"] == 20_000
    with pytest.raises(UsageError, match="so many tokens"):
        sampled(bench, tmp_path / "more", {**rules, "scale": {"to": 1e9}})


def test_a_share_that_cannot_be_ends_the_stage_with_the_line_to_write(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text("- {prefix: small, share: 90% of epoch}\n")
    given = {"tokenized_path": bench.tokenized, "prefix_config_path": path, "root": tmp_path / "root"}
    done = tools.stage("sample", **given)
    assert done.code == 2
    assert "the group 'small' cannot have as many tokens" in done.err
    assert "% of epoch, or passes: " in done.err
    assert f"{path} rule 1" in done.err


@pytest.mark.parametrize(
    ("rules", "wrong"),
    [
        (
            [{"prefix": "small", "share": "5%", "passes": 9, "passes_total": 2}],
            "rule 1: the group 'small' cannot have as many tokens.*what passes_total leaves; write share: 3.12% "
            "of epoch, or raise passes_total",
        ),
        (
            [{"prefix": "opus"}, {"prefix": "flan__", "repeat": 10**9}],
            "rule 2: an epoch has too many rows; got 400,000,000,000 rows of flan__0.*lower repeat",
        ),
        ([{"match": "flan__*", "passes": 1e9}], "rule 1: an epoch has too many rows"),
    ],
)
def test_what_an_epoch_cannot_have_is_refused_before_it_is_drawn(
    bench: Bench, tmp_path: Path, rules: Any, wrong: str
) -> None:
    with pytest.raises(UsageError, match=wrong):
        sampled(bench, tmp_path / "out", rules)
    assert not (tmp_path / "out").exists()


def rows_of(bench: Bench, target: Path, task: str, epoch: int) -> list[int]:
    """The numbers of the rows of a task in an epoch, ascending."""
    found = bench.epoch(epoch, target)
    return sorted(found.row[found.task == list(bench.lengths).index(task)].tolist())


def test_only_chosen_rows_are_drawn_and_their_file_decides(bench: Bench, tmp_path: Path) -> None:
    chosen = np.arange(5, 400, 7)
    np.save(tmp_path / "chosen.npy", chosen)
    rules = [{"match": "*__0", "select_rows": str(tmp_path / "chosen.npy"), "max_per_file": 20}]
    result = sampled(bench, tmp_path / "out", rules)
    drawn = [rows_of(bench, tmp_path / "out", "flan__0", epoch) for epoch in range(EPOCHS)]
    assert [len(rows) for rows in drawn] == [20] * EPOCHS
    assert {row for rows in drawn for row in rows} == {*chosen.tolist()}  # 57 rows, and each before any comes again
    assert len(rows_of(bench, tmp_path / "out", "flan__1", 0)) == 400
    assert next(group["pool_rows"] for group in result.groups if group["tasks"] == 1) == len(chosen)
    before = manifests.read(str(tmp_path / "out"))
    np.save(tmp_path / "chosen.npy", chosen[1:])
    sampled(bench, tmp_path / "other", rules)
    after = manifests.read(str(tmp_path / "other"))
    assert before is not None
    assert after is not None
    assert before.fingerprint != after.fingerprint


def test_an_epoch_has_rows_of_each_length_in_their_shares(bench: Bench, tmp_path: Path) -> None:
    classes = [{"upto": 16, "share": "50%"}, {"upto": 32, "share": "30%"}, {"share": "20%"}]
    rules = [{"match": "flan__0", "max_rows": 100, "lengths": classes}, {"re": ".*", "skip": True}]
    result = sampled(bench, tmp_path / "out", rules)
    for epoch in range(EPOCHS):
        rows = bench.epoch(epoch, tmp_path / "out")
        assert np.histogram(rows.length + 2, [0, 17, 33, 999])[0].tolist() == [50, 30, 20]
    _, tokens, error = result.expected["flan__0"]
    assert 0 < abs(tokens_of(result, "flan__0") - tokens) < 4 * error
    assert result.groups[0]["tokens"] == pytest.approx(tokens, abs=0.01)


def test_rows_of_a_chat_are_drawn_all_or_none(tmp_path: Path) -> None:
    made, random = Bench(tmp_path / "bench"), np.random.default_rng(3)
    made.put("chats.jsonl", random.integers(2, 40, 300))
    chats = np.sort(random.integers(0, 90, 300)).astype(str)
    folder = tmp_path / "rows"
    beside = folder / path_of("chats.jsonl")
    beside.parent.mkdir(parents=True)
    pq.write_table(pa.table({"chat": chats}), beside)
    (folder / "chats.jsonl").write_text('{"condition":"","instruction":"a","response":"b"}\n' * 300)
    files = [
        File(path, (folder / path).stat().st_size, hashlib.sha256((folder / path).read_bytes()).hexdigest(), task)
        for path, task in (("chats.jsonl", "chats.jsonl"), (path_of("chats.jsonl"), ""))
    ]
    Manifest("clean", 1, "0" * 16, {}, [], Ledger(300, 300, 300), files).finish(str(folder))
    rules = [{"prefix": "chats", "max_rows": 100, "keep_together": "source.chat"}]
    with pytest.raises(UsageError, match="needs the rows with their attributes"):
        sampled(made, tmp_path / "refused", rules)
    result = sampled(made, tmp_path / "out", rules, rows=[str(folder)])
    sizes = {chat: int((chats == chat).sum()) for chat in chats}
    seen: list[int] = []
    for epoch in range(EPOCHS):
        rows = rows_of(made, tmp_path / "out", "chats.jsonl", epoch)
        assert 100 - max(sizes.values()) < len(rows) <= 100
        assert all((chats[rows] == chat).sum() == sizes[chat] for chat in {*chats[rows]})
        seen += rows
    assert len(seen) == len({*seen})
    count, tokens, error = result.expected["chats.jsonl"]
    assert 100 - max(sizes.values()) < count < 100
    assert abs(tokens_of(result, "chats.jsonl") - tokens) < 4 * error
    (group,) = result.groups
    assert (group["rows"], group["tokens"]) == (pytest.approx(count, abs=0.01), pytest.approx(tokens, abs=0.01))
    assert group["wanted"] == f"max_rows: 100, keep_together: units of up to {max(sizes.values())} rows"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus of the Danish teams' shape."""
    folder = tmp_path_factory.mktemp("dfm") / "tokenized"
    dfm.write(folder, 60, 6_000, tokens=True)
    return folder


def small(rule: dict[str, Any]) -> dict[str, Any]:
    """A rule whose cap is one of this corpus."""
    cap = rule["max_per_file"]
    return {**rule, "max_per_file": cap if cap is None else cap // 500 + 3}


def in_new_words(rule: dict[str, Any], *, group: bool) -> dict[str, Any]:
    """The same rule with a glob and an amount: of the group that its one task is, or of each task."""
    made = {"match": rule["prefix"] if group else f"{rule['prefix']}*"}
    cap = {} if rule["max_per_file"] is None else {"max_rows": rule["max_per_file"]}
    made |= cap if group else {"per_task": cap} if cap else {}
    return made | {key: rule[key] for key in ("repeat",) if key in rule}


@pytest.mark.parametrize("each", [False, True])
def test_rules_of_a_corpus_in_old_and_new_words_draw_the_same(corpus: Path, tmp_path: Path, each: bool) -> None:
    names = [path.name for path in corpus.iterdir()]
    rules = dfm.rule_for_each(60) if each else dfm.old_rules()
    # In new words a rule that is for no task is refused.
    old = [small(rule) for rule in rules if any(name.startswith(rule["prefix"]) for name in names)]
    assert len(old) > 10
    plans = []
    for name, rules in (("old", old), ("new", [in_new_words(rule, group=each) for rule in old])):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(rules, sort_keys=False))
        root = tmp_path / name
        given = {"tokenized_path": corpus, "prefix_config_path": path, "root": root, "output_path": "", "epochs": 3}
        tools.ended(tools.stage("sample", **given))
        (plan,) = root.glob("sample/*/plan")
        plans.append(tools.digests(plan))
    assert "epoch_2.npy" in plans[0]
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([{"prefix": "none__"}, {"match": "flna__*"}], "rule 2: matches no task; got match flna__*"),
        (
            [{"match": "*__0", "group": "zero", "max_rows": 9}, {"prefix": "flan__", "group": "flan", "max_rows": 9}],
            "rule 2: a task is in two groups, 'zero' and 'flan'; got flan__0",
        ),
    ],
)
@pytest.mark.parametrize("command", ["sample", "preview"])
def test_globs_without_tasks_and_groups_that_overlap_are_refused(
    bench: Bench, tmp_path: Path, rules: list[Any], message: str, command: str
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(rules))
    given = [f"tokenized_path={bench.tokenized}", f"prefix_config_path={path}"]
    given = (
        ["sample", "preview", *given] if command == "preview" else ["sample", *given, f"output_path={tmp_path / 'out'}"]
    )
    done = tools.ended(tools.run([sys.executable, "-m", "pairmill", *given]), code=3)
    assert message in done.err
    assert not (tmp_path / "out").exists()


def test_a_plan_with_amounts_is_drawn_again_and_one_with_choices_is_not(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    given = {"tokenized_path": bench.tokenized, "root": tmp_path / "root", "output_path": "", "epochs": 2}
    path.write_text("- {prefix: flan__, share: 20% of epoch}\n- {prefix: small, max_rows: 7}\n")
    tools.ended(tools.stage("sample", **given, prefix_config_path=path))
    (first,) = (tmp_path / "root" / "sample").glob("*/plan")
    again = {"again": f"{first.parent}@5", "tokenized_path": bench.tokenized, "root": tmp_path / "root"}
    tools.ended(tools.stage("sample", **again, output_path=""))
    (second,) = {*(tmp_path / "root" / "sample").glob("*/plan")} - {first}
    results = [manifests.read(str(plan.parent)) for plan in (first, second)]
    rows = [SampleResult.from_manifest(result).rules for result in results if result is not None]
    assert rows[0] == rows[1]
    assert rows[0]["small"]["max_per_file"] == 7
    assert len(rows[0]["flan__0"]["rows"]) == 2
    assert tools.digests(first) != tools.digests(second)

    np.save(tmp_path / "chosen.npy", np.arange(9))
    path.write_text(f"- {{prefix: small, select_rows: {tmp_path / 'chosen.npy'}}}\n")
    tools.ended(tools.stage("sample", **given | {"root": tmp_path / "other"}, prefix_config_path=path))
    (plan,) = (tmp_path / "other" / "sample").glob("*/plan")
    done = tools.stage("sample", **again | {"again": f"{plan.parent}@5"}, output_path="")
    assert done.code == 2
    assert "choose single rows" in done.err
