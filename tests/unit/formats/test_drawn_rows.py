"""Rows to evaluate on are compared with those that are trained on, row by row where their plans are there."""

import dataclasses
import hashlib
import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.engine import manifest as manifests
from pairmill.engine import runner
from pairmill.engine.manifest import File, InputRef, Ledger, Manifest
from pairmill.errors import InputError
from pairmill.formats.drawn_rows import DrawnRows, refuse_training_rows
from pairmill.nets.trained import Trained
from pairmill.stages.compare.config import CompareConfig
from pairmill.stages.compare.core import Compare
from pairmill.stages.evaluate.models.trained import TrainedModel
from pairmill.stages.sample.config import SampleConfig
from pairmill.stages.sample.run import run as sample
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.core import Train
from tests.support.data import samples
from tests.support.data.tokens_and_mixtures import Bench
from tests.support.nets import mixture_task

LENGTHS = {"code__a": [4] * 40, "web__a": [6] * 60}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path / "bench")
    for name, lengths in LENGTHS.items():
        made.put(name, lengths)
    return made


def planned(bench: Bench, root: Path, *rules: dict[str, Any], **options: Any) -> Path:
    """A plan below ``root``, of one epoch."""
    bench.rules(list(rules))
    target = options.get("output_path", "")
    config = bench.config(root=str(root), **{"epochs": 1, "output_path": target, **options})
    return root / "sample" / str(sample(config).parameters["fingerprint"])


def check(held_out: Path, training: Path, *roots: Path) -> None:
    places = [str(root) for root in roots]
    found = [
        DrawnRows.of_sample(str(one), name, places) for one, name in ((held_out, "held_out"), (training, "sampled"))
    ]
    refuse_training_rows(found[0], found[1:], f"held_out={held_out}")


def test_rows_that_both_draw_are_counted(bench: Bench, tmp_path: Path) -> None:
    some = {"prefix": "code__", "max_per_file": 12}
    rest = {"prefix": "web__", "max_per_file": 0}
    drawn = []
    for seed in range(2):
        target = tmp_path / f"arrays-{seed}"
        drawn.append((planned(bench, tmp_path, some, rest, seed=seed, output_path=str(target)), bench.epoch(0, target)))
    (held_out, ours), (training, theirs) = drawn
    both = len({*ours.row.tolist()} & {*theirs.row.tolist()})
    assert 0 < both < 12
    with pytest.raises(
        InputError, match=rf"these rows are trained on; got {both} of 12 rows, of code__a, which sampled="
    ) as error:
        check(held_out, training)
    assert error.value.exit_code == 3
    assert "sampled with held_out=true; give held_out=<the plan of" in str(error.value)


