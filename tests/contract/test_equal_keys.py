"""Equal keys mean equal bytes, where a shard's options come from a settings file: whichever settings run, a shard whose
key was seen before has the same bytes. A setting that a shard reads and that its key lacks would show here.

tests/contract/test_keys.py does the same for options of the command line. In CI what the shards of curate and select
work with is compared, of more settings (test_curate_rounds.py and test_select_rounds.py of tests/integration); their
bytes are in `make test-long`.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support import tools
from tests.support.stages import curating, mixing, selecting

BY = {"score": [{"attribute": "quality.score"}]}
TWO = {"group_by": "topic.name", **BY}


def shards_of(root: Path, stage: str) -> Iterator[tuple[str, str]]:
    """The key of each shard, and a digest of all that its folder has."""
    for record in root.glob(f"{stage}/shards/*/_RECORD.json"):
        content = [(path.name, path.read_bytes()) for path in sorted(record.parent.rglob("*")) if path.is_file()]
        yield record.parent.name, hashlib.sha256(repr(content).encode()).hexdigest()


def changed(said: Mapping[str, Any], within: str, **values: Any) -> dict[str, Any]:
    return {**said, within: {**said.get(within, {}), **values}} if within else {**said, **values}


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("given")
    return selecting.write(base / "rows", selecting.generated(5, {"a.jsonl": 40, "b/c.parquet": 30}))


@pytest.mark.full
def test_settings_of_select(given: Path, tmp_path: Path) -> None:
    targets = selecting.targets(tmp_path, {"sea": selecting.themed(1), "more": selecting.themed(2, 4)})
    dsir = {"method": "dsir", "rows": 20, "dsir": {"targets": targets[:1], "buckets": 64}}
    attributes = {"method": "attributes", "rows": 20, "attributes": TWO}
    hybrid = {**dsir, **attributes, "method": "hybrid"}
    variants = [
        dsir,
        changed(dsir, "", rows=21),
        changed(dsir, "", rows=None, share=0.25),
        changed(dsir, "", rows=None, tokens=300),
        *(
            changed(dsir, "dsir", **{name: value})
            for name, value in {
                "fields": ["response"],
                "ngrams": 1,
                "buckets": 65,
                "hash": "sha256",
                "laplace": 0.5,
                "length": "none",
                "noise": False,
                "fit_share": 0.5,
                "targets": targets,
            }.items()
        ),
        changed(dsir, "dsir", targets=[{**targets[0], "name": "other"}]),
        changed(dsir, "dsir", targets=[targets[0], {**targets[1], "share": 3.0}]),
        attributes,
        *(
            changed(attributes, "attributes", **{name: value})
            for name, value in {
                "where": [{"attribute": "quality.toxicity", "max": 0.7}],
                "score": [{"attribute": "quality.score", "weight": -1.0}],
                "group_by": "quality.good",
                "quota": {"method": "unimax"},
                "choose": "sample",
            }.items()
        ),
        changed(attributes, "attributes", choose="sample", tau=3.0),
        changed(attributes, "attributes", group_by="quality.words", edges=[3.0, 6.0]),
        changed(attributes, "attributes", group_by="quality.words", edges=[3.0, 7.0]),
        {**changed(attributes, "attributes", score=[{"attribute": "source.date"}]), "reference_date": "2026-01-01"},
        {**changed(attributes, "attributes", score=[{"attribute": "source.date"}]), "reference_date": "2020-01-01"},
        hybrid,
        changed(hybrid, "hybrid", **{"lambda": 0.9}),
        *(
            {**changed(dsir, "attributes", where=[{"attribute": "quality.toxicity", "max": 0.7}]), "method": method}
            for method in ("filter_then_dsir", "dsir_then_filter")
        ),
    ]
    seen: dict[str, tuple[str, int]] = {}
    shared = 0
    for number, said in enumerate(variants):
        some = {name: value for name, value in said.items() if value is not None}
        for seed in (0, 1) if number in (0, 15) else (0,):
            root = tmp_path / f"root{number}-{seed}"
            folder = selecting.select(root, given, some, seed=seed)
            assert (folder / tools.MANIFEST).exists()
            for key, digest in shards_of(root, "select"):
                other, before = seen.setdefault(key, (digest, number))
                assert other == digest, f"shard {key} of {some}, seed {seed}: other bytes than of {variants[before]}"
                shared += before != number
    assert shared > len(variants), "settings had no shard in common"
    assert len(seen) > 4 * len(variants)


@pytest.mark.full
def test_settings_of_curate(tmp_path: Path) -> None:
    one, two = ("", curating.text(1), curating.text(2)), ("", curating.text(3), curating.text(4) * 2)
    files = {
        "a.jsonl": [one, one, two, ("", two[1], f"{two[2]} and some more words"), ("", "", curating.text(9))],
        "b.parquet": [one, ("", curating.text(5), "yes"), ("", curating.text(5), "no"), ("x", *two[1:])],
    }
    rows = curating.write(tmp_path / "rows", files)
    variants = [
        "",
        "prefer: longest_response",
        "same_condition_only: true",
        "source_priority: [b]",
        "exact: {form: raw}",
        "exact: {mode: report}",
        "exact: {response: drop}",
        "exact: {max_responses_per_instruction: 1}",
        "near: {bands: 20}",
        "near: {number_guard: instruction}",
        "near: {refine: false}",
        "near: {mode: report}",
        "near: {fields: instruction, max_similar: 2, mode: drop}",
        "heuristics: {mode: drop, profile: none, rules: [{name: long, metric: words, field: response, max: 60}]}",
        "pii: {mode: redact}",
        "overrides: [{prefix: b, near: off}]",
    ]
    seen: dict[str, tuple[str, str]] = {}
    shared = 0
    for number, said in enumerate(variants):
        root = tmp_path / str(number)
        curating.curate(root, rows, said)
        for key, digest in shards_of(root, "curate"):
            other, before = seen.setdefault(key, (digest, said))
            assert other == digest, f"shard {key} of {said!r}: other bytes than of {before!r}"
            shared += before != said
    assert shared > 5 * len(variants)
    assert len(seen) > 5 * len(variants)


def test_settings_and_options_of_mix(mixed: Path, tmp_path: Path) -> None:
    seen: dict[str, tuple[str, object]] = {}
    shared = 0
    variants: list[tuple[str, dict[str, Any]]] = [
        ("method: unimax", {}),
        ("{method: unimax, max_epochs: 2, budget: 500, allow_unfilled: true}", {}),
        ("{method: exponent, exponent: 0.5}", {}),
        ("method: unimax", {"context_size": 60}),
        ("method: unimax", {"min_resp_length": 9}),
        ("method: unimax", {"epochs": 7}),
        ("method: unimax", {"seed": 5}),
        (
            "method: unimax",
            {"prefix_config_path": mixing.rules(tmp_path / "drop", "- {prefix: a, long_context: drop}")},
        ),
    ]
    for number, (said, options) in enumerate(variants):
        root = tmp_path / str(number)
        mixing.result(root, mixed, said, **options)
        for key, digest in shards_of(root, "mix"):
            other, before = seen.setdefault(key, (digest, options))
            assert other == digest, f"shard {key} of {options}: other bytes than of {before}"
            shared += before != options
    assert 2 < len(seen) < len(variants)
    assert shared


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("tokens")
    rows = selecting.write(base / "rows", selecting.generated(6, {"a.jsonl": 40, "b.parquet": 30}))
    tokenizer = tools.folder(tools.stage("train_tokenizer", rows=rows, root=base, vocab_size=300, workers=1))
    return tools.folder(tools.stage("tokenize", rows=rows, tokenizer=tokenizer, root=base, workers=1))
