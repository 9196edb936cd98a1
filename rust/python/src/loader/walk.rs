//! Where the batches of a plan's epochs begin, and where rows come in them.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pairmill_core::loader::pack::{Passed, Slots};
use pairmill_core::loader::walk::{Lengths, Walk, find};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::loader::rows::balance_of;

/// Inputs of a plan's rows, about a byte and a half each.
#[pyclass(module = "pairmill._native")]
pub(crate) struct RowLengths(Lengths);

#[pymethods]
impl RowLengths {
    #[new]
    fn new(rows: usize) -> Self {
        Self(Lengths::with_capacity(rows))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Slots that a rank needs for the row that needs the most.
    #[getter]
    const fn most(&self) -> i64 {
        self.0.most()
    }

    /// Add rows.
    fn extend(
        &mut self,
        py: Python<'_>,
        inst_len: PyReadonlyArray1<'_, i64>,
        resp_len: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<()> {
        let (inst_len, resp_len, lengths) = (inst_len.as_slice()?, resp_len.as_slice()?, &mut self.0);
        let added = py.detach(|| inst_len.iter().zip(resp_len).all(|(&inst, &resp)| lengths.push(inst, resp)));
        if added { Ok(()) } else { Err(PyValueError::new_err("got a row without a text, or longer than 2**31")) }
    }
}

/// A pass over an epoch that says where its batches end.
#[pyclass(module = "pairmill._native")]
pub(crate) struct BatchWalk(Walk);

#[pymethods]
impl BatchWalk {
    #[new]
    #[pyo3(signature = (start, *, ranks, tokens, balance, longer_than, skip_long, skip_one_token))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        start: i64,
        ranks: usize,
        tokens: i64,
        balance: &str,
        longer_than: i64,
        skip_long: bool,
        skip_one_token: bool,
    ) -> PyResult<Self> {
        if ranks == 0 || ranks > u32::MAX as usize {
            return Err(PyValueError::new_err(format!("got {ranks} ranks; expected 1 or more")));
        }
        let passed = Passed { longer_than, long: skip_long, one_token: skip_one_token };
        Ok(Self(Walk::new(start, Slots { ranks, tokens, causal: true }, balance_of(balance)?, passed)))
    }

    /// Go on with these places in the table, until `most` batches more have ended.
    fn follow(
        &mut self,
        py: Python<'_>,
        lengths: &RowLengths,
        places: PyReadonlyArray1<'_, u32>,
        most: usize,
    ) -> PyResult<bool> {
        let (places, walk) = (places.as_slice()?, &mut self.0);
        py.detach(|| walk.follow(&lengths.0, places, most))
            .ok_or_else(|| PyValueError::new_err("places: expected rows of the table"))
    }

    /// The batches that have ended since: rows, inputs and the row after each.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<i64>>> {
        let ends = self.0.take();
        let count = ends.len();
        PyArray1::from_vec(py, ends.into_flattened()).reshape([count, 3])
    }
}

/// Places of some values, and which each is.
#[pyfunction]
pub(crate) fn find_values<'py>(
    py: Python<'py>,
    values: PyReadonlyArray1<'py, u32>,
    wanted: PyReadonlyArray1<'py, u32>,
) -> PyResult<Bound<'py, PyArray2<i64>>> {
    let (values, wanted) = (values.as_slice()?, wanted.as_slice()?);
    if !wanted.is_sorted() {
        return Err(PyValueError::new_err("wanted: expected ascending numbers"));
    }
    let found = py.detach(|| find(values, wanted));
    let cells: Vec<_> = found.iter().flat_map(|&(place, which)| [place as i64, which as i64]).collect();
    PyArray1::from_vec(py, cells).reshape([found.len(), 2])
}
