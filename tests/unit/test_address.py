"""Addresses of the Hub and of git: what they name, and what is refused with the line to write."""

import pytest

from pairmill import address
from pairmill.address import Address
from pairmill.errors import UsageError

ANY: tuple[address.Kind, ...] = ("dataset", "model", "git")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("hf://datasets/o/n", Address("dataset", "o/n", "main")),
        ("hf://datasets/o/n@v1.0", Address("dataset", "o/n", "v1.0")),
        ("hf://datasets/o/n/data/", Address("dataset", "o/n", "main", "data")),
        ("hf://datasets/o/n@v1/data/a.jsonl", Address("dataset", "o/n", "v1", "data/a.jsonl")),
        ("hf://datasets/o/n@a%2Fb/c", Address("dataset", "o/n", "a/b", "c")),
        ("hf://datasets/o/n@refs/convert/parquet/c", Address("dataset", "o/n", "refs/convert/parquet", "c")),
        ("hf://datasets/o/n@refs/pr/7", Address("dataset", "o/n", "refs/pr/7")),
        ("hf://o/n", Address("model", "o/n", "main")),
        ("hf://o/n@abc", Address("model", "o/n", "abc")),
        ("git+https://h.org/o/n#t/tokenizer.json", Address("git", "https://h.org/o/n", "HEAD", "t/tokenizer.json")),
        ("git+https://h.org/g/o/n.git@v1#t", Address("git", "https://h.org/g/o/n", "v1", "t")),
        ("/a/path", None),
        ("s3://b/hf", None),
        ("o/n@v1", None),
    ],
)
def test_an_address_is_its_parts(given: str, found: Address | None) -> None:
    assert address.parse(given, "rows", ANY) == found
    if found is not None:
        assert address.is_address(given)
        assert address.parse(found.text, "rows", ANY) == found


@pytest.mark.parametrize(
    "given",
    [
        "hf://",
        "hf://o",
        "hf://datasets/o",
        "hf://spaces/o/n",
        "hf://datasets/o/n@",
        "hf://datasets/o/n@v1@v2",
        "hf://datasets/o/n/../m",
        "hf://datasets/o/n/%2e%2e/m",
        "hf://datasets/../n",
        "git+ssh://h/o/n#t",
        "git+https://h/o/n",
        "git+https://h/o/n#",
        "git+https://u:p@h/o/n#t",
        "git+https://h/o/n#../t",
    ],
)
def test_what_names_nothing_is_refused_with_the_form(given: str) -> None:
    with pytest.raises(UsageError, match=r"rows: not a valid address; got .*; expected rows=hf://datasets/<owner>"):
        address.parse(given, "rows", ANY)


def test_two_paths_of_a_repository_have_one_lock_and_two_texts() -> None:
    one, two = (address.parse(f"hf://datasets/o/n@v1/{path}", "rows", ANY) for path in ("a", "b"))
    assert one is not None
    assert two is not None
    assert one.locked == two.locked == "hf://datasets/o/n@v1"
    assert one.text != two.text
    assert one.slug == two.slug == "o--n"


def test_another_stage_sends_to_fetch() -> None:
    address.refuse("s3://b/rows", "rows")
    with pytest.raises(UsageError, match=r"write pairmill fetch 'rows=hf://datasets/o/n' root=…"):
        address.refuse("hf://datasets/o/n", "rows")
