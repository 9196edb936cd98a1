"""Extracts of files that are not written in the usual way: read as their source says, they give its first records."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pairmill.formats.slices import FileSlice
from pairmill.sources.language import mapped
from pairmill.stages.fetch.extract import Place, extract

ROWS = [{"q": f"q{number}", "a": "x\ny" if number == 1 else "é"} for number in range(9)]


def table(delimiter: str, *, header: bool) -> str:
    lines = [f'{row["q"]}{delimiter}"{row["a"]}"\n' for row in ROWS]
    return f"q{delimiter}a\n" * header + "".join(lines)


def unchanged(data: bytes) -> bytes:
    return data


@pytest.mark.parametrize("packing", [unchanged, gzip.compress])
@pytest.mark.parametrize(
    ("kind", "text", "keys", "encoding"),
    [
        ("json", json.dumps({"v": 1, "d": {"data": ROWS}, "z": [1]}), "records: d.data", "utf-8"),
        ("json", json.dumps({str(number): row for number, row in enumerate(ROWS)}), "records: '*'", "utf-8"),
        ("json", json.dumps({"d": {"x": ROWS[0], "y": ROWS[1], "z": ROWS[2]}}), "records: d.*", "utf-8"),
        ("json", json.dumps(ROWS, ensure_ascii=False), "", "cp1252"),
        ("json", json.dumps({"data": ROWS}, ensure_ascii=False), "records: data", "utf-16"),
        ("jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS), "", "utf-16"),
        ("tsv", table("\t", header=False), "header: [q, a]", "cp1252"),
        ("csv", table(";", header=True), "delimiter: ';'", "utf-8"),
    ],
)
def test_an_extract_has_the_first_records(
    tmp_path: Path, kind: str, text: str, keys: str, encoding: str, packing: Callable[[bytes], bytes]
) -> None:
    name = f"a.{kind}" + (".gz" if packing is gzip.compress else "")
    whole, target = tmp_path / name, tmp_path / "extract" / name
    target.parent.mkdir()
    whole.write_bytes(packing(text.encode(encoding)))
    description = tmp_path / "m.yaml"
    lines = ["name: m", f"files: {name}", "condition: cot", "instruction: q", "response: a", f"encoding: {encoding}"]
    description.write_text("\n".join([*lines, keys]) + "\n")
    source = mapped.load(str(description))

    def read(path: Path) -> list[Any]:
        return [record for _, record in source.read(FileSlice(name, str(path), size=path.stat().st_size), "pairmill")]

    assert read(whole)[:3] == ROWS[:3]
    assert extract(Place(name, "m", uri=str(whole)), 3, target, tmp_path, source) == 3
    assert read(target)[:3] == ROWS[:3]


def test_of_a_list_within_an_object_no_more_is_read(tmp_path: Path) -> None:
    row = {"q": "q" * 1000, "a": "a"}
    whole, target = tmp_path / "a.json", tmp_path / "extract.json"
    whole.write_text(json.dumps({"data": [row] * 4000})[:-2] + "this is not JSON")
    (tmp_path / "m.yaml").write_text(
        "name: m\nfiles: a.json\ncondition: cot\ninstruction: q\nresponse: a\nrecords: data\n"
    )
    source = mapped.load(str(tmp_path / "m.yaml"))
    assert extract(Place("a.json", "m", uri=str(whole)), 5, target, tmp_path, source) == 5
    assert json.loads(target.read_text()) == {"data": [row] * 5}
