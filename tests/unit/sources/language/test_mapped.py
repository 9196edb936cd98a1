"""Sources that YAML files describe: their rows, files and identity, and every way in which a file can be wrong."""

import json
import pickle
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.engine import runner
from pairmill.engine.manifest import Manifest
from pairmill.errors import InputError, PairmillError, StageFailure, UsageError
from pairmill.formats.rows import Row
from pairmill.formats.slices import FileSlice, Slicing
from pairmill.formats.templates import TAGS
from pairmill.interface.cli import build
from pairmill.sources.files import raw as raw_files
from pairmill.sources.files.splits import SourceOptions
from pairmill.sources.language import mapped
from pairmill.sources.language.description import KEYS, Description
from pairmill.sources.language.expression import FUNCTIONS
from pairmill.sources.origin import Folder, Hub, HubRows
from pairmill.sources.parsed import Drop, Malformed
from pairmill.sources.registry import chosen
from pairmill.sources.source import Context, Source, parse_record
from pairmill.stages.clean import core
from pairmill.stages.clean.config import CleanConfig
from pairmill.stages.clean.core import Clean
from pairmill.stages.clean.report import report_of
from pairmill.stages.fetch.config import FetchConfig
from pairmill.stages.fetch.core import Fetch
from pairmill.stages.tokenize.config import TokenizeConfig
from pairmill.storage import Entry, LocalStore
from tests.support import tools
from tests.support.helpers import REPOSITORY, draws

EXAMPLES = REPOSITORY / "examples" / "sources"
FIVE_LINES = "name: mine\nhub: org/mine\ncondition: direct\ninstruction: question\nresponse: answer\n"

