"""What is wrong with columns, files and tags of a YAML source: exit code, and the line to write, which works."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tools

USAGE, INPUT = 2, 3
ROW = {"q": "What?", "a": "That."}


def clean(folder: Path, kind: str, data: bytes, **keys: str) -> tools.Done:
    (folder / f"a.{kind}").write_bytes(data)
    values = {"name": "mine", "files": f"a.{kind}", "condition": "direct", "instruction": "q", "response": "a"}
    text = "".join(f"{key}: {value}\n" for key, value in (values | keys).items())
    description = tools.write_text(folder / "mine.yaml", text)
    return tools.stage("clean", sources=description, root=folder / "root", workers=1)


def lines(*changes: dict[str, Any]) -> bytes:
    return "".join(json.dumps(ROW | one) + "\n" for one in changes).encode()


@pytest.mark.parametrize(
    ("code", "kind", "data", "keys", "write"),
    [
        (INPUT, "jsonl", lines({"a": ["x", "y"]}), {}, 'response: "{a|lines}"'),
        (INPUT, "jsonl", lines({"a": True}), {}, 'response: "{a}"'),
        (INPUT, "jsonl", lines({"a": 2.5}), {}, 'response: "{a}"'),
        (INPUT, "jsonl", lines({"a": {"n": 1}}), {}, 'response: "{a|json}"'),
        (INPUT, "jsonl", lines({"i": None}), {"instruction": "'{q} {i}'"}, 'instruction: "{q}[[ {i}]]"'),
        (
            INPUT,
            "jsonl",
            lines({"o": [{"text": "x"}]}),
            {"response": "'{o|letters}'"},
            'response: "{o[*].text|letters}"',
        ),
        (INPUT, "jsonl", lines({"a": "é"}).decode().replace("\\u00e9", "é").encode("cp1252"), {}, "encoding: cp1252"),
        (INPUT, "csv", "q,a\nx,y\n".encode("utf-16"), {}, "encoding: utf-16"),
        (INPUT, "csv", b"q;a\nx;y\n", {}, "delimiter: ';'"),
        (INPUT, "tsv", b'q\ta\n"x" y\tz\n', {}, "quote: none"),
        (INPUT, "json", json.dumps({"v": 1, "data": [ROW]}).encode(), {}, "records: data"),
        (INPUT, "json", json.dumps({"data": {"x": ROW, "y": ROW}}).encode(), {"records": "data"}, "records: data.*"),
        (INPUT, "jsonl", lines({"k": "law"}), {"condition": "'{k}'"}, 'tags: ["law=<|law|>"]'),
        (USAGE, "jsonl", lines({}), {"condition": "law"}, "tags: ['law=<|law|>']"),
        (USAGE, "jsonl", lines({}), {"tags": "law"}, "law=<|law|>"),
        (USAGE, "jsonl", lines({}), {"response": "a|json"}, "{a|json}"),
        (USAGE, "jsonl", lines({"a": ["x"]}), {"response": "'{a|line}'"}, "lines"),
    ],
)
def test_an_error_says_the_line_to_write(
    tmp_path: Path, code: int, kind: str, data: bytes, keys: dict[str, str], write: str
) -> None:
    done = clean(tmp_path, kind, data, **keys)
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    assert write in done.message
    key, separator, value = write.partition(": ")
    if not separator:
        key = "tags" if "=" in write else "response"
        value = write if key == "tags" else "'{a|lines}'" if write == "lines" else f"'{write}'"
    assert tools.folder(clean(tmp_path, kind, data, **{**keys, key: value})).is_dir()
