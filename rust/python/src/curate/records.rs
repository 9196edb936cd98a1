//! Copies of records and of segments of bytes.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pairmill_core::curate::near::records::{dealt, segments};
use pyo3::prelude::*;

use crate::errors::value_error;

/// Records by part, and how many each part has.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub(crate) fn curate_near_deal<'py>(
    py: Python<'py>,
    records: PyReadonlyArray1<'py, u8>,
    part: PyReadonlyArray1<'py, u32>,
    parts: usize,
) -> PyResult<(Bound<'py, PyArray1<u8>>, Bound<'py, PyArray1<i64>>)> {
    let (records, part) = (records.as_slice()?, part.as_slice()?);
    let width = records.len().checked_div(part.len()).unwrap_or(0);
    let (found, counts) = py.detach(|| dealt(records, width, part, parts)).ok_or_else(|| {
        let (bytes, count) = (records.len(), part.len());
        value_error(format!(
            "got {bytes} bytes and {count} parts; expected records of one width, and parts below {parts}"
        ))
    })?;
    Ok((found.into_pyarray(py), PyArray1::from_iter(py, counts.into_iter().map(|count| count as i64))))
}

/// Segments of bytes, one after another.
#[pyfunction]
pub(crate) fn curate_near_segments<'py>(
    py: Python<'py>,
    data: PyReadonlyArray1<'py, u8>,
    starts: PyReadonlyArray1<'py, i64>,
    sizes: PyReadonlyArray1<'py, i64>,
) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let (data, starts, sizes) = (data.as_slice()?, starts.as_slice()?, sizes.as_slice()?);
    if starts.len() != sizes.len() {
        return Err(value_error(format!("got {} starts and {} sizes; expected as many", starts.len(), sizes.len())));
    }
    let found = py.detach(|| segments(data, starts, sizes));
    let bytes = data.len();
    let found = found.ok_or_else(|| value_error(format!("got a segment that is not within the {bytes} bytes")))?;
    Ok(found.into_pyarray(py))
}
