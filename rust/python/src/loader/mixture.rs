//! Draws of a mixture.

use numpy::{PyArray1, PyReadonlyArray1};
use pairmill_core::loader::mixture::{Permutation, sources};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The source of each draw.
#[pyfunction]
pub(crate) fn mixture_sources<'py>(
    py: Python<'py>,
    key: u64,
    first: u64,
    count: usize,
    bounds: PyReadonlyArray1<'py, u64>,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let bounds = bounds.as_slice()?;
    if bounds.last() != Some(&u64::MAX) || !bounds.is_sorted() {
        return Err(PyValueError::new_err("bounds: expected ascending numbers, the last 2**64 - 1"));
    }
    Ok(PyArray1::from_vec(py, py.detach(|| sources(key, first, count, bounds))))
}

/// The samples at places of a source's passes.
#[pyfunction]
pub(crate) fn mixture_samples<'py>(
    py: Python<'py>,
    key: u64,
    size: u64,
    places: PyReadonlyArray1<'py, u64>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let places = places.as_slice()?;
    if size == 0 || i64::try_from(size).is_err() {
        return Err(PyValueError::new_err("size: expected 1 or more"));
    }
    let samples = py.detach(|| {
        let mut pass: Option<(u64, Permutation)> = None;
        let sample = |&place: &u64| {
            let number = place / size;
            let (_, permutation) = match &mut pass {
                Some(pass) if pass.0 == number => pass,
                other => other.insert((number, Permutation::new(key, number, size))),
            };
            permutation.at(place % size) as i64
        };
        places.iter().map(sample).collect::<Vec<_>>()
    });
    Ok(PyArray1::from_vec(py, samples))
}
