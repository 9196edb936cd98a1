"""A plan of sample in place of its arrays: they are made once, in the place that is asked for."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pairmill.engine.manifest import MANIFEST
from pairmill.errors import InputError
from pairmill.loader import plan_arrays as arrays
from pairmill.stages.sample.config import held_out_path
from tests.support import tools
from tests.support.helpers import python


@dataclass
class Asked:
    """The options of the command."""

    sampled: list[str] = field(default_factory=list)
    held_out: str = ""
    samples_path: str = ""


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A plan of rows to train on, and one of held-out rows; no arrays."""
    folder = tmp_path_factory.mktemp("plans")
    tools.raw_data(folder / "raw", size=60, seed=2)
    options = {"raw": folder / "raw", "root": folder / "root", "vocab_size": 512, "epochs": 1, "holdout": "0.2"}
    tools.ended(tools.run(tools.command("run", output_path="", **options)))
    found = sorted((folder / "root" / "sample").glob(f"*/{MANIFEST}"))
    held = [any(ref["role"] == "held_out" for ref in json.loads(path.read_text())["inputs"]) for path in found]
    assert sorted(held) == [False, True]
    return found[held.index(False)].parent, found[held.index(True)].parent


def test_plans_become_folders_with_arrays(plans: tuple[Path, Path], tmp_path: Path) -> None:
    plan, held_out = plans
    place = str(tmp_path / "shm" / "{fingerprint}")
    asked = Asked(sampled=[f"web={plan}"], held_out=str(held_out), samples_path=place)
    here = arrays.on_this_machine(asked)
    assert here.sampled == [f"web={tmp_path}/shm/{plan.name}"]
    assert here.held_out == f"{tmp_path}/shm-holdout/{held_out.name}"
    assert asked.sampled == [f"web={plan}"]
    for folder in (here.sampled[0].removeprefix("web="), here.held_out):
        assert (Path(folder) / "epoch_0" / "resp_len.npy").exists()
    made = {path: path.stat().st_ino for path in (tmp_path / "shm").rglob("*.npy")}
    assert made
    assert arrays.on_this_machine(asked) == here
    assert {path: path.stat().st_ino for path in (tmp_path / "shm").rglob("*.npy")} == made
    # Arrays are taken as they are.
    assert arrays.on_this_machine(here) == here


def test_a_folder_without_a_name_of_its_own_is_the_samplers(plans: tuple[Path, Path], tmp_path: Path) -> None:
    place = str(tmp_path / "out")
    here = arrays.on_this_machine(Asked([str(plans[0])], str(plans[1]), place))
    assert (here.sampled, here.held_out) == ([place], f"{place}-holdout")


@pytest.mark.parametrize("place", ["/dev/shm/pairmill/{fingerprint}", "/dev/shm/sampled", "out/", "a/{fingerprint}/"])
def test_held_out_rows_are_where_sample_writes_them(place: str) -> None:
    assert arrays.apart(place).rstrip("/") == held_out_path(place).rstrip("/")


def test_what_the_sampler_refuses_ends_with_its_exit_code(plans: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "something").write_text("")
    with pytest.raises(arrays.SamplerFailure, match="the arrays were not made") as caught:
        arrays.on_this_machine(Asked([str(plans[0])], "", str(tmp_path / "out")))
    assert caught.value.exit_code == 2


def test_what_is_no_plan_in_a_bucket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays.manifests, "read", lambda _: None)
    with pytest.raises(InputError, match=r"sampled=s3://bucket/x: not a plan"):
        arrays.on_this_machine(Asked(["s3://bucket/x"]))
    # Whatever else it is, the loader says.
    assert arrays.on_this_machine(Asked(["/nowhere"])).sampled == ["/nowhere"]


def test_without_torch_a_pipeline_that_trains_is_refused_before_its_first_stage(tmp_path: Path) -> None:
    code = (
        "import runpy, sys\n"
        "sys.modules['torch'] = None\n"
        "sys.argv.insert(1, 'run'); runpy.run_module('pairmill', run_name='__main__', alter_sys=True)"
    )
    done = python("-c", code, f"root={tmp_path}/root", "raw=/nowhere", "train_config=examples/train_config.yaml")
    assert done.returncode == 2
    assert "train_config: needs torch, not installed here" in done.stderr
    assert not (tmp_path / "root").exists()
