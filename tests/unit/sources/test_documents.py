"""Documents in YAML sources: a text in each record, or each file as one record."""

import bz2
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, PairmillError, StageFailure, UsageError
from pairmill.formats.rows import Row
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.sources.files.readers import whole_file
from pairmill.sources.language import mapped
from pairmill.sources.origin import Folder, Hub
from pairmill.sources.parsed import Drop, Malformed
from pairmill.sources.source import Context, Source, checked, parse_record
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch
from tests.support.data.descriptions import Load, loader
from tests.support.helpers import REPOSITORY

EXAMPLES = REPOSITORY / "examples" / "sources"
DOCUMENTS = {"name": "mine", "hub": "org/mine", "text": "text"}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a YAML file of documents with these keys; None leaves one out."""
    return loader(tmp_path, DOCUMENTS)


def parse(source: Source, record: Any) -> Any:
    return parse_record(source, record, Context("pairmill"))


def test_three_lines_are_documents(load: Load) -> None:
    source = load()
    assert source.documents
    assert not source.whole_files
    assert source.fields == ("text",)
    assert parse(source, {"text": " Once.\n"}) == Row("", "", "Once.")
    assert parse(load(strip="false"), {"text": " Once.\n"}) == Row("", "", " Once.\n")
    title = load(text=r'"{title}\n\n{body}"')
    assert parse(title, {"title": "T", "body": "B"}) == Row("", "", "T\n\nB")
    assert parse(load(condition="synth, cot"), {"text": "x"}) == Row("synth,cot", "", "x")
    assert parse(load(condition="'{kind}'"), {"text": "x", "kind": "cot"}) == Row("cot", "", "x")
    assert parse(load(condition="'{kind}'"), {"text": "x", "kind": ""}) == Malformed("unknown_condition")
    assert parse(load(where="n > 1"), {"text": "x", "n": 1}) == Drop("filtered_by_where")
    assert source.first_question({}, [Row("", "", "x")]) == "x"


@pytest.mark.parametrize(
    ("record", "reason", "write"),
    [
        ({"text": None}, Malformed("null_text"), "where: has(text)"),
        ({"body": "x"}, Malformed("missing_text"), "where: has(text)"),
        ({"texts": "x"}, Malformed("missing_text"), "text: texts"),
        ({"text": ["x"]}, Malformed("text_is_no_text"), 'text: "{text|lines}" or text: text[0]'),
        ({"text": 5}, Malformed("text_is_no_text"), 'text: "{text}"'),
        ({"text": ""}, Drop("empty_text"), ""),
        ({"text": " \n\u3000"}, Drop("empty_text"), ""),
        ({"text": "\ud800"}, Malformed("unpaired_surrogate"), ""),
    ],
)
def test_a_record_without_a_text_has_a_reason(load: Load, record: Any, reason: Drop, write: str) -> None:
    source = load()
    found, drops = checked(parse(source, record), "pairmill", documents=source.documents)
    assert (found, drops) == ([], [reason])
    if write and isinstance(reason, Malformed):
        assert source.explain(record, reason).write == write


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"instruction": "q"}, "line 4, instruction|line 3, text: a record is a pair, a document or a chat"),
        ({"instruction": "q"}, "got text: and instruction:.*write 'text: text' without instruction:"),
        ({"instruction": "q", "response": "a"}, "without instruction: and response:"),
        ({"text": "the text"}, "line 3, text: not a valid path.*in braces"),
        ({"text": "5"}, "line 3, text: not a text"),
        ({"text": None}, "required key missing.*expected condition, instruction, response; of documents write text:"),
        (
            {"hub": None, "files": "a.csv", "each": "file", "delimiter": ";"},
            "line 5, delimiter: each: file reads no rec",
        ),
        ({"each": "line"}, "line 4, each: unknown value; got 'line'; expected record or file"),
        ({"each": "file"}, r"line 4, each: files: has to say which files are records.*write \"files: '\*\*/\*\.txt'\""),
        ({"hub": None, "files": "a.txt"}, "no reader for this kind of file.*write 'each: file'"),
        ({"hub": None, "files": "/etc/*", "each": "file"}, "outside the folders"),
        ({"hub": None, "files": "../**", "each": "file"}, "outside the folders"),
        ({"hub": None, "files": ".ssh/*", "each": "file"}, "each: file reads no hidden folder"),
        ({"files": "../a.txt", "each": "file"}, "outside the data set"),
    ],
)
def test_what_is_not_understood_is_refused_with_the_line_to_write(
    load: Load, keys: dict[str, str | None], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        load(**keys)


def test_another_meaning_is_another_version(load: Load) -> None:
    files: dict[str, str | None] = {"hub": None, "files": "'**/*.jsonl'"}
    changes: list[dict[str, str | None]] = [
        {},
        {"text": "body"},
        {"text": None, "condition": "direct", "instruction": "text", "response": "text"},
        {"condition": "direct"},
        files,
        files | {"each": "file"},
    ]
    versions = [load(**change).version for change in changes]
    assert len(set(versions)) == len(changes)
    assert load(each="record").version == versions[0]


# --- documents in files ---------------------------------------------------------------------------------------------


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, codec="zstd", asbytes=True),
}


@pytest.mark.parametrize("packed", PACKED)
def test_each_file_is_a_record(tmp_path: Path, packed: str) -> None:
    text = "\ufeffdef f():\r\n    return 'é'\n"
    path = tmp_path / f"main.test.py{packed}"
    path.write_bytes(PACKED[packed](text.encode()))
    piece = FileSlice(f"src/{path.name}", str(path))
    (record,) = whole_file(piece)
    assert record == (
        0,
        {"path": f"src/{path.name}", "name": "main.test.py", "extension": "py", "text": text.removeprefix("\ufeff")},
    )
    small = FileSlice(f"src/{path.name}", str(path), longest=len(text.encode()) - 1)
    with pytest.raises(InputError, match="the file, which is one record, is longer than max_record_bytes"):
        list(whole_file(small))


def test_what_a_file_may_be(tmp_path: Path) -> None:
    for name, data, expected in (
        ("README", b"x", {"path": "README", "name": "README", "extension": "", "text": "x"}),
        ("a.b.TXT", b"", {"path": "a.b.TXT", "name": "a.b.TXT", "extension": "TXT", "text": ""}),
        ("a.parquet", b"\xff\xfe", Malformed("invalid_utf8")),
        ("a.json", b"{\0", {"path": "a.json", "name": "a.json", "extension": "json", "text": "{\0"}),
    ):
        (tmp_path / name).write_bytes(data)
        assert list(whole_file(FileSlice(name, str(tmp_path / name)))) == [(0, expected)]
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"x" * 10_000)[:-12])
    with pytest.raises(PairmillError) as caught:
        list(whole_file(FileSlice("a.txt.gz", str(tmp_path / "a.txt.gz"))))
    assert caught.value.exit_code == 3


def test_files_of_another_encoding_are_read(load: Load, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("é".encode("utf-16"))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"\xe9"))
    utf16, latin = (
        load(hub=None, files="'*.txt*'", each="file", encoding=encoding) for encoding in ("utf-16", "latin-1")
    )
    pieces = [FileSlice(name, str(tmp_path / name)) for name in ("a.txt", "b.txt.gz")]
    assert next(utf16.read(pieces[0], "pairmill"))[1]["text"] == "é"
    assert next(utf16.read(pieces[1], "pairmill"))[1] == Malformed("invalid_utf_16")
    assert next(latin.read(pieces[1], "pairmill"))[1]["text"] == "é"
    plain = load(hub=None, files="'*.txt*'", each="file")
    why = next(plain.read(pieces[1], "pairmill"))[1]
    assert plain.explain_unread(why) == ("bytes that are not UTF-8", "encoding: cp1252")


def test_files_of_a_hub_data_set_are_named(load: Load) -> None:
    source = load(files="[books/*.txt, 'code/**/*.py.gz']", each="file")
    assert source.origin == Hub("org/mine", ("books/*.txt", "code/**/*.py.gz"))
    (unit,) = source.units(["books/a.txt", "books/b.md", "code/x/y.py.gz"], "", "pairmill", source.options())
    assert unit.files == ("books/a.txt", "code/x/y.py.gz")


Cleaned = Callable[..., tuple[Manifest, list[dict[str, str]]]]


@pytest.fixture
def clean(tmp_path: Path) -> Cleaned:
    """Cleans files of these contents by a YAML file of these keys: the manifest, and the rows."""

    def cleaned(files: dict[str, str | bytes], /, **keys: str) -> tuple[Manifest, list[dict[str, str]]]:
        folder = tmp_path / "here"
        for name, content in files.items():
            path = folder / "tree" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        values = {"name": "mine", "files": "'tree/**'", "each": "file", "text": "text"} | keys
        (folder / "mine.yaml").write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
        place = {"root": str(tmp_path / "root"), "sources": [str(folder / "mine.yaml")]}
        result = runner.run(Clean(), CleanConfig(workers=1, max_reject_fraction=0.5, **place))
        lines = (Path(result.uri) / "data" / "mine.jsonl").read_text().splitlines()
        return result.manifest, [json.loads(line) for line in lines]

    return cleaned


TREE: dict[str, str | bytes] = {
    "src/b.py": "b = 1\n",
    "src/a.py": "    a = 1\n",
    "README": "Read me.",
    "empty.txt": " ",
    "odd.txt": b"\xe9",
    "packed.md.gz": gzip.compress(b"# Title"),
    ".git/config": "token = secret",
    "src/.env": "PASSWORD=secret",
}


def test_files_become_rows_in_their_order(clean: Cleaned, tmp_path: Path) -> None:
    manifest, rows = clean(TREE, strip="false", text='"{path}\\n{text}"', where="name != 'b.py' and len(text) > 0")
    assert [row["response"] for row in rows] == [
        "README\nRead me.",
        "empty.txt\n ",
        "packed.md.gz\n# Title",
        "src/a.py\n    a = 1\n",
    ]
    assert {(row["condition"], row["instruction"]) for row in rows} == {("", "")}
    assert manifest.ledger.dropped == {"invalid_utf8": 1, "filtered_by_where": 1}
    again, _ = clean(TREE)
    assert again.ledger.dropped == {"invalid_utf8": 1, "empty_text": 1}
    assert again.ledger.rows_in == len(TREE) - 2
    assert not any("secret" in path.read_text("utf-8", "replace") for path in tmp_path.glob("root/**/*.jsonl"))


def test_thousands_of_small_files_are_one_shard(clean: Cleaned) -> None:
    manifest, rows = clean({f"{number % 7}/{number}.txt": f"Text {number}." for number in range(2000)})
    assert (len(rows), len(manifest.shards)) == (2000, 1)


def test_no_file_is_cut(clean: Cleaned, monkeypatch: pytest.MonkeyPatch) -> None:
    from pairmill.stages.clean import core

    monkeypatch.setattr(core, "SLICING", Slicing(10, 10))
    lines = "".join(f"{number}\n" for number in range(100))
    manifest, rows = clean({"a.jsonl": lines, "b.csv": lines, "c.parquet": lines})
    assert [row["response"] for row in rows] == [lines.strip()] * 3
    assert len(manifest.shards) == 3


def test_a_file_that_is_too_long_fails_the_stage(clean: Cleaned, tmp_path: Path) -> None:
    clean({"a.txt": "x" * 1000})
    config = CleanConfig(
        root=str(tmp_path / "other"), sources=[str(tmp_path / "here/mine.yaml")], workers=1, max_record_bytes=999
    )
    with pytest.raises(StageFailure, match="longer than max_record_bytes") as caught:
        runner.run(Clean(), config)
    assert caught.value.exit_code == 3


def test_files_are_fetched_and_cleaned_as_where_they_are(clean: Cleaned, tmp_path: Path) -> None:
    manifest, _ = clean(TREE)
    yaml = str(tmp_path / "here" / "mine.yaml")
    source = mapped.load(yaml)
    assert isinstance(source.origin, Folder)
    root = str(tmp_path / "root2")
    fetched = runner.run(Fetch(), FetchConfig(root=root, sources=[yaml], workers=1))
    config = CleanConfig(root=root, raw=fetched.uri, sources=[yaml], workers=1, max_reject_fraction=0.5)
    again = runner.run(Clean(), config).manifest
    assert {file.digest for file in again.files if file.task} == {file.digest for file in manifest.files if file.task}


def test_a_limit_is_of_files(clean: Cleaned, tmp_path: Path) -> None:
    files = {f"{number}.{kind}": f"Text\n{number}." for number in range(4) for kind in ("py", "csv", "txt.gz")}
    packed = {name: gzip.compress(text.encode()) if name.endswith(".gz") else text for name, text in files.items()}
    manifest, rows = clean(packed, limit="5", text="'{path} {text}'")
    expected = [f"{name} {text}" for name, text in sorted(files.items())[:5]]
    assert [row["response"] for row in rows] == expected
    assert manifest.ledger.rows_in == 5
    yaml, root = str(tmp_path / "here" / "mine.yaml"), str(tmp_path / "root2")
    fetched = runner.run(Fetch(), FetchConfig(root=root, sources=[yaml], workers=1))
    again = runner.run(Clean(), CleanConfig(root=root, raw=fetched.uri, sources=[yaml], workers=1))
    lines = (Path(again.uri) / "data" / "mine.jsonl").read_text().splitlines()
    assert [json.loads(line)["response"] for line in lines] == expected


def test_documents_of_records_may_have_tags(clean: Cleaned) -> None:
    lines = "".join(f"{json.dumps({'text': f'Text {number}.', 'n': number})}\n" for number in range(3))
    manifest, rows = clean({"a.jsonl": lines}, each="record", files="tree/*.jsonl", condition="synth")
    assert rows == [{"condition": "synth", "instruction": "", "response": f"Text {number}."} for number in range(3)]
    assert manifest.ledger.rows_kept == 3


def test_the_examples_are_documents() -> None:
    corpus, code = (mapped.load(str(EXAMPLES / f"{name}.yaml")) for name in ("corpus", "code"))
    assert parse(corpus, {"text": "x" * 300, "language": "en"}) == Row("", "", "x" * 300)
    assert parse(corpus, {"text": "x", "language": "en"}) == Drop("filtered_by_where")
    assert code.whole_files
    record = {"path": "a/b.py", "name": "b.py", "extension": "py", "text": "  x = 1\n"}
    assert parse(code, record) == Row("", "", "  x = 1\n")
    assert parse(code, record | {"path": "tests/b.py"}) == Drop("filtered_by_where")
