//! The training-side loader: windows of rows, global batches, the slots of a rank.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray2};
use pairmill_core::loader::numbers::{Kind, Numbers as Core};
use pairmill_core::loader::pack::{self, Balance, Index, Passed, Row, Sight};
use pairmill_core::loader::prefixlm::{self, Odd};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::NoCausalError;
use crate::loader::files::TokenFiles;

/// Columns of a window.
const COLUMNS: usize = 5;

/// An array of numbers of any type, where it lies.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Numbers {
    bytes: Py<PyArray1<u8>>,
    kind: Kind,
}

#[pymethods]
impl Numbers {
    #[new]
    fn new(array: Py<PyArray1<u8>>, kind: &str) -> PyResult<Self> {
        let kind = Kind::parse(kind).ok_or_else(|| {
            PyValueError::new_err(format!("got numbers of type {kind:?}; expected u1 to u8, i1 to i8, f4 or f8"))
        })?;
        Ok(Self { bytes: array, kind })
    }
}

impl Numbers {
    pub(crate) fn integers(&self) -> bool {
        !matches!(self.kind, Kind::F4 | Kind::F8)
    }
}

/// Numbers as the core reads them, while the array is lent.
pub(crate) struct Lent<'py> {
    bytes: PyReadonlyArray1<'py, u8>,
    kind: Kind,
}

impl<'py> Lent<'py> {
    pub(crate) fn of(py: Python<'py>, numbers: &Numbers) -> PyResult<Self> {
        let bytes = numbers.bytes.bind(py).try_readonly()?;
        Ok(Self { bytes, kind: numbers.kind })
    }

    pub(crate) fn numbers(&self) -> PyResult<Core<'_>> {
        Ok(Core::new(self.bytes.as_slice()?, self.kind))
    }
}

/// The index arrays of an epoch.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct RowIndex {
    columns: [Py<Numbers>; 4],
}

#[pymethods]
impl RowIndex {
    #[new]
    fn new(inst_start: Py<Numbers>, inst_len: Py<Numbers>, resp_start: Py<Numbers>, resp_len: Py<Numbers>) -> Self {
        Self { columns: [inst_start, inst_len, resp_start, resp_len] }
    }

    /// Rows from `start` on, until their inputs add up to `tokens`.
    #[pyo3(signature = (start, tokens, *, longer_than=i64::MAX, skip_long=false, skip_one_token=false))]
    fn window<'py>(
        &self,
        py: Python<'py>,
        start: usize,
        tokens: i64,
        longer_than: i64,
        skip_long: bool,
        skip_one_token: bool,
    ) -> PyResult<Bound<'py, PyArray2<i64>>> {
        let passed = Passed { longer_than, long: skip_long, one_token: skip_one_token };
        let rows = self.with(py, |index| py.detach(|| index.window(start, tokens, passed)))?;
        let mut cells = Vec::with_capacity(rows.len() * COLUMNS);
        for row in &rows {
            cells.extend([row.number, row.inst_start, row.inst_len, row.resp_start, row.resp_len]);
        }
        PyArray1::from_vec(py, cells).reshape([rows.len(), COLUMNS])
    }

    /// Figures of the epoch.
    #[pyo3(signature = (tokens, *, longer_than=i64::MAX, skip_long=false, skip_one_token=false))]
    fn survey<'py>(
        &self,
        py: Python<'py>,
        tokens: u64,
        longer_than: i64,
        skip_long: bool,
        skip_one_token: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let passed = Passed { longer_than, long: skip_long, one_token: skip_one_token };
        let (rows, found) = self.with(py, |index| py.detach(|| (index.rows(), index.survey(tokens, passed))))?;
        let sight = |sight: Sight| (sight.count, sight.first);
        let out = PyDict::new(py);
        out.set_item("rows", rows)?;
        out.set_item("empty", sight(found.empty))?;
        out.set_item("outside", sight(found.outside))?;
        out.set_item("long", sight(found.long))?;
        out.set_item("one_token", sight(found.one_token))?;
        out.set_item("skipped", found.passed)?;
        out.set_item("inputs", found.length)?;
        out.set_item("targets", found.targets)?;
        out.set_item("longest", (found.longest, found.longest_row))?;
        Ok(out)
    }
}

impl RowIndex {
    fn with<T>(&self, py: Python<'_>, work: impl FnOnce(Index<'_>) -> T) -> PyResult<T> {
        let [inst_start, inst_len, resp_start, resp_len] = &self.columns;
        let lent = [inst_start, inst_len, resp_start, resp_len].map(|column| Lent::of(py, column.get()));
        let [inst_start, inst_len, resp_start, resp_len] = lent;
        let (inst_start, inst_len, resp_start, resp_len) = (inst_start?, inst_len?, resp_start?, resp_len?);
        Ok(work(Index {
            inst_start: inst_start.numbers()?,
            inst_len: inst_len.numbers()?,
            resp_start: resp_start.numbers()?,
            resp_len: resp_len.numbers()?,
        }))
    }
}

