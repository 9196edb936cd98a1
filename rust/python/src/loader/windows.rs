//! Batches of windows of token arrays.

use numpy::{PyReadonlyArray1, PyReadwriteArray2, PyUntypedArrayMethods};
use pairmill_core::loader::windows::{Row, fill};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::loader::rows::{Lent, Numbers};

/// Token arrays, memory-mapped or not, whose windows make batches.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct TokenArrays(Vec<Py<Numbers>>);

#[pymethods]
impl TokenArrays {
    #[new]
    fn new(arrays: Vec<Py<Numbers>>) -> PyResult<Self> {
        match arrays.iter().position(|array| !array.get().integers()) {
            Some(number) => Err(PyTypeError::new_err(format!("array {number}: expected integers"))),
            None => Ok(Self(arrays)),
        }
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// One window for each row of `input_ids`; the first that has an id below 0.
    #[pyo3(signature = (arrays, starts, lengths, input_ids, labels, doc_ids=None, eos_id=None))]
    #[allow(clippy::too_many_arguments)]
    fn fill(
        &self,
        py: Python<'_>,
        arrays: PyReadonlyArray1<'_, i64>,
        starts: PyReadonlyArray1<'_, i64>,
        lengths: PyReadonlyArray1<'_, i64>,
        mut input_ids: PyReadwriteArray2<'_, i64>,
        mut labels: PyReadwriteArray2<'_, i64>,
        mut doc_ids: Option<PyReadwriteArray2<'_, i64>>,
        eos_id: Option<i64>,
    ) -> PyResult<Option<usize>> {
        let shape = [input_ids.shape()[0], input_ids.shape()[1]];
        let same = labels.shape() == shape && doc_ids.as_ref().is_none_or(|doc_ids| doc_ids.shape() == shape);
        let many = [arrays.len(), starts.len(), lengths.len()] == [shape[0]; 3];
        if !same || !many || shape[1] == 0 {
            return Err(PyValueError::new_err(
                "got arrays of different shapes; expected [windows] three times and [windows, slots] with at least one slot",
            ));
        }
        let packed = match (doc_ids.as_mut(), eos_id) {
            (Some(doc_ids), Some(eos)) => Some((eos, doc_ids.as_slice_mut()?)),
            (None, None) => None,
            _ => return Err(PyValueError::new_err("got one of doc_ids and eos_id; expected both or neither")),
        };
        let lent = arrays.as_slice()?.iter().map(|&number| {
            let array = usize::try_from(number).ok().and_then(|number| self.0.get(number));
            let array =
                array.ok_or_else(|| PyValueError::new_err(format!("got array {number} of {}", self.0.len())))?;
            Lent::of(py, array.get())
        });
        let lent = lent.collect::<PyResult<Vec<_>>>()?;
        let tokens = lent.iter().map(Lent::numbers).collect::<PyResult<Vec<_>>>()?;
        let (starts, lengths) = (starts.as_slice()?, lengths.as_slice()?);
        let (input_ids, labels) = (input_ids.as_slice_mut()?, labels.as_slice_mut()?);
        let slots = shape[1];
        let filled = py.detach(|| {
            let (eos, doc_ids) = packed.unzip();
            let mut documents = doc_ids.map(|doc_ids| doc_ids.chunks_exact_mut(slots));
            let mut bad = None;
            let rows = input_ids.chunks_exact_mut(slots).zip(labels.chunks_exact_mut(slots));
            for (number, (tokens, (input_ids, labels))) in tokens.into_iter().zip(rows).enumerate() {
                let packed = eos.zip(documents.as_mut().and_then(Iterator::next));
                let row = Row { input_ids, labels, packed };
                let span = usize::try_from(starts[number]).ok().zip(usize::try_from(lengths[number]).ok());
                let window = span.filter(|&(_, length)| length <= slots + 1);
                let window = window.and_then(|(start, length)| tokens.within(start, length)).ok_or(number)?;
                if !fill(window, row) {
                    bad = bad.or(Some(number));
                }
            }
            Ok(bad)
        });
        filled.map_err(|number: usize| {
            let (start, length) = (starts[number], lengths[number]);
            PyValueError::new_err(format!(
                "got window {number} of {length} tokens from {start} on, which is not in its array or longer than a row"
            ))
        })
    }
}
