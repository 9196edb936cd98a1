"""The stage: what is used again, what is refused before the first step and how, weights of an earlier run."""

import errno
import json
import logging
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from pairmill.engine.rounds import key_maker
from pairmill.engine.runner import Result
from pairmill.errors import InputError, PairmillError, StorageError, UsageError
from pairmill.interface import stagecli
from pairmill.nets.run import Run
from pairmill.nets.trained import EMA, WEIGHTS
from pairmill.stages.train.core import Train
from pairmill.stages.train.run.step import Stepper
from pairmill.storage.local import LocalStore
from tests.pytorch.train import tiny
from tests.support.data.extended_samples import Family

EVERY = "checkpoints.every_steps=3"


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.data(tmp_path_factory.mktemp("data") / "sampled")


@pytest.fixture(scope="module")
def root(sampled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("root")
    tiny.train(tiny.config(found, sampled, EVERY))
    return found


@pytest.fixture
def whole(root: Path, sampled: Path) -> Result:
    return tiny.train(tiny.config(root, sampled, EVERY))


def test_a_finished_run_is_used_again(
    whole: Result, root: Path, sampled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert whole.reused
    monkeypatch.setattr(Stepper, "step", None)
    # Neither checkpoints nor what is watched change the weights.
    assert tiny.train(tiny.config(root, sampled, "checkpoints.every_steps=9", "watch.every_steps=7")).reused
    outcome = stagecli.run(Train(), tiny.config(root, sampled))
    assert outcome.reused
    assert outcome.metrics["steps"] == whole.manifest.data["last"]["step"]
    assert outcome.stdout == f"{whole.uri}\n"
    assert "loss" in outcome.report().markdown().lower()


def test_a_finished_run_has_all_that_is_needed_after_it(whole: Result) -> None:
    names = {file.path for file in whole.manifest.files}
    assert {WEIGHTS, EMA, "config.json", "metrics.jsonl", "report.html", "report.md"} <= names
    run = Run.open(whole.uri)
    assert run.trained.steps == whole.manifest.data["last"]["step"]
    net = run.net("ema")
    assert net.state_dict().keys() == load_file(Path(whole.uri) / WEIGHTS).keys()
    data = whole.manifest.data
    assert data["end"]["loss"] < data["first_loss"]
    assert data["threads"] == 1
    assert [ref.role for ref in whole.manifest.inputs] == ["data"]


@pytest.mark.parametrize("setting", ["training.seed=9", "optimizer.lr=0.02", "model.width=32"])
def test_other_settings_are_another_run(root: Path, sampled: Path, whole: Result, setting: str) -> None:
    other = tiny.train(tiny.config(root, sampled, setting))
    assert not other.reused
    assert other.uri != whole.uri


@pytest.mark.parametrize(("profile", "one"), [("pairmill", True), ("hrm_text", False), ("kempner", False)])
def test_the_name_of_a_run_has_the_number_of_processes_where_losses_follow_from_it(
    sampled: Path, tmp_path: Path, profile: str, one: bool
) -> None:
    settings = (f"profile={profile}", *(f"model.{name}" for name in ("net=transformer", "size=none")))
    plans = []
    for processes in (1, 2):
        config = replace(tiny.config(tmp_path, sampled, *settings, "training.epochs=2"), processes=processes)
        plan = Train().plan(config)
        assert (plan.says == {"settings": config.settings.to_manifest()}) is one
        plans.append((key_maker(Train(), config, plan)(plan.net), str(plan.says)))
    assert (plans[0] == plans[1]) is one
    assert (plans[0][0] == plans[1][0]) is one


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        (("training.steps=2",), 0.0),
        (("training.steps=2", "training.ema=0.0"), 0.0),
        (("training.steps=2", "training.ema=0.5"), 0.25),
        (("training.steps=2", "training.ema=off"), None),
        (("training.steps=2", "training.ema=off", "profile=kempner", "optimizer.name=schedule_free_adamw"), 0.0),
    ],
)
def test_whether_a_run_has_an_average_follows_from_its_settings_and_not_from_its_length(
    sampled: Path, tmp_path: Path, settings: tuple[str, ...], share: float | None
) -> None:
    small = ("model.net=transformer", "schedule.warmup_steps=1", "checkpoints.every_steps=1", *settings)
    config = tiny.config(tmp_path, sampled, *small)
    run = Run.open(tiny.train(config).uri)
    checkpoint = Run.open(str(tiny.checkpoints(tmp_path)[-1]))
    for one in (run, checkpoint):
        assert one.averages is config.settings.averages is (share is not None)
        if share is None:
            assert one.choose_weights("auto")[0] == "current"
            with pytest.raises(UsageError, match="no average of weights"):
                one.choose_weights("ema")
        else:
            assert one.choose_weights("ema")[0] == "ema"
            assert one.trained.initial_share == share
            assert one.tensors("ema").keys() == one.tensors("current").keys()


