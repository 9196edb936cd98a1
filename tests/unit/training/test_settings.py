"""train_config.yaml: the shipped file, layers of defaults, overrides, and what is refused with which words."""

import os
import re
import subprocess
import sys
from typing import get_args

import pytest

from pairmill.errors import UsageError
from pairmill.nets.settings import NETS, SIZES, ModelSettings, NetName, SizeName
from pairmill.training.profiles import PROFILES, ProfileName, QuirkName
from pairmill.training.settings import (
    OptimizerSettings,
    ScheduleSettings,
    TrainingSettings,
    TrainSettings,
    default_file,
    defaults,
)
from tests.support.helpers import REPOSITORY


def live(text: str) -> str:
    """The file with every setting in force."""
    return re.sub(r"^( *)#(\w)", r"\1\2", text, flags=re.MULTILINE)


def test_the_shipped_file_has_the_defaults() -> None:
    shipped = (REPOSITORY / "configs/train_config.yaml").read_text()
    assert shipped == default_file(), "run: pairmill train settings > configs/train_config.yaml"
    assert (
        TrainSettings.parse(shipped) == TrainSettings.parse(live(shipped)) == TrainSettings.parse() == TrainSettings()
    )
    assert len(re.findall(r"^ *#\w", shipped, flags=re.MULTILINE)) > 80


@pytest.mark.parametrize("profile", get_args(ProfileName))
def test_the_file_of_a_profile_says_what_the_profile_means(profile: ProfileName) -> None:
    assert TrainSettings.parse(live(default_file(profile, "trm", "L"))) == defaults(profile, "trm", "L")
    assert TrainSettings.parse(f"profile: {profile}") == defaults(profile)


def test_the_example_trains_the_demo() -> None:
    settings = TrainSettings.load(str(REPOSITORY / "examples/train_config.yaml"))
    assert settings.profile == "pairmill"
    assert settings.model.width <= 256


def test_a_net_and_a_size_bring_their_values_and_the_file_counts_more() -> None:
    settings = TrainSettings.parse("model:\n  net: hrm\n  size: L\n  heads: 20\n", ["model.L_cycles=4"])
    assert (settings.model.half_layers, settings.model.layers, settings.model.width) == (True, *SIZES["L"][:2])
    assert (settings.model.heads, settings.model.L_cycles, settings.model.H_cycles) == (20, 4, 2)
    assert settings.notes(1000) == ["model.heads is 20; size L has 10"]


@pytest.mark.parametrize("net", get_args(NetName))
def test_every_net_is_built_by_its_name(net: NetName) -> None:
    assert net in NETS
    assert TrainSettings.parse("", [f"model.net={net}"]).model == ModelSettings.for_net(net)
    assert not TrainSettings.parse("", [f"model.net={net}"]).notes(1000), "our defaults need no warning"


def test_sizes_are_the_published_ones() -> None:
    assert set(get_args(SizeName)) == {"none", *SIZES}


def test_the_last_override_counts_and_1e_3_is_a_number() -> None:
    settings = TrainSettings.parse(
        "optimizer:\n  lr: 5.0\n", ["optimizer.lr=7", "optimizer.lr=1e-3", "model={net: ut}"]
    )
    assert settings.optimizer.lr == 0.001
    assert settings.model.net == "ut"


