//! What readers of text need: rows in JSON, and regular expressions searched in time linear in the text.

use arrow_array::builder::LargeStringBuilder;
use pairmill_core::jsonl;
use pyo3::prelude::*;
use regex::{Regex, RegexBuilder};

use crate::arrow::ArrowArray;
use crate::errors::value_error;

/// Bytes that a compiled pattern may take: a step of a search may look at all of them.
const LARGEST: usize = 8 << 20;

/// A regular expression without back-references and look-around, which no engine searches in linear time.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Pattern(Regex);

#[pymethods]
impl Pattern {
    #[new]
    fn new(pattern: &str) -> PyResult<Self> {
        RegexBuilder::new(pattern).size_limit(LARGEST).build().map(Self).map_err(value_error)
    }

    /// Whether it is found anywhere in the text.
    fn found_in(&self, py: Python<'_>, text: &str) -> bool {
        py.detach(|| self.0.is_match(text))
    }
}

/// Read rows off the beginning of JSON text: the three columns, how many bytes they took, and whether reading stopped at
/// something that is not a row.
#[pyfunction]
pub(crate) fn json_rows(py: Python<'_>, data: &[u8], last: bool) -> (ArrowArray, ArrowArray, ArrowArray, usize, bool) {
    py.detach(|| {
        let mut columns: [LargeStringBuilder; 3] = Default::default();
        let parsed = jsonl::rows(data, last, |condition, instruction, response| {
            for (column, text) in columns.iter_mut().zip([condition, instruction, response]) {
                column.append_value(text);
            }
        });
        let [condition, instruction, response] = columns.map(|mut column| ArrowArray::new(&column.finish()));
        (condition, instruction, response, parsed.bytes, parsed.refused)
    })
}
