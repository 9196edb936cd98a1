//! The sampler's planner: tasks in, reports and arrays out.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use numpy::{Element, IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1};
use pairmill_core::sample::drawn::{Draws, Eligible, Rows, Task};
use pairmill_core::sample::eligible::Limits;
use pairmill_core::sample::insert;
use pairmill_core::sample::numbers::Numbers;
use pairmill_core::sample::passes;
use pairmill_core::sample::philox::Philox;
use pairmill_core::sample::planner::{Made, Planner as Core, Report};
use pairmill_core::sample::source::Source;
use pairmill_core::sample::walk::{Walk, Want};
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;

/// A walk through rows of a task; `rows` of each epoch, or what a rule says. What holds before some epochs is `earlier`.
#[derive(FromPyObject)]
pub(crate) struct WalkToDraw<'py> {
    stream: String,
    members: Option<PyReadonlyArray1<'py, u32>>,
    rows: Option<Vec<u64>>,
    cap: Option<u64>,
    repeat: u64,
    budget: Option<u64>,
    most: Option<u32>,
    earlier: Vec<(usize, WalkToDraw<'py>)>,
}

impl WalkToDraw<'_> {
    fn want(&self) -> Want {
        match &self.rows {
            Some(rows) => Want::Rows(rows.clone()),
            None => Want::Rule { cap: self.cap, repeat: self.repeat, budget: self.budget },
        }
    }

    fn walk(self) -> PyResult<Walk> {
        let (want, members) = (self.want(), copied(self.members.as_ref())?);
        let earlier = self.earlier.iter().map(|(end, walk)| (*end, walk.want(), walk.most)).collect();
        Ok(Walk { stream: self.stream, members, want, most: self.most, earlier })
    }
}

/// A task: its folder and digests of its index arrays, or its rows that may be sampled.
#[derive(FromPyObject)]
pub(crate) struct TaskToDraw<'py> {
    walks: Vec<WalkToDraw<'py>>,
    folder: PathBuf,
    digests: Vec<String>,
    drop_long: bool,
    rows: Option<RowsToDraw<'py>>,
}

/// Rows that somebody else filtered.
#[derive(FromPyObject)]
pub(crate) struct RowsToDraw<'py> {
    columns: Vec<Bound<'py, PyAny>>,
    cut_places: PyReadonlyArray1<'py, i64>,
    cut_tokens: PyReadonlyArray1<'py, i64>,
    origins: Option<PyReadonlyArray1<'py, u32>>,
    passes: Option<PyReadonlyArray1<'py, u8>>,
    kept: Option<PyReadonlyArray1<'py, u8>>,
    kept_epochs: usize,
}

impl RowsToDraw<'_> {
    fn rows(&self) -> PyResult<Eligible> {
        let columns = self.columns.iter().map(|column| numbers(column)).collect::<PyResult<_>>()?;
        let places = self.cut_places.as_slice()?.iter().map(|&place| place as u32);
        let cut = places.zip(self.cut_tokens.as_slice()?.iter().map(|&lost| lost as u64)).collect();
        let origins = copied(self.origins.as_ref())?.unwrap_or_default();
        let counts = |values: Option<&PyReadonlyArray1<'_, u8>>| copied(values).map(Option::unwrap_or_default);
        let (passes, kept) = (counts(self.passes.as_ref())?, counts(self.kept.as_ref())?);
        Ok(Eligible { columns, cut, origins, passes, kept: (self.kept_epochs, kept) })
    }
}

fn copied<T: Element + Clone>(values: Option<&PyReadonlyArray1<'_, T>>) -> PyResult<Option<Vec<T>>> {
    Ok(values.map(|values| values.as_slice().map(<[T]>::to_vec)).transpose()?)
}

fn numbers(column: &Bound<'_, PyAny>) -> PyResult<Numbers> {
    if let Ok(values) = column.cast::<PyArray1<i32>>() {
        return Ok(Numbers::Narrow(values.try_readonly()?.as_slice()?.to_vec()));
    }
    if let Ok(values) = column.cast::<PyArray1<i64>>() {
        return Ok(Numbers::Wide(values.try_readonly()?.as_slice()?.to_vec()));
    }
    Err(PyTypeError::new_err("columns: expected one-dimensional arrays of int32 or int64"))
}

/// (counts, examples, walks): see the stub.
type Reported = (Vec<u64>, Vec<Vec<u64>>, Vec<(u64, u64, Vec<u64>)>);

