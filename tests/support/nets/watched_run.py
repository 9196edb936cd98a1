"""A run of train as metrics.jsonl tells of it, without a net: losses that fall, with all that can happen."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.formats.settings_file import differences
from pairmill.formats.training_results import TrainFacts
from pairmill.stages.train.report.summary import summarise
from pairmill.stages.train.watch.records import METRICS, HeldOut, OfSource, Record, Sample
from pairmill.stages.train.watch.watcher import About, Watcher

SOURCES = {"web_pages": 0.5, "encyclopedia": 0.25, "questions_and_answers": 0.15, "code": 0.07, "mathematics": 0.03}
SETTINGS: dict[str, Any] = {
    "profile": "hrm_text",
    "model": {"net": "hrm", "layers": 4, "H_override": {}},
    "optimizer": {"name": "adam_atan2", "lr": 0.00022, "betas": [0.9, 0.95]},
}


def record(step: int, steps: int, sources: dict[str, float]) -> Record:
    """A step whose numbers follow from its number."""
    draw = random.Random(step)
    done = step / steps
    parts = {}
    for at, (name, share) in enumerate(sources.items()):
        tokens = round(4000 * share * draw.uniform(0.8, 1.2))
        loss = 2 + 0.2 * at + 7 * math.exp(-8 * done) + draw.gauss(0, 0.08)
        parts[name] = OfSource(loss * (tokens // 2), tokens // 2, tokens)
    labels = sum(one.labels for one in parts.values())
    return Record(
        step=step,
        loss=sum(one.loss for one in parts.values()) / labels,
        accuracy=0.6 * done,
        exact_accuracy=0.1 * done,
        lr=2.2e-4 * min(1.0, 20 * done) * (0.55 + 0.45 * math.cos(math.pi * done)),
        grad_norm=0.3 + 3 * math.exp(-30 * done) + draw.random() / 5 + 4 * (draw.random() < 0.002),
        tokens=sum(one.tokens for one in parts.values()),
        labels=labels,
        slots=4608,
        flops=3.1e12,
        b=2 + min(3, int(15 * done)),
        memory_gb=10 + done,
        sources=parts,
        seconds=0.02,
        wait_s=0.001,
    )


def run(folder: Path, steps: int, sources: dict[str, float], every: int = 10, text: str = "4") -> Path:
    """Write metrics.jsonl as a run of these steps does that is stopped, resumed and rolled back; return its path."""
    about = About(name="hrm tiny", steps=steps, ranks=8, devices="8 x a GPU", peak_flops=1e15)

    def watch() -> Watcher:
        return Watcher(str(folder), about, every_steps=every, tensorboard=False)

    seen = watch()
    seen.begin(0, {})
    stop, back = round(0.3 * steps), round(0.7 * steps)
    for step in range(1, steps + 1):
        one = record(step, steps, sources)
        if step in range(back + 1, back + 6):
            one = replace(one, skipped=True, loss=math.nan)
        seen.record(one)
        if step % max(1, steps // 20) == 0:
            done = step / steps
            by_source = {name: 2.1 + 0.2 * at + 7 * math.exp(-8 * done) for at, name in enumerate(sources)}
            slow = {name: loss + 0.4 * (1 - done) - 0.03 for name, loss in by_source.items()}
            mean = sum(by_source.values()) / len(by_source)
            seen.evaluated(step, HeldOut(mean, 999, by_source), HeldOut(mean + 0.4 * (1 - done) - 0.03, 999, slow))
            seen.sample(step, [Sample("How much is 2 + 2?", text, "direct"), Sample("Name a sea.", "The sea.", "")])
        if step == stop:
            state = seen.state()
            seen.event(step, "stopped", signal="SIGTERM")
            seen.end()
            seen = watch()
            seen.begin(step, state)
        if step == back + 5:
            seen.event(step, "rolled_back", to_step=stop, rows_undone=1234)
    seen.event(steps, "finished")
    seen.end()
    return folder / METRICS


def facts(steps: int, sources: dict[str, float]) -> TrainFacts:
    return TrainFacts(
        net="hrm B",
        parameters=300_941_312,
        vocab_size=65_536,
        steps=steps,
        epochs=4,
        precision="bfloat16",
        attention="flex",
        devices="8 x a GPU",
        device_count=8,
        peak_flops=1e15,
        price_per_hour=2.5,
        ema_beta=0.999,
        absent={"model.H_level.core.layers.0.attn.o_proj.weight": steps, "embed_tokens.embedding_weight": 67},
        plan="0123456789abcdef" * 4,
        data={"kind": "sampled folder", "sample": "fedcba9876543210", "mixture": "unimax, budget 1,000,000 tokens"},
        sources=sources,
        profile="hrm_text",
        settings=SETTINGS,
        differences=differences(SETTINGS, {**SETTINGS, "optimizer": {**SETTINGS["optimizer"], "lr": 0.00025}}),
    )


def highest(step: int, text: str) -> dict[str, Any]:
    """A step that is an outlier, and a row of it."""
    texts = [{"row": f"0:{step} of code", "prompt": text, "target": f"answer {text}"}]
    numbers: dict[str, Any] = {"loss": 9.0, "grad_norm": 2.0, "what": "loss", "usual": 2.25, "times": 7.5}
    return {"step": step, **numbers, "before": {}, "texts": texts}


def manifest(metrics: Path, told: TrainFacts, outliers: Sequence[dict[str, Any]] = ()) -> Manifest:
    """Of the finished folder of such a run."""
    rows = [InputRef("sampled", "fedcba9876543210")]
    return Manifest(
        "train", 1, "0123456789abcdef", {}, rows, Ledger(), [], data=summarise(metrics, told, outliers).to_data()
    )
