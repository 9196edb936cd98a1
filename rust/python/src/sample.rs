//! data_io's sample of documents.

use numpy::PyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The indices of the documents that data_io keeps, in order.
#[pyfunction]
pub(crate) fn data_io_document_sample<'py>(
    py: Python<'py>,
    seed: u64,
    name: &str,
    n: usize,
    limit: usize,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let sample = py.detach(|| pairmill_core::sample::data_io_document_sample(seed, name, n, limit));
    let sample = sample.map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyArray1::from_vec(py, sample))
}