def test_rows_of_one_folder_that_only_one_draws_are_let_pass(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = planned(bench, tmp_path, {"prefix": "web__", "max_per_file": 0})
    web = planned(bench, tmp_path, {"prefix": "code__", "max_per_file": 0})
    check(code, web)
    # Of one task some rows, and all others.
    half = {"prefix": "code__", "max_per_file": 20}
    one = planned(bench, tmp_path, half, {"prefix": "web__", "max_per_file": 0}, seed=4)
    whole = np.load(code / "plan/resp_start.npy")
    first = np.load(one / "plan/resp_start.npy")
    rows = DrawnRows.of_sample(str(code), "held_out", [])
    assert rows is not None
    other = dataclasses.replace(rows, tasks={"code__a": 20}, starts=lambda: np.setdiff1d(whole, first))
    refuse_training_rows(other, [DrawnRows.of_sample(str(one), "sampled", [])], "held_out")
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_arrays_are_compared_by_their_plan_else_by_tasks(bench: Bench, tmp_path: Path) -> None:
    few = [{"prefix": "code__", "max_per_file": 1}, {"prefix": "web__", "max_per_file": 0}]
    root = tmp_path / "root"
    target = str(tmp_path / "arrays" / "{fingerprint}")
    plans = [planned(bench, root, *few, seed=seed, output_path=target, keep=20) for seed in range(6)]
    firsts = [int(np.load(plan / "plan/resp_start.npy")[0]) for plan in plans]
    other = next(number for number, first in enumerate(firsts) if first != firsts[0])
    arrays = [tmp_path / "arrays" / plans[number].name for number in (0, other)]
    check(*arrays, root)
    shutil.rmtree(root)
    with pytest.raises(InputError, match="1 of 1 rows, of code__a, which sampled="):
        check(*arrays, root)


def test_a_task_is_known_in_another_tokenized_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plans = []
    for number in range(2):
        folder = mixture_task.tokenized(tmp_path / f"made-{number}", "\n" * number)
        manifest = manifests.read(str(folder))
        assert manifest is not None
        place = tmp_path / "tokenize" / manifest.fingerprint
        place.parent.mkdir(exist_ok=True)
        folder.rename(place)
        (tmp_path / "rules.yaml").write_text("[]")
        for held_out in (False, True):
            config = SampleConfig(
                root=str(tmp_path),
                tokenized_path=str(place),
                output_path="",
                held_out=held_out,
                epochs=1,
                context_size=64,
                prefix_config_path=str(tmp_path / "rules.yaml"),
                workers=1,
            )
            plans.append(tmp_path / "sample" / str(sample(config).parameters["fingerprint"]))
    training, held_out, others, others_held_out = plans
    assert len({*plans}) == 4
    for apart in (held_out, others_held_out):
        check(apart, training)
    with pytest.raises(InputError, match="3,600 of 3,600 rows"):
        check(others, training)
    # And rows that were set apart are not trained on.
    with pytest.raises(InputError, match="400 of 400 rows, of holdout/left__a, holdout/right__b"):
        check(held_out, others_held_out)
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


def test_rows_of_which_nothing_is_known_are_warned_about(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    foreign = samples.sampled(tmp_path / "foreign", [[(5, 3)]])
    assert DrawnRows.of_sample(str(foreign), "held_out", []) is None
    check(foreign, planned(bench, tmp_path))
    (warning,) = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    assert warning.startswith(f"held_out={foreign}: nothing says that these rows are not trained on; give held_out=")


def test_train_compare_and_evaluate_ask_before_anything_is_made(bench: Bench, tmp_path: Path) -> None:
    root = tmp_path / "root"
    base, change = (planned(bench, root, seed=seed) for seed in range(2))
    few = planned(bench, root, {"prefix": "code__", "max_per_file": 1}, {"prefix": "web__", "max_per_file": 0}, seed=3)
    said = "these rows are trained on; got 1 of 1 rows, of code__a"
    given = {"root": str(root), "samples_path": str(tmp_path / "memory")}
    with pytest.raises(InputError, match=said):
        Train().plan(TrainConfig(sampled=[f"a={base}", f"b={change}"], held_out=str(few), **given))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=said):
        runner.run(
            Compare(), CompareConfig(root=str(root), plans=[str(base), str(change)], held_out=[str(few)], seeds=1)
        )
    run = trained_on(root, base)
    model = TrainedModel("", str(run), str(run))
    with pytest.raises(InputError, match=said):
        model.refuse_training_rows(str(few), str(tmp_path))
    # The run is known by its sample's name alone: without its plan, only that very sample is told.
    elsewhere = shutil.copytree(few, tmp_path / "elsewhere" / "sample" / few.name)
    shutil.rmtree(root / "sample")
    model.refuse_training_rows(str(elsewhere), str(tmp_path))
    with pytest.raises(InputError, match=said):
        TrainedModel("", str(run), str(trained_on(root, elsewhere))).refuse_training_rows(str(elsewhere), str(tmp_path))
    assert not (tmp_path / "memory").exists()


def trained_on(root: Path, plan: Path) -> Path:
    """A finished run of train that says that it was trained on a plan."""
    config = Trained({}, 512, 64, {}).dump()
    folder = root / "train" / hashlib.sha256(plan.name.encode()).hexdigest()[:16]
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(config)
    files = [File("config.json", len(config), hashlib.sha256(config).hexdigest())]
    refs = [InputRef("data", "0"), InputRef("sampled", plan.name)]
    made = Manifest("train", 1, folder.name, {}, refs, Ledger(), files)
    (folder / "_MANIFEST.json").write_bytes(made.dump())
    assert json.loads(config)["steps"] == 0
    return folder
