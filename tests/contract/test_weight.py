"""What the workflow object of a run weighs, by the compiled files: Kubeflow shows no task beyond 1 MiB.

tests/conformance/test_weight.py compares the formula with recorded objects.
"""

import copy
from pathlib import Path
from typing import Any

import pytest

from pairmill.interface import launcher
from pairmill.kubeflow import compile as compiler
from pairmill.kubeflow.compile import MAX_WORKERS, MAX_WORKERS_TRAINING, CompileConfig
from pairmill.line import compare, parameters, search
from tests.support.helpers import REPOSITORY
from tests.support.kubernetes import workflow_weight as weight
from tests.support.kubernetes.workflow_weight import MAX_BYTES, Run

FOLDER = REPOSITORY / "pipelines" / "compiled"
IMAGES = {name: f"registry.example.org/some-team/pairmill-{name}@sha256:{'0' * 64}" for name in ("pipeline", "trainer")}
ROOT = "s3://a-bucket-of-a-team/instruction-pretraining/v12"
GIVEN = {
    "root": ROOT,
    "raw": f"{ROOT}/raw",
    "curate_config": f"{ROOT}/curate_config.yaml",
    "select_config": f"{ROOT}/select_config.yaml",
    "mix_config": f"{ROOT}/mix_config.yaml",
    "vocab_size": 32_000,
}
"""Parameters of a run whose names are long and that gives several."""
HELD_OUT = {"holdout": "0.01"}
TRAINING = {**HELD_OUT, "train_config": f"{ROOT}/train_config.yaml", "set": "training.steps=1000"}


def documents(file: Path) -> list[dict[str, Any]]:
    """A compiled file, with images of the length that images have."""
    text = file.read_text()
    for name, image in IMAGES.items():
        text = text.replace(f"registry.invalid/pairmill/{name}@sha256:{'0' * 64}", image)
    return compiler.documents(text.encode())


def run_of(given: dict[str, Any]) -> Run:
    """A run of the line, with what fetch hands on."""
    usual = parameters.handed_on()
    options = {name: given[name] for name in given if name in usual and given[name] != usual[name]}
    return Run(given, outputs={launcher.OPTIONS: {"root": given["root"], "output_path": "", **options}})


def line(tmp_path: Path, given: dict[str, Any], **options: Any) -> int:
    (file,) = compiler.run(CompileConfig(output=str(tmp_path / "made.yaml"), **options))
    return weight.workflow_bytes(documents(file), run_of(given))


def test_a_run_of_every_stage_takes_two_fifths_of_what_there_is() -> None:
    recorded = {
        **GIVEN,
        **{name: value.replace(ROOT, "s3://rig") for name, value in GIVEN.items() if isinstance(value, str)},
    }
    pretraining = documents(FOLDER / "pretraining.yaml")
    assert weight.workflow_bytes(pretraining, run_of(recorded)) <= 405_000
    assert weight.workflow_bytes(pretraining, run_of(GIVEN)) <= 415_000
    assert weight.workflow_bytes(pretraining, run_of(GIVEN | HELD_OUT)) <= 455_000


def test_a_run_that_trains_takes_half_of_it() -> None:
    assert weight.workflow_bytes(documents(FOLDER / "pretraining-train.yaml"), run_of(GIVEN | TRAINING)) <= 540_000


@pytest.mark.parametrize(("train", "most"), [(False, MAX_WORKERS), (True, MAX_WORKERS_TRAINING)])
def test_the_most_workers_are_those_that_fit(train: bool, most: int, tmp_path: Path, monkeypatch: Any) -> None:
    given = GIVEN | (TRAINING if train else HELD_OUT)
    assert line(tmp_path, given, workers=most, train=train) < MAX_BYTES
    monkeypatch.setattr(compiler, "MAX_WORKERS", most + 1)
    monkeypatch.setattr(compiler, "MAX_WORKERS_TRAINING", most + 1)
    assert line(tmp_path, given, workers=most + 1, train=train) > MAX_BYTES


def test_every_compiled_pipeline_fits_as_it_is() -> None:
    assert weight.workflow_bytes(documents(FOLDER / "pretraining-parallel.yaml"), run_of(GIVEN | HELD_OUT)) < MAX_BYTES


RUNS = {
    "compare": (
        compare.MAX_RUNS,
        {"plans": f"base={ROOT}/sample/{'0' * 16},change={ROOT}/sample/{'1' * 16}"},
    ),
    "search": (search.MAX_RUNS, {"tokenized": f"{ROOT}/tokenize/{'0' * 16}"}),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_most_runs_are_those_that_fit(name: str) -> None:
    most, own = RUNS[name]
    plan = f"{ROOT}/sample/{'0' * 16}"
    places = {"root": ROOT, "train_config": f"{ROOT}/train_config.yaml", "evaluate_config": f"{ROOT}/evaluate.yaml"}
    given = {**places, **own, "held_out": plan}
    outputs = {"item": plan, launcher.OPTIONS: places, **dict.fromkeys(("sample", "train", "evaluate"), plan)}

    def size(runs: int) -> int:
        return weight.workflow_bytes(documents(FOLDER / f"{name}.yaml"), Run(given, items=runs, outputs=outputs))

    assert size(most) < MAX_BYTES < size(most + 2)


def test_one_more_text_in_a_component_counts_eight_times() -> None:
    pipeline, platform = documents(FOLDER / "pretraining.yaml")
    before = weight.workflow_bytes([pipeline, platform], run_of(GIVEN))
    more = copy.deepcopy(pipeline)
    more["components"]["comp-clean"]["inputDefinitions"]["parameters"]["raw"]["description"] = "x" * 1000
    assert 8_000 < weight.workflow_bytes([more, platform], run_of(GIVEN)) - before < 10_000
