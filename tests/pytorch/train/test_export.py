"""Exported folders, as stock transformers reads them."""

import hashlib
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from pairmill.engine.manifest import InputRef, Ledger, Manifest
from pairmill.errors import InputError, StorageError, UsageError
from pairmill.nets.generate import engine
from pairmill.nets.generate.prompts import Prompts
from pairmill.nets.run import Run
from pairmill.nets.settings import Override
from pairmill.nets.trained import DataDigests
from pairmill.stages.train.export.command import ExportConfig, export
from pairmill.stages.train.generate import GenerateConfig, generate
from tests.support.nets import trained_runs
from tests.support.nets.trained_runs import finished, logits, tiny

NETS = {
    "hrm": tiny("hrm"),
    "trm": tiny("trm"),
    "trm_match_recurrence": tiny("trm_match_recurrence", H_cycles=3),
    "transformer": tiny("transformer"),
    "transformer_causal": tiny("transformer", attention="causal"),
    "hrm_fixed": tiny("hrm", init="fixed_normal", init_std=0.1, rope_base=500.0, norm_eps=1e-4),
    "llama": tiny("llama", heads=4, key_value_heads=2),
    "llama_tied": tiny("llama", tied=True, init_std=0.1),
}
TOLERANCE = 1e-4
"""Of logits, as the recorded cases allow."""
PROMPT = "copy <|im_end|> é ab"


def load(folder: Path) -> tuple[Any, Any, Any]:
    """The model and its tokenizer in transformers, and what it said of the keys."""
    model, said = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    return model.eval(), AutoTokenizer.from_pretrained(folder), said


def example(folder: Path) -> dict[str, Any]:
    """What example.py of a folder defines."""
    return runpy.run_path(str(folder / "example.py"))


@pytest.mark.parametrize("name", NETS)
def test_transformers_computes_the_same(tmp_path: Path, name: str) -> None:
    model = NETS[name]
    info = trained_runs.DOCUMENTS_INFO if name == "llama" else trained_runs.ROWS_INFO
    run = Run.open(str(finished(tmp_path / "run", model, tokenizer_info=info)))
    assert export(ExportConfig(run=run.uri, output=str(tmp_path / "out"))) == f"{tmp_path / 'out'}\n"
    other, tokenizer, said = load(tmp_path / "out")
    assert not any(said.values()), said
    assert type(other).__name__ == ("LlamaForCausalLM" if name.startswith("llama") else "HrmTextForCausalLM")
    if not name.startswith("llama"):
        blocks = model.layers // 2 if model.half_layers else model.layers
        assert len(other.model.H_module.layers) == len(other.model.L_module.layers) == blocks

    prompts = Prompts(run.tokenizer, info)
    tags = () if "eod" in info else ("cot",)
    ids = prompts.ids(PROMPT, tags)
    made = example(tmp_path / "out")
    inputs = made["encode"](tokenizer, f" {PROMPT}\n", tags)
    assert inputs["input_ids"].tolist() == [ids]
    net, causal = run.net("ema"), model.causal
    assert ("token_type_ids" in inputs) == (not causal)
    with torch.inference_mode():
        found = other(**inputs).logits[0]
    ours = logits(net, ids, causal=causal)
    assert ours.abs().max() > 1
    assert (found - ours).abs().max() <= TOLERANCE

    limits = engine.Limits(prompts.stop, 12, run.trained.positions)
    (answer,) = engine.generate(net, [ids], limits, causal=causal)
    assert made["answer"](other, tokenizer, PROMPT, tags, max_new_tokens=12) == prompts.text(answer.ids)