Load = Callable[..., Source]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads a YAML file of these keys, those of the common case unless given; ``files`` takes the place of ``hub``."""

    def loaded(text: str = "", **changed: str) -> Source:
        lines = dict(line.split(": ", 1) for line in FIVE_LINES.splitlines())
        if "files" in changed and "hub" not in changed:
            lines = {"files" if key == "hub" else key: value for key, value in lines.items()}
        lines |= changed
        path = tmp_path / "mine.yaml"
        path.write_text(text or "".join(f"{key}: {value}\n" for key, value in lines.items()), "utf-8")
        (source,) = chosen([str(path)], None)
        return source

    return loaded


def parse(source: Source, record: Any) -> Any:
    return parse_record(source, record, Context("pairmill"))


def taken(source: Source, *files: str, card: str = "") -> tuple[str, ...]:
    (unit,) = source.units(sorted(files), card, "pairmill", SourceOptions())
    return unit.files


def card(*configs: str) -> str:
    return "---\nconfigs:\n" + "".join(configs) + "---\n# Title\n"


def config(name: str, *splits: str, more: str = "") -> str:
    files = "".join(f"  - split: {split}\n    path: {name}/{split}-*\n" for split in splits)
    return f"- config_name: {name}\n{more}  data_files:\n{files}"


# --- the common case ------------------------------------------------------------------------------------------------


def test_five_lines_are_a_source(load: Load) -> None:
    source = load()
    assert source.name == "mine"
    assert isinstance(source.origin, Hub)
    assert (source.origin.repo, source.origin.revision) == ("org/mine", "main")
    assert (source.licence, source.citation) == ("none stated", "none stated")
    assert (source.fields, source.optional) == (("question", "answer"), ())
    assert source.options is SourceOptions
    (unit,) = source.units(["train.jsonl"], "", "pairmill", SourceOptions())
    assert (unit.output, unit.files, unit.withheld) == ("data/mine.jsonl", ("train.jsonl",), ())
    assert parse(source, {"question": " Why? \n", "answer": "\u3000So.", "more": 1}) == Row("direct", "Why?", "So.")


def test_tags_are_those_that_the_tokenizer_has_a_token_for() -> None:
    assert list(TokenizeConfig(root="x", rows=["x"], tokenizer="x").condition_tokens()) == list(TAGS)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"answer": "a"}, "missing_question"),
        ({"question": "q"}, "missing_answer"),
        ({"question": None, "answer": "a"}, "null_question"),
        ({"question": 5, "answer": "a"}, "question_is_no_text"),
        ({"question": "q", "answer": 5.5}, "answer_is_no_text"),
        ({"question": "q", "answer": True}, "answer_is_no_text"),
        ({"question": "q", "answer": ["a"]}, "answer_is_no_text"),
        ({"question": "q", "answer": {"a": "b"}}, "answer_is_no_text"),
        (["q", "a"], "not_an_object"),
        ("q", "not_an_object"),
        (None, "not_an_object"),
    ],
)
def test_a_record_of_another_shape_is_malformed(load: Load, record: Any, reason: str) -> None:
    assert parse(load(), record) == Malformed(reason)


def test_tags_of_one_s_own_are_tags_of_its_rows(load: Load) -> None:
    record = {"question": "q", "answer": "a", "kind": "de"}
    tags = r"['legal=<|legal|>', ' de = <|german=de|> ']"
    assert load(tags=tags).tags == {"legal": "<|legal|>", "de": "<|german=de|>"}
    assert parse(load(tags=tags, condition="legal, cot"), record) == Row("legal,cot", "q", "a")
    assert parse(load(tags=tags, condition="'{kind}'"), record) == Row("de", "q", "a")
    assert parse(load(condition="'{kind}'"), record) == Malformed("unknown_condition")
    versions = [load(**keys).version for keys in ({}, {"tags": tags}, {"tags": tags.replace("german", "x")})]
    assert versions[0] != versions[1] == versions[2]  # the token is none of the rows' business


def test_white_space_stays_where_it_is_asked_for(load: Load) -> None:
    assert parse(load(strip="false"), {"question": " q\n", "answer": "a "}) == Row("direct", " q\n", "a ")


def test_conditions_are_written_without_spaces(load: Load) -> None:
    record = {"question": "q", "answer": "a"}
    assert parse(load(condition="' synth , cot '"), record) == Row("synth,cot", "q", "a")


# --- paths and templates --------------------------------------------------------------------------------------------


CHAT = {"instruction": "messages[role=user].content", "response": "messages[role=assistant].content"}


def test_messages_of_a_chat_are_found_by_role_or_place(load: Load) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "And?"},
    ]
    source = load(**CHAT)
    assert source.fields == ("messages",)
    assert parse(source, {"messages": messages}) == Row("direct", "Hi", "Hello")
    by_place = load(instruction="messages[1].content", response="messages[-1].content")
    assert parse(by_place, {"messages": messages}) == Row("direct", "Hi", "And?")


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (None, "null_messages[role=user].content"),
        ([], "missing_messages[role=user].content"),
        ("[]", "missing_messages[role=user].content"),
        ([None, "user", {"role": "user"}], "missing_messages[role=user].content"),
        ([{"role": "user", "content": None}], "null_messages[role=user].content"),
        ([{"role": "user", "content": ["Hi"]}], "messages[role=user].content_is_no_text"),
        ([{"role": "user", "content": "Hi"}], "missing_messages[role=assistant].content"),
    ],
)
def test_a_chat_of_another_shape_is_malformed(load: Load, messages: Any, reason: str) -> None:
    assert parse(load(**CHAT), {"messages": messages}) == Malformed(reason)


def test_a_template_puts_words_around_what_stands_at_its_paths(load: Load) -> None:
    source = load(
        instruction=r'"{meta.topic}:\n{question}"',
        response=r'"$\\boxed{{{answer}}}$ {{}} {points}/{share}"',
    )
    assert source.fields == ("meta", "question", "answer", "points", "share")
    record = {"meta": {"topic": "Sums"}, "question": "1+1?", "answer": "2", "points": 3, "share": 0.5}
    assert parse(source, record) == Row("direct", "Sums:\n1+1?", r"$\boxed{2}$ {} 3/0.5")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x", "x"),
        (7, "7"),
        (-0.5, "-0.5"),
        (5.0, "5.0"),
        (float("nan"), None),
        (float("inf"), None),
        pytest.param(10**5000, None, id="5000 digits"),
        ([1], None),
        ({}, None),
        (b"x", None),
    ],
)
def test_a_template_takes_texts_and_numbers(load: Load, value: Any, said: str | None) -> None:
    expected = Malformed("answer_is_no_text") if said is None else Row("direct", "q", said)
    assert parse(load(response="'{answer}'"), {"question": "q", "answer": value}) == expected


def test_a_template_with_a_null_or_nothing_is_malformed(load: Load) -> None:
    source = load(response="'A: {answer}'")
    assert parse(source, {"question": "q", "answer": None}) == Malformed("null_answer")
    assert parse(source, {"question": "q"}) == Malformed("missing_answer")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("cot", Row("noisy,cot", "q", "a")),
        ("direct", Row("noisy,direct", "q", "a")),
        ("synth, cot ", Row("noisy,synth,cot", "q", "a")),
        ("CoT", Malformed("unknown_condition")),
        ("noisy", Malformed("unknown_condition")),
        ("", Malformed("unknown_condition")),
        (None, Malformed("null_kind")),
    ],
)
def test_a_condition_can_come_from_the_record(load: Load, kind: str | None, expected: Any) -> None:
    source = load(condition="'noisy,{kind}'")
    assert source.fields == ("question", "answer", "kind")
    assert parse(source, {"question": "q", "answer": "a", "kind": kind}) == expected


# --- where ----------------------------------------------------------------------------------------------------------


def test_where_says_which_records_are_wanted(load: Load) -> None:
    source = load(where="level >= 3 and question != 'no'")
    record = {"question": "q", "answer": "a", "level": 3}
    assert parse(source, record) == Row("direct", "q", "a")
    assert parse(source, record | {"level": 2}) == Drop("filtered_by_where")
    assert parse(source, record | {"level": None}) == Drop("filtered_by_where")
    assert parse(source, {"question": "no", "level": 3}) == Drop("filtered_by_where")  # before anything is missed
    assert parse(source, record | {"level": "3"}) == Malformed("where_failed")


def test_columns_of_where_are_needed_unless_it_asks_whether_they_are_there(load: Load) -> None:
    source = load(where="level > 1 and (not has(origin.site) or origin.site != 'x') and has(answer)")
    assert source.fields == ("question", "answer", "level")
    assert source.optional == ("origin",)


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_split_is_found_by_the_card_or_by_names(load: Load) -> None:
    source = load()
    listed = card(config("default", "train", "test"))
    files = ["default/test-0.parquet", "default/train-0.parquet", "default/train-1.parquet", "README.md"]
    assert taken(source, *files, card=listed) == ("default/train-0.parquet", "default/train-1.parquet")
    assert taken(source, "data/train.csv", "data/test.csv") == ("data/train.csv",)


def test_splits_are_read_in_their_order(load: Load) -> None:
    files = ["data/train-0.parquet", "data/validation-0.parquet", "data/test-0.parquet"]
    assert taken(load(split="[validation, train]"), *files) == ("data/validation-0.parquet", "data/train-0.parquet")


def test_files_that_say_nothing_of_splits_are_the_training_split(load: Load) -> None:
    files = ["README.md", "dataset_infos.json", "MetaMathQA-395K.json"]
    assert taken(load(), *files) == ("MetaMathQA-395K.json",)
    with pytest.raises(InputError, match="files of several formats"):
        taken(load(), "a.json", "b.csv")
    for files, card_text in (
        (["things.json", "test.json"], ""),
        (["things.json"], card(config("default", "test"))),
    ):
        with pytest.raises(InputError, match="no file of mine"):
            taken(load(), *files, card=card_text)


def test_the_card_s_default_configuration_is_read(load: Load) -> None:
    files = ["a/train-0.parquet", "b/train-0.parquet", "default/train-0.parquet"]
    both = [config("a", "train"), config("b", "train")]
    assert taken(load(), *files, card=card(both[0])) == ("a/train-0.parquet",)
    assert taken(load(), *files, card=card(*both, config("default", "train"))) == ("default/train-0.parquet",)
    marked = config("b", "train", more="  default: true\n")
    assert taken(load(), *files, card=card(both[0], marked)) == ("b/train-0.parquet",)
    assert taken(load(config="a"), *files, card=card(both[0], marked)) == ("a/train-0.parquet",)
    assert taken(load(config="a"), *files) == ("a/train-0.parquet",)


def test_of_several_configurations_one_has_to_be_named(load: Load) -> None:
    files, text = ["a/train-0.parquet", "b/train-0.parquet"], card(config("a", "train"), config("b", "train"))
    with pytest.raises(InputError, match=r"several configurations.*a, b"):
        taken(load(), *files, card=text)
    with pytest.raises(InputError, match=r"no such configuration.*'c'.*a, b"):
        taken(load(config="c"), *files, card=text)


def test_a_card_that_is_none_is_an_input_error(load: Load) -> None:
    with pytest.raises(InputError, match=r"README\.md"):
        taken(load(), "train.jsonl", card="---\nconfigs: 5\n---\n")
    with pytest.raises(InputError, match=r"README\.md"):
        taken(load(), "train.jsonl", card="---\na: [\n---\n")


def test_no_file_of_the_split_is_an_input_error(load: Load) -> None:
    with pytest.raises(InputError, match=r"mine: no file of mine; got test\.json; expected files of the split 'train'"):
        taken(load(), "test.json")


def test_a_file_without_a_reader_is_an_input_error(load: Load) -> None:
    with pytest.raises(InputError, match=r"train\.txt.*files:"):
        taken(load(), "train.txt")


def test_files_of_a_hub_data_set_can_be_named(load: Load) -> None:
    source = load(hub="org/mine", files="[b/*.csv, 'a/**/*.jsonl.gz']", revision="v2")
    assert source.origin == Hub("org/mine", ("b/*.csv", "a/**/*.jsonl.gz"), "v2")
    assert taken(source, "a/x/y.jsonl.gz", "a/z.jsonl.gz", "b/2.csv", "b/1.csv", "c.csv") == (
        "b/1.csv",
        "b/2.csv",
        "a/x/y.jsonl.gz",
        "a/z.jsonl.gz",
    )


def test_every_kind_of_file_of_a_hub_data_set_is_fetched(load: Load) -> None:
    from pairmill.sources.files.patterns import matching

    origin = load().origin
    assert isinstance(origin, Hub)
    files = ["README.md", "a/b/train-0.parquet", "notes.txt", "train.csv", "train.json.zst", "train.jsonl"]
    assert set(matching(origin.files, files)) == set(files) - {"README.md", "notes.txt"}


def test_rows_can_come_through_datasets(load: Load) -> None:
    source = load(via="datasets", config="main", split="[train, train_sft]", revision="v2")
    assert source.origin == HubRows("org/mine", ("train", "train_sft"), "main", "v2")
    files = ["train-00000.parquet", "train-00001.parquet", "train_sft-00000.parquet", "train-more.parquet"]
    assert taken(source, *files) == (*files[:2], files[2])
    assert load(via="datasets").origin == HubRows("org/mine", ("train",))


@pytest.mark.parametrize(
    ("files", "folder", "patterns"),
    [
        ("rows/*.parquet", "HERE/rows", ("*.parquet",)),
        ("rows/a.jsonl", "HERE/rows", ("a.jsonl",)),
        ("./rows//a.jsonl", "HERE/rows", ("a.jsonl",)),
        ("a.jsonl", "HERE", ("a.jsonl",)),
        ("../a.csv", "PARENT", ("a.csv",)),
        ("'**/a.csv'", "HERE", ("**/a.csv",)),
        ("[b/x.json, a/*/y.json]", "HERE", ("b/x.json", "a/*/y.json")),
        ("[rows/b/x.json, 'rows/a?/y.json']", "HERE/rows", ("b/x.json", "a?/y.json")),
        ("[rows/x.json, rows/a/y.json]", "HERE/rows", ("x.json", "a/y.json")),
        ("/data/sets/*.jsonl.zst", "/data/sets", ("*.jsonl.zst",)),
        ("file:///data/my%20sets/*.jsonl", "file:///data/my%20sets", ("*.jsonl",)),
        ("my sets/[x]*.jsonl", "HERE/my sets", ("[x]*.jsonl",)),
    ],
)
def test_files_are_given_below_one_folder(tmp_path: Path, files: str, folder: str, patterns: tuple[str, ...]) -> None:
    folder = folder.replace("HERE", str(tmp_path)).replace("PARENT", str(tmp_path.parent))
    raw = "/data" if "/data" in folder else str(tmp_path.parent)
    (tmp_path / "mine.yaml").write_text(FIVE_LINES.replace("hub: org/mine", f"files: {files}"))
    assert mapped.load(str(tmp_path / "mine.yaml"), raw).origin == Folder(folder, patterns)


SECRET = '{"question": "private_key", "answer": "-----BEGIN"}\n'


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A YAML file's folder ``here``, a raw folder ``raw``, and ``secrets`` beside both."""
    for name in ("here", "raw/deep", "raws", "secrets"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "key.json").write_text(SECRET)
    return tmp_path