def test_a_run_that_will_have_no_tokenizer_says_so_before_the_first_step(
    sampled: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING):
        stopped(tmp_path, sampled, monkeypatch, 1)
    (said,) = [one.getMessage() for one in caplog.records if "tokenizer" in one.getMessage()]
    assert "the run will be without, and generate, export and evaluate will need tokenizer=" in said


def test_other_data_are_another_run(root: Path, whole: Result, tmp_path: Path) -> None:
    assert tiny.train(tiny.config(root, tiny.data(tmp_path / "other", seed=2))).uri != whole.uri


def checkpoint(root: Path, of: Result) -> Path:
    """The last checkpoint of a finished run: other runs below the root have theirs."""
    files = root.glob(f"train/shards/*/*/{WEIGHTS}")
    run = next(one.parent.parent for one in files if one.samefile(Path(of.uri) / WEIGHTS))
    return [one for one in tiny.checkpoints(root) if one.is_relative_to(run)][-1]


def stopped(root: Path, sampled: Path, monkeypatch: pytest.MonkeyPatch, at: int = 5, *settings: str) -> None:
    """A run that failed at a step."""
    with monkeypatch.context() as patch:
        step = Stepper.step

        def fail(self: Stepper, number: int, batch: Any) -> Any:
            if number == at:
                raise StorageError("the network is gone")
            return step(self, number, batch)

        patch.setattr(Stepper, "step", fail)
        with pytest.raises(StorageError):
            tiny.train(tiny.config(root, sampled, EVERY, "checkpoints.asynchronous=false", *settings))


def test_a_run_goes_on_in_another_root(
    sampled: Path, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path / "one", sampled, monkeypatch)
    (folder,) = (tmp_path / "one/train/shards").iterdir()
    for given in (folder, folder / "checkpoints"):
        again = tiny.train(tiny.config(tmp_path / given.name, sampled, EVERY, resume_from=str(given)))
        assert tiny.digest(again) == tiny.digest(whole)
        assert "resumed" in tiny.events(again)


def test_checkpoints_of_another_run_are_refused_by_name(
    sampled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path / "one", sampled, monkeypatch)
    (folder,) = (tmp_path / "one/train/shards").iterdir()
    cases: dict[str, Callable[[], Any]] = {
        r"optimizer.lr 0.01 \(here 0.5\)": lambda: tiny.config(
            tmp_path / "two", sampled, "optimizer.lr=0.5", resume_from=str(folder)
        ),
        r"data [0-9a-f]{64} \(here [0-9a-f]{64}\)": lambda: tiny.config(
            tmp_path / "three", tiny.data(tmp_path / "other", seed=2), resume_from=str(folder)
        ),
    }
    for message, config in cases.items():
        with pytest.raises(InputError, match=f"00000003: a checkpoint of another run; got {message}"):
            tiny.train(config())
    with pytest.raises(InputError, match="no complete checkpoint"):
        tiny.train(tiny.config(tmp_path / "four", sampled, resume_from=str(tmp_path / "two")))


