"""Tasks of runs as processes: what a pod is given, what comes back, side by side, and after a failure no other one."""

import shutil
from pathlib import Path

import pytest

from pairmill.line.runs import Ended, Here, RunFailure, SharedOptions, StageRun, remove, train_and_evaluate
from tests.support.data.tokens_and_mixtures import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.put("web__a.jsonl", [3, 4, 5, 6])
    return bench


def test_tasks_are_processes_side_by_side(bench: Bench) -> None:
    seen: list[Ended] = []
    here = Here(2, seen.append)
    given = {"root": str(bench.folder / "root"), "tokenized_path": str(bench.tokenized), "output_path": "", "epochs": 1}

    def body(seed: int) -> StageRun:
        return here("sample", seed=seed, **given)

    made = here.each(body, [3, 1, 3.0])  # type: ignore[list-item]
    assert made[0].output == made[2].output != made[1].output
    assert Path(made[0].output).parent == bench.folder / "root" / "sample"
    assert made[0].outputs["rows_out"] == 4
    assert [one.stage for one in seen] == ["sample"] * 3
    assert body(3) == made[0]
    assert seen[-1].reused


def test_after_a_failure_no_other_task_begins(bench: Bench) -> None:
    here = Here(1)
    with pytest.raises(RunFailure, match="task sample failed; got exit code 3") as raised:
        here.each(
            lambda path: here("sample", root=str(bench.folder), tokenized_path=path), ["/nowhere", "/no", "/none"]
        )
    assert raised.value.exit_code == 3
    assert len(here.ended) == 1


def test_a_run_is_a_training_and_its_evaluation() -> None:
    asked = []

    def task(stage: str, /, **options: object) -> StageRun:
        asked.append((stage, options))
        return StageRun({"output": f"{stage} made"})

    made = train_and_evaluate(
        task, "a plan", "training.seed=3", SharedOptions(root="r", held_out="h", train_config="t")
    )
    assert [stage for stage, _ in asked] == ["train", "evaluate"]
    assert {"sampled": "a plan", "held_out": "h", "set": "training.seed=3"}.items() <= asked[0][1].items()
    assert {"model": "train made", "held_out": "h", "set": "net.weights=ema"}.items() <= asked[1][1].items()
    assert made.evaluated.output == "evaluate made"


def test_a_removal_that_is_killed_leaves_nothing_under_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "arrays"

    def killed(path: str, ignore_errors: bool) -> None:
        if Path(path).exists():
            (Path(path) / "tokens.npy").unlink()
            raise KeyboardInterrupt

    folder.mkdir()
    for name in ("tokens.npy", "metadata.json"):
        (folder / name).touch()
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            remove(folder)
    assert not folder.exists()
    # What was left is gone with the next one, and nothing to remove is no error.
    folder.mkdir()
    remove(folder)
    remove(folder)
    assert list(tmp_path.iterdir()) == []
