"""A run of train and its exported folder answer alike; held-out loss is that of each row on its own."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from pairmill.engine import runner
from pairmill.engine.keys import identify
from pairmill.engine.manifest import canonical
from pairmill.engine.runner import Result
from pairmill.errors import InputError, StageFailure, UsageError
from pairmill.evaluation.settings import EvaluateSettings, Generation, HeldOutSettings, Net
from pairmill.nets import attention
from pairmill.nets.batch import Packed
from pairmill.nets.run import Run
from pairmill.stages.evaluate.config import EvaluateConfig
from pairmill.stages.evaluate.core import Evaluate
from pairmill.stages.evaluate.held_out import KIND, ROWS, HeldOutLoss, summary
from pairmill.stages.evaluate.models.exported import ExportedModel
from pairmill.stages.evaluate.models.model import Prompt
from pairmill.stages.evaluate.models.opened import open_model
from pairmill.stages.evaluate.models.trained import TrainedModel
from pairmill.stages.train.config import TrainConfig
from pairmill.stages.train.core import Train
from pairmill.stages.train.export.command import ExportConfig, export
from pairmill.stages.train.generate import GenerateConfig, generate
from tests.support.data import samples
from tests.support.nets.trained_runs import POSITIONS, ROWS_INFO, finished, tiny, tokenizer, with_manifest

QUESTIONS = [Prompt(str(number), f"What is {number}?", ("cot",)) for number in range(5)]
FEW = Generation(max_tokens=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished(tmp_path_factory.mktemp("run") / "run", tiny("transformer"))


def opened(folder: Path, net: Net | None = None) -> TrainedModel:
    return TrainedModel.from_run(Run.open(str(folder)), str(folder), net or Net())


@pytest.fixture(scope="module")
def exported(folder: Path) -> Path:
    output = folder.parent / "exported"
    export(ExportConfig(run=str(folder), output=str(output)))
    return output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "gsm8k.jsonl"
    rows = [{"question": one.prompt, "answer": f"#### {one.digest}"} for one in QUESTIONS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def evaluate(model: Path, place: Path, *settings: str, **options: Any) -> Result:
    said = ["net.unknown_tags=leave_out", "generation.max_tokens=6", "benchmarks.gsm8k.max_tokens=6", *settings]
    given = {"benchmarks": ["gsm8k"], "data": [f"gsm8k={place}"], "root": str(place.parent / "root"), **options}
    return runner.run(Evaluate(), EvaluateConfig(model=str(model), set=said, **given))


def outputs(result: Result) -> list[str]:
    text = (Path(result.uri.removeprefix("file://")) / "questions/gsm8k.jsonl").read_text()
    return [json.loads(line)["output"] for line in text.splitlines()]


def test_a_run_answers_as_its_generate_command(folder: Path) -> None:
    model = open_model(str(folder), EvaluateSettings())
    assert isinstance(model, TrainedModel)
    found = model.answers(QUESTIONS, FEW)
    for one, (text,) in zip(QUESTIONS, found, strict=True):
        asked = GenerateConfig(run=str(folder), prompt=one.prompt, condition="cot", max_tokens=6)
        assert generate(asked) == f"{text.text}\n"
        assert 0 < text.tokens <= 6


def test_an_exported_folder_answers_as_the_run(folder: Path, exported: Path, data: Path) -> None:
    model = open_model(str(exported), EvaluateSettings())
    assert isinstance(model, ExportedModel)
    run = open_model(str(folder), EvaluateSettings())
    assert model.answers(QUESTIONS, FEW) == run.answers(QUESTIONS, FEW)
    assert outputs(evaluate(exported, data)) == outputs(evaluate(folder, data))


def test_several_texts_of_a_question_are_drawn(folder: Path, exported: Path) -> None:
    drawn = Generation(max_tokens=6, temperature=1.0, samples=3)
    for place in (folder, exported):
        model = open_model(str(place), EvaluateSettings())
        found = model.answers(QUESTIONS[:2], drawn)
        assert [len(texts) for texts in found] == [3, 3]
        assert len({text.text for text in found[0]}) > 1
        assert model.answers(QUESTIONS[:2], drawn) == found


def test_a_prompt_that_fills_the_context_is_answered_with_nothing_and_counted(folder: Path, data: Path) -> None:
    with data.open("a") as file:
        file.write(json.dumps({"question": "why " * POSITIONS, "answer": "#### 7"}) + "\n")
    result = evaluate(folder, data)
    assert outputs(result)[-1] == ""
    assert result.manifest.ledger.notes["prompt_too_long"] == 1
    assert result.manifest.ledger.rows_out == len(QUESTIONS) + 1


def test_other_weights_are_another_model(folder: Path, data: Path) -> None:
    first, second = evaluate(folder, data), evaluate(folder, data, "net.weights=current")
    assert first.uri != second.uri
    assert evaluate(folder, data).reused


def test_a_tag_that_the_run_does_not_know_is_refused(folder: Path, data: Path) -> None:
    with pytest.raises(StageFailure, match=r"unknown tag.*'synth'.*leave_out"):
        evaluate(folder, data, "net.unknown_tags=refuse", "benchmarks.gsm8k.condition='synth,cot'")


@pytest.fixture
def held(tmp_path: Path) -> Path:
    pairs = [(3, 4), (2, 9), (5, 2), (1, 12), (7, 3)]
    info = {"boq": "<|im_start|>", "vocab_size": 262}
    return samples.sampled(tmp_path / "held", [pairs], ids=262, tokenizer_info=info)


def test_held_out_loss_is_that_of_each_row_on_its_own(folder: Path, held: Path, data: Path) -> None:
    result = evaluate(folder, data, benchmarks=[], data=[], held_out=str(held))
    place = Path(result.uri.removeprefix("file://"))
    rows = np.load(place / ROWS)
    assert rows.dtype == KIND
    run = Run.open(str(folder))
    net = run.net("current" if run.choose_weights("auto")[0] == "current" else "ema")
    tokens, (starts, lengths, answers, sizes) = samples.arrays(held)
    known = json.loads(tokenizer())["model"]["vocab"]
    special = {token["id"] for token in json.loads(tokenizer())["added_tokens"]}
    bytes_of = {number: 0 if number in special else len(token) for token, number in known.items()}
    for at in range(len(starts)):
        ids = [*tokens[starts[at] :][: lengths[at]], *tokens[answers[at] :][: sizes[at]]]
        inputs = torch.tensor(ids[:-1]).long()
        labels = torch.tensor(ids[1:]).long()
        count, prefix = len(inputs), int(lengths[at])
        batch = Packed(inputs, torch.arange(count), labels, (0, count), (prefix,))
        with torch.inference_mode():
            y = net(batch, attention.sees(batch, causal=False))
            # The first token of a response is predicted by the last one of its instruction.
            wanted = functional.cross_entropy(net.logits(y)[prefix - 1 :], labels[prefix - 1 :], reduction="sum")
        assert rows["row"][at] == at
        assert rows["tokens"][at] == sizes[at]
        assert rows["bytes"][at] == sum(bytes_of[one] for one in ids[prefix:])
        assert math.isclose(rows["loss"][at], float(wanted), rel_tol=1e-5)
    whole = result.manifest.data["held_out"]["table"]["all"]
    assert math.isclose(whole["loss"], rows["loss"].sum() / rows["tokens"].sum())
    assert math.isclose(whole["bits_per_byte"], rows["loss"].sum() / math.log(2) / rows["bytes"].sum())
    assert whole["loss_error"] > 0
    assert result.manifest.data["held_out"]["exact"]
    assert "Held-out loss" in (place / "report.md").read_text()
    assert Evaluate().metrics(result.manifest)["held_out_loss"] == round(whole["loss"], 6)


def test_bytes_that_tokenize_kept_count_more_than_the_tokenizers(folder: Path, held: Path, data: Path) -> None:
    def measured() -> tuple[dict[str, Any], Any, str]:
        result = evaluate(folder, data, benchmarks=[], data=[], held_out=str(held))
        place = Path(result.uri.removeprefix("file://"))
        return result.manifest.data["held_out"], np.load(place / ROWS), (place / "report.md").read_text()

    counted, before, report = measured()
    assert counted["kept_bytes"] == 0
    assert "counted from tokenizer.json for 5 rows" in report
    np.save(held / "epoch_0/resp_bytes.npy", np.array([100, 0, -1, 7, -1], np.int32))
    kept, after, report = measured()
    assert kept["kept_bytes"] == 3
    assert after["bytes"].tolist() == [100, 0, before["bytes"][2], 7, before["bytes"][4]]
    assert after["loss"].tolist() == before["loss"].tolist()
    assert "which tokenize kept, for 3 rows, counted from tokenizer.json for 2 rows" in report
    np.save(held / "epoch_0/resp_bytes.npy", np.array([100], np.int32))
    with pytest.raises(StageFailure, match=r"not the bytes of these rows.*\[1\].*\[5\]"):
        measured()


def test_a_run_without_a_tokenizer_takes_one_by_an_option(
    folder: Path, exported: Path, held: Path, data: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(folder, bare)
    file = (bare / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    options = {"held_out": str(held), "data": [f"gsm8k={data}"]}
    with pytest.raises(InputError, match=r"the run has no tokenizer.*give tokenizer=<.*or copy that file"):
        evaluate(bare, data, **options)
    named = evaluate(bare, data, tokenizer=str(file), **options)
    whole = evaluate(folder, data, **options)
    assert outputs(named) == outputs(whole)
    assert named.manifest.fingerprint == whole.manifest.fingerprint
    other = tmp_path / "other.json"
    other.write_text(tokenizer().replace("<|im_start|>", "<|im_begin|>"))
    with pytest.raises(InputError, match="not the tokenizer of the run"):
        evaluate(folder, data, tokenizer=str(other), **options)
    with pytest.raises(UsageError, match="tokenizer: the model has a tokenizer of its own"):
        evaluate(exported, data, tokenizer=str(file))


def test_slots_do_not_change_the_loss_and_rows_do(folder: Path, held: Path) -> None:
    model = opened(folder)
    shards = [
        HeldOutLoss.from_folder(model, str(held), HeldOutSettings(rows=rows, slots=64 + number))
        for number, rows in enumerate((0, 0, 2))
    ]
    keys = [canonical(identify(shard, ())) for shard in shards]
    assert keys[0] == keys[1] != keys[2]


def test_the_standard_error_is_that_of_repeated_samples() -> None:
    random = np.random.default_rng(3)
    found = []
    for _ in range(400):
        rows = np.zeros(300, KIND)
        rows["tokens"] = random.integers(1, 30, 300)
        rows["bytes"] = rows["tokens"] * 3
        rows["loss"] = rows["tokens"] * random.normal(2.0, 0.5, 300)
        found.append(summary(rows))
    spread = np.std([one["loss"] for one in found])
    assert 0.9 < np.mean([one["loss_error"] for one in found]) / spread < 1.1


def test_held_out_rows_of_another_tokenizer_are_refused(folder: Path, tmp_path: Path) -> None:
    other = samples.sampled(
        tmp_path / "other", [[(3, 4)]], ids=262, tokenizer_info={"boq": "<other>", "vocab_size": 262}
    )
    with pytest.raises(InputError, match="different tokenizers"):
        evaluate(folder, tmp_path / "none", benchmarks=[], data=[], held_out=str(other))


def test_held_out_loss_of_an_exported_folder_is_refused(exported: Path, held: Path, data: Path) -> None:
    with pytest.raises(UsageError, match="needs a run of train"):
        evaluate(exported, data, held_out=str(held))


def test_the_digest_is_that_of_the_weights_that_are_taken(folder: Path, tmp_path: Path) -> None:
    same = with_manifest(finished(tmp_path / "same", tiny("transformer"), results={"seconds": 7}), [])
    other = finished(tmp_path / "other", tiny("transformer"), seed=5)
    plain, moved = (opened(one) for one in (folder, same))
    assert plain.digest == moved.digest
    assert opened(other).digest != plain.digest
    assert opened(folder, Net(weights="current")).digest != plain.digest


def test_a_run_that_has_just_been_trained(tmp_path: Path, data: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer())
    info = {**ROWS_INFO, "vocab_size": 262}
    places = []
    for name, seed in (("rows", 1), ("held", 2)):
        pairs = [(3 + at % 5, 2 + at % 7) for at in range(40)]
        places.append(samples.sampled(tmp_path / name, [pairs], ids=262, seed=seed, tokenizer_info=info))
    config = TrainConfig(
        sampled=[str(places[0])],
        held_out=str(places[1]),
        tokenizer=str(tmp_path / "tokenizer.json"),
        set=[
            "model.layers=1",
            "model.width=32",
            "model.heads=2",
            "batch.tokens=64",
            "training.steps=4",
            "schedule.warmup_steps=1",
        ],
        root=str(tmp_path / "root"),
        device="cpu",
    )
    trained = runner.run(Train(), config)
    result = evaluate(Path(trained.uri.removeprefix("file://")), data, held_out=str(places[1]))
    whole = result.manifest.data["held_out"]["table"]["all"]
    last = trained.manifest.data["last"]
    wanted = [last[name] for name in ("heldout_loss", "heldout_ema_loss") if name in last]
    assert any(math.isclose(whole["loss"], one, rel_tol=1e-5) for one in wanted), (whole, last)
    assert len(outputs(result)) == len(QUESTIONS)
