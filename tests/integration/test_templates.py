"""Each template on a tokenizer in the form of its family: from rows to arrays, and which one an error names."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from pairmill.chats.families import FAMILIES
from pairmill.encoder import Encoder
from pairmill.engine import runner
from pairmill.errors import InputError, UsageError
from pairmill.formats import templates
from pairmill.formats.templates import DEFAULT, TAGS, TEMPLATES
from pairmill.formats.tokens import ARRAYS
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.stages.tokenize.core import Tokenize
from tests.support import tools
from tests.support.helpers import REPOSITORY
from tests.support.tokenizers import shapes

ROWS = [
    *((tag, f"What is seven times six, {tag}?", "It is 42. 日本語 é \x11") for tag in TAGS),
    ("direct,cot", "don't\n\n  you're", " <s>[INST]<|im_start|>{}"),
]
NATIVE = {"hrm", "llama3", "qwen", "chatml", "phi4", "olmo", "gpt2", "neox"}
"""Families whose ids our own encoder gives; the library encodes the others."""


def tokenizer(family: str, folder: Path) -> str:
    return str(tools.write_text(folder / family / "tokenizer.json", shapes.shaped(family)).parent)


def config(tmp_path: Path, family: str, **options: Any) -> TokenizeConfig:
    rows = tools.write_rows(tmp_path / "rows" / "a.jsonl", ROWS)
    given = {
        "root": str(tmp_path / "root"),
        "rows": [str(rows)],
        "tokenizer": tokenizer(family, tmp_path),
        "workers": 1,
    }
    return TokenizeConfig(**{**given, **options})


def made(config: TokenizeConfig) -> tuple[Path, list[list[int]], list[list[int]]]:
    """The folder, and the spans of its rows."""
    folder = Path(runner.run(Tokenize(), config).uri)
    found = {name: np.load(folder / "a.jsonl" / f"{name}.npy") for name in ARRAYS}
    spans = []
    for part in ("inst", "resp"):
        pairs = zip(found[f"{part}_start"].tolist(), found[f"{part}_len"].tolist(), strict=True)
        spans.append([found["tokens"][start : start + length].tolist() for start, length in pairs])
    return folder, spans[0], spans[1]


def test_every_template_has_a_tokenizer_in_its_form() -> None:
    assert set(shapes.SPECIAL) == set(TEMPLATES)
    for family, template in TEMPLATES.items():
        encoder = Encoder.from_json(shapes.shaped(family))
        assert [token for token in template.tokens if encoder.token_to_id(token) is None] == []
        assert (encoder.path == "native") == (family in NATIVE), encoder.reason
        # A template whose tags have tokens tells them apart, and from the marks around the texts.
        if template.conditions:
            assert list(template.conditions) == list(TAGS)
            assert len(template.tokens) == 7
    assert sum(bool(template.conditions) for template in TEMPLATES.values()) == 12


@pytest.mark.parametrize("family", TEMPLATES)
def test_rows_have_the_tokens_of_the_template(tmp_path: Path, family: str) -> None:
    template = TEMPLATES[family]
    if family in FAMILIES:  # tokens around the texts, in place of the chat template
        template = replace(template, eoa=template.eoq if template.eoq != template.eoa else template.boq)
    folder, questions, answers = made(config(tmp_path, family, template=family, eoa=template.eoa))
    library = Tokenizer.from_str(shapes.shaped(family))
    library.encode_special_tokens = True

    def ids(text: str) -> list[int]:
        return list(library.encode(text, add_special_tokens=False).ids)

    boq, eoq, eoa = (library.token_to_id(token) for token in (template.boq, template.eoq, template.eoa))
    for (condition, instruction, response), question, answer in zip(ROWS, questions, answers, strict=True):
        tags = [library.token_to_id(template.conditions[tag]) for tag in condition.split(",") if template.conditions]
        assert question == [boq, *tags, *ids(instruction), eoq]
        assert answer == [*ids(response), eoa]
    info = tools.read_json(folder / "tokenizer_info.json")
    assert list(info) == ["tokenizer_path", "boq", "eoq", "eoa", "condition_mapping", "vocab_size"]
    assert (info["boq"], info["eoq"], info["eoa"]) == (template.boq, template.eoq, template.eoa)
    assert info["condition_mapping"] == template.conditions
    said = "The tags of conditions have no token: conditions=none."
    assert (said in (folder / "report.md").read_text()) == (not template.conditions)


CHAT = {
    "llama3": (
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "Hello<|eot_id|>",
    ),
    "chatml": ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "Hello<|im_end|>\n"),
    "qwen": (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        "<think>\n\n</think>\n\nHello<|im_end|>\n",
    ),
    "smollm": (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
        "Hello<|im_end|>\n",
    ),
    "llama2": ("<s>[INST] Hi [/INST]", " Hello </s>"),
    "mistral": ("<s>[INST] Hi[/INST]", " Hello</s>"),
    "mistral_tekken": ("<s>[INST]Hi[/INST]", "Hello</s>"),
    "gemma": (
        "<bos><start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n",
        "Hello<end_of_turn>\n",
    ),
    "phi3": ("<|user|>\nHi<|end|>\n<|assistant|>\n", "Hello<|end|>\n<|endoftext|>"),
    "phi4": (
        "<|im_start|>user<|im_sep|>Hi<|im_end|><|im_start|>assistant<|im_sep|>",
        "Hello<|im_end|>",
    ),
    "olmo": ("<|endoftext|><|user|>\nHi\n<|assistant|>\n", "Hello<|endoftext|>"),
    "deepseek": ("<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>", "Hello<｜end▁of▁sentence｜>"),
    "gpt_oss": (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. "
        "Channel must be included for every message.<|end|><|start|>user<|message|>Hi<|end|><|start|>assistant",
        "<|channel|>final<|message|>Hello<|return|>",
    ),
}
"""What the models' own templates render of a question and its answer."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pair_has_the_ids_of_the_family_s_own_rendering(tmp_path: Path, family: str) -> None:
    given = [("direct", "Hi", "Hello"), ("direct", "<|im_end|></s>[/INST]<|end|>", "no"), ("cot", "Hi", "Hello")]
    rows = tools.write_rows(tmp_path / "chats" / "a.jsonl", [*given, ("direct", "", "A document.")])
    folder, questions, answers = made(config(tmp_path, family, template=family, rows=[str(rows)]))
    library = Tokenizer.from_str(shapes.shaped(family))
    prompt, rest = CHAT[family]
    first, whole = (library.encode(text, add_special_tokens=False).ids for text in (prompt, prompt + rest))
    assert [questions[0], answers[0]] == [first, whole[len(first) :]]
    special = {item["id"] for item in json.loads(shapes.shaped(family))["added_tokens"] if item["special"]}
    written = [[number for number in ids if number in special] for ids in (questions[0], questions[1])]
    assert written[0] == written[1]
    assert "Task condition: cot" in library.decode(questions[2]).replace("▁", " ")
    assert answers[2] == answers[0]
    names = TEMPLATES[family]
    boq, eoq, eoa = (library.token_to_id(token) for token in (names.boq, names.eoq, names.eoa))
    library.encode_special_tokens = True
    assert questions[3] in ([boq, eoq], [boq, library.token_to_id(names.conditions.get("direct", "")), eoq])
    assert answers[3] == [*library.encode("A document.", add_special_tokens=False).ids, eoa]
    info = tools.read_json(folder / "tokenizer_info.json")
    assert info["chat_template"]["text"] == FAMILIES[family].text
    assert len(info["chat_template"]["digest"]) == 16


