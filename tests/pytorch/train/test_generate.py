"""Generation: equal to reading everything again, the same for any batch, reproducible; the command and its errors."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from pairmill import _native
from pairmill.encoder import Encoder
from pairmill.errors import InputError, UsageError
from pairmill.nets import rope
from pairmill.nets.builder import build
from pairmill.nets.generate import engine
from pairmill.nets.generate.prompts import Prompts
from pairmill.nets.net import Net
from pairmill.nets.run import Run
from pairmill.nets.settings import ModelSettings
from pairmill.stages.train.generate import GenerateConfig, generate
from pairmill.stages.train.run import parallel
from pairmill.stages.train.run.checkpoint import Checkpoints, state_of
from pairmill.training.optimizers.optimizer import make
from pairmill.training.settings import OptimizerSettings
from tests.support.nets import trained_runs
from tests.support.nets.trained_runs import POSITIONS, ROWS_INFO, VOCAB_SIZE, finished, tiny, tokenizer, weights

NETS = {name: tiny(name) for name in ("transformer", "hrm", "trm", "trm_match_recurrence", "rins", "ut")} | {
    "transformer_causal": tiny("transformer", attention="causal", norm="post"),
    "llama": tiny("llama", heads=4, key_value_heads=2, init_std=0.3),
    "llama_norms": tiny("llama", qk_norm=True, tied=True, init_std=0.3),
}
PROMPTS = [[1, 5, 70, 71, 72, 2], [1, 90, 2], [1, 4, *range(100, 130), 2], [1, 5, 44, 45, 2], [1, 2], [1, 90, 2]]
STOP = 3


def net_of(model: ModelSettings) -> Net:
    net = build(model, VOCAB_SIZE, POSITIONS)
    net.load_state_dict(weights(model))
    return net.eval()


def read_again(net: Net, model: ModelSettings, prompt: Sequence[int], most: int) -> list[int]:
    """Greedy tokens by a whole forward pass for each: all of the prompt is a prefix, and the answer is causal."""
    from pairmill.nets import attention
    from pairmill.nets.batch import Packed

    ids: list[int] = [*prompt]
    while len(ids) - len(prompt) < most and (len(ids) == len(prompt) or ids[-1] != STOP):
        count = len(ids)
        batch = Packed(torch.tensor(ids), torch.arange(count), torch.full((count,), -100), (0, count), (len(prompt),))
        with torch.inference_mode():
            y = net(batch, attention.sees(batch, causal=model.causal))
            ids.append(int(net.logits(y[-1:]).argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("name", NETS)
def test_a_cache_gives_what_reading_everything_again_gives(name: str) -> None:
    model, net = NETS[name], net_of(NETS[name])
    limits = engine.Limits(STOP, 10, POSITIONS)
    found = {one.index: one.ids for one in engine.generate(net, PROMPTS, limits, causal=model.causal, batch_size=2)}
    assert [found[index] for index in range(len(PROMPTS))] == [read_again(net, model, one, 10) for one in PROMPTS]
    assert len({tuple(ids) for ids in found.values()}) > 2


def answers(net: Net, prompts: Sequence[Sequence[int]], **options: float) -> dict[tuple[int, ...], list[list[int]]]:
    """Answers by prompt, in the order of equal prompts."""
    limits = engine.Limits(STOP, 12, POSITIONS)
    made = sorted(
        engine.generate(net, prompts, limits, causal=False, **options),
        key=lambda one: one.index,
    )
    found: dict[tuple[int, ...], list[list[int]]] = {}
    for one in made:
        found.setdefault(tuple(prompts[one.index]), []).append(one.ids)
    return found


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_answers_follow_from_prompt_and_seed_alone(temperature: float) -> None:
    net = net_of(NETS["hrm"])
    expected = answers(net, PROMPTS, temperature=temperature, seed=7)
    for batch_size in (1, 3, 8):
        assert answers(net, PROMPTS, temperature=temperature, seed=7, batch_size=batch_size) == expected
    assert answers(net, PROMPTS[::-1], temperature=temperature, seed=7) == expected
    (alone,) = answers(net, PROMPTS[:1], temperature=temperature, seed=7).values()
    assert alone == expected[tuple(PROMPTS[0])]
    other = answers(net, PROMPTS, temperature=temperature, seed=8)
    twice = expected[tuple(PROMPTS[1])]
    assert len(twice) == 2
    assert (other == expected) == (temperature == 0) == (twice[0] == twice[1])


def test_draws_have_the_probabilities_of_the_softmax() -> None:
    row = torch.tensor([0.0, 1.0, 2.0, -1.0])
    draws = [torch.Generator().manual_seed(seed) for seed in range(1)]
    made = [engine.sample(row[None], 2.0, draws)[0] for _ in range(4000)]
    shares = torch.bincount(torch.tensor(made), minlength=4) / len(made)
    assert (shares - (row / 2).softmax(0)).abs().max() < 0.03


def test_a_uniform_number_of_zero_is_not_infinite() -> None:
    noise: Tensor = engine.with_noise(torch.zeros(1, 2), 1.0, torch.tensor([[0.0, 0.5]]))
    assert noise.isfinite().all()
    assert noise.argmax() == 1


def test_angles_are_float32_in_every_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: set[torch.dtype] = set()
    made = rope.angles

    def noted(*arguments: object) -> tuple[Tensor, Tensor]:
        found = made(*arguments)
        kinds.update(one.dtype for one in found)
        return found

    monkeypatch.setattr(rope, "angles", noted)
    net = net_of(NETS["hrm"]).to(torch.bfloat16)
    found = answers(net, PROMPTS)
    assert kinds == {torch.float32}
    assert {one.dtype for one in net.parameters()} == {torch.bfloat16}
    assert found.keys() == {tuple(one) for one in PROMPTS}


def test_limits_end_answers() -> None:
    net = net_of(NETS["hrm"])
    limits = engine.Limits(VOCAB_SIZE, 100, 10)  # a stop token that never comes
    found = {one.index: one for one in engine.generate(net, PROMPTS, limits, causal=False, batch_size=2)}
    assert [len(found[index].ids) for index in range(len(PROMPTS))] == [4, 7, 0, 5, 8, 7]
    assert not any(one.stopped for one in found.values())


def test_prompts_are_what_tokenize_makes_of_rows() -> None:
    import pyarrow as pa

    prompts, encoder = Prompts(tokenizer(), ROWS_INFO), Encoder.from_json(tokenizer())
    layout = _native.Layout(prompts.start, prompts.layout()["end"][0], prompts.stop, prompts.conditions, untagged=True)
    cases = [("plain", "", []), ("é <|im_end|> x", "cot", ["cot"]), ("a\nb", "cot,direct", ["cot", "direct"])]
    for text, condition, tags in cases:
        rows = [pa.array([value], pa.large_string()) for value in (condition, text, "")]
        (tokens, start, length, *_), _ = layout.encode(encoder.native, *rows, 0)
        assert prompts.ids(f" {text}\n", tags) == tokens[start[0] : start[0] + length[0]].tolist()


def test_specials_in_a_prompt_are_tokens_if_asked_for() -> None:
    plain, found = (Prompts(tokenizer(), ROWS_INFO, find_specials=one) for one in (False, True))
    assert len(plain.ids("<|im_end|>")) > 3
    assert found.ids("<|im_end|>") == [1, 2, 2]


def test_the_command_prints_an_answer(tmp_path: Path) -> None:
    run = finished(tmp_path / "train/0123456789abcdef", NETS["hrm"])
    opened = Run.open(str(run))
    prompts = Prompts(opened.tokenizer, ROWS_INFO)
    ids = prompts.ids("a b", ["cot"])
    for chosen in ("ema", "current"):
        (expected,) = engine.generate(opened.net(chosen), [ids], engine.Limits(STOP, 9, POSITIONS), causal=False)
        given = GenerateConfig(run=str(run), prompt="a b", condition="cot", max_tokens=9, weights=chosen)
        assert generate(given) == prompts.text(expected.ids) + "\n"


def test_the_command_answers_a_file(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", NETS["transformer"])
    lines = [
        {"prompt": "a\u2028b", "condition": "cot", "id": 7},
        {"prompt": ""},
        {"prompt": "a", "condition": "direct"},
    ]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    given = {"run": str(run), "prompts": str(tmp_path / "prompts.jsonl"), "max_tokens": 5, "temperature": 0.8}
    made = [json.loads(line) for line in generate(GenerateConfig(**given, batch_size=1)).removesuffix("\n").split("\n")]
    assert [line["prompt"] for line in made] == ["a\u2028b", "", "a"]
    assert made[0]["id"] == 7
    assert all(0 < line["tokens"] <= 5 and (line["stopped"] or line["tokens"] == 5) for line in made)
    assert generate(GenerateConfig(**given)) == "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in made)


WRONG = {
    "tag": (
        {"condition": "cott"},
        UsageError,
        "condition: unknown tag; got 'cott'; expected cot, direct; did you mean",
    ),
    "long": ({"prompt": "x" * 70}, UsageError, "prompt: too long; got 72 tokens; expected fewer than 64"),
    "context": ({"max_context": 65}, UsageError, "max_context: out of range; got 65; expected at most 64"),
    "both": ({"prompts": "x"}, UsageError, "prompts: cannot be given with prompt; got prompt, prompts"),
    "no run": ({"run": "nowhere"}, InputError, "no finished run"),
    "average": ({"weights": "ema"}, UsageError, "weights: the run has no average of weights"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(tmp_path: Path, case: str) -> None:
    options, kind, message = WRONG[case]
    run = finished(tmp_path / "run", NETS["transformer"], ema=0)
    with pytest.raises(kind) as error:
        generate(GenerateConfig(**{"run": str(run), "prompt": "a", **options}))
    assert message in str(error.value)


def test_a_wrong_line_of_a_file_is_named(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", NETS["transformer"])
    path = tmp_path / "prompts.jsonl"
    for text, said in (
        ('{"prompt": "a"}\n{"prompt": 1}\n', "line 2"),
        ('{"prompt": "a", "condition": "b"}', "line 1"),
        ('{"prompt": "a", "condition": [1]}', "not tags"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            generate(GenerateConfig(run=str(run), prompts=str(path)))


def test_a_root_with_one_finished_run_is_enough(tmp_path: Path) -> None:
    run = finished(tmp_path / "root/train/0123456789abcdef", NETS["transformer"])
    with pytest.raises(InputError, match="no finished run"):
        Run.open(str(tmp_path / "root"))
    trained_runs.with_manifest(run, [])
    assert Run.open(str(tmp_path / "root")).uri == str(run)
    trained_runs.with_manifest(finished(tmp_path / "root/train/0123456789abcdee", NETS["transformer"]), [])
    with pytest.raises(InputError, match="several finished runs"):
        Run.open(str(tmp_path / "root"))


def test_which_weights_follows_from_held_out_losses_or_the_share_of_the_initial_ones(tmp_path: Path) -> None:
    def which(**said: object) -> str:
        name = f"run{len([*tmp_path.iterdir()])}"
        return Run.open(str(finished(tmp_path / name, NETS["transformer"], **said))).choose_weights("auto")[0]

    assert which(ema=0.9, steps=100) == "ema"
    assert which(ema=0.9999, steps=100) == "current"
    assert which(ema=0.9999, steps=100, profile="hrm_text") == "ema"
    assert which(ema=0.0) == "current"
    assert which(ema=0.9, results={"heldout_loss": 1.0, "heldout_ema_loss": 1.1}) == "current"
    assert which(ema=0.9999, results={"heldout_loss": 1.0, "heldout_ema_loss": 0.9}) == "ema"


def test_a_checkpoint_is_as_good_as_a_finished_run(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", NETS["hrm"], ema=0.5, steps=7)
    opened = Run.open(str(run))
    net = opened.net("current")
    optimizer = make(OptimizerSettings(), net.named_parameters(), ema=0.5)
    for name, one in opened.tensors("ema").items():
        if name in optimizer.state:
            optimizer.state[name]["param_ema"].copy_(one)
    folder = tmp_path / "train/shards" / ("e" * 64)
    checkpoints = Checkpoints(str(folder / "checkpoints"), parallel.start("cpu"), asynchronous=False)
    tensors, numbers = state_of(net, optimizer)
    for step in (6, 7):
        said = {"trained": opened.trained.to_json(), "optimizer": numbers}
        checkpoints.save(step, tensors, said, {"tokenizer.json": opened.read("tokenizer.json")})
    newest = folder / "checkpoints/00000007"
    for given in (newest, newest.parent, folder):
        for chosen in ("ema", "current"):
            asked = {"prompt": "a b", "condition": "cot", "max_tokens": 9, "weights": chosen}
            expected = generate(GenerateConfig(run=str(run), **asked))
            assert generate(GenerateConfig(run=str(given), **asked)) == expected
    found = Run.open(str(newest))
    assert found.trained == opened.trained
    for chosen in ("ema", "current"):
        mine, theirs = found.tensors(chosen), opened.tensors(chosen)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], one) for name, one in theirs.items())
