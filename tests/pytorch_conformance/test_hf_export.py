"""Our export against the reference's exporter, and against what transformers made of that."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from pairmill.nets import trained
from pairmill.nets.trained import Trained
from pairmill.stages.train.export.command import ExportConfig, export
from tests.pytorch_conformance.test_generate import FOLDER, prompts, recorded, settings_of

CORRECTED = {
    "num_hidden_layers",  # blocks of one stack: the exporter's number makes every second block a random one
    "L_bp_steps",  # nothing reads it
}


def said() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "hf_export.json").read_bytes())
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorded net, exported by us."""
    run, out = tmp_path_factory.mktemp("run"), tmp_path_factory.mktemp("exported") / "out"
    model = recorded()["model"]
    weights = {name: one.float() for name, one in load_file(FOLDER / "weights.safetensors").items()}
    save_file(weights, run / trained.WEIGHTS)
    (run / trained.TOKENIZER).write_bytes((FOLDER / "tokenizer.json").read_bytes())
    config = Trained(
        asdict(settings_of(model)), model["vocab_size"], model["max_seq_len"], recorded()["tokenizer_info"]
    )
    (run / trained.NAME).write_bytes(config.dump())
    export(ExportConfig(run=str(run), output=str(out)))
    return out


@pytest.fixture(scope="module")
def loaded(folder: Path) -> tuple[Any, dict[str, Any]]:
    model, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    return model.eval(), info


def test_files_and_tensors_are_the_exporters(folder: Path) -> None:
    expected = said()["exporter_files"]
    assert {path.name for path in folder.iterdir()} >= expected.keys()
    tensors = expected["model.safetensors"]
    with safe_open(folder / "model.safetensors", "pt") as file:
        found = {name: [file.get_slice(name).get_dtype(), file.get_slice(name).get_shape()] for name in [*file.keys()]}
    names = {"float32": "F32", "bfloat16": "BF16"}
    assert found == {name: [names[dtype], shape] for name, (dtype, shape) in tensors.items()}


def test_the_configuration_is_the_exporters_but_for_what_is_corrected(folder: Path) -> None:
    found, expected = json.loads((folder / "config.json").read_bytes()), said()["exporter_config"]
    assert {name for name in expected if found.get(name) != expected[name]} == CORRECTED
    assert found["num_hidden_layers"] == said()["loading_with_num_hidden_layers_per_stack"]["num_hidden_layers"]
    tokenizer = json.loads((folder / "tokenizer_config.json").read_bytes())
    for name in ("bos_token", "eos_token", "pad_token"):
        assert tokenizer[name] == said()["exporter_tokenizer_config"][name]
    assert GenerationConfig.from_pretrained(folder).eos_token_id == recorded()["stop_token"]


def test_transformers_finds_every_key_and_resolves_the_same(loaded: tuple[Any, dict[str, Any]]) -> None:
    model, info = loaded
    assert not any(info.values()), info
    shapes = {name: list(one.shape) for name, one in model.state_dict().items()}
    assert shapes == said()["transformers_state_dict"]
    resolved = said()["loading_with_num_hidden_layers_per_stack"]["resolved"]
    for name, value in resolved.items():
        assert getattr(model.config, name) == value


def test_logits_and_greedy_tokens_are_the_recorded_ones(loaded: tuple[Any, dict[str, Any]]) -> None:
    model, _ = loaded
    logits = load_file(FOLDER / "hf_logits.safetensors")
    expected = {one["case"]: one for one in said()["generate"]}
    assert expected
    for number, one in expected.items():
        case = recorded()["cases"][number]
        prompt, answer = case["prompt_ids"], case["generated_ids"]
        ids = torch.tensor([prompt + answer[:-1]])
        types = torch.tensor([[1] * len(prompt) + [0] * (len(answer) - 1)])
        with torch.inference_mode():
            found, plain = model(input_ids=ids, token_type_ids=types).logits[0], model(input_ids=ids).logits[0]
            assert (found[len(prompt) - 1 :] - logits[f"case{number}.logits"]).abs().max() <= 1e-4
            change = float((plain - found).abs().max())
            assert abs(change - one["max_logit_change_without_token_type_ids"]) <= 1e-3
            for types_given, tokens in ((True, answer), (False, one["greedy_without_token_type_ids"])):
                given = {"token_type_ids": types[:, : len(prompt)]} if types_given else {}
                start = torch.tensor([prompt])
                mask = torch.ones_like(start)
                made = model.generate(input_ids=start, attention_mask=mask, max_new_tokens=len(tokens), **given)
                assert made[0, len(prompt) :].tolist() == tokens


def test_the_tokenizer_gives_the_recorded_ids_and_no_token_types(folder: Path) -> None:
    tokenizer, call = AutoTokenizer.from_pretrained(folder), said()["tokenizer_call"]
    info, cases = recorded()["tokenizer_info"], recorded()["cases"]
    case = next(one for one in cases if one["prompt_ids"] == call["input_ids"])
    conditions = "".join(info["condition_mapping"][one] for one in case["condition"].split(","))
    found = tokenizer(f"{info['boq']}{conditions}{case['prompt'].strip()}{info['eoq']}")
    assert dict(found) == {name: call.get(name, [1] * len(call["input_ids"])) for name in call["keys"]}
    for one in cases:
        if ids := one["generated_ids"]:
            assert tokenizer.decode(ids[:-1] if one["stopped_at_eoa"] else ids) == one["text"]
    assert prompts().stop == tokenizer.eos_token_id


def test_transformers_saves_back_what_we_wrote(loaded: tuple[Any, dict[str, Any]], tmp_path: Path) -> None:
    loaded[0].save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert set(file.keys()) == set(said()["saved_by_transformers"]["model.safetensors"])
