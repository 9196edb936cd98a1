"""Condition tags of a source's own: one command trains a tokenizer with their tokens, and rows begin with them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from pairmill.loader import Loader, RowPlan
from tests.support import tools

USAGE, INPUT = 2, 3
VOCABULARY = 400


def source(folder: Path, name: str, *tags: str, condition: str = "{kind}", rows: int = 12) -> Path:
    """A YAML file and its records, each with one of two kinds."""
    kinds = [tag.partition("=")[0] for tag in tags[:1]] + ["cot"]
    records = [{"q": f"What is {n} of {name}?", "a": f"It is {n}.", "kind": kinds[n % len(kinds)]} for n in range(rows)]
    tools.write_lines(folder / f"{name}.jsonl", records)
    lines = {"name": name, "files": f"{name}.jsonl", "condition": condition, "instruction": "q", "response": "a"}
    lines |= {"tags": json.dumps(tags)} if tags else {}
    text = "".join(f"{key}: {value if key == 'tags' else json.dumps(value)}\n" for key, value in lines.items())
    return tools.write_text(folder / f"{name}.yaml", text)


def cleaned(folder: Path, *sources: Path, **options: object) -> Path:
    named = ",".join(map(str, sources))
    return tools.folder(tools.stage("clean", sources=named, root=folder / "root", workers=1, **options))


def trained(folder: Path, rows: object, **options: object) -> Path:
    options = {"vocab_size": VOCABULARY, "workers": 1, **options}
    return tools.folder(tools.stage("train_tokenizer", rows=rows, root=folder / "root", **options))


def special_tokens(folder: Path) -> list[str]:
    read: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text())
    return [token["content"] for token in read["added_tokens"]]


def tokenize(folder: Path, rows: object, tokenizer: Path, **options: object) -> tools.Done:
    return tools.stage("tokenize", rows=rows, tokenizer=tokenizer, root=folder / "root", workers=1, **options)


def mapping(folder: Path) -> dict[str, str]:
    read: dict[str, Any] = json.loads((folder / "tokenizer_info.json").read_text())
    found: dict[str, str] = read["condition_mapping"]
    return found


def refused(done: tools.Done, code: int, *said: str) -> None:
    assert done.code == code, done.err
    assert done.out == ""
    for text in said:
        assert text in done.message


def test_one_command_takes_tags_from_yaml_to_the_batch(tmp_path: Path, shm: Path) -> None:
    laws = source(tmp_path, "laws", "legal=<|legal|>", "unused=<|unused|>")
    texts = source(tmp_path, "texts", "de=<|german|>", "legal=<|legal|>")
    out, root = shm / "out", shm / "root"
    options = {"vocab_size": VOCABULARY, "epochs": 1, "output_path": out, "root": root, "raw": tmp_path}
    rules = tools.rules(tmp_path / "rules.yaml", "")
    done = tools.run(tools.command("run", sources=f"{laws},{texts}", prefix_config_path=rules, **options))
    tools.ended(done)
    (clean,) = (path.parent for path in root.glob("clean/*/_MANIFEST.json"))
    assert tools.read_manifest(clean)["data"]["conditions"] == {
        "de": {"token": "<|german|>", "sources": ["texts"]},
        "legal": {"token": "<|legal|>", "sources": ["laws", "texts"]},
        "unused": {"token": "<|unused|>", "sources": ["laws"]},
    }
    (trained,) = (path.parent for path in root.glob("tokenizer/*/_MANIFEST.json"))
    assert special_tokens(trained)[-3:] == ["<|german|>", "<|legal|>", "<|unused|>"]
    assert special_tokens(trained)[:2] == ["<|PAD|>", "<|direct|>"]

    tokenizer = Tokenizer.from_file(str(trained / "tokenizer.json"))
    metadata = json.loads((out / "metadata.json").read_text())
    found = metadata["tokenizer_info"]["condition_mapping"]
    assert list(found) == ["direct", "cot", "noisy", "synth", "de", "legal", "unused"]
    ids = {tag: tokenizer.token_to_id(token) for tag, token in found.items()}
    seen: dict[int, int] = {}
    arrays = {name: np.load(out / "epoch_0" / f"{name}.npy") for name in ("inst_start", "inst_len")}
    tokens = np.load(out / "tokens.npy")
    for start, length in zip(*(values.tolist() for values in arrays.values()), strict=True):
        span = tokens[start : start + length].tolist()
        assert tokenizer.decode(span[2:-1], skip_special_tokens=False).startswith("What is ")
        seen[span[1]] = seen.get(span[1], 0) + 1
    assert seen == {ids["legal"]: 6, ids["de"]: 6, ids["cot"]: 12}
    (batch,) = Loader(RowPlan(str(out), tail="keep"), batch_tokens=4096, rank=0, ranks=1)
    assert np.isin(batch.arrays["inputs"], [ids["legal"], ids["de"]]).sum() == 12


def test_options_go_first_and_a_subfolder_of_rows_knows_its_tags(tmp_path: Path) -> None:
    rows = cleaned(tmp_path, source(tmp_path, "laws", "legal=<|legal|>"))
    plain = trained(tmp_path, rows)
    chosen = trained(tmp_path, rows / "data", special_tokens=",".join(["<|legal|>", *special_tokens(plain)[:-1]]))
    assert sorted(special_tokens(chosen)) == sorted(special_tokens(plain))
    assert special_tokens(chosen)[0] == "<|legal|>"
    own = tools.folder(tokenize(tmp_path, rows / "data", chosen))
    assert mapping(own)["legal"] == "<|legal|>"
    other = tools.folder(tokenize(tmp_path, rows, chosen, conditions="legal=<|quad_start|>,cot=<|quad_end|>"))
    assert mapping(other) == {"legal": "<|quad_start|>", "cot": "<|quad_end|>"}
    assert (tools.digests(own)["laws.jsonl/tokens.npy"]) != tools.digests(other)["laws.jsonl/tokens.npy"]
    again = tools.folder(tokenize(tmp_path, rows / "data" / "laws.jsonl", chosen))
    assert mapping(again) == mapping(own)


def test_another_token_makes_no_row_again_but_another_tokenizer(tmp_path: Path) -> None:
    first = cleaned(tmp_path, source(tmp_path, "laws", "legal=<|legal|>"))
    records = tools.records(tmp_path / "root", "clean")
    second = cleaned(tmp_path, source(tmp_path, "laws", "legal=<|law|>"))
    assert first != second
    assert tools.records(tmp_path / "root", "clean") == records
    assert special_tokens(trained(tmp_path, second))[-1] == "<|law|>"
    assert special_tokens(trained(tmp_path, first))[-1] == "<|legal|>"


def test_a_tokenizer_without_the_token_says_who_asked_and_what_to_write(tmp_path: Path) -> None:
    rows = cleaned(tmp_path, source(tmp_path, "laws", "legal=<|legal|>"))
    without = trained(tmp_path, cleaned(tmp_path, source(tmp_path, "plain")))
    done = tokenize(tmp_path, rows, without)
    refused(done, INPUT, "lacks delimiter or condition tokens; got <|legal|> (the tag legal of laws)")
    written = done.message.rpartition("conditions=")[2]
    assert written.endswith(",synth=<|quad_end|>,legal=…")
    conditions = written.replace("…", "<|box_start|>")
    assert mapping(tools.folder(tokenize(tmp_path, rows, without, conditions=conditions)))["legal"] == "<|box_start|>"
    # Or the source names a token that the tokenizer has.
    rows = cleaned(tmp_path, source(tmp_path, "laws", "legal=<|fim_pad|>"))
    assert mapping(tools.folder(tokenize(tmp_path, rows, without)))["legal"] == "<|fim_pad|>"


def test_rows_without_a_manifest_need_the_options(tmp_path: Path) -> None:
    rows = tools.write_lines(
        tmp_path / "rows" / "a.jsonl", [dict(zip(tools.FIELDS, ("legal", "What?", "That."), strict=True))] * 3
    )
    without = trained(tmp_path, rows.parent)
    refused(tokenize(tmp_path, rows.parent, without), INPUT, "condition 'legal' is unknown", "conditions=")
    tokens = ",".join([*special_tokens(without), "<|legal|>"])
    tokenizer = trained(tmp_path, rows.parent, special_tokens=tokens)
    made = tools.folder(tokenize(tmp_path, rows.parent, tokenizer, conditions="legal=<|legal|>"))
    assert mapping(made) == {"legal": "<|legal|>"}


def test_no_tag_gets_a_token_where_tags_get_none(tmp_path: Path) -> None:
    rows = cleaned(tmp_path, source(tmp_path, "laws", "legal=<|legal|>"))
    done = tokenize(tmp_path, rows, trained(tmp_path, rows), conditions="none")
    assert mapping(tools.folder(done)) == {}
    assert done.said("tags get no token, legal neither")


@pytest.mark.parametrize("token", ["<|quad_start|>", "<|im_end|>"])
def test_a_token_that_means_something_else_is_refused(tmp_path: Path, token: str) -> None:
    rows = cleaned(tmp_path, source(tmp_path, "laws", f"legal={token}"))
    taken = "noisy" if "quad" in token else "eoq"
    done = tokenize(tmp_path, rows, trained(tmp_path, rows))
    refused(done, USAGE, f"the tag 'legal' has the token of {taken}", "tags: ['legal=<|legal|>']")


def test_one_tag_has_one_token_in_a_run(tmp_path: Path) -> None:
    one, other = source(tmp_path, "one", "legal=<|legal|>"), source(tmp_path, "other", "legal=<|law|>")
    done = tools.stage("clean", sources=f"{one},{other}", root=tmp_path / "root", workers=1)
    said = "two sources give the tag 'legal' two tokens; got <|legal|> in one, <|law|> in other; expected one token; "
    refused(done, USAGE, f"{said}write in {other}: tags: ['legal=<|legal|>']")
    same = source(tmp_path, "same", "law=<|legal|>")
    done = tools.stage("clean", sources=f"{one},{same}", root=tmp_path / "root", workers=1)
    refused(done, USAGE, "two tags have the token '<|legal|>'", f"write in {same}: tags: ['law=<|law|>']")
    folders = [cleaned(tmp_path, path) for path in (one, other)]
    done = tools.stage("train_tokenizer", rows=",".join(map(str, folders)), root=tmp_path / "root", workers=1)
    refused(done, INPUT, "two folders of rows give the tag 'legal' two tokens", "under tags: of one and other")


def test_the_vocabulary_must_hold_the_tokens(tmp_path: Path) -> None:
    rows = cleaned(tmp_path, source(tmp_path, "laws", "legal=<|legal|>"))
    exact = 256 + len(special_tokens(trained(tmp_path, rows)))
    done = tools.stage("train_tokenizer", rows=rows, root=tmp_path / "root", workers=1, vocab_size=exact - 1)
    refused(done, USAGE, "vocab_size: is too small", f"expected {exact} or more")
