//! Shuffles of the sampler.

use std::sync::{Mutex, PoisonError};

use numpy::PyReadwriteArray1;
use pairmill_core::sample::philox::Philox as Core;
use pyo3::prelude::*;

use crate::errors::value_error;

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
        done.map_err(value_error)
    }
}
