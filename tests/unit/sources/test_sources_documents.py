"""The sources of documents: what each makes of a record, its attributes, its files, and who asks for it."""

from datetime import datetime
from typing import Any

import pytest

from pairmill.engine.options import Profile
from pairmill.formats.rows import Row
from pairmill.sources.datasets import SOURCES
from pairmill.sources.datasets.bookcorpus import Blocks
from pairmill.sources.parsed import Drop, Malformed, Note
from pairmill.sources.registry import chosen
from pairmill.sources.source import Context, Unit, checked, parse_record

NAMES = ("arxiv", "bookcorpus", "c4", "cc_news", "the_stack")
PROFILES: list[Profile] = ["pairmill", "data_io"]


def made(source: str, record: Any, profile: Profile = "pairmill") -> list[Row | Drop]:
    """What the stage makes of a record."""
    rows, drops = checked(parse_record(SOURCES[source], record, Context(profile)), profile, documents=True)
    return [*(row for _, row in rows), *drops]


def attributes(source: str, record: Any) -> dict[str, Any]:
    found = dict(SOURCES[source].attributes_of(record, Context("pairmill")))
    assert set(found) == set(SOURCES[source].attributes)
    return found


def units(source: str, *files: str, **options: Any) -> list[Unit]:
    return SOURCES[source].units(sorted(files), "", "pairmill", SOURCES[source].options(**options))


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_documents_that_only_who_names_them_downloads(name: str) -> None:
    source = SOURCES[name]
    assert source.documents
    assert source.by_name_only
    assert source not in chosen(["all"], None)
    assert source in chosen(["all", name], None)
    assert source in chosen(["all"], {name, "gsm8k_train"})
    assert set(source.attributes.values()) <= {"text", "integer", "number", "boolean", "date", "texts"}
    assert "domain" in source.attributes


@pytest.mark.parametrize("name", ["c4", "the_stack", "cc_news"])
def test_a_text_is_a_document(name: str) -> None:
    key = "content" if name == "the_stack" else "text"
    for profile in PROFILES:
        assert made(name, {key: "A text.\n"}, profile)[0] == Row(
            "", "", "A text." if name == "cc_news" else "A text.\n"
        )
        assert made(name, {key: None}, profile) == [Malformed(f"null_{key}")]
        assert made(name, {key: 5}, profile) == [Malformed(f"{key}_is_no_text")]
        assert made(name, {}, profile) == [Malformed(f"missing_{key}")]
        assert made(name, "text", profile) == [Malformed("not_an_object")]
    assert made(name, {key: " \n"}) == [Drop("empty_text")]


@pytest.mark.parametrize(
    ("title", "document"), [("T", "T\n\na\nb"), (" T\n", "T\n\na\nb"), ("", "a\nb"), (" ", "a\nb"), (None, "a\nb")]
)
def test_cc_news_puts_the_title_first_if_there_is_one(title: str | None, document: str) -> None:
    assert made("cc_news", {"title": title, "text": " a\nb "}) == [Row("", "", document)]
    assert made("cc_news", {"text": "a"}) == [Row("", "", "a")]
    assert made("cc_news", {"title": "T", "text": ""}) == [Drop("empty_text")]
    assert made("cc_news", {"title": 5, "text": "a"}) == [Malformed("title_is_no_text")]


def test_arxiv_joins_white_space() -> None:
    record = {"title": "On\n  graphs", "abstract": "  We show\nthat\n"}
    assert made("arxiv", record) == [Row("", "", "On graphs\n\nWe show that")]
    assert made("arxiv", {**record, "title": ""}) == [Row("", "", "We show that")]
    assert made("arxiv", {**record, "abstract": " \n"}) == [Drop("no_abstract")]
    assert made("arxiv", {**record, "abstract": None}) == [Malformed("null_abstract")]


@pytest.mark.parametrize(
    ("number", "day"),
    [
        ("0704.0001", "2007-04-01"),
        ("2112.12345", "2021-12-01"),
        ("2112.12345v3", "2021-12-01"),
        ("math/0309136", "2003-09-01"),
        ("math.GT/0309136", "2003-09-01"),
        ("hep-th/9108028", "1991-08-01"),
        ("hep-th/9913028", None),
        ("0700.0001", None),
        ("", None),
        (None, None),
        (704.0001, None),
    ],
)
def test_arxiv_takes_the_month_from_the_number_of_the_paper(number: Any, day: str | None) -> None:
    found = attributes("arxiv", {"id": number, "categories": ["math.CO cs.CL"]})
    assert found == {"date": day, "categories": ["math.CO", "cs.CL"], "domain": "academic"}
    assert attributes("arxiv", {"id": number, "categories": "math.CO"})["categories"] == ["math.CO"]
    assert attributes("arxiv", {"id": number})["categories"] is None


