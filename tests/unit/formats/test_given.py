"""Which files of a folder are rows, and what their tasks are named below."""

from pathlib import Path

import pytest

from pairmill.errors import InputError
from pairmill.formats import given
from tests.support import tools


@pytest.mark.parametrize(
    ("paths", "tops", "wanted"),
    [
        (["data/a.jsonl", "data/b/c.jsonl", "README.md"], ["data"], ["data/a.jsonl", "data/b/c.jsonl"]),
        (
            [
                "data/a.jsonl",
                "data_clustered/s/x.parquet",
                "attributes/a.parquet",
                "rejects/a.jsonl",
                "holdout/a.jsonl",
            ],
            ["data", "data_clustered"],
            ["data/a.jsonl", "data_clustered/s/x.parquet"],
        ),
        (["data/a.jsonl", "more/b.jsonl"], [], ["data/a.jsonl", "more/b.jsonl"]),
        (["a.jsonl", "data/b.jsonl"], [], ["a.jsonl", "data/b.jsonl"]),
        (["a.parquet", "rejects/b.jsonl", "c.csv"], [], ["a.parquet", "rejects/b.jsonl"]),
        (["a.csv"], [], []),
    ],
)
def test_a_published_data_set_is_its_two_folders(paths: list[str], tops: list[str], wanted: list[str]) -> None:
    assert given.row_files(paths) == (tops, wanted)


def test_rows_are_counted_where_it_is_cheap(tmp_path: Path) -> None:
    values = tools.rows(7)
    tools.write_rows(tmp_path / "p" / "a.parquet", values)
    tools.write_rows(tmp_path / "p" / "b.parquet", values)
    tools.write_rows(tmp_path / "j" / "a.jsonl", values)
    found = given.rows_at(str(tmp_path / "p"), count=True)
    assert (found.uris, found.files, found.rows) == ((str(tmp_path / "p"),), 2, 14)
    assert found.size == sum(path.stat().st_size for path in (tmp_path / "p").iterdir())
    assert given.rows_at(str(tmp_path / "p")).rows is None
    assert given.rows_at(str(tmp_path / "j"), count=True).rows is None
    one = given.rows_at(str(tmp_path / "j" / "a.jsonl"))
    assert (one.uris, one.files) == ((str(tmp_path / "j" / "a.jsonl"),), 1)


def test_other_files_are_described_by_a_yaml_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(
        InputError, match=r"no .jsonl or .parquet file found; got a.csv; describe these files with a YAML"
    ):
        given.rows_at(str(tmp_path))
    with pytest.raises(InputError, match="got nothing; check the path"):
        given.rows_at(str(tmp_path / "absent"))
