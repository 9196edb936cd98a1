"""The report of a run: every number of it is there, the page is small, and nothing of a text is markup."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pairmill.engine.manifest import Ledger, Manifest
from pairmill.formats.settings_file import differences
from pairmill.formats.training_results import TrainFacts, TrainResult
from pairmill.stages.train.report.page import report_of
from pairmill.stages.train.report.summary import metrics_of, summarise
from pairmill.stages.train.watch.records import METRICS, Lines, read
from tests.support.nets import watched_run
from tests.unit.report.test_report import parse

NASTY = '</pre></details><script>alert("x")</script><img src=http://example.com onload=x> & مرحبا 🧮'
STEPS = 1000


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return watched_run.run(tmp_path_factory.mktemp("run"), STEPS, watched_run.SOURCES, text=NASTY)


@pytest.fixture
def manifest(metrics: Path) -> Manifest:
    found = watched_run.manifest(metrics, watched_run.facts(STEPS, watched_run.SOURCES))
    found.data = json.loads(json.dumps(found.data))
    found.data["last"]["seconds"] = 7200.0
    found.data["speed"] |= {"tokens_per_s": 1000.5, "mfu": 0.375, "wait_share": 0.02}
    return found


def plain(page: str) -> str:
    return re.sub(r' class="[nw]"', "", page)


def test_a_dot_leads_to_the_rows_of_its_step(metrics: Path) -> None:
    told = watched_run.facts(STEPS, watched_run.SOURCES)
    report = report_of(watched_run.manifest(metrics, told, [watched_run.highest(700, NASTY)]))
    page = report.html()
    dot = '<a href="#step-700" aria-label="step 700: its rows"><circle class="c4"'
    # Of the loss, of its second half, and of the gradient norm.
    assert page.count(dot) == 3
    assert page.count('id="step-700"') == 1
    assert page.index('id="step-700"') < page.index("answer &lt;/pre&gt;")
    assert "<script>alert" not in page
    assert re.search(r"\| *700 *\| *loss *\| *9 *\| *2\.25 *\| *7\.5 *\|", report.markdown())
    assert "step-" not in report_of(watched_run.manifest(metrics, told)).html()


def test_every_number_is_on_the_page(manifest: Manifest) -> None:
    page, last = plain(report_of(manifest).html()), manifest.data["last"]
    for row in (
        ("current", f"{last['heldout_loss']:.4f}", f"{last['heldout_perplexity']:.3f}"),
        ("moving average", f"{last['heldout_ema_loss']:.4f}", f"{last['heldout_ema_perplexity']:.3f}"),
        ("model.H_level.core.layers.0.attn.o_proj.weight", "1,000", "100%"),
        ("embed_tokens.embedding_weight", "67", "6.7%"),
        ("300", "stopped", "signal: SIGTERM"),
        ("300", "resumed", "ranks: 8, devices: 8 x a GPU"),
        ("705", "rolled back", "to step: 300, rows undone: 1234"),
        ("plan", "0123456789abcdef" * 4),
        ("mixture", "unimax, budget 1,000,000 tokens"),
        ("Hours", "2"),
        ("Hours of devices", "16"),
        ("Cost", "40.00"),
        ("Share of the devices' peak (MFU)", "37.5%"),
        ("optimizer.lr", "0.00025", "0.00022"),
        ("model.layers", "4"),
    ):
        assert "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" in page, row
    tokens = last["tokens/code"]
    assert f"<td>code</td><td>{tokens:,}</td><td>{tokens / last['tokens']:.1%}</td><td>7.0%</td>" in page
    for title in ("Loss", "Loss, second half", "Loss by source", "Held-out loss by source", "Learning rate"):
        assert f"<h2>{title}</h2>" in page
    assert page.count("<svg") == 11
    assert page.count("<polyline") == 6 + 10 + 5 + 2 + 1
    for said in (
        "not finite: 5.",
        "Weights went back to an earlier checkpoint;",
        "no gradient in any step: model.H_level.core.layers.0.attn.o_proj.weight.",
        "waited for data 2.0% of their time",
    ):
        assert said in page, said
    assert f": loss {manifest.data['first_loss']:.3f} → {manifest.data['end']['loss']:.3f}, held-out " in page
    assert f", held-out {last['heldout_loss']:.3f} (perplexity {last['heldout_perplexity']:.2f})." in page


def test_texts_are_text(manifest: Manifest) -> None:
    page = report_of(manifest).html()
    assert "<script" not in page
    assert "<img" not in page
    assert page.count('alert("x")') == 1
    assert "How much is 2 + 2?" in page
    parse(page)
    assert "<script>" not in report_of(manifest).markdown()


def test_thousands_of_steps_stay_small(tmp_path: Path) -> None:
    steps, sources = 200_000, {f"source_{at:02}": 1 / 40 for at in range(40)}
    lines = Lines(tmp_path / METRICS)
    for step in range(10, steps, 100):
        numbers = {"loss": 1 / step, "lr": 1e-3, "tokens": step, "labels": step, "flops": 1.5 * step, "grad_norm": 0.1}
        measured = {"step_s": 0.5, "wait_s": 0.25, "tokens_per_s": 2.0, "slots_used": 0.9, "seconds": step / 2}
        parts = {f"{kind}/{name}": step + 0.123456789 for name in sources for kind in ("loss", "tokens", "labels")}
        lines.write("step", step, {**numbers, **measured, **parts})
    found = watched_run.manifest(tmp_path / METRICS, watched_run.facts(steps, sources))
    report = report_of(found)
    assert len(json.dumps(found.data)) < 250_000
    assert len(report.html()) < 250_000
    assert len(report.markdown()) < 40_000
    assert "source_39" in report.html()
    assert "source_39" in report.markdown()
    points = found.data["curves"]["loss"]
    assert 140 <= len(points) <= 150
    # Each point has the least and the greatest value of its steps, and none is lost.
    values = [line["loss"] for line in read(tmp_path / METRICS)]
    assert points[0][3] == pytest.approx(max(values), rel=1e-5)
    assert points[-1][2] == pytest.approx(min(values), rel=1e-5)
    assert found.data["speed"] == {"seconds": 99955.0, "tokens_per_s": 2.0, "wait_share": 0.5, "mfu": 3e-15}


def test_the_loss_at_the_end_is_a_mean_and_others_are_the_last(metrics: Path, manifest: Manifest) -> None:
    losses = [line["loss"] for line in read(metrics) if line["kind"] == "step" and line["step"] > 0.95 * STEPS]
    assert len(losses) == 5
    found = metrics_of(TrainResult.from_manifest(manifest))
    assert found["loss"] == sum(losses) / 5
    assert found["heldout_loss"] == manifest.data["last"]["heldout_loss"]
    assert found.keys() == {
        *("loss", "accuracy", "exact_accuracy", "perplexity", "heldout_loss", "heldout_perplexity"),
        *("heldout_ema_loss", "heldout_ema_perplexity", "tokens", "labels", "flops", "tokens_per_s", "mfu"),
        *("steps", "parameters"),
    }
    assert all(isinstance(value, int | float) for value in found.values())


def test_a_short_run_without_anything_else_has_a_report(tmp_path: Path) -> None:
    Lines(tmp_path / METRICS).write("step", 1, {"loss": 2.5, "tokens": 0, "lr": 0.1})
    data = summarise(tmp_path / METRICS, TrainFacts(net="ut", parameters=7, vocab_size=256, steps=1)).to_data()
    report = report_of(Manifest("train", 1, "0" * 16, {}, [], Ledger(), [], data=data))
    assert report.verdict.startswith("ut with 7 parameters, 1 step on 0 tokens")
    assert any("No held-out rows" in said for said in report.look_at)
    parse(report.html())
    assert "nan" not in report.markdown()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data["last"].update(heldout_loss=9.0), "Held-out loss was least at step 1,000"),
        (lambda data: data["last"].update(heldout_ema_loss=2.6), "Averaged weights are worse"),
        (lambda data: data["curves"].update(lr=[[1, 0.1, 0.1, 0.1], [9, 0.2, 0.2, 0.2]]), "rate does not fall"),
        (lambda data: data["curves"].update(slots_used=[[1, 0.5, 0.5, 0.5]]), "Only 50.0% of the slots"),
    ],
)
def test_what_is_unusual_is_said(manifest: Manifest, change: Any, said: str) -> None:
    assert not any(said in one for one in report_of(manifest).look_at)
    change(manifest.data)
    assert any(said in one for one in report_of(manifest).look_at)


def test_differences_are_by_dotted_name() -> None:
    mine: dict[str, Any] = {"a": {"b": 1, "c": {}}, "d": [1]}
    assert differences(mine, mine) == {}
    assert differences(mine, {"a": {"b": 2, "c": {"e": 1}}, "d": [1]}) == {
        "a.b": [2, 1],
        "a.c": [None, {}],
        "a.c.e": [1, None],
    }
