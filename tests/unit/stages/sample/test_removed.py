"""Rows that are taken out of a drawn plan: every other row stays where it was, and counts are those of what stays."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import Manifest
from pairmill.formats.removed_rows import RemovedRows, removed_rows
from pairmill.formats.results.sample import SampleResult
from pairmill.formats.tokens import INDEX
from pairmill.interface.cli import Outcome
from pairmill.policy.removals import Removal
from pairmill.report.powers import by_size
from pairmill.stages.sample import draft, run
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.draw import draw_plan
from pairmill.stages.sample.removed import take_out
from tests.support.data.split_characters import Vocabulary, write
from tests.support.data.tokens_and_mixtures import Bench

GONE = {"web__a.jsonl": [0, 7, 8, 41], "web__b.jsonl": [39]}
Row = tuple[int, ...]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path, context=120)
    draw = np.random.default_rng(8)
    for name, rows in (("web__a.jsonl", 90), ("web__b.jsonl", 40), ("code__a.jsonl", 50)):
        bench.put(name, draw.integers(1, 170, rows))
    return bench


def taken_out(monkeypatch: pytest.MonkeyPatch, gone: dict[str, list[int]]) -> None:
    """Let the sampler take these rows out, as if a policy said so."""
    monkeypatch.setattr(
        draft,
        "removed_rows",
        lambda tasks: {task.name: RemovedRows(task, gone[task.name]) for task in tasks if task.name in gone},
    )


def drawn(config: SampleConfig) -> tuple[Path, Manifest]:
    outcome: Outcome = run.run(config)
    plan = str(outcome.parameters["output"])
    manifest = manifests.read(plan)
    assert manifest is not None
    return Path(plan), manifest


def epochs(plan: Path, manifest: Manifest) -> list[list[Row]]:
    """Per epoch its rows: number of the task, and the four numbers of the row."""
    sources = SampleResult.from_manifest(manifest).sources
    names = sorted(item["name"] for item in sources)
    task = np.repeat([names.index(item["name"]) for item in sources], [item["rows"] for item in sources])
    rows = np.stack([task, *(np.load(plan / f"plan/{name}.npy") for name in INDEX)], 1)
    count = manifest.ledger.measures["epochs"]
    return [
        [tuple(row) for row in rows[np.load(plan / f"plan/epoch_{number}.npy")].tolist()] for number in range(count)
    ]


def spans(bench_tokenized: Path, gone: dict[str, list[int]], names: Sequence[str]) -> list[tuple[int, int, int]]:
    """Task, and the first and last token of the response of each row that is taken out."""
    result = []
    for name, numbers in gone.items():
        starts, lengths = (
            np.load(bench_tokenized / name / f"resp_{part}.npy").astype(int) for part in ("start", "len")
        )
        result += [(names.index(name), starts[number], starts[number] + lengths[number]) for number in numbers]
    return result


def check_counts(plan: Path, manifest: Manifest) -> None:
    """Compare the counts of a manifest with its rows."""
    result, rows = SampleResult.from_manifest(manifest), epochs(plan, manifest)
    names = sorted(result.stats)
    lengths = np.zeros(64, np.int64)
    for number, name in enumerate(names):
        stats, ledger = result.stats[name], manifest.shards[name]
        mine = [row for epoch in rows for row in epoch if row[0] == number]
        assert stats["cov_rows"] == ledger.rows_out == len(mine)
        assert stats["cov_itoks"] == sum(row[2] for row in mine)
        assert stats["cov_rtoks"] == sum(row[4] for row in mine)
        assert stats["unique_rows"] == len(set(mine))
        assert stats["unique_toks"] == sum(row[2] + row[4] for row in set(mine))
        lengths += by_size(np.array([row[2] + row[4] for row in mine] or [1]), None) * bool(mine)
    assert result.lengths == lengths.tolist()
    for name in INDEX:  # a row that no epoch has is not in the plan
        assert len(np.load(plan / f"plan/{name}.npy")) == sum(stats["unique_rows"] for stats in result.stats.values())


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        ([], {}),
        ([{"prefix": "web__", "max_per_file": 30}], {}),
        ([{"prefix": "web__a", "repeat": 3}, {"prefix": "web__b", "max_per_file": 9, "repeat": 2}], {}),
        ([{"prefix": "web__", "long_context": "drop", "max_per_file": 25}], {}),
        ([{"prefix": "web__", "max_per_file": 30}], {"profile": "data_io"}),
        ([{"prefix": "web__", "max_response_tokens_per_file": 900}], {"layout": "data_io", "min_resp_length": 20}),
    ],
)
def test_all_other_rows_stay_where_they_are(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, rules: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    bench.rules(rules)
    given = {
        "tokenized_path": str(bench.tokenized),
        "prefix_config_path": str(bench.folder / "rules.yaml"),
        "epochs": 4,
    }
    config = {**given, "context_size": bench.context, "root": str(bench.folder / "root"), "output_path": "", **options}
    before = drawn(SampleConfig(**config))
    taken_out(monkeypatch, GONE)
    after = drawn(SampleConfig(**config))
    assert before[0] != after[0]
    names = sorted(bench.lengths)
    gone = spans(bench.tokenized, GONE, names)

    def stays(row: Row) -> bool:
        return not any(row[0] == task and start <= row[3] < end for task, start, end in gone)

    wanted = [[row for row in epoch if stays(row)] for epoch in epochs(*before)]
    assert wanted != epochs(*before)
    assert epochs(*after) == wanted
    check_counts(*before)
    check_counts(*after)
    lost = {name: after[1].shards[name].dropped.get("removed", 0) for name in names}
    assert 0 < sum(lost.values()) <= 5
    assert lost["code__a.jsonl"] == 0
    for notes, what in ((after[1].ledger.notes, "truncated"), (after[1].ledger.measures, "truncated_tokens")):
        drawn_rows = {row for epoch in wanted for row in epoch}
        cut = [
            int(bench.lengths[names[task]][inst_row(bench, names[task], start)]) - length
            for task, start, _, _, length in drawn_rows
        ]
        assert notes.get(what, 0) == (sum(x > 0 for x in cut) if what == "truncated" else sum(cut))


def inst_row(bench: Bench, name: str, start: int) -> int:
    """The number of the row of a task whose instruction begins there."""
    return int(np.load(bench.tokenized / name / "tokens.npy")[start + 1])


def test_pieces_of_a_split_row_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary()
    draw = np.random.default_rng(3)
    rows = [
        (vocabulary.encode("ab", [1, 1]), vocabulary.encode("x" * int(n), [1] * int(n)))
        for n in draw.integers(1, 90, 30)
    ]
    tokenized = write(tmp_path / "tokenized", vocabulary, {"web__a.jsonl": rows, "web__b.jsonl": rows[:9]})
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump([{"prefix": "web__", "long_context": "split"}]))
    config = SampleConfig(
        tokenized_path=str(tokenized),
        prefix_config_path=str(tmp_path / "rules.yaml"),
        epochs=2,
        context_size=20,
        root=str(tmp_path / "root"),
        output_path="",
    )
    before = drawn(config)
    longest = int(np.argmax([len(row[1]) for row in rows]))
    gone = {"web__a.jsonl": sorted({2, longest})}
    taken_out(monkeypatch, gone)
    after = drawn(config)
    (first, *_), names = spans(tokenized, gone, ["web__a.jsonl", "web__b.jsonl"]), ["web__a.jsonl", "web__b.jsonl"]
    limits = spans(tokenized, gone, names)
    wanted = [
        [row for row in epoch if not any(row[0] == task and low <= row[3] < high for task, low, high in limits)]
        for epoch in epochs(*before)
    ]
    assert len(epochs(*before)[0]) - len(wanted[0]) > 2
    assert epochs(*after) == wanted
    assert first[0] == 0
    check_counts(*after)
    assert after[1].shards["web__a.jsonl"].dropped["removed"] == 2


def test_a_mixture_by_buckets_counts_what_it_still_draws(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.random.default_rng(1).integers(0, 2, 180)
    for name, part in zip(bench.lengths, np.split(codes, [90, 130]), strict=True):
        bench.codes[name] = part.astype(np.uint16)
    bench.plan(buckets=["low", "high"])
    root = str(bench.folder / "root")
    config = SampleConfig(**{**vars(bench.config()), "mixture": str(bench.mixture), "root": root, "output_path": ""})
    before = drawn(config)
    taken_out(monkeypatch, GONE)
    after = drawn(config)
    gone = spans(bench.tokenized, GONE, sorted(bench.lengths))
    rows = [
        [row for row in epoch if not any(row[0] == task and low <= row[3] < high for task, low, high in gone)]
        for epoch in epochs(*before)
    ]
    assert epochs(*after) == rows
    check_counts(*after)
    names = sorted(bench.lengths)
    tokens = {name: [0] * len(rows) for name in ("low", "high")}
    for number, epoch in enumerate(rows):
        for task, start, _, _, length in epoch:
            code = bench.codes[names[task]][inst_row(bench, names[task], start)]
            tokens[("low", "high")[code]][number] += length
    shares = SampleResult.from_manifest(after[1]).mixture["shares"]
    columns = zip(shares["phase"], shares["source"], shares["tokens"], strict=True)
    realised = {source: count for phase, source, count in columns if phase is None}
    assert realised == {name: sum(counts) for name, counts in tokens.items()}


@pytest.mark.parametrize("stored", [False, True])
def test_epochs_before_the_first_that_changes_keep_their_rows(
    bench: Bench, tmp_path: Path, stored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.rules([{"prefix": "web__", "max_per_file": 12}])
    config = SampleConfig(**{**vars(bench.config()), "epochs": 5, "root": str(tmp_path / "root"), "output_path": ""})
    if stored:  # in files, as plans are that are larger than memory
        monkeypatch.setattr("pairmill.stages.sample.draw.MEMORY", 0)
    made = draft.Draft.from_config(config)
    to_draw = [made._to_draw(task, task.name) for task in made.folder.tasks]
    whole = draw_plan(to_draw, config, 1, tmp_path)
    assert (whole.plan.epochs[0].folder is not None) == stored
    orders = [order.array().copy() for order in whole.plan.epochs]
    starts = {name: values.array().copy() for name, values in whole.plan.rows.items()}
    removed = {
        task.name: RemovedRows(task, [*range(90 if task.name == "web__a.jsonl" else 2)]) for task in made.folder.tasks
    }
    del removed["code__a.jsonl"]
    result = take_out(whole, removed, None, first=2)
    rows = {name: values.array() for name, values in result.plan.rows.items()}
    owner = np.repeat([item.name for item in whole.plan.datasets], [item.rows for item in whole.plan.datasets])
    spans_b = spans(bench.tokenized, {"web__b.jsonl": [0, 1]}, sorted(bench.lengths))

    def is_gone(place: int) -> bool:
        if owner[place] == "web__b.jsonl":
            return any(low <= starts["resp_start"][place] < high for _, low, high in spans_b)
        return bool(owner[place] == "web__a.jsonl")

    for number, order in enumerate(orders):
        kept = [place for place in order if number < 2 or not is_gone(place)]
        for name in INDEX:
            assert starts[name][kept].tolist() == rows[name][result.plan.epochs[number].array()].tolist()
    drawn_again = np.unique(np.concatenate([order.array() for order in result.plan.epochs]))
    assert drawn_again.tolist() == list(range(len(rows["resp_start"])))


def test_without_a_policy_nothing_is_looked_up(bench: Bench) -> None:
    assert removed_rows(bench.opened().tasks) == {}


def test_an_entry_is_named_by_its_records(tmp_path: Path) -> None:
    entry = Removal(records=(("a/x.jsonl", 3),), reason="gdpr", why="asked", date="2026-11-28", raw={"a/x.jsonl": "d"})
    assert Removal.from_json(entry.with_files({"f": [1]}).to_json()).name == entry.name
    with pytest.raises(ValueError, match="not of"):
        Removal.from_json(entry.to_json().replace('["a/x.jsonl", 3]', '["a/x.jsonl", 4]'))