/// Rows of a window by rank.
type Packed<'py> = (usize, Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>);

/// The rows of a window that make a global batch, and whose they are.
#[pyfunction]
#[pyo3(signature = (window, ranks, tokens, *, causal=false, balance="lpt"))]
pub(crate) fn pack_rows<'py>(
    py: Python<'py>,
    window: PyReadonlyArray2<'py, i64>,
    ranks: usize,
    tokens: i64,
    causal: bool,
    balance: &str,
) -> PyResult<Packed<'py>> {
    if ranks == 0 || ranks > u32::MAX as usize {
        return Err(PyValueError::new_err(format!("got {ranks} ranks; expected 1 or more")));
    }
    let balance = match balance {
        "lpt" => Balance::Lpt,
        "quadratic" => Balance::Quadratic,
        "quadratic_work" => Balance::QuadraticWork,
        other => {
            return Err(PyValueError::new_err(format!(
                "got balance {other:?}; expected lpt, quadratic or quadratic_work"
            )));
        }
    };
    let window = rows_of(window.as_slice()?);
    let slots = pack::Slots { ranks, tokens, causal };
    let packed = py.detach(|| pack::pack(&window, slots, balance));
    let packed = packed.map_err(|error| NoCausalError::new_err((error.multi, error.rows)))?;
    Ok((packed.rows, PyArray1::from_vec(py, packed.places), PyArray1::from_vec(py, packed.ends)))
}

/// Where a row's tokens are.
#[derive(FromPyObject)]
pub(crate) enum Tokens<'py> {
    Mapped(Bound<'py, Numbers>),
    Stored(Bound<'py, TokenFiles>),
}

/// Write a rank's rows into its slots.
#[pyfunction]
pub(crate) fn fill_prefixlm(
    py: Python<'_>,
    tokens: Tokens<'_>,
    window: PyReadonlyArray2<'_, i64>,
    places: PyReadonlyArray1<'_, u32>,
    target_only: bool,
    mut out: PyReadwriteArray2<'_, i32>,
) -> PyResult<(i64, i64, i64, i64, i64)> {
    let (window, places) = (window.as_slice()?, places.as_slice()?);
    if places.iter().any(|&place| place as usize >= window.len() / COLUMNS) {
        return Err(PyValueError::new_err("places: expected places in the window"));
    }
    let slots = out.as_array().ncols();
    let mut arrays = out.as_slice_mut()?.chunks_exact_mut(slots.max(1));
    let mut next = || arrays.next().ok_or_else(|| PyValueError::new_err("out: expected 6 or 7 arrays of slots"));
    let mut slots = prefixlm::Slots {
        inputs: next()?,
        labels: next()?,
        position_ids: next()?,
        prefix_lens: next()?,
        causal_lens: next()?,
        cu_seqlens: next()?,
        doc_ids: arrays.next(),
    };
    let rows: Vec<_> = places.iter().map(|&place| row_of(&window[place as usize * COLUMNS..][..COLUMNS])).collect();
    let filled = match tokens {
        Tokens::Mapped(numbers) => {
            let lent = Lent::of(py, numbers.get())?;
            let tokens = lent.numbers()?;
            py.detach(|| prefixlm::fill(&tokens, rows.iter(), target_only, &mut slots))
        }
        Tokens::Stored(files) => {
            let files = files.get();
            py.detach(|| {
                let tokens = files.reading();
                let filled = prefixlm::fill(&tokens, rows.iter(), target_only, &mut slots);
                tokens.failure().map_or(Ok(filled), Err)
            })?
        }
    };
    let sizes = filled.map_err(|odd| match odd {
        Odd::Room => PyValueError::new_err("got more inputs or rows than there are slots"),
        Odd::Row(number) => PyValueError::new_err(format!(
            "got a row (number {number} of the batch) with an empty text, or outside the tokens"
        )),
    })?;
    Ok((sizes.total_seqlen, sizes.numseqs, sizes.max_seqlen_prefix, sizes.max_seqlen_causal, sizes.max_seqlen_all))
}

fn row_of(cells: &[i64]) -> Row {
    Row { number: cells[0], inst_start: cells[1], inst_len: cells[2], resp_start: cells[3], resp_len: cells[4] }
}

fn rows_of(cells: &[i64]) -> Vec<Row> {
    cells.chunks_exact(COLUMNS).map(row_of).collect()
}