def test_a_template_is_a_name_for_four_options(tmp_path: Path) -> None:
    named = config(tmp_path, "llama3", template="llama3", eoa="<|eom_id|>")
    written = config(
        tmp_path,
        "llama3",
        boq="<|begin_of_text|>",
        eoq="<|eot_id|>",
        eoa="<|eom_id|>",
        conditions=[f"{tag}=<|reserved_special_token_{number}|>" for number, tag in enumerate(TAGS)],
    )
    first = runner.run(Tokenize(), named)
    assert (runner.run(Tokenize(), written).uri, first.reused) == (first.uri, False)
    assert "template" not in first.manifest.options
    # The default writes what it always wrote.
    default = config(tmp_path, "hrm")
    assert (default.boq, default.eoq, default.eoa) == ("<|im_start|>", "<|im_end|>", "<|box_end|>")
    assert default.conditions == [
        *("direct=<|object_ref_start|>", "cot=<|object_ref_end|>", "noisy=<|quad_start|>", "synth=<|quad_end|>")
    ]
    assert runner.run(Tokenize(), default).uri == runner.run(Tokenize(), config(tmp_path, "hrm", template=DEFAULT)).uri


def test_an_option_replaces_that_entry_of_the_template(tmp_path: Path) -> None:
    changed = config(tmp_path, "llama3", template="llama3", eoa="<|eom_id|>", conditions=["none"])
    assert (changed.boq, changed.eoq, changed.eoa) == ("<|begin_of_text|>", "<|eot_id|>", "<|eom_id|>")
    assert changed.condition_tokens() == {}
    folder, questions, answers = made(changed)
    library = Tokenizer.from_str(shapes.shaped("llama3"))
    assert {answer[-1] for answer in answers} == {library.token_to_id("<|eom_id|>")}
    assert questions[0][1:-1] == library.encode(ROWS[0][1], add_special_tokens=False).ids
    assert tools.read_json(folder / "tokenizer_info.json")["condition_mapping"] == {}


