"""Finished plans, runs and evaluations to compare, made here: no net is trained."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pairmill.engine import manifest as manifests
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest, content_key
from pairmill.stages.compare.config import CompareConfig
from pairmill.stages.compare.plans import Budget, Plan, read_all, runs
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run as sample
from pairmill.training.settings import TrainSettings
from tests.support.data.tokens_and_mixtures import Bench

KIND = np.dtype([("row", "<i8"), ("source", "<i4"), ("tokens", "<i4"), ("bytes", "<i8"), ("loss", "<f8")])
SOURCES = ("code", "math", "web")


def plan(folder: Path, tasks: Mapping[str, list[int]], tokenizer: str = "", **options: Any) -> Path:
    """A plan over tasks with responses of these lengths."""
    bench = Bench(folder)
    for name, lengths in tasks.items():
        bench.put(name, lengths)
    given = bench.config(root=str(folder), output_path="", **options)
    assert isinstance(given, SampleConfig)
    made = json.loads(sample(given).manifest())["fingerprint"]
    path = folder / "sample" / made
    if tokenizer:
        found = manifests.read(str(path))
        assert found is not None
        found.data["tokenizer"] = tokenizer
        (path / manifests.MANIFEST).write_bytes(found.dump())
    return path


def _folder(folder: Path, stage: str, files: Mapping[str, bytes], data: dict[str, Any], version: int = 1) -> str:
    """A finished folder of a stage."""
    named = [File(path, len(content), hashlib.sha256(content).hexdigest()) for path, content in files.items()]
    fingerprint = content_key(stage, data, [file._asdict() for file in named])[:16]
    for path, content in files.items():
        target = folder / stage / fingerprint / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    found = Manifest(stage, version, fingerprint, {}, [InputRef("data", "0")], Ledger(), named, {}, data)
    (folder / stage / fingerprint / manifests.MANIFEST).write_bytes(found.dump())
    return str(folder / stage / fingerprint)


def finished(
    root: Path,
    asked: Mapping[str, str],
    effect: float,
    *,
    settings: tuple[str, ...] = (),
    rows: int = 30,
    score: float = 0.5,
    bytes_of: int = 4,
    processes: int = 0,
    version: int = 1,
) -> tuple[str, str]:
    """The training and the evaluation of a run whose held-out loss is 2 and this effect, and chance of its seed."""
    said = TrainSettings.parse("", [*asked["set"].split(","), *settings]).to_manifest()
    chance = np.random.default_rng([int(asked["seed"]), len(asked["plan"])]).normal(0, 0.01)
    lines: list[dict[str, Any]] = []
    for step in range(1, 4):
        lines.append({"step": step, "kind": "step", "tokens": 100 * step, "flops": 1e9 * step})
        loss = 2.5 - 0.1 * step + effect
        lines.append({"step": step, "kind": "heldout", "heldout_loss": loss + 0.1, "heldout_ema_loss": loss})
    metrics = "".join(json.dumps(line) + "\n" for line in lines).encode()
    last = {"flops": 3e9, "tokens": 300, "labels": 100}
    trained = _folder(
        root,
        "train",
        {"metrics.jsonl": metrics},
        {
            "settings": said,
            "processes": processes,
            "last": last,
            "steps": 3,
            "parameters": 1000,
            "of": asked["plan"],
        },
        version,
    )
    held_out = np.zeros(rows, KIND)
    held_out["row"], held_out["source"] = np.arange(rows), np.arange(rows) % len(SOURCES)
    held_out["tokens"], held_out["bytes"] = 5, 5 * bytes_of
    held_out["loss"] = 5 * (2 + effect + chance + np.random.default_rng(0).normal(0, 0.5, rows))
    made = io.BytesIO()
    np.save(made, held_out)
    results = {
        "model": {"weights": "ema"},
        "held_out": {"sources": list(SOURCES), "exact": True},
        "benchmarks": {"gsm8k": {"all": {"figure": score, "n": 50}, "unseen": None}},
    }
    files = {"held_out/rows.npy": made.getvalue(), "results.json": json.dumps(results).encode()}
    return trained, _folder(root, "evaluate", files, {"of": trained})


def asked(root: Path, plans: list[str], **options: Any) -> tuple[CompareConfig, list[dict[str, str]], list[Plan]]:
    """The options of a comparison without runs, and the runs that it asks for."""
    config = CompareConfig(root=str(root), plans=plans, **{"seeds": 4, "budget": 50, **options})
    opened = read_all(config)
    return config, runs(config, opened, Budget.of_plans(config, opened)), opened