def described(pod: Path, files: str) -> str:
    path = pod / "here" / "mine.yaml"
    path.write_text(FIVE_LINES.replace("hub: org/mine", f"files: {files}"))
    return str(path)


@pytest.mark.parametrize("raw", ["", "raw"])
@pytest.mark.parametrize(
    "files",
    [
        "POD/secrets/key.json",
        "../secrets/key.json",
        "../secrets/*.json",
        "'../*/key.json'",
        "'**/../../secrets/key.json'",
        "file://POD/secrets/key.json",
        "file://localhost/POD/secrets/key.json",
        "FILE://POD/%73ecrets/key.json",
        "POD/raw/../secrets/key.json",
        "POD/raws/key.json",
        "link/key.json",
        "[key.json, POD/secrets/key.json]",
        "/proc/self/environ.json",
        "/etc/*.json",
    ],
)
def test_files_of_the_machine_are_read_below_raw_and_the_description_alone(pod: Path, files: str, raw: str) -> None:
    (pod / "here" / "link").symlink_to(pod / "secrets")
    with pytest.raises(UsageError, match=r"mine\.yaml line 2, files: ") as caught:
        mapped.load(described(pod, files.replace("POD", str(pod))), str(pod / raw) if raw else "")
    assert "private_key" not in str(caught.value)
    if "too many .." not in str(caught.value):
        assert "raw=" in str(caught.value)


@pytest.mark.parametrize(
    "files",
    [
        "key.json",
        "POD/here/key.json",
        "POD/raw/key.json",
        "../raw/key.json",
        "file://POD/raw/key.json",
        "link/key.json",
    ],
)
def test_files_below_raw_or_beside_the_description_are_read(pod: Path, files: str) -> None:
    (pod / "raw" / "link").symlink_to("deep")
    (pod / "here" / "link").symlink_to(pod / "raw" / "deep")
    (pod / "rawlink").symlink_to("raw")
    for raw in ("raw", "rawlink"):
        source = mapped.load(described(pod, files.replace("POD", str(pod))), str(pod / raw))
        assert isinstance(source.origin, Folder)
        assert raw_files.open_folder(source, source.origin).sizes


def test_a_link_to_a_file_elsewhere_is_not_read(pod: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pod / "here" / "key.json").unlink()
    (pod / "here" / "key.json").symlink_to(pod / "secrets" / "key.json")
    source = mapped.load(described(pod, "'*.json'"), "")
    assert isinstance(source.origin, Folder)
    # Whether a store lists links or not.
    monkeypatch.setattr(LocalStore, "list_with_links", lambda *_, **__: ([Entry("key.json", 9)], []))
    with pytest.raises(
        InputError, match=r"a link leads outside the folders that mine may read.*secrets/key\.json.*raw="
    ):
        raw_files.open_folder(source, source.origin)


@pytest.mark.parametrize("files", ["/etc/key.json", "file:///etc/key.json", "POD/raw/key.json"])
def test_a_description_in_a_bucket_names_no_file_of_the_machine(
    pod: Path, monkeypatch: pytest.MonkeyPatch, files: str
) -> None:
    text = FIVE_LINES.replace("hub: org/mine", f"files: {files.replace('POD', str(pod))}").encode()
    file = Description("s3://bucket/sets/mine.yaml", text, str(pod / "raw"))
    with pytest.raises(UsageError, match=r"s3://bucket/sets/mine\.yaml line 2, files: .*may not name"):
        mapped.Mapped(file)
    beside = FIVE_LINES.replace("hub: org/mine", "files: a.csv").encode()
    source = mapped.Mapped(Description("s3://bucket/sets/mine.yaml", beside, ""))
    assert source.origin == Folder("s3://bucket/sets", ("a.csv",))


def test_files_beside_a_file_uri_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "my sets"
    folder.mkdir()
    (folder / "mine.yaml").write_text(FIVE_LINES.replace("hub: org/mine", "files: 100%/a.jsonl"))
    source = mapped.load((folder / "mine.yaml").as_uri())
    assert source.origin == Folder(f"{folder.as_uri()}/100%25", ("a.jsonl",))


def test_no_file_of_the_patterns_is_an_input_error(load: Load) -> None:
    with pytest.raises(InputError, match=r"mine: no file of mine; got b\.csv; expected \*\.jsonl; check files:"):
        taken(load(files="rows/*.jsonl"), "b.csv")


@pytest.mark.parametrize(
    ("keys", "output"),
    [
        ({}, "data/mine.jsonl"),
        ({"format": "jsonl"}, "data/mine.jsonl"),
        ({"format": "parquet"}, "data_clustered/mine/all.parquet"),
        ({"output": "data/Mine/a b.jsonl"}, "data/Mine/a b.jsonl"),
        ({"output": "data_clustered/mine.parquet"}, "data_clustered/mine.parquet"),
    ],
)
def test_the_output_is_said_by_format_or_path(load: Load, keys: dict[str, str], output: str) -> None:
    (unit,) = load(**keys).units(["train.csv"], "", "pairmill", SourceOptions())
    assert unit.output == output


def test_rows_come_through_the_readers(load: Load, tmp_path: Path) -> None:
    source = load(files="'*.parquet'", where="has(level) or question != 'x'", **CHAT)
    messages = [[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], None]
    table = pa.table({"messages": messages, "question": ["y", "x"], "unread": [1, 2]})
    pq.write_table(table, tmp_path / "one.parquet")
    records = [record for _, record in source.read(FileSlice("one.parquet", str(tmp_path / "one.parquet")), "pairmill")]
    assert list(records[0]) == ["messages", "question"]
    assert [parse(source, record) for record in records] == [Row("direct", "q", "a"), Drop("filtered_by_where")]
    pq.write_table(pa.table({"messages": messages}), tmp_path / "two.parquet")
    with pytest.raises(InputError, match="column 'question' is missing"):
        list(source.read(FileSlice("two.parquet", str(tmp_path / "two.parquet")), "pairmill"))


def test_numbers_of_csv_are_texts(load: Load, tmp_path: Path) -> None:
    source = load(files="'*.csv'", where="number(level) >= 3")
    (tmp_path / "one.csv").write_text("question,answer,level\nq,1,3\nr,2,2\ns,3,\n")
    records = [record for _, record in source.read(FileSlice("one.csv", str(tmp_path / "one.csv")), "pairmill")]
    filtered = Drop("filtered_by_where")
    assert [parse(source, record) for record in records] == [Row("direct", "q", "1"), filtered, filtered]


