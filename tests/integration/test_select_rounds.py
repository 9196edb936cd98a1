"""The rounds of select: and what their keys say."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pairmill import storage
from pairmill.engine import rounds, runner, shards
from pairmill.engine.options import WorkerSlice
from pairmill.engine.runner import Together
from pairmill.engine.stage import Shard, ShardRecord
from pairmill.stages.select.config import SelectConfig
from pairmill.stages.select.core import Select
from tests.support import tools
from tests.support.stages import curating, selecting
from tests.support.stages.selecting import themed

COUNTS = {"a.jsonl": 30, "b.parquet": 25}
SCORE = [{"attribute": "quality.score"}]
DSIR: dict[str, Any] = {"method": "dsir", "rows": 9}
BY: dict[str, Any] = {"method": "attributes", "rows": 9, "attributes": {"score": SCORE}}
BOTH: dict[str, Any] = {"method": "hybrid", "rows": 9, "attributes": {"score": SCORE}}


def attributes(**more: Any) -> dict[str, Any]:
    return {**BY, "attributes": {"score": SCORE, **more}}


VARIANTS: list[dict[str, Any]] = [
    DSIR,
    {**DSIR, "mode": "report"},
    {**DSIR, "rows": 8},
    {"method": "dsir", "share": 0.1},
    {"method": "dsir", "tokens": 100},
    {**DSIR, "dsir": {"ngrams": 1}},
    {**DSIR, "dsir": {"buckets": 100}},
    {**DSIR, "dsir": {"hash": "sha256"}},
    {**DSIR, "dsir": {"fields": ["response"]}},
    {**DSIR, "dsir": {"laplace": 2}},
    {**DSIR, "dsir": {"length": "mean"}},
    {**DSIR, "dsir": {"noise": False}},
    {**DSIR, "dsir": {"fit_share": 0.5}},
    {**DSIR, "targets": ["sea", "tide"]},
    {**DSIR, "targets": ["tide", "sea"]},
    {**DSIR, "targets": ["tide"]},
    {**DSIR, "method": "filter_then_dsir", "attributes": {"where": [{"attribute": "quality.toxicity", "max": 0.9}]}},
    {**DSIR, "method": "dsir_then_filter", "attributes": {"where": [{"attribute": "quality.toxicity", "max": 0.9}]}},
    {**DSIR, "method": "target_by_attribute", "attributes": {"where": [{"attribute": "quality.words", "max": 4}]}},
    BY,
    {**BY, "mode": "report"},
    attributes(score=[{"attribute": "quality.score", "weight": 2}]),
    attributes(score=[{"attribute": "quality.toxicity"}]),
    attributes(score=[{"attribute": "source.date"}]),
    {**attributes(score=[{"attribute": "source.date"}]), "reference_date": "2025-01-01"},
    attributes(where=[{"attribute": "quality.toxicity", "max": 0.9}]),
    attributes(where=[{"attribute": "quality.toxicity", "max": 0.8}]),
    attributes(where=[{"attribute": "row.condition", "in": ["cot"]}]),
    attributes(group_by="topic.name"),
    attributes(group_by="quality.words"),
    attributes(group_by="quality.words", edges=[5]),
    attributes(group_by="topic.name", quota={"method": "unimax"}),
    attributes(group_by="topic.name", quota={"method": "exponent", "exponent": 1.3}),
    attributes(group_by="topic.name", quota={"method": "weights", "weights": {"law": 1, "art": 2}}),
    attributes(choose="sample"),
    attributes(choose="sample", tau=0.5),
    {**BY, "allow_unfilled": True},
    BOTH,
    {**BOTH, "hybrid": {"lambda": 0.25}},
    {**BOTH, "hybrid": {"lambda": 0}},
    {**BOTH, "hybrid": {"lambda": 1}},
]


@pytest.fixture
def given(tmp_path: Path) -> Path:
    return selecting.write(tmp_path / "rows", selecting.generated(21, COUNTS))


def config_of(base: Path, root: Path, settings: Mapping[str, Any], **options: Any) -> SelectConfig:
    settings = {"reference_date": "2026-01-01", **settings}
    names = settings.pop("targets", ["sea"])
    if settings["method"] not in ("attributes", "target_by_attribute"):
        texts = {"sea": themed(1), "tide": themed(2)}
        targets = selecting.targets(base, {name: texts[name] for name in names})
        settings["dsir"] = {**settings.get("dsir", {}), "targets": targets}
    return selecting.config_of(root, base / "rows", settings, **options)


def rounds_of(config: SelectConfig) -> Iterator[Sequence[Shard[Any]]]:
    """Yield the shards of each round, which are run before the next."""
    stage = Select()
    plan = stage.plan(config)
    given = rounds.rounds_of(stage, config, plan)
    cache = storage.join(storage.normalise(config.root, "root"), stage.name, "shards")
    records: list[ShardRecord] | None = None
    while True:
        try:
            some = next(given) if records is None else given.send(records)
        except StopIteration:
            return
        yield some
        records = [shards.run_shard(stage.name, item, plan.context, cache)() for item in some]


def meaning(item: Shard[Any]) -> str:
    """Describe a shard without its size, and without which of some shards of equal bytes is read."""
    text = re.sub(r"start=[0-9]+, count=", "count=", repr(dataclasses.replace(item, size=0)))
    return re.sub(r"key='[0-9a-f]{64}'", "", re.sub(r"/shards/[0-9a-f]+(/[0-9a-f]{16})?", "/shards/", text))


def test_shards_of_equal_keys_are_equal_whatever_the_settings(given: Path, tmp_path: Path) -> None:
    """All that a shard works with is in the shard; what of it is not in its key would give other bytes for one key."""
    known: dict[str, str] = {}
    equal = 0
    for settings in VARIANTS:
        for seed in (0, 1) if settings is VARIANTS[0] else (0,):
            for some in rounds_of(config_of(tmp_path, tmp_path / "root", settings, seed=seed)):
                for item in some:
                    text = meaning(item)
                    equal += item.key in known
                    assert known.setdefault(item.key, text) == text, f"{settings}: {item.name}"
    assert len(known) > 100
    assert equal > 50


def test_a_share_goes_through_every_round(given: Path, tmp_path: Path) -> None:
    whole = runner.run(Select(), config_of(tmp_path, tmp_path / "whole", BOTH))
    config = config_of(tmp_path, tmp_path / "root", BOTH)
    # Alone it does the others' shards too.
    done = runner.run_share(Select(), config, Together(WorkerSlice(2, 3), patience=0.0, pause=0.05))
    before = curating.shards(tmp_path / "root", "select")
    assert len(done.manifest.shards) == len(before)
    assert tools.digests(Path(runner.run(Select(), config).uri)) == tools.digests(Path(whole.uri))
    assert curating.shards(tmp_path / "root", "select") == before


def test_a_changed_budget_reads_no_text_again(given: Path, tmp_path: Path) -> None:
    """Fit, score and keys do not follow from how much is chosen."""
    root = tmp_path / "root"
    runner.run(Select(), config_of(tmp_path, root, DSIR))
    first = curating.shards(root, "select")
    runner.run(Select(), config_of(tmp_path, root, {**DSIR, "rows": 8}))
    second = curating.shards(root, "select")
    assert first.items() <= second.items()
    # choose, write of each task, counts of the block, summary
    assert len(second) - len(first) <= 2 + 2 * len(COUNTS)