@pytest.mark.parametrize(
    ("text", "override", "expected"),
    [
        ("", "optimizer.lrr=1", r"set=optimizer.lrr=1: unknown key 'lrr'; expected name, lr, .*did you mean 'lr'\?"),
        ("optimizer:\n  lrr: 1", "", r"line 2, in optimizer: unknown key 'lrr'.*did you mean 'lr'\?"),
        ("", "lr=1", r"unknown key 'lr'; expected profile, data, model"),
        ("", "optimizer.lr=fast", "set=optimizer.lr=fast: not a valid value; got 'fast'; expected a number"),
        ("", "optimizer.lr", "set: not an override; got 'optimizer.lr'; expected key=value"),
        ("", "optimizer.lr=[", "set=optimizer.lr=.: not valid YAML"),
        ("optimizer: 3", "optimizer.lr=1", "line 1, optimizer: not a mapping"),
        ("model:\n  heads: 3", "", "line 2, model.heads: heads do not divide the width; got 3; .*128.*; 2 would do"),
        ("", "model.heads=128", "heads do not divide the width; got 128"),
        ("model:\n  heads: 3", "model.width=96", ""),
        ("model:\n  net: hrm\n  layers: 3", "", "line 3, model.layers: odd; got 3; expected an even number.*4 or 2"),
        ("", "model.half_layers=true", "this net has one stack; got transformer"),
        ("", "model.H_override.layers=2", "only hrm has it; got transformer; expected model.net: hrm"),
        ("model: {net: hrm}", "model.H_override.heads=3", "heads do not divide"),
        ("model: {net: hrm}", "model.H_override.attention=causal", "unknown key 'attention'; expected layers, heads"),
        ("model: {net: hrm}", "model.H_override.width=64", "unknown key 'width'; expected layers, heads"),
        ("", "model.key_value_heads=2", "only llama has it"),
        ("model: {net: llama}", "model.key_value_heads=3", "a divisor of heads, which is 4"),
        ("", "model.pos_emb=none", "set=model.pos_emb=none: unknown value; got 'none'; expected rope"),
        ("", "model.bp_min=6", r"expected 1 to 5 \(bp_max\)"),
        ("batch:\n  target_only: false", "", "line 2, batch.target_only: the instruction would see its own labels"),
        ("batch:\n  target_only: false", "model.attention=causal", ""),
        ("batch:\n  target_only: false", "profile=hrm_text", ""),
        ("", "batch.accumulate=3", "got 3; expected a divisor of tokens, which is 4096"),
        ("", "optimizer.name=lion", "only the profile kempner has it; got lion; expected adam_atan2, adamw$"),
        ("", "schedule.shape=rex", "only the profile kempner has it; got rex; expected constant, cosine, linear, wsd$"),
        ("profile: kempner", "optimizer.name=lion", ""),
        ("", "optimizer.betas=[0.9]", r"not the right number of items; got \[0.9\]; expected 2"),
        ("", "optimizer.betas=[0.9, 1]", "expected 0 to below 1"),
        ("", "training.ema=1", "expected 0 to below 1, or auto"),
        (
            "",
            "training={steps: 3, epochs: 2}",
            "got epochs, steps; expected at most one of epochs, steps, tokens; epochs=0 takes the",
        ),
        ("", "schedule.stable_steps=3", "only wsd has it"),
        ("", "checkpoints.early=[0, 9]", "needs every_steps"),
        ("", "checkpoints.keep=0", "expected 1 or more"),
    ],
)
def test_what_is_refused(text: str, override: str, expected: str) -> None:
    given = [override] if override else []
    if not expected:
        TrainSettings.parse(text, given)
        return
    with pytest.raises(UsageError, match=expected):
        TrainSettings.parse(text, given)


def test_an_absent_file_that_is_named_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"train_config=.*no.yaml: the file does not exist"):
        TrainSettings.load("no.yaml")


def test_a_run_within_its_warm_up_is_refused() -> None:
    settings = TrainSettings.parse("", ["schedule.warmup_steps=50"])
    settings.check_steps(51)
    with pytest.raises(UsageError, match="ends within the warm-up; got 50, and 50 steps; expected at most 49"):
        settings.check_steps(50)
    for profile in ("hrm_text", "kempner"):
        theirs = defaults(profile)
        theirs.check_steps(1000)
        assert "the run ends within the warm-up: 2000 steps, and the run has 1000" in theirs.notes(1000)
    with pytest.raises(UsageError, match="within the warm-up"):
        defaults("hrm_text").check_steps(2000)
    with pytest.raises(UsageError, match="no step"):
        settings.check_steps(0)
    with pytest.raises(UsageError, match="before the rate goes down"):
        TrainSettings.parse("", ["schedule={shape: wsd, warmup_steps: 5, stable_steps: 5}"]).check_steps(10)


