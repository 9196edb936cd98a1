//! Permutations of torch.

use std::sync::{Mutex, PoisonError};

use numpy::{PyArray1, PyArrayMethods};
use pairmill_core::loader::mt19937::{LIMIT, Mt19937 as Core, TooMany};
use pyo3::prelude::*;

use crate::errors::value_error;

/// torch's generator on a CPU, for permutations.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Mt19937(Mutex<Core>);

#[pymethods]
impl Mt19937 {
    #[new]
    fn new(seed: u32) -> Self {
        Self(Mutex::new(Core::new(seed)))
    }

    /// The next permutation.
    fn randperm<'py>(&self, py: Python<'py>, n: usize) -> PyResult<Bound<'py, PyArray1<i64>>> {
        // Before an array of that size is asked for.
        if n >= LIMIT {
            return Err(value_error(TooMany(n)));
        }
        let out = PyArray1::zeros(py, n, false);
        {
            let mut values = out.try_readwrite()?;
            let values = values.as_slice_mut()?;
            py.detach(|| self.0.lock().unwrap_or_else(PoisonError::into_inner).randperm(values))
                .map_err(value_error)?;
        }
        Ok(out)
    }
}