def test_a_call_without_token_types_reads_the_prompt_otherwise(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", NETS["hrm"])
    export(ExportConfig(run=str(run), output=str(tmp_path / "out")))
    other, tokenizer, _ = load(tmp_path / "out")
    inputs = example(tmp_path / "out")["encode"](tokenizer, PROMPT, ["direct"])
    assert set(tokenizer("a prompt")) == {"input_ids", "attention_mask"}
    with torch.inference_mode():
        right = other(**inputs).logits
        plain = other(input_ids=inputs["input_ids"]).logits
    assert (right - plain).abs().max() > 100 * TOLERANCE


def test_the_example_runs_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = finished(tmp_path / "run", NETS["transformer_causal"])
    export(ExportConfig(run=str(run), output=str(tmp_path / "out")))
    monkeypatch.setattr(sys, "argv", ["example.py", "a b", "cot"])
    runpy.run_path(str(tmp_path / "out/example.py"), run_name="__main__")
    prompts = Prompts(Run.open(str(run)).tokenizer, trained_runs.ROWS_INFO)
    limits = engine.Limits(prompts.stop, 256, trained_runs.POSITIONS)
    net = Run.open(str(run)).net("ema")
    (answer,) = engine.generate(net, [prompts.ids("a b", ["cot"])], limits, causal=True)
    assert capsys.readouterr().out == prompts.text(answer.ids) + "\n"
    text = (tmp_path / "out/README.md").read_text()
    assert "from example import answer" in text
    assert "token_type_ids" not in text  # this net is causal


def test_labels_in_transformers_are_not_shifted(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", NETS["hrm"])
    export(ExportConfig(run=str(run), output=str(tmp_path / "out")))
    other, tokenizer, _ = load(tmp_path / "out")
    inputs = example(tmp_path / "out")["encode"](tokenizer, PROMPT)
    ids = inputs["input_ids"]
    with torch.inference_mode():
        found = other(**inputs, labels=ids)
    expected = torch.nn.functional.cross_entropy(found.logits[0, :-1], ids[0, 1:])
    assert abs(float(found.loss - expected)) < 1e-5


def test_weights_are_cut_into_files_of_the_asked_size(tmp_path: Path) -> None:
    run = Run.open(str(finished(tmp_path / "run", NETS["hrm"])))
    out = tmp_path / "out"
    export(
        ExportConfig(
            run=f"file://{run.uri}", output=f"file://{out}", max_shard_size="100KB", dtype="bfloat16", weights="current"
        )
    )
    index = json.loads((out / "model.safetensors.index.json").read_bytes())["weight_map"]
    files = sorted(path.name for path in out.glob("*.safetensors"))
    assert len(files) > 1
    assert sorted(set(index.values())) == files
    with safe_open(out / index["model.embed_tokens.weight"], "pt") as file:
        embedding = file.get_tensor("model.embed_tokens.weight")
    assert embedding.dtype == torch.bfloat16
    assert torch.equal(embedding, run.tensors("current")["embed_tokens.embedding_weight"].bfloat16())
    other, _, said = load(out)
    assert not any(said.values())
    assert other.dtype == torch.bfloat16


REFUSED = {
    "rins": ({"net": "rins"}, "model.net"),
    "ut": ({"net": "ut"}, "model.net"),
    "override": ({"net": "hrm", "H_override": Override(layers=1)}, "model.H_override"),
    "post": ({"net": "transformer", "norm": "post"}, "model.norm"),
    "qk_norm": ({"net": "llama", "qk_norm": True}, "model.qk_norm"),
    "prefix": ({"net": "llama", "attention": "prefixlm"}, "model.attention"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_transformers_does_not_compute_is_refused(tmp_path: Path, case: str) -> None:
    values, where = REFUSED[case]
    run = finished(tmp_path / "run", tiny(**values))
    with pytest.raises(UsageError) as error:
        export(ExportConfig(run=str(run), output=str(tmp_path / "out")))
    assert error.value.where == where
    assert error.value.expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_equal_stacks_of_an_override_are_exported(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", tiny("hrm", H_override=Override(layers=2, init="megatron", init_std=0.1)))
    export(ExportConfig(run=str(run), output=str(tmp_path / "out")))
    assert json.loads((tmp_path / "out/config.json").read_bytes())["embedding_scale"] == pytest.approx(10)


def test_nothing_is_overwritten_and_nothing_half_written_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(tmp_path / "run", NETS["hrm"])
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine").write_text("x")
    with pytest.raises(UsageError, match="not an empty folder"):
        export(ExportConfig(run=str(run), output=str(tmp_path / "out")))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pairmill.stages.train.export.command._write_card", full)
    with pytest.raises(StorageError, match="no space left"):
        export(ExportConfig(run=str(run), output=str(tmp_path / "other")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_the_card_says_where_it_is_from(tmp_path: Path) -> None:
    results = {"loss": 1.25, "heldout_loss": 1.5, "heldout_loss/gsm8k": 1.75, "tokens": 123456}
    run = finished(
        tmp_path / "run",
        NETS["trm"],
        ema=0.9999,
        settings={"optimizer": {"lr": 0.001}},
        results=results,
        data=DataDigests(plan="0123456789abcdef"),
    )
    export(ExportConfig(run=str(run), output=str(tmp_path / "out")))
    text = (tmp_path / "out/README.md").read_text()
    for said in (
        "1.2500",
        "1.7500",
        "123,456",
        "0123456789abcdef",
        '"lr": 0.001',
        "token_type_ids",
        "labels",
    ):
        assert said in text
    assert "the weights of the last step as float32 (0.99 of the average is the initial weights)" in text
    assert "licences are not stated" in text


def test_the_card_has_data_sets_and_licences_of_the_manifests(tmp_path: Path) -> None:
    def stage(name: str, fingerprint: str, inputs: list[InputRef], **values: Any) -> None:
        folder = tmp_path / name / fingerprint
        folder.mkdir(parents=True)
        made = Manifest(name, 1, fingerprint, {}, inputs, Ledger(), [], **values)
        (folder / "_MANIFEST.json").write_bytes(made.dump())

    clean, tokenized, sampled = "c" * 16, "b" * 16, "a" * 16
    about = {"licence": "MIT", "revision": "1234", "origin": "hub:a/b"}
    stage(
        "clean",
        clean,
        [],
        data={"outputs": {}, "sources": {"one": {"about": about}, "two": {"about": {"licence": ""}}}},
    )
    stage("tokenize", tokenized, [InputRef("rows", clean)])
    stats = {"one__x": {"cov_rows": 10, "cov_rtoks": 300}, "two__y": {"cov_rows": 5, "cov_rtoks": 100}}
    stage("sample", sampled, [InputRef("tokenized", tokenized)], data={"stats": stats, "sources": [], "layout": "v1"})
    run = trained_runs.with_manifest(
        finished(tmp_path / "train" / ("d" * 16), NETS["llama"]), [InputRef("sampled", sampled)]
    )
    export(ExportConfig(run=str(run), output=str(tmp_path / "out")))
    text = (tmp_path / "out/README.md").read_text()
    for line in (
        "| one | 10 | 300 | 75.00% |",
        "| two | 5 | 100 | 25.00% |",
        "| one | MIT | 1234 | hub:a/b |",
        "| two | not stated |  |  |",
        f"| clean | {clean} |",
        f"| input sampled | {sampled} |",
        f"run {'d' * 16}",
    ):
        assert line in text


def test_a_run_without_a_tokenizer_takes_one_by_an_option(tmp_path: Path) -> None:
    run = finished(tmp_path / "run", NETS["llama"], data=DataDigests(tokenizer=""))
    file = (run / "tokenizer.json").rename(tmp_path / "tokenizer.json")
    with pytest.raises(InputError, match=r"no tokenizer; .*give tokenizer=<the tokenizer.json of its data>, or copy"):
        export(ExportConfig(run=str(run), output=str(tmp_path / "out")))
    export(ExportConfig(run=str(run), output=str(tmp_path / "out"), tokenizer=str(file)))
    assert (tmp_path / "out/tokenizer.json").read_bytes() == file.read_bytes()
    assert "answer" in generate(GenerateConfig(run=str(run), prompts=str(_prompts(tmp_path)), tokenizer=str(file)))


def _prompts(folder: Path) -> Path:
    path = folder / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n')
    return path


def test_an_option_names_no_other_tokenizer_than_that_of_the_data(tmp_path: Path) -> None:
    known = hashlib.sha256(trained_runs.tokenizer().encode()).hexdigest()[:16]
    run = finished(tmp_path / "run", NETS["llama"], data=DataDigests(tokenizer=known))
    other, large = tmp_path / "other.json", tmp_path / "large.json"
    other.write_text(trained_runs.tokenizer().replace("<|im_start|>", "<|im_begin|>"))
    for bare in (False, True):
        if bare:
            (run / "tokenizer.json").unlink()
        with pytest.raises(InputError, match=f"not the tokenizer of the run.*expected sha256 {known}"):
            export(ExportConfig(run=str(run), output=str(tmp_path / "out"), tokenizer=str(other)))
    said = json.loads(trained_runs.tokenizer())
    said["added_tokens"].append({**said["added_tokens"][0], "id": 600, "content": "<|more|>"})
    large.write_text(json.dumps(said))
    unknown = finished(tmp_path / "unknown", NETS["llama"])
    (unknown / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="more ids than the net; got 601 ids; expected at most 512"):
        export(ExportConfig(run=str(unknown), output=str(tmp_path / "out"), tokenizer=str(large)))
    assert not (tmp_path / "out").exists()