def test_a_checkpoint_that_was_cut_short_is_not_used(
    sampled: Path, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped(tmp_path, sampled, monkeypatch, 8)
    names = [path.name for path in tiny.checkpoints(tmp_path)]
    assert names == ["00000003", "00000006"]
    (part,) = tiny.checkpoints(tmp_path)[-1].glob("part-*.safetensors")
    part.write_bytes(part.read_bytes()[:-1])
    again = tiny.train(tiny.config(tmp_path, sampled, EVERY))
    assert tiny.digest(again) == tiny.digest(whole)
    resumed = [line for line in whole_lines(again) if line.get("event") == "resumed"]
    assert [line["step"] for line in resumed] == [3]


def whole_lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(result.uri) / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("later", ["true", "false"])
def test_a_full_disk_is_said_and_leaves_the_last_checkpoint(
    sampled: Path, whole: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    settings = EVERY, f"checkpoints.asynchronous={later}"
    create = LocalStore.create

    @contextmanager
    def full(self: LocalStore, uri: str, **named: Any) -> Any:
        if "/00000006/" in uri:
            raise OSError(errno.ENOSPC, "No space left on device", uri)
        with create(self, uri, **named) as path:
            yield path

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "create", full)
        with pytest.raises(StorageError, match=r"no space.*free space") as error:
            tiny.train(tiny.config(tmp_path, sampled, *settings))
    assert error.value.exit_code == 4
    assert [path.name for path in tiny.checkpoints(tmp_path)] == ["00000003"]
    assert tiny.digest(tiny.train(tiny.config(tmp_path, sampled, *settings))) == tiny.digest(whole)


REFUSED = {
    "the run ends within the warm-up": ["schedule.warmup_steps=99"],
    "odd": ["model.net=hrm", "model.half_layers=true", "model.layers=3"],
    "unknown key 'optimiser'|unknown": ["optimiser.lr=1"],
    "more than there are": ["training.epochs=7"],
    "a divisor of tokens": ["batch.tokens=128", "batch.accumulate=3"],
    "heads do not divide the width": ["model.heads=3"],
    "the instruction would see its own labels": ["batch.target_only=false"],
    "prompts need a tokenizer": ["evaluation.prompts=[2 + 2]"],
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_does_not_fit_is_refused_before_the_first_step(
    sampled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str
) -> None:
    monkeypatch.setattr(Stepper, "step", None)
    with pytest.raises(UsageError, match=message):
        tiny.train(tiny.config(tmp_path, sampled, *REFUSED[message]))
    assert not list(tmp_path.glob("train/shards/*"))


def test_fine_tuning_begins_with_weights_of_an_earlier_run(whole: Result, root: Path, sampled: Path) -> None:
    weights = {
        "ema": load_file(Path(whole.uri) / EMA),
        "current": load_file(Path(whole.uri) / WEIGHTS),
        "all": load_file(Path(whole.uri) / WEIGHTS),
    }
    last, uris = str(checkpoint(root, whole)), set()
    for take, expected in weights.items():
        given = whole.uri if take != "all" else last
        seen: dict[str, Any] = {}

        with pytest.MonkeyPatch.context() as patch:
            step = Stepper.step

            def look(self: Stepper, number: int, batch: Any, seen: dict[str, Any] = seen, step: Any = step) -> Any:
                if number == 1:
                    seen.update({name: one.detach().clone() for name, one in self._net.named_parameters()})
                    seen["steps"] = max(self._optimizer.steps.values())
                return step(self, number, batch)

            patch.setattr(Stepper, "step", look)
            result = tiny.train(tiny.config(root, sampled, weights_from=given, weights=take))
        assert not result.reused
        assert (seen.pop("steps") > 0) == (take == "all")
        assert len(seen) > 5
        assert [name for name in seen if (seen[name] != expected[name]).any()] == [], take
        assert "weights_from" in [ref.role for ref in result.manifest.inputs]
        uris.add(result.uri)
    assert len(uris) == 3


def test_weights_that_do_not_fit_are_refused(whole: Result, root: Path, sampled: Path, tmp_path: Path) -> None:
    def refused(kind: type[PairmillError], message: str, *settings: str, **options: Any) -> None:
        with pytest.raises(kind, match=message):
            tiny.train(tiny.config(tmp_path, options.pop("data", sampled), *settings, **options))

    refused(UsageError, r"model.width: another net .* got 32; expected 16", "model.width=32", weights_from=whole.uri)
    refused(InputError, "neither a finished run nor a checkpoint", weights_from=str(sampled))
    refused(UsageError, "a finished run has no optimizer's state", weights_from=whole.uri, weights="all")
    refused(UsageError, "a run goes on or begins", weights_from=whole.uri, resume_from=whole.uri)
    no_mean = tiny.train(tiny.config(root, sampled, "training.ema=off"))
    refused(UsageError, "the run has no average", weights_from=no_mean.uri)
    from tests.support.data import samples

    other = samples.sampled(tmp_path / "other", [[(3, 4)] * 60], ids=600)
    refused(
        InputError, "another tokenizer than weights_from; got a vocabulary of 256", data=other, weights_from=whole.uri
    )


def test_a_run_that_goes_on_elsewhere_has_all_lines_and_a_finished_one_none_that_live(
    whole: Result, root: Path, sampled: Path, tmp_path: Path
) -> None:
    run = checkpoint(root, whole).parent.parent
    assert not (run / "live").exists()
    again = tiny.train(tiny.config(tmp_path, sampled, resume_from=str(run)))
    assert tiny.lines(again) == tiny.lines(whole)
    assert tiny.digest(again) == tiny.digest(whole)


# --- a plan that extends another ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", ["drop", "carry"])
def test_a_run_goes_on_with_a_plan_that_extends_its_own(tmp_path: Path, tail: str) -> None:
    family = Family(tmp_path / "family", rows=60)
    parent, child = family.add("parent", [0, 1]), family.add("child", [0, 1, 2], "parent", 2)
    # A rate that does not follow from the number of steps: then the runs have the same weights.
    same = (f"batch.tail={tail}", "schedule.shape=constant", "training.ema=0.9")
    first = tiny.train(tiny.config(tmp_path / "first", parent, *same))
    (folder,) = (tmp_path / "first/train/shards").iterdir()
    went_on = tiny.train(tiny.config(tmp_path / "on", child, *same, resume_from=str(folder)))
    whole = tiny.train(tiny.config(tmp_path / "whole", child, *same))
    assert tiny.digest(went_on) == tiny.digest(whole) != tiny.digest(first)
    assert went_on.manifest.data["steps"] == whole.manifest.data["steps"] > first.manifest.data["steps"]
    assert went_on.manifest.ledger == whole.manifest.ledger
    assert went_on.manifest.fingerprint != whole.manifest.fingerprint  # its rates might follow from the steps
    again = tiny.train(tiny.config(tmp_path / "on", child, *same, resume_from=str(folder)))
    assert again.uri == went_on.uri
    with pytest.raises(InputError, match=r"a checkpoint of another run; got .*optimizer.lr 0.01 \(here 0.5\)"):
        tiny.train(tiny.config(tmp_path / "lr", child, *same, "optimizer.lr=0.5", resume_from=str(folder)))
    with pytest.raises(InputError, match="a checkpoint of another run; got data"):
        tiny.train(tiny.config(tmp_path / "no", tiny.data(tmp_path / "other"), *same, resume_from=str(folder)))
    anew = family.add("anew", [0, 8, 9], "parent", 1)
    with pytest.raises(InputError, match="the training is in an epoch that this plan drew anew, from epoch 1 on"):
        tiny.train(tiny.config(tmp_path / "anew", anew, *same, resume_from=str(folder)))


def test_a_run_goes_on_with_more_folders_and_phases(tmp_path: Path) -> None:
    family = Family(tmp_path / "family", rows=60)
    parent, child = family.add("parent", [0, 1]), family.add("child", [0, 1, 2], "parent", 2)
    same = ("schedule.shape=constant", "training.ema=0.9")
    first = tiny.train(tiny.config(tmp_path / "first", Path(f"broad={parent}"), *same))
    (folder,) = (tmp_path / "first/train/shards").iterdir()
    steps = first.manifest.data["steps"]
    phases = (
        f"data.phases=[{{source: broad}}, {{source: new, step: {steps + 2}}}, {{source: broad, step: {steps + 5}}}]"
    )

    def config(root: str, **options: Any) -> Any:
        sampled = [f"broad={child}", f"new={family.folder / 'new'}"]
        return replace(tiny.config(tmp_path / root, child, *same, phases, **options), sampled=sampled)

    family.add("new", [7])
    went_on, whole = tiny.train(config("on", resume_from=str(folder))), tiny.train(config("whole"))
    assert tiny.digest(went_on) == tiny.digest(whole)
    assert went_on.manifest.data["steps"] == whole.manifest.data["steps"] > steps + 5
    assert went_on.manifest.ledger == whole.manifest.ledger