def test_the_error_names_the_template_that_fits(tmp_path: Path) -> None:
    alike = {**dict.fromkeys(("hrm", "qwen"), "hrm or template=qwen"), "neox": "gpt2"}
    for family in TEMPLATES:
        wrong = "gemma" if family != "gemma" else "llama3"
        with pytest.raises(InputError, match=r"lacks delimiter or condition tokens; got <") as error:
            runner.run(Tokenize(), config(tmp_path, family, template=wrong))
        names = alike.get(family, family)
        assert str(error.value).endswith(f"it has the tokens of template={names}")
    with pytest.raises(
        InputError, match=r"got \[CLS\]; expected tokens of its vocabulary; train it with these special_tok"
    ):
        runner.run(Tokenize(), config(tmp_path, "llama3", template="llama3", boq="[CLS]"))
    lacking = config(tmp_path, "llama2", boq="[CLS]")
    tools.write_text(Path(lacking.tokenizer) / "tokenizer.json", shapes.shaped("llama2").replace("</s>", "[SEP]"))
    with pytest.raises(InputError, match=r"train it with these special_tokens=, or choose others with boq="):
        runner.run(Tokenize(), lacking)


def test_tags_of_the_rows_get_their_tokens_beside_those_of_a_template() -> None:
    def options(**given: Any) -> TokenizeConfig:
        return TokenizeConfig(root="x", rows=["x"], tokenizer="x", **given).with_conditions({"maths": "<|maths|>"})

    assert options(template="llama3").condition_tokens() == {**TEMPLATES["llama3"].conditions, "maths": "<|maths|>"}
    # Where tags get no token, those of the rows get none either.
    assert options(template="gpt2").condition_tokens() == {}


def test_an_unknown_template_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^template: not a known template; got 'lama3'; .*did you mean 'llama3'\?"):
        config(tmp_path, "llama3", template="lama3")
    with pytest.raises(UsageError, match=r"or name the tokens with boq= eoq= eoa= conditions="):
        config(tmp_path, "llama3", template="xyz")
    with pytest.raises(UsageError, match=r"^conditions: the reference has a token for each tag; got none"):
        config(tmp_path, "gpt2", template="gpt2", profile="data_io")
    with pytest.raises(UsageError, match=r"^conditions: not a condition; got 'none'; expected tag=token"):
        config(tmp_path, "gpt2", template="gpt2", conditions=["none", "direct=<a>"])


def test_the_readme_has_every_template() -> None:
    text = (REPOSITORY / "components" / "tokenize" / "README.md").read_text(encoding="utf-8")
    assert templates.table() in text
