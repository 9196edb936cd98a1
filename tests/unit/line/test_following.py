"""The next command, as the table of the line says it."""

import pytest

from pairmill.engine.manifest import InputRef
from pairmill.line.following import next_command
from pairmill.line.table import LINE

ROWS = InputRef("rows", "a" * 16, "curate")


@pytest.mark.parametrize(
    ("stage", "inputs", "expected"),
    [
        ("fetch", [], "clean raw=out root=/r"),
        ("clean", [], "curate rows=out root=/r"),
        ("curate", [], "train_tokenizer rows=out root=/r"),
        ("select", [], "train_tokenizer rows=out root=/r"),
        ("train_tokenizer", [ROWS], f"tokenize rows=/r/curate/{'a' * 16} tokenizer=out root=/r"),
        ("tokenize", [ROWS], "sample tokenized_path=out root=/r"),
        ("mix", [InputRef("tokenized", "b" * 16)], f"sample tokenized_path=/r/tokenize/{'b' * 16} mixture=out root=/r"),
        ("sample", [InputRef("tokenized", "b" * 16)], "train sampled=out root=/r"),
        ("train", [], ""),
        ("of one's own", [], ""),
    ],
)
def test_each_result_has_its_next_command(stage: str, inputs: list[InputRef], expected: str) -> None:
    assert next_command("/r", stage, "out", inputs) == (f"pairmill {expected}" if expected else "")


def test_every_stage_of_the_table_is_asked_for() -> None:
    for task in LINE[:-1]:
        assert next_command("/r", task.stage, "out", []).startswith("pairmill ")


def test_places_are_quoted_and_what_a_line_has_throughout_is_kept() -> None:
    given = {"sources": "my.yaml,gsm8k_train", "policy": "p.yaml", "profile": "data_io", "lock": "x"}
    command = next_command("/a b", "fetch", "/a b/fetch/1", [], given)
    assert command == (
        "pairmill clean raw='/a b/fetch/1' root='/a b' profile=data_io policy=p.yaml sources=my.yaml,gsm8k_train"
    )
    assert "sources" not in next_command("/r", "clean", "out", [], given)
    assert next_command("/r", "sample", "out", [], given) == "pairmill train sampled=out root=/r"
