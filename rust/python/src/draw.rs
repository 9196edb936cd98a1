//! Shuffles and gathers of the sampler.

use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray1};
use pairmill_core::gather::{Id, gather as core_gather};
use pairmill_core::philox::Philox as Core;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// numpy's `Generator(Philox)`, for permutations.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Philox(Mutex<Core>);

#[pymethods]
impl Philox {
    #[new]
    fn new(low: u64, high: u64) -> Self {
        Self(Mutex::new(Core::new([low, high])))
    }

    /// Shuffle in place.
    fn shuffle(&self, py: Python<'_>, mut values: PyReadwriteArray1<'_, u32>) -> PyResult<()> {
        let values = values.as_slice_mut()?;
        let done = py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).shuffle(values));
        done.map_err(|error| PyValueError::new_err(error.to_string()))
    }
}

/// Ids of spans, one after another; the largest.
#[pyfunction]
pub(crate) fn gather(
    py: Python<'_>,
    tokens: PyReadonlyArray1<'_, u32>,
    starts: PyReadonlyArray1<'_, i64>,
    lengths: PyReadonlyArray1<'_, i64>,
    out: &Bound<'_, PyAny>,
) -> PyResult<u32> {
    let (starts, lengths) = (starts.as_slice()?, lengths.as_slice()?);
    if starts.len() != lengths.len() {
        return Err(PyValueError::new_err(format!("got {} starts and {} lengths", starts.len(), lengths.len())));
    }
    let tokens = tokens.as_slice()?;
    if let Ok(out) = out.cast::<PyArray1<u16>>() {
        into(py, tokens, starts, lengths, out)
    } else if let Ok(out) = out.cast::<PyArray1<i32>>() {
        into(py, tokens, starts, lengths, out)
    } else if let Ok(out) = out.cast::<PyArray1<u8>>() {
        into(py, tokens, starts, lengths, out)
    } else {
        Err(PyTypeError::new_err("out: expected a one-dimensional array of uint8, uint16 or int32"))
    }
}

fn into<T: Id + numpy::Element + Send + Sync>(
    py: Python<'_>,
    tokens: &[u32],
    starts: &[i64],
    lengths: &[i64],
    out: &Bound<'_, PyArray1<T>>,
) -> PyResult<u32> {
    let mut out = out.try_readwrite()?;
    let out = out.as_slice_mut()?;
    // A negative number becomes one that lies outside any tokens.
    let spans = starts.iter().zip(lengths).map(|(&start, &length)| (start as u64, length as u64));
    let made = py.detach(|| core_gather(tokens, spans, out));
    made.map_err(|error| PyValueError::new_err(error.to_string()))
}
