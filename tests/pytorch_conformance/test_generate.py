"""Generation against the reference's: prompts, greedy tokens, texts, order of the answers, caches, draws."""

import json
from functools import cache
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from pairmill.nets import attention
from pairmill.nets.batch import Packed
from pairmill.nets.builder import build
from pairmill.nets.generate import engine
from pairmill.nets.generate.cache import Cache
from pairmill.nets.generate.prompts import Prompts
from pairmill.nets.net import Net
from pairmill.nets.settings import ModelSettings
from tests.pytorch_conformance.published import ours
from tests.pytorch_conformance.recorded import TRAIN

FOLDER = TRAIN / "generate"


@cache
def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "generate.json").read_bytes())
    return found


def settings_of(model: dict[str, Any]) -> ModelSettings:
    given = ours({name: value for name, value in model.items() if name not in ("vocab_size", "max_seq_len")})
    return ModelSettings.for_net(given.pop("net"), **given)


@cache
def net() -> Net:
    model = recorded()["model"]
    made = build(settings_of(model), model["vocab_size"], model["max_seq_len"])
    made.load_state_dict({name: one.float() for name, one in load_file(FOLDER / "weights.safetensors").items()})
    return made.eval()


@cache
def prompts(*, find_specials: bool = True) -> Prompts:
    text = (FOLDER / "tokenizer.json").read_text()
    return Prompts(text, recorded()["tokenizer_info"], find_specials=find_specials)


def asked() -> list[list[int]]:
    return [case["prompt_ids"] for case in recorded()["cases"]]


@pytest.mark.parametrize("find_specials", [False, True])
def test_prompts_have_the_recorded_ids(find_specials: bool) -> None:
    made = prompts(find_specials=find_specials)
    cases = recorded()["cases"]
    assert cases
    for case in cases:
        assert made.ids(case["prompt"], case["condition"].split(",")) == case["prompt_ids"]
    assert made.stop == recorded()["stop_token"]


def test_greedy_tokens_are_the_recorded_ones() -> None:
    model = recorded()["model"]
    limits = engine.Limits(prompts().stop, model["max_seq_len"], model["max_seq_len"])
    found = {one.index: one for one in engine.generate(net(), asked(), limits, causal=False)}
    compared = 0
    for index, case in enumerate(recorded()["cases"]):
        if case["generated_ids"]:
            assert found[index].ids == case["generated_ids"]
            assert found[index].stopped == case["stopped_at_eoa"]
            assert prompts().text(found[index].ids) == case["text"]
            compared += 1
    assert compared


def test_the_first_logits_are_the_recorded_ones() -> None:
    for ids, case in zip(asked(), recorded()["cases"], strict=True):
        if case["generated_ids"]:
            batch = Packed(
                torch.tensor(ids), torch.arange(len(ids)), torch.full((len(ids),), -100), (0, len(ids)), (len(ids),)
            )
            with torch.inference_mode():
                logits = net().logits(net()(batch, attention.sees(batch)))[-1]
            for token, value in case["first_token_logits_top5"]:
                assert abs(float(logits[token]) - value) <= 1e-5 * float(logits.abs().max())


@pytest.mark.parametrize("run", recorded()["engine_runs"] if TRAIN.is_dir() else [])
def test_texts_and_their_order_are_the_recorded_ones(run: str) -> None:
    case = recorded()["engine_runs"][run]
    limits = engine.Limits(prompts().stop, case["max_tokens"], case["max_context"])
    found = list(engine.generate(net(), asked(), limits, causal=False, batch_size=case["batch_size"]))
    assert [one.index for one in found] == case["yield_order"]
    texts = {one.index: prompts().text(one.ids) for one in found}
    assert [texts[index] for index in range(len(texts))] == case["texts"]


def test_there_is_a_cache_for_each_block_and_recurrent_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Cache] = []

    def kept(slots: int) -> Cache:
        made.append(Cache(slots))
        return made[-1]

    monkeypatch.setattr(engine, "Cache", kept)
    list(engine.generate(net(), asked()[:2], engine.Limits(prompts().stop, 4, 64), causal=False, batch_size=2))
    layout = recorded()["cache_layers"]
    assert [len(one.keys) for one in made] == [sum(layout["H"]) + sum(layout["L"])]


def test_draws_give_the_recorded_tokens() -> None:
    tensors = load_file(FOLDER / "sampling.safetensors")
    cases = recorded()["sampling"]
    assert cases
    for case in cases:
        logits = tensors["logits"]
        if case["temperature"] >= engine.GREEDY:
            logits = engine.with_noise(logits, case["temperature"], tensors["uniform"])
        assert logits.argmax(dim=-1).tolist() == case["tokens"]
