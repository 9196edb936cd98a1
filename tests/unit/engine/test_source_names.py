import pytest

from pairmill.engine.source_names import source_of


@pytest.mark.parametrize(
    ("task", "source"),
    [
        ("sudoku.jsonl", "sudoku"),
        ("flan__cot_gsm8k.parquet", "flan"),
        ("data__sudoku.jsonl", "sudoku"),
        ("data_clustered__flan__cot.parquet", "flan"),
        ("holdout/flan__cot.parquet", "flan"),
        ("web.pages.jsonl", "web.pages"),
        ("__x.jsonl", "__x"),
    ],
)
def test_a_task_belongs_to_the_folder_or_the_file_that_it_is_named_after(task: str, source: str) -> None:
    assert source_of(task) == source