# --- identity -------------------------------------------------------------------------------------------------------


def test_another_meaning_is_another_version(load: Load) -> None:
    base: dict[str, str] = {"where": "a == 1"}
    changes: list[dict[str, str]] = [
        {},
        {"condition": "cot"},
        {"instruction": "query"},
        {"response": "'{answer}'"},
        {"where": "a == 2"},
        {"strip": "false"},
        {"format": "parquet"},
        {"split": "test"},
        {"split": "[train, test]"},
        {"split": "[test, train]"},
        {"config": "main"},
        {"files": "a.csv", "hub": "org/mine"},
    ]
    versions = [load(**(base | change)).version for change in changes]
    assert len(set(versions)) == len(changes)
    assert all(0 < version < 2**48 for version in versions)


def test_what_changes_no_row_changes_no_version(load: Load) -> None:
    version = load().version
    text = '# Mine.\nresponse: "answer"\ninstruction: question\ncondition: " direct"\nhub: org/mine\nname: mine\n'
    for same in (
        load(split="train"),
        load(split="[train]"),
        load(strip="true"),
        load(format="jsonl"),
        load(output="data/mine.jsonl"),
        load(licence="MIT", citation="Me", revision="v2", hub="other/mine", via="datasets"),
        load(name="yours", output="data/mine.jsonl"),
        load(text.replace('" direct"', "direct")),
    ):
        assert same.version == version


def test_files_that_move_together_with_the_description_keep_its_version(tmp_path: Path) -> None:
    versions = set()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "mine.yml"
        path.write_text(FIVE_LINES.replace("hub: org/mine", "files: rows/*.jsonl"))
        versions.add(mapped.load(str(path)).version)
    assert len(versions) == 1


def test_a_source_crosses_process_borders(load: Load) -> None:
    source = load(where="len(question) > 1", condition="'{kind}'", response="'A: {answer}'", licence="MIT")
    again = pickle.loads(pickle.dumps(source))
    for name in ("name", "origin", "licence", "citation", "fields", "optional", "version", "format"):
        assert getattr(again, name) == getattr(source, name)
    record = {"question": "qq", "answer": 5, "kind": "cot"}
    assert parse(again, record) == parse(source, record) == Row("cot", "qq", "A: 5")
    assert taken(again, "train.csv") == ("train.csv",)


