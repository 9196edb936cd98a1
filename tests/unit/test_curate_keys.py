"""Columns that curate_exact_keys takes and refuses."""

import numpy as np
import pyarrow as pa
import pytest

from pairmill import _native


def test_keys_depend_on_the_texts_and_not_on_the_arrays_that_hold_them() -> None:
    texts = ["a", "", "cafe\u0301  au lait"]
    keys = _native.curate_exact_keys([pa.array(texts), pa.array(texts, pa.large_string())], light=True)
    part = pa.array(["before", *texts, "behind"]).slice(1, 3)
    assert np.array_equal(_native.curate_exact_keys([part, part], light=True), keys)
    assert len(np.unique(keys, axis=0)) == 3
    assert _native.curate_exact_keys([part.slice(0, 0)], light=True).shape == (0, 2)


def test_the_form_and_the_number_of_fields_count() -> None:
    composed, decomposed = pa.array(["é"]), pa.array(["e\u0301"])
    assert np.array_equal(
        _native.curate_exact_keys([composed], light=True), _native.curate_exact_keys([decomposed], light=True)
    )
    others = [
        _native.curate_exact_keys(columns, light=False)
        for columns in ([composed], [decomposed], [composed, pa.array([""])])
    ]
    assert len(np.unique(np.concatenate(others), axis=0)) == 3


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "got no columns"),
        ([pa.array(["a"]), pa.array(["a", "b"])], r"got columns of \[1, 2\] rows"),
        ([pa.array(["a", None])], "row 1 is null"),
        ([pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xed\xa0\x80"]).buffers())], "row 0 is not UTF-8"),
    ],
)
def test_columns_that_are_not_rows_of_texts_are_refused(columns: list[pa.Array], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        _native.curate_exact_keys(columns, light=True)


def test_columns_of_numbers_are_refused() -> None:
    with pytest.raises(TypeError, match="expected an Arrow array of utf8"):
        _native.curate_exact_keys([pa.array([1])], light=True)
