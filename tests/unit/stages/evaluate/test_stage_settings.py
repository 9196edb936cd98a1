"""evaluate_config.yaml: the shipped file, the order of generation settings, what a result follows from."""

from pathlib import Path

from pairmill.evaluation.settings import EvaluateSettings, Generation
from tests.support.helpers import REPOSITORY


def load(tmp_path: Path, text: str, *overrides: str) -> EvaluateSettings:
    (tmp_path / "evaluate_config.yaml").write_text(text)
    return EvaluateSettings.load(str(tmp_path / "evaluate_config.yaml"), overrides)


def test_the_shipped_file_is_the_default(tmp_path: Path) -> None:
    shipped = (REPOSITORY / "configs/evaluate_config.yaml").read_text()
    assert shipped == EvaluateSettings.default_file(), "run: pairmill evaluate settings"
    assert load(tmp_path, shipped) == EvaluateSettings()


def test_generation_is_the_base_then_the_benchmarks_own_then_what_is_said_for_it(tmp_path: Path) -> None:
    settings = load(
        tmp_path, "generation: {temperature: 0.5, max_tokens: 9, seed: 3}\nbenchmarks: {math: {max_tokens: 7}}"
    )
    own = {"max_tokens": 1, "condition": "direct", "temperature": 0.25}
    assert settings.generation_of("mmlu", own) == Generation(temperature=0.25, max_tokens=1, seed=3, condition="direct")
    assert settings.generation_of("math", own).max_tokens == 7


def test_texts_follow_from_neither_the_batch_nor_a_seed_without_draws(tmp_path: Path) -> None:
    plain = EvaluateSettings()
    other = load(tmp_path, "net: {batch: 2, device: cpu}\nserver: {at_once: 1, seconds: 3}\nheld_out: {slots: 9}")
    assert other.to_manifest() == plain.to_manifest()
    assert Generation(seed=3).to_manifest() == Generation().to_manifest()
    assert Generation(seed=3, temperature=1.0).to_manifest() != Generation(temperature=1.0).to_manifest()
    assert load(tmp_path, "", "limit=3").to_manifest() != plain.to_manifest()
