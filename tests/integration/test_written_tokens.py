"""A chat template that writes a token of the tokenizer: tokenize stops, through whichever stage the rows come."""

import json
from pathlib import Path

import pytest

from tests.support import tools

CHATML = "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}{% endfor %}"
WORDS = "{% for m in messages %}{{ m.role|upper }}: {{ m.content }}\n{% endfor %}"
INPUT = 3


def source(folder: Path, name: str, template: str, question: str = "What is {n}?") -> Path:
    chats = [
        {
            "messages": [
                {"role": "user", "content": question.format(n=n)},
                {"role": "assistant", "content": f"It is {n}."},
            ]
        }
        for n in range(40)
    ]
    tools.write_lines(folder / f"{name}.jsonl", chats)
    lines = {"name": name, "files": f"{name}.jsonl", "condition": "direct", "turns": "messages", "template": template}
    return tools.write_text(
        folder / f"{name}.yaml", "".join(f"{key}: {json.dumps(one)}\n" for key, one in lines.items())
    )


def stage(name: str, folder: Path, **options: object) -> tools.Done:
    return tools.stage(name, root=folder / "root", workers=1, **options)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    rows = tools.folder(stage("clean", folder, sources=source(folder, "plain", "plain")))
    return tools.folder(stage("train_tokenizer", folder, rows=rows, vocab_size=400))


def test_tokenize_names_the_token_and_the_source(tmp_path: Path, tokenizer: Path) -> None:
    bad, good = source(tmp_path, "bad", CHATML), source(tmp_path, "good", WORDS, "What is <|im_start|>, {n}?")
    clean = tools.folder(stage("clean", tmp_path, sources=f"{bad},{good}"))
    curated = tools.folder(stage("curate", tmp_path, rows=clean))
    for rows in (clean, curated, clean / "data", clean / "data" / "bad.jsonl"):
        done = stage("tokenize", tmp_path, rows=rows, tokenizer=tokenizer)
        assert done.code == INPUT, done.err
        assert "<|im_start|>, <|im_end|> of bad" in done.message
        assert "good" not in done.message
    tools.folder(stage("tokenize", tmp_path, rows=clean / "data" / "good.jsonl", tokenizer=tokenizer))


def test_a_tokenizer_without_the_token_takes_the_rows(tmp_path: Path, tokenizer: Path) -> None:
    other = "{% for m in messages %}{{ '<|turn|>' ~ m.content }}{% endfor %}"
    clean = tools.folder(stage("clean", tmp_path, sources=source(tmp_path, "other", other)))
    tools.folder(stage("tokenize", tmp_path, rows=clean, tokenizer=tokenizer))
    settings = json.loads((tokenizer / "tokenizer.json").read_text())
    added = settings["added_tokens"]
    name = next(one for one in added if one["content"].startswith("<|box_end"))
    settings["added_tokens"] = [
        one if one != name else {**one, "content": "<|turn|>", "special": False} for one in added
    ]
    own = tools.write_text(tmp_path / "own" / "tokenizer.json", json.dumps(settings))
    done = stage("tokenize", tmp_path, rows=clean, tokenizer=own, eoa="<|im_end|>")
    assert done.code == INPUT, done.err
    assert "<|turn|> of other" in done.message
