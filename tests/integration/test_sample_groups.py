"""Rules with groups, shares, scales and single rows, through the sampler."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from pairmill.engine import manifest as manifests
from pairmill.errors import UsageError
from pairmill.formats.results import SampleResult
from tests.support import tools
from tests.support.mixed import Bench

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
    assert "the group 'small' cannot have so many tokens" in done.err
    assert "% of epoch, or passes: " in done.err
    assert f"{path} rule 1" in done.err