fn reported(report: Report) -> Reported {
    let (counts, sums) = (report.counts, report.sums);
    let [short, over, once_cut] = counts.dropped;
    let (rows, tokens) = report.size;
    let values = [
        rows,
        tokens,
        short,
        over,
        once_cut,
        counts.least_context,
        sums.rows,
        sums.inst,
        sums.resp,
        sums.drawn_rows,
        sums.drawn_inst,
        sums.drawn_resp,
        sums.unique_rows,
        sums.unique_tokens,
        sums.cut_rows,
        sums.cut_tokens,
        sums.whole_rows,
        sums.whole_drawn,
        sums.squares,
    ];
    let walks = report.walks.into_iter().map(|walk| (walk.pool.0, walk.pool.1, walk.drawn)).collect();
    (values.to_vec(), counts.examples.to_vec(), walks)
}

/// An array, or the path, the length and the width of one in a file.
type Array<'py> = (Option<Bound<'py, PyAny>>, PathBuf, u64, usize);

fn array(py: Python<'_>, made: Made) -> Array<'_> {
    match made {
        Made::Held(Numbers::Narrow(values)) => (Some(values.into_pyarray(py).into_any()), PathBuf::new(), 0, 4),
        Made::Held(Numbers::Wide(values)) => (Some(values.into_pyarray(py).into_any()), PathBuf::new(), 0, 8),
        Made::Stored(path, length, width) => (None, path, length, width),
    }
}

/// Draws the plan of a sample.
#[pyclass(frozen, module = "pairmill._native")]
pub(crate) struct Planner {
    core: Mutex<Core>,
    limits: Limits,
}

impl Planner {
    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Planner {
    #[new]
    #[pyo3(signature = (seed, epochs, *, context, shortest, workers, budget, bases = 0))]
    fn new(
        seed: String,
        epochs: usize,
        context: u64,
        shortest: u64,
        workers: usize,
        budget: usize,
        bases: usize,
    ) -> Self {
        let core = Mutex::new(Core::new(Draws { seed, epochs }, bases, workers, budget));
        Self { core, limits: Limits { context, shortest, drop_long: false, test_whole: false } }
    }

    /// Draw the first of these tasks; their reports, and whether the task after them cannot be read here.
    fn draw<'py>(&self, py: Python<'py>, tasks: Vec<TaskToDraw<'py>>) -> PyResult<(Vec<Reported>, bool)> {
        let tasks = tasks.into_iter().map(|task| {
            let rows = match &task.rows {
                Some(rows) => Rows::Given(rows.rows()?),
                None => {
                    let limits = Limits { drop_long: task.drop_long, ..self.limits };
                    Rows::Files(Source { folder: task.folder, digests: task.digests }, limits)
                }
            };
            Ok(Task { rows, walks: task.walks.into_iter().map(WalkToDraw::walk).collect::<PyResult<_>>()? })
        });
        let tasks = tasks.collect::<PyResult<Vec<_>>>()?;
        let (reports, failed) = py.detach(|| self.core().draw(&tasks))?;
        Ok((reports.into_iter().map(reported).collect(), failed))
    }

    /// Whether more is in memory than the budget.
    fn is_full(&self) -> bool {
        self.core().is_full()
    }

    /// Move what is in memory to files in this folder.
    fn store_in(&self, py: Python<'_>, scratch: PathBuf) -> PyResult<()> {
        Ok(py.detach(|| self.core().store_in(scratch))?)
    }

    /// Counts of the rows that are drawn by tokens, and of those that are cut by the tokens that they lose.
    fn histograms(&self) -> (Vec<u64>, Vec<u64>) {
        let core = self.core();
        let (lengths, cuts) = core.histograms();
        (lengths.to_vec(), cuts.to_vec())
    }

    /// Take the columns, by name.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Array<'py>)>> {
        let made = py.detach(|| self.core().columns())?;
        Ok(made.into_iter().map(|(name, made)| (name, array(py, made))).collect())
    }

    /// Take the places of an epoch.
    fn epoch<'py>(&self, py: Python<'py>, number: usize) -> PyResult<Array<'py>> {
        let made = py.detach(|| self.core().epoch(number))?;
        Ok(array(py, made))
    }
}

/// Draw where the rows that a plan adds come in an epoch.
#[pyfunction]
pub(crate) fn added_places<'py>(
    py: Python<'py>,
    seed: &str,
    bases: usize,
    epoch: usize,
    count: u32,
    total: u32,
) -> Bound<'py, PyArray1<u32>> {
    let mut random = Philox::named(seed, &format!("added\0{bases}\0{epoch}"));
    py.detach(|| insert::places(&mut random, count, total)).into_pyarray(py)
}

/// Count the places of an epoch; see the stub.
#[pyfunction]
pub(crate) fn add_passes(
    py: Python<'_>,
    counts: &Bound<'_, PyArray1<u8>>,
    places: PyReadonlyArray1<'_, u32>,
) -> PyResult<()> {
    let mut counts = counts.try_readwrite()?;
    let (counts, places) = (counts.as_slice_mut()?, places.as_slice()?);
    py.detach(|| passes::add(counts, places))
        .map_err(|place| PyIndexError::new_err(format!("place {place} is not among the counts")))
}
