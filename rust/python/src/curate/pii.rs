//! Personal data in texts: spans, and texts without them.

use arrow_array::Array;
use arrow_array::builder::LargeStringBuilder;
use numpy::PyArray1;
use pairmill_core::curate::pii::{find, in_characters, redact_into};
use pyo3::prelude::*;

use crate::arrow::{self, ArrowArray, text_bytes};
use crate::poll::watched;

/// Rows, starts, stops and kinds.
type Spans<'py> =
    (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u8>>);

/// The spans of all texts, by row and from left to right, in characters.
#[pyfunction]
pub(crate) fn curate_pii<'py>(py: Python<'py>, texts: &Bound<'py, PyAny>) -> PyResult<Spans<'py>> {
    let texts = arrow::texts(texts)?;
    let bytes = text_bytes(&texts);
    let (rows, starts, stops, kinds) = watched(py, texts, bytes, |texts, progress| {
        let mut columns = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (row, text) in texts.iter().flatten().enumerate().take_while(|&(row, _)| progress.begin(row)) {
            let spans = find(text);
            for span in in_characters(text, &spans) {
                columns.0.push(row as u32);
                columns.1.push(span.start as u32);
                columns.2.push(span.stop as u32);
                columns.3.push(span.kind as u8);
            }
        }
        columns
    })?;
    Ok((
        PyArray1::from_vec(py, rows),
        PyArray1::from_vec(py, starts),
        PyArray1::from_vec(py, stops),
        PyArray1::from_vec(py, kinds),
    ))
}

/// The texts with `<EMAIL>` and the like in place of what is found, and how many spans of each were replaced.
#[pyfunction]
pub(crate) fn curate_redact<'py>(
    py: Python<'py>,
    texts: &Bound<'py, PyAny>,
) -> PyResult<(ArrowArray, Bound<'py, PyArray1<u32>>)> {
    let texts = arrow::texts(texts)?;
    let bytes = text_bytes(&texts);
    let (redacted, replaced) = watched(py, texts, bytes, move |texts, progress| {
        let mut column = LargeStringBuilder::with_capacity(texts.len(), bytes);
        let mut replaced = Vec::with_capacity(texts.len());
        let mut redacted = String::new();
        for (_, text) in texts.iter().flatten().enumerate().take_while(|&(row, _)| progress.begin(row)) {
            redacted.clear();
            replaced.push(redact_into(text, &mut redacted) as u32);
            column.append_value(&redacted);
        }
        (column.finish(), replaced)
    })?;
    Ok((ArrowArray::new(&redacted), PyArray1::from_vec(py, replaced)))
}
