//! Batches of windows of token arrays.

use numpy::{Element, PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadwriteArray2, PyUntypedArrayMethods};
use pairmill_core::loader::windows::{Row, Token, fill};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

macro_rules! kinds {
    ($($name:ident $kind:ty),*) => {
        enum Held {
            $($name(Py<PyArray1<$kind>>)),*
        }

        enum Borrowed<'py> {
            $($name(PyReadonlyArray1<'py, $kind>)),*
        }

        #[derive(Clone, Copy)]
        enum Tokens<'a> {
            $($name(&'a [$kind])),*
        }

        impl Held {
            fn of(array: &Bound<'_, PyAny>) -> Option<Self> {
                $(if let Ok(array) = array.cast::<PyArray1<$kind>>() {
                    return Some(Self::$name(array.clone().unbind()));
                })*
                None
            }

            fn borrow<'py>(&self, py: Python<'py>) -> PyResult<Borrowed<'py>> {
                Ok(match self {
                    $(Self::$name(array) => Borrowed::$name(array.bind(py).try_readonly()?)),*
                })
            }
        }

        impl Borrowed<'_> {
            fn tokens(&self) -> PyResult<Tokens<'_>> {
                Ok(match self {
                    $(Self::$name(array) => Tokens::$name(array.as_slice()?)),*
                })
            }
        }

        impl Tokens<'_> {
            /// None: the window does not lie in the array.
            fn fill(self, start: i64, length: i64, row: Row<'_>) -> Option<bool> {
                match self {
                    $(Self::$name(tokens) => Some(fill(within(tokens, start, length)?, row))),*
                }
            }
        }
    };
}

kinds!(U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64);

fn within<T: Token + Element>(tokens: &[T], start: i64, length: i64) -> Option<&[T]> {
    let start = usize::try_from(start).ok()?;
    tokens.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

/// Token arrays, memory-mapped or not, whose windows make batches.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct TokenArrays(Vec<Held>);

#[pymethods]
impl TokenArrays {
    #[new]
    fn new(py: Python<'_>, arrays: Vec<Py<PyAny>>) -> PyResult<Self> {
        let held = arrays.iter().enumerate().map(|(number, array)| {
            let array = array.bind(py);
            let held = Held::of(array).ok_or_else(|| {
                PyTypeError::new_err(format!("array {number}: expected a one-dimensional array of native integers"))
            })?;
            held.borrow(py)?.tokens()?;
            Ok(held)
        });
        Ok(Self(held.collect::<PyResult<_>>()?))
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
        let borrowed = arrays.as_slice()?.iter().map(|&number| {
            let held = usize::try_from(number).ok().and_then(|number| self.0.get(number));
            held.ok_or_else(|| PyValueError::new_err(format!("got array {number} of {}", self.0.len())))?.borrow(py)
        });
        let borrowed = borrowed.collect::<PyResult<Vec<_>>>()?;
        let tokens = borrowed.iter().map(Borrowed::tokens).collect::<PyResult<Vec<_>>>()?;
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
                let length = lengths[number];
                let good = if length <= slots as i64 + 1 { tokens.fill(starts[number], length, row) } else { None };
                if !good.ok_or(number)? {
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
