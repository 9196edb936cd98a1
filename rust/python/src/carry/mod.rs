//! What a node makes of a plan: the arrays of epochs, and the file of tokens, digested as they are written.

pub(crate) mod epochs;
pub(crate) mod tokens;

use numpy::PyReadonlyArray1;
use pairmill_core::sample::gather::gather;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::value_error;

/// Numbers of 0 or more, int32 or int64.
pub(crate) enum Column<'py> {
    Short(PyReadonlyArray1<'py, i32>),
    Long(PyReadonlyArray1<'py, i64>),
}

impl<'py> FromPyObject<'_, 'py> for Column<'py> {
    type Error = PyErr;

    fn extract(item: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match item.extract() {
            Ok(short) => Ok(Self::Short(short)),
            Err(_) => Ok(Self::Long(item.extract()?)),
        }
    }
}

impl Column<'_> {
    fn numbers(&self) -> PyResult<Numbers<'_>> {
        Ok(match self {
            Self::Short(values) => Numbers::Short(values.as_slice()?),
            Self::Long(values) => Numbers::Long(values.as_slice()?),
        })
    }
}

/// Numbers where Python has them: copies of the columns of a piece cost a page fault for every 512 rows.
enum Numbers<'a> {
    Short(&'a [i32]),
    Long(&'a [i64]),
}

impl Numbers<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Short(values) => values.len(),
            Self::Long(values) => values.len(),
        }
    }

    /// What is negative becomes a number that no array has.
    #[inline(always)]
    fn get(&self, row: usize) -> u64 {
        match self {
            Self::Short(values) => i64::from(values[row]) as u64,
            Self::Long(values) => values[row] as u64,
        }
    }
}

/// The four index columns of some rows.
pub(crate) struct Rows<'a> {
    columns: [Numbers<'a>; 4],
}

impl<'a> Rows<'a> {
    pub(crate) fn new(columns: &'a [Column<'_>; 4]) -> PyResult<Self> {
        let [a, b, c, d] = columns.each_ref().map(Column::numbers);
        let columns = [a?, b?, c?, d?];
        if columns.iter().any(|column| column.len() != columns[0].len()) {
            return Err(PyValueError::new_err("got columns of different lengths"));
        }
        Ok(Self { columns })
    }

    pub(crate) fn len(&self) -> usize {
        self.columns[0].len()
    }

    pub(crate) fn spans(&self, row: usize) -> [(u64, u64); 2] {
        let [inst_start, inst_len, resp_start, resp_len] = &self.columns;
        [(inst_start.get(row), inst_len.get(row)), (resp_start.get(row), resp_len.get(row))]
    }
}

/// Ids of spans of an array in memory, one after another, in `width` bytes each; the largest.
#[pyfunction]
#[pyo3(name = "gather")]
pub(crate) fn gather_spans(
    py: Python<'_>,
    tokens: PyReadonlyArray1<'_, u8>,
    starts: PyReadonlyArray1<'_, i64>,
    lengths: PyReadonlyArray1<'_, i64>,
    width: usize,
    mut out: numpy::PyReadwriteArray1<'_, u8>,
) -> PyResult<u32> {
    let (ids, starts, lengths) = (tokens.as_slice()?, starts.as_slice()?, lengths.as_slice()?);
    if starts.len() != lengths.len() {
        return Err(PyValueError::new_err(format!("got {} starts and {} lengths", starts.len(), lengths.len())));
    }
    let out = out.as_slice_mut()?;
    // A negative number becomes one that is outside any array.
    let spans = starts.iter().zip(lengths).map(|(&start, &length)| (start as u64, length as u64));
    py.detach(|| gather(ids, spans, width, out)).map_err(value_error)
}
