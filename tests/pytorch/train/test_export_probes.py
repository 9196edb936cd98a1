"""An exported folder gives the ids of training in stock transformers, or there is no folder."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from pairmill.errors import InputError
from pairmill.nets.generate.prompts import Prompts
from pairmill.nets.run import Run
from pairmill.stages.train.export import probes
from pairmill.stages.train.export.command import ExportConfig, export
from tests.support.nets import trained_runs
from tests.support.nets.trained_runs import finished, tiny


def make_run(tmp_path: Path) -> Run:
    return Run.open(str(finished(tmp_path / "run", tiny("hrm"), tokenizer_info=trained_runs.ROWS_INFO)))


def test_transformers_gives_the_ids_of_training(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    export(ExportConfig(run=run.uri, output=str(tmp_path / "out")))
    assert "transformers" in probes.check(tmp_path / "out", Prompts(run.tokenizer, trained_runs.ROWS_INFO))


def test_a_folder_of_other_ids_is_refused_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, check = make_run(tmp_path), probes.check

    def damage(folder: Path, prompts: Prompts) -> list[str]:
        path = folder / "tokenizer_config.json"
        config = json.loads(path.read_bytes())
        # What transformers applies on top of the file: a space before each text.
        path.write_text(json.dumps({**config, "add_prefix_space": True, "tokenizer_class": "GPT2Tokenizer"}))
        return check(folder, prompts)

    monkeypatch.setattr(probes, "check", damage)
    with pytest.raises(InputError, match="transformers gives other ids"):
        export(ExportConfig(run=run.uri, output=str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


CHATML = """{{- greeting }}
{%- for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' ~ m.content ~ '<|im_end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""


def test_a_net_of_rendered_rows_is_asked_by_its_template_everywhere(tmp_path: Path) -> None:
    template = {"digest": "0" * 16, "text": CHATML, "tokens": {}, "variables": {"greeting": "Hi"}}
    info = {**trained_runs.ROWS_INFO, "chat_template": template}
    run = Run.open(str(finished(tmp_path / "run", tiny("hrm"), tokenizer_info=info)))
    export(ExportConfig(run=run.uri, output=str(tmp_path / "out")))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    prompts = Prompts(run.tokenizer, info)
    end, start = (tokenizer.convert_tokens_to_ids(token) for token in ("<|im_end|>", "<|im_start|>"))
    assert (prompts.stop, tokenizer.eos_token_id) == (end, end)
    ids = prompts.ids("what is <|im_end|> é", ("cot",))
    assert (ids.count(start), ids.count(end)) == (3, 2)
    encode = runpy.run_path(str(tmp_path / "out" / "example.py"))["encode"]
    assert encode(tokenizer, " what is é\n", ("cot",))["input_ids"].tolist() == [prompts.ids("what is é", ("cot",))]
    (tmp_path / "out" / "chat_template.jinja").write_text(CHATML.replace("~ '\n' ~ m.content", "~ ' ' ~ m.content"))
    with pytest.raises(InputError, match="transformers gives other ids"):
        probes.check(tmp_path / "out", prompts)
