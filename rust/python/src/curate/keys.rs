//! Keys of equal rows, and texts for comparison.

use arrow_array::builder::{LargeListBuilder, LargeStringBuilder};
use arrow_array::{Array, LargeStringArray};
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pairmill_core::curate::keys::{Form, Keys};
use pairmill_core::curate::text::{Light, Numbers, Tokens, UNICODE};
use pairmill_core::guard::Progress;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::arrow::{ArrowArray, text_bytes, texts};
use crate::poll::watched;

/// The version of Unicode by which curate compares texts.
#[pyfunction]
pub(crate) fn curate_unicode() -> &'static str {
    UNICODE
}

/// The key of each row: its high and its low half.
#[pyfunction]
pub(crate) fn curate_exact_keys<'py>(
    py: Python<'py>,
    columns: Vec<Bound<'py, PyAny>>,
    light: bool,
) -> PyResult<Bound<'py, PyArray2<u64>>> {
    let columns = columns.iter().map(texts).collect::<PyResult<Vec<_>>>()?;
    let lengths: Vec<usize> = columns.iter().map(Array::len).collect();
    let Some(&rows) = lengths.first() else {
        return Err(PyValueError::new_err("got no columns; expected at least one"));
    };
    if lengths.iter().any(|&length| length != rows) {
        return Err(PyValueError::new_err(format!("got columns of {lengths:?} rows; expected as many in each")));
    }
    let form = if light { Form::Light } else { Form::Raw };
    let bytes = columns.iter().map(text_bytes).sum();
    let keys = watched(py, columns, bytes, move |columns, progress| keys(columns, rows, form, progress))?;
    PyArray1::from_vec(py, keys).reshape([rows, 2])
}

fn keys(columns: &[LargeStringArray], rows: usize, form: Form, progress: &Progress) -> Vec<u64> {
    let mut keys = Keys::new();
    let mut halves = Vec::with_capacity(2 * rows);
    for row in (0..rows).take_while(|&row| progress.begin(row)) {
        let key = keys.key(columns.iter().map(|column| column.value(row)), form);
        halves.extend([(key >> 64) as u64, key as u64]);
    }
    halves
}

/// The light form, the tokens and the numbers of each text.
#[pyfunction]
pub(crate) fn curate_forms(
    py: Python<'_>,
    strings: &Bound<'_, PyAny>,
) -> PyResult<(ArrowArray, ArrowArray, ArrowArray)> {
    let texts = texts(strings)?;
    let bytes = text_bytes(&texts);
    watched(py, texts, bytes, |texts, progress| {
        let (mut lights, mut all_tokens, mut all_numbers) = (LargeStringBuilder::new(), lists(), lists());
        let (mut light, mut tokens, mut numbers) = (Light::new(), Tokens::new(), Numbers::new());
        for (row, text) in texts.iter().flatten().enumerate() {
            if !progress.begin(row) {
                break;
            }
            lights.append_value(light.of(text));
            tokens.read(text);
            all_tokens.append_value(tokens.iter().map(Some));
            numbers.read(text);
            all_numbers.append_value(numbers.iter().map(Some));
        }
        let (tokens, numbers) = (all_tokens.finish(), all_numbers.finish());
        (ArrowArray::new(&lights.finish()), ArrowArray::new(&tokens), ArrowArray::new(&numbers))
    })
}

/// Lists with offsets of 64 bits: a batch can have more than 2^31 tokens.
fn lists() -> LargeListBuilder<LargeStringBuilder> {
    LargeListBuilder::new(LargeStringBuilder::new())
}
