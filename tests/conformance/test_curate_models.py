"""Features, language, perplexity and classifiers against the recorded cases."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pairmill import _native
from pairmill.interface.cli import build
from pairmill.stages.curate.scores.classifiers import ClassifierSettings
from pairmill.stages.curate.scores.language import chosen_texts
from pairmill.stages.curate.scores.perplexity import PerplexitySettings, log10
from pairmill.stages.curate.train_classifier import TrainConfig, train
from tests.support.nets.models import batch_of, use_kenlm


@pytest.fixture(scope="module")
def curate(shared: Path) -> Path:
    return shared / "conformance" / "curate"


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_bucket_counts_are_the_recorded_ones(curate: Path) -> None:
    cases = json.loads((curate / "dsir" / "expected.json").read_text("utf-8"))["features"]
    assert len(cases) == 12
    for case in cases:
        text = pa.array([case["text"]], pa.string())
        indptr, indices, counts = _native.curate_bucket_counts([text], case["ngrams"], case["buckets"], case["hash"])
        assert dict(zip(map(str, indices.tolist()), counts.tolist(), strict=True)) == case["counts"]
        assert indptr.tolist() == [0, len(indices)]


@pytest.mark.parametrize(
    ("kind", "model", "cases", "near"),
    [
        ("logit", "quality_logit.npz", "expected_logit.jsonl", 1e-6),
        ("fasttext", "quality_fasttext.bin", "expected_fasttext.jsonl", 1e-5),
    ],
)
def test_probabilities_are_the_recorded_ones(curate: Path, kind: Any, model: str, cases: str, near: float) -> None:
    expected = _lines(curate / "attributes" / cases)
    settings = ClassifierSettings(
        name="quality", kind=kind, model=str(curate / "attributes" / model), labels=["good", "bad"]
    )
    (scorer,) = settings.scorers("")
    with scorer.opened() as score:
        scored = score(batch_of([case["text"] for case in expected]))
    good, bad, best = (column.to_pylist() for column in scored.columns)
    assert len(good) == len(expected) > 100
    for case, *found in zip(expected, good, bad, strict=True):
        wanted = case["probability"]
        pair = [wanted, 1 - wanted] if kind == "logit" else [wanted["__label__good"], wanted["__label__bad"]]
        assert found == pytest.approx([min(one, 1) for one in pair], abs=near)
        assert all(0 <= one <= 1 for one in found)
    assert best == ["good" if up >= down else "bad" for up, down in zip(good, bad, strict=True)]


def test_a_classifier_that_is_trained_again_gives_the_recorded_probabilities(curate: Path, tmp_path: Path) -> None:
    for label, name in ((1, "positives"), (0, "negatives")):
        rows = [one for one in _lines(curate / "attributes" / "train.jsonl") if one["label"] == label]
        lines = [json.dumps({"condition": "", "instruction": "", "response": one["text"]}) for one in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    output = tmp_path / "quality.npz"
    given = {name: str(tmp_path / f"{name}.jsonl") for name in ("positives", "negatives")}
    config = build(TrainConfig, {**given, "output": str(output), "buckets": "4096", "held_back": "0"})
    assert train(config) == f"{output}\n"
    expected = _lines(curate / "attributes" / "expected_logit.jsonl")
    (scorer,) = ClassifierSettings(name="quality", kind="logit", model=str(output)).scorers("")
    with scorer.opened() as score:
        found = score(batch_of([case["text"] for case in expected])).columns[0].to_numpy()
    np.testing.assert_allclose(found, [case["probability"] for case in expected], rtol=0, atol=1e-3)


def test_perplexity_is_the_recorded_one(curate: Path) -> None:
    use_kenlm()
    import kenlm

    expected = _lines(curate / "perplexity" / "expected.jsonl")
    model = str(curate / "perplexity" / "tiny.arpa")
    (scorer,) = PerplexitySettings(mode="report", model=model).scorers("")
    with scorer.opened() as score:
        _, found = (one.to_pylist() for one in score(batch_of([case["text"] for case in expected])).columns)
    assert len(found) == 78
    reader = kenlm.Model(model)
    for case, value in zip(expected, found, strict=True):
        wanted = case["perplexity"]
        assert value == (None if wanted is None else pytest.approx(wanted, rel=1e-5))
        assert log10(reader, case["text"], str.split)[0] == pytest.approx(case["log10"], abs=1e-5)


def test_texts_of_digits_alone_have_no_language(curate: Path) -> None:
    texts = [case["text"] for case in _lines(curate / "heuristics" / "metrics.jsonl")]
    digits = [text for text in texts if not any(character.isalpha() for character in text)]
    assert len(digits) >= 10
    assert chosen_texts([""] * len(digits), digits) == [None] * len(digits)
