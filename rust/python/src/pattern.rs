//! Regular expressions of people who describe a data set: searched in time that is linear in the text.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use regex::{Regex, RegexBuilder};

/// Bytes that a compiled pattern may take: a step of a search may look at all of them.
const LARGEST: usize = 8 << 20;

/// A regular expression without back-references and look-around, which no engine answers in linear time.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Pattern(Regex);

#[pymethods]
impl Pattern {
    #[new]
    fn new(pattern: &str) -> PyResult<Self> {
        let refused = |error: regex::Error| PyValueError::new_err(error.to_string());
        RegexBuilder::new(pattern).size_limit(LARGEST).build().map(Self).map_err(refused)
    }

    /// Whether it is found anywhere in the text.
    fn found_in(&self, py: Python<'_>, text: &str) -> bool {
        py.detach(|| self.0.is_match(text))
    }
}
