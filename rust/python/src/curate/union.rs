//! Components of rows.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pairmill_core::curate::near::union::{distinct_pairs, find, join, mark, places};
use pyo3::prelude::*;

use crate::errors::value_error;

/// Add numbers to a set of bits.
#[pyfunction]
pub(crate) fn curate_near_mark(
    py: Python<'_>,
    mut words: PyReadwriteArray1<'_, u64>,
    numbers: PyReadonlyArray1<'_, i64>,
) -> PyResult<()> {
    let (words, numbers) = (words.as_slice_mut()?, numbers.as_slice()?);
    let limit = 64 * words.len();
    py.detach(|| mark(words, numbers)).map_err(|number| beyond(number, limit))
}

/// How many numbers of a set of bits are smaller.
#[pyfunction]
pub(crate) fn curate_near_places<'py>(
    py: Python<'py>,
    words: PyReadonlyArray1<'py, u64>,
    before: PyReadonlyArray1<'py, i64>,
    numbers: PyReadonlyArray1<'py, i64>,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let (words, before, numbers) = (words.as_slice()?, before.as_slice()?, numbers.as_slice()?);
    let limit = 64 * words.len();
    let found = py.detach(|| places(words, before, numbers));
    Ok(found.map_err(|number| beyond(number, limit))?.into_pyarray(py))
}

/// Join the sets of pairs of members.
#[pyfunction]
pub(crate) fn curate_near_join(
    py: Python<'_>,
    mut parents: PyReadwriteArray1<'_, u32>,
    a: PyReadonlyArray1<'_, i64>,
    b: PyReadonlyArray1<'_, i64>,
) -> PyResult<()> {
    let (parents, a, b) = (parents.as_slice_mut()?, a.as_slice()?, b.as_slice()?);
    if a.len() != b.len() {
        return Err(value_error(format!("got {} and {} members; expected as many of each", a.len(), b.len())));
    }
    let limit = parents.len();
    py.detach(|| join(parents, a, b)).map_err(|member| beyond(member, limit))
}

/// The distinct ones of pairs.
#[pyfunction]
pub(crate) fn curate_near_distinct<'py>(
    py: Python<'py>,
    pairs: PyReadonlyArray1<'py, u64>,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let pairs = pairs.as_slice()?;
    let found = py.detach(|| distinct_pairs(pairs));
    let found = found.ok_or_else(|| value_error(format!("got {} numbers; expected pairs, below 2^32", pairs.len())))?;
    Ok(found.into_pyarray(py))
}

/// Places of values among names that ascend.
#[pyfunction]
pub(crate) fn curate_near_find<'py>(
    py: Python<'py>,
    names: PyReadonlyArray1<'py, u64>,
    values: PyReadonlyArray1<'py, u64>,
) -> PyResult<Bound<'py, PyArray1<u32>>> {
    let (names, values) = (names.as_slice()?, values.as_slice()?);
    if u32::try_from(names.len()).is_err() {
        return Err(value_error(format!("got {} names; expected fewer than 2^32", names.len())));
    }
    let found = py.detach(|| find(names, values));
    let unknown = |value| value_error(format!("got {value}, which is not among the {} names", names.len()));
    Ok(found.map_err(unknown)?.into_pyarray(py))
}

fn beyond(number: i64, limit: usize) -> PyErr {
    value_error(format!("got {number}; expected numbers from 0 and below {limit}"))
}