def test_two_sources_do_not_share_what_they_are(load: Load) -> None:
    one = load()
    other = load(name="yours", instruction="query")
    assert (one.name, one.fields) == ("mine", ("question", "answer"))
    assert (other.name, other.fields) == ("yours", ("query", "answer"))


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "line", "said"),
    [
        ({"name": "My Set"}, "line 1, name", "not a valid name of a source; got 'My Set'"),
        ({"name": "_mine"}, "line 1, name", "not a valid name of a source"),
        ({"name": "a" * 101}, "line 1, name", "at most 100"),
        ({"name": "5"}, "line 1, name", "not a text; got 5; .*quote a text that looks like one: '5'"),
        ({"name": "gsm8k_train"}, "line 1, name", "a built-in source has this name"),
        ({"name": "all"}, "line 1, name", "has this name"),
        ({"name": ""}, "line 1, name", "not a text; got nothing"),
        ({"name": "' '"}, "line 1, name", "is empty"),
        ({"hub": "https://huggingface.co/datasets/a/b"}, "line 2, hub", "leave out https://"),
        ({"hub": "a/b/c"}, "line 2, hub", "expected owner/name"),
        ({"hub": "../b"}, "line 2, hub", "expected owner/name"),
        ({"condition": "dirct"}, "line 3, condition", "unknown tag; got 'dirct'.*did you mean 'direct'"),
        ({"condition": "direct,"}, "line 3, condition", "unknown tag; got ''; expected some of direct, cot"),
        ({"condition": "cot,synth,cot"}, "line 3, condition", "the same tag occurs twice; got 'cot'"),
        ({"condition": "[direct, cot]"}, "line 3, condition", "not a text; got a list"),
        ({"condition": "no"}, "line 3, condition", "got False"),
        ({"condition": "'{kind'"}, "line 3, condition", "unmatched brace"),
        ({"condition": "legal"}, "line 3, condition", r"unknown tag; got 'legal'.*write tags: \['legal=<\|legal\|>'\]"),
        ({"tags": "legal"}, "line 6, tags", r"not a tag; got 'legal'; expected name=token, such as legal=<\|legal\|>"),
        ({"tags": "Legal=<|x|>"}, "line 6, tags", "not a tag"),
        ({"tags": "legal="}, "line 6, tags", "not a tag"),
        ({"tags": "'legal=two words'"}, "line 6, tags", "a token has no space"),
        ({"tags": "[a=<|a|>, 5]"}, "line 6, tags", "not a text; got 5"),
        ({"tags": "cot=<|x|>"}, "line 6, tags", "every tokenizer has a token for this tag; got 'cot'"),
        ({"tags": "[a=<|a|>, 'a = <|b|>']"}, "line 6, tags", "the same tag occurs twice"),
        ({"tags": "[a=<|a|>, b=<|a|>]"}, "line 6, tags", "two tags have the same token"),
        ({"instruction": "Solve the sudoku"}, "line 4, instruction", "not a valid path.*in braces"),
        ({"instruction": "messages[user]"}, "line 4, instruction", r"not a valid path.*messages\[role=user\]"),
        ({"instruction": "{question}"}, "line 4, instruction", "not a text; got a mapping.*in quotes"),
        ({"instruction": "['A column']"}, "line 4, instruction", "not a text; got a list.*in quotes"),
        ({"instruction": "#### {answer}"}, "line 4, instruction", "not a text; got nothing.*in quotes"),
        ({"response": "'{answer} }'"}, "line 5, response", "unmatched brace"),
        ({"response": "'{a{b}}'"}, "line 5, response", "unmatched brace"),
        ({"response": "'A: {the answer}'"}, "line 5, response", "not a valid path; got 'the answer'"),
        ({"response": "'A: {}'"}, "line 5, response", "not a valid path; got ''"),
        ({"response": "'{{answer}}'"}, "line 5, response", "is the same for every record"),
        ({"response": r'"\ud800{answer}"'}, "line 5, response", "unpaired surrogate"),
        ({"response": "2024-01-01"}, "line 5, response", "not a text"),
        ({"where": "level = 3"}, "line 6, where", "not a valid expression"),
        ({"where": "open('x')"}, "line 6, where", "unknown function"),
        ({"where": "true and"}, "line 6, where", "not a valid expression"),
        ({"where": "true"}, "line 6, where", "not a text; got True"),
        ({"where": "'5'"}, "line 6, where", "expected true or false"),
        ({"strip": "'yes'"}, "line 6, strip", "not a boolean; got 'yes'"),
        ({"strip": "1"}, "line 6, strip", "got 1; expected true or false"),
        ({"format": "csv"}, "line 6, format", "expected jsonl or parquet"),
        ({"output": "../x.jsonl"}, "line 6, output", "not a valid path of an output"),
        ({"output": "data/../x.jsonl"}, "line 6, output", "not a valid path of an output"),
        ({"output": "/data/x.jsonl"}, "line 6, output", "not a valid path of an output"),
        ({"output": "rows/x.jsonl"}, "line 6, output", "below data/ or data_clustered/"),
        ({"output": "data//x.jsonl"}, "line 6, output", "not a valid path of an output"),
        ({"output": "'data/{}.jsonl'"}, "line 6, output", "not a valid path of an output"),
        ({"output": "data/x.csv"}, "line 6, output", r"expected \.jsonl or \.parquet"),
        ({"output": "data/.jsonl"}, "line 6, output", "not a valid path of an output"),
        ({"output": "data/x.jsonl", "format": "jsonl"}, "line 7, format", "output: already says the format"),
        ({"split": "[]"}, "line 6, split", "the list is empty"),
        ({"split": "[train, train]"}, "line 6, split", "the same text occurs twice"),
        ({"split": "[train, 5]"}, "line 6, split", "not a text; got 5"),
        ({"split": "{train: x}"}, "line 6, split", "got a mapping; expected a text or a list of texts"),
        ({"via": "pandas"}, "line 6, via", "expected datasets"),
        ({"files": "a.jsonl", "split": "train"}, "line 6, split", "needs hub:"),
        ({"files": "a.jsonl", "revision": "v2"}, "line 6, revision", "needs hub:"),
        ({"files": "a.jsonl", "hub": "a/b", "config": "x"}, "line 7, config", "files: says which files are read"),
        ({"files": "a.jsonl", "hub": "a/b", "via": "datasets"}, "line 7, via", "files: says which files are read"),
        ({"files": "a.txt"}, "line 2, files", r"no reader.*got 'a\.txt'"),
        ({"files": "rows/*"}, "line 2, files", "no reader"),
        ({"files": "a.parquet.gz"}, "line 2, files", "no reader"),
        ({"files": "/a.jsonl"}, "line 2, files", "not the top of the file system"),
        ({"files": "[/a/x.jsonl, /b/x.jsonl]"}, "line 2, files", "below one folder"),
        ({"files": "[/a/x.jsonl, 'file:///a/y.jsonl']"}, "line 2, files", "below one folder"),
        ({"files": "[gs://a/b/x.jsonl, gs://c/b/y.jsonl]"}, "line 2, files", "below one folder"),
        ({"files": "ftp://a/b/x.jsonl"}, "line 2, files", "no storage backend"),
        ({"files": "/a/../../x.jsonl"}, "line 2, files", r"too many \.\."),
        ({"files": "a/*/../x.jsonl"}, "line 2, files", r"too many \.\."),
        ({"files": "/a.jsonl", "hub": "a/b"}, "line 6, files", "is outside the data set"),
        ({"files": "../a.jsonl", "hub": "a/b"}, "line 6, files", "is outside the data set"),
        ({"files": "s3://a/b.jsonl", "hub": "a/b"}, "line 6, files", "is outside the data set"),
        ({"files": "a.txt", "hub": "a/b"}, "line 6, files", "no reader"),
        ({"licence": "[MIT]"}, "line 6, licence", "not a text; got a list"),
        ({"citation": ""}, "line 6, citation", "not a text; got nothing"),
        ({"wher": "level == 3"}, "line 6", "unknown key 'wher'.*did you mean 'where'"),
        ({"license": "MIT"}, "line 6", "unknown key 'license'.*did you mean 'licence'"),
        ({"5": "MIT"}, "line 6", "unknown key '5'"),
        ({"[a]": "MIT"}, "line 6", "unknown key"),
        ({"<<": "{where: x}"}, "line 6", "unknown key '<<'"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(
    load: Load, keys: dict[str, str], line: str, said: str
) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        load(**keys)
    assert str(caught.value).split(": ")[0].endswith(f"mine.yaml {line}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (" ", "is not a mapping; got nothing"),
        ("# nothing\n", "got nothing"),
        ("- name: mine\n", "got sequence"),
        ("mine\n", "got scalar"),
        ("name: mine\n", "required key missing; got name; expected condition, instruction, response"),
        (FIVE_LINES.replace("hub: org/mine\n", ""), "does not say where the data is"),
        (FIVE_LINES + "name: other\n", "lines 1 and 6, name: the key occurs twice"),
        (FIVE_LINES + "where: 'a' in b\n", "line 6: not valid YAML.*quote"),
        (FIVE_LINES.replace("question", "Q: {question}"), "line 4: not valid YAML.*quote"),
        (FIVE_LINES + "---\nname: other\n", "not valid YAML"),
        (FIVE_LINES + "licence: *unknown\n", "line 6: not valid YAML"),
        (FIVE_LINES + "licence: !!python/name:os.system x\n", "line 6: not valid YAML"),
        (FIVE_LINES + "licence: 2024-99-99\n", "not valid YAML"),
        (FIVE_LINES + "licence: " + "[" * 5000 + "\n", "not valid YAML"),
        (FIVE_LINES + "licence: \a\n", "not valid YAML"),
        (FIVE_LINES + "licence: " + "x" * 70_000, "is too large"),
        (FIVE_LINES + "licence: &a [*a]\n", "not a text; got a list"),
    ],
)
def test_a_file_that_describes_no_source_is_refused(load: Load, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load(text)


def test_aliases_make_no_message_without_end(load: Load) -> None:
    levels = "".join(f", &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))
    with pytest.raises(UsageError, match="got a list") as caught:
        load(f"{FIVE_LINES}split: [&a0 [x]{levels}]\n")
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("data", [b"\xff\xfe\xfa", b"name: \xe9\n", b"\0"])
def test_bytes_that_are_no_text_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "mine.yaml").write_bytes(data)
    with pytest.raises(UsageError):
        mapped.load(str(tmp_path / "mine.yaml"))


def test_a_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"sources=.*mine\.yaml: no such file"):
        mapped.load(str(tmp_path / "mine.yaml"))
    with pytest.raises(UsageError, match="no storage backend"):
        mapped.load("ftp://host/mine.yaml")


# --- any record -----------------------------------------------------------------------------------------------------


def anything(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(16 if depth < 4 else 10)
    if kind >= 13:
        return [anything(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind >= 10:
        keys = ["question", "messages", "role", "content", "kind", "level"]
        return {draw.choice(keys): anything(draw, depth + 1) for _ in range(draw.randrange(6))}
    return [None, True, draw.randrange(-5, 5), draw.random(), "", "user", "cot", float("nan"), b"x", "\ud800"][kind]


def test_any_record_gives_a_row_or_a_reason(load: Load) -> None:
    sources = [
        load(response="content"),
        load(**CHAT),
        load(instruction="'{question} {level}'", response="messages[-1].content", condition="'{kind}'"),
        load(response="content", where="level > 0 and (len(content) > 1 or contains(question, role) or not has(kind))"),
        load(
            instruction="'{question}[[ {level}]][[ {messages|at(level)}]]'", response="'{content|lines}[[{kind|json}]]'"
        ),
        load(instruction="'{content|letters}{level|letter}'", response="'{kind|yes_no}{messages|date}'"),
    ]
    draw = random.Random(20261121)
    seen: dict[str, int] = {}
    for _ in range(draws(4000)):
        keys = ["question", "messages", "role", "content", "kind", "level"]
        record = (
            {key: anything(draw) for key in keys if draw.random() < 0.9} if draw.random() < 0.98 else anything(draw)
        )
        if isinstance(record, dict) and draw.random() < 0.5:
            record["messages"] = [
                {"role": draw.choice(["user", "assistant"]), "content": anything(draw)}
                for _ in range(draw.randrange(4))
            ]
        for source in sources:
            found = parse(source, record)
            if not isinstance(found, Row | Drop):
                found, further = found
                assert further.what == "further_turns"
                assert 0 < further.times < 3
            if isinstance(found, Malformed) and draw.random() < 0.02:
                assert isinstance(source.explain(record, found).found, str)
            seen[type(found).__name__] = seen.get(type(found).__name__, 0) + 1
            if isinstance(found, Row):
                assert all(isinstance(text, str) for text in found)
                assert set(found.condition.split(",")) <= set(TAGS)
    assert set(seen) == {"Row", "Drop", "Malformed"}


# --- examples and documentation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_a_source(path: Path) -> None:
    assert mapped.load(str(path)).name == path.stem


def test_the_examples_make_rows() -> None:
    metamath, ultrachat, exercises = (
        mapped.load(str(EXAMPLES / f"{name}.yaml")) for name in ("metamath", "ultrachat", "exercises")
    )
    assert parse(metamath, {"query": "q", "response": "r"}) == Row("synth,cot", "q", "r")
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}]
    assert parse(ultrachat, {"messages": messages})[0] == Row("synth,direct", "q", "r")
    record = {
        "topic": "Sums",
        "problem": {"text": "1+1?"},
        "kind": "cot",
        "steps": ["Count.", "So 2."],
        "answer": 2,
        "rating": 4,
        "language": "en",
    }
    assert exercises.optional == ("source",)
    assert parse(exercises, record) == Row("noisy,cot", "Topic: Sums\n\n1+1?", "So 2.\n\nThe answer is $\\boxed{2}$.")
    assert parse(exercises, record | {"source": "Some Benchmark"}) == Drop("filtered_by_where")


def test_the_examples_of_optional_parts_and_tables_make_rows(tmp_path: Path) -> None:
    alpaca, quiz = (mapped.load(str(EXAMPLES / f"{name}.yaml")) for name in ("alpaca", "quiz"))
    record = {"instruction": "Add.", "input": "1, 2", "output": "3"}
    assert parse(alpaca, record) == Row("synth,direct", "Add.\n\n1, 2", "3")
    assert parse(alpaca, record | {"input": ""}) == Row("synth,direct", "Add.", "3")
    assert alpaca.optional == ("input",)
    path = tmp_path / "a.tsv"
    path.write_bytes('7\t"Né" is\ta\tb\tc\td\t2\t\n8\tWhat?\ta\tb\tc\td\t0\tNo €\n'.encode("cp1252"))
    found = [parse(quiz, record) for _, record in quiz.read(FileSlice("a.tsv", str(path)), "pairmill")]
    assert found == [
        Row("quiz,direct", '"Né" is\nA: a\nB: b\nC: c\nD: d', "C"),
        Row("quiz,direct", "What?\nA: a\nB: b\nC: c\nD: d", "A. No €"),
    ]


def test_the_documentation_names_every_key_and_function() -> None:
    text = (REPOSITORY / "docs" / "sources.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("|")]
    firsts = {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert set(KEYS) <= firsts
    assert set(FUNCTIONS.values()) <= firsts
    assert all(f"    {line}" in text for line in (EXAMPLES / "metamath.yaml").read_text().splitlines())


# --- the whole stage ------------------------------------------------------------------------------------------------


@pytest.fixture
def mine(tmp_path: Path) -> dict[str, str]:
    """Options of fetch and clean for one described source with its files."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "a.jsonl").write_text('{"question": "q", "answer": "a"}\n')
    (here / "mine.yaml").write_text(FIVE_LINES.replace("hub: org/mine", "files: a.jsonl"))
    return {"sources": str(here / "mine.yaml"), "root": str(tmp_path / "root"), "workers": "1"}


def test_raw_is_not_needed_where_every_source_has_files(mine: dict[str, str], tmp_path: Path) -> None:
    assert runner.run(Clean(), build(CleanConfig, mine)).manifest.ledger.rows_kept == 1
    # What fetch was given it may read; what fetch made an index of clean finds there.
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "here" / "a.jsonl").rename(other / "a.jsonl")
    (tmp_path / "here" / "mine.yaml").write_text(FIVE_LINES.replace("hub: org/mine", f"files: {other}/a.jsonl"))
    with pytest.raises(UsageError, match="is outside the folders"):
        Clean().plan(build(CleanConfig, mine))
    elsewhere = {**mine, "raw": str(other)}
    index = runner.run(Fetch(), build(FetchConfig, elsewhere)).uri
    assert runner.run(Clean(), build(CleanConfig, elsewhere)).manifest.ledger.rows_kept == 1
    assert runner.run(Clean(), build(CleanConfig, {**mine, "raw": index})).manifest.ledger.rows_kept == 1


@pytest.mark.parametrize("sources", ["all", "gsm8k_train", "MINE,gsm8k_train", "HUB", "MINE,HUB"])
def test_raw_is_needed_by_every_other_source(mine: dict[str, str], tmp_path: Path, sources: str) -> None:
    (tmp_path / "hub.yaml").write_text(FIVE_LINES.replace("name: mine", "name: theirs"))
    given = sources.replace("MINE", mine["sources"]).replace("HUB", str(tmp_path / "hub.yaml"))
    with pytest.raises(UsageError, match=r"^raw: required; got nothing, and sources=.*expected what fetch printed"):
        Clean().plan(build(CleanConfig, {**mine, "sources": given}))


@pytest.mark.parametrize("kind", ["absent", "empty", "a file"])
def test_raw_is_looked_at_wherever_it_is_given(mine: dict[str, str], tmp_path: Path, kind: str) -> None:
    raw = tmp_path / "nope"
    if kind == "empty":
        raw.mkdir()
    elif kind == "a file":
        raw.write_text("x")
    for stage, config in ((Clean(), CleanConfig), (Fetch(), FetchConfig)):
        with pytest.raises(InputError, match="nope"):
            stage.plan(build(config, {**mine, "raw": str(raw)}))


def test_clean_makes_rows_of_a_described_source(tmp_path: Path) -> None:
    rows = tmp_path / "sets" / "rows"
    rows.mkdir(parents=True)
    lines = [
        {"q": " One? ", "a": {"text": "1"}, "level": 3},
        {"q": "Two?", "a": {"text": "2"}, "level": 1},
        {"q": "Three?", "a": {"text": None}, "level": 5},
        {"q": "Four?", "a": {"text": "4"}, "level": 4},
    ]
    (rows / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    description = tmp_path / "mine.yaml"
    description.write_text(
        "name: mine\nfiles: sets/rows/*.jsonl\ncondition: cot\ninstruction: q\nresponse: a.text\nwhere: level > 1\n"
    )
    arguments = (f"raw={tmp_path / 'sets'}", f"sources={description}", f"root={tmp_path / 'out'}", "workers=1")
    done = tools.run([*tools.command("clean"), *arguments, "max_reject_fraction=0.5"])
    assert done.code == 0, done.err
    folder = Path(done.out.strip().splitlines()[-1])
    assert (folder / "data" / "mine.jsonl").read_text() == (
        '{"condition":"cot","instruction":"One?","response":"1"}\n'
        '{"condition":"cot","instruction":"Four?","response":"4"}\n'
    )
    ledger = json.loads((folder / "_MANIFEST.json").read_text())["data"]["sources"]["mine"]["ledger"]
    assert ledger["dropped"] == {"filtered_by_where": 1, "null_a.text": 1}
    description.write_text(description.read_text().replace("level > 1", "level > 3"))
    again = tools.run([*tools.command("clean"), *arguments, "max_reject_fraction=0.5"])
    assert again.out != done.out
    description.write_text(description.read_text().replace("condition", "conditon"))
    refused = tools.run([*tools.command("clean"), *arguments])
    assert refused.code == 2
    assert "did you mean 'condition'" in refused.err


@pytest.mark.parametrize("place", ["beside the description", "below raw=", "a folder of links alone"])
def test_a_link_that_is_named_exactly_is_read(tmp_path: Path, place: str) -> None:
    # As the Hub's own cache has them.
    blob = tmp_path / "blobs" / "0a1b"
    blob.parent.mkdir()
    blob.write_text('{"q": "One?", "a": "1"}\n')
    snapshot = tmp_path / ("snapshot" if place == "beside the description" else "raw/mine")
    snapshot.mkdir(parents=True)
    raw = snapshot if place == "beside the description" else snapshot.parent
    (snapshot / "a.jsonl").symlink_to(blob)
    (snapshot / "b.jsonl").symlink_to(blob)
    if place != "a folder of links alone":
        (raw / "README.md").write_text("")
    description = tmp_path / "mine.yaml"

    def clean(files: str) -> runner.Result:
        more = "condition: cot\ninstruction: q\nresponse: a\n"
        description.write_text(f"name: mine\nfiles: {files}\n{more}")
        root = str(tmp_path / "root")
        fetched = runner.run(Fetch(), FetchConfig(root=root, raw=str(raw), sources=[str(description)], workers=1))
        given = runner.run(Clean(), CleanConfig(root=root, raw=str(raw), sources=[str(description)], workers=1))
        config = CleanConfig(root=f"{root}2", raw=fetched.uri, sources=[str(description)], workers=1)
        digests = [
            [file.digest for file in one.manifest.files if file.task] for one in (given, runner.run(Clean(), config))
        ]
        assert digests[0] == digests[1]
        return given

    folder = snapshot if place == "beside the description" else tmp_path / "elsewhere"
    assert clean(f"{folder}/a.jsonl").manifest.ledger.rows_out == 1
    assert clean(f"[{folder}/b.jsonl, {folder}/a.jsonl]").manifest.ledger.rows_out == 2
    with pytest.raises(PairmillError) as caught:
        clean(f"{folder}/*.jsonl")
    assert caught.value.exit_code == 3
    blob.unlink()
    with pytest.raises(PairmillError) as caught:
        clean(f"{folder}/a.jsonl")
    assert caught.value.exit_code == 3


Cleaned = Callable[..., Manifest]


@pytest.fixture
def clean(tmp_path: Path) -> Cleaned:
    """Cleans records in one file, or in one of each name, by a YAML file of these keys."""

    def cleaned(records: Any, options: dict[str, Any] | None = None, **keys: str) -> Manifest:
        files = records if isinstance(records, dict) else {"a.jsonl": records}
        for name, content in files.items():
            path = tmp_path / "raw" / "mine" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if name.endswith(".parquet"):
                pq.write_table(pa.Table.from_pylist(content), path)
            elif name.endswith(".csv"):
                rows = [list(content[0]), *(one.values() for one in content)]
                path.write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
            else:
                path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in content))
        values = dict(line.split(": ", 1) for line in FIVE_LINES.splitlines()) | {"files": "'**'"} | keys
        del values["hub"]
        values["files"] = f"['mine/*{Path(next(iter(files))).suffix}']"
        description = tmp_path / "raw" / "mine.yaml"
        description.write_text("".join(f"{key}: {value}\n" for key, value in values.items()))
        place = {"raw": str(tmp_path / "raw"), "root": str(tmp_path / "root"), "sources": [str(description)]}
        config = CleanConfig(**{"workers": 1, **place, **(options or {})})
        return runner.run(Clean(), config).manifest

    return cleaned


GOOD: list[Any] = [{"question": f"q{number}", "answer": "a", "level": number, "tags": ["x"]} for number in range(4)]


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"where": "levle >= 3"}, r"line 6, where: .*'levle'.*did you mean 'level'"),
        ({"where": "not Level"}, r"'Level'.*did you mean 'level'"),
        ({"where": "has(answer) and (has(other) or levle == 3)"}, "'levle'.*did you mean 'level'"),
        ({"instruction": "qestion"}, "line 3, instruction: .*'qestion'.*did you mean 'question'"),
        ({"response": "'A: {anwser}'"}, "line 4, response: .*'anwser'.*did you mean 'answer'"),
        ({"condition": "'{knid}'"}, "line 2, condition: .*'knid'"),
    ],
)
def test_a_path_that_no_record_has_is_an_error(clean: Cleaned, kind: str, keys: dict[str, str], said: str) -> None:
    good = [{key: value for key, value in one.items() if key != "tags"} for one in GOOD]
    options = {"max_reject_fraction": 1.0}
    if kind == "jsonl":
        with pytest.raises(InputError, match=f"{said}") as caught:
            clean(good, options, **keys)
        assert "question, answer, level" in str(caught.value)
        assert "no record of mine has" in str(caught.value)
    else:
        # A table says which columns it has: the shard fails.
        with pytest.raises(
            StageFailure, match=r"column '\w+' is missing.*" + "|".join(re.findall("did .*", said))
        ) as f:
            clean({f"a.{kind}": good}, options, **keys)
        assert f.value.exit_code == 3


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"where": "meta.langage == 'en'"}, "got language, n at meta;.*did you mean 'meta.language'"),
        ({"where": "meta.language.code == 'en'"}, "got a text at meta.language;"),
        (
            {"response": "chat[role=asistant].content"},
            r"got user, assistant at chat;.*'chat\[role=assistant\].content'",
        ),
        ({"response": "chat[1].contnet"}, r"did you mean 'chat\[1\].content'"),
        ({"response": "chat[7].content"}, r"got a list of 2 at chat;"),
        ({"response": "chat.content"}, r"got a list of 2 at chat;"),
    ],
)
def test_a_path_within_a_field_that_no_record_has_is_an_error(
    clean: Cleaned, keys: dict[str, str], said: str, suffix: str
) -> None:
    chat = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    record = {"question": "q", "answer": "a", "meta": {"language": "en", "n": 1}, "chat": chat}
    with pytest.raises(InputError, match=said):
        clean({f"a.{suffix}": [record] * 3}, {"max_reject_fraction": 1.0}, **keys)


@pytest.mark.parametrize(
    "where",
    [
        "has(levle) or level >= 0",
        "not has(levle) or levle >= 3",
        "not has(origin) or origin.site != 'x'",
        "not has(tags[3])",
        "level >= 0",
    ],
)
def test_a_path_that_is_asked_for_may_be_in_no_record(clean: Cleaned, where: str) -> None:
    assert clean(GOOD, where=where).ledger.rows_kept == 4


def test_a_path_below_one_that_is_asked_for_is_missed_where_that_is_there(clean: Cleaned) -> None:
    records = [*GOOD, {**GOOD[0], "origin": {"site": "x"}}]
    assert clean(records, where="not has(origin) or origin.site != 'x'").ledger.rows_kept == 4
    with pytest.raises(InputError, match=r"'origin\.stie'.*got site at origin;.*did you mean 'origin\.site'"):
        clean(records, where="not has(origin) or origin.stie != 'x'")


def test_one_record_of_any_shard_is_enough(clean: Cleaned, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no shard sees alone is decided over all of them, by a run that goes on as well."""
    monkeypatch.setattr(core, "SLICING", Slicing(1, 1 << 40))
    files = {f"{number}.jsonl": [{"question": "q", "answer": "a"}, {"more": number}] for number in range(4)}
    for _ in range(2):
        with pytest.raises(InputError, match=r"got question, answer, more; expected .*one of the 8 records"):
            clean(files, where="not rare")
    files["3.jsonl"].append({"question": "q", "answer": "a", "rare": True})
    manifest = clean(files, {"max_reject_fraction": 1.0}, where="not rare")
    assert (len(manifest.shards), manifest.ledger.rows_kept) == (4, 4)


def test_a_null_is_there_and_what_is_no_record_says_nothing(clean: Cleaned) -> None:
    nulls = [{**one, "flag": None} for one in GOOD]
    assert clean(nulls, where="not flag").ledger.rows_kept == 4
    options = {"max_reject_fraction": 1.0}
    assert clean(["5", "{", "[]"], options, where="not flag").ledger.dropped == {"not_an_object": 2, "invalid_json": 1}
    with pytest.raises(InputError, match="contain no record"):
        clean([], where="not flag")


def test_what_a_record_of_a_thousand_names_says_stays_small(clean: Cleaned, tmp_path: Path) -> None:
    records = [{**GOOD[0], **{f"{number}-{name}" * 50: 1 for name in range(100)}} for number in range(100)]
    with pytest.raises(InputError) as caught:
        clean(records, where="levle > 1")
    assert len(str(caught.value)) < 4000
    (record,) = tmp_path.glob("root/clean/shards/*/_RECORD.json")
    assert record.stat().st_size < 20_000


# Chats ----------------------------------------------------------------------------------------------------------------


def turns(count: int, *, system: bool = False, unanswered: bool = False) -> dict[str, Any]:
    said = [{"role": role, "content": f"{role} {n}"} for n in range(count) for role in ("user", "assistant")]
    first = [{"role": "system", "content": "Be kind."}] * system
    return {"messages": [*first, *said, *([{"role": "user", "content": "And?"}] * unanswered)]}


@pytest.mark.parametrize(
    ("keys", "system"),
    [
        (CHAT, False),
        (CHAT, True),
        ({"instruction": "messages[0].content", "response": "messages[1].content"}, False),
        ({"instruction": "messages[1].content", "response": "messages[2].content"}, True),
        ({"instruction": "'Q: {messages[-2].content}'", "response": "'{messages[-1].content}'"}, False),
        ({"instruction": "messages[role=user].content", "response": "messages[1].content"}, False),
    ],
)
def test_further_turns_of_chats_are_counted(clean: Cleaned, keys: dict[str, str], system: bool) -> None:
    chats = [turns(count, system=system) for count in (1, 2, 5, 1, 3)]
    manifest = clean(chats, **keys)
    assert (manifest.ledger.rows_kept, manifest.ledger.rows_out) == (5, 5)
    assert manifest.ledger.notes == {"further_turns": 1 + 4 + 2}
    report = report_of(manifest)
    (said,) = report.look_at
    assert said.startswith(
        "Further turns of conversations are left out: mine (7). A row is made of the first. With turns:"
    )
    assert "7 turns" in report.html()


def test_an_unanswered_request_is_no_turn_and_a_list_is_no_chat(clean: Cleaned) -> None:
    assert clean([turns(1, unanswered=True)], **CHAT).ledger.notes == {}
    lists = [{"question": "q", "answer": "a", "steps": ["1", "2", "3"], "choices": [{"text": "x"}, {"text": "y"}]}]
    for response in ("steps[-1]", "choices[0].text"):
        assert clean(lists, response=response).ledger.notes == {}
    dropped = clean([turns(3)], where="matches(messages[0].content, 'none')", **CHAT)
    assert (dropped.ledger.rows_kept, dropped.ledger.notes) == (0, {})


# Malformed records ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "keys", "found", "write"),
    [
        ({"answer": ["a", "b"]}, {}, "a list of 2", 'response: "{answer|lines}" or response: answer[0]'),
        (
            {"answer": ["a"]},
            {"response": "'A: {answer}'"},
            "a list of 1",
            'response: "A: {answer|lines}" or response: "A: {answer[0]}"',
        ),
        ({"answer": 5}, {}, "the number 5", 'response: "{answer}"'),
        ({"answer": {"n": 1, "text": "a"}}, {}, "an object with n, text", "response: answer.text"),
        (
            {"answer": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
            {},
            "a list of 2",
            "response: answer[role=assistant].content",
        ),
        ({"answer": None}, {}, "null", "where: has(answer)"),
        ({"answer": None}, {"where": "level > -9"}, "null", "where: has(answer) and (level > -9)"),
        ({"answer": True}, {}, "true", 'response: "{answer}"'),
        ({"answer": "a", "level": "3"}, {"where": "level > -9"}, "a text and a number", "where: number(level) > -9"),
        ({"answer": "a", "level": "hard"}, {"where": "level > -9"}, "a text and a number", ""),
    ],
)
def test_a_malformed_record_comes_with_what_was_found_and_the_line_to_write(
    clean: Cleaned, tmp_path: Path, wrong: dict[str, Any], keys: dict[str, str], found: str, write: str
) -> None:
    bad = [{"question": "q", "level": 1, **wrong}] * 1000
    with pytest.raises(InputError) as caught:
        clean([GOOD[0], *bad], **keys)
    said = str(caught.value)
    assert said.count("mine/a.jsonl row 2: ") == 1
    assert "row 3" not in said
    assert f"found {found}" in said
    assert "1,000 such" in said
    if write:
        assert f"write in {tmp_path / 'raw' / 'mine.yaml'}: {write}" in said
        assert "mend the raw data" not in said
    else:
        assert "mend the raw data" in said
    for line in re.split(r" or (?=\w+: )", write) if write else []:
        # What is said to be written is a line that does it.
        key, _, value = line.partition(": ")
        assert clean([GOOD[0], *bad], **{**keys, key: value}).ledger.rows_kept >= 1


def test_a_field_with_another_name_in_some_records_is_named(clean: Cleaned) -> None:
    said = (
        r"yaml: response: anser\n.*found an object with question, anser, 2 such\)\n.*\n  or raise max_reject_fraction"
    )
    with pytest.raises(InputError, match=said):
        clean([GOOD[0], {"question": "q", "anser": "a"}, {"question": "q", "anser": "a"}])


def test_all_sources_with_malformed_records_are_told_at_once_in_short_lines(tmp_path: Path) -> None:
    wrong: dict[str, list[Any]] = {
        "nulls": [{"q": "q", "a": None}] * 5 + [{"q": "q"}] * 2 + [{"q": "q", "a": {"text": "x"}}],
        "lists": [{"q": "q", "a": ["x", "y"]}] * 3,
        "misspelt": [{"q": "q", "anser": "a"}] * 3,
        "nothing": [],
        "good": [{"q": "q", "a": "a"}],
        "many": [
            *[{"q": n, "a": "a"} for n in range(3)],
            {"q": None, "a": 1},
            5,
            {"a": "a"},
            {"q": "q", "a": 1},
            {"q": "q"},
        ],
    }
    for name, records in wrong.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in records))
        text = f"name: {name}\nfiles: {name}.jsonl\ncondition: direct\ninstruction: q\nresponse: a\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    sources = [str(tmp_path / f"{name}.yaml") for name in wrong]
    with pytest.raises(InputError) as caught:
        runner.run(Clean(), CleanConfig(root=str(tmp_path / "root"), sources=sources, workers=1))
    said = str(caught.value)
    assert said.startswith("clean: 5 sources are refused\n")
    assert "good" not in said
    assert "no record of misspelt has 'a'" in said
    assert "the files of nothing contain no record" in said
    assert "3 of 3 records of lists are malformed" in said
    assert f'write in {tmp_path}/lists.yaml: response: "{{a|lines}}"' in said
    block = said[said.index("8 of 8 records of nulls") :]
    assert block.index("nulls.yaml: where: has(a)") < block.index("row 1: null_a (found null, 5 such)")
    assert block.index("5 such") < block.index("row 6: missing_a") < block.index("row 8: a_is_no_text")
    assert "and 2 reasons more" in said[said.index("records of many") : said.index("records of nulls")]
    assert max(map(len, said.replace(str(tmp_path), "").splitlines())) < 200


def test_every_reason_is_said_with_its_count_the_most_frequent_first(clean: Cleaned, tmp_path: Path) -> None:
    records = [*["{"] * 2, *[{"question": "q", "answer": 1}] * 5, *[{"question": None, "answer": "a"}] * 9, *GOOD]
    with pytest.raises(InputError) as caught:
        clean(records)
    said = str(caught.value)
    firsts = ["row 8: null_question (found null, 9 such)", "row 3: answer_is_no_text (", "row 1: invalid_json (2 such)"]
    places = [said.index(first) for first in firsts]
    assert places == sorted(places)
    assert said.count("mend the raw data") == 1
    assert said.endswith("or raise max_reject_fraction= to go on without them")
    # What was put aside is there to be opened, and the message says where.
    (path,) = re.findall(r"each of them is in (\S+\.jsonl);", said)
    aside = [json.loads(line) for line in Path(path).read_text().splitlines()]
    assert [(one["row"], one["place"]) for one in aside] == [(number, f"row {number}") for number in range(1, 17)]
    manifest = clean(records, {"max_reject_fraction": 1.0})
    reasons = manifest.data["sources"]["mine"]["reject_reasons"]
    assert [(one["reason"], one["count"]) for one in reasons] == [
        ("null_question", 9),
        ("answer_is_no_text", 5),
        ("invalid_json", 2),
    ]
    assert "They are put aside in rejects/" in " ".join(report_of(manifest).look_at)
