"""The options of near deduplication: what is refused, and that the functions in Rust take the rest."""

from typing import Any

import pytest

from pairmill.errors import UsageError
from pairmill.stages.curate.near.settings import DocumentSettings, NearSettings, native


@pytest.mark.parametrize(
    ("name", "value"),
    [("bands", 0), ("rows", 0), ("rows", 129), ("min_response", -1), ("min_instruction", (1 << 16) + 1)],
)
def test_a_number_out_of_range_is_refused_by_name(name: str, value: int) -> None:
    with pytest.raises(UsageError, match="out of range") as error:
        NearSettings(**{name: value})  # type: ignore[arg-type]
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("fields", "most", "expected"),
    [("pair", 3, "max_similar: needs fields"), ("instruction", 0, "1 to 1000"), ("response", 1001, "1 to 1000")],
)
def test_a_cap_is_of_one_field_and_of_some_rows(fields: Any, most: int, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        NearSettings(fields=fields, max_similar=most)
    assert "max_similar" in str(error.value)
    assert expected in str(error.value)


@pytest.mark.parametrize(("name", "value"), [("jaccard", 0.0), ("contained", 1.5), ("bands", 0), ("rows", 900)])
def test_a_number_of_documents_out_of_range_is_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match="out of range"):
        DocumentSettings(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"bands": 1 << 12, "rows": 1},
        {"min_response": 0, "min_instruction": 1 << 16},
        {"fields": "instruction", "number_guard": "off"},
        {"documents": DocumentSettings(jaccard=1.0, contained=1e-9, bands=1, rows=1 << 12)},
    ],
)
def test_the_functions_in_rust_take_every_setting_that_is_not_refused(values: dict[str, Any]) -> None:
    assert native(NearSettings(**values)) is not None
