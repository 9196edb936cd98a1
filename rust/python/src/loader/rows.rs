//! The training-side loader: windows of rows, global batches, the slots of a rank.

use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray2};
use pairmill_core::loader::numbers::{Kind, Numbers as Core};
use pairmill_core::loader::pack::{self, Balance, Index, Passed, Row, Sight};
use pairmill_core::loader::plain::{Plain, plain};
use pairmill_core::loader::prefixlm::{self, Ids, Odd};
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
    let balance = balance_of(balance)?;
    let window = rows_of(window.as_slice()?);
    let slots = pack::Slots { ranks, tokens, causal };
    let packed = py.detach(|| pack::pack(&window, slots, balance));
    let packed = packed.map_err(|error| NoCausalError::new_err((error.multi, error.rows)))?;
    Ok((packed.rows, PyArray1::from_vec(py, packed.places), PyArray1::from_vec(py, packed.ends)))
}

pub(crate) fn balance_of(name: &str) -> PyResult<Balance> {
    Ok(match name {
        "lpt" => Balance::Lpt,
        "quadratic" => Balance::Quadratic,
        "quadratic_work" => Balance::QuadraticWork,
        other => {
            return Err(PyValueError::new_err(format!(
                "got balance {other:?}; expected lpt, quadratic or quadratic_work"
            )));
        }
    })
}

/// Global batches in the middle of an epoch, one after another, of which a rank's rows are kept.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct RowRun(Vec<Plain>);

/// Sizes of a batch, and its rows: number of the source, epoch, number.
type Filled<'py> = (Sizes, Bound<'py, PyArray2<i64>>);

#[pymethods]
impl RowRun {
    /// At most `count` batches from the row `start` on.
    #[new]
    #[pyo3(signature = (index, start, count, *, rank, ranks, tokens, balance, longer_than, skip_long, skip_one_token))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        index: &RowIndex,
        start: usize,
        count: usize,
        rank: usize,
        ranks: usize,
        tokens: i64,
        balance: &str,
        longer_than: i64,
        skip_long: bool,
        skip_one_token: bool,
    ) -> PyResult<Self> {
        if rank >= ranks || ranks > u32::MAX as usize {
            return Err(PyValueError::new_err(format!("got rank {rank} of {ranks}")));
        }
        let passed = Passed { longer_than, long: skip_long, one_token: skip_one_token };
        let (slots, balance) = (pack::Slots { ranks, tokens, causal: true }, balance_of(balance)?);
        let next = |index: &Index<'_>, last: Option<&Plain>| {
            let start = last.map_or(start, |last| last.next as usize);
            plain(index, start, passed, slots, balance, rank)
        };
        let run = |index: Index<'_>| {
            std::iter::successors(next(&index, None), |last| next(&index, Some(last))).take(count).collect()
        };
        index.with(py, |index| py.detach(|| run(index))).map(Self)
    }

    /// Rows and inputs of each, and the row after it.
    fn sizes(&self) -> Vec<(usize, i64, i64)> {
        self.0.iter().map(|batch| (batch.rows, batch.tokens, batch.next)).collect()
    }

    /// Write the batches from the one of this number on into slots, one into each of `outs`.
    fn fill<'py>(
        &self,
        py: Python<'py>,
        tokens: Tokens<'py>,
        first: usize,
        source: (i64, i64),
        target_only: bool,
        mut outs: Vec<PyReadwriteArray2<'py, i32>>,
    ) -> PyResult<Vec<Filled<'py>>> {
        let batches = self.0.get(first..).and_then(|batches| batches.get(..outs.len()));
        let batches = batches.ok_or_else(|| PyValueError::new_err("got more arrays than there are batches"))?;
        let mut jobs = Vec::with_capacity(outs.len());
        for (batch, out) in batches.iter().zip(&mut outs) {
            let slots = out.as_array().ncols();
            jobs.push((batch.mine.as_slice(), out.as_slice_mut()?, slots));
        }
        let sizes = tokens.fill(py, jobs, target_only)?;
        let rows = batches.iter().map(|batch| {
            let cells = batch.mine.iter().flat_map(|row| [source.0, source.1, row.number]).collect();
            PyArray1::from_vec(py, cells).reshape([batch.mine.len(), 3])
        });
        sizes.into_iter().zip(rows).map(|(sizes, rows)| Ok((sizes, rows?))).collect()
    }
}

/// Where a row's tokens are.
#[derive(FromPyObject)]
pub(crate) enum Tokens<'py> {
    Mapped(Bound<'py, Numbers>),
    Stored(Bound<'py, TokenFiles>),
}

/// `total_seqlen`, `numseqs`, `max_seqlen_prefix`, `max_seqlen_causal`, `max_seqlen_all`.
type Sizes = (i64, i64, i64, i64, i64);

/// Rows, the arrays that they are written into, and their slots.
type Job<'a> = (&'a [Row], &'a mut [i32], usize);

impl Tokens<'_> {
    /// Do the jobs without the interpreter.
    fn fill(&self, py: Python<'_>, jobs: Vec<Job<'_>>, target_only: bool) -> PyResult<Vec<Sizes>> {
        match self {
            Self::Mapped(numbers) => {
                let lent = Lent::of(py, numbers.get())?;
                let tokens = lent.numbers()?;
                py.detach(|| jobs.into_iter().map(|job| fill_slots(&tokens, job, target_only)).collect())
            }
            Self::Stored(files) => {
                let files = files.get();
                py.detach(|| {
                    let tokens = files.reading();
                    let filled = jobs.into_iter().map(|job| fill_slots(&tokens, job, target_only)).collect();
                    tokens.failure().map_or(filled, Err)
                })
            }
        }
    }
}

fn fill_slots(tokens: &impl Ids, (rows, out, slots): Job<'_>, target_only: bool) -> PyResult<Sizes> {
    let mut arrays = out.chunks_exact_mut(slots.max(1));
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
    let sizes = prefixlm::fill(tokens, rows.iter(), target_only, &mut slots).map_err(|odd| match odd {
        Odd::Room => PyValueError::new_err("got more inputs or rows than there are slots"),
        Odd::Row(number) => PyValueError::new_err(format!(
            "got a row (number {number} of the batch) with an empty text, or outside the tokens"
        )),
    })?;
    Ok((sizes.total_seqlen, sizes.numseqs, sizes.max_seqlen_prefix, sizes.max_seqlen_causal, sizes.max_seqlen_all))
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
) -> PyResult<Sizes> {
    let (window, places) = (window.as_slice()?, places.as_slice()?);
    if places.iter().any(|&place| place as usize >= window.len() / COLUMNS) {
        return Err(PyValueError::new_err("places: expected places in the window"));
    }
    let slots = out.as_array().ncols();
    let rows: Vec<_> = places.iter().map(|&place| row_of(&window[place as usize * COLUMNS..][..COLUMNS])).collect();
    let sizes = tokens.fill(py, vec![(rows.as_slice(), out.as_slice_mut()?, slots)], target_only)?;
    sizes.into_iter().next().ok_or_else(|| PyValueError::new_err("out: expected one"))
}

fn row_of(cells: &[i64]) -> Row {
    Row { number: cells[0], inst_start: cells[1], inst_len: cells[2], resp_start: cells[3], resp_len: cells[4] }
}

fn rows_of(cells: &[i64]) -> Vec<Row> {
    cells.chunks_exact(COLUMNS).map(row_of).collect()
}