def test_attributes() -> None:
    page = {"text": "t", "timestamp": "2019-04-25T12:57:54Z", "url": "https://a.example/1"}
    assert attributes("c4", page) == {"date": "2019-04-25T12:57:54Z", "url": "https://a.example/1", "domain": "web"}
    assert attributes("c4", {"text": "t", "timestamp": datetime(2019, 4, 25)}) == {
        "date": datetime(2019, 4, 25),
        "url": None,
        "domain": "web",
    }
    assert attributes("c4", {"text": "t", "timestamp": "last week"})["date"] is None
    assert attributes("c4", {"text": "t", "timestamp": 5})["date"] is None
    code = {
        "content": "x",
        "lang": "C++",
        "max_stars_repo_licenses": ["MIT"],
        "max_stars_repo_stars_event_min_datetime": None,
    }
    assert attributes("the_stack", code) == {"language": "C++", "licence": ["MIT"], "date": None, "domain": "code"}
    news = {"text": "t", "date": "2018-01-02 03:04:05", "url": "https://b.example", "domain": "b.example"}
    assert attributes("cc_news", news) == {
        "date": "2018-01-02 03:04:05",
        "url": "https://b.example",
        "domain_name": "b.example",
        "domain": "news",
    }
    assert attributes("bookcorpus", {"text": "t", "sentences": 1, "empty": 0}) == {"domain": "books"}


def test_c4_withholds_the_validation_split_and_leaves_other_configurations_alone() -> None:
    train = "en/c4-train.00000-of-01024.json.gz", "en/c4-train.00001-of-01024.json.gz"
    validation = "en/c4-validation.00000-of-00008.json.gz"
    others = "en.noblocklist/c4-train.00000-of-01024.json.gz", "realnewslike/c4-train.00000-of-00512.json.gz"
    assert units("c4", *train, validation, *others, "README.md") == [
        Unit("data_clustered/c4/c4-train.00000-of-01024.parquet", (train[0],)),
        Unit("data_clustered/c4/c4-train.00001-of-01024.parquet", (train[1],)),
        Unit("data_clustered/c4/validation.parquet", (), (validation,)),
    ]


def test_the_stack_makes_an_output_of_each_file() -> None:
    assert units("the_stack", "data/c++/train-00000-of-00214.parquet", "data/x.parquet", "README.md") == [
        Unit("data_clustered/the_stack/c____train-00000-of-00214.parquet", ("data/c++/train-00000-of-00214.parquet",))
    ]


def test_the_others_take_their_train_split() -> None:
    assert [one.files for one in units("cc_news", "plain_text/train-00000-of-00005.parquet", "README.md")] == [
        ("plain_text/train-00000-of-00005.parquet",)
    ]
    assert [one.files for one in units("arxiv", "arxiv-abstracts.jsonl.gz", "README.md")] == [
        ("arxiv-abstracts.jsonl.gz",)
    ]
    for folder in ("train", "partial-train"):
        files = [f"plain_text/{folder}/000{number}.parquet" for number in range(2)]
        assert [one.files for one in units("bookcorpus", *files)] == [(files[0],), (files[1],)]


# --- bookcorpus -----------------------------------------------------------------------------------------------------


def blocks(words: int, *sentences: Any) -> list[Any]:
    source = SOURCES["bookcorpus"]
    records = ((place, {"text": text}) for place, text in enumerate(sentences))
    return list(source.joined(records, Context("pairmill", str(words))))


def test_bookcorpus_joins_sentences_until_a_block_is_full() -> None:
    found = blocks(4, "a b .", "c .", "d e f g h", "", " i ", " ")
    assert found == [
        (0, {"text": "a b . c .", "sentences": 2, "empty": 0}),
        (2, {"text": "d e f g h", "sentences": 1, "empty": 1}),
        (4, {"text": "i", "sentences": 1, "empty": 1}),
    ]
    parsed = [SOURCES["bookcorpus"].parse(block, Context("pairmill")) for _, block in found]
    assert parsed[1] == [Row("", "", "d e f g h"), Note("sentences_joined", 1), Note("empty_sentences", 1)]
    assert parsed[0] == [Row("", "", "a b . c ."), Note("sentences_joined", 2)]


def test_bookcorpus_accounts_for_every_sentence() -> None:
    sentences = [["a b c", "", "d", None, 5, "e f"][number % 6] for number in range(6 * 40)]
    found = blocks(7, *sentences)
    aside = [block for _, block in found if isinstance(block, Malformed)]
    kept = [block for _, block in found if not isinstance(block, Malformed)]
    assert aside == [Malformed("null_text"), Malformed("text_is_no_text")] * 40
    assert sum(block["sentences"] for block in kept) == 120
    assert sum(block["empty"] for block in kept) == 40
    assert all(len(block["text"].split()) >= 7 for block in kept[:-1])
    assert " ".join(block["text"] for block in kept) == " ".join(
        text for text in sentences if isinstance(text, str) and text
    )


def test_bookcorpus_s_blocks_have_as_many_words_as_are_asked_for() -> None:
    assert [one.tag for one in units("bookcorpus", "plain_text/train/0000.parquet", block_words=64)] == ["64"]
    assert Blocks().block_words == 512
