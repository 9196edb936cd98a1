"""The compiled evaluation under the emulator of Kubeflow: a run in a bucket is asked while it trains, by two pods."""

import csv
import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from pairmill import storage
from pairmill.stages.evaluate.curves import HEAD
from tests.pytorch.train import tiny
from tests.pytorch.train.test_kill import dying, killed
from tests.support.data import samples
from tests.support.helpers import REPOSITORY, until
from tests.support.kubernetes.emulator import Backend, Folder, Forked, load
from tests.support.nets.trained_runs import ROWS_INFO, tokenizer
from tests.support.objectstores.fixtures import s3, s3_server, use
from tests.support.processes.nursery import TRAINING

__all__ = ["s3", "s3_server", "use"]


def test_a_run_in_a_bucket_is_asked_while_it_trains(tmp_path: Path, s3: str) -> None:
    assert os.geteuid() == 0, "mounts of a pod's own need root"
    draw = np.random.default_rng(1)
    rows = [draw.integers(2, 9, (60, 2)).tolist() for _ in range(2)]
    data = samples.sampled(tmp_path / "data", rows, seed=1, ids=262, tokenizer_info={**ROWS_INFO, "vocab_size": 262})
    (tmp_path / "tokenizer.json").write_text(tokenizer())
    (tmp_path / "gsm8k.jsonl").write_text(json.dumps({"question": "1?", "answer": "#### 1"}) + "\n")
    root = f"{s3}/project"

    def config() -> Any:
        kept = ("checkpoints.every_steps=4", "checkpoints.keep=1", "checkpoints.asynchronous=false", "model.width=8")
        made = tiny.config(tmp_path / "settings", data, *kept, tokenizer=str(tmp_path / "tokenizer.json"))
        made.root = root
        return made

    def begin() -> None:
        storage.forget()  # connections are the parent's
        dying(6, during=False)
        tiny.train(config())

    killed(begin)  # at step 6, with the checkpoint of step 4
    store = storage.store_for(root)
    watched = storage.join(root, "evaluate", "watched")

    def there(*names: str) -> bool:
        return any(all(name in entry.path for name in names) for entry in store.list(watched))

    options = {
        "root": root,
        "run": root,
        "every": 4,
        "benchmarks": "gsm8k",
        "data": f"gsm8k={tmp_path / 'gsm8k.jsonl'}",
        "set": "generation.max_tokens=2,benchmarks.gsm8k.condition=cot,generation.max_context=64",
    }
    keys = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    programs = Forked(TRAINING, env={"OMP_NUM_THREADS": "1", **keys})
    backend = Backend(Folder(tmp_path / "objects"), programs, tmp_path / "pods", second=0.01)
    documents = load(REPOSITORY / "pipelines/compiled/evaluate.yaml")
    run = backend.prepare(documents[0])
    pipeline = threading.Thread(target=backend.run, args=(documents, options), kwargs={"run": run})
    pipeline.start()
    until(lambda: there("checkpoints", "_RECORD.json"), "the first checkpoint is taken")
    (attempt,) = run.attempts
    assert attempt.running is not None
    attempt.running.kill()  # while a process asks it
    until(lambda: there("results/00000004.json"), "the next pod asks it")
    whole = tiny.train(config())  # from step 4 on; the checkpoint of step 4 is deleted
    pipeline.join()
    assert run.state == "SUCCEEDED", run.failures()
    assert [attempt.succeeded for attempt in run.attempts] == [False, True]
    (execution,) = run.executions
    place = execution.outputs.parameters["output"]
    assert sorted(entry.path for entry in store.list(place)) == [
        "results/00000004.json",
        "results/00000008.json",
        "table.csv",
    ]
    table = list(csv.DictReader(io.StringIO(store.read(storage.join(place, "table.csv")).decode())))
    assert tuple(table[0]) == HEAD
    assert all(int(line["tokens"]) > 100 * int(line["step"]) for line in table)
    steps = [(line["step"], line["epoch_fraction"], line["n"]) for line in table if line["metric"] == "gsm8k"]
    assert steps == [("4", "1.0", "1"), ("8", "2.0", "1")]
    assert whole.manifest.data["last"]["step"] == 8
    # Nothing was asked twice: a result of evaluate for each checkpoint, and no other one.
    results = [name for name in store.folders(storage.join(root, "evaluate")) if len(name) == 16]
    assert len(results) == 2
    metrics = execution.outputs.artifacts["metrics"].metadata
    assert (metrics["step"], metrics["gsm8k"]) == (8.0, 0.0)
    assert "report" in execution.outputs.artifacts
