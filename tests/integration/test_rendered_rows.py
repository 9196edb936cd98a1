"""Chats become rendered rows: through clean, curate and tokenize they have the ids of the plain recipe."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

from pairmill.digest import digest_bytes
from pairmill.engine import runner
from pairmill.engine.inputs import InputFile
from pairmill.engine.writer import Writer
from pairmill.errors import InputError
from pairmill.formats import tokens
from pairmill.formats.slices import Slicing
from pairmill.loader.tokenizer import Tokenizer as Named
from pairmill.loader.tokenizer import check_same_tokenizer
from pairmill.mixture import counting
from pairmill.mixture.settings import BucketAttribute
from pairmill.rules.rule import Rule
from pairmill.stages.clean import sink
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.tokenize import core
from pairmill.stages.tokenize.config import TokenizeConfig
from tests.support import tools
from tests.support.definitions.chats import BLANK_LINES, CHATML, SPECIAL, STRIPS_THINKING, Recipe, chats
from tests.support.tokenizers import shapes

INPUT, USAGE = 3, 2
NEIGHBOURS = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '' if add_generation_prompt else '<|im_end|>' }}"


def source(folder: Path, name: str, template: str, number: int = 60, *, merges: bool = False, **keys: Any) -> Path:
    """Describe generated chats; with ``merges`` half of the answers begin within a token of the whole."""
    given = [{"messages": [item for item in chat["messages"] if item["role"] != "tool" and item["content"]]}
             for chat in chats(number, len(name), ("<|im_end|>", "<|im_start|>system\n"))]  # fmt: skip
    if merges:
        turns = [(("the c", "at"), ("What is it?", "a hat and more"))[place % 2] for place in range(number)]
        given = [{"messages": [{"role": "user", "content": f"{place} {asked}"}, {"role": "assistant", "content": said}]}
                 for place, (asked, said) in enumerate(turns)]  # fmt: skip
    tools.write_lines(folder / f"{name}.jsonl", given)
    tools.write_text(folder / f"{name}.jinja", template)
    lines = {"name": name, "files": f"{name}.jsonl", "condition": "direct", "turns": "messages", "strip": "false"}
    lines |= {"template": f"{name}.jinja", **keys}
    return tools.write_text(folder / f"{name}.yaml", "".join(f"{key}: {value}\n" for key, value in lines.items()))


def stage(name: str, folder: Path, **options: object) -> tools.Done:
    return tools.stage(name, root=folder / "root", workers=1, **options)


def tokenizer(folder: Path, family: str = "qwen") -> Path:
    return tools.write_text(folder / family / "tokenizer.json", shapes.shaped(family)).parent


def spans(folder: Path, task: str) -> list[tuple[list[int], list[int]]]:
    found = {name: np.load(folder / task / f"{name}.npy").tolist() for name in tokens.ARRAYS}
    ids = found["tokens"]
    return [
        (ids[first : first + size], ids[second : second + length])
        for first, size, second, length in zip(*(found[name] for name in tokens.INDEX), strict=True)
    ]


def beside(folder: Path, task: str) -> list[dict[str, Any]]:
    column = pq.read_table(folder / "attributes" / "source" / f"{task}.parquet")["chat"]
    return [json.loads(text) for text in column.to_pylist()]


def is_spelled(chat: dict[str, Any]) -> bool:
    return any(token in message["content"] for message in chat["messages"] for token in SPECIAL)


@pytest.mark.parametrize("template", [CHATML, STRIPS_THINKING, BLANK_LINES], ids=["chatml", "strips", "blank lines"])
def test_rows_have_the_ids_of_the_plain_recipe(tmp_path: Path, template: str) -> None:
    clean = tools.folder(stage("clean", tmp_path, sources=source(tmp_path, "mine", template)))
    curated = tools.folder(stage("curate", tmp_path, rows=clean))
    one = tools.folder(stage("tokenize", tmp_path, rows=curated, tokenizer=tokenizer(tmp_path)))
    recipe = Recipe(template, shapes.shaped("qwen"))
    given = beside(curated, "mine.jsonl")
    made = spans(one, "mine.jsonl")
    dropped = tools.read_json(one / "_MANIFEST.json")["ledger"]["dropped"]
    assert len(made) + sum(dropped.values()) == len(given) > 60
    kept = tokens.Dataset("mine.jsonl", str(one / "mine.jsonl")).ordinals()
    assert (kept is None) == (not dropped)
    compared = 0
    for place, span in zip(range(len(given)) if kept is None else kept.tolist(), made, strict=True):
        if not is_spelled(given[place]):
            assert span == recipe.encode(*recipe.render(given[place]))
            compared += 1
    assert compared > 15
    # The same from the folder of files alone, and from one file.
    for rows in (curated / "data", curated / "data" / "mine.jsonl"):
        other = tools.folder(stage("tokenize", tmp_path, rows=rows, tokenizer=tokenizer(tmp_path)))
        assert spans(other, "mine.jsonl") == made
    info = tools.read_json(one / "tokenizer_info.json")["chat_template"]
    assert (info["text"], info["variables"]) == (template, {})
    assert tools.read_json(one / "_MANIFEST.json")["data"]["chat_template"] == info


def test_rows_that_are_dropped_are_absent_and_those_that_stay_are_numbered(tmp_path: Path) -> None:
    yaml = source(tmp_path, "mine", NEIGHBOURS, 200, merges=True, output="data/mine.parquet")
    clean = tools.folder(stage("clean", tmp_path, sources=yaml, holdout="0.2"))
    one = tools.folder(stage("tokenize", tmp_path, rows=clean, tokenizer=tokenizer(tmp_path)))
    ledger = tools.read_json(one / "_MANIFEST.json")["ledger"]
    assert ledger["dropped"]["prefix_mismatch_ids"] > 5
    recipe = Recipe(NEIGHBOURS, shapes.shaped("qwen"))
    for top in ("", "holdout/"):
        given = beside(clean / top, "mine.parquet")
        expected = [recipe.encode(*recipe.render(chat)) for chat in given]
        kept = np.load(one / top / "mine.parquet" / "rows.npy")
        made = dict(zip(kept.tolist(), spans(one / top, "mine.parquet"), strict=True))
        assert (kept.dtype, len(given) > len(kept) > 10) == (np.int64, True)
        for place, (chat, wanted) in enumerate(zip(given, expected, strict=True)):
            if not is_spelled(chat):
                assert made.get(place) == wanted
        assert len(np.load(one / top / "mine.parquet" / "resp_bytes.npy")) == len(kept)


def test_pieces_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "BATCH_ROWS", 20)
    monkeypatch.setattr(core, "SLICING", Slicing(1, open_from=1, cut_from=1))
    yaml = source(tmp_path, "mine", NEIGHBOURS, 200, merges=True, output="data/mine.parquet")
    clean = runner.run(Clean(), CleanConfig(root=str(tmp_path / "root"), sources=[str(yaml)], workers=1)).uri
    given: dict[str, Any] = {"rows": [clean], "tokenizer": str(tokenizer(tmp_path)), "workers": 1}
    cut = runner.run(core.Tokenize(), TokenizeConfig(root=str(tmp_path / "cut"), **given))
    assert len(cut.manifest.data["pieces"]["mine.parquet"]) > 5
    monkeypatch.setattr(core, "SLICING", Slicing(1 << 30, open_from=1 << 30))
    one = runner.run(core.Tokenize(), TokenizeConfig(root=str(tmp_path / "one"), **given))
    assert "pieces" not in one.manifest.data
    for name in (*tokens.ARRAYS, tokens.ROWS, tokens.BYTES):
        mine, other = (np.load(Path(done.uri) / "mine.parquet" / f"{name}.npy") for done in (one, cut))
        assert np.array_equal(mine, other), name
        assert len(mine) > 50


def test_apart_keeps_them_and_counts_them(tmp_path: Path) -> None:
    clean = tools.folder(stage("clean", tmp_path, sources=source(tmp_path, "mine", NEIGHBOURS, merges=True)))
    given = {"rows": clean, "tokenizer": tokenizer(tmp_path)}
    dropped = tools.read_json(tools.folder(stage("tokenize", tmp_path, **given)) / "_MANIFEST.json")["ledger"]
    one = tools.folder(stage("tokenize", tmp_path, **given, boundary="apart"))
    ledger = tools.read_json(one / "_MANIFEST.json")["ledger"]
    assert ledger["notes"]["prompt_and_rest_apart"] == dropped["dropped"]["prefix_mismatch_ids"] > 0
    assert ledger["rows_kept"] == dropped["rows_kept"] + dropped["dropped"]["prefix_mismatch_ids"]
    # A source says it for its own rows, and more tokens are asked of a response.
    own = source(tmp_path / "own", "mine", NEIGHBOURS, merges=True, boundary="apart")
    clean = tools.folder(stage("clean", tmp_path, sources=own))
    two = tools.folder(stage("tokenize", tmp_path, rows=clean, tokenizer=tokenizer(tmp_path), min_response_tokens=4))
    short = sum(len(answer) < 4 for _, answer in spans(one, "mine.jsonl"))
    assert tools.read_json(two / "_MANIFEST.json")["ledger"]["dropped"]["too_few_response_tokens"] == short > 0


def test_pairs_are_rendered_by_a_path_a_folder_or_the_template_of_the_rows(tmp_path: Path) -> None:
    pairs = tools.write_rows(tmp_path / "pairs" / "p.jsonl", [("direct", "Hi", "Hello"), ("cot", "Why?", "So.")])
    config = {"chat_template": CHATML, "bos_token": None}
    tools.write_text(tmp_path / "model" / "tokenizer_config.json", json.dumps(config))
    jinja = tools.write_text(tmp_path / "t.jinja", CHATML)
    library = Tokenizer.from_str(shapes.shaped("qwen"))
    folders = []
    for template in (jinja, tmp_path / "model", tmp_path / "model" / "tokenizer_config.json", "chatml"):
        done = stage("tokenize", tmp_path, rows=pairs.parent, tokenizer=tokenizer(tmp_path), template=template)
        folders.append(tools.folder(done))
    texts = [
        ("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "Hello<|im_end|>\n"),
        (
            "<|im_start|>system\nTask condition: cot<|im_end|>\n"
            "<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n",
            "So.<|im_end|>\n",
        ),
    ]
    expected = [tuple(library.encode(text, add_special_tokens=False).ids for text in pair) for pair in texts]
    for folder in folders:
        assert spans(folder, "p.jsonl") == expected
    chat = tools.folder(stage("clean", tmp_path, sources=source(tmp_path, "mine", CHATML)))
    both = stage("tokenize", tmp_path, rows=f"{pairs.parent},{chat}", tokenizer=tokenizer(tmp_path), template="rows")
    assert spans(tools.folder(both), "p.jsonl") == expected
    # Without it the pairs are what they always were.
    flat = tools.folder(stage("tokenize", tmp_path, rows=f"{pairs.parent},{chat}", tokenizer=tokenizer(tmp_path)))
    alone = tools.folder(stage("tokenize", tmp_path, rows=pairs.parent, tokenizer=tokenizer(tmp_path)))
    assert spans(flat, "p.jsonl") == spans(alone, "p.jsonl") != expected
    assert spans(flat, "mine.jsonl") == spans(tools.folder(both), "mine.jsonl")


def test_a_changed_space_changes_every_name_after_it(tmp_path: Path) -> None:
    seen = set()
    for number, template in enumerate((CHATML, CHATML + " ", CHATML.replace("'<|im_end|>'", "' <|im_end|>'"))):
        yaml = source(tmp_path / str(number), "mine", template)
        clean = tools.folder(stage("clean", tmp_path, sources=yaml))
        one = tools.folder(stage("tokenize", tmp_path, rows=clean, tokenizer=tokenizer(tmp_path)))
        seen |= {clean.name, one.name, tools.read_json(one / "tokenizer_info.json")["chat_template"]["digest"]}
    assert len(seen) == 9


def test_rows_of_two_templates_are_not_mixed(tmp_path: Path) -> None:
    folders, cleaned = [], []
    known: list[tuple[str, dict[str, Any]]] = [
        ("mine", {}),
        ("other", {"template_variables": "{enable_thinking: false}"}),
    ]
    for name, keys in known:
        cleaned.append(tools.folder(stage("clean", tmp_path, sources=source(tmp_path, name, CHATML, **keys))))
        done = stage("tokenize", tmp_path, rows=cleaned[-1], tokenizer=tokenizer(tmp_path))
        folders.append(tools.folder(done))
    done = stage("tokenize", tmp_path, rows=f"{cleaned[0]},{cleaned[1]}", tokenizer=tokenizer(tmp_path))
    assert (done.code, "two chat templates render" in done.message) == (INPUT, True), done.err
    assert 'variables: {} and {"enable_thinking": false}' in done.message
    named = [(folder.name, Named.from_folder(folder, None)) for folder in folders]
    with pytest.raises(InputError, match=r"of two chat templates.*variables: \{\} and \{\"enable_thinking\": false\}"):
        check_same_tokenizer(named, "sources")
    check_same_tokenizer([named[0], named[0]], "sources")


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    clean = tools.folder(stage("clean", tmp_path, sources=source(tmp_path, "mine", CHATML)))
    wrong = stage("tokenize", tmp_path, rows=clean, tokenizer=tokenizer(tmp_path, "llama3"))
    assert wrong.code == INPUT
    assert "no <|im_start|>, <|im_end|>" in wrong.message
    assert "lacks control tokens of the chat template" in wrong.message
    done = stage("tokenize", tmp_path, rows=clean, tokenizer=tokenizer(tmp_path), profile="data_io")
    assert (done.code, "the reference renders no chats" in done.message) == (USAGE, True)
    pairs = tools.write_rows(tmp_path / "pairs" / "p.jsonl", [("direct", "Hi", "Hello")])
    done = stage("tokenize", tmp_path, rows=pairs, tokenizer=tokenizer(tmp_path), template="rows")
    assert (done.code, "no row is rendered" in done.message) == (USAGE, True)
    done = stage("tokenize", tmp_path, rows=pairs, tokenizer=tokenizer(tmp_path), template=tmp_path / "no.jinja")
    assert (done.code, "no such file" in done.message) == (USAGE, True)
    copied = tools.write_text(tmp_path / "copy" / "mine.jsonl", (clean / "data" / "mine.jsonl").read_text())
    # Without its manifest nothing says that the rows are rendered.
    assert stage("tokenize", tmp_path, rows=copied, tokenizer=tokenizer(tmp_path)).code == 0
    (clean / "attributes" / "source" / "mine.jsonl.parquet").unlink()
    done = stage("tokenize", tmp_path / "again", rows=clean, tokenizer=tokenizer(tmp_path))
    assert done.code == INPUT, done.err
    redact = tools.write_text(tmp_path / "curate.yaml", "pii: {mode: redact}\n")
    whole = tools.folder(stage("clean", tmp_path / "two", sources=source(tmp_path, "mine", CHATML)))
    done = stage("curate", tmp_path, rows=whole, curate_config=redact)
    assert (done.code, "are not changed" in done.message) == (INPUT, True), done.err


def test_rows_of_a_template_of_words_alone_have_no_token_around_them(tmp_path: Path) -> None:
    words = "{% for m in messages %}{{ m.role ~ ': ' ~ m.content ~ '\\n' }}{% endfor %}"
    words += "{{ 'assistant: ' if add_generation_prompt }}"
    clean = tools.folder(stage("clean", tmp_path, sources=source(tmp_path, "mine", words)))
    one = tools.folder(stage("tokenize", tmp_path, rows=clean, tokenizer=tokenizer(tmp_path, "llama2")))
    special = {0, 1, 2}
    assert not any(special.intersection([*question, *answer]) for question, answer in spans(one, "mine.jsonl"))


def test_flat_files_keep_the_end_that_the_template_writes(tmp_path: Path) -> None:
    rows = tools.write_rows(tmp_path / "p" / "p.jsonl", [("direct", "Hi", "Hello"), ("direct", "", "A document.")] * 3)
    given = {"rows": rows.parent, "tokenizer": tokenizer(tmp_path), "template": "chatml"}
    one = tools.folder(stage("tokenize", tmp_path, **given, windows="true"))
    end = tools.read_json(one / "windows" / "windows.json")["eod_id"]
    (question, answer), (_, document) = spans(one, "p.jsonl")[:2]
    assert np.load(one / "windows" / "p.jsonl.npy").tolist() == [*question, *answer, end, *document] * 3
    assert (document[-1], answer[-1] != end) == (end, True)


def test_buckets_are_those_of_the_rows_that_have_tokens(tmp_path: Path) -> None:
    yaml = source(tmp_path, "mine", NEIGHBOURS, merges=True, attributes="{place: 'messages[0].content'}")
    clean = tools.folder(stage("clean", tmp_path, sources=yaml))
    one = tools.folder(stage("tokenize", tmp_path, rows=clean, tokenizer=tokenizer(tmp_path)))
    dataset = tokens.Dataset("mine.jsonl", str(one / "mine.jsonl"))
    kept = dataset.ordinals()
    assert kept is not None
    texts = pq.read_table(clean / "attributes" / "source" / "mine.jsonl.parquet")["place"].to_pylist()
    wanted = {"1 What is it?": 0, "3 What is it?": 1}
    attribute = BucketAttribute(attribute="source.place", in_=list(wanted))
    path = clean / "attributes" / "source" / "mine.jsonl.parquet"
    file = InputFile(str(path), "", path.stat().st_size, digest_bytes(path.read_bytes()))
    made = counting.CountedTask(dataset, Rule(), {"source": file})
    shard = counting.CountTasks((made,), (attribute,), "", name="x")

    class Out:
        @contextmanager
        def create(self, path: str) -> Iterator[Path]:
            yield tmp_path / "codes.npy"

    shard.run(counting.Counting(counting.CountOptions(4096, 1)), cast(Writer, Out()))
    assert np.load(tmp_path / "codes.npy").tolist() == [wanted.get(texts[place], 2) for place in kept.tolist()]
    assert len(kept) < len(texts)