def test_a_batch_that_ranks_cannot_share_is_refused() -> None:
    settings = TrainSettings.parse("", ["batch={tokens: 96, accumulate: 4}"])
    settings.check_ranks(3)
    with pytest.raises(UsageError, match="got 96 for 5 processes x 4 parts; expected a multiple of 20; 80 would do"):
        settings.check_ranks(5)


def test_notes_say_what_a_person_should_know() -> None:
    notes = "\n".join(TrainSettings.parse("profile: hrm_text").notes(1000))
    for said in ("cosine_rises", "min_ratio is 1: the rate stays constant", "it takes bp_min 3", "90% of the mean"):
        assert said in notes
    assert "train size L with optimizer.lr=0.00025" in "\n".join(defaults("hrm_text", size="L").notes(10_000))
    TrainSettings.parse("", ["profile=hrm_text", "model.size=L", *PROFILES["hrm_text"].sizes["L"]])
    assert "it takes H_bp_steps 2" in "\n".join(defaults("hrm_text", "trm").notes(1000))


def test_what_is_said_leaves_out_how_it_is_watched_and_kept() -> None:
    settings = TrainSettings.parse()
    same = TrainSettings.parse(
        "", ["watch.every_steps=3", "checkpoints.keep=9", "training.threads=2", "data.prefetch=2"]
    )
    other = TrainSettings.parse("", ["optimizer.eps=1e-9"])
    assert settings.to_manifest() == same.to_manifest() != other.to_manifest()
    assert settings.to_manifest()["model"]["width"] == 128


def test_defaults_that_differ_from_the_references_on_purpose() -> None:
    """docs/differences.md has a line for each."""
    ours, theirs = TrainSettings(), defaults("hrm_text")
    assert (OptimizerSettings().decay, theirs.optimizer.decay) == ("matrices", "all")
    assert (TrainingSettings().ema, theirs.training.ema) == ("auto", 0.9999)
    assert (ScheduleSettings().warmup_steps, theirs.schedule.warmup_steps) == (None, 2000)
    assert (ScheduleSettings().min_ratio, theirs.schedule.min_ratio) == (0.1, 1.0)
    assert (ModelSettings.for_net("hrm").bp_min, theirs.model.bp_min) == (3, 2)
    assert (ModelSettings.for_net("trm").H_bp_steps, defaults("hrm_text", "trm").model.H_bp_steps) == (2, 1)
    assert (ours.optimizer.clip, defaults("kempner").optimizer.clip) == (0.0, 1.0)
    assert (ours.optimizer.name, defaults("kempner").optimizer.name) == ("adam_atan2", "adamw")
    assert (ours.schedule.wsd_decay, defaults("kempner").schedule.wsd_decay) == ("linear", "cosine")


def test_every_defect_has_a_line_in_the_document() -> None:
    text = (REPOSITORY / "docs/differences.md").read_text().split("\n## train\n")[1]
    named = set(re.findall(r"\| `([a-z_]+)` \|", text))
    assert set(get_args(QuirkName)) == set().union(*(profile.quirks for profile in PROFILES.values())) == named


def test_every_defect_is_looked_at() -> None:
    rooms = [REPOSITORY / room for room in ("pairmill/stages/train", "pairmill/training", "pairmill/loader")]
    code = {path: path.read_text() for room in rooms for path in room.rglob("*.py") if path.name != "profiles.py"}
    assert len(code) > 30
    for name in get_args(QuirkName):
        assert any(f'quirk("{name}")' in text for text in code.values()), name


def test_settings_are_read_without_torch() -> None:
    code = "import sys, pairmill.training.settings, pairmill.training.schedules; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


def test_threads_that_wait_leave_the_cores_to_others() -> None:
    """libgomp reads the variable when torch is imported, so it has to be there before."""
    code = """
import contextlib, os, runpy, sys
sys.argv = ["train", "settings"]
with contextlib.suppress(SystemExit):
    sys.argv[1:1] = ["train"]; runpy.run_module("pairmill", run_name="__main__")
sys.exit(os.environ.get("OMP_WAIT_POLICY") != "PASSIVE" or "torch" in sys.modules)
"""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, env=environment, check=True, stdout=subprocess.DEVNULL)
